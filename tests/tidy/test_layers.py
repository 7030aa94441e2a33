"""Imports point down. The layers are the table below; `ls magic_committer` shows its words."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, ROOT, imports, package_files

LAYERS = (
    ("errors", "runtime runtime.threads"),
    ("stores stores.base stores.checksum",),  # the port: what is asked of the world
    # vocabulary: values; `runtime.components` bundles the ports into one
    ("hadoop options protocol runtime.components",),
    # mechanisms, which do not know of each other, and stores, which stand behind the port
    (
        "upload",
        "commit",
        "stores.tree stores.trees",
        "stores.s3",
        "stores.memory stores.memory_bucket",
        "stores.unconditional",
    ),
    ("committers",),
    # composition
    ("runtime.wiring", "filesystem"),
    ("job",),
    ("api", "maintenance"),
    ("engines",),
    # edges
    ("spark", "cli", "testing"),
    ("__main__", "__init__"),
)
"""From the bottom up. A module may import those of lower layers and of its own group; the groups of
one layer do not import each other. A package counts as one module, unless its parts are named."""

ADAPTERS = {"stores.s3", "stores.memory", "stores.memory_bucket", "stores.tree"}
WIRED_BY = {"runtime.wiring", "testing"}
"""The modules that may choose an adapter: everybody else is handed a store."""

PLACE = {
    unit: (height, group)
    for height, layer in enumerate(LAYERS)
    for group in layer
    for unit in group.split()
}


def unit_of(path: Path) -> str:
    """What of the table a module is: itself, or the package that it is in."""
    parts = (*path.parts[1:-1], path.stem)
    return named(".".join(parts)) or parts[0]


def imported_unit(name: str) -> str | None:
    """The unit that an import reaches; None if it is not the library's."""
    first, _, rest = name.partition(".")
    if first != PACKAGE or rest == "__version__":
        return None
    return named(rest) or "__init__"


def named(dotted: str) -> str | None:
    """The longest beginning of a dotted name that has a place."""
    parts = dotted.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in PLACE), None)


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
        ("stores/base.py", "import magic_committer.protocol.plan"),
        ("protocol/plan.py", "from magic_committer import upload"),
        ("protocol/plan.py", "from ..upload import blocks"),
        ("upload/blocks.py", "def late():\n    from magic_committer.committers.magic import x"),
        ("committers/magic.py", "from magic_committer.stores.s3.client import S3Store"),
        ("news.py", ""),
    ],
)
def test_an_arrow_up_is_found_and_named(path: str, source: str) -> None:
    """An import that points up, in whatever spelling, is found, and the file is named."""
    (wrong,) = wrong_arrows(Path(PACKAGE, path), source)
    assert wrong.startswith(f"{PACKAGE}/{path}:")
