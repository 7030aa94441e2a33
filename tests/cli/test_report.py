"""The report: what it counts, and that its page is whole, harmless and readable.

`python -m tests.cli.browser` looks at the same page in a real browser.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise, product
from pathlib import Path

import orjson
import pytest

from magic_committer import start
from magic_committer.cli import exits
from magic_committer.cli.plain import clean
from magic_committer.cli.report_page import (
    KEY_CHARS_MAX,
    POLICY,
    TEMPLATE,
    ReportData,
    needs_care,
    page,
)
from magic_committer.cli.tally import AGES, CLASSES, Tally, bucket_of
from magic_committer.cli.timeline import Duration, LastJob, Span, told_by
from magic_committer.errors import NotSupported
from magic_committer.hadoop.formats import encode_success, new_success
from magic_committer.maintenance.inspect import would_do
from magic_committer.maintenance.reports import FoundJob
from magic_committer.maintenance.uploads import CLASSES as OWNER_CLASSES
from magic_committer.maintenance.uploads import FoundUpload
from magic_committer.protocol.record import JobRecord, State, Terms
from magic_committer.stores.base import Attributes
from magic_committer.stores.memory import Request
from magic_committer.testing import MemoryStore
from tests.cli import sample_report
from tests.cli.conftest import Command

PATH = "s3://bucket/table"
GOLDEN = Path(__file__).parents[1] / "golden"
MARKERS = sorted(GOLDEN.glob("*/*/_SUCCESS.json"))
EMPTY = ReportData("s3://bucket/table/", "store", sample_report.NOW, "list", Tally(5))

VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
"""Elements without an end tag (HTML standard, "void elements")."""
TEXT_CONTRAST_MIN = 4.5
PICTURE_CONTRAST_MIN = 3.0
"""Of WCAG 2.2: success criteria 1.4.3 and 1.4.11, level AA."""


class Parsed(HTMLParser):
    """A page, held against what every page keeps to while it is read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.inside: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs), f"an attribute twice: <{tag} {attrs}>"
        self.tags.append((tag, given))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside.setdefault(self.open[-1], []).append(data)
            self.text.append(data)

    def all(self, *names: str) -> list[dict[str, str]]:
        """The attributes of each element of these names."""
        return [given for name, given in self.tags if name in names]


@pytest.fixture(scope="module")
def sample() -> Parsed:
    """The page with everything that is hard to show."""
    return Parsed(page(sample_report.data()))


# Harmless -----------------------------------------------------------------------------------------


def test_the_page_runs_and_loads_nothing(sample: Parsed) -> None:
    """No script, no frame, no form, no handler; no address but the empty icon; the policy is first
    of what a policy is for."""
    allowed = {
        "html", "head", "meta", "title", "link", "style", "body", "header", "main", "section",
        "footer", "h1", "h2", "h3", "p", "span", "small", "time", "dl", "dt", "dd", "div", "figure",
        "figcaption", "ul", "li", "table", "caption", "thead", "tbody", "tr", "th", "td", "details",
        "summary", "svg", "desc", "rect", "line", "text",
    }  # fmt: skip
    assert {name for name, _ in sample.tags} <= allowed
    addresses = {"href", "src", "srcset", "action", "data", "poster", "background", "style"}
    for name, given in sample.tags:
        assert not [key for key in given if key.startswith("on")]
        assert {k: v for k, v in given.items() if k in addresses} in ({}, {"href": "data:,"}), name
    policy = next(given for given in sample.all("meta") if "http-equiv" in given)
    assert policy == {"http-equiv": "Content-Security-Policy", "content": POLICY}
    assert [name for name, _ in sample.tags].index("meta") < [n for n, _ in sample.tags].index(
        "link"
    )
    style = "".join(sample.inside["style"])
    assert not re.search(r"url\(|@import|expression|<", style)


@pytest.mark.parametrize("hostile", sample_report.HOSTILE)
def test_what_a_store_says_is_shown_and_not_obeyed(sample: Parsed, hostile: str) -> None:
    """A name that holds markup, quotes or control characters stands on the page as text; of a long
    one both ends."""
    shown = clean(hostile)
    if len(shown) > KEY_CHARS_MAX:
        assert any(text.startswith(shown[:70]) and "…" in text for text in sample.text)
        assert shown in [given.get("title") for given in sample.all("span")]
    else:
        assert shown in sample.text


