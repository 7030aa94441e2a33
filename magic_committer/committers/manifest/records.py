"""The job record on a file tree: one file for each version, created exclusively.

Invariants:

* The record is the newest version. A swap creates the version behind the one that it leaves: of all
  processes that leave one version, one succeeds. So a job is decided at most once.
* A version is whole or not there, and never changes (`FileTree.create`).
* Whoever lost the answer to a create reads the version back and knows its own by the nonce.
* A record goes only with its whole directory, which is renamed first, or, where directories are not
  real, version 1 first. A reader that finds no version 1 at the end finds no record. Where
  directories are real, nobody can bring one back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from magic_committer._hints import ID_USED_ONCE
from magic_committer.committers.manifest.names import (
    CLAIM_PREFIX,
    SPARE_SUFFIX,
    TEMPORARY,
    TreeJobPaths,
    claim_of,
    is_uuid,
    uuid_of,
    version_of,
)
from magic_committer.committers.manifest.parts import TRIES_MAX, Parts
from magic_committer.errors import (
    FormatError,
    JobExists,
    NotFound,
    OutcomeUnknown,
    PathError,
    PreconditionFailed,
    StoreError,
    Unanswered,
)
from magic_committer.file_trees.base import CONTROL_BYTES_MAX, make_directories
from magic_committer.hadoop.paths import PLAN_PREFIX, SUCCESS
from magic_committer.protocol.record import RECORD_BYTES_MAX, JobRecord, State, Terms
from magic_committer.protocol.strict import Reader, read_document
from magic_committer.remedy import Remedy

VERSIONS_MAX = 99
"""A job's record has 6 versions at most."""

_PLAN = re.compile(rf"{PLAN_PREFIX}[A-Za-z0-9._=-]{{1,128}}\.jsonl")


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """A record as it is stored.

    Attributes:
        paths: the job's paths.
        version: the number of its newest version.
        record: what that says.
        modified: when it was written, by the file system's clock; 0.0: not known.
    """

    paths: TreeJobPaths
    version: int
    record: JobRecord
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class SwappedVersion:
    """The result of a swap. ``now``: the newest version; None if there is no record any more.
    ``won``: the swap created the version that follows the one it left."""

    won: bool
    now: SeenVersion | None


def read(parts: Parts, paths: TreeJobPaths) -> SeenVersion | None:
    """Read the newest version; None if there is no record.

    Raises:
        FormatError: a version is no record, or speaks of another job.
        StoreError: it could not be read.
    """
    seen: SeenVersion | None = None
    for version in range(1, VERSIONS_MAX + 1):
        record = _version(parts, paths, version)
        if record is None:
            break
        seen = SeenVersion(paths, version, record)
    if seen is None:
        return None
    first = parts.again(lambda: parts.tree.stat(paths.record(1)))
    if first is None:
        return None  # the record went while it was read
    newest = first
    if seen.version > 1:
        last = seen.version
        found = parts.again(lambda: parts.tree.stat(paths.record(last)))
        if found is None:
            return None
        newest = found
    return SeenVersion(paths, seen.version, seen.record, newest.modified)


def _version(parts: Parts, paths: TreeJobPaths, version: int) -> JobRecord | None:
    path = paths.record(version)
    try:
        data = parts.again(lambda: parts.tree.read(path, RECORD_BYTES_MAX))
    except NotFound:
        return None
    record = JobRecord.decode(data, path)
    _check_is_at_home(record, paths, path)
    return record


