"""The committers: protocols that publish a job's files, siblings that never import each other.

One so far: `magic`, multipart uploads that are completed when the job commits.
"""