def test_no_invisible_character_is_on_the_page() -> None:
    """Neither a control nor a format character (bidirectional overrides) but the last newline."""
    written = page(sample_report.data())
    style = (files("magic_committer.cli") / "report.css").read_text("utf-8")
    found = {c for c in written.replace(style, "") if unicodedata.category(c) in ("Cc", "Cf")}
    assert found <= {"\n"}


def test_text_cannot_become_markup() -> None:
    """Every text of the data that is told, each holding markup and quotes, stands in the page as
    text or as an attribute's value; none of it becomes an element or an attribute."""
    evil = "'\"><b onclick=x>&\x1b[2J"
    upload = FoundUpload(evil, evil, "over", job=evil, would=evil, age=1.0, bytes=1)
    tally = Tally(5)
    tally.add(upload)
    job = FoundJob(evil, evil, "ours", state=evil, would=evil, problem=evil)
    span = Span(evil, 1.0, 2.0)
    last = LastJob(
        "ours", evil, evil, evil, success=False, written=1.0, job_spans=(span, span),
        commit_spans=(span,), durations=(Duration(evil, evil, 1, 1, 1, 1),), filenames=(evil,),
    )  # fmt: skip
    data = ReportData(evil, evil, 1.0, evil, tally, [job], last, [evil])
    parsed = Parsed(page(data))
    assert not parsed.all("b")
    assert not [given for _, given in parsed.tags if "onclick" in given]
    assert sum(text.count(clean(evil)) for text in parsed.text) >= 15
    assert "\x1b" not in "".join(parsed.text)


def test_a_template_marks_nothing_as_safe() -> None:
    """Nothing in it turns the escaping off, and it names no address."""
    template = (files("magic_committer.cli") / TEMPLATE).read_text("utf-8")
    assert not re.search(r"\|\s*safe|autoescape|Markup|https?:", template)


# Readable -----------------------------------------------------------------------------------------


def test_the_page_is_accessible(sample: Parsed) -> None:
    """A language, one h1, no level skipped, captions, scopes, pictures with title and description,
    ids that are unique and that exist where they are named."""
    assert sample.all("html") == [{"lang": "en"}]
    levels = [int(name[1]) for name, _ in sample.tags if re.fullmatch(r"h[1-6]", name)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))
    names = [name for name, _ in sample.tags]
    assert names.count("caption") == names.count("table") == names.count("thead") > 3
    assert all(given.get("scope") in ("row", "col") for given in sample.all("th"))
    ids = [given["id"] for _, given in sample.tags if "id" in given]
    assert len(ids) == len(set(ids))
    naming = ("aria-labelledby", "aria-describedby")
    named = [given[key] for _, given in sample.tags for key in naming if key in given]
    assert set(named) <= set(ids)
    pictures = sample.all("svg")
    assert len(pictures) == 3
    for picture in pictures:
        assert picture["role"] == "img"
        assert {"aria-labelledby", "aria-describedby"} <= set(picture)


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme: str) -> None:
    """Texts have 4.5 against both grounds, shapes 3 against what they lie on."""
    css = (files("magic_committer.cli") / "report.css").read_text("utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[:2]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", light if scheme == "light" else dark))
    pale = []
    pairs = [
        *product(["text", "quiet", "care", "bad", "accent"], ["paper", "sheet"], [4.5]),
        *product([*CLASSES, "accent", "quiet"], ["sheet"], [PICTURE_CONTRAST_MIN]),
        ("accent", "track", PICTURE_CONTRAST_MIN),
    ]
    for front, ground, least in pairs:
        low, high = sorted(luminance(colours[name]) for name in (front, ground))
        if (high + 0.05) / (low + 0.05) < least:
            pale.append((front, ground))
    assert not pale
    assert TEXT_CONTRAST_MIN in {least for *_, least in pairs}


def test_nothing_is_said_plainly() -> None:
    """Of an empty path the page says so, without tables and pictures."""
    parsed = Parsed(page(EMPTY))
    text = " ".join(parsed.text)
    assert "No upload is open" in text
    assert "No job has a directory" in text
    assert "There is no _SUCCESS" in text
    assert not parsed.all("table", "svg")


