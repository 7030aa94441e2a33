"""The report: what it counts, and that its page is whole, harmless and readable."""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise, product
from pathlib import Path
from threading import Thread

import pytest
from msgspec import structs

from magic_committer import start
from magic_committer.cli import exits
from magic_committer.cli.app import clean
from magic_committer.cli.report import (
    CLASSES,
    KEY_CHARS_MAX,
    POLICY,
    TEMPLATE,
    ReportData,
    needs_care,
    page,
    way_to_end,
)
from magic_committer.errors import CommitIncomplete, NotSupported, PermissionDenied, Unanswered
from magic_committer.maintenance.inspect import would_do
from magic_committer.maintenance.reports import FoundJob
from magic_committer.maintenance.uploads import CLASSES as OWNER_CLASSES
from magic_committer.maintenance.uploads import FoundUpload, Sums
from magic_committer.protocol.record import USUAL_TERMS, JobRecord, State
from magic_committer.testing import MemoryStore
from tests.cli import sample_report
from tests.cli.conftest import Command
from tests.cli.test_tables import Terminal
from tests.promises.hands import committed_task, raising

PATH = "s3://bucket/table"

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


def test_the_page_runs_and_loads_nothing(sample: Parsed) -> None:
    """No script, frame, form or handler; no address but the empty icon; the policy is first."""
    allowed = {
        "html", "head", "meta", "title", "link", "style", "body", "header", "main", "section",
        "footer", "h1", "h2", "h3", "p", "span", "small", "time", "dl", "dt", "dd", "div", "figure",
        "figcaption", "ul", "li", "table", "caption", "thead", "tbody", "tr", "th", "td", "details",
    }  # fmt: skip
    names = [name for name, _ in sample.tags]
    assert set(names) <= allowed
    addresses = {"href", "src", "srcset", "action", "data", "poster", "background", "style"}
    for name, given in sample.tags:
        assert not [key for key in given if key.startswith("on")]
        assert {k: v for k, v in given.items() if k in addresses} in ({}, {"href": "data:,"}), name
    policy = next(given for given in sample.all("meta") if "http-equiv" in given)
    assert policy == {"http-equiv": "Content-Security-Policy", "content": POLICY}
    assert names.index("meta") < names.index("link")
    assert not re.search(r"url\(|@import|expression|<", "".join(sample.inside["style"]))


@pytest.mark.parametrize("hostile", sample_report.HOSTILE)
def test_what_a_store_says_is_shown_and_not_obeyed(sample: Parsed, hostile: str) -> None:
    """A name that holds markup or controls stands on the page as text; of a long one both ends."""
    shown = clean(hostile)
    if len(shown) > KEY_CHARS_MAX:
        assert any(text.startswith(shown[:70]) and "…" in text for text in sample.text)
        assert shown in [given.get("title") for given in sample.all("span")]
    else:
        assert shown in sample.text


def test_text_cannot_become_markup() -> None:
    """No text becomes an element, an attribute, or an invisible character."""
    evil = "'\"><b onclick=x>&\x1b[2J\u202e"
    upload = FoundUpload(evil, evil, "foreign", job=evil, near=True, note=evil, age=1.0, bytes=1)
    sums = Sums()
    sums.add(upload)
    job = FoundJob(evil, evil, "ours", state=evil, would=evil, problem=evil)
    data = ReportData(evil, evil, 1.0, sums, [upload], [job], [evil])
    written = page(data)
    parsed = Parsed(written)
    assert not parsed.all("b")
    assert not [given for _, given in parsed.tags if "onclick" in given]
    assert sum(text.count(clean(evil)) for text in parsed.text) >= 11
    style = (files("magic_committer.cli") / "report.css").read_text("utf-8")
    found = {c for c in written.replace(style, "") if unicodedata.category(c) in ("Cc", "Cf")}
    assert found <= {"\n"}
    assert written == page(data)


