"""The page that `magic-committer report` writes: one file, without scripts, that loads nothing.

`page` is pure: the same data give the same bytes. What it looks like is report.html.jinja and
report.css; here is what they are given. What an attacker can choose (keys, ids) is text: the
template escapes every value, and no control or format character of one is left; and the page's own
policy forbids it to load or run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from magic_committer._quantities import age_words, bytes_words
from magic_committer.cli.plain import clean
from magic_committer.cli.quantities import time_words
from magic_committer.cli.sums import CLASSES, Advice, Sums
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


@dataclass(frozen=True, slots=True)
class ReportData:
    """All that a page tells.

    Attributes:
        dest: URL of the directory. store: its identity, without secrets.
        made: seconds since the epoch.
        sums: of the open uploads; None if the store has no listing of them.
        notes: what could not be found out.
        unlooked: there are directories below ``dest`` whose jobs were not looked for.
        options: words for a command that is to reach the same store.
    """

    dest: str
    store: str
    made: float
    sums: Sums | None
    jobs: Sequence[FoundJob] = ()
    notes: Sequence[str] = field(default=())
    unlooked: bool = False
    options: Sequence[str] = ()

    @property
    def advice(self) -> Advice | None:
        """What is old and not ours, and the command that removes it."""
        return None if self.sums is None else self.sums.advice(self.dest, self.options)


def page(data: ReportData) -> str:
    """The whole page."""
    held = [] if data.sums is None else [(key, data.sums.of(key)) for key in CLASSES]
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
        "needs_care": needs_care,
        "number": lambda value: f"{value:,}",
        "sentence": lambda text: text[:1].upper() + text[1:],
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
    if data.sums is None:
        return [jobs]
    total, idle = data.sums.all, data.sums.removable
    stored, left = (one.stored() or ("?" if one.uploads else "0 B") for one in (total, idle))
    return [
        ("Open uploads", f"{total.uploads:,}", f"{idle.uploads:,} left by dead jobs"),
        ("Stored in them", stored, f"{left} left by dead jobs"),
        jobs,
    ]


def needs_care(job: FoundJob) -> bool:
    """Whether somebody should finish or remove a job: what `recover` or `cleanup` would do
    something about, or cannot read."""
    return bool(job.problem) or not job.would.startswith("nothing") or job.kind == "litter"
