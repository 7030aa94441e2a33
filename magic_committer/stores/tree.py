"""A local directory as an object store: jobs on disks by the protocol, driver and recovery of S3.

A key is a path below the root. What waits lies in ``__magic_uploads/``, directly below the root,
which no reader and no listing shows. Everything is made there first, under a name of its own, and
then renamed: readers see a whole file or none.

**An upload is open as long as its file ``__magic_uploads/_<id>`` is there.** Create makes it empty.
Its first part takes its place; other parts wait in ``_<id>.parts/``. Complete renames the file to
its key: by this one rename the object appears and the upload ends, so of all Completes and aborts
at once one has its effect, and the others find no upload. A file of one part is never copied.
Several parts are joined first (by the kernel: shared blocks where the file system has them), the
whole is synced, and takes the place of the upload's file; its mark names the parts. Parts have
unequal sizes and arrive in any order without an offset, so they cannot be written in place.

**A mark** is an extended attribute, which a rename keeps: user metadata; of an upload also its key
and parts. So HEAD identifies what an upload became, for a recovery years later, without a file
beside each file. A file system without them is refused at the first write.

**An ETag** is inode, time of the last write and size: a rename keeps them, and another file has
others. It costs no read of the bytes, and holds for files of any program. Of a part, too: bytes
that a power cut took away no longer have it, and such a part is not stored.

**A swap is an exclusively created next version**, never a lock. Of a control object (below an
element that begins with ``__magic``) the file at the key is version 1; version *n* lies beside it,
as ``<name>.~<ETag of version 1>.<n>``. The object is the newest. A conditional PUT creates the
version after the one that it leaves, a conditional DELETE an empty last one; one process succeeds.
Versions go with the first one first: without it there is no object. Other keys have a fixed name
for their readers: there the condition is a look, and then a rename; what another process writes
between the two is lost. The protocol needs that for `_SUCCESS` and for data that it replaces,
where the look is the rule on S3 as well (`magic_committer.commit.deletes`).

**A put lasts when it answers, and so does all that this store did before it**: it syncs the parts,
the names in directories and its own bytes, then makes itself visible. So parts cost no sync of
their own: the PUT of the set that names them does it, for many files by one ``syncfs`` (believed
from Linux 5.8 on, where it tells errors). What a sync could not write stays unwritten for this
store: each later put fails, until the part is aborted or sent again.

Who dies where leaves what:

* in a put: ``__magic_uploads/_new-<id>``, which nobody reads; `sweep_new` removes old ones;
* in a part: the same, and the upload as it was;
* in a Complete: before its rename the upload, open; with several parts perhaps joined, which a
  second Complete finds. After it the object; of the upload at most its empty directory of parts;
* in an abort: after its first step there is no upload; the directory of its parts may stay;
* in a removal of versions: after the last one, empty, was created there is no object. Files that
  nobody reads may stay until the directory's next removal.

Where a file system cannot rename exclusively (``renameat2``; NFS), a link and an unlink do it. Who
dies between them leaves one file with two names: the next call sees that, and goes on.

Links below the root are never followed, and what is mounted below it is refused before bytes are
sent. What a tree cannot hold is refused by `create_upload` and `put`: an empty element, ``.``,
``..``, 256 bytes in one element, a file below a file, a file where a directory is.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat as modes
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NoReturn

import orjson

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
from magic_committer.file_trees.os_errors import translated
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
COPY_BYTES = 1 << 30

_MARK = "user.magic-committer"
_NEW = "_new-"
_VERSION = re.compile(r"(.+)\.~([0-9a-f]+-[0-9a-f]+-[0-9a-f]+)\.([0-9]+)\Z", re.DOTALL)
_ID = re.compile(r"[0-9a-f]{32}\Z")
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_LOOK = _READ | getattr(os, "O_NONBLOCK", 0)
"""Not blocking: the open of a FIFO would wait for a writer."""
_WRITE_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_NO_MARKS = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS))
_NOT_THERE = (FileNotFoundError, NotADirectoryError)

_STATUS: Mapping[type[StoreError], int] = {
    NotFound: 404,
    PermissionDenied: 403,
    PreconditionFailed: 412,
    InvalidRequest: 400,
    NotSupported: 501,
}


@dataclass(slots=True)
class _File:
    """A file as one look saw it."""

    seen: os.stat_result
    mark: dict[str, Any]
    body: bytes = b""

    @property
    def etag(self) -> str:
        return _etag(self.seen)


@dataclass(frozen=True, slots=True)
class _Version:
    """The newest version of an object: its file, its number, and the ETag of the first one."""

    path: str
    number: int
    first: str


@dataclass(slots=True)
class _Unsynced:
    """What was written and may not last yet. Without a lock, which a fork could leave locked: who
    syncs takes nothing away before it has synced it, and two may sync the same."""

    files: dict[str, object] = field(default_factory=dict)
    directories: dict[str, object] = field(default_factory=dict)
    lost: dict[str, OSError] = field(default_factory=dict)
    """Files of which a sync has failed. A second one may succeed and not have written them."""

    def forget(self, path: str) -> None:
        self.files.pop(path, None)
        self.lost.pop(path, None)


class TreeStore:
    """A directory of this machine, or of a network file system that is mounted. Implements
    `stores.base.ObjectStore`; safe for many threads and processes.

    Args:
        root: the directory, an absolute path. It is made by the first write.
        bucket: what the store is called.
        clock: the clock that ages are told by; of a network file system it is the server's that
            writes times.
        ids: draws 32 hexadecimal digits.
    """

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
        self._now = (clock or SystemClock()).now
        self._ids = ids
        self._unsynced = _Unsynced()
        self._homes: set[str] = set()
        """Directories that are known to be real ones, on the root's own mount."""
        self._mount: str | None = None

    def __repr__(self) -> str:
        return f"TreeStore({self._root!r}, {self._bucket!r})"

    @property
    def bucket(self) -> str:
        return self._bucket

    @property
    def identity(self) -> str:
        return f"file://{self._root}"

    # Objects --------------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        with self._told("get", key):
            file = self._object(key, max_bytes)
        if file is None:
            self._refuse(NotFound, "get", key, "NoSuchKey", "there is no such file")
        if file.seen.st_size > max_bytes:
            self._refuse(InvalidRequest, "get", key, "TooLarge", f"has more than {max_bytes} bytes")
        return StoredObject(self._info(key, file.seen, file.mark), file.body)

    def head(self, key: str) -> ObjectInfo:
        with self._told("head", key):
            file = self._object(key)
        if file is None:
            self._refuse(NotFound, "head", key, "NoSuchKey", "there is no such file")
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
        with self._told("put", key):
            path = self._path("put", key)
            mark = {"m": self._metadata("put", key, metadata)}
            leaves = self._leaves("put", key, if_match) if if_match is not None else None
            self._check_home("put", key)
            new = self._write([body], mark)
            try:
                etag = _etag(os.stat(new))
                self._settle([new])
                if leaves is not None:
                    self._follow("put", key, leaves, new)
                elif if_none_match:
                    self._create(key, path, new)
                else:
                    self._replace(key, path, new)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(new)
            self._visible("put", key, os.path.dirname(path))
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
        with self._told("delete", key):
            try:
                path = self._path("delete", key)
            except InvalidRequest:
                return  # no such key can be there
            newest = self._newest(key)
            if newest is None:
                return
            if if_match is not None:
                try:
                    leaves = self._leaves("delete", key, if_match)
                except NotFound:
                    return
                if _is_control(key):
                    last = self._write([], {"gone": True})
                    try:
                        self._settle([last])
                        self._follow("delete", key, leaves, last)
                    finally:
                        with suppress(FileNotFoundError):
                            os.unlink(last)
                    self._visible("delete", key, os.path.dirname(path))
                    newest = self._newest(key) or leaves
            self._remove(path, newest)

    def list(
        self, prefix: str, *, delimiter: str = "", start_after: str = ""
    ) -> Iterator[ObjectPage]:
        if delimiter not in ("", "/"):
            self._refuse(
                NotSupported, "list", prefix, "Delimiter", f"cannot be grouped by {delimiter!r}"
            )
        objects: list[ObjectInfo] = []
        prefixes: list[str] = []
        base, _, rest = prefix.rpartition("/")
        with self._told("list", prefix):
            for key, seen in self._entries(base, rest, start_after, bool(delimiter)):
                if seen is None:
                    prefixes.append(key)
                else:
                    objects.append(self._info(key, seen, None))
                if len(objects) + len(prefixes) == PAGE_KEYS_MAX:
                    yield ObjectPage(tuple(objects), tuple(prefixes))
                    objects, prefixes = [], []
        yield ObjectPage(tuple(objects), tuple(prefixes))

    # Uploads --------------------------------------------------------------------------------------

    def create_upload(
        self, key: str, *, attributes: Attributes, checksum: ChecksumAlgorithm | None = None
    ) -> CreatedUpload:
        with self._told("create_upload", key):
            self._path("create_upload", key)
            kept = self._metadata("create_upload", key, attributes.metadata)
            if attributes != Attributes(metadata=attributes.metadata):
                self._refuse(
                    InvalidRequest, "create_upload", key, "NoAttributes",
                    f"a file has no such attributes: {attributes!r:.200}",
                    "Leave all attributes but metadata out",
                )  # fmt: skip
            self._check_home("create_upload", key)
            upload_id = self._ids()
            mark = {"k": key, "m": kept, "t": self._now(), "p": []}
            self._write([], mark, f"_{upload_id}")
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
        with self._told("put_part", key):
            if not 1 <= number <= PART_NUMBER_MAX:
                self._refuse(
                    InvalidRequest, "put_part", key, "InvalidArgument", f"has no part {number}"
                )
            upload = self._upload("put_part", key, upload_id)
            path = self._at_upload(upload_id)
            with self._source(key, body) as pieces:
                kept = (checksum.algorithm, checksum.value) if checksum is not None else None
                mark = {**upload.mark} if number == 1 else {"k": key}
                new = self._write(pieces, mark, stored=(number, kept))
            seen = os.stat(new)
            if number == 1:
                target = path
                self._take_place("put_part", key, new, path)
            else:
                target = f"{path}.parts/{number}"
                with suppress(FileExistsError):
                    os.mkdir(f"{path}.parts")
                os.rename(new, target)
                self._mark_unsynced(directory=f"{path}.parts")
                if not os.path.lexists(path):
                    self._drop_parts(path)
                    self._no_upload("put_part", key)
            self._unsynced.forget(new)
            self._unsynced.forget(target)
            self._mark_unsynced(target, self._waiting)
        return Part(number, f'"{_etag(seen)}"', seen.st_size, checksum)

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        with self._told("list_parts", key):
            return tuple(self._parts(key, upload_id, self._upload("list_parts", key, upload_id)))

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
        with self._told("complete_upload", key):
            upload = self._upload("complete_upload", key, upload_id)
            path, target = self._at_upload(upload_id), self._path("complete_upload", key)
            stored = {part.number: part for part in self._parts(key, upload_id, upload)}
            self._check_parts(key, parts, stored, length)
            numbers = [part.number for part in parts]
            if [one[0] for one in upload.mark["p"]] != numbers:
                self._join(key, path, upload, [stored[number] for number in numbers])
            etag = self._publish("complete_upload", key, path, target, if_none_match)
            if numbers != [1]:
                self._drop_parts(path)
        return Written(f'"{etag}"')

    def abort_upload(self, key: str, upload_id: str) -> None:
        with self._told("abort_upload", key):
            try:
                self._upload("abort_upload", key, upload_id)
            except NotFound:
                return
            path = self._at_upload(upload_id)
            with suppress(FileNotFoundError):
                os.unlink(path)  # from here on there is no upload
            self._unsynced.forget(path)
            self._drop_parts(path)
            self._mark_unsynced(directory=self._waiting)

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        found: list[UploadInfo] = []
        with self._told("list_uploads", prefix):
            names: list[str] = []
            with suppress(*_NOT_THERE):
                names = os.listdir(self._waiting)
            for name in names:
                if name[:1] != "_" or not _ID.match(name[1:]):
                    continue
                file = self._look(f"{self._waiting}/{name}")
                key = file.mark.get("k") if file is not None else None
                if file is not None and isinstance(key, str) and key.startswith(prefix):
                    found.append(UploadInfo(key, name[1:], file.mark.get("t")))
        found.sort(key=lambda one: (one.key, one.initiated or 0.0))
        for at in range(0, max(1, len(found)), PAGE_KEYS_MAX):
            yield UploadPage(tuple(found[at : at + PAGE_KEYS_MAX]), self._now())

    # How an object is read and written ------------------------------------------------------------

    def _object(self, key: str, bytes_max: int | None = None) -> _File | None:
        """The newest version of an object, with its bytes if they are wanted and not too many."""
        self._path("get", key)
        if self._has_link(key):
            return None
        for _ in range(TRIES_MAX):
            newest = self._newest(key)
            if newest is None:
                return None
            file = self._look(newest.path, bytes_max)
            if file is None or (newest.number == 1 and file.etag != newest.first):
                continue  # another process was here
            return None if file.mark.get("gone") else file
        return self._changing("get", key)

    def _newest(self, key: str) -> _Version | None:
        path = self._at(key)
        seen = _lstat(path)
        if seen is None or modes.S_ISDIR(seen.st_mode):
            return None
        found = _Version(path, 1, _etag(seen))
        while _is_control(key):
            beside = f"{path}.~{found.first}.{found.number + 1}"
            if _lstat(beside) is None:
                break
            found = _Version(beside, found.number + 1, found.first)
        return found

    def _leaves(self, verb: str, key: str, etag: str) -> _Version:
        """The version that a condition names, if it is the newest."""
        for _ in range(TRIES_MAX):
            newest = self._newest(key)
            file = self._look(newest.path) if newest is not None else None
            if newest is None or (file is not None and file.mark.get("gone")):
                self._refuse(NotFound, verb, key, "NoSuchKey", "there is no such file")
            if file is None or (newest.number == 1 and file.etag != newest.first):
                continue
            if not same_etag(file.etag, etag):
                self._refuse(PreconditionFailed, verb, key, "PreconditionFailed", "has changed")
            return newest
        return self._changing(verb, key)

    def _follow(self, verb: str, key: str, leaves: _Version, new: str) -> None:
        """Let a file follow a version. Of all processes that leave one version one succeeds."""
        path = self._at(key)
        if not _is_control(key):
            os.rename(new, path)
            return
        beside = f"{path}.~{leaves.first}.{leaves.number + 1}"
        try:
            _move(new, beside, exclusive=True)
        except FileExistsError:
            self._refuse(PreconditionFailed, verb, key, "PreconditionFailed", "has changed")
        except FileNotFoundError:
            self._refuse(NotFound, verb, key, "NoSuchKey", "there is no such file")
        first = _lstat(path)
        if first is None or _etag(first) != leaves.first:  # it follows nothing: nobody reads it
            with suppress(FileNotFoundError):
                os.unlink(beside)
            self._refuse(NotFound, verb, key, "NoSuchKey", "there is no such file")

    def _create(self, key: str, path: str, new: str) -> None:
        for _ in range(TRIES_MAX):
            try:
                self._to_home("put", key, lambda: _move(new, path, exclusive=True))
                return
            except FileExistsError:
                newest = self._newest(key)
                last = self._look(newest.path) if newest is not None else None
                if newest is None or last is None:
                    continue
                if not last.mark.get("gone"):
                    break
                self._remove(path, newest)  # who deleted it has not come so far
        self._refuse(PreconditionFailed, "put", key, "PreconditionFailed", "is there already")

    def _replace(self, key: str, path: str, new: str) -> None:
        before = self._newest(key) if _is_control(key) else None
        self._to_home("put", key, lambda: os.rename(new, path))
        if before is not None:
            self._remove_versions(path, before)

    def _remove(self, path: str, newest: _Version) -> None:
        """Remove an object, its first version first, and the directories that it leaves empty."""
        if newest.number > 1:
            first = _lstat(path)
            if first is not None and _etag(first) == newest.first:
                with suppress(FileNotFoundError):
                    os.unlink(path)
        else:
            with suppress(FileNotFoundError):
                os.unlink(path)
        self._unsynced.forget(path)
        self._remove_versions(path, newest)
        directory = os.path.dirname(path)
        self._mark_unsynced(directory=directory)
        while directory != self._root:
            try:
                os.rmdir(directory)
            except OSError:
                break  # it holds something, or is gone, or must stay
            self._homes.discard(directory)
            directory = os.path.dirname(directory)
            self._mark_unsynced(directory=directory)
        else:
            with suppress(OSError):  # what waited has ended
                os.rmdir(self._waiting)

    def _remove_versions(self, path: str, newest: _Version) -> None:
        for number in range(2, newest.number + 1):
            with suppress(FileNotFoundError):
                os.unlink(f"{path}.~{newest.first}.{number}")

    def _publish(self, verb: str, key: str, path: str, target: str, exclusive: bool) -> str:
        """Rename an upload's file to its key: the one step by which it ends."""
        seen = _lstat(path)
        if seen is None:
            self._no_upload(verb, key)
        try:
            self._to_home(verb, key, lambda: _move(path, target, exclusive=exclusive), path)
        except FileExistsError:
            self._check_home(verb, key)
            self._refuse(PreconditionFailed, verb, key, "PreconditionFailed", "is there already")
        except FileNotFoundError:
            self._no_upload(verb, key)
        except (IsADirectoryError, NotADirectoryError):
            self._check_home(verb, key)
            raise
        if path in self._unsynced.files:  # of a part that was sent a moment ago
            self._unsynced.files[target] = self._unsynced.files.pop(path, None)
        self._mark_unsynced(directory=self._waiting)
        self._mark_unsynced(directory=os.path.dirname(target))
        return _etag(seen)

    # Parts ----------------------------------------------------------------------------------------

    def _upload(self, verb: str, key: str, upload_id: str) -> _File:
        """An open upload's file.

        Raises:
            NotFound: the upload is not open, or is another key's.
        """
        file = self._look(self._at_upload(upload_id)) if _ID.match(upload_id) else None
        if file is None or file.mark.get("k") != key:
            self._no_upload(verb, key)
        return file

    def _parts(self, key: str, upload_id: str, upload: _File) -> Iterator[Part]:
        """The stored parts by number: those in the upload's file, and those that wait beside it."""
        found = {one[0]: one for one in _held(upload)}
        directory = f"{self._at_upload(upload_id)}.parts"
        with suppress(*_NOT_THERE):
            for name in os.listdir(directory):
                file = self._look(f"{directory}/{name}")
                if file is not None:
                    found.update((one[0], one) for one in _held(file) if one[0] not in found)
        for number, etag, size, kept in sorted(found.values(), key=lambda one: one[0]):
            checksum = Checksum(*kept) if kept is not None else None
            yield Part(number, f'"{etag}"', size, checksum)

    def _check_parts(
        self, key: str, parts: Sequence[Part], stored: Mapping[int, Part], length: int | None
    ) -> None:
        def refuse(code: str, what: str) -> NoReturn:
            self._refuse(InvalidRequest, "complete_upload", key, code, what)

        if not parts:
            refuse("MalformedXML", "names no parts")
        if any(a.number >= b.number for a, b in zip(parts, parts[1:], strict=False)):
            refuse("InvalidPartOrder", "names its parts out of order")
        for part in parts:
            there = stored.get(part.number)
            if there is None or not same_etag(there.etag, part.etag):
                refuse("InvalidPart", f"has no part {part.number} with ETag {part.etag}")
            if None not in (part.checksum, there.checksum) and part.checksum != there.checksum:
                refuse("InvalidPart", f"part {part.number} has another checksum")
        found = sum(stored[part.number].size for part in parts)
        if length is not None and length != found:
            refuse("InvalidRequest", f"its parts have {found} bytes, not {length}")

    def _join(self, key: str, path: str, upload: _File, parts: Sequence[Part]) -> None:
        """Join parts to one file, which takes the place of the upload's."""
        held = upload.mark["p"]
        if len(held) > 1:  # joined before, by somebody who named other parts
            self._refuse(
                InvalidRequest, "complete_upload", key, "InvalidPart", "was joined of other parts"
            )
        try:
            pieces = [
                FileSlice(path if part.number == 1 else f"{path}.parts/{part.number}", 0, part.size)
                for part in parts
            ]
            new = self._write(pieces, {**upload.mark}, whole=parts)
        except FileNotFoundError:
            self._no_upload("complete_upload", key)
        try:
            self._settle([new])
            self._take_place("complete_upload", key, new, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(new)

    def _take_place(self, verb: str, key: str, new: str, path: str) -> None:
        """Put a file in the place of an open upload's. Never brings back one that has ended."""
        try:
            _exchange(new, path)
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                os.unlink(new)
            self._no_upload(verb, key)

    def _drop_parts(self, path: str) -> None:
        directory = f"{path}.parts"
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            return
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(f"{directory}/{name}")
            self._unsynced.forget(f"{directory}/{name}")
        self._unsynced.directories.pop(directory, None)
        with suppress(OSError):  # a late part; its sender removes it
            os.rmdir(directory)

    @contextmanager
    def _source(self, key: str, body: PartBody | ObjectSlice) -> Iterator[list[Any]]:
        """What a part is written from: bytes, or slices of files."""
        if isinstance(body, FileSlice):
            yield [body]
        elif not isinstance(body, ObjectSlice):
            yield [body]
        else:
            newest = self._newest(body.key) if body.bucket == self._bucket else None
            file = self._look(newest.path) if newest is not None else None
            if newest is None or file is None:
                self._refuse(NotFound, "put_part", body.key, "NoSuchKey", "there is no such file")
            if not same_etag(file.etag, body.etag):
                self._refuse(
                    PreconditionFailed, "put_part", body.key, "PreconditionFailed", "has changed"
                )
            yield [FileSlice(newest.path, body.offset, body.length)]

    # Listings -------------------------------------------------------------------------------------

    def _entries(
        self, base: str, rest: str, after: str, grouped: bool
    ) -> Iterator[tuple[str, os.stat_result | None]]:
        """Keys below a directory in order, each with what was seen; a group with None."""
        try:
            if base:
                self._path("list", base)
        except InvalidRequest:
            return  # no such key can be there
        if base and self._has_link(f"{base}/x"):
            return
        start = f"{base}/" if base else ""
        for name, is_directory, seen in self._children(base):
            if not name.startswith(rest):
                continue
            key = f"{start}{name}"
            if not is_directory:
                if key > after and (found := seen()) is not None:
                    yield key, found
                continue
            below = f"{key}/"
            if after > below and not after.startswith(below):
                continue
            if not grouped:
                yield from self._entries(key, "", after, False)
            elif below > after and next(self._entries(key, "", "", False), None) is not None:
                yield below, None

    def _children(
        self, directory: str
    ) -> list[tuple[str, bool, Callable[[], os.stat_result | None]]]:
        """What lies directly in a directory, in the order of its keys."""
        files: dict[str, os.DirEntry[str]] = {}
        versions: dict[str, dict[tuple[str, int], os.DirEntry[str]]] = {}
        found: list[tuple[str, str, bool, Callable[[], os.stat_result | None]]] = []
        control = _is_control(f"{directory}/")
        try:
            scan = os.scandir(self._at(directory))
        except _NOT_THERE:
            return []
        with scan:
            for entry in scan:
                name = entry.name
                if not _is_text(name):
                    self._refuse(
                        InvalidRequest, "list", directory, "NoText",
                        f"it holds a name that is not UTF-8: {os.fsencode(name)!r}", "Rename it",
                    )  # fmt: skip
                if entry.is_dir(follow_symlinks=False):
                    if name != UPLOADS:
                        found.append((f"{name}/", name, True, _nothing))
                elif entry.is_file(follow_symlinks=False):
                    match = _VERSION.match(name) if control else None
                    if match is None:
                        files[name] = entry
                    else:
                        beside = versions.setdefault(match[1], {})
                        beside[match[2], int(match[3])] = entry
        for name, entry in files.items():
            look = _newest_of(entry, versions[name]) if name in versions else _seen(entry)
            found.append((name, name, False, look))
        found.sort(key=lambda one: one[0])
        return [one[1:] for one in found]

    # Where things are -----------------------------------------------------------------------------

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _at_upload(self, upload_id: str) -> str:
        return f"{self._waiting}/_{upload_id}"

    def _path(self, verb: str, key: str) -> str:
        """Where a key is.

        Raises:
            InvalidRequest: a tree cannot hold it.
        """
        elements = key.split("/")
        if len(key) > KEY_BYTES_MAX // 4 and len(key.encode()) > KEY_BYTES_MAX:
            self._refuse(
                InvalidRequest, verb, f"{key[:64]}…", "KeyTooLongError",
                f"the key has more than {KEY_BYTES_MAX} bytes",
            )  # fmt: skip
        if "" in elements or "." in elements or ".." in elements or "\0" in key:
            self._refuse(
                InvalidRequest, verb, key, "KeyIsNoPath",
                "a file's path has no empty element, no '.', '..' and no NUL",
            )  # fmt: skip
        if UPLOADS in elements:
            self._refuse(
                InvalidRequest, verb, key, "KeyIsReserved", f"{UPLOADS!r} is for what waits"
            )
        for element in elements:
            if len(element) > ELEMENT_BYTES_MAX // 4 and len(element.encode()) > ELEMENT_BYTES_MAX:
                self._refuse(
                    InvalidRequest, verb, key, "KeyTooLongError",
                    f"an element has more than {ELEMENT_BYTES_MAX} bytes",
                )  # fmt: skip
        return self._at(key)

    def _has_link(self, key: str) -> bool:
        """Whether a directory on the way to a key is a link, which is never followed."""
        directory = key.rpartition("/")[0]
        while directory and self._at(directory) not in self._homes:
            seen = _lstat(self._at(directory))
            if seen is not None and modes.S_ISLNK(seen.st_mode):
                return True
            directory = directory.rpartition("/")[0]
        return False

    def _check_home(self, verb: str, key: str) -> None:
        """See that a file can come to a key by a rename: neither a link nor a file is on the way,
        nothing is mounted there, and no directory is at the key itself."""
        seen = _lstat(self._at(key))
        if seen is not None and modes.S_ISDIR(seen.st_mode):
            self._refuse(
                InvalidRequest, verb, key, "KeyIsNoPath",
                "a directory is there, and a tree cannot hold both", "Choose another name",
            )  # fmt: skip
        way, at = key.split("/")[:-1], self._root
        for element in way:
            at = f"{at}/{element}"
            if at in self._homes:
                continue
            seen = _lstat(at)
            if seen is None:
                return
            if not modes.S_ISDIR(seen.st_mode):
                what = "a link" if modes.S_ISLNK(seen.st_mode) else "a file"
                self._refuse(
                    InvalidRequest, verb, key, "KeyIsNoPath",
                    f"{at} is {what}, and no directory", "Choose another name",
                )  # fmt: skip
            if _mount_of(at) != self._mount_of_root():
                self._refuse(
                    InvalidRequest, verb, key, "EXDEV",
                    f"{at} is mounted from elsewhere: no file can be renamed into it",
                    "Mount nothing inside the destination, or write to what is mounted",
                )  # fmt: skip
            self._homes.add(at)

    def _mount_of_root(self) -> str:
        if self._mount is None:
            self._make_waiting()
            self._mount = _mount_of(self._waiting)
        return self._mount

    def _to_home(
        self, verb: str, key: str, rename: Callable[[], None], source: str | None = None
    ) -> None:
        """Rename a file to its key, with the directories that this needs: others remove empty ones.

        Raises:
            FileNotFoundError: ``source`` is gone.
        """
        directory = os.path.dirname(self._at(key))
        for number in range(TRIES_MAX):
            if number or directory not in self._homes:
                if source is not None and _lstat(source) is None:
                    raise FileNotFoundError(errno.ENOENT, "gone", source)
                self._make_directories(verb, key)
            try:
                rename()
                return
            except FileNotFoundError:
                self._homes.discard(directory)
                if number + 1 == TRIES_MAX:
                    raise

    def _make_directories(self, verb: str, key: str) -> None:
        self._make_waiting()
        at = self._root
        for element in key.split("/")[:-1]:
            above, at = at, f"{at}/{element}"
            try:
                os.mkdir(at)
                self._mark_unsynced(directory=above)
            except FileExistsError:
                continue
        self._homes.difference_update(
            {above for above in self._homes if self._at(key).startswith(f"{above}/")}
        )
        self._check_home(verb, key)

    def _make_waiting(self) -> None:
        """Make the root, and the directory of what waits; they last with the next put."""
        above, missing = self._waiting, []
        while not os.path.lexists(above):
            above = os.path.dirname(above)
            missing.append(above)
        os.makedirs(self._waiting, exist_ok=True)
        for directory in missing:
            self._mark_unsynced(directory=directory)

    # Writing and syncing --------------------------------------------------------------------------

    def _write(
        self,
        pieces: Iterable[Any],
        mark: dict[str, Any],
        name: str = "",
        *,
        stored: tuple[int, tuple[str, str] | None] | None = None,
        whole: Sequence[Part] = (),
    ) -> str:
        """Write a new file that waits, with its mark. Gives its path.

        Args:
            pieces: its bytes, and slices of other files.
            mark: what is kept of it.
            name: what it is called; "": a name of its own.
            stored: it is a part of that number and checksum.
            whole: it is these parts, joined.
        """
        path = f"{self._waiting}/{name or _NEW + self._ids()}"
        descriptor = self._open_new(path)
        try:
            try:
                for piece in pieces:
                    if isinstance(piece, FileSlice):
                        self._copy(piece, descriptor)
                    else:
                        _write_all(descriptor, piece)
                if stored is not None or whole:
                    seen = os.fstat(descriptor)
                    mark["e"] = _etag(seen)
                    mark["p"] = [_row(part) for part in whole] or [
                        (stored[0] if stored else 0, mark["e"], seen.st_size,
                         stored[1] if stored else None)
                    ]  # fmt: skip
                self._set_mark(descriptor, mark)
            finally:
                os.close(descriptor)
        except BaseException:
            with suppress(OSError):  # the first error tells more
                os.unlink(path)
            raise
        return path

    def _open_new(self, path: str) -> int:
        for _ in range(TRIES_MAX):
            try:
                return os.open(path, _WRITE_NEW, 0o666)
            except FileNotFoundError:
                self._make_waiting()
        return os.open(path, _WRITE_NEW, 0o666)

    def _set_mark(self, descriptor: int, mark: Mapping[str, Any]) -> None:
        why = "this system's Python has none"
        if hasattr(os, "setxattr"):
            try:
                os.setxattr(descriptor, _MARK, orjson.dumps(mark))
                return
            except OSError as error:
                if error.errno not in _NO_MARKS:
                    raise
                why = error.strerror
        raise NotSupported(
            f"{self._root} is on a file system without extended attributes ({why}), and a job's"
            " files could not be told from others'",
            operation="put", bucket=self._bucket, status=501, code="NoAttributes",
            hint="Write to a disk that has them (ext4, xfs, btrfs, NFS 4.2), and copy the files",
        )  # fmt: skip

    def _copy(self, piece: FileSlice, target: int) -> None:
        """Copy a slice of a file, in the kernel where it can."""
        source = os.open(piece.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            done = _copy_range(source, target, piece.offset, piece.length)
        finally:
            os.close(source)
        if done != piece.length:
            self._refuse(
                InvalidRequest, "put_part", piece.path, "IncompleteBody",
                f"the file holds {done} of the slice's {piece.length} bytes",
            )  # fmt: skip

    def _mark_unsynced(self, file: str | None = None, directory: str | None = None) -> None:
        if file is not None:
            self._unsynced.files[file] = object()
        if directory is not None:
            self._unsynced.directories[directory] = object()

    def _settle(self, files: Sequence[str] = ()) -> None:
        """Make everything last that was done through this store, and these files.

        Raises:
            OSError: something does not last, now or since an earlier call.
        """
        unsynced = self._unsynced
        for lost in list(unsynced.lost.values()):
            raise lost
        parts, directories = list(unsynced.files.items()), list(unsynced.directories.items())
        paths = [*files, *(path for path, _ in parts)]
        if len(paths) + len(directories) > SYNC_EACH_MAX and _syncs_file_systems():
            try:
                _sync_file_system(self._waiting)
            except OSError as error:
                unsynced.lost.update((path, error) for path, _ in parts)
                raise
        else:
            for path in chain(paths, (path for path, _ in directories)):
                try:
                    with suppress(FileNotFoundError):  # aborted, or completed by another process
                        _sync(path)
                except OSError as error:
                    if path in unsynced.files:
                        unsynced.lost[path] = error
                    raise
        for kept, done in ((unsynced.files, parts), (unsynced.directories, directories)):
            for path, token in done:
                if kept.get(path) is token:
                    del kept[path]

    def _visible(self, verb: str, key: str, directory: str) -> None:
        """Make the name last that was just given. It is there: an error is no refusal."""
        self._mark_unsynced(directory=directory)
        try:
            self._settle()
        except OSError as error:
            told = translated(error, verb, self.identity + "/", key)
            raise Unanswered(
                told.message, operation=verb, bucket=self._bucket, key=key, code=told.code,
                hint=told.hint,
            ) from error  # fmt: skip

    # Looks and errors -----------------------------------------------------------------------------

    def _look(self, path: str, bytes_max: int | None = None) -> _File | None:
        """A file with its mark, by one descriptor; None: there is none, or a directory."""
        try:
            descriptor = os.open(path, _LOOK)
        except _NOT_THERE:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.EINVAL, "a link is never followed", path) from error
            raise
        try:
            seen = os.fstat(descriptor)
            if modes.S_ISDIR(seen.st_mode):
                return None
            if not modes.S_ISREG(seen.st_mode):
                raise OSError(errno.EINVAL, "it is no ordinary file", path)
            body = b""
            if bytes_max is not None and seen.st_size <= bytes_max:
                body = _read_all(descriptor, seen.st_size)
            return _File(seen, _mark_of(descriptor), body)
        finally:
            os.close(descriptor)

    def _info(self, key: str, seen: os.stat_result, mark: Mapping[str, Any] | None) -> ObjectInfo:
        metadata = mark.get("m", {}) if mark is not None else None
        modified = float(int(seen.st_mtime))
        return ObjectInfo(key, seen.st_size, f'"{_etag(seen)}"', modified, self._now(), metadata)

    def _metadata(self, verb: str, key: str, metadata: Mapping[str, str] | None) -> dict[str, str]:
        kept = {name.lower(): value for name, value in (metadata or {}).items()}
        if not all(name.isascii() and value.isascii() for name, value in kept.items()):
            self._refuse(InvalidRequest, verb, key, "InvalidArgument", "metadata is not ASCII")
        if sum(len(name) + len(value) for name, value in kept.items()) > METADATA_BYTES_MAX:
            self._refuse(
                InvalidRequest, verb, key, "MetadataTooLarge",
                f"metadata has more than {METADATA_BYTES_MAX} bytes",
            )  # fmt: skip
        return kept

    @contextmanager
    def _told(self, verb: str, key: str) -> Iterator[None]:
        """Translate every OSError of a verb."""
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            told = translated(error, verb, self.identity + "/", key)
            told.bucket, told.status = self._bucket, _STATUS.get(type(told), 0)
            if isinstance(told, NotFound):
                told.code = "NoSuchKey"
            raise told from error

    def _refuse(
        self, kind: type[StoreError], verb: str, key: str, code: str, what: str, hint: str = ""
    ) -> NoReturn:
        raise kind(
            f"{verb} of {self.identity}/{key}: {what}",
            operation=verb, bucket=self._bucket, key=key, status=_STATUS[kind], code=code,
            hint=hint,
        )  # fmt: skip

    def _no_upload(self, verb: str, key: str) -> NoReturn:
        self._refuse(NotFound, verb, key, "NoSuchUpload", "there is no such upload")

    def _changing(self, verb: str, key: str) -> NoReturn:
        raise Unanswered(
            f"{verb} of {self.identity}/{key}: others change it all the time",
            operation=verb, bucket=self._bucket, key=key,
        )  # fmt: skip


# Files --------------------------------------------------------------------------------------------


def _etag(seen: os.stat_result) -> str:
    return f"{seen.st_ino:x}-{seen.st_mtime_ns:x}-{seen.st_size:x}"


def _is_control(key: str) -> bool:
    return key.startswith(CONTROL_PREFIX) or f"/{CONTROL_PREFIX}" in key


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _row(part: Part) -> tuple[int, str, int, tuple[str, str] | None]:
    kept = part.checksum
    return (
        part.number, part.etag.strip('"'), part.size,
        (kept.algorithm, kept.value) if kept is not None else None,
    )  # fmt: skip


def _held(file: _File) -> list[Any]:
    """The parts that a file holds; none if its bytes are not those that were written."""
    return file.mark.get("p", []) if file.mark.get("e") == file.etag else []


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except _NOT_THERE:
        return None


def _nothing() -> None:
    return None


def _seen(entry: os.DirEntry[str]) -> Callable[[], os.stat_result | None]:
    def look() -> os.stat_result | None:
        try:
            return entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None

    return look


def _newest_of(
    entry: os.DirEntry[str], beside: Mapping[tuple[str, int], os.DirEntry[str]]
) -> Callable[[], os.stat_result | None]:
    """Looks at the newest version of an object that is listed; None if that says it is gone."""

    def look() -> os.stat_result | None:
        seen = _seen(entry)()
        if seen is None:
            return None
        first, number, newest = _etag(seen), 1, entry
        while (first, number + 1) in beside:
            number += 1
            newest = beside[first, number]
        if number == 1:
            return seen
        seen = _seen(newest)()
        if seen is not None and seen.st_size == 0 and _mark_of(newest.path).get("gone"):
            return None
        return seen

    return look


def _mark_of(file: int | str) -> dict[str, Any]:
    """A file's mark; empty if it has none, or none of ours."""
    if not hasattr(os, "getxattr"):
        return {}
    try:
        mark = orjson.loads(os.getxattr(file, _MARK))
    except FileNotFoundError:
        return {"gone": True}
    except OSError as error:
        if error.errno in (errno.ENODATA, *_NO_MARKS):
            return {}
        raise
    except orjson.JSONDecodeError:
        return {}
    return mark if isinstance(mark, dict) else {}


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    while view:
        view = view[os.write(descriptor, view) :]


def _read_all(descriptor: int, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := os.read(descriptor, size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _copy_range(source: int, target: int, offset: int, length: int) -> int:
    """Append a range of a file to another. Gives how many bytes there were."""
    done = 0
    by_kernel = hasattr(os, "copy_file_range")
    while done < length:
        if by_kernel:
            try:
                count = os.copy_file_range(
                    source, target, min(length - done, COPY_BYTES), offset + done
                )
            except OSError as error:
                if done or error.errno not in (errno.EXDEV, errno.EINVAL, *_NO_MARKS):
                    raise
                by_kernel = False
                continue
        else:
            piece = os.pread(source, min(length - done, 1 << 20), offset + done)
            _write_all(target, piece)
            count = len(piece)
        if not count:
            break
        done += count
    return done


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mount_of(path: str) -> str:
    """What tells a mount: device and, on Linux, the mount's number, as a bind mount has the device
    of what it shows, and nothing can be renamed into it all the same."""
    descriptor = os.open(path, _READ)
    try:
        mount = ""
        with suppress(OSError), open(f"/proc/self/fdinfo/{descriptor}") as info:
            mount = next((line for line in info if line.startswith("mnt_id:")), "")
        return f"{os.fstat(descriptor).st_dev} {mount}"
    finally:
        os.close(descriptor)


# What only the system's library has ---------------------------------------------------------------

_NOREPLACE, _EXCHANGE = 1, 2
_AT_FDCWD = -100
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


def _rename_by(flag: int, source: str, target: str) -> bool:
    """``renameat2``. False where the system or the file system does not have it."""
    try:
        done = _libc.renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flag)
    except AttributeError:
        return False
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), source, None, target)


def _move(source: str, target: str, *, exclusive: bool) -> None:
    """Rename a file; ``exclusive``: only if nothing is at the target."""
    if not exclusive:
        os.rename(source, target)
        with suppress(FileNotFoundError):
            os.unlink(source)  # of a file with two names `rename` takes none away
        return
    if _rename_by(_NOREPLACE, source, target):
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        if not os.path.samestat(os.lstat(source), os.lstat(target)):
            raise
    os.unlink(source)


def _exchange(new: str, path: str) -> None:
    """Put a file in the place of another, which must be there, and remove that one."""
    if _rename_by(_EXCHANGE, new, path):
        os.unlink(new)
        return
    os.stat(path)
    os.rename(new, path)


def _syncs_file_systems() -> bool:
    """Whether ``syncfs`` tells errors: from Linux 5.8 on."""
    if _libc is None or not hasattr(_libc, "syncfs"):
        return False
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= (5, 8)


def _sync_file_system(path: str) -> None:
    descriptor = os.open(path, _READ)
    try:
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)
