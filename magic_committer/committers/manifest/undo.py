"""Taking a job back that is decided and not completed; and leaving nothing of a job that has ended.

`undo_all` uses every source up before it looks at the file's place. So a process that still
publishes by the plan either was before it, and its file is taken away, or finds no source.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain

from magic_committer.commit.closed import FORGET_AFTER_SECONDS, LOOKED_AT_MAX, age_of
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.names import (
    ATTEMPT,
    SWEPT_PREFIX,
    TEMPORARY,
    TRASH,
    TreeJobPaths,
    version_of,
)
from magic_committer.committers.manifest.parts import Parts
from magic_committer.committers.manifest.plan import PlannedFile, RenamePlan, Totals
from magic_committer.committers.manifest.publish import make_last, move, put_back, take_away
from magic_committer.errors import MagicError, NotFound, NotSupported, Unanswered
from magic_committer.file_trees.base import TreeEntry, parent_of, remove_tree, walk
from magic_committer.protocol.record import ObjectRef, State

logger = logging.getLogger("magic_committer")


def undo_all(parts: Parts, paths: TreeJobPaths, plan: RenamePlan) -> MagicError | None:
    """Take every file of a plan back: from where it waits, or from its place. Repeatable.

    Returns:
        The first failure; None: nothing of the plan is visible, and nothing can become so.
    """
    trash = f"{paths.trash}/{parts.ids()}"

    def one(file: PlannedFile) -> tuple[str, MagicError | None]:
        try:
            _undo(parts, paths, file, trash)
        except MagicError as error:
            return file.name, error
        return file.name, None

    failure: MagicError | None = None
    touched: set[str] = set()
    for name, error in parts.each(one, plan.files()):
        failure = failure or error
        touched.add(parent_of(name))
    make_last(parts, touched)
    return failure


def _undo(parts: Parts, paths: TreeJobPaths, file: PlannedFile, trash: str) -> None:
    tree = parts.tree
    try:
        move(parts, paths, file.source(paths), f"{trash}/{file.name}")
    except NotFound:
        if not file.etag and parts.again(lambda: tree.stat(file.name)) is not None:
            raise NotSupported(
                f"{tree.url}{file.name} may be the job's or another program's file: this file"
                " system has no etags",
                operation="rename",
                bucket=tree.url,
                key=file.name,
            ) from None
    take_away(parts, paths, file, trash)


def sweep(parts: Parts, paths: TreeJobPaths) -> None:
    """Remove everything of a job but its record: what its tasks wrote, its plans, its sign of life.
    Repeatable. Where directories are real, what is swept is renamed first: whoever is late finds no
    directory."""
    tree = parts.tree
    if tree.promises.directories:
        gone = f"{paths.directory}/{SWEPT_PREFIX}{parts.ids()}"
        try:
            tree.rename(paths.job_attempt, gone)
        except (NotFound, Unanswered):
            if parts.again(lambda: tree.stat(paths.job_attempt)) is not None:
                raise
    empty_trash(parts, paths.directory)
    for entry in _control_files(parts, paths):
        if entry.kind == "directory":
            remove_tree(tree, entry.path)
        else:
            tree.remove(entry.path)


def remove_job(parts: Parts, paths: TreeJobPaths) -> None:
    """Delete a job's directory with its record. Repeatable."""
    gone = records.set_aside(parts, paths)
    remove_ended(parts, gone)
    parts.tree.remove_directory(TEMPORARY)  # if this was the last job


def remove_ended(parts: Parts, directory: str) -> None:
    """Delete a job's directory that nobody writes into any more. Repeatable."""
    empty_trash(parts, directory)
    remove_tree(parts.tree, directory)


def empty_trash(parts: Parts, directory: str) -> None:
    """Look at the trash before it is deleted: a file that no plan of the job names goes back.

    A process may have renamed another program's new file into the trash, and be paused before it
    has looked at it.
    """
    tree = parts.tree
    aside: dict[str, TreeEntry] = {}
    for entry in list(tree.list(directory)):
        if entry.kind == "directory" and entry.name.startswith((SWEPT_PREFIX, ATTEMPT)):
            for found in walk(tree, f"{entry.path}/{TRASH}"):
                if found.kind == "file":
                    aside[found.path] = found
    if not aside:
        return
    names = {path: _name_of(path) for path in aside}
    planned = _planned(parts, directory, set(names.values()))
    for path, entry in aside.items():
        if (names[path], entry.size, entry.etag) not in planned:
            put_back(parts, path, names[path])


def _name_of(path: str) -> str:
    """The name at the destination of a file in the trash: ``…/trash/<nonce>/<name>``."""
    return path.partition(f"/{TRASH}/")[2].partition("/")[2]


def _planned(parts: Parts, directory: str, names: set[str]) -> set[tuple[str, int, str]]:
    """Which files the job's plans name, of those names."""
    found: set[tuple[str, int, str]] = set()
    for entry in list(parts.tree.list(directory)):
        if entry.name.startswith("plan-"):
            plan = RenamePlan(parts.tree, ObjectRef(entry.path, ""), Totals(0, 0, 0))
            for file in chain(plan.files(), plan.deletes()):
                if file.name in names:
                    found.add((file.name, file.size, file.etag))
    return found


def forget_some(parts: Parts, own: TreeJobPaths) -> None:
    """Delete some old closed records beside a job's own, whose ids were drawn: where directories
    are not real each job leaves one. A failure is logged: the next job tries again."""
    looked = 0
    try:
        for paths in records.every_job(parts):
            looked += 1
            if looked > LOOKED_AT_MAX:
                return
            if paths.uuid == own.uuid:
                continue
            seen = records.read(parts, paths)
            if seen is None or seen.record.state is not State.CLOSED or seen.record.given_id:
                continue
            if age_of(parts.clock.now(), seen.modified) >= FORGET_AFTER_SECONDS:
                remove_job(parts, paths)
    except MagicError as error:
        logger.info("old closed records were left: %s", error)


def _control_files(parts: Parts, paths: TreeJobPaths) -> Iterator[TreeEntry]:
    for entry in list(parts.tree.list(paths.directory)):
        if version_of(entry.name) is None:
            yield entry


def newest_change(parts: Parts, paths: TreeJobPaths) -> float:
    """When something of a job was last changed, by the file system's clock; 0.0: nothing is
    there."""
    return max((entry.modified for entry in walk(parts.tree, paths.directory)), default=0.0)
