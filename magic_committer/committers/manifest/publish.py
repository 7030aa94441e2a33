"""After the decision: renames, deletes, the marker. Each may be done again, by anyone.

A rename uses its source up, so a file is published once, however many processes do it and however
late they come. What a process finds when it is not the one:

* The source is gone and the file is at its place, with its size and etag: it is published.
* The source is gone and something else is at its place, or nothing: another process has published
  it and it was then replaced or deleted; or somebody has removed the source. The file system cannot
  tell: the name is *unresolved*, unless the record has moved on meanwhile.

Files are not deleted at their place, for between a look and a delete another program may write a
new file there. They are renamed into the job's trash first, looked at there, and put back if they
are not what was planned. The trash goes with the job: a process that was paused deletes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256

from magic_committer._runtime import Progress
from magic_committer.commit.success_marker import (
    DIAGNOSTIC_COMPLETED,
    DIAGNOSTIC_NONCE,
    DIAGNOSTIC_UUID,
)
from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.committers.manifest.parts import TRIES_MAX, Parts, RealDirectories
from magic_committer.committers.manifest.plan import PlannedFile, RenamePlan
from magic_committer.errors import (
    FormatError,
    InvalidRequest,
    MagicError,
    NotFound,
    PreconditionFailed,
    StoreError,
    Unanswered,
)
from magic_committer.file_trees.base import (
    TreeEntry,
    add_parents,
    make_directories,
    parent_of,
)
from magic_committer.file_trees.renaming import SourceLost, is_file, rename_once
from magic_committer.hadoop.formats import (
    SUCCESS_BYTES_MAX,
    SuccessData,
    decode_success,
    encode_success,
)
from magic_committer.hadoop.paths import SUCCESS
from magic_committer.protocol.record import ObjectRef
from magic_committer.protocol.rules import Marker, may_replace_marker


@dataclass(slots=True)
class Renamed:
    """What became of a plan's files.

    Attributes:
        names: the first of them, for people.
        unresolved: names of which nobody can tell whether they were published.
        failed: the first error, and the names that are to be tried again.
        conflict: a name at which another program's file is, in a mode ``fail``.
    """

    names: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    failed: dict[str, MagicError] = field(default_factory=dict)
    conflict: str = ""


NAMES_MAX = 100
"""How many names a report has."""


def is_it(entry: TreeEntry | None, file: PlannedFile) -> bool:
    """Whether what is there is the planned file. Pure."""
    return is_file(entry, file.size, file.etag)


def publish_all(
    parts: Parts,
    paths: TreeJobPaths,
    plan: RenamePlan,
    directories: Collection[str],
    *,
    over: bool,
    accept: Collection[str],
) -> Renamed:
    """Rename every file of a plan to its place. Repeatable.

    Args:
        parts, paths, plan: the components, the job's paths and its plan.
        directories: those that the files need, without the root.
        over: whether a file that is at a place may be replaced.
        accept: names that an operator takes as they are.
    """
    published = Renamed()
    for directory in sorted(directories):
        _make(parts, directory)
    real = RealDirectories(parts)

    def one(file: PlannedFile) -> tuple[PlannedFile, str, MagicError | None]:
        try:
            real.check(file.source(paths))
            real.check(file.name)
            return file, _publish(parts, paths, file, over), None
        except MagicError as error:
            return file, "failed", error

    total = plan.totals.files
    for done, (file, what, error) in enumerate(parts.each(one, plan.files()), 1):
        if done % 100 == 0 or done == total:
            parts.progress(Progress("complete", done, total, "files"))
        if error is not None:
            if len(published.failed) < NAMES_MAX:
                published.failed[file.name] = error
        elif what == "unresolved" and file.name not in accept:
            published.unresolved.append(file.name)
        elif what == "conflict":
            published.conflict = published.conflict or file.name
        elif len(published.names) < NAMES_MAX:
            published.names.append(f"/{file.name}")
    published.names.sort()
    if not (published.failed or published.unresolved or published.conflict):
        make_last(parts, {*directories, ""})
    return published


def directories_of(plan: RenamePlan) -> set[str]:
    """The directories that a plan's files go to, without the root."""
    found: set[str] = set()
    for file in plan.files():
        add_parents(found, file.name)
    return found


def make_last(parts: Parts, directories: Collection[str]) -> None:
    """Make what was renamed into or out of directories last through a power cut, before the record
    says that it was. Directories that are gone are left out: what is above them tells."""
    tree = parts.tree
    try:
        parts.again(lambda: tree.sync([], sorted(directories)))
    except NotFound:
        for directory in directories:
            with suppress(NotFound):
                tree.sync([], [directory])


