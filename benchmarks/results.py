"""Results as they are kept: medians and spreads by row, with the machine and the versions. JSON."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.measure import Run
from benchmarks.plan import Unit
from benchmarks.rounds import Outcome

Result = dict[str, Any]

NOT_MEASURED = (
    "AWS itself: its network, its throttling, and how long it takes for each request.",
    "Reading; more cores; a server on another machine; the memory of a JVM.",
)


def results(outcomes: Sequence[Outcome]) -> Result:
    """All that was measured, as JSON can hold it."""
    versions = {
        name: version
        for outcome in outcomes
        for run in outcome.runs
        for name, version in run.versions.items()
    }
    return {
        "machine": _machine(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "versions": dict(sorted(versions.items())),
        "not_measured": list(NOT_MEASURED),
        "measurements": [_measured(one) for one in outcomes if one.runs],
        "left_out": {
            f"{one.measurement.whole_name}: {name}": why.splitlines()[0]
            for one in outcomes
            for name, why in one.left_out.items()
        },
    }


def _machine() -> dict[str, Any]:
    processor = platform.processor() or "unknown"
    with suppress(OSError):  # not Linux: what Python knows will do
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(), "processor": processor, "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": sys.version.split()[0],
    }  # fmt: skip


def _measured(outcome: Outcome) -> Result:
    one = outcome.measurement
    by_name: dict[str, list[Run]] = {}
    for run in outcome.runs:
        by_name.setdefault(run.contender, []).append(run)
    order = [c.name for c in one.contenders if c.name in by_name]
    rows = [_row(name, by_name[name], one.unit) for name in order]
    peer = next((row["figure"] for row in rows if row["name"] == one.peer), None)
    for row in rows:
        row["ratio"] = None
        if peer and row["figure"]:
            times = row["figure"] / peer
            row["ratio"] = times if one.unit.rate else 1 / times
    return {
        "group": one.group, "name": one.name, "column": one.column, "unit": one.unit.name,
        "more_is_better": one.unit.rate, "cpu": one.unit.cpu, "counted": one.unit.counted,
        "peer": one.peer, "note": one.note, "load": [round(load, 1) for load in outcome.load],
        "rows": rows,
    }  # fmt: skip


def _row(name: str, runs: Sequence[Run], unit: Unit) -> Result:
    figures = [run.figure(unit) for run in runs]
    grown = [run.grown_bytes / 2**20 for run in runs if run.grown_bytes is not None]
    last = runs[-1]
    return {
        "name": name, "rounds": len(runs), "amount": last.amount,
        "figure": statistics.median(figures), "least": min(figures), "most": max(figures),
        "cpu": statistics.median(run.cpu(unit) for run in runs) if unit.cpu else None,
        "grown_mib": max(grown) if grown else None, "requests": dict(last.requests),
        "payload": last.payload,
    }  # fmt: skip
