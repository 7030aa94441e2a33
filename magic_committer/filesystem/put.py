"""Files of this machine, and objects that are on S3 already, put into a task: all of them, or the
call raises. The store copies objects by itself, so no byte of them comes here.

Invariants:

* Nothing is left out in silence. What a rule leaves out is reported (`PutReport.left_out`); what
  cannot be read, or is no file, is an error before the first byte is sent.
* A file that changes while it is read is an error: nobody could say which of the two was put.
* Files of at most one block are read and sent beside each other; a larger one has the caller's
  thread, and its parts are sent beside each other.
* A listing names the objects that are copied, with their ETags; each part is copied only from an
  object of that ETag. What changes meanwhile is an error. Some stores ignore the condition (Ceph
  RGW, moto): so a part whose own ETag does not prove what was copied is followed by a look at the
  object.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from mimetypes import guess_type
from os import PathLike
from urllib.parse import unquote

from magic_committer.errors import NotFound, PathError, UploadFailed, WrongType
from magic_committer.errors.messages import SOURCE_CHANGED, counted, name_some
from magic_committer.filesystem.sink import Sink
from magic_committer.hadoop import paths
from magic_committer.hadoop.paths import SUCCESS, Destination, check_name, is_s3_url, shown
from magic_committer.options import MiB
from magic_committer.runtime.components import Progress
from magic_committer.runtime.threads import patient
from magic_committer.stores import base
from magic_committer.stores.base import Attributes, ObjectSlice, ObjectStore
from magic_committer.stores.urls import local_path
from magic_committer.upload import COPY_PART_BYTES, TaskFile, UploadStream

COPY_BYTES = 1 * MiB
"""Bytes of a local file that are read at once."""
PUT_FILES_IN_FLIGHT = 16
"""Small files that are read and sent at the same time."""
_STAGE_BESIDE = "Stage beside the destination, or in a directory of it that begins with '_'"


@dataclass(frozen=True, slots=True)
class PutReport:
    """What `Task.put_directory` or `Task.copy` has put.

    Attributes:
        files: how many files.
        bytes: their bytes.
        left_out: names that were left out: hidden ones, and a ``_SUCCESS`` at the top, which the
            job writes itself.
    """

    files: int
    bytes: int
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{counted(self.files, 'file')}, {self.bytes:,} bytes{_but(self.left_out)}"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of this machine, and its name below the destination."""

    path: str
    name: str
    size: int = 0

    def put(self, sink: Sink, *, unique: bool, attributes: Attributes) -> int:
        """Put it. Gives its bytes. Raises PathError: it is no regular file. Raises UploadFailed: it
        changed meanwhile; and as `Task.open`."""
        before = os.stat(self.path)
        _check_regular(self.path, before)
        if is_s3_url(sink.home.url):
            attributes = _typed(attributes, self.name)
        buffer = memoryview(bytearray(min(COPY_BYTES, max(1, before.st_size + 1))))
        total = 0
        with open(self.path, "rb", buffering=0) as source:
            to = sink.open(self.name, unique=unique, attributes=attributes).stream
            assert isinstance(to, TaskFile)  # it was just opened
            with to:
                while count := source.readinto(buffer):
                    to.write(buffer[:count])
                    total += count
                after = os.fstat(source.fileno())
                if (total, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                    raise UploadFailed(
                        f"{self.path} changed while it was read: it had {before.st_size:,} bytes"
                        f" when the call began, and {total:,} were read",
                        hint="Put it again when nobody writes it any more",
                    )
        return total


def _typed(attributes: Attributes, name: str) -> Attributes:
    """Add the content type of a name, if they have none, and it is of no compressed file."""
    if attributes.content_type is not None:
        return attributes
    kind, compressed = guess_type(name)
    return replace(attributes, content_type=None if compressed else kind)


def local_text(path: str | PathLike[str]) -> str:
    """A path of this machine that a caller passed."""
    if isinstance(path, str | PathLike) and isinstance(text := os.fspath(path), str):
        return text
    raise WrongType(
        f"a path of this machine is text or a Path, not {type(path).__name__}",
        hint="Pass '/data/table', or pathlib.Path('/data/table')",
    )


def local_files(
    directory: str, below: str, *, hidden: bool, left_out: list[str]
) -> Iterator[SourceFile]:
    """The files in a directory of this machine and below it, in the order of their names.
    ``below``: as for `files_in`. Raises PathError: an entry is no file, a link to a directory or to
    nothing, or its name cannot be used."""
    waiting = _entries(directory, below)
    while waiting:
        entry, name = waiting.pop()
        if name == SUCCESS or (entry.name.startswith(".") and not hidden):
            left_out.append(name)
        elif entry.is_dir(follow_symlinks=False):
            waiting += _entries(entry.path, name)
        else:
            try:
                seen = entry.stat()
            except FileNotFoundError as error:
                raise PathError(
                    f"{entry.path} is a link to nothing, or was just removed",
                    hint="Remove the link",
                ) from error
            if stat.S_ISDIR(seen.st_mode):
                raise PathError(
                    f"{entry.path} is a link to a directory",
                    hint="Remove the link: it is not followed, since it may lead in a circle",
                )
            _check_regular(entry.path, seen)
            check_name(name)
            if not os.access(entry.path, os.R_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), entry.path)
            yield SourceFile(entry.path, name, seen.st_size)