def _make(parts: Parts, directory: str) -> None:
    """Make one directory, whose parent was made before it; if that is gone again, both."""
    try:
        parts.again(lambda: parts.tree.make_directory(directory))
    except NotFound:
        make_directories(parts.tree, directory)


def _publish(parts: Parts, paths: TreeJobPaths, file: PlannedFile, over: bool) -> str:
    """Publish one file: ``"done"``, ``"unresolved"`` or ``"conflict"``."""
    tree, source = parts.tree, file.source(paths)
    last: StoreError | None = None
    for number in range(TRIES_MAX):
        try:
            rename_once(tree, source, file.name, file.size, file.etag, replace=over)
            return "done"
        except PreconditionFailed:
            return "conflict"
        except SourceLost:
            return "unresolved"
        except NotFound as error:
            last = error
            make_directories(tree, parent_of(file.name))  # somebody removed an empty one
        except Unanswered as error:
            last = error
            parts.pause(number)
    assert last is not None
    raise last


def delete_replaced(
    parts: Parts, paths: TreeJobPaths, plan: RenamePlan, accept: Collection[str]
) -> dict[str, MagicError]:
    """Delete what the job replaces, if it is still what was planned. Repeatable.

    Returns:
        What could not be deleted, and why.
    """
    failed: dict[str, MagicError] = {}

    trash, real = f"{paths.trash}/{parts.ids()}", RealDirectories(parts)

    def one(file: PlannedFile) -> tuple[str, MagicError | None]:
        try:
            real.check(f"{trash}/")
            real.check(file.name)
            take_away(parts, paths, file, trash)
        except MagicError as error:
            return file.name, error
        return file.name, None

    emptied: set[str] = set()
    for name, error in parts.each(one, plan.deletes()):
        emptied.add(parent_of(name))
        if error is not None and name not in accept and len(failed) < NAMES_MAX:
            failed[name] = error
    make_last(parts, emptied)
    for directory in sorted(emptied, reverse=True):
        _remove_empty(parts, directory)
    return failed


def _remove_empty(parts: Parts, directory: str) -> None:
    """Remove a directory of replaced files and those above it, as long as they are empty."""
    while directory:
        try:
            if not parts.tree.remove_directory(directory):
                return
        except StoreError:
            return  # it harms nobody
        directory = parent_of(directory)


def take_away(parts: Parts, paths: TreeJobPaths, file: PlannedFile, trash: str) -> bool:
    """Take a file away from its place, if it is the planned one. Repeatable.

    Args:
        parts, paths, file: the components, the job's paths and the file.
        trash: the caller's directory below the job's trash.

    Returns:
        Whether it was taken by this call. False: it is not there, or another file is.

    Raises:
        StoreError: it could not be taken, or another program's file could not be put back.
    """
    tree, aside = parts.tree, aside_of(trash, file)
    if not is_it(parts.again(lambda: tree.stat(file.name)), file):
        return False
    moved = True
    try:
        move(parts, paths, file.name, aside)
    except NotFound:
        moved = False  # by somebody else; or the job has ended; or this answers our own rename
    taken = parts.again(lambda: tree.stat(aside))
    if taken is None:
        return moved  # if it was: swept meanwhile, and `undo.remove_looking` has looked at it
    if is_it(taken, file):
        tree.remove(aside)
        return True
    put_back(parts, aside, file.name)
    return False


def aside_of(trash: str, file: PlannedFile) -> str:
    """Where a file goes in the trash: ``<trash>/<mark of what was planned>/<name>``. Pure."""
    return f"{trash}/{_mark(file.size, file.etag)}/{file.name}"


def _mark(size: int, etag: str) -> str:
    return sha256(f"{size} {etag}".encode()).hexdigest()[:32]


def goes_back(below_trash: str, entry: TreeEntry) -> str:
    """The name to which a file in the trash goes back, because it is not what was planned; "" if it
    is. Pure.

    Args:
        below_trash: its path below the job's trash: ``<nonce>/<mark>/<name>``.
        entry: what is there.
    """
    _, mark, name = below_trash.split("/", 2)
    planned = entry.kind == "file" and mark == _mark(entry.size, entry.etag)
    return "" if planned else name


def move(parts: Parts, paths: TreeJobPaths, source: str, aside: str) -> None:
    """Rename a file into the trash. Its directory is made if need be, but not the job's.

    Raises:
        NotFound: there is no such file, or the job has ended.
        StoreError: it could not be renamed.
    """
    tree, made, directory = parts.tree, False, parent_of(aside)
    for number in range(TRIES_MAX):
        try:
            tree.rename(source, aside)
            return
        except NotFound:
            if made or parts.again(lambda: tree.stat(source)) is None:
                raise
            parts.again(lambda: make_directories(tree, directory, below=paths.trash))
            made = True
        except Unanswered:
            if parts.again(lambda: tree.stat(source)) is None:
                return
            parts.pause(number)
    tree.rename(source, aside)


