"""A directory of a file system as an object store: jobs on disks, HDFS, SFTP and so on by the
protocol, driver and recovery of S3.

A key is a path below the root. What waits lies in ``__magic_uploads/``, directly below the root,
which no reader and no listing shows. Readers see a whole file or none: it is renamed to its key.

**An upload is open as long as its file ``__magic_uploads/_<id>`` is there.** Create makes it, parts
are written into it, and Complete renames it to its key: by this one rename the object appears and
the upload ends. So of all Completes and aborts at once one has its effect, and the others find no
upload. A part gets the next free place of the file, as parts have unequal sizes and no offset; one
that comes a moment early waits for its turn. So nothing is copied, but where parts were left out,
sent again or never came in order: Complete then joins them in a new file (in the kernel; blocks are
shared where the file system can), which replaces the upload before it is renamed. All parts of
an upload are sent by one process, and none after its Complete, as callers of the port do.

**A mark** is an extended attribute, which a rename keeps: the user's metadata; of an upload its key
and first part, too (the others are lines of ``_<id>.parts``). So HEAD shows what an upload became,
to a recovery of any later day, without a file beside each file. A disk without them is refused at
the first write.

**An ETag** is inode, time of the last write and size: a rename keeps them, and another file has
others. It costs no read of the bytes, and holds for files of any program.

**Without attributes and writes at offsets** (what fsspec reaches) the store serves ``manifest``,
whose uploads are files that wait, and refuses ``magic``: nothing would say later which upload a
published file was, but a file beside each for ever. There the mark of a control object is the end
of its bytes (`magic_committer.stores.trees.through_fsspec`), with a drawn id, which is its ETag.
Create makes an empty file ``__magic_uploads/_<id>/<key>``, which its one part replaces; a second
part is refused. A part that is sent while its upload is aborted may bring it back, as on S3. An
ETag of data is what the dialect has; whole seconds do not do for modes that replace.

**A swap is an exclusively created next version**, never a lock. Of a control object (below an
element that begins with ``__magic``) the file at the key is version 1; version *n* lies beside it,
as ``<name>.~<ETag of version 1>.<n>``. The object is the newest. A conditional PUT creates the
version after the one that it leaves, a conditional DELETE an empty last one: one process succeeds.
They are removed the first one first: without it there is no object. Other keys have a fixed name
for their readers: there the condition is a look, then a rename; what another process writes between
the two is lost. The protocol needs that for `_SUCCESS`, and for data that it replaces, which it
compares and deletes on S3, too (`magic_committer.commit.revert`).

**A put lasts when it answers, and so does all that this store did before it**: parts, names in
directories and the put's own bytes are synced before it becomes visible. So a part costs no sync of
its own: the PUT of the set that names it has it, many by one ``syncfs`` (which reports errors
from Linux 5.8 on; before, each file is synced). What a sync could not write is not written for this
store: each later put fails until that upload is aborted.

Who dies where leaves what:

* in a put or a Create: a new file in ``__magic_uploads`` that nobody reads (a listing of uploads
  removes it after a day);
* in a part: the upload without it;
* in a Complete: before its rename the upload, open, perhaps joined; after it the object, and
  perhaps ``_<id>.parts``, which nobody reads without the upload;
* in an abort: after its first step there is no upload;
* in a removal: after the empty last version was created there is no object. The next process goes
  on; versions without a first one are removed by a listing after a day.

Where a file system has no exclusive rename (NFS has no ``renameat2``), a link and an unlink do it.
Who dies between them leaves one file with two names; the next look at the upload ends it.

Links below the root are never followed, and what is mounted below it is refused before bytes are
sent. So is what a tree cannot hold: an empty element, ``.``, ``..``, 256 bytes in one element, a
file below a file or where a directory is.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import orjson

from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
)
from magic_committer.hadoop.paths import (
    ELEMENT_BYTES_MAX,
    MANIFEST_JOB_PREFIX,
    TEMPORARY,
    waiting_id,
    waiting_path,
)
from magic_committer.options import EXCLUDING, REPLACING
from magic_committer.runtime.components import Clock, SystemClock, new_id
from magic_committer.runtime.threads import renewed_in_children
from magic_committer.stores.base import (
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    PAGE_KEYS_MAX,
    PART_NUMBER_MAX,
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    CompleteUpload,
    CreatedUpload,
    FileSlice,
    ObjectInfo,
    ObjectPage,
    ObjectSlice,
    Part,
    PartBody,
    Put,
    PutPart,
    StoredObject,
    UploadInfo,
    UploadPage,
    WaitingFile,
    Written,
    delete_each,
    named_parts,
    same_etag,
)
from magic_committer.stores.trees import disk
from magic_committer.stores.trees.base import (
    FileTree,
    MarkedFile,
    TreeEntry,
    add_parents,
    parent_of,
    translated,
    walk,
)
from magic_committer.stores.trees.disk import LocalTree

UPLOADS = "__magic_uploads"
"""The directory of what waits. No key has such an element."""
CONTROL_PREFIX = "__magic"
"""What an element of a control object's key begins with."""
TRIES_MAX = 8
"""How often a verb begins again whose look another process has made old."""
TURN_SECONDS = 0.2
"""How long a part waits for those with smaller numbers to take their places."""
STALE_SECONDS = 24 * 3600.0
"""So old is what nobody will go on with."""
DIRECTORIES_MAX = 10_000
"""How many of the jobs' directories a store remembers to be no links."""
CHILDREN_MAX = 1000
"""How much a directory may hold that is listed, where a look at each key would do."""
LAYOUTS_MAX = 1024
"""Of how many uploads a store remembers where the next part goes."""

