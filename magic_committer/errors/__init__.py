"""Every error of the library: one base, and a class of its own only if a caller would act
differently.

Each error says what to do next: in a sentence (``advice``), and as data (``remedies``: what to
call, with which arguments). ``hint`` is both in words, and ``str(error)`` is the message followed
by the hint, so that a log line alone is enough to act on.

There are two families. A `StoreError` is the object store's answer to one request. It is translated
once, in ``stores/s3/errors.py``; the in-memory store raises the same classes. All other errors are
the library's own judgement of a job, a file, an option or a path.
"""

from __future__ import annotations

import copy
import copyreg
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from magic_committer.errors.messages import Remedy, counted, in_python, sentence

# What became of a job -----------------------------------------------------------------------------
#
# What became of a job, as a value: `JobReport`, and the `Decider` that it may name.
#
# This module stands below all others, so that an error can carry a report
# (`errors.JobError.report`).


class Told:
    """The report of a call, as plain values."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values, field by field."""
        names = (one.name for one in fields(self) if one.name[0] != "_")  # type: ignore[arg-type]
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Told):
        return value.to_dict()
    if isinstance(value, str):
        return str(value)  # a record's state
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Decider(Told):
    """The process that decided a job: for people who look, and for a driver that obeys the decision
    of another process.

    Attributes:
        role: ``"driver"`` or ``"recovery"``.
        host: the name of its machine.
        pid: its process id on that machine.
    """

    role: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class JobReport(Told):
    """What became of a job. ``str(report)`` is one line for people.

    Attributes:
        job_id: the job's id, the name of its directory; "" if no job was started (``skipped``).
        uuid: 32 hex digits that name the job in tokens and unique names.
        dest: the destination's URL.
        mode: the job's mode, in the library's own words: ``"replace"``, even if the caller wrote
            ``"overwrite"``.
        outcome: ``"committed"``, ``"aborted"``, ``"reverted"``, or "" if the job failed before its
            decision.
        state: the last state of the record that this process saw.
        tasks, files, bytes: the numbers of tasks, files and bytes that the plan names.
        filenames: keys, in no order, each with a leading ``/`` as in `_SUCCESS`; of many the first.
        decider: the other process that decided the job, if this process obeyed it; otherwise None.
        warnings: what failed after the job was committed; the job's data is visible all the same.
        left_open: uploads of the job that could not be aborted, as ``key uploadId``.
        unattributed: open uploads under the destination whose names tell no job. They may belong to
            killed attempts with names that the user chose, or to another program.
        skipped: True if nothing was written. Either the destination has data (Spark's mode
            ``ignore``); or the batch of a streaming query is published already (``query`` is set
            then), by another job.
        query, batch: the streaming query and the number of its batch that the job is for; "" and
            None if it is for none.
        error: the reason of the failure, as ``"Class: message"``; "" if there was none.
        seconds: duration of the commit or abort, in seconds.
        statistics: counters in the shape of Hadoop's ``iostatistics``.
        transport: what sent this process's requests: ``"fast"``, or ``"boto3 (why)"`` with the
            reason why it was not the fast way; "" if nobody can tell, as of a store in memory.
    """

    job_id: str
    uuid: str
    dest: str
    mode: str
    outcome: str
    state: str
    tasks: int = 0
    files: int = 0
    bytes: int = 0
    filenames: tuple[str, ...] = ()
    decider: Decider | None = None
    warnings: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()
    unattributed: int = 0
    skipped: bool = False
    query: str = ""
    batch: int | None = None
    error: str = ""
    seconds: float = 0.0
    statistics: Mapping[str, Any] = field(default_factory=dict)
    transport: str = ""

    def __str__(self) -> str:
        """Give one line for people: for a log, or a cell of a notebook."""
        if self.skipped and self.query:
            told = f"batch {self.batch} of query {self.query} is published already"
            return f"nothing was written to {self.dest}: {told}"
        if self.skipped:
            return f"nothing was written to {self.dest}: it holds data"
        said = [f"job {self.job_id} {self._what_happened()}"]
        if self.error:
            said.append(self.error)
        said += self._what_is_left()
        return " ".join("; ".join(said).split())

    def _what_happened(self) -> str:
        if not self.outcome:
            return f"in {self.dest}: not decided (its record: {self.state})"
        by = f" by {self.decider.role} on {self.decider.host}" if self.decider else ""
        told = f"{self.outcome}{by} in {self.dest}"
        if self.outcome == "committed" and (self.tasks or self.files):
            told += (
                f": {counted(self.files, 'file')} of {counted(self.tasks, 'task')},"
                f" {counted(self.bytes, 'byte')}"
            )
        return f"{told}, {self.seconds:.1f} s" if self.seconds else told

    def _what_is_left(self) -> list[str]:
        left = []
        if self.outcome and self.state not in ("absent", "closed"):
            left.append(f"not finished (its record: {self.state})")
        if self.left_open:
            left.append(f"{counted(len(self.left_open), 'upload')} left open")
        if self.warnings:
            left.append(f"{counted(len(self.warnings), 'warning')}: {self.warnings[0]}")
        return left


