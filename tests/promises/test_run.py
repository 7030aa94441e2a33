"""`run` on threads and on executors of a test's own, with the in-memory store."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest
import tenacity

import magic_committer as mc
from magic_committer.engines import items as engine_items
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, raises, raising, remains, until, visible

AT_ONCE = tenacity.Retrying(wait=tenacity.wait_none(), stop=tenacity.stop_never)
Run = Callable[..., mc.RunReport[Any]]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


@pytest.fixture
def run(s3: MemoryStore, threads: ThreadPoolExecutor) -> Run:
    """`mc.run` on those threads."""

    def call(fn: Any = write_number, items: Any = (1,), **more: Any) -> mc.RunReport[Any]:
        return mc.run(DEST, fn, items, **{"executor": threads, **more})

    return call


def write_number(task: mc.Task, number: int) -> int:
    with task.open(f"{number}.txt", "w", unique=True) as file:
        file.write(str(number))
    return number * 10


def generator(task: mc.Task, number: int) -> Iterator[int]:
    yield number


async def coroutine(task: mc.Task, number: int) -> None:
    pass


def nothing_is_left(s3: MemoryStore) -> bool:
    return not s3.keys() and not s3.open_uploads()


def test_each_item_is_a_task(s3: MemoryStore, run: Run) -> None:
    """The files of all are there; what fn returned comes in the order of the items."""
    report = run(items=range(100))
    assert (report.outcome, report.tasks, report.files) == ("committed", 100, 100)
    assert report.returned == tuple(range(0, 1000, 10))
    assert sorted(visible(s3).values()) == sorted(str(n).encode() for n in range(100))
    assert not s3.open_uploads()
    assert report.tries == 100
    assert "returned" not in report.to_dict()


def test_the_executor_of_the_caller_stays(run: Run, threads: ThreadPoolExecutor) -> None:
    """Two jobs, one executor; one that was made for the job is shut down."""
    made: list[ThreadPoolExecutor] = []

    def make() -> ThreadPoolExecutor:
        made.append(ThreadPoolExecutor(2))
        return made[-1]

    for executor in (threads, threads, make, ThreadPoolExecutor):
        run(executor=executor)
    assert threads.submit(int).result() == 0
    assert len(made) == 1
    raises(RuntimeError, made[0].submit, int, match="shutdown")


def test_items_may_be_a_long_generator(run: Run) -> None:
    """No more of it is read than is in flight."""
    ahead: list[int] = []
    done: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(200):
            ahead.append(number - len(done))
            yield number

    report = run(lambda task, number: done.append(number), numbers(), in_flight=8)
    assert len(report.returned) == 200
    assert max(ahead) <= 8


def test_progress_is_told(run: Run) -> None:
    """Each item that is done, of how many; None where nobody knows."""
    for items, total in ((range(5), 5), (iter(range(5)), None)):
        told: list[mc.Progress] = []
        run(items=items, progress=told.append)
        steps = [one for one in told if one.phase == "run"]
        assert [one.done for one in steps] == [1, 2, 3, 4, 5]
        assert {(one.total, one.unit) for one in steps} == {(total, "items")}


def test_modes_and_options_reach_the_job(s3: MemoryStore, run: Run) -> None:
    """``mode="replace"`` replaces; a local directory of a task is uploaded."""
    s3.put_object("t/old", b"old")

    def write(task: mc.Task, number: int) -> None:
        (task.directory() / f"{number}.txt").write_text("new")

    run(write, range(2), mode="replace", committer="directory", mark_success=False)
    assert set(s3.keys()) == {"t/0.txt", "t/1.txt"}


@pytest.mark.parametrize("policy", [None, tenacity.retry_if_exception_type(OSError)])
def test_an_item_that_never_succeeds_ends_the_job(
    s3: MemoryStore, run: Run, policy: tenacity.retry_if_exception_type | None
) -> None:
    """After three tries, or once where the caller's policy says so: which item, how often, why."""

    def write(task: mc.Task, number: int) -> None:
        write_number(task, number)
        if number == 7:
            raise ValueError("bad row")

    retry = tenacity.Retrying(retry=policy) if policy else AT_ONCE
    times = "once" if policy else "3 times"
    with pytest.raises(mc.TaskFailed, match=rf"item 7 .*failed {times}: ValueError: bad") as told:
        run(write, range(20), retry=retry)
    assert isinstance(told.value.__cause__, ValueError)
    assert nothing_is_left(s3)


