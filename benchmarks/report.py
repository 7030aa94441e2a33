"""Results as tables: for a terminal of 80 columns, and as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from benchmarks.results import Result

Table = list[list[str]]
MiB = 1024**2
COLUMNS = 80
GAP = "  "
LEGEND = (
    "Medians of the rounds. CPU: of the client and its children, for what the figure counts. MiB:"
    " the peak of resident memory above what it was before the clock started, the largest of all"
    " rounds. Only ratios within one column count."
)


def number(value: float | None) -> str:
    """Three digits that mean something; "" for none."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def figures(one: Result) -> Table:
    """The table of a measurement: a row for each contender."""
    unit = one["unit"]
    headings = ["", unit, "(min–max)", "× peer", one["cpu"], "MiB", "requests"]
    rows = [headings]
    for row in one["rows"]:
        spread = f"{number(row['least'])}–{number(row['most'])}" if row["rounds"] > 1 else ""
        rows.append(
            [
                row["name"],
                number(row["figure"]),
                spread,
                number(row["ratio"]),
                number(row["cpu"]),
                number(row["grown_mib"]),
                f"{sum(row['requests'].values()):,}",
            ]
        )
    return _without_empty(rows)


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


def verbs(one: Result) -> Table:
    """Requests by verb, a column for each contender."""
    names = sorted({verb for row in one["rows"] for verb in row["requests"]})
    rows = [["request", *(row["name"] for row in one["rows"])]]
    rows += [[verb, *(str(row["requests"].get(verb, 0)) for row in one["rows"])] for verb in names]
    rows.append(["**all**", *(str(sum(row["requests"].values())) for row in one["rows"])])
    return rows


def tables(one: Result) -> list[Table]:
    """All tables of a measurement."""
    if not one["cpu"]:
        return [verbs(one)]
    return [figures(one)]


def notes(one: Result) -> str:
    """What has to be said of a measurement, in one paragraph."""
    most = max(row["amount"] for row in one["rows"])
    said = [f"Each {_amount(most, one)}."]
    fewer = [row for row in one["rows"] if row["amount"] < most]
    if fewer:
        named = ", ".join(f"{row['name']} {_amount(row['amount'], one)}" for row in fewer)
        said = [f"Each {_amount(most, one)}; less, as they are slow: {named}."]
    said += [one["note"]] if one["note"] else []
    if one["cpu"]:
        rounds = max(row["rounds"] for row in one["rows"])
        of = "One round" if rounds == 1 else f"Medians of {rounds} rounds"
        faster = "" if one["more_is_better"] else "how many times faster than "
        said.append(f"{of}; × is {faster or 'the ratio to '}{one['peer']}.")
    said.append(f"Load of the machine {one['load'][0]} before, {one['load'][1]} after.")
    return " ".join(said)


def _amount(amount: int, one: Result) -> str:
    counted = one["counted"]
    if counted == "MiB":
        return f"{amount // MiB:,} MiB"
    return f"{amount:,} {counted if amount > 1 else counted.removesuffix('s')}"


def _without_empty(rows: Table) -> Table:
    kept = [at for at in range(len(rows[0])) if at == 0 or any(row[at] for row in rows[1:])]
    return [[row[at] for at in kept] for row in rows]


def plain(rows: Table, width: int = COLUMNS) -> str:
    """For a terminal: the first column to the left, the others to the right; the last columns are
    left out where they have no room."""
    while True:
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        if sum(widths) + len(GAP) * (len(widths) - 1) <= width or len(widths) == 2:
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
    return "\n".join(lines).replace("**", "")


def markdown(rows: Table) -> str:
    """For the documentation; the library's own rows are set in bold."""
    bold = [[f"**{row[0]}**", *row[1:]] if "magic" in row[0] else row for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in bold]
    lines.insert(1, "|---|" + "---:|" * (len(rows[0]) - 1))
    return "\n".join(lines)


def heading(result: Result) -> str:
    """The machine, the versions, and what is not measured."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB,"
        f" {machine['system']}. Python {machine['python']}; server in Go.\n"
        f"Versions: {versions}."
    )


def terminal(result: Result, measured: Sequence[Result]) -> str:
    """All of it, for a terminal."""
    parts = ["\n".join(textwrap.fill(line, COLUMNS) for line in heading(result).splitlines())]
    for one in measured:
        body = "\n\n".join(plain(table) for table in tables(one))
        parts.append(f"{one['title']}\n\n{body}\n\n{textwrap.fill(notes(one), COLUMNS)}")
    parts.append(textwrap.fill(LEGEND, COLUMNS))
    parts += [f"Left out: {name}: {why}" for name, why in result["left_out"].items()]
    return "\n\n\n".join(parts)
