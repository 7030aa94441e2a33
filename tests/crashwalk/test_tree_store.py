"""A job on a local directory, killed before each call of the system that changes something. (Its
recovery is killed in tests/chaos.)"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.errors import MagicError
from magic_committer.stores.tree import UPLOADS
from magic_committer.stores.trees import disk
from magic_committer.testing import PatientClock
from tests import tree_store
from tests.power import Power
from tests.simulation.tally import quiet
from tests.tree_store import COMMITTERS, MODES, Calls, Killed

POINTS_MIN = 100
STEP = 5
"""Every which call of a job the power is cut before."""


def _dies(root: Path, mode: str, committer: str, at: int, power: Power | None = None) -> bool:
    """Run a job that is killed before a call, and the power is cut then, if there is any. False: it
    has fewer calls."""
    calls = Calls(at, tree_store.die, syncs=power is not None)
    track: mc.Track = "s3" if (committer, mode) == ("magic", "append") else "memory"
    with tree_store.served(root, PatientClock()), power.watched() if power else nullcontext():
        try:
            with calls.watched():
                tree_store.run_job(root, mode, committer, "memory" if power else track)
        except (Killed, MagicError):  # a death in a file's close is told as its failure
            assert at
    if power is not None:
        power.cut()
    return 0 < at <= len(calls.names)


def _recover(root: Path) -> None:
    with tree_store.served(root, PatientClock()):
        tree_store.recover(root)


def _laid_out(root: Path, mode: str) -> Path:
    root.mkdir(exist_ok=True)
    tree_store.lay_out(root, tree_store.before(mode))
    return root


@pytest.mark.parametrize("committer", COMMITTERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_job_may_die_at_any_call_of_the_system(mode: str, committer: str, tmp_path: Path) -> None:
    """Another process recovers it to all or nothing, and nothing of it is left."""
    at, outcomes = 1, set()
    with quiet():
        while _dies(root := _laid_out(tmp_path / str(at), mode), mode, committer, at):
            _recover(root)
            outcomes.add(tree_store.check(root, mode))
            shutil.rmtree(root)
            at += 1
    assert outcomes == {False, True}
    assert at > POINTS_MIN


def test_a_complete_that_copies_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk fails where a file becomes visible, and its upload does not end by that."""

    def copied(source: str, target: str, *, exclusive: bool) -> None:
        shutil.copyfile(source, target)

    monkeypatch.setattr(disk, "move", copied)
    with quiet(), pytest.raises((AssertionError, MagicError)):
        _dies(_laid_out(tmp_path, "append"), "append", "magic", 0)
        tree_store.check(tmp_path, "append")


@pytest.mark.parametrize("committer", COMMITTERS)
@pytest.mark.parametrize("mode", MODES)
def test_the_power_may_be_cut_at_any_call(mode: str, committer: str, tmp_path: Path) -> None:
    """What was not synced is gone. Afterwards the job is all or nothing; and a job that was told to
    be committed is all."""
    at, outcomes, dies = 1, set(), True
    with quiet():
        while dies:
            root = _laid_out(tmp_path / str(at), mode)
            dies = _dies(root, mode, committer, at, Power(root))
            _recover(root)
            outcomes.add(whole := tree_store.check(root, mode))
            assert dies or whole
            shutil.rmtree(root)
            at += STEP
    assert outcomes == {False, True}


def _is_waiting(path: str) -> bool:
    return f"/{UPLOADS}/_" in path and "_new-" not in path


LEFT_OUT: dict[str, Callable[[str], bool]] = {
    "a task's bytes": _is_waiting,
    "the names of what waits": lambda path: path.endswith(UPLOADS),
    "the bytes of records and sets": lambda path: "_new-" in path,
    "the names of records and sets": lambda path: "__magic_job" in path,
    "the names of what is published": lambda path: "/t/p=" in path,
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_sync_that_is_left_out_is_found(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a power cut at the end of a job or while it is published."""
    synced = Power.sync

    def sync(self: Power, path: str, *, whole: bool = False) -> None:
        if not LEFT_OUT[what](path):
            synced(self, path, whole=whole)

    monkeypatch.setattr(Power, "sync", sync)
    with quiet(), pytest.raises((AssertionError, MagicError)):
        for number, at in enumerate((0, *range(100, 140, 3))):
            root = _laid_out(tmp_path / str(number), "append")
            told = not _dies(root, "append", "magic", at, Power(root))
            _recover(root)
            assert tree_store.check(root, "append") or not told