def _entries(directory: str, below: str) -> list[tuple[os.DirEntry[str], str]]:
    """What lies directly in a directory, and its names below the destination, the last one
    first."""
    found = sorted(os.scandir(directory), key=lambda one: one.name, reverse=True)
    return [(entry, f"{below}/{entry.name}" if below else entry.name) for entry in found]


def _check_regular(path: str, seen: os.stat_result) -> None:
    if stat.S_ISDIR(seen.st_mode):
        raise PathError(f"{path} is a directory", hint="Put it with job.put_directory(path)")
    if not stat.S_ISREG(seen.st_mode):
        hint = "Devices, pipes and sockets cannot be put: leave it out"
        raise PathError(f"{path} is no regular file", hint=hint)


def files_in(
    path: str, below: str = "", *, hidden: bool = False
) -> tuple[list[SourceFile], tuple[str, ...]]:
    """All files of a directory, and the names that are left out. ``below``: what goes before their
    names, without a slash at its end; "": nothing. Raises PathError: it is no directory, or has no
    file to put. Raises OSError: it cannot be reached."""
    try:
        is_directory = stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_directory = False
    if not is_directory:
        raise PathError(
            f"{shown(path)} is no directory",
            hint="Name a directory; in Python job.put_file(path) puts one file",
        )
    left_out: list[str] = []
    files = list(local_files(path, below, hidden=hidden, left_out=left_out))
    if not files:
        raise PathError(
            f"{shown(path)} has no file to put{_but(left_out)}",
            hint="Check the path; hidden files are put with hidden=True (--hidden)",
        )
    return files, tuple(left_out)


def _but(left_out: Sequence[str]) -> str:
    return f"; left out: {name_some(left_out)}" if left_out else ""


def refuse_itself(path: str, dest: str) -> None:
    """Refuse a directory that holds the destination: it would be put with what the job writes. And
    one that a `replace` of the destination would delete."""
    if not dest.startswith("file://"):
        return
    source, there = os.path.realpath(path), os.path.realpath(local_path(dest))
    shared = os.path.commonpath((source, there))
    beneath = there == shared and not paths.is_hidden(os.path.relpath(source, there))
    if source == shared or beneath:
        raise PathError(f"{shown(path)} and {dest} lie in each other", hint=_STAGE_BESIDE)


# Objects ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceObject:
    """An object, and its name below the destination."""

    whole: ObjectSlice
    name: str

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.whole.length

    def put(self, sink: Sink, *, unique: bool, attributes: Attributes) -> int:
        """Begin a file of the task, and let the store copy the object into it. Gives its bytes.
        Raises UploadFailed: the object changed meanwhile; and as `Task.open`."""
        unchanged = partial(self._refuse_changes, sink.runtime_for(self.whole.bucket).store)
        if not self.size:  # no part of it is copied on a condition
            unchanged()
        attributes = _typed(attributes, self.name)
        to = sink.open(self.name, unique=unique, attributes=attributes).stream
        assert isinstance(to, UploadStream)  # it was just opened, on S3
        with to:
            to._take_object(self.whole, unchanged)
        return self.size

    def _refuse_changes(self, store: ObjectStore) -> None:
        """Look at the object again. Raises UploadFailed: it is another one now, or gone."""
        whole = self.whole
        try:
            now = store.head(whole.key).etag
        except NotFound as error:
            raise UploadFailed(error.message, hint=SOURCE_CHANGED) from error
        if not base.same_etag(now, whole.etag):
            raise UploadFailed(
                f"s3://{whole.bucket}/{whole.key} has the ETag {now}, not {whole.etag}",
                hint=SOURCE_CHANGED,
            )
        decoded = unquote(whole.key)
        if decoded != whole.key and base.listed(store, decoded) is not None:
            raise UploadFailed(
                f"whether s3://{whole.bucket}/{whole.key} was copied, or {decoded!r} beside it,"
                " is unknown: some stores decode a source's name twice (Ceph RGW)",
                hint="Rename one of the two, and copy again",
            )


