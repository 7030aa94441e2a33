"""A way out for every record: a job that can be neither finished nor undone is given up.

First the job is aborted or undone in the usual way. Only what that leaves is given up: uploads that
cannot be aborted, files that cannot be deleted, a plan that is gone, a record that nobody can read.
Each is named in the report. The job's control objects are deleted, its record last. Afterwards
the answer to every question about the job is "unknown" (I10). Invariants:

* Nothing is touched except two things: what the job's own directory names below the destination,
  with a token of this job; and uploads whose names carry its UUID, if no other record has that
  UUID.
* Files of a ``completed`` job are never deleted: the job may have deleted what they replace (I7).
  Files of a job whose record cannot be read are not deleted either, because it may be such a job.
* A live driver loses nothing that it was told to have. A readable record says ``aborting``,
  ``reverting``, ``reverted`` or ``completed`` before anything is given up. An unreadable record is
  first replaced by a *claim*, if it is still the one that was looked at: from then on no swap wins,
  and every task finds that it is late. A record is deleted only after it was replaced by a claim,
  so a store without conditional DELETE is enough. Before the claim a DELETE of a key that nobody
  has asks for the right: who may not delete would leave a record that nobody can read.
* Repeatable after any crash: the record goes last, and a claim can be given up like any other
  record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from magic_committer._quantities import counted
from magic_committer._runtime import Runtime
from magic_committer.commit import records, steps
from magic_committer.commit.batches import Ledgers, publish_batch
from magic_committer.commit.load import LOADING_SETS_MAX
from magic_committer.commit.outcome import look_again, outcome_of
from magic_committer.commit.ready import ReadyUpload, from_pending
from magic_committer.commit.revert import delete_if_same
from magic_committer.commit.sweep import job_records
from magic_committer.commit.upload_state import (
    Removal,
    Removed,
    UploadName,
    UploadRemover,
    UploadState,
    became,
    object_at,
    to_look,
)
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import (
    AbortIncomplete,
    CommitIncomplete,
    FormatError,
    InvalidRequest,
    JobError,
    JobNotFound,
    JobNotRunning,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    WriteConflict,
)
from magic_committer.hadoop.paths import (
    MAGIC_JOB_PREFIX,
    PLAN_PREFIX,
    SAVED_SUFFIXES,
    Destination,
    JobPaths,
    owner_of,
)
from magic_committer.maintenance.inspect import Listing, pendings_of
from magic_committer.maintenance.reports import NAMED_MAX, GivenUp, refuse_younger
from magic_committer.options import Options
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import (
    JOB_METADATA,
    RECORD_BYTES_MAX,
    JobReport,
    StartedJob,
    State,
)
from magic_committer.remedy import DEAD_AFTER, Remedy
from magic_committer.stores.base import ObjectInfo, same_etag

UNREADABLE = "unreadable"
"""The word for the state of a record that this version cannot read."""
IN_FLIGHT = 32
"""Requests at once."""
_CLAIM = "given_up"
_UUID = re.compile(r"[0-9a-f]{32}")


@dataclass(slots=True)
class GivingUp:
    """The work on one job, and what to report about it.

    Attributes:
        uuids: the job's UUIDs: the tokens of its uploads and control objects carry them.
        others: UUIDs of other jobs under the destination. They are never ours, whatever an object
            says.
        by_directory: whether the objects of the job's directory tell its UUIDs.
        adopted: whether objects without a token belong to the job too.
        undo: whether visible files are deleted.
    """

    runtime: Runtime
    dest: Destination
    job_id: str
    key: str
    dry_run: bool
    uuids: set[str] = field(default_factory=set)
    others: frozenset[str] = frozenset()
    by_directory: bool = False
    adopted: bool = False
    undo: bool = False
    directories: tuple[str, ...] = ()
    known: KeySet = field(default_factory=KeySet)
    visible: list[str] = field(default_factory=list)
    visible_files: int = 0
    open: int = 0
    aborted: int = 0
    deleted: int = 0
    left_open: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def told(
        self,
        found: str,
        state: str,
        *,
        outcome: str = "",
        why: str = "",
        report: JobReport | None = None,
    ) -> GivenUp:
        """Make the report."""
        same = ("job_id", "visible_files", "open", "aborted", "deleted", "dry_run")
        return GivenUp(
            dest=self.dest.url,
            found=str(found),
            state=str(state),
            outcome=outcome,
            why=why,
            visible=tuple(self.visible),
            left_open=tuple(self.left_open[:NAMED_MAX]),
            unread=tuple(self.unread[:NAMED_MAX]),
            report=report,
            **{name: getattr(self, name) for name in same},
        )

    def refuse_young(self, why: str, dead_after: float) -> None:
        """Raise `JobTooYoung` if something of the job changed lately and nothing else tells whether
        its driver lives. Not with ``dry_run``."""
        age = Listing(self.runtime, JobPaths(self.dest, self.job_id).directory).to_end().age
        if not self.dry_run:
            known = "if you know that its driver is dead, give it up"
            way = Remedy("force_abort", self.dest.url, self.job_id, known, {DEAD_AFTER: 0})
            refuse_younger(self.job_id, age, dead_after, f"it may be alive, {why}", way)

    # Whose is it? ---------------------------------------------------------------------------------

    def own(self, job: StartedJob) -> None:
        """Take the names of a job whose record can be read."""
        self.uuids = {job.uuid}
        self.adopted = bool(job.adopted)
        self.directories = job.paths.directories

    def own_unread(self, told: str) -> None:
        """Take the names of a job whose record cannot be read, from its directory. Its UUID is its
        id, if the id was drawn; otherwise its objects tell it. It is never a UUID that another
        record under the destination has.

        Args:
            told: the UUID in the record's metadata.
        """
        self.directories = JobPaths(self.dest, self.job_id).directories
        others = set[str]()
        for key in job_records(self.runtime, self.dest):
            if key == self.key:
                continue
            others.add(key.split("/")[-2].removeprefix(MAGIC_JOB_PREFIX))
            with suppress(FormatError, InvalidRequest):  # InvalidRequest: too large for a record
                seen = records.read(self.runtime, key)
                others |= {seen.record.uuid} if seen is not None else set()
        self.others, self.by_directory = frozenset(others), True
        self.uuids = {uuid for uuid in (self.job_id, told) if self._may_be_ours(uuid)}

    def _may_be_ours(self, uuid: str) -> bool:
        return bool(_UUID.fullmatch(uuid)) and uuid not in self.others

    def _owns(self, uuid: str) -> bool:
        """Whether an object of the job's directory belongs to the job, by the UUID in its
        metadata."""
        if uuid in self.uuids or (not uuid and self.adopted):
            return True
        if self.by_directory and self._may_be_ours(uuid):
            self.uuids.add(uuid)
            return True
        return False

    def _listed(self) -> Iterator[ObjectInfo]:
        for directory in self.directories:
            for page in self.runtime.store.list(directory):
                yield from (info for info in page.objects if info.key != self.key)

    # Uploads --------------------------------------------------------------------------------------

    def uploads(self) -> None:
        """End the job's uploads and go on after single failures; with ``dry_run``, only look at
        them."""
        for targets in (self._by_sets(), self._by_name()):
            fresh = self._fresh(targets)
            if self.dry_run:
                self._look_at(fresh)
            else:
                self._end(fresh)

    def _fresh(self, uploads: Iterator[UploadName]) -> Iterator[UploadName]:
        return (upload for upload in uploads if self.known.add(upload.name))

    def _by_sets(self) -> Iterator[UploadName]:
        """Give the uploads that the control objects name."""
        sets = (i for i in self._listed() if i.key.endswith(SAVED_SUFFIXES))
        reading = self.runtime.pool.each(self._read, sets, in_flight=LOADING_SETS_MAX)
        with closing(reading) as outcomes:
            for outcome in outcomes:
                yield from self._named(outcome)

    def _by_name(self) -> Iterator[UploadName]:
        """Give the uploads that a listing shows. This comes second: the sets have told the UUIDs by
        then."""
        with suppress(NotSupported):
            for page in self.runtime.store.list_uploads(self.dest.prefix):
                for listed in page.uploads:
                    if owner_of(listed.key, listed.upload_id) in self.uuids:
                        yield UploadName(listed.key, listed.upload_id)

    def _read(self, info: ObjectInfo) -> tuple[str, list[ReadyUpload]]:
        pendings, metadata = pendings_of(self.runtime, info)
        uploads = [from_pending(pending, info.key) for pending in pendings]
        return metadata.get(JOB_METADATA, ""), uploads

    def _named(self, outcome: Any) -> list[UploadName]:
        """The job's uploads that one control object names."""
        key = outcome.item.key
        try:
            uuid, uploads = outcome.unwrap()
        except NotFound:
            return []
        except (FormatError, StoreError) as error:
            self.unread.append(f"{key}: {error.message}")
            return []
        if not self._owns(uuid):
            return []
        mine = [UploadName.of(upload) for upload in uploads if self._is_ours(upload)]
        if len(mine) < len(uploads):
            foreign = len(uploads) - len(mine)
            self.unread.append(f"{key}: names {counted(foreign, 'upload')} of others")
        return mine

    def _is_ours(self, upload: ReadyUpload) -> bool:
        token = upload.token.partition(".")[0]
        ours = token in self.uuids or (not token and self.adopted)
        by_name = owner_of(upload.key, upload.upload_id)
        return ours and self.dest.contains(upload.key) and by_name in (None, *self.uuids)

    def _look_at(self, uploads: Iterator[UploadName]) -> None:
        looks = ((upload, to_look(self.runtime, upload)) for upload in uploads)
        with closing(steps.each(self.runtime, looks, in_flight=IN_FLIGHT)) as ended:
            for upload, look in ended:
                if look.state is UploadState.VISIBLE:
                    self.stays(upload.key)
                else:
                    self.count(open=look.state is not UploadState.GONE)

    def _end(self, uploads: Iterator[UploadName]) -> None:
        remover = UploadRemover(self.runtime)
        removals = ((upload, remover.to_remove(upload)) for upload in uploads)
        with (
            closing(steps.each(self.runtime, removals, in_flight=IN_FLIGHT)) as ended,
            closing(self.runtime.pool.each(self._undone, ended, in_flight=IN_FLIGHT)) as outcomes,
        ):
            for outcome in outcomes:
                self._note(*outcome.item, stays=outcome.unwrap())

    def _undone(self, end: tuple[UploadName, Removed]) -> bool:
        """Whether a file of an upload stays, or may; asked in a thread."""
        upload, removed = end
        if removed.removal is Removal.LEFT:
            return False
        may_be_visible = removed.removal is Removal.VISIBLE or removed.error is not None
        return may_be_visible and not (self.undo and self._deleted(upload))

    def _note(self, upload: UploadName, removed: Removed, *, stays: bool) -> None:
        removal = removed.removal
        if removal is Removal.LEFT:
            self.left_open.append(f"{upload.key} {upload.upload_id}: {removed.why}")
        elif stays:
            self.stays(upload.key)
        else:
            self.count(aborted=removal is Removal.ABORTED, deleted=removal is Removal.VISIBLE)

    def _deleted(self, upload: UploadName) -> bool:
        """Delete the object that an upload became. Whether it is gone."""
        try:
            info = object_at(self.runtime, upload.key)
            if info is not None and became(upload, info):
                delete_if_same(
                    self.runtime, info.key, info.etag, info.version_id, modified=info.last_modified
                )
                info = object_at(self.runtime, upload.key)
        except StoreError:
            return False
        return info is None or not became(upload, info)

    def count(self, *, open: bool = False, aborted: bool = False, deleted: bool = False) -> None:
        """Note the end of one upload."""
        self.open += open
        self.aborted += aborted
        self.deleted += deleted

    def stays(self, key: str) -> None:
        """Note a file that stays and is visible, or may be."""
        self.visible_files += 1
        if len(self.visible) < NAMED_MAX:
            self.visible.append(key)

    # Control objects ------------------------------------------------------------------------------

    def control_objects(self) -> None:
        """Delete the job's control objects but not the record; plans first. Go on after single
        failures."""
        plans: list[str] = []
        others: list[str] = []
        reading = self.runtime.pool.each(self._uuid_of, self._listed(), in_flight=IN_FLIGHT)
        with closing(reading) as outcomes:
            for outcome in outcomes:
                key = outcome.item.key
                try:
                    owned = self._owns(outcome.unwrap())
                except NotFound:
                    continue
                except StoreError as error:
                    self.unread.append(f"{key}: {error.message}")
                    continue
                if owned:
                    (plans if key.rpartition("/")[2].startswith(PLAN_PREFIX) else others).append(
                        key
                    )
        for keys in (plans, others):
            failed = self.runtime.store.delete(keys) if keys else {}
            self.unread += [f"{key}: {why.message}" for key, why in failed.items()]

    def _uuid_of(self, info: ObjectInfo) -> str:
        return (self.runtime.store.head(info.key).metadata or {}).get(JOB_METADATA, "")

    # The record -----------------------------------------------------------------------------------

    def is_claimed(self) -> bool:
        """Whether the record is the claim of an earlier call that died."""
        try:
            body = self.runtime.store.get(self.key, max_bytes=RECORD_BYTES_MAX).body
            told = orjson.loads(body)
        except (NotFound, InvalidRequest, orjson.JSONDecodeError):
            return False
        return isinstance(told, dict) and set(told) == {_CLAIM}

    def claim(self, etag: str) -> str:
        """Replace the record if it still has that ETag, so that nobody's swap can win any more.
        First it deletes a key that nobody has: who may not delete could not take the claim away
        again, and nobody could read the job's state.

        Returns:
            The ETag of the claim.

        Raises:
            JobError: the record has changed. Nothing was given up.
            StoreError: the store refused a request, or gave no answer: do it again.
        """
        try:
            self.runtime.store.delete_one(f"{self.key}-{self.runtime.ids()}")
        except PermissionDenied as error:
            error.advice = (
                "The record is as it was: a job is given up by who may delete its control objects"
                f" (s3:DeleteObject below {self.dest.url})"
            )
            raise
        body = orjson.dumps({_CLAIM: self.runtime.ids()})
        metadata = {JOB_METADATA: min(self.uuids)} if self.uuids else None
        for wanted in (etag, records.other_quoting(etag)):  # Ceph RGW knows unquoted ETags only
            try:
                written = self.runtime.store.put(self.key, body, metadata=metadata, if_match=wanted)
                return written.etag
            except (PreconditionFailed, NotFound, WriteConflict):
                now = self._record_now()
                if now is None or not same_etag(now.etag, etag):
                    break
        if now is not None and self.runtime.store.get(
            self.key, max_bytes=RECORD_BYTES_MAX
        ).body == (body):
            return now.etag  # the reply was lost, and the request was sent again
        raise JobError(
            f"the record of job {self.job_id!r} was changed by another process meanwhile",
            job_id=self.job_id,
            remedies=(look_again(self.dest.url, self.job_id),),
        )

    def remove_record(self, claimed: str) -> None:
        """Delete the claim. Repeatable.

        Raises:
            StoreError: the claim may still be there: do it again.
        """
        for wanted in (claimed, records.other_quoting(claimed)):
            try:
                self.runtime.store.delete_one(self.key, if_match=wanted)
                return
            except (PreconditionFailed, WriteConflict):
                now = self._record_now()
                if now is None or not same_etag(now.etag, claimed):
                    return  # another call has deleted it, and the id may be in use again
            except (InvalidRequest, NotSupported):
                break
        # No conditional DELETE. The claim belongs to this call: another process creates a record
        # only if there is none.
        self.runtime.store.delete_one(self.key)

    def _record_now(self) -> ObjectInfo | None:
        try:
            return self.runtime.store.head(self.key)
        except NotFound:
            return None


