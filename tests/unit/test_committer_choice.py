"""Which committer a new job gets: by the call or the scheme."""

from __future__ import annotations

import pytest

from magic_committer.committers.registry import committer_for
from magic_committer.committers.staging import DirectoryCommitter
from magic_committer.errors import WrongType

DEST = "s3://bucket/t"


def chosen(dest: str = DEST, said: str | None = None) -> str:
    """The name of the committer that a job gets."""
    return committer_for(dest, said).name


def test_who_names_none_gets_the_committer_of_the_scheme() -> None:
    """Magic on S3, also as s3a; manifest on a disk. What the call says wins."""
    assert chosen() == chosen("s3a://bucket/t") == "magic"
    assert chosen("file:///t") == "manifest"
    assert chosen(said="Directory") == "directory"


def test_what_is_no_name_is_refused() -> None:
    """A class, say."""
    with pytest.raises(WrongType):
        committer_for(DEST, DirectoryCommitter)  # type: ignore[arg-type]  # what is tried
