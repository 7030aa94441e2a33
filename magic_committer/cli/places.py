"""What a path of a command is: a directory on S3, or one whose jobs are jobs of renames.

Commands about jobs take both. Commands about what only S3 has (uploads, permissions, rules of a
bucket) refuse the second kind here, before they do anything.
"""

from __future__ import annotations

import re

from magic_committer.errors import PathError
from magic_committer.hadoop.paths import Destination
from magic_committer.stores.urls import is_tree, is_tree_url

_BARE = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?\Z", re.DOTALL)
"""A bucket's name as S3 takes it for new buckets, with or without a path."""


Place = Destination
"""A destination of jobs."""


def is_bucket(path: Place) -> bool:
    """Whether a path is a whole bucket. Pure."""
    return not path.prefix and not is_tree(path.bucket)


def s3_url(text: str) -> str:
    """A path as people type it: ``mybucket`` and ``mybucket/table`` are ``s3://mybucket/table``.
    What could be no bucket is left as it is, for the error to show. Pure."""
    return f"s3://{text}" if _BARE.match(text) else text


def place(text: str) -> Place:
    """Read a path of either kind. Pure: whether a remote file system is there, its first use tells.

    Raises:
        PathError: it is none, or its file system cannot decide jobs.
    """
    return Destination.parse(text if is_tree_url(text) else s3_url(text))


def on_s3(text: str) -> str:
    """The URL of a path for a command about what only S3 has. Pure.

    Raises:
        PathError: it is another kind of destination.
    """
    if is_tree_url(text):
        raise PathError(
            f"{text} is a directory of files: this command is about what only S3 has",
            hint="The commands `job`, `put` and `cleanup` take it",
        )
    return s3_url(text)