# The job ------------------------------------------------------------------------------------------


def give_up_job(
    runtime: Runtime,
    dest: Destination,
    job_id: str,
    *,
    dead_after: float,
    dry_run: bool = False,
    options: Options | None = None,
) -> GivenUp:
    """End a job whatever its record says; see `magic_committer.force_abort`. ``dead_after`` is in
    seconds."""
    key = JobPaths(dest, job_id).record
    try:
        stored = runtime.store.head(key)  # first: what is read after it is no older
    except NotFound:
        raise JobNotFound(
            f"there is no record of job {job_id!r} under {dest.url}",
            job_id=job_id,
            hint="There is nothing to give up",
            remedies=(Remedy("cleanup", dest.url, why="take away what it left, if anything"),),
        ) from None
    giving = GivingUp(runtime, dest, job_id, key, dry_run)
    if stored.size > RECORD_BYTES_MAX:
        error = FormatError(
            key, "", f"has {stored.size} bytes: no record has over {RECORD_BYTES_MAX}"
        )
        return _unreadable(giving, stored, error, dead_after)
    try:
        seen = records.read(runtime, key)
    except FormatError as error:
        return _unreadable(giving, stored, error, dead_after)
    if seen is None:
        return giving.told(State.ABSENT, State.ABSENT)
    return _readable(giving, seen, dead_after, options)