_VERSION = re.compile(r"(.+)\.~[0-9a-f-]+\.[0-9]+\Z", re.DOTALL)
_IN_JOB = re.compile(rf"{TEMPORARY}/{MANIFEST_JOB_PREFIX}[0-9a-f]{{32}}/")
_PLAIN = re.compile(r"\w[\w.=-]*(?:/\w[\w.=-]*)*\Z", re.ASCII)
_ID = re.compile(r"[0-9a-f]{32}\Z")
_SET = re.compile(rf"{TEMPORARY}/{MANIFEST_JOB_PREFIX}[0-9a-f]{{32}}/00/manifests/")
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


class TreeStore:
    """A directory of a file system. Implements `stores.base.ObjectStore`; safe for many threads and
    processes.

    Args:
        tree: the file system, rooted at the directory; or the directory of this machine, an
            absolute path. The first write makes it.
        bucket: what the store is called.
        clock: for ages. The times of files are the file system's.
        ids: draws 32 hexadecimal digits.
    """

    def __init__(
        self,
        tree: FileTree | str | os.PathLike[str],
        bucket: str,
        *,
        clock: Clock | None = None,
        ids: Callable[[], str] = new_id,
    ) -> None:
        self._tree = LocalTree(tree) if isinstance(tree, str | os.PathLike) else tree
        self._bucket = bucket
        self._clock = clock or SystemClock()
        self._ids = ids
        self._homes: set[str] = set()  # directories that are real ones, on the root's own mount
        self._ours: set[str] = set()  # directories of jobs that are no links
        self._mount: str | None = None
        self._begin()
        renewed_in_children(self, TreeStore._begin)

    def _begin(self) -> None:
        # What was written and may not last yet. Without a lock: each removes from here only what it
        # has synced, so two may sync the same.
        self._unsynced: dict[str, object] = {}
        # Of which a sync has failed: a second one may succeed and not have written them.
        self._lost: dict[str, StoreError] = {}
        self._layouts: dict[str, _NextPart] = {}
        self._turns = threading.Condition()

    def __repr__(self) -> str:
        return f"TreeStore({self._tree.url!r}, {self._bucket!r})"

    @property
    def bucket(self) -> str:
        return self._bucket

    def below(self, prefix: str) -> TreeStore:
        """See `stores.base.DirectoryStore`."""
        directory = prefix.removesuffix("/")
        bucket = f"{self._bucket}/{quote(directory)}"
        return TreeStore(self._tree.below(directory), bucket, clock=self._clock, ids=self._ids)

    @property
    def identity(self) -> str:
        return self._tree.url[:-1]

    # Objects --------------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        with _Verb(self, "get", key):
            file = self._object(key, max_bytes)
            if file.entry.size > max_bytes:
                raise InvalidRequest(f"it has more than {max_bytes} bytes", code="TooLarge")
            return StoredObject(self._info(key, file.entry, file.mark), file.body)

    def head(self, key: str) -> ObjectInfo:
        with _Verb(self, "head", key):
            file = self._object(key)
            return self._info(key, file.entry, file.mark)

    def put(self, key: str, body: bytes, **given: Any) -> Written:
        asked = Put(key, body, **given)
        with _Verb(self, "put", key):
            self._path(key)
            mark: Mapping[str, Any] | None = {"m": _metadata(asked.metadata)}
            if not self._is_marked(key):
                if asked.metadata:
                    raise self._no_attributes()
                mark = None
            leaves = self._leaves(key, asked.if_match) if asked.if_match is not None else None
            self._check_home(key)
            with self._new(mark, body) as new:
                self._settle(new.path)
                if leaves is not None:
                    self._follow(key, leaves, new.path)
                elif asked.if_none_match:
                    self._create(key, new.path)
                else:
                    before = self._newest(key) if _is_control(key) else None
                    self._to_home(key, new.path)
                    if before is not None:
                        self._remove_versions(key, before)
            self._visible(key)
            return Written(f'"{new.etag}"')

    def delete(self, keys: Iterable[str]) -> Mapping[str, StoreError]:
        return delete_each(self.delete_one, keys)

    def delete_one(
        self, key: str, *, if_match: str | None = None, version_id: str | None = None
    ) -> None:
        with _Verb(self, "delete", key):
            try:
                self._path(key)
                newest = self._leaves(key, if_match) if if_match is not None else self._newest(key)
            except (NotFound, _NoPath):
                return
            if newest is None:
                return
            if if_match is not None and _is_control(key):
                with self._new({"gone": True}, b"") as last:
                    self._settle(last.path)
                    self._follow(key, newest, last.path)
                self._visible(newest.path)
                newest = _Version(newest.path, newest.number + 1, newest.first)
            self._remove(key, newest, only=if_match is not None)

    def list(
        self, prefix: str, *, delimiter: str = "", start_after: str = ""
    ) -> Iterator[ObjectPage]:
        base, _, rest = prefix.rpartition("/")
        with _Verb(self, "list", prefix):
            if delimiter not in ("", "/"):
                raise NotSupported(f"keys are not grouped by {delimiter!r}", code="Delimiter")
            entries = self._entries(base, rest, start_after, bool(delimiter))
            count = PAGE_KEYS_MAX
            while count == PAGE_KEYS_MAX:
                page = tuple(islice(entries, PAGE_KEYS_MAX))
                count = len(page)
                objects = tuple(self._info(key, seen) for key, seen in page if seen is not None)
                yield ObjectPage(objects, tuple(key for key, seen in page if seen is None))

    # Uploads --------------------------------------------------------------------------------------

    def create_upload(
        self, key: str, *, attributes: Attributes, checksum: ChecksumAlgorithm | None = None
    ) -> CreatedUpload:
        with _Verb(self, "create_upload", key):
            self._path(key)
            mark = {"k": key, "m": _metadata(attributes.metadata), "t": self._clock.now()}
            if attributes != Attributes(metadata=attributes.metadata):
                raise InvalidRequest(
                    f"a file has no such attributes: {attributes!r:.200}",
                    code="NoAttributes",
                    hint="Leave all attributes but metadata out",
                )
            self._check_home(key)
            upload_id = self._ids()
            if self._tree.promises.attributes:
                self._write(self._at_upload(upload_id), mark, [])
            else:
                if mark["m"] and not _is_control(key):
                    raise self._no_attributes()
                self._write(f"{self._at_upload(upload_id)}/{key}", None, b"")
            return CreatedUpload(upload_id)

    def put_part(
        self, key: str, upload_id: str, number: int, body: PartBody | ObjectSlice, **given: Any
    ) -> Part:
        checksum = PutPart(key, upload_id, number, body, **given).checksum
        with _Verb(self, "put_part", key):
            if not 1 <= number <= PART_NUMBER_MAX:
                raise InvalidRequest(f"there is no part {number}", code="InvalidArgument")
            piece = self._slice(body) if isinstance(body, ObjectSlice) else body
            size = piece.length if isinstance(piece, FileSlice) else piece.nbytes
            if (waiting := self._waits(key, upload_id)) is not None:
                return self._put_whole(waiting[0], number, piece, checksum)
            etag, path = self._ids()[:16], self._at_upload(upload_id)
            with (
                self._opened(key, upload_id, os.O_RDWR) as (descriptor, mark, _),
                self._place(path, descriptor, mark, number, size) as offset,
            ):
                disk.write_at(descriptor, piece, offset)
                pair = None if checksum is None else (checksum.algorithm, checksum.value)
                row: Row = (number, etag, size, pair, offset)
                self._note_part(path, descriptor, row)
            self._note(path, UPLOADS)
            return Part(number, f'"{etag}"', size, checksum)

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        with _Verb(self, "list_parts", key):
            if (waiting := self._waits(key, upload_id)) is not None:
                seen = self._waiting_file(*waiting)
                return (Part(1, f'"{seen.etag}"', seen.size),)
            rows = self._rows(*self._seen(key, upload_id))
            return tuple(_part(rows[number]) for number in sorted(rows))

    def complete_upload(
        self, key: str, upload_id: str, parts: Sequence[Part], **given: Any
    ) -> Written:
        asked = CompleteUpload(key, upload_id, parts, **given)
        with _Verb(self, "complete_upload", key):
            self._path(key)
            if (waiting := self._waits(key, upload_id)) is not None:
                found = self._waiting_file(*waiting)
                etag = f'"{found.etag}"'
                if parts and not parts[0].etag:  # Hadoop's manifests tell none
                    if parts[0].size != found.size:
                        raise _no_upload()
                    parts = [parts[0]._replace(etag=etag)]
                if len(parts) != 1 or parts[0].etag not in (etag, found.etag) or asked.length:
                    kept = parts[0].checksum if parts else None  # which nobody has computed
                    _named(parts, {1: (1, found.etag, found.size, kept, 0)}, asked.length)
                self._move_to(key, waiting[0], exclusive=asked.if_none_match)
                if waiting[0].startswith(UPLOADS):
                    self._remove_empty(parent_of(waiting[0]))
                else:  # of a task: its directories go with its job
                    self._note(parent_of(waiting[0]))
                return Written(etag)
            path = self._at_upload(upload_id)
            mark, seen = self._seen(key, upload_id)
            named = _named(parts, self._rows(mark, seen), asked.length)
            end = 0
            for _, _, size, _, offset in named:
                end = end + size if offset == end else -1
            if end != seen.size:
                with self._opened(key, upload_id) as (descriptor, mark, seen):
                    named = _named(parts, self._rows(mark, seen), asked.length)
                    seen = self._join(path, descriptor, mark, named)
            if path in self._unsynced:
                self._settle()
            self._move_to(key, path, exclusive=asked.if_none_match)
            self._ended(path, mark)
            return Written(f'"{seen.etag}"')

    def _move_to(self, key: str, path: str, *, exclusive: bool) -> None:
        """Rename an upload's file to its key."""
        try:
            self._to_home(key, path, replace=not exclusive, may_be_gone=True)
        except NotFound:
            if self._tree.stat(path) is not None:
                raise Unanswered("others remove its directory all the time") from None
            raise _no_upload() from None
        except PreconditionFailed:
            self._check_home(key)  # perhaps it is a directory
            raise PreconditionFailed("a file is there already", code="PreconditionFailed") from None
        self._note(parent_of(key))

    def abort_upload(self, key: str, upload_id: str) -> None:
        with _Verb(self, "abort_upload", key):
            if (waiting := self._waits(key, upload_id)) is not None:
                with suppress(NotFound):
                    self._waiting_file(*waiting)
                    self._tree.remove(waiting[0])
                    self._remove_empty(parent_of(waiting[0]))
                return
            try:
                mark, _ = self._seen(key, upload_id)
                path = self._at_upload(upload_id)
                self._tree.remove(path)  # from here on there is no upload
            except NotFound:
                return
            self._ended(path, mark)

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        found = chain(self._created_uploads(prefix), self._waiting_uploads(prefix))
        shown = 0
        while (page := tuple(islice(found, PAGE_KEYS_MAX))) or not shown:
            shown += 1
            yield UploadPage(page, self._clock.now())

    def _created_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        with _Verb(self, "list_uploads", prefix):
            for entry in self._tree.list(UPLOADS):
                name, upload_id = entry.name, entry.name[1:]
                if not _ID.match(upload_id) or entry.kind == "directory":
                    self._remove_stale(entry, f"{UPLOADS}/{name[:33]}" if ".parts" in name else "")
                    continue
                mark = disk.mark_of(self._local.at(entry.path))
                if not isinstance(key := mark.get("k"), str):
                    self._remove_stale(entry, "")
                elif key.startswith(prefix) and not self._is_visible(key, entry):
                    began = mark.get("t")
                    began = began if isinstance(began, int | float) else None
                    yield UploadInfo(key, upload_id, began, metadata=_metadata_in(mark))

    def _remove_stale(self, entry: TreeEntry, owner: str) -> None:
        """Remove what a process that died a day ago has left, and its owner has not."""
        if self._clock.now() - entry.modified < STALE_SECONDS or (owner and self._tree.stat(owner)):
            return
        if entry.kind != "directory":
            self._tree.remove(entry.path)
        self._remove_empty(entry.path if entry.kind == "directory" else parent_of(entry.path))

    # Uploads of one part, where files have no attributes: see the head --------------------------

    def _waits(self, key: str, upload_id: str) -> tuple[str, str] | None:
        """Path and ETag of an upload that is a file of its own; None: it is another one."""
        waiting = waiting_path(key, upload_id)
        if waiting is None and not self._tree.promises.attributes:
            return f"{self._at_upload(upload_id)}/{key}", ""
        return waiting

    def _put_whole(
        self, path: str, number: int, piece: PartBody, checksum: Checksum | None
    ) -> Part:
        if number != 1:
            raise NotSupported(
                "files of this file system are written from their start to their end: an upload has"
                " one part",
                code="OnePart",
                hint="Use committer='manifest', which writes files where they wait",
            )
        body = piece.read() if isinstance(piece, FileSlice) else bytes(piece)
        self._waiting_file(path, "")
        with self._new(None, body) as new:
            try:
                self._tree.rename(new.path, path)
            except NotFound:
                raise _no_upload() from None
        return Part(1, f'"{new.etag}"', len(body), checksum)

    def _no_attributes(self) -> NotSupported:
        return NotSupported(
            "the file system has no attributes, so a job could not recognise its own files",
            code="NoAttributes",
            hint="Use committer='manifest', which needs none",
        )

    def _is_marked(self, key: str) -> bool:
        attributes = self._tree.promises.attributes
        return attributes or _is_control(key) or _SET.match(key) is not None

    @property
    def quick(self) -> bool:
        """Whether a verb takes less time than a change of threads, unless it shows otherwise."""
        return self._tree.promises.answers_at_once

    # What this file system cannot do ------------------------------------------------------------

    def refusal(self, committer: str, mode: str) -> str:
        """See `stores.base.refusal_of`."""
        promises = self._tree.promises
        if committer == "magic" and not promises.attributes:
            return "the file system has no attributes to tell its files from others' (manifest can)"
        if mode in REPLACING and not promises.tells_apart:
            return "its times are whole seconds: what was there and a newer file look the same"
        if committer and not promises.attributes:
            self._tree.make_root()  # which asks whether a rename is exclusive
        return promises.refusal if mode in EXCLUDING else ""

    def not_held(self, keys: Callable[[], Iterable[str]]) -> Iterator[str]:
        """See `stores.base.not_held`. Two looks for each directory, and one for each key where a
        directory is large."""
        folds = self._tree.stat(UPLOADS.swapcase()) is not None
        directories: dict[str, set[str] | None] = {}
        folded: set[str] = set()
        for key in keys():
            directory = parent_of(key)
            try:
                self._path(key)
                if directory not in directories:
                    self._check_home(key)
                    directories[directory] = self._occupied(directory)
                elif (taken := directories[directory]) is None or key in taken:
                    self._check_home(key)
            except InvalidRequest as error:
                yield f"{key}: {error.message}"
            if folds and (low := key.casefold()) in folded:
                yield f"{key}: another file has this name but for its case"
            elif folds:
                folded.add(low)
        above: set[str] = set()
        for directory in directories:
            add_parents(above, f"{directory}/x")
        if self._tree.promises.directories:
            for key in keys():
                if key in above:
                    yield f"{key}: another file lies below this name: it is a directory"

    def _occupied(self, directory: str) -> set[str] | None:
        """What lies directly in a directory and is no file; None: there is too much to list."""
        if not self._tree.promises.directories:
            return set()
        listed = list(islice(self._tree.list(directory), CHILDREN_MAX + 1))
        if len(listed) > CHILDREN_MAX:
            return None
        return {entry.path for entry in listed if entry.kind != "file"}

    # Files that wait in a job's directory ------------------------------------------------------

    @property
    def tree(self) -> FileTree:
        """The file system, rooted where the store is: a task's files are written by its verbs."""
        return self._tree

    def waiting_files(self, directory: str) -> Iterator[WaitingFile]:
        """See `stores.base.DirectoryStore`."""
        for entry in walk(self._tree, directory.rstrip("/")):
            if entry.kind != "directory":
                regular = entry.kind == "file"
                yield WaitingFile(entry.path, entry.size, entry.etag, entry.modified, regular)

    def clear(self, directory: str) -> int:
        """See `stores.base.DirectoryStore`."""
        with _Verb(self, "clear", directory):
            if not _IN_JOB.match(directory) or self._has_link(f"{directory}x"):
                raise InvalidRequest("it is no directory of a job", code="NoDirectory")
            removed, at = 0, directory.rstrip("/")
            directories = [at]
            for entry in walk(self._tree, at):
                if entry.kind == "directory":
                    directories.append(entry.path)
                else:
                    removed += self._tree.remove(entry.path)
            left = [one for one in reversed(directories) if not self._tree.remove_directory(one)]
            if left:
                raise Unanswered("others write into it")
            self._remove_empty(parent_of(at))
            return removed

    def _waiting_file(self, path: str, etag: str) -> TreeEntry:
        """A waiting file, if it is the one that its id names. Raises `NotFound`."""
        seen = self._tree.stat(path)
        if seen is None or seen.kind != "file" or self._has_link(path):
            raise _no_upload()
        if etag and seen.etag != etag:
            raise _no_upload()
        return seen

    def _waiting_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        jobs = () if _is_control(prefix) else self._tree.list(TEMPORARY)
        places = [f"{job.path}/00/tasks" for job in jobs]
        if not self._tree.promises.attributes:
            places.append(UPLOADS)
        for place in places:
            if place != UPLOADS and (not _IN_JOB.match(place) or self._has_link(f"{place}/x")):
                continue
            for path, kind, _, modified, etag, _ in walk(self._tree, place):
                attempt, _, key = path[len(place) + 1 :].partition("/")
                if kind != "directory" and key and key.startswith(prefix):
                    created = place == UPLOADS
                    yield UploadInfo(
                        key, attempt[1:] if created else waiting_id(path, etag), modified
                    )

    # Versions of an object ------------------------------------------------------------------------

    def _newest(self, key: str) -> _Version | None:
        seen = self._tree.stat(key)
        if seen is None or seen.kind == "directory" or self._has_link(key):
            return None
        with_id = not self._tree.promises.attributes and self._is_marked(key)
        first = self._first_of(key) if with_id else seen.etag
        if first is None:
            return None
        newest, number, control = key, 1, _is_control(key)
        while control and self._tree.stat(after := _beside(key, first, number + 1)) is not None:
            newest, number = after, number + 1
        return _Version(newest, number, first)

    def _object(self, key: str, bytes_max: int | None = None) -> MarkedFile:
        """The newest version of an object, with its bytes if they are wanted and not too many."""
        self._path(key)
        if _is_control(key):
            return self._found(key, bytes_max)[1]
        file = self._tree.look(key, bytes_max, marked=self._is_marked(key))
        if file is None or self._has_link(key):
            raise _no_key()
        return file

    def _found(self, key: str, bytes_max: int | None = None) -> tuple[_Version, MarkedFile]:
        for _ in range(TRIES_MAX):
            newest = self._newest(key)
            if newest is None:
                break
            file = self._tree.look(newest.path, bytes_max, marked=self._is_marked(key))
            if file is None or (newest.number == 1 and file.entry.etag != newest.first):
                continue  # another process was here
            if "gone" not in file.mark:
                return newest, file
            with suppress(StoreError):  # who deletes it has not come so far, or never will
                self._remove(key, newest)
        raise _no_key()

    def _leaves(self, key: str, etag: str) -> _Version:
        """The version that a condition names, if it is the newest."""
        newest, file = self._found(key)
        if not same_etag(file.entry.etag, etag):
            raise _changed()
        return newest

    def _follow(self, key: str, leaves: _Version, new: str) -> None:
        """Let a file follow a version. Of all processes that leave one version one succeeds."""
        if not _is_control(key):
            self._tree.rename(new, key)
            return
        beside = _beside(key, leaves.first, leaves.number + 1)
        try:
            self._tree.rename(new, beside, replace=False)
        except PreconditionFailed:
            raise _changed() from None
        if self._first_of(key) != leaves.first:  # nobody reads what follows it
            self._tree.remove(beside)
            raise NotFound("it was deleted", code="NoSuchKey")

    def _first_of(self, key: str) -> str | None:
        """The ETag of an object's first version; None: it is gone."""
        if self._tree.promises.attributes:
            seen = self._tree.stat(key)
            return seen.etag if seen is not None else None
        file = self._tree.look(key, marked=self._is_marked(key))
        return file.entry.etag if file is not None else None

    def _create(self, key: str, new: str) -> None:
        for _ in range(TRIES_MAX):
            try:
                self._to_home(key, new, replace=False)
                return
            except PreconditionFailed:
                with suppress(NotFound):
                    self._found(key)
                    break
        raise PreconditionFailed("a file is there already", code="PreconditionFailed")

    def _remove(self, path: str, newest: _Version, *, only: bool = True) -> None:
        """Remove an object, its first version first, and the directories that it leaves empty;
        ``only``: if it is still that one."""
        if not only or self._first_of(path) == newest.first:
            self._tree.remove(path)
        self._remove_versions(path, newest)
        self._remove_empty(parent_of(path))

    def _remove_versions(self, path: str, newest: _Version) -> None:
        for number in range(2, newest.number + 1):
            self._tree.remove(_beside(path, newest.first, number))

    def _remove_empty(self, directory: str) -> None:
        """Note that something has gone from a directory; remove it if it is empty, and those
        above."""
        self._note(directory)
        if not self._tree.promises.directories:
            return
        with suppress(StoreError):  # it is gone, or must stay
            while directory:
                if not self._tree.remove_directory(directory):
                    break
                self._homes.discard(directory)
                self._ours.discard(directory)
                self._unsynced.pop(directory, None)
                directory = parent_of(directory)
                self._note(directory)
        with suppress(StoreError):
            self._tree.remove_directory(UPLOADS)

    # Parts of an upload ---------------------------------------------------------------------------

    def _seen(
        self, key: str, upload_id: str, file: int | None = None
    ) -> tuple[dict[str, Any], TreeEntry]:
        """The mark of an open upload's file, and the file as it was seen before its mark was read:
        in the other order `_rows` would not notice that another process puts a new file in its
        place in between. ``file``: its descriptor, if it is open. Raises `NotFound`: the upload is
        not open, or is another key's."""
        path = self._at_upload(upload_id)
        where = self._local.at(path) if file is None else file
        try:
            seen = disk.entry_of(path, where)
        except FileNotFoundError:
            raise _no_upload() from None
        mark = disk.mark_of(where) if seen.kind == "file" else {}
        if mark.get("k") != key or self._is_visible(key, seen):
            raise _no_upload()
        return mark, seen

    @contextmanager
    def _opened(
        self, key: str, upload_id: str, flags: int = os.O_RDONLY
    ) -> Iterator[tuple[int, dict[str, Any], TreeEntry]]:
        """An open upload's file, its mark, and what it is. Raises as `_seen`."""
        try:
            path = self._local.at(self._at_upload(upload_id))
            descriptor = os.open(path, flags | disk.NO_LINK)
        except FileNotFoundError:
            raise _no_upload() from None
        try:
            yield (descriptor, *self._seen(key, upload_id, descriptor))
        finally:
            os.close(descriptor)

    def _is_visible(self, key: str, seen: TreeEntry) -> bool:
        """Whether an upload's file is at its key as well: who completed it died between the link
        and the unlink, which is done here."""
        there = self._tree.stat(key) if seen.links > 1 else None
        if there is None or there.etag != seen.etag:
            return False
        self._tree.remove(seen.path)
        return True

    @property
    def _local(self) -> LocalTree:
        """The tree, where parts are written in place."""
        return cast("LocalTree", self._tree)

    def _rows(self, mark: Mapping[str, Any], seen: TreeEntry) -> dict[int, Row]:
        """The stored parts of an open upload's file by number. Raises `Unanswered`: another process
        has just joined them in a new file."""
        rows = self._rows_of(seen.path, mark)
        there = self._tree.stat(seen.path) if "r" in mark else seen
        if there is not None and there.etag != seen.etag:
            raise Unanswered("another process joins its parts")
        return {n: row for n, row in rows.items() if row[4] + row[2] <= seen.size}

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
                first = max(self._rows_of(path, mark), default=0) + 1 if end else 1
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

    def _rows_of(self, path: str, mark: Mapping[str, Any]) -> dict[int, Row]:
        """The parts that an upload's file holds: the last one of a number counts."""
        rows = [mark["p"]] if "p" in mark else []
        if "r" in mark:
            name = self._local.at(_rows_path(path, mark))
            with suppress(FileNotFoundError), open(name, "rb") as file:
                rows += [orjson.loads(line) for line in file if line.endswith(b"\n")]
        return {row[0]: row for row in rows if _is_row(row)}

    def _note_part(self, path: str, descriptor: int, row: Row) -> None:
        """Note a part that is written: the first one in the mark, which says if there are more."""
        with self._turns:
            mark = disk.mark_of(descriptor)
            if "p" not in mark and not row[4]:
                disk.set_mark(descriptor, {**mark, "p": row})
                return
            if "r" not in mark:
                disk.set_mark(descriptor, {**mark, "r": ""})
            _append(self._local.at(_rows_path(path, mark)), row)
            self._note(_rows_path(path, mark))

    def _join(
        self, path: str, source: int, mark: dict[str, Any], named: Sequence[Row]
    ) -> TreeEntry:
        """Join parts in a new file, which replaces the upload's, but never that of one that has
        ended. Gives what it is. Two processes may do so at once: both files have the same bytes."""
        rows: list[Row] = []
        for number, etag, size, kept, _ in named:
            rows.append((number, etag, size, kept, rows[-1][4] + rows[-1][2] if rows else 0))
        joined = {**mark, "p": rows[0], "r": self._ids()}
        pieces = [(source, offset, size) for _, _, size, _, offset in named]
        try:
            with self._new(joined, pieces) as new:
                if rows[1:]:
                    _append(self._local.at(_rows_path(path, joined)), *rows[1:])
                self._settle(new.path, _rows_path(path, joined))
                self._local.take_place(path, new.path)
                self._tree.remove(new.path)  # the old one
        except NotFound:
            raise _no_upload() from None
        self._tree.remove(_rows_path(path, mark))
        mark.update(joined)
        return new

    def _ended(self, path: str, mark: Mapping[str, Any]) -> None:
        """Clean up after an upload has ended."""
        self._forget(path)
        self._layouts.pop(path, None)
        if "r" in mark:
            self._forget(_rows_path(path, mark))
            self._tree.remove(_rows_path(path, mark))
        self._note(UPLOADS)

    def _slice(self, body: ObjectSlice) -> FileSlice:
        if body.bucket != self._bucket:
            raise NotSupported("it is copied from another store", code="NotImplemented")
        file = self._object(body.key)
        if not same_etag(file.entry.etag, body.etag):
            raise _changed()
        if not self._tree.promises.attributes:
            raise NotSupported("this file system copies nothing", code="NotImplemented")
        return FileSlice(self._local.at(file.entry.path), body.offset, body.length)

    # Listings -------------------------------------------------------------------------------------

    def _entries(
        self, base: str, rest: str, after: str, grouped: bool
    ) -> Iterator[tuple[str, TreeEntry | None]]:
        """Keys below a directory in order, each with what was seen; a group with None."""
        try:
            if base:
                self._path(base)
                if self._has_link(f"{base}/x"):
                    return
        except _NoPath:
            return
        attributes = self._tree.promises.attributes
        for name, file, versions in self._children(base, rest):
            key = f"{base}/{name}" if base else name
            if file is not None:
                with suppress(NotFound):
                    if key > after:
                        reads = versions or (not attributes and self._is_marked(key))
                        yield key, self._found(key)[1].entry if reads else file
            elif after > key and not after.startswith(key):
                continue
            elif not grouped:
                yield from self._entries(key[:-1], "", after, False)
            elif key > after and next(self._entries(key[:-1], "", "", False), None) is not None:
                yield key, None

    def _children(self, directory: str, rest: str) -> Sequence[_Child]:
        """What lies directly in a directory, in the order of keys; a directory with a slash.
        ``rest``: with what the names begin; others need not be text."""
        found: list[_Child] = []
        control = _is_control(f"{directory}/")
        stale: dict[str, list[TreeEntry]] = {}
        for entry in self._tree.list(directory):
            name = entry.name
            if not name.startswith(rest):
                continue
            if not _is_text(name):
                raise InvalidRequest(
                    f"{os.fsencode(entry.path)!r} is not UTF-8", code="NoText", hint="Rename it"
                )
            if entry.kind == "directory":
                if name != UPLOADS:
                    found.append((f"{name}/", None, False))
            elif entry.kind == "file":
                match = _VERSION.match(name) if control else None
                if match is None:
                    found.append((name, entry, False))
                else:
                    stale.setdefault(match[1], []).append(entry)
        if stale:
            found = [(name, file, name in stale) for name, file, _ in found]
            for name in stale.keys() - {name for name, _, _ in found}:
                for entry in stale[name]:
                    self._remove_stale(entry, f"{directory}/{name}")
        return sorted(found, key=lambda one: one[0])

    # Where things are -----------------------------------------------------------------------------

    def _at_upload(self, upload_id: str) -> str:
        if not _ID.match(upload_id):
            raise _no_upload()
        return f"{UPLOADS}/_{upload_id}"

    def _path(self, key: str) -> None:
        """Raise `_NoPath` if a tree cannot hold a key."""
        if len(key) <= ELEMENT_BYTES_MAX and _PLAIN.match(key) and UPLOADS not in key:
            return
        elements = key.split("/")
        if "" in elements or "." in elements or ".." in elements or "\0" in key:
            raise _NoPath("a path has no empty element, no '.', '..' or NUL", code="KeyIsNoPath")
        if UPLOADS in elements:
            raise _NoPath(f"{UPLOADS!r} is the directory of what waits", code="KeyIsReserved")
        for element, limit in ((key, KEY_BYTES_MAX), *((e, ELEMENT_BYTES_MAX) for e in elements)):
            if len(element) * 4 > limit and len(element.encode()) > limit:
                raise _NoPath(f"{element[:40]!r}… has over {limit} bytes", code="KeyTooLongError")

    def _has_link(self, key: str) -> bool:
        """Whether a directory on the way to a key is a link."""
        at, ours, found = parent_of(key), self._ours, []
        while at and at not in ours and at not in self._homes:
            seen = self._tree.stat(at)
            if seen is not None and seen.kind == "other":
                return True
            if seen is not None and seen.kind == "directory" and _IN_JOB.match(at):
                found.append(at)
            at = parent_of(at)
        if len(ours) >= DIRECTORIES_MAX:
            ours.clear()
        ours.update(found)
        return False

    def _check_home(self, key: str) -> None:
        """Raise `InvalidRequest` if no file can come to a key by a rename: a link, a file or a
        mount is on the way, or a directory is at the key."""
        if self._mount is None:
            self._make_waiting()
            mount, waiting = self._tree.mount_of(""), self._tree.stat(UPLOADS)
            link = waiting is not None and waiting.kind == "other"
            if waiting is not None and (link or self._tree.mount_of(UPLOADS) != mount):
                raise InvalidRequest(f"{UPLOADS} leads elsewhere", code="EXDEV")
            self._mount = mount
        if not self._tree.promises.directories:
            return
        at = ""
        for element in key.split("/")[:-1] if parent_of(key) not in self._homes else ():
            at = f"{at}/{element}" if at else element
            if at in self._homes:
                continue
            seen = self._tree.stat(at)
            if seen is None:
                return  # and nothing lies below
            if seen.kind != "directory":
                what = "a link" if seen.kind == "other" else "a file"
                raise InvalidRequest(f"{at} is {what}, and no directory", code="KeyIsNoPath")
            if self._tree.mount_of(at) != self._mount:
                raise InvalidRequest(
                    f"{at} is mounted from elsewhere: no file can be renamed into it",
                    code="EXDEV",
                    hint="Mount nothing inside the destination, or write to what is mounted",
                )
            self._homes.add(at)
        seen = self._tree.stat(key)
        if seen is not None and seen.kind == "directory":
            raise InvalidRequest("a directory has that name", code="KeyIsNoPath")

    def refuse(self, key: str) -> None:
        """See that a file can be renamed to a key, before a job is decided. Raises
        `InvalidRequest`, which says what is in the way."""
        with _Verb(self, "look", key):
            self._path(key)
            self._check_home(key)

    def _to_home(
        self, key: str, source: str, *, replace: bool = True, may_be_gone: bool = False
    ) -> None:
        """Rename a file to its key, with the directories that this needs: others remove empty ones.
        Raises `NotFound`: the source is gone."""
        directory = parent_of(key)
        for number in range(TRIES_MAX):
            if number:  # somebody has removed directories, and may have put others there
                self._homes.clear()
            known = not directory or directory in self._homes
            try:
                if number or not (known or not self._tree.promises.directories):
                    self._check_home(key)  # nothing is made behind a link
                    self._make_path(key)
                    if directory not in self._homes:
                        self._check_home(key)
                self._tree.rename(source, key, replace=replace)
                return
            except NotFound:
                if number + 1 == TRIES_MAX or (may_be_gone and self._tree.stat(source) is None):
                    raise

    def _make_path(self, path: str) -> None:
        """Make the directories that a path is in. Raises `NotFound`: somebody has removed one."""
        at = ""
        for element in path.split("/")[:-1]:
            above, at = at, f"{at}/{element}" if at else element
            if at in self._homes:
                continue
            with suppress(PreconditionFailed):
                if self._tree.make_directory(at):
                    self._note(above)
                    if not above or above in self._homes:
                        self._homes.add(at)  # what was just made is no link and no mount

    def _make_waiting(self) -> None:
        """Make the root, and the directory of what waits."""
        self._tree.make_root()
        if self._tree.stat(UPLOADS) is None:
            self._tree.make_directory(UPLOADS)
            self._note("")

    # Writing and syncing --------------------------------------------------------------------------

    @contextmanager
    def _new(self, mark: Mapping[str, Any] | None, body: Any) -> Iterator[TreeEntry]:
        """A new file that waits: of bytes, or of ranges of open files. It goes if nobody has
        renamed it."""
        path, renamed = f"{UPLOADS}/_new-{self._ids()}", False
        try:
            yield self._write(path, mark, body)
            renamed = True
        finally:
            if not renamed:
                self._tree.remove(path)
                if self._tree.promises.directories:
                    with suppress(StoreError):  # it is gone, or others write there
                        self._tree.remove_directory(UPLOADS)

    def _write(self, path: str, mark: Mapping[str, Any] | None, body: Any) -> TreeEntry:
        """Write a new file with its mark."""
        deep = path.count("/") > 1  # an upload that is a file of its own
        for _ in range(TRIES_MAX):
            with suppress(NotFound):  # who ends an upload removes its empty directory
                if deep:
                    self._make_path(path)
                return self._tree.make(path, mark, body)
            if deep:
                self._homes.clear()
            self._make_waiting()
        raise Unanswered("others remove its directory all the time")

    def _settle(self, *files: str) -> None:
        """Make these files last, and everything that was done through this store. Raises
        `StoreError`: something does not last, by this or an earlier sync."""
        for error in list(self._lost.values()):
            raise error
        unsynced = dict(self._unsynced)
        paths = [*files, *unsynced]
        at_once = len(paths) > disk.SYNC_EACH_MAX
        for some in [paths] if at_once else [[path] for path in paths]:
            try:
                self._tree.sync(some)
            except NotFound:  # it was removed meanwhile
                continue
            except StoreError as error:
                self._lost.update((one, error) for one in some if one not in files)
                raise
        for path, token in unsynced.items():
            if self._unsynced.get(path) is token:
                self._unsynced.pop(path, None)

    def _note(self, *paths: str) -> None:
        """Note that files, or the names in directories, are to be synced."""
        self._unsynced.update((path, object()) for path in paths)

    def _forget(self, path: str) -> None:
        """Note that a file is gone."""
        self._unsynced.pop(path, None)
        self._lost.pop(path, None)

    def _visible(self, path: str) -> None:
        """Make the name last that a file was just given. It is there: an error is no refusal."""
        try:
            self._note(parent_of(path))
            self._settle()
        except StoreError as error:
            raise Unanswered(
                f"it is there, and may not last: {error.message}", code=error.code
            ) from error

    def _info(self, key: str, seen: TreeEntry, mark: Mapping[str, Any] | None = None) -> ObjectInfo:
        metadata = _metadata_in(mark) if mark is not None else None
        etag = f'"{seen.etag}"'
        return ObjectInfo(key, seen.size, etag, seen.modified, self._clock.now(), metadata)


