"""Giving up what is left of one job: its uploads, its control objects, its record. See
`magic_committer.maintenance.force` for when, and for what this may never touch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

from magic_committer._quantities import age_words, counted
from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.deletes import delete_if_same
from magic_committer.commit.load import LOADING_SETS_MAX
from magic_committer.commit.outcome import look_again
from magic_committer.commit.ready import ReadyUpload, from_pending
from magic_committer.commit.sweep import job_records
from magic_committer.commit.upload_state import (
    Removal,
    UploadName,
    UploadRemover,
    UploadState,
    became,
    object_at,
    upload_state,
)
from magic_committer.errors import (
    FormatError,
    InvalidRequest,
    JobError,
    JobTooYoung,
    NotFound,
    NotSupported,
    PreconditionFailed,
    StoreError,
    WriteConflict,
)
from magic_committer.hadoop.elements import MAGIC_JOB_PREFIX
from magic_committer.hadoop.paths import (
    PENDING_SUFFIX,
    PENDINGSET_SUFFIX,
    Destination,
    JobPaths,
    uuid_in_name,
)
from magic_committer.maintenance.inspect import Listing, pendings_of
from magic_committer.maintenance.reports import NAMED_MAX
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.record import JOB_METADATA, RECORD_BYTES_MAX, JobReport, StartedJob
from magic_committer.remedy import SETTLED_AFTER, Remedy
from magic_committer.stores.base import ObjectInfo, same_etag

IN_FLIGHT = 32
"""Requests at once."""
_CLAIM = "given_up"
_UUID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What giving a job up came to; with ``dry_run``, what there is to be given up.

    Attributes:
        found: the record's state when it was looked at; ``"unreadable"``.
        state: the record's state afterwards; ``"absent"``: it is deleted.
        outcome: ``"aborted"`` or ``"reverted"`` if it could be undone after all, ``"committed"`` if
            it had been; "": it was given up, and whether something of it is visible ``visible``
            tells, as far as that is known.
        why: what keeps it from being undone, in words; "" if nothing does.
        visible: keys of its files that are visible, or may be (the store does not tell), and stay;
            the first 100 of ``visible_files``.
        open: with ``dry_run``, uploads that are open.
        aborted, deleted: uploads that were aborted, visible files that were deleted.
        left_open: uploads that may be open still, as ``key uploadId``: a lifecycle rule takes them.
        unread: control objects that could not be read, or name what is not the job's: what they
            name is left alone. With what could not be deleted.
        report: of the abort, where the job could be undone.
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
        """Plain JSON values."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["report"] = self.report.to_dict() if self.report else None
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


