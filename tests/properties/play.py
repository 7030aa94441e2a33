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
from typing import Any, NamedTuple

from magic_committer.errors import MagicError
from tests.properties.ours import Magic
from tests.properties.stage import Cut, Leg, Process, Stage
from tests.properties.subjects import Subject

OLD = "old"
OLD_FILES = ("old-1.csv", "old-2.csv")


class Size(NamedTuple):
    """How large a job is: its tasks, and the files of each attempt."""

    tasks: int
    files: int


class Told(NamedTuple):
    """Somebody was told what became of a job.

    Attributes:
        after: how many moments there were. outcome: ``"committed"`` or ``"aborted"``; ``""``: that
            it cannot be told. by: the step that told it: ``"commit job"``, ``"recover"`` …
    """

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
    """A job of the play.

    Attributes:
        handle: what `Subject.begin` returned. results: of accepted attempts, by task.
        granted: which attempt may commit, by task. over: its driver answers no more.
        began: the leg in which it began.
    """

    name: str
    replace: bool
    driver: Process
    began: Leg = field(init=False)
    handle: Any = None
    begun: bool = False
    results: dict[str, Any] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)
    over: bool = False


class Play:
    """Jobs of one committer on a stage.

    Args:
        subject: the committer.
        size: of each job.
        cuts: what happens to the legs that a scenario names, in its order.
    """

    def __init__(self, subject: Subject, size: Size, cuts: Sequence[Cut] = ()) -> None:
        self.subject = subject
        self.size = size
        self.cuts = tuple(cuts)
        self.stage = Stage(subject.read)
        if isinstance(subject, Magic):
            subject.set_up(self.stage)
        self.jobs: dict[str, JobPlayed] = {}
        self.told: list[Told] = []
        self.wrote: dict[AttemptName, set[str]] = {}
        """Files that each attempt is to write."""
        self.asked_to_commit: set[AttemptName] = set()
        """Attempts whose task commit began."""
        self.blocked: list[str] = []
        """Who could not go on, in words."""

    @property
    def struck(self) -> bool:
        """Whether every cut has struck."""
        return len(self.stage.struck) == len(self.cuts)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of a job's tasks."""
        return tuple(str(number) for number in range(self.size.tasks))

    def cut(self, index: int) -> Cut | None:
        """What is to happen to a leg; None where the play has no cut for it."""
        return self.cuts[index] if index < len(self.cuts) else None

    def process(self, name: str) -> Process:
        return Process(name, self.stage)

    def old_data(self) -> None:
        """The destination holds data of an earlier job."""
        for name in OLD_FILES:
            self.stage.another_program_writes(name, body_of(AttemptName(OLD, OLD, 0), name))
        self.stage.look("", "", "the destination holds old data")

    # Jobs -----------------------------------------------------------------------------------------

    def begin(self, name: str, cut: Cut | None = None, *, replace: bool = False) -> JobPlayed:
        job = self.jobs[name] = JobPlayed(name, replace, self.process(f"driver of {name}"))

        def program() -> None:
            job.driver.step = "begin"
            job.handle = self.subject.begin(job.driver, name, replace=replace)
            job.begun = True

        job.began = self.stage.go(job.driver, program, cut)
        return job

    def commit(self, job: JobPlayed, cut: Cut | None = None) -> Leg:
        """Its driver commits a job; and aborts it, if that fails."""

        def program() -> None:
            try:
                self._commit(job, job.driver)
            except MagicError:
                self._abort(job)
                raise
            job.over = True
            self._tell(job.name, "committed", "commit job")

        return self.stage.go(job.driver, program, cut)

    def replay(self, job: JobPlayed, cut: Cut | None = None) -> Leg:
        """Another process commits a job once more, with the same results."""
        process = self.process(f"second driver of {job.name}")

        def program() -> None:
            self._commit(job, process)
            self._tell(job.name, "committed", "replay")

        return self.stage.go(process, program, cut)

    def abort(self, job: JobPlayed, cut: Cut | None = None) -> Leg:
        return self.stage.go(job.driver, lambda: self._abort(job), cut)

    def recover(self, job: JobPlayed, cut: Cut | None = None) -> Leg:
        process = self.process(f"recovery of {job.name}")

        def program() -> None:
            process.step = "recover"
            job.over = True
            self._tell(job.name, self.subject.recover(process, job.name), "recover")

        return self.stage.go(process, program, cut)

    def end(self, job: JobPlayed) -> None:
        """Somebody recovers a job whose outcome nobody was told."""
        if not any(told.job == job.name and told.outcome for told in self.told):
            self.recover(job)

    def _commit(self, job: JobPlayed, process: Process) -> None:
        process.step = "commit job"
        results = [job.results[task] for task in sorted(job.results)]
        self.subject.commit_job(process, job.handle, results)

    def _abort(self, job: JobPlayed) -> None:
        job.driver.step = "abort job"
        job.over = True
        self.subject.abort_job(job.driver, job.handle)
        self._tell(job.name, "aborted", "abort job")

    def _tell(self, job: str, outcome: str, by: str) -> None:
        self.told.append(Told(len(self.stage.moments), job, outcome, by))

    # Tasks ----------------------------------------------------------------------------------------

    def attempt(self, job: JobPlayed, task: str, number: int, cut: Cut | None = None) -> Leg:
        """An attempt of a task runs: it writes its files, asks, and commits or aborts."""
        leg = self.started_attempt(job, task, number, cut)
        self.stage.go_on(leg)
        return leg

    def started_attempt(
        self, job: JobPlayed, task: str, number: int, cut: Cut | None = None
    ) -> Leg:
        """An attempt of a task that has not sent anything yet."""
        name = AttemptName(job.name, task, number)
        process = self.process(f"task {task} of {job.name}, attempt {number}")
        self.wrote[name] = set(files_of(name, self.size.files))
        return self.stage.start(process, lambda: self._work(job, name, process), cut)

    def run_task(self, job: JobPlayed, task: str, cut: Cut | None = None) -> Leg:
        """Run a task: if its first attempt does not tell that it is done, a second one."""
        leg = self.attempt(job, task, 1, cut)
        if task not in job.results:
            self.attempt(job, task, 2)
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

    def whole_job(self, name: str, *, aborts: bool = False) -> None:
        """A job that runs from its start to its end without a break."""
        job = self.begin(name)
        if job.begun:
            self.run_tasks(job)
            (self.abort if aborts else self.commit)(job)

    def need(self, leg: Leg, who: str) -> None:
        """Note who could not go on though nothing happened to it."""
        if not leg.well:
            why = f"{type(leg.error).__name__}: {leg.error}" if leg.error else "it waits"
            self.blocked.append(f"{who}: {why}")

    def need_committed(self, job: JobPlayed) -> None:
        """Note it if a job could not commit though nothing happened to it."""
        if not any(told.job == job.name and told.outcome == "committed" for told in self.told):
            self.blocked.append(f"{job.name} could not commit")


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
        play.stage.land()
    finally:
        play.stage.close()
    return play
