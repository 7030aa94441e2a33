"""The plan of a job of renames: what the decision names, one JSON row for each thing to do.

Rows, in this order::

    ["f", attempt, name, size, etag]      publish the attempt's file under that name
    ["d", name, size, etag]               delete the file, if it still is this one (modes replace)
    ["end", files, bytes, tasks]          the last row

A plan is written once, under a nonce of its own, while the manifests are read: so its size does not
matter to the memory. The record that decides names it and the SHA-256 of all its bytes. A reader
checks the hash before it does anything: a plan with another hash is not this plan.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

import orjson

from magic_committer.committers.manifest.names import (
    TEMPORARY,
    TreeJobPaths,
    check_tree_name,
    is_hidden_name,
)
from magic_committer.committers.manifest.parts import Parts
from magic_committer.errors import FormatError, PathError, StoreError
from magic_committer.file_trees.base import FileTree, check_path, parent_of
from magic_committer.file_trees.os_errors import telling
from magic_committer.hadoop.paths import SUCCESS, check_id
from magic_committer.protocol.record import ObjectRef

BUFFER_BYTES = 1024**2
ROW_BYTES_MAX = 64 * 1024
"""Bytes of one row: a name has at most 255 bytes for each of its elements."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file to be published.

    Attributes:
        attempt: the attempt that wrote it; "" for a file to be deleted.
        name: relative to the destination; and to the attempt's directory.
        size: in bytes.
        etag: as in `TreeEntry`.
    """

    attempt: str
    name: str
    size: int
    etag: str

    def source(self, paths: TreeJobPaths) -> str:
        """Where it is before it is published."""
        return f"{paths.attempt(self.attempt)}/{self.name}"


@dataclass(frozen=True, slots=True)
class Totals:
    """What the last row says."""

    files: int
    bytes: int
    tasks: int


@dataclass(frozen=True, slots=True)
class RenamePlan:
    """A plan that is stored and whose hash is known.

    Attributes:
        tree: where it is.
        ref: its path, and its hash as the ``etag``.
        totals: how much it publishes.
    """

    tree: FileTree
    ref: ObjectRef
    totals: Totals

    def files(self) -> Iterator[PlannedFile]:
        """The files to be published."""
        for row in self._rows():
            if row[0] == "f":
                yield PlannedFile(*row[1:])

    def deletes(self) -> Iterator[PlannedFile]:
        """The files to be deleted."""
        for row in self._rows():
            if row[0] == "d":
                yield PlannedFile("", *row[1:])

    def _rows(self) -> Iterator[list[Any]]:
        with closing(self.tree.reader(self.ref.key)) as file:
            for line in file:  # `load_plan`, or whoever wrote it, has checked each row
                yield _decoded(line)


class PlanWriter:
    """Writes a plan, row by row. Leave its ``with`` block after `end`.

    Args:
        parts: the components.
        paths: the job's paths.
    """

    def __init__(self, parts: Parts, paths: TreeJobPaths) -> None:
        self._tree = parts.tree
        self._paths, self._ids = paths, parts.ids
        self._draft = ""
        self._begin()
        self._hash = sha256()
        self._files = self._bytes = 0

    def __enter__(self) -> PlanWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._telling():
            if kind is None:
                self._file.close()
            else:  # what the buffer holds is nobody's any more: writing it could only fail again
                self._raw.close()
        if self._draft:
            with suppress(StoreError):  # else the sweep does it
                self._tree.remove(self._draft)

    def _begin(self) -> None:
        self.path = self._paths.plan(self._ids())
        self._raw = cast("io.RawIOBase", self._tree.open(self.path))
        self._file = io.BufferedWriter(self._raw, BUFFER_BYTES)

    def publish(self, file: PlannedFile) -> None:
        """Add a file to be published."""
        self._write(["f", file.attempt, file.name, file.size, file.etag])
        self._files += 1
        self._bytes += file.size

    def delete(self, name: str, size: int, etag: str) -> None:
        """Add a file to be deleted."""
        self._write(["d", name, size, etag])

    def count(self, files: int, bytes_: int) -> None:
        """Count files that are at their place already: nothing is to be done with them."""
        self._files += files
        self._bytes += bytes_

    def end(self, tasks: int) -> RenamePlan:
        """Write the last row, and make the plan last through a power cut."""
        totals = Totals(self._files, self._bytes, tasks)
        self._write(["end", totals.files, totals.bytes, totals.tasks])
        with self._telling():
            self._file.close()
        self._tree.sync([self.path], [parent_of(self.path)])
        return RenamePlan(self._tree, ObjectRef(self.path, self._hash.hexdigest()), totals)

    def sofar(self) -> RenamePlan:
        """What is written until now, to be read back before `end`. Called once."""
        readable = self.path
        with self._telling():
            if self._tree.promises.visible_while_open:
                self._file.flush()
                self._raw.flush()
            else:
                self._file.close()
                self._draft = readable
                self._begin()
                with closing(self._tree.reader(readable)) as draft:
                    while block := draft.read(BUFFER_BYTES):
                        self._file.write(block)
        return RenamePlan(self._tree, ObjectRef(readable, ""), Totals(self._files, self._bytes, 0))

    def _write(self, row: list[Any]) -> None:
        line = _encoded(row) + b"\n"
        self._hash.update(line)
        with self._telling():
            self._file.write(line)

    def _telling(self) -> AbstractContextManager[None]:
        return telling("write", self._tree.url, self.path)


def load_plan(tree: FileTree, ref: ObjectRef) -> RenamePlan:
    """Read a stored plan once, and check it.

    Raises:
        NotFound: it is gone.
        FormatError: its bytes are not those that were decided.
        StoreError: it cannot be read.
    """
    found, totals = sha256(), None
    with closing(tree.reader(ref.key)) as file:
        while line := file.readline(ROW_BYTES_MAX + 1):  # a forged one may have no end
            found.update(line)
            row = _checked(line, ref.key)
            if row[0] == "end":
                totals = Totals(*row[1:])
    if found.hexdigest() != ref.etag or totals is None:
        raise FormatError(ref.key, "", "is not the plan that was decided: its hash is another one")
    return RenamePlan(tree, ref, totals)


_SHAPES = {
    "f": (str, str, str, int, str),
    "d": (str, str, int, str),
    "end": (str, int, int, int),
}


def _encoded(row: list[Any]) -> bytes:
    try:
        return orjson.dumps(row)
    except TypeError:  # a name on the disk that is no UTF-8: halves of characters stand for it
        return json.dumps(row).encode()


def _decoded(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)


def _checked(line: bytes, source: str) -> list[Any]:
    """A row, if it may be obeyed: whoever may write below the destination may have written it."""
    try:
        row = _decoded(line) if len(line) <= ROW_BYTES_MAX else None
    except (ValueError, RecursionError):
        row = None
    shape = _SHAPES.get(row[0]) if isinstance(row, list) and row and _is_text(row[0]) else None
    if row is None or shape is None or tuple(type(one) for one in row) != shape:
        raise FormatError(source, "", f"has a row {line[:80]!r}")
    try:
        if row[0] == "f":
            check_id("attempt", row[1])
            check_tree_name(row[2])
        elif row[0] == "d" and row[1] != SUCCESS:
            _check_replaced(row[1])
    except PathError as error:
        raise FormatError(source, "", error.message) from error
    return cast("list[Any]", row)


def _check_replaced(name: str) -> None:
    """Check the name of a file to be deleted. Another program may have given it any name that a
    disk takes: it need only be data of the destination.

    Raises:
        PathError: it is not.
    """
    check_path(name, "the destination")
    elements = name.split("/")
    if elements[0] in ("", TEMPORARY) or is_hidden_name(elements[-1]):
        raise PathError(f"{name!r} is no data, and is never replaced")


def _is_text(value: object) -> bool:
    return isinstance(value, str)
