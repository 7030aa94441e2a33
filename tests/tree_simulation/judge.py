"""What really happened to the files and the jobs of a world, and whether it may.

It goes by effects on the tree, never by what the library says; records and plans are read as bytes.
A file is known by its etag, which a rename keeps. So whose a file is, is known wherever it is.

What no protocol of renames can promise is excused here, and nowhere else:

* A file of another program that was taken for an old one is away until it is looked at: it must be
  back, unless somebody has written there meanwhile.
* A job that an operator gave up (`force_abort`) may be visible in part.
* An error that says "committed" may have been true when the record was read: a revert came since.
* Where a listing lagged, what only a listing can tell is not judged: data that was not seen, jobs
  beside it. Where directories are not real, the same for what comes after a job was forgotten.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from magic_committer.commit.success_marker import DIAGNOSTIC_UUID
from magic_committer.committers.manifest.names import (
    ENDED_PREFIX,
    JOB_PREFIX,
    TEMPORARY,
    is_hidden_name,
)
from magic_committer.hadoop.paths import SUCCESS
from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import ARROWS, EXCLUDING, FAILING, PROMISES, REPLACING
from tests.tree_simulation.cases import CASES
from tests.tree_simulation.tree import Faults, ToldTree


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
    """What one attempt has written: complete files, by name; and whether its commit has begun."""

    task: str
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class JobTruth:
    """A job, by what its record has said.

    Attributes:
        version: of its record. decision: ``""``, committed, aborted, reverted.
        files: of its plan: name to attempt and etag. deletes: name and etag.
        published: names that were once at their place, by this job.
        accepted: names that an operator takes as they are.
        given_up: its record was removed by force. forgotten: its record is gone.
        planning: when the listing of each plan could begin, by the plan's path.
    """

    uuid: str
    id: str
    given: bool
    mode: str
    state: str = ""
    version: int = 0
    decision: str = ""
    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    deletes: set[tuple[str, str]] = field(default_factory=set)
    published: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    given_up: bool = False
    forgotten: bool = False
    planning: dict[str, int] = field(default_factory=dict)
    completed_step: int = 0
    handed_out: bool = False


class Judge:
    """Judges one world.

    Attributes:
        visible: what readers see: the etag at each path of data.
        away: files that were taken, and are not what was planned: etag to path
            and step.
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
        self.written: dict[str, int] = {}
        self.markers: dict[str, str] = {}
        self.claims: dict[str, str] = {}
        self.programs = False

    def broken(self, promise: str, what: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(promise, what, self.scheduler.steps))

    def met(self, case: str) -> None:
        """Note that a checker had something to judge."""
        assert case in CASES, case
        self.cases.add(case)

    # Effects --------------------------------------------------------------------------------------

    def made(self, path: str, etag: str) -> None:
        """A file was made."""
        parts = path.split("/")
        if parts[0] != TEMPORARY:
            self.files[etag] = FileTruth("")
            self._arrives(path, etag)
            return
        uuid = self._uuid(path)
        self.files[etag] = FileTruth(uuid)
        if len(parts) > 5 and parts[2:4] == ["00", "tasks"]:
            self.files[etag] = FileTruth(uuid, parts[4], "/".join(parts[5:]))
        elif parts[-1].startswith("job-") and len(parts) == 3:
            self._record(uuid, path)
        elif parts[-1].startswith("plan-") and uuid in self.jobs:
            self.jobs[uuid].planning[path] = self.scheduler.steps
        elif parts[-1].startswith("id_"):
            self._claimed(path)

    def moved(self, source: str, target: str, etag: str, over: str) -> None:
        """A file or a directory was renamed."""
        if source.startswith(f"{TEMPORARY}/{JOB_PREFIX}") and source.count("/") == 1:
            self._forgotten(self._uuid(source))
        elif source in self.claims:  # looked at before it is freed, and put back perhaps
            self.claims[target] = self.claims.pop(source)
        elif etag in self.files:
            if not source.startswith(TEMPORARY):
                self._leaves(source, etag, target)
            if not target.startswith(TEMPORARY):
                self._comes(target, etag, over)

    def removed(self, path: str, etag: str) -> None:
        """A file was deleted."""
        uuid = self._uuid(path)
        if not path.startswith(TEMPORARY):
            if not self.programs:
                self.broken("I6", f"{path} is deleted at its place")
            self._gone(path)
        elif path.endswith("/job-1.json") and path.count("/") == 2:
            self._forgotten(uuid)
        elif path.startswith(f"{TEMPORARY}/id_"):
            self._freed(path)
        elif etag in self.away:
            where, _ = self.away[etag]
            if self._must_come_back(etag):
                self.broken("I6", f"{where} was taken away, and is lost: it was not planned")
            del self.away[etag]
        else:
            self._source_gone(path, etag)

    def _source_gone(self, path: str, etag: str) -> None:
        file = self.files[etag]
        job = self.jobs.get(file.job)
        if job is None or job.decision != "committed" or job.given_up:
            return
        if (
            job.files.get(file.name) == (file.attempt, etag)
            and file.name not in job.published
            and file.name not in job.accepted
        ):
            self.broken("I2", f"{path} of decided job {job.id} is deleted, and not published")

    # Data -----------------------------------------------------------------------------------------

    def _arrives(self, path: str, etag: str) -> None:
        self.visible[path] = etag
        self.since[path] = self.written[path] = self.scheduler.steps

    def _gone(self, path: str) -> None:
        self.visible.pop(path, None)

    def _leaves(self, path: str, etag: str, aside: str) -> None:
        """The library takes a file from its place."""
        self._gone(path)
        job = self.jobs[self._uuid(aside)]
        file = self.files[etag]
        if (path, etag) in job.deletes and job.decision == "committed" and job.completed_step:
            self.met("deleted")
            if not job.given_up and (missing := self._missing(job)):
                self.broken("I7", f"{path} goes before {missing} of job {job.id} are visible")
        elif path in job.files and job.files[path][1] == etag and job.decision == "reverted":
            self.met("undone")
        elif path == SUCCESS and job.completed_step:
            other = self.jobs.get(self.markers.get(etag, ""))
            if other is not None and other.completed_step > job.completed_step:
                self.met("marker by mistake")
                self.away[etag] = path, self.scheduler.steps
            else:
                self.met("marked over")
        elif job.completed_step or job.decision == "reverted":
            self.met("taken by mistake")
            self.away[etag] = path, self.scheduler.steps
        else:
            self.broken("I6", f"job {job.id}, {job.state}, takes {path} of {file.job or 'others'}")

    def _comes(self, path: str, etag: str, over: str) -> None:
        """The library puts a file to its place."""
        file = self.files[etag]
        job = self.jobs.get(file.job)
        if etag in self.away:
            if self.away.pop(etag)[0] != path or over:
                self.broken("I6", f"{path} comes back to another place, or over another file")
            if job is not None and path in job.files and job.decision != "committed":
                self.broken("I3", f"{path} of job {job.id}, {job.decision}, comes back")
        elif path == SUCCESS:
            self._marked(path, etag, over)
        elif job is None or not file.attempt:
            self.broken("I6", f"{path} is a file that no task has written")
        else:
            self._published(job, file, path, etag, over)
        self.visible[path] = etag
        self.since[path] = self.scheduler.steps

    def _published(self, job: JobTruth, file: FileTruth, path: str, etag: str, over: str) -> None:
        self.met("published")
        if job.state not in ("committing", "reverting"):
            self.broken("I1", f"{path} of job {job.id} is published in state {job.state}")
        if job.state == "reverting":
            self.met("late publish")
        if job.files.get(path) != (file.attempt, etag):
            self.broken("I2", f"{path} of job {job.id} is not what was decided")
        wanted = self.attempts[file.job, file.attempt].files.get(file.name)
        if self.tree.body(path) != wanted:
            self.broken("I2", f"{path} of job {job.id} is not whole")
        if over:
            self.met("overwritten")
            if job.mode in FAILING:
                self.broken("I6", f"job {job.id} ({job.mode}) writes over {path}")
        job.published.add(path)
        self.written[path] = self.scheduler.steps

    def _marked(self, path: str, etag: str, over: str) -> None:
        uuid = json.loads(self.tree.body(path))["diagnostics"][DIAGNOSTIC_UUID]
        job = self.jobs[uuid]
        self.markers[etag] = uuid
        self.met("marked")
        if job.decision != "committed" or not job.completed_step:
            self.broken("I8", f"job {job.id} marks, and is {job.state}")
        elif missing := self._missing(job):
            self.broken("I8", f"job {job.id} marks, and {missing} are not visible")
        elif left := self._left(job):
            self.broken("I8", f"job {job.id} marks, and {left} are not replaced")
        other = self.jobs.get(self.markers.get(over, ""))
        if other is not None and other.completed_step > job.completed_step:
            self.broken("I8", f"job {job.id} marks over later job {other.id}")

    def _missing(self, job: JobTruth) -> list[str]:
        return sorted(job.files.keys() - job.published - job.accepted)

    def _left(self, job: JobTruth) -> list[str]:
        return sorted(
            name
            for name, etag in job.deletes
            if self.visible.get(name) == etag and name not in job.accepted
        )

    def _must_come_back(self, etag: str) -> bool:
        """Whether a file that is away has to come back: nobody has written there since, and it is
        not of a job that was undone."""
        path, step = self.away[etag]
        job = self.jobs.get(self.files[etag].job)
        undone = job is not None and job.decision == "reverted"
        return not undone and self.written.get(path, 0) <= step

    # Records --------------------------------------------------------------------------------------

    def _record(self, uuid: str, path: str) -> None:
        record = json.loads(self.tree.body(path))
        version = int(path.rpartition("-")[2].removesuffix(".json"))
        job = self.jobs.get(uuid)
        if job is None:
            job = JobTruth(uuid, record["id"], record["given_id"], record["terms"]["mode"])
            self.jobs[uuid] = job
        if job.forgotten and version > 1:
            if self.tree.promises.directories:
                self.broken("I5", f"job {job.id} is forgotten, and gets a version {version}")
            return  # nobody reads it without a version 1
        state = record["state"]
        if version == 1 and state == "closed":  # a cleanup has taken a directory without a record
            self.met("taken")
            if job.version:
                return
            job.state, job.version, job.decision = state, 1, "aborted"
            return
        if version == 1 and job.state == "closed" and job.version == 1 and job.forgotten:
            job.state, job.version, job.decision = "", 0, ""
        if state not in ARROWS[job.state] or version != job.version + 1:
            self.broken("record", f"job {job.id} goes from {job.state} to {state}, {version}")
        decision = {"committing": "committed", "aborting": "aborted"}.get(state, "")
        if decision:
            self.met("decided")
            if job.decision:
                self.broken("I2", f"job {job.id} is decided twice: {job.decision}, {decision}")
            job.decision = decision
        job.state, job.version, job.forgotten = state, version, False
        if state == "committing":
            self._decided(job, record)
        elif state == "completed":
            job.completed_step = self.scheduler.steps
            if missing := self._missing(job):
                self.broken("I2", f"job {job.id} is completed, and {missing} were not published")
        elif state == "reverting":
            job.decision = "reverted"
        elif state == "reverted":
            self._nothing_of(job)
        elif state == "closed":
            self._closed(job, record["outcome"])

    def _decided(self, job: JobTruth, record: dict[str, dict[str, str]]) -> None:
        plan = record["plan"]["key"]
        job.files, job.deletes = {}, set()
        for line in self.tree.body(plan).splitlines():
            row = json.loads(line)
            if row[0] == "f":
                job.files[row[2]] = (row[1], row[4])
            elif row[0] == "d":
                job.deletes.add((row[1], row[3]))
        tasks: dict[str, str] = {}
        for attempt in {attempt for attempt, _ in job.files.values()}:
            known = self.attempts[job.uuid, attempt]
            names = {name for name, (whose, _) in job.files.items() if whose == attempt}
            if names != known.files.keys():
                self.broken("I2", f"job {job.id} takes {names} of attempt {attempt}, not all")
            if tasks.setdefault(known.task, attempt) != attempt:
                self.broken("I2", f"job {job.id} takes two attempts of task {known.task}")
        if not self.faults.lagged:
            self._beside(job, job.planning[plan])

    def _beside(self, job: JobTruth, since: int) -> None:
        """A job that excludes others was decided: nobody is beside it, and no data was missed."""
        if job.mode not in EXCLUDING:
            return
        for other in self.jobs.values():
            if other is job or other.mode not in EXCLUDING or other.forgotten or other.given_up:
                continue
            self.met("exclusion")
            if other.state in ("committing", "completed", "reverting"):
                self.broken("I6", f"jobs {other.id} and {job.id} publish at once")
        partitions = {name.rpartition("/")[0] for name in job.files}
        for path, etag in self.visible.items():
            if is_hidden_name(path) or self.since[path] >= since:
                continue
            if job.mode.endswith("_partitions") and path.rpartition("/")[0] not in partitions:
                continue
            if job.mode in FAILING:
                self.broken("I6", f"job {job.id} ({job.mode}) is decided beside {path}")
            elif job.mode in REPLACING:
                self.met("replaced")
                if path not in job.files and (path, etag) not in job.deletes:
                    self.broken("I2", f"job {job.id} ({job.mode}) does not replace {path}")

    def _nothing_of(self, job: JobTruth) -> None:
        """Nothing of an undone or aborted job is visible."""
        for path, etag in self.visible.items():
            if self.files[etag].job == job.uuid and path != SUCCESS:
                self.broken("I3", f"{path} of job {job.id}, {job.decision}, is visible")

    def _closed(self, job: JobTruth, outcome: str) -> None:
        self.met(f"closed {outcome}")
        if outcome != job.decision:
            self.broken("I10", f"job {job.id} is {job.decision}, and closed as {outcome}")
        if outcome == "committed":
            self._whole(job)

    def _whole(self, job: JobTruth) -> None:
        if missing := self._missing(job):
            self.broken("I2", f"job {job.id} has ended, and {missing} were not published")
        if left := self._left(job):
            self.broken("I2", f"job {job.id} has ended, and {left} are not replaced")

    def _forgotten(self, uuid: str) -> None:
        job = self.jobs.get(uuid)
        if job is None or job.forgotten:
            return
        job.forgotten = True
        if job.given_up:
            return
        if job.state == "completed":
            self._whole(job)
        elif job.state not in ("closed", "aborting"):
            self.broken("I5", f"the record of job {job.id} goes, and it is {job.state}")

    # Ids ------------------------------------------------------------------------------------------

    def _claimed(self, path: str) -> None:
        uuid = json.loads(self.tree.body(path))["uuid"]
        if path in self.claims:
            self.broken("I5", f"{path} is taken twice: {self.claims[path]}, {uuid}")
        self.claims[path] = uuid

    def _freed(self, path: str) -> None:
        self.met("freed")
        job = self.jobs.get(self.claims.pop(path, ""))
        if job is not None and not job.forgotten:
            self.broken("I5", f"{path} is freed, and its job lives: {job.uuid}, {job.state}")

    # What is told ---------------------------------------------------------------------------------

    def told(self, uuid: str, asked: str, outcome: str, *, done: bool = True) -> None:
        """A call returned, or raised an error that says what became of the job. ``done``: it says
        that all of that is done."""
        job = self.jobs[uuid]
        if not outcome:
            return
        self.met(f"told {outcome}")
        if job.given_up:
            return
        stale = not done and (outcome, job.decision) == ("committed", "reverted")
        if outcome != job.decision and not stale:
            self.broken("I10", f"{asked} of job {job.id} says {outcome}: it is {job.decision}")
        elif not done:
            return
        elif outcome == "committed":
            if not (job.completed_step or job.forgotten):
                self.broken("I10", f"{asked} of job {job.id} says committed: it is {job.state}")
            if job.state == "closed" or job.forgotten:
                self._whole(job)
        else:
            self._nothing_of(job)

    def told_undecided(self, uuid: str, asked: str, actor: str, decided_by: str) -> None:
        """A call says that it has decided nothing."""
        self.met("told undecided")
        if actor == decided_by:
            self.broken("I10", f"{asked} of job {self.jobs[uuid].id} says undecided, and decided")

    # The end --------------------------------------------------------------------------------------

    def end(self) -> None:
        """Everything was recovered."""
        for job in self.jobs.values():
            if job.given_up:
                continue
            if not job.forgotten and job.state != "closed":
                if job.accepted or job.state in ("committing", "completed"):
                    self.met("stuck")
                self.broken("I5", f"job {job.id} is {job.state} after the recovery")
            if job.decision in ("aborted", "reverted", ""):
                self._nothing_of(job)
        for etag, (path, _) in self.away.items():
            if self._must_come_back(etag):
                self.broken("I6", f"{path} was taken away by mistake, and is not back")

    def clean(self) -> None:
        """After the last cleanup nothing of the library is left."""
        left = [p for p in self.tree.paths() if p.startswith(TEMPORARY)]
        if left:
            self.broken("I4", f"left after the last cleanup: {left[:4]}")

    def _uuid(self, path: str) -> str:
        element = path.split("/")[1] if path.startswith(f"{TEMPORARY}/") else ""
        for prefix in (JOB_PREFIX, ENDED_PREFIX):
            if element.startswith(prefix):
                return element[len(prefix) :][:32]
        return ""
