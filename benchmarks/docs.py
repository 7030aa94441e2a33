"""Results in the documentation: tables between two marks of docs/performance.md, the figures in
docs/assets, two rows of the README."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from statistics import median

from benchmarks.report import LEGEND, heading, markdown, number, shared
from benchmarks.results import Result

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
KEPT = ROOT / "docs" / "assets" / "benchmarks.json"
BUSY = 1.75
"""From this load for each core on, more than client and server ran. It is looked at before each
measurement: some contenders run 64 threads."""
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
TITLES = {
    "streaming": "One large file",
    "small": "1,000 files of 10 KiB from one task, at 30 ms a request",
    "commit": "Job commit, by the latency of a request",
    "requests": "Requests of a job of 4 tasks with 20 files each",
}


def block(result: Result) -> str:
    """Return what stands between the marks: a table for each group."""
    loads = [one["load"][0] for one in result["measurements"] if one["cpu"]]
    parts = [
        f"Measured on {result['date']} on {heading(result)}",
        _load(median(loads), result["machine"]["cores"]),
        LEGEND + " In brackets: the speed as a multiple of that of the row with 1.00.",
    ]
    for group, found in groupby(result["measurements"], lambda one: str(one["group"])):
        members = list(found)
        parts += [f"### {TITLES[group]}", f"`make bench ONLY={group}`"]
        parts.append(markdown(shared(members)))
        note = " ".join(dict.fromkeys(one["note"] for one in members if one["note"]))
        parts += [note] if note else []
    if result["left_out"]:
        parts.append("### Left out")
        parts.append("\n".join(f"* {name}: {why}" for name, why in result["left_out"].items()))
    parts.append("### What is not measured")
    parts.append("\n".join(f"* {what}" for what in result["not_measured"]))
    return "\n\n".join(parts)


def _load(most: float, cores: int) -> str:
    if most <= BUSY * cores:
        return f"The machine's load before a measurement was {most}."
    return (
        f"**Other work ran on the machine at the same time**: its load before a measurement was"
        f" {most}, on {cores} cores. So the figures are low and vary widely; small differences mean"
        " nothing."
    )


def placed(page: str, text: str) -> str:
    """Return a page with the text between its marks.

    Raises:
        ValueError: the marks are not there once each, in order.
    """
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
    ours, committing = best(streaming), best(commit)
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


def best(one: Result) -> Result:
    """Return our fastest row, with nothing but defaults."""
    ours = [row for row in one["rows"] if "magic" in row["name"] and " at once" not in row["name"]]
    by_figure = sorted(ours, key=lambda row: float(row["figure"]))
    found: Result = by_figure[-1 if one["more_is_better"] else 0]
    return found


def write(result: Result) -> None:
    """Write page, README and figures."""
    README.write_text(readme(README.read_text(encoding="utf-8"), result), encoding="utf-8")
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), block(result)), encoding="utf-8")
    keep(result, KEPT)


def keep(result: Result, path: Path) -> None:
    """Write results as JSON."""
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
