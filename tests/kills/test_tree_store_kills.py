"""Real processes that write to a local directory as a store, killed with SIGKILL at a call of the
system drawn by seed; another process ends their job."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from magic_committer import _wiring
from tests import tree_store
from tests.kills.disks import END_SECONDS_MAX, context
from tests.nightly import most
from tests.tree_store import COMMITTERS, MODES, Calls

KILLS = most(200, 100)
SEED = 20261125


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def drive(root: str, mode: str, committer: str, at: int) -> None:
    """A whole job, with threads, killed before the call of that number."""
    with tree_store.served(Path(root), threads=8), Calls(at, _die).watched():
        tree_store.run_job(Path(root), mode, committer)


def recover(root: str, at: int) -> None:
    """A whole recovery, killed there."""
    with tree_store.served(Path(root)), Calls(at, _die).watched():
        tree_store.recover(Path(root))


def _killed(work: object, *arguments: object) -> bool:
    process = context.Process(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
    process.start()
    process.join(END_SECONDS_MAX)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


@pytest.mark.parametrize("committer", COMMITTERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_job_killed_at_a_drawn_call_is_all_or_nothing(
    mode: str, committer: str, tmp_path: Path, kills: Counter[str]
) -> None:
    """Recovered by another process, which is killed as well, every other time: the old data or the
    new, byte for byte; `_SUCCESS` exactly if it is the new; and nothing of the job."""
    chance, outcomes = random.Random(f"{SEED} {mode} {committer}"), Counter[bool]()
    calls = Calls()
    tree_store.lay_out(tmp_path / "whole", tree_store.before(mode))
    with tree_store.served(tmp_path / "whole"), calls.watched():
        tree_store.run_job(tmp_path / "whole", mode, committer)
    count = len(calls.names)
    while outcomes.total() < KILLS // len(MODES) // len(COMMITTERS):
        root = tmp_path / str(outcomes.total())
        tree_store.lay_out(root, tree_store.before(mode))
        at = chance.randint(chance.choice([1, count // 2]), count)
        assert _killed(drive, str(root), mode, committer, at), (SEED, mode, at)
        kills[f"at a call of a directory as a store, {committer}, {mode}"] += 1
        if chance.random() < 0.5:
            _killed(recover, str(root), chance.randint(1, 40))
        with tree_store.served(root):
            tree_store.recover(root)
        outcomes[tree_store.check(root, mode)] += 1
    assert len(outcomes) == 2, outcomes
    assert min(outcomes.values()) >= most(2, 1), outcomes
    assert not _wiring._registered