# Errors -------------------------------------------------------------------------------------------


class MagicError(Exception):
    """The base of every error that the library raises on purpose.

    Args:
        message: what happened, in one sentence without a full stop.
        hint: what to do, in one sentence; "" if the message or a remedy says it.
        remedies: what may be called, the gentlest first. They exclude each other: do one.

    Attributes:
        message: as given. advice: the ``hint`` as given.
        remedies: as given; `Remedy` has the arguments, for programs that act on an error.
    """

    advice: str = ""
    remedies: tuple[Remedy, ...] = ()

    def __init__(self, message: str, *, hint: str = "", remedies: Sequence[Remedy] = ()) -> None:
        super().__init__(message)
        self.message = message
        if hint:
            self.advice = hint
        if remedies:
            self.remedies = tuple(remedies)

    @property
    def hint(self) -> str:
        """What to do, in a line: the advice, then each remedy as a Python call that can be pasted.
        "" where there is nothing to be done."""
        return sentence(self.advice, self.remedies, in_python)

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (executors, pools). They are rebuilt without a call of
        # __init__, because its signature differs from class to class.
        new: object = copyreg.__newobj__  # type: ignore[attr-defined]
        return new, (type(self),), {**self.__dict__, "args": self.args}


# The store's answers ------------------------------------------------------------------------------


