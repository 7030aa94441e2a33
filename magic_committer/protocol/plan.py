"""The plan: what one driver wants decided. Each try stores one immutable object,
``_plan-<nonce>.json``.

The record that decides names the plan and its ETag, so that the plans of two drivers can never be
mixed (counterexamples.md, #3). Every process that executes a decision executes the plan that the
record names. A plan with another ETag is not this plan.

The plan names the accepted pendingsets, not their uploads: a job of ten million files has a plan of
some thousand lines.

A stored plan stays in memory as its bytes (`rows`): it takes its own size and 4 bytes for each row,
whatever it holds. A plan has limits (``PLAN_*_MAX``). If a job's plan is beyond them, the job is
refused before it is decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple, NoReturn

import orjson

from magic_committer._hints import UPGRADE
from magic_committer.errors import FormatError, OptionError, PathError
from magic_committer.hadoop import json
from magic_committer.hadoop.json import INT64_MAX
from magic_committer.hadoop.paths import SET_SUFFIXES, Destination, is_hidden
from magic_committer.options import BY_PARTITION, REPLACING
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.record import ObjectRef, StartedJob
from magic_committer.protocol.rows import (
    NUMBER,
    ROW_BYTES_MAX,
    SPACE,
    TEXT,
    find_rows,
    row_of,
    spaced,
    write_rows,
)
from magic_committer.protocol.strict import OwnDocument, read_fields

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


@json.readable
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
