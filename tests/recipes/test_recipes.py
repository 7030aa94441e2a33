"""Each recipe of the documentation runs, and does what its page says; when it fails, too."""

from __future__ import annotations

import builtins
import io
import json
import os
import re
import runpy
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import magic_committer as mc
from examples.recipes import (
    airflow_steps,
    directories,
    nightly,
    with_pandas,
    with_polars,
    with_pyarrow,
)
from magic_committer.cli.main import run
from magic_committer.testing import MemoryStore, PatientClock, memory_store
from tests.destinations import There
from tests.promises.hands import At, killed

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "examples" / "recipes"
TABLE = "s3://bucket/table"


class Broken(Exception):
    """The source of the data gave up."""


def data(store: MemoryStore, prefix: str = "table/") -> list[str]:
    """What readers see below a prefix: the names without the job's UUID."""
    keys = [key.removeprefix(prefix) for key in store.keys(prefix)]
    shown = [key for key in keys if not key.startswith(("_", "."))]
    return sorted(re.sub(r"-mcj[0-9a-f]{32}", "", key) for key in shown)


def shown(there: There) -> list[str]:
    """What readers see, without the job's UUID."""
    return sorted(re.sub(r"-mcj[0-9a-f]{32}", "", name) for name in there.data())


def numbers(there: There, column: str = "n") -> list[Any]:
    """A column of all Parquet files."""
    files = [there.read(name) for name in sorted(there.data()) if name.endswith(".parquet")]
    return [v for file in files for v in pq.read_table(io.BytesIO(file))[column].to_pylist()]


def nothing_is_left(there: There) -> bool:
    """No file, no record, no upload."""
    return there.names() == there.left() == []


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the recipes."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=300, check=False,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_the_first_program_prints_what_its_page_says() -> None:
    """examples/recipes/first.py prints the text that "Start in five minutes" shows."""
    ran = python(str(RECIPES / "first.py"))
    assert ran.stdout == (RECIPES / "first.txt").read_text(encoding="utf-8"), ran.stderr


def test_pandas_replaces_the_days_that_it_writes(there: There) -> None:
    """Two days are written; a second export of one day replaces that day and leaves the other."""
    sales = pd.DataFrame({"day": ["1", "1", "2"], "amount": [1, 2, 3]})
    with_pandas.export(sales, there.url)
    with_pandas.export(pd.DataFrame({"day": ["2"], "amount": [9]}), there.url)
    kinds = ("csv", "parquet")
    assert shown(there) == [f"day={day}/part-0.{kind}" for day in "12" for kind in kinds]
    assert numbers(there, "amount") == [1, 2, 9]


def test_pandas_writes_through_the_file_system(there: There) -> None:
    """One file by its name, which can be read back, and a directory of partitions."""
    frame = TWO_DAYS.to_pandas()
    with there.write() as job:
        frame.to_parquet("one/x.parquet", filesystem=job.filesystem())
        frame.to_parquet("many", filesystem=job.filesystem(), partition_cols=["day"])
        read = pd.read_parquet("one/x.parquet", filesystem=job.filesystem())
        assert read["amount"].tolist() == [1, 2, 3]
        assert there.data() == {}
    assert numbers(there, "amount") == [1, 2, 3] * 2
    assert {name.split("/")[1] for name in shown(there)} == {"x.parquet", "day=21", "day=22"}


def test_pandas_writes_to_a_url_of_the_open_block(there: There) -> None:
    """``magic://`` and the path; fsspec finds it by the package's entry point."""
    import_module("fsspec").register_implementation(
        "magic", "magic_committer.filesystem.urls.MagicUrls", clobber=True
    )
    with there.write():
        url = f"magic://{there.bare.replace('%20', ' ')}/x.csv"
        TWO_DAYS.to_pandas().to_csv(url, index=False)
        assert there.data() == {}
    assert pd.read_csv(io.BytesIO(there.read("x.csv")))["amount"].tolist() == [1, 2, 3]


def test_polars_writes_a_query_in_slices(there: There) -> None:
    """Ten rows, four to a file, are three files with all rows in their order."""
    report = with_polars.export(pl.LazyFrame({"n": range(10)}), there.url, rows_a_file=4)
    assert report is not None
    assert shown(there) == [f"part-0000{number}.parquet" for number in range(3)]
    assert numbers(there) == list(range(10))


def test_polars_writes_partitions(there: There) -> None:
    """A file for each day, by the streaming engine; a second run replaces those that it writes."""
    frame = pl.DataFrame({"day": ["a", "b", "a"] * 1000, "n": range(3000)})
    with_polars.partitions(frame.lazy(), "day", there.url)
    with_polars.partitions(frame.lazy().filter(pl.col("day") == "b"), "day", there.url)
    assert shown(there) == [f"day={day}/part-00000.parquet" for day in "ab"]
    assert sorted(numbers(there)) == list(range(3000))


