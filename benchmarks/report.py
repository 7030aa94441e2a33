"""Runs become a table: medians, the span of each, and the ratio to a named peer.

Memory is the largest of all runs: a bound is not a median.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from benchmarks.measure import Run
from benchmarks.writers import WRITERS, MiB

HEADINGS = (
    "writer",
    "MB/s",
    "(min–max)",
    "× {peer}",
    "CPU s/GB",
    "peak above start MiB",
    "peak MiB",
    "requests",
    "part MiB",
    "payload signed",
    "checksum",
)


def machine(size: int, rounds: int) -> str:
    """What it ran on and what was written."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return (
        f"{size / MiB:.0f} MiB in fresh pieces of 1 MiB, {rounds} rounds: medians; of memory the"
        f" largest. Python {sys.version.split()[0]}, {platform.system()} {platform.machine()},"
        f" {os.cpu_count()} cores for client and server; load {load} at the start."
    )


def versions(names: Sequence[str]) -> str:
    """The packages measured."""
    packages = sorted({package for name in names for package in WRITERS[name].packages})
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def table(runs: Sequence[Run], peer: str) -> str:
    """One row for each writer, in the order in which they first ran; Markdown."""
    by_writer: dict[str, list[Run]] = {}
    for run in runs:
        by_writer.setdefault(run.writer, []).append(run)
    speeds = {name: _median([run.mb_per_second for run in of]) for name, of in by_writer.items()}
    rows = [[heading.format(peer=peer) for heading in HEADINGS]]
    rows += [_row(name, of, speeds, peer) for name, of in by_writer.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _row(name: str, runs: Sequence[Run], speeds: Mapping[str, float], peer: str) -> list[str]:
    each = [run.mb_per_second for run in runs]
    last = runs[-1]
    return [
        name,
        f"{speeds[name]:.0f}",
        f"{min(each):.0f}–{max(each):.0f}",
        f"{speeds[name] / speeds[peer]:.2f}" if peer in speeds else "",
        f"{_median([run.cpu_seconds_per_gb for run in runs]):.2f}",
        f"{max(run.grown_mib for run in runs):.1f}",
        f"{max(run.peak_bytes for run in runs) / MiB:.0f}",
        str(sum(last.requests.values())),
        f"{last.part_bytes / MiB:.0f}",
        last.payload,
        last.checksum,
    ]


def requests(runs: Sequence[Run]) -> str:
    """Each writer's requests by verb, of its last run."""
    last = {run.writer: run.requests for run in runs}
    return "\n".join(
        f"{name}: " + ", ".join(f"{count} {verb}" for verb, count in sorted(of.items()))
        for name, of in last.items()
    )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
