"""What processes do on a real disk that are killed with SIGKILL before a call of the system that
changes something, and what readers see there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import magic_committer as mc
from tests import tree_store
from tests.chaos.victims import Victim
from tests.tree_store import Calls

BATCHES = 6
Files = dict[str, bytes]
Work = Callable[..., Any]
"""A program: it takes the calls that are counted, and its arguments."""


def killed(at: int, work: Work, *arguments: object) -> bool:
    """Run a program in a process that is to be killed before its call of that number. Gives whether
    it was; it may fail instead."""
    victim = Victim(_run, at, work, arguments)
    try:
        victim.end()
    except AssertionError:
        return False
    return victim.killed


def counted(work: Work, *arguments: object) -> tuple[Any, int]:
    """What a run gives in a process that nobody kills, and how many calls it makes."""
    gave: tuple[Any, int] = Victim(_run, 0, work, arguments).end()
    return gave


def _run(at: int, work: Work, arguments: tuple[object, ...]) -> tuple[Any, int]:
    with Calls(at, lambda: os.kill(os.getpid(), signal.SIGKILL)).watched() as calls:
        return work(calls, *arguments), len(calls.names)


def data(root: Path) -> Files:
    """The files that readers see."""
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith("_")}


def clean_up(root: Path) -> None:
    """Clean up what is left of jobs, and see that nothing is."""
    for _ in range(2):
        report = mc.cleanup(root.as_uri(), dead_after=0, leftover_after=0, forget_after=0)
        assert report.errors == ()
    assert not list(root.glob("_temporary/*"))
    assert not [path for path in root.glob("__magic_[ju]*/**") if path.is_file()]


# The programs -------------------------------------------------------------------------------------


def drive(_: Calls, root: Path, mode: str, committer: str) -> None:
    """A whole job of a committer of uploads, or of manifest, with threads."""
    with tree_store.served(root, threads=8):
        tree_store.run_job(root, mode, committer)


def recover(_: Calls, root: Path) -> None:
    """Who ends it."""
    with tree_store.served(root):
        tree_store.recover(root)


def query(_: Calls, url: str) -> None:
    """A driver of a query: it runs every batch that its ledger does not have, in order, and the
    last one of them once more, as Spark does."""
    seen = mc.read_stream(url, "clicks")
    first = seen.done if seen is not None and seen.done is not None else 0
    for number in range(first, BATCHES):
        job = mc.start(url, accept="results", track="memory", checkpoint="file:///checkpoint")
        with job.task(0) as task, task.open("part.txt", unique=True) as file:
            file.write(f"{number}\n".encode())
        job.commit([task.result], batch=mc.StreamBatch("clicks", number))
