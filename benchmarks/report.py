"""Results: as JSON, medians and spreads by row, with the machine and the versions; and as tables,
for a terminal and for docs/performance.md, between two marks, with two rows of the README."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import Run
from benchmarks.plan import TITLES, MiB, Unit, title
from benchmarks.rounds import Outcome

Table = list[list[str]]
Result = dict[str, Any]
COLUMNS = 80
LEGEND = (
    "Medians of the rounds. CPU: of the client and its children, for what the figure counts. MiB:"
    " the peak of resident memory above what it was before the clock started, the largest of all"
    " rounds. Only ratios within one column count. In brackets: the speed as a multiple of the"
    " peer's, which has 1.00."
)
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
KEPT = ROOT / "docs" / "assets" / "benchmarks.json"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
NOT_MEASURED = (
    "AWS itself: its network, its throttling, and its latency.",
    "Reading; more cores; a server on another machine; the memory of a JVM.",
)


# Results, as they are kept -----------------------------------------------------------------------


def results(outcomes: Sequence[Outcome]) -> Result:
    """All that was measured, as JSON can hold it."""
    runs = [run for outcome in outcomes for run in outcome.runs]
    return {
        "machine": _machine(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "versions": {
            name: " / ".join(sorted({run.versions[name] for run in runs if name in run.versions}))
            for name in sorted({name for run in runs for name in run.versions})
        },
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
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        named = told.partition("model name")[2].partition(":")[2].partition("\n")[0].strip()
        processor = named or processor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(), "processor": processor, "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": sys.version.split()[0],
    }  # fmt: skip


def _measured(outcome: Outcome) -> Result:
    one = outcome.measurement
    names = [c.name for c in one.contenders]
    found = [[run for run in outcome.runs if run.contender == name] for name in names]
    rows = [_row(runs, one.unit) for runs in found if runs]
    peer = next((row["figure"] for row in rows if row["name"] == one.peer), None)
    for row in rows:
        row["ratio"] = None
        if peer and row["figure"]:
            times = row["figure"] / peer
            row["ratio"] = times if one.unit.rate else 1 / times
    return {
        "group": one.group, "name": one.name, "column": one.column, "unit": one.unit.name,
        "cpu": one.unit.cpu, "counted": one.unit.counted, "peer": one.peer, "note": one.note,
        "load": [round(load, 1) for load in outcome.load], "rows": rows,
    }  # fmt: skip


def _row(runs: Sequence[Run], unit: Unit) -> Result:
    figures = [run.figure(unit) for run in runs]
    grown = [run.grown_bytes / 2**20 for run in runs if run.grown_bytes is not None]
    last = runs[-1]
    return {
        "name": last.contender, "rounds": len(runs), "amount": last.amount,
        "figure": median(figures), "least": min(figures), "most": max(figures),
        "cpu": median(run.cpu(unit) for run in runs) if unit.cpu else None,
        "grown_mib": max(grown) if grown else None, "requests": dict(last.requests),
        "payload": last.payload,
    }  # fmt: skip


# Tables -------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Three digits that mean something; "" for none."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(members: Sequence[Result]) -> Table:
    """The table of measurements that have the same contenders: a column for each, with the ratio
    in brackets; the spread where there is one only; the CPU and the memory of the first one. What
    is not timed has one row for each contender, with its requests."""
    first = members[0]
    if not first["cpu"]:
        sums = [[row["name"], f"{sum(row['requests'].values()):,}"] for row in first["rows"]]
        return [["", "requests"], *sums]
    rounds = max(row["rounds"] for row in first["rows"])
    alone = ["min–max"] if len(members) == 1 and rounds > 1 else []
    units = [f"{first['unit']}, {one['column']}".removesuffix(", ") for one in members]
    rows = [["", *units, *alone, first["cpu"], "MiB"]]
    for row in first["rows"]:
        same = [[r for r in one["rows"] if r["name"] == row["name"]] for one in members]
        told = [(number(r[0]["figure"]), number(r[0]["ratio"])) if r else ("", "") for r in same]
        cells = [f"{figure} ({ratio})" if ratio else figure for figure, ratio in told]
        cells += [f"{number(row['least'])}–{number(row['most'])}"] if alone else []
        rows.append([row["name"], *cells, number(row["cpu"]), number(row["grown_mib"])])
    return rows


# A terminal ---------------------------------------------------------------------------------------


def notes(one: Result) -> str:
    """What has to be said of a measurement, in one paragraph."""
    most = max(row["amount"] for row in one["rows"])
    said = f"Each {_amount(most, one)}."
    fewer = [row for row in one["rows"] if row["amount"] < most]
    if fewer:
        named = ", ".join(f"{row['name']} {_amount(row['amount'], one)}" for row in fewer)
        said = f"Each {_amount(most, one)}; less, as they are slow: {named}."
    most_rounds = max(row["rounds"] for row in one["rows"])
    rounds = f"Rounds: {most_rounds}; the peer: {one['peer']}." if one["cpu"] else ""
    load = f"Load of the machine {one['load'][0]} before, {one['load'][1]} after."
    return " ".join(filter(None, (said, one["note"], rounds, load)))


def _amount(amount: int, one: Result) -> str:
    counted = one["counted"]
    if counted == "MiB":
        return f"{amount // MiB:,} MiB"
    return f"{amount:,} {counted if amount > 1 else counted.removesuffix('s')}"


def heading(result: Result) -> str:
    """The machine and the versions."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB,"
        f" {machine['system']}. Python {machine['python']}; server in Go.\n"
        f"Versions: {versions}."
    )


