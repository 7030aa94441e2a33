"""A forked child can do nothing with its parent's job; workers that are sent it can do all."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

import magic_committer as mc
from examples import processes
from magic_committer.stores.memory import MemoryStore
from tests.concrete import upload_of
from tests.promises.hands import (
    DEST,
    committed_task,
    control,
    one_file,
    raises,
    stored,
    until,
    visible,
)
from tests.servers import moto_server
from tools.moto_server import CREDENTIALS

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12


@contextmanager
def forked() -> Iterator[None]:
    """In the block this is a forked child, as far as a process knows itself."""
    pid = os.getpid()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.getpid", lambda: pid + 1)
        yield


@pytest.mark.parametrize("how", ["memory", "s3", "staging"])
def test_a_task_in_a_child_says_what_to_do_instead(s3: MemoryStore, how: str) -> None:
    """I10: each call raises, with words that help, and sends nothing; a result is told anywhere."""
    terms: dict[str, Any] = {"committer": "directory"} if how == "staging" else {"track": how}
    job = mc.start(DEST, **terms)
    task = one_file(job)
    if how == "memory":
        stored(task)  # a small file is sent beside its close
    s3.requests.clear()
    failure = RuntimeError("the child failed")
    with forked():
        for use in (lambda: task.open("b.csv"), task.commit, task.abort, task.__enter__().commit):
            raises(mc.TaskFailed, use, match=r"magic_committer\.start\(dest\)")
        with pytest.raises(RuntimeError) as told, task:
            raise failure
    assert any("belongs to process" in note for note in told.value.__notes__)
    assert not s3.requests
    result = task.commit()
    with forked():
        assert task.commit() == result
    assert job.commit([result]).files == 1


@pytest.mark.parametrize("text", [False, True])
def test_a_file_in_a_child_takes_nothing(s3: MemoryStore, text: bool) -> None:
    """I10: each call raises at once, for text too; the parent's file has the parent's bytes."""
    job = mc.start(DEST)
    task = job.task("1")
    f: Any = task.open("a.csv", "w") if text else task.open("a.csv")
    data = "parent" if text else b"parent"
    f.write(data)
    until(lambda: s3.requests["create_upload"])  # which a thread sends
    s3.requests.clear()
    error = KeyError()
    with forked():
        for use in (lambda: f.write(data), f.flush, f.close, f.abort, lambda: f.writelines([data])):
            raises(mc.WrongProcess, use, match=r"job\.commit\(results\)")
        with pytest.raises(mc.WrongProcess), f:
            pass
        f.__exit__(KeyError, error, None)
        assert f.closed
    assert "was opened by process" in error.__notes__[0]
    assert not s3.requests
    f.close()
    job.commit([task.commit()])
    assert visible(s3) == {"t/a.csv": b"parent"}


@pytest.mark.parametrize("begin", [mc.write, mc.start])
@pytest.mark.parametrize("kind", [None, KeyError, SystemExit])
def test_a_child_that_leaves_a_block_ends_nothing(
    s3: MemoryStore, begin: Callable[[str], Any], kind: type[BaseException] | None
) -> None:
    """I2, I3: neither by falling out of ``with`` nor by an exception does it end the job."""
    with begin(DEST) as job:
        s3.requests.clear()
        with forked():
            if kind is None:
                with pytest.raises(mc.TaskFailed, match="neither committed nor aborted"):
                    job.__exit__(None, None, None)
            else:
                error = kind(0)
                job.__exit__(kind, error, None)
                assert "neither committed nor aborted" in error.__notes__[0]
        assert not s3.requests
        (found,) = mc.inspect(DEST)
        assert found.state == "running"


def test_what_write_gives_does_not_travel(s3: MemoryStore) -> None:
    """I10: pickling it raises at once, and says how many processes write one job."""
    writing = mc.write(DEST)
    raises(pickle.PicklingError, pickle.dumps, writing, match="does not travel")
    with writing as job:
        raises(pickle.PicklingError, pickle.dumps, job, match=r"job\.task\(id\)")
        raises(mc.MagicError, job.job.to_dict, match="does not travel")


def test_a_job_in_a_child_is_a_copy(s3: MemoryStore) -> None:
    """I10: a child may commit it; the record stays ``closed``, so that the parent learns of it."""
    job = mc.start(DEST)
    with forked():
        assert job.commit([committed_task(job, "1", {"a.csv": b"1"})]).files == 1
    assert [key.rsplit("/", 1)[-1] for key in control(s3)] == ["_job.json"]
    assert mc.attach(DEST, job.id).outcome == "committed"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """moto's server by the environment; a bucket of its own, as clients are kept by bucket."""
    with moto_server("forks") as url, pytest.MonkeyPatch.context() as patched:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": url}.items():
            patched.setenv(name, value)
        yield url


