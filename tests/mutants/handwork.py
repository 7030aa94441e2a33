"""How a mutant is written by hand (by_hand.txt): the function, its old text, and the new one.

Text is compared as Python reads it, so layout and line breaks do not matter. Three forms:

* expressions: ``"a == b"`` for ``"a != b"``;
* statements, one or some in a row, for others, or for ``"pass"``;
* ``"except A:"`` for ``"except (A, B):"``: a handler's type.

Each must be found exactly as often as it says (once, unless told), else the mutant is gone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.mutants.source import GoneError, Mutant, functions, lines_of, parsed, replace_node


@dataclass(frozen=True)
class Hand:
    """One hand-made mutant.

    Attributes:
        name: unique; its id is ``hand:<name>``.
        path: of the module, below the package. place: the function; "" for the module itself.
        edits: old text and new text.
        breaks: what no longer holds.
        imports: a statement that the new text needs.
        times: how often each old text is there.
    """

    name: str
    path: str
    place: str
    edits: tuple[tuple[str, str], ...]
    breaks: str
    imports: str = ""
    times: int = 1

    def mutant(self) -> Mutant:
        """The mutant. Raises `GoneError`: the old text is not there, or too often."""
        tree = parsed(self.path)
        lines = [node for old, new in self.edits for node in self._found(tree, old, new)]
        name = f"hand:{self.name}"
        at = lines_of(*lines) if self.place else frozenset[int]()
        return Mutant(name, self.path, self.place, self.breaks, at, self._change, by_hand=True)

    def _change(self, tree: ast.Module) -> None:
        for old, new in self.edits:
            for node in self._found(tree, old, new):
                self._put(tree, node, old, new)
        if self.imports:
            place = _after_future(tree)
            tree.body[place:place] = ast.parse(self.imports).body

    def _put(self, tree: ast.Module, node: ast.AST, old: str, new: str) -> None:
        if isinstance(node, ast.ExceptHandler):
            node.type = _handler(new)
        elif _is_expression(old, new):
            replace_node(tree, node, ast.copy_location(_expression(new), node))
        else:
            length = len(ast.parse(old).body)
            fresh = ast.parse(new).body
            for inner in (sub for statement in fresh for sub in ast.walk(statement)):
                if hasattr(inner, "lineno"):
                    ast.copy_location(inner, node)
            for body in _bodies(tree):
                for index, item in enumerate(body):
                    if item is node:
                        body[index : index + length] = fresh
                        return

    def _found(self, tree: ast.Module, old: str, new: str) -> list[ast.AST]:
        top: ast.AST | None = tree
        if self.place:
            top = next((node for name, node in functions(tree) if name == self.place), None)
        found = list(_matches(top, old, new)) if top is not None else []
        if len(found) != self.times:
            where = f"{self.path}: {self.place or 'the module'}"
            raise GoneError(f"hand:{self.name}: {where} holds {len(found)} times: {old}")
        return found


def _read(text: str) -> Iterator[Hand]:
    path = ""
    for paragraph in text.split("\n\n")[2:]:  # behind the file's own head
        first, *lines = paragraph.strip("\n").split("\n")
        if not lines:
            path = first.removesuffix(":")
            continue
        name, _, where = (word.strip() for word in first.partition(" |"))
        place, _, times = where.partition(" x")
        parts = [
            (mark, "\n".join(line[2:] if mark else line for line in group))
            for mark, group in groupby(lines, lambda line: line[0] if line[:2] in MARKS else "")
        ]
        old, new = ([words for mark, words in parts if mark == sign] for sign in "-+")
        said = {mark: words for mark, words in parts if mark in ("", ">")}
        edits = tuple(zip(old, new, strict=True))
        breaks = said[""].replace("\n", " ")
        yield Hand(name, path, place, edits, breaks, said.get(">", ""), int(times or 1))


MARKS = ("- ", "+ ", "> ")
HAND_MADE = tuple(_read(Path(__file__).with_name("by_hand.txt").read_text(encoding="utf-8")))
"""All of them."""


def _matches(top: ast.AST, old: str, new: str) -> Iterator[ast.AST]:
    if old.startswith("except "):
        wanted = ast.dump(_handler(old))
        for node in ast.walk(top):
            kind = node.type if isinstance(node, ast.ExceptHandler) else None
            if kind is not None and ast.dump(kind) == wanted:
                yield node
    elif _is_expression(old, new):
        one = _expression(old)
        yield from (node for node in ast.walk(top) if _same(node, one))
    else:
        statements = ast.parse(old).body
        for body in _bodies(top):
            for index in range(len(body) - len(statements) + 1):
                if all(map(_same, body[index:], statements)):
                    yield body[index]


def _same(one: ast.AST, other: ast.AST) -> bool:
    return type(one) is type(other) and ast.dump(one) == ast.dump(other)


def _bodies(top: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(top):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                yield body


def _is_expression(*texts: str) -> bool:
    try:
        return bool([_expression(words) for words in texts])
    except SyntaxError:
        return False


def _expression(words: str) -> ast.expr:
    return ast.parse(words, mode="eval").body


def _handler(words: str) -> ast.expr:
    (node,) = ast.parse(f"try:\n    pass\n{words}\n    pass").body
    assert isinstance(node, ast.Try)
    kind = node.handlers[0].type
    assert kind is not None
    return kind


def _after_future(tree: ast.Module) -> int:
    last = 0
    for index, node in enumerate(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            last = index + 1
    return last
