"""One limit has one name, that of docs/glossary.md; and no sentence has a banned word."""

from __future__ import annotations

import ast
import inspect
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import magic_committer as mc
from magic_committer.cli.app import load_all, root
from tests.tidy.sources import ROOT, project_files

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
AGES = ("dead_after", "leftover_after", "forget_after", "forget_given_after")
GONE = ("older_than", "dead_seconds", "leftover_older_than", "closed_older_than", "keep_closed")
"""Names that an age had before; an upload's age is `older_than` on the command line."""


def commands(group: click.Group, *names: str) -> dict[str, click.Command]:
    """All commands, by their whole names."""
    found: dict[str, click.Command] = {}
    for name, one in group.commands.items():
        if isinstance(one, click.Group):
            found |= commands(one, *names, name)
        else:
            found[" ".join((*names, name))] = one
    return found


def test_python_knows_no_other_name() -> None:
    """No public function takes a job's age by an old name; `cleanup` takes all four."""
    public = [f for name in vars(mc)["__all__"] if inspect.isfunction(f := getattr(mc, name))]
    taken = {f.__name__: set(inspect.signature(f).parameters) for f in public}
    assert len(taken) > 8
    taken["uploads"].remove("older_than")
    assert not [(name, old) for name, them in taken.items() for old in GONE if old in them]
    assert set(AGES) <= taken["cleanup"]
    assert all("dead_after" in taken[f] for f in ("inspect", "recover", "adopt", "force_abort"))


def test_the_command_line_has_the_same_names() -> None:
    """``--older-than`` is an upload's age: only `uploads` has it."""
    load_all()
    options = {
        name: {option for p in one.params for option in p.opts}
        for name, one in commands(root).items()
    }
    assert {f"--{age.replace('_', '-')}" for age in AGES[:3]} <= options["cleanup"]
    with_age = {name for name, them in options.items() if "--older-than" in them}
    assert with_age == {"uploads list", "uploads abort", "uploads expect"}
    assert {n for n, them in options.items() if "--dead-after" in them} >= {
        "cleanup", "job recover", "job abort", "job commit",
    }  # fmt: skip


@pytest.mark.parametrize("age", AGES)
def test_the_glossary_names_each(age: str) -> None:
    """One row: in Python, on the command line."""
    option = f"`--{age.replace('_', '-')}`" if age in AGES[:3] else "–"
    row = re.escape(f"| `{age}` | {option} |")
    assert re.search(row, GLOSSARY)


TIME = r"( [\w%-]+(\.\d+)?){0,3} (long|longer|times?|while|moment|(micro)?seconds|hours|s|ms)\b"
WORDS = rf"told|tells|whoever|of renames|so many|is asked|goes with|by then|takes(?!{TIME})"
BANNED = re.compile(rf"\b({WORDS})\b", re.IGNORECASE)
"""Things do not tell, take, want: they return, accept, contain. Only time may be taken."""
CODE = re.compile(r"(?s)```.*?```|(`+)[^`\n]*\1|\{[{%].*?[%}]\}")
ROOMS = ("magic_committer/", "pyspark_magic/", "examples/", "docs/", "mkdocs.yml")


def prose(file: Path) -> Iterator[str]:
    """What people read in a file: a page, or comments, docstrings and messages."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        yield text
        return
    with tokenize.open(file) as lines:
        tokens = [t.string for t in tokenize.generate_tokens(lines.readline) if t.string[:1] == "#"]
    yield "\n".join(comment.lstrip("# ") for comment in tokens)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) for one in node.values if isinstance(one, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def banned(text: str) -> list[str]:
    """The banned words of a text without its code, each with what stands around it."""
    words = " ".join(CODE.sub("", text).split())
    return [words[max(0, m.start() - 30) : m.end() + 20] for m in BANNED.finditer(words)]


def test_no_sentence_has_a_banned_word() -> None:
    """No comment, docstring, message or page of the project does, but for those in tests."""
    found = [
        f"{name}: …{words}…"
        for file in project_files(".py", ".md", ".yml", ".jinja")
        if (name := str(file.relative_to(ROOT))).startswith(ROOMS) or "/" not in name
        for text in prose(file)
        for words in banned(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["It tells why.", "jobs of\nrenames", "takes a list, at times"])
def test_a_banned_word_is_found(text: str) -> None:
    """Across lines, too."""
    assert banned(text)
