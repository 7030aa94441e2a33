"""Small changes of the library's source: how one is named, made, and shown.

A mutant is addressed by module, function and the text of what it changes, never by a line: it
survives any refactoring of the code around it, and is *gone*, loudly, when that very text changes.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "magic_committer"
FOLDERS = ("protocol", "commit", "committers", "maintenance")
"""Of the package: what is mutated by rule. Others have mutants by hand only."""

Change = Callable[[ast.Module], None]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class GoneError(LookupError):
    """A mutant's place is not there, or not once: the code has changed, the mutant must follow."""


@dataclass(frozen=True)
class Mutant:
    """One small change.

    Attributes:
        id: the same as long as the changed text stays.
        path: of the module, below the package.
        place: the function, with its class; "" for the module's constants.
        what: the change in words.
        lines: of the source, that a test must run to see it; empty: it is run by the import.
        change: makes it, in a tree of the module's own.
        by_hand: it is in the table of those written by hand.
    """

    id: str
    path: str
    place: str
    what: str
    lines: frozenset[int]
    change: Change
    by_hand: bool = False

    @property
    def module(self) -> str:
        return f"{PACKAGE}.{self.path.removesuffix('.py').replace('/', '.')}".removesuffix(
            ".__init__"
        )

    def tree(self) -> ast.Module:
        tree = parsed(self.path)
        self.change(tree)
        return tree

    def is_program(self) -> bool:
        """Whether the changed module is a program at all."""
        try:
            compile(self.tree(), "mutant", "exec", dont_inherit=True)
        except SyntaxError:
            return False
        return True

    def diff(self) -> str:
        before, after = (
            ast.unparse(_only(tree, self.place)).splitlines()
            for tree in (parsed(self.path), self.tree())
        )
        lines = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
        return "\n".join((f"{self.path}: {self.place or 'constants'}", *lines))


def _only(tree: ast.Module, place: str) -> ast.AST:
    if not place:
        return tree
    found = next((node for name, node in functions(tree) if name == place), None)
    return found if found is not None else ast.Module([], [])


def files() -> list[str]:
    """The modules that are mutated, below the package."""
    home = ROOT / PACKAGE
    found = (file for folder in FOLDERS for file in sorted((home / folder).rglob("*.py")))
    return [file.relative_to(home).as_posix() for file in found]


@cache
def text(path: str) -> str:
    return (ROOT / PACKAGE / path).read_text(encoding="utf-8")


def parsed(path: str) -> ast.Module:
    return ast.parse(text(path))


def functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Functions and methods with their qualified names; inner ones belong to the outer one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS):
            yield above + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{above}{node.name}.")


def digest(*words: str) -> str:
    """A short name for a text."""
    return hashlib.blake2b("\0".join(words).encode(), digest_size=4).hexdigest()


def lines_of(*nodes: ast.AST) -> frozenset[int]:
    found: set[int] = set()
    for node in nodes:
        first = getattr(node, "lineno", None)
        if first is not None:
            found.update(range(first, (getattr(node, "end_lineno", None) or first) + 1))
    return frozenset(found)


def replace_node(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    """Put another node in the place of one of the tree's."""
    ast.fix_missing_locations(new)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            for index, one in enumerate(value if isinstance(value, list) else ()):
                if one is old:
                    value[index] = new
                    return
