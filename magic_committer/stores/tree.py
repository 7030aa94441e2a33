"""A local directory as an object store: jobs on disks by the protocol, driver and recovery of S3.

A key is a path below the root. What waits lies in ``__magic_uploads/``, directly below the root,
which no reader and no listing shows. Readers see a whole file or none: it is renamed to its key.

**An upload is open as long as its file ``__magic_uploads/_<id>`` is there.** Create makes it, parts
are written into it, and Complete renames it to its key: by this one rename the object appears and
the upload ends. So of all Completes and aborts at once one has its effect, and the others find no
upload. A part takes the next free place of the file, as parts have unequal sizes and no offset; one
that comes a moment early waits for its turn. So nothing is copied, but where parts were left out,
sent again or never came in order: Complete then joins them in a new file (in the kernel; blocks are
shared where the file system can), which takes the upload's place before it is renamed. All parts of
an upload are sent by one process, and none after its Complete, as callers of the port do.

**A mark** is an extended attribute, which a rename keeps: the user's metadata; of an upload its key
and first part, too (the others are lines of ``_<id>.parts``). So HEAD tells what an upload became,
to a recovery of any later day, without a file beside each file. A file system without them is
refused at the first write.

**An ETag** is inode, time of the last write and size: a rename keeps them, and another file has
others. It costs no read of the bytes, and holds for files of any program.

**A swap is an exclusively created next version**, never a lock. Of a control object (below an
element that begins with ``__magic``) the file at the key is version 1; version *n* lies beside it,
as ``<name>.~<ETag of version 1>.<n>``. The object is the newest. A conditional PUT creates the
version after the one that it leaves, a conditional DELETE an empty last one: one process succeeds.
They are removed the first one first: without it there is no object. Other keys have a fixed name
for their readers: there the condition is a look, then a rename; what another process writes between
the two is lost. The protocol needs that for `_SUCCESS`, and for data that it replaces, which it
compares and deletes on S3, too (`magic_committer.commit.deletes`).

**A put lasts when it answers, and so does all that this store did before it**: parts, names in
directories and the put's own bytes are synced before it becomes visible. So a part costs no sync of
its own: the PUT of the set that names it has it, many by one ``syncfs`` (which tells errors from
Linux 5.8 on; before, each file is synced). What a sync could not write is not written for this
store: each later put fails until that upload is aborted.

Who dies where leaves what:

* in a put or a Create: a new file in ``__magic_uploads`` that nobody reads (a listing of uploads
  removes it after a day);
* in a part: the upload without it;
* in a Complete: before its rename the upload, open, perhaps joined; after it the object, and
  perhaps ``_<id>.parts``, which nobody reads without the upload;
* in an abort: after its first step there is no upload;
* in a removal: after the empty last version was created there is no object. Whoever meets it goes
  on; versions without a first one are removed by a listing after a day.

Where a file system has no exclusive rename (NFS has no ``renameat2``), a link and an unlink do it.
Who dies between them leaves one file with two names; whoever looks at the upload ends it.

Links below the root are never followed, and what is mounted below it is refused before bytes are
sent. So is what a tree cannot hold: an empty element, ``.``, ``..``, 256 bytes in one element, a
file below a file or where a directory is.
"""

from __future__ import annotations

import errno
import os
import re
import stat as modes
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from magic_committer._pool import renewed_in_children
from magic_committer._runtime import Clock, SystemClock, new_id
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
)
from magic_committer.file_trees import disk
from magic_committer.file_trees.base import FileTree
from magic_committer.file_trees.local import LocalTree
from magic_committer.file_trees.os_errors import translated
from magic_committer.hadoop.paths import MANIFEST_JOB_PREFIX, TEMPORARY, waiting_id, waiting_path
from magic_committer.stores.base import (
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    PAGE_KEYS_MAX,
    PART_NUMBER_MAX,
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    CreatedUpload,
    FileSlice,
    ObjectInfo,
    ObjectPage,
    ObjectSlice,
    Part,
    PartBody,
    StoredObject,
    UploadInfo,
    UploadPage,
    WaitingFile,
    Written,
    same_etag,
)

UPLOADS = "__magic_uploads"
"""The directory of what waits. No key has such an element."""
CONTROL_PREFIX = "__magic"
"""What an element of a control object's key begins with."""
ELEMENT_BYTES_MAX = 255
SYNC_EACH_MAX = 32
"""Up to so many files and directories are synced one by one, more of them by one ``syncfs``."""
TRIES_MAX = 8
"""How often a verb begins again whose look another process has made old."""
TURN_SECONDS = 0.2
"""How long a part waits for those with smaller numbers to take their places."""
STALE_SECONDS = 24 * 3600.0
"""So old is what nobody will go on with."""
LAYOUTS_MAX = 1024
"""Of how many uploads a store remembers where the next part goes."""

_VERSION = re.compile(r"(.+)\.~[0-9a-f]+-[0-9a-f]+-[0-9a-f]+\.[0-9]+\Z", re.DOTALL)
_IN_JOB = re.compile(rf"{TEMPORARY}/{MANIFEST_JOB_PREFIX}[0-9a-f]{{32}}/")
_ID = re.compile(r"[0-9a-f]{32}\Z")
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL
_STATUS: Mapping[type[StoreError], int] = {
    NotFound: 404,
    PermissionDenied: 403,
    PreconditionFailed: 412,
    InvalidRequest: 400,
    NotSupported: 501,
}

