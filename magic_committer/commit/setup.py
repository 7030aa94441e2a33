"""Starting a job: draw a UUID, write the record, prove the store, look around (mode ``fail``).

Set up, then look: if two excluding jobs start at once, each writes its record before it looks, so
at least one sees the other (counterexamples.md, #8). If both looked first, both could go on.

A setup that fails after it wrote the record removes it again. The record of a drawn id is deleted.
For a given id another process may have attached, and a PUT that was sent twice may take effect
late: that record goes through ``aborting`` and a sweep, and stays ``closed``.
"""

from __future__ import annotations

import logging

from msgspec import structs

from magic_committer.commit import probe, register
from magic_committer.commit.conflict import refuse_existing_data, refuse_other_jobs
from magic_committer.commit.outcome import end, ended, outcome_of
from magic_committer.commit.register import decider, finish
from magic_committer.commit.stream import of_another_query
from magic_committer.commit.sweep import sweep
from magic_committer.errors import JobExists, JobNotFound, MagicError, StoreError
from magic_committer.errors.messages import ENDED_OR_NEVER, ID_USED_ONCE, add_note
from magic_committer.hadoop.paths import Destination, JobPaths, check_id
from magic_committer.options import EXCLUDING, REPLACING, refuse_lost_checksums
from magic_committer.protocol.record import JobRecord, StartedJob, State, Terms
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import cleaning_up, patient

logger = logging.getLogger("magic_committer")


@patient()
def setup_job(
    runtime: Runtime,
    dest: Destination,
    terms: Terms,
    job_id: str | None,
    said_mode: str = "",
    checkpoint: str = "",
) -> StartedJob:
    """Start a job. Not repeatable with a given id, because an id is used once; see `join_job`.

    Requests: 1 PUT. 2 more when a process meets a store for the first time, and up to 7 more for
    the first job of a mode that needs more of the store (`probe.need`). 1 LIST for a given id. In
    mode ``fail`` a listing of the destination and of the jobs under it. If the store gave no clear
    answer, nothing of this job will become visible."""
    refuse_lost_checksums(terms.etag_form, terms.checksum)
    uuid = runtime.ids()
    name = check_id("job id", job_id) if job_id is not None else uuid
    paths = JobPaths(dest, name)
    paths.plan("0" * 32)  # the longest key of its control objects: PathError if it is too long
    if job_id is not None:
        _refuse_used_directory(runtime, paths)
    record = JobRecord.running(
        id=name,
        uuid=uuid,
        nonce=runtime.ids(),
        terms=terms,
        given_id=job_id is not None,
        started=runtime.clock.now(),
        checkpoint=checkpoint,
    )
    job = structs.replace(StartedJob.attached(record, dest.url, ""), said_mode=said_mode)
    try:
        seen, undisturbed = register.create(runtime, paths.record, record)
    except BaseException as error:
        if not isinstance(error, MagicError):  # Ctrl-C: the record may be stored all the same
            with cleaning_up(error):
                _take_back(runtime, job, error)
        raise
    job = structs.replace(job, fence_etag=seen.etag, undisturbed=undisturbed)
    try:
        # Create the record again as a trial, before anything else of the proof can fail.
        if probe.need(runtime, paths, seen, {"conditional_put"}):
            job = structs.replace(job, undisturbed=False)
        _prove(runtime, paths, seen)
        _look_around(runtime, job)
    except BaseException as error:
        if _may_have_sent(error):  # a PUT of the proof may take effect late
            job = structs.replace(job, undisturbed=False)
        with cleaning_up(error):
            _withdraw(runtime, job, seen, error)
        raise
    logger.info("job %s: started, %s, mode %s", name, dest.url, terms.mode)
    return job


@patient()
def join_job(
    runtime: Runtime,
    dest: Destination,
    terms: Terms,
    job_id: str,
    said_mode: str = "",
    checkpoint: str = "",
) -> StartedJob:
    """Take the job of a given id that is there already, for a caller that would have started it
    with the same terms. Repeatable; changes nothing.

    The process that wrote the record may have died before it looked around, or it may not be as far
    yet. If this process did not look, two excluding jobs could go on. So it makes all of setup's
    looks again. If a look fails, the job stays as it is: its tasks may be at work, and its commit
    looks once more."""
    paths = JobPaths(dest, job_id)
    seen = register.read(runtime, paths.record)
    if seen is None:
        _refuse_used_directory(runtime, paths)
        raise JobExists(
            f"the record of job {job_id!r} was there, and is gone",
            job_id=job_id,
            hint="Another process has ended it at this moment: start it again",
        )
    _refuse_other_terms(seen.record, terms, dest)
    if seen.record.checkpoint != checkpoint:
        raise of_another_query(job_id, dest.url)
    if seen.record.state is not State.RUNNING:
        decided = ended(dest.url, job_id, seen.record.state, outcome_of(seen.record))
        if decided.outcome != "committed":
            decided.advice += ", under another job_id: an id is used once"
        raise decided
    job = StartedJob.attached(seen.record, dest.url, seen.etag)
    job = structs.replace(job, said_mode=said_mode)
    if terms.conditional_writes == "on":
        # Nothing that would write the record again: other processes may be deciding.
        probe.need(runtime, paths, seen, probe.wants_at_setup(terms.mode) - _WRITES_THE_RECORD)
    _look_around(runtime, job)
    logger.info("job %s: joined, %s, mode %s", job_id, dest.url, terms.mode)
    return job