class StoreError(MagicError):
    """One request failed for good: the store refused it, or all retries failed.

    Attributes:
        operation: the port's verb, e.g. ``"put_part"``.
        bucket, key: the object of the request; for listings ``key`` may be a prefix.
        status: HTTP status; 0 if there was no answer.
        code: the store's error code (``"SlowDown"``); "" if there was none.
        request_id: the store's id of the request, for its support desk; "" if there was none.
        attempts: how often the request was sent. Above 1, an earlier try may have had no answer:
            the error may then be the answer to our own success.
        sent: False if no try can have reached the store: there was no connection (name not known,
            connection refused, TLS not agreed on, proxy not reached), or there were no credentials.
            **The request then took no effect, and will not.** True in all other cases.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str = "",
        bucket: str = "",
        key: str = "",
        status: int = 0,
        code: str = "",
        request_id: str = "",
        attempts: int = 1,
        sent: bool = True,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.operation = operation
        self.bucket = bucket
        self.key = key
        self.status = status
        self.code = code
        self.request_id = request_id
        self.attempts = attempts
        self.sent = sent

    def ending(self, what: str) -> Self:
        """The same error with what it ended: ``"job 'x' was not started"`` comes first."""
        told = copy.copy(self)
        told.message = f"{what}: {self.message}"
        told.args = (told.message,)
        return told


class NotFound(StoreError, FileNotFoundError):
    """The object or upload does not exist (404). ``code`` says which: ``NoSuchKey``,
    ``NoSuchUpload``. The answer to a HEAD looks the same if the bucket does not exist."""


class BucketNotFound(StoreError, FileNotFoundError):
    """The bucket does not exist (404 ``NoSuchBucket``). Final; nothing took effect. It is not a
    `NotFound`: it says nothing about the key or upload, which may exist in the intended bucket."""


class PermissionDenied(StoreError, PermissionError):
    """The store refused our credentials or rights (401, 403).

    Attributes:
        action: the S3 action that a policy must allow, e.g. ``"s3:AbortMultipartUpload"``.
    """

    action: str = ""


class PreconditionFailed(StoreError):
    """An ``If-Match`` or ``If-None-Match`` was not met (412). After a retry this may be the answer
    to our own earlier success: read the object back before you believe it."""


class WriteConflict(StoreError):
    """Another write to the same key was in progress (409). For a conditional Complete it is final:
    the parts must be uploaded again (S3 API)."""


class Unanswered(StoreError):
    """No usable answer came, even after retries: time-out, broken connection, 5xx, throttling. The
    request may have taken effect, may not have, or may still do so. Only if ``sent`` is False it
    took no effect."""


class InvalidRequest(StoreError):
    """The store calls the request wrong (other 4xx): wrong parts, digest, size or argument."""


class NotSupported(StoreError):
    """The store does not know the operation (501, or a listing that the store does not have)."""


# Bad input ----------------------------------------------------------------------------------------


class PathError(MagicError, ValueError):
    """A path or name cannot be used. The message says which rule it breaks."""


class FormatError(MagicError, ValueError):
    """A `.pending`, `.pendingset`, `_SUCCESS`, record or plan cannot be trusted.

    Attributes:
        source: the object's key or the file's name.
        field: the JSON path, e.g. ``"commits[3].etags[0].etag"``; "" for the whole object.
        reason: what is wrong with it.
    """

    def __init__(self, source: str, field: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{source}: {field or 'document'}: {reason}", hint=hint)
        self.source = source
        self.field = field
        self.reason = reason


class OptionError(MagicError, ValueError):
    """An option is unknown, out of range, or does not fit another option."""


class WrongType(OptionError, TypeError):
    """An argument has a type that the call does not take: a dict for `S3Options`, a `Path` for a
    URL, text for a binary file. The message shows the value, the hint says what to pass. The call
    has done nothing: call it again with the right argument. It is also a TypeError, like Python's
    own."""


# The job ------------------------------------------------------------------------------------------


class JobError(MagicError):
    """The base of the errors about a job.

    Attributes:
        job_id: the job's id; "" if none was drawn yet.
        report: the `JobReport` of the job, if the error ended it; of a `CommitIncomplete`, what
            was known so far; otherwise None.
    """

    job_id: str = ""
    report: JobReport | None = None

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        remedies: Sequence[Remedy] = (),
        job_id: str = "",
        **attributes: str | float | Iterable[str],
    ) -> None:
        super().__init__(message, hint=hint, remedies=remedies)
        self.job_id = job_id
        for name, value in attributes.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no attribute {name!r}")
            setattr(self, name, value if isinstance(value, str | float | int) else tuple(value))


class JobExists(JobError):
    """The given job id was used before: a job id is used once (protocol.md)."""


class JobNotFound(JobError):
    """The job has no record. It has committed, was aborted, or never existed."""


class JobNotRunning(JobError):
    """The job accepts no more work: it is decided, or its record is gone.

    Attributes:
        state: the state in the record; ``"absent"`` if there is none.
        outcome: ``"committed"``, ``"aborted"``, ``"reverted"``, or "" if it is not known.
    """

    state: str = ""
    outcome: str = ""


class DestinationExists(JobError, FileExistsError):
    """Mode ``fail`` or ``fail_partitions`` found data at the destination. The job wrote nothing
    there."""


class ConflictingJob(JobError):
    """Another live job under the same destination excludes this one."""


class BatchUnsettled(JobError):
    """A batch of a streaming query can be neither published nor passed over now. An earlier run has
    claimed the query's ledger, and can neither be finished nor aborted: commit again later. Or a
    query with another checkpoint has published the batch. Nothing was decided: this job still
    runs."""


class IncompleteJob(JobError):
    """The tasks are not the expected ones. Nothing was decided: the job still runs.

    Attributes:
        missing: ids of tasks that were expected and are not there.
        surplus: ids of tasks that are there and were not expected.
    """

    missing: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()


class CommitRefused(JobError):
    """A check before the decision failed: the job was aborted, and nothing became visible.

    Attributes:
        problems: one line for each problem.
    """

    problems: tuple[str, ...] = ()


class CommitIncomplete(JobError):
    """The job is decided, but not everything is done: files are not visible yet, objects that the
    job replaces are still there, or its `_SUCCESS` is missing. Finish it. If that never ends, undo
    it while its state is ``"committing"``: ``abort(…, revert=True)``.

    Attributes:
        unresolved: keys whose upload is gone while the object at the key is not ours. Somebody
            aborted the upload, or it was completed and then overwritten; the store cannot tell
            which. The keys in ``refused`` are here too.
        refused: the unresolved keys whose upload is open but cannot be completed: the store gave
            the same final answer twice. Repair the cause and finish the job; or take the keys as
            they are; or undo the job.
        unfinished: keys that can be tried again.
        outstanding: keys that the job replaces and that are not deleted yet, or the `_SUCCESS` that
            is not written yet.
        state: the record's state: ``"committing"``, or ``"completed"`` if all files are visible and
            something is outstanding.
    """

    unresolved: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    outstanding: tuple[str, ...] = ()
    state: str = "committing"


class AbortIncomplete(JobError):
    """The job is being undone, but not everything is gone yet: call it again."""


class JobTooYoung(JobError):
    """The job runs and may be alive. Wait, or pass a smaller limit if you know that it is dead.

    Attributes:
        age: seconds since the last change of the job, by the store's clock.
        limit: how many seconds it must be.
    """

    age: float = 0.0
    limit: float = 0.0


class AlreadyVisible(JobError):
    """A Hadoop job cannot simply be aborted: before its JVM died it made files visible. An abort
    would leave these files and remove the others for good. Nothing was decided.

    Attributes:
        files: how many files its tasks committed.
        visible: how many of them are visible.
        doubtful: how many of them may be visible: the upload has ended, an object of the same size
            is at the key, and the ETag does not tell whose object it is (SSE-KMS, or somebody wrote
            over it).
        keys: the first visible and doubtful keys.
    """

    files: int = 0
    visible: int = 0
    doubtful: int = 0
    keys: tuple[str, ...] = ()


class OutcomeUnknown(JobError):
    """Nobody can tell whether the job was decided: the record is gone, or cannot be read."""


class FileStillOpen(JobError):
    """A file of the task was still open at the task's commit."""


class TaskFailed(JobError):
    """A task cannot be committed: one of its files failed, or a `.pending` of it cannot be read."""


class UploadFailed(MagicError, OSError):
    """A part or the Create of a file failed, and the upload was aborted. The store's error is the
    ``__cause__``."""


class NotYetAnObject(MagicError, io.UnsupportedOperation):
    """A file of a job cannot be read, copied, renamed or extended: it is an upload, and no object
    before the job commits. A file system of a job keeps the bytes of small files for that; of this
    one they were not kept. It is also an `io.UnsupportedOperation`."""


class WrongProcess(UploadFailed, ValueError):
    """A file was written, flushed, closed or aborted in a process that did not open it, after a
    fork. Nothing was sent: the file still belongs to the process that opened it. It is also a
    ValueError, like every write to a file that accepts no more bytes."""

    advice = (
        "Let each process write its own files: start the job with job ="
        " magic_committer.start(dest), pass job to the workers, run `with job.task(id) as task:`"
        " in each, return task.result, and call job.commit(results) in one"
    )


class ConditionsNotSupported(MagicError):
    """The store lacks something that every job needs: it ignores or refuses conditional writes, or
    it does not return user metadata as it was sent. Nothing was started."""
