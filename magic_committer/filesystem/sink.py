"""What a file system, or a call that puts local files, needs of a task; and the tasks of the blocks
``with write(...)`` that are open in this process, which ``magic://`` URLs mean.

A shelf has what one task has written: names, sizes, directories. A directory is there if it was
made, or if a file is below it. Files whose upload was aborted or has failed are not there: the
upload's own state decides each time.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote
from weakref import WeakMethod

from magic_committer.committers.base import TaskAttempt
from magic_committer.errors import InvalidRequest, NotFound, OptionError
from magic_committer.hadoop import paths
from magic_committer.hadoop.manifests import check_file_name
from magic_committer.hadoop.paths import TEMPORARY, Destination, is_s3_url, shown
from magic_committer.options import MiB
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import Attributes, ObjectInfo, ObjectStore
from magic_committer.stores.urls import is_tree, scheme_of, tree_url
from magic_committer.upload import FileState, PendingFile, TaskFile, UploadStream, pending_of

PROTOCOL = "magic"
READ_BYTES_MAX = 64 * MiB
"""The largest object of a destination on S3 that is read, whole, with ``read_through``."""

Info = dict[str, Any]
"""What fsspec calls the details of a file or directory."""
KEEP_BYTES_MAX = 64 * MiB
"""Bytes of its closed files that a file system keeps for reading, by default."""
_THERE = frozenset({FileState.OPEN, FileState.CLOSING, FileState.PENDING})

# The destination ---------------------------------------------------------------------------------


def roots_of(dest: str) -> tuple[str, ...]:
    """What follows ``magic://`` in URLs of a destination. Pure.

    ``bucket/table/`` for a destination on S3; ``/data/table/`` or ``host/data/table/`` for one on a
    file system. The one of a file system may be given percent-encoded, too, as its URL is; names
    below it are taken as they are."""
    if is_s3_url(dest):
        place = Destination.parse(dest)
        return (f"{place.bucket}/{place.prefix}",)
    encoded = tree_url(dest).partition("://")[2]
    return tuple(dict.fromkeys((unquote(encoded), encoded)))


def name_below(roots: Sequence[str], path: str) -> str | None:
    """The name of a path below a destination; "": the destination itself; None: it is not below.
    Pure. ``path``: what follows the scheme."""
    whole = f"{path.rstrip('/')}/"
    for root in roots:
        if whole.startswith(root):
            return whole[len(root) :].rstrip("/")
    return None


def directory_info(name: str) -> Info:
    """The details of a directory."""
    return {"name": name, "type": "directory", "size": 0}


class Home:
    """The destination of a task as a file system meets it. URLs of ``schemes`` and ``roots`` mean
    it, as `roots_of` says; ``holds``: what a file is called there.

    It only reads. What a committer keeps there for itself is not shown; nor is a link, or anything
    behind one: another writer to the destination may have made it lead elsewhere.
    """

    def __init__(self, dest: Destination, store: ObjectStore) -> None:
        self.url = dest.url
        self.roots = roots_of(dest.url)
        tree = self._tree = is_tree(dest.bucket)
        self.holds = "file" if tree else "object"
        schemes = (scheme_of(dest.bucket),) if tree else ("s3", "s3a", "s3n")
        self.schemes = frozenset((PROTOCOL, *schemes))
        self.check = check_file_name if tree else paths.check_name  # of a name; raises PathError
        self._dest = dest
        self._store = store

    def look(self, name: str) -> Info | None:
        """What is there under a name; None: nothing."""
        if self._is_control(name):
            return None
        key = self._dest.prefix + name
        try:
            return self._of_object(self._store.head(key))
        except NotFound:
            pass
        except InvalidRequest as error:
            if error.code != "NoFile":  # a link, a socket and so on
                raise
            return None
        for page in self._store.list(f"{key}/"):
            if any(not self._is_control(self._dest.relative(one.key)) for one in page.objects):
                return directory_info(name)
        return None

    def children(self, name: str) -> Iterator[Info]:
        """What is directly in a directory."""
        prefix = self._dest.prefix + (f"{name}/" if name else "")
        for page in self._store.list(prefix, delimiter="/"):
            for one in page.objects:
                if one.key != prefix:
                    yield self._of_object(one)
            for directory in page.prefixes:
                below = self._dest.relative(directory.removesuffix("/"))
                if not self._is_control(below):
                    yield directory_info(below)

    def reader(self, name: str) -> BinaryIO:
        """Open a file for reading, with seeks. Raises InvalidRequest if it is too large."""
        try:
            found = self._store.get(self._dest.key(name), max_bytes=READ_BYTES_MAX)
        except InvalidRequest as error:
            if error.code == "TooLarge":
                limit = f"{READ_BYTES_MAX:,} bytes"
                error.advice = f"Read objects of more than {limit} with a file system of S3"
            raise
        return io.BytesIO(found.body)

    def _is_control(self, name: str) -> bool:
        elements = name.split("/")
        works = elements[0] == TEMPORARY and self._tree
        return works or any(map(paths.is_control_element, elements))

    def _of_object(self, one: ObjectInfo) -> Info:
        name = self._dest.relative(one.key)
        return {
            "name": name, "type": "file", "size": one.size, "mtime": one.last_modified,
            "ETag": one.etag, "pending": False,
        }  # fmt: skip


# The task -----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ShelvedFile:
    """A file of the task. ``name``: as the writer calls it, relative to the destination;
    ``stored_name``: with the job's UUID, if it is unique. ``stream``: its upload, or the file that
    waits on a file system; of a pending upload what is left of it. ``kept``: the bytes of an
    upload, after it was closed; None: they were not kept."""

    name: str
    stored_name: str
    stream: TaskFile | PendingFile
    begun: float
    kept: bytes | None = None

    def let_go(self) -> None:
        """The file is pending: hold no stream of it any more."""
        if isinstance(self.stream, UploadStream):
            self.stream = pending_of(self.stream)

    @property
    def is_there(self) -> bool:
        """Whether the upload may still be published: it was neither aborted nor has it failed."""
        return self.stream.state in _THERE

    @property
    def is_open(self) -> bool:
        """Whether the file still accepts bytes."""
        return self.stream.state is FileState.OPEN


class Shelf:
    """The files and directories of one task, by name. The root is ""."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._files: dict[str, ShelvedFile] = {}
        self._made = {""}
        self._inside: dict[str, dict[str, None]] = {"": {}}  # what is directly in a directory

    def add(self, file: ShelvedFile) -> None:
        """Put a file there. One of the same name gives way, unless both would be published: then
        the unique one is called as it is stored."""
        with self._lock:
            other = self.get(file.name)
            if other is not None and other.stored_name != file.stored_name:
                unique = other if file.stored_name == file.name else file
                unique.name = unique.stored_name
                self._files[other.name] = other
                self._enter(other.name)
            self._files[file.name] = file
            self._enter(file.name)
        if isinstance(file.stream, UploadStream):
            file.stream.when_pending(file.let_go)

    def get(self, name: str, *, gone: bool = False) -> ShelvedFile | None:
        """The file of this name; None if there is none."""
        file = self._files.get(name)
        return file if file is not None and (gone or file.is_there) else None

    def name_of(self, stored_name: str) -> str:
        """The name of a file that is stored under that one; "" if there is none."""
        with self._lock:
            files = self._files.values()
            return next((one.name for one in files if one.stored_name == stored_name), "")

    def forget(self, file: ShelvedFile) -> None:
        """Remove a file. Its directory ends with its last file, unless it was made."""
        with self._lock:
            if self._files.get(file.name) is file:
                del self._files[file.name]
                self._prune(file.name)

    def make_directory(self, name: str) -> None:
        """Make a directory, and those above it."""
        with self._lock:
            while name:
                self._made.add(name)
                self._inside.setdefault(name, {})
                self._enter(name)
                name = parent_of(name)

    def remove_directory(self, name: str) -> None:
        """Take a directory away that was made. It stays as long as a file is below it."""
        with self._lock:
            if name:
                self._made.discard(name)
                self._prune(name)

    def is_directory(self, name: str) -> bool:
        """Whether it was made, or a file is below it."""
        with self._lock:
            if name in self._made:
                return True
            waiting = list(self._inside.get(name, ()))
            while waiting:
                one = waiting.pop()
                if self.get(one) is not None:
                    return True
                waiting.extend(self._inside.get(one, ()))
            return False

    def children(self, name: str) -> tuple[list[ShelvedFile], list[str]]:
        """The files and the directories directly in a directory."""
        with self._lock:
            names = self._inside.get(name, {})
            files = [file for one in names if (file := self.get(one)) is not None]
            return files, [one for one in names if self.is_directory(one)]

    def _enter(self, name: str) -> None:
        """Have a name in its directory, and that in the one above it."""
        while name:
            above = parent_of(name)
            known = above in self._inside
            self._inside.setdefault(above, {})[name] = None
            if known:
                return
            name = above

    def _prune(self, name: str) -> None:
        """Forget a name that is no file, was not made and holds nothing, and so those above it."""
        while name and name not in self._files and name not in self._made:
            if self._inside.get(name):
                return
            self._inside.pop(name, None)
            above = parent_of(name)
            self._inside.get(above, {}).pop(name, None)
            name = above