def test_the_same_data_give_the_same_page() -> None:
    """The page is a function of its data."""
    assert page(sample_report.data()) == page(sample_report.data())


# Counted ------------------------------------------------------------------------------------------


def test_sums_are_exact_and_the_largest_are_kept() -> None:
    """Every sum is that of the uploads themselves; the kept ones are the first of all, sorted."""
    uploads = [
        FoundUpload(
            f"k{n}", f"u{n}", OWNER_CLASSES[n % 6],
            age=None if n % 7 == 0 else float(n * n * 977),
            bytes=None if n % 5 == 0 else n * 7919 % 101,
            dollars_per_month=None if n % 3 == 0 else n / 10,
        )
        for n in range(200)
    ]  # fmt: skip
    tally = Tally(limit=17)
    for upload in uploads:
        tally.add(upload)
    for name, age in product(CLASSES, AGES):
        mine = [u for u in uploads if (u.owner_class, bucket_of(u.age)) == (name, age)]
        held = tally.of(name, age)
        assert held.uploads == len(mine)
        assert held.bytes == sum(u.bytes or 0 for u in mine)
        assert held.cost == pytest.approx(sum(u.dollars_per_month or 0 for u in mine))
        assert held.unsized == sum(u.bytes is None for u in mine)
    assert tally.total.uploads == 200 == sum(tally.by_class(name).uploads for name in CLASSES)
    assert sum(tally.by_age(age).uploads for age in AGES) == 200
    assert tally.removable.uploads < 200
    ranked = sorted(uploads, key=lambda u: (-(u.bytes or 0), -(u.age or 0)))
    assert tally.largest() == ranked[:17]


@pytest.mark.parametrize(
    ("age", "bucket"),
    [
        (0, "< 1 h"), (3599, "< 1 h"), (3600, "< 1 d"), (86_399, "< 1 d"), (86_400, "< 7 d"),
        (7 * 86_400, "< 30 d"), (30 * 86_400, "older"), (1e12, "older"), (None, "unknown"),
    ],
)  # fmt: skip
def test_ages_fall_into_buckets(age: float | None, bucket: str) -> None:
    """A bucket's upper end is not in it."""
    assert bucket_of(age) == bucket


def test_every_class_of_the_library_is_told() -> None:
    """The page knows each class of uploads."""
    assert set(CLASSES) == set(OWNER_CLASSES)


def test_more_uploads_than_are_listed_are_counted() -> None:
    """The page lists as many as asked for, and says how many more there are."""
    parsed = Parsed(page(sample_report.data()))
    tally = sample_report.tally()
    assert f"and {tally.total.uploads - tally.limit:,} more: magic-committer uploads list" in (
        parsed.text
    )
    assert f"{tally.total.uploads:,}" in parsed.text


def test_jobs_that_wait_are_marked() -> None:
    """A job needs care unless nothing is to be done about it."""
    jobs = {job.id: needs_care(job) for job in sample_report.jobs()}
    assert [care for _, care in jobs.items()] == [False, True, True, False, True, True]


@pytest.mark.parametrize(
    ("state", "age", "waits"),
    [
        (State.RUNNING, 1.0, False), (State.RUNNING, 100.0, True), (State.COMMITTING, 1.0, True),
        (State.COMPLETED, 1.0, True), (State.REVERTING, 1.0, True), (State.REVERTED, 1.0, True),
        (State.ABORTING, 1.0, True), (State.CLOSED, 1.0, False),
    ],
)  # fmt: skip
def test_what_waits_goes_by_what_recovery_would_do(state: State, age: float, waits: bool) -> None:
    """Of the library's own sentences for each state: a job waits unless it may be alive or is
    closed."""
    record = JobRecord("j", "u", state, "n", Terms(), False, 0.0, outcome="committed")
    job = FoundJob("j", PATH, "ours", state=state, would=would_do(record, age, 50.0))
    assert needs_care(job) is waits


# The last job -------------------------------------------------------------------------------------


