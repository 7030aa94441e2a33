"""Executing a decided plan: steps 5 to 8 of the protocol. Repeatable, by anyone, from any crash.

`execute` takes the record as it stands and goes on from there: ``committing``: complete every
upload, swap to ``completed``; ``completed``: delete what is replaced, write `_SUCCESS`, sweep,
finish. A process that finds the record moved on by another obeys it. Invariants:

* Until all files are visible, what the job replaces is gone, and a marker that it took away is back
  (mode ``replace``), a failure is `CommitIncomplete`: the job is decided, and is never aborted.
  Nobody is told "committed" while old data stays.
* The record leaves ``completed`` only when all of that is done, `_SUCCESS` in every mode included:
  who finishes the job does the rest. What fails of the sweep is a warning.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from magic_committer import stats
from magic_committer.commit import records
from magic_committer.commit.closed import forget_some
from magic_committer.commit.complete import Completion, complete
from magic_committer.commit.deletes import delete_if_same
from magic_committer.commit.keyset import KeySet
from magic_committer.commit.load import stored_uploads
from magic_committer.commit.marker import DIAGNOSTIC_STARTED, marker_ref, write_marker
from magic_committer.commit.outcome import (
    committed_by_marker,
    ended_by_record,
    incomplete,
    not_all_visible,
    unknown,
)
from magic_committer.commit.plan import Plan
from magic_committer.commit.ready import ReadyUpload
from magic_committer.commit.sweep import Swept, sweep
from magic_committer.commit.upload_state import Removal, UploadName, UploadRemover
from magic_committer.errors import (
    FormatError,
    MagicError,
    OutcomeUnknown,
    StoreError,
    name_some,
)
from magic_committer.formats import SUCCESS_FILENAMES_MAX, SuccessData, new_success
from magic_committer.job import JobReport, ObjectRef, StartedJob, State
from magic_committer.options import FAILING
from magic_committer.paths import Destination, JobPaths
from magic_committer.runtime import Progress, Runtime
from magic_committer.stats import Statistics

UNANSWERED_RUN_MAX = 64
"""After so many Completes in a row without an answer the store counts as down, and the rest is left
for the next try."""


class Conflict(Exception):
    """A foreign object is where a job of mode ``fail`` was to write; the argument is its key."""


class Source(Protocol):
    """Where the plan's uploads come from: a driver's spool, or the store."""

    def uploads(self) -> Iterator[tuple[Iterable[ReadyUpload], Mapping[str, Any]]]:
        """Set by set: uploads, and the set's statistics."""
        ...


@dataclass(frozen=True, slots=True)
class StoredSource:
    """The pendingsets that a plan names, read from the store."""

    runtime: Runtime
    job: StartedJob
    plan: Plan
    missing_is_fine: bool

    def uploads(self) -> Iterator[tuple[Iterable[ReadyUpload], Mapping[str, Any]]]:
        return stored_uploads(
            self.runtime, self.job, self.plan.sets, missing_is_fine=self.missing_is_fine
        )


