"""What a committer is: three protocols, which `Job`, `Task` and the commands work with.

* `CommitterClass`: what the registry gives for a name. It starts jobs, finds them, and takes them.
* `JobCommitter`: one job in one process. It makes attempts, and ends the job.
* `TaskAttempt`: one attempt of one task in the process that writes it.

Invariants that each implementation keeps, whatever it stores its files and its record in:

* A job is decided once, by a compare-and-swap or an exclusive create. Whoever reads the record
  obeys it; so every call that ends a job is repeatable, from any process.
* An attempt makes nothing visible. Its commit is atomic: all of its files, or none.
* A value that travels (`StartedJob`, `TaskCommit`) holds no client, no lock and no secret. A
  `JobCommitter` does not travel: `Process` is what it is built from, in each process anew.
* A destination of another scheme is refused by `CommitterClass.destination`, before anything is
  done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Protocol

from magic_committer._pool import Pool
from magic_committer._runtime import (
    Clock,
    ProgressFunction,
    Runtime,
    SystemClock,
    new_id,
    no_progress,
)
from magic_committer.commit.prepare import Prospect
from magic_committer.options import Mode, Options, Track
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import JobReport, StartedJob, State, TaskCommit, Terms
from magic_committer.protocol.rules import Phase
from magic_committer.stores.base import Attributes
from magic_committer.upload import BlockSource, LocalFile, PendingFile, TaskFile

if TYPE_CHECKING:
    from pathlib import Path

    from magic_committer.file_trees.base import FileTree


@dataclass(frozen=True, slots=True)
class Process:
    """What a committer is built from in one process. Never pickled. ``runtime_for`` gives the
    components for the bucket of that name; a committer that needs no bucket does not call it, and
    needs no connection."""

    runtime_for: Callable[[str], Runtime]
    pool: Pool
    blocks: BlockSource
    clock: Clock = field(default_factory=SystemClock)
    ids: Callable[[], str] = new_id
    progress: ProgressFunction = no_progress


@dataclass(frozen=True, slots=True)
class Attached:
    """A job that was found by its id."""

    job: StartedJob
    state: State
    outcome: str


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


class TaskAttempt(Protocol):
    """One attempt of one task, in the process that writes it. ``result``: what `commit` gave; None
    before."""

    job: StartedJob
    task: str
    attempt: str
    result: TaskCommit | None

    @property
    def phase(self) -> Phase:
        """How far the attempt is, as this handle knows."""
        ...

    @property
    def has_files(self) -> bool:
        """Whether it has files in this process, so that no other process can commit it."""
        ...

    def share(self) -> None:
        """Let other processes commit the attempt from now on. Called only if the job's track is
        ``"s3"``."""
        ...

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> TaskFile:
        """Open a file for writing, from its start to its end: see `Task.open`."""
        ...

    def directory(self, *, unique: bool) -> Path:
        """The attempt's local directory, whose files are its files: see `Task.directory`."""
        ...

    def local_file(self, name: str, *, unique: bool, attributes: Attributes) -> LocalFile:
        """Open a local file with seeks: see `Task.local_file`."""
        ...

    def streams(self) -> Mapping[str, TaskFile | PendingFile]:
        """The files that were opened here, by the names that they are stored under; also those that
        ended badly. What is left of uploads that are pending."""
        ...

    @property
    def waiting(self) -> WaitingFiles | None:
        """The closed files, if they wait on a file system; None: they are uploads."""
        ...

    def discard(self, name: str) -> None:
        """Take a file of `open` out of the attempt: see `Task.discard`."""
        ...

    def commit(self, *, driver: bool = False) -> TaskCommit:
        """Save what makes all files of the attempt visible, so that the job can. Repeatable.

        ``driver``: this process commits the job next, and aborts the attempt if that fails. So the
        second read of the fence is the job's: its commit reads the record, and the attempt's abort
        does."""
        ...

    def abort(self) -> None:
        """Undo the attempt. Repeatable; a missing attempt is no error."""
        ...


class JobCommitter(Protocol):
    """One started job in one process."""

    job: StartedJob

    @property
    def transport(self) -> str:
        """What sends the requests, for reports; "" if there is nothing to tell."""
        ...

    def attempt(self, task: str, attempt: str | None = None, *, sole: bool = False) -> TaskAttempt:
        """Make an attempt of a task. Sends nothing. ``sole``: no other process shares it."""
        ...

    def committed_attempt(self, result: TaskCommit) -> TaskAttempt:
        """Make the handle of an attempt that is already committed, from its result."""
        ...

    def commit_job(
        self,
        results: Iterable[TaskCommit] | None = None,
        expect: int | Iterable[str] | None = None,
        accept: Collection[str] = (),
        role: str = "driver",
        batch: StreamBatch | None = None,
    ) -> JobReport:
        """Commit the job, or finish it: see `Job.commit`. Repeatable. ``role``: what the record
        says of this process: ``"driver"`` or ``"recovery"``."""
        ...

    def settle_job(
        self, state: State, accept: Collection[str] = (), *, leave_visible: bool = False
    ) -> JobReport:
        """Finish or abort the job instead of its driver. ``state``: what its record says.
        Repeatable."""
        ...

    def look_at_commit(
        self, expect: int | Iterable[str] | None = None, accept: Collection[str] = ()
    ) -> Prospect:
        """What `commit_job` would decide. Only reads."""
        ...

    def abort_job(
        self, *, revert: bool = False, leave_visible: bool = False, role: str = "driver"
    ) -> JobReport:
        """Abort the job, or undo it. Repeatable."""
        ...

    def sign_of_life(self) -> Callable[[], bool]:
        """A function that tells the store that the job's driver lives, and gives whether to go on.
        It is called every `alive.ALIVE_SECONDS`."""
        ...


class CommitterClass(Protocol):
    """What the registry gives for a name. ``tracks``: where its attempts can keep what their commit
    needs; the first, if the caller does not say."""

    name: ClassVar[str]
    tracks: ClassVar[tuple[Track, ...]]

    @classmethod
    def destination(cls, dest: str) -> str:
        """The URL of a destination as jobs write it, with its trailing slash. Pure."""
        ...

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """The mode of the record, for the mode that the caller means. Pure."""
        ...

    @classmethod
    def start(
        cls,
        process: Process,
        dest: str,
        terms: Terms,
        options: Options,
        job_id: str | None = None,
        *,
        said_mode: str = "",
        join: bool = False,
        checkpoint: str = "",
    ) -> JobCommitter:
        """Start a job: see `api.start`."""
        ...

    @classmethod
    def attach(cls, process: Process, dest: str, job_id: str) -> Attached:
        """Find a job of this destination's kind by its id. Only reads. The job may be of any
        committer that keeps its record in the same way: `Attached.job` says of which."""
        ...

    @classmethod
    def of(cls, process: Process, job: StartedJob, options: Options) -> JobCommitter:
        """Take a started job, in any process. Sends nothing."""
        ...
