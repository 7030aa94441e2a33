"""A task as a file system, for libraries that write directories: its writes are the task's files.

``fs = job.filesystem()`` goes where a library accepts an fsspec file system. What is written there
becomes visible when the job commits, and not before. What a writer asks meanwhile (`exists`, `ls`,
`info`) is answered with what its own task has written.

Theory. A file of a task is a multipart upload: it can be written once, from start to end, and it is
no object before the commit. So of a file that is closed three things are left:

* its size and name are known (`sink`);
* its bytes are kept here if it is small (`job_files`): then it can be read, copied and renamed;
* it can be taken out of its task: `Task.discard`, which is what `rm` means here.

Everything else is a `NotYetAnObject`. Objects of the destination are shown and read with
``read_through=True``, and are never deleted: that is what the job's mode is for.

Invariants:

* The task decides. A file that a library closes because of an error is part of the task, which is
  aborted by that error; nothing is visible of it.
* The task knows its files; `sink` asks the upload itself whether it still counts.
* At most ``keep_bytes_max`` bytes are kept for reading, and a file of more than an eighth of that
  is not kept at all.
* Paths without a scheme are relative to the destination. A path with one (``s3://bucket/table/x``)
  must be below the destination.

``sink`` is what all of this needs of a task, ``calls`` what `Task` and `Writing` have of it for
their users. ``job_files`` and ``urls`` are the two file systems of fsspec: only they need it
(``pip install 'magic-committer[fsspec]'``). ``put`` puts files and objects into a task.
"""
