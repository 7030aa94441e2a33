"""What really happened to the files and the jobs of a world, and whether it may.

It goes by effects on the tree, never by what the library says; records and plans are read as bytes.
A file is known by its etag, which a rename keeps. So whose a file is, is known wherever it is.
`telling` judges what callers are told, `classic` what v1 and v2 do.

What no protocol of renames can promise is excused here, and nowhere else:

* A file of another program that was taken for an old one is away until it is looked at: it must be
  back, unless somebody has written there meanwhile. So must the marker of a later job, unless
  another process has marked meanwhile.
* A job whose record was removed by force may be visible in part.
* Where a listing lagged, what only a listing can tell is not judged: data that its process did not
  see, jobs beside it. Where directories are not real, the same for what comes after a job was
  forgotten.
* Where directories are not real, a first version that was sent before its job was forgotten may
  come after that: a ghost, which whoever finds it aborts.
* Where the file system's clock has jumped, the marker of an earlier job may take the place of a
  later one's.
* An operator takes an unresolved name as it is only if the file was visible once.
"""

from __future__ import annotations

import json
from typing import Any

from magic_committer.commit.success_marker import DIAGNOSTIC_UUID
from magic_committer.committers.manifest.names import (
    ENDED_PREFIX,
    JOB_PREFIX,
    SWEPT_PREFIX,
    TEMPORARY,
    is_hidden_name,
)
from magic_committer.hadoop.paths import SUCCESS
from tests.simulation.tables import ARROWS, EXCLUDING, FAILING, REPLACING
from tests.tree_simulation.classic import Classic
from tests.tree_simulation.truth import FileTruth, JobTruth, Moved

CLAIMS = f"{TEMPORARY}/_id_"
JOBS = f"{TEMPORARY}/{JOB_PREFIX}"


