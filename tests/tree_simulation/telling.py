"""Holds what callers are told against the truth: reports, errors, looks, and the notes at Ctrl-C.

* **No answer is older than its call's last look.** A call that says what a job is has read the
  record, or has written it. What it says must be true then, or later. So "committed" is excused for
  a job that was reverted since, and for none that was reverted before. A call that has not learned
  anything may say nothing.
* **"This call decided nothing" is judged at the end**, for a verb of the call may take effect
  later: the move of the record must not have been sent by that call.
* **"Cannot be told" needs a reason**: the record is gone, or a fault struck the process.
* **"Nothing of it is visible" is read from the text**, and looked for on the tree.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from magic_committer.commit.outcome import UNREAD_AGAIN
from magic_committer.committers.manifest.names import version_of
from magic_committer.errors import (
    AbortIncomplete,
    BatchUnsettled,
    CommitIncomplete,
    CommitRefused,
    ConflictingJob,
    DestinationExists,
    IncompleteJob,
    JobNotFound,
    JobNotRunning,
    JobTooYoung,
    OptionError,
    OutcomeUnknown,
    StoreError,
)
from magic_committer.maintenance.reports import FoundJob
from tests.tree_simulation.truth import JobTruth, Truth

OUTCOMES = {
    "committing": "committed",
    "completed": "committed",
    "reverting": "reverted",
    "reverted": "reverted",
    "aborting": "aborted",
}
"""What a state says became of the job. ``closed`` and no record: what was decided."""
UNDECIDED = "was not decided when its commit was interrupted"
COMMITTED = "is committed, and was interrupted"
NOTHING = "othing of it is visible"
STAYS = "stay"
LEFT = "what is left of the job could not be removed"
"""Words of messages that claim something."""
SILENT = ("recover", "force_abort", "inspect", "commit of an attempt")
"""Calls whose StoreError says nothing of a decision: they go on after a first failure."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call on a job.

    Attributes:
        who, what: the process, and what it asked. since: the step at which it began.
        hurt: how many verbs of the process had failed by then.
    """

    uuid: str
    who: str
    what: str
    since: int
    hurt: int

    def __str__(self) -> str:
        return f"{self.who}: {self.what}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A call said that it decided nothing; ``until``: the step at which it said so."""

    asked: Asked
    error: str
    until: int


