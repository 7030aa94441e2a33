"""What stands behind the library's protocols in a job of the magic committer, for tests that look
inside."""

from __future__ import annotations

import magic_committer as mc
from magic_committer.committers.base import JobCommitter, TaskAttempt
from magic_committer.committers.magic import Attempt, MagicCommitter
from magic_committer.committers.manifest import ManifestCommitter, TreeAttempt
from magic_committer.committers.staging import (
    DirectoryCommitter,
    PartitionedCommitter,
    StagingAttempt,
)
from magic_committer.options import Mode

Uploading = MagicCommitter | DirectoryCommitter | PartitionedCommitter | ManifestCommitter
"""The library's committers that complete uploads."""
Writing = Attempt | StagingAttempt | TreeAttempt
"""Their attempts."""
CLASSES: dict[str, type[Uploading]] = {
    one.name: one for one in (MagicCommitter, DirectoryCommitter, PartitionedCommitter)
}
BY_NAME: dict[str, type[Uploading]] = {**CLASSES, ManifestCommitter.name: ManifestCommitter}


def takes(kind: type[Uploading], mode: Mode) -> bool:
    """Whether a mode is one of a committer's records."""
    try:
        return kind.mode(mode) == mode
    except mc.OptionError:
        return False


def upload_of(file: object) -> mc.UploadStream:
    """The upload that a file of a task is."""
    assert isinstance(file, mc.UploadStream)
    return file


def attempt_of(attempt: TaskAttempt) -> Attempt:
    assert isinstance(attempt, Attempt)
    return attempt


def uploads_of(committer: JobCommitter) -> MagicCommitter:
    """The committer, which is magic's."""
    assert isinstance(committer, MagicCommitter)
    return committer
