"""One handle, several threads or a signal handler: a commit has it all, or refuses it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import FileStillOpen, MagicError, TaskFailed, Unanswered
from magic_committer.options import Track
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import attempt_of, upload_of
from tests.promises import hands
from tests.promises.hands import DEST, At, Nth, believing, raises, remains, unanswered

TRACKS: tuple[Track, ...] = ("memory", "s3")


def record_head(request: Request) -> bool:
    return request.verb == "head" and request.key.endswith("_job.json")


def _raised(step: Callable[[], Any]) -> BaseException | None:
    try:
        step()
    except BaseException as error:
        return error
    return None


def elsewhere(step: Callable[[], Any]) -> BaseException | None:
    """What ``step`` raises in another thread; None if it returns."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(step).exception(300)


def one_file(job: mc.Job) -> mc.Task:
    """An attempt of its own, with one file that is stored."""
    task = hands.one_file(job)
    hands.stored(task)
    return task


BESIDE: dict[str, tuple[Callable[[mc.Task], object], str]] = {
    "abort": (lambda task: task.abort(), "is being committed"),
    "commit": (lambda task: task.commit(), ""),
    "open": (lambda task: task.open("b.csv"), "accepts no more files"),
}


@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize("where", [elsewhere, _raised], ids=["another thread", "a signal handler"])
@pytest.mark.parametrize("call", BESIDE)
def test_nothing_is_done_beside_a_commit(
    s3: MemoryStore, call: str, where: Callable[[Callable[[], Any]], object], track: Track
) -> None:
    """It can be aborted, committed or added to by nobody; repeated, it gives the same result."""
    job = mc.start(DEST, accept="results", track=track)
    task = one_file(job)
    believing(s3)
    step, says = BESIDE[call]
    told: list[object] = []
    At(s3, record_head, lambda: told.append(where(lambda: step(task))))
    result = task.commit()
    assert isinstance(told[0], TaskFailed)
    assert says in str(told[0])
    assert task.commit() is result
    assert job.commit([result]).outcome == "committed"
    assert remains(s3)[:2] == ({"t/a.csv": b"1"}, [])


@pytest.mark.parametrize("number", range(1, 8))
def test_an_abort_that_is_slow_keeps_a_commit_out(s3: MemoryStore, number: int) -> None:
    """Before each request of an abort another thread's commit is refused."""
    task = one_file(mc.start(DEST))
    told: list[BaseException | None] = []
    mine, nth = threading.current_thread(), Nth(number)
    at = At(
        s3,
        lambda _: threading.current_thread() is mine and nth(_),
        lambda: told.append(elsewhere(task.commit)),
    )
    task.abort()
    assert at.done or number > 4  # the abort needs as many requests at least
    assert all(isinstance(error, TaskFailed) for error in told)
    assert not task.committed
    assert s3.open_uploads() == ()


def test_two_aborts_beside_each_other_end_well(s3: MemoryStore) -> None:
    """An abort beside an abort is no error."""
    task = one_file(mc.start(DEST, track="memory", accept="results"))
    told: list[BaseException | None] = []
    At(s3, "abort_upload", lambda: told.append(elsewhere(task.abort)))
    task.abort()
    assert told == [None]
    assert s3.open_uploads() == ()


def test_an_interrupted_commit_can_be_repeated(s3: MemoryStore) -> None:
    """A commit that ended by Ctrl-C is not being committed any more."""
    job = mc.start(DEST)
    task = one_file(job)
    At(s3, "put *.pendingset", KeyboardInterrupt(), after=True)
    raises(KeyboardInterrupt, task.commit)
    assert task.commit().files == 1
    assert job.commit().files == 1


@pytest.mark.parametrize("track", TRACKS)
def test_a_file_that_is_closing_as_commit_begins_is_not_lost_silently(
    s3: MemoryStore, track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where commit finds a file that is closing, commit and close both say so."""
    task = one_file(mc.start(DEST, accept="results", track=track))
    late = task.open("b.csv")
    late.write(b"2")
    upload_of(late)._sender.created()  # as of a large file: its close waits
    parked, go_on = threading.Event(), threading.Event()

    def park() -> None:
        parked.set()
        assert go_on.wait(300)

    At(s3, "put_part *b.csv", park)
    attempt = type(attempt_of(task._attempt))
    look = attempt._refuse_lost_files

    def switch(self: Any, files: Any) -> None:
        go_on.set()
        closing.exception(300)
        look(self, files)

    monkeypatch.setattr(attempt, "_refuse_lost_files", switch)
    with ThreadPoolExecutor(1) as beside:
        closing = beside.submit(late.close)
        assert parked.wait(300)
        raises((TaskFailed, FileStillOpen), task.commit, match=r"b\.csv")
    raises(TaskFailed, closing.result, match="being committed")
    assert s3.open_uploads() == ()


def test_a_file_opened_beside_an_abort_is_refused(s3: MemoryStore) -> None:
    """An abort that has begun to ask the store takes no file more: the caller is told at once."""
    task = one_file(mc.start(DEST))
    raised: list[BaseException | None] = []
    At(s3, "put *.pendingset", lambda: raised.append(_raised(lambda: task.open("b.csv"))))
    task.abort()
    assert [str(error).partition(",")[0][-13:] for error in raised] == ["being aborted"]
    assert s3.open_uploads() == ()


def close_without_answer(s3: MemoryStore, task: mc.Task, *, stored: bool) -> None:
    """Close a file whose `.pending` gets no answer."""
    At(s3, "put *.pending", unanswered, after=stored)
    file = task.open("a.csv")
    file.write(b"cut")
    raises(Unanswered, file.close)
    s3.before = s3.after = None


@pytest.mark.parametrize("stored", [False, True])
def test_a_file_whose_close_got_no_answer_is_written_anew(s3: MemoryStore, stored: bool) -> None:
    """An attempt of one handle survives it, and does not travel: its tree may name what is gone."""
    job = mc.start(DEST)
    task = job.task("1")
    close_without_answer(s3, task, stored=stored)
    raises(TaskFailed, pickle.dumps, task, match="cannot go to another process")
    with task.open("a.csv") as f:
        f.write(b"whole")
    task.commit()
    assert job.commit().files == 1
    assert remains(s3)[:2] == ({"t/a.csv": b"whole"}, [])


def test_a_shared_attempt_that_is_dead_says_so_at_the_next_open(s3: MemoryStore) -> None:
    """Nobody writes a second file into an attempt that can never be committed."""
    task = mc.start(DEST).task("1", attempt="a")
    close_without_answer(s3, task, stored=False)
    raises(TaskFailed, task.open, "a.csv", match="can never be committed")
    raises(MagicError, task.commit)
    assert s3.open_uploads() == ()