def parent_of(name: str) -> str:
    """The directory that a name is in. Pure."""
    return name.rpartition("/")[0]


class Sink:
    """One task, as a place to put files. All file systems of a task share it, and its shelf.
    ``attempt`` opens, discards and renames the files; ``runtime_for`` gives the components for a
    bucket; a file of at most ``block_bytes`` is sent as one block."""

    def __init__(
        self, attempt: TaskAttempt, runtime_for: Callable[[str], Runtime], block_bytes: int
    ) -> None:
        self.title = f"task {attempt.task!r} of job {attempt.job.id!r}"  # for messages
        self.runtime_for = runtime_for
        dest = Destination.parse(attempt.job.dest)
        self.runtime = runtime_for(dest.bucket)
        self.home = Home(dest, self.runtime.store)
        self.attempt = attempt
        self.waiting = attempt.waiting  # reads and renames closed files; None: they are uploads
        self.block_bytes = block_bytes
        self.shelf = Shelf()
        attempt.gone = lambda stored: self._forget(stored, self.shelf.name_of(stored))
        for name, file in attempt.streams().items():
            self.note(name, file)

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> ShelvedFile:
        """Open a file, and show it on the shelf. Raises what `Task.open` raises."""
        return self.note(name, self.attempt.open(name, unique=unique, attributes=attributes))

    def note(self, name: str, stream: TaskFile | PendingFile) -> ShelvedFile:
        """Show a file on the shelf that was opened otherwise."""
        stored = stream.name.removeprefix(self.home.url)
        stored = name if stored == name else stored  # one text, for each of very many files
        file = ShelvedFile(name, stored, stream, self.runtime.clock.now())
        self.shelf.add(file)
        return file

    def discard(self, name: str, stored_name: str) -> None:
        """Take a file out of the task, which may be on the shelf by either name. Raises what
        `Task.discard` raises; then it stays."""
        self.attempt.discard(stored_name)
        self._forget(stored_name, name)

    def _forget(self, stored_name: str, name: str) -> None:
        for shown_name in (name, stored_name):
            file = self.shelf.get(shown_name, gone=True)
            if file is not None and file.stored_name == stored_name:
                self.shelf.forget(file)

    def rename(self, file: ShelvedFile, name: str, *, unique: bool) -> None:
        """Give a closed file another name. Raises what `TreeAttempt.rename` raises."""
        assert self.waiting is not None
        stored = self.waiting.rename(file.stored_name, name, unique=unique)
        self.shelf.forget(file)
        file.name, file.stored_name = name, stored
        self.shelf.add(file)