@dataclass(slots=True)
class Execution:
    """One process executing one plan.

    Attributes:
        may_remove: this process decided, alone and undisturbed, a job whose id was drawn: the
            record may go; everyone else leaves it ``closed``.
        tidies: old closed records of other jobs are taken along (`closed`); not by operators, whose
            cleanup does it once for all.
        accept: keys that the operator takes as they are: unresolved ones, replaced ones that cannot
            be deleted, a `_SUCCESS` that cannot be written.
        distrust: look at each object after its Complete, whatever the store answers.
    """

    runtime: Runtime
    job: StartedJob
    plan: Plan
    source: Source
    may_remove: bool
    in_flight: int
    statistics: Statistics
    accept: Collection[str] = ()
    tidies: bool = True
    distrust: bool = False
    names: KeySet = field(default_factory=KeySet)
    knows_all: bool = field(default=False, init=False)
    """``names`` holds every upload of the plan: this process has completed them."""
    filenames: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    dest: Destination = field(init=False)
    paths: JobPaths = field(init=False)

    def __post_init__(self) -> None:
        self.dest = Destination.parse(self.job.dest)
        self.paths = self.job.paths
        if not self.plan.files:
            gone = len(self.plan.deletes)
            replaced = f": {gone} files that were there are deleted" if gone else ""
            self.warnings.append(f"the job published no file{replaced}")

    def run(self, seen: records.Seen) -> tuple[State, Swept]:
        """Go on from the stored record to the end.

        Returns:
            The last state seen, and what the sweep found.

        Raises:
            CommitIncomplete: not everything is visible yet; do this again.
            Conflict: mode ``fail`` met a foreign object: the job is to be reverted.
            JobNotRunning: the job is being reverted.
        """
        if seen.record.state is State.COMMITTING:
            if self.plan.marker is not None:
                self._delete_old_marker(self.plan.marker)
            if not self._complete_all(seen):
                return self._obey(records.read(self.runtime, seen.key))
            self.knows_all = True
            swapped = self._swap_to_completed(seen)
            if not swapped.won or swapped.now is None:
                return self._obey(swapped.now)
            seen = swapped.now
        return self._after_completed(seen)

    def _delete_old_marker(self, marker: ObjectRef) -> None:
        """Before a whole directory is replaced: who goes by `_SUCCESS` waits until it is back."""
        try:
            delete_if_same(self.runtime, marker.key, marker.etag, modified=marker.modified)
        except StoreError as error:
            raise incomplete(self.job, "the old _SUCCESS could not be deleted", error) from error

    def _swap_to_completed(self, seen: records.Seen) -> records.Swapped:
        try:
            marks = self.job.terms.mark_success
            done = seen.record.step(
                State.COMPLETED,
                self.runtime.ids(),
                marker=marker_ref(self.runtime, self.dest.success_key) if marks else None,
            )
            return records.swap(self.runtime, seen, done)
        except (StoreError, OutcomeUnknown) as error:
            raise incomplete(
                self.job, "though all its files are visible its record does not say so yet", error
            ) from error

    def _obey(self, now: records.Seen | None) -> tuple[State, Swept]:
        """Somebody else moved the record on."""
        if now is None:
            if committed_by_marker(self.runtime, self.job):
                return State.ABSENT, Swept()
            raise unknown(self.job)
        state = now.record.state
        if state is State.COMPLETED:
            return self._after_completed(now)
        if state is State.CLOSED and now.record.outcome == "committed":
            return state, Swept()
        raise ended_by_record(now.record)

    def _complete_all(self, seen: records.Seen) -> bool:
        """Step 5. False if the record has left ``committing`` meanwhile."""
        if_none_match = self.job.terms.mode in FAILING
        unresolved: list[str] = []
        refused: list[str] = []
        lost: list[str] = []
        unfinished: list[str] = []
        done = unanswered_run = 0
        first_error: MagicError | None = None

        def one(upload: ReadyUpload) -> tuple[Completion, StoreError | None]:
            with self.statistics.timed(stats.MATERIALIZE_FILE, self.runtime.clock):
                return complete(
                    self.runtime, upload, if_none_match=if_none_match, distrust=self.distrust
                )

        def remaining() -> Iterator[ReadyUpload]:
            for upload in self._uploads():
                if unanswered_run >= UNANSWERED_RUN_MAX:
                    unfinished.append(upload.key)
                else:
                    yield upload

        try:
            with closing(self._each(one, remaining())) as outcomes:
                for outcome in outcomes:
                    completion, error = outcome.unwrap()
                    if completion is Completion.DONE:
                        done, unanswered_run = done + 1, 0
                        self.runtime.progress(Progress("complete", done, self.plan.files, "files"))
                        continue
                    if completion is Completion.CONFLICT and outcome.item.key not in self.accept:
                        raise Conflict(outcome.item.key)
                    if completion is not Completion.UNFINISHED and outcome.item.key in self.accept:
                        self._take_as_it_is(outcome.item)
                        continue
                    first_error = first_error or error
                    if completion is Completion.UNRESOLVED:
                        unresolved.append(outcome.item.key)
                    elif completion is Completion.REFUSED:
                        refused.append(outcome.item.key)
                    elif completion is Completion.LOST:
                        lost.append(outcome.item.key)
                    else:
                        unanswered_run += 1
                        unfinished.append(outcome.item.key)
        except (StoreError, FormatError) as error:  # a pendingset of the plan cannot be read
            first_error = error
        self.statistics.add(stats.COMMITS_COMPLETED, done)
        failed = len(lost) + len(unresolved) + len(refused) + len(unfinished)
        self.statistics.add(stats.COMMITS_FAILED, failed)
        if first_error is None:
            self.statistics.add(stats.BYTES_COMMITTED, self.plan.data_bytes)
            return True
        with suppress(StoreError):  # that it cannot be read is no news: the first error tells
            now = records.read(self.runtime, seen.key)
            if now is None or now.record.state is not State.COMMITTING:
                return False
        raise not_all_visible(
            self.job, first_error, lost, unresolved, refused, unfinished
        ) from first_error

    def _take_as_it_is(self, upload: ReadyUpload) -> None:
        """An operator takes what is at a key: the job's own upload is not needed any more, and the
        sweep would spare it, for the plan names it."""
        removed = UploadRemover(self.runtime).remove(UploadName.of(upload))
        aborted = removed.removal is Removal.ABORTED and removed.error is None
        lost = ": its upload was open and is aborted, so the job's file is not published"
        self.warnings.append(f"{upload.key} was accepted as it is{lost if aborted else ''}")
        if removed.removal is Removal.LEFT:
            self.warnings.append(f"the upload of {upload.key} may be open still: {removed.why}")
        elif removed.why:
            self.warnings.append(f"the upload of {upload.key} is aborted; {removed.why}")

    def _uploads(self) -> Iterator[ReadyUpload]:
        for uploads, statistics in self.source.uploads():
            self.statistics.merge(statistics)
            for upload in uploads:
                self.names.add(upload.name)
                if len(self.filenames) < SUCCESS_FILENAMES_MAX:
                    self.filenames.append(f"/{upload.key}")
                yield upload

    def _after_completed(self, seen: records.Seen) -> tuple[State, Swept]:
        """Steps 6 to 8. Everything is visible.

        Raises:
            CommitIncomplete: what the job replaces is still there, or its marker is missing that
                it took away.
        """
        self._delete_replaced()
        if self.job.terms.mark_success and not self._mark(seen):
            return State.COMPLETED, Swept()
        swept = sweep(
            self.runtime,
            self.job,
            spared=self.names.__contains__,
            accepted={self.paths.tree + planned.name for planned in self.plan.sets},
            in_flight=self.in_flight,
            look_first=not self.knows_all or bool(self.job.adopted),
            accepted_attempts={planned.task: planned.attempt for planned in self.plan.sets},
        )
        self.warnings += swept.warnings
        if swept.again:
            return State.COMPLETED, swept
        state = finish(
            self.runtime, seen, "committed", self.may_remove, self.warnings, tidies=self.tidies
        )
        return state, swept

    def _delete_replaced(self) -> None:
        """Step 6: delete what the plan says, each only if it is still that version."""
        failures: dict[str, StoreError] = {}

        def one(replaced: ObjectRef) -> None:
            delete_if_same(self.runtime, replaced.key, replaced.etag, modified=replaced.modified)

        total = len(self.plan.deletes)
        if not total:
            return
        with (
            self.statistics.timed(stats.DELETE_REPLACED, self.runtime.clock),
            closing(self._each(one, self.plan.deletes)) as outcomes,
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
                f"{len(failures)} files that it replaces could not be deleted yet:"
                f" {name_some(sorted(failures))}",
                first,
                outstanding=tuple(sorted(failures)),
            ) from first

    def _mark(self, seen: records.Seen) -> bool:
        """Step 7. False if the store failed: the record and the plan stay, so that whoever finishes
        the job marks it.

        Raises:
            CommitIncomplete: it failed, and the job has deleted the marker that was there.
        """
        if self.dest.success_key in self.accept:
            self.warnings.append(f"{self.dest.success_key} was accepted as it is")
            return True
        try:
            self._read_names()
            left = write_marker(
                self.runtime, self.dest.success_key, seen.key, self._success_data(seen)
            )
        except StoreError as error:
            if self.plan.marker is not None:
                what = "_SUCCESS could not be written, and the old one is deleted"
                marker = (self.dest.success_key,)
                raise incomplete(self.job, what, error, outstanding=marker) from error
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
        """The first names for `_SUCCESS`, if this process has completed nothing. They are for
        people: a set that cannot be trusted any more is no reason to leave the marker out."""
        if self.names:
            return
        try:
            for _ in zip(range(SUCCESS_FILENAMES_MAX), self._uploads(), strict=False):
                continue
        except FormatError as error:
            self.warnings.append(f"_SUCCESS names {len(self.filenames)} files: {error}")

    def _success_data(self, seen: records.Seen) -> SuccessData:
        self.statistics.add(stats.JOBS_COMPLETED)
        document = self.statistics.to_dict()
        return new_success(
            timestamp_ms=int(self.runtime.clock.now() * 1000),
            hostname=socket.gethostname(),
            committer="magic",
            description=f"magic-committer job {self.job.id}",
            job_id=self.job.id,
            job_id_source="magic-committer",
            metrics=document["counters"],
            diagnostics={
                "magic-committer.files": str(self.plan.files),
                "magic-committer.bytes": str(self.plan.data_bytes),
                "magic-committer.tasks": str(len(self.plan.sets)),
                DIAGNOSTIC_STARTED: repr(seen.record.started),
            },
            filenames=tuple(self.filenames),
            iostatistics=document,
        )

    def _each(self, function: Any, items: Iterable[Any]) -> Any:
        return self.runtime.pool.each(function, items, in_flight=self.in_flight)


