"""`run` on real processes and a real server: each way to start them, kills, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import tenacity

import magic_committer as mc
from examples.recipes import with_processes
from tests.outside import Found, Outside
from tests.processes import is_gone, living
from tests.running import fns
from tests.running.fns import Item
from tests.servers import moto_in_the_environment, moto_options

METHODS = ("fork", "spawn", "forkserver")
AT_ONCE = tenacity.Retrying(wait=tenacity.wait_none(), stop=tenacity.stop_never)
SECONDS_MAX = 300.0
"""For what another process is to do."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Outside]:
    """A bucket of a real server, which every process finds through the environment alone."""
    with moto_in_the_environment() as url:
        yield Outside(moto_options(url), "bucket")


def pool(method: str, workers: int = 2) -> Executor:
    """Processes that are started in one of Python's ways."""
    return ProcessPoolExecutor(workers, mp_context=get_context(method))


def items_in(marks: Path, count: int) -> list[Item]:
    return [(str(marks), number) for number in range(count)]


def data(bucket: Outside, dest: str) -> list[str]:
    """What the files say, sorted. Nothing else is there but `_SUCCESS`."""
    found = bucket.look(dest, closed=True)
    assert found.left == ()
    assert found.marked
    return sorted(
        bucket.body(dest, name).decode() for name in bucket.objects(dest) if name != "_SUCCESS"
    )


def is_empty(bucket: Outside, dest: str) -> bool:
    return not bucket.objects(dest) and not bucket.uploads(dest)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("work", "more", "tries"),
    [
        (fns.write, {}, 8), (fns.fail_twice, {"retry": AT_ONCE}, 24),
        (fns.be_killed_once, {"in_flight": 4}, None),
    ],
    ids=["whole", "flaky", "killed"],
)  # fmt: skip
def test_every_item_is_written_once(
    bucket: Outside, tmp_path: Path, method: str, work: Any, more: dict[str, Any],
    tries: int | None,
) -> None:  # fmt: skip
    """fork, spawn and forkserver: where nothing happens, where each item fails twice, and where a
    worker is killed -9 in the middle of a file: another pool goes on, and the job sweeps what was
    open."""
    dest = f"{work.__name__}-{method}"
    report = mc.run(
        f"s3://bucket/{dest}", work, items_in(tmp_path, 8), executor=partial(pool, method), **more
    )
    assert report.returned == tuple(range(8))
    assert tries in (None, report.tries)
    assert data(bucket, dest) == list("01234567")


def test_processes_write_a_directory_of_a_disk(tmp_path: Path) -> None:
    """A job of renames: the same call, the same result, by other processes."""
    dest = tmp_path / "table"
    report = mc.run(
        f"file://{dest}",
        fns.be_slow_once,
        items_in(tmp_path, 5)[1:],
        executor=partial(pool, "fork"),
    )
    assert report.files == 4
    assert {path.read_text() for path in dest.glob("*.txt")} == set(map(str, report.returned))
    assert os.getpid() not in report.returned
    assert (dest / "_SUCCESS").exists()


def test_a_killed_worker_of_the_callers_pool_is_an_error(bucket: Outside, tmp_path: Path) -> None:
    """It says that a worker was killed; nothing is visible, nothing is open."""
    with pool("spawn") as executor, pytest.raises(mc.TaskFailed, match="was killed") as told:
        mc.run("s3://bucket/one-pool", fns.be_killed, items_in(tmp_path, 8), executor=executor)
    assert isinstance(told.value.__cause__, BrokenProcessPool)
    assert is_empty(bucket, "one-pool")


def test_an_item_that_kills_every_worker_ends_the_job(bucket: Outside, tmp_path: Path) -> None:
    """After three pools: the call does not go on for ever."""
    given, pools = items_in(tmp_path, 8), partial(pool, "fork")
    with pytest.raises(mc.TaskFailed, match="in flight 3 times when a worker was killed"):
        mc.run("s3://bucket/poison", fns.be_killed, given, executor=pools, in_flight=2)
    assert is_empty(bucket, "poison")


