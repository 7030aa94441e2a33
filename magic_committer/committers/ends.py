"""What every attempt is, wherever its bytes wait until it commits: one process, one turn at a time,
one end.

Invariants:

* An attempt belongs to the process that made it. In a forked child opening, committing and aborting
  raise and send nothing: the child's copy would report success for files that nobody publishes.
* A file that is not closed, or that failed, ends the commit, and a commit that fails aborts.

The commit and the aborts of one handle may be called from several threads, so they take turns
(`Turns`):

* While one thread commits, no other thread opens, closes, commits or aborts anything of the
  attempt; its call raises. What commit finds at its beginning is what it stores. (It first waits
  for the files that were closed before, and are still being sent: `closings`.)
* While a thread aborts, no thread commits. Several aborts may run at the same time: each does no
  more than another one.
* While a thread discards a file, no thread commits: the commit would store what is being removed.
  Other files are opened and closed meanwhile.
* A signal handler counts as another thread: it may run between any two steps of a call here. So
  each call first shows itself and then looks for others: if there are two, at least one sees the
  other.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Protocol

from magic_committer._hints import ANOTHER_ATTEMPT, CLOSE_FIRST
from magic_committer._patience import cleaning_up, patient
from magic_committer._quantities import name_some
from magic_committer.errors import (
    FileStillOpen,
    MagicError,
    PathError,
    TaskFailed,
    WrongProcess,
)
from magic_committer.hadoop.paths import check_id
from magic_committer.protocol.record import StartedJob, TaskCommit
from magic_committer.protocol.rules import Phase
from magic_committer.stores.base import Attributes
from magic_committer.upload import FileState, LocalFile, PendingFile, TaskFile

if TYPE_CHECKING:
    from pathlib import Path

    from magic_committer.file_trees.base import FileTree

logger = logging.getLogger("magic_committer")


class Turns:
    """The phase of one handle's attempt, and the calls that may change it. ``phase`` is changed
    only in a turn; ``lock`` is held for steps between which no turn may begin."""

    def __init__(self, job_id: str, attempt: str) -> None:
        self.phase = Phase.OPEN
        self.lock = threading.RLock()
        self._job_id = job_id
        self._attempt = attempt
        self._committing: object | None = None
        self._aborting: set[object] = set()
        self._discarding: set[object] = set()

    @property
    def discarding(self) -> bool:
        """Whether a call discards a file now."""
        return bool(self._discarding)

    @contextmanager
    def commit(self) -> Iterator[None]:
        """The only turn of a commit."""
        me = object()
        try:
            with self.lock:
                if self._committing is not None:
                    raise self.busy("committed")
                self._committing = me
                if self._aborting:
                    raise self.busy("aborted")
                if self._discarding:
                    raise self.busy("changed: a file is discarded")
                if self.phase is Phase.ABORTED:
                    raise TaskFailed(
                        f"attempt {self._attempt!r} is aborted, it cannot be committed",
                        job_id=self._job_id,
                        hint=ANOTHER_ATTEMPT,
                    )
            yield
        finally:
            if self._committing is me:
                self._committing = None

    @contextmanager
    def abort(self) -> Iterator[None]:
        """A turn of an abort."""
        me = object()
        try:
            with self.lock:
                self._aborting.add(me)
                if self._committing is not None:
                    raise self.busy("committed")
            yield
        finally:
            self._aborting.discard(me)

    @contextmanager
    def discard(self) -> Iterator[None]:
        """A turn of a call that takes a file out of the attempt."""
        me = object()
        try:
            with self.lock:
                self._discarding.add(me)
                self.check_open()
            yield
        finally:
            self._discarding.discard(me)

    def check_open(self, *, awaited: bool = False) -> None:
        """Raise TaskFailed unless the attempt takes files: it is open, and nobody is ending it.
        ``awaited``: for a file that was closed before any commit began: a commit that runs now is
        waiting for it."""
        with self.lock:
            if self.phase is not Phase.OPEN:
                what = self.phase.value
            elif self._committing is not None and not awaited:
                what = "being committed"
            elif self._aborting:
                what = "being aborted"
            else:
                return
        raise TaskFailed(
            f"attempt {self._attempt!r} is {what}, it takes no more files",
            job_id=self._job_id,
            hint=CLOSE_FIRST,
        )

    def busy(self, doing: str) -> TaskFailed:
        """The error of a call that may not run beside another one, which is ``doing`` that."""
        return TaskFailed(
            f"attempt {self._attempt!r} is being {doing}, by another thread or by what a signal"
            " handler has interrupted: nothing was done",
            job_id=self._job_id,
            hint="Wait until that call has returned. An attempt that it has committed is undone by"
            " job.abort(), or left out of job.commit(...)",
        )


class WaitingFiles(Protocol):
    """The closed files of an attempt that wait on a file system: they can be read and renamed."""

    @property
    def tree(self) -> FileTree: ...

    def reader(self, name: str) -> BinaryIO:
        """Open a closed file for reading, by the name that it is stored under."""
        ...

    def rename(self, name: str, new: str, *, unique: bool) -> str:
        """Rename a closed file. Gives the name that it is stored under now."""
        ...


class TaskAttempt:
    """One attempt of one task, in the process that writes it. ``result``: what `commit` gave; None
    before."""

    def __init__(self, job: StartedJob, task: str, attempt: str) -> None:
        self.job = job
        self.task = check_id("task id", task)
        self.attempt = check_id("attempt", attempt)
        self.result: TaskCommit | None = None
        self._turns = Turns(job.id, attempt)
        self._pid = os.getpid()

    @property
    def phase(self) -> Phase:
        """How far the attempt is, as this handle knows."""
        return self._turns.phase

    def was_committed(self, result: TaskCommit) -> None:
        """Note that the attempt was committed with this result."""
        self._turns.phase, self.result = Phase.COMMITTED, result

    # What differs ---------------------------------------------------------------------------------

    @property
    def has_files(self) -> bool:
        """Whether it has files in this process, so that no other process can commit it."""
        raise NotImplementedError

    @property
    def waiting(self) -> WaitingFiles | None:
        """The closed files, if they wait on a file system; None: they are uploads."""
        raise NotImplementedError

    def share(self) -> None:
        """Let other processes commit the attempt from now on. Called only if the job's track is
        ``"s3"``."""
        raise TaskFailed(
            f"attempt {self.attempt!r} stays in its process: its job has track='memory'",
            job_id=self.job.id,
        )

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> TaskFile:
        """Open a file for writing, from its start to its end: see `Task.open`."""
        raise NotImplementedError

    def directory(self, *, unique: bool) -> Path:
        """The attempt's local directory, whose files are its files: see `Task.directory`."""
        raise NotImplementedError

    def local_file(self, name: str, *, unique: bool, attributes: Attributes) -> LocalFile:
        """Open a local file with seeks: see `Task.local_file`."""
        raise NotImplementedError

    def streams(self) -> Mapping[str, TaskFile | PendingFile]:
        """The files that were opened here, by the names that they are stored under; also those that
        ended badly. What is left of uploads that are pending."""
        raise NotImplementedError

    def discard(self, name: str) -> None:
        """Take a file of `open` out of the attempt: see `Task.discard`. Repeatable after a
        StoreError. Afterwards the name is free."""
        raise NotImplementedError

    def _commit(self, driver: bool) -> TaskCommit:
        raise NotImplementedError

    def _abort(self) -> None:
        raise NotImplementedError

    def _states(self) -> Mapping[str, FileState]:
        """The state of each file that was opened here, by its name."""
        raise NotImplementedError

    # What is the same -----------------------------------------------------------------------------

    def check_process(self, doing: str) -> None:
        """Raise TaskFailed in a forked child; do nothing elsewhere. ``doing``: what is refused."""
        if self._pid != os.getpid():
            raise TaskFailed(
                f"attempt {self.attempt!r} of task {self.task!r} belongs to process {self._pid},"
                f" this is process {os.getpid()}: {doing} here would do nothing for the job",
                job_id=self.job.id,
                hint=WrongProcess.advice,
            )

    def commit(self, *, driver: bool = False) -> TaskCommit:
        """Save what makes all files of the attempt visible, so that the job can. Repeatable. If it
        fails, the attempt is aborted, unless its set may be stored: then it is left for the job.

        ``driver``: this process commits the job next, and aborts the attempt if that fails. So the
        second read of the fence is the job's: its commit reads the record, and the attempt's abort
        does."""
        if self.result is not None:
            return self.result
        self.check_process("committing it")
        with patient(), self._turns.commit():
            return self.result or self._commit(driver)

    def abort(self) -> None:
        """Undo the attempt. Repeatable; a missing attempt is no error. Afterwards nobody can
        commit the attempt, with any handle. The first of the failures is raised when everything
        else was tried; the job's sweep continues the work. If the attempt is committed or may be,
        nothing is undone."""
        self.check_process("aborting it")
        with patient(), self._turns.abort():
            self._abort()

    def _committed(self, result: TaskCommit) -> None:
        self.was_committed(result)
        logger.info(
            "job %s: attempt %s of task %s committed, %d files, %d bytes",
            self.job.id, self.attempt, self.task, result.files, result.bytes,
        )  # fmt: skip

    def _abort_after(self, error: BaseException) -> None:
        """Abort because of ``error``. If the abort fails, a note on ``error`` says so."""
        try:
            with cleaning_up(error):
                self._abort()
        except MagicError as failure:
            error.add_note(f"aborting attempt {self.attempt!r} failed too: {failure}")

    def _has_already(self, name: str) -> PathError:
        return PathError(
            f"attempt {self.attempt!r} has a file {name!r} already",
            hint="Give each file of a job a name of its own",
        )

    def _has_no(self, name: str) -> PathError:
        return PathError(
            f"attempt {self.attempt!r} has no file {name!r} here",
            hint="Give the name as it was opened; with unique=True if it was opened so",
        )

    def _refuse_lost_files(self) -> None:
        states = self._states()
        unfinished = (FileState.OPEN, FileState.CLOSING)
        still_open = [name for name, state in states.items() if state in unfinished]
        if still_open:
            raise FileStillOpen(
                f"not closed: {name_some(still_open)} (of attempt {self.attempt!r})",
                job_id=self.job.id,
                hint=CLOSE_FIRST,
            )
        lost = [name for name, state in states.items() if state is FileState.FAILED]
        if lost:
            raise TaskFailed(
                f"attempt {self.attempt!r}: these files failed: {name_some(lost)}",
                job_id=self.job.id,
                hint=ANOTHER_ATTEMPT,
            )