def terminal(result: Result) -> str:
    parts = ["\n".join(textwrap.fill(line, COLUMNS) for line in heading(result).splitlines())]
    for one in result["measurements"]:
        told = [title(one["group"], one["column"]), markdown(table([one]))]
        parts.append("\n\n".join([*told, textwrap.fill(notes(one), COLUMNS)]))
    parts.append(textwrap.fill(LEGEND, COLUMNS))
    parts += [f"Left out: {name}: {why}" for name, why in result["left_out"].items()]
    return "\n\n\n".join(parts)


# The documentation --------------------------------------------------------------------------------


def block(result: Result) -> str:
    """Return what stands between the marks: a table for each group."""
    loads = [one["load"][0] for one in result["measurements"] if one["cpu"]]
    parts = [
        f"Measured on {result['date']} on {heading(result)}",
        f"The machine's load before a measurement was {median(loads)}.",
        LEGEND,
    ]
    for group, found in groupby(result["measurements"], lambda one: str(one["group"])):
        members = list(found)
        parts += [f"### {TITLES[group]}", f"`make bench ONLY={group}`", markdown(table(members))]
        note = " ".join(dict.fromkeys(one["note"] for one in members if one["note"]))
        parts += [note] if note else []
    if result["left_out"]:
        parts.append("### Left out")
        parts.append("\n".join(f"* {name}: {why}" for name, why in result["left_out"].items()))
    parts.append("### What is not measured")
    parts.append("\n".join(f"* {what}" for what in result["not_measured"]))
    return "\n\n".join(parts)


def markdown(rows: Table) -> str:
    """The library's own rows are set in bold; a column has one width."""
    bold = [[f"**{row[0]}**", *row[1:]] if "magic" in row[0] else row for row in rows]
    widths = [max(len(row[at]) for row in bold) for at in range(len(rows[0]))]
    lines = []
    for row in bold:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append(" | ".join(["| " + row[0].ljust(widths[0]), *cells[1:]]) + " |")
    rule = "|".join(["", "-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([lines[0], rule + "|", *lines[1:]])


def placed(page: str, text: str) -> str:
    """Return a page with the text between its marks. Raises ValueError: they are not there once
    each, in order."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"{PAGE.name} needs {BEGIN} and {END}, once each")
    return pattern.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page)


def readme(text: str, result: Result) -> str:
    """Return the README with memory and speed of this run, where both were measured."""
    found = {f"{one['group']}-{one['name']}": one for one in result["measurements"]}
    if not {"streaming-http", "commit-20ms"} <= found.keys():
        return text
    streaming, commit = found["streaming-http"], found["commit-20ms"]
    others = ", ".join(
        f"{row['name']} {number(row['grown_mib'])}"
        for row in streaming["rows"]
        if row["grown_mib"] is not None and "magic" not in row["name"]
    )
    ours, committing = _best(streaming), _best(commit)
    link = "[performance](docs/performance.md#beside-others)"
    rows = {
        "memory": f"**{number(ours['grown_mib'])}** MiB to stream a large file ({others})",
        "speed": f"**{number(ours['ratio'])}** × {streaming['peer']} streaming,"
        f" **{number(committing['ratio'])}** × Hadoop's magic committer (hot, its defaults) at a"
        " job's commit",
    }
    for name, told in rows.items():
        text = re.sub(rf"^\| {name} \|.*$", f"| {name} | {told} | {link} |", text, flags=re.M)
    return text


def _best(one: Result) -> Result:
    """Our fastest row, with nothing but defaults; both measurements are rates."""
    ours = [row for row in one["rows"] if "magic" in row["name"] and " at once" not in row["name"]]
    return max(ours, key=lambda row: float(row["figure"]))


def write_docs(result: Result) -> None:
    """Write page, README and figures."""
    README.write_text(readme(README.read_text(encoding="utf-8"), result), encoding="utf-8")
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), block(result)), encoding="utf-8")
    keep(result, KEPT)


def keep(result: Result, path: Path) -> None:
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
