"""The page that `magic-committer report` writes: one file, without scripts, that loads nothing.

`page` is pure: the same data give the same bytes. What an attacker can choose (keys, ids, what a
`_SUCCESS` says) is text, by `magic_committer.cli.markup`; and the page's own policy forbids it to
load or run anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from magic_committer.cli import charts
from magic_committer.cli.markup import Html, join, tag
from magic_committer.cli.quantities import age_words, bytes_words, money_words, time_words
from magic_committer.cli.tally import CLASSES, Sum, Tally
from magic_committer.cli.timeline import LastJob
from magic_committer.maintenance.reports import FoundJob
from magic_committer.maintenance.uploads import OwnerClass

JOBS_MAX = 500
"""Jobs that a page lists."""
KEY_CHARS_MAX = 160
NAME_CHARS_MAX = 48
ID_CHARS_MAX = 13
"""Characters of a key, of a job's name and the like, and of an upload's id that are shown."""
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
    " form-action 'none'"
)
"""Content-Security-Policy: nothing is loaded, nothing runs."""


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
    style = Html((files(__package__) / "report.css").read_text("utf-8"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{data.dest}: open uploads and jobs"),
        tag("link", rel="icon", href="data:,"),
        tag("style", style),
    )
    body = tag(
        "body",
        _header(data),
        tag("main", _overview(data), *_uploads(data.tally), _jobs(data), _last(data.last)),
        _footer(data),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


# Parts of the page --------------------------------------------------------------------------------


def _header(data: ReportData) -> Html:
    return tag(
        "header",
        tag("p", "Open uploads and jobs under", class_="lead"),
        tag("h1", data.dest),
        tag(
            "p",
            "On ", tag("span", data.store, class_="code"), ", looked at ",
            tag("time", time_words(data.made), datetime=time_words(data.made).replace(" ", "T")),
            class_="quiet",
        ),
    )  # fmt: skip


def _overview(data: ReportData) -> Html:
    tally = data.tally
    waiting = sum(1 for job in data.jobs if needs_care(job))
    figures = [("Jobs", f"{len(data.jobs):,}", _care(waiting))]
    if tally is not None:
        total, idle = tally.total, tally.removable
        figures = [
            ("Open uploads", f"{total.uploads:,}", f"{idle.uploads:,} can be removed"),
            ("Stored in them", _stored(total),
             f"{_stored(idle)} can be removed"),
            ("A month", _dollars(total),
             f"{_dollars(idle)} can be saved"),
            *figures,
        ]  # fmt: skip
    return tag(
        "section",
        tag("h2", "Overview", class_="unseen", id="overview"),
        tag(
            "dl",
            *(
                tag("div", tag("dt", name), tag("dd", value, tag("small", more)))
                for name, value, more in figures
            ),
            class_="figures",
        ),
        *(tag("p", note, class_="note", role="note") for note in data.notes),
        aria_labelledby="overview",
    )


def _care(waiting: int) -> str:
    if not waiting:
        return "none is waiting for anybody"
    return f"{waiting:,} {'wait' if waiting > 1 else 'waits'} to be finished or removed"


def needs_care(job: FoundJob) -> bool:
    """Whether somebody should finish or remove a job: what `recover` or `cleanup` would do
    something about, or cannot read."""
    return bool(job.problem) or not job.would.startswith("nothing") or job.kind == "litter"


def _uploads(tally: Tally | None) -> list[Html]:
    if tally is None:
        return []
    if not tally.total.uploads:
        empty = tag("p", "No upload is open under this path.", class_="empty")
        return [_section("uploads", "Open uploads", empty)]
    rows = []
    for key, one in CLASSES.items():
        held = tally.by_class(key)
        if held.uploads:
            rows.append(
                [
                    join(_owner(key), tag("small", one.meaning)), f"{held.uploads:,}",
                    _stored(held), _dollars(held),
                ]
            )  # fmt: skip
    classes = _table(
        "Whose the uploads are",
        ("Class", "#Uploads", "#Stored", "#A month"),
        rows,
        wide="classes",
    )
    return [
        _section("uploads", "Open uploads", charts.ages(tally), classes),
        _section("largest", "The largest uploads", *_largest(tally)),
    ]


def _largest(tally: Tally) -> Iterable[Html]:
    shown = tally.largest()
    rows = [
        [
            _name(one.key, KEY_CHARS_MAX),
            bytes_words(one.bytes),
            money_words(one.dollars_per_month),
            age_words(one.age),
            _owner(one.owner_class),
            _name(one.job or "–"),
            _sentence(one.would),
            _name(one.upload_id, ID_CHARS_MAX),
        ]
        for one in shown
    ]
    yield _table(
        "Largest first, then oldest",
        UPLOAD_TITLES,
        rows,
        wide="keys",
    )
    more = tally.total.uploads - len(shown)
    if more:
        yield tag("p", f"and {more:,} more: magic-committer uploads list", class_="quiet")


def _jobs(data: ReportData) -> Html:
    jobs = data.jobs
    if not jobs:
        told = "No job has a directory directly under this path."
        if data.unlooked:
            told += (
                " The directories below it were not looked at: magic-committer report --recursive"
            )
        return _section("jobs", "Jobs", tag("p", told, class_="empty"))
    rows = [
        [
            _name(job.id)
            if job.dest == data.dest
            else join(_name(job.id), " in ", tag("span", job.dest, class_="code")),
            KINDS.get(job.kind, job.kind),
            job.state if job.kind == "ours" else "–",
            age_words(job.age),
            f"{job.files:,}",
            bytes_words(job.bytes),
            _would(job),
        ]
        for job in jobs[:JOBS_MAX]
    ]
    titles = ("Job", "Kind", "State", "#Age", "#Files", "#Bytes", "What a recovery would do")
    table = _table("Jobs that have a directory here", titles, rows, wide="jobs")
    more = len(jobs) - JOBS_MAX
    rest = tag("p", f"and {more:,} more: magic-committer job list", class_="quiet")
    return _section("jobs", "Jobs", table, rest if more > 0 else None)


UPLOAD_TITLES = (
    "Key", "#Stored", "#A month", "#Age", "Class", "Job", "What uploads abort does", "Upload id",
)  # fmt: skip

KINDS = {
    "ours": "this library's",
    "hadoop": "Hadoop's",
    "litter": "left behind",
    "unreadable": "unreadable",
}
"""`FoundJob.kind` in words."""


def _would(job: FoundJob) -> Html:
    sentence = tag("span", _sentence(job.would), class_="care" if needs_care(job) else None)
    problem = tag("p", job.problem, class_="problem") if job.problem else None
    return join(sentence, problem)


def _last(last: LastJob | None) -> Html:
    if last is None:
        told: Iterable[Html | None] = [
            tag("p", "There is no _SUCCESS: no job has marked this path.", class_="empty")
        ]
    elif last.kind == "unreadable":
        told = [tag("p", f"_SUCCESS cannot be read: {last.problem}", class_="note", role="note")]
    elif last.kind == "empty":
        when = time_words(last.written or 0)
        told = [
            tag("p", f"An empty _SUCCESS, written {when}: it is the classic file committer's, which"
                " tells nothing more.", class_="empty")
        ]  # fmt: skip
    else:
        told = _told(last)
    return _section("last", "The last job", *told)


def _told(last: LastJob) -> Iterable[Html | None]:
    facts = [
        ("Job", last.job_id),
        ("Committer", f"{last.committer}, {'this library' if last.kind == 'ours' else 'Hadoop'}"),
        ("Committed on", last.hostname),
        ("Marked", time_words(last.written or 0)),
        ("Tasks", _number(last.tasks)),
        ("Files", _number(last.files)),
        ("Bytes", bytes_words(last.bytes) if last.bytes is not None else ""),
    ]
    if len(last.job_spans) == 1:
        facts += [(one.name, f"took {charts.seconds_words(one.seconds)}") for one in last.job_spans]
    yield tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts if value),
        class_="facts",
    )
    if not last.success:
        yield tag("p", "It says that the job failed.", class_="note", role="note")
    if len(last.job_spans) > 1:
        yield tag("h3", "From start to marker")
        yield charts.timeline("job", "From start to marker", last.job_spans)
    if last.commit_spans:
        yield tag("h3", "Stages of the commit")
        yield charts.timeline("commit", "Stages of the commit", last.commit_spans)
    if last.durations:
        yield tag("h3", "What took how long")
        rows = [
            [
                one.name,
                f"{one.times:,}",
                f"{one.failures:,}" if one.failures else "–",
                charts.seconds_words(one.total / one.times / 1000),
                charts.seconds_words(one.longest / 1000) if one.longest is not None else "?",
                charts.seconds_words(one.total / 1000),
            ]
            for one in last.durations
        ]
        titles = ("Operation", "#Times", "#Failed", "#Mean", "#Longest", "#Sum")
        yield _table("Durations; what ran side by side adds up", titles, rows, wide="durations")
    if last.filenames:
        yield tag(
            "details",
            tag("summary", f"The first {len(last.filenames):,} files that it names"),
            tag("ul", *(tag("li", name, class_="code") for name in last.filenames)),
        )


def _footer(data: ReportData) -> Html:
    return tag(
        "footer",
        tag("p", "Made by magic-committer. Nothing was changed. Ages are by the"
            " store's clock; a job's times are by the clocks of the machines that ran it."),
        tag("p", "What can be removed is what magic-committer uploads abort takes, without options."
            f" Prices: {data.prices}."),
    )  # fmt: skip


# Small pieces -------------------------------------------------------------------------------------


def _section(name: str, title: str, *content: object) -> Html:
    return tag("section", tag("h2", title, id=name), *content, aria_labelledby=name)


def _table(
    caption: str, titles: Sequence[str], rows: Iterable[Sequence[object]], *, wide: str
) -> Html:
    """A table that scrolls by itself where the page is too narrow. A title that starts with "#" is
    of numbers, which stand to the right. The first cell of a row is its heading."""
    sides = ["num" if title.startswith("#") else None for title in titles]
    head = [
        tag("th", title.removeprefix("#"), scope="col", class_=side)
        for title, side in zip(titles, sides, strict=True)
    ]
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=side) for cell, side in zip(row[1:], sides[1:], strict=True)),
        )
        for row in rows
    ]
    table = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *head)),
        tag("tbody", *body),
        class_=wide,
    )
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _owner(key: OwnerClass) -> Html:
    swatch = tag("span", class_=f"swatch {key}", aria_hidden="true")
    return tag("span", swatch, CLASSES[key].title, class_="owner")


def _name(text: str, most: int = NAME_CHARS_MAX) -> Html:
    """A name of a store's; of a long one both ends, and all of it for who points at it."""
    if len(text) <= most:
        return tag("span", text, class_="code")
    half = (most - 1) // 2
    return tag("span", f"{text[:half]}…{text[-half:]}", class_="code", title=text)


def _stored(held: Sum) -> str:
    return _at_least(bytes_words(held.bytes), held.unsized, held.uploads)


def _dollars(held: Sum) -> str:
    return _at_least(money_words(held.cost), held.unpriced, held.uploads)


def _at_least(words: str, unknown: int, uploads: int) -> str:
    return words if not unknown else f"≥ {words}" if unknown < uploads else "?"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
