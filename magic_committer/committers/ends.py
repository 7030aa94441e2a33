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
  for the files that were closed before, and are still being sent: `magic.Closings`.)
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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

from magic_committer.commit.fence import AttemptSet, Fence
from magic_committer.errors import (
    FileStillOpen,
    MagicError,
    PathError,
    TaskFailed,
    WrongProcess,
)
from magic_committer.errors.messages import CLOSE_FIRST, name_some
from magic_committer.hadoop.paths import check_id, check_name, unique_name
from magic_committer.hadoop.statistics import TASK_ATTEMPT, Statistics
from magic_committer.options import Options
from magic_committer.protocol.record import OwnCommit, Phase, StartedJob, TaskCommit
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import cleaning_up, patient
from magic_committer.stores.base import Attributes
from magic_committer.upload import FileState, LocalDirectory, LocalFile, PendingFile, TaskFile
from magic_committer.upload.file import nothing

if TYPE_CHECKING:
    from pathlib import Path

    from magic_committer.committers.manifest import TreeAttempt

logger = logging.getLogger("magic_committer")


class Doing(Enum):
    """A call that ends an attempt or changes it, with what is done to the attempt."""

    COMMIT = "committed"
    ABORT = "aborted"
    DISCARD = "changed: a file is discarded"


class Turns:
    """The phase of one handle's attempt, and the calls that may change it. ``phase`` is changed
    only in a turn; ``lock`` is held for steps between which no turn may begin."""

    def __init__(self, attempt_set: AttemptSet) -> None:
        self.phase = Phase.OPEN
        self.lock = threading.RLock()
        self._set = attempt_set
        self._going: dict[Doing, set[object]] = {doing: set() for doing in Doing}

    @contextmanager
    def take(self, doing: Doing) -> Iterator[None]:
        """A turn of a call."""
        me, going = object(), self._going[doing]
        try:
            with self.lock:
                going.add(me)  # first this, then the look
                try:
                    self._check(doing)
                except TaskFailed:
                    going.discard(me)  # a call that is refused disturbs none that runs
                    raise
            yield
        finally:
            going.discard(me)

    def _check(self, doing: Doing) -> None:
        if doing is Doing.DISCARD:
            self.check_open()
        elif doing is Doing.ABORT:
            self.refuse(Doing.COMMIT)
        else:
            self.refuse(Doing.COMMIT, beside=1)
            self.refuse(Doing.ABORT)
            self.refuse(Doing.DISCARD)
            if self.phase is Phase.ABORTED:
                raise self._set.failed(" is aborted, it cannot be committed")

    def check_open(self, *, awaited: bool = False) -> None:
        """Raise TaskFailed unless the attempt accepts files: it is open, and nobody is ending it.
        ``awaited``: for a file that was closed before any commit began: a commit that runs now is
        waiting for it."""
        with self.lock:
            if self.phase is not Phase.OPEN:
                what = self.phase.value
            elif self._going[Doing.COMMIT] and not awaited:
                what = "being committed"
            elif self._going[Doing.ABORT]:
                what = "being aborted"
            else:
                return
        raise self._set.failed(f" is {what}, it accepts no more files", CLOSE_FIRST)

    def refuse(self, doing: Doing, beside: int = 0) -> None:
        """Raise TaskFailed if more than ``beside`` such calls run now."""
        if len(self._going[doing]) > beside:
            raise self._set.failed(
                f" is being {doing.value}, by another thread or by what a signal handler has"
                " interrupted: nothing was done",
                "Wait until that call has returned. An attempt that it has committed is undone by"
                " job.abort(), or left out of job.commit(...)",
            )


