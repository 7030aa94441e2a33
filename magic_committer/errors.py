"""Every error of the library: one base, and a class only where a caller would act differently.

Each error says what to do next: in a sentence (``advice``), and as data (``remedies``: what to
call, with which arguments). ``hint`` is both in words, and ``str(error)`` is the message followed
by the hint, so that a log line alone is enough to act on.

Two families. `StoreError` is the object store's answer to one request, translated once (in
``stores/s3/errors.py``; the in-memory store raises the same classes). Everything else is the
library's own judgement of a job, a file, an option or a path.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

from magic_committer.remedy import Remedy, in_python, sentence
from magic_committer.report import JobReport


class MagicError(Exception):
    """The base of every error that the library raises on purpose.

    Args:
        message: what happened, in one sentence without a closing stop.
        hint: what to do, in one sentence; may be empty where the message or a remedy says it.
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
        # Errors cross process boundaries (executors, pools): rebuild without calling __init__,
        # whose signature differs from class to class.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(
    cls: type[MagicError], args: tuple[object, ...], state: dict[str, object]
) -> MagicError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


# The store's answers ------------------------------------------------------------------------------


class StoreError(MagicError):
    """One request failed for good: the store refused it, or retries were used up.

    Attributes:
        operation: the port's verb, e.g. ``"put_part"``.
        bucket, key: what it was about; ``key`` may be a prefix for listings.
        status: HTTP status, or 0 where there was no answer.
        code: the store's error code (``"SlowDown"``), or "".
        request_id: the store's id of the request, for its support desk, or "".
        attempts: how often it was tried. Above 1 an earlier try may have had no answer: then this
            one may be the answer to our own success.
        sent: False if no try can have reached the store: there was no connection (name not known,
            connection refused, TLS not agreed on, proxy not reached), or there were no credentials.
            **It took no effect then, and will not.** True in all other cases.
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
        """The same error, told of what it ended: ``"job 'x' was not started"`` comes first."""
        told = copy.copy(self)
        told.message = f"{what}: {self.message}"
        told.args = (told.message,)
        return told


class NotFound(StoreError, FileNotFoundError):
    """The object or upload is not there (404). ``code`` tells which: ``NoSuchKey``,
    ``NoSuchUpload``. The answer to HEAD cannot tell that it is the bucket that is not there."""


class BucketNotFound(StoreError, FileNotFoundError):
    """There is no such bucket (404 ``NoSuchBucket``). Final; nothing took effect. No `NotFound`:
    it says nothing of a key or an upload, which may be in the bucket that was meant."""


class PermissionDenied(StoreError, PermissionError):
    """The store refused who we are (401, 403).

    Attributes:
        action: the S3 action that a policy must allow, e.g. ``"s3:AbortMultipartUpload"``.
    """

    action: str = ""


class PreconditionFailed(StoreError):
    """An ``If-Match`` or ``If-None-Match`` did not hold (412). After a retry this may be the
    answer to our own earlier success: read back before believing it."""


class WriteConflict(StoreError):
    """Another write of the same key was under way (409). On a conditional Complete it is final:
    the parts would have to be uploaded again (S3 API)."""


class Unanswered(StoreError):
    """No usable answer came, also after retries: time-out, broken connection, 5xx, throttling.
    The request may have taken effect, may not, or may still; unless ``sent`` is False."""


class InvalidRequest(StoreError):
    """The store says that the request is wrong (other 4xx): wrong parts, digest, size, argument."""


class NotSupported(StoreError):
    """The store does not know the operation (501, or a listing that it does not have)."""


# Bad input ----------------------------------------------------------------------------------------


class PathError(MagicError, ValueError):
    """A path or name that cannot be used; the message says which rule it breaks."""


class FormatError(MagicError, ValueError):
    """A `.pending`, `.pendingset`, `_SUCCESS`, record or plan that cannot be trusted.

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
    """An option that is unknown, out of range, or does not go with another."""


class WrongType(OptionError, TypeError):
    """An argument of a type that the call does not take: a dict for `S3Options`, a `Path` for a
    URL, text for a binary file. The message shows what it got, the hint what to pass. The call has
    done nothing: make it again with the right argument. It is a TypeError too, as Python's own."""


# The job ------------------------------------------------------------------------------------------


class JobError(MagicError):
    """The base of what can happen to a job.

    Attributes:
        job_id: the id that names the job's directory, "" if none was drawn yet.
        report: the `JobReport` of what became of the job, where the error ended it; else None.
    """

    def __init__(
        self, message: str, *, job_id: str = "", hint: str = "", remedies: Sequence[Remedy] = ()
    ) -> None:
        super().__init__(message, hint=hint, remedies=remedies)
        self.job_id = job_id
        self.report: JobReport | None = None


class JobExists(JobError):
    """The given job id was used before: a job id is used once (protocol.md)."""


class JobNotFound(JobError):
    """There is no record of the job. It may have committed, been aborted, or never been."""


