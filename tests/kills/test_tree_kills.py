"""A streaming query on a local disk, whose driver is killed with SIGKILL at a call of the file
system drawn by seed, and started again by another process. (Whole jobs: test_tree_store_kills.)"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import magic_committer as mc
from magic_committer import _wiring
from tests.kills.disks import clean_up, count_calls, data, killed
from tests.nightly import most
from tests.tree_jobs import Watched

SEED = 20261123


BATCHES, STREAM_KILLS = 6, most(24, 12)
CALLS_OF_A_BATCH = 90
"""About how many calls a run of a batch makes: a kill is drawn within two of them."""


def stream(url: str, query: str, tree: Watched) -> int:
    """A driver of a query: it runs every batch that its ledger does not have, in order, and the
    last one of them once more, as Spark does."""
    _wiring.register_store(tree)
    seen = mc.read_stream(url, query)
    first = seen.done if seen is not None and seen.done is not None else 0
    for number in range(first, BATCHES):
        job = mc.start(url, accept="results", track="memory", checkpoint="file:///checkpoint")
        with job.task(0) as task, task.open("part.txt", unique=True) as file:
            file.write(f"{number}\n".encode())
        job.commit([task.result], batch=mc.StreamBatch(query, number))
    return 0


def test_a_query_killed_at_drawn_calls_publishes_each_batch_once(
    tmp_path: Path, kills: Counter[str]
) -> None:
    """Its driver is killed at call after call, and started again by another process, which never
    looks at what is visible; now and then an operator cleans up in between."""
    root = tmp_path / "table"
    url, chance = root.as_uri(), random.Random(SEED)
    for kill in range(STREAM_KILLS):
        if chance.random() < 0.15:  # another query: a new destination
            _published_once(root, 0)
            root = tmp_path / f"table{kill}"
            url = root.as_uri()
        moment, after_it = chance.randint(1, 2 * CALLS_OF_A_BATCH), chance.random() < 0.5
        killed(stream, url, "clicks", moment, after_it)
        for found in mc.inspect(url):
            kills[f"{found.state} (stream on a disk)"] += 1
        if chance.random() < 0.3:
            assert mc.cleanup(url, dead_after=0, leftover_after=0).errors == ()
    count_calls(stream, url, "clicks")  # nobody kills it
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
