"""Processes that write to a real disk and are killed at a call of the file system, and what readers
see there."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import magic_committer as mc
from magic_committer import _wiring
from magic_committer.hadoop.paths import Destination
from magic_committer.stores.tree import TreeStore
from magic_committer.stores.urls import local_path
from tests.kills import drivers
from tests.tree_jobs import Watched

END_SECONDS_MAX = 60
OLD = {"dt=0/old.txt": b"old", "dt=1/part-001.txt": b"older"}

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(drivers.PRELOADED)

Run = Callable[[str, str, Watched], int]
"""A program: it takes the destination's URL, an argument, and how it sees the store there."""


def killed(run: Run, url: str, argument: str, number: int, after: bool) -> bool:
    """Run a program in a process that is to be killed at its call of that number, before or after
    the effect. Gives whether it was."""
    process = context.Process(target=_run, args=(run, url, argument, number, after), daemon=True)
    process.start()
    process.join(END_SECONDS_MAX)
    return process.exitcode == -signal.SIGKILL


def _run(run: Run, url: str, argument: str, number: int, after: bool) -> None:
    how = {"after": _kill} if after else {"before": _kill}
    run(url, argument, Watched(_store(url), number, **how))  # type: ignore[arg-type]


def _store(url: str) -> TreeStore:
    return TreeStore(local_path(url), Destination.parse(url).bucket)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def count_calls(run: Run, url: str, argument: str) -> tuple[int, int]:
    """What a run gives that nobody kills, and how many calls it makes."""
    watched = Watched(_store(url))
    gave = run(url, argument, watched)
    _wiring.unregister_store(watched)
    return gave, watched.count


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


def clean_up(root: Path) -> None:
    """Clean up what is left of jobs, and see that nothing is."""
    report = mc.cleanup(root.as_uri(), dead_after=0, leftover_after=0, forget_after=0)
    assert report.errors == ()
    mc.cleanup(root.as_uri(), dead_after=0, leftover_after=0, forget_after=0)
    assert not list(root.glob("_temporary/*"))
    assert not [path for path in root.glob("__magic_[ju]*/**") if path.is_file()]
