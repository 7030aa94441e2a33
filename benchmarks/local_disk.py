"""Publishing many files on a local disk: by each committer, and by plain `shutil.move`.

    python -m benchmarks.local_disk [--files 100000] [--rounds 3] [--directory DIR]

Ten tasks write small files into a hundred directories each; that is not measured. Measured is what
follows: the tasks' commits and the job's, or one `shutil.move` for each file and the directories
that they need. Each run is a process of its own; all contenders run in each round, each round begun
by another one. ``peak`` is the memory above that before the commit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import magic_committer as mc
from benchmarks import child
from benchmarks.rounds import turns

TASKS, DIRECTORIES = 10, 100
PLAIN = "shutil.move"
CONTENDERS = ("manifest", "magic", "v1", "v2")
RUN_SECONDS_MAX = 900


@dataclass(frozen=True, slots=True)
class Run:
    """One run: seconds, CPU seconds, and MiB above the start."""

    seconds: float
    cpu: float
    peak: float


def names(task: int, files: int) -> Iterator[str]:
    """A task's files."""
    return (f"task={task}/p={number % DIRECTORIES}/part-{number}.csv" for number in range(files))


def write(directory: Path, task: int, files: int) -> None:
    """Write a task's files into its directory."""
    for number in range(DIRECTORIES):
        (directory / f"task={task}" / f"p={number}").mkdir(parents=True)
    for name in names(task, files):
        (directory / name).write_bytes(b"1,2,3\n")


def publish(contender: str, root: Path, files: int) -> Run:
    """One run, in this process."""
    each = files // TASKS
    if contender == PLAIN:
        source = root / "source"
        for number in range(TASKS):
            write(source, number, each)
        before = _start()
        _move(source, root / "table")
        return _end(before)
    job = mc.start((root / "table").as_uri(), committer=contender, accept="results", track="memory")
    tasks = [job.task(task) for task in range(TASKS)]
    for number, task in enumerate(tasks):
        if contender != "magic":
            write(task.directory(), number, each)
            continue
        for name in names(number, each):
            task.write_bytes(name, b"1,2,3\n")
    before = _start()
    report = job.commit([task.commit() for task in tasks])
    run = _end(before)
    assert report.files == each * TASKS, report
    return run


def _move(source: Path, target: Path) -> None:
    for directory, _, names in os.walk(source):
        place = target / os.path.relpath(directory, source)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.move(os.path.join(directory, name), place / name)


def _start() -> tuple[float, float, int]:
    return time.perf_counter(), child.cpu_seconds(), child.forget_peak()


def _end(before: tuple[float, float, int]) -> Run:
    seconds, cpu, resident = before
    grown = (child.peak() - resident) / 2**20
    return Run(time.perf_counter() - seconds, child.cpu_seconds() - cpu, grown)


def measured(contender: str, files: int, directory: Path | None) -> Run:
    """One run, in a process of its own."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.local_disk", "--run", contender, folder, str(files)],
            check=True, capture_output=True, text=True, timeout=RUN_SECONDS_MAX,
        ).stdout  # fmt: skip
    return Run(**json.loads(told))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_disk")
    parser.add_argument("--files", type=int, default=100_000, help="how many (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how many (%(default)s)")
    parser.add_argument("--directory", type=Path, default=None, help="where; else the system's")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args(given)
    if chosen.run:
        contender, folder, files = chosen.run
        run = publish(contender, Path(folder), int(files))
        print(json.dumps({"seconds": run.seconds, "cpu": run.cpu, "peak": run.peak}))
        return
    contenders = [PLAIN, *CONTENDERS]
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for number in range(chosen.rounds):
        for name in turns(contenders, number):
            runs[name].append(measured(name, chosen.files, chosen.directory))
    print(f"{chosen.files:,} files, median of {chosen.rounds}")
    print(f"{'':12} {'seconds':>8} {'ratio':>6} {'CPU s':>6} {'peak MiB':>9}")
    for name in contenders:
        ratios = [a.seconds / b.seconds for a, b in zip(runs[name], runs[PLAIN], strict=True)]
        middle = statistics.median
        print(
            f"{name:12} {middle(r.seconds for r in runs[name]):8.2f} {middle(ratios):6.2f}"
            f" {middle(r.cpu for r in runs[name]):6.2f} {middle(r.peak for r in runs[name]):9.1f}"
        )


if __name__ == "__main__":
    main()
