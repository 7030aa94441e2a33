"""The manners of the house: sizes, docstrings, README lines, links, and nothing of one machine."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.tidy.sources import ROOT, package_files, project_files
from tools.suites import SUITES

FUNCTION_LINES_MAX = 70
"""Beyond it hides a second idea; ruff bounds branches. A module is as long as its one subject. A
function's docstring is not counted: what its users must be told is as long as it is."""

FOREIGN = ("tests/golden/", "LICENSE")
"""Not our words: what other programs wrote, kept to the byte."""

# Put together here, so that this file does not hold what it looks for.
PLACES_OF_ONE_MACHINE = [f"/{name}/" for name in ("work", "root", "farm")]
REGISTRIES = [
    name.replace(" ", ".")
    for name in (
        "pypi org", "pythonhosted" + " org", "repo1 maven", "repo maven", "proxy golang",
        "registry npmjs", "crates io",
    )
]  # fmt: skip

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_a_function_holds_one_idea() -> None:
    """No function of the library is longer than 70 lines, without its docstring."""
    long = []
    for file in package_files():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, FUNCTIONS):
                lines = (node.end_lineno or 0) - node.lineno + 1 - docstring_lines(node)
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{file.relative_to(ROOT)}: {node.name}: {lines} lines")
    assert not long, "\n".join(long)


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if not ast.get_docstring(node):
        return 0
    return (node.body[0].end_lineno or 0) - node.body[0].lineno + 1


def test_a_class_has_a_name_of_its_own() -> None:
    """Nobody has to ask which `Plan` is meant: an underscore makes no other name."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in package_files()]
    nodes = (node for tree in trees for node in ast.walk(tree))
    names = Counter(node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef))
    assert [name for name, times in names.items() if times > 1] == []


def test_every_test_says_what_it_claims() -> None:
    """Every test function has a docstring."""
    silent = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for file in project_files(".py")
        if file.relative_to(ROOT).parts[0] == "tests"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, FUNCTIONS)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not silent, "\n".join(silent)


def test_every_module_of_the_library_says_what_it_is_for() -> None:
    """Every module that holds code opens with a docstring."""
    silent = []
    for file in package_files():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if tree.body and not ast.get_docstring(tree):
            silent.append(str(file.relative_to(ROOT)))
    assert not silent, "\n".join(silent)


def test_every_folder_of_tests_is_told_of_and_run() -> None:
    """Each folder with tests has a line in tests/README.md and belongs to exactly one suite; no
    suite names a folder that is not there."""
    folders = {
        file.relative_to(ROOT).parts[1]
        for file in project_files(".py")
        if file.relative_to(ROOT).parts[0] == "tests" and file.name.startswith("test_")
    }
    readme = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(\w+)/`", readme, re.MULTILINE))
    run = [folder for suite in SUITES for folder in suite.folders]
    assert sorted(folders - told) == [], "without a line in tests/README.md"
    assert sorted(run) == sorted(folders), "the folders of tools/suites.py are those of tests/"


def test_links_lead_somewhere() -> None:
    """Every relative link in a Markdown file leads to a file, and to a heading that it has."""
    dead = []
    for file in project_files(".md"):
        for target in LINK.findall(file.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, heading = target.partition("#")
            reached = (file.parent / path).resolve() if path else file
            if not reached.exists() or (heading and heading not in headings(reached)):
                dead.append(f"{file.relative_to(ROOT)}: {target}")
    assert not dead, "\n".join(dead)


def headings(file: Path) -> set[str]:
    """The anchors of a Markdown file's headings, as GitHub makes them."""
    lines = re.findall(r"^#+ +(.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_nothing_is_of_one_machine() -> None:
    """No file names a path of the machine that it was written on, or the host of a registry."""
    found = []
    for file in project_files():
        name = str(file.relative_to(ROOT))
        if name.startswith(FOREIGN):
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not text
        for number, line in enumerate(text.splitlines(), 1):
            if any(bad in line for bad in (*PLACES_OF_ONE_MACHINE, *REGISTRIES)):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)


WIDE_PAGES = {
    *("docs/cli.md", "docs/cli-reference.md"),  # what programs print
    "docs/renames.md",  # a tree of files
    "docs/recipes/cron.md",
}


def test_no_code_on_a_page_is_cut() -> None:
    """A line of code has at most 80 columns, so that no page cuts it or makes a reader scroll."""
    wide = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        if str(page.relative_to(ROOT)) not in WIDE_PAGES
        for block in page.read_text(encoding="utf-8").split("```")[1::2]
        for line in block.splitlines()
        if len(line) > 80
    ]
    assert wide == []