class Telling(Truth):
    """Of calls."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.claimed: list[Claim] = []
        self.asking: dict[str, Asked] = {}
        """The call that a process makes now."""

    def asks(self, uuid: str, who: str, what: str) -> Asked:
        """A process begins a call."""
        hurt = self.faults.hurt[who]
        asked = Asked(uuid, who, what, self.scheduler.steps, hurt)
        self.asking[who] = asked
        return asked

    def looked(self, who: str, path: str, step: int, *, made: bool) -> None:
        """A process has written a version of a record, or has seen that there is none: so it knows
        the newest one. That an older version is there tells nothing; nor that one is gone which was
        there, as the record may be deleted at this moment, version by version."""
        parts = path.split("/")
        if len(parts) != 3 or not parts[2].startswith("_job-"):
            return
        uuid, version = parts[1].rpartition("_")[2], version_of(parts[2]) or 0
        known = not made and version > 1 and uuid in self.jobs
        if known and version <= self.jobs[uuid].versions_at(step):
            return
        self.looks.setdefault((who, uuid), []).append((step, self.faults.hurt[who]))

    def _as_of(self, asked: Asked, *, cut: bool = False) -> int:
        """When a call last learned what the record says; now, if it has learned nothing. ``cut``:
        it was interrupted, perhaps in its last look, which it has not understood then."""
        looks = [step for step, _ in self._looks_of(asked)]
        if cut and len(looks) > 1:
            looks.pop()
        return looks[-1] if looks else self.scheduler.steps

    def _looks_of(self, asked: Asked) -> list[tuple[int, int]]:
        looks = self.looks.get((asked.who, asked.uuid), [])
        return [look for look in looks if look[0] >= asked.since]

    def _lost_sight(self, asked: Asked) -> bool:
        """Whether a verb of the process has failed after its last look: a swap that took effect may
        be one that it could not make sure of."""
        looks = self._looks_of(asked)
        return not looks or self.faults.hurt[asked.who] > looks[-1][1]

    # Reports --------------------------------------------------------------------------------------

    def returned(
        self, asked: Asked, report: Any, *, done: bool = True, warnings: Collection[str] = ()
    ) -> None:
        """A call returned a `JobReport`, a `Recovery` or a `GivenUp`; or an error has one.

        Args:
            done: it says that all is done. warnings: of the report that it has.
        """
        job = self.jobs[asked.uuid]
        doubtful = any(LEFT in warning for warning in warnings)
        self._says(asked, report.state, report.outcome, doubtful=doubtful)
        if not report.outcome or job.given_up or job.ghost:
            return
        if done:
            self.told(asked, job, report.outcome)
        if getattr(report, "files", 0) and not job.is_classic and report.files != len(job.files):
            self.broken("I10", f"{asked} of job {job.id} tells of {report.files} files")
        if report.outcome == "aborted":
            self._stays(asked, job, " ".join(warnings))

    def told(self, asked: Asked, job: JobTruth, outcome: str) -> None:
        """A call says that all of an outcome is done."""
        self.met(f"told {outcome}")
        if outcome == "committed":
            if not (job.completed_step or job.forgotten):
                self.broken("I10", f"{asked} of job {job.id} says committed: it is {job.state}")
            if job.state == "closed" or job.forgotten:
                self.whole(job)
            self._dropped(asked, job)
            if job.is_classic:
                self.classic_whole(asked, job)
        else:
            self.nothing_of(job)

    def whole(self, job: JobTruth) -> None:
        """All of a plan is done. Of the judge."""
        raise NotImplementedError

    def nothing_of(self, job: JobTruth) -> None:
        """Nothing of a job is visible. Of the judge."""
        raise NotImplementedError

    def classic_whole(self, asked: Asked, job: JobTruth) -> None:
        """All tasks of a classic job are published. Of the judge."""
        raise NotImplementedError

    def _dropped(self, asked: Asked, job: JobTruth) -> None:
        """What was handed to the call that decided is in the job."""
        by_it = any(
            moved.state == "committing" and moved.by == asked.who and moved.sent >= asked.since
            for moved in job.history
        )
        if not by_it or job.is_classic or job.accept != "results":
            return
        self.met("handed")
        chosen = {attempt for attempt, _ in job.files.values()}
        handed = {name for name in job.handed if self.attempts[job.uuid, name].files}
        if dropped := sorted(handed - chosen):
            self.broken("I2", f"{asked} of job {job.id} is committed without {dropped}")

    def _stays(self, asked: Asked, job: JobTruth, words: str) -> None:
        """Who sweeps an aborted classic job says that files of it stay visible."""
        swept_by, step = job.swept
        if not job.is_classic or swept_by != asked.who or step < asked.since:
            return
        if visible := self.visible_of(job):
            self.met("told that files stay")
            if STAYS not in words:
                self.broken("I10", f"{asked} of job {job.id} does not say that {visible} stay")

    # What a job is --------------------------------------------------------------------------------

    def _says(
        self,
        asked: Asked,
        state: str,
        outcome: str,
        *,
        doubtful: bool = False,
        cut: bool = False,
    ) -> None:
        """A call says what the record says, or that there is none, and what became of the job.
        ``doubtful``: it warns that a step has failed, so the state may be the one before."""
        job = self.jobs[asked.uuid]
        as_of = asked.since if doubtful else self._as_of(asked, cut=cut)
        if job.given_up or job.ghost:
            return
        states = job.states_since(as_of)
        if state and str(state) not in states:
            self.broken("I10", f"{asked} of job {job.id} says it is {state}: it is {states}")
        outcomes = {OUTCOMES.get(one, "" if one == "running" else job.decision) for one in states}
        if not outcome:
            return
        if (outcome, job.decision) == ("committed", "reverted"):
            self.met("older than a revert")
        if outcome not in outcomes:
            self.broken("I10", f"{asked} of job {job.id} says {outcome}: it is {job.decision}")

    def in_passing(self, asked: Asked, found: FoundJob) -> None:
        """A look said what a job is."""
        if found.kind == "ours":
            self.met("passing")
            self._says(asked, found.state, found.outcome)

    # Errors ---------------------------------------------------------------------------------------

    def raised(self, asked: Asked, error: BaseException) -> None:
        """A call raised: see the errors' own words."""
        job = self.jobs[asked.uuid]
        self._reads(asked, job, str(error))
        if isinstance(error, JobNotRunning):
            self.met("told not running")
            self._says(asked, error.state, error.outcome)
            if error.outcome == "aborted":
                self._stays(asked, job, str(error))
        elif isinstance(error, CommitRefused | DestinationExists):
            self._refused(asked, job, error)
        elif isinstance(error, CommitIncomplete):
            self._incomplete(asked, job, error)
        elif isinstance(error, AbortIncomplete):
            self.met("told half reverted")
            self._says(asked, "", "reverted")
        elif isinstance(error, OutcomeUnknown):
            self._unknown(asked, job, error)
        elif isinstance(error, IncompleteJob):
            self._says(asked, "running", "")
            self._decided_nothing(asked, error)
        elif isinstance(error, JobTooYoung):
            if asked.what != "force_abort":
                self._says(asked, "running", "")
            elif "being published" in str(error):
                self._says(asked, "committing", "")
            else:
                self._says(asked, "completed", "")
        elif isinstance(error, JobNotFound):
            self._says(asked, "absent", "")
        elif asked.what in SILENT and isinstance(error, StoreError):
            pass  # it says what failed, and nothing of the job
        elif isinstance(error, StoreError | OptionError | ConflictingJob | BatchUnsettled):
            self._decided_nothing(asked, error)
        else:
            self.broken("I10", f"{asked} of job {job.id} raised {error!r}")

    def _reads(self, asked: Asked, job: JobTruth, words: str, *, cut: bool = False) -> None:
        if NOTHING not in words or job.given_up or job.ghost:
            return
        self.met("told nothing visible")
        as_of = self._as_of(asked, cut=cut)
        if visible := [path for path in self.visible_of(job) if self.since[path] <= as_of]:
            self.broken("I10", f"{asked} of job {job.id} says {words!r}: {visible} are visible")

    def _refused(
        self, asked: Asked, job: JobTruth, error: CommitRefused | DestinationExists
    ) -> None:
        report: Any = error.report
        if report is None:
            self.broken("I10", f"{asked} of job {job.id} raised {error!r} without a report")
            return
        self.met("told refused")
        self.returned(asked, report, warnings=report.warnings)
        if report.outcome == "committed":
            self.broken("I10", f"{asked} of job {job.id} is refused, and its report says committed")

    def _incomplete(self, asked: Asked, job: JobTruth, error: CommitIncomplete) -> None:
        self.met("told incomplete")
        doubtful = UNREAD_AGAIN in str(error)
        if doubtful:
            self.met("told what was")
        self._says(asked, error.state, "", doubtful=doubtful or self._lost_sight(asked))
        self._says(asked, "", "committed", doubtful=doubtful)
        if error.unresolved:
            self.met("told unresolved")
        waiting = [name for name in error.unresolved if self._waits(job, name)]
        if waiting:
            self.broken("I10", f"{asked} of job {job.id} calls unresolved what waits: {waiting}")

    def _waits(self, job: JobTruth, name: str) -> bool:
        """Whether a file of a plan is where it was written."""
        attempt, etag = job.files.get(name, ("", ""))
        path = f"_temporary/manifest_{job.uuid}/00/tasks/{attempt}/{name}"
        return bool(etag) and self.tree.etag(path) == etag

    def _unknown(self, asked: Asked, job: JobTruth, error: OutcomeUnknown) -> None:
        self.met("told unknown")
        struck = self.faults.hurt[asked.who] > asked.hurt
        if not (struck or "absent" in job.states_since(self._as_of(asked))):
            self.broken("I10", f"{asked} of job {job.id} cannot tell: {error}. It is {job.state}")

    def _decided_nothing(self, asked: Asked, error: BaseException) -> None:
        self.met("told undecided")
        self.claimed.append(Claim(asked, f"{type(error).__name__}: {error}", self.scheduler.steps))

    def interrupted(self, asked: Asked, error: BaseException) -> None:
        """A call was interrupted by Ctrl-C: the notes say what is known."""
        self.met("interrupted")
        job, notes = self.jobs[asked.uuid], getattr(error, "__notes__", ())
        words = " ".join(note for note in notes if repr(job.id) in note)  # others: of a claimant
        self._reads(asked, job, words, cut=True)
        if not words:
            self.broken("I10", f"{asked} of job {job.id} was interrupted, and says nothing")
        if UNDECIDED in words:
            self._says(asked, "running", "", cut=True)
            self._decided_nothing(asked, error)
        if COMMITTED in words:
            self._says(asked, "", "committed", cut=True)

    # The end --------------------------------------------------------------------------------------

    def judge_claims(self) -> None:
        """Now that nothing is under way any more."""
        for claim in self.claimed:
            asked = claim.asked
            job = self.jobs[asked.uuid]
            for moved in job.history:
                ours = moved.by == asked.who and asked.since <= moved.sent <= claim.until
                if ours and moved.state in ("committing", "aborting", "reverting"):
                    self.broken(
                        "I10",
                        f"{asked} of job {job.id} raised {claim.error}; a verb of that very call"
                        f" made it {moved.state}",
                    )
