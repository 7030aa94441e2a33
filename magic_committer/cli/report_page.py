"""The page that `magic-committer report` writes: one file, without scripts, that loads nothing.

`page` is pure: the same data give the same bytes. What it looks like is report.html.jinja and
report.css; here is what they are given, and the geometry of the pictures. What an attacker can
choose (keys, ids, what a `_SUCCESS` says) is text: the template escapes every value, and no control
or format character of one is left; and the page's own policy forbids it to load or run anything.

Places along a picture's width are percentages, so that it is as wide as its page while its text
stays as large as the page's; heights are pixels. Each has a description that says the same in
words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from magic_committer._quantities import age_words, bytes_words
from magic_committer.cli.plain import clean
from magic_committer.cli.quantities import money_words, time_words
from magic_committer.cli.tally import AGES, CLASSES, Sum, Tally
from magic_committer.cli.timeline import LastJob, Span
from magic_committer.maintenance.reports import FoundJob

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE = "report.html.jinja"
JOBS_MAX = 500
"""Jobs that a page lists."""
KEY_CHARS_MAX = 160
"""Characters of a key that are shown; of a longer one both ends."""
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
    " form-action 'none'"
)
"""Content-Security-Policy: nothing is loaded, nothing runs."""
KINDS = {
    "ours": "this library's",
    "hadoop": "Hadoop's",
    "litter": "left behind",
    "unreadable": "unreadable",
}
"""`FoundJob.kind` in words."""
BARS_PX = 150
"""Height of the tallest column."""
TOP_PX = 40
BOTTOM_PX = 26
ROW_PX = 44
"""Of a timeline: words above, bar below."""
AXIS_PX = 24
TICKS = 4
"""A timeline's axis has so many parts."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """All that a page tells.

    Attributes:
        dest: URL of the directory. store: its identity, without secrets.
        made: seconds since the epoch. prices: where they are from.
        tally: of the open uploads; None if the store has no listing of them.
        last: None if there is no `_SUCCESS`.
        notes: what could not be found out.
        unlooked: there are directories below ``dest`` whose jobs were not looked for.
    """

    dest: str
    store: str
    made: float
    prices: str
    tally: Tally | None
    jobs: Sequence[FoundJob] = ()
    last: LastJob | None = None
    notes: Sequence[str] = field(default=())
    unlooked: bool = False


def page(data: ReportData) -> str:
    """The whole page."""
    tally = data.tally
    held = [] if tally is None else [(key, tally.by_class(key)) for key in CLASSES]
    return (
        _environment()
        .get_template(TEMPLATE)
        .render(
            data=data,
            policy=POLICY,
            classes=CLASSES,
            kinds=KINDS,
            jobs_max=JOBS_MAX,
            key_chars=KEY_CHARS_MAX,
            figures=_figures(data),
            held_classes=[(key, one) for key, one in held if one.uploads],
            ages=_ages(tally) if tally is not None else None,
            facts=_facts(data.last) if data.last is not None else (),
        )
    )


@cache
def _environment() -> Environment:
    """The template's: every value is escaped and cleaned, and one that is missing is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # late: only a page needs it
    from markupsafe import Markup

    def finalized(value: object) -> object:
        return value if isinstance(value, Markup) else clean(value)

    made = Environment(
        autoescape=True,
        finalize=finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=FunctionLoader(lambda name: (files(__package__) / name).read_text("utf-8")),
    )
    made.filters |= {
        "age": age_words,
        "bytes": bytes_words,
        "dollars": _dollars,
        "money": money_words,
        "needs_care": needs_care,
        "number": lambda value: f"{value:,}",
        "seconds": seconds_words,
        "sentence": lambda text: text[:1].upper() + text[1:],
        "spans": _spans,
        "stored": _stored,
        "time": time_words,
    }
    return made


# Words --------------------------------------------------------------------------------------------


def _figures(data: ReportData) -> list[tuple[str, str, str]]:
    """The overview: title, value, and what is said below it."""
    waiting = sum(map(needs_care, data.jobs))
    verb = "wait" if waiting > 1 else "waits"
    care = f"{waiting:,} {verb} to be finished or removed"
    jobs = ("Jobs", f"{len(data.jobs):,}", care if waiting else "none is waiting for anybody")
    if data.tally is None:
        return [jobs]
    total, idle = data.tally.total, data.tally.removable
    return [
        ("Open uploads", f"{total.uploads:,}", f"{idle.uploads:,} can be removed"),
        ("Stored in them", _stored(total), f"{_stored(idle)} can be removed"),
        ("A month", _dollars(total), f"{_dollars(idle)} can be saved"),
        jobs,
    ]