SCHEMA = pa.schema([("n", pa.int64())])
TWO_DAYS = pa.table({"day": ["21", "21", "22"], "amount": [1, 2, 3]})


def batches(count: int, broken_after: int | None = None) -> Iterator[pa.RecordBatch]:
    """Record batches of one row, from a source that may break."""
    for number in range(count):
        if number == broken_after:
            raise Broken
        yield pa.record_batch([pa.array([number])], schema=SCHEMA)


def test_pyarrow_writes_a_stream_of_batches(there: There) -> None:
    """All batches are in the one file."""
    with_pyarrow.export(SCHEMA, batches(5), there.url)
    assert list(there.data()) == ["events.parquet"]
    assert numbers(there) == [0, 1, 2, 3, 4]


def test_a_library_writes_a_directory_through_a_file_system(there: There) -> None:
    """Each day is a directory; a second export replaces the days that it has."""
    directories.partitions(TWO_DAYS, there.url)
    directories.partitions(pa.table({"day": ["22"], "amount": [9]}), there.url)
    assert shown(there) == ["day=21/part-0.parquet", "day=22/part-0.parquet"]
    assert numbers(there, "amount") == [1, 2, 9]


def half_way(url: str) -> None:
    """The library has written and closed its files, and fails then."""
    real = ds.write_dataset

    def breaks(*args: object, **named: object) -> None:
        real(*args, **named)
        raise Broken

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ds, "write_dataset", breaks)
        directories.partitions(TWO_DAYS, url)


def no_column(url: str) -> None:
    with_pandas.export(pd.DataFrame({"day": ["1", "2"], "amount": [1, object()]}), url)


def no_query(url: str) -> None:
    with_polars.export(pl.LazyFrame({"n": ["1", "x"]}).select(pl.col("n").cast(pl.Int64)), url)


def no_row(url: str) -> None:
    rows = pl.LazyFrame({"day": ["a", "b"] * 500, "n": [*["1"] * 900, *["x"] * 100]})
    with_polars.partitions(rows.with_columns(pl.col("n").cast(pl.Int64)), "day", url)


def no_value(url: str) -> None:
    directories.database([("21", 1), ("too", "many", "values")], url)  # type: ignore[list-item]


FAILURES: dict[str, tuple[Callable[[str], object], type[Exception]]] = {
    "pandas: a column that Parquet cannot hold": (no_column, pa.ArrowInvalid),
    "polars: a query that cannot be computed": (no_query, pl.exceptions.InvalidOperationError),
    "polars: a row in the middle of the partitions": (no_row, pl.exceptions.PolarsError),
    "pyarrow: its source, though pyarrow closes its file then": (
        lambda url: with_pyarrow.export(SCHEMA, batches(5, broken_after=3), url), Broken,
    ),
    "a directory, half-way": (half_way, Broken),
    "a database: a row that does not fit": (no_value, sqlite3.ProgrammingError),
    "a program": (
        lambda url: directories.program(
            [sys.executable, "-c", f"{WRITES}; raise SystemExit(3)"], url
        ), subprocess.CalledProcessError,
    ),
}  # fmt: skip
WRITES = "import pathlib; pathlib.Path('a.txt').write_text('1'); pathlib.Path('_tmp').touch()"


@pytest.mark.parametrize("what", FAILURES)
def test_what_fails_publishes_nothing_and_leaves_nothing(there: There, what: str) -> None:
    """Its own error comes out; no file is visible, no upload open."""
    export, error = FAILURES[what]
    with pytest.raises(error):
        export(there.url)
    assert nothing_is_left(there)


def test_a_database_is_written_with_seeks(there: There, tmp_path: Path) -> None:
    """SQLite gets a path; what is published is a database, or of a program what is not hidden."""
    directories.database([("21", 1), ("22", 2)], there.url)
    (body,) = there.data().values()
    (tmp_path / "read.db").write_bytes(body)
    with closing(sqlite3.connect(tmp_path / "read.db")) as connection:
        assert connection.execute("select sum(amount) from sales").fetchone() == (3,)
    directories.program([sys.executable, "-c", WRITES], f"{there.url}/of-a-program")
    assert shown(there) == ["of-a-program/a.txt", "sales.db"]


