"""Small files of a task are sent beside the caller; what was promised of a closed file holds."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.commit import sets
from magic_committer.committers import magic
from magic_committer.committers.ends import Doing
from magic_committer.options import MiB
from magic_committer.runtime import wiring
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.upload import FileState
from magic_committer.upload.blocks import BlockSource
from tests.at_once import Overlapping
from tests.concrete import attempt_of, upload_of
from tests.promises import hands
from tests.promises.hands import DEST, Fits, fitting, raises, until, visible


@pytest.fixture(params=["a thread for each file", "one thread for all"])
def s3(request: pytest.FixtureRequest, s3: MemoryStore) -> MemoryStore:
    """Both ways in which files are sent beside the caller."""
    if "all" in request.param:
        s3.many = lambda: Overlapping(s3)  # type: ignore[attr-defined]
    return s3


def begin(**options: Any) -> mc.Job:
    return mc.start(DEST, track="memory", accept="results", options=mc.Options(**options))


def write(task: mc.Task, name: str, body: bytes = b"1") -> mc.UploadStream:
    return upload_of(hands.write(task, name, body))


class Gate:
    """Holds such requests of a store until it is opened, at the block's end at the latest."""

    def __init__(self, store: MemoryStore, fits: Fits) -> None:
        self.open = threading.Event()
        self.held: list[Request] = []
        self.error: Exception | None = None
        """What the held requests raise in the place of taking effect."""
        self._fits = fitting(fits)
        store.before = self._before

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()

    def _before(self, request: Request) -> None:
        if self._fits(request):
            self.held.append(request)
            assert self.open.wait(300)
            if self.error is not None:
                raise self.error

    def fail(self) -> None:
        self.error = mc.StoreError("broken")
        self.open.set()

    def wait(self, count: int = 1) -> None:
        until(lambda: len(self.held) >= count)


# Well ---------------------------------------------------------------------------------------------


def test_a_small_file_is_closed_before_its_requests_are_answered(s3: MemoryStore) -> None:
    """Of twenty no Create is answered; the commit waits for all, and the job publishes all."""
    job = begin()
    with Gate(s3, "create_upload") as gate, ThreadPoolExecutor(1) as beside:
        task = job.task("1")
        for n in range(20):
            assert write(task, f"{n}.csv", b"%d" % n).closed
        gate.wait(20)
        committing = beside.submit(task.commit)
        time.sleep(0.05)
        assert not committing.done()
        gate.open.set()
        done = committing.result(300)
    assert done.files == 20
    job.commit([done])
    assert visible(s3) == {f"t/{n}.csv": b"%d" % n for n in range(20)}


def test_nothing_of_a_small_file_is_sent_before_its_close(s3: MemoryStore) -> None:
    """Opening and writing send no request; closing sends Create, then the part."""
    sent: list[str] = []
    task = begin().task("1")
    s3.before = lambda request: sent.append(request.verb)
    file = task.open("a.csv")
    file.write(b"1")
    assert sent == []
    file.close()
    upload_of(file).wait()
    assert sent == ["create_upload", "put_part"]
    task.abort()


def test_a_larger_file_is_created_before_its_block_is_full(s3: MemoryStore) -> None:
    """Half a block sends the Create, while the other half fills; and its close waits."""
    task = begin().task("1")
    file = task.open("a.csv")
    file.write(bytes(4 * MiB))
    upload_of(file)._sender.created()
    assert s3.requests["create_upload"] == 1
    file.write(bytes(6 * MiB))
    file.close()
    assert file.state is FileState.PENDING
    assert task.commit().bytes == 10 * MiB


