"""Publishing: what a decided job does to the data (protocol.md, "Commit", steps 5 to 8).

Complete the plan's uploads, delete what they replace, write `_SUCCESS`, sweep. The record is not
moved here: `driver` moves it between these steps, and says which step comes next. Every step
may be done again, by any process, after any crash. The way back is `revert`.

Keys that an operator accepts (``accept``) hold nothing up: a lost file, an object that cannot be
deleted, a `_SUCCESS` that cannot be written. Each of them becomes a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from magic_committer.commit.outcome import incomplete, not_all_visible
from magic_committer.commit.probe import known
from magic_committer.commit.register import Seen, success_data, write_marker
from magic_committer.commit.requests import Steps, each
from magic_committer.commit.revert import delete_if_same
from magic_committer.commit.sets import ReadyUpload, Spool, Uploads, stored_uploads
from magic_committer.commit.sweep import Swept, sweep
from magic_committer.commit.uploads import (
    Completed,
    Completion,
    Removal,
    completing,
    remove,
)
from magic_committer.errors import CommitIncomplete, FormatError, MagicError, StoreError
from magic_committer.errors.messages import counted, name_some
from magic_committer.hadoop import statistics as stats
from magic_committer.hadoop.documents import SUCCESS_FILENAMES_MAX
from magic_committer.hadoop.statistics import Statistics
from magic_committer.options import FAILING
from magic_committer.protocol.plan import KeySet, Plan
from magic_committer.protocol.record import ObjectRef, StartedJob
from magic_committer.runtime.components import Progress, Runtime

logger = logging.getLogger("magic_committer")

UNANSWERED_RUN_MAX = 64
"""After this many Completes in a row without an answer the store counts as down. The rest is left
for the next try."""


class Conflict(Exception):
    """Another writer's object is at a key of a job of mode ``fail``. The argument is the key."""


