"""Writes to S3 that are all or nothing: files appear when their job commits, and not before.

Start with `write` (one process) or `start` (many processes). The README shows how to use the
library; ``docs/`` gives the reasons.

A name is loaded when it is first asked for, so that ``import magic_committer`` itself is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from magic_committer.version import __version__

if TYPE_CHECKING:
    from magic_committer._modes import SparkMode
    from magic_committer._runtime import Progress, ProgressFunction
    from magic_committer.api import attach, open_magic, start, write
    from magic_committer.errors import (
        AbortIncomplete,
        AlreadyVisible,
        BatchUnsettled,
        BucketNotFound,
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
        NotYetAnObject,
        OptionError,
        OutcomeUnknown,
        PathError,
        PermissionDenied,
        StoreError,
        TaskFailed,
        UploadFailed,
        WrongProcess,
        WrongType,
    )
    from magic_committer.filesystem.local import PutReport
    from magic_committer.job import BinaryMode, Job, Task, TextMode
    from magic_committer.maintenance.api import (
        Adoption,
        Age,
        CleanupReport,
        FoundJob,
        GivenUp,
        JobKind,
        Recovery,
        StreamState,
        abort,
        abort_stream,
        adopt,
        cleanup,
        force_abort,
        inspect,
        read_stream,
        recover,
    )
    from magic_committer.options import Accept, Mode, Options, S3Options, Track
    from magic_committer.protocol.ledger import StreamBatch
    from magic_committer.protocol.record import State, TaskCommit
    from magic_committer.remedy import Remedy
    from magic_committer.report import Decider, JobReport
    from magic_committer.running.call import RunReport, run
    from magic_committer.stores.base import Attributes
    from magic_committer.upload import FileState, LocalFile, TaskFile, TextUpload, UploadStream
    from magic_committer.writing import Writing

__all__ = [
    "AbortIncomplete",
    "Accept",
    "Adoption",
    "Age",
    "AlreadyVisible",
    "Attributes",
    "BatchUnsettled",
    "BinaryMode",
    "BucketNotFound",
    "CleanupReport",
    "CommitIncomplete",
    "CommitRefused",
    "ConditionsNotSupported",
    "ConflictingJob",
    "Decider",
    "DestinationExists",
    "FileState",
    "FileStillOpen",
    "FormatError",
    "FoundJob",
    "GivenUp",
    "IncompleteJob",
    "Job",
    "JobError",
    "JobExists",
    "JobKind",
    "JobNotFound",
    "JobNotRunning",
    "JobReport",
    "JobTooYoung",
    "LocalFile",
    "MagicError",
    "Mode",
    "NotFound",
    "NotYetAnObject",
    "OptionError",
    "Options",
    "OutcomeUnknown",
    "PathError",
    "PermissionDenied",
    "Progress",
    "ProgressFunction",
    "PutReport",
    "Recovery",
    "Remedy",
    "RunReport",
    "S3Options",
    "SparkMode",
    "State",
    "StoreError",
    "StreamBatch",
    "StreamState",
    "Task",
    "TaskCommit",
    "TaskFailed",
    "TaskFile",
    "TextMode",
    "TextUpload",
    "Track",
    "UploadFailed",
    "UploadStream",
    "Writing",
    "WrongProcess",
    "WrongType",
    "__version__",
    "abort",
    "abort_stream",
    "adopt",
    "attach",
    "cleanup",
    "force_abort",
    "inspect",
    "open_magic",
    "read_stream",
    "recover",
    "run",
    "start",
    "write",
]

_NAMES_OF = {
    "_modes": "SparkMode",
    "_runtime": "Progress ProgressFunction",
    "api": "attach open_magic start write",
    "errors": (
        "AbortIncomplete AlreadyVisible BatchUnsettled BucketNotFound CommitIncomplete "
        "CommitRefused ConditionsNotSupported ConflictingJob DestinationExists FileStillOpen "
        "FormatError IncompleteJob JobError JobExists JobNotFound JobNotRunning JobTooYoung "
        "MagicError NotFound NotYetAnObject OptionError OutcomeUnknown PathError PermissionDenied "
        "StoreError TaskFailed UploadFailed WrongProcess WrongType"
    ),
    "filesystem.local": "PutReport",
    "job": "BinaryMode Job Task TextMode",
    "maintenance.api": (
        "Adoption Age CleanupReport FoundJob GivenUp JobKind Recovery StreamState abort "
        "abort_stream adopt cleanup force_abort inspect read_stream recover"
    ),
    "options": "Accept Mode Options S3Options Track",
    "protocol.ledger": "StreamBatch",
    "protocol.record": "State TaskCommit",
    "remedy": "Remedy",
    "report": "Decider JobReport",
    "running.call": "RunReport run",
    "stores.base": "Attributes",
    "upload": "FileState LocalFile TaskFile TextUpload UploadStream",
    "writing": "Writing",
}
"""The modules that define the public names. The imports above say the same to type checkers."""
_HOME = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
_MODULES = ("errors", "options", "remedy")
"""The public modules: ``magic_committer.errors`` is there without an import of its own."""

if not TYPE_CHECKING:  # to a type checker, every name would be there

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value  # the next look-up does not come here
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
