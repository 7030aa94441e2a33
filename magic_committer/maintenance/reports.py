"""What the operator's calls take and give: limits, ages, reports. Plain values.

Every age comes from the store: the newest Last-Modified against the Date of the same reply. No
clock of this machine is used, so a wrong clock does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal

from magic_committer.commit.closed import (
    FORGET_AFTER_SECONDS,
    FORGET_GIVEN_AFTER_SECONDS,
    GRAIN_SECONDS,
    age_of,
)
from magic_committer.errors import OptionError
from magic_committer.protocol.record import JobReport

__all__ = [
    "DEAD_AFTER_SECONDS",
    "FORGET_AFTER_SECONDS",
    "FORGET_GIVEN_AFTER_SECONDS",
    "GRAIN_SECONDS",
    "LEFTOVER_AFTER_SECONDS",
    "NAMED_MAX",
    "Age",
    "CleanupReport",
    "FoundJob",
    "JobKind",
    "Recovery",
    "age_of",
    "seconds",
]

DEAD_AFTER_SECONDS = 24 * 3600.0
"""A running job is dead if nothing of it has changed for this long."""
LEFTOVER_AFTER_SECONDS = 3600.0
"""Decided jobs that nobody finishes, and uploads and control objects of jobs that are over, are
left alone for this long. A late request begins within 15 minutes (Signature V4)."""
NAMED_MAX = 100
"""How many keys of each kind a report names."""

JobKind = Literal["ours", "hadoop", "litter", "unreadable"]
"""What a job's directory holds. ``"ours"``: a record. ``"hadoop"``: a job of Hadoop's committer (no
record, no token of ours). ``"litter"``: no record, but tokens of ours. ``"unreadable"``: a record
that this version cannot read."""

Age = timedelta | float
"""A duration: a `timedelta`, or seconds."""


def seconds(name: str, value: Age) -> float:
    """Give a limit in seconds.

    Raises:
        OptionError: the value is not a duration, or it is below 0.
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        raise OptionError(f"{name} is a timedelta or seconds from 0 on, not {value!r}")
    return float(number)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """One job's directory, as `inspect` found it.

    Attributes:
        id: the job's id, the name of the directory.
        dest: the destination's URL.
        kind: what the directory holds (`JobKind`).
        state: the record's state; ``"absent"`` without a record.
        outcome: as in `JobReport`.
        uuid, mode, accept, track: as the job was started; "" without a readable record.
        given_id: whether the caller of `start` chose the id.
        started: when the job was started, by the starter's clock, in seconds since the epoch; 0 if
            not known.
        age: seconds, at least, since the last change in the directory, by the store's clock.
        role, host, pid: the process that decided the job; while the job runs, the process that last
            gave a sign of life.
        objects: how many control objects are in the directory, with the record.
        tasks, files, bytes: what is waiting to be published, as the plan says; without a plan, as
            the tasks left it.
        visible: for a ``committing`` job: how many planned files are visible already; otherwise
            None.
        missing: for a ``committing`` job: how many files `recover` will not resolve by itself;
            otherwise None.
        problem: why the record or another object in the directory cannot be read.
        would: what `recover` would do, in one sentence.
        directory: where the tasks' results are, below the destination.
        adopted: for an adopted Hadoop job: where its pendingsets are, below the destination.
        missing_keys: the first 100 keys of ``missing``.
        query, batch: what a decided job of a streaming query publishes: the query's id, and the
            number of the batch; "" and None for all other jobs.
        checkpoint: for a job of a streaming query: the hash of the query's checkpoint; else "".
    """

    id: str
    dest: str
    kind: JobKind
    uuid: str = ""
    state: str = "absent"
    outcome: str = ""
    mode: str = ""
    accept: str = ""
    track: str = ""
    given_id: bool = False
    started: float = 0.0
    age: float = 0.0
    role: str = ""
    host: str = ""
    pid: int = 0
    objects: int = 0
    tasks: int = 0
    files: int = 0
    bytes: int = 0
    visible: int | None = None
    missing: int | None = None
    problem: str = ""
    would: str = ""
    directory: str = ""
    adopted: str = ""
    missing_keys: tuple[str, ...] = ()
    query: str = ""
    batch: int | None = None
    checkpoint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values."""
        return _dict(self)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What `recover` found and did.

    Attributes:
        job_id, uuid: the job's id and UUID.
        dest: the destination's URL.
        found: the record's state before; ``"absent"``: no record.
        state: the record's state afterwards. ``"closed"``: everything is done. Another state: see
            ``report.warnings``, and recover again.
        outcome: ``"committed"``, ``"aborted"``, ``"reverted"``, or "" for "unknown".
        did: what was done, in one sentence; with ``dry_run``, what would be done.
        dry_run: whether nothing was changed.
        unresolved: with ``dry_run``, the first keys that the operator must accept (``accept``).
        report: the report of the commit or abort; None if there was none.
    """

    job_id: str
    dest: str
    found: str
    state: str
    outcome: str
    did: str
    uuid: str = ""
    dry_run: bool = False
    unresolved: tuple[str, ...] = ()
    report: JobReport | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values."""
        return _dict(self)


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What `cleanup` did; with ``dry_run``, what it would do.

    Attributes:
        dest: the destination's URL.
        dry_run: whether nothing was changed.
        recovered: the jobs that were aborted or finished.
        jobs_left: directories that were left as they are: live jobs, and Hadoop's jobs.
        uploads_aborted: uploads of jobs that are over, found by name or named by litter.
        uploads_left: uploads of such jobs that were left: they are too young, have no age, their
            job could not be looked for, or they could not be removed (``errors`` says why).
        uploads_nameless: open uploads that tell no job by their names and are older than a
            week: those of other programs, above all.
        objects_deleted: control objects that a job left behind.
        records_deleted: closed records.
        did: a line for each thing done, the first 100 of each kind.
        errors: what failed. A failure did not stop the rest; the next cleanup tries again. Also:
            why uploads may be open that no listing of the store shows.
        unfinished: with ``finish=False``: what `recover` would do with decided jobs that nobody
            finishes.
    """

    dest: str
    dry_run: bool
    recovered: tuple[Recovery, ...]
    jobs_left: int
    uploads_aborted: int
    uploads_left: int
    objects_deleted: int
    records_deleted: int
    did: tuple[str, ...]
    errors: tuple[str, ...]
    unfinished: tuple[Recovery, ...] = ()
    uploads_nameless: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values."""
        return _dict(self)


def _dict(value: Any) -> dict[str, Any]:
    return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