@pytest.mark.parametrize("of", ["the items", "the executor"])
def test_an_error_that_is_no_items_ends_the_job(
    s3: MemoryStore, run: Run, threads: ThreadPoolExecutor, of: str
) -> None:
    """It goes to the caller as it is; a shut-down executor says so itself."""

    def numbers() -> Iterator[int]:
        yield 1
        raise LookupError("the list is gone")

    if of == "the executor":
        threads.shutdown()
    with pytest.raises((LookupError, RuntimeError), match="gone" if "i" in of else "shutdown"):
        run(items=numbers())
    assert nothing_is_left(s3)


def test_no_item_is_an_error(s3: MemoryStore, run: Run) -> None:
    """With mode ``replace`` a wrong list would else empty the table."""
    s3.put_object("t/old", b"old")
    raises(mc.IncompleteJob, run, items=[], mode="replace", match="no item")
    assert s3.keys() == ("t/old",)


def test_a_job_that_somebody_aborts_is_not_tried_again(s3: MemoryStore, run: Run) -> None:
    """The operator's abort is told, with the outcome."""

    def write(task: mc.Task, number: int) -> None:
        write_number(task, number)
        (found,) = mc.inspect(DEST)
        mc.abort(DEST, found.id)

    told = raises(mc.JobNotRunning, run, write, retry=AT_ONCE)
    assert told.outcome == "aborted"
    assert remains(s3)[:2] == ({}, [])


def test_a_commit_that_is_not_finished_keeps_what_fn_returned(s3: MemoryStore, run: Run) -> None:
    """The job is decided and never aborted; it is finished by `recover`."""
    s3.before = raising("complete_upload */1-*", mc.PermissionDenied("no"))
    told = raises(mc.CommitIncomplete, run, items=range(3))
    s3.before = None
    assert isinstance(told.report, mc.RunReport)
    assert told.report.returned == (0, 10, 20)
    assert mc.recover(DEST, told.job_id, dead_after=0).outcome == "committed"
    assert len(visible(s3)) == 3


def test_a_call_that_hears_nothing_gives_up(run: Run) -> None:
    """After `quiet_seconds_max`: which items are in flight."""
    ends = threading.Event()
    try:
        with pytest.raises(mc.TaskFailed, match=r"no try has ended for 1 s; .*items 0, 1") as told:
            run(lambda task, number: ends.wait(300), range(2), quiet_seconds_max=1)
    finally:
        ends.set()
    assert "quiet_seconds_max" in told.value.hint
    assert not mc.inspect(DEST) or mc.inspect(DEST)[0].state != "running"


@pytest.mark.parametrize(
    ("returned", "items", "says"),
    [
        (b"x" * 20_000, 1, "a bytes of 20,0.*10,000 bytes, pickled"),
        (b"x" * 3_000, 4, "returned 12,.*10,000 bytes, pickled"),
        (threading.Lock(), 1, "returned a lock that cannot be pickled"),
        (generator(None, 1), 1, "nobody runs"),  # type: ignore[arg-type]
    ],
    ids=["one is large", "all are large", "no pickle", "a generator"],
)
def test_what_fn_returns_is_bounded(
    s3: MemoryStore, run: Run, monkeypatch: pytest.MonkeyPatch, returned: object, items: int,
    says: str,
) -> None:  # fmt: skip
    """One value, or all, and it must pickle on threads too: the job is aborted, not decided."""
    monkeypatch.setattr(engine_items, "RETURNED_BYTES_MAX", 10_000)

    def write(task: mc.Task, number: int) -> object:
        write_number(task, number)
        return returned

    raises(mc.TaskFailed, run, write, range(items), retry=AT_ONCE, match=says)
    assert nothing_is_left(s3)


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"executor": 4}, "executor is an Executor"),
    ({"items": "abc"}, "items is a list"),
    ({"items": 3}, "items is a list"),
    ({"fn": 3}, "needs a function"),
    ({"fn": generator}, "nobody runs"),
    ({"fn": coroutine}, "nobody runs"),
    ({"in_flight": 0}, "in_flight=0"),
    ({"tries_max": 0}, "tries_max=0"),
    ({"tries_max": True}, "tries_max is a whole number"),
    ({"speculate": 0.5}, "speculate=0.5"),
    ({"speculate": "3"}, "speculate is a number"),
    ({"quiet_seconds_max": 0}, "quiet_seconds_max=0"),
    ({"retry": 3}, "retry is a tenacity.Retrying"),
    ({"retry": tenacity.AsyncRetrying()}, "retry is a tenacity.Retrying"),
    ({"mode": "apend"}, "'append'"),
)


