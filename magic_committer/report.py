"""What became of a job, as a value: `JobReport`, and the `Decider` that it may name.

This module stands below all others, so that an error can carry a report (`errors.JobError.report`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from magic_committer._quantities import counted


class Told:
    """What a call tells, as plain values."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values, field by field."""
        names = (one.name for one in fields(self) if one.name[0] != "_")  # type: ignore[arg-type]
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Told):
        return value.to_dict()
    if isinstance(value, str):
        return str(value)  # a record's state
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Decider(Told):
    """The process that decided a job: for people who look, and for a driver that obeys the decision
    of another process.

    Attributes:
        role: ``"driver"`` or ``"recovery"``.
        host: the name of its machine.
        pid: its process id on that machine.
    """

    role: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class JobReport(Told):
    """What became of a job. ``str(report)`` is one line for people.

    Attributes:
        job_id: the job's id, the name of its directory; "" if no job was started (``skipped``).
        uuid: 32 hex digits that name the job in tokens and unique names.
        dest: the destination's URL.
        mode: the job's mode, in the library's own words: ``"replace"``, even if the caller wrote
            ``"overwrite"``.
        outcome: ``"committed"``, ``"aborted"``, ``"reverted"``, or "" if the job failed before its
            decision.
        state: the last state of the record that this process saw.
        tasks, files, bytes: the numbers of tasks, files and bytes that the plan names.
        filenames: the first 100 keys, in no order, each with a leading ``/`` as in `_SUCCESS`.
        decider: the other process that decided the job, if this process obeyed it; otherwise None.
        warnings: what failed after the job was committed; the job's data is visible all the same.
        left_open: uploads of the job that could not be aborted, as ``key uploadId``.
        unattributed: open uploads under the destination whose names tell no job. They may belong to
            killed attempts with names that the user chose, or to another program.
        skipped: True if nothing was written. Either the destination has data (Spark's mode
            ``ignore``); or the batch of a streaming query is published already (``query`` is set
            then), by another job.
        query, batch: the streaming query and the number of its batch that the job is for; "" and
            None if it is for none.
        error: the reason of the failure, as ``"Class: message"``; "" if there was none.
        seconds: duration of the commit or abort, in seconds.
        statistics: counters in the shape of Hadoop's ``iostatistics``.
        transport: what sent this process's requests: ``"fast"``, or ``"boto3 (why)"`` with the
            reason why it was not the fast way; "" if nobody can tell, as of a store in memory.
    """

    job_id: str
    uuid: str
    dest: str
    mode: str
    outcome: str
    state: str
    tasks: int = 0
    files: int = 0
    bytes: int = 0
    filenames: tuple[str, ...] = ()
    decider: Decider | None = None
    warnings: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()
    unattributed: int = 0
    skipped: bool = False
    query: str = ""
    batch: int | None = None
    error: str = ""
    seconds: float = 0.0
    statistics: Mapping[str, Any] = field(default_factory=dict)
    transport: str = ""

    def __str__(self) -> str:
        """Give one line for people: for a log, or a cell of a notebook."""
        if self.skipped and self.query:
            told = f"batch {self.batch} of query {self.query} is published already"
            return f"nothing was written to {self.dest}: {told}"
        if self.skipped:
            return f"nothing was written to {self.dest}: it holds data"
        said = [f"job {self.job_id} {self._what_happened()}"]
        if self.error:
            said.append(self.error)
        said += self._what_is_left()
        return " ".join("; ".join(said).split())

    def _what_happened(self) -> str:
        if not self.outcome:
            return f"in {self.dest}: not decided (its record: {self.state})"
        by = f" by {self.decider.role} on {self.decider.host}" if self.decider else ""
        told = f"{self.outcome}{by} in {self.dest}"
        if self.outcome == "committed" and (self.tasks or self.files):
            told += (
                f": {counted(self.files, 'file')} of {counted(self.tasks, 'task')},"
                f" {counted(self.bytes, 'byte')}"
            )
        return f"{told}, {self.seconds:.1f} s" if self.seconds else told

    def _what_is_left(self) -> list[str]:
        left = []
        if self.outcome and self.state not in ("absent", "closed"):
            left.append(f"not finished (its record: {self.state})")
        if self.left_open:
            left.append(f"{counted(len(self.left_open), 'upload')} left open")
        if self.warnings:
            left.append(f"{counted(len(self.warnings), 'warning')}: {self.warnings[0]}")
        return left