def _check_is_at_home(record: JobRecord, paths: TreeJobPaths, path: str) -> None:
    """Check a record against its place. Anyone who may write below the destination may have written
    it: so it may only speak of its own directory (docs/security.md). Pure."""
    if record.uuid != paths.uuid:
        raise FormatError(path, "uuid", f"is {record.uuid!r}: the record of another job lies here")
    if not (record.given_id or record.uuid == record.id):
        raise FormatError(path, "id", f"is {record.id!r}: it is neither given nor the UUID")
    try:
        claim_of(record.id)
    except PathError as error:
        raise FormatError(path, "id", error.message) from error
    if record.adopted:
        raise FormatError(path, "adopted", "no job of renames is adopted")
    plan = record.plan.key if record.plan is not None else ""
    if plan and not _PLAN.fullmatch(plan.removeprefix(f"{paths.directory}/")):
        raise FormatError(path, "plan", f"is {plan!r}: no plan of the job")
    if record.marker is not None and record.marker.key != SUCCESS:
        raise FormatError(path, "marker", f"is {record.marker.key!r}: not {SUCCESS!r}")


def create(parts: Parts, record: JobRecord) -> SeenVersion:
    """Make the directory of a job and the first version of its record. The UUID is new, so nothing
    can be in the way.

    Raises:
        OutcomeUnknown: no clear answer came. The record may be there.
        StoreError: the file system refused it. There is no record.
    """
    paths = TreeJobPaths(record.uuid)
    parts.again(parts.tree.make_root)
    for number in range(TRIES_MAX):
        try:
            for directory in (paths.tasks, paths.manifests, paths.trash):
                make_directories(parts.tree, directory)
            # What is decided on must be found again after a power cut, from the root on.
            parts.tree.sync([], [paths.job_attempt, paths.directory, TEMPORARY, ""])
            parts.tree.create(paths.record(1), record.encode())
        except PreconditionFailed:
            there = _read_back(parts, paths, record.id)
            if there is None or there.record.nonce != record.nonce:
                raise
            return there
        except (NotFound, Unanswered) as error:
            # NotFound: another job that ended has removed an empty directory above.
            last: StoreError = error
            parts.pause(number)
            continue
        return SeenVersion(paths, 1, record)
    raise OutcomeUnknown(
        f"the record of job {record.id!r} could not be written: {last.message}",
        job_id=record.id,
        hint="Start a new job; nothing of this one will become visible",
    )


def take_unrecorded(parts: Parts, paths: TreeJobPaths) -> bool:
    """Take the directory of a job that has no record, so that none can get one: a driver that was
    paused before it wrote version 1 finds ours. Repeatable.

    Returns:
        Whether nobody has the job. False: it has a record now.

    Raises:
        StoreError: it could not be written. Nothing was changed.
    """
    record = JobRecord(
        id=paths.uuid,
        uuid=paths.uuid,
        state=State.CLOSED,
        nonce=parts.ids(),
        terms=Terms(track="memory", committer="manifest"),
        given_id=False,
        started=parts.clock.now(),
        outcome="aborted",
    )
    if any((version_of(entry.name) or 0) > 1 for entry in list(parts.tree.list(paths.directory))):
        # Where directories are not real: of a job that had a record, and is forgotten. Or a job has
        # started, and was decided, since the caller looked.
        return _version(parts, paths, 1) is None
    try:
        parts.tree.create(paths.record(1), record.encode())
    except NotFound:
        return True  # the directory has gone meanwhile
    except (PreconditionFailed, Unanswered):
        there = _version(parts, paths, 1)
        return there is None or there.nonce == record.nonce
    return True


def swap(parts: Parts, leaves: SeenVersion, record: JobRecord) -> SwappedVersion:
    """Follow the version ``leaves`` by ``record``, if no other process was faster.

    Raises:
        OutcomeUnknown: no clear answer came: the swap may have won, or may still win.
        StoreError: the file system refused it at once: it has not won, and will not.
    """
    version = leaves.version + 1
    path = leaves.paths.record(version)
    doubtful: StoreError | None = None
    for number in range(TRIES_MAX):
        try:
            parts.tree.create(path, record.encode())
            if _is_forgotten(parts, leaves.paths, record.id):
                return SwappedVersion(False, None)
            return SwappedVersion(True, SeenVersion(leaves.paths, version, record))
        except (PreconditionFailed, NotFound):
            pass  # perhaps by our own success
        except Unanswered as error:
            doubtful = error
        except StoreError:
            if doubtful is None:
                raise
        now = _read_back(parts, leaves.paths, record.id)
        if now is None:
            return SwappedVersion(False, None)
        if now.version >= version:
            there = now.record if now.version == version else _reread(parts, now, version)
            return SwappedVersion(there is not None and there.nonce == record.nonce, now)
        parts.pause(number)
    raise _unclear(parts, record, doubtful)