def seen(prefix: str) -> dict[str, bytes]:
    """All objects below a prefix, but markers."""
    client = boto3.client("s3")
    found = client.list_objects_v2(Bucket="forks", Prefix=prefix).get("Contents", [])
    return {
        o["Key"]: client.get_object(Bucket="forks", Key=o["Key"])["Body"].read()
        for o in found
        if not o["Key"].endswith("_SUCCESS")
    }


def open_uploads(prefix: str) -> list[str]:
    listed = boto3.client("s3").list_multipart_uploads(Bucket="forks", Prefix=prefix)
    return [u["Key"] for u in listed.get("Uploads", [])]


def in_child(what: Callable[[], object]) -> int:
    """Fork; the child does this, then ends as a program does. Its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            what()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            gc.collect()
            from magic_committer.upload import sender

            sender._abort_what_is_open()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def leave(writing: mc.Writing, error: BaseException | None) -> None:
    writing.__exit__(type(error) if error else None, error, None)


def test_whatever_a_child_does_the_parent_commits_its_own(server: str) -> None:
    """I2, I3: children use, leave and drop what they inherit, and end: the parent's is whole."""
    with mc.write("s3://forks/own") as job:
        with job.open("closed.csv", "w") as f:
            f.write("1")
        still = job.open("open.csv", "w")
        still.write("2")
        still.flush()
        upload_of(still._stream)._sender.created()
        upload_of(f._stream).wait()
        task = job._own()
        children: dict[str, tuple[Callable[[], object], int]] = {
            "nothing": (lambda: None, 0),
            "open": (lambda: job.open("child.csv"), 1),
            "write": (lambda: still.write("child"), 1),
            "close": (still.close, 1),
            "abort": (still.abort, 1),
            "leave": (lambda: leave(job, None), 1),
            "leave by exception": (lambda: leave(job, KeyError()), 0),
            "leave by exit": (lambda: leave(job, SystemExit(0)), 0),
            "commit the task": (task.commit, 1),
            "abort the task": (task.abort, 1),
            "take a task": (lambda: job.job.task("1"), 1),
            "commit the job": (lambda: job.job.commit([], expect=0), 1),
            "abort the job": (lambda: job.job.abort(), 1),
        }
        codes = {name: in_child(what) for name, (what, _) in children.items()}
        assert codes == {name: code for name, (_, code) in children.items()}
        assert len(open_uploads("own/")) == 2
        still.close()
    assert seen("own/") == {"own/closed.csv": b"1", "own/open.csv": b"2"}
    assert open_uploads("own/") == []


def run_task(job: mc.Job, number: int) -> dict[str, Any]:
    """What the error's hint says to do."""
    with job.task(number) as task, task.open(f"{number}.csv", "w") as f:
        f.write(str(number))
    return task.result.to_dict()


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_what_the_hint_says_works_in_workers(server: str, way: str) -> None:
    """I2: a pool's workers get the job and run a task each; the parent commits their JSON."""
    job = mc.start(f"s3://forks/{way}", track="memory", accept="results")
    with multiprocessing.get_context(way).Pool(2) as pool:
        results = pool.starmap(run_task, [(job, number) for number in range(4)])
    told = [mc.TaskCommit.from_dict(one) for one in json.loads(json.dumps(results))]
    assert job.commit(told).files == 4
    assert sorted(seen(f"{way}/")) == [f"{way}/{number}.csv" for number in range(4)]
    assert open_uploads(f"{way}/") == []


def close_by_path(dest: str, number: int) -> None:
    """A worker that knows nothing but a path."""
    path = f"{dest}/__magic_job-j1/job-j1/00/tasks/a_{number}/__base/part-{number}.csv"
    with mc.open_magic(path, "w") as f:
        f.write(f"{number}\n")


def commit_task(dest: str, number: int) -> dict[str, Any]:
    return mc.attach(dest, "j1").task(number, attempt=f"a_{number}").commit().to_dict()


def test_open_in_one_process_commit_in_another_by_names_alone(server: str) -> None:
    """Files by path in some processes, task commits in others, the job's commit in a third."""
    dest = "s3a://forks/named"
    mc.start(dest, job_id="j1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as writers:
        list(writers.map(close_by_path, [dest] * 3, range(3)))
    assert len(open_uploads("named/")) == 3
    with ProcessPoolExecutor(1, mp_context=context) as committers:
        list(committers.map(commit_task, [dest] * 3, range(3)))
    assert mc.attach(dest, "j1").commit(expect=[str(n) for n in range(3)]).files == 3
    assert open_uploads("named/") == []
    assert sorted(seen("named/")) == [
        "named/__magic_job-j1/_job.json",
        *(f"named/part-{n}.csv" for n in range(3)),
    ]


def test_the_example_of_many_processes_works(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """examples/processes.py: four tasks in two processes, one commit."""
    processes.main("s3://forks/example")
    assert "4 files" in capsys.readouterr().out
    assert len(seen("example/")) == 4
    assert open_uploads("example/") == []