def _facts(last: LastJob) -> list[tuple[str, str]]:
    """What the last job says of itself."""
    told = [
        ("Job", last.job_id),
        ("Committer", f"{last.committer}, {'this library' if last.kind == 'ours' else 'Hadoop'}"),
        ("Committed on", last.hostname),
        ("Marked", time_words(last.written or 0)),
        ("Tasks", "" if last.tasks is None else f"{last.tasks:,}"),
        ("Files", "" if last.files is None else f"{last.files:,}"),
        ("Bytes", "" if last.bytes is None else bytes_words(last.bytes)),
    ]
    if len(last.job_spans) == 1:
        told += [(one.name, f"took {seconds_words(one.seconds)}") for one in last.job_spans]
    return told


def needs_care(job: FoundJob) -> bool:
    """Whether somebody should finish or remove a job: what `recover` or `cleanup` would do
    something about, or cannot read."""
    return bool(job.problem) or not job.would.startswith("nothing") or job.kind == "litter"


def seconds_words(seconds: float) -> str:
    """A duration, also a short one: ``"12 ms"``, ``"3.2 s"``, ``"1.5 min"``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else age_words(seconds)


def _stored(held: Sum) -> str:
    return _at_least(bytes_words(held.bytes), held.unsized, held.uploads)


def _dollars(held: Sum) -> str:
    return _at_least(money_words(held.cost), held.unpriced, held.uploads)


def _at_least(words: str, unknown: int, uploads: int) -> str:
    return words if not unknown else f"≥ {words}" if unknown < uploads else "?"


# Pictures -----------------------------------------------------------------------------------------


def _ages(tally: Tally) -> dict[str, Any]:
    """Uploads by age, a column for each bucket, stacked by class."""
    held = {name: tally.by_age(name) for name in AGES}
    tallest = max(one.uploads for one in held.values()) or 1
    step = 100 / len(held)
    floor = TOP_PX + BARS_PX
    columns = []
    for index, (name, one) in enumerate(held.items()):
        bars, top = [], float(floor)
        for key, owner in CLASSES.items():
            if count := tally.of(key, name).uploads:
                height = max(count / tallest * BARS_PX, 2.0)
                top -= height
                title = f"{owner.title}, {name}: {count:,}"
                bars.append(
                    {"key": key, "y": f"{top:.1f}", "height": f"{height:.1f}", "title": title}
                )
        columns.append(
            {
                "name": name,
                "held": one,
                "left": _percent((index + 0.18) * step),
                "middle": _percent((index + 0.5) * step),
                "top": top,
                "bars": bars,
            }
        )
    return {
        "columns": columns,
        "floor": floor,
        "height": floor + BOTTOM_PX,
        "width": _percent(0.64 * step),
        "told": "; ".join(f"{name}: {one.uploads:,}" for name, one in held.items() if one.uploads),
    }


def _spans(spans: Sequence[Span]) -> dict[str, Any]:
    """What took from when to when, a row for each, on one axis that starts with the first."""
    start = min(span.started for span in spans)
    whole = max(max(span.ended, span.started) for span in spans) - start or 0.001
    bottom = ROW_PX * len(spans)
    rows = []
    for row, span in enumerate(spans):
        began, took = span.started - start, seconds_words(span.seconds)
        rows.append(
            {
                "name": span.name,
                "top": row * ROW_PX,
                "took": f"{took}, from {f'+{seconds_words(began)}' if began else '0'}",
                "left": _percent(began / whole * 100),
                "width": _percent(span.seconds / whole * 100),
            }
        )
    ticks = [
        {
            "at": _percent(tick / TICKS * 100),
            "anchor": {0: "start", TICKS: "end"}.get(tick, "middle"),
            "words": f"+{seconds_words(whole * tick / TICKS)}" if tick else "0",
        }
        for tick in range(TICKS + 1)
    ]
    told = "; ".join(
        f"{span.name} took {seconds_words(span.seconds)}"
        f" and began {seconds_words(span.started - start)} after the start"
        for span in spans
    )
    return {
        "rows": rows, "ticks": ticks, "told": told, "bottom": bottom, "height": bottom + AXIS_PX,
    }  # fmt: skip


def _percent(value: float) -> str:
    return f"{value:.3f}%"