def _readable(
    giving: GivingUp, seen: records.Seen, dead_after: float, options: Options | None
) -> GivenUp:
    runtime, dest, found = giving.runtime, giving.dest, seen.record.state
    why = ""
    if found is State.CLOSED:
        return giving.told(found, found, outcome=seen.record.outcome)
    if found is State.COMPLETED:
        giving.refuse_young(f"for it is {found}: its files are visible", dead_after)
    elif not giving.dry_run:
        report, why = _undone(runtime, dest, seen, options)
        if report is not None:
            return giving.told(found, report.state, outcome=report.outcome, report=report)
        now = records.read(runtime, seen.key)
        if now is None or now.record.state is State.CLOSED:
            state = now.record.state if now else State.ABSENT
            return giving.told(found, state, outcome=outcome_of(now.record) if now else "")
        if now.record.state not in (State.ABORTING, State.REVERTING, State.REVERTED):
            raise JobError(
                f"job {giving.job_id!r} is {now.record.state}, and was {found} when it was looked"
                f" at: it was not given up{why and f' ({why})'}",
                job_id=giving.job_id,
                remedies=(look_again(dest.url, giving.job_id),),
            )
        seen = now
    record = seen.record
    giving.own(StartedJob.attached(record, dest.url, seen.etag))
    giving.undo = record.state is State.REVERTING
    giving.runtime = MagicCommitter.found(runtime, dest, seen, options).runtime
    giving.uploads()
    if not giving.dry_run:
        if found is State.COMPLETED and record.batch is not None:
            why = _say_published(giving, StartedJob.attached(record, dest.url, ""), record.batch)
        giving.control_objects()
        giving.remove_record(giving.claim(seen.etag))
    state = record.state if giving.dry_run else State.ABSENT
    committed = "committed" if record.state is State.COMPLETED else ""
    return giving.told(found, state, outcome=committed, why=why)


