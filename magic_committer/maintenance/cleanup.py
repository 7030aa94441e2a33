"""Cleaning up under a destination: dead jobs, unfinished jobs, and leftovers of jobs that are over.

It may run at any time, beside live jobs and beside another cleanup. Every decision is a swap of a
record; every delete removes only what was looked at; every aborted upload belongs to a job that is
over.

Ownership is read, never guessed: an upload's as in `magic_committer.maintenance.uploads`, by its
name, its mark, or a `.pending` or `.pendingset` with our token; a control object's by the token in
its metadata. If the record that would tell cannot be looked for, the upload stays.

Where no listing shows what is open (docs/stores.md), a cleanup says so and gives no all-clear.

An upload of a job that is over can never be published. It is left until ``leftover_after`` all the
same, and for ever if its age is not known: another program may be copying a file of that name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from typing import cast

from magic_committer.commit import register, requests
from magic_committer.commit.register import age_of
from magic_committer.commit.revert import delete_if_same
from magic_committer.commit.sets import ReadyUpload, from_pending, upload_name
from magic_committer.commit.uploads import (
    Removal,
    Removed,
    UploadLook,
    looking,
    to_remove,
)
from magic_committer.errors import (
    FormatError,
    JobTooYoung,
    MagicError,
    NotFound,
    NotSupported,
    StoreError,
)
from magic_committer.errors.messages import NAMED_MAX, Remedy, age_words, in_python
from magic_committer.hadoop.paths import RECORD, SAVED_SUFFIXES, TEMPORARY, Destination, owner_of
from magic_committer.maintenance.ending import Ending
from magic_committer.maintenance.inspect import (
    Listing,
    changed_ago,
    directories,
    directory_of,
    each,
    pendings_of,
)
from magic_committer.maintenance.reports import CleanupReport, Recovery, unfinished
from magic_committer.maintenance.uploads import OLD_SECONDS, OpenUploads, Places
from magic_committer.options import Options
from magic_committer.protocol.plan import KeySet
from magic_committer.protocol.record import JOB_METADATA, State
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import DirectoryStore, ObjectInfo
from magic_committer.stores.urls import is_tree


@dataclass(frozen=True, slots=True)
class Limits:
    """The ages in seconds from which things are removed, and whether decided jobs are finished; see
    `magic_committer.cleanup`."""

    dead_after: float
    leftover_after: float
    forget_after: float
    forget_given_after: float
    finish: bool = True


@dataclass(slots=True)
class Cleaning:
    """One cleanup of one destination. ``worded``: how its report writes what may be called.
    ``counted``: the uploads that are in a report, or would be aborted; those of the places below a
    path share it, because a place sees all uploads below it."""

    runtime: Runtime
    dest: Destination
    limits: Limits
    dry_run: bool
    options: Options
    worded: Callable[[Remedy], str] = in_python
    counted: KeySet = field(default_factory=KeySet)
    _counting: Lock = field(default_factory=Lock)
    _recovered: list[Recovery] = field(default_factory=list)
    _unfinished: list[Recovery] = field(default_factory=list)
    _left_ages: dict[str, float] = field(default_factory=dict)
    _over: set[str] = field(default_factory=set)
    _counts: Counter[str] = field(default_factory=Counter)
    _did: list[str] = field(default_factory=list)
    _errors: list[str] = field(default_factory=list)

    def run(self) -> CleanupReport:
        """Clean up. An error on one thing does not stop the others. StoreError: the jobs could not
        be listed."""
        survey: OpenUploads | None = None
        try:  # the uploads are listed before the records are read
            survey = OpenUploads(
                self.runtime, self.dest, options=self.options,
                dead_after=self.limits.dead_after, by_name=True,
            )  # fmt: skip
        except NotSupported:
            self._errors.append("the store cannot list uploads: those that nothing names stay open")
        except StoreError as error:
            self._errors.append(f"uploads could not be listed: {error}")
        for directory in directories(self.runtime, self.dest.jobs_prefix):
            try:
                seen = register.read(self.runtime, f"{directory}{RECORD}")
                if seen is None:
                    self._litter(directory, known_over="")
                elif seen.record.state is State.CLOSED:
                    self._litter(directory, known_over=seen.record.uuid)
                    self._forget(seen)
                else:
                    self._recover(directory, seen)
            except MagicError as error:
                self._errors.append(f"{directory}: {error}")
        if survey is not None:
            self._abort_named(survey)
        if is_tree(self.dest.bucket):
            self._waiting_litter()
        return CleanupReport(
            dest=self.dest.url,
            dry_run=self.dry_run,
            recovered=tuple(self._recovered),
            did=tuple(self._did),
            errors=tuple(self._errors),
            unfinished=tuple(self._unfinished),
            **self._counts,
        )

    def _note(self, what: str, line: str) -> None:
        self._counts[what] += 1
        if self._counts[what] <= NAMED_MAX:
            self._did.append(line)

    def _recover(self, directory: str, seen: register.Seen) -> None:
        running = seen.record.state is State.RUNNING  # then its recovery asks for its age
        only_told = not running and not self.limits.finish
        ending = Ending(
            self.runtime, self.dest, seen.record.id,
            dead_after=self.limits.dead_after, options=self.options,
        )  # fmt: skip
        recovery: Recovery | None = None
        with suppress(JobTooYoung):
            if running or not self._is_young(directory):
                recovery = ending.recover_now(dry_run=self.dry_run or only_told)
        self._counts["jobs_left"] += recovery is None or only_told
        if recovery is None:
            return
        if only_told:
            self._unfinished.append(recovery)
            return
        self._recovered.append(recovery)
        left = unfinished(recovery.job_id, recovery.state, recovery.report)
        if left and not recovery.dry_run:
            self._errors.append(left)
        if len(self._recovered) <= NAMED_MAX:
            self._did.append(f"job {recovery.job_id} ({recovery.found}): {recovery.did}")

    def _is_young(self, directory: str) -> bool:
        return changed_ago(self.runtime, directory) < self.limits.leftover_after

    def _forget(self, seen: register.Seen) -> None:
        """Delete a closed record that is old enough."""
        age = age_of(seen.seen_at, seen.last_modified)
        self._left_ages.setdefault(seen.record.uuid, age)
        given, limits = seen.record.given_id, self.limits
        if age < (limits.forget_given_after if given else limits.forget_after):
            return
        # The second call deletes on a store without conditional delete.
        if (
            self.dry_run
            or register.remove(self.runtime, seen)
            or delete_if_same(self.runtime, seen.key, seen.etag)
        ):
            line = f"job {seen.record.id}: its closed record, {age_words(age)} old"
            self._note("records_deleted", line)

    # Control objects ------------------------------------------------------------------------------

    def _litter(self, directory: str, known_over: str) -> None:
        """Remove leftovers of jobs that are over from a directory: by token, each only if it is old
        itself. ``known_over``: the UUID of the closed record there; "": there is no record."""
        listing, taken = Listing(self.runtime, directory), 0
        record = f"{directory}{RECORD}"
        others = (info for info in listing if info.key != record and self._old(info))

        def take(info: ObjectInfo) -> int | None:
            return self._take(info, known_over)

        for info, aborted in each(self.runtime, take, others, self.options.commit_threads):
            if isinstance(aborted, MagicError):
                self._errors.append(f"{info.key}: {aborted}")
            elif aborted is not None:
                taken += 1
                self._counts["uploads_aborted"] += aborted
                self._note("objects_deleted", f"{info.key}: a job that is over left it")
        if listing.objects and not taken and not known_over:
            self._counts["jobs_left"] += 1

    def _old(self, info: ObjectInfo) -> bool:
        return age_of(info.seen_at, info.last_modified) >= self.limits.leftover_after

    def _take(self, info: ObjectInfo, known_over: str) -> int | None:
        """Delete one control object of a job that is over, after the uploads that it names were
        aborted. If one of these uploads is left, the object stays for the next cleanup. Gives the
        number of uploads; None if the object is not ours, its job is not over, or it stays."""
        try:
            now = self.runtime.store.head(info.key)
        except NotFound:
            return None
        token = (now.metadata or {}).get(JOB_METADATA, "")
        if not token or (known_over and token != known_over) or not self._old(now):
            return None
        if not known_over and not self._is_over_here(info.key, token):
            return None
        age = age_of(now.seen_at, now.last_modified)
        self._left_ages[token] = max(self._left_ages.get(token, 0.0), age)
        saved = info.key.endswith(SAVED_SUFFIXES)
        aborted, left = self._abort_pendings(now) if saved else (0, False)
        if left:
            self._counts["uploads_aborted"] += aborted
            return None
        if not self.dry_run:
            delete_if_same(self.runtime, now.key, now.etag)
        return aborted

    def _is_over_here(self, key: str, token: str) -> bool:
        """Whether the job of an object in a directory without a record is over. The record is
        looked for again after the object was seen: a given id that was forgotten may be in use
        again."""
        if token not in self._over:
            directory = key[: key.index("/", len(self.dest.jobs_prefix)) + 1]
            seen = register.read(self.runtime, f"{directory}{RECORD}")
            if seen is not None and seen.record.uuid == token:
                return False
            self._over.add(token)
        return True

    def _waiting_litter(self) -> None:
        """Remove the directories of waiting files of jobs that are over: each only if it is old.
        The records are read after the directories were listed: a job may have begun meanwhile."""
        here, waiting = directory_of(self.dest.prefix), f"{self.dest.prefix}{TEMPORARY}/"
        try:
            found = list(directories(self.runtime, waiting))
        except StoreError as error:
            self._errors.append(f"{waiting}: {error}")
            return
        places = Places(self.runtime, self.options.commit_threads)
        for directory in found:
            uuid = owner_of("", directory)
            if uuid is None or places.is_over(here, uuid) is not True:
                continue
            try:
                if self._is_young(directory):
                    continue
                if not self.dry_run:
                    cast("DirectoryStore", self.runtime.store).clear(directory)
                self._note("objects_deleted", f"{directory}: a job that is over left it")
            except StoreError as error:
                self._errors.append(f"{directory}: {error}")

    # Uploads --------------------------------------------------------------------------------------

    def _abort_pendings(self, info: ObjectInfo) -> tuple[int, bool]:
        """Abort the uploads that a leftover `.pending` or `.pendingset` names, but not those that
        have ended: on some stores the abort of a completed upload deletes the object, even one that
        has replaced its own (docs/stores.md). Gives how many were aborted, and whether one is
        left."""
        try:
            pendings, _ = pendings_of(self.runtime, info)
        except NotFound:
            return 0, False
        except FormatError as error:
            self._errors.append(f"its uploads are not known: {error}")
            return 0, False
        uploads = []
        for number, pending in enumerate(pendings):
            if not self.dest.contains(pending.destination_key):
                raise FormatError(info.key, "destinationKey", "lies outside the destination")
            uploads.append(from_pending(pending, f"{info.key}: {number}").bare)
        # One after the other, by verbs: this is a thread of the pool, and a thread that waits for
        # others of its pool may wait for ever.
        ends = [
            self._removed(one, requests.by_verbs(self.runtime, self._to_remove(one)))
            for one in uploads
        ]
        return ends.count(Removal.ABORTED), Removal.LEFT in ends

    def _abort_named(self, survey: OpenUploads) -> None:
        """Abort old uploads whose names, or marks, tell a job that is over."""

        def doomed() -> Iterator[ReadyUpload]:
            for found in chain.from_iterable(survey._pages()):
                age = found.age
                if age is None:
                    age = self._left_ages.get(found.uuid, found.named_age)
                over = found.owner_class == "orphan" or found.job_state == State.CLOSED
                if over and age is not None and age >= self.limits.leftover_after:
                    yield ReadyUpload(found.key, found.upload_id)
                elif over or found.owner_class == "unknown":
                    self._counts["uploads_left"] += self._is_new(found._name)
                elif found.owner_class == "foreign" and (found.age or 0.0) >= OLD_SECONDS:
                    self._counts["uploads_nameless"] += self._is_new(found._name)

        removals = ((upload, self._to_remove(upload)) for upload in doomed())
        works = requests.each(self.runtime, removals, in_flight=self.options.commit_threads)
        try:
            with closing(works) as ended:
                for upload, end in ended:
                    if self._removed(upload, end) is Removal.ABORTED:
                        line = f"{upload.key}: its upload {upload.upload_id}, of a job that is over"
                        self._note("uploads_aborted", line)
        except StoreError as error:
            self._errors.append(f"uploads could not be listed: {error}")
        self._errors += survey.problems
        try:
            why = survey.unseen(worded=self.worded)
        except StoreError as error:
            why = str(error)
        self._errors += [why] if why else []

    def _to_remove(self, upload: ReadyUpload) -> requests.Steps[UploadLook | Removed]:
        """Begins to abort an upload, unless it has ended. A dry run only looks."""
        if self.dry_run:
            return looking(self.runtime, upload)
        return to_remove(self.runtime, upload)

    def _removed(self, upload: ReadyUpload, end: UploadLook | Removed) -> Removal:
        """What has become of an upload, or would. What is left is reported."""
        if isinstance(end, Removed):
            removal, why = end.removal, end.why
        elif end.ended:
            return Removal.GONE
        else:
            removal = Removal.ABORTED if end.error is None else Removal.LEFT
            why = "" if end.error is None else end.error.message
        name = upload_name(upload.key, upload.upload_id)
        if removal is Removal.LEFT and self._is_new(name):
            self._counts["uploads_left"] += 1
            self._errors.append(f"{upload.key}: its upload {upload.upload_id}: {why}")
        elif removal is Removal.ABORTED and self.dry_run and not self._is_new(name):
            return Removal.GONE
        return removal

    def _is_new(self, name: str) -> bool:
        """Whether an upload was not counted yet; it is then."""
        with self._counting:
            return self.counted.add(name)
