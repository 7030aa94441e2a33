"""What anybody sees of a destination, whatever file system it is on."""

from __future__ import annotations

from magic_committer.file_trees.base import walk
from magic_committer.file_trees.by_url import tree_for

BYTES_MAX = 2**20


def data(url: str) -> dict[str, bytes]:
    """The files that readers of tables see."""
    tree = tree_for(url)
    return {
        entry.path: tree.read(entry.path, BYTES_MAX)
        for entry in walk(tree, "")
        if entry.kind == "file" and not entry.path.startswith("_")
    }


def control(url: str) -> list[str]:
    """The files of committers, but for the marker of success."""
    return sorted(entry.path for entry in walk(tree_for(url), "_temporary") if entry.kind == "file")


def is_marked(url: str) -> bool:
    """Whether there is a marker of success."""
    return tree_for(url).stat("_SUCCESS") is not None