def test_a_template_marks_nothing_as_safe() -> None:
    """Nothing in it turns the escaping off, and it names no address."""
    template = (files("magic_committer.cli") / TEMPLATE).read_text("utf-8")
    assert not re.search(r"\|\s*safe|autoescape|Markup|https?:", template)


def test_the_page_is_accessible(sample: Parsed) -> None:
    """A language, one h1, no level skipped, captions, scopes, and ids that exist once."""
    assert sample.all("html") == [{"lang": "en"}]
    names = [name for name, _ in sample.tags]
    levels = [int(name[1]) for name in names if re.fullmatch(r"h[1-6]", name)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert names.count("caption") == names.count("table") == names.count("thead") == 3
    assert all(given.get("scope") in ("row", "col") for given in sample.all("th"))
    ids = [given["id"] for _, given in sample.tags if "id" in given]
    assert len(ids) == len(set(ids))
    naming = ("aria-labelledby", "aria-describedby")
    named = [given[key] for _, given in sample.tags for key in naming if key in given]
    assert set(named) <= set(ids)
    empty = Parsed(page(ReportData(PATH, "store", sample_report.NOW, Sums())))
    assert not empty.all("table")
    assert {"No upload is open", "No job has a directory"} <= set(
        re.findall("No upload is open|No job has a directory", " ".join(empty.text))
    )


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme: str) -> None:
    """Texts have 4.5 against both grounds, shapes 3 against what they lie on."""
    css = (files("magic_committer.cli") / "report.css").read_text("utf-8")
    pairs_of = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", css)
    colours = {name: light if scheme == "light" else dark for name, light, dark in pairs_of}
    texts = ["text", "quiet", "care", "bad", "accent"]
    for front, ground, least in (
        *product(texts, ["paper", "sheet"], [TEXT_CONTRAST_MIN]),
        *product([*CLASSES, "accent", "quiet"], ["sheet"], [PICTURE_CONTRAST_MIN]),
    ):
        low, high = sorted(luminance(colours[name]) for name in (front, ground))
        assert (high + 0.05) / (low + 0.05) >= least, (front, ground)


def test_sums_are_exact() -> None:
    """Every sum is that of the uploads themselves."""
    uploads = [
        FoundUpload(
            f"k{n}", f"u{n}", OWNER_CLASSES[n % 6], age=float(n * n * 977) if n % 7 else None,
            bytes=n * 7919 % 101 if n % 5 else None,
        )
        for n in range(200)
    ]  # fmt: skip
    sums = Sums()
    for upload in uploads:
        sums.add(upload)
    for name in CLASSES:
        mine = [u for u in uploads if u.owner_class == name]
        held = sums.of(name)
        assert (held.uploads, held.bytes) == (len(mine), sum(u.bytes or 0 for u in mine))
        assert held.bytes_unknown == sum(u.bytes is None for u in mine)
    assert sums.all.uploads == 200 == sum(sums.of(name).uploads for name in CLASSES)
    old = [u for u in uploads if u.owner_class in ("foreign", "hadoop") and (u.age or 0) >= 604_800]
    assert sum(one.uploads for one in sums.old.values()) == len(old) > 20
    assert sums.removable.uploads < 200


def test_more_uploads_than_are_listed_are_counted(sample: Parsed) -> None:
    """The page lists as many as asked for, and says how many more there are."""
    assert set(CLASSES) == set(OWNER_CLASSES)
    count = len(sample_report.uploads())
    more = f"and {count - 25:,} more: "
    line = "magic-committer uploads list s3://lake/warehouse/events"
    assert {more, line, f"{count:,}"} <= set(sample.text)


