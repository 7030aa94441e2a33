"""Imports point down. The layers are the table below; `ls magic_committer` shows its words."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, ROOT, imports, package_files

LAYERS = (
    ("report",),  # below the errors, which carry it
    ("errors", "version", "patience"),
    # ports: what is asked of the world
    ("store", "pool"),
    # vocabulary: values; `runtime` bundles the ports into one
    (
        "arguments checksum documents elements fields formats job job_json modes options paths"
        " runtime stats strict",
    ),
    # mechanisms, which do not know of each other, and adapters, which stand behind the ports
    ("upload", "commit", "s3", "memory memory_bucket"),
    ("committers",),
    # composition
    ("wiring",),
    ("handles leaving task writing",),
    ("api recovery",),
    # edges
    ("spark", "cli", "testing"),
    ("__main__", "__init__"),
)
"""From the bottom up. A module may import those of lower layers and of its own group; the groups of
one layer do not import each other. A package counts as one module."""

ADAPTERS = {"s3", "memory", "memory_bucket"}
WIRED_BY = {"wiring", "testing"}
"""The modules that may choose an adapter: everybody else is handed a store."""

PLACE = {
    unit: (height, group)
    for height, layer in enumerate(LAYERS)
    for group in layer
    for unit in group.split()
}


def unit_of(path: Path) -> str:
    """The module, or the package, directly below the library's package."""
    return path.parts[1].removesuffix(".py")


def imported_unit(name: str) -> str | None:
    """The unit that an import reaches; None if it is not the library's."""
    first, _, rest = name.partition(".")
    if first != PACKAGE:
        return None
    unit = rest.partition(".")[0]
    return unit if unit in PLACE else "__init__"


def wrong_arrows(path: Path, source: str) -> list[str]:
    """Every import of a module that its place forbids. ``path`` is relative to the project."""
    unit = unit_of(path)
    if unit not in PLACE:
        return [f"{path}: {unit} has no place in LAYERS ({Path(__file__).name})"]
    height, group = PLACE[unit]
    wrong = []
    for line, name in imports(ast.parse(source), ".".join(path.parts[:-1])):
        target = imported_unit(name)
        if target is None or target in group.split():
            continue
        if PLACE[target][0] >= height:
            wrong.append(f"{path}:{line}: {unit} imports {name}, which is not below it")
        elif target in ADAPTERS and unit not in WIRED_BY:
            wrong.append(f"{path}:{line}: {unit} names the adapter {target}; it is handed a store")
    return wrong


def test_every_import_points_down() -> None:
    """No module of the library imports one of its own layer or above."""
    wrong = [
        arrow
        for file in package_files()
        for arrow in wrong_arrows(file.relative_to(ROOT), file.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("errors.py", "from magic_committer.store import Part"),
        ("store.py", "import magic_committer.commit.plan"),
        ("commit/plan.py", "from magic_committer import upload"),
        ("commit/plan.py", "from ..upload import blocks"),
        ("upload/blocks.py", "def late():\n    from magic_committer.committers.magic import x"),
        ("committers/magic.py", "from magic_committer.s3.client import S3Store"),
        ("s3/client.py", "from magic_committer.commit import plan"),
        ("api.py", "from magic_committer import start"),
        ("spark/frame.py", "import magic_committer.memory"),
        ("news.py", ""),
    ],
)
def test_an_arrow_up_is_found_and_named(path: str, source: str) -> None:
    """An import that points up, in whatever spelling, is found, and the file is named."""
    (wrong,) = wrong_arrows(Path(PACKAGE, path), source)
    assert wrong.startswith(f"{PACKAGE}/{path}:")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("options.py", "from magic_committer.store import Part"),
        ("commit/plan.py", "from magic_committer.commit.load import x\nfrom . import keyset"),
        ("wiring.py", "from magic_committer.s3.client import connect\nimport boto3"),
        ("memory.py", "from magic_committer.memory_bucket import Bucket"),
        ("__init__.py", "from magic_committer.api import start"),
    ],
)
def test_an_arrow_down_is_fine(path: str, source: str) -> None:
    """Imports of lower layers, of the same package and of other libraries are allowed."""
    assert wrong_arrows(Path(PACKAGE, path), source) == []
