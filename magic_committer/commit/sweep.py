"""The sweep: leave nothing of a job behind, and touch nothing that is not the job's.

It runs only after the record has left ``running``: then either the sweep sees an upload, or the
attempt that made it sees the fence (protocol.md, "The fence"). Order (decisions.md):

1. list the job's directory; read what no plan names, for the ids in it;
2. abort those uploads, by id;
3. list the uploads under the destination, abort those whose names carry the job's UUID; again until
   none shows, for parts in flight outlive an abort;
4. delete the job's control objects, the plan first: while it is there, all its pendingsets are.

Whose an upload is, is never inferred: an id that a `.pending` or `.pendingset` of ours names, or
our UUID as a delimited field of the name. Only ``exclusive`` jobs, whose starter says that nobody
else writes under the destination, take everything. Uploads that a decided plan names are spared: an
abort's success proves nothing on some stores, and may cost a completed object (stores.md). Who does
not know all that the plan of a committed job names looks at the objects first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from magic_committer.commit import records
from magic_committer.commit.complete import has_ended, is_there
from magic_committer.commit.ready import from_pending, upload_name
from magic_committer.errors import FormatError, MagicError, NotFound, NotSupported, StoreError
from magic_committer.formats import PENDINGSET_BYTES_MAX, Pending, decode_pending, decode_pendingset
from magic_committer.job import StartedJob, State
from magic_committer.paths import Destination, JobPaths, uuid_in_name
from magic_committer.runtime import Progress, Runtime
from magic_committer.store import ObjectInfo, UploadInfo

SWEEP_ROUNDS_MAX = 5
SWEEP_PAUSE_SECONDS = 0.2
"""Before the second listing of uploads; doubled each time."""
NAMED_MAX = 100
"""Uploads that a report names as left open."""

Spared = Callable[[str], bool]
"""Whether a decided plan names the upload of that `upload_name`."""


@dataclass(slots=True)
class Swept:
    """What a sweep did and what it could not do."""

    aborted: int = 0
    left: dict[str, tuple[UploadInfo, StoreError]] = field(default_factory=dict)
    """Uploads whose last abort failed, by `upload_name`."""
    still_listed: list[UploadInfo] = field(default_factory=list)
    unattributed: int = 0
    warnings: list[str] = field(default_factory=list)
    again: bool = False
    """The store failed: the record stays, so that the sweep is done again by whoever recovers."""

    @property
    def left_open(self) -> tuple[str, ...]:
        """Key and id of uploads that are, or may be, still open; not all if they are many."""
        both = [upload for upload, _ in self.left.values()] + self.still_listed
        return tuple(f"{u.key} {u.upload_id}" for u in both[:NAMED_MAX])

    def failed(self, warning: str) -> None:
        """Note a failure that a later sweep may mend."""
        self.warnings.append(warning)
        self.again = True


def nothing_spared(name: str) -> bool:
    """For a job that is not committed: no plan names any upload."""
    return False


def sweep(
    runtime: Runtime,
    job: StartedJob,
    *,
    spared: Spared,
    accepted: Set[str],
    in_flight: int,
    look_first: bool = False,
) -> Swept:
    """Sweep a decided job, all but its record. Repeatable; errors become warnings.

    Args:
        spared: uploads that the plan names.
        accepted: keys of the pendingsets that the plan names: they need not be read.
        in_flight: requests at once.
        look_first: spare also what became its object: for committed jobs, where not all that the
            plan names is known any more.
    """
    dest = Destination.parse(job.dest)
    paths = job.paths
    swept = Swept()
    run = _Sweep(runtime, job, dest, paths, spared, in_flight, swept, look_first)
    found = run.control_objects()
    run.abort_all(run.named_uploads(found, accepted))
    run.abort_listed()
    for upload, error in swept.left.values():
        swept.failed(f"the upload of {upload.key} could not be aborted: {error}")
    if not swept.left and not run.unread:  # else they name uploads that the next sweep must find
        run.delete(found, accepted)
    return swept


@dataclass(slots=True)
class _Sweep:
    runtime: Runtime
    job: StartedJob
    dest: Destination
    paths: JobPaths
    spared: Spared
    in_flight: int
    swept: Swept
    look_first: bool
    unread: set[str] = field(default_factory=set)
    """Keys that could not be read, and may name uploads."""
    ended: set[str] = field(default_factory=set)
    """Uploads that needed no abort: a listing shows them, and they have ended."""

    def control_objects(self) -> list[ObjectInfo]:
        """Everything in the job's directories but the record."""
        try:
            return [
                info
                for directory in self.paths.directories
                for page in self.runtime.store.list(directory)
                for info in page.objects
                if info.key != self.paths.record
            ]
        except StoreError as error:
            self.swept.failed(f"the job's directory could not be listed: {error}")
            return []

    def named_uploads(self, found: Iterable[ObjectInfo], accepted: Set[str]) -> list[UploadInfo]:
        """Uploads that leftover `.pending`s and unaccepted `.pendingset`s name."""
        leftover = (
            info
            for info in found
            if info.key.endswith((".pending", ".pendingset")) and info.key not in accepted
        )
        named: list[UploadInfo] = []
        with closing(self._each(self._read_named, leftover)) as outcomes:
            for outcome in outcomes:
                try:
                    named += outcome.unwrap()
                except NotFound:
                    continue  # deleted meanwhile, by its attempt or by another sweep
                except FormatError as error:
                    self.swept.warnings.append(f"its uploads are not known: {error}")
                except StoreError as error:
                    self.unread.add(outcome.item.key)
                    self.swept.failed(f"its uploads are not known: {error}")
        return named

    def _read_named(self, info: ObjectInfo) -> list[UploadInfo]:
        stored = self.runtime.store.get(info.key, max_bytes=PENDINGSET_BYTES_MAX)
        if not self.job.owns(stored.info.metadata):
            return []
        pendings: tuple[Pending, ...]
        if info.key.endswith(".pending"):
            pendings = (decode_pending(stored.body, info.key),)
        else:
            pendings = tuple(decode_pendingset(stored.body, info.key).commits)
        for pending in pendings:
            if not self.dest.contains(pending.destination_key):
                raise FormatError(info.key, "destinationKey", "lies outside the destination")
        if self.look_first:
            pendings = tuple(
                pending
                for number, pending in enumerate(pendings)
                if not is_there(self.runtime, from_pending(pending, f"{info.key}: {number}"))
            )
        return [UploadInfo(p.destination_key, p.upload_id) for p in pendings]

    def abort_listed(self) -> None:
        """Abort the job's uploads by name until a listing shows none."""
        mine: list[UploadInfo] = []
        for number in range(SWEEP_ROUNDS_MAX):
            if number:
                self.runtime.clock.sleep(SWEEP_PAUSE_SECONDS * 2 ** (number - 1))
            try:
                mine = self._list_mine()
            except NotSupported:
                self.swept.warnings.append(
                    "the store cannot list uploads: those of killed attempts, if any, stay open"
                    " until a lifecycle rule takes them"
                )
                return
            except StoreError as error:
                self.swept.failed(f"uploads could not be listed: {error}")
                return
            again = [upload for upload, _ in self.swept.left.values()]
            if not mine and not again:
                return
            if not self.abort_all(mine + again) and not self.swept.left:
                return  # what the listing shows has ended
        told = self.ended.union(self.swept.left)
        self.swept.still_listed = [u for u in mine if upload_name(u.key, u.upload_id) not in told]
        if self.swept.still_listed:
            self.swept.warnings.append(
                f"{len(self.swept.still_listed)} uploads of the job are still listed after"
                f" {SWEEP_ROUNDS_MAX} rounds"
            )

    def _list_mine(self) -> list[UploadInfo]:
        exclusive = self.job.terms.exclusive
        mine: list[UploadInfo] = []
        others: list[UploadInfo] = []
        unattributed = 0
        for page in self.runtime.store.list_uploads(self.dest.prefix):
            for upload in page.uploads:
                if self.spared(upload_name(upload.key, upload.upload_id)):
                    continue
                uuid = uuid_in_name(upload.key)
                if uuid == self.job.uuid:
                    mine.append(upload)
                    continue
                unattributed += uuid is None
                if exclusive:
                    others.append(upload)
        # Records after uploads: a job set up in between shows its record, not its uploads
        # (counterexamples.md, K1).
        if others and self._is_alone():
            mine, unattributed = mine + others, 0
        self.swept.unattributed = unattributed
        return mine

    def _is_alone(self) -> bool:
        """Whether no other live job has its record directly under the destination."""
        for key in job_records(self.runtime, self.dest):
            if key == self.paths.record:
                continue
            try:
                seen = records.read(self.runtime, key)
            except MagicError as error:
                self.swept.warnings.append(f"not swept exclusively: {error}")
                return False
            if seen is not None and seen.record.state is not State.CLOSED:
                self.swept.warnings.append(
                    f"not swept exclusively: job {seen.record.id!r} lives under {self.dest.url}"
                )
                return False
        return True

    def abort_all(self, doomed: Iterable[UploadInfo]) -> int:
        """Abort uploads by id, and say how many; what fails is kept, to be tried again in the next
        round."""
        before = self.swept.aborted
        targets = (u for u in doomed if not self.spared(upload_name(u.key, u.upload_id)))
        with closing(self._each(self._abort, targets)) as outcomes:
            for outcome in outcomes:
                name = upload_name(outcome.item.key, outcome.item.upload_id)
                if isinstance(outcome.error, StoreError):
                    self.swept.left[name] = (outcome.item, outcome.error)
                    continue
                sent = outcome.unwrap()
                self.swept.left.pop(name, None)
                if not sent:
                    self.ended.add(name)
                    continue
                self.ended.discard(name)
                self.swept.aborted += 1
                self.runtime.progress(Progress("sweep", self.swept.aborted, None, "uploads"))
        return self.swept.aborted - before

    def _abort(self, upload: UploadInfo) -> bool:
        """Whether an abort was sent: what has ended needs none."""
        if self.look_first and has_ended(self.runtime, upload.key, upload.upload_id):
            return False
        self.runtime.store.abort_upload(upload.key, upload.upload_id)
        return True

    def delete(self, found: list[ObjectInfo], accepted: Set[str]) -> None:
        """Delete the job's control objects, plans before pendingsets."""
        mine = found if not self.job.given_id else self._of_this_run(found, accepted)
        prefix = f"{self.paths.directory}plan-"
        plans = [i.key for i in mine if i.key.startswith(prefix)]
        others = [i.key for i in mine if not i.key.startswith(prefix)]
        for keys in (plans, others):
            if not keys:
                continue
            try:
                failed = self.runtime.store.delete(keys)
            except StoreError as error:
                self.swept.failed(f"control objects could not be deleted: {error}")
                return
            if failed:
                key, reason = next(iter(failed.items()))
                self.swept.failed(
                    f"{len(failed)} control objects could not be deleted, e.g. {key}: {reason}"
                )
                return

    def _of_this_run(self, found: Iterable[ObjectInfo], accepted: Set[str]) -> list[ObjectInfo]:
        """Of a directory that a given id names, the job's own objects: a directory of that name may
        hold what a zombie of an earlier run left."""
        mine: list[ObjectInfo] = []

        def owned(info: ObjectInfo) -> bool:
            if info.key in accepted:
                return True
            try:
                return self.job.owns(self.runtime.store.head(info.key).metadata)
            except NotFound:
                return False

        with closing(self._each(owned, found)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome.error, StoreError):
                    self.swept.failed(f"left: {outcome.item.key}: {outcome.error}")
                elif outcome.unwrap():
                    mine.append(outcome.item)
        return mine

    def _each(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Any:
        return self.runtime.pool.each(function, items, in_flight=self.in_flight)


def job_records(runtime: Runtime, dest: Destination) -> Iterable[str]:
    """Keys of the job records directly under a destination: a listing of its job directories."""
    for page in runtime.store.list(dest.jobs_prefix, delimiter="/"):
        for prefix in page.prefixes:
            yield f"{prefix}job.json"
