"""The plan: what one driver wants decided. Each try stores one immutable object,
``_plan-<nonce>.json``.

The record that decides names the plan and its ETag, so that the plans of two drivers can never be
mixed (counterexamples.md, #3). Every process that executes a decision executes the plan that the
record names. A plan with another ETag is not this plan.

The plan names the accepted pendingsets, not their uploads: a job of ten million files has a plan of
some thousand lines.

A stored plan stays in memory as its bytes (`Rows`): it needs its own size and 4 bytes for each row,
whatever it holds. A plan has limits (``PLAN_*_MAX``). If a job's plan is beyond them, the job is
refused before it is decided.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import sub
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

from msgspec import DecodeError, Meta

from magic_committer.errors import FormatError, OptionError, PathError
from magic_committer.errors.messages import UPGRADE
from magic_committer.hadoop import documents
from magic_committer.hadoop.documents import INT64_MAX, OwnDocument, plain, read_fields
from magic_committer.hadoop.paths import SET_SUFFIXES, is_hidden
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
        finds a second upload of a key; many uploads of few keys then take long."""
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
# A plan is JSON lines: its head, which says how many rows of each kind follow, then the rows.
#
# Anyone who may write below the destination may have written a plan (docs/security.md), and a plan
# may belong to a job that replaces a million files. So it is never in memory as objects: the place
# of each line is noted (4 bytes for each), every row is read once to see that it is one, and again
# when it is needed.


T = TypeVar("T")

ROW_BYTES_MAX = 8 * 1024
"""Bytes of one line. It has room for a key (`KEY_BYTES_MAX`) and ids (`ID_CHARS_MAX`)."""


class Rows(Collection[T]):
    """Rows of one kind in the bytes of their plan. Equal to every collection of equal rows.
    ``ends``: where each line of the plan ends; the first row is behind the line ``first``."""

    def __init__(
        self, data: bytes, ends: array[int], first: int, number: int, make: Callable[[bytes], T]
    ) -> None:
        self._data = data
        self._ends = ends
        self._lines = range(first, first + number)
        self._make = make

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[T]:
        data, ends = self._data, self._ends
        return (self._make(data[ends[line] : ends[line + 1]]) for line in self._lines)

    def __contains__(self, row: object) -> bool:
        return any(one == row for one in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collection) or len(self) != len(other):
            return False
        return all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"


def _ends_of(data: bytes) -> array[int]:
    """Where the lines end, each behind its newline."""
    return array("I", (found.end() for found in re.finditer(b"\n", data)))


def _longest(ends: array[int]) -> int:
    return max(map(sub, ends, chain((0,), ends)), default=0)


# The plan -----------------------------------------------------------------------------------------

