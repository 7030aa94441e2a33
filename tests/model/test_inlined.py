"""No file is published by a PUT: what the search finds in each form of it."""

from __future__ import annotations

import inspect
import re

import pytest

from tests.model.actors import inlined as actors
from tests.model.actors.inlined import FORMS
from tests.model.inlined import ALL, BROKEN, CONFIGURATIONS, RULES, TIMED, Broken
from tests.model.search import Search
from tests.model.store import Delete, Put, Record

EACH = [pytest.param(one, id=f"{one.what}, {one.configuration}") for one in (*BROKEN, *RULES)]


@pytest.mark.parametrize("one", EACH)
def test_a_file_that_is_put_breaks_a_promise(one: Broken) -> None:
    """A form of the PUT, or the timed form without one of its rules, breaks the promise that the
    table names, by a trace as long as the table says, and not with a fault less."""
    result = one.search()
    assert (result.promise, result.requests) == (one.promise, one.requests), str(result)
    if one.faults:
        assert not one.search(one.faults - 1).violation


@pytest.mark.parametrize("form", FORMS)
def test_a_pause_is_enough(form: str) -> None:
    """Without any fault, every form publishes a file that was taken away, and a file of a job that
    was undone."""
    broken = {(one.promise, one.faults) for one in BROKEN if one.what == form}
    assert {("I2", 0), ("I3", 0)} <= broken


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_signature_that_ends_in_time_keeps_the_promises(name: str) -> None:
    """With all its rules, on a store that refuses a write which takes effect too late, the timed
    form keeps every promise."""
    search = Search(CONFIGURATIONS[name](TIMED, ALL))
    result = search.run()
    assert not result.violation, str(result)
    assert result.states > 100
    assert search.check_merging()


def test_the_late_put_is_the_last_step_of_the_trace() -> None:
    """The shortest trace of the conditional PUT ends with one that was paused before it was sent:
    meanwhile another process finished the job, and a third took the file away."""
    result = next(one for one in BROKEN if one.what == "if absent").search()
    *before, late = result.trace
    assert isinstance(late.request, Put)
    assert late.request.if_none_match
    closing, _, taking = before[-3:]
    assert isinstance(closing.request, Put)
    assert isinstance(closing.request.body, Record)
    assert closing.request.body.state == "closed"
    assert closing.actor != late.actor
    assert (taking.actor, taking.request) == ("other", Delete((late.request.key,)))


def test_every_rule_of_the_timed_form_is_taken_away() -> None:
    """The programs ask for no rule that is not taken away, and the table has none besides."""
    asked = set(re.findall(r'keeps\(\s*"([^"]+)"\s*\)', inspect.getsource(actors)))
    assert asked == {rule.what for rule in RULES}