def _reread(parts: Parts, now: SeenVersion, version: int) -> JobRecord | None:
    """A version that is not the newest any more. A look that fails must not be told as a refusal:
    our own swap may have won."""
    try:
        return _version(parts, now.paths, version)
    except StoreError as error:
        raise _unread(parts, now.record.id, error) from error


def _is_forgotten(parts: Parts, paths: TreeJobPaths, job_id: str) -> bool:
    """Whether a version was created in a job whose record is gone. Only where directories are not
    real: there the create of a driver that was paused until its job had ended and was forgotten
    succeeds, and decides nothing. The first version goes first, so it tells."""
    if parts.tree.promises.directories:
        return False
    try:
        return parts.again(lambda: parts.tree.stat(paths.record(1))) is None
    except StoreError as error:  # no refusal: the version is there
        raise _unread(parts, job_id, error) from error


def _read_back(parts: Parts, paths: TreeJobPaths, job_id: str) -> SeenVersion | None:
    try:
        return read(parts, paths)
    except StoreError as error:
        raise _unread(parts, job_id, error) from error


def _unread(parts: Parts, job_id: str, error: StoreError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"a write of job {job_id!r}'s record was not answered clearly, and the record cannot"
        f" be read: {error.message}",
        job_id=job_id,
        remedies=(Remedy("show", parts.tree.url, job_id, "ask again later"),),
    )


def _unclear(parts: Parts, record: JobRecord, why: StoreError | None) -> OutcomeUnknown:
    told = f": {why.message}" if why is not None else ""
    return OutcomeUnknown(
        f"whether job {record.id!r} is {record.state} cannot be told: the file system gives no"
        f" clear answer{told}",
        job_id=record.id,
        hint=why.advice if why is not None else "",
        remedies=(Remedy("show", parts.tree.url, record.id, "ask again later"),),
    )


def set_aside(parts: Parts, paths: TreeJobPaths) -> str:
    """Take a job's record away, with its directory, and give where that is now. Repeatable. Where
    directories are real it is renamed: nobody can write into it any more, or take half of it for
    the whole. Elsewhere the versions are deleted, the first one first."""
    tree = parts.tree
    if not tree.promises.directories:
        versions = [e.path for e in tree.list(paths.directory) if version_of(e.name)]
        for path in sorted(versions, key=_version_number):
            tree.remove(path)
        return paths.directory
    gone = paths.ended(parts.ids())
    try:
        tree.rename(paths.directory, gone)
    except (NotFound, Unanswered):
        if parts.again(lambda: tree.stat(paths.directory)) is not None:
            raise
    return gone


def _version_number(path: str) -> int:
    return version_of(path.rpartition("/")[2]) or 0


# Ids ----------------------------------------------------------------------------------------------


def claim(parts: Parts, record: JobRecord) -> None:
    """Take a given id for a job whose record is written.

    Raises:
        JobExists: another job has it.
        OutcomeUnknown, StoreError: as for `create`.
    """
    path = claim_of(record.id)
    body = orjson.dumps({"version": 1, "uuid": record.uuid})
    for number in range(TRIES_MAX):
        try:
            parts.tree.create(path, body)
            return
        except PreconditionFailed as error:
            if _claimed(parts, record.id) == record.uuid:
                return  # by a create whose answer was lost
            raise JobExists(
                f"job {record.id!r} exists already under {parts.tree.url}",
                job_id=record.id,
                hint=ID_USED_ONCE,
            ) from error
        except Unanswered as error:
            last = error
            parts.pause(number)
    raise OutcomeUnknown(
        f"whether the id {record.id!r} is taken cannot be told: {last.message}", job_id=record.id
    )


