"""Taking a job back that is decided and not completed; and leaving nothing of a job that has ended.

`undo_all` uses every source up before it looks at the file's place. So a process that still
publishes by the plan either was before it, and its file is taken away, or finds no source.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

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
from magic_committer.committers.manifest.parts import Parts, RealDirectories
from magic_committer.committers.manifest.plan import PlannedFile, RenamePlan
from magic_committer.committers.manifest.publish import (
    aside_of,
    goes_back,
    make_last,
    move,
    put_back,
    take_away,
)
from magic_committer.errors import MagicError, NotFound, NotSupported, Unanswered
from magic_committer.file_trees.base import TreeEntry, parent_of, walk
from magic_committer.protocol.record import State

logger = logging.getLogger("magic_committer")


def undo_all(parts: Parts, paths: TreeJobPaths, plan: RenamePlan) -> MagicError | None:
    """Take every file of a plan back: from where it waits, or from its place. Repeatable.

    Returns:
        The first failure; None: nothing of the plan is visible, and nothing can become so.
    """
    waiting, visible = (f"{paths.trash}/{parts.ids()}" for _ in range(2))

    real = RealDirectories(parts)

    def one(file: PlannedFile) -> tuple[str, MagicError | None]:
        try:
            real.check(file.source(paths))
            real.check(file.name)
            _undo(parts, paths, file, waiting, visible)
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


def _undo(parts: Parts, paths: TreeJobPaths, file: PlannedFile, waiting: str, visible: str) -> None:
    """Take one file back. Its two places go to different ones in the trash: a publish that died
    between link and unlink leaves one file with two names, and a rename of one over the other would
    do nothing."""
    tree = parts.tree
    try:
        move(parts, paths, file.source(paths), aside_of(waiting, file))
    except NotFound:
        if not file.etag and parts.again(lambda: tree.stat(file.name)) is not None:
            raise NotSupported(
                f"{tree.url}{file.name} may be the job's or another program's file: this file"
                " system has no etags",
                operation="rename",
                bucket=tree.url,
                key=file.name,
            ) from None
    take_away(parts, paths, file, visible)


def sweep(parts: Parts, paths: TreeJobPaths) -> None:
    """Remove everything of a job but its record: what its tasks wrote, its plans, its sign of life.
    Repeatable. Where directories are real, what is swept is renamed first: whoever is late finds no
    directory."""
    tree = parts.tree
    RealDirectories(parts).check(paths.record(1))
    if tree.promises.directories:
        gone = f"{paths.directory}/{SWEPT_PREFIX}{parts.ids()}"
        try:
            tree.rename(paths.job_attempt, gone)
        except (NotFound, Unanswered):
            if parts.again(lambda: tree.stat(paths.job_attempt)) is not None:
                raise
    for entry in _control_files(parts, paths):
        if entry.kind == "directory":
            remove_looking(parts, entry.path)
        else:
            tree.remove(entry.path)


def remove_job(parts: Parts, paths: TreeJobPaths) -> None:
    """Delete a job's directory with its record. Repeatable."""
    RealDirectories(parts).check(paths.record(1))
    gone = records.set_aside(parts, paths)
    remove_looking(parts, gone)
    parts.tree.remove_directory(TEMPORARY)  # if this was the last job


def remove_looking(parts: Parts, directory: str) -> None:
    """Delete a directory of a job, and look at its trash: a file that is not what was planned goes
    back. Repeatable.

    A process may have renamed another program's new file into the trash, and be paused before it
    has looked at it. Each file is looked at when it is deleted: one that came after a listing, or
    that a listing did not show, stays with its directory.
    """
    tree, directories, real = parts.tree, [directory], RealDirectories(parts)
    for entry in walk(tree, directory):
        if entry.kind == "directory":
            directories.append(entry.path)
            continue
        below = _below_trash(entry.path)
        if below and (name := goes_back(below, entry)):
            real.check(name)
            put_back(parts, entry.path, name)
        tree.remove(entry.path)
    for path in reversed(directories):
        tree.remove_directory(path)


def _below_trash(path: str) -> str:
    """What of a path is below its job's trash: ``…/00/trash/…`` or ``…/swept-<nonce>/trash/…``; ""
    of all others, and of a task's file of such a name. Pure."""
    elements = path.split("/")  # _temporary, the job, 00 or swept-<nonce>, trash, nonce, mark, name
    swept = len(elements) > 6 and elements[2].startswith((ATTEMPT, SWEPT_PREFIX))
    return "/".join(elements[4:]) if swept and elements[3] == TRASH else ""


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