def test_a_directory_that_is_there_is_published_whole(
    there: There, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It replaces what was there; what is left out is told."""
    there.put("old", b"")
    source = tmp_path / "source"
    (source / "v1").mkdir(parents=True)
    (source / "v1" / "model.bin").write_bytes(b"123")
    (source / ".git").mkdir()
    directories.publish(source, there.url)
    assert shown(there) == ["v1/model.bin"]
    assert capsys.readouterr().out == "1 file, 3 bytes; left out: .git\n"


DAYS = ["2026-11-21", "2026-11-22"]


def airflow_run(run_id: str) -> tuple[dict[str, Any], int]:
    """One run of the DAG, through JSON: the job, and how many files were published."""
    said = json.loads(json.dumps(airflow_steps.start(TABLE, run_id)))
    results = [json.loads(json.dumps(airflow_steps.write_part(said, day))) for day in DAYS]
    return said, airflow_steps.commit(said, results)


PARTS = [f"day={day}/sales.csv" for day in DAYS]


def test_airflow_steps_publish_all_parts(memory_s3: MemoryStore) -> None:
    """A run that is cleared replaces its days; the step for failed runs undoes no other."""
    first, files = airflow_run("manual__1")
    assert (files, data(memory_s3)) == (2, PARTS)
    again, _ = airflow_run("manual__1")
    assert [mc.Job.from_dict(job).id for job in (first, again)] == ["manual__1-0", "manual__1-1"]
    assert airflow_run(f"manual__{'2026' * 99}")[1] == 2  # a name that is no job's id
    failed = airflow_steps.start(TABLE, "manual__2")
    airflow_steps.write_part(failed, DAYS[0])
    for job in (failed, failed, again):
        airflow_steps.abort(job)
    assert data(memory_s3) == PARTS
    assert not memory_s3.open_uploads()


class Killed(BaseException):
    """The process is gone: none of its handlers gets an answer from the store any more."""


@contextmanager
def killed_at(store: MemoryStore, number: int, side: str) -> Iterator[list[int]]:
    """Kill the block at its request of that number, before or after its effect."""
    seen, struck = 0, list[int]()

    def before(request: object) -> None:
        nonlocal seen
        seen += 1
        if struck or (side == "before" and seen >= number):
            struck.append(seen)
            raise Killed

    def after(request: object, answer: object) -> None:
        if side == "after" and seen >= number:  # another thread may have asked since
            struck.append(seen)
            raise Killed

    store.before, store.after = before, after
    try:
        yield struck
    except (Killed, mc.UploadFailed):  # the latter, where a thread of the pool asked
        assert struck
    finally:
        store.before = store.after = None


Step = Callable[[dict[str, Any]], Any]


def airflow_tries() -> list[tuple[str, Step]]:
    """The steps of a run, by name; each takes what the steps before it have answered."""

    def write(day: str) -> Step:
        return lambda said: airflow_steps.write_part(said["start"], day)

    return [
        ("start", lambda said: airflow_steps.start(TABLE, "manual__1")),
        *((day, write(day)) for day in DAYS),
        ("commit", lambda said: airflow_steps.commit(said["start"], [said[day] for day in DAYS])),
    ]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("step", ["start", *DAYS, "commit"])
def test_airflow_loses_a_worker_at_any_request_of_a_step(step: str, side: str) -> None:
    """It is tried again: each part is there once, and nothing is open."""
    points = 0
    for number in range(1, 100):
        with memory_store() as store:
            said: dict[str, Any] = {}
            struck: list[int] = []
            for name, run in airflow_tries():
                if name == step:
                    with killed_at(store, number, side) as struck:
                        run(said)  # its answer is lost also if it was not killed
                said[name] = json.loads(json.dumps(run(said)))
            assert data(store) == PARTS, (number, side)
            assert not store.open_uploads(), (number, side)
        if not struck:
            break
        points += 1
    assert points >= 3


def test_the_nightly_job_ends_what_a_killed_run_left(memory_s3: MemoryStore) -> None:
    """And replaces its day; another day stays."""
    dead = mc.start(TABLE, mode="replace_partitions")
    file = killed(dead, "0", "day=2026-11-21/rows.csv", unique=True)
    for day in ("2026-11-20", "2026-11-21", "2026-11-21"):
        nightly.main(TABLE, day)
    assert not memory_s3.open_uploads()
    file.abort()
    states = {found.id: found.state for found in mc.inspect(TABLE)}
    assert states.get(dead.id, "absent") in ("closed", "absent")
    assert data(memory_s3) == ["day=2026-11-20/rows.csv", "day=2026-11-21/rows.csv"]
    (last,) = (key for key in memory_s3.keys() if "2026-11-21/" in key)
    assert memory_s3.body(last).count(b"\r\n") == 1000


def test_the_nightly_job_is_a_program() -> None:
    """Without a day it ends by an error, not by writing somewhere."""
    ran = python(str(RECIPES / "nightly.py"), TABLE)
    assert (ran.returncode != 0, "day" in ran.stderr) == (True, True)


def cells() -> list[str]:
    """The cells of the notebook."""
    text = (RECIPES / "notebook.py").read_text(encoding="utf-8")
    return re.split(r"^# %%.*$", text, flags=re.MULTILINE)


def test_the_notebook_runs_from_top_to_bottom(
    memory_s3: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cell runs, and all files are there afterwards."""
    runpy.run_path(str(RECIPES / "notebook.py"))
    assert data(memory_s3, "experiments/") == ["curve.csv", "run-1.csv", "run-2.csv"]
    assert "committed 1" in capsys.readouterr().out


def test_a_cell_of_the_notebook_runs_twice(memory_s3: MemoryStore) -> None:
    """The cell of a task, run again before the decision, leaves one file: that of the last run."""
    space: dict[str, object] = {}
    _, imports, _, start, task, decide, _ = cells()
    for cell in (imports, start, task, task, decide):
        exec(cell, space)
    assert data(memory_s3, "experiments/") == ["curve.csv"]
    assert not memory_s3.open_uploads()


def test_an_interrupted_cell_leaves_nothing(memory_s3: MemoryStore) -> None:
    """Ctrl-C in the middle of the writing cell; run again, it writes each file once."""
    space: dict[str, object] = {}
    _, imports, write, *_ = cells()
    exec(imports, space)
    At(memory_s3, "put_part", KeyboardInterrupt())
    with pytest.raises((KeyboardInterrupt, mc.UploadFailed)):
        exec(write, space)
    assert data(memory_s3, "experiments/") == []
    assert not memory_s3.open_uploads()
    exec(write, space)
    assert data(memory_s3, "experiments/") == ["run-1.csv", "run-2.csv"]


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language, but the programs of `examples/`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fenced = re.findall(r"^(.*)\n```(\w*)\n((?:.*\n)*?)```$", text, re.MULTILINE)
    return [
        block
        for before, named, block in fenced
        if named == language and not before.startswith("<!-- file:")
    ]


class Names(dict[str, Any]):
    """What the blocks of a page take from their reader's program. ``job_id`` is a dead job's."""

    clock = PatientClock()

    def __missing__(self, name: str) -> Any:
        if name == "passed":
            return self["job"].to_dict()
        if name == "results":
            return [self["task"].result.to_dict()]
        if name == "job_id":
            return dead_job(TABLE, self.clock)
        return getattr(builtins, name)


def dead_job(dest: str, clock: PatientClock) -> str:
    """A job of which nothing has changed for days."""
    job = mc.start(dest)
    clock.ahead += 3 * 86_400
    return job.id


PAGES = ("README.md", "docs/start.md")
BLOCKS = [(page, block) for page in PAGES for block in blocks(page, "python")]


@pytest.mark.parametrize(("page", "block"), [one for one in BLOCKS if "spark" not in one[1]])
def test_each_block_of_the_first_pages_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, block: str
) -> None:
    """As it stands: what it writes is visible, and no upload is left."""
    dump = tmp_path / "pg_dump"
    dump.write_text('#!/bin/sh\nmkdir -p "$3" && echo 1 > "$3/toc.dat"\n')
    dump.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    frame = pd.DataFrame({"day": ["a", "b"], "n": [1, 2]})
    names = Names(
        mc=mc, df=frame, days=["a", "b"], load=lambda day: frame[frame.day == day], run_id="7",
        subprocess=subprocess, ProcessPoolExecutor=ThreadPoolExecutor,
    )  # fmt: skip
    with memory_store(clock=names.clock) as store, memory_store("your-bucket") as yours:
        exec(compile(block, page, "exec"), names)
        keys = [key for one in (store, yours) for key in one.keys()]
        assert [key for key in keys if "__magic" not in key] or "recover" in block
        assert (store.open_uploads(), yours.open_uploads()) == ((), ())


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_the_first_pages_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """As it stands, with ``--yes`` where it asks; ``JOB`` is dead."""
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "a.csv").write_text("1")
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks(page, "") for line in block.splitlines()]
    commands = [line.split()[1:] for line in lines if line.startswith("magic-committer ")]
    assert len(commands) >= 3
    clock = PatientClock()
    with (
        memory_store(),
        memory_store("staging") as staging,
        memory_store("your-bucket", clock=clock),
    ):
        staging.put_object("export/b.csv", b"2")
        job = dead_job("s3://your-bucket/table", clock)
        for command in commands:
            if command[0] == "lifecycle":
                continue  # a store in memory has none: tests/cli
            asks = {"put", "promote", "abort", "recover"} & set(command[:2])
            given = [job if word == "JOB" else word for word in command]
            assert run([*given, *["--yes"] * bool(asks)]) == 0, command
