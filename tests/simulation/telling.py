"""Holds what callers are told against the truth: of that moment, and of the end of the schedule.

An error that says "this call decided nothing" is a claim on the future too: a request of the call
may be under way still. So it is judged at the end: the request that decided the job, whenever it
landed, must not have been sent by that call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from magic_committer.errors import StoreError
from magic_committer.maintenance.reports import CleanupReport
from magic_committer.protocol.record import MAGIC
from tests.simulation.decisions import Decisions
from tests.simulation.judge import ABORTED, NOT_COMMITTED, REPLACING
from tests.simulation.kinds import object_of, shown
from tests.simulation.scheduler import Actor
from tests.simulation.truth import FOREIGN, JobTruth


@dataclass(frozen=True, slots=True)
class Claim:
    """A call said that it decided nothing. ``since``, ``until``: the steps at which it began and
    ended."""

    job: JobTruth
    asked: str
    who: str
    error: str
    since: int
    until: int


class Telling(Decisions):
    claims: list[Claim]
    setups: dict[str, tuple[str, int]]

    # Calls ----------------------------------------------------------------------------------------

    def calls(self, actor: Actor) -> int:
        """A process calls something on a job, now."""
        self.truth.calls[actor.name] = self.truth.step
        return self.truth.step

    def told(
        self, uuid: str, asked: str, outcome: str, error: BaseException | None, since: int = 0,
        handed: Collection[str] = (),
    ) -> None:  # fmt: skip
        """A call on a job returned a report, or raised. ``asked``: who asked what, as ``"actor:
        what"``. ``since``: the step at which it began. ``handed``: the attempts with files whose
        results were passed to it."""
        job = self.truth.jobs.get(uuid)
        if job is None:
            return
        name = type(error).__name__
        raised = f"{asked} raised {name}, job {job.id} is {job.decision!r}: {error}"
        if error is None:
            self._returned(job, asked, outcome, since, handed)
        elif isinstance(error, StoreError) or name in NOT_COMMITTED:
            self._claims_nothing(job, asked, error, since)
            if name in NOT_COMMITTED and job.decision == "committed":
                self.broken("I10", raised)
        elif name in ABORTED:
            if name == "DestinationExists":
                self.met("in the way")
            if job.decision not in ("aborted", "reverted"):
                self.broken("I10", raised)
        elif name == "CommitIncomplete":
            self._incomplete(job, asked, error)
        elif name == "JobNotRunning":
            said = getattr(error, "outcome", "")
            if said and said != job.decision:
                self.broken("I10", f"{said}: {raised}")
        elif name != "OutcomeUnknown":
            self.broken("I10", raised)

    def _returned(
        self, job: JobTruth, asked: str, outcome: str, since: int, handed: Collection[str]
    ) -> None:
        if job.decision != outcome:
            self.broken("I10", f"{asked} returned {outcome!r}, job {job.id} is {job.decision!r}")
        if job.decision != outcome or outcome != "committed":
            return
        self.met("told committed")
        if job.terms.get("committer", MAGIC) != MAGIC:
            self.met("told staged")
        if job.deletes:
            self.met("told replaced")
        self.said_to_be_done(job, f"{asked} of job {job.id} returned 'committed'")
        if job.decided_by == asked.partition(":")[0] and job.decided_sent >= since > 0:
            chosen = {attempt for _, _, attempt in job.accepted.values()}
            if dropped := sorted(set(handed) - chosen):
                self.broken("I2", f"{asked} returned 'committed' without results of {dropped}")
        self._nothing(job, asked)

    def _nothing(self, job: JobTruth, asked: str) -> None:
        """No task was accepted, and nobody said that there is none: though tasks had written files;
        or though a task was at work, and the old data goes. A task that was committed without files
        is somebody's word."""
        if job.tasks or job.nothing_said or job.nothing_told:
            return
        job.nothing_told = True
        at_work = [a for a in self.truth.attempts.values() if a.job == job.uuid]
        wrote = [
            a.name
            for a in at_work
            if a.closed and not a.undone and (a.told or job.terms["accept"] == "listing")
        ]
        emptied = [key for key in job.deletes if object_of(key) == "data"]
        if wrote:
            self.broken("I2", f"{asked} published nothing, though these closed files: {wrote}")
        elif at_work and emptied and job.terms["mode"] in REPLACING:
            self.broken("I7", f"{asked} published nothing, and {emptied} is gone")

    def _incomplete(self, job: JobTruth, asked: str, error: BaseException | None) -> None:
        if job.decision not in ("committed", "reverted"):
            self.broken("I10", f"{asked} said incomplete, job {job.id} is {job.decision!r}")
        unresolved = [shown(key) for key in getattr(error, "unresolved", ())]
        if unresolved:
            self.met("unresolved")
        for upload, (key, _, _) in job.accepted.items():
            if key in unresolved and upload in self.truth.open:
                self.broken("I10", f"{asked} calls {key} unresolved, whose upload is open")

    def told_in_passing(self, uuid: str, asked: str, outcome: str) -> None:
        """A call that changes nothing said what a job is, or was a moment ago."""
        job = self.truth.jobs.get(uuid)
        if job is None or not outcome:
            return
        self.met("passing")
        if outcome != job.decision and (outcome, job.decision) != ("committed", "reverted"):
            self.broken("I10", f"{asked} says {outcome!r}, job {job.id} is {job.decision!r}")

    def told_removed(self, report: CleanupReport, actor: Actor) -> None:
        """A cleanup that was alone, and met no fault, said what it had removed and left: jobs of
        Hadoop's alone."""
        removed, objects = self.truth.removed, self.truth.objects
        others = {
            key.split("/")[1]
            for key, there in objects.items()
            if there.job == FOREIGN and "/__magic_job-" in key
        }
        told = {
            "record": report.records_deleted, "control": report.objects_deleted,
            "upload": report.uploads_aborted, "left": report.uploads_left, "jobs": report.jobs_left,
        }  # fmt: skip
        did = {what: removed[actor.name, what] for what in told} | {"jobs": len(others)}
        if any(did.values()):
            self.met("removed")
        if told != did:
            self.broken("I10", f"{actor} says that it removed and left {told}, it was {did}")

    # Claims ---------------------------------------------------------------------------------------

    def _claims_nothing(
        self, job: JobTruth, asked: str, error: BaseException | None, since: int
    ) -> None:
        self.met("told error")
        who = asked.partition(":")[0]
        text = f"{type(error).__name__}: {error}"
        self.claims.append(Claim(job, asked, who, text, since, self.truth.step))

    def claimed(self, uuid: str, asked: str, error: BaseException, since: int) -> None:
        """A call raised something that says nothing was decided by it."""
        job = self.truth.jobs.get(uuid)
        if job is not None:
            self._claims_nothing(job, asked, error, since)

    def judge_claims(self) -> None:
        """Now that nothing is under way any more."""
        for claim in self.claims:
            job = claim.job
            by_it = job.decided_by == claim.who and claim.since <= job.decided_sent <= claim.until
            if by_it and job.decision in ("committed", "reverted"):
                did = f"a request of that very call decided job {job.id}: {job.decision}"
                self.broken("I10", f"{claim.asked} raised {claim.error}; {did}")

    # Setups ---------------------------------------------------------------------------------------

    def refused(self, uuid: str, error: BaseException) -> None:
        """A setup raised: nothing of the job will become visible."""
        if type(error).__name__ == "ConflictingJob":
            self.met("exclusion")
        if type(error).__name__ == "DestinationExists":
            self.met("in the way")
        job = self.truth.jobs.get(uuid)
        if job is not None:
            job.refused = True
            if job.decision == "committed":
                self.broken("I10", f"setup of job {job.id} raised {error!r}, it is committed")

    def set_up_failed(self, actor: Actor, error: BaseException) -> None:
        """The same, by the process: no request of it may make a record any more, but for one that
        said that it cannot tell."""
        if isinstance(error, StoreError):
            self.setups[actor.name] = f"{type(error).__name__}: {error}", self.truth.step

    def not_set_up(self, actor: Actor, sent: int) -> str:
        said, step = self.setups.get(actor.name, ("", 0))
        return said if sent <= step else ""

    # What an operator takes as it is --------------------------------------------------------------

    def take_as_is(self, uuid: str, keys: Iterable[str]) -> None:
        """An operator may accept these unresolved keys, if somebody else has meddled with all of
        them. Anything else is no excuse."""
        keys = frozenset(keys)
        others = (key in self.truth.meddled or self._foreign_there(uuid, key) for key in keys)
        if keys and all(others):
            self.truth.jobs[uuid].taken_as_is |= keys

    def taken(self, uuid: str) -> frozenset[str]:
        """The keys that an operator has accepted as they are."""
        job = self.truth.jobs.get(uuid)
        return job.taken_as_is if job is not None else frozenset()

    def _foreign_there(self, uuid: str, key: str) -> bool:
        there = self.truth.objects.get(key)
        return there is not None and there.job != uuid
