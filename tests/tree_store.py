"""Whole jobs on a local directory as a store, for tests that kill them at a call of the system.

`Calls` stands before the system's calls that change something, in `magic_committer.stores.tree`
and below it, and counts them. What happens between two of them is seen by nobody: so a death before
each of them is every death.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import magic_committer as mc
from magic_committer.commit import probe
from magic_committer.runtime import wiring
from magic_committer.runtime.components import Clock
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores import tree
from magic_committer.stores.base import objects, uploads
from magic_committer.stores.tree import UPLOADS, TreeStore
from magic_committer.stores.trees import disk
from magic_committer.upload import sender

COMMITTERS = ("magic", "manifest")
OLD = {"p=0/old.csv": b"old", "p=1/old.csv": b"older"}
NEW = {
    f"p=1/{task}{name}.csv": f"{task}{name}".encode() * 40
    for task, names in (("0", "ab"), ("1", "cd"), ("2", "e"))
    for name in names
}
MODES = ("append", "fail", "replace", "fail_partitions", "replace_partitions")

CHANGING = frozenset(
    ["link", "mkdir", "pwrite", "rename", "rmdir", "setxattr", "unlink", "write", "copy_file_range"]
)


class Killed(BaseException):
    """The process dies here, and does nothing more."""


class Calls:
    """The system's calls that change something, counted.

    Args:
        at: before which of them, from 1, and before all that follow, ``what`` is done; 0: none.
        what: what is done there.
        syncs: whether files are really synced.
    """

    def __init__(self, at: int = 0, what: Callable[[], None] = lambda: None, *, syncs: bool = True):
        self.at, self.what, self.syncs = at, what, syncs
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._counted(name, found) if name in CHANGING else found

    def open(self, path: str, flags: int, *more: Any) -> int:
        """Counted if it makes a file."""
        made = flags & os.O_CREAT
        return int((self._counted("open", os.open) if made else os.open)(path, flags, *more))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            self.names.append(name)
            if self.at and len(self.names) >= self.at:
                self.what()
            return call(*args, **named)

        return counted

    @contextmanager
    def watched(self) -> Iterator[Calls]:
        """While this lasts, the store's calls come here."""
        sync = disk.sync if self.syncs else lambda *_, **__: None
        with ExitStack() as stack:
            for module, name, value in (
                (tree, "os", self),
                (disk, "os", self),
                (disk, "rename_by", self._counted("renameat2", disk.rename_by)),
                (disk, "sync", self._counted("sync", sync)),
            ):
                stack.enter_context(patch.object(module, name, value))
            yield self


def die() -> None:
    raise Killed


def dest(root: Path) -> str:
    """The destination of the jobs below a directory."""
    return (root / "t").as_uri()


@contextmanager
def served(root: Path, clock: Clock | None = None, threads: int = 0) -> Iterator[TreeStore]:
    """A directory in ``root`` is the destination, of a process that has learnt nothing yet. Without
    threads everything runs in the caller's."""
    store = TreeStore(root / "t", dest(root))
    probe._known.pop(store.identity, None)
    wiring.register_store(store, clock)
    try:
        with patch.object(wiring, "pool", ThreadPool(threads)):
            yield store
    finally:
        wiring.unregister_store(store)
        sender._unsettled.clear()  # of a process that was killed


def lay_out(root: Path, files: dict[str, bytes]) -> None:
    """What another program has written to the destination."""
    for name, data in files.items():
        (root / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "t" / name).write_bytes(data)


def run_job(root: Path, mode: str, committer: str, track: mc.Track = "memory") -> None:
    """A job of three tasks and five files."""
    job = mc.start(
        dest(root), mode=cast("mc.Mode", mode), committer=committer, accept="results", track=track
    )
    results = []
    for task in "012":
        with job.task(task) as attempt:
            for name in (name for name in NEW if name[4] == task):
                with attempt.open(name, unique=committer == "magic") as file:
                    file.write(NEW[name])
        results.append(attempt.result)
    job.commit(results)


def recover(root: Path) -> None:
    """What an operator does who knows that the driver is dead."""
    url = dest(root)
    for found in mc.inspect(url):
        with suppress(mc.JobNotRunning):
            mc.recover(url, found.id, dead_after=0)
    for _ in range(2):  # the first one ends what is left, the next one forgets it
        report = mc.cleanup(url, dead_after=0, leftover_after=0, forget_after=0)
        assert report.errors == ()


def data(root: Path) -> dict[str, bytes]:
    """The files that readers see, without the job's token in their names."""
    found = {
        re.sub(r"-mcj[0-9a-f]{32}", "", path.relative_to(root / "t").as_posix()): path
        for path in (root / "t").rglob("*")
    }
    return {
        name: path.read_bytes()
        for name, path in found.items()
        if path.is_file() and not name.startswith(("_", "."))
    }


def before(mode: str) -> dict[str, bytes]:
    """What is at the destination before a job of that mode."""
    if mode == "fail":
        return {}
    return {n: d for n, d in OLD.items() if mode != "fail_partitions" or n.startswith("p=0")}


def after(mode: str) -> dict[str, bytes]:
    """What is there when it has committed."""
    if mode == "replace":
        return NEW
    kept = before(mode)
    if mode == "replace_partitions":
        kept = {name: data for name, data in kept.items() if name.startswith("p=0")}
    return {**kept, **NEW}


def left(root: Path) -> list[str]:
    """What is left of committers, when a day has passed and somebody has looked."""
    for path in (*root.glob(f"t/{UPLOADS}/*"), *root.rglob("*.~*")):
        os.utime(path, (0, 0))
    store = TreeStore(root / "t", dest(root))
    found = [one.key for one in uploads(store, "")]
    found += [one.key for one in objects(store, "") if "__magic" in one.key]
    names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    return found + [name for name in names if "__magic" in name or "_temporary" in name]


def check(root: Path, mode: str) -> bool:
    """All or nothing, and nothing left. Gives whether it was all."""
    found, committed = data(root), (root / "t/_SUCCESS").exists()
    assert found in (before(mode), after(mode)), sorted(found)
    assert committed == (found == after(mode))
    assert not left(root), left(root)
    return committed