def finish(
    runtime: Runtime,
    seen: records.Seen,
    outcome_word: str,
    may_remove: bool,
    warnings: list[str],
    *,
    tidies: bool = True,
) -> State:
    """The last arrow: the record goes, or says ``closed`` for whoever still asks.

    Errors become warnings: the record stays and recovery finishes it.
    """
    try:
        if may_remove and records.remove(runtime, seen):
            return State.ABSENT
        closed = seen.record.step(State.CLOSED, runtime.ids(), outcome=outcome_word, marker=None)
        swapped = records.swap(runtime, seen, closed)
    except (StoreError, OutcomeUnknown) as error:
        warnings.append(f"the job's record could not be finished: {error}")
        return seen.record.state
    if swapped.won and tidies:
        forget_some(runtime, seen.key)
    return swapped.now.record.state if swapped.now else State.ABSENT


def report(
    execution: Execution, state: State, swept: Swept, seconds: float, decider: Any
) -> JobReport:
    """What `Execution.run` came to."""
    job, plan = execution.job, execution.plan
    return JobReport(
        job_id=job.id,
        uuid=job.uuid,
        dest=job.dest,
        mode=job.terms.mode,
        outcome="committed",
        state=str(state),
        tasks=len(plan.sets),
        files=plan.files,
        bytes=plan.data_bytes,
        filenames=tuple(execution.filenames),
        decider=decider,
        warnings=tuple(execution.warnings),
        left_open=swept.left_open,
        unattributed=swept.unattributed,
        seconds=seconds,
        statistics=execution.statistics.to_dict(),
    )
