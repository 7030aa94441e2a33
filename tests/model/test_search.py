"""Every configuration with all rules in place, and the search itself."""

from __future__ import annotations

import pytest

from magic_committer.errors import NotFound
from magic_committer.runtime.components import Runtime
from tests.model.configurations import CONFIGURATIONS, REACHED
from tests.model.rules import RULES
from tests.model.search import Actor, Configuration, Search
from tests.nightly import NIGHTLY

BOUNDS: tuple[tuple[int | None, int | None], ...] = ((None, 1), (0, 2))
if NIGHTLY:
    BOUNDS = ((None, 2), (0, None))
"""Of each search: faults (None: those of its configuration), and changes of turn (None: all)."""
STATES_MAX = 1_000_000
"""Where it stops, at night: some 1 GB."""


@pytest.mark.parametrize(("faults", "turns"), BOUNDS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_promise_is_broken(name: str, faults: int | None, turns: int | None) -> None:
    """All interleavings of the configuration, of so many changes of turn, with its faults and
    without, keep I1 to I10; and it is not idle."""
    search = Search(CONFIGURATIONS[name](), faults, turns)
    result = search.run(STATES_MAX)
    assert not result.violation, str(result)
    assert set(REACHED.get(name, ())) <= search.reached()


def test_no_configuration_may_be_idle() -> None:
    """In each a rule is missed when it is taken away, or it is said what it must reach."""
    assert REACHED.keys() == CONFIGURATIONS.keys() - {rule.configuration for rule in RULES}


KEY = "t/_count/n"


def count(runtime: Runtime) -> str:
    """Adds one, without looking whether somebody was faster."""
    try:
        before = int(runtime.store.get(KEY, max_bytes=9).body)
    except NotFound:
        before = 0
    runtime.store.put(KEY, b"%d" % (before + 1))
    return "done" if before else "first"


def two_counters() -> Configuration:
    """Two of them: one adds to what the other has written, unless both have read nothing."""
    actors = (*(Actor(name, count) for name in ("c1", "c2")), Actor("end", total, after=True))
    return Configuration("counters", actors, faults=0)


def total(runtime: Runtime) -> str:
    return "done" if runtime.store.get(KEY, max_bytes=9).body == b"2" else "robbed"


def test_the_trace_with_the_fewest_turns_is_found() -> None:
    """A lost update between two processes needs that one is left in the middle, once."""
    assert not Search(two_counters(), turns=0).run().violation
    result = Search(two_counters()).run()
    assert (result.promise, result.turns) == ("I6", 1)
    told = [(line.actor, line.request.verb) for line in result.trace]
    assert told[-1] == ("end", "get")
    assert sorted(told[:4]) == [("c1", "get"), ("c1", "put"), ("c2", "get"), ("c2", "put")]
    assert {one for _, one in told[:2]} == {"get"}
    assert str(result).splitlines()[1].endswith("get _count/n -> NotFound NoSuchKey")


def write(runtime: Runtime) -> str:
    runtime.store.put(KEY, b"1")
    return "done"


def test_each_fault_leads_to_states_of_its_own() -> None:
    """One write. Without a fault: before, written. With one, also: crashed before it; its answer
    lost, and sent again; the first one in flight, and landed; killed with it in flight, and
    landed."""
    one = Configuration("writer", (Actor("w", write),))
    assert Search(one, 0).run().states == 2
    assert Search(one, 1).run().states == 2 + 1 + 1 + 2 + 2