def test_a_marker_of_ours_tells_when_everything_was(memory_s3: MemoryStore) -> None:
    """Tasks lie within the job, the stages of the commit follow each other within it."""
    job = start(PATH, job_id="nightly", mode="replace")
    for number in range(3):
        with job.task(f"t{number}") as task, task.open(f"{number}.csv", "wb") as file:
            file.write(b"x" * 10)
    job.commit()
    last = told_by(memory_s3.body("table/_SUCCESS"), "_SUCCESS", 0.0)
    assert (last.kind, last.job_id, last.tasks, last.files, last.bytes) == (
        "ours", "nightly", 3, 3, 30,
    )  # fmt: skip
    whole, tasks, uploads, commit = last.job_spans
    assert [span.name for span in last.job_spans] == ["Job", "Tasks", "Uploads", "Commit"]
    assert whole.started - 0.001 <= tasks.started <= uploads.started <= uploads.ended
    assert uploads.ended <= tasks.ended <= commit.started
    assert commit.ended == whole.ended == last.written
    stages = last.commit_spans
    assert [span.name for span in stages] == [
        "Load the pendingsets", "Check the uploads", "Save the plan", "Decide",
        "Complete the files",
    ]  # fmt: skip
    assert all(a.ended <= b.started for a, b in pairwise(stages))
    assert commit.started <= stages[0].started
    assert stages[-1].ended <= commit.ended
    assert {one.name: one.times for one in last.durations}["Task attempt"] == 3


@pytest.mark.parametrize("file", MARKERS, ids=lambda f: "-".join(f.parts[-3:-1]))
def test_hadoops_markers_are_told(file: Path) -> None:
    """Every marker that Hadoop wrote is told as far as it tells: files, durations, a page."""
    last = told_by(file.read_bytes(), file.name, 0.0)
    assert last.kind == "hadoop"
    assert last.durations
    assert len(last.filenames) == (last.files or 0)
    text = Parsed(page(replace(EMPTY, last=last))).text
    assert last.job_id in text
    assert last.durations[0].name in text


def test_golden_markers_are_there() -> None:
    """The test above has something to hold."""
    assert len(MARKERS) >= 10


HUGE = {
    "counters": {"committer_commits_completed": 2**63 - 1, "x": -1},
    "minimums": {"committer_materialize_file.started": 2**62, "job_stage_decide.started": 5},
    "maximums": {"job_stage_decide.ended": 1, "committer_commit_job.max": 10**14},
    "meanstatistics": {"a.mean": {"samples": 1, "sum": -5}, "b.mean": {}, "c.mean": {"samples": 2}},
}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"no json",
        orjson.dumps({"name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"}),
        orjson.dumps(
            {
                "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
                "success": False,
                "timestamp": 2**62,
                "committer": None,
                "jobId": "<script>",
                "diagnostics": {
                    "magic-committer.job": "x",
                    "magic-committer.started": "nan",
                    "magic-committer.tasks": "²",
                    "magic-committer.files": "9" * 4000,
                },
                "filenames": ["<script>"],
                "iostatistics": HUGE,
            }
        ),
    ],
    ids=["empty", "no name", "no json", "only a name", "nonsense"],
)
def test_no_marker_breaks_the_page(body: bytes) -> None:
    """Whatever a `_SUCCESS` holds, there is a page, and it says what it can."""
    last = told_by(body, "_SUCCESS", sample_report.NOW)
    assert isinstance(last, LastJob)
    assert "The last job" in Parsed(page(replace(EMPTY, last=last))).text


def test_clocks_that_disagree_break_nothing() -> None:
    """Where one machine's clock makes an end precede its start, the bar has no length."""
    spans = {
        "minimums": {"job_stage_decide.started": 2_000},
        "maximums": {"job_stage_decide.ended": 1_000},
    }
    marker = new_success(job_id="j", timestamp_ms=3_000, iostatistics=spans)
    body = encode_success(marker)
    last = told_by(body, "_SUCCESS", 0.0)
    assert [(span.started, span.seconds) for span in last.commit_spans] == [(2.0, 0.0)]
    assert "Decide" in Parsed(page(replace(EMPTY, last=last))).text


# The command --------------------------------------------------------------------------------------


@pytest.fixture
def used(memory_s3: MemoryStore) -> MemoryStore:
    """A committed job, a running one with a file, a foreign upload."""
    done = start(PATH, job_id="done")
    with done.task("t") as task, task.open("a.csv", "wb") as file:
        file.write(b"abc")
    done.commit()
    running = start(PATH, job_id="running").task("t")
    with running.open("b.csv", "wb") as file:
        file.write(b"four")
    running.commit()
    memory_s3.create_upload("table/<b>.csv", attributes=Attributes())
    memory_s3.create_upload("table2/c.csv", attributes=Attributes())
    return memory_s3


