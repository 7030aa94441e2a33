"""Starting a job of renames, and taking one that is there: the record, then the claim, then a look.

Set up, then look (`existing`). A setup that fails after its record was written aborts the job: its
directory goes, and nobody can have anything of it. A given id is claimed after the record: a claim
always leads to a record, as long as that one lives.
"""

from __future__ import annotations

import logging
from dataclasses import fields, replace

from magic_committer._hints import ID_USED_ONCE
from magic_committer._patience import cleaning_up, patient
from magic_committer.commit.batches import of_another_query
from magic_committer.commit.outcome import end, ended, outcome_of
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.existing import refuse_data, refuse_rivals
from magic_committer.committers.manifest.names import TreeJobPaths, claim_of
from magic_committer.committers.manifest.parts import Parts, RealDirectories
from magic_committer.committers.manifest.undo import remove_job
from magic_committer.errors import JobExists, MagicError, OptionError, PathError
from magic_committer.options import EXCLUDING, REPLACING
from magic_committer.protocol.record import JobRecord, StartedJob, State, Terms
from magic_committer.remedy import add_note

logger = logging.getLogger("magic_committer")


@patient()
def setup_job(
    parts: Parts, terms: Terms, job_id: str | None, said_mode: str, checkpoint: str = ""
) -> StartedJob:
    """Start a job. Not repeatable with a given id, because an id is used once.

    Args:
        parts, terms: the components and the job's terms.
        job_id: a given id; None: draw one.
        said_mode: the mode in the caller's words, for hints.
        checkpoint: the hash of a streaming query's checkpoint (`ledger.hash_of`); "": none.

    Raises:
        JobExists, DestinationExists, ConflictingJob: another job or data is in the way.
        PathError: the id cannot be used.
        OutcomeUnknown: the file system gave no clear answer. Nothing of the job will be visible.
        InvalidRequest: ``_temporary`` is a link.
        StoreError: the file system refused it.
    """
    uuid = parts.ids()
    if job_id is not None:
        claim_of(job_id)
        _refuse_uuid(parts, job_id)
    record = JobRecord(
        id=job_id if job_id is not None else uuid,
        uuid=uuid,
        state=State.RUNNING,
        nonce=parts.ids(),
        terms=terms,
        given_id=job_id is not None,
        started=parts.clock.now(),
        checkpoint=checkpoint,
    )
    job = StartedJob(
        id=record.id,
        uuid=uuid,
        dest=parts.tree.url,
        terms=terms,
        given_id=record.given_id,
        fence_etag=record.nonce,
        undisturbed=True,
        said_mode=said_mode,
    )
    RealDirectories(parts).check(TreeJobPaths(uuid).record(1))
    try:
        records.create(parts, record)
        if job_id is not None:
            records.claim(parts, record)
        _look_around(parts, job)
    except BaseException as error:
        with cleaning_up(error):
            _take_back(parts, job, error)
        raise
    logger.info("job %s: started, %s, mode %s", job.id, job.dest, terms.mode)
    return job


@patient()
def join_job(
    parts: Parts, terms: Terms, job_id: str, said_mode: str, checkpoint: str = ""
) -> StartedJob:
    """Take the job of a given id that is there already, for a caller that would have started it
    with the same terms. Repeatable; changes nothing. It makes all of setup's looks again.

    Raises:
        JobExists: the job has other terms, belongs to another query, or its record is gone.
        JobNotRunning: the job is decided.
        DestinationExists, ConflictingJob, StoreError: as for `setup_job`.
    """
    seen = records.read_by_id(parts, job_id)
    if seen is None:
        raise JobExists(
            f"the id {job_id!r} is taken under {parts.tree.url}, and its job has no record",
            job_id=job_id,
            hint="Another process ends it at this moment, or it was deleted: give another job_id",
        )
    there = {f.name: getattr(seen.record.terms, f.name) for f in fields(Terms)}
    other = {name: value for name, value in there.items() if value != getattr(terms, name)}
    if other:
        differ = "; ".join(f"{n}={v!r}, not {getattr(terms, n)!r}" for n, v in other.items())
        same = ", ".join(f"{name}={value!r}" for name, value in other.items())
        raise JobExists(
            f"job {job_id!r} under {parts.tree.url} was started with other terms: it has {differ}",
            job_id=job_id,
            hint=f"Give another job_id, or the terms that it has: {same}",
        )
    if seen.record.checkpoint != checkpoint:
        raise of_another_query(job_id, parts.tree.url)
    if seen.record.state is not State.RUNNING:
        raise ended(parts.tree.url, job_id, seen.record.state, outcome_of(seen.record))
    job = attached(parts, seen)
    _look_around(parts, job)
    return replace(job, said_mode=said_mode)


def _refuse_uuid(parts: Parts, job_id: str) -> None:
    """Refuse an id that is the UUID of another job: both would be found by it."""
    try:
        paths = TreeJobPaths(job_id)
    except PathError:
        return
    if parts.again(lambda: parts.tree.stat(paths.directory)) is not None:
        raise JobExists(
            f"job {job_id!r} exists already under {parts.tree.url}",
            job_id=job_id,
            hint=ID_USED_ONCE,
        )


def _need_etags(parts: Parts, job: StartedJob) -> None:
    """Refuse to replace files that cannot be told from those that others write over them."""
    seen = parts.again(lambda: parts.tree.stat(TreeJobPaths(job.uuid).record(1)))
    if seen is not None and not seen.etag:
        raise OptionError(
            f"mode {job.said_mode or job.terms.mode!r}: {parts.tree.url} is on a file system"
            " without etags: a file that is replaced cannot be told from one that another program"
            " writes over it",
            hint="Use mode 'append' or 'fail', and delete old files when nobody writes there",
        )


def attached(parts: Parts, seen: records.SeenVersion) -> StartedJob:
    """The job for a process that found its record."""
    return StartedJob.attached(seen.record, parts.tree.url, seen.record.nonce)


def _look_around(parts: Parts, job: StartedJob) -> None:
    if job.terms.mode in REPLACING:
        _need_etags(parts, job)
    if job.terms.mode in EXCLUDING:
        own = records.read(parts, TreeJobPaths(job.uuid))
        if own is None:
            raise ended(job.dest, job.id, State.ABSENT, "")
        refuse_rivals(parts, job, own)
    if job.terms.mode == "fail":
        refuse_data(parts, job, None)


def _take_back(parts: Parts, job: StartedJob, why: BaseException) -> None:
    """End a job whose setup failed. Its id stays free, unless it was claimed."""
    paths = TreeJobPaths(job.uuid)
    try:
        seen = records.read(parts, paths)
        if seen is not None and seen.record.state is State.RUNNING:
            aborting = seen.record.step(State.ABORTING, parts.ids())
            if not records.swap(parts, seen, aborting).won:
                return
        remove_job(parts, paths)
    except MagicError as error:
        told = f"taking back job {job.id!r}: {error.message}"
        add_note(why, told, end(job.dest, job.id, "end the job"))
