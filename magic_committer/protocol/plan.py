"""The plan: what one driver wants decided. Each try stores one immutable object,
``_plan-<nonce>.json``.

The record that decides names the plan and its ETag, so that the plans of two drivers can never be
mixed (counterexamples.md, #3). Every process that executes a decision executes the plan that the
record names. A plan with another ETag is not this plan.

The plan names the accepted pendingsets, not their uploads: a job of ten million files has a plan of
some thousand lines.

A stored plan stays in memory as its bytes (`Rows`): it takes its own size and 4 bytes for each row,
whatever it holds. A plan has limits (``PLAN_*_MAX``). If a job's plan is beyond them, the job is
refused before it is decided.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple, NoReturn, TypeVar, overload

import orjson

from magic_committer.errors import FormatError, OptionError, PathError
from magic_committer.errors.messages import UPGRADE
from magic_committer.hadoop import documents
from magic_committer.hadoop.documents import INT64_MAX, OwnDocument, read_fields
from magic_committer.hadoop.paths import SET_SUFFIXES, Destination, is_hidden
from magic_committer.options import BY_PARTITION, REPLACING
from magic_committer.protocol.record import ObjectRef, StartedJob

# Keys in little memory ----------------------------------------------------------------------------
#
# A set of 16-byte hashes in flat memory: 100,000 keys in 4 MiB, 10 million in 512 MiB.
#
# It remembers two things for every file of a job: its destination came once, and its upload was
# seen open. A Python set of strings would take ten times as much memory. A false hit needs two
# uploads with the same 126 bits of Python's own hash (SipHash, by a secret of the process): 63 of
# the key, 63 of the id. BLAKE2b takes longer for so short a text.


_FULL = 0.7
_SLOTS_MIN = 1 << 10
_WORD = (1 << 64) - 1


class KeySet:
    """Strings that were added, by their hashes. Each can be ticked off once.

    Open addressing in two arrays of 64-bit words. The low bit of the second word is the tick, so
    126 bits distinguish keys. An empty slot is all zero.
    """

    def __init__(self, expected: int = 0, *, by_key: bool = False) -> None:
        """Make room for ``expected`` keys; the set grows beyond that. ``by_key``: `add_upload`
        tells of a second upload of a key; many uploads of few keys then take long."""
        self._slots = _SLOTS_MIN
        while self._slots * _FULL < expected:
            self._slots *= 2
        self._high = array("Q", bytes(8 * self._slots))
        self._low = array("Q", bytes(8 * self._slots))
        self._by_key = by_key
        self._count = 0
        self._ticked = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: str) -> bool:
        return self._high[self._find(*_hash(key))] != 0

    @property
    def unticked(self) -> int:
        """How many keys were added and not ticked off."""
        return self._count - self._ticked

    def add(self, key: str) -> bool:
        """Add a key. False if it was already there."""
        return self._put(*_hash(key)) is not None

    def add_upload(self, key: str, upload_id: str) -> bool:
        """Add the `upload_name` of an upload, to a set ``by_key``. False if one with the same key
        was already there, or with a key of the same 63 bits: look again."""
        return self._put(*_hash(key, upload_id)) is True

    def tick(self, key: str, upload_id: str = "") -> bool:
        """Tick a key, or an upload's name, off. False if it is not in the set."""
        slot = self._find(*_hash(key, upload_id))
        if not self._high[slot]:
            return False
        if not self._low[slot] & 1:
            self._low[slot] |= 1
            self._ticked += 1
        return True

    def ticked(self, key: str) -> bool:
        """Whether the key is in the set and was ticked off."""
        slot = self._find(*_hash(key))
        return bool(self._high[slot]) and bool(self._low[slot] & 1)

    def _find(self, high: int, low: int) -> int:
        mask = self._slots - 1
        slot = (high if self._by_key else high ^ low) >> 1 & mask
        while self._high[slot] and (self._high[slot] != high or self._low[slot] | 1 != low | 1):
            slot = (slot + 1) & mask
        return slot

    def _put(self, high: int, low: int) -> bool | None:
        """Note a hash. None if it was there; otherwise whether no other had its first word."""
        if self._count >= self._slots * _FULL:
            self._grow()
        highs, mask, first = self._high, self._slots - 1, True
        slot = (high if self._by_key else high ^ low) >> 1 & mask
        while there := highs[slot]:  # as `_find`, without a call for each key of a job
            if there == high:
                if self._low[slot] | 1 == low | 1:
                    return None
                first = False
            slot = (slot + 1) & mask
        highs[slot], self._low[slot] = high, low
        self._count += 1
        return first

    def _grow(self) -> None:
        old_high, old_low = self._high, self._low
        self._slots *= 2
        self._high = array("Q", bytes(8 * self._slots))
        self._low = array("Q", bytes(8 * self._slots))
        for high, low in zip(old_high, old_low, strict=True):
            if high:
                slot = self._find(high, low)
                self._high[slot], self._low[slot] = high, low


