"""Real processes that write to a local disk, killed with SIGKILL at a call of the file system drawn
by seed: another process ends their job, and the destination holds all of it or none."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer import _wiring
from magic_committer.file_trees.by_url import tree_for
from tests.kills import drivers
from tests.tree_jobs import Watched

KILLS = 36
SEED = 20261123
FILES = 60
END_SECONDS_MAX = 60
OLD = {"dt=0/old.txt": b"old", "dt=1/part-001.txt": b"older"}

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.kills.test_tree_kills"])


def drive(url: str, mode: mc.Mode, watched: Callable[[str], Watched]) -> None:
    """A whole job of one process, whose calls of the file system are counted."""
    _wiring.register_tree(watched(url))
    with mc.start(url, mode=mode, accept="results", track="memory") as job:
        results = []
        for task in range(drivers.TASKS):
            with job.task(task) as attempt:
                for number in range(task, FILES, drivers.TASKS):
                    with attempt.open(f"{drivers.name(number)}.txt") as file:
                        file.write(drivers.content(number))
            results.append(attempt.result)
        job.commit(results)


def kill_at(number: int, after: bool, url: str) -> Watched:
    """The tree of a process that is killed at its call of that number."""
    tree = tree_for(url)
    if after:
        return Watched(tree, number, after=_kill)
    return Watched(tree, number, before=_kill)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lay_out(root: Path) -> None:
    """The data that is there before."""
    for name, data in OLD.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def data(root: Path) -> dict[str, bytes]:
    """The files that readers see."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.relative_to(root).as_posix().startswith("_")
    }


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_job_killed_at_a_drawn_call_is_all_or_nothing(
    mode: mc.Mode, tmp_path: Path, kills: Counter[str]
) -> None:
    """Recovered by another process: the old data or the new, byte for byte; `_SUCCESS` exactly if
    it is the new; and after a cleanup nothing of the job."""
    new = {f"{drivers.name(n)}.txt": drivers.content(n) for n in range(FILES)}
    after = new if mode == "replace" else {**OLD, **new}
    count = calls_of(mode, tmp_path / "whole")
    assert data(tmp_path / "whole") == after
    chance, outcomes = random.Random(f"{SEED} {mode}"), Counter[str]()
    for number in range(KILLS // 2):
        root = tmp_path / str(number)
        lay_out(root)
        url = root.as_uri()
        moment = chance.randint(chance.choice([1, count * 2 // 3]), count)
        watched = partial(kill_at, moment, chance.random() < 0.5)
        process = context.Process(target=drive, args=(url, mode, watched), daemon=True)
        process.start()
        process.join(END_SECONDS_MAX)
        assert process.exitcode == -9, (SEED, mode, moment)
        outcome = end(url, kills)
        outcomes[outcome] += 1
        told = f"seed {SEED}, mode {mode}, call {moment} of {count}: {outcome}"
        if outcome:
            assert data(root) == (after if outcome == "committed" else OLD), told
        assert data(root) in (OLD, after), told
        assert (root / "_SUCCESS").exists() == (data(root) == after), told
        report = mc.cleanup(url, dead_after=0, leftover_after=0, forget_after=0)
        assert report.errors == (), told
        assert not list(root.glob("_temporary/*")), told
    assert outcomes["committed"] >= 2, outcomes
    assert outcomes["aborted"] >= 2, outcomes


def end(url: str, kills: Counter[str]) -> str:
    """End the only job from this process, and give its outcome; "" if it has no record."""
    for found in mc.inspect(url):
        kills[f"{found.state} (disk)"] += 1
        if found.kind == "ours":
            return mc.recover(url, found.id, dead_after=0).outcome
    return ""


def calls_of(mode: mc.Mode, root: Path) -> int:
    """How many calls a job makes that nobody kills."""
    lay_out(root)
    watched = Watched(tree_for(root.as_uri()))
    drive(root.as_uri(), mode, lambda _: watched)
    _wiring.unregister_tree(watched)
    return watched.count
