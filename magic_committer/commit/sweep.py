"""The sweep: leave nothing of a job behind, and touch nothing that is not the job's.

It runs only after the record has left ``running``: then either the sweep sees an upload, or the
attempt that made the upload sees the fence (protocol.md, "The fence"). Order:

1. list the job's directory; read what no plan names, for the ids in it;
2. abort those uploads, by id;
3. list the uploads under the destination and abort those whose names carry the job's UUID; repeat
   until none shows; or remove the job's directory of waiting files, which is named after it. The
   first listing begins beside 1: from the decision on each attempt sees the fence;
4. delete the job's control objects, the plan first: as long as the plan is there, all its
   pendingsets are.

Every abort goes through `uploads.removing`. It is proved; if not, the upload is reported, and the
control objects that name it stay. The owner of an upload is never guessed. It is ours if one of our
`.pending` or `.pendingset` names its id, or if its name has our UUID as a delimited field. Uploads
that a decided plan names are spared: on some stores the success of an abort proves nothing,
and an abort may delete a completed object (stores.md). A process that does not know everything that
the plan of a committed job names looks at each upload first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Set
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

from magic_committer.commit import requests, revert
from magic_committer.commit.requests import Ahead
from magic_committer.commit.sets import ReadyUpload, each_listed, upload_name
from magic_committer.commit.uploads import Removal, Removed, to_remove
from magic_committer.errors import FormatError, NotFound, NotSupported, StoreError
from magic_committer.errors.messages import NAMED_MAX, counted, name_some
from magic_committer.hadoop.paths import (
    PLAN_PREFIX,
    RECORD,
    SAVED_SUFFIXES,
    SET_SUFFIXES,
    Destination,
    owner_of,
)
from magic_committer.protocol.plan import KeySet, Plan
from magic_committer.protocol.record import (
    ATTEMPT_METADATA,
    JOB_METADATA,
    TASK_METADATA,
    StartedJob,
)
from magic_committer.runtime.components import Progress, Runtime, again
from magic_committer.stores.base import (
    DirectoryStore,
    ObjectInfo,
    UploadInfo,
    UploadPage,
    same_etag,
)

SWEEP_ROUNDS_MAX = 5
SWEEP_PAUSE_SECONDS = 0.2
"""Seconds before the second listing of uploads. They double each time."""
TASKS_NAMED_MAX = 10
"""How many tasks of each kind the warnings of a report name."""

Spared = Callable[[str], bool]
"""Whether a decided plan names the upload with that `upload_name`."""


def nothing_spared(name: str) -> bool:
    """For a job that is not committed: no plan names any upload."""
    return False


@dataclass(slots=True)
class Swept:
    """What a sweep did and what it could not do."""

    aborted: int = 0
    left: dict[str, tuple[ReadyUpload, Removed]] = field(default_factory=dict)
    """Uploads that are, or may be, still open, by `upload_name`."""
    unattributed: int = 0
    warnings: list[str] = field(default_factory=list)
    again: bool = False
    """The store failed: the record stays, so that a recovery sweeps again."""

    @property
    def left_open(self) -> tuple[str, ...]:
        """Key and id of the first uploads that are, or may be, still open."""
        return tuple(f"{u.key} {u.upload_id}" for u, _ in islice(self.left.values(), NAMED_MAX))

    def failed(self, warning: str) -> None:
        """Note a failure that a later sweep may repair."""
        self.warnings.append(warning)
        self.again = True


def sweep(
    runtime: Runtime,
    job: StartedJob,
    plan: Plan | None = None,
    *,
    spared: Spared = nothing_spared,
    look_first: bool = False,
    undone: bool = False,
) -> Swept:
    """Sweep a decided job, everything but its record. Repeatable; errors become warnings.

    ``plan``: of a committed job. The pendingsets that it names need not be read. Another one at
    such a key is of another run: a given id may be in use again. Files that were saved but not
    published become warnings. ``look_first``: needed if an upload may have been completed and this
    process does not know everything that the plan names. ``undone``: report what is visible of an
    aborted job."""
    swept, waits, sets = Swept(), job.waits, plan.sets if plan is not None else ()
    accepted = {job.paths.tree + one.name: one.etag for one in sets}
    run = _Sweep(runtime, job, spared, swept, look_first, plan is not None)
    with run.listing() as listed:
        found = run.control_objects()
        known = {i.key for i in found if same_etag(accepted.get(i.key, ""), i.etag)}
        named = run.named_uploads(found, known)
        # Whole before the first abort: what names a page's end may go.
        first = run.mine(listed, {one.name for one in named})
    if not waits:
        run.abort_all(named)
    run.abort_listed(first)
    if waits:
        swept.aborted += run.clear(job.paths.task_attempts)
        if undone and (told := revert.what_stays(runtime, job)):  # nobody publishes any more
            swept.warnings.append(told)
    if plan is not None:
        swept.warnings += run.unpublished({one.task: one.attempt for one in sets})
    for upload, removed in islice(swept.left.values(), NAMED_MAX):
        swept.failed(f"the upload of {upload.key} could not be aborted: {removed.why}")
    if len(swept.left) > NAMED_MAX:
        swept.failed(f"{len(swept.left) - NAMED_MAX} more uploads could not be aborted")
    if not swept.left and not run.unread:  # otherwise the next sweep needs the names in them
        run.delete(found, known)
        if waits and not swept.again:  # what nobody knows, and empty directories
            run.clear(job.paths.tree)
    return swept


@dataclass(slots=True)
class _Sweep:
    runtime: Runtime
    job: StartedJob
    spared: Spared
    swept: Swept
    look_first: bool
    tells: bool
    """Whether to report files that were saved but not published."""
    unread: bool = False
    """Whether something could not be read that may name uploads."""
    ended: KeySet = field(default_factory=KeySet)
    """Uploads that are proved to have ended, by `upload_name`."""
    sent: KeySet = field(default_factory=KeySet)
    """Those of `ended` that ended by our abort."""
    saved: list[tuple[str, str, str]] = field(default_factory=list)
    """Leftover `.pending`s with our token: task, attempt and `upload_name`."""
    with_set: set[str] = field(default_factory=set)
    """Attempts with a leftover `.pendingset`: they were committed, or aborted with a tombstone."""
    in_sets: Counter[str] = field(default_factory=Counter)
    """For each task, how many files its leftover `.pendingset`s name."""

    def control_objects(self) -> list[ObjectInfo]:
        """Everything in the job's directories but the record."""
        record = self.job.paths.record
        try:
            return [
                info
                for directory in self.job.paths.control_directories
                for page in self.runtime.store.list(directory)
                for info in page.objects
                if info.key != record
            ]
        except StoreError as error:
            self.swept.failed(f"the job's directory could not be listed: {error}")
            return []

    # Uploads --------------------------------------------------------------------------------------

    def named_uploads(self, found: Iterable[ObjectInfo], accepted: Set[str]) -> list[ReadyUpload]:
        """Uploads that leftover `.pending`s and unaccepted `.pendingset`s name."""
        leftover = (
            info for info in found if info.key.endswith(SAVED_SUFFIXES) and info.key not in accepted
        )
        named: list[ReadyUpload] = []
        with closing(each_listed(self.runtime, self._read_named, leftover)) as outcomes:
            for outcome in outcomes:
                try:
                    uploads, metadata = outcome.unwrap()
                except NotFound:
                    continue  # deleted meanwhile, by its attempt or by another sweep
                except FormatError as error:
                    self.swept.warnings.append(f"its uploads are not known: {error}")
                except StoreError as error:
                    self.unread = True
                    self.swept.failed(f"its uploads are not known: {error}")
                else:
                    named += uploads
                    self._note_saved(outcome.item.key, uploads, metadata)
        return named

    def _read_named(self, info: ObjectInfo) -> tuple[list[ReadyUpload], Mapping[str, str]]:
        ready, metadata = revert.uploads_in(self.runtime, self.job, info)
        if not all(self.job.paths.dest.contains(upload.key) for upload in ready):
            raise FormatError(info.key, "destinationKey", "lies outside the destination")
        return [upload.bare for upload in ready], metadata

    def clear(self, directory: str) -> int:
        """Remove a directory of waiting files, which is the job's alone: nobody publishes what is
        left in it. Gives how many files there were."""
        try:
            return cast("DirectoryStore", self.runtime.store).clear(directory)
        except StoreError as error:
            self.swept.failed(f"files of tasks could not be removed: {error}")
            return 0

    def listing(self) -> Ahead[UploadPage]:
        """Begin to list the uploads under the destination."""
        # What waits is removed with its directory: only a probe of a dead driver may be there.
        prefix = self.job.paths.directory if self.job.waits else self.job.paths.dest.prefix
        return Ahead(self.runtime, lambda: self.runtime.store.list_uploads(prefix))

    def abort_listed(self, first: list[UploadInfo] | StoreError) -> None:
        """Abort the job's uploads by name until a listing shows no open one. ``first``: what was
        listed before the uploads that are named were aborted."""
        left, mine, passed = self.swept.left, first, self.ended.__contains__
        for number in again(self.runtime.clock, SWEEP_ROUNDS_MAX, SWEEP_PAUSE_SECONDS):
            if number:
                with self.listing() as pages:
                    mine, passed = self.mine(pages), nothing_spared
            if isinstance(mine, NotSupported):
                self.swept.warnings.append(
                    "the store cannot list uploads: those of killed attempts, if any, stay open"
                    " until a lifecycle rule removes them"
                )
                return
            if isinstance(mine, StoreError):
                self.swept.failed(f"uploads could not be listed: {mine}")
                return
            # What stayed open after all its aborts is not aborted again; what failed is.
            names = ((upload_name(u.key, u.upload_id), u) for u in mine)
            fresh = [u for name, u in names if not passed(name) and name not in left]
            failed = [u for u, removed in left.values() if removed.error is not None]
            if not self.abort_all([*fresh, *failed]) and not any(
                removed.error is not None for _, removed in left.values()
            ):
                return  # everything in the listing has ended

    def mine(
        self, pages: Iterable[UploadPage], named: Container[str] = ()
    ) -> list[UploadInfo] | StoreError:
        """The uploads in a listing that carry the job's UUID, or why it failed. Those without one
        are counted, but for the ``named``."""
        mine: list[UploadInfo] = []
        unattributed = 0
        try:
            for upload in (one for page in pages for one in page.uploads):
                name = upload_name(upload.key, upload.upload_id)
                if self.spared(name):
                    continue
                uuid = owner_of(upload.key, upload.upload_id)
                if uuid == self.job.uuid:
                    mine.append(upload)
                    continue
                unattributed += uuid is None and name not in named
        except StoreError as error:
            return error
        self.swept.unattributed = unattributed
        return mine

    def abort_all(self, doomed: Collection[ReadyUpload | UploadInfo]) -> int:
        """Remove uploads and give the number of aborted ones. What could not be removed is kept in
        ``left``."""
        if not doomed:
            return 0
        before = self.swept.aborted
        removals = (
            (upload, to_remove(self.runtime, upload, look_first=looks))
            for upload, looks in self._targets(doomed)
        )
        with closing(requests.each(self.runtime, removals)) as ended:
            for upload, removed in ended:
                if removed.removal is Removal.LEFT:
                    self.swept.left[upload.name] = upload, removed
                    continue
                self.swept.left.pop(upload.name, None)
                self.ended.add(upload.name)
                if removed.removal is Removal.ABORTED:
                    self.sent.add(upload.name)
                    self.swept.aborted += 1
                    self.runtime.progress(Progress("sweep", self.swept.aborted, None, "uploads"))
        return self.swept.aborted - before

    def _targets(
        self, doomed: Iterable[ReadyUpload | UploadInfo]
    ) -> Iterator[tuple[ReadyUpload, bool]]:
        """Uploads, each once (a `.pending` and a `.pendingset` may name the same), and whether to
        look at them first. Runs in one thread, because its sets are not safe for several."""
        known = KeySet()
        for upload in doomed:
            if isinstance(upload, UploadInfo):
                upload = ReadyUpload(upload.key, upload.upload_id)
            name = upload.name
            if self.spared(name) or not known.add(name):
                continue
            # An upload that is shown again after its abort was proved has most likely ended: the
            # listing lags.
            yield upload, self.look_first or name in self.ended

    # What was saved and is not published ----------------------------------------------------------

    def _note_saved(
        self, key: str, uploads: list[ReadyUpload], metadata: Mapping[str, str]
    ) -> None:
        if not self.tells or metadata.get(JOB_METADATA) != self.job.uuid:
            return
        task, attempt = metadata.get(TASK_METADATA, ""), metadata.get(ATTEMPT_METADATA, "")
        if key.endswith(SET_SUFFIXES):
            self.with_set.add(attempt)
            self.in_sets[task] += len(uploads)
        else:
            self.saved += [(task, attempt, upload.name) for upload in uploads]

    def unpublished(self, accepted_attempts: Mapping[str, str]) -> list[str]:
        """Sentences about tasks with saved files that no accepted pendingset names, and about tasks
        whose results were left out. Killed or slower attempts of tasks that another attempt
        committed are normal, and are not reported."""
        never: Counter[str] = Counter()
        late: Counter[str] = Counter()
        for task, saved_by, upload in self.saved:
            attempt = accepted_attempts.get(task)
            if attempt is None:
                never[task] += saved_by not in self.with_set
            elif attempt == saved_by:
                # Uploads that the plan names are spared, or were looked at and are visible.
                late[task] += upload in self.sent
        left_out = {
            task: files
            for task, files in self.in_sets.items()
            if files and task not in accepted_attempts
        }
        told: list[str] = []
        if left_out:
            tasks, files = counted(len(left_out), "task"), counted(sum(left_out.values()), "file")
            told.append(
                f"{tasks} committed {files}, and no result of theirs was accepted: they were not"
                f" published: {name_some(sorted(left_out))}. Pass the results of all tasks to"
                " commit, with expect=, and none is left out unseen"
            )
        told += _told(
            never,
            "saved {files} and was never committed: call task.commit(): they were not published",
        )
        return told + _told(
            late,
            "closed {files} after its attempt was committed: they were not published: close every"
            " file before task.commit()",
        )

    # Control objects ------------------------------------------------------------------------------

    def delete(self, found: list[ObjectInfo], accepted: Set[str]) -> None:
        """Delete the job's control objects, plans before pendingsets."""
        mine, unknown = (found, []) if not self.job.given_id else self._of_this_run(found, accepted)
        prefix = f"{self.job.paths.directory}{PLAN_PREFIX}"
        plans = [i.key for i in mine if i.key.startswith(prefix)]
        others = [i.key for i in mine if not i.key.startswith(prefix)]
        if any(key.startswith(prefix) for key in unknown):
            others = []  # a plan stays: what it names stays too
        for keys in (plans, others):
            try:
                failed = self.runtime.store.delete(keys) if keys else {}
            except StoreError as error:
                self.swept.failed(f"control objects could not be deleted: {error}")
                return
            if failed:
                key, reason = next(iter(failed.items()))
                self.swept.failed(
                    f"{counted(len(failed), 'control object')} could not be deleted,"
                    f" e.g. {key}: {reason}"
                )
                return

    def _of_this_run(
        self, found: Iterable[ObjectInfo], accepted: Set[str]
    ) -> tuple[list[ObjectInfo], list[str]]:
        """The job's own objects in a directory that a given id names: the directory may also hold
        litter of a zombie of an earlier run. And the keys of those whose owner is not known."""
        mine: list[ObjectInfo] = []
        unknown: list[str] = []

        def owned(info: ObjectInfo) -> bool:
            if info.key in accepted:
                return True
            try:
                return self.job.owns(self.runtime.store.head(info.key).metadata)
            except NotFound:
                return False

        with closing(self.runtime.each(owned, found)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome.error, StoreError):
                    self.swept.failed(f"left: {outcome.item.key}: {outcome.error}")
                    unknown.append(outcome.item.key)
                elif outcome.unwrap():
                    mine.append(outcome.item)
        return mine, unknown


def _told(files: Counter[str], what: str) -> list[str]:
    """A sentence for each of the first tasks, and one for all others."""
    tasks = [(task, number) for task, number in sorted(files.items()) if number]
    told = [
        f"task {task!r} " + what.format(files=counted(number, "file"))
        for task, number in tasks[:TASKS_NAMED_MAX]
    ]
    if rest := tasks[TASKS_NAMED_MAX:]:
        number = sum(number for _, number in rest)
        in_all = f"{counted(number, 'file')} in all"
        told.append(f"{counted(len(rest), 'more task')}, each: " + what.format(files=in_all))
    return told


def job_records(runtime: Runtime, dest: Destination) -> Iterable[str]:
    """Keys of the job records directly under a destination: a listing of its job directories."""
    for page in runtime.store.list(dest.jobs_prefix, delimiter="/"):
        for prefix in page.prefixes:
            yield f"{prefix}{RECORD}"