def _hash(key: str, upload_id: str = "") -> tuple[int, int]:
    # The high word is never 0, because 0 marks an empty slot. The tick starts cleared.
    if not upload_id:
        key, _, upload_id = key.partition("\0")  # `upload_name`
    return hash(key) & _WORD | 1, hash(upload_id or f"{key}\n") & _WORD & ~1


# Rows in the bytes of a plan ----------------------------------------------------------------------
#
# The rows of a stored plan: found in its bytes, and read when they are needed. Pure.
#
# Anyone who may write below the destination may have written a plan (docs/security.md), and a plan
# may belong to a job that replaces a million files. JSON that is parsed as a whole takes up to 35
# times its size in Python objects. So a plan is never parsed as a whole. A pattern walks over its
# bytes, notes where each row begins (4 bytes for each row), and refuses everything that is not a
# row. Iteration makes objects of `ROWS_A_SLICE` rows at a time.


T = TypeVar("T")

ROW_BYTES_MAX = 8 * 1024
"""Bytes of one row, or of one value beside the rows. A key has at most 1,024 bytes, an id 128."""
ROWS_A_SLICE = 512
"""How many rows are objects at the same time: at most 4 MiB of JSON."""

# Possessive (Python 3.11): no input makes them try again what they have passed.
SPACE = rb"[ \t\n\r]*+"
TEXT = rb'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
NUMBER = rb"-?+[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"

_END = ord("]")