class _Verb(NamedTuple):
    """Gives each error of a verb its place, and translates those of the system."""

    store: TreeStore
    verb: str
    key: str

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        url, bucket = self.store.tree.url, self.store.bucket
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            told = translated(error, self.verb, url, self.key)
            told.bucket, told.status = bucket, _STATUS.get(type(told), 0)
            raise told from error
        if isinstance(error, StoreError) and error.bucket in ("", url):
            told_so = error.message.partition(": ")[2] if error.bucket else error.message
            error.message = f"{self.verb} of {url}{self.key:.200}: {told_so}"
            error.args = (error.message,)
            error.operation, error.bucket, error.key = self.verb, bucket, self.key
            error.status = next((_STATUS[kind] for kind in _STATUS if isinstance(error, kind)), 0)
            if error.code == "EISDIR":
                error.code = "KeyIsNoPath"
            if isinstance(error, NotFound) and not error.code.startswith("NoSuch"):
                error.code = "NoSuchKey"


class _NoPath(InvalidRequest):
    """A key that no tree can hold."""


def _no_key() -> NotFound:
    return NotFound("there is no such file", code="NoSuchKey")


def _no_upload() -> NotFound:
    return NotFound("there is no such upload", code="NoSuchUpload")


def _changed() -> PreconditionFailed:
    return PreconditionFailed("it has changed", code="PreconditionFailed")


