"""Files that can be renamed: `base` is the port, the other modules are file systems behind it."""

from __future__ import annotations

from magic_committer.file_trees.base import FileTree
from magic_committer.file_trees.local import LocalTree, local_path


def tree_for(url: str) -> FileTree:
    """The file tree of a destination. Touches nothing.

    Args:
        url: ``file:///path``.

    Raises:
        PathError: it is no URL of a directory that this library can write to.
    """
    return LocalTree(local_path(url))
