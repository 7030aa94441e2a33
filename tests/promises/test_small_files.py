"""Small files of a task are sent beside the caller; what was promised of a closed file holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import magic_committer as mc
from magic_committer import _wiring
from magic_committer.committers.magic import closings, saved
from magic_committer.options import MiB
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.upload import FileState
from magic_committer.upload.blocks import BlockSource
from tests.at_once import Overlapping
from tests.concrete import attempt_of, upload_of
from tests.promises.hands import DEST, visible


@pytest.fixture(params=["a thread for each file", "one thread for all"])
def s3(request: pytest.FixtureRequest, s3: MemoryStore) -> MemoryStore:
    """Both ways in which files are sent beside the caller."""
    if "all" in request.param:
        s3.many = lambda: Overlapping(s3)  # type: ignore[attr-defined]
    return s3


def begin() -> mc.Job:
    return mc.start(DEST, track="memory", accept="results")


def write(task: mc.Task, name: str, body: bytes = b"1") -> mc.UploadStream:
    with task.open(name) as f:
        f.write(body)
    return upload_of(f)


class Gate:
    """Holds the requests that fit until it is opened."""

    def __init__(self, store: MemoryStore, fits: Callable[[Request], bool]) -> None:
        self.open = threading.Event()
        self.held: list[Request] = []
        self.error: Exception | None = None
        """What the held requests raise in the place of taking effect."""
        self._fits = fits
        store.before = self._before

    def _before(self, request: Request) -> None:
        if self._fits(request):
            self.held.append(request)
            assert self.open.wait(300)
            if self.error is not None:
                raise self.error

    def fail(self, error: Exception) -> None:
        self.error = error
        self.open.set()

    def wait(self, count: int = 1) -> None:
        ends = time.monotonic() + 300
        while len(self.held) < count:
            assert time.monotonic() < ends
            time.sleep(0.001)


@contextmanager
def held(store: MemoryStore, fits: Callable[[Request], bool]) -> Iterator[Gate]:
    """A gate that is open at the end, whatever happens."""
    gate = Gate(store, fits)
    try:
        yield gate
    finally:
        gate.open.set()


def is_verb(verb: str, key: str = "") -> Callable[[Request], bool]:
    return lambda request: request.verb == verb and key in request.key


# Well ---------------------------------------------------------------------------------------------


def test_a_small_file_is_closed_before_its_requests_are_answered(s3: MemoryStore) -> None:
    """Twenty files are closed while none of their Creates is answered; the commit waits for all of
    them, and the job publishes all."""
    job = begin()
    with held(s3, is_verb("create_upload")) as gate:
        task = job.task("1")
        for n in range(20):
            assert write(task, f"{n}.csv", b"%d" % n).closed
        gate.wait(20)
        done: list[mc.TaskCommit] = []
        committing = threading.Thread(target=lambda: done.append(task.commit()))
        committing.start()
        committing.join(0.05)
        assert not done
        gate.open.set()
        committing.join(300)
    assert done[0].files == 20
    job.commit(done)
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


def test_the_create_of_a_larger_file_is_sent_before_its_first_block_is_full(
    s3: MemoryStore,
) -> None:
    """Half a block shows that the file will not end in it soon: its Create is on the way while the
    other half fills, and its close waits."""
    task = begin().task("1")
    file = task.open("a.csv")
    file.write(bytes(4 * MiB))
    upload_of(file)._sender.created()
    assert s3.requests["create_upload"] == 1
    file.write(bytes(6 * MiB))
    file.close()
    assert file.state is FileState.PENDING
    assert task.commit().bytes == 10 * MiB


def test_no_more_files_are_sent_at_once_than_allowed(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close waits for the oldest file that is under way when there are as many as may be."""
    monkeypatch.setattr(closings, "FILES_MAX", 3)
    task = begin().task("1")
    with held(s3, is_verb("create_upload")) as gate:
        for n in range(3):
            write(task, f"{n}.csv")
        closing = threading.Thread(target=write, args=(task, "3.csv"))
        closing.start()
        gate.wait(3)
        closing.join(0.05)
        assert closing.is_alive()
        assert len(gate.held) == 3
        gate.open.set()
        closing.join(300)
    assert task.commit().files == 4


