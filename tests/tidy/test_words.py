"""docs/glossary.md holds: one limit has one name in the API, on the command line and in files."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

import magic_committer as mc
from magic_committer.cli.app import load_all, root

GLOSSARY = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
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