class Judge(Classic):
    """Judges one world."""

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
        elif len(parts) > 6 and parts[2:5] == ["00", "0", "_temporary"]:
            self.files[etag] = FileTruth(uuid, parts[5], "/".join(parts[6:]))
        elif parts[-1].startswith("_job-") and len(parts) == 3:
            self._record(uuid, path)
        elif parts[-1].startswith("_plan-") and uuid in self.jobs:
            self.jobs[uuid].planning[path] = self.scheduler.steps
        elif parts[-1].startswith("_id_"):
            self._claimed(path)

    def moved(self, source: str, target: str, etag: str, over: str) -> None:
        """A file was renamed."""
        if source in self.claims:  # looked at before it is freed, and put back perhaps
            self.claims[target] = self.claims.pop(source)
        elif etag in self.files:
            if not source.startswith(TEMPORARY):
                self._leaves(source, etag, target)
            if not target.startswith(TEMPORARY):
                self._comes(target, etag, over)

    def moved_directory(self, source: str, target: str) -> None:
        """A directory was renamed; what is in it is told after it."""
        parts = source.split("/")
        if source.startswith(JOBS) and len(parts) == 2:
            self._swept(self._uuid(source))
            self._forgotten(self._uuid(source))
        elif source.startswith(JOBS) and parts[2:] == ["00"]:
            assert f"/{SWEPT_PREFIX}" in target, target
            self._swept(self._uuid(source))
        else:
            self.moved_classic(source, target)

    def _swept(self, uuid: str) -> None:
        if uuid in self.jobs and not self.jobs[uuid].swept[0]:
            self.jobs[uuid].swept = self.acting, self.scheduler.steps

    def removed(self, path: str, etag: str) -> None:
        """A file was deleted."""
        uuid = self._uuid(path)
        if not path.startswith(TEMPORARY):
            if not self.programs:
                self.broken("I6", f"{path} is deleted at its place")
            self._gone(path)
        elif path.startswith(JOBS) and path.endswith("/_job-1.json") and path.count("/") == 2:
            self._forgotten(uuid)  # what was renamed before has gone then: it is another record
        elif path.startswith(CLAIMS):
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
            if not job.given_up and (missing := self.missing(job)):
                self.broken("I7", f"{path} goes before {missing} of job {job.id} are visible")
        elif path in job.files and job.files[path][1] == etag and job.decision == "reverted":
            self.met("undone")
        elif path == SUCCESS and job.completed_step:
            other = self.jobs.get(self.markers.get(etag, ""))
            if other is not None and other.completed_step > job.completed_step:
                self.met("marker by mistake")
                self.away[etag] = path, self.scheduler.steps
                self.takers[etag] = self.acting
            else:
                self.met("marked over")
        elif job.completed_step or job.decision == "reverted":
            self.met("taken by mistake")
            self.away[etag] = path, self.scheduler.steps
            self.takers[etag] = self.acting
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
        elif job.is_classic:
            self.published_classic(job, file, path, over)
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
        self.marked = self.scheduler.steps, self.acting
        if job.decision != "committed" or not job.completed_step:
            self.broken("I8", f"job {job.id} marks, and is {job.state}")
        elif missing := self.missing(job):
            self.broken("I8", f"job {job.id} marks, and {missing} are not visible")
        elif left := self.left(job):
            self.broken("I8", f"job {job.id} marks, and {left} are not replaced")
        other = self.jobs.get(self.markers.get(over, ""))
        if other is not None and other.completed_step > job.completed_step:
            self.broken("I8", f"job {job.id} marks over later job {other.id}")

    def _must_come_back(self, etag: str) -> bool:
        """Whether a file that is away has to come back: nobody else has written there since, and it
        is not of a job that was undone."""
        path, step = self.away[etag]
        job = self.jobs.get(self.files[etag].job)
        undone = job is not None and job.decision == "reverted"
        if path == SUCCESS:
            marked, by = self.marked
            if self.faults.disk_jumped or (marked > step and by != self.takers[etag]):
                self.met("marked meanwhile")
                return False
        return not undone and self.written.get(path, 0) <= step

    # Records --------------------------------------------------------------------------------------

    def _record(self, uuid: str, path: str) -> None:
        record = json.loads(self.tree.body(path))
        version = int(path.rpartition("-")[2].removesuffix(".json"))
        job, state = self.jobs.get(uuid), record["state"]
        if job is None:
            job = self.jobs[uuid] = self._new_job(uuid, record)
        elif version == 1 and job.forgotten and (job.state, job.version) == ("closed", 1):
            self.met("taken, and made again")  # its driver knew of nothing yet
            history, job = job.history, self._new_job(uuid, record)
            job.history, self.jobs[uuid] = history, job
        if job.forgotten and (version > 1 or self._is_ghost(job)):
            late = self.sent < job.history[-1].step  # and so was the directory, where they are real
            real = self.tree.promises.directories and not late
            if real or (job.ghost and state == "committing"):
                self.broken("I5", f"job {job.id} is forgotten, and gets a version {version}")
            return  # nobody reads it without a version 1; and nobody decides a ghost to commit
        job.history.append(Moved(state, self.scheduler.steps, self.sent, self.acting))
        if version == 1 and state == "closed":  # a cleanup has taken a directory without a record
            self.met("taken")
            if job.version:
                return
            job.state, job.version, job.decision = state, 1, "aborted"
            return
        job.drivers.add(self.acting)
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
            if missing := self.missing(job):
                self.broken("I2", f"job {job.id} is completed, and {missing} were not published")
        elif state == "reverting":
            job.decision = "reverted"
            if job.is_classic:
                self.broken("record", f"classic job {job.id} is reverted")
        elif state == "reverted":
            self.nothing_of(job)
        elif state == "closed":
            self._closed(job, record["outcome"])

    def _is_ghost(self, job: JobTruth) -> bool:
        """Whether a first version comes that was sent before its job was forgotten. Only where
        directories are not real: whoever finds it aborts it, and there is nothing of it."""
        gone = job.history[-1].step
        if not job.ghost and not self.tree.promises.directories and self.sent < gone:
            self.met("ghost")
            job.ghost = True
        return job.ghost

    def _new_job(self, uuid: str, record: dict[str, Any]) -> JobTruth:
        terms = record["terms"]
        job = JobTruth(uuid, record["id"], record["given_id"], terms["mode"], terms["committer"])
        job.accept = terms["accept"]
        return job

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
            if known.given_up:
                self.broken("I3", f"job {job.id} takes attempt {attempt}, which was aborted")
        self._left_out(job, set(tasks))
        self._beside(job, job.planning[plan])

    def _left_out(self, job: JobTruth, tasks: set[str]) -> None:
        """A job that lists takes every task whose commit had returned before the listing began."""
        asked = self.asking.get(self.acting)
        if job.accept != "listing" or job.is_classic or asked is None or self._lagged(job):
            return
        mine = {name: known for (uuid, name), known in self.attempts.items() if uuid == job.uuid}
        empty = {known.task for known in mine.values() if not known.files}
        for attempt, known in mine.items():
            if known.task not in empty and 0 < known.told_step < asked.since:
                self.met("listed")
                if known.task not in tasks:
                    self.broken("I2", f"job {job.id} leaves out attempt {attempt}")

    def _lagged(self, *jobs: JobTruth) -> bool:
        """Whether a listing has left something out for a driver of these jobs."""
        return any(self.faults.lagged & job.drivers for job in jobs)

    def _beside(self, job: JobTruth, since: int) -> None:
        """A job that excludes others was decided: nobody is beside it, and no data was missed."""
        if job.mode not in EXCLUDING:
            return
        for other in self.jobs.values():
            if other is job or other.mode not in EXCLUDING or other.forgotten or other.given_up:
                continue
            self.met("exclusion")
            publishes = other.state in ("committing", "completed", "reverting")
            if publishes and not self._lagged(job, other):
                self.broken("I6", f"jobs {other.id} and {job.id} publish at once")
        if job.is_classic or self._lagged(job):
            return
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

    def nothing_of(self, job: JobTruth) -> None:
        """Nothing of an undone or aborted job is visible."""
        if job.is_classic and not self.must_be_invisible(job):
            return
        if visible := self.visible_of(job):
            self.broken("I3", f"{visible} of job {job.id}, {job.decision}, is visible")

    def _closed(self, job: JobTruth, outcome: str) -> None:
        self.met(f"closed {outcome}")
        if outcome != job.decision:
            self.broken("I10", f"job {job.id} is {job.decision}, and closed as {outcome}")
        if outcome == "committed":
            self.whole(job)

    def whole(self, job: JobTruth) -> None:
        """All of a plan is done."""
        if missing := self.missing(job):
            self.broken("I2", f"job {job.id} has ended, and {missing} were not published")
        if left := self.left(job):
            self.broken("I2", f"job {job.id} has ended, and {left} are not replaced")

    def _forgotten(self, uuid: str) -> None:
        job = self.jobs.get(uuid)
        if job is None:
            return
        if job.history[-1].state != "absent":
            job.history.append(Moved("absent", self.scheduler.steps, self.sent, self.acting))
        if job.forgotten:
            return
        job.forgotten = True
        if self.forcing.get(self.acting) == uuid:
            self.met("given up")
            job.given_up = True
        if job.given_up:
            return
        if job.state == "completed":
            self.whole(job)
        elif job.state not in ("closed", "aborting"):
            self.broken("I5", f"the record of job {job.id} goes, and it is {job.state}")

    def accepts(self, uuid: str, names: list[str]) -> None:
        """An operator takes unresolved names as they are: each was visible once."""
        self.met("lost name")
        job = self.jobs[uuid]
        if lost := sorted(set(names) & job.files.keys() - job.published):
            self.broken("I2", f"{lost} of job {job.id} are unresolved, and were never visible")
        job.accepted |= set(names)

    # Ids ------------------------------------------------------------------------------------------

    def _claimed(self, path: str) -> None:
        uuid = json.loads(self.tree.body(path))["uuid"]
        if path in self.claims:
            self.broken("I5", f"{path} is taken twice: {self.claims[path]}, {uuid}")
        self.claims[path] = uuid

    def _freed(self, path: str) -> None:
        self.met("freed")
        job = self.jobs.get(self.claims.pop(path, ""))
        if job is not None and not job.forgotten and not self._left_by_a_listing(job):
            self.broken("I5", f"{path} is freed, and its job lives: {job.uuid}, {job.state}")

    def _left_by_a_listing(self, job: JobTruth) -> bool:
        """Whether a closed record stayed because a listing did not show it to who deleted it."""
        real = self.tree.promises.directories
        return not real and job.state == "closed" and self.acting in self.faults.lagged

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
                self.nothing_of(job)
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
