"""The walk, one deep; two deep by ``python -m tests.crashwalk``."""

from __future__ import annotations

import pytest

from magic_committer.commit import revert
from tests.concrete import CLASSES, takes
from tests.crashwalk.walk import ACCEPTS, CASES, MODES, TRACKS, Case, walk
from tests.simulation import operators
from tests.simulation.tally import quiet

POINTS_MIN = 70
"""Twice the requests of the smallest case, and more."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_job_may_die_at_any_request(case: Case) -> None:
    """Killed before or after any of its requests, or not at all, the job is recovered to all or
    nothing, and nothing of it is left."""
    with quiet():
        walked = walk(case, 1)
    assert walked.points >= POINTS_MIN
    assert not walked.failures, walked.failures[0]


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


@pytest.mark.parametrize(
    ("module", "name", "promise"),
    [(operators, "recover_all", "I5"), (revert, "delete_if_same", "I3")],
)
def test_what_nobody_does_is_found(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, promise: str
) -> None:
    """The walk fails where no recovery comes after a kill, and where a revert leaves what was
    completed."""
    monkeypatch.setattr(module, name, lambda *_: None)
    case = next(case for case in CASES if case.reverts == (module is revert))
    with quiet():
        walked = walk(case, 1)
    assert promise in {one.promise for _, end in walked.failures for one in end.violations}
