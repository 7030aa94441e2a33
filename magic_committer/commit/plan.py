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

PLAN_VERSION = 1
PLAN_BYTES_MAX = 512 * 1024**2
"""One million tasks; a larger plan is refused before anything is decided."""


@dataclass(frozen=True, slots=True)
class PlannedSet:
    """One accepted `.pendingset`: its key below the job's directory and its exact version."""

    name: str
    etag: str
    task: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to become visible, and by whom it was planned (``nonce``)."""

    job_id: str
    uuid: str
    nonce: str
    files: int
    data_bytes: int
    sets: tuple[PlannedSet, ...]

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
        if version != PLAN_VERSION:
            raise FormatError(
                source, "version", f"is {version}, this library knows {PLAN_VERSION}",
                hint="Upgrade magic-committer",
            )  # fmt: skip
        plan = cls(
            job_id=read.take("job_id", str),
            uuid=read.take("uuid", str),
            nonce=read.take("nonce", str),
            files=read.take("files", int),
            data_bytes=read.take("bytes", int),
            sets=tuple(_planned(row, n, source) for n, row in enumerate(read.take("sets", list))),
        )
        read.nothing_left()
        return plan


def _planned(row: object, number: int, source: str) -> PlannedSet:
    if isinstance(row, list) and len(row) == 4 and all(isinstance(x, str) for x in row):
        return PlannedSet(*row)
    raise FormatError(source, f"sets[{number}]", "is not [name, etag, task, attempt]")


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
