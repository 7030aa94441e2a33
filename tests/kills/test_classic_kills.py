"""Jobs of v1 and v2 on a local disk, whose driver or one of whose tasks is killed with SIGKILL at a
call of the file system drawn by seed: what stays visible is what docs/renames.md says."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

import magic_committer as mc
from magic_committer import _wiring
from tests.kills import drivers
from tests.kills.disks import OLD, clean_up, count_calls, data, killed, lay_out
from tests.nightly import most
from tests.tree_jobs import Watched

KILLS = most(20, 10)
SEED = 20261123
FILES = 24
OPTIONS = mc.Options(commit_threads=1)
"""One thread counts the calls."""

Files = dict[str, bytes]


def files_of(task: int) -> Files:
    """What a task of a whole job writes."""
    numbers = range(task, FILES, drivers.TASKS)
    return {f"{drivers.name(n)}.txt": drivers.content(n) for n in numbers}


NEW = {name: body for task in range(drivers.TASKS) for name, body in files_of(task).items()}
AFTER = {**OLD, **NEW}

FIRST = {"dt=0/same.txt": b"first"} | {f"dt={n % 3}/first-{n}.txt": b"1" for n in range(9)}
SECOND = {"dt=0/same.txt": b"second"} | {f"dt={n % 3}/second-{n}.txt": b"2" for n in range(9)}
OTHER = {"dt=1/other.txt": b"other"}
"""What two attempts of one task write, and another task."""


def write(attempt: mc.Task, files: Files) -> None:
    """Write the files of an attempt."""
    for name, body in files.items():
        with attempt.open(name) as file:
            file.write(body)


def work(job: mc.Job, task: int, files: Files) -> None:
    """A whole attempt."""
    with job.task(task) as attempt:
        write(attempt, files)


def drive(url: str, committer: str, tree: Watched) -> int:
    """A whole job of one process. Gives how many calls there were before its commit."""
    _wiring.register_store(tree)
    job = mc.start(url, committer=committer, options=OPTIONS)
    for task in range(drivers.TASKS):
        work(job, task, files_of(task))
    before = tree.count
    job.commit(expect=drivers.TASKS)
    return before


def attempt_first(url: str, job_id: str, tree: Watched) -> int:
    """The first attempt of task 0, in a process of its own. Gives how many calls there were before
    its commit."""
    _wiring.register_store(tree)
    attempt = mc.attach(url, job_id, options=OPTIONS).task(0)
    write(attempt, FIRST)
    before = tree.count
    attempt.commit()
    return before


def the_job(url: str) -> mc.FoundJob | None:
    """The only job of a destination, if it has a record."""
    return next((found for found in mc.inspect(url) if found.kind == "ours"), None)


@pytest.mark.parametrize("committer", ["v1", "v2"])
def test_what_a_killed_driver_has_shown_stays(
    committer: str, tmp_path: Path, kills: Counter[str]
) -> None:
    """Before v1's commit nothing is visible; of v2 the files of every task that has committed. What
    is visible stays as it is when another process recovers the job, which is told aborted with a
    warning; a commit that is called again shows all. Nothing of the job is left."""
    lay_out(tmp_path / "whole")
    began, count = count_calls(drive, (tmp_path / "whole").as_uri(), committer)
    assert data(tmp_path / "whole") == AFTER
    early, late = began // 2, began + (count - began) * 3 // 4
    windows = ((1, early), (1, began), (began, late), (began, count))
    chance, seen = random.Random(f"{SEED} {committer}"), Counter[str]()
    for number in range(KILLS):
        root = tmp_path / str(number)
        lay_out(root)
        moment = chance.randint(*chance.choice(windows))
        after = chance.random() < 0.5
        told = (
            f"seed {SEED}, {committer}, {'after' if after else 'before'} call {moment} of {count}"
        )
        assert killed(drive, root.as_uri(), committer, moment, after), told
        seen[_end(root, committer, kills, told, again=number % 2 == 1)] += 1
        clean_up(root)
    assert seen["aborted, some stay"] >= 1, seen
    assert seen["committed again, some were visible"] >= 1, seen
    assert seen["aborted, none"] >= 1, seen


def _end(root: Path, committer: str, kills: Counter[str], told: str, *, again: bool) -> str:
    """End a job whose driver was killed, and see that only what is said of it is visible."""
    shown, url = data(root), root.as_uri()
    assert OLD.keys() <= shown.keys(), told
    assert shown.items() <= AFTER.items() | OLD.items(), told
    assert _of_tasks_that_committed(root, committer) <= shown.items(), told
    found = the_job(url)
    if found is None:
        assert shown == OLD or (root / "_SUCCESS").exists(), told
        return "no record"
    kills[f"{found.state} (disk, {committer})"] += 1
    began = bool(list(root.glob("_temporary/manifest_*/00/_visible")))
    if not began and found.state == "running":
        assert shown == OLD, told
    if again and found.state != "closed":
        with suppress(mc.IncompleteJob):
            mc.attach(url, found.id).commit(expect=drivers.TASKS)
            assert data(root) == AFTER, told
            assert (root / "_SUCCESS").exists(), told
            return f"committed again, {'some were visible' if shown != OLD else 'none was'}"
    recovery = mc.recover(url, found.id, dead_after=0)
    if recovery.outcome == "committed":
        assert found.state in ("committing", "completed"), told
        assert data(root) == AFTER, told
        assert (root / "_SUCCESS").exists(), told
        return "committed"
    assert (found.state, recovery.outcome) == ("running", "aborted"), told
    assert data(root) == shown, told
    assert not (root / "_SUCCESS").exists(), told
    assert recovery.report is not None
    assert bool(recovery.report.warnings) == began, told
    return f"aborted, {'some stay' if shown != OLD else 'none'}"


def _of_tasks_that_committed(root: Path, committer: str) -> set[tuple[str, bytes]]:
    """What must be visible because a manifest of v2 says that its task has committed."""
    if committer == "v1":
        return set()
    manifests = root.glob("_temporary/manifest_*/00/manifests/*-manifest.json")
    tasks = [int(orjson.loads(path.read_bytes())["taskID"]) for path in manifests]
    return {item for task in tasks for item in files_of(task).items()}


@pytest.mark.parametrize("committer", ["v1", "v2"])
def test_what_a_killed_task_has_shown_stays(
    committer: str, tmp_path: Path, kills: Counter[str]
) -> None:
    """Another attempt of the task runs, and the job commits: of v1 exactly that one's files are
    visible, and nothing before; of v2 also what the first one had renamed, where the second one has
    no file of the name."""
    whole = tmp_path / "whole"
    lay_out(whole)
    job = mc.start(whole.as_uri(), committer=committer)
    began, count = count_calls(attempt_first, whole.as_uri(), job.id)
    job.abort()
    chance, left = random.Random(f"{SEED} {committer}"), 0
    for number in range(KILLS):
        root = tmp_path / str(number)
        lay_out(root)
        url = root.as_uri()
        job = mc.start(url, committer=committer)
        moment = chance.randint(chance.choice([1, began]), count)
        after = chance.random() < 0.5
        told = (
            f"seed {SEED}, {committer}, {'after' if after else 'before'} call {moment} of {count}"
        )
        assert killed(attempt_first, url, job.id, moment, after), told
        kills[f"task (disk, {committer})"] += 1
        shown = data(root)
        if committer == "v1":
            assert shown == OLD, told
        assert OLD.items() <= shown.items() <= (OLD | FIRST).items(), told
        left += shown != OLD
        work(job, 0, SECOND)
        work(job, 1, OTHER)
        assert job.commit(expect=2).outcome == "committed"
        assert data(root) == {**shown, **SECOND, **OTHER}, told
        assert (root / "_SUCCESS").exists(), told
        clean_up(root)
    assert (left > 1) == (committer == "v2"), left