def test_a_straggler_is_tried_twice(bucket: Outside, tmp_path: Path) -> None:
    """The second try is accepted; the first goes on in its process, finds out, and cleans up. On a
    busy machine others may be taken for slow."""
    given = items_in(tmp_path, 6)
    with pool("fork") as executor:
        report = mc.run(
            "s3://bucket/slow", fns.be_slow_once, given, executor=executor, speculate=2.0
        )
        assert report.tries >= 7
        assert not (tmp_path / "went").exists()
        assert bucket.body("slow", "0.txt").decode() == str(report.returned[0])
        (tmp_path / "go").touch()
    assert (tmp_path / "went").exists()
    assert data(bucket, "slow") == sorted(map(str, report.returned))


def test_an_error_that_cannot_be_read_breaks_no_pool(bucket: Outside) -> None:
    """Its type and words arrive all the same."""
    with pool("fork") as executor:
        with pytest.raises(mc.TaskFailed, match="Peculiar: 1 and 2"):
            mc.run("s3://bucket/odd", fns.raise_peculiar, [1], executor=executor, retry=AT_ONCE)
        assert executor.submit(int).result(SECONDS_MAX) == 0


def test_a_function_that_cannot_travel_is_told_at_once(bucket: Outside) -> None:
    """One try, and what to do."""
    with pool("fork") as executor, pytest.raises(mc.TaskFailed, match="failed once") as told:
        mc.run("s3://bucket/local", lambda task, item: None, [1], executor=executor)
    assert "top of a module" in told.value.hint


# Interrupted and killed ---------------------------------------------------------------------------


def driver(bucket: Outside, dest: str, marks: Path, method: str) -> subprocess.Popen[str]:
    """A driver with two workers, each of which has a file open."""
    given = (f"s3://bucket/{dest}", str(marks), method)
    running = subprocess.Popen(
        [sys.executable, "-c", f"from tests.running import fns\nfns.drive(*{given!r})"],
        start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + SECONDS_MAX
    while len(list(marks.glob("at-*"))) < 2 or len(bucket.uploads(dest)) < 2:
        assert time.monotonic() < until, "the workers do not begin"
        assert running.poll() is None, running.communicate()[1]
        time.sleep(0.05)
    return running


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_in_a_terminal_leaves_nothing(bucket: Outside, method: str, tmp_path: Path) -> None:
    """SIGINT to all processes, as a terminal sends it: no object, no record, no upload."""
    dest = f"interrupted-{method}"
    running = driver(bucket, dest, tmp_path, method)
    os.killpg(running.pid, signal.SIGINT)
    try:
        told = running.communicate(timeout=SECONDS_MAX)[1]
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
    assert running.returncode != 0
    assert "KeyboardInterrupt" in told
    assert "is aborted: nothing of it is visible" in told
    assert is_empty(bucket, dest)


@pytest.mark.parametrize("method", METHODS)
def test_a_driver_that_is_killed_is_recovered(bucket: Outside, method: str, tmp_path: Path) -> None:
    """kill -9 of the caller, and of its workers: nothing is visible; `recover` takes the rest."""
    dest = f"dead-{method}"
    running = driver(bucket, dest, tmp_path, method)
    children = [one.pid for one in living() if one.session == running.pid]
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=SECONDS_MAX)
    assert len(children) > 2
    assert all(map(is_gone, children))
    assert bucket.uploads(dest)
    (found,) = mc.inspect(f"s3://bucket/{dest}")
    assert mc.recover(f"s3://bucket/{dest}", found.id, dead_after=0).outcome == "aborted"
    assert bucket.look(dest) == Found()


# The recipe ---------------------------------------------------------------------------------------


def test_the_recipe_writes_each_day(bucket: Outside) -> None:
    """What the page shows: a file of 1,000 rows for each day, by processes."""
    report = with_processes.export("s3://bucket/recipe", range(1, 4))
    written = data(bucket, "recipe")
    assert report.files == 3
    assert sum(report.returned) == sum(len(body) for body in written)
    assert [body.count("\n") for body in written] == [1000] * 3
