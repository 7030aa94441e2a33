"""`run` on real processes and a real server: each way to start them, kills, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
import tenacity

import magic_committer as mc
from examples.recipes import with_processes
from tests.processes import is_gone
from tests.running import fns

METHODS = ("fork", "spawn", "forkserver")
AT_ONCE = tenacity.Retrying(wait=tenacity.wait_none(), stop=tenacity.stop_never)
SECONDS_MAX = 60.0
"""For what another process is to do."""


def pool(method: str, workers: int = 2) -> Executor:
    """Processes that are started in one of Python's ways."""
    return ProcessPoolExecutor(workers, mp_context=get_context(method))


def seen(prefix: str) -> dict[str, str]:
    """All objects below a prefix, as any S3 client sees them."""
    client = boto3.client("s3")
    found = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    return {
        one["Key"]: client.get_object(Bucket="bucket", Key=one["Key"])["Body"].read().decode()
        for one in found
    }


def data(prefix: str) -> list[str]:
    """What the files say, without `_SUCCESS`, sorted."""
    return sorted(body for key, body in seen(prefix).items() if "_" not in key)


def open_uploads(prefix: str) -> list[str]:
    """Keys of open uploads below a prefix."""
    listed = boto3.client("s3").list_multipart_uploads(Bucket="bucket", Prefix=prefix)
    return [one["Key"] for one in listed.get("Uploads", [])]


@pytest.mark.parametrize("method", METHODS)
def test_processes_of_each_kind_write(server: str, method: str) -> None:
    """fork, spawn and forkserver: every file, by other processes, all or nothing."""
    dest = f"kind-{method}"
    with pool(method) as executor:
        report = mc.run(f"s3://bucket/{dest}", fns.write_number, range(12), executor=executor)
    assert [number for number, _ in report.returned] == list(range(12))
    assert os.getpid() not in {pid for _, pid in report.returned}
    assert data(f"{dest}/") == sorted(map(str, range(12)))
    assert not open_uploads(dest)


def test_processes_write_a_directory_of_a_disk(tmp_path: Path) -> None:
    """A job of renames: the same call, the same result."""
    dest = tmp_path / "table"
    report = mc.run(f"file://{dest}", fns.write_number, range(4), executor=partial(pool, "fork"))
    assert report.files == 4
    assert sorted(path.read_text() for path in dest.glob("*.txt")) == list("0123")
    assert (dest / "_SUCCESS").exists()


@pytest.mark.parametrize("method", METHODS)
def test_flaky_items_are_tried_again(server: str, method: str, tmp_path: Path) -> None:
    """Each fails twice and is then written once."""
    items = [(str(tmp_path), number) for number in range(4)]
    report = mc.run(
        f"s3://bucket/flaky-{method}", fns.fail_twice, items,
        executor=lambda: pool(method), retry=AT_ONCE,
    )  # fmt: skip
    assert (report.returned, report.tries) == ((0, 1, 2, 3), 12)
    assert data(f"flaky-{method}/") == list("0123")
    assert not open_uploads(f"flaky-{method}")


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_worker_is_replaced(server: str, method: str, tmp_path: Path) -> None:
    """kill -9 in the middle of a file: another pool goes on, and the job sweeps what was open."""
    items = [(str(tmp_path), number) for number in range(8)]
    report = mc.run(
        f"s3://bucket/killed-{method}", fns.be_killed_once, items,
        executor=lambda: pool(method), in_flight=4,
    )  # fmt: skip
    assert report.returned == tuple(range(8))
    assert data(f"killed-{method}/") == list("01234567")
    assert not open_uploads(f"killed-{method}")


def test_a_killed_worker_of_the_callers_pool_is_an_error(server: str) -> None:
    """It says that a worker was killed; nothing is visible, nothing is open."""
    with pool("spawn") as executor, pytest.raises(mc.TaskFailed, match="was killed") as told:
        mc.run("s3://bucket/one-pool", fns.be_killed, range(8), executor=executor)
    assert isinstance(told.value.__cause__, BrokenProcessPool)
    assert not seen("one-pool")
    assert not open_uploads("one-pool")


def test_an_item_that_kills_every_worker_ends_the_job(server: str) -> None:
    """After three pools: the call does not go on for ever."""
    with pytest.raises(mc.TaskFailed, match="in flight 3 times when a worker was killed"):
        mc.run(
            "s3://bucket/poison", fns.be_killed, range(8),
            executor=partial(pool, "fork"), in_flight=2,
        )  # fmt: skip
    assert not seen("poison")
    assert not open_uploads("poison")


