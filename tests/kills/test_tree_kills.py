"""Real processes that write to a local disk, killed with SIGKILL at a call of the file system drawn
by seed: another process ends their job, and the destination holds all of it or none."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

import magic_committer as mc
from magic_committer import _wiring
from tests.kills import drivers
from tests.kills.disks import OLD, clean_up, count_calls, data, killed, lay_out
from tests.tree_jobs import Watched

KILLS = 36
SEED = 20261123
FILES = 60


def drive(url: str, mode: str, tree: Watched) -> int:
    """A whole job of one process. Gives how many calls there were before its commit."""
    _wiring.register_store(tree)
    with mc.start(url, mode=cast("mc.Mode", mode), accept="results", track="memory") as job:
        results = []
        for task in range(drivers.TASKS):
            with job.task(task) as attempt:
                for number in range(task, FILES, drivers.TASKS):
                    with attempt.open(f"{drivers.name(number)}.txt") as file:
                        file.write(drivers.content(number))
            results.append(attempt.result)
        before = tree.count
        job.commit(results)
    return before


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_job_killed_at_a_drawn_call_is_all_or_nothing(
    mode: mc.Mode, tmp_path: Path, kills: Counter[str]
) -> None:
    """Recovered by another process: the old data or the new, byte for byte; `_SUCCESS` exactly if
    it is the new; and after a cleanup nothing of the job."""
    new = {f"{drivers.name(n)}.txt": drivers.content(n) for n in range(FILES)}
    after = new if mode == "replace" else {**OLD, **new}
    lay_out(tmp_path / "whole")
    _, count = count_calls(drive, (tmp_path / "whole").as_uri(), mode)
    assert data(tmp_path / "whole") == after
    chance, outcomes = random.Random(f"{SEED} {mode}"), Counter[str]()
    for number in range(KILLS // 2):
        root = tmp_path / str(number)
        lay_out(root)
        url = root.as_uri()
        moment = chance.randint(chance.choice([1, count * 2 // 3]), count)
        after_it = chance.random() < 0.5
        assert killed(drive, url, mode, moment, after_it), (SEED, mode, moment, after_it)
        outcome = end(url, kills)
        outcomes[outcome] += 1
        told = f"seed {SEED}, mode {mode}, call {moment} of {count}: {outcome}"
        if outcome:
            assert data(root) == (after if outcome == "committed" else OLD), told
        assert data(root) in (OLD, after), told
        assert (root / "_SUCCESS").exists() == (data(root) == after), told
        clean_up(root)
    assert outcomes["committed"] >= 2, outcomes
    assert outcomes["aborted"] >= 2, outcomes


def end(url: str, kills: Counter[str]) -> str:
    """End the only job from this process, and give its outcome; "" if it has no record."""
    for found in mc.inspect(url):
        kills[f"{found.state} (disk)"] += 1
        if found.kind == "ours":
            return mc.recover(url, found.id, dead_after=0).outcome
    return ""


# A streaming query --------------------------------------------------------------------------------

BATCHES, STREAM_KILLS = 6, 24
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
