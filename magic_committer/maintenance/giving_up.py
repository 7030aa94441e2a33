"""Giving up what is left of one job: its uploads, its control objects, its record.
`magic_committer.maintenance.force` says when to do it and what it must never touch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

from magic_committer._quantities import age_words, counted
from magic_committer._runtime import Runtime
from magic_committer.commit import records, steps
from magic_committer.commit.deletes import delete_if_same
from magic_committer.commit.load import LOADING_SETS_MAX
from magic_committer.commit.outcome import look_again
from magic_committer.commit.ready import ReadyUpload, from_pending
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
from magic_committer.errors import (
    FormatError,
    InvalidRequest,
    JobError,
    JobTooYoung,
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
from magic_committer.maintenance.reports import NAMED_MAX
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.record import JOB_METADATA, RECORD_BYTES_MAX, JobReport, StartedJob
from magic_committer.remedy import DEAD_AFTER, Remedy
from magic_committer.stores.base import ObjectInfo, same_etag

IN_FLIGHT = 32
"""Requests at once."""
_CLAIM = "given_up"
_UUID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What was given up of a job; with ``dry_run``, what would be.

    Attributes:
        job_id: the job's id.
        dest: the destination's URL.
        found: the record's state before; ``"unreadable"`` if the record cannot be read.
        state: the record's state afterwards; ``"absent"``: it is deleted.
        outcome: ``"aborted"`` or ``"reverted"`` if the job could be undone after all;
            ``"committed"`` if it had committed; "" if it was given up. For "", ``visible`` says
            what is visible, as far as that is known.
        why: why the job cannot be undone, in words; "" if it can.
        visible: keys of the job's files that stay and are visible, or may be (the store does not
            say); the first 100.
        visible_files: how many such files there are.
        open: with ``dry_run``: how many uploads are open.
        aborted: how many uploads were aborted.
        deleted: how many visible files were deleted.
        left_open: uploads that may still be open, as ``key uploadId``: a lifecycle rule removes
            them.
        unread: control objects that could not be read or deleted, or that name uploads of others.
            The uploads that they name are left alone.
        dry_run: whether nothing was changed.
        report: the report of the abort, if the job could be undone; otherwise None.
    """

    job_id: str
    dest: str
    found: str
    state: str
    outcome: str = ""
    why: str = ""
    visible: tuple[str, ...] = ()
    visible_files: int = 0
    open: int = 0
    aborted: int = 0
    deleted: int = 0
    left_open: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    dry_run: bool = False
    report: JobReport | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["report"] = self.report.to_dict() if self.report else None
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


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
        return GivenUp(
            job_id=self.job_id,
            dest=self.dest.url,
            found=str(found),
            state=str(state),
            outcome=outcome,
            why=why,
            visible=tuple(self.visible),
            visible_files=self.visible_files,
            open=self.open,
            aborted=self.aborted,
            deleted=self.deleted,
            left_open=tuple(self.left_open[:NAMED_MAX]),
            unread=tuple(self.unread[:NAMED_MAX]),
            dry_run=self.dry_run,
            report=report,
        )

    def refuse_young(self, why: str, dead_after: float) -> None:
        """Raise `JobTooYoung` if something of the job changed lately and nothing else tells whether
        its driver lives. Not with ``dry_run``."""
        age = Listing(self.runtime, JobPaths(self.dest, self.job_id).directory).to_end().age
        if age >= dead_after or self.dry_run:
            return
        raise JobTooYoung(
            f"job {self.job_id!r} changed {age_words(age)} ago, less than {age_words(dead_after)},"
            f" and may be alive: {why}",
            job_id=self.job_id,
            age=age,
            limit=dead_after,
            hint="Wait",
            remedies=(
                Remedy(
                    "force_abort",
                    self.dest.url,
                    self.job_id,
                    "if you know that its driver is dead, give it up",
                    {DEAD_AFTER: 0},
                ),
            ),
        )

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