# Rows, marks and names ----------------------------------------------------------------------------

_Child = tuple[str, TreeEntry | None, bool]
"""A name with the file, and whether it has later versions; a directory has neither."""


def _is_control(key: str) -> bool:
    return key.startswith(CONTROL_PREFIX) or f"/{CONTROL_PREFIX}" in key


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _beside(path: str, first: str, number: int) -> str:
    return f"{path}.~{first}.{number}"


def _metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    kept = {name.lower(): value for name, value in (metadata or {}).items()}
    text = "".join(name + value for name, value in kept.items())
    if not text.isascii() or len(text) > METADATA_BYTES_MAX:
        raise InvalidRequest(
            f"metadata is not ASCII, or has over {METADATA_BYTES_MAX} bytes",
            code="MetadataTooLarge" if text.isascii() else "InvalidArgument",
        )
    return kept


def _metadata_in(mark: Mapping[str, Any]) -> dict[str, str]:
    """The user's metadata; others may write marks as well."""
    found = mark.get("m")
    kept = found.items() if isinstance(found, dict) else ()
    return {name: text for name, text in kept if isinstance(text, str)}


def _part(row: Row) -> Part:
    number, etag, size, kept, _ = row
    return Part(number, f'"{etag}"', size, Checksum(*kept) if kept else None)  # type: ignore[arg-type]


def _rows_path(path: str, mark: Mapping[str, Any]) -> str:
    return f"{path}{mark.get('r', '')}.parts"


def _is_row(row: object) -> bool:
    """Whether it is one that this store has written: others may write below the root as well."""
    if not isinstance(row, list) or len(row) != 5:
        return False
    number, etag, size, kept, offset = row
    numbers = type(number) is type(size) is type(offset) is int and min(number, size, offset) >= 0
    pair = kept is None or (type(kept) is list and len(kept) == 2)
    return numbers and pair and type(etag) is str


def _append(path: str, *rows: Row) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        disk.write_at(descriptor, b"".join(orjson.dumps(row) + b"\n" for row in rows), None)
    finally:
        os.close(descriptor)


def _named(parts: Sequence[Part], rows: Mapping[int, Row], length: int | None) -> list[Row]:
    """The stored parts that a Complete names. Raises `InvalidRequest` as S3."""
    stored = {number: _part(row) for number, row in rows.items()}
    named = [rows[number] for number in named_parts(parts, stored)]
    size = sum(row[2] for row in named)
    if length not in (None, size):
        raise InvalidRequest(f"its parts have {size} bytes, not {length}", code="InvalidRequest")
    return named
