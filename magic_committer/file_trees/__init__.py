"""Files that can be renamed: `base` is the port, `by_url` chooses, the others stand behind it."""

from __future__ import annotations

from magic_committer.file_trees.by_url import tree_for, tree_url

__all__ = ["tree_for", "tree_url"]
