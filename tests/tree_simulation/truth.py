"""What is true in a world: the files, the attempts, the jobs, and when their records said what.

It is learned from effects on the tree alone. An effect has a process, whose verb it was, and the
step at which that verb was sent: a verb without an answer may take effect later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import PROMISES
from tests.tree_simulation.cases import CASES
from tests.tree_simulation.tree import Faults, ToldTree

CLASSIC = ("v1", "v2")


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    promise: str
    what: str
    step: int

    def __str__(self) -> str:
        return f"{self.promise} ({PROMISES[self.promise]}) at step {self.step}: {self.what}"


@dataclass(slots=True)
class FileTruth:
    """A file of a task, or of another program (``job`` is "")."""

    job: str
    attempt: str = ""
    name: str = ""


@dataclass(slots=True)
class AttemptTruth:
    """What one attempt has written: files by name.

    Attributes:
        told_step: when its commit returned; 0: it has not.
        given_up: it was aborted, and the abort returned.
        moved: v1 has renamed its directory: it has committed.
        published: its files that were once at their place.
    """

    task: str
    files: dict[str, bytes] = field(default_factory=dict)
    told_step: int = 0
    given_up: bool = False
    moved: bool = False
    published: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Moved:
    """A version of a record came, or the record went (``state`` is "absent").

    Attributes:
        step: when. sent: when the verb was sent. by: the process whose verb it was.
    """

    state: str
    step: int
    sent: int
    by: str


@dataclass(slots=True)
class JobTruth:
    """A job, by what its record has said.

    Attributes:
        version: of its record. decision: ``""``, committed, aborted, reverted.
        files: of its plan: name to attempt and etag. deletes: name and etag.
        published: names that were once at their place, by this job.
        accepted: names that an operator takes as they are.
        given_up: its record was removed by force. forgotten: its record is gone.
        ghost: its first version came again, late. Nothing that is told of it is judged.
        planning: when the listing of each plan could begin, by the plan's path.
        history: what its record said, in order.
        drivers: the processes that have started it or moved its record.
        handed: the results that a commit was given: names of attempts.
        first_commit: when somebody first called its commit.
        merging: when v1 began to merge; 0: not yet.
        swept: who first took what its tasks wrote, and when.
    """

    uuid: str
    id: str
    given: bool
    mode: str
    committer: str = "manifest"
    state: str = ""
    version: int = 0
    decision: str = ""
    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    deletes: set[tuple[str, str]] = field(default_factory=set)
    published: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    given_up: bool = False
    forgotten: bool = False
    ghost: bool = False
    planning: dict[str, int] = field(default_factory=dict)
    completed_step: int = 0
    history: list[Moved] = field(default_factory=list)
    drivers: set[str] = field(default_factory=set)
    tasks: frozenset[str] = frozenset()
    accept: str = ""
    handed: set[str] = field(default_factory=set)
    first_commit: int = 0
    merging: int = 0
    swept: tuple[str, int] = ("", 0)

    @property
    def is_classic(self) -> bool:
        """Whether it is of v1 or v2."""
        return self.committer in CLASSIC

    def states_since(self, step: int) -> set[str]:
        """What its record said at a step and after it: "absent" where there was none."""
        before = [moved.state for moved in self.history if moved.step <= step]
        return {before[-1] if before else "absent"} | {
            moved.state for moved in self.history if moved.step > step
        }

    def versions_at(self, step: int) -> int:
        """How many versions its record had at a step; or before it went, if it was gone then. A
        job may get a first version twice: see "taken, and made again"."""
        versions, gone = 0, False
        for moved in self.history:
            if moved.step > step:
                break
            if moved.state == "absent":
                gone = True
            else:
                versions, gone = (1 if gone else versions + 1), False
        return versions


class Truth:
    """What the checkers share.

    Attributes:
        visible: what readers see: the etag at each path of data. since: when it came there.
        written: when somebody last wrote at a path.
        away: files that were taken, and are not what was planned: etag to path and step. takers: by
            whom.
        marked: when, and by whom, the destination was marked last.
        acting, sent: whose verb takes effect now, and when it was sent.
        looks: when a process learned what the record of a job says, and how many of its verbs had
            failed by then.
    """

    def __init__(self, tree: ToldTree, scheduler: Scheduler, faults: Faults) -> None:
        self.tree, self.scheduler, self.faults = tree, scheduler, faults
        self.violations: list[Violation] = []
        self.cases: set[str] = set()
        self.jobs: dict[str, JobTruth] = {}
        self.files: dict[str, FileTruth] = {}
        self.attempts: dict[tuple[str, str], AttemptTruth] = {}
        self.visible: dict[str, str] = {}
        self.since: dict[str, int] = {}
        self.away: dict[str, tuple[str, int]] = {}
        self.takers: dict[str, str] = {}
        self.written: dict[str, int] = {}
        self.marked = 0, ""
        self.markers: dict[str, str] = {}
        self.claims: dict[str, str] = {}
        self.programs = False
        self.acting, self.sent = "", 0
        self.looks: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.forcing: dict[str, str] = {}
        """Operators that give a job up, and its UUID."""

    def broken(self, promise: str, what: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(promise, what, self.scheduler.steps))

    def met(self, case: str) -> None:
        """Note that a checker had something to judge."""
        assert case in CASES, case
        self.cases.add(case)

    def missing(self, job: JobTruth) -> list[str]:
        """What of a plan was never at its place."""
        return sorted(job.files.keys() - job.published - job.accepted)

    def left(self, job: JobTruth) -> list[str]:
        """What a plan deletes and is there still."""
        return sorted(
            name
            for name, etag in job.deletes
            if self.visible.get(name) == etag and name not in job.accepted
        )

    def visible_of(self, job: JobTruth) -> list[str]:
        """The files of a job that readers see."""
        return [
            path
            for path, etag in self.visible.items()
            if self.files[etag].job == job.uuid and self.files[etag].attempt
        ]
