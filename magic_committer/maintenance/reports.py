"""What the operator's calls take and give: limits, ages, reports. Plain values.

Every age is the store's: the newest Last-Modified against the Date of the same reply. No clock of
this machine is asked, so one that is wrong does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal

from magic_committer.commit.closed import CLOSED_SECONDS, GRAIN_SECONDS, age_of
from magic_committer.errors import OptionError
from magic_committer.protocol.record import JobReport

__all__ = [
    "CLOSED_SECONDS",
    "DEAD_SECONDS",
    "GRAIN_SECONDS",
    "LEFTOVER_SECONDS",
    "NAMED_MAX",
    "Age",
    "CleanupReport",
    "FoundJob",
    "JobKind",
    "Recovery",
    "age_of",
    "seconds",
]

DEAD_SECONDS = 24 * 3600.0
"""A running job of which nothing has changed for this long is dead."""
LEFTOVER_SECONDS = 3600.0
"""Decided jobs that nobody finishes, uploads and control objects of jobs that are over: left alone
so long. A request that is late executes within 15 minutes (Signature V4)."""
NAMED_MAX = 100
"""Keys that a report names of each kind."""

JobKind = Literal["ours", "hadoop", "litter", "unreadable"]
"""Of a job's directory: with a record; of Hadoop's committer (no record, no token of ours); without
a record but with tokens of ours; with a record that this version cannot read."""

Age = timedelta | float
"""A duration: a `timedelta`, or seconds."""


def seconds(name: str, value: Age) -> float:
    """A limit in seconds.

    Raises:
        OptionError: not a duration, or below 0.
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        raise OptionError(f"{name} is a timedelta or seconds from 0 on, not {value!r}")
    return float(number)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """One job's directory as `inspect` found it.

    Attributes:
        id: names the directory. dest: the destination's URL.
        state: of the record, ``"absent"`` without one. outcome: as of `JobReport`.
        given_id: whether the caller of `start` chose the id.
        started: by the starter's clock, seconds since the epoch; 0 where it is not known.
        age: seconds, at least, since anything in the directory changed, by the store's clock.
        role, host, pid: of the process that decided the job; while it runs, of the one that last
            said that it lives.
        objects: control objects in the directory, the record too.
        tasks, files, bytes: pending: of the plan once there is one; else of what the tasks left.
        visible, missing: of a ``committing`` job, the planned files that are visible already, and
            those that `recover` will not resolve by itself; else None.
        problem: why the record, or something else there, cannot be read.
        would: what `recover` would do, in one sentence.
        directory: where what its tasks left lies, below the destination.
        adopted: of a Hadoop job that was adopted: where its pendingsets lie below the destination.
        missing_keys: the first 100 of ``missing``.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return _dict(self)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What `recover` found and did.

    Attributes:
        found: the record's state when it looked; ``"absent"``: no record.
        state: the record's state afterwards. ``"closed"``: all is done. Another one: see
            ``report.warnings``, and recover again.
        outcome: ``"committed"``, ``"aborted"``, ``"reverted"``, or "" for "unknown".
        did: what was done, or with ``dry_run`` what would be, in one sentence.
        unresolved: with ``dry_run``, the first keys that need the operator's word (``accept``).
        report: of the commit or abort, if there was one.
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
        """Plain JSON values."""
        return _dict(self)


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What `cleanup` did; with ``dry_run``, what it would do.

    Attributes:
        recovered: the jobs that were aborted or finished.
        jobs_left: directories that were left as they are: live jobs, Hadoop's.
        uploads_aborted: uploads of jobs that are over, found by name or named by litter.
        uploads_left: uploads of such jobs that are too young, have no age, whose job could not be
            looked for, or that could not be removed (``errors`` says why).
        objects_deleted: control objects that a job left behind.
        records_deleted: closed records.
        did: a line for each thing done, the first 100 of each kind.
        errors: what failed. It did not stop the rest; the next cleanup tries again.
        unfinished: with ``finish=False``, the decided jobs that nobody finishes: what `recover`
            would do with them.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return _dict(self)


def _dict(value: Any) -> dict[str, Any]:
    return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
