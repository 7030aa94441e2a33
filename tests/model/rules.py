"""The rules that can be taken away from production's text, and the promise that breaks then.

They are in tests/simulation/rules.txt: a line that begins with "?" says where the search misses a
rule: in which configuration, with how many faults at least (0: a pause is enough), and which
promise breaks. `python -m tests.model --table` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.configurations import CONFIGURATIONS
from tests.model.search import Search
from tests.model.trace import Result
from tests.simulation import rules as simulated


@dataclass(frozen=True)
class Rule:
    """A rule of the protocol, with the change of production's text that takes it away."""

    removed: simulated.Rule
    configuration: str
    faults: int
    promise: str

    @property
    def name(self) -> str:
        return self.removed.name

    def search(self, faults: int | None = None, turns: int | None = None) -> Result:
        """Search its configuration without it."""
        configuration = CONFIGURATIONS[self.configuration]()
        search = Search(configuration, self.faults if faults is None else faults, turns)
        with self.removed.removed():
            return search.run()

    def __str__(self) -> str:
        return f"{self.promise:<4} {self.configuration}, {self.faults} faults: {self.name}"


def _searched(rule: simulated.Rule) -> Rule:
    where, faults, promise = rule.searched.split(" | ")
    return Rule(rule, where, int(faults), promise)


RULES = tuple(_searched(rule) for rule in simulated.ALL if rule.searched)
NOT_SEARCHED = {
    "a read of the fence covers only Creates that were answered before it was sent": "here a"
    " process sends one request after the other; production's threads do not",
    "Last-Modified beside the ETag": "here no two objects have the same bytes",
    "ETags quoted and unquoted, ETags of parts that change under SSE-KMS": "here a store keeps"
    " S3's rules",
    "uploads are listed again until none shows, pages of listings, batches of deletes": "here a"
    " listing is consistent and whole, and an abort is final",
    "uploads are open before the decision": "it narrows a window that a neighbour's abort can hit",
    "a fresh nonce in every `_SUCCESS`": "a late marker is excused for a moment",
    "the first read of the fence": "it stops zombies early; the second read catches all",
}
"""Rules that this search cannot see, and why: the simulator's, where they are anybody's."""
