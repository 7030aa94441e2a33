"""What anybody sees of a destination, whatever file system it is on."""

from __future__ import annotations

from magic_committer.stores.trees.base import walk
from magic_committer.stores.trees.dialects import tree_for
from tests.unit.test_file_trees import read


def data(url: str) -> dict[str, bytes]:
    """The files that readers of tables see."""
    tree = tree_for(url)
    return {
        entry.path: read(tree, entry.path)
        for entry in walk(tree, "")
        if entry.kind == "file" and not entry.path.startswith("_")
    }


def control(url: str) -> list[str]:
    """The files of committers, but for the marker of success."""
    files = (entry.path for entry in walk(tree_for(url), "") if entry.kind == "file")
    return sorted(path for path in files if path.startswith("_") and path != "_SUCCESS")


def is_marked(url: str) -> bool:
    """Whether there is a marker of success."""
    return tree_for(url).stat("_SUCCESS") is not None