class JobNotRunning(JobError):
    """The job takes no more work: it was decided, or its record is gone.

    Attributes:
        state: the state found in the record, ``"absent"`` if there is none.
        outcome: ``"committed"``, ``"aborted"``, ``"reverted"`` or "" where it is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: str = "",
        state: str = "",
        outcome: str = "",
        hint: str = "",
        remedies: Sequence[Remedy] = (),
    ) -> None:
        super().__init__(message, job_id=job_id, hint=hint, remedies=remedies)
        self.state = state
        self.outcome = outcome


class DestinationExists(JobError, FileExistsError):
    """Mode ``fail`` found data at the destination. Nothing was written."""


class ConflictingJob(JobError):
    """Another live job with an excluding mode is under the same destination."""


class IncompleteJob(JobError):
    """The tasks are not those expected. Nothing was decided: the job is still running.

    Attributes:
        missing, surplus: task ids.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: str = "",
        missing: Sequence[str] = (),
        surplus: Sequence[str] = (),
        hint: str = "",
        remedies: Sequence[Remedy] = (),
    ) -> None:
        super().__init__(message, job_id=job_id, hint=hint, remedies=remedies)
        self.missing = tuple(missing)
        self.surplus = tuple(surplus)


class CommitRefused(JobError):
    """A check before the decision said no: the job was aborted, nothing became visible.

    Attributes:
        problems: one line for each thing found wrong.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: str = "",
        problems: Sequence[str] = (),
        hint: str = "",
        remedies: Sequence[Remedy] = (),
    ) -> None:
        super().__init__(message, job_id=job_id, hint=hint, remedies=remedies)
        self.problems = tuple(problems)


class CommitIncomplete(JobError):
    """The job is decided, but not all of it is done yet: files are not visible, what it replaces
    is still there, or its `_SUCCESS` is missing. Never abort it: finish it.

    Attributes:
        unresolved: keys whose upload is gone while the object there is not ours: aborted by
            somebody, or completed and then overwritten; the store cannot tell which. And those in
            ``refused``.
        refused: of the unresolved keys those whose upload is open, and which the store will not
            complete: it gave the same final answer twice. What mends the cause lets the job be
            finished; else take them as they are, or undo the job.
        unfinished: keys that may simply be tried again.
        outstanding: keys that are still to be deleted, because the job replaces them, or the
            `_SUCCESS` that is still to be written.
        state: the record's state: ``"committing"``; ``"completed"`` if all files are visible, and
            something is outstanding.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: str = "",
        unresolved: Sequence[str] = (),
        unfinished: Sequence[str] = (),
        outstanding: Sequence[str] = (),
        refused: Sequence[str] = (),
        state: str = "committing",
        hint: str = "",
        remedies: Sequence[Remedy] = (),
    ) -> None:
        super().__init__(message, job_id=job_id, hint=hint, remedies=remedies)
        self.unresolved = tuple(unresolved)
        self.refused = tuple(refused)
        self.unfinished = tuple(unfinished)
        self.outstanding = tuple(outstanding)
        self.state = state


class AbortIncomplete(JobError):
    """The job is being undone, but not all of it is gone yet: do it again."""


class JobTooYoung(JobError):
    """The job is running and may be alive: wait, or say that it is dead by a smaller limit.

    Attributes:
        age, limit: seconds since anything of the job changed, by the store's clock; and how many
            it must be.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: str = "",
        age: float = 0.0,
        limit: float = 0.0,
        hint: str = "",
        remedies: Sequence[Remedy] = (),
    ) -> None:
        super().__init__(message, job_id=job_id, hint=hint, remedies=remedies)
        self.age = age
        self.limit = limit


class AlreadyVisible(JobError):
    """A Hadoop job cannot simply be aborted: before its JVM died it made files visible. An abort
    would leave these, and take the others away for good. Nothing was decided.

    Attributes:
        files: how many files its tasks committed. visible: how many of them are visible.
        doubtful: files of which nobody can tell: the upload has ended, an object of its size is at
            its key, and the ETag does not tell whose it is (SSE-KMS; or somebody wrote over it).
        keys: the first of these, and of the visible ones.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: str = "",
        files: int = 0,
        visible: int = 0,
        doubtful: int = 0,
        keys: Sequence[str] = (),
        hint: str = "",
        remedies: Sequence[Remedy] = (),
    ) -> None:
        super().__init__(message, job_id=job_id, hint=hint, remedies=remedies)
        self.files = files
        self.visible = visible
        self.doubtful = doubtful
        self.keys = tuple(keys)


class OutcomeUnknown(JobError):
    """Whether the job was decided cannot be told: the record is absent, or cannot be read."""


class FileStillOpen(JobError):
    """A file of the task was not closed when the task was to be committed."""


class TaskFailed(JobError):
    """A task cannot be committed: one of its files failed, or one of its pendings is unreadable."""


class UploadFailed(MagicError, OSError):
    """A part or the Create of a file failed; the upload was aborted.
    The store's error is the ``__cause__``."""


class WrongProcess(UploadFailed, ValueError):
    """A file was written, flushed, closed or aborted in another process than the one that opened
    it, after a fork. Nothing was sent: the file still belongs to the process that opened it. As
    every file that takes no more bytes it is a ValueError too."""

    advice = (
        "Let each process write its own files: start the job with job ="
        " magic_committer.start(dest), pass job to the workers, run `with job.task(id) as task:`"
        " in each, return task.result, and call job.commit(results) in one"
    )


class ConditionsNotSupported(MagicError):
    """The store does not keep what a job rests on: it ignores or refuses conditional writes, or it
    does not give user metadata back as it was sent. Nothing was started."""
