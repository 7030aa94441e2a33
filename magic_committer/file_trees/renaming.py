"""A rename that may be called again, by anybody: it looks before it believes an error.

A rename can take effect and fail: the answer is lost, or the client asks once more by itself and is
told that the source does not exist (ABFS does both under load). Another process that finishes the
same job may have been first. In all of these cases the file is where it belongs.

Invariants:

* **The source is looked at first, then the target.** Once the source is seen to be gone, whoever
  took it has put it where it went. In the other order a rename between the two looks would look
  like a loss.
* A `NotFound` of `rename_once` is looked at: `SourceLost` says that nothing is left to rename. A
  look that fails is told as it is (`Unanswered`), never as a loss.
* The target is known by size and etag. Where the tree has no etags, or the list of files names
  none, the size alone must do: an older file of the same size is then taken for ours.
"""

from __future__ import annotations

from typing import Literal

from magic_committer.errors import NotFound, PreconditionFailed, Unanswered
from magic_committer.file_trees.base import FileTree, TreeEntry

Renamed = Literal["renamed", "was_done"]


class SourceLost(NotFound):
    """The source of a rename is gone, and the target is not the file that it was. Somebody has
    deleted the source; or it was renamed, and then overwritten or deleted. Nobody can tell which,
    and to call it again does not help."""


def rename_once(
    tree: FileTree, source: str, target: str, size: int, etag: str = "", *, replace: bool = True
) -> Renamed:
    """Rename a file, unless that was done before. Repeatable, from any process.

    Args:
        tree: the file system.
        source: the file, relative to the tree's root.
        target: where it goes. Its directory must exist.
        size: how many bytes the file has.
        etag: as the file system told it; "": not known.
        replace: True: over a file that is there. False: raise.

    Returns:
        ``"renamed"``: by this call. ``"was_done"``: by this call, whose answer was lost, or before.

    Raises:
        SourceLost: the source is gone, and the target is another file, or none.
        NotFound: the target's directory does not exist. The source is as it was: make the
            directory, and call it again.
        PreconditionFailed: ``replace`` is False, and another file is at the target.
        Unanswered: it may have taken effect, or the look after an error failed: call it again.
        StoreError: every other error of `FileTree.rename`; it took no effect.

    Example:
        >>> from magic_committer.file_trees.memory import MemoryTree
        >>> tree = MemoryTree(now=lambda: 1.0)
        >>> tree.create("a", b"123")
        >>> rename_once(tree, "a", "b", size=3)
        'renamed'
        >>> rename_once(tree, "a", "b", size=3)
        'was_done'
    """
    try:
        tree.rename(source, target, replace=replace)
    except (NotFound, PreconditionFailed, Unanswered) as error:
        if tree.stat(source) is not None:
            raise
        if is_file(tree.stat(target), size, etag):
            return "was_done"
        raise SourceLost(
            f"rename of {tree.url}{source}: it is gone, and {target} is not that file",
            operation="rename",
            bucket=tree.url,
            key=source,
            code="SourceLost",
        ) from error
    return "renamed"


def is_file(entry: TreeEntry | None, size: int, etag: str) -> bool:
    """Whether what is seen somewhere is the file of this size and etag. Pure.

    Args:
        entry: what is seen; None: nothing.
        size: in bytes.
        etag: "" if it is not known: then the size must do, as where the tree has no etags.
    """
    if entry is None or entry.kind != "file" or entry.size != size:
        return False
    return not etag or not entry.etag or entry.etag == etag