PLAN_VERSION = 3
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
    sets: Collection[PlannedSet]
    deletes: Collection[ObjectRef] = ()
    partitions: tuple[str, ...] = ()
    marker: ObjectRef | None = None

    def encode(self) -> bytes:
        """Give the bytes of the plan's object. Raises OptionError: the plan is too large for every
        reader: too many tasks, files, partitions or bytes. The job is not decided, and nothing of
        it is visible."""
        for name, kind in _KINDS.items():
            if (number := len(getattr(self, name))) > kind.rows_max:
                raise self._too_large("it", number, kind.rows_max, kind.what)
        head = _PlanHead(
            self.job_id, self.uuid, self.nonce, self.files, self.data_bytes,
            len(self.sets), len(self.deletes), len(self.partitions), self.marker,
        )  # fmt: skip
        sets = ((one.name, one.etag, one.task, one.attempt) for one in self.sets)
        deletes = ((one.key, one.etag, one.modified) for one in self.deletes)
        data = documents.lines_of(
            chain(({"version": PLAN_VERSION, **plain(head)},), sets, deletes, self.partitions)
        )
        if (longest := _longest(_ends_of(data))) > ROW_BYTES_MAX:
            raise self._too_large("a row", longest, ROW_BYTES_MAX, "bytes")
        if len(data) > PLAN_BYTES_MAX:
            raise self._too_large("it", len(data), PLAN_BYTES_MAX, "bytes")
        return data

    def _too_large(self, who: str, number: int, most: int, what: str) -> OptionError:
        return OptionError(
            f"job {self.job_id!r}: its plan is too large: {who} has {number} {what}, at most {most}"
            " are read by those who execute it",
            hint="Nothing was decided, and nothing is visible: abort the job, and write what it"
            " wrote as several jobs: fewer tasks or partitions each; instead of mode 'replace' of a"
            " destination with this many files, 'replace_partitions' of a part of it at a time",
        )

    @classmethod
    def decode(cls, data: bytes, source: str) -> Plan:
        """Read a plan. Its rows stay in ``data`` and are read when they are used. Raises
        FormatError: the data is not a plan, of another version, or beyond a limit."""
        if len(data) > PLAN_BYTES_MAX:
            raise FormatError(source, "", f"has {len(data)} bytes, more than {PLAN_BYTES_MAX}")
        head_bytes = data[: data.find(b"\n", 0, ROW_BYTES_MAX) + 1] or data
        if len(head_bytes) > ROW_BYTES_MAX:
            reason = f"is no plan of version {PLAN_VERSION}: its first line is too long"
            raise FormatError(source, "", reason)
        with documents.naming(source):
            document = documents.parse(head_bytes, documents.Document, ROW_BYTES_MAX)
        documents.check_version(document, source, PLAN_VERSION, UPGRADE)
        head = read_fields(_PlanHead, document, source)
        lines = 1
        for name, kind in _KINDS.items():
            if (number := getattr(head, name)) > kind.rows_max:
                raise FormatError(source, name, f"has more than {kind.rows_max} rows: {number}")
            lines += number
        if data.count(b"\n") != lines or not data.endswith(b"\n"):
            raise FormatError(source, "", f"is cut, or something follows its {lines} lines")
        ends = _ends_of(data)
        if (longest := _longest(ends)) > ROW_BYTES_MAX:
            reason = f"has a row of {longest} bytes, at most {ROW_BYTES_MAX} are read"
            raise FormatError(source, "", reason)
        found: dict[str, Any] = {}
        first = 0
        for name, kind in _KINDS.items():
            count = getattr(head, name)
            rows = found[name] = Rows(data, ends, first, count, kind.read)
            first, number = first + count, 0
            try:
                for number, _ in enumerate(rows, 1):  # noqa: B007
                    continue
            except (DecodeError, UnicodeDecodeError) as error:
                raise FormatError(source, f"{name}[{number}]", f"is no row: {error}") from None
        found["partitions"] = tuple(found["partitions"])
        return cls(
            head.job_id, head.uuid, head.nonce, head.files, head.bytes, **found, marker=head.marker
        )


Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]


@documents.readable
class _PlanHead(OwnDocument, frozen=True, omit_defaults=False):
    """The first line of a plan. ``sets``, ``deletes`` and ``partitions``: how many rows follow."""

    job_id: str
    uuid: str
    nonce: str
    files: Count
    bytes: Count
    sets: Count
    deletes: Count
    partitions: Count
    marker: ObjectRef | None


_SET = documents.reader_of(tuple[str, str, str, str])
_REF = documents.reader_of(tuple[str, str, float])


class _RowKind(NamedTuple):
    """The rows of one kind: what they are, how many may be read, and what reads one."""

    what: str
    rows_max: int
    read: Callable[[bytes], Any]


_KINDS = {
    "sets": _RowKind("tasks", PLAN_SETS_MAX, lambda row: PlannedSet(*_SET(row))),
    "deletes": _RowKind(
        "files to be replaced", PLAN_DELETES_MAX, lambda row: ObjectRef(*_REF(row))
    ),
    "partitions": _RowKind("partitions", PLAN_PARTITIONS_MAX, documents.reader_of(str)),
}


def check_plan(plan: Plan, job: StartedJob, source: str) -> None:
    """Check that a stored plan fits its job and destination. Pure.

    A process that executes a plan may have more rights than the process that wrote it. An
    operator's `cleanup` reads what anyone may have left below one destination, and must not act
    elsewhere (docs/security.md). A plan by a driver of this library always passes. Raises
    FormatError: the plan names another job, an object that is not data below the destination, a
    pendingset of another job, or one pendingset twice."""

    def refuse(field: str, reason: str) -> NoReturn:
        raise FormatError(source, field, reason, hint="Nothing of it is done: look who wrote it")

    paths, mode = job.paths, job.terms.mode
    dest = paths.dest
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
