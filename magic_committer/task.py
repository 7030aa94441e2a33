"""`Task`: one attempt of one task in one process; and what its `open` gives."""

from __future__ import annotations

import pickle
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from magic_committer._arguments import attributes_of
from magic_committer._patience import cleaning_up
from magic_committer.committers.magic import Attempt
from magic_committer.errors import MagicError, WrongType
from magic_committer.hadoop.elements import name_text
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.base import Attributes
from magic_committer.upload import TextUpload, UploadStream

if TYPE_CHECKING:
    from magic_committer.job import Job

BinaryMode = Literal["wb", "xb"]
"""What `open` takes for a file of bytes. ``"xb"`` is the same as ``"wb"``."""
TextMode = Literal["w", "x", "wt", "xt"]
"""What `open` takes for a file of text. All four are the same."""


class Task:
    """One attempt of one task. Use it as a context manager: leaving normally commits the attempt,
    leaving by exception aborts it. `Job.task` gives it.

    With ``track="s3"`` it pickles: it may be written in one process and committed in another. The
    handle itself belongs to the process that made it: in a forked child `open`, `commit` and
    `abort` raise, and leaving ``with`` sends nothing.
    """

    def __init__(self, job: Job, attempt: Attempt) -> None:
        self._job = job
        self._attempt = attempt

    def __repr__(self) -> str:
        return f"<Task {self._attempt!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._attempt.result is not None:
            return _committed_task, (self._job, self._attempt.result)
        if self._attempt.has_files and self._job.track == "memory":
            raise pickle.PicklingError(
                "a task that has opened files keeps them in this process: commit it here, or start"
                " the job with track='s3'"
            )
        if self._job.track == "memory":
            return _new_task, (self._job, self.task_id, None)
        self._attempt.share()
        return _new_task, (self._job, self.task_id, self.attempt_id)

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self._attempt.task

    @property
    def attempt_id(self) -> str:
        """The attempt's name, unique in the job. For logs: to let others commit the attempt pickle
        the task, or give `Job.task` a name, so that its files look whether somebody has."""
        return self._attempt.attempt

    @property
    def committed(self) -> bool:
        """Whether the attempt is committed. That alone makes nothing visible."""
        return self._attempt.result is not None

    @property
    def result(self) -> TaskCommit:
        """What `commit` returned: pass it to `Job.commit`. Small, picklable, JSON by ``to_dict``.

        Raises:
            MagicError: the attempt is not committed.
        """
        if self._attempt.result is None:
            raise MagicError(
                f"attempt {self.attempt_id!r} is not committed",
                hint="Leave `with task:` normally first, or call task.commit()",
            )
        return self._attempt.result

    @overload
    def open(
        self,
        name: str,
        mode: BinaryMode = "wb",
        *,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> UploadStream: ...
    @overload
    def open(
        self,
        name: str,
        mode: TextMode,
        *,
        unique: bool = False,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        attributes: Attributes | None = None,
    ) -> TextUpload: ...
    def open(
        self,
        name: str,
        mode: str = "wb",
        *,
        unique: bool = False,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        attributes: Attributes | None = None,
    ) -> UploadStream | TextUpload:
        r"""Open a file for writing. It becomes visible as ``<destination>/<name>`` when the job
        commits, and only if this attempt is accepted::

            >>> job = mc.start("s3://bucket/table")
            >>> with job.task("7") as task, task.open("dt=2026-11-21/part-7.csv", "w") as file:
            ...     _ = file.write("1,2,3\n")
            >>> task.result.files
            1

        Not repeatable: a name is opened once in an attempt.

        Args:
            name: relative to the destination; Hive partitions like ``"dt=2026-11-21/a.csv"`` are
                fine.
            mode: ``"wb"`` for bytes, ``"w"`` for text.
            unique: put the job's UUID into the name, before its first dot: two jobs never collide,
                and uploads of killed tasks are recognised and swept. Tasks of one job still need
                names of their own.
            encoding, errors, newline: of a text file, as Python's ``open`` takes them; None: UTF-8,
                strict, and line ends as the system writes them.
            attributes: content type, user metadata, storage class and so on of the object; None:
                nothing special.

        Returns:
            A file that is closed, or left by ``with``, before the attempt is committed. It belongs
            to one thread at a time. Leaving its ``with`` by exception gives the file up.

        Raises:
            TaskFailed: the attempt has ended, is being committed or aborted by another thread, can
                never be committed (its file's close failed, and another handle may know of it), or
                this is a forked child of its process.
            PathError: a name that cannot be used; the message says which rule it breaks.
            ValueError: a mode that is none of these, or ``encoding``, ``errors`` or ``newline`` of
                a file of bytes.
            WrongType: ``name`` is a `Path`, or ``attributes`` a dict.

            The upload's own failure shows at the next call on the file; in a forked child that is
            `WrongProcess`.
        """
        return self._open(name, mode, unique, encoding, errors, newline, attributes)

    def _open(
        self,
        name: str,
        mode: str,
        unique: bool,
        encoding: str | None,
        errors: str | None,
        newline: str | None,
        attributes: Attributes | None,
    ) -> UploadStream | TextUpload:
        text = text_options(mode, encoding, errors, newline)
        stream = self._attempt.open(
            name_text(name), unique=unique, attributes=attributes_of(attributes)
        )
        return stream if text is None else TextUpload(stream, **text)

    def commit(self) -> TaskCommit:
        """Save the attempt's uploads so that the job can accept them. Nothing becomes visible.
        Repeatable. Leaving ``with`` normally does it::

            >>> task = mc.start("s3://bucket/table").task("7")
            >>> with task.open("part-7.csv", "w") as file:
            ...     _ = file.write("1,2,3")
            >>> task.commit().bytes
            5

        Returns:
            What the driver passes to `Job.commit`: send it there, by pickle or `to_dict`.

        Raises:
            FileStillOpen, TaskFailed, JobNotRunning, StoreError: the attempt does not count. One
                that was aborted, under any handle, never will: give the next one another name.
                TaskFailed too where another thread commits or aborts it now: nothing was done.
        """
        return self._attempt.commit()

    def abort(self) -> None:
        """Abort the attempt's uploads. Repeatable; a missing attempt aborts well. Nobody can commit
        an attempt of that name afterwards.

        A job that has ended leaves nothing to abort, nor a trace of its attempts: this returns
        well then, also where another handle had committed the attempt and the job has published
        it. What is published stays: `Job.outcome` and the job's report tell.

        Raises:
            TaskFailed: it is committed, or may be, is being committed by another thread, or belongs
                to another process: nothing was done.
            StoreError, FormatError: not all could be undone; call it again. What stays is swept
                when the job ends.
        """
        self._attempt.abort()

    def __enter__(self) -> Task:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._attempt.commit()
            return
        try:
            with cleaning_up(error):
                self._attempt.abort()
        except MagicError as failure:
            error.add_note(f"aborting attempt {self.attempt_id!r} failed too: {failure}")


def _committed_task(job: Job, result: TaskCommit) -> Task:
    return job._committed_task(result)


def _new_task(job: Job, task: str, attempt: str | None) -> Task:
    return job.task(task, attempt=attempt)


def text_options(
    mode: str, encoding: str | None, errors: str | None, newline: str | None
) -> dict[str, str | None] | None:
    """What a text file is made with; None for a binary one.

    Raises:
        WrongType: the mode is no text.
        ValueError: it is no mode of a file that is written, or the others are of no use with it.
    """
    if mode in ("wb", "xb"):
        if encoding is not None or errors is not None or newline is not None:
            raise ValueError("encoding, errors and newline are for text: open it with mode 'w'")
        return None
    if mode in ("w", "x", "wt", "xt"):
        return {"encoding": encoding, "errors": errors, "newline": newline}
    if not isinstance(mode, str):
        raise WrongType(f"a file's mode is text, not {mode!r:.80}", hint="Pass 'wb' or 'w'")
    raise ValueError(f"mode {mode!r}: a file of a job is written once, by 'wb' or 'w'")
