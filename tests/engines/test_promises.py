"""What is promised of every engine, by one parameter: `run`, Dask, Ray's sink, Spark's calls and
its data source. Each is driven here without its cluster; the other tests here, tests/spark,
tests/cluster and tests/running meet the real ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
import tenacity

import magic_committer as mc
from magic_committer.errors import PermissionDenied
from magic_committer.job import Job, Task
from magic_committer.runtime.components import no_progress
from magic_committer.testing import MemoryStore
from tests.nightly import library
from tests.promises.hands import DEST, At, raising, refusing, visible

pytestmark = pytest.mark.filterwarnings("default")  # Ray's own

Write = Callable[[Task, Any], object]


class Engine(Protocol):
    """Writes each item by a function, as one job; ``tries``: runs each item so often, of which the
    last one's result arrives."""

    def __call__(self, fn: Write, items: Sequence[Any], tries: int = 1, **terms: Any) -> object: ...


def executors(fn: Write, items: Sequence[Any], tries: int = 1, **terms: Any) -> object:
    """An executor of the caller's thread."""

    class Here(Executor):
        def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
            future: Future[Any] = Future()
            try:
                future.set_result([call(*args, **more) for _ in range(tries)][-1])
            except BaseException as error:
                future.set_exception(error)
            return future

    once = tenacity.Retrying(stop=tenacity.stop_after_attempt(1))
    return mc.run(DEST, fn, items, executor=Here(), in_flight=1, retry=once, **terms)


def dask(fn: Write, items: Sequence[Any], tries: int = 1, **terms: Any) -> object:
    """Dask's own scheduler of the caller's thread."""
    own = library("dask")
    from magic_committer.engines.dask import write_delayed

    def scheduler(graph: Any, keys: Any, **_: Any) -> Any:
        return [own.get(graph, keys) for _ in range(tries)][-1]

    return write_delayed(items, DEST, fn, compute={"scheduler": scheduler}, **terms)


def ray(fn: Write, items: Sequence[Any], tries: int = 1, **terms: Any) -> object:
    """Ray's calls of a sink, in their order."""
    library("ray.data")
    import pyarrow

    from magic_committer.engines.ray import MagicDatasink, write_datasink

    def one(task: Task, tables: Any) -> None:
        fn(task, items[int(task.task_id)])

    sink = MagicDatasink(DEST, write=one, **terms)

    def write(of: MagicDatasink, **_: Any) -> None:
        of.on_write_start()
        block = pyarrow.table({"n": [1]})
        try:
            returns = [
                [of.write([block], SimpleNamespace(task_idx=number)) for _ in range(tries)][-1]
                for number in range(len(items))
            ]
            of.on_write_complete(SimpleNamespace(write_returns=returns))
        except Exception as error:
            of.on_write_failed(error)
            raise

    return write_datasink(SimpleNamespace(write_datasink=write), sink)


def by_task(job: Job, number: int = 0) -> Task:
    """The next attempt of a task of Spark's, which is not here."""
    return job.task(str(number))


def spark(fn: Write, items: Sequence[Any], tries: int = 1, **terms: Any) -> object:
    """What `write_partitions` does around Spark's own part."""
    pytest.importorskip("pyspark")
    from magic_committer.spark import driver

    def engine(work: Any, accept: Callable[[int, Any], None]) -> int:
        for number, item in enumerate(items):
            accept(number, [work(number, item) for _ in range(tries)][-1])
        return len(items)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "spark_attempt", by_task)
        order = driver.Order(DEST, terms.get("mode", "append"), True, None, None, no_progress)
        return driver.write_job(order, engine, fn)


def source(fn: Write, items: Sequence[Any], tries: int = 1, **terms: Any) -> object:
    """Spark's calls of the writer of ``format("magic")``, which calls ``abort`` after any error."""
    types = pytest.importorskip("pyspark.sql.types")
    module = pytest.importorskip("magic_committer.spark.source")
    given = {} if "mode" not in terms else {"if_exists": terms["mode"]}
    schema = types.StructType([types.StructField("n", types.LongType())])
    writer = module.MagicSource({"path": DEST, **given}).writer(schema, bool(given))
    writer.files = SimpleNamespace(write=lambda task, batches: fn(task, next(batches)))
    messages = []
    with pytest.MonkeyPatch.context() as patch:
        try:
            for number, item in enumerate(items):
                patch.setattr(module, "spark_attempt", partial(by_task, number=number))
                messages.append([writer.write(iter([item])) for _ in range(tries)][-1])
            writer.commit(messages)
        except BaseException as error:
            try:
                writer.abort(messages)
            except mc.MagicError as more:
                error.add_note(str(more))
            raise
    return None


