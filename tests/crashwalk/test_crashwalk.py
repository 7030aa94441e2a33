"""The walk, one deep; two deep by ``python -m tests.crashwalk``."""

from __future__ import annotations

import pytest

from magic_committer.commit import revert
from tests.concrete import CLASSES, takes
from tests.crashwalk.walk import ACCEPTS, CASES, MODES, TRACKS, Case, run, walk
from tests.simulation import operators
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


def test_each_kind_of_job_is_walked() -> None:
    """There is a case of every mode with every way to accept and to track, and of each committer
    with every mode that its records have; and every mode is reverted."""
    walked = {(case.mode, case.accept, case.track) for case in CASES}
    ways = [(accept, track) for accept in ACCEPTS for track in TRACKS]
    assert walked == {(mode, *way) for mode in MODES for way in ways}
    assert {case.mode for case in CASES if case.reverts} == set(MODES)
    for name, kind in CLASSES.items():
        ours = {case.mode for case in CASES if case.committer == name}
        assert ours == {mode for mode in MODES if takes(kind, mode)}


def test_a_job_that_nobody_recovers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk fails where no recovery comes after a kill."""
    monkeypatch.setattr(operators, "recover_all", lambda *_: None)
    with quiet():
        walked = walk(CASES[0], 1)
    broken = {one.promise for _, end in walked.failures for one in end.violations}
    assert "I5" in broken, broken


def test_a_revert_that_deletes_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk fails where a revert leaves what was completed."""
    monkeypatch.setattr(revert, "delete_if_same", lambda *_: None)
    case = next(case for case in CASES if case.reverts)
    with quiet():
        walked = walk(case, 1)
    broken = {one.promise for _, end in walked.failures for one in end.violations}
    assert "I3" in broken, broken