def test_the_summary_counts(command: Command, used: MemoryStore) -> None:
    """Without a page, the same in a few lines; as JSON all of it. Nothing is changed."""
    before = (used.keys(), used.open_uploads())
    told = command("report", PATH)
    assert told.code == exits.OK
    assert re.search(r"open uploads +2, 4 B", told.out)
    assert re.search(r"last job +done, marked .*, 1 tasks, 1 files, 3 B", told.out)
    document = command("report", PATH, "--format", "json").json()
    assert (document["schema"], document["type"]) == (1, "report")
    assert document["uploads"]["total"]["uploads"] == 2
    assert document["uploads"]["by_class"]["live"]["bytes"] == 4
    assert document["uploads"]["by_class"]["foreign"]["uploads"] == 1
    assert [u["key"] for u in document["uploads"]["largest"]] == ["table/b.csv", "table/<b>.csv"]
    assert {job["id"]: job["state"] for job in document["jobs"]} == {
        "done": "closed", "running": "running",
    }  # fmt: skip
    assert document["last_job"]["files"] == 1
    assert (used.keys(), used.open_uploads()) == before


def test_the_page_is_written_whole(command: Command, used: MemoryStore, tmp_path: Path) -> None:
    """``--html`` replaces a file and leaves nothing beside it; ``-`` prints the page alone."""
    file = tmp_path / "report.html"
    file.write_text("old")
    told = command("report", PATH, "--html", file)
    assert told.code == exits.OK
    assert "open uploads" in told.out
    assert str(file) in told.err
    assert list(tmp_path.iterdir()) == [file]
    assert "table/<b>.csv" in Parsed(file.read_text("utf-8")).text
    printed = command("report", PATH, "--html", "-")
    assert printed.code == exits.OK
    assert printed.out.startswith("<!DOCTYPE html>")
    assert printed.out.endswith("</html>\n")
    assert "s3://bucket/table/" in Parsed(printed.out).text


def test_a_page_that_cannot_be_written_is_an_error(
    command: Command, used: MemoryStore, tmp_path: Path
) -> None:
    """The exit code says so, and a sentence with the file's name, with ``--quiet`` too."""
    told = command("report", PATH, "--quiet", "--html", tmp_path / "no" / "report.html")
    assert told.code == exits.FAILED
    assert "report.html could not be written" in told.err


def test_sizes_need_not_be_asked_for(command: Command, used: MemoryStore) -> None:
    """``--no-sizes`` sends no ListParts; bytes and cost are not known then."""
    used.requests.clear()
    document = command("report", PATH, "--no-sizes", "--format", "json").json()
    assert used.requests["list_parts"] == 0
    assert document["uploads"]["total"]["bytes_unknown"] == 2
    written = command("report", PATH, "--no-sizes", "--html", "-").out
    assert "?" in Parsed(written).text


def test_prices_say_where_they_are_from(
    command: Command, used: MemoryStore, tmp_path: Path
) -> None:
    """The dated list; or the file that was given, with that list for what it does not name."""
    file = tmp_path / "prices.toml"
    file.write_text("STANDARD = 0.02\n")
    dated = command("report", PATH, "--format", "json").json()["prices"]
    assert re.search(r"list prices, us-east-1, \w+ 20\d\d", dated)
    page = command("report", PATH, "--prices", file, "--html", "-").out
    assert f"Prices: {file}; of classes that it does not name: {dated}." in page


def test_a_store_without_a_listing_is_told_of(command: Command, used: MemoryStore) -> None:
    """Where open uploads cannot be listed, jobs and the last job are told all the same."""

    def refuse(request: Request) -> None:
        if request.verb == "list_uploads":
            raise NotSupported("no listing", operation="list_uploads", bucket="bucket")

    used.before = refuse
    document = command("report", PATH, "--format", "json").json()
    assert document["uploads"] is None
    assert "no listing" in document["notes"][0]
    assert len(document["jobs"]) == 2
    text = Parsed(command("report", PATH, "--html", "-").out).text
    assert any("no listing" in line for line in text)