@pytest.mark.parametrize(
    ("state", "age", "waits"),
    [
        (State.RUNNING, 1.0, False), (State.RUNNING, 100.0, True), (State.COMMITTING, 1.0, True),
        (State.COMPLETED, 1.0, True), (State.REVERTING, 1.0, True), (State.REVERTED, 1.0, True),
        (State.ABORTING, 1.0, True), (State.CLOSED, 1.0, False),
    ],
)  # fmt: skip
def test_what_waits_goes_by_what_recovery_would_do(state: State, age: float, waits: bool) -> None:
    """A job waits unless it may be alive or is closed, and its command ends it."""
    record = JobRecord.running(
        id="j", uuid="u", nonce="n", terms=USUAL_TERMS, given_id=False, started=0.0
    )
    record = structs.replace(record, state=state, outcome="committed")
    job = FoundJob("j", PATH, "ours", state=state, would=would_do(record, age, 50.0))
    assert needs_care(job) is waits
    assert way_to_end(job) == (("job", "recover", PATH, "j") if waits else ())
    assert way_to_end(replace(job, kind="litter")) == ("cleanup", PATH)


@pytest.fixture
def used(memory_s3: MemoryStore) -> MemoryStore:
    """A committed job, a running one with a file, a foreign upload."""
    done = start(PATH, job_id="done")
    committed_task(done, "t", {"a.csv": b"abc"})
    done.commit()
    committed_task(start(PATH, job_id="running"), "t", {"b.csv": b"four"})
    memory_s3.start_upload("table/<b>.csv")
    memory_s3.start_upload("table2/c.csv")
    return memory_s3


def test_the_page_is_of_the_store_and_changes_nothing(
    command: Command, used: MemoryStore, tmp_path: Path
) -> None:
    """It goes to stdout, or whole to a file with nothing beside it, also without the uploads; what
    waits has the command that ends it."""
    decided = start(PATH, job_id="--decided")
    committed_task(decided, "t", {"c.csv": b"c"})
    used.before = raising("complete_upload", Unanswered("no answer"))
    with pytest.raises(CommitIncomplete):
        decided.commit()
    used.before = None
    before = (used.keys(), used.open_uploads())
    told = command("--region", "eu-west-1", "report", PATH)
    assert (told.code, told.err) == (exits.OK, "")
    (line,) = re.findall("magic-committer(?: --[a-z]+ .*)? job recover [^<]*", told.out)
    assert line == f"magic-committer --region eu-west-1 job recover {PATH}/ -- --decided"
    assert told.out.startswith("<!DOCTYPE html>")
    assert told.out.endswith("</html>\n")
    text = Parsed(told.out).text
    assert {"s3://bucket/table/", "table/<b>.csv", "table/b.csv", "done", "running"} <= set(text)
    assert text.index("table/b.csv") < text.index("table/<b>.csv")
    assert "3" in text[text.index("Open uploads") :][:3]
    assert (used.keys(), used.open_uploads()) == before
    file = tmp_path / "report.html"
    file.write_text("old")
    told = command("report", PATH, "-o", file)
    assert (told.code, told.out, list(tmp_path.iterdir())) == (exits.OK, "", [file])
    assert "table/<b>.csv" in Parsed(file.read_text("utf-8")).text
    for refused in (NotSupported("no listing"), PermissionDenied("no listing")):
        used.before = raising("list_uploads", refused)
        told = command("report", PATH)
        text = Parsed(told.out).text
        assert told.code == exits.BAD_STATE
        assert any("no listing" in line for line in text)
        assert {"done", "running"} <= set(text)


def test_a_page_goes_to_a_file_a_pipe_or_a_device(
    command: Command, used: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe is written to, and not replaced; a terminal or a program gets no page."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert command("report", PATH, "-o", pipe).code == exits.OK
    reader.join()
    assert read[0].startswith(b"<!DOCTYPE html>")
    assert pipe.is_fifo()
    told = command("report", PATH, "--quiet", "-o", tmp_path / "no" / "report.html")
    assert told.code == exits.NOT_FOUND
    assert "report.html could not be written" in told.err
    told = command("report", PATH, "--format", "json")
    assert (told.code, told.out) == (exits.USAGE, "")
    monkeypatch.setattr("magic_committer.cli.output.Output.stream", Terminal())
    told = command("report", PATH)
    assert (told.code, told.out, "-o FILE" in told.err) == (exits.USAGE, "", True)