@dataclass(slots=True)
class GivingUp:
    """What is done, and what of it is told.

    Attributes:
        uuids: of the job: those whose tokens its uploads and control objects carry.
        others: UUIDs of other jobs under the destination: never ours, whatever an object says.
        by_directory: which they are tell the objects of its directory.
        adopted: what carries no token is the job's too.
        undo: files that are visible are deleted.
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
        """What it came to."""
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

    def refuse_young(self, why: str, older_than: float) -> None:
        """Raise `JobTooYoung` if something of a job changed lately of which nothing else tells
        whether its driver lives. Not with ``dry_run``."""
        age = Listing(self.runtime, JobPaths(self.dest, self.job_id).directory).to_end().age
        if age >= older_than or self.dry_run:
            return
        raise JobTooYoung(
            f"job {self.job_id!r} changed {age_words(age)} ago, less than {age_words(older_than)},"
            f" and may be alive: {why}",
            job_id=self.job_id,
            age=age,
            limit=older_than,
            hint="Wait",
            remedies=(
                Remedy(
                    "force_abort",
                    self.dest.url,
                    self.job_id,
                    "if you know that its driver is dead, give it up",
                    {SETTLED_AFTER: 0},
                ),
            ),
        )

    # Whose is it? ---------------------------------------------------------------------------------

    def own(self, job: StartedJob) -> None:
        """The job of a record that can be read."""
        self.uuids = {job.uuid}
        self.adopted = bool(job.adopted)
        self.directories = job.paths.directories

    def own_unread(self, told: str) -> None:
        """The job of a record that cannot: by its directory. Its UUID is its id, if that was drawn,
        or what its objects say; never one that another record under the destination has.

        Args:
            told: by the record's metadata.
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
        """Whether an object of the job's directory is the job's, by the UUID in its metadata."""
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
        """End the job's uploads, past single failures; with ``dry_run`` look at them."""
        for targets in (self._by_sets(), self._by_name()):
            with closing(self._each(self._end, self._fresh(targets))) as ends:
                for end in ends:
                    end.unwrap()(self)

    def _fresh(self, uploads: Iterator[UploadName]) -> Iterator[UploadName]:
        return (upload for upload in uploads if self.known.add(upload.name))

    def _by_sets(self) -> Iterator[UploadName]:
        """What the control objects name."""
        sets = (i for i in self._listed() if i.key.endswith((PENDING_SUFFIX, PENDINGSET_SUFFIX)))
        with closing(self._each(self._read, sets, LOADING_SETS_MAX)) as outcomes:
            for outcome in outcomes:
                yield from self._named(outcome)

    def _by_name(self) -> Iterator[UploadName]:
        """What a listing shows. Second: by then the sets have told the UUIDs."""
        with suppress(NotSupported):
            for page in self.runtime.store.list_uploads(self.dest.prefix):
                for listed in page.uploads:
                    if uuid_in_name(listed.key) in self.uuids:
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
        by_name = uuid_in_name(upload.key)
        return ours and self.dest.contains(upload.key) and by_name in (None, *self.uuids)

    def _end(self, upload: UploadName) -> Callable[[GivingUp], None]:
        """Runs in a thread; what it returns notes the end, in the caller's."""
        if self.dry_run:
            state = upload_state(self.runtime, upload).state
            if state is UploadState.VISIBLE:
                return lambda noted: noted.stays(upload.key)
            return lambda noted: noted.count(open=state is not UploadState.GONE)
        removed = UploadRemover(self.runtime).remove(upload)
        removal = removed.removal
        if removal is Removal.LEFT:
            what = f"{upload.key} {upload.upload_id}: {removed.why}"
            return lambda noted: noted.left_open.append(what)
        may_be_visible = removal is Removal.VISIBLE or removed.error is not None
        if may_be_visible and not (self.undo and self._deleted(upload)):
            return lambda noted: noted.stays(upload.key)
        return lambda noted: noted.count(
            aborted=removal is Removal.ABORTED, deleted=removal is Removal.VISIBLE
        )

    def _deleted(self, upload: UploadName) -> bool:
        """Delete what an upload became; whether it is gone."""
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
        """Note a file that is visible, or may be, and stays."""
        self.visible_files += 1
        if len(self.visible) < NAMED_MAX:
            self.visible.append(key)

    # Control objects ------------------------------------------------------------------------------

    def control_objects(self) -> None:
        """Delete the job's control objects but the record, plans first, past single failures."""
        plans: list[str] = []
        others: list[str] = []
        with closing(self._each(self._uuid_of, self._listed())) as outcomes:
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
                    (plans if key.rpartition("/")[2].startswith("plan-") else others).append(key)
        for keys in (plans, others):
            failed = self.runtime.store.delete(keys) if keys else {}
            self.unread += [f"{key}: {why.message}" for key, why in failed.items()]

    def _uuid_of(self, info: ObjectInfo) -> str:
        return (self.runtime.store.head(info.key).metadata or {}).get(JOB_METADATA, "")

    def _each(self, function: Any, items: Iterable[Any], in_flight: int = IN_FLIGHT) -> Any:
        return self.runtime.pool.each(function, items, in_flight=in_flight)

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
        """Replace the record, if it is still that one, so that nobody's swap can win any more. The
        ETag of what is there then.

        Raises:
            JobError: it is another by now: nothing of it was given up.
            StoreError: the store refused it, or gave no answer: do it again.
        """
        body = orjson.dumps({_CLAIM: self.runtime.ids()})
        metadata = {JOB_METADATA: min(self.uuids)} if self.uuids else None
        for wanted in (etag, records.other_quoting(etag)):  # Ceph RGW knows unquoted ones only
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
            return now.etag  # a reply was lost, and it was sent again
        raise JobError(
            f"the record of job {self.job_id!r} was changed by another process meanwhile",
            job_id=self.job_id,
            remedies=(look_again(self.dest.url, self.job_id),),
        )

    def remove_record(self, claimed: str) -> None:
        """Delete the claim. Repeatable.

        Raises:
            StoreError: it may still be there: do it again.
        """
        for wanted in (claimed, records.other_quoting(claimed)):
            try:
                self.runtime.store.delete_one(self.key, if_match=wanted)
                return
            except (PreconditionFailed, WriteConflict):
                now = self._record_now()
                if now is None or not same_etag(now.etag, claimed):
                    return  # another call has deleted it, and perhaps the id is used again
            except (InvalidRequest, NotSupported):
                break
        # No conditional DELETE. The claim is this call's: a record is created by another only where
        # there is none.
        self.runtime.store.delete_one(self.key)

    def _record_now(self) -> ObjectInfo | None:
        try:
            return self.runtime.store.head(self.key)
        except NotFound:
            return None
