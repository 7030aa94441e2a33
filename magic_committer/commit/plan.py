"""The plan: what one driver wants decided. One immutable object a try, ``plan-<nonce>.json``.

The record that decides names the plan and its ETag, so two drivers with two plans can never be
mixed (counterexamples.md, #3): whoever executes, executes the plan that the record names, and a
plan with another ETag is not it.

The plan names the accepted pendingsets, not their uploads: a job of ten million files has a plan of
some thousand lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from magic_committer.errors import FormatError
from magic_committer.job import ObjectRef, Reader, read_document
from magic_committer.runtime import Runtime
from magic_committer.store import same_etag

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


def load_plan(runtime: Runtime, ref: ObjectRef) -> Plan:
    """Read the plan that a record names. One GET.

    Raises:
        NotFound: it is gone: read the record again, somebody finished the job.
        FormatError: what is there is not the version that was decided.
    """
    stored = runtime.store.get(ref.key, max_bytes=PLAN_BYTES_MAX)
    if not same_etag(stored.info.etag, ref.etag):
        raise FormatError(ref.key, "", "is not the version that the job's record names")
    return Plan.decode(stored.body, ref.key)
