"""What Spark's small tasks cost: ``python -m benchmarks.spark_jobs``.

Many tiny partitions, at some milliseconds a request. Beside an empty `mapInArrow` over the same
partitions: `write_dataframe` of partitions without rows, and of partitions with one row each.
Requests are counted by the server: those of tasks are Creates, parts, HEADs of the record and PUTs
of pendingsets. All cases run in each round, in an order that turns by one. Needs the server in Go.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks import server
from benchmarks.plan import Failed
from benchmarks.spark import session
from benchmarks.writers import environment


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ends the program where it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_jobs", description=__doc__)
    parser.add_argument("--tasks", type=int, default=500, help="partitions (%(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="tasks at a time (%(default)s)")
    parser.add_argument("--latency-ms", type=float, default=20, help="a request (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each runs (%(default)s)")
    chosen = parser.parse_args(argv)
    if min(chosen.tasks, chosen.cores, chosen.rounds) < 1:
        parser.error("numbers are at least 1")
    return chosen


Case = Callable[[], float]
"""Runs once, and gives its seconds."""


def nothing(batches: Iterable[Any]) -> Iterable[Any]:
    """The floor of a task: take all, give one row."""
    import pyarrow

    yield pyarrow.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def task_cases(spark: Any, chosen: argparse.Namespace, there: server.Server) -> dict[str, Case]:
    """What a task costs."""
    from magic_committer.spark import write_dataframe

    one_each = spark.range(0, chosen.tasks, 1, chosen.tasks)
    empty = one_each.where("id < 0")  # as many partitions: range(0, 0) has one
    place, tables = f"s3://{server.BUCKET}/{uuid4().hex}", count()
    there.reset(verify=False, latency_ms=chosen.latency_ms)

    def floor() -> float:
        began = time.perf_counter()
        one_each.mapInArrow(nothing, "rows long").collect()
        return time.perf_counter() - began

    def ours(frame: Any, files: int) -> Case:
        def run() -> float:
            began = time.perf_counter()
            report = write_dataframe(frame, f"{place}/{next(tables)}")
            seconds = time.perf_counter() - began
            if report.files != files:
                raise Failed(f"{report.files} files, not {files}")
            print(f"    of it the commit: {report.seconds:.2f} s", file=sys.stderr)
            return seconds

        return run

    return {
        "mapInArrow": floor,
        "write_dataframe, no rows": ours(empty, 1),
        "write_dataframe, a file each": ours(one_each, chosen.tasks),
    }


def compare(cases: dict[str, Case], rounds: int) -> dict[str, list[float]]:
    """Run each once without a figure, then all in rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for number in range(-1, rounds):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            taken = cases[name]()
            print(f"  {number + 1}/{rounds} {name}: {taken:.2f} s", file=sys.stderr)
            if number >= 0:
                seconds[name].append(taken)
    return seconds


def table(seconds: dict[str, list[float]]) -> str:
    """One row for each case; Markdown. The ratio is the median of those within each round."""
    first = next(iter(seconds))
    lines = [f"| case | s | (min-max) | × {first} |", "|---" * 4 + "|"]
    for name, taken in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(taken, seconds[first], strict=True))
        middle = statistics.median(taken)
        lines.append(f"| {name} | {middle:.2f} | {min(taken):.2f}-{max(taken):.2f} | {ratio:.2f} |")
    return "\n".join(lines)


@contextmanager
def surroundings() -> Iterator[tuple[Path, server.Server]]:
    """A folder, the fast server, and the environment in which Spark and its workers reach it."""
    from tools import java

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="magic-committer-bench-"))
        there = stack.enter_context(server.fast())
        path = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        os.environ.update(environment(there.url, f"{folder}/aws-config", unsigned=False))
        os.environ.update(stack.enter_context(java.for_spark()))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))  # the workers'
        yield Path(folder), there


def main(argv: Sequence[str]) -> int:
    """Run what the command line asks for and print it."""
    chosen = arguments(argv)
    with ExitStack() as stack:
        _, there = stack.enter_context(surroundings())
        spark = stack.enter_context(session(chosen.cores))
        cases = task_cases(spark, chosen, there)
        load = os.getloadavg()[0]
        taken = compare(cases, chosen.rounds)
        print(
            f"{chosen.tasks} tasks, {chosen.latency_ms:g} ms a request, {chosen.cores} at a time,"
            f" {chosen.rounds} rounds; Spark {spark.version}, {os.cpu_count()} cores; load"
            f" {load:.1f} before, {os.getloadavg()[0]:.1f} after.\n\n{table(taken)}"
        )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as failed:
        sys.exit(str(failed))
