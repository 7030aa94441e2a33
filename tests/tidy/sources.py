"""The project's files, and what a Python file imports and refers to."""

from __future__ import annotations

import ast
import builtins
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "magic_committer"


def project_files(*suffixes: str) -> list[Path]:
    """The files that are, or would be, in git; all, or those of some suffixes."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    files = [ROOT / name for name in sorted(set(listed.split("\0"))) if name]
    return [file for file in files if file.is_file() and (file.suffix in suffixes or not suffixes)]


def package_files() -> list[Path]:
    return [file for file in project_files(".py") if file.relative_to(ROOT).parts[0] == PACKAGE]


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a module imports.

    ``from a.b import c`` gives ``a.b.c``, whether ``c`` is a module or not. ``package`` is the
    package that the module is in: relative imports start there.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], base]).rstrip(".")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def references(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of what a module imports, and of what it then reaches through a
    module's name: ``import time; time.sleep`` gives ``time`` and ``time.sleep``. Builtins are given
    by their names: ``print``."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    yield from imports(tree, "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in known or hasattr(builtins, node.id):
                yield node.lineno, known.get(node.id, node.id)
        elif isinstance(node, ast.Attribute) and (dotted := _dotted(node)):
            first, _, rest = dotted.partition(".")
            if first in known:
                yield node.lineno, f"{known[first]}.{rest}"


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""