def test_a_straggler_is_tried_twice(server: str, tmp_path: Path) -> None:
    """The second try is accepted; the first goes on in its process, finds out, and cleans up."""
    items = [(str(tmp_path), number) for number in range(6)]
    with pool("fork") as executor:
        report = mc.run(
            "s3://bucket/slow", fns.be_slow_once, items, executor=executor, speculate=2.0
        )
        assert report.tries == 7
        assert not (tmp_path / "went").exists()
        assert seen("slow/")["slow/0.txt"] == str(report.returned[0])
        (tmp_path / "go").touch()
    assert (tmp_path / "went").exists()
    assert seen("slow/")["slow/0.txt"] == str(report.returned[0])
    assert not open_uploads("slow")


def test_an_error_that_cannot_be_read_breaks_no_pool(server: str) -> None:
    """Its type and words arrive all the same."""
    with pool("fork") as executor:
        with pytest.raises(mc.TaskFailed, match="Peculiar: 1 and 2"):
            mc.run("s3://bucket/odd", fns.raise_peculiar, [1], executor=executor, retry=AT_ONCE)
        assert executor.submit(int).result(SECONDS_MAX) == 0


def test_a_function_that_cannot_travel_is_told_at_once(server: str) -> None:
    """One try, and what to do."""
    with pool("fork") as executor, pytest.raises(mc.TaskFailed, match="failed once") as told:
        mc.run("s3://bucket/local", lambda task, item: None, [1], executor=executor)
    assert "top of a module" in told.value.hint


# Interrupted and killed ---------------------------------------------------------------------------


def driver(dest: str, marks: Path, method: str) -> subprocess.Popen[str]:
    """A driver with two workers, each of which has a file open."""
    given = (f"s3://bucket/{dest}", str(marks), method)
    running = subprocess.Popen(
        [sys.executable, "-c", f"from tests.running import fns\nfns.drive(*{given!r})"],
        start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + SECONDS_MAX
    while len(list(marks.glob("at-*"))) < 2 or len(open_uploads(dest)) < 2:
        assert time.monotonic() < until, "the workers do not begin"
        assert running.poll() is None, running.communicate()[1]
        time.sleep(0.05)
    return running


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_in_a_terminal_leaves_nothing(server: str, method: str, tmp_path: Path) -> None:
    """SIGINT to all processes, as a terminal sends it: no object, no record, no upload."""
    dest = f"interrupted-{method}"
    running = driver(dest, tmp_path, method)
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
    assert not seen(dest)
    assert not open_uploads(dest)


@pytest.mark.parametrize("method", METHODS)
def test_a_driver_that_is_killed_is_recovered(server: str, method: str, tmp_path: Path) -> None:
    """kill -9 of the caller, and of its workers: nothing is visible; `recover` takes the rest."""
    dest = f"dead-{method}"
    running = driver(dest, tmp_path, method)
    children = subprocess.run(
        ["ps", "-o", "pid=", "-s", str(running.pid)], capture_output=True, text=True, check=True
    )
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate(timeout=SECONDS_MAX)
    assert all(is_gone(int(pid)) for pid in children.stdout.split())
    assert open_uploads(dest)
    (found,) = mc.inspect(f"s3://bucket/{dest}")
    assert mc.recover(f"s3://bucket/{dest}", found.id, dead_after=0).outcome == "aborted"
    assert not [key for key in seen(dest) if not key.endswith("/_job.json")]
    assert not open_uploads(dest)


# The recipe ---------------------------------------------------------------------------------------


def test_the_recipe_writes_each_day(server: str) -> None:
    """What the page shows: a file of 1,000 rows for each day, by processes."""
    report = with_processes.export("s3://bucket/recipe", range(1, 4))
    assert report.files == 3
    assert sum(report.returned) == sum(len(body) for body in data("recipe/"))
    assert [body.count("\n") for body in data("recipe/")] == [1000] * 3


def test_the_recipe_publishes_nothing_when_a_day_fails(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day that cannot be written, of processes that were forked with it: nothing is visible and
    no upload is left."""
    monkeypatch.setattr(with_processes, "mc", SimpleNamespace(run=partial(mc.run, retry=AT_ONCE)))
    days = [1, 2, fns.Bad()]
    with pytest.raises(mc.TaskFailed, match="no day"):
        with_processes.export("s3://bucket/failed", days)  # type: ignore[arg-type]
    assert not seen("failed")
    assert not open_uploads("failed")