@pytest.mark.parametrize(("bound", "most"), [("files", 3), ("bytes", 2)])
def test_a_close_waits_for_the_oldest_file_under_way(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    """So many files; or half of the memory: the other half is for files that are being written."""
    options: dict[str, Any] = {}
    if bound == "files":
        monkeypatch.setattr(magic, "FILES_MAX", most)
    else:
        monkeypatch.setattr(wiring, "blocks", BlockSource())  # the process's may be in use
        options = {"buffer_bytes_max": 4 * 64 * 1024}
    task = begin(**options).task("1")
    with Gate(s3, "create_upload") as gate:
        for n in range(most):
            write(task, f"{n}.csv")
        closing = threading.Thread(target=write, args=(task, "last.csv"))
        closing.start()
        gate.wait(most)
        closing.join(0.05)
        assert closing.is_alive()
        assert len(gate.held) == most
        gate.open.set()
        closing.join(300)
    assert task.commit().files == most + 1


def test_one_thread_sends_all_small_files_where_the_store_can_do_that(s3: MemoryStore) -> None:
    """Files of up to 1 MiB share a thread; a larger one has its own."""
    s3.many = lambda: Overlapping(s3)  # type: ignore[attr-defined]
    task = begin().task("1")
    threads: dict[str, int] = {}
    with Gate(s3, "create_upload") as gate:
        for name in (*map(str, range(20)), "large"):
            file = upload_of(task.open(name))
            file.when_pending(lambda name=name: threads.setdefault(name, threading.get_ident()))  # type: ignore[misc]
            file.write(bytes(2 * MiB if name == "large" else 1))
            file.close()
        gate.wait(21)
    assert task.commit().files == 21
    assert len({*threads.values()} - {threads["large"]}) == 1


def test_what_breaks_that_thread_is_told_by_the_commit(s3: MemoryStore) -> None:
    """An error that is no answer of the store ends the files under way: nobody waits for them."""

    class Broken(Overlapping):
        def ask_each(self, next_ask: Callable[[], Any], **_: Any) -> Iterator[Any]:  # type: ignore[override]
            next_ask()
            raise RuntimeError("a bug")
            yield

    s3.many = lambda: Broken(s3)  # type: ignore[attr-defined]
    task = begin().task("1")
    write(task, "a.csv")
    raises(RuntimeError, write(task, "b.csv").wait, match="a bug")
    raises(RuntimeError, task.commit, match="a bug")
    assert not s3.open_uploads()


# Not well -----------------------------------------------------------------------------------------


def broken(s3: MemoryStore, task: mc.Task, verb: str) -> mc.UploadStream:
    """``a.csv``, closed by its writer, whose request then fails."""
    with Gate(s3, verb) as gate:
        file = write(task, "a.csv", b"lost")
        gate.wait()
        gate.fail()
        file.wait()
    s3.before = None
    return file


@pytest.mark.parametrize("verb", ["create_upload", "put_part"])
def test_a_failure_is_told_at_the_next_open_and_names_the_file(s3: MemoryStore, verb: str) -> None:
    """Once, by the next `open`; the file may then be written again under its name."""
    job = begin()
    task = job.task("1")
    broken(s3, task, verb)
    raises(mc.UploadFailed, task.open, "b.csv", match=r"s3://bucket/t/a\.csv failed: broken")
    assert not s3.open_uploads()
    write(task, "b.csv")
    write(task, "a.csv", b"again")
    job.commit([task.commit()])
    assert visible(s3) == {"t/a.csv": b"again", "t/b.csv": b"1"}


@pytest.mark.parametrize("verb", ["create_upload", "put_part"])
def test_a_failure_is_told_by_the_commit_and_aborts_the_attempt(s3: MemoryStore, verb: str) -> None:
    """Its own error, with a note that names the file; nothing of the attempt is left."""
    task = begin().task("1")
    write(task, "a.csv").wait()
    with Gate(s3, verb) as gate:
        write(task, "b.csv")
        gate.wait()
        gate.fail()
        raised = raises(mc.UploadFailed, task.commit, match=r"t/b\.csv failed: broken")
    assert any("t/b.csv" in note for note in raised.__notes__)
    assert not s3.open_uploads()
    raises(mc.TaskFailed, task.commit)


def test_a_second_close_raises_the_error_too(s3: MemoryStore) -> None:
    """Who closes twice is told then, not again by the next open, but by the commit."""
    task = begin().task("1")
    file = broken(s3, task, "put_part")
    assert not file.closed
    raises(mc.UploadFailed, file.close, match="broken")
    assert file.closed
    write(task, "b.csv")
    raises(mc.TaskFailed, task.commit, match=r"these files failed: a\.csv")
    assert not s3.open_uploads()


@pytest.mark.parametrize("verb", ["create_upload", "put_part"])
@pytest.mark.parametrize("by", ["abort", "the job's abort", "an exception", "Ctrl-C"])
def test_an_end_waits_for_what_is_under_way(s3: MemoryStore, verb: str, by: str) -> None:
    """However a task ends without a commit, closed files' uploads go, and nothing is sent later."""
    job = begin()
    error = {"an exception": ValueError, "Ctrl-C": KeyboardInterrupt}.get(by)
    with Gate(s3, verb) as gate:
        task = job.task("1")
        for n in range(3):
            write(task, f"{n}.csv")
        gate.wait(3)
        threading.Timer(0.05, gate.open.set).start()
        if by == "abort":
            task.abort()
        elif error is None:
            job.abort()
            raises(mc.JobNotRunning, task.commit)
        else:
            with pytest.raises(error), task:
                write(task, "3.csv")
                raise error
    assert not s3.open_uploads()
    count = s3.requests.total()
    time.sleep(0.02)
    assert s3.requests.total() == count
    raises(mc.MagicError, task.commit)
    job.abort()
    assert visible(s3) == {}


def test_an_interrupted_commit_leaves_nothing(s3: MemoryStore) -> None:
    """Ctrl-C while a commit waits for files that are under way aborts the attempt."""
    task = begin().task("1")
    with Gate(s3, "create_upload") as gate:
        for n in range(5):
            write(task, f"{n}.csv")
        gate.wait(5)

        def press() -> None:
            until(lambda: attempt_of(task._attempt)._turns._going[Doing.COMMIT])
            signal.raise_signal(signal.SIGINT)  # the main thread hears it before it goes on
            gate.open.set()

        threading.Thread(target=press).start()
        raises(KeyboardInterrupt, task.commit)
    assert not s3.open_uploads()
    raises(mc.TaskFailed, task.commit)


def test_ctrl_c_waits_once_for_all_files(s3: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    """One grace time for twenty Creates without answer; of each it says what it may leave."""
    with Gate(s3, "create_upload") as gate:
        with pytest.raises(KeyboardInterrupt), begin().task("1") as task:
            for n in range(20):
                write(task, f"{n}.csv")
            gate.wait(20)
            began = time.monotonic()
            raise KeyboardInterrupt
        assert time.monotonic() - began < 10  # one each: 16 seconds
    assert len([record for record in caplog.messages if "was not answered" in record]) == 20


def test_a_file_that_is_closed_while_its_task_commits_is_refused(s3: MemoryStore) -> None:
    """The late close raises, and the commit does not count without that file."""
    task = begin().task("1")
    late = task.open("late.csv")
    late.write(b"1")
    with Gate(s3, "create_upload *a.csv") as gate, ThreadPoolExecutor(1) as beside:
        write(task, "a.csv")
        gate.wait()
        committing = beside.submit(task.commit)
        until(lambda: attempt_of(task._attempt)._turns._going[Doing.COMMIT])
        raises(mc.TaskFailed, late.close, match="being committed")
        gate.open.set()
        raises(mc.TaskFailed, committing.result, 300, match=r"these files failed: late\.csv")
    assert not s3.open_uploads()


# Processes ----------------------------------------------------------------------------------------


def test_large_pendings_are_not_read_side_by_side(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a commit holds of its tree is bounded in bytes, whatever the number of threads."""
    monkeypatch.setattr(sets, "LOADING_BYTES_MAX", 1)
    job = mc.start(DEST)
    task = job.task("1", attempt="a")
    for name in "abcd":
        with task.open(f"{name}.csv") as f:
            f.write(b"1")
    under_way: list[int] = []
    read = threading.Lock()

    def before(request: Request) -> None:
        if request.verb == "get" and request.key.endswith(".pending"):
            under_way.append(read.acquire(blocking=False))
            time.sleep(0.02)  # so that the others come, if they are let

    def after(request: Request, reply: object) -> None:
        if request.verb == "get" and request.key.endswith(".pending"):
            read.release()

    s3.before, s3.after = before, after
    assert mc.attach(DEST, job.id).task("1", attempt="a").commit().files == 4
    assert under_way == [True] * 4


def test_threads_of_a_task_open_and_close_files_side_by_side(s3: MemoryStore) -> None:
    """Each `open` looks for files that have failed; two that look at once do not meet."""
    job = begin()
    switches = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with job.task(0) as task, ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(write, task, f"f-{n}") for n in range(400)]:
                done.result()
    finally:
        sys.setswitchinterval(switches)
    job.commit([task.result])
    assert len(visible(s3)) == 400


def test_a_file_that_is_aborted_while_it_is_under_way_is_not_published(s3: MemoryStore) -> None:
    """Giving up one closed file whose part is in flight leaves the others of its task."""
    job = begin()
    task = job.task("1")
    with Gate(s3, "put_part *a.csv") as gate:
        file = write(task, "a.csv")
        gate.wait()
        threading.Timer(0.05, gate.open.set).start()
        file.abort()
    assert file.state is FileState.ABORTED
    write(task, "b.csv")
    job.commit([task.commit()])
    assert visible(s3) == {"t/b.csv": b"1"}


EXIT = """
import atexit, sys, threading, time
import magic_committer as mc
from magic_committer.testing import memory_store
from magic_committer.upload import sender
with memory_store("bucket") as s3:
    task = mc.start("s3://bucket/t", track="memory", accept="results").task("1")
    arrived = threading.Semaphore(0)
    def slow(request):
        if request.verb == sys.argv[1]:
            arrived.release()
            time.sleep(0.3)
    s3.before = slow
    for n in range(3):
        with task.open(f"{n}.csv") as f:
            f.write(b"1")
    for n in range(3):
        arrived.acquire()
    atexit.unregister(sender._abort_what_is_open)
    sender._abort_what_is_open()
    print(len(s3.open_uploads()), {f.stream.state.value for f in task._attempt._files.values()})
"""


@pytest.mark.parametrize("verb", ["create_upload", "put_part"])
def test_the_end_of_the_interpreter_aborts_what_is_under_way(verb: str) -> None:
    """I4: a program that ends while closed files are being sent leaves no upload."""
    done = subprocess.run(
        [sys.executable, "-c", EXIT, verb], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "0 {'aborted'}\n", done.stderr
