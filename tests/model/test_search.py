"""Every configuration with all rules in place, and the search itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.actors.job import LEDGER
from tests.model.configurations import CONFIGURATIONS
from tests.model.search import Actor, Configuration, Search
from tests.model.store import UNANSWERED, Get, Ledger, Object, Put

NOTHING: frozenset[str] = frozenset()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_promise_is_broken(name: str) -> None:
    """All interleavings of the configuration, with its faults, keep I1 to I10; and histories that
    were merged into one state act alike ever after."""
    search = Search(CONFIGURATIONS[name](NOTHING))
    result = search.run()
    assert not result.violation, str(result)
    assert result.states > 100
    assert search.check_merging()


def count(times: int) -> Any:
    """Adds one to the ledger, without looking whether somebody was faster."""
    for _ in range(times):
        found = yield Get(LEDGER)
        reply = yield Put(LEDGER, Ledger(found.body.done + 1))
        if reply is UNANSWERED:
            return "unknown"
    return "stuck" if found.body.done + 1 < 2 else "done"


def two_counters(faults: int) -> Configuration:
    """Two of them; the second to end is "stuck" if an addition was lost."""
    store = {LEDGER: Object(Ledger(0), 0, "before")}
    actors = tuple(Actor(name, lambda: count(1), ("j1",)) for name in ("c1", "c2"))
    return Configuration("counters", actors, store, faults)


def test_the_shortest_trace_is_found() -> None:
    """A lost update between two processes is found, with a trace that has no step too many."""
    result = Search(two_counters(0)).run()
    assert result.promise == "I5"
    assert [(line.actor, type(line.request).__name__) for line in result.trace] == [
        ("c1", "Get"),
        ("c1", "Put"),
    ]
    assert str(result).splitlines()[1].endswith("c1:        Get(_stream) -> <Ledger>")


def one_writer() -> Configuration:

    def write() -> Any:
        reply = yield Put(LEDGER, Ledger(1))
        return "unknown" if reply is UNANSWERED else "done"

    return Configuration("writer", (Actor("w", write, ("j1",)),))


def test_each_fault_leads_to_states_of_its_own() -> None:
    """One write. Without a fault: before, written. With one, also: crashed before it; written, and
    its sender does not know; gave up or was killed with it in flight, and each of these two when
    it has landed."""
    assert Search(one_writer(), 0).run().states == 2
    assert Search(one_writer(), 1).run().states == 2 + 1 + 1 + 2 + 2
