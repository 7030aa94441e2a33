"""The plan: what one driver wants decided. One immutable object a try, ``plan-<nonce>.json``.

The record that decides names the plan and its ETag, so two drivers with two plans can never be
mixed (counterexamples.md, #3): whoever executes, executes the plan that the record names, and a
plan with another ETag is not it.

The plan names the accepted pendingsets, not their uploads: a job of ten million files has a plan of
some thousand lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import orjson

from magic_committer.errors import FormatError, PathError
from magic_committer.job import ObjectRef, StartedJob
from magic_committer.options import BY_PARTITION, REPLACING
from magic_committer.paths import PENDINGSET_SUFFIX, Destination, is_hidden
from magic_committer.runtime import Runtime
from magic_committer.store import same_etag
from magic_committer.strict import Reader, read_document

PLAN_VERSION = 2
PLAN_VERSIONS = (1, PLAN_VERSION)
"""Versions that are read. The first names replaced objects without their Last-Modified."""
PLAN_BYTES_MAX = 512 * 1024**2
"""One million tasks; a larger plan is refused before anything is decided."""


@dataclass(frozen=True, slots=True)
class PlannedSet:
    """One accepted `.pendingset`: its key below `JobPaths.tree` and its exact version."""

    name: str
    etag: str
    task: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to become visible, and by whom it was planned (``nonce``).

    Attributes:
        deletes: objects that the job replaces, each as it was when planned: ETag and Last-Modified.
        partitions: in the modes by partition: what the job writes, e.g. ``("dt=1/",)``.
        marker: in mode ``replace``: the old `_SUCCESS`, deleted before anything is visible.
    """

    job_id: str
    uuid: str
    nonce: str
    files: int
    data_bytes: int
    sets: tuple[PlannedSet, ...]
    deletes: tuple[ObjectRef, ...] = ()
    partitions: tuple[str, ...] = ()
    marker: ObjectRef | None = None

    def encode(self) -> bytes:
        """The bytes of the plan's object: compact JSON."""
        return orjson.dumps(
            {
                "version": PLAN_VERSION,
                "job_id": self.job_id,
                "uuid": self.uuid,
                "nonce": self.nonce,
                "files": self.files,
                "bytes": self.data_bytes,
                "sets": [[s.name, s.etag, s.task, s.attempt] for s in self.sets],
                "deletes": [_row(d) for d in self.deletes],
                "partitions": self.partitions,
                "marker": _row(self.marker) if self.marker else None,
            }
        )

    @classmethod
    def decode(cls, data: bytes, source: str) -> Plan:
        """Read a plan.

        Raises:
            FormatError: it is not one, or of a newer version.
        """
        read = Reader(read_document(data, source, PLAN_BYTES_MAX), source)
        version = read.take("version", int)
        if version not in PLAN_VERSIONS:
            raise FormatError(
                source, "version", f"is {version}, this library knows {PLAN_VERSION}",
                hint="Upgrade magic-committer",
            )  # fmt: skip
        marker = read.take("marker", (list, type(None)))
        plan = cls(
            job_id=read.take("job_id", str),
            uuid=read.take("uuid", str),
            nonce=read.take("nonce", str),
            files=read.take("files", int),
            data_bytes=read.take("bytes", int),
            sets=tuple(
                PlannedSet(*_texts(row, 4, f"sets[{n}]", source))
                for n, row in enumerate(read.take("sets", list))
            ),
            deletes=tuple(
                _ref(row, f"deletes[{n}]", source)
                for n, row in enumerate(read.take("deletes", list))
            ),
            partitions=tuple(
                _texts([row], 1, f"partitions[{n}]", source)[0]
                for n, row in enumerate(read.take("partitions", list))
            ),
            marker=None if marker is None else _ref(marker, "marker", source),
        )
        read.nothing_left()
        return plan


def _texts(row: object, count: int, field: str, source: str) -> list[str]:
    if isinstance(row, list) and len(row) == count and all(isinstance(x, str) for x in row):
        return row
    raise FormatError(source, field, f"is not a row of {count} texts")


def _row(ref: ObjectRef) -> list[str | float]:
    return [ref.key, ref.etag, ref.modified]


def _ref(row: object, field: str, source: str) -> ObjectRef:
    modified = 0.0  # the first version did not write it
    if isinstance(row, list) and len(row) == 3 and type(row[2]) in (int, float):
        row, modified = row[:2], float(row[2])
    key, etag = _texts(row, 2, field, source)
    return ObjectRef(key, etag, modified)


def check_plan(plan: Plan, job: StartedJob, source: str) -> None:
    """Hold a stored plan against its job and destination. Pure.

    Whoever executes a plan may have more rights than whoever wrote it: an operator's `cleanup`
    reads what anybody may have left below one destination, and must not act elsewhere
    (docs/security.md). A plan of a driver of this library passes by how it was made.

    Raises:
        FormatError: it names another job, an object that is not below the destination or not data,
            or a pendingset that is not the job's.
    """

    def refuse(field: str, reason: str) -> NoReturn:
        raise FormatError(source, field, reason, hint="Nothing of it is done: look who wrote it")

    dest, paths, mode = Destination.parse(job.dest), job.paths, job.terms.mode
    for field, told, true in (("job_id", plan.job_id, job.id), ("uuid", plan.uuid, job.uuid)):
        if told != true:
            refuse(field, f"is {told!r}, the job's is {true!r}")
    for number, planned in enumerate(plan.sets):
        if not _is_set_of(f"{paths.tree}{planned.name}", planned.attempt, job):
            refuse(f"sets[{number}]", f"{planned.name!r} is no pendingset of the job")
    if plan.deletes and mode not in REPLACING:
        refuse("deletes", f"a job of mode {mode!r} replaces nothing")
    for number, ref in enumerate(plan.deletes):
        if not dest.contains(ref.key) or is_hidden(relative := dest.relative(ref.key)):
            refuse(f"deletes[{number}]", f"{ref.key!r} is no data below {dest.url}")
        directory, slash, _ = relative.rpartition("/")
        if mode in BY_PARTITION and directory + slash not in plan.partitions:
            refuse(f"deletes[{number}]", f"{ref.key!r} lies in no partition of the job")
    if plan.marker is not None and (mode, plan.marker.key) != ("replace", dest.success_key):
        refuse("marker", f"{plan.marker.key!r} is not the _SUCCESS that the job may replace")


def _is_set_of(key: str, attempt: str, job: StartedJob) -> bool:
    try:
        ours = job.paths.pendingset(attempt)
    except PathError:
        ours = ""
    if not job.adopted:
        return key == ours
    home = job.paths.job_attempt  # Hadoop's are named for the task
    name = key.removeprefix(home)
    return key.startswith(home) and "/" not in name and name.endswith(PENDINGSET_SUFFIX)


def load_plan(runtime: Runtime, job: StartedJob, ref: ObjectRef) -> Plan:
    """Read the plan that a job's record names, and hold it against the job. One GET.

    Raises:
        NotFound: it is gone: read the record again, somebody finished the job.
        FormatError: what is there is not the version that was decided, or not a plan of the job.
    """
    stored = runtime.store.get(ref.key, max_bytes=PLAN_BYTES_MAX)
    if not same_etag(stored.info.etag, ref.etag):
        raise FormatError(ref.key, "", "is not the version that the job's record names")
    plan = Plan.decode(stored.body, ref.key)
    check_plan(plan, job, ref.key)
    return plan
