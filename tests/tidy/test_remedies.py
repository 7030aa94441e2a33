"""What to call after an error is data: `errors.messages` alone writes it as text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.sources import PACKAGE, ROOT, package_files

HOME = "errors/messages.py"
CALL = re.compile(
    r"(?<!=)magic_committer\.(?:$|[a-z_]+\((?!\.\.\.\)))"  # not of an argument, nor only named
    r"|\bmagic-committer (?:job (?!$)|uploads|cleanup|doctor|lifecycle|inspect|report)"
    r"|\bdead_after=|\bdead_after=|\brevert=|\bleave_visible=|\baccept=(?:\[|$)"
    r"|--dead-after \d|--dead-after \d|--revert\b|--adopt --"
)
"""How a call or a command begins that somebody may paste; and the options of one."""
ALLOWED = {
    # Not about one job: what the code of a program looks like.
    "errors/__init__.py": "magic_committer.start(dest)",
}
"""Texts that name a call and are no remedy."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each string that is not a docstring, nor an example that the decorator
    `command` puts into a help; of f-strings their fixed parts."""
    told = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    told |= {
        id(example)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "command"
        for example in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def built(path: str, source: str) -> list[str]:
    """Calls that a module writes as text; ``path`` is relative to the package."""
    if path == HOME:
        return []
    return [
        f"{PACKAGE}/{path}:{line}: {text!r}: make it a Remedy"
        for line, text in texts(ast.parse(source))
        if CALL.search(text)
        and not (path.startswith("cli/") and text.startswith("--"))
        and ALLOWED.get(path, "\n") not in text
    ]


def test_no_module_writes_a_call_as_text() -> None:
    """Every call and command that an error names is worded from data, in one place for each
    language."""
    found = [
        one
        for file in package_files()
        for one in built(str(file.relative_to(ROOT / PACKAGE)), file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


CALLS = (
    "hint = f'Finish it: magic_committer.recover({dest!r})'",
    "hint = f'Finish it: magic_committer.{verb}({dest!r})'",
    "hint = 'Do it again, with dead_after=0'",
    "hint = f'Ask: magic-committer doctor {dest}'",
    "hint = f'Take them: recover(accept={keys})'",
)


def test_a_call_as_text_is_found() -> None:
    """In plain strings and in f-strings, in Python and as a command."""
    assert all(built("commit/sweep.py", source) for source in CALLS)


def test_each_allowed_text_is_there() -> None:
    """The table excuses nothing that has gone."""
    for path, text in ALLOWED.items():
        assert text in Path(ROOT, PACKAGE, path).read_text(encoding="utf-8")
