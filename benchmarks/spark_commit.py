"""What a commit of many files takes with and without Spark: ``python -m benchmarks.spark_commit``.

A job of many small files whose tasks are done (as in `benchmarks.jobs`: their uploads are opened on
the server by one request) is committed

* by the driver alone, with ``--threads`` requests in flight;
* by the executors: the driver decides, looks for every file, and marks; Spark's tasks complete,
  each with as many requests in flight;
* by the driver alone with as many requests in flight as all executors have together.

``--cluster`` runs Spark as a standalone cluster of a Master and two Workers of one core each;
otherwise it is local, with two tasks at a time. Each answer waits ``--latency-ms``, during the
commit only. After each commit the server is asked: all files are there, and no upload is open.

All cases run in each round, in an order that turns by one; ratios are taken within each round. CPU
seconds are those of the driver (this process), and of Spark: JVMs and Python workers. The server is
another process of the same machine. Needs the server in Go.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

from benchmarks import server
from benchmarks.jobs import CONTENT, seeded_uploads
from benchmarks.plan import Failed
from benchmarks.spark import cpu_of_tree, session
from benchmarks.spark_jobs import surroundings

FILES_A_TASK = 1_000
CORES = 2
WARM_UP_FILES = 1_000
EXECUTOR: dict[str, str | int] = {"spark.executor.cores": 1, "spark.executor.memory": "700m"}


@dataclass(frozen=True, slots=True)
class Run:
    """One commit.

    Attributes:
        seconds: of the commit. driver, spark: CPU seconds.
        in_flight: the most requests that the server had at a time.
    """

    seconds: float
    driver: float
    spark: float
    in_flight: int


Case = Callable[[int], Run]
"""Commits a job of so many files."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ends the program where it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_commit", description=__doc__)
    parser.add_argument("--files", type=int, default=20_000, help="of a commit (%(default)s)")
    parser.add_argument("--threads", type=int, default=32, help="commit_threads (%(default)s)")
    parser.add_argument("--latency-ms", type=float, default=20, help="a request (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each runs (%(default)s)")
    parser.add_argument("--cluster", action="store_true", help="two Workers beside the driver")
    chosen = parser.parse_args(argv)
    if min(chosen.files, chosen.threads, chosen.rounds) < 1:
        parser.error("numbers are at least 1")
    return chosen


def cases(spark: Any, there: server.Server, threads: int, latency_ms: float) -> dict[str, Case]:
    """Each way to commit."""
    from magic_committer import Options, start
    from magic_committer.spark.distribute import on_executors

    jobs = count()

    def case(threads: int, files_min: int | None) -> Case:
        options = Options(commit_threads=threads, distribute_files_min=files_min)

        def run(files: int) -> Run:
            there.reset(verify=False)
            place = f"commit/{next(jobs)}"
            job = start(
                f"s3://{server.BUCKET}/{place}",
                track="memory",
                accept="results",
                options=options,
            )
            names = [f"part-{number:06d}-mcj{job.uuid}.bin" for number in range(files)]
            results = []
            with seeded_uploads({"control": there.url}, [f"{place}/{name}" for name in names]):
                for number, first in enumerate(range(0, files, FILES_A_TASK)):
                    with job.task(number) as task:
                        for name in names[first : first + FILES_A_TASK]:
                            with task.open(name) as file:
                                file.write(CONTENT)
                    results.append(task.result)
            print("    its tasks are done", file=sys.stderr)
            there._ask(f"latency?ms={latency_ms}")
            driver, all_of_us = _cpu_seconds(), cpu_of_tree(os.getpid(), without=server.PROGRAM)
            began = time.perf_counter()
            report = job._commit(results, None, distribute=on_executors(spark.sparkContext, job))
            seconds = time.perf_counter() - began
            driver = _cpu_seconds() - driver
            all_of_us = cpu_of_tree(os.getpid(), without=server.PROGRAM) - all_of_us
            facts = there.facts(named=0)
            _expect(report.files == files and not report.warnings, report)
            _expect(facts["object_count"] == files + 1 and not facts["open_uploads"], facts)
            distributed = "job_stage_complete_by_helpers" in report.statistics["counters"]
            _expect(distributed == (files_min is not None), report)
            print(f"    requests: {facts['requests']}", file=sys.stderr)
            return Run(seconds, driver, max(all_of_us - driver, 0.0), facts["in_flight_max"])

        return run

    return {
        f"driver alone, {threads} at once": case(threads, None),
        f"{CORES} executors, {threads} at once each": case(threads, 1),
        f"driver alone, {CORES * threads} at once": case(CORES * threads, None),
    }


def _expect(right: bool, told: object) -> None:
    if not right:
        raise Failed(f"not what should be there: {told!r:.2000}")


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def compare(of: dict[str, Case], files: int, rounds: int) -> dict[str, list[Run]]:
    """Run each once without a figure, with few files, then all in rounds."""
    for case in of.values():
        case(min(files, WARM_UP_FILES))
    runs: dict[str, list[Run]] = {name: [] for name in of}
    names = list(of)
    for number in range(rounds):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            run = of[name](files)
            print(f"  {number + 1}/{rounds} {name}: {run}", file=sys.stderr)
            runs[name].append(run)
    return runs


def table(runs: dict[str, list[Run]], files: int) -> str:
    """One row for each case; Markdown. The ratio is the median of those within each round."""
    first = next(iter(runs.values()))
    lines = [
        "| who completes | s | (min–max) | × the driver alone | files/s | CPU s, driver"
        " | CPU s, Spark | most in flight |",
        "|---" * 8 + "|",
    ]
    for name, of in runs.items():
        seconds = [run.seconds for run in of]
        middle = statistics.median(seconds)
        ratio = statistics.median(
            run.seconds / other.seconds for run, other in zip(of, first, strict=True)
        )
        lines.append(
            f"| {name} | {middle:.1f} | {min(seconds):.1f}–{max(seconds):.1f} | {ratio:.2f}"
            f" | {files / middle:,.0f} | {statistics.median(run.driver for run in of):.1f}"
            f" | {statistics.median(run.spark for run in of):.1f}"
            f" | {max(run.in_flight for run in of)} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run what the command line asks for and print it."""
    from tests.cluster.machines import cluster

    chosen = arguments(argv)
    with ExitStack() as stack:
        folder, there = stack.enter_context(surroundings())
        master = stack.enter_context(cluster(folder)) if chosen.cluster else ""
        spark = stack.enter_context(session(CORES, master, EXECUTOR))
        load = os.getloadavg()[0]
        of = cases(spark, there, chosen.threads, chosen.latency_ms)
        runs = compare(of, chosen.files, chosen.rounds)
        where = "a cluster of two Workers" if chosen.cluster else "local"
        print(
            f"{chosen.files:,} files, {chosen.latency_ms:g} ms a request, {chosen.rounds} rounds;"
            f" Spark {spark.version}, {where}, {os.cpu_count()} cores in all; load {load:.1f}"
            f" before, {os.getloadavg()[0]:.1f} after.\n\n{table(runs, chosen.files)}"
        )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as failed:
        sys.exit(str(failed))
