"""Jobs and streams on a local disk, killed with SIGKILL at a call of the system drawn by seed;
another process ends them. Of v1 and v2 what stays visible is what docs/renames.md says."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

import magic_committer as mc
from magic_committer.runtime import wiring
from tests import tree_store
from tests.chaos import disks
from tests.chaos.disks import BATCHES, OLD, TASKS, clean_up, counted, data, killed, lay_out
from tests.nightly import most
from tests.tree_store import COMMITTERS, MODES, Calls

SEED = 20261123
KILLS = most(20, 10)
"""Of a driver of v1 or v2, and of a task."""
KILLS_OF_UPLOADS = most(20, 10)
"""In each mode, by each committer."""
STREAM_KILLS = most(24, 12)


@pytest.mark.parametrize("committer", COMMITTERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_job_killed_at_a_drawn_call_is_all_or_nothing(
    mode: str, committer: str, tmp_path: Path
) -> None:
    """Recovered by another process, which is killed as well, every other time: the old data or the
    new, byte for byte; `_SUCCESS` exactly if it is the new; and nothing of the job."""
    chance, outcomes = random.Random(f"{SEED} {mode} {committer}"), Counter[bool]()
    tree_store.lay_out(tmp_path / "whole", tree_store.before(mode))
    with tree_store.served(tmp_path / "whole"), Calls().watched() as calls:
        tree_store.run_job(tmp_path / "whole", mode, committer)
    count = len(calls.names)
    for number in range(KILLS_OF_UPLOADS):
        root = tmp_path / str(number)
        tree_store.lay_out(root, tree_store.before(mode))
        at = chance.randint(chance.choice([1, count // 2]), count)
        assert killed(at, disks.drive, root, mode, committer), (SEED, mode, at)
        if chance.random() < 0.5:
            killed(chance.randint(1, 40), disks.recover, root)
        with tree_store.served(root):
            tree_store.recover(root)
        outcomes[tree_store.check(root, mode)] += 1
    assert len(outcomes) == 2, outcomes
    assert min(outcomes.values()) >= most(2, 1), outcomes
    assert not wiring._registered


def test_a_query_killed_at_drawn_calls_publishes_each_batch_once(tmp_path: Path) -> None:
    """Its driver is killed at call after call, and started again by another process, which never
    looks at what is visible; now and then an operator cleans up in between."""
    root = tmp_path / "table"
    url, chance = root.as_uri(), random.Random(SEED)
    _, count = counted(disks.query, (tmp_path / "whole").as_uri())
    for kill in range(STREAM_KILLS):
        if chance.random() < 0.15:  # another query: a new destination
            _published_once(root, 0)
            root = tmp_path / f"table{kill}"
            url = root.as_uri()
        killed(chance.randint(1, 2 * count // BATCHES), disks.query, url)
        if chance.random() < 0.3:
            assert mc.cleanup(url, dead_after=0, leftover_after=0).errors == ()
    counted(disks.query, url)  # nobody kills it
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


# v1 and v2 ----------------------------------------------------------------------------------------

AFTER = OLD | {n: body for task in range(TASKS) for n, body in disks.files_of(task).items()}
FIRST = {"dt=0/same.txt": b"first"} | {f"dt={n % 3}/first-{n}.txt": b"1" for n in range(9)}
SECOND = {"dt=0/same.txt": b"second"} | {f"dt={n % 3}/second-{n}.txt": b"2" for n in range(9)}
OTHER = {"dt=1/other.txt": b"other"}
"""What two attempts of one task write, and another task."""


@pytest.mark.parametrize("committer", ["v1", "v2"])
def test_what_a_killed_driver_has_shown_stays(committer: str, tmp_path: Path) -> None:
    """Before v1's commit nothing is visible; of v2 the files of every task that has committed. What
    is visible stays as it is when another process recovers the job, which is told aborted with a
    warning; a commit that is called again shows all. Nothing of the job is left."""
    lay_out(tmp_path / "whole")
    began, count = counted(disks.drive_renames, (tmp_path / "whole").as_uri(), committer)
    assert data(tmp_path / "whole") == AFTER
    early, late = began // 2, began + (count - began) * 3 // 4
    windows = ((1, early), (1, began), (began, late), (began, count))
    chance, seen = random.Random(f"{SEED} {committer}"), Counter[str]()
    for number in range(KILLS):
        root = tmp_path / str(number)
        lay_out(root)
        at = chance.randint(*chance.choice(windows))
        told = f"seed {SEED}, {committer}, before call {at} of {count}"
        assert killed(at, disks.drive_renames, root.as_uri(), committer), told
        seen[_end(root, committer, told, again=number % 2 == 1)] += 1
        clean_up(root)
    assert seen["aborted, some stay"] >= 1, seen
    assert seen["committed again, some were visible"] >= 1, seen
    assert seen["aborted, none"] >= 1, seen


def _end(root: Path, committer: str, told: str, *, again: bool) -> str:
    """End a job whose driver was killed, and see that only what is said of it is visible."""
    shown, url = data(root), root.as_uri()
    assert OLD.keys() <= shown.keys(), told
    assert shown.items() <= AFTER.items() | OLD.items(), told
    assert _of_tasks_that_committed(root, committer) <= shown.items(), told
    found = next((found for found in mc.inspect(url) if found.kind == "ours"), None)
    marked, some = root / "_SUCCESS", shown != OLD
    if found is None:
        assert not some or marked.exists(), told
        return "no record"
    began = bool(list(root.glob("_temporary/manifest_*/00/_visible")))
    if not began and found.state == "running":
        assert not some, told
    if again and found.state != "closed":
        with suppress(mc.IncompleteJob):
            mc.attach(url, found.id).commit(expect=TASKS)
            assert (data(root), marked.exists()) == (AFTER, True), told
            return f"committed again, {'some were visible' if some else 'none was'}"
    recovery = mc.recover(url, found.id, dead_after=0)
    if recovery.outcome == "committed":
        assert found.state in ("committing", "completed"), told
        assert (data(root), marked.exists()) == (AFTER, True), told
        return "committed"
    assert (found.state, recovery.outcome) == ("running", "aborted"), told
    assert (data(root), marked.exists()) == (shown, False), told
    assert recovery.report is not None
    assert bool(recovery.report.warnings) == began, told
    return f"aborted, {'some stay' if some else 'none'}"


def _of_tasks_that_committed(root: Path, committer: str) -> set[tuple[str, bytes]]:
    """What must be visible because a manifest of v2 says that its task has committed."""
    if committer == "v1":
        return set()
    manifests = root.glob("_temporary/manifest_*/00/manifests/*-manifest.json")
    tasks = [int(orjson.loads(path.read_bytes())["taskID"]) for path in manifests]
    return {item for task in tasks for item in disks.files_of(task).items()}


@pytest.mark.parametrize("committer", ["v1", "v2"])
def test_what_a_killed_task_has_shown_stays(committer: str, tmp_path: Path) -> None:
    """Another attempt of the task runs, and the job commits: of v1 exactly that one's files are
    visible, and nothing before; of v2 also what the first one had renamed, where the second one has
    no file of the name."""

    def started(name: str) -> tuple[Path, mc.Job]:
        lay_out(tmp_path / name)
        return tmp_path / name, mc.start((tmp_path / name).as_uri(), committer=committer)

    whole, job = started("whole")
    began, count = counted(disks.attempt_renames, whole.as_uri(), job.id, FIRST)
    job.abort()
    chance, left = random.Random(f"{SEED} {committer}"), 0
    for number in range(KILLS):
        root, job = started(str(number))
        at = chance.randint(chance.choice([1, began]), count)
        told = f"seed {SEED}, {committer}, before call {at} of {count}"
        assert killed(at, disks.attempt_renames, root.as_uri(), job.id, FIRST), told
        shown = data(root)
        assert OLD.items() <= shown.items() <= (OLD | FIRST).items(), told
        left += shown != OLD
        for task, files in enumerate((SECOND, OTHER)):
            with job.task(task) as attempt:
                disks.write(attempt, files)
        assert job.commit(expect=2).outcome == "committed"
        assert data(root) == {**shown, **SECOND, **OTHER}, told
        assert (root / "_SUCCESS").exists(), told
        clean_up(root)
    assert left > 1 if committer == "v2" else left == 0, left
