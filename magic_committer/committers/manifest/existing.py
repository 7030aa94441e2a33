"""What is at a destination already: its data, and other jobs.

Data is every file whose name is not hidden (``_x``, ``.x``). A link or a socket is no data.

Jobs of the modes ``fail`` and ``replace``, also by partition, exclude each other. **Set up, then
look**: each writes its record before it looks, so of two that start at once at least one sees the
other. The younger one yields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magic_committer.commit.conflict import destination_exists
from magic_committer.commit.outcome import dead, told_what_to_do
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.names import is_hidden_name
from magic_committer.committers.manifest.parts import Parts
from magic_committer.errors import ConflictingJob
from magic_committer.file_trees.base import TreeEntry
from magic_committer.options import EXCLUDING
from magic_committer.protocol.record import StartedJob, State

LOOKS_MAX = 6
"""How often a job looks whether another one has ended or yielded. After that it yields itself."""
LOOK_PAUSE_SECONDS = 0.25
"""Seconds before the second look. They double each time: 8 seconds in all."""
LISTINGS_MAX = 5
"""How often a ``replace`` lists the data while other jobs publish into it."""


def data(parts: Parts, partitions: Sequence[str] | None) -> Iterator[TreeEntry]:
    """The data of the destination, or directly in its partitions (``"dt=1"``, "" for its root).

    Args:
        parts: the components.
        partitions: the partitions to look into; None: everything below the destination.
    """
    waiting = [""] if partitions is None else list(partitions)
    while waiting:
        for entry in parts.tree.list(waiting.pop()):
            if is_hidden_name(entry.name):
                continue
            if entry.kind == "file":
                yield entry
            elif entry.kind == "directory" and partitions is None:
                waiting.append(entry.path)


def refuse_data(parts: Parts, job: StartedJob, partitions: Sequence[str] | None) -> None:
    """Raise `DestinationExists` if there is data that the job must not find."""
    for entry in data(parts, partitions):
        raise destination_exists(job, f"{parts.tree.url}{entry.path}")


def to_be_replaced(
    parts: Parts, job: StartedJob, partitions: Sequence[str] | None
) -> list[TreeEntry]:
    """The data that a job of a mode ``replace`` takes the place of.

    Another job may be publishing meanwhile: half of its files must not be deleted. So the data is
    listed, then the jobs are looked at, then the data is listed again; both listings must be the
    same, and no other job may be decided and not ended.

    Raises:
        ConflictingJob: another job is publishing, and does not come to its end.
    """
    busy: records.SeenVersion | None = None
    for number in range(LISTINGS_MAX):
        first = {entry.path: entry for entry in data(parts, partitions)}
        busy = next((o for o in others(parts, job) if _publishes(o)), None)
        again = {entry.path: entry for entry in data(parts, partitions)}
        if busy is None and first == again:
            return [first[path] for path in sorted(first)]
        parts.clock.sleep(LOOK_PAUSE_SECONDS * 2**number)
    if busy is not None:
        raise _conflict(job, busy, ": it is publishing its files")
    raise ConflictingJob(
        f"{parts.tree.url} keeps changing: what job {job.id!r} would replace cannot be told",
        job_id=job.id,
        hint="Try again when no other program writes there",
    )


def _publishes(other: records.SeenVersion) -> bool:
    return other.record.state in (State.COMMITTING, State.COMPLETED, State.REVERTING)


def others(parts: Parts, job: StartedJob) -> Iterator[records.SeenVersion]:
    """The records of the other jobs under the destination that have not ended.

    Raises:
        FormatError: one cannot be read; the remedies name its job.
    """
    for paths in records.every_job(parts):
        if paths.uuid == job.uuid:
            continue
        with told_what_to_do(parts.tree.url, paths.uuid):
            seen = records.read(parts, paths)
        if seen is not None and seen.record.state is not State.CLOSED:
            yield seen


def refuse_rivals(parts: Parts, job: StartedJob, own: records.SeenVersion) -> None:
    """After setup: raise `ConflictingJob` if a live job excludes this one and does not yield.

    Args:
        parts, job: the components and the job, whose mode excludes others.
        own: its record, as it is stored.
    """
    for number in range(LOOKS_MAX):
        rivals = [o for o in others(parts, job) if o.record.terms.mode in EXCLUDING]
        if not rivals:
            return
        for rival in rivals:
            if not _yields(rival, own):
                raise _conflict(job, rival, ": this one yields to it")
        if number + 1 < LOOKS_MAX:
            parts.clock.sleep(LOOK_PAUSE_SECONDS * 2**number)
    raise _conflict(job, rivals[0], ": it has not gone yet")


def _yields(other: records.SeenVersion, own: records.SeenVersion) -> bool:
    """Whether another job will yield, if its driver lives: it ends without publishing anything, or
    it runs, is younger, and must see this one. Pure."""
    if other.record.state in (State.ABORTING, State.REVERTED):
        return True
    if other.record.state is not State.RUNNING:
        return False
    return (own.modified, own.record.uuid) < (other.modified, other.record.uuid)


def _conflict(job: StartedJob, other: records.SeenVersion, more: str) -> ConflictingJob:
    record = other.record
    return ConflictingJob(
        f"job {record.id!r} ({record.terms.mode}, {record.state}) lives under {job.dest}{more}",
        job_id=job.id,
        hint="Try again when it has ended",
        remedies=dead(job.dest, record.id),
    )
