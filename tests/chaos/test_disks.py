"""Jobs and streams on a local disk, killed with SIGKILL at a call of the system drawn by seed;
another process ends them. (Deaths of v1 and v2: tests/promises/test_classic.py.)"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.runtime import wiring
from tests import tree_store
from tests.chaos import disks
from tests.chaos.disks import BATCHES, clean_up, counted, data, killed
from tests.nightly import most
from tests.tree_store import COMMITTERS, MODES, Calls

SEED = 20261123
KILLS_OF_UPLOADS = most(20, 10)
"""In each mode, by each committer."""
STREAM_KILLS = most(24, 12)


@pytest.mark.parametrize("committer", COMMITTERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_job_killed_at_a_drawn_call_is_all_or_nothing(
    mode: str, committer: str, tmp_path: Path
) -> None:
    """Recovered by another process, which is killed as well, every other time: the old data or the
    new, byte for byte; `_SUCCESS` exactly if it is the new; and nothing of the job."""
    chance, outcomes = random.Random(f"{SEED} {mode} {committer}"), Counter[bool]()
    tree_store.lay_out(tmp_path / "whole", tree_store.before(mode))
    with tree_store.served(tmp_path / "whole"), Calls().watched() as calls:
        tree_store.run_job(tmp_path / "whole", mode, committer)
    count = len(calls.names)
    for number in range(KILLS_OF_UPLOADS):
        root = tmp_path / str(number)
        tree_store.lay_out(root, tree_store.before(mode))
        at = chance.randint(chance.choice([1, count // 2]), count)
        assert killed(at, disks.drive, root, mode, committer), (SEED, mode, at)
        if chance.random() < 0.5:
            killed(chance.randint(1, 40), disks.recover, root)
        with tree_store.served(root):
            tree_store.recover(root)
        outcomes[tree_store.check(root, mode)] += 1
    assert len(outcomes) == 2, outcomes
    assert min(outcomes.values()) >= most(2, 1), outcomes
    assert not wiring._registered


def test_a_query_killed_at_drawn_calls_publishes_each_batch_once(tmp_path: Path) -> None:
    """Its driver is killed at call after call, and started again by another process, which never
    looks at what is visible; now and then an operator cleans up in between."""
    root = tmp_path / "table"
    url, chance = root.as_uri(), random.Random(SEED)
    _, count = counted(disks.query, (tmp_path / "whole").as_uri())
    for kill in range(STREAM_KILLS):
        if chance.random() < 0.15:  # another query: a new destination
            _published_once(root, 0)
            root = tmp_path / f"table{kill}"
            url = root.as_uri()
        killed(chance.randint(1, 2 * count // BATCHES), disks.query, url)
        if chance.random() < 0.3:
            assert mc.cleanup(url, dead_after=0, leftover_after=0).errors == ()
    counted(disks.query, url)  # nobody kills it
    _published_once(root, BATCHES)
    mc.abort_stream(url, "file:///checkpoint")
    mc.cleanup(url, dead_after=0, leftover_after=0)  # ends what is left, and the next forgets it
    clean_up(root)
    _published_once(root, BATCHES)


def _published_once(root: Path, batches: int) -> None:
    """Each batch that is visible is so once; and those below ``batches`` are."""
    found = Counter(body.decode().strip() for body in data(root).values())
    assert set(found.values()) <= {1}, (SEED, found)
    assert {str(n) for n in range(batches)} <= set(found), (SEED, found)
