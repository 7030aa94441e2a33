"""Writes to S3 that are all or nothing: files appear when their job commits, and not before.

Start with `write` (one process) or `start` (many). The README tells the rest, ``docs/`` why.
"""

from magic_committer.api import attach, open_magic, start, write
from magic_committer.errors import (
    AbortIncomplete,
    AlreadyVisible,
    CommitIncomplete,
    CommitRefused,
    ConditionsNotSupported,
    ConflictingJob,
    DestinationExists,
    FileStillOpen,
    FormatError,
    IncompleteJob,
    JobError,
    JobExists,
    JobNotFound,
    JobNotRunning,
    JobTooYoung,
    MagicError,
    NotFound,
    OptionError,
    OutcomeUnknown,
    PathError,
    PermissionDenied,
    StoreError,
    TaskFailed,
    UploadFailed,
    WrongProcess,
)
from magic_committer.handles import Job, Task
from magic_committer.job import JobReport, TaskCommit
from magic_committer.options import Options, S3Options
from magic_committer.recovery import (
    Adoption,
    CleanupReport,
    FoundJob,
    Recovery,
    abort,
    adopt,
    cleanup,
    inspect,
    recover,
)
from magic_committer.runtime import Progress
from magic_committer.store import Attributes
from magic_committer.version import __version__
from magic_committer.writing import Writing

__all__ = [
    "AbortIncomplete",
    "Adoption",
    "AlreadyVisible",
    "Attributes",
    "CleanupReport",
    "CommitIncomplete",
    "CommitRefused",
    "ConditionsNotSupported",
    "ConflictingJob",
    "DestinationExists",
    "FileStillOpen",
    "FormatError",
    "FoundJob",
    "IncompleteJob",
    "Job",
    "JobError",
    "JobExists",
    "JobNotFound",
    "JobNotRunning",
    "JobReport",
    "JobTooYoung",
    "MagicError",
    "NotFound",
    "OptionError",
    "Options",
    "OutcomeUnknown",
    "PathError",
    "PermissionDenied",
    "Progress",
    "Recovery",
    "S3Options",
    "StoreError",
    "Task",
    "TaskCommit",
    "TaskFailed",
    "UploadFailed",
    "Writing",
    "WrongProcess",
    "__version__",
    "abort",
    "adopt",
    "attach",
    "cleanup",
    "inspect",
    "open_magic",
    "recover",
    "start",
    "write",
]
