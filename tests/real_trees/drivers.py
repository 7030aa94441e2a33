"""A driver in a process of its own, killed with SIGKILL at a call of the file system.

python -m tests.real_trees.drivers URL 17 before    or after; or: URL 0 decision
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import magic_committer as mc
from magic_committer.runtime import wiring
from magic_committer.stores.tree import TreeStore
from magic_committer.stores.trees.base import FileTree
from magic_committer.stores.trees.dialects import tree_for
from magic_committer.stores.urls import tree_url
from tests.real_servers.keeper import ROOT

FILES = {f"dt={n % 2}/part-{n}.csv": b"%d\n" % n for n in range(6)}
TASKS = 2
HANGS_SECONDS = 300
"""A driver that has not died by then says where it is, and ends."""
AFTER: dict[str, Callable[[str, str], bool]] = {
    "task": lambda verb, path: verb == "rename" and "/manifests/" in path,
    "decision": lambda verb, path: verb == "rename" and "_job.json.~" in path,
    "rename": lambda verb, path: verb == "rename" and path.startswith("dt="),
}
"""The first task is committed; the job is decided; its first file is published."""
CHANGING = frozenset(["make", "open", "rename", "make_directory", "remove", "remove_directory"])


class Watched:
    """A file system whose changing calls are counted.

    Args:
        tree: the file system.
        at: the call of this number, from 1, is the moment; 0: see ``on``.
        before, after: what is done before the call of the moment, and after it.
        on: whether a call is the moment, by its verb and its last path.
    """

    def __init__(
        self, tree: Any, at: int = 0, *, before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
        on: Callable[[str, str], bool] = lambda verb, path: False,
    ) -> None:  # fmt: skip
        self._tree, self._at, self._before, self._after, self._on = tree, at, before, after, on
        self._lock = threading.Lock()
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tree, name)
        if name not in CHANGING:
            return found

        def call(*given: Any, **named: Any) -> Any:
            with self._lock:
                self.count += 1
                now = self.count == self._at
            path = given[1] if name == "rename" else given[0]
            now = now or self._on(name, path)
            if now:
                self._before()
            result = found(*given, **named)
            if now:
                self._after()
            return result

        return call


def drive(url: str, watched: Callable[[str], Watched]) -> None:
    """A whole job of one process, whose calls of the file system are counted."""
    store = TreeStore(cast("FileTree", watched(url)), tree_url(url)[:-1])
    wiring.register_store(store)
    names = sorted(FILES)
    with mc.start(url, accept="results", track="memory") as job:
        results = []
        for number in range(TASKS):
            with job.task(number) as task:
                for name in names[number::TASKS]:
                    with task.open(name) as file:
                        file.write(FILES[name])
            results.append(task.result)
        job.commit(results)
    wiring.unregister_store(store)


def counted(url: str) -> int:
    """How many calls a job makes that nobody kills."""
    watched = Watched(tree_for(url))
    drive(url, lambda _: watched)
    return watched.count


def kill(url: str, number: int, moment: str) -> None:
    """Run a driver that is killed at its call of that number, ``"before"`` or ``"after"`` its
    effect; or after a call of `AFTER`, by its name there."""
    command = [sys.executable, "-m", "tests.real_trees.drivers", url, str(number), moment]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, f"{command}: {ended.returncode}\n{ended.stderr}"


def main() -> None:
    faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
    _, url, number, moment = sys.argv

    def watched(url: str) -> Watched:
        tree = tree_for(url)
        if moment in AFTER:
            return Watched(tree, on=AFTER[moment], after=_kill)
        if moment == "before":
            return Watched(tree, int(number), before=_kill)
        return Watched(tree, int(number), after=_kill)

    drive(url, watched)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