ENGINES: dict[str, Engine] = {
    "executors": executors, "dask": dask, "ray": ray, "spark": spark, "source": source,
}  # fmt: skip


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of them."""
    return ENGINES[request.param]


def write_number(task: Task, number: Any) -> None:
    """A file with a number in it, under a name of the job's own."""
    with task.open(f"{number}.txt", "w", unique=True) as file:
        file.write(str(number))


def numbers(store: MemoryStore) -> list[int]:
    """What a reader finds."""
    return sorted(int(body) for body in visible(store).values())


def nothing_is_left(store: MemoryStore) -> bool:
    """No data, no record, no upload."""
    return not store.keys() and not store.open_uploads()


def test_each_item_is_there_once(memory_s3: MemoryStore, engine: Engine) -> None:
    """Also if every try is made twice: the one counts whose result arrived."""
    for tries in (1, 2):
        engine(write_number, [3, 4, 5], tries)
        assert memory_s3.open_uploads() == ()
    assert numbers(memory_s3) == [3, 3, 4, 4, 5, 5]
    assert [key for key in memory_s3.keys() if "__magic" in key] == []


def test_what_is_replaced_is_there_until_the_commit(memory_s3: MemoryStore, engine: Engine) -> None:
    """And then only what the job wrote."""
    engine(write_number, [1])

    def write(task: Task, number: int) -> None:
        write_number(task, number)
        assert numbers(memory_s3) == [1]

    engine(write, [2, 3], mode="overwrite")
    assert numbers(memory_s3) == [2, 3]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_item_that_fails_publishes_nothing(
    memory_s3: MemoryStore, engine: Engine, kind: type[BaseException]
) -> None:
    """In the middle of its file, when another one is done: the user sees his own error."""

    def write(task: Task, number: int) -> None:
        with task.open(f"{number}.txt", "w", unique=True) as file:
            file.write("half of it")
            if number == 4:
                raise kind("as the test wants")

    with pytest.raises((kind, mc.TaskFailed)) as told:
        engine(write, [3, 4, 5])
    assert kind in (type(told.value), type(told.value.__cause__))
    assert nothing_is_left(memory_s3)


def test_a_decided_job_is_never_aborted(memory_s3: MemoryStore, engine: Engine) -> None:
    """The store fails in the middle of the commit: a recovery publishes all of it."""
    with (
        refusing(memory_s3, "complete_upload", PermissionDenied),
        pytest.raises(mc.CommitIncomplete) as told,
    ):
        engine(write_number, [3, 4])
    assert len(memory_s3.open_uploads()) == 2
    assert mc.recover(DEST, told.value.job_id, dead_after=0).outcome == "committed"
    assert numbers(memory_s3) == [3, 4]


def test_an_operators_abort_ends_it(memory_s3: MemoryStore, engine: Engine) -> None:
    """Somebody else ends the job while it runs: the caller hears of it; nothing is seen."""

    def write(task: Task, number: int) -> None:
        write_number(task, number)
        if number == 4:
            (found,) = mc.inspect(DEST)
            mc.abort(DEST, found.id)

    with pytest.raises(mc.JobNotRunning):
        engine(write, [3, 4, 5])
    assert (numbers(memory_s3), memory_s3.open_uploads()) == ([], ())


def test_an_abort_that_fails_hides_no_error(memory_s3: MemoryStore, engine: Engine) -> None:
    """The error is the function's, a note says what is open, and the job can be ended later."""

    def write(task: Task, number: int) -> None:
        if number == 4:
            memory_s3.before = raising("*", PermissionDenied("no"))
            raise KeyboardInterrupt
        write_number(task, number)

    with pytest.raises(KeyboardInterrupt) as told:
        engine(write, [3, 4])
    memory_s3.before = None
    (found,) = mc.inspect(DEST)
    assert any(re.search(f"{found.id}|no", note) for note in told.value.__notes__)
    assert mc.recover(DEST, found.id, dead_after=0).outcome == "aborted"
    assert (numbers(memory_s3), memory_s3.open_uploads()) == ([], ())


@pytest.mark.parametrize("fails", [False, True])
def test_tasks_and_the_commit_give_signs_of_life(
    memory_s3: MemoryStore, engine: Engine, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """While they run, and no longer, however they end."""
    living: list[str] = []
    seen: list[bool] = []

    def keep_alive(job: Job) -> Callable[[], None]:
        living.append(job.id)
        return living.clear

    def write(task: Task, number: int) -> None:
        seen.append(bool(living))
        write_number(task, number)
        if fails:
            raise KeyboardInterrupt

    monkeypatch.setattr(Job, "keep_alive", keep_alive)
    At(memory_s3, "complete_upload", lambda: seen.append(bool(living)))
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        engine(write, [3])
    assert (seen, living) == ([True] if fails else [True, True], [])
