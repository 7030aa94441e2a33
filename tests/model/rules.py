"""The rules that can be taken away, in tests only, and the promise that breaks without each.

`RULES` is what the table in rules.txt says: a test searches each rule's configuration without the
rule and wants the named promise broken, and searches every configuration with all rules in place
and wants nothing broken. `python -m tests.model --table` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.model.configurations import CONFIGURATIONS
from tests.model.search import Search
from tests.model.trace import Result

TABLE = Path(__file__).with_name("rules.txt")


@dataclass(frozen=True)
class Rule:
    """A rule of the protocol, by the name with which the actors ask for it (`Job.keeps`)."""

    name: str
    section: str
    promise: str
    configuration: str
    faults: int
    requests: int

    def search(self, faults: int | None = None) -> Result:
        made = CONFIGURATIONS[self.configuration](frozenset({self.name}))
        return Search(made, self.faults if faults is None else faults).run()


def _rows(columns: int) -> list[list[str]]:
    """The rows of the table with so many columns, behind its head."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = [line[2:-2].split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in rows if len(row) == columns][2:]


RULES = tuple(
    Rule(name, section, promise, where, int(faults), int(requests))
    for name, section, promise, where, faults, requests in _rows(6)
)
NOT_SEARCHED = dict(_rows(2))
"""Rules that this search cannot see, and why: the simulator's, where they are anybody's."""
