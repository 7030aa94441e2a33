"""What `write_dataframe` adds to Spark: ``python -m benchmarks.spark``.

Spark hands rows to Python through `mapInArrow`. What that alone costs is the floor: a function that
takes all batches and writes nothing. Beside it, in the same session and the same rounds:

* ``write_dataframe``: the same rows as Parquet files on S3, from the job's start to its commit.
* ``native``: ``df.write.parquet`` of the JVM, to a disk. It uploads nothing; its commit renames.
* ``via``: `write_dataframe` with ``via=``: the JVM writes to the same disk, then tasks upload.

All runs use the same Spark, the same cores, the same rows. The ratio is taken within each round,
and then its median.

``--tasks 500`` measures what a small task costs: `mapInArrow` over so many tiny partitions, beside
`write_dataframe` of partitions without rows, and of partitions with one row each.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from benchmarks import server
from benchmarks.plan import Failed
from benchmarks.report import markdown
from benchmarks.rounds import turns
from benchmarks.writers import BUCKET, environment

FLOOR, OURS, NATIVE, VIA = "mapInArrow", "write_dataframe", "native", "via"
SOURCE = 'format("magic")'
ROWS_OF = {
    "narrow": (
        "id", "CAST(id * 1.5 AS decimal(20,1)) AS price", "CAST(id % 1000 AS int) AS number",
        "lpad(CAST(id * 7919 AS string), 20, 'x') AS name",
        "date_add(DATE'2020-01-01', CAST(id % 3650 AS int)) AS day",
    ),
    "sixty": ("id", *(
        f"CAST(id * {n} % {10 ** (2 + n % 6)} AS {('bigint', 'double', 'string')[n % 3]}) AS c{n}"
        for n in range(1, 60)
    )),
}  # fmt: skip
"""Rows of 56 bytes in Arrow, and of 60 columns."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ends the program where it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000, help="rows (%(default)s)")
    parser.add_argument("--data", choices=ROWS_OF, default="narrow", help="rows (%(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="tasks at a time (%(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="tasks (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each runs (%(default)s)")
    parser.add_argument("--tasks", type=int, default=0, help="tiny partitions, nothing else")
    parser.add_argument("--latency-ms", type=float, default=0, help="a request (%(default)s)")
    chosen = parser.parse_args(argv)
    if min(chosen.rows, chosen.cores, chosen.partitions, chosen.rounds) < 1:
        parser.error("numbers are at least 1")
    return chosen


# What is run --------------------------------------------------------------------------------------


def take_all(batches: Iterator[Any]) -> Iterator[Any]:
    """The floor: take every batch, and give their number."""
    import pyarrow

    yield pyarrow.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def cases(df: Any, rows: int, folder: str) -> dict[str, Callable[[], None]]:
    """All of them, each of which checks what it did. Raises Failed: rows or files are missing."""
    from magic_committer.spark import register, write_dataframe

    register(df.sparkSession)
    place, tables = f"s3://{BUCKET}/{uuid4().hex}", count()
    scratch = Path(f"{folder}-via")
    scratch.mkdir()

    def floor() -> None:
        taken = df.mapInArrow(take_all, "rows long").collect()
        _expect(FLOOR, rows, sum(one.rows for one in taken))

    def ours(name: str, via: str | None = None) -> None:
        report = write_dataframe(df, f"{place}/{next(tables)}", mode="append", via=via)
        _expect(name, df.rdd.getNumPartitions(), report.files)

    def source() -> None:
        df.write.format("magic").mode("append").save(f"{place}/{next(tables)}")

    def native() -> None:
        df.write.mode("overwrite").parquet(folder)
        _expect(NATIVE, df.rdd.getNumPartitions(), len(list(Path(folder).glob("*.parquet"))))

    return {
        FLOOR: floor, OURS: lambda: ours(OURS), SOURCE: source, NATIVE: native,
        VIA: lambda: ours(VIA, via=scratch.as_uri()),
    }  # fmt: skip


def task_cases(spark: Any, tasks: int) -> dict[str, Callable[[], None]]:
    """What a small task costs, each checked as above."""
    from magic_committer.spark import write_dataframe

    one_each = spark.range(0, tasks, 1, tasks)
    empty = one_each.where("id < 0")  # as many partitions: range(0, 0) has one
    place, tables = f"s3://{BUCKET}/{uuid4().hex}", count()

    def floor() -> None:
        one_each.mapInArrow(take_all, "rows long").collect()

    def ours(frame: Any, files: int) -> None:
        report = write_dataframe(frame, f"{place}/{next(tables)}")
        _expect(OURS, files, report.files)

    return {
        FLOOR: floor,
        f"{OURS}, no rows": lambda: ours(empty, 1),
        f"{OURS}, a file each": lambda: ours(one_each, tasks),
    }


def _expect(case: str, wanted: int, found: int) -> None:
    if found != wanted:
        raise Failed(f"{case}: {found}, where there should be {wanted}")


Took = tuple[float, float]
"""Seconds and CPU seconds of one run of a case."""


def took(spark: Any, cases: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[Took]]:
    """What each case took in each round, after one that is not measured."""
    found: dict[str, list[Took]] = {name: [] for name in cases}
    for number in range(-1, rounds):
        for name in turns(list(cases), number):
            cpu, started = _cpu_seconds(spark), time.perf_counter()
            cases[name]()
            seconds, cpu = time.perf_counter() - started, _cpu_seconds(spark) - cpu
            print(f"  {number + 1}/{rounds} {name}: {seconds:.2f} s", file=sys.stderr)
            if number >= 0:
                found[name].append((seconds, cpu))
    return found


def _cpu_seconds(spark: Any) -> float:
    """Of this process, and of the JVM with all its children, those that ended too."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    return used.ru_utime + used.ru_stime + cpu_of_tree(jvm)


def cpu_of_tree(root: int) -> float:
    """CPU seconds of a process and its descendants; 0 where the system has no /proc."""
    seconds: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        seconds[int(folder.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    waiting, total = [root], 0.0
    while waiting:
        pid = waiting.pop()
        total += seconds.get(pid, 0.0)
        waiting += children.get(pid, [])
    return total


def table(found: dict[str, list[Took]]) -> str:
    """A row for each case. The ratios are medians of those within each round."""

    def ratio(of: Sequence[Took], to: str, column: int) -> str:
        pairs = zip(of, found[to], strict=True)
        return f"{median(our[column] / peer[column] for our, peer in pairs if peer[column]):.3f}"

    peers = [peer for peer in (FLOOR, NATIVE) if peer in found]
    rows = [["case", "s", "min–max", *(f"× {to}" for to in peers), "CPU s", f"CPU × {FLOOR}"]]
    for name, of in found.items():
        seconds, cpu = zip(*of, strict=True)
        cells = [f"{median(seconds):.2f}", f"{min(seconds):.2f}–{max(seconds):.2f}"]
        cells += [*(ratio(of, to, 0) for to in peers), f"{median(cpu):.2f}", ratio(of, FLOOR, 1)]
        rows.append([name, *cells])
    return markdown(rows)


@contextmanager
def session(cores: int) -> Iterator[Any]:
    """A Spark of this machine, quiet, in one JVM."""
    from pyspark.sql import SparkSession

    made = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("magic-committer benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", tempfile.gettempdir())
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    try:
        yield made
    finally:
        made.stop()


def main(argv: Sequence[str]) -> int:
    from tools import java

    chosen = arguments(argv)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="magic-committer-bench-"))
        there = stack.enter_context(server.fast())
        there.reset(verify=False, latency_ms=chosen.latency_ms)
        path = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        os.environ.update(environment(there.url, f"{folder}/aws-config", unsigned=True))
        os.environ.update(stack.enter_context(java.for_spark()))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))  # the workers'
        spark = stack.enter_context(session(chosen.cores))
        if chosen.tasks:
            of, what = task_cases(spark, chosen.tasks), f"{chosen.tasks} tasks"
        else:
            df = spark.range(0, chosen.rows, 1, chosen.partitions).selectExpr(*ROWS_OF[chosen.data])
            of = cases(df, chosen.rows, f"{folder}/native")
            what = f"{chosen.rows} {chosen.data} rows, {chosen.partitions} partitions"
        load = os.getloadavg()[0]
        found = took(spark, of, chosen.rounds)
        print(
            f"{what}, {chosen.cores} at a time, {chosen.latency_ms:g} ms a request, {chosen.rounds}"
            f" rounds; Spark {spark.version}, {os.cpu_count()} cores; load {load:.1f} before,"
            f" {os.getloadavg()[0]:.1f} after.\n"
        )
        print(table(found))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as failed:
        sys.exit(str(failed))
