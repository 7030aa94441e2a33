"""What all checkers share: the truth, what was found broken, and which cases were met."""

from __future__ import annotations

from dataclasses import dataclass

from magic_committer.stores.memory import MemoryStore
from tests.simulation.cases import CASES
from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import PROMISES
from tests.simulation.truth import Truth


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    promise: str
    what: str
    step: int

    def __str__(self) -> str:
        return f"{self.promise} ({PROMISES[self.promise]}) at step {self.step}: {self.what}"


class Judge:
    """Judges one schedule.

    Attributes:
        cases: the checkers that had a case in which they could have failed (`cases.CASES`).
        unheard: when requests were sent whose senders did not hear what became of them.
    """

    def __init__(self, store: MemoryStore, scheduler: Scheduler) -> None:
        self.truth = Truth(store, scheduler)
        self.violations: list[Violation] = []
        self.cases: set[str] = set()
        self.unheard: set[int] = set()

    def broken(self, promise: str, what: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(promise, what, self.truth.step))

    def met(self, case: str) -> None:
        """Note that a checker had something to judge."""
        assert case in CASES, case
        self.cases.add(case)
