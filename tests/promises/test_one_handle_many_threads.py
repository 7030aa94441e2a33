"""One handle, several threads or a signal handler: a commit has it all, or refuses it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import FileStillOpen, MagicError, TaskFailed, Unanswered
from magic_committer.options import Track
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import attempt_of, upload_of
from tests.promises.hands import DEST, At, unanswered, visible

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
    raised: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: raised.append(_raised(step)))
    thread.start()
    thread.join(300)
    assert not thread.is_alive()
    return raised[0]


def one_file(job: mc.Job) -> mc.Task:
    """An attempt of its own, with one closed file."""
    task = job.task("1")
    with task.open("a.csv") as f:
        f.write(b"1")
    upload_of(f).wait()
    return task


def believe_every_abort(s3: MemoryStore) -> None:
    """From now on the abort of a completed upload takes its object away (docs/stores.md)."""
    made: dict[str, str] = {}

    def after(request: Request, reply: Any) -> None:
        if request.verb == "complete_upload":
            made[request.upload_id] = request.key
        if request.verb == "abort_upload" and request.upload_id in made:
            s3.delete_object(made[request.upload_id])

    s3.after = after


BESIDE: dict[str, tuple[Callable[[mc.Task], object], str]] = {
    "abort": (lambda task: task.abort(), "is being committed"),
    "commit": (lambda task: task.commit(), ""),
    "open": (lambda task: task.open("b.csv"), "takes no more files"),
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
    believe_every_abort(s3)
    step, says = BESIDE[call]
    told: list[object] = []
    At(s3, record_head, lambda: told.append(where(lambda: step(task))))
    result = task.commit()
    assert isinstance(told[0], TaskFailed)
    assert says in str(told[0])
    assert task.commit() is result
    assert job.commit([result]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("number", range(1, 8))
def test_an_abort_that_is_slow_keeps_a_commit_out(s3: MemoryStore, number: int) -> None:
    """Before each request of an abort another thread's commit is refused."""
    job = mc.start(DEST)
    task = one_file(job)
    told: list[BaseException | None] = []
    seen = 0

    def before(request: Request) -> None:
        nonlocal seen
        if threading.current_thread() is threading.main_thread():
            seen += 1
            if seen == number:
                told.append(elsewhere(task.commit))

    s3.before = before
    task.abort()
    s3.before = None
    if number <= 4:
        assert told  # the abort needs as many requests at least
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

    def interrupt() -> None:
        raise KeyboardInterrupt

    seen = [request_of_set_stored(s3, interrupt)]
    with pytest.raises(KeyboardInterrupt):
        task.commit()
    assert seen[0].done
    s3.after = None
    assert task.commit().files == 1
    assert job.commit().files == 1


def request_of_set_stored(s3: MemoryStore, deed: Callable[[], Any]) -> At:
    """Does it after the `.pendingset` was stored."""
    return At(s3, "put *.pendingset", deed, after=True)