def _say_published(giving: GivingUp, job: StartedJob, batch: StreamBatch) -> str:
    """Tell the query's ledger that the batch of a ``completed`` job is published: its files stay.
    Gives why that could not be done: the query may then publish the batch once more."""
    try:
        ledgers = Ledgers(giving.runtime, job.paths.dest)
        return publish_batch(ledgers, job, batch)
    except (StoreError, FormatError) as error:
        return f"the ledger does not say that {batch} is published: {error.message}"


def _undone(
    runtime: Runtime, dest: Destination, seen: records.Seen, options: Options | None
) -> tuple[JobReport | None, str]:
    """Abort or undo the job in the usual way. Gives its report, or what keeps it from being undone.

    Raises:
        OutcomeUnknown, StoreError: nobody knows what its record says. Nothing is given up.
    """
    try:
        committer = MagicCommitter.found(runtime, dest, seen, options)
        report = committer.abort_job(revert=True, role="recovery")
    except JobNotRunning as error:
        return None, error.message
    except (AbortIncomplete, CommitIncomplete, FormatError) as error:
        return None, str(error.__cause__ or error)
    if report.state in (State.ABSENT, State.CLOSED):
        return report, ""
    return None, "; ".join(report.warnings)


def _unreadable(
    giving: GivingUp, stored: ObjectInfo, error: FormatError, dead_after: float
) -> GivenUp:
    """Give up a job whose record this version cannot read: damaged, forged, a newer version's, or a
    claim."""
    if not giving.is_claimed():
        giving.refuse_young(
            f"for its record cannot be read ({error.message}); if a newer version of the library"
            " runs it, use that",
            dead_after,
        )
    giving.own_unread((stored.metadata or {}).get(JOB_METADATA, ""))
    if giving.dry_run:
        giving.uploads()
        return giving.told(UNREADABLE, UNREADABLE, why=str(error))
    claimed = giving.claim(stored.etag)
    giving.uploads()
    giving.control_objects()
    giving.remove_record(claimed)
    return giving.told(UNREADABLE, State.ABSENT, why=str(error))