# Open blocks --------------------------------------------------------------------------------------

_open: dict[object, tuple[int, str, tuple[str, ...], WeakMethod[Callable[[], Sink]]]] = {}
"""Process, destination, its roots and its sink, in one table for a process: a library's threads do
not inherit a context of the caller. Items are only added and removed. Both are atomic, so that
there is no lock that a fork could leave locked."""


def enter(dest: str, sink: Callable[[], Sink]) -> Callable[[], None]:
    """Note that a block is open. ``sink``: a method that gives its task, as a place to put files.
    Called when a URL is used. The table does not keep its object: a block that is dropped must end.
    Gives a function to call when it ends. Repeatable."""
    key = object()
    _open[key] = (os.getpid(), dest, roots_of(dest), WeakMethod(sink))
    # At the end of the interpreter a finalizer may call it, when this module's names are gone.
    return lambda still_open=_open: still_open.pop(key, None)  # type: ignore[misc]


def sink_of(path: str) -> Sink:
    """The one open block whose destination holds a place: the deepest, if several do. Raises
    OptionError: there is none, or there are two of the same destination; or the block's job has no
    files that are written as they come."""
    fitting = [
        (roots[0].count("/"), dest, sink)
        for pid, dest, roots, held in tuple(_open.copy().values())
        if pid == os.getpid() and name_below(roots, path) is not None and (sink := held())
    ]
    if not fitting:
        raise OptionError(
            f"{shown(f'magic://{path}')} is below the destination of no"
            " `with magic_committer.write(...)` that is open in this process",
            hint="Use the URL inside the block of the job that writes there; in a task, pass"
            " filesystem=task.filesystem()",
        )
    deepest = max(depth for depth, _, _ in fitting)
    chosen = [(dest, sink) for depth, dest, sink in fitting if depth == deepest]
    if len(chosen) > 1:
        raise OptionError(
            f"{len(chosen)} open blocks of this process write to {chosen[0][0]}: the URL does"
            " not say which is meant",
            hint="Pass filesystem=job.filesystem()",
        )
    return chosen[0][1]()