@dataclass(eq=False, slots=True)
class Publication:
    """One decided job, as one process publishes it. ``spool``: the plan's uploads, as this process
    has checked them; None: its sets are read from the store, as another process may do too.
    ``names``: the uploads of the plan, as far as this process knows. ``filenames``: the first paths
    that the job publishes, for people. ``warnings``: what the job's report must tell."""

    runtime: Runtime
    job: StartedJob
    plan: Plan
    accept: Collection[str]
    statistics: Statistics
    spool: Spool | None = None
    names: KeySet = field(default_factory=KeySet)
    missing_is_fine: bool = False
    filenames: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _visible: int = 0
    """How many files this process has seen or made visible."""
    _knows_all: bool = False
    """``names`` holds every upload of the plan: this process has completed them."""

    def __post_init__(self) -> None:
        if not self.plan.files:
            gone = len(self.plan.deletes)
            replaced = f", and deleted what was there: {counted(gone, 'file')}" if gone else ""
            self.warnings.append(f"the job published no file{replaced}")

    # Step 5 ---------------------------------------------------------------------------------------

    def complete_all(self) -> CommitIncomplete | None:
        """Step 5: make every file visible. Repeatable. Gives None if all are, otherwise the reason
        why not. Raise it, unless another process has moved the record on: then that may be the
        reason. Raises `Conflict` if mode ``fail`` met another writer's object, and
        `CommitIncomplete` if the old marker could not be deleted: nothing was completed."""
        if self.plan.marker is not None:
            self._delete_old_marker(self.plan.marker)
        left: dict[Completion, list[str]] = {each: [] for each in Completion}
        self._visible = unanswered_run = 0
        first_error: MagicError | None = None

        if_none_match, distrust = self.job.terms.mode in FAILING, self._distrusts()

        def remaining() -> Iterator[tuple[ReadyUpload, Steps[Completed]]]:
            for upload in self._uploads():
                if unanswered_run >= UNANSWERED_RUN_MAX:
                    left[Completion.UNFINISHED].append(upload.key)
                else:
                    yield (
                        upload,
                        completing(
                            self.runtime,
                            upload,
                            self.statistics,
                            if_none_match=if_none_match,
                            distrust=distrust,
                        ),
                    )

        try:
            works = each(self.runtime, remaining())
            with closing(works) as completed:
                for upload, (completion, error) in completed:
                    key = upload.key
                    if completion is Completion.DONE:
                        unanswered_run = 0
                        self._visible += 1
                        told = Progress("complete", self._visible, self.plan.files, "files")
                        self.runtime.progress(told)
                        continue
                    if completion is Completion.CONFLICT and key not in self.accept:
                        raise Conflict(key)
                    if completion is not Completion.UNFINISHED and key in self.accept:
                        self._take_as_it_is(upload)
                        continue
                    first_error = first_error or error
                    left[completion].append(key)
                    unanswered_run += completion is Completion.UNFINISHED
        except (StoreError, FormatError) as error:  # a pendingset of the plan cannot be read
            first_error = error
        self.statistics.add(stats.COMMITS_COMPLETED, self._visible)
        self.statistics.add(stats.COMMITS_FAILED, sum(map(len, left.values())))
        if first_error is None:
            self.statistics.add(stats.BYTES_COMMITTED, self.plan.data_bytes)
            self._knows_all = True
            return None
        failure = not_all_visible(self.job, first_error, left)
        failure.__cause__ = first_error
        return failure

    def _distrusts(self) -> bool:
        """Whether a 200 to Complete is not enough. There are two cases: the store is not known to
        tell the truth; or somebody may have begun to complete what a stored plan names, and a
        server that was killed meanwhile answers falsely from then on. What this process has just
        decided is touched by nobody else, except by somebody who does not wait until it is dead
        (docs/recovery.md)."""
        return self.spool is None or known(self.runtime.store.identity).true_complete is not True

    def _delete_old_marker(self, marker: ObjectRef) -> None:
        """Delete the marker before a whole directory is replaced: readers that look for `_SUCCESS`
        then wait until it is back."""
        try:
            delete_if_same(self.runtime, marker.key, marker.etag, modified=marker.modified)
        except StoreError as error:
            raise incomplete(self.job, "the old _SUCCESS could not be deleted", error) from error

    def _take_as_it_is(self, upload: ReadyUpload) -> None:
        """Abort the job's own upload of a key that an operator accepts: nobody needs the upload
        any more, and the sweep would spare it, because the plan names it."""
        removed = remove(self.runtime, upload)
        aborted = removed.removal is Removal.ABORTED and removed.error is None
        lost = ": its upload was open and is aborted, so the job's file is not published"
        self.warnings.append(f"{upload.key} was accepted as it is{lost if aborted else ''}")
        if removed.removal is Removal.LEFT:
            self.warnings.append(f"the upload of {upload.key} may be open still: {removed.why}")
        elif removed.why:
            self.warnings.append(f"the upload of {upload.key} is aborted; {removed.why}")

    def sets(self) -> Uploads:
        """The plan's uploads."""
        if self.spool is not None:
            return self.spool.uploads()
        fine = self.missing_is_fine
        return stored_uploads(self.runtime, self.job, self.plan.sets, missing_is_fine=fine)

    def _uploads(self) -> Iterator[ReadyUpload]:
        for uploads, statistics in self.sets():
            self.statistics.merge(statistics)
            for upload in uploads:
                if self.spool is None:
                    self.names.add(upload.name)
                if len(self.filenames) < SUCCESS_FILENAMES_MAX:
                    self.filenames.append(f"/{upload.key}")
                yield upload

    # Steps 6 to 8 ---------------------------------------------------------------------------------

    def delete_replaced(self) -> None:
        """Step 6: delete what the plan names, each object only if it is still the planned version.
        Repeatable. What is still there then is `CommitIncomplete`."""
        failures: dict[str, StoreError] = {}

        def one(replaced: ObjectRef) -> None:
            delete_if_same(self.runtime, replaced.key, replaced.etag, modified=replaced.modified)

        total = len(self.plan.deletes)
        if not total:
            return
        deleting = self.runtime.each(one, self.plan.deletes)
        with (
            self.statistics.timed(stats.DELETE_REPLACED, self.runtime.clock),
            closing(deleting) as outcomes,
        ):
            for number, outcome in enumerate(outcomes, 1):
                if isinstance(outcome.error, StoreError):
                    if outcome.item.key in self.accept:
                        self.warnings.append(f"{outcome.item.key} was accepted as it is")
                    else:
                        failures[outcome.item.key] = outcome.error
                    continue
                outcome.unwrap()
                self.runtime.progress(Progress("replace", number, total, "files"))
        if failures:
            first = next(iter(failures.values()))
            raise incomplete(
                self.job,
                f"{counted(len(failures), 'file')} that it replaces could not be deleted yet:"
                f" {name_some(sorted(failures))}",
                first,
                outstanding=tuple(sorted(failures)),
            ) from first

    def mark(self, seen: Seen, *, just_now: bool = False) -> bool:
        """Step 7: write the marker of the ``completed`` job. Repeatable. ``just_now``: this process
        has just moved it there.

        False: the store failed, and the record and the plan stay, so that the process that finishes
        the job writes it. If the job has deleted the old marker, that is `CommitIncomplete`."""
        key = self.job.paths.dest.success_key
        if key in self.accept:
            self.warnings.append(f"{key} was accepted as it is")
            return True
        try:
            self._read_names()
            self.statistics.add(stats.JOBS_COMPLETED)
            success = success_data(
                self.job, self.plan, self.statistics, self.filenames, seen.record.started,
                self.runtime.clock.now(),
            )  # fmt: skip
            left = write_marker(self.runtime, key, seen, success, just_now=just_now)
        except StoreError as error:
            if self.plan.marker is not None:
                what = "_SUCCESS could not be written, and the old one is deleted"
                raise incomplete(self.job, what, error, outstanding=(key,)) from error
            self.warnings.append(
                f"_SUCCESS could not be written; commit() again writes it: {error}"
            )
            return False
        except MagicError as error:  # its content cannot be made: nobody can write it
            self.warnings.append(f"_SUCCESS could not be written: {error}")
            return True
        if left:
            self.warnings.append(f"_SUCCESS was left as it is: {left}")
        return True

    def _read_names(self) -> None:
        """Read the first names for `_SUCCESS`, if this process has completed nothing. They are for
        people: if a set cannot be trusted any more, the marker is written all the same."""
        if self.names:
            return
        try:
            for _ in zip(range(SUCCESS_FILENAMES_MAX), self._uploads(), strict=False):
                continue
        except FormatError as error:
            self.warnings.append(f"_SUCCESS names {counted(len(self.filenames), 'file')}: {error}")

    def sweep(self) -> Swept:
        """Step 8: abort and delete what is left of the job. Repeatable."""
        looks = not self._knows_all or bool(self.job.adopted)
        swept = sweep(
            self.runtime, self.job, self.plan, spared=self.names.__contains__, look_first=looks
        )
        self.warnings += swept.warnings
        return swept
