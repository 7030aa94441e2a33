"""One play: jobs of a committer, driven as engines drive them, with what is true of each attempt.

The engine is Spark's and MapReduce's, as far as they agree:

* A task asks the driver before it commits; the driver lets one attempt of each task, and another
  one only when it has taken the first for lost. Who is refused aborts. Who gets no answer, because
  the job is over, exits without a word.
* An attempt that fails aborts itself; then another attempt runs. Attempts need not write the same
  files: the first writes one that the second does not, and the other way round.
* A commit of the job that fails is followed by its abort. Where that fails too, the outcome is not
  known, and another process recovers the job.

A file's content names the job, the task and the attempt that wrote it: so what a reader finds tells
by itself whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from magic_committer.errors import MagicError
from tests.properties.stage import Cut, Leg, Process, Stage, View

OLD_FILES = ("old-1.csv", "old-2.csv")


class Subject(Protocol):
    """One committer: the verbs of Hadoop's `OutputCommitter`, and recovery.

    It holds no state of its own between calls. What it must remember travels as a value, as it does
    between a driver and its executors: ``job`` from `begin`, ``attempt`` inside one process, and a
    task's ``result``. A failure is a `MagicError`: the play then does what engines do.

    * ``name``: its name in the table. ``tree``: its store is a directory. ``read``: what a reader
      of its data finds.
    * ``begin``: start a job of a name that no other job of the play has, which adds to what the
      destination holds or replaces it, by whatever way engines do that with this committer; gives
      what all other calls need of it.
    * ``attempt``: start an attempt of a task; its number counts from 1. ``write``: write one file
      of it, and close it. ``commit_task``: what it returns reaches the driver, if the process
      lives.
    * ``commit_job``: with the results of the attempts that the driver accepted, one for each task.
      Returning says: it is committed; and from ``abort_job``: it is aborted.
    * ``recover``: end a job whose driver is dead, by another process that knows the destination and
      the job's name. Gives ``"committed"``, ``"aborted"``, or ``""``: it cannot tell.
    """

    @property
    def name(self) -> str: ...
    @property
    def tree(self) -> bool: ...
    def read(self, stage: Stage) -> View: ...
    def begin(self, process: Process, name: str, *, replace: bool) -> Any: ...
    def attempt(self, process: Process, job: Any, task: str, number: int) -> Any: ...
    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None: ...
    def commit_task(self, process: Process, attempt: Any) -> Any: ...
    def abort_task(self, process: Process, attempt: Any) -> None: ...
    def commit_job(self, process: Process, job: Any, results: Sequence[Any]) -> None: ...
    def abort_job(self, process: Process, job: Any) -> None: ...
    def recover(self, process: Process, name: str) -> str: ...


class Size(NamedTuple):
    """How large a job is: its tasks, and the files of each attempt."""

    tasks: int
    files: int


class Told(NamedTuple):
    """Somebody was told what became of a job: ``outcome`` is ``"committed"``, ``"aborted"``, or
    ``""``: that it cannot be told. ``after``: how many moments there were. ``by``: which step told
    it: ``"commit job"``, ``"recover"`` …"""

    after: int
    job: str
    outcome: str
    by: str


class AttemptName(NamedTuple):
    """Which attempt of which task of which job."""

    job: str
    task: str
    number: int


@dataclass
class JobPlayed:
    """A job of the play. ``handle``: what `Subject.begin` returned. ``results``: of accepted
    attempts, by task. ``granted``: which attempt may commit, by task. ``over``: its driver answers
    no more."""

    name: str
    replace: bool
    driver: Process
    handle: Any = None
    begun: bool = False
    results: dict[str, Any] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)
    over: bool = False


class Play(Stage):
    """Jobs of one committer. ``cuts``: what happens to the legs that a scenario names, in its
    order."""

    def __init__(self, subject: Subject, size: Size, cuts: Sequence[Cut] = ()) -> None:
        super().__init__(subject.read, subject.tree)
        self.subject = subject
        self.size = size
        self.cuts = tuple(cuts)
        self.jobs: dict[str, JobPlayed] = {}
        self.told: list[Told] = []
        self.wrote: dict[AttemptName, set[str]] = {}
        """Files that each attempt is to write."""
        self.asked_to_commit: set[AttemptName] = set()
        """Attempts whose task commit began."""
        self.blocked: list[str] = []
        """Who could not go on, in words."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of a job's tasks."""
        return tuple(str(number) for number in range(self.size.tasks))

    # Jobs -----------------------------------------------------------------------------------------

    def begin(
        self, name: str, cut: Cut | None = None, *, replace: bool = False
    ) -> tuple[JobPlayed, Leg]:
        driver = Process(f"driver of {name}", self)
        job = self.jobs[name] = JobPlayed(name, replace, driver)

        def program() -> None:
            driver.step = "begin"
            job.handle = self.subject.begin(driver, name, replace=replace)
            job.begun = True

        return job, self.go(driver, program, cut)

    def act(self, job: JobPlayed, verb: str, cut: Cut | None = None) -> Leg:
        """``commit``: its driver commits a job; and aborts it, if that fails. ``replay``: another
        process commits it once more, with the same results. ``abort``, ``recover``."""
        process = job.driver
        if verb in ("replay", "recover"):
            process = Process(f"{verb} of {job.name}", self)
        return self.go(process, partial(getattr(self, f"_{verb}"), job, process), cut)

    def end(self, job: JobPlayed) -> None:
        """Somebody recovers a job whose outcome nobody was told."""
        if not any(told.job == job.name and told.outcome for told in self.told):
            self.act(job, "recover")

    def _commit(self, job: JobPlayed, process: Process) -> None:
        try:
            self._publish(job, process)
        except MagicError:
            self._abort(job, process)
            raise
        job.over = True
        self._tell(job, "committed", "commit job")

    def _replay(self, job: JobPlayed, process: Process) -> None:
        self._publish(job, process)
        self._tell(job, "committed", "replay")

    def _publish(self, job: JobPlayed, process: Process) -> None:
        process.step = "commit job"
        results = [job.results[task] for task in sorted(job.results)]
        self.subject.commit_job(process, job.handle, results)

    def _abort(self, job: JobPlayed, process: Process) -> None:
        process.step = "abort job"
        job.over = True
        self.subject.abort_job(process, job.handle)
        self._tell(job, "aborted", "abort job")

    def _recover(self, job: JobPlayed, process: Process) -> None:
        process.step = "recover"
        job.over = True
        self._tell(job, self.subject.recover(process, job.name), "recover")

    def _tell(self, job: JobPlayed, outcome: str, by: str) -> None:
        self.told.append(Told(len(self.moments), job.name, outcome, by))

    # Tasks ----------------------------------------------------------------------------------------

    def attempt(self, job: JobPlayed, task: str, number: int, cut: Cut | None = None) -> Leg:
        """An attempt of a task that has not sent anything yet: it writes its files, asks, and
        commits or aborts."""
        name = AttemptName(job.name, task, number)
        process = Process(f"task {task} of {job.name}, attempt {number}", self)
        self.wrote[name] = set(files_of(name, self.size.files))
        return self.leg(process, partial(self._work, job, name, process), cut)

    def run_task(self, job: JobPlayed, task: str, cut: Cut | None = None) -> Leg:
        """Run a task: if its first attempt does not tell that it is done, a second one."""
        leg = self.attempt(job, task, 1, cut)
        self.go_on(leg)
        if task not in job.results:
            self.go_on(self.attempt(job, task, 2))
        return leg

    def run_tasks(self, job: JobPlayed, first: int = 0) -> None:
        """Run the tasks from a number on, one after the other."""
        for task in self.tasks[first:]:
            self.run_task(job, task)

    def _work(self, job: JobPlayed, name: AttemptName, process: Process) -> None:
        process.step = "write"
        subject = self.subject
        attempt = subject.attempt(process, job.handle, name.task, name.number)
        try:
            for file in sorted(self.wrote[name]):
                subject.write(process, attempt, file, body_of(name, file))
            if job.over:
                return  # nobody answers
            if job.results.get(name.task) is not None or self._taken(job, name):
                process.step = "abort task"
                subject.abort_task(process, attempt)
                return
            process.step = "commit task"
            self.asked_to_commit.add(name)
            result = subject.commit_task(process, attempt)
        except MagicError:
            process.step = "abort task"
            subject.abort_task(process, attempt)
            raise
        if not job.over:
            job.results.setdefault(name.task, result)

    def _taken(self, job: JobPlayed, name: AttemptName) -> bool:
        """Whether another attempt has the driver's leave to commit. A later attempt runs only when
        the earlier one was taken for lost, and takes its leave."""
        granted = job.granted.get(name.task, 0)
        if granted > name.number:
            return True
        job.granted[name.task] = name.number
        return False

    # Others ---------------------------------------------------------------------------------------

    def whole_job(self, name: str, last: str) -> None:
        """A job that runs from its start to its end without a break."""
        job, _ = self.begin(name)
        if job.begun:
            self.run_tasks(job)
            self.act(job, last)

    def need(self, leg: Leg, who: str) -> None:
        """Note who could not go on though nothing happened to it."""
        if leg.error or not leg.ended:
            why = f"{type(leg.error).__name__}: {leg.error}" if leg.error else "it waits"
            self.blocked.append(f"{who}: {why}")

    def need_committed(self, job: JobPlayed) -> None:
        """Note it if a job could not commit though nothing happened to it."""
        if not any(told.job == job.name and told.outcome == "committed" for told in self.told):
            self.blocked.append(f"{job.name} could not commit")


def old_files() -> dict[str, bytes]:
    """Data of an earlier job."""
    return {name: body_of(AttemptName("old", "old", 0), name) for name in OLD_FILES}


def files_of(name: AttemptName, files: int) -> tuple[str, ...]:
    """The files of an attempt: the first is called the same by every attempt, the others are not.
    Two jobs never write the same name, as Spark's never do."""
    stem = f"{name.job}-{name.task}"
    return (f"{stem}.csv", *(f"{stem}-{name.number}{'abcdef'[at]}.csv" for at in range(files - 1)))


def body_of(name: AttemptName, file: str) -> bytes:
    return "|".join((name.job, name.task, str(name.number), file)).encode()


def run(
    subject: Subject, size: Size, cuts: Sequence[Cut], scenario: Callable[[Play], None]
) -> Play:
    play = Play(subject, size, cuts)
    try:
        scenario(play)
        play.injector.land()
    finally:
        play.close()
    return play