class TaskAttempt(ABC):
    """One attempt of one task, in the process that writes it. ``result``: what `commit` gave; None
    before."""

    def __init__(
        self, runtime: Runtime, job: StartedJob, options: Options, task: str, attempt: str
    ) -> None:
        self.job = job
        self.task = check_id("task id", task)
        self.attempt = attempt  # `AttemptSet` checks it
        self.result: TaskCommit | None = None
        self.statistics = Statistics()
        self._began: float | None = runtime.clock.monotonic()
        self._runtime = runtime
        self._options = options
        self._paths = job.paths
        self._fence = Fence(runtime, job)
        self._set = AttemptSet(runtime, job, self._fence, task, attempt)
        self._turns = Turns(self._set)
        self._files: dict[str, Any] = {}
        """Its files by the names that they are stored under. Each has a ``state``."""
        self._cut: set[str] = set()
        """Names of closed files that an exception has cut, and that are not taken out yet."""
        self.gone: Callable[[str], object] = nothing
        """Called with the name of a file that was taken out by itself."""
        self._local: LocalDirectory | None = None
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.attempt!r} of task {self.task!r},"
            f" job {self.job.id!r}, {self.phase.value}, {len(self._files)} files>"
        )

    @property
    def phase(self) -> Phase:
        """How far the attempt is, as this handle knows."""
        return self._turns.phase

    @property
    def has_files(self) -> bool:
        """Whether it has files in this process, so that no other process can commit it."""
        return bool(self._files)

    @property
    def waiting(self) -> TreeAttempt | None:
        """The attempt, if its closed files wait on a file system, where they can be read and
        renamed; None: they are uploads."""
        return None

    def was_committed(self, result: TaskCommit) -> None:
        """Note that the attempt was committed with this result."""
        self._turns.phase, self.result = Phase.COMMITTED, result

    # What differs ---------------------------------------------------------------------------------

    def share(self) -> None:
        """Let other processes commit the attempt from now on. Called only if the job's track is
        ``"s3"``."""
        raise TaskFailed(
            f"attempt {self.attempt!r} stays in its process: its job has track='memory'",
            job_id=self.job.id,
        )

    @abstractmethod
    def open(self, name: str, *, unique: bool, attributes: Attributes) -> TaskFile:
        """Open a file for writing, from its start to its end: see `Task.open`."""

    @abstractmethod
    def directory(self, *, unique: bool) -> Path:
        """The attempt's local directory, whose files are its files: see `Task.directory`."""

    @abstractmethod
    def local_file(self, name: str, *, unique: bool, attributes: Attributes) -> LocalFile:
        """Open a local file with seeks: see `Task.local_file`."""

    @abstractmethod
    def streams(self) -> Mapping[str, TaskFile | PendingFile]:
        """The files that were opened here, by the names that they are stored under; also those that
        ended badly. What is left of uploads that are pending."""

    @abstractmethod
    def discard(self, name: str) -> None:
        """Take a file of `open` out of the attempt: see `Task.discard`. Repeatable after a
        StoreError. Afterwards the name is free."""

    def _take_back(self, file: TaskFile) -> None:
        """Remove a closed file whose ``with`` block an exception has ended: a wrapper, such as
        `io.TextIOWrapper`, has closed it. The attempt cannot commit before it is out. Does nothing
        if it is out already: another file may have its name by now."""
        with self._turns.lock:
            name = self._name_of(file)
        if name is None:
            return
        self._cut.add(name)
        self._drop_closed(name)
        self._cut.discard(name)
        self.gone(name)

    def _name_of(self, file: TaskFile) -> str | None:
        """The name that a file is stored under now."""
        return next((name for name, one in self._files.items() if one is file), None)

    def _drop_closed(self, name: str) -> None:
        self.discard(name)

    def _cut_short(self, name: str) -> TaskFailed:
        return self._set.failed(
            f": an exception has cut {name!r}, which was closed before, and it is not removed yet"
        )

    @abstractmethod
    def _save_set(self) -> TaskCommit:
        """Store the set, once. Gives the result, whose key is "" if there was nothing to store."""

    @abstractmethod
    def _abort(self) -> None:
        """Undo the attempt, in a turn of its own."""

    def _tidy(self) -> None:
        """Remove what nobody needs any more, as the attempt is about to be committed."""
        self._remove_local()

    # What is the same -----------------------------------------------------------------------------

    def check_process(self, doing: str) -> None:
        """Raise TaskFailed in a forked child; do nothing elsewhere. ``doing``: what is refused."""
        if self._pid != os.getpid():
            raise self._set.failed(
                f" of task {self.task!r} belongs to process {self._pid},"
                f" this is process {os.getpid()}: {doing} here would do nothing for the job",
                WrongProcess.advice,
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
        with patient(), self._turns.take(Doing.COMMIT):
            return self.result or self._commit(driver)

    def _commit(self, driver: bool) -> TaskCommit:
        first = self.phase is Phase.OPEN
        try:
            for name in sorted(self._cut):
                raise self._cut_short(name)
            result = self._save_set()
        except BaseException as error:
            if first and self._set.refused:
                self._turns.phase = Phase.OPEN
            self._abort_after(error)
            raise
        late = self._fence.must_undo() if result.key and not driver else None
        if late is not None:
            self._abort_after(late)
            raise late
        self._tidy()
        self.was_committed(result)
        logger.info(
            "job %s: attempt %s of task %s committed, %d files, %d bytes",
            self.job.id, self.attempt, self.task, result.files, result.bytes,
        )  # fmt: skip
        if driver and result.key:
            return OwnCommit(**result.to_dict(), own=self._set.own)
        return result

    def _stop_clock(self) -> None:
        """Note how long the attempt has worked, once."""
        if self._began is not None:
            seconds, self._began = self._runtime.clock.monotonic() - self._began, None
            self.statistics.took(TASK_ATTEMPT, seconds, failed=False)

    def _result(self, etag: str, size: int, files: int, data_bytes: int) -> TaskCommit:
        """The result of the attempt, whose set is stored."""
        key = self._set.key
        return TaskCommit(
            self.job.uuid, self.task, self.attempt, key, etag, size, files, data_bytes
        )

    def abort(self) -> None:
        """Undo the attempt. Repeatable; a missing attempt is no error. Afterwards nobody can
        commit the attempt, with any handle. The first of the failures is raised when everything
        else was tried; the job's sweep continues the work. If the attempt is committed or may be,
        nothing is undone."""
        self.check_process("aborting it")
        with patient(), self._turns.take(Doing.ABORT):
            self._abort()

    def _abort_after(self, error: BaseException) -> None:
        """Abort because of ``error``. If the abort fails, a note on ``error`` says so."""
        try:
            with cleaning_up(error):
                self._abort()
        except MagicError as failure:
            error.add_note(f"aborting attempt {self.attempt!r} failed too: {failure}")

    # Its files ------------------------------------------------------------------------------------

    def _name(self, name: str, unique: bool) -> str:
        """The name that a file is stored under."""
        check_name(name, uuid=self.job.uuid)
        return unique_name(name, self.job.uuid) if unique else name

    def _refuse_twice(self, files: Mapping[str, Any], name: str) -> None:
        file = files.get(name)
        if file is not None and file.state not in (FileState.ABORTED, FileState.FAILED):
            raise self._has_already(name)

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

    def _refuse_lost_files(self, files: Mapping[str, Any]) -> None:
        """Refuse to commit without a file that is not closed, or failed."""
        states = {name: file.state for name, file in files.items()}
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
            raise self._set.failed(f": these files failed: {name_some(lost)}")

    def _local_file(self, name: str, url: str, **ends: Any) -> LocalFile:
        """Make a local file, while the attempt accepts files; ``ends``: as of `LocalFile`. Under
        the turns' lock, so that no end of the attempt misses it."""
        with self._turns.lock:
            self._turns.check_open()
            bytes_max = self._options.local_bytes_max
            return LocalFile(self._local_directory(), name, url, bytes_max=bytes_max, **ends)

    def _local_directory(self) -> LocalDirectory:
        """The attempt's directory on local disk. It goes when the attempt ends."""
        with self._turns.lock:
            if self._local is None:
                self._local = LocalDirectory.make(self._options.buffer_dir)
            return self._local

    def _remove_local(self) -> None:
        if self._local is not None:
            self._local.remove()