def test_one_thread_sends_all_small_files_where_the_store_can_do_that(s3: MemoryStore) -> None:
    """Files of up to 1 MiB share a thread; a larger one has its own, and ends before them."""
    s3.many = lambda: Overlapping(s3)  # type: ignore[attr-defined]
    task = begin().task("1")
    threads: dict[str, int] = {}

    def close(name: str, body: bytes) -> mc.UploadStream:
        file = upload_of(task.open(name))
        file.when_pending(lambda: threads.setdefault(name, threading.get_ident()))
        file.write(body)
        file.close()
        return file

    with held(s3, is_verb("create_upload", "small")) as gate:
        for n in range(20):
            close(f"small-{n}", b"1")
        gate.wait(20)
        close("large", bytes(2 * MiB)).wait()
        assert set(threads) == {"large"}
        gate.open.set()
        assert task.commit().files == 21
    large = threads.pop("large")
    assert len(threads) == 20
    assert len({*threads.values(), large}) == 2


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
    with pytest.raises(RuntimeError, match="a bug"):
        write(task, "b.csv").wait()
    with pytest.raises(RuntimeError, match="a bug"):
        task.commit()
    assert not s3.open_uploads()


def test_what_waits_to_be_sent_holds_half_of_the_memory_for_blocks(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close waits when the files under way and its own hold more; the other half is for the
    files that are being written."""
    monkeypatch.setattr(_wiring, "blocks", BlockSource())  # the process's may be in use
    options = mc.Options(buffer_bytes_max=4 * 64 * 1024)
    job = mc.start(DEST, track="memory", accept="results", options=options)
    task = job.task("1")
    with held(s3, is_verb("create_upload")) as gate:
        write(task, "0.csv")
        write(task, "1.csv")
        closing = threading.Thread(target=write, args=(task, "2.csv"))
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
        gate.open.set()
        closing.join(300)
    assert task.commit().files == 3


# Not well -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["create_upload", "put_part"])
def test_a_failure_is_told_at_the_next_open_and_names_the_file(s3: MemoryStore, verb: str) -> None:
    """The error of a closed file is raised once by the next `open`; the file may then be written
    again under its name."""
    job = begin()
    task = job.task("1")
    with held(s3, is_verb(verb)) as gate:
        file = write(task, "a.csv", b"lost")
        gate.wait()
        gate.fail(mc.StoreError("broken", operation=verb))
        file.wait()
    s3.before = None
    with pytest.raises(mc.UploadFailed, match=r"s3://bucket/t/a\.csv failed: broken"):
        task.open("b.csv")
    assert not s3.open_uploads()
    write(task, "b.csv")
    write(task, "a.csv", b"again")
    job.commit([task.commit()])
    assert visible(s3) == {"t/a.csv": b"again", "t/b.csv": b"1"}


@pytest.mark.parametrize("verb", ["create_upload", "put_part"])
def test_a_failure_is_told_by_the_commit_and_aborts_the_attempt(s3: MemoryStore, verb: str) -> None:
    """If nothing else was called, the commit raises the file's own error with a note that names
    it; nothing of the attempt is left."""
    task = begin().task("1")
    write(task, "a.csv").wait()
    with held(s3, is_verb(verb)) as gate:
        write(task, "b.csv")
        gate.wait()
        gate.fail(mc.StoreError("broken", operation=verb))
        with pytest.raises(mc.UploadFailed, match=r"t/b\.csv failed: broken") as raised:
            task.commit()
    assert any("t/b.csv" in note for note in raised.value.__notes__)
    assert not s3.open_uploads()
    with pytest.raises(mc.TaskFailed):
        task.commit()


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


def test_a_second_close_raises_the_error_too(s3: MemoryStore) -> None:
    """A wrapper that closes twice, or a caller who wants to be sure, is not told that all is
    well; what was told so is not told again by the next open, but by the commit."""
    task = begin().task("1")
    with held(s3, is_verb("put_part")) as gate:
        file = write(task, "a.csv")
        gate.wait()
        gate.fail(mc.StoreError("broken", operation="put_part"))
        file.wait()
    s3.before = None
    assert not file.closed
    with pytest.raises(mc.UploadFailed, match="broken"):
        file.close()
    assert file.closed
    write(task, "b.csv")
    with pytest.raises(mc.TaskFailed, match=r"these files failed: a\.csv"):
        task.commit()
    assert not s3.open_uploads()


def test_a_late_task_is_told_so_by_its_commit(s3: MemoryStore) -> None:
    """The job is aborted while files are under way: their uploads are aborted, and the commit says
    that the job takes no more work."""
    job = begin()
    task = job.task("1")
    with held(s3, is_verb("create_upload")) as gate:
        write(task, "a.csv")
        write(task, "b.csv")
        gate.wait(2)
        job.abort()
        gate.open.set()
        with pytest.raises(mc.JobNotRunning):
            task.commit()
    assert not s3.open_uploads()
    assert visible(s3) == {}


@pytest.mark.parametrize("verb", ["create_upload", "put_part"])
@pytest.mark.parametrize("by", ["abort", "an exception", "Ctrl-C"])
def test_an_abort_waits_for_what_is_under_way_and_leaves_nothing(
    s3: MemoryStore, verb: str, by: str
) -> None:
    """However a task ends without a commit, the uploads of the files that it had closed are
    aborted, also those whose requests are in flight; nothing is sent after that."""
    job = begin()
    error = {"an exception": ValueError, "Ctrl-C": KeyboardInterrupt}.get(by)
    with held(s3, is_verb(verb)) as gate:
        task = job.task("1")

        def leave() -> None:
            if error is None:
                task.abort()
                return
            with pytest.raises(error), task:
                for n in range(3, 6):
                    write(task, f"{n}.csv")
                raise error

        for n in range(3):
            write(task, f"{n}.csv")
        gate.wait(3)
        threading.Timer(0.05, gate.open.set).start()
        leave()
    assert not s3.open_uploads()
    count = sum(s3.requests.values())
    time.sleep(0.02)
    assert sum(s3.requests.values()) == count
    with pytest.raises(mc.TaskFailed):
        task.commit()
    job.abort()


def test_an_interrupted_commit_leaves_nothing(s3: MemoryStore) -> None:
    """Ctrl-C while a commit waits for files that are under way aborts the attempt."""
    task = begin().task("1")
    with held(s3, is_verb("create_upload")) as gate:
        for n in range(5):
            write(task, f"{n}.csv")
        gate.wait(5)

        def press() -> None:
            while attempt_of(task._attempt)._turns._committing == set():
                time.sleep(0.001)
            signal.raise_signal(signal.SIGINT)  # the main thread hears it before it goes on
            gate.open.set()

        threading.Thread(target=press).start()
        with pytest.raises(KeyboardInterrupt):
            task.commit()
    assert not s3.open_uploads()
    with pytest.raises(mc.TaskFailed):
        task.commit()


def test_ctrl_c_waits_once_for_all_files_that_the_store_leaves_unanswered(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Twenty Creates are never answered: Ctrl-C gives up on all of them after one grace time, not
    after one each, and says of each that it may leave an upload."""
    with held(s3, is_verb("create_upload")) as gate:
        task = begin().task("1")
        began = 0.0
        with pytest.raises(KeyboardInterrupt), task:
            for n in range(20):
                write(task, f"{n}.csv")
            gate.wait(20)
            began = time.monotonic()
            raise KeyboardInterrupt
        assert time.monotonic() - began < 10  # one each: 16 seconds
    told = [record for record in caplog.messages if "was not answered" in record]
    assert len(told) == 20


def test_a_file_that_is_aborted_while_it_is_under_way_is_not_published(s3: MemoryStore) -> None:
    """Giving up one closed file whose part is in flight leaves the others of its task."""
    job = begin()
    task = job.task("1")
    with held(s3, is_verb("put_part", "a.csv")) as gate:
        file = write(task, "a.csv")
        gate.wait()
        threading.Timer(0.05, gate.open.set).start()
        file.abort()
    assert file.state is FileState.ABORTED
    write(task, "b.csv")
    job.commit([task.commit()])
    assert visible(s3) == {"t/b.csv": b"1"}


def test_a_file_that_is_closed_while_its_task_commits_is_refused(s3: MemoryStore) -> None:
    """A commit that waits for files under way takes no more: the late close raises, and the commit
    does not count without that file."""
    task = begin().task("1")
    late = task.open("late.csv")
    late.write(b"1")
    failures: list[BaseException] = []

    def commit() -> None:
        try:
            task.commit()
        except mc.TaskFailed as error:
            failures.append(error)

    with held(s3, is_verb("create_upload", "a.csv")) as gate:
        write(task, "a.csv")
        gate.wait()
        committing = threading.Thread(target=commit)
        committing.start()
        while attempt_of(task._attempt)._turns._committing == set():
            time.sleep(0.001)
        with pytest.raises(mc.TaskFailed, match="being committed"):
            late.close()
        gate.open.set()
        committing.join(300)
    assert ["these files failed: late.csv" in str(error) for error in failures] == [True]
    assert not s3.open_uploads()


# Processes ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_between_close_and_commit_changes_nothing(s3: MemoryStore) -> None:
    """A child that is forked while files are under way can neither commit nor abort them; the
    parent commits all."""
    job = begin()
    task = job.task("1")
    with held(s3, is_verb("put_part")) as gate:
        files = [write(task, f"{n}.csv") for n in range(4)]
        gate.wait(4)
        child = os.fork()
        if child == 0:
            told = 0
            for call in (task.commit, task.abort, lambda: task.open("x.csv"), files[0].abort):
                try:
                    call()
                except (mc.TaskFailed, mc.WrongProcess):
                    told += 1
            os._exit(told)
        _, status = os.waitpid(child, 0)
        gate.open.set()
    assert os.waitstatus_to_exitcode(status) == 4
    job.commit([task.commit()])
    assert len(visible(s3)) == 4


EXIT = """
import sys, threading, time
import magic_committer as mc
from magic_committer.testing import memory_store

with memory_store("bucket") as s3:
    if MANY:
        from tests.at_once import Overlapping
        s3.many = lambda: Overlapping(s3)
    task = mc.start("s3://bucket/t", track="memory", accept="results").task("1")
    arrived = threading.Semaphore(0)

    def slow(request):
        if request.verb == VERB:
            arrived.release()
            time.sleep(0.3)

    s3.before = slow
    for n in range(3):
        with task.open(f"{n}.csv") as f:
            f.write(b"1")
    for n in range(3):
        arrived.acquire()
    import atexit
    from magic_committer.upload import sender
    atexit.unregister(sender._abort_what_is_open)
    sender._abort_what_is_open()
    print(len(s3.open_uploads()), {f.stream.state.value for f in task._attempt._files.values()})
"""


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("verb", ["create_upload", "put_part"])
def test_the_end_of_the_interpreter_aborts_what_is_under_way(verb: str, many: bool) -> None:
    """A program that ends without a commit while closed files are being sent leaves no upload."""
    done = subprocess.run(
        [sys.executable, "-c", EXIT.replace("VERB", repr(verb)).replace("MANY", str(many))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "0 {'aborted'}\n", done.stderr


def test_large_pendings_are_not_read_side_by_side(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a commit holds of its tree is bounded in bytes, whatever the number of threads."""
    monkeypatch.setattr(saved, "LOADING_BYTES_MAX", 1)
    job = mc.start(DEST)
    task = job.task("1", attempt="a")
    for name in "abcd":
        with task.open(f"{name}.csv") as f:
            f.write(b"1")
    lock = threading.Lock()
    now = most = 0

    def before(request: Request) -> None:
        nonlocal now, most
        if request.verb == "get" and request.key.endswith(".pending"):
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.02)  # so that the others come, if they are let
            with lock:
                now -= 1

    s3.before = before
    assert mc.attach(DEST, job.id).task("1", attempt="a").commit().files == 4
    s3.before = None
    assert most == 1