def objects_in(
    store: ObjectStore,
    source: str,
    dest: str,
    below: str = "",
    *,
    hidden: bool = False,
    unique: bool = False,
) -> tuple[list[SourceObject], tuple[str, ...]]:
    """All objects below a URL that ends in ``/``, or the one object of another; and the names that
    are left out. ``below``: as for `files_in`; of one object: its name. See `FileCalls.copy`.
    Raises StoreError: they cannot be listed."""
    if not is_s3_url(dest):
        hint = "Download them, and put_directory"
        raise PathError(f"objects are copied on S3 only, not to {dest}", hint=hint)
    place = paths.parse_url(source)
    directory = not place.key or place.key.endswith("/")
    _refuse_itself(place.bucket, place.key, Destination.parse(dest))
    found, left_out = list[SourceObject](), list[str]()
    for info in base.objects(store, place.key):
        name = info.key[len(place.key) :] if directory else place.key.rpartition("/")[2]
        if not directory and info.key != place.key:
            break  # the key itself comes first
        if name.endswith("/") or not name:  # a directory's marker
            left_out += [name or info.key] * bool(info.size)  # or an object with an odd name
            continue
        elements = name.split("/")
        controls = any(map(paths.is_control_element, elements)) or paths.TEMPORARY in elements
        if controls or name == SUCCESS or (directory and paths.is_hidden(name) and not hidden):
            left_out.append(name)
            continue
        named = f"{below}/{name}" if below and directory else below or name
        if paths.has_token(named) and not unique:
            raise PathError(
                f"{shown(named)} carries the token of the job that wrote it, whose clean-up would"
                " abort the upload",
                hint="Copy with unique=True (--unique): the names get this job's token instead",
            )
        named = paths.without_token(named)
        try:
            check_name(named)
        except PathError as error:
            told = f"s3://{place.bucket}/{info.key} cannot be copied: {error.message}"
            raise PathError(told, hint=error.advice) from error
        whole = ObjectSlice(place.bucket, info.key, info.etag, 0, info.size, info.size)
        found.append(SourceObject(whole, named))
    if not found:
        raise PathError(
            f"{source} has no object to copy{_but(left_out)}",
            hint="Check the URL: that of a directory ends in '/', that of one object does not"
            " (job.copy); hidden objects are copied with hidden=True (--hidden)",
        )
    return found, tuple(left_out)


def _refuse_itself(bucket: str, key: str, dest: Destination) -> None:
    """Refuse a directory that holds the destination, or that a `replace` of it would delete."""
    inside = dest.prefix.startswith(key) and (not key or key.endswith("/"))
    beneath = key.startswith(dest.prefix) and not paths.is_hidden(key.removeprefix(dest.prefix))
    if bucket == dest.bucket and (inside or beneath):
        raise PathError(f"s3://{bucket}/{key} and {dest.url} lie in each other", hint=_STAGE_BESIDE)


# All ----------------------------------------------------------------------------------------------

PutItem = SourceFile | SourceObject
"""What becomes a file of a task."""


@patient()
def put_all(
    sink: Sink,
    files: Sequence[PutItem],
    left_out: tuple[str, ...],
    *,
    unique: bool,
    attributes: Attributes,
) -> PutReport:
    """Put files: see `Task.put_directory` and `Task.copy`."""
    for file in files:
        sink.home.check(file.name)
    done = total = 0

    def put(file: PutItem) -> int:
        return file.put(sink, unique=unique, attributes=attributes)

    def is_small(file: PutItem) -> bool:
        return file.size <= (COPY_PART_BYTES if type(file) is SourceObject else sink.block_bytes)

    small = filter(is_small, files)
    with closing(sink.runtime.pool.each(put, small, in_flight=PUT_FILES_IN_FLIGHT)) as outcomes:
        large = (file for file in files if not is_small(file))
        for count in chain((one.unwrap() for one in outcomes), map(put, large)):
            done, total = done + 1, total + count
            sink.runtime.progress(Progress("put", done, len(files), "files"))
    return PutReport(done, total, left_out)