def put_back(parts: Parts, aside: str, name: str) -> None:
    """Put a file back that is not what was planned: it was written between a look and a rename. A
    newer one that is at its place stays. Repeatable."""
    tree = parts.tree
    for number in range(TRIES_MAX):
        try:
            tree.rename(aside, name, replace=False)
            return
        except PreconditionFailed:
            return
        except (NotFound, Unanswered):
            if parts.again(lambda: tree.stat(aside)) is None:
                return
            if number + 1 == TRIES_MAX:
                raise
        # Its directory was empty without it, and was removed.
        parts.again(lambda: make_directories(tree, parent_of(name)))


# `_SUCCESS` ---------------------------------------------------------------------------------------


def read_marker(parts: Parts) -> Marker | None:
    """Read a marker of any kind: ours, Hadoop's, an empty one."""
    entry = parts.again(lambda: parts.tree.stat(SUCCESS))
    if entry is None:
        return None
    other = Marker(entry.etag, "", entry.modified, entry.modified)
    try:
        data = parts.again(lambda: parts.tree.read(SUCCESS, SUCCESS_BYTES_MAX))
        diagnostics = decode_success(data, SUCCESS).diagnostics or {}
        uuid = diagnostics.get(DIAGNOSTIC_UUID, "")
        completed = float(diagnostics[DIAGNOSTIC_COMPLETED]) if uuid else entry.modified
    except NotFound:
        return None
    except (InvalidRequest, FormatError, KeyError, ValueError):
        return other  # another program's
    return Marker(entry.etag, uuid, completed, entry.modified)


def marker_ref(parts: Parts) -> ObjectRef:
    """The marker that is there now, for the ``completed`` record; its etag is "" if there is
    none."""
    marker = read_marker(parts)
    return ObjectRef(SUCCESS, marker.etag, marker.modified) if marker else ObjectRef(SUCCESS, "")


def write_marker(
    parts: Parts,
    paths: TreeJobPaths,
    uuid: str,
    named: ObjectRef | None,
    completed: float,
    success: SuccessData,
) -> str:
    """Write `_SUCCESS`, never over the one of a job that completed later. Repeatable. An older one
    is taken away first: for a moment there is none.

    Args:
        parts, paths: the components and the job's paths.
        uuid: the job's UUID.
        named: the marker that the record names.
        completed: when the record was completed, by the file system's clock.
        success: what it says.

    Returns:
        "" if it is written now or was before; otherwise why not.

    Raises:
        StoreError: the file system failed. The job is committed all the same.
    """
    nonce = parts.ids()
    told = {DIAGNOSTIC_UUID: uuid, DIAGNOSTIC_COMPLETED: repr(completed), DIAGNOSTIC_NONCE: nonce}
    body = encode_success(replace(success, diagnostics={**success.diagnostics, **told}))
    spare, trash, last = paths.spare(nonce), f"{paths.trash}/{nonce}", None
    for number in range(TRIES_MAX):
        marker = read_marker(parts)
        if marker is not None and marker.uuid == uuid:
            return ""
        if marker is not None and not may_replace_marker(marker, named, completed):
            return "a job that completed later has marked the destination"
        try:
            if parts.tree.stat(spare) is None:
                parts.tree.create(spare, body)
            if marker is not None:
                _take_marker(parts, paths, marker, trash)
            parts.tree.rename(spare, SUCCESS, replace=False)
        except PreconditionFailed:
            continue  # another job has marked at the same time: is it the later one?
        except NotFound:
            now = read_marker(parts)
            if now is not None and now.uuid == uuid:
                return ""
            return "the job was finished by another process"
        except Unanswered as error:
            last = error
            parts.pause(number)
            continue
        return ""
    if last is not None:
        raise last
    there = parts.again(lambda: parts.tree.stat(SUCCESS))
    if there is not None and there.kind != "file":
        return f"a {'link' if there.kind == 'other' else there.kind} of that name is there"
    return "other jobs mark the destination at the same time"


def _take_marker(parts: Parts, paths: TreeJobPaths, marker: Marker, trash: str) -> None:
    """Take the marker away that was read. A rename over it could hit the one of a later job."""
    entry = parts.again(lambda: parts.tree.stat(SUCCESS))
    if entry is not None and entry.etag == marker.etag:
        take_away(parts, paths, PlannedFile("", SUCCESS, entry.size, entry.etag), trash)
