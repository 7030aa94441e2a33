"""The committers: protocols that publish a job's files. They are siblings and never import each
other.

There is one so far: `magic`, with multipart uploads that are completed when the job commits.
"""
