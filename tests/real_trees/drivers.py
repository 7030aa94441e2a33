"""A driver in a process of its own, killed with SIGKILL at a call of the file system.

python -m tests.real_trees.drivers URL 17 before    or after; or: URL 0 decision
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import magic_committer as mc
from magic_committer import _wiring
from magic_committer.file_trees.by_url import tree_for
from tests.real_servers.keeper import ROOT
from tests.tree_jobs import Watched

FILES = {f"dt={n % 2}/part-{n}.csv": b"%d\n" % n for n in range(6)}
TASKS = 2
HANGS_SECONDS = 90
"""A driver that has not died by then says where it is, and ends."""
AFTER: dict[str, Callable[[str, str], bool]] = {
    "task": lambda verb, path: verb == "create" and "/manifests/" in path,
    "decision": lambda verb, path: verb == "create" and path.endswith("_job-2.json"),
    "rename": lambda verb, path: verb == "rename" and "/tasks/" in path,
}
"""The first task is committed; the job is decided; its first file is published."""


def drive(url: str, watched: Callable[[str], Watched]) -> None:
    """A whole job of one process, whose calls of the file system are counted."""
    _wiring.register_tree(watched(url))
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


def counted(url: str) -> int:
    """How many calls a job makes that nobody kills."""
    watched = Watched(tree_for(url))
    drive(url, lambda _: watched)
    _wiring.unregister_tree(watched)
    return watched.count


def kill(url: str, number: int, moment: str) -> None:
    """Run a driver that is killed at its call of that number, ``"before"`` or ``"after"`` its
    effect; or after a call of `AFTER`, by its name there."""
    command = [sys.executable, "-m", "tests.real_trees.drivers", url, str(number), moment]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, f"{command}: {ended.returncode}\n{ended.stderr}"


def main() -> None:
    """Be that driver."""
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
