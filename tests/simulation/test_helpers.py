"""Helpers complete what a driver has decided: twins, late ones, dead ones, and those that lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from magic_committer.commit import pieces, publish
from magic_committer.commit.ready import ReadyUpload
from magic_committer.protocol.keyset import KeySet
from tests.simulation.drawing import Focus
from tests.simulation.helping import ENDINGS
from tests.simulation.schedule import Result, simulate
from tests.simulation.tally import quiet, story
from tests.simulation.world import DEST

HELPED = Focus(others=("helpers",))
AHEAD = Focus(others=("helpers",), deeds=("ahead",))
"""A foreign program writes under keys of the job, before the job does."""
SCHEDULES = 600
SEEDS_MAX = 300
"""Within so many a promise breaks without the rule."""


def schedules(count: int, focus: Focus = HELPED) -> Iterator[Result]:
    """Schedules whose main driver has helpers."""
    with quiet():
        for seed in range(count):
            yield simulate(seed, focus)


def test_every_promise_is_kept_with_helpers() -> None:
    """No schedule breaks a promise; helpers of every kind were at work in many of them."""
    completed_by: Counter[str] = Counter()
    for result in schedules(SCHEDULES):
        assert not result.violations, story(result)
        for call in result.calls:
            _, actor, kind, *_ = call.split()
            if kind == "complete_upload" and actor.endswith(ENDINGS):
                completed_by[actor.rpartition("-")[2]] += 1
    assert completed_by["well"] > SCHEDULES / 10
    assert completed_by["idle"] == 0
    assert all(completed_by[ending] for ending in ENDINGS if ending != "idle")


def believed(
    runtime: Any,
    job: Any,
    uploads: Iterable[ReadyUpload],
    files: int,
    seen: Callable[[ReadyUpload], None],
    *,
    in_flight: int,
) -> Iterator[ReadyUpload]:
    """In place of the driver's look: all that was handed to helpers is done."""
    for upload in uploads:
        seen(upload)
    yield from ()


def any_object(runtime: Any, job: Any, files: int) -> KeySet:
    """In place of the listing of the job's own objects: whatever is listed counts, whoever wrote
    it, and whatever it holds."""
    found = KeySet()
    for page in runtime.store.list(DEST.prefix):
        for info in page.objects:
            found.add(info.key)
    return found


@pytest.mark.parametrize("rule", ["the driver looks", "only its own objects count"])
def test_a_promise_breaks_without(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver's look, or with a look that takes any object for ours, a promise
    breaks."""
    focus = HELPED
    if rule == "the driver looks":
        monkeypatch.setattr(publish, "not_seen", believed)
    else:
        focus = AHEAD
        monkeypatch.setattr(pieces, "_listed", any_object)
        monkeypatch.setattr(pieces, "_name_and_size", lambda key, size: key)
    broken = next((r for r in schedules(SEEDS_MAX, focus) if r.violations), None)
    assert broken is not None