@pytest.mark.parametrize("track", TRACKS)
def test_a_file_that_is_closing_as_commit_begins_is_not_lost_silently(
    s3: MemoryStore, track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where commit finds a file that is closing, commit and close both say so."""
    job = mc.start(DEST, accept="results", track=track)
    task = one_file(job)
    late = task.open("b.csv")
    late.write(b"2")
    upload_of(late)._sender.created()  # as of a large file: its close waits
    parked, go_on = threading.Event(), threading.Event()
    closed: list[BaseException | None] = []

    def before(request: Request) -> None:
        if request.verb == "put_part" and request.key.endswith("b.csv"):
            parked.set()
            assert go_on.wait(300)

    s3.before = before
    closer = threading.Thread(target=lambda: closed.append(_raised(late.close)))
    closer.start()
    assert parked.wait(300)
    attempt = type(attempt_of(task._attempt))
    look = attempt._refuse_lost_files

    def switch(self: Any, files: Any) -> None:
        go_on.set()
        closer.join(300)
        look(self, files)

    monkeypatch.setattr(attempt, "_refuse_lost_files", switch)
    with pytest.raises((TaskFailed, FileStillOpen), match=r"b\.csv"):
        task.commit()
    assert isinstance(closed[0], TaskFailed)
    assert "being committed" in str(closed[0])
    assert s3.open_uploads() == ()


def test_a_file_opened_beside_an_abort_is_refused(s3: MemoryStore) -> None:
    """An abort that has begun to ask the store takes no file more: the caller is told at once."""
    task = one_file(mc.start(DEST))
    raised: list[BaseException | None] = []
    At(s3, "put *.pendingset", lambda: raised.append(_raised(lambda: task.open("b.csv"))))
    task.abort()
    assert [str(error).partition(",")[0][-13:] for error in raised] == ["being aborted"]
    assert s3.open_uploads() == ()


def test_a_file_that_closes_between_two_looks_of_commit_is_in_it(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit looks at the files' states first and collects afterwards: none is lost."""
    job = mc.start(DEST, accept="results", track="memory")
    task = one_file(job)
    late = task.open("b.csv")
    late.write(b"2")
    upload_of(late)._sender.created()  # as of a large file: its close waits
    recorded, go_on = threading.Event(), threading.Event()
    stream = type(late)
    on_close = upload_of(late)._on_close

    def slow(finished: Any) -> None:
        on_close(finished)
        recorded.set()
        assert go_on.wait(300)

    monkeypatch.setattr(late, "_on_close", slow)
    closer = threading.Thread(target=late.close)
    closer.start()
    assert recorded.wait(300)
    attempt = type(attempt_of(task._attempt))
    look = attempt._refuse_lost_files

    def switch(self: Any, files: Any) -> None:
        go_on.set()
        closer.join(300)
        look(self, files)

    monkeypatch.setattr(attempt, "_refuse_lost_files", switch)
    assert isinstance(late, stream)
    assert job.commit([task.commit()]).files == 2


def is_pending(request: Request) -> bool:
    return request.verb == "put" and request.key.endswith(".pending")


@pytest.mark.parametrize("stored", [False, True])
def test_a_file_whose_close_was_not_answered_is_written_again(
    s3: MemoryStore, stored: bool
) -> None:
    """An attempt that no other handle goes by survives one `.pending` without an answer."""
    job = mc.start(DEST)
    task = job.task("1")
    At(s3, is_pending, unanswered, after=stored)
    first = task.open("a.csv")
    first.write(b"cut")
    with pytest.raises(Unanswered):
        first.close()
    with task.open("a.csv") as f:
        f.write(b"whole")
    task.commit()
    assert job.commit().files == 1
    assert visible(s3) == {"t/a.csv": b"whole"}
    assert s3.open_uploads() == ()


def test_a_task_with_a_close_without_answer_does_not_travel(s3: MemoryStore) -> None:
    """Nobody else gets an attempt whose tree may name an upload that was aborted."""

    task = mc.start(DEST).task("1")
    At(s3, is_pending, unanswered, after=True)
    file = task.open("a.csv")
    file.write(b"1")
    with pytest.raises(Unanswered):
        file.close()
    with pytest.raises(TaskFailed, match="cannot go to another process"):
        pickle.dumps(task)


def test_a_shared_attempt_that_is_dead_says_so_at_the_next_open(s3: MemoryStore) -> None:
    """Nobody writes a second file into an attempt that can never be committed."""
    task = mc.start(DEST).task("1", attempt="a")
    At(s3, is_pending, unanswered)
    file = task.open("a.csv")
    file.write(b"1")
    with pytest.raises(Unanswered):
        file.close()
    with pytest.raises(TaskFailed, match="can never be committed"):
        task.open("a.csv")
    with pytest.raises(MagicError):
        task.commit()
    assert s3.open_uploads() == ()


def test_a_refused_set_does_not_reopen_one_that_may_land(s3: MemoryStore) -> None:
    """A set that was sent without an answer stays sent, also when the next try is refused."""
    job = mc.start(DEST, track="memory", accept="listing")
    task = one_file(job)
    kept: list[Request] = []
    refuse = False

    def before(request: Request) -> None:
        if request.verb == "put" and request.key.endswith(".pendingset"):
            if refuse:
                raise mc.errors.PermissionDenied("403", status=403)
            kept.append(request)
            raise Unanswered("no answer")

    s3.before = before
    with pytest.raises(Unanswered):
        task.commit()
    refuse = True
    with pytest.raises(mc.errors.PermissionDenied):
        task.commit()
    s3.before = None
    kept[0].effect()
    assert job.commit().files == 1
    assert visible(s3) == {"t/a.csv": b"1"}
