"""The built site, as `make docs` leaves it in site/. The suite `site` builds it first, strictly: a
dead link, a missing anchor, a page without a place, or a docstring that does not fit its function
has ended it there."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser

import pytest

from tests.tidy.sources import ROOT
from tools import docstrings

SITE = ROOT / "site"


class Page(HTMLParser):
    """What a page loads, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values["id"]} if "id" in values else set()
        if tag == "a":
            self.links += [values["href"]] if "href" in values else []
        elif tag == "link" and values.get("rel") not in ("prev", "next", "canonical"):
            self.loads.append(values.get("href", ""))
        elif tag in ("script", "img", "iframe", "source", "object", "video"):
            self.loads += [values[name] for name in ("src", "data") if name in values]


@cache
def built() -> dict[str, str]:
    """The HTML of each page. Raises AssertionError: the site is not built."""
    assert (SITE / "index.html").is_file(), "build it first: make docs"
    return {
        str(file.relative_to(SITE)): file.read_text(encoding="utf-8")
        for file in sorted(SITE.rglob("*.html"))
    }


def test_no_page_loads_anything_from_elsewhere() -> None:
    """Scripts, styles, fonts and pictures are the site's own: it can be read without a network. A
    diagram that the theme would draw by a script of another site stands on no page."""
    loaded = [(name, load) for name, text in built().items() for load in Page(text).loads]
    assert len(loaded) > 100
    assert [one for one in loaded if re.match(r"(?:[a-z]+:)?//", one[1])] == []
    styles = "".join(file.read_text(encoding="utf-8") for file in SITE.rglob("*.css"))
    assert re.findall(r"url\(\s*[\"']?(?:https?:)?//|@import", styles) == []
    assert [name for name, text in built().items() if 'class="mermaid"' in text] == []


def test_every_link_leads_to_a_page_and_an_anchor_of_it() -> None:
    """Links between the site's pages, those of the reference too, lead somewhere."""
    parsed = {name: Page(text) for name, text in built().items()}
    dead = []
    for name, page in parsed.items():
        for link in page.links:
            if name == "404.html" or re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            reached = (SITE / name).parent / path if path else SITE / name
            target = str(reached.resolve().relative_to(SITE.resolve()))
            target = "index.html" if target == "." else target
            if target not in parsed:
                dead.append(f"{name}: {link}")
            elif anchor and anchor not in parsed[target].anchors and not anchor.startswith("__"):
                dead.append(f"{name}: {link}: no such anchor")
    assert not dead, "\n".join(dead)


def test_the_reference_has_an_anchor_for_each_entry() -> None:
    """What docs/reference names is in the library: each entry was found and is on its page."""
    anchors = {
        anchor
        for name, text in built().items()
        if name.startswith("reference/")
        for anchor in Page(text).anchors
    }
    assert sorted(docstrings.entries() - anchors) == []


@pytest.mark.parametrize(
    ("page", "entry", "words"),
    [
        ("writing", "start", ["job_id", "mark_success", "JobExists", "StoreError"]),
        ("writing", "open_magic", ["fence", "JobNotRunning", "PathError"]),
        ("jobs", "Task.open", ["unique", "attributes", "TaskFailed", "TaskFile"]),
        ("jobs", "Job.commit", ["IncompleteJob", "CommitRefused", "CommitIncomplete", "expect"]),
        ("recovery", "recover", ["dead_after", "dry_run", "JobTooYoung", "OutcomeUnknown"]),
        ("options", "Options", ["block_bytes", "parts_in_flight", "conditional_writes"]),
        ("results", "JobReport", ["left_open", "unattributed", "warnings"]),
        ("spark", "spark.write_dataframe", ["writer_options", "mark_success", "OptionError"]),
    ],
)  # fmt: skip
def test_an_entry_shows_what_it_takes_gives_and_raises(
    page: str, entry: str, words: list[str]
) -> None:
    """An entry of the reference has its arguments or attributes, and the errors that it raises."""
    text = built()[f"reference/{page}.html"]
    place = text.index(f'id="magic_committer.{entry}"')
    rest = text[place:]
    end = re.search(r'<h[23] id="magic_committer\.', rest[10:])
    shown = re.sub(r"<[^>]+>", "", rest[: end.start() if end else None])
    assert [word for word in words if word not in shown] == []


def test_pages_show_programs_and_nothing_of_one_machine() -> None:
    """The page of a recipe holds the program, not the name of its file alone. No page names the
    folder that the site was built in."""
    assert "def write_part(" in re.sub(r"<[^>]+>", "", built()["recipes/airflow.html"])
    assert [name for name, text in built().items() if str(ROOT) in text] == []