class Rows(Sequence[T]):
    """Rows in the bytes of their document. Equal to every sequence of equal rows. ``starts``: where
    each row begins. The last item is the place behind the closing bracket."""

    def __init__(self, data: bytes, starts: array[int], make: Callable[[Any], T]) -> None:
        self._data = data
        self._starts = starts
        self._make = make

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        at = range(len(self))[index]
        return self._make(self._parsed(at, at + 1)[0])

    def __iter__(self) -> Iterator[T]:
        for rows in self.slices():
            yield from map(self._make, rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"

    def slices(self) -> Iterator[list[Any]]:
        """Give the rows as JSON values, `ROWS_A_SLICE` at a time. Raises JSONDecodeError: a row is
        no JSON although it looks so (an escape, UTF-8)."""
        for at in range(0, len(self), ROWS_A_SLICE):
            yield self._parsed(at, min(at + ROWS_A_SLICE, len(self)))

    def _parsed(self, first: int, end: int) -> list[Any]:
        rows: list[Any] = orjson.loads(
            b"[%b]" % self._data[self._starts[first] : self._starts[end] - 1]
        )
        return rows


def row_of(*cells: bytes, last: bytes = b"") -> re.Pattern[bytes]:
    """The pattern of a row, made of the patterns of its cells; ``last``: a cell that may be
    missing."""
    more = b"(?:,%b)?+" % spaced(last) if last else b""
    return re.compile(rb"\[%b%b\]" % (b",".join(map(spaced, cells)), more))


def spaced(token: bytes) -> bytes:
    """The pattern of a token with white space around it."""
    return SPACE + b"(?:%b)" % token + SPACE


_EMPTY = re.compile(rb"\[%b\]" % SPACE)


def find_rows(
    data: bytes,
    at: int,
    row: re.Pattern[bytes],
    what: str,
    field: str,
    source: str,
    rows_max: int,
    make: Callable[[Any], T],
) -> tuple[Rows[T], int]:
    """Find the rows of a list that begins at ``at``. Gives the rows, and the place behind the list.
    Raises FormatError: there is no list, it holds something else, or it has more than ``rows_max``
    rows."""
    if data[at : at + 1] != b"[":
        raise FormatError(source, field, "is not a list")
    starts = array("I")
    if empty := _EMPTY.match(data, at):
        return Rows(data, array("I", (empty.end(),)), make), empty.end()
    at += 1
    match = re.compile(spaced(row.pattern)).match
    while True:
        found = match(data, at)
        end = found.end() if found is not None else 0
        if not end or data[end : end + 1] not in (b",", b"]"):
            raise FormatError(source, f"{field}[{len(starts)}]", f"is not {what}")
        if end - at > ROW_BYTES_MAX:
            reason = f"has {end - at} bytes, at most {ROW_BYTES_MAX} are read"
            raise FormatError(source, f"{field}[{len(starts)}]", reason)
        if len(starts) == rows_max:
            raise FormatError(source, field, f"has more than {rows_max} rows")
        starts.append(at)
        at = end + 1
        if data[end] == _END:
            starts.append(at)
            break
    rows = Rows(data, starts, make)
    try:
        for _ in rows.slices():
            continue
    except orjson.JSONDecodeError as error:
        raise FormatError(source, field, f"is not JSON: {error}") from None
    return rows, at


def write_rows(file: BytesIO, rows: Iterable[Any]) -> int:
    """Append a list of rows to a file, as compact JSON. Only a few rows are objects at the same
    time."""
    longest = 0
    opening = b"["
    for row in rows:
        written = orjson.dumps(row)
        longest = max(longest, len(written))
        file.write(opening)
        file.write(written)
        opening = b","
    file.write(b"]" if opening == b"," else b"[]")
    return longest


# The plan -----------------------------------------------------------------------------------------

PLAN_VERSION = 2
PLAN_VERSIONS = (1, PLAN_VERSION)
"""Versions that can be read. The first one names replaced objects without their Last-Modified. Its
form before the modes, without ``deletes``, ``partitions`` and ``marker``, is not read: it was
written for half an hour (8bd0db3, before e9233a6). `force_abort` ends such a job."""
PLAN_BYTES_MAX = 256 * 1024**2
"""For comparison: a plan of 100,000 tasks that replaces 1,000,000 files has some 170 MB."""
PLAN_SETS_MAX = 250_000
"""Accepted tasks. A process that executes a plan holds their names in memory: some 600 bytes
each."""
PLAN_DELETES_MAX = 2_000_000
"""Files that one job replaces."""
PLAN_PARTITIONS_MAX = 250_000
"""Partitions that one job writes, in the modes by partition."""


@dataclass(frozen=True, slots=True)
class PlannedSet:
    """One accepted `.pendingset`: its key below `JobPaths.tree` and its exact version."""

    name: str
    etag: str
    task: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to become visible, and which driver planned it (``nonce``).

    Attributes:
        deletes: objects that the job replaces, each with the ETag and Last-Modified that it had
            when the plan was made.
        partitions: in the modes by partition: the partitions that the job writes, e.g.
            ``("dt=1/",)``.
        marker: in mode ``replace``: the old `_SUCCESS`. It is deleted before any file is visible.
    """

    job_id: str
    uuid: str
    nonce: str
    files: int
    data_bytes: int
    sets: Sequence[PlannedSet]
    deletes: Sequence[ObjectRef] = ()
    partitions: tuple[str, ...] = ()
    marker: ObjectRef | None = None

    def encode(self) -> bytes:
        """Give the bytes of the plan's object: compact JSON. Raises OptionError: the plan is too
        large for every reader: too many tasks, files, partitions or bytes. The job is not decided,
        and nothing of it is visible."""
        head = {
            "version": PLAN_VERSION,
            "job_id": self.job_id,
            "uuid": self.uuid,
            "nonce": self.nonce,
            "files": self.files,
            "bytes": self.data_bytes,
        }
        file = BytesIO()
        file.write(orjson.dumps(head)[:-1])
        longest = 0
        for name, kind in _LISTS.items():
            rows = getattr(self, name)
            if len(rows) > kind.rows_max:
                raise self._too_large("it", len(rows), kind.rows_max, kind.what)
            file.write(b',"%b":' % name.encode())
            longest = max(longest, write_rows(file, map(kind.write, rows)))
        file.write(b',"marker":%b}' % orjson.dumps(_row(self.marker) if self.marker else None))
        if longest > ROW_BYTES_MAX:
            raise self._too_large("a row", longest, ROW_BYTES_MAX, "bytes")
        if file.tell() > PLAN_BYTES_MAX:
            raise self._too_large("it", file.tell(), PLAN_BYTES_MAX, "bytes")
        return file.getvalue()

    def _too_large(self, who: str, number: int, most: int, what: str) -> OptionError:
        return OptionError(
            f"job {self.job_id!r}: its plan is too large: {who} has {number} {what}, at most {most}"
            " are read by those who execute it",
            hint="Nothing was decided, and nothing is visible: abort the job, and write what it"
            " wrote as several jobs: fewer tasks or partitions each; instead of mode 'replace' of a"
            " destination with so many files, 'replace_partitions' of a part of it at a time",
        )

    @classmethod
    def decode(cls, data: bytes, source: str) -> Plan:
        """Read a plan. Its sets and deletes stay in ``data`` and are read when they are used.
        Raises FormatError: the data is not a plan, not as this library writes it, of a newer
        version, or beyond a limit."""
        if len(data) > PLAN_BYTES_MAX:
            raise FormatError(source, "", f"has {len(data)} bytes, more than {PLAN_BYTES_MAX}")
        read = _scan(data, source)
        for name in (*_LISTS, "marker"):
            if name not in read:
                raise FormatError(source, name, "is missing")
        sets, deletes, partitions, marker = (read.pop(name) for name in (*_LISTS, "marker"))
        if not isinstance(marker, list | None):
            raise FormatError(source, "marker", f"has the wrong type: {type(marker).__name__}")
        head = read_fields(_PlanHead, read, source)
        for field, number in (("files", head.files), ("bytes", head.bytes)):
            if not 0 <= number <= INT64_MAX:
                raise FormatError(source, field, f"is {number}, not between 0 and {INT64_MAX}")
        return cls(
            head.job_id,
            head.uuid,
            head.nonce,
            head.files,
            head.bytes,
            sets,
            deletes,
            tuple(partitions),
            None if marker is None else _ref(marker),
        )


@documents.readable
class _PlanHead(OwnDocument, frozen=True):
    """The fields of a plan that are no rows."""

    version: int
    job_id: str
    uuid: str
    nonce: str
    files: int
    bytes: int


def _row(ref: ObjectRef) -> list[str | float]:
    return [ref.key, ref.etag, ref.modified]


def _ref(row: list[Any]) -> ObjectRef:
    # The first version did not write Last-Modified.
    return ObjectRef(row[0], row[1], float(row[2]) if len(row) == 3 else 0.0)


def _planned(row: list[str]) -> PlannedSet:
    return PlannedSet(*row)


class _List(NamedTuple):
    """A list of a plan: what it names; the pattern of its rows, the same in words, and how many may
    be read; what makes a value of a row, and a row of a value."""

    what: str
    pattern: re.Pattern[bytes]
    words: str
    rows_max: int
    make: Callable[[Any], Any]
    write: Callable[[Any], Any]


_REF = row_of(TEXT, TEXT, last=NUMBER)
_LISTS = {
    "sets": _List(
        "tasks", row_of(TEXT, TEXT, TEXT, TEXT), "a row of 4 texts", PLAN_SETS_MAX,
        _planned, lambda one: [one.name, one.etag, one.task, one.attempt],
    ),
    "deletes": _List(
        "files to be replaced", _REF, "a row of 2 texts and a number", PLAN_DELETES_MAX, _ref, _row
    ),
    "partitions": _List(
        "partitions", re.compile(TEXT), "a text", PLAN_PARTITIONS_MAX, str, str
    ),
}  # fmt: skip
_OPEN = re.compile(spaced(rb"\{"))
_NAME = re.compile(spaced(b"(%b)" % TEXT) + b":" + SPACE)
_VALUE = re.compile(b"|".join((_REF.pattern, TEXT, NUMBER, b"null")))
_NEXT = re.compile(spaced(b"[,}]"))


def _scan(data: bytes, source: str) -> dict[str, Any]:
    """Read the fields of a plan. Its lists are found but not parsed; all other fields are short."""
    fields: dict[str, Any] = {}
    token = _OPEN.match(data)
    while token is not None and token[0].strip() != b"}":
        found = _NAME.match(data, token.end())
        if found is None or found.end() - token.end() > ROW_BYTES_MAX:
            raise FormatError(source, "", f"is no plan: no field begins at byte {token.end()}")
        name, at = _loads(found[1], "", source), found.end()
        if name in fields:
            raise FormatError(source, name, "appears twice")
        if name in _LISTS:
            kind = _LISTS[name]
            fields[name], at = find_rows(
                data, at, kind.pattern, kind.words, name, source, kind.rows_max, kind.make
            )
        else:
            found = _VALUE.match(data, at)
            if found is None or found.end() - at > ROW_BYTES_MAX:
                raise FormatError(source, name, "is not a value that a plan has")
            fields[name], at = _loads(found[0], name, source), found.end()
        if name == "version" and fields[name] not in PLAN_VERSIONS:
            reason = f"is {fields[name]}, this library knows {PLAN_VERSION}"
            raise FormatError(source, name, reason, hint=UPGRADE)
        token = _NEXT.match(data, at)
    if token is None or token.end() != len(data):
        raise FormatError(source, "", "is no plan: it is cut, or something follows it")
    return fields


def _loads(data: bytes, field: str, source: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FormatError(source, field, f"is not JSON: {error}") from None


def check_plan(plan: Plan, job: StartedJob, source: str) -> None:
    """Check that a stored plan fits its job and destination. Pure.

    A process that executes a plan may have more rights than the process that wrote it. An
    operator's `cleanup` reads what anyone may have left below one destination, and must not act
    elsewhere (docs/security.md). A plan by a driver of this library always passes. Raises
    FormatError: the plan names another job, an object that is not data below the destination, a
    pendingset of another job, or one pendingset twice."""

    def refuse(field: str, reason: str) -> NoReturn:
        raise FormatError(source, field, reason, hint="Nothing of it is done: look who wrote it")

    dest, paths, mode = Destination.parse(job.dest), job.paths, job.terms.mode
    for field, told, true in (("job_id", plan.job_id, job.id), ("uuid", plan.uuid, job.uuid)):
        if told != true:
            refuse(field, f"is {told!r}, the job's is {true!r}")
    names = KeySet(len(plan.sets))
    for number, planned in enumerate(plan.sets):
        if not names.add(planned.name):
            refuse(f"sets[{number}]", f"{planned.name!r} is named twice")
        if not _is_set_of(f"{paths.tree}{planned.name}", planned.attempt, job):
            refuse(f"sets[{number}]", f"{planned.name!r} is no pendingset of the job")
    if plan.deletes and mode not in REPLACING:
        refuse("deletes", f"a job of mode {mode!r} replaces nothing")
    partitions = frozenset(plan.partitions)
    for number, ref in enumerate(plan.deletes):
        if not dest.contains(ref.key) or is_hidden(relative := dest.relative(ref.key)):
            refuse(f"deletes[{number}]", f"{ref.key!r} is no data below {dest.url}")
        directory, slash, _ = relative.rpartition("/")
        if mode in BY_PARTITION and directory + slash not in partitions:
            refuse(f"deletes[{number}]", f"{ref.key!r} lies in no partition of the job")
    if plan.marker is not None and (mode, plan.marker.key) != ("replace", dest.success_key):
        refuse("marker", f"{plan.marker.key!r} is not the _SUCCESS that the job may replace")


def _is_set_of(key: str, attempt: str, job: StartedJob) -> bool:
    try:
        ours = job.paths.pendingset(attempt)
    except PathError:
        ours = ""
    if key == ours or not (job.adopted or job.waits):
        return key == ours
    home = job.paths.job_attempt  # Hadoop's sets are named for the task
    name = key.removeprefix(home)
    return key.startswith(home) and "/" not in name and name.endswith(SET_SUFFIXES)