Row = tuple[int, str, int, tuple[str, str] | None, int]
"""A stored part: number, ETag, size, checksum, and where it begins in the upload's file."""


@dataclass(frozen=True, slots=True)
class _Version:
    """The newest version of an object: its file, its number, and the ETag of the first one."""

    path: str
    number: int
    first: str


@dataclass(slots=True)
class _NextPart:
    """Where the next part of an upload goes, and which number it should have."""

    end: int
    next: int
    users: int = 0


@dataclass(slots=True)
class _Unsynced:
    """What was written and may not last yet. Without a lock: who syncs takes nothing away before it
    has synced it, so two may sync the same."""

    files: dict[str, object] = field(default_factory=dict)
    directories: dict[str, object] = field(default_factory=dict)
    lost: dict[str, OSError] = field(default_factory=dict)
    """Of which a sync has failed: a second one may succeed and not have written them."""

    def forget(self, path: str) -> None:
        self.files.pop(path, None)
        self.lost.pop(path, None)


class TreeStore:
    """A directory of this machine, or of a network file system that is mounted. Implements
    `stores.base.ObjectStore`; safe for many threads and processes.

    Args:
        root: the directory, an absolute path. The first write makes it.
        bucket: what the store is called.
        clock: tells ages. The times of files are the file system's.
        ids: draws 32 hexadecimal digits.
    """

    quick = True
    """A verb takes less time than a change of threads, unless it shows otherwise."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        bucket: str,
        *,
        clock: Clock | None = None,
        ids: Callable[[], str] = new_id,
    ) -> None:
        self._root = os.fspath(root).rstrip("/")
        self._waiting = f"{self._root}/{UPLOADS}"
        self._bucket = bucket
        self._tree = LocalTree(Path(self._root))
        self._clock = clock or SystemClock()
        self._ids = ids
        self._homes: set[str] = set()  # directories that are real ones, on the root's own mount
        self._mount = ""
        self._begin()
        renewed_in_children(self, TreeStore._begin)

    def _begin(self) -> None:
        self._unsynced = _Unsynced()
        self._layouts: dict[str, _NextPart] = {}
        self._turns = threading.Condition()

    def __repr__(self) -> str:
        return f"TreeStore({self._root!r}, {self._bucket!r})"

    def _now(self) -> float:
        return self._clock.now()

    @property
    def bucket(self) -> str:
        return self._bucket

    def below(self, prefix: str) -> TreeStore:
        """The store of a directory below, whose jobs keep what waits in it."""
        directory = prefix.removesuffix("/")
        bucket = f"{self._bucket}/{quote(directory)}"
        return TreeStore(self._at(directory), bucket, clock=self._clock, ids=self._ids)

    @property
    def identity(self) -> str:
        return f"file://{self._root}"

    # Objects --------------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        with self._verb("get", key):
            file = self._object(key, max_bytes)
            if file.seen.st_size > max_bytes:
                raise InvalidRequest(f"it has more than {max_bytes} bytes", code="TooLarge")
            return StoredObject(self._info(key, file.seen, file.mark), file.body)

    def head(self, key: str) -> ObjectInfo:
        with self._verb("head", key):
            file = self._object(key)
            return self._info(key, file.seen, file.mark)

    def put(
        self,
        key: str,
        body: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str | None = None,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> Written:
        with self._verb("put", key):
            path, kept = self._path(key), _metadata(metadata)
            leaves = self._leaves(key, if_match) if if_match is not None else None
            self._check_home(key)
            with self._new({"m": kept}, [body]) as new:
                etag = disk.etag_of(os.stat(new))
                self._settle(new)
                if leaves is not None:
                    self._follow(key, leaves, new)
                elif if_none_match:
                    self._create(key, new)
                else:
                    before = self._newest(key)
                    self._to_home(key, lambda: os.rename(new, path))
                    if before is not None:
                        _remove_versions(path, before)
            self._visible(path)
            return Written(f'"{etag}"')

    def delete(self, keys: Iterable[str]) -> Mapping[str, StoreError]:
        failed: dict[str, StoreError] = {}
        for key in keys:
            try:
                self.delete_one(key)
            except StoreError as error:
                failed[key] = error
        return failed

    def delete_one(
        self, key: str, *, if_match: str | None = None, version_id: str | None = None
    ) -> None:
        with self._verb("delete", key):
            try:
                newest = self._newest(key)
                if newest is not None and if_match is not None:
                    newest = self._leaves(key, if_match)
            except (NotFound, _NoPath):
                return
            if newest is None:
                return
            if if_match is not None and _is_control(key):
                with self._new({"gone": True}, []) as last:
                    self._settle(last)
                    self._follow(key, newest, last)
                self._visible(newest.path)
                newest = _Version(newest.path, newest.number + 1, newest.first)
            self._remove(self._at(key), newest, only=if_match is not None)

    def list(
        self, prefix: str, *, delimiter: str = "", start_after: str = ""
    ) -> Iterator[ObjectPage]:
        objects: list[ObjectInfo] = []
        prefixes: list[str] = []
        base, _, rest = prefix.rpartition("/")
        with self._verb("list", prefix):
            if delimiter not in ("", "/"):
                raise NotSupported(f"keys are not grouped by {delimiter!r}", code="Delimiter")
            for key, seen in self._entries(base, rest, start_after, bool(delimiter)):
                if seen is None:
                    prefixes.append(key)
                else:
                    objects.append(self._info(key, seen))
                if len(objects) + len(prefixes) == PAGE_KEYS_MAX:
                    yield ObjectPage(tuple(objects), tuple(prefixes))
                    objects, prefixes = [], []
        yield ObjectPage(tuple(objects), tuple(prefixes))

    # Uploads --------------------------------------------------------------------------------------

    def create_upload(
        self, key: str, *, attributes: Attributes, checksum: ChecksumAlgorithm | None = None
    ) -> CreatedUpload:
        with self._verb("create_upload", key):
            self._path(key)
            mark = {"k": key, "m": _metadata(attributes.metadata), "t": self._now()}
            if attributes != Attributes(metadata=attributes.metadata):
                raise InvalidRequest(
                    f"a file has no such attributes: {attributes!r:.200}",
                    code="NoAttributes",
                    hint="Leave all attributes but metadata out",
                )
            self._check_home(key)
            upload_id = self._ids()
            self._write(self._at_upload(upload_id), mark, [])
            return CreatedUpload(upload_id)

    def put_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        body: PartBody | ObjectSlice,
        *,
        checksum: Checksum | None = None,
    ) -> Part:
        with self._verb("put_part", key):
            if not 1 <= number <= PART_NUMBER_MAX:
                raise InvalidRequest(f"there is no part {number}", code="InvalidArgument")
            piece = self._slice(body) if isinstance(body, ObjectSlice) else body
            size = piece.length if isinstance(piece, FileSlice) else piece.nbytes
            etag, path = self._ids()[:16], self._at_upload(upload_id)
            with (
                self._opened(key, upload_id, os.O_RDWR) as (descriptor, mark),
                self._place(path, descriptor, mark, number, size) as offset,
            ):
                disk.write_at(descriptor, piece, offset)
                row: Row = (number, etag, size, _pair(checksum), offset)
                self._note_part(path, descriptor, row)
            self._unsynced.files[path] = object()
            self._unsynced.directories[self._waiting] = object()
            return Part(number, f'"{etag}"', size, checksum)

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        with self._verb("list_parts", key):
            if (waiting := waiting_path(key, upload_id)) is not None:
                return (_whole(self._waiting_file(*waiting)),)
            with self._opened(key, upload_id) as (descriptor, mark):
                rows, _ = self._rows(upload_id, descriptor, mark)
            return tuple(_part(rows[number]) for number in sorted(rows))

    def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        length: int | None = None,
        checksum: Checksum | None = None,
        if_none_match: bool = False,
    ) -> Written:
        with self._verb("complete_upload", key):
            path, _ = self._at_upload(upload_id), self._path(key)
            if (waiting := waiting_path(key, upload_id)) is not None:
                seen = self._waiting_file(*waiting)
                etag = parts[0].etag or disk.etag_of(seen)  # Hadoop's manifests tell none
                row: Row = (1, disk.etag_of(seen), seen.st_size, None, 0)
                if sum(part.size for part in parts) != seen.st_size:
                    raise _no_upload()
                _named([replace(part, etag=etag) for part in parts], {1: row}, length)
                path = self._at(waiting[0])
                self._move_to(key, path, exclusive=if_none_match)
                self._remove_empty(os.path.dirname(path))
                return Written(f'"{disk.etag_of(seen)}"')
            with self._opened(key, upload_id) as (descriptor, mark):
                rows, seen = self._rows(upload_id, descriptor, mark)
                named = _named(parts, rows, length)
                end = 0
                for _, _, size, _, offset in named:
                    end = end + size if offset == end else -1
                if end != seen.st_size:
                    seen = self._join(path, descriptor, mark, named)
            if path in self._unsynced.files:
                self._settle()
            self._move_to(key, path, exclusive=if_none_match)
            self._ended(path, mark)
            return Written(f'"{disk.etag_of(seen)}"')

    def _move_to(self, key: str, path: str, *, exclusive: bool) -> None:
        """Rename an upload's file to its key."""
        target = self._at(key)
        try:
            self._to_home(key, lambda: disk.move(path, target, exclusive=exclusive), path)
        except FileNotFoundError:
            if os.path.lexists(path):
                raise Unanswered("others remove its directory all the time") from None
            raise _no_upload() from None
        except FileExistsError:
            self._check_home(key)  # perhaps it is a directory
            raise PreconditionFailed("a file is there already", code="PreconditionFailed") from None
        self._unsynced.directories[os.path.dirname(target)] = object()

    def abort_upload(self, key: str, upload_id: str) -> None:
        with self._verb("abort_upload", key):
            path = self._at_upload(upload_id)
            if (waiting := waiting_path(key, upload_id)) is not None:
                path = self._at(waiting[0])
                with suppress(NotFound, FileNotFoundError):
                    self._waiting_file(*waiting)
                    os.unlink(path)
                self._remove_empty(os.path.dirname(path))
                return
            try:
                with self._opened(key, upload_id) as (_, mark):
                    os.unlink(path)  # from here on there is no upload
            except FileNotFoundError:
                return
            self._ended(path, mark)

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        found: list[UploadInfo] = []
        with self._verb("list_uploads", prefix):
            for name in disk.names(self._waiting):
                path = f"{self._waiting}/{name}"
                mark = disk.mark_of(path) if _ID.match(name[1:]) else {}
                seen, key = disk.lstat(path), mark.get("k")
                if not isinstance(key, str):
                    self._remove_stale(path, path[: -len(name) + 33] if ".parts" in name else "")
                elif seen and key.startswith(prefix) and not self._is_visible(key, seen, name[1:]):
                    found.append(UploadInfo(key, name[1:], mark.get("t")))
        found += self._waiting_uploads(prefix)
        found.sort(key=lambda one: (one.key, one.initiated or 0.0))
        for at in range(0, max(1, len(found)), PAGE_KEYS_MAX):
            yield UploadPage(tuple(found[at : at + PAGE_KEYS_MAX]), self._now())

    def _remove_stale(self, path: str, owner: str) -> None:
        """Remove what a process that died a day ago has left, and its owner has not."""
        seen = disk.lstat(path)
        if seen is None or self._now() - seen.st_mtime < STALE_SECONDS or os.path.lexists(owner):
            return
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._remove_empty(os.path.dirname(path))

    # Files that wait in a job's directory ------------------------------------------------------

    @property
    def tree(self) -> FileTree:
        """The file system, rooted where the store is: a task's files are written by its verbs."""
        return self._tree

    def waiting_files(self, directory: str) -> Iterator[WaitingFile]:
        """Everything below a directory of a job that is no directory. Links are not followed."""
        level = [directory.rstrip("/")]
        while level:
            above = level.pop()
            try:
                scan = os.scandir(self._at(above))
            except disk.NOT_THERE:
                continue
            with scan:
                for entry in scan:
                    path = f"{above}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        level.append(path)
                        continue
                    with suppress(FileNotFoundError):
                        seen = entry.stat(follow_symlinks=False)
                        regular = modes.S_ISREG(seen.st_mode)
                        etag = disk.etag_of(seen)
                        yield WaitingFile(path, seen.st_size, etag, seen.st_mtime, regular)

    def clear(self, directory: str) -> int:
        """Remove a directory of a job with everything below it. Gives how many files there were.
        Repeatable.

        Raises:
            StoreError: something is left.
        """
        with self._verb("clear", directory):
            if not _IN_JOB.match(directory) or self._has_link(f"{directory}x"):
                raise InvalidRequest("it is no directory of a job", code="NoDirectory")
            removed, at = 0, self._at(directory.rstrip("/"))
            for above, directories, files in os.walk(at, topdown=False):
                for name in files:
                    with suppress(FileNotFoundError):
                        os.unlink(f"{above}/{name}")
                        removed += 1
                for name in directories:
                    path = f"{above}/{name}"
                    with suppress(FileNotFoundError):
                        os.unlink(path) if os.path.islink(path) else os.rmdir(path)
            self._remove_empty(at)
            if os.path.isdir(at):
                raise Unanswered("others write into it")
            return removed

    def _waiting_file(self, path: str, etag: str) -> os.stat_result:
        """A waiting file, if it is the one that its id names.

        Raises:
            NotFound: there is no such upload.
        """
        seen = disk.lstat(self._at(path))
        if seen is None or not modes.S_ISREG(seen.st_mode) or self._has_link(path):
            raise _no_upload()
        if etag and disk.etag_of(seen) != etag:
            raise _no_upload()
        return seen

    def _waiting_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        for job in disk.names(self._at(TEMPORARY)):
            tasks = f"{TEMPORARY}/{job}/00/tasks/"
            if not _IN_JOB.match(tasks) or self._has_link(tasks):
                continue
            for file in self.waiting_files(tasks):
                key = file.path[len(tasks) :].partition("/")[2]
                if key and key.startswith(prefix):
                    yield UploadInfo(key, waiting_id(file.path, file.etag), file.modified)

    # Versions of an object ------------------------------------------------------------------------

    def _newest(self, key: str) -> _Version | None:
        path = self._path(key)
        seen = disk.lstat(path)
        if seen is None or modes.S_ISDIR(seen.st_mode) or self._has_link(key):
            return None
        first, number = disk.etag_of(seen), 1
        while _is_control(key) and disk.lstat(_beside(path, first, number + 1)) is not None:
            number += 1
        return _Version(_beside(path, first, number) if number > 1 else path, number, first)

    def _object(self, key: str, bytes_max: int | None = None) -> disk.MarkedFile:
        """The newest version of an object, with its bytes if they are wanted and not too many."""
        return self._found(key, bytes_max)[1]

    def _found(self, key: str, bytes_max: int | None = None) -> tuple[_Version, disk.MarkedFile]:
        for _ in range(TRIES_MAX):
            newest = self._newest(key)
            if newest is None:
                break
            file = disk.look(newest.path, bytes_max)
            if file is None or (newest.number == 1 and file.etag != newest.first):
                continue  # another process was here
            if not file.is_gone:
                return newest, file
            with suppress(OSError):  # who deletes it has not come so far, or never will
                self._remove(self._at(key), newest)
        raise NotFound("there is no such file", code="NoSuchKey")

    def _leaves(self, key: str, etag: str) -> _Version:
        """The version that a condition names, if it is the newest."""
        newest, file = self._found(key)
        if not same_etag(file.etag, etag):
            raise _changed()
        return newest

    def _follow(self, key: str, leaves: _Version, new: str) -> None:
        """Let a file follow a version. Of all processes that leave one version one succeeds."""
        path = self._at(key)
        if not _is_control(key):
            os.rename(new, path)
            return
        beside = _beside(path, leaves.first, leaves.number + 1)
        try:
            disk.move(new, beside, exclusive=True)
        except FileExistsError:
            raise _changed() from None
        first = disk.lstat(path)
        if first is None or disk.etag_of(first) != leaves.first:  # nobody reads what follows it
            with suppress(FileNotFoundError):
                os.unlink(beside)
            raise NotFound("it was deleted", code="NoSuchKey")

    def _create(self, key: str, new: str) -> None:
        path = self._at(key)
        for _ in range(TRIES_MAX):
            try:
                self._to_home(key, lambda: disk.move(new, path, exclusive=True))
                return
            except FileExistsError:
                with suppress(NotFound):
                    self._found(key)
                    break
        raise PreconditionFailed("a file is there already", code="PreconditionFailed")

    def _remove(self, path: str, newest: _Version, *, only: bool = True) -> None:
        """Remove an object, its first version first, and the directories that it leaves empty;
        ``only``: if it is still that one."""
        first = disk.lstat(path)
        if first is not None and (not only or disk.etag_of(first) == newest.first):
            with suppress(FileNotFoundError):
                os.unlink(path)
        _remove_versions(path, newest)
        self._remove_empty(os.path.dirname(path))

    def _remove_empty(self, directory: str) -> None:
        """Note that something has gone from a directory; remove it if it is empty, and those
        above."""
        self._unsynced.directories[directory] = object()
        with suppress(OSError):  # it holds something, is gone, or must stay
            while directory != self._root:
                os.rmdir(directory)
                self._homes.discard(directory)
                self._unsynced.directories.pop(directory, None)
                directory = os.path.dirname(directory)
                self._unsynced.directories[directory] = object()
        with suppress(OSError):
            os.rmdir(self._waiting)

    # Parts of an upload ---------------------------------------------------------------------------

    @contextmanager
    def _opened(
        self, key: str, upload_id: str, flags: int = os.O_RDONLY
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """An open upload's file, and its mark.

        Raises:
            NotFound: it is not open, or is another key's.
        """
        try:
            if not _ID.match(upload_id):
                raise FileNotFoundError
            descriptor = os.open(self._at_upload(upload_id), flags | disk.NO_LINK)
        except FileNotFoundError:
            raise _no_upload() from None
        try:
            mark = disk.mark_of(descriptor)
            if mark.get("k") != key or self._is_visible(key, os.fstat(descriptor), upload_id):
                raise _no_upload()
            yield descriptor, mark
        finally:
            os.close(descriptor)

    def _is_visible(self, key: str, seen: os.stat_result, upload_id: str) -> bool:
        """Whether an upload's file is at its key as well: who completed it died between the link
        and the unlink, which is done here."""
        there = disk.lstat(self._at(key)) if seen.st_nlink > 1 else None
        if there is None or not os.path.samestat(seen, there):
            return False
        with suppress(FileNotFoundError):
            os.unlink(self._at_upload(upload_id))
        return True

    def _rows(
        self, upload_id: str, descriptor: int, mark: Mapping[str, Any]
    ) -> tuple[dict[int, Row], os.stat_result]:
        """The stored parts of an open upload's file by number, and what that is.

        Raises:
            Unanswered: another process has just joined them in a new file.
        """
        path, seen = self._at_upload(upload_id), os.fstat(descriptor)
        rows = _rows_of(path, mark)
        there = disk.lstat(path)
        if there is not None and not os.path.samestat(seen, there):
            raise Unanswered("another process joins its parts")
        return {n: row for n, row in rows.items() if row[4] + row[2] <= seen.st_size}, seen

    @contextmanager
    def _place(
        self, path: str, descriptor: int, mark: Mapping[str, Any], number: int, size: int
    ) -> Iterator[int]:
        """The place of a part in the upload's file, which is its own while it is written."""
        with self._turns:
            layout = self._layouts.get(path)
            if layout is None:
                if len(self._layouts) >= LAYOUTS_MAX:  # who is not writing finds it in the file
                    self._layouts = {at: one for at, one in self._layouts.items() if one.users}
                end = os.fstat(descriptor).st_size
                first = max(_rows_of(path, mark), default=0) + 1 if end else 1
                layout = self._layouts[path] = _NextPart(end, first)
            layout.users += 1
            self._turns.wait_for(lambda: number <= layout.next, TURN_SECONDS)
            offset, layout.end = layout.end, layout.end + size
            layout.next = max(layout.next, number + 1)
            self._turns.notify_all()
        try:
            yield offset
        finally:
            with self._turns:
                layout.users -= 1

    def _note_part(self, path: str, descriptor: int, row: Row) -> None:
        """Note a part that is written: the first one in the mark, which says if there are more."""
        with self._turns:
            mark = disk.mark_of(descriptor)
            if "p" not in mark and not row[4]:
                disk.set_mark(descriptor, {**mark, "p": row})
                return
            if "r" not in mark:
                disk.set_mark(descriptor, {**mark, "r": ""})
            _append(_rows_path(path, mark), row)
            self._unsynced.files[_rows_path(path, mark)] = object()

    def _join(
        self, path: str, source: int, mark: dict[str, Any], named: Sequence[Row]
    ) -> os.stat_result:
        """Join parts in a new file, which takes the place of the upload's: never of one that has
        ended. Gives what it is. Two processes may do so at once: both files have the same bytes."""
        rows: list[Row] = []
        for number, etag, size, kept, _ in named:
            rows.append((number, etag, size, kept, rows[-1][4] + rows[-1][2] if rows else 0))
        joined = {**mark, "p": rows[0], "r": self._ids()}
        pieces = [(source, offset, size) for _, _, size, _, offset in named]
        try:
            with self._new(joined, pieces) as new:
                seen = os.stat(new)
                if rows[1:]:
                    _append(_rows_path(path, joined), *rows[1:])
                self._settle(new, _rows_path(path, joined))
                disk.exchange(new, path)
        except FileNotFoundError:
            raise _no_upload() from None
        with suppress(FileNotFoundError):
            os.unlink(_rows_path(path, mark))
        mark.update(joined)
        return seen

    def _ended(self, path: str, mark: Mapping[str, Any]) -> None:
        """Clean up after an upload has ended."""
        self._unsynced.forget(path)
        self._layouts.pop(path, None)
        if "r" in mark:
            self._unsynced.forget(_rows_path(path, mark))
            with suppress(FileNotFoundError):
                os.unlink(_rows_path(path, mark))
        self._unsynced.directories[self._waiting] = object()

    def _slice(self, body: ObjectSlice) -> FileSlice:
        if body.bucket != self._bucket:
            raise NotSupported("it is copied from another store", code="NotImplemented")
        file = self._object(body.key)
        if not same_etag(file.etag, body.etag):
            raise _changed()
        return FileSlice(file.path, body.offset, body.length)

    # Listings -------------------------------------------------------------------------------------

    def _entries(
        self, base: str, rest: str, after: str, grouped: bool
    ) -> Iterator[tuple[str, os.stat_result | None]]:
        """Keys below a directory in order, each with what was seen; a group with None."""
        try:
            if base and (self._path(base) and self._has_link(f"{base}/x")):
                return
        except _NoPath:
            return
        for name, file, versions in self._children(base):
            if not name.startswith(rest):
                continue
            key = f"{base}/{name}" if base else name
            if file is not None:
                with suppress(NotFound, FileNotFoundError):
                    if key > after:
                        newest = self._found(key)[1].seen if versions else None
                        yield key, newest or file.stat(follow_symlinks=False)
            elif after > key and not after.startswith(key):
                continue
            elif not grouped:
                yield from self._entries(key[:-1], "", after, False)
            elif key > after and next(self._entries(key[:-1], "", "", False), None) is not None:
                yield key, None

    def _children(self, directory: str) -> Sequence[_Child]:
        """What lies directly in a directory, in the order of keys; a directory with a slash."""
        found: list[_Child] = []
        versions: dict[str, list[str]] = {}
        control = _is_control(f"{directory}/")
        try:
            scan = os.scandir(self._at(directory))
        except disk.NOT_THERE:
            return []
        with scan:
            for entry in scan:
                if not _is_text(entry.name):
                    raise InvalidRequest(
                        f"{os.fsencode(entry.path)!r} is not UTF-8", code="NoText", hint="Rename it"
                    )
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != UPLOADS:
                        found.append((f"{entry.name}/", None, False))
                elif entry.is_file(follow_symlinks=False):
                    match = _VERSION.match(entry.name) if control else None
                    if match is None:
                        found.append((entry.name, entry, False))
                    else:
                        versions.setdefault(match[1], []).append(entry.path)
        if versions:
            found = [(name, file, name in versions) for name, file, _ in found]
            for name in versions.keys() - {name for name, _, _ in found}:
                for path in versions[name]:
                    self._remove_stale(path, f"{self._at(directory)}/{name}")
        return sorted(found, key=lambda one: one[0])

    # Where things are -----------------------------------------------------------------------------

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _at_upload(self, upload_id: str) -> str:
        return f"{self._waiting}/_{upload_id}"

    def _path(self, key: str) -> str:
        """Where a key is.

        Raises:
            _NoPath: a tree cannot hold it.
        """
        elements = key.split("/")
        if "" in elements or "." in elements or ".." in elements or "\0" in key:
            raise _NoPath("a path has no empty element, no '.', '..' or NUL", code="KeyIsNoPath")
        if UPLOADS in elements:
            raise _NoPath(f"{UPLOADS!r} is the directory of what waits", code="KeyIsReserved")
        for element, limit in ((key, KEY_BYTES_MAX), *((e, ELEMENT_BYTES_MAX) for e in elements)):
            if len(element) * 4 > limit and len(element.encode()) > limit:
                raise _NoPath(f"{element[:40]!r}… has over {limit} bytes", code="KeyTooLongError")
        return self._at(key)

    def _has_link(self, key: str) -> bool:
        """Whether a directory on the way to a key is a link."""
        at = self._at(key).rpartition("/")[0]
        while len(at) > len(self._root) and at not in self._homes:
            seen = disk.lstat(at)
            if seen is not None and modes.S_ISLNK(seen.st_mode):
                return True
            at = at.rpartition("/")[0]
        return False

    def _check_home(self, key: str) -> None:
        """See that a file can come to a key by a rename.

        Raises:
            InvalidRequest: a link, a file or a mount is on the way, or a directory is at the key.
        """
        if not self._mount:
            self._make_waiting()
            mount = disk.mount_of(self._root)
            if os.path.islink(self._waiting) or disk.mount_of(self._waiting) != mount:
                raise InvalidRequest(f"{self._waiting} leads elsewhere", code="EXDEV")
            self._mount = mount
        seen = disk.lstat(self._at(key))
        if seen is not None and modes.S_ISDIR(seen.st_mode):
            raise InvalidRequest("a directory has that name", code="KeyIsNoPath")
        at = self._root
        for element in key.split("/")[:-1]:
            at = f"{at}/{element}"
            seen = None if at in self._homes else disk.lstat(at)
            if seen is None:
                continue
            if not modes.S_ISDIR(seen.st_mode):
                what = "a link" if modes.S_ISLNK(seen.st_mode) else "a file"
                raise InvalidRequest(f"{at} is {what}, and no directory", code="KeyIsNoPath")
            if disk.mount_of(at) != self._mount:
                raise InvalidRequest(
                    f"{at} is mounted from elsewhere: no file can be renamed into it",
                    code="EXDEV",
                    hint="Mount nothing inside the destination, or write to what is mounted",
                )
            self._homes.add(at)

    def refuse(self, key: str) -> None:
        """See that a file can be renamed to a key, before a job is decided.

        Raises:
            InvalidRequest: it cannot; the message says what is in the way.
        """
        with self._verb("look", key):
            self._path(key)
            self._check_home(key)

    def _to_home(self, key: str, rename: Callable[[], None], source: str = "") -> None:
        """Rename a file to its key, with the directories that this needs: others remove empty ones.

        Raises:
            FileNotFoundError: ``source`` is gone.
        """
        directory = os.path.dirname(self._at(key))
        for number in range(TRIES_MAX):
            if number or directory not in self._homes:
                self._make_directories(key)
            try:
                rename()
                return
            except FileNotFoundError:
                if number + 1 == TRIES_MAX or (source and disk.lstat(source) is None):
                    raise

    def _make_directories(self, key: str) -> None:
        self._check_home(key)  # nothing is made behind a link
        at = self._root
        for element in key.split("/")[:-1]:
            above, at = at, f"{at}/{element}"
            self._homes.discard(at)
            with suppress(FileExistsError):
                os.mkdir(at)
                self._unsynced.directories[above] = object()
        self._check_home(key)

    def _make_waiting(self) -> None:
        """Make the root, and the directory of what waits."""
        above = self._waiting
        while not os.path.lexists(above):
            above = os.path.dirname(above)
            self._unsynced.directories[above] = object()
        os.makedirs(self._waiting, exist_ok=True)

    # Writing and syncing --------------------------------------------------------------------------

    @contextmanager
    def _new(self, mark: Mapping[str, Any], pieces: Iterable[Any]) -> Iterator[str]:
        """A new file that waits; it goes if nobody has renamed it."""
        path = f"{self._waiting}/_new-{self._ids()}"
        try:
            self._write(path, mark, pieces)
            yield path
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _write(self, path: str, mark: Mapping[str, Any], pieces: Iterable[Any]) -> None:
        """Write a new file with its mark: bytes, or ranges of an open file."""
        for _ in range(TRIES_MAX):
            with suppress(FileNotFoundError):  # whoever ends removes the empty directory
                descriptor = os.open(path, _NEW, 0o666)
                break
            self._make_waiting()
        else:
            raise Unanswered("others remove its directory all the time")
        try:
            end = 0
            for piece in pieces:
                end += disk.write_at(descriptor, piece, end)
            disk.set_mark(descriptor, mark)
        finally:
            os.close(descriptor)

    def _settle(self, *files: str) -> None:
        """Make these files last, and everything that was done through this store.

        Raises:
            OSError: something does not last, by this or an earlier sync.
        """
        unsynced = self._unsynced
        for error in list(unsynced.lost.values()):
            raise error
        parts, directories = dict(unsynced.files), dict(unsynced.directories)
        paths = [*files, *parts, *directories]
        at_once = len(paths) > SYNC_EACH_MAX and disk.syncs_file_systems()
        for path in [self._waiting] if at_once else paths:
            try:
                disk.sync(path, whole=at_once)
            except OSError as error:
                # It was removed meanwhile; or is above the root, and may not be read.
                above = isinstance(error, PermissionError) and self._root.startswith(path)
                if above or isinstance(error, FileNotFoundError):
                    continue
                lost = paths if at_once else [path]
                unsynced.lost.update((one, error) for one in lost if one not in files)
                raise
        for kept, done in ((unsynced.files, parts), (unsynced.directories, directories)):
            for path, token in done.items():
                if kept.get(path) is token:
                    kept.pop(path, None)

    def _visible(self, path: str) -> None:
        """Make the name last that a file was just given. It is there: an error is no refusal."""
        try:
            self._unsynced.directories[os.path.dirname(path)] = object()
            self._settle()
        except OSError as error:
            raise Unanswered(
                f"it is there, and may not last: {error.strerror or error}",
                code=errno.errorcode.get(error.errno or 0, ""),
            ) from error

    def _info(
        self, key: str, seen: os.stat_result, mark: Mapping[str, Any] | None = None
    ) -> ObjectInfo:
        metadata = mark.get("m", {}) if mark is not None else None
        if not isinstance(metadata, dict | None):
            metadata = {}
        modified = seen.st_mtime
        return ObjectInfo(
            key, seen.st_size, f'"{disk.etag_of(seen)}"', modified, self._now(), metadata
        )

    @contextmanager
    def _verb(self, verb: str, key: str) -> Iterator[None]:
        """Give each error of a verb its place, and translate those of the system."""
        try:
            yield
        except StoreError as error:
            if not error.operation:
                error.message = f"{verb} of {self.identity}/{key:.200}: {error.message}"
                error.args = (error.message,)
                error.operation, error.bucket, error.key = verb, self._bucket, key
                error.status = next((s for k, s in _STATUS.items() if isinstance(error, k)), 0)
            raise
        except (IsADirectoryError, NotADirectoryError) as error:
            self._homes.clear()
            raise InvalidRequest(
                f"{verb} of {self.identity}/{key}: a file and a directory cannot have one name",
                operation=verb, bucket=self._bucket, key=key, status=400, code="KeyIsNoPath",
            ) from error  # fmt: skip
        except OSError as error:
            told = translated(error, verb, f"{self.identity}/", key)
            told.bucket, told.status = self._bucket, _STATUS.get(type(told), 0)
            if isinstance(told, NotFound):
                told.code = "NoSuchKey"
            raise told from error


class _NoPath(InvalidRequest):
    """A key that no tree can hold."""


def _no_upload() -> NotFound:
    return NotFound("there is no such upload", code="NoSuchUpload")


def _changed() -> PreconditionFailed:
    return PreconditionFailed("it has changed", code="PreconditionFailed")


# Rows, marks and names ----------------------------------------------------------------------------

_Child = tuple[str, os.DirEntry[str] | None, bool]
"""A name with the file, and whether it has later versions; a directory has neither."""


def _whole(seen: os.stat_result) -> Part:
    return Part(1, f'"{disk.etag_of(seen)}"', seen.st_size)


def _is_control(key: str) -> bool:
    return key.startswith(CONTROL_PREFIX) or f"/{CONTROL_PREFIX}" in key


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _beside(path: str, first: str, number: int) -> str:
    return f"{path}.~{first}.{number}"


def _remove_versions(path: str, newest: _Version) -> None:
    for number in range(2, newest.number + 1):
        with suppress(FileNotFoundError):
            os.unlink(_beside(path, newest.first, number))


def _metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    kept = {name.lower(): value for name, value in (metadata or {}).items()}
    text = "".join(name + value for name, value in kept.items())
    if not text.isascii() or len(text) > METADATA_BYTES_MAX:
        raise InvalidRequest(
            f"metadata is not ASCII, or has over {METADATA_BYTES_MAX} bytes",
            code="MetadataTooLarge" if text.isascii() else "InvalidArgument",
        )
    return kept


def _pair(checksum: Checksum | None) -> tuple[str, str] | None:
    return (checksum.algorithm, checksum.value) if checksum is not None else None


def _part(row: Row) -> Part:
    number, etag, size, kept, _ = row
    return Part(number, f'"{etag}"', size, Checksum(*kept) if kept else None)  # type: ignore[arg-type]


def _rows_path(path: str, mark: Mapping[str, Any]) -> str:
    return f"{path}{mark.get('r', '')}.parts"


def _rows_of(path: str, mark: Mapping[str, Any]) -> dict[int, Row]:
    """The parts that an upload's file holds: the last one of a number counts."""
    rows = [mark["p"]] if "p" in mark else []
    if "r" in mark:
        with suppress(FileNotFoundError), open(_rows_path(path, mark), "rb") as file:
            rows += [orjson.loads(line) for line in file if line.endswith(b"\n")]
    return {row[0]: row for row in rows if _is_row(row)}


def _is_row(row: object) -> bool:
    """Whether it is one that this store has written: others may write below the root as well."""
    if not isinstance(row, list) or len(row) != 5:
        return False
    number, etag, size, kept, offset = row
    numbers = all(isinstance(one, int) and one >= 0 for one in (number, size, offset))
    pair = kept is None or (isinstance(kept, list) and len(kept) == 2)
    return numbers and pair and isinstance(etag, str)


def _append(path: str, *rows: Row) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        disk.write_at(descriptor, b"".join(orjson.dumps(row) + b"\n" for row in rows), None)
    finally:
        os.close(descriptor)


def _named(parts: Sequence[Part], rows: Mapping[int, Row], length: int | None) -> list[Row]:
    """The stored parts that a Complete names.

    Raises:
        InvalidRequest: as S3 refuses it.
    """
    if not parts:
        raise InvalidRequest("it names no parts", code="MalformedXML")
    if any(a.number >= b.number for a, b in pairwise(parts)):
        raise InvalidRequest("it names its parts out of order", code="InvalidPartOrder")
    for part in parts:
        there = _part(rows[part.number]) if part.number in rows else None
        if there is None or not same_etag(there.etag, part.etag):
            raise InvalidRequest(f"it has no part {part.number}, {part.etag}", code="InvalidPart")
        if part.checksum and there.checksum and part.checksum != there.checksum:
            raise InvalidRequest(f"part {part.number} has another checksum", code="InvalidPart")
    named = [rows[part.number] for part in parts]
    size = sum(row[2] for row in named)
    if length not in (None, size):
        raise InvalidRequest(f"its parts have {size} bytes, not {length}", code="InvalidRequest")
    return named
