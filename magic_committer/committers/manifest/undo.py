"""Taking a job back that is decided and not completed; and leaving nothing of a job that has ended.

`undo_all` uses every source up before it looks at the file's place. So a process that still
publishes by the plan either was before it, and its file is taken away, or finds no source.
"""

from __future__ import annotations

from collections.abc import Iterator

from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.committers.manifest.parts import Parts
from magic_committer.committers.manifest.plan import PlannedFile, RenamePlan
from magic_committer.committers.manifest.publish import take_away
from magic_committer.errors import MagicError, NotFound, NotSupported, Unanswered
from magic_committer.file_trees.base import TreeEntry, remove_tree, walk


def undo_all(parts: Parts, paths: TreeJobPaths, plan: RenamePlan) -> MagicError | None:
    """Take every file of a plan back: from where it waits, or from its place. Repeatable.

    Returns:
        The first failure; None: nothing of the plan is visible, and nothing can become so.
    """

    def one(file: PlannedFile) -> MagicError | None:
        try:
            _undo(parts, paths, file)
        except MagicError as error:
            return error
        return None

    failure: MagicError | None = None
    for error in parts.each(one, plan.files()):
        failure = failure or error
    return failure


def _undo(parts: Parts, paths: TreeJobPaths, file: PlannedFile) -> None:
    tree, source = parts.tree, file.source(paths)
    trash = f"{paths.trash}/{parts.ids()}"
    try:
        tree.rename(source, trash)
    except NotFound:
        if not file.etag and parts.again(lambda: tree.stat(file.name)) is not None:
            raise NotSupported(
                f"{tree.url}{file.name} may be the job's or another program's file: this file"
                " system has no etags",
                operation="rename", bucket=tree.url, key=file.name,
            ) from None  # fmt: skip
        take_away(parts, paths, file)
    except Unanswered:
        if parts.again(lambda: tree.stat(source)) is not None:
            raise
        if parts.again(lambda: tree.stat(trash)) is None:
            take_away(parts, paths, file)


def sweep(parts: Parts, paths: TreeJobPaths) -> None:
    """Remove everything of a job but its record: what its tasks wrote, its plans, its sign of life.
    Repeatable. Where directories are real, what is swept is renamed first: whoever is late finds no
    directory."""
    tree = parts.tree
    if tree.promises.directories:
        gone = f"{paths.directory}/swept-{parts.ids()}"
        try:
            tree.rename(paths.job_attempt, gone)
        except (NotFound, Unanswered):
            if parts.again(lambda: tree.stat(paths.job_attempt)) is not None:
                raise
    for entry in _control_files(parts, paths):
        if entry.kind == "directory":
            remove_tree(tree, entry.path)
        else:
            tree.remove(entry.path)


def _control_files(parts: Parts, paths: TreeJobPaths) -> Iterator[TreeEntry]:
    for entry in list(parts.tree.list(paths.directory)):
        if not entry.name.startswith("job-"):
            yield entry


def newest_change(parts: Parts, paths: TreeJobPaths) -> float:
    """When something of a job was last changed, by the file system's clock; 0.0: nothing is
    there."""
    return max((entry.modified for entry in walk(parts.tree, paths.directory)), default=0.0)
