"""Recovering one job: finish what its record decided, abort what it did not decide.

Nothing is guessed from what is visible. The record alone says what to do, and every step that
changes it is a swap. So recovery may run beside the driver, beside another recovery, and again
after a crash: the slower process obeys. Only for a running job somebody must judge whether its
driver is dead: by age.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from magic_committer._quantities import age_words
from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.outcome import committed_by_marker, dead, outcome_of
from magic_committer.commit.published import refuse_if_published
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import (
    AlreadyVisible,
    JobNotRunning,
    JobTooYoung,
    MagicError,
    OptionError,
    OutcomeUnknown,
)
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.maintenance.inspect import Listing, PlanProgress, progress_of, would_do
from magic_committer.maintenance.reports import Recovery
from magic_committer.options import Options
from magic_committer.protocol.record import JobReport, StartedJob, State, Terms
from magic_committer.upload import BlockSource

LOOKS_MAX = 4
"""How often the record is read again because another process has moved it on. There are no more
arrows from ``running`` to its end."""


def recover_job(
    runtime: Runtime,
    dest: Destination,
    job_id: str,
    *,
    dead_after: float,
    accept: Collection[str] = (),
    leave_visible: bool = False,
    dry_run: bool = False,
    options: Options | None = None,
) -> Recovery:
    """Finish or undo one job; see `magic_committer.recover`. ``dead_after`` is in seconds."""
    if isinstance(accept, str):
        raise OptionError("accept is a list of keys, not one key")
    key = JobPaths(dest, job_id).record
    found = ""
    last: MagicError | None = None
    for _ in range(LOOKS_MAX):
        seen = records.read(runtime, key)
        if seen is None:
            return _absent(runtime, dest, job_id, found, dry_run)
        state = seen.record.state
        found = found or str(state)
        recovery = Recovery(
            job_id=job_id,
            dest=dest.url,
            found=found,
            state=str(state),
            outcome=outcome_of(seen.record),
            did=would_do(seen.record, 0.0, 0.0),
            uuid=seen.record.uuid,
            dry_run=dry_run,
        )
        if state is State.CLOSED:
            return recovery
        if state is State.RUNNING:
            _refuse_young(runtime, dest, seen, dead_after, leave_visible)
        if dry_run:
            return _planned(runtime, dest, seen, recovery, accept, leave_visible)
        committer = committer_of(runtime, dest, seen, options)
        try:
            report = committer.settle_job(seen.record.state, accept, leave_visible=leave_visible)
        except (JobNotRunning, OutcomeUnknown) as error:
            last = error  # another process moved it on: look again
            continue
        return replace(recovery, state=report.state, outcome=report.outcome, report=report)
    assert last is not None
    raise last


def abort_job(
    runtime: Runtime,
    dest: Destination,
    seen: records.Seen,
    *,
    revert: bool,
    leave_visible: bool = False,
    options: Options | None = None,
) -> JobReport:
    """Abort or undo one job; see `magic_committer.abort`."""
    committer = committer_of(runtime, dest, seen, options)
    return committer.abort_job(revert=revert, leave_visible=leave_visible, role="recovery")


def committer_of(
    runtime: Runtime, dest: Destination, seen: records.Seen, options: Options | None
) -> MagicCommitter:
    """Take a job over from the store, for this process."""
    job = StartedJob.attached(seen.record, dest.url, seen.etag)
    return MagicCommitter(runtime, job, options or Options(), BlockSource())


def _refuse_young(
    runtime: Runtime,
    dest: Destination,
    seen: records.Seen,
    dead_after: float,
    leave_visible: bool,
) -> None:
    age = Listing(runtime, *seen.record.paths(dest).directories).to_end().age
    if age >= dead_after:
        return
    stays = {"leave_visible": True} if leave_visible else {}
    raise JobTooYoung(
        f"job {seen.record.id!r} is running, and changed {age_words(age)} ago: it may be alive, for"
        f" less than {age_words(dead_after)} have passed",
        job_id=seen.record.id,
        age=age,
        limit=dead_after,
        hint="Wait",
        remedies=dead(dest.url, seen.record.id, **stays),
    )


def _planned(
    runtime: Runtime,
    dest: Destination,
    seen: records.Seen,
    recovery: Recovery,
    accept: Collection[str],
    leave_visible: bool,
) -> Recovery:
    """What would be done, in more detail. Only reads."""
    if seen.record.state is State.RUNNING and seen.record.adopted:
        job = StartedJob.attached(seen.record, dest.url, seen.etag)
        try:
            in_flight = Options().commit_threads
            stays = refuse_if_published(runtime, job, in_flight, leave_visible=leave_visible)
        except AlreadyVisible as error:
            return replace(recovery, did=f"nothing: {error.message}")
        return replace(recovery, did=f"{recovery.did}; {stays}") if stays else recovery
    if seen.record.state is not State.COMMITTING:
        return recovery
    progress: PlanProgress = progress_of(runtime, dest, seen)
    unresolved = tuple(key for key in progress.missing_keys if key not in accept)
    progress.missing -= len(progress.missing_keys) - len(unresolved)
    did = would_do(seen.record, 0.0, 0.0, progress)
    return replace(recovery, did=did, unresolved=unresolved)


def _absent(
    runtime: Runtime, dest: Destination, job_id: str, found: str, dry_run: bool
) -> Recovery:
    """The outcome without a record: "unknown", unless the marker tells (I10). A drawn id is the
    job's UUID."""
    job = StartedJob(job_id, job_id, dest.url, Terms(), False, "", False)
    committed = committed_by_marker(runtime, job)
    return Recovery(
        job_id=job_id,
        dest=dest.url,
        found=found or str(State.ABSENT),
        state=str(State.ABSENT),
        outcome="committed" if committed else "",
        did="nothing: it has committed and is finished"
        if committed
        else "nothing: there is no record of it; it may have ended, either way, or never been",
        dry_run=dry_run,
    )
