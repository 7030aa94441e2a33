"""Results as tables: for a terminal of 80 columns; and in the documentation, between two marks of
docs/performance.md, with the figures in docs/assets and two rows of the README."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from benchmarks.plan import TITLES, MiB
from benchmarks.results import Result

Table = list[list[str]]
COLUMNS = 80
GAP = "  "
LEGEND = (
    "Medians of the rounds. CPU: of the client and its children, for what the figure counts. MiB:"
    " the peak of resident memory above what it was before the clock started, the largest of all"
    " rounds. Only ratios within one column count."
)
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
KEPT = ROOT / "docs" / "assets" / "benchmarks.json"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
BUSY = 1.75
"""From this load for each core on, more than client and server ran. It is looked at before each
measurement: some contenders run 64 threads."""


# Tables -------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Three digits that mean something; "" for none."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def figures(one: Result) -> Table:
    """The table of a measurement: a row for each contender; of what is not timed its requests."""
    if not one["cpu"]:
        return _requests(one)
    rows = [["", one["unit"], "(min–max)", "× peer", one["cpu"], "MiB", "requests"]]
    rows += [
        [
            row["name"],
            number(row["figure"]),
            f"{number(row['least'])}–{number(row['most'])}" if row["rounds"] > 1 else "",
            number(row["ratio"]),
            number(row["cpu"]),
            number(row["grown_mib"]),
            f"{sum(row['requests'].values()):,}",
        ]
        for row in one["rows"]
    ]
    return _without_empty(rows)


def _requests(one: Result) -> Table:
    """Requests by verb, a column for each contender."""
    names = sorted({verb for row in one["rows"] for verb in row["requests"]})
    rows = [["request", *(row["name"] for row in one["rows"])]]
    rows += [[verb, *(str(row["requests"].get(verb, 0)) for row in one["rows"])] for verb in names]
    return [*rows, ["all", *(str(sum(row["requests"].values())) for row in one["rows"])]]


def shared(members: Sequence[Result]) -> Table:
    """The table of measurements that have the same contenders: a column for each, with the ratio
    in brackets, then the CPU and the memory of the first one. What is not timed has one row for
    each contender, with its requests."""
    first = members[0]
    if not first["cpu"]:
        sums = [[row["name"], f"{sum(row['requests'].values()):,}"] for row in first["rows"]]
        return [["", "requests"], *sums]
    units = [f"{first['unit']}, {one['column']}".removesuffix(", ") for one in members]
    rows = [["", *units, first["cpu"], "MiB"]]
    for row in first["rows"]:
        same = [[r for r in one["rows"] if r["name"] == row["name"]] for one in members]
        cells = [f"{number(r[0]['figure'])} ({number(r[0]['ratio'])})" if r else "" for r in same]
        rows.append([row["name"], *cells, number(row["cpu"]), number(row["grown_mib"])])
    return _without_empty(rows)


def _without_empty(rows: Table) -> Table:
    kept = [at for at in range(len(rows[0])) if at == 0 or any(row[at] for row in rows[1:])]
    return [[row[at] for at in kept] for row in rows]


# A terminal ---------------------------------------------------------------------------------------


def notes(one: Result) -> str:
    """What has to be said of a measurement, in one paragraph."""
    most = max(row["amount"] for row in one["rows"])
    said = f"Each {_amount(most, one)}."
    fewer = [row for row in one["rows"] if row["amount"] < most]
    if fewer:
        named = ", ".join(f"{row['name']} {_amount(row['amount'], one)}" for row in fewer)
        said = f"Each {_amount(most, one)}; less, as they are slow: {named}."
    parts = [said, one["note"]] if one["note"] else [said]
    if one["cpu"]:
        rounds = max(row["rounds"] for row in one["rows"])
        of = "One round" if rounds == 1 else f"Medians of {rounds} rounds"
        what = "the ratio to" if one["more_is_better"] else "how many times faster than"
        parts.append(f"{of}; × is {what} {one['peer']}.")
    parts.append(f"Load of the machine {one['load'][0]} before, {one['load'][1]} after.")
    return " ".join(parts)


def _amount(amount: int, one: Result) -> str:
    counted = one["counted"]
    if counted == "MiB":
        return f"{amount // MiB:,} MiB"
    return f"{amount:,} {counted if amount > 1 else counted.removesuffix('s')}"


def plain(rows: Table) -> str:
    """The first column to the left, the others to the right; the last columns are left out where
    they have no room."""
    while True:
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        if sum(widths) + len(GAP) * (len(widths) - 1) <= COLUMNS or len(widths) == 2:
            break
        rows = [row[:-1] for row in rows]
    lines = [
        GAP.join(
            cell.ljust(widths[at]) if at == 0 else cell.rjust(widths[at])
            for at, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


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
        title = f"{TITLES[one['group']]}, {one['column']}".removesuffix(", ")
        parts.append(f"{title}\n\n{plain(figures(one))}\n\n{textwrap.fill(notes(one), COLUMNS)}")
    parts.append(textwrap.fill(LEGEND, COLUMNS))
    parts += [f"Left out: {name}: {why}" for name, why in result["left_out"].items()]
    return "\n\n\n".join(parts)


# The documentation --------------------------------------------------------------------------------


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
        parts += [f"### {TITLES[group]}", f"`make bench ONLY={group}`", _markdown(shared(members))]
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


def _markdown(rows: Table) -> str:
    """The library's own rows are set in bold."""
    bold = [[f"**{row[0]}**", *row[1:]] if "magic" in row[0] else row for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in bold]
    lines.insert(1, "|---|" + "---:|" * (len(rows[0]) - 1))
    return "\n".join(lines)


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
