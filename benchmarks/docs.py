"""Results in docs/performance.md: tables between two marks, charts and figures in docs/assets."""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.charts import chart
from benchmarks.report import LEGEND, heading, markdown, notes, tables
from benchmarks.results import Result

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
KEPT = ROOT / "docs" / "assets" / "benchmarks.json"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


def block(result: Result) -> str:
    """What stands between the marks."""
    loads = [load for one in result["measurements"] for load in one["load"]]
    parts = [
        f"Measured on {result['date']}, in {result['seconds'] / 60:.0f} minutes, on"
        f" {heading(result)}",
        f"The machine's load was {min(loads)} to {max(loads)} (its {result['machine']['cores']}"
        " cores, with what else ran on it).",
        LEGEND,
    ]
    for one in result["measurements"]:
        parts.append(f"### {one['title']}")
        if one["cpu"]:
            parts.append(f"![{one['title']}](assets/{picture(one)})")
        parts += [markdown(table) for table in tables(one)]
        parts.append(notes(one))
    if result.get("profiles"):
        parts.append("### Where our time goes")
        parts.append(
            "All threads were looked at, hundreds of times a second. 100 % is one thread all the"
            " time; a thread that waits for the server counts, one without work does not."
        )
        for title, text in result["profiles"].items():
            parts += [f"{title}:", f"```\n{text.strip()}\n```"]
    if result["left_out"]:
        parts.append("### Left out")
        parts.append("\n".join(f"* {name}: {why}" for name, why in result["left_out"].items()))
    parts.append("### What is not measured")
    parts.append("\n".join(f"* {what}" for what in result["not_measured"]))
    return "\n\n".join(parts)


def picture(one: Result) -> str:
    """The file of a chart."""
    return f"bench-{one['group']}-{one['name']}.svg"


def placed(page: str, text: str) -> str:
    """A page with the text between its marks.

    Raises:
        ValueError: the marks are not there once each, in order.
    """
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"{PAGE.name} needs {BEGIN} and {END}, once each")
    return pattern.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page)


def write(result: Result) -> None:
    """Write page, charts and figures; charts of earlier runs go."""
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), block(result)), encoding="utf-8")
    for old in KEPT.parent.glob("bench-*.svg"):
        old.unlink()
    for one in result["measurements"]:
        if one["cpu"]:
            (KEPT.parent / picture(one)).write_text(chart(one), encoding="utf-8")
    keep(result, KEPT)


def keep(result: Result, path: Path) -> None:
    """Write results as JSON."""
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
