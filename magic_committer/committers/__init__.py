"""The committers: protocols that publish a job's files, behind the same verbs (`base`).

* `magic`: files are multipart uploads, sent while they are written, that the job completes.
* `staging`: files wait on local disk until their task commits; then they are uploads as magic's,
  and the same job completes them. Its attempt sends through magic's attempt.
* `manifest`: files wait at the destination, and the job renames them into place.

A job's record names its committer (`Terms.committer`), so each process has the right one. The
names are in `base`.
"""
