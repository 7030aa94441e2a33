"""The walk, one deep; two deep by ``python -m tests.crashwalk``."""

from __future__ import annotations

import pytest

from tests.crashwalk.walk import CASES, Case, run, walk
from tests.simulation.tally import quiet

POINTS_MIN = 70
"""Twice the requests of the smallest case, and more."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_job_may_die_at_any_request(case: Case) -> None:
    """Killed before or after any of its requests, the job is recovered to all or nothing, and
    nothing of it is left."""
    with quiet():
        walked = walk(case, 1)
    assert walked.points >= POINTS_MIN
    assert not walked.failures, walked.failures[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_job_itself_commits(case: Case) -> None:
    """Without a kill the job of each case breaks no promise."""
    with quiet():
        end = run(case, ())
    assert end.struck == 0
    assert not end.violations, end
