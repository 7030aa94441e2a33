"""The documentation holds together: the site's pages, links and anchors, what code comments cite,
what the reference shows, and the figures of the README. Builds nothing; `tests/site` does."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

import magic_committer
import magic_committer.errors
from tests.tidy.sources import ROOT, project_files
from tools import docstrings, site_hooks, snippets
from tools.home import HOME, described

DOCS = ROOT / "docs"


# The site -----------------------------------------------------------------------------------------


def pages(nav: Any) -> list[str]:
    """The pages of a navigation, from top to bottom."""
    if isinstance(nav, str):
        return [nav]
    if isinstance(nav, dict):
        return [page for part in nav.values() for page in pages(part)]
    return [page for part in nav for page in pages(part)]


def settings() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return read


def test_every_document_has_one_place_in_the_navigation() -> None:
    """mkdocs.yml names each file of docs/ once, the pages made of files of the root once, and
    nothing else."""
    written = {str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md")}
    assert sorted(pages(settings()["nav"])) == sorted(written | site_hooks.ROOT_PAGES.keys())


def test_every_page_shows_the_files_that_it_names() -> None:
    """A block under the name of a file is that file: `python -m tools.snippets` writes it."""
    texts = {page: page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
    assert sum(len(snippets.SHOWN.findall(text)) for text in texts.values()) >= 20
    assert [page for page, text in texts.items() if snippets.written(text) != text] == []


def test_every_recipe_is_shown() -> None:
    """Each program of examples/recipes stands on a page, and its page links to it."""
    told = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    recipes = [f.name for f in (ROOT / "examples" / "recipes").glob("*.py") if f.stem != "__init__"]
    shown = [name for name in recipes if f"<!-- file: examples/recipes/{name} -->" in told]
    linked = [name for name in recipes if f"examples/recipes/{name})" in told]
    assert sorted(recipes) == sorted(shown) == sorted(linked)


def test_the_picture_of_the_states_has_the_diagrams_arrows() -> None:
    """The site shows a picture where a forge draws the diagram of docs/protocol.md: same arrows,
    same words."""
    (diagram,) = site_hooks.DIAGRAM.findall((DOCS / "protocol.md").read_text(encoding="utf-8"))
    drawn = re.findall(r"^ +(\S+) --> (\w+|\[\*\]): (\w+)$", diagram, re.MULTILINE)
    told = {(a.replace("[*]", "start"), b.replace("[*]", "end"), verb) for a, b, verb in drawn}
    picture = (DOCS / site_hooks.DIAGRAM_PICTURE).read_text(encoding="utf-8")
    shown = re.findall(r'id="(\w+)-(\w+)".*?class="verb"[^>]*>(\w+)<', picture)
    assert set(shown) == told
    assert len(shown) == len(drawn)


# What code cites ----------------------------------------------------------------------------------

PLACES = ("docs", "docs/design", ".")
"""Where a file is looked for that a comment names without its folder."""
CITED = re.compile(
    r"(?<![\w/.-])(?P<file>(?:docs/)?(?:design/)?[a-z-]+\.md)(?!\w)"
    r'(?P<spots>(?:, (?:"[^"]+"|#\d+[a-z]?|[A-Z]\d|\d+)(?![\w.]))*)(?:: (?P<lead>[A-Z][a-z]+)")?'
)
SPOT = re.compile(r', (?:"(?P<heading>[^"]+)"|#?(?P<number>[A-Z]?\d+[a-z]?))')


def citations(source: str) -> list[tuple[str, list[str]]]:
    """The documents that a Python file names, each with the headings and numbers that it names.

    A line of a comment that goes on in the next is one line here.
    """
    text = re.sub(r"\s*\n\s*(?:# ?)?", " ", source)
    found = []
    for match in CITED.finditer(text):
        spots = [spot["heading"] or spot["number"] for spot in SPOT.finditer(match["spots"])]
        found.append((match["file"], [*spots, *([match["lead"]] if match["lead"] else [])]))
    return found


def has_spot(file: Path, spot: str) -> bool:
    """Whether a document has a heading, a bold beginning or a number."""
    text = file.read_text(encoding="utf-8")
    word = re.escape(spot)
    titles = rf"^#+ #?{word}(?: *$|: )|^[*-] \*\*{word}\*\*|^\*\*{word}\*\*"
    numbers = rf"^{word}\. |\b{word}: " if re.fullmatch(r"[A-Z]?\d+[a-z]?", spot) else "(?!)"
    return re.search(f"{titles}|{numbers}", text, re.MULTILINE) is not None


def unresolved(source: str) -> list[str]:
    """What a Python file cites, and nobody can open."""
    wrong = []
    for name, spots in citations(source):
        stored = [ROOT / place / name for place in PLACES]
        files = [file for file in stored if file.is_file()]
        if not files:
            wrong.append(f"{name}: no such file")
        wrong += [
            f"{name}, {spot}: not in it"
            for spot in spots
            if files and not any(has_spot(file, spot) for file in files)
        ]
    return wrong


def test_what_code_cites_can_be_opened() -> None:
    """Every document that a comment, docstring or message of the code names is in the repository,
    and has the heading or the number that is named."""
    wrong = []
    cited = 0
    for file in project_files(".py"):
        name = str(file.relative_to(ROOT))
        if name in ("tests/unit/test_testing.py", "tests/tidy/test_documentation.py"):
            continue  # they write Markdown files of their own
        source = file.read_text(encoding="utf-8")
        cited += len(citations(source))
        wrong += [f"{name}: {one}" for one in unresolved(source)]
    assert not wrong, "\n".join(wrong)
    assert cited > 50


MISSING = (
    "# (nowhere.md)", "# (counterexamples.md, #99)", "# (counterexamples.md, #10,\n# #99)",
    '"""As docs/protocol.md, "No such heading", says."""', "# (stores.md, 77)",
    'Rule("decisions.md: Nowhere")',
)  # fmt: skip


@pytest.mark.parametrize("source", MISSING)
def test_a_citation_of_nothing_is_found(source: str) -> None:
    """A document, heading or number that is not there is told of, also over the end of a line."""
    assert unresolved(source)


# The reference ------------------------------------------------------------------------------------


def test_the_reference_has_all_that_is_public() -> None:
    """Each name of magic_committer, of its errors, of its faces for engines and of its testing
    module has an entry in docs/reference."""
    entries = docstrings.entries()
    shown = {entry.rpartition(".")[2] for entry in entries}
    errors = {
        name
        for name, value in vars(magic_committer.errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    faces = (
        "write_dataframe write_partitions register session MagicDatasink write_datasink"
        " write_delayed to_parquet MemoryStore PatientClock Request memory_s3 memory_store"
    )
    public = {*vars(magic_committer)["__all__"], *errors, *faces.split()}
    assert sorted(public - shown - {"__version__"}) == []


# The README ---------------------------------------------------------------------------------------


def test_the_first_page_says_how_to_get_what() -> None:
    """It has the line that installs, and the version of this tree."""
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    assert "\npip install magic-committer\n" in page
    assert f"\nVersion {magic_committer.__version__}, " in page


def test_the_built_description_leads_home() -> None:
    """Read far from the repository, each link and the picture of the README lead to it; what was
    absolute, or leads within the page, stays."""
    text = described((ROOT / "README.md").read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) >= 30
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert f"({HOME}/raw/main/docs/assets/before-and-after.svg)" in text
    assert described("[a](https://b/c) [d](#e)") == "[a](https://b/c) [d](#e)"
    assert described("[a](docs/b.md#c)") == f"[a]({HOME}/blob/main/docs/b.md#c)"
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.findall(r"^repo_url: (\S+)", site, re.MULTILINE) == [HOME]


def test_the_limits_of_the_pages_are_those_of_the_code() -> None:
    """Each constant and each age has the value that its row gives: who changes one changes its
    page. (Options: their docstrings.)"""
    page = (DOCS / "limits.md").read_text(encoding="utf-8")
    constants = re.findall(r"^\| .* \| ([\d,]+) \| `([\w.]+)\.(\w+)` \|$", page, re.MULTILINE)
    for value, module, name in constants:
        held = getattr(import_module(f"magic_committer.{module}"), name)
        assert held == int(value.replace(",", "")), name
    words = (DOCS / "glossary.md").read_text(encoding="utf-8")
    ages = re.findall(r"^\| `(\w+)` \| .* \| (\d+) (h|days)\b", words, re.MULTILINE)
    given = inspect.signature(inspect.unwrap(magic_committer.cleanup)).parameters
    for name, number, unit in ages:
        assert given[name].default == int(number) * (3600 if unit == "h" else 86_400), name
    assert (len(constants), len(ages)) == (10, 4)


def test_the_readmes_figures_are_those_of_the_documents() -> None:
    """Each bold figure of the README's table stands in the document that its row links to."""
    told = (ROOT / "README.md").read_text(encoding="utf-8")
    table = told.partition("## In figures")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|(.*)\|.*\]\(([\w/.-]+\.md)[^)]*\) \|$", table, re.MULTILINE)
    figures = [
        (figure, name) for row, name in rows for figure in re.findall(r"\*\*([^*]+)\*\*", row)
    ]
    assert len(figures) >= 8
    wrong = []
    for figure, name in figures:
        document = (ROOT / name).read_text(encoding="utf-8")
        if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d]|[.,]\d)", document):
            wrong.append(f"{figure} is not in {name}")
    assert not wrong, "\n".join(wrong)
