"""Writes to S3 that are all or nothing: files appear when their job commits, and not before.

Start with `write` (one process) or `start` (many processes). The README shows how to use the
library; ``docs/`` gives the reasons.

A name is loaded when it is first asked for, so that ``import magic_committer`` itself is cheap.
So another thread may be in the middle of an import when a program forks. The child would wait for
its end for ever: a fork waits for it instead.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from threading import get_ident
from time import monotonic, sleep
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from magic_committer.api import (
        Writing as Writing, attach as attach, open as open, open_magic as open_magic,
        start as start, write as write,
    )  # fmt: skip
    from magic_committer.commit.probe import Capabilities as Capabilities
    from magic_committer.engines.executors import run as run
    from magic_committer.engines.items import RunReport as RunReport
    from magic_committer.errors import (
        AbortIncomplete as AbortIncomplete, AlreadyVisible as AlreadyVisible,
        BatchUnsettled as BatchUnsettled, BucketNotFound as BucketNotFound,
        CommitIncomplete as CommitIncomplete, CommitRefused as CommitRefused,
        ConditionsNotSupported as ConditionsNotSupported, ConflictingJob as ConflictingJob,
        Decider as Decider, DestinationExists as DestinationExists, FileStillOpen as FileStillOpen,
        FormatError as FormatError, IncompleteJob as IncompleteJob, JobError as JobError,
        JobExists as JobExists, JobNotFound as JobNotFound, JobNotRunning as JobNotRunning,
        JobReport as JobReport, JobTooYoung as JobTooYoung, MagicError as MagicError,
        NotFound as NotFound, NotYetAnObject as NotYetAnObject, OptionError as OptionError,
        OutcomeUnknown as OutcomeUnknown, PathError as PathError,
        PermissionDenied as PermissionDenied, StoreError as StoreError, TaskFailed as TaskFailed,
        UploadFailed as UploadFailed, WrongProcess as WrongProcess, WrongType as WrongType,
    )  # fmt: skip
    from magic_committer.errors.messages import Remedy as Remedy
    from magic_committer.filesystem.calls import BinaryMode as BinaryMode, TextMode as TextMode
    from magic_committer.filesystem.put import PutReport as PutReport
    from magic_committer.job import Job as Job, Task as Task
    from magic_committer.maintenance.api import (
        abort as abort, abort_stream as abort_stream, adopt as adopt, cleanup as cleanup,
        doctor as doctor, force_abort as force_abort, inspect as inspect, lifecycle as lifecycle,
        policy as policy, read_stream as read_stream, recover as recover, uploads as uploads,
    )  # fmt: skip
    from magic_committer.maintenance.doctor import (
        Answer as Answer, Diagnosis as Diagnosis, PermissionAnswer as PermissionAnswer,
        Role as Role, Verdict as Verdict,
    )  # fmt: skip
    from magic_committer.maintenance.reports import (
        ActionPlan as ActionPlan, Adoption as Adoption, Age as Age, CleanupReport as CleanupReport,
        FoundJob as FoundJob, GivenUp as GivenUp, JobKind as JobKind, Recovery as Recovery,
        StreamState as StreamState,
    )  # fmt: skip
    from magic_committer.maintenance.uploads import (
        AbortedUploads as AbortedUploads, FoundUpload as FoundUpload, OpenUploads as OpenUploads,
        OwnerClass as OwnerClass,
    )  # fmt: skip
    from magic_committer.options import (
        Accept as Accept, Mode as Mode, Options as Options, S3Options as S3Options,
        S3Place as S3Place, SparkMode as SparkMode, Track as Track,
    )  # fmt: skip
    from magic_committer.protocol.ledger import StreamBatch as StreamBatch
    from magic_committer.protocol.record import State as State, TaskCommit as TaskCommit
    from magic_committer.runtime.components import (
        Progress as Progress, ProgressFunction as ProgressFunction,
    )  # fmt: skip
    from magic_committer.stores.base import Attributes as Attributes
    from magic_committer.upload import (
        FileState as FileState, LocalFile as LocalFile, TaskFile as TaskFile,
        TextUpload as TextUpload, UploadStream as UploadStream,
    )  # fmt: skip

_NAMES_OF = {
    "api": "Writing attach open open_magic start write",
    "commit.probe": "Capabilities",
    "errors": (
        "AbortIncomplete AlreadyVisible BatchUnsettled BucketNotFound CommitIncomplete "
        "CommitRefused ConditionsNotSupported ConflictingJob Decider DestinationExists "
        "FileStillOpen FormatError IncompleteJob JobError JobExists JobNotFound JobNotRunning "
        "JobReport JobTooYoung MagicError NotFound NotYetAnObject OptionError OutcomeUnknown "
        "PathError PermissionDenied StoreError TaskFailed UploadFailed WrongProcess WrongType"
    ),
    "errors.messages": "Remedy",
    "filesystem.put": "PutReport",
    "filesystem.calls": "BinaryMode TextMode",
    "job": "Job Task",
    "maintenance.api": (
        "abort abort_stream adopt cleanup doctor force_abort inspect lifecycle policy read_stream "
        "recover uploads"
    ),
    "maintenance.doctor": "Answer Diagnosis PermissionAnswer Role Verdict",
    "maintenance.reports": (
        "ActionPlan Adoption Age CleanupReport FoundJob GivenUp JobKind Recovery StreamState"
    ),
    "maintenance.uploads": "AbortedUploads FoundUpload OpenUploads OwnerClass",
    "options": "Accept Mode Options S3Options S3Place SparkMode Track",
    "protocol.ledger": "StreamBatch",
    "protocol.record": "State TaskCommit",
    "engines.executors": "run",
    "engines.items": "RunReport",
    "runtime.components": "Progress ProgressFunction",
    "stores.base": "Attributes",
    "upload": "FileState LocalFile TaskFile TextUpload UploadStream",
}
"""The modules that define the public names. The imports above say the same to type checkers."""
_HOME = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
if not TYPE_CHECKING:  # a type checker reads the names of the imports above
    __all__ = ["__version__", *_HOME]
_MODULES = ("errors", "options")
"""The public modules: ``magic_committer.errors`` is there without an import of its own."""

if not TYPE_CHECKING:  # to a type checker, every name would be there

    def __getattr__(name: str) -> object:
        if name not in _HOME and name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        _begin()
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value  # the next look-up does not come here
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})


_LOADED_LATE = {
    "magic_committer",
    "awscrt",
    "xxhash",
    "boto3",
    "botocore",
    "s3transfer",
    "urllib3",
    "httptools",
}
_IMPORT_SECONDS_MAX = 60.0


def _await_imports() -> None:
    """Wait until no other thread imports what the library loads late. Python lets nobody ask for
    that; its own table says who holds the lock of which module (3.11 to 3.14).

    What was registered last runs first: the hook of `logging` acquires a lock that imports need, so
    it must run after this one. Should another hook do the same, the wait ends by its time."""
    locks = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
    until = monotonic() + _IMPORT_SECONDS_MAX
    while monotonic() < until:
        held = [lock() for name, lock in list(locks.items()) if name.split(".")[0] in _LOADED_LATE]
        if all(getattr(lock, "owner", None) in (None, get_ident()) for lock in held):
            return
        sleep(0.002)


def _begin() -> None:
    """Before the first part of the library is loaded."""
    if _await_imports in _begun:
        return
    try:
        import_module("concurrent.futures.thread")  # and logging
    except RuntimeError as error:
        raise RuntimeError(
            "magic_committer is used for the first time while the interpreter ends: its parts"
            " cannot be loaded any more. Load them before, at the top of the program: import"
            " magic_committer.api"
        ) from error
    _begun.append(_await_imports)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_await_imports)


_begun: list[object] = []
