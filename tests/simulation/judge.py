"""What all checkers share: the protocol's tables, the cases, the truth, and what was found broken.

A checker that never meets what it judges proves nothing. Each names its cases in `CASES`; a
schedule counts once for each that it met. Fewer than ``least`` in 1,000 schedules fail the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from magic_committer.stores.memory import MemoryStore
from tests.simulation.scheduler import Scheduler
from tests.simulation.truth import ENDS, Truth

PROMISES = {
    "I1": "invisible", "I2": "complete and exclusive", "I3": "abortable", "I4": "no leaks",
    "I5": "repeatable", "I6": "neighbourly", "I7": "nothing lost", "I8": "marked last",
    "I9": "cut input", "I10": "truth",
    "record": "no promise by itself: an arrow that the job record does not have",
}  # fmt: skip

ARROWS = {
    "": {"running"}, "absent": set(), "running": {"committing", "aborting"},
    "committing": {"completed", "reverting"}, "completed": {"closed"}, "reverting": {"reverted"},
    "reverted": {"closed"}, "aborting": {"closed"}, "closed": set(),
}  # fmt: skip
"""The arrows of the job record (protocol.md), deletions apart."""

REMOVALS = {"running", "completed", "aborting", "closed"}
"""States in which a record may be deleted."""

SWEPT = ("completed", "reverted", "aborting", *ENDS)
"""States in which what a job has left, and no plan names, may go."""
CLOCK_SECONDS = 1.0
"""Last-Modified and Date are whole seconds."""
READS = ("get", "head", "list", "list_parts", "list_uploads")

FAILING = ("fail", "fail_partitions")
REPLACING = ("replace", "replace_partitions")
EXCLUDING = (*FAILING, *REPLACING)
"""Modes of which two jobs never publish at once in one place."""

UNIQUE = re.compile(r"(^|[-_.])mcj([0-9a-f]{32})(?=[-_.]|$)")
"""A job's UUID in a file's name (protocol.md, "Whose upload is it?")."""

NOT_COMMITTED = {"IncompleteJob", "OptionError", "ConflictingJob", "BatchUnsettled"}
"""Errors that say: not committed."""
ABORTED = {"CommitRefused", "DestinationExists", "AbortIncomplete"}
TOLD = {*NOT_COMMITTED, *ABORTED, "CommitIncomplete", "JobNotRunning", "OutcomeUnknown"}
"""Errors that say something of the job; of all others it is only sure that their call decided
nothing."""

ENOUGH_SCHEDULES = 1000
"""With fewer schedules nothing is said: chance alone could be short."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a checker meets. ``promise``: which may break. words: what happened in the schedule.
    least: in 1,000 schedules."""

    promise: str
    words: str
    least: float


CASES: Mapping[str, Case] = {
    "visible": Case("I1", "an upload became an object", 400),
    "told committed": Case("I2", 'somebody was told "committed"', 400),
    "told staged": Case("I2", "the same of a job whose files were on local disk", 40),
    "told replaced": Case("I2", "the same of a job that had old data to delete", 80),
    "nothing": Case("I2", "a commit was asked to publish nothing of what tasks had written", 6),
    "dropped": Case("I2", "a result was handed over that does not say where its files are", 2),
    "beside replace": Case("I2", "a job replaced while an append beside it was decided", 6),
    "union": Case("I2", "a job replaced where an excluding job's data, or old data, lay", 80),
    "sure": Case("I2", "an abort, or the look before it, met an upload that was completed", 2),
    "by itself": Case("I2", "a Complete of a decided job was answered 409 or 412", 5),
    "closed late": Case("I2", "a file was closed after its attempt was committed", 10),
    "adopted": Case("I2", "an adopted job of Hadoop's was decided", 8),
    "zombie": Case("I3", "a task wrote after its job was aborted or undone", 40),
    "undone": Case("I3", "a job was undone that had made something visible", 1),
    "late litter": Case("I4", "an upload or a control object came after the decision", 20),
    "recovered": Case("I5", "the last recovery met a job that was not at its end", 40),
    "exclusion": Case("I6", "two jobs of excluding modes lived at once in one place", 30),
    "changed": Case("I6", "what a plan deletes had been changed by others", 0.5),
    "in the way": Case("I6", "data lay where a job of a mode fail was to publish", 25),
    "dead": Case("I6", "an operator with a limit met a job that ran", 4),
    "deleted": Case("I7", "old data was deleted as planned", 80),
    "marked over": Case("I8", "a marker was written over another's", 80),
    "unmarked": Case("I8", "the old marker was deleted before a job replaced", 20),
    "cut": Case("I9", "an attempt whose input was cut was committed", 40),
    "told error": Case("I10", "a call raised an error that says what it did not do", 60),
    "late decision": Case("I10", "a decision was stored, its sender did not hear of it", 8),
    "unresolved": Case("I10", "a call named unresolved keys", 1),
    "batch again": Case("I2", "a batch of a streaming query was run again", 25),
    "batch beside": Case("I2", "a batch was decided while another run of it was under way", 2),
    "batch told": Case("I10", "a commit returned: this job has published the batch", 25),
    "batch skipped": Case("I10", "a commit returned: another job has published the batch", 25),
    "removed": Case("I10", "a cleanup said what it had removed", 100),
    "passing": Case("I10", "a look said what had become of a job", 10),
}
"""Checkers and their cases. What is stated is some third of what was measured, rare ones apart."""


@dataclass(frozen=True, slots=True)
class Violation:
    promise: str
    what: str
    step: int

    def __str__(self) -> str:
        return f"{self.promise} ({PROMISES[self.promise]}) at step {self.step}: {self.what}"


class Judge:
    """Judges one schedule. ``cases``: the checkers that had a case in which they could have failed
    (`CASES`). ``unheard``: when requests were sent whose senders did not hear what became of
    them."""

    def __init__(self, store: MemoryStore, scheduler: Scheduler) -> None:
        self.truth = Truth(store, scheduler)
        self.violations: list[Violation] = []
        self.cases: set[str] = set()
        self.unheard: set[int] = set()

    def broken(self, promise: str, what: str) -> None:
        self.violations.append(Violation(promise, what, self.truth.step))

    def met(self, case: str) -> None:
        assert case in CASES, case
        self.cases.add(case)