def find_job(runtime: Runtime, dest: Destination, job_id: str) -> tuple[StartedJob, State, str]:
    """Find a job by its id, with its state and its outcome. One GET. All committers keep their
    records in the same way; the job's terms say which one it has."""
    seen = register.read(runtime, JobPaths(dest, job_id).record)
    if seen is None:
        raise JobNotFound(
            f"there is no job {job_id!r} under {dest.url}", job_id=job_id, hint=ENDED_OR_NEVER
        )
    job = StartedJob.attached(seen.record, dest.url, seen.etag)
    return job, seen.record.state, outcome_of(seen.record)


_WRITES_THE_RECORD = frozenset({"conditional_put", "swap"})
"""What `probe` asks by writing the record again, as its creator wrote it."""


def _look_around(runtime: Runtime, job: StartedJob) -> None:
    """Look for other jobs and for data, as far as the job's mode is about them."""
    if job.terms.mode in EXCLUDING:
        refuse_other_jobs(runtime, job)
    if job.terms.mode == "fail":
        refuse_existing_data(runtime, job)


def _refuse_other_terms(record: JobRecord, terms: Terms, dest: Destination) -> None:
    if record.adopted:
        raise JobExists(
            f"job {record.id!r} under {dest.url} is Hadoop's, adopted", job_id=record.id
        )
    other = record.terms.differing(terms)
    if not other:
        return
    differ = "; ".join(f"{name}={there!r}, not {given!r}" for name, there, given in other)
    same = ", ".join(f"{name}={there!r}" for name, there, _ in other)
    raise JobExists(
        f"job {record.id!r} under {dest.url} was started with other terms: it has {differ}",
        job_id=record.id,
        hint=f"Give another job_id, or the terms that it has: {same}",
    )


def _may_have_sent(error: BaseException) -> bool:
    """Whether a request may still be under way after a setup that ended with ``error``. Pure."""
    if isinstance(error, StoreError):
        return register.may_still_land(error)
    return not isinstance(error, MagicError)  # Ctrl-C during a request


def _refuse_used_directory(runtime: Runtime, paths: JobPaths) -> None:
    for page in runtime.store.list(paths.directory):
        if page.objects:
            raise JobExists(
                f"the directory of job {paths.job_id!r} is not empty: {page.objects[0].key}",
                job_id=paths.job_id,
                hint=ID_USED_ONCE,
            )
        return


def _prove(runtime: Runtime, paths: JobPaths, seen: register.Seen) -> None:
    job_id, terms = seen.record.id, seen.record.terms
    if terms.conditional_writes == "off":
        logger.warning(
            "job %s: conditional writes are off: it has S3A's guarantees only, one driver and no"
            " recovery beside it",
            job_id,
        )
        return
    probe.need(runtime, paths, seen, probe.wants_at_setup(terms.mode))
    found = probe.known(runtime.store.identity)
    if terms.mode in REPLACING and found.conditional_delete is False:
        logger.warning(
            "job %s: the store of bucket %r has no conditional DELETE (it %s): what somebody writes"
            " over an object to be replaced, between the look at it and its deletion, is lost",
            job_id,
            runtime.store.bucket,
            found.notes["conditional_delete"],
        )


def _take_back(runtime: Runtime, job: StartedJob, why: BaseException) -> None:
    """Remove a record whose PUT was interrupted, if it is there; otherwise say what to do if it
    comes."""
    told = f"job {job.id!r} may have been started all the same"
    add_note(why, told, end(job.dest, job.id, "if so, end it"))
    try:
        seen = register.read_own(runtime, job.paths.record, job.uuid)
    except MagicError as error:
        why.add_note(f"nothing shows whether it was: {error}")
        return
    if seen is not None:
        _withdraw(runtime, job, seen, why)


def _withdraw(runtime: Runtime, job: StartedJob, seen: register.Seen, why: BaseException) -> None:
    warnings: list[str] = []
    try:
        if job.undisturbed and not job.given_id and register.remove(runtime, seen):
            return  # otherwise the store has no conditional DELETE: the record is closed instead
        aborting = seen.record.step(State.ABORTING, runtime.ids(), decider=decider("driver"))
        swapped = register.swap(runtime, seen, aborting)
        if swapped.won and swapped.now is not None:
            swept = sweep(runtime, job)
            warnings += swept.warnings
            if not swept.again:
                finish(runtime, swapped.now, "aborted", False, warnings)
    except MagicError as error:
        told = f"taking back the record of job {job.id!r}: {error.message}"
        add_note(why, told, end(job.dest, job.id, "end the job"))
    for warning in warnings:
        why.add_note(f"taking back the record of job {job.id!r}: {warning}")
