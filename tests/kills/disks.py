"""Processes that write to a real disk and are killed with SIGKILL before a call of the system that
changes something, and what readers see there."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import magic_committer as mc
from tests.kills import drivers
from tests.tree_store import Calls

END_SECONDS_MAX = 60
OLD = {"dt=0/old.txt": b"old", "dt=1/part-001.txt": b"older"}

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(drivers.PRELOADED)

Work = Callable[..., Any]
"""A program: it takes the calls that are counted, and its arguments."""


def killed(at: int, work: Work, *arguments: object) -> bool:
    """Run a program in a process that is to be killed before its call of that number. Gives whether
    it was."""
    process = context.Process(target=_run, args=(at, work, arguments), daemon=True)
    process.start()
    process.join(END_SECONDS_MAX)
    assert process.exitcode in (0, 1, -signal.SIGKILL)
    return process.exitcode == -signal.SIGKILL


def _run(at: int, work: Work, arguments: tuple[object, ...]) -> None:
    with Calls(at, lambda: os.kill(os.getpid(), signal.SIGKILL)).watched() as calls:
        work(calls, *arguments)


def counted(work: Work, *arguments: object) -> tuple[Any, int]:
    """What a run gives in a process that nobody kills, and how many calls it makes."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_count, args=(theirs, work, arguments), daemon=True)
    process.start()
    assert ours.poll(END_SECONDS_MAX)
    gave, count = ours.recv()
    process.join(END_SECONDS_MAX)
    return gave, count


def _count(to: Any, work: Work, arguments: tuple[object, ...]) -> None:
    with Calls().watched() as calls:
        gave = work(calls, *arguments)
    to.send((gave, len(calls.names)))


def lay_out(root: Path) -> None:
    """The data that is there before."""
    for name, data in OLD.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def data(root: Path) -> dict[str, bytes]:
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