@pytest.mark.parametrize(("wrong", "says"), WRONG)
def test_a_wrong_argument_is_refused(
    s3: MemoryStore, run: Run, wrong: dict[str, Any], says: str
) -> None:
    """What it got and what to pass; no request is sent."""
    raises(mc.OptionError, run, **wrong, match=says)
    assert not s3.requests


class Remembering(ThreadPoolExecutor):
    """Threads that keep the futures of what they were given."""

    given: tuple[Future[Any], ...] = ()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        self.given = (*self.given, super().submit(fn, *args, **more))
        return self.given[-1]


def test_ctrl_c_ends_it(s3: MemoryStore, run: Run) -> None:
    """A real signal: what has not begun never begins; a try that goes on leaves nothing open."""
    goes_on = threading.Event()
    begun: list[int] = []

    def write(task: mc.Task, number: int) -> None:
        begun.append(number)
        with task.open(f"{number}.txt") as file:
            file.write(b"x")
            goes_on.wait(300)

    def press() -> None:
        until(lambda: (len(begun), len(executor.given)) == (2, 64))
        time.sleep(0.2)  # it waits for them
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident or 0
    executor = Remembering(2)
    threading.Thread(target=press).start()
    try:
        told = raises(KeyboardInterrupt, run, write, range(100), executor=executor)
        assert not goes_on.is_set()
        assert any("is aborted" in note for note in told.__notes__)
        assert visible(s3) == {}
        assert [future.cancelled() for future in executor.given] == [False] * 2 + [True] * 62
    finally:
        goes_on.set()
        executor.shutdown(wait=True)
    assert len(begun) == 2
    assert nothing_is_left(s3)


class Breaking(Executor):
    """Runs calls at once; breaks for good at the calls that it is told."""

    def __init__(self, breaks: Callable[[], bool] = lambda: True, at_submit: bool = False) -> None:
        self.breaks = breaks
        self.at_submit = at_submit
        self.broken = False

    def shutdown(self, wait: bool = True) -> None:  # type: ignore[override]  # as loky's
        """Nothing runs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        self.broken = self.broken or self.breaks()
        if self.broken and self.at_submit:
            raise BrokenExecutor("a worker is gone")
        future: Future[Any] = Future()
        try:
            if self.broken:
                raise BrokenExecutor("a worker is gone")
            future.set_result(fn(*args, **more))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.mark.parametrize("at_submit", [False, True])
def test_a_broken_executor_is_replaced(s3: MemoryStore, run: Run, at_submit: bool) -> None:
    """By the caller's function; each item is there once."""
    calls = Counter[str]()

    def breaks() -> bool:
        calls["submit"] += 1
        return calls["submit"] in (3, 8)

    def make() -> Executor:
        calls["made"] += 1
        return Breaking(breaks, at_submit)

    report = run(items=range(10), executor=make, in_flight=2)
    assert calls["made"] == 3
    assert report.returned == tuple(range(0, 100, 10))
    assert len(visible(s3)) == 10


@pytest.mark.parametrize("at_submit", [False, True])
def test_a_broken_executor_ends_the_job(s3: MemoryStore, run: Run, at_submit: bool) -> None:
    """The error says what broke, and how to let the call replace it."""
    with pytest.raises(mc.TaskFailed, match=r"the executor broke.*a worker is gone") as told:
        run(items=range(10), executor=Breaking(at_submit=at_submit))
    assert "executor=lambda: ProcessPoolExecutor" in told.value.hint
    assert isinstance(told.value.__cause__, BrokenExecutor)
    assert nothing_is_left(s3)