def _claimed(parts: Parts, job_id: str) -> str | None:
    """The UUID of the job that has taken a given id; None: nobody has."""
    return _claim_in(parts, claim_of(job_id))


def _claim_in(parts: Parts, path: str) -> str | None:
    try:
        data = parts.again(lambda: parts.tree.read(path, CONTROL_BYTES_MAX))
    except NotFound:
        return None
    reader = Reader(read_document(data, path, CONTROL_BYTES_MAX), path)
    if reader.take("version", int) != 1:
        raise FormatError(path, "version", "is not 1")
    uuid: str = reader.take("uuid", str)
    if not is_uuid(uuid):
        raise FormatError(path, "uuid", f"is {uuid!r}: no UUID")
    return uuid


def find(parts: Parts, job_id: str) -> TreeJobPaths | None:
    """The paths of the job with that id, drawn or given; None: no job has it.

    Raises:
        PathError: the id cannot be used.
        FormatError, StoreError: it cannot be read who has it.
    """
    claimed = _claimed(parts, job_id)
    if claimed is not None:
        return TreeJobPaths(claimed)
    return TreeJobPaths(job_id) if is_uuid(job_id) else None


def read_by_id(parts: Parts, job_id: str) -> SeenVersion | None:
    """The record of the job with that id, or with that UUID; None if there is none. Raises as
    `find` and `read`."""
    paths = find(parts, job_id)
    seen = read(parts, paths) if paths is not None else None
    if seen is not None and job_id not in (seen.record.id, seen.record.uuid):
        raise FormatError(claim_of(job_id), "uuid", f"names job {seen.record.id!r}")
    return seen


def id_of(parts: Parts, record: JobRecord) -> str:
    """The id by which a job is found: the given one, if it has got it; else its UUID. A job that
    died at its start may have written its record and not claimed its id."""
    if not record.given_id or _claimed(parts, record.id) == record.uuid:
        return record.id
    return record.uuid


def forget_id(parts: Parts, job_id: str, uuid: str) -> None:
    """Let a given id be used again, if that job still has it. Repeatable.

    Another process may have freed it, and a new job taken it, before our call arrives. So the claim
    is renamed first, looked at there, and put back if it is another job's.
    """
    tree, path = parts.tree, claim_of(job_id)
    if _claimed(parts, job_id) != uuid:
        return
    aside = f"{path}.{parts.ids()}{SPARE_SUFFIX}"
    try:
        tree.rename(path, aside)
    except (NotFound, Unanswered):
        if parts.again(lambda: tree.stat(aside)) is None:
            if parts.again(lambda: tree.stat(path)) is not None:
                raise
            return  # somebody else has freed it
    if _claim_in(parts, aside) != uuid:
        tree.rename(aside, path, replace=False)
    parts.again(lambda: tree.remove(aside))


def every_job(parts: Parts) -> Iterator[TreeJobPaths]:
    """The jobs that have a directory under the destination."""
    for entry in parts.tree.list(TEMPORARY):
        uuid = uuid_of(entry.name)
        if uuid is not None and entry.kind == "directory":
            yield TreeJobPaths(uuid)


def every_claim(parts: Parts) -> Iterator[tuple[str, str, float]]:
    """The given ids that are taken, with the UUIDs of their jobs, and since when. One that cannot
    be read is left out."""
    for entry in parts.tree.list(TEMPORARY):
        if not (entry.name.startswith(CLAIM_PREFIX) and entry.name.endswith(".json")):
            continue
        job_id = entry.name[len(CLAIM_PREFIX) : -len(".json")]
        try:
            uuid = _claimed(parts, job_id)
        except (FormatError, PathError):
            continue
        if uuid is not None:
            yield job_id, uuid, entry.modified
