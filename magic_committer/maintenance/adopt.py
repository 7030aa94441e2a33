"""Adopting a Hadoop job whose JVM is dead: the job gets a record, and is then an ordinary job.

Hadoop's magic committer keeps no record. Only another driver of the same job can commit or abort
what a dead job left, and this driver forgets what it did when it dies. With a record the decision
is one swap, and anyone can finish it (docs/recovery.md). Invariants:

* **The operator must say that the job's JVM is dead**: nothing on the store can tell. A JVM that
  lives may complete or abort uploads that we do not know of (no I3). Cleanup never adopts.
* **A directory with a token of ours on any object is never adopted**: it looks like a Hadoop job,
  but is litter of a job of ours, and a late write of a zombie would be published
  (counterexamples.md, #5). A zombie that writes after the look changes nothing either: for an
  adopted job only objects without a token are committed, aborted or deleted (`StartedJob.owns`).
* Adopting touches nothing of Hadoop's, even if it fails. The store is proved before, on a job of
  its own that is deleted at once. The record is one PUT ``If-None-Match``.
* The record names the application attempt whose pendingsets count: the newest one that has any.
  Hadoop commits only the pendingsets of its own attempt (3.3.6 and later; before, all attempts
  shared one directory). The sweep aborts what the other attempts left.
* **What Hadoop decided stays decided.** A job that `_SUCCESS` names has committed: its record says
  ``completed`` from the start, so nobody can abort it. Only the sweep is left to do; Hadoop's
  `_SUCCESS` stays. The plan that this record names was never stored; every job whose sweep has
  begun looks like this. If only some files of a job are visible, an abort is refused
  (`magic_committer.commit.revert`).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from msgspec import structs

from magic_committer.commit import probe, register
from magic_committer.commit.outcome import end
from magic_committer.commit.revert import committed_by_hadoop
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import (
    Decider,
    JobError,
    JobExists,
    JobNotFound,
    OutcomeUnknown,
    PathError,
)
from magic_committer.errors.messages import DEAD_AFTER, ENDED_OR_NEVER, Remedy
from magic_committer.hadoop.paths import JOB_PREFIX, PENDINGSET_SUFFIX, Destination, JobPaths
from magic_committer.maintenance.inspect import Listing, directories, measure, with_token
from magic_committer.maintenance.reports import Adoption, refuse_younger
from magic_committer.options import Options
from magic_committer.protocol.record import USUAL_TERMS, JobRecord, ObjectRef, StartedJob, State
from magic_committer.runtime.components import Runtime
from magic_committer.stores.urls import is_tree
from magic_committer.upload import BlockSource

logger = logging.getLogger("magic_committer")

ADOPTED_TERMS = structs.replace(USUAL_TERMS, checksum="off")
"""The terms of a Hadoop job, in our words."""


def adopt_job(
    runtime: Runtime,
    dest: Destination,
    job_id: str,
    *,
    dead_after: float,
    dry_run: bool = False,
    options: Options | None = None,
) -> Adoption:
    """Adopt one job; see `magic_committer.adopt`. ``dead_after`` is in seconds."""
    if is_tree(dest.bucket):
        raise PathError(
            f"{dest.url} is on a file system: there are no jobs of Hadoop's magic committer, which"
            " this call is about",
            hint="Pass a path on S3",
        )
    options = options or Options()
    adoption = _look(runtime, dest, job_id, dead_after)
    job = started_of(runtime, dest, adoption)
    if committed_by_hadoop(runtime, job, options.commit_threads):
        adoption = replace(adoption, committed=True)
    if dry_run:
        return adoption
    # Prove that the store keeps the conditions of a decision, on a job of its own.
    known = probe.known(runtime.store.identity)
    if not (known.conditional_put and known.swap):
        trial = MagicCommitter.setup(runtime, dest, ADOPTED_TERMS, options, BlockSource())
        trial.abort_job(role="recovery")
    record = _record(runtime, dest, adoption)
    try:
        register.create(runtime, JobPaths(dest, job_id).record, record)
    except JobExists as error:
        raise _ours(dest, job_id, error.message) from error
    except OutcomeUnknown as error:
        again = "adopt it again; if its record is there by then, it is adopted"
        limit = {DEAD_AFTER: dead_after}
        error.advice, error.remedies = "", (Remedy("adopt", dest.url, job_id, again, limit),)
        raise
    logger.info("job %s: adopted, %s%s", job_id, dest.url, adoption.pendingsets)
    if adoption.passed_over:
        logger.warning("job %s: %s", job_id, adoption.older())
    return replace(adoption, uuid=record.uuid)


def started_of(runtime: Runtime, dest: Destination, adoption: Adoption) -> StartedJob:
    """The job as it will be, for looks before there is a record."""
    return StartedJob.attached(_record(runtime, dest, adoption), dest.url, "")


def _look(runtime: Runtime, dest: Destination, job_id: str, dead_after: float) -> Adoption:
    paths = JobPaths(dest, job_id)
    _refuse_ours(runtime, paths)
    for directory in (paths.directory, f"{dest.older_jobs_prefix}{job_id}/"):
        listing = Listing(runtime, directory)
        measured = measure(runtime, listing)
        if listing.objects:
            break
    else:
        raise JobNotFound(
            f"there is no job {job_id!r} under {dest.url}, neither ours nor Hadoop's",
            job_id=job_id,
            hint=ENDED_OR_NEVER,
        )
    if measured.failure is not None:
        raise measured.failure
    if ours := measured.ours or with_token(runtime, directory):
        _refuse_ours(runtime, paths)  # another process may be adopting it
        raise JobError(
            f"job {job_id!r} cannot be adopted: {ours} carries the token of a job of this library",
            job_id=job_id,
            hint="What lies there is what that job left: adopted, the late write of one of its"
            " tasks would be published",
            remedies=(Remedy("cleanup", dest.url, why="take it away"),),
        )
    way = Remedy("adopt", dest.url, job_id, "if you know that it cannot", {DEAD_AFTER: 0})
    refuse_younger(job_id, listing.age, dead_after, "what its JVM sent last may still land", way)
    home = directory if directory != paths.directory else f"{directory}{JOB_PREFIX}{job_id}/"
    chosen, tasks, passed_over, passed_over_tasks = _choose(runtime, home)
    return Adoption(
        job_id=job_id,
        dest=dest.url,
        pendingsets=chosen[len(dest.prefix) :],
        tasks=tasks,
        passed_over=tuple(other[len(dest.prefix) :] for other in passed_over),
        passed_over_tasks=passed_over_tasks,
        age=listing.age,
        files=measured.files,
        bytes=measured.bytes,
        problem=measured.problem,
    )


def _refuse_ours(runtime: Runtime, paths: JobPaths) -> None:
    seen = register.read(runtime, paths.record)
    if seen is not None:
        message = f"job {paths.job_id!r} has a record, it is {seen.record.state}"
        raise _ours(paths.dest, paths.job_id, message)


def _ours(dest: Destination, job_id: str, message: str) -> JobExists:
    commit = Remedy("commit", dest.url, job_id, "commit it")
    remedies = (commit, end(dest.url, job_id, "abort it"))
    hint = "It needs no adoption any more"
    return JobExists(message, job_id=job_id, hint=hint, remedies=remedies)


def _choose(runtime: Runtime, home: str) -> tuple[str, int, list[str], int]:
    """Choose the directory whose pendingsets count. ``home`` holds one for each application
    attempt; up to Hadoop 3.3.4, the pendingsets. Gives it and the number of its pendingsets, then
    the older directories that have some too, and the number of those."""
    attempts = {-1: home}
    for prefix in directories(runtime, home):
        if (number := prefix[len(home) : -1]).isdecimal() and number.isascii():
            attempts[int(number)] = prefix
    newest_first = [attempts[number] for number in sorted(attempts, reverse=True)]
    counts = {
        directory: sum(
            info.key.endswith(PENDINGSET_SUFFIX)
            for page in runtime.store.list(directory, delimiter="/")
            for info in page.objects
        )
        for directory in newest_first
    }
    chosen, *passed_over = [d for d in newest_first if counts[d]] or newest_first[:1]
    return chosen, counts[chosen], passed_over, sum(counts[other] for other in passed_over)


def _record(runtime: Runtime, dest: Destination, adoption: Adoption) -> JobRecord:
    record = JobRecord.running(
        id=adoption.job_id,
        uuid=runtime.ids(),
        nonce=runtime.ids(),
        terms=ADOPTED_TERMS,
        given_id=True,
        started=runtime.clock.now(),
        adopted=adoption.pendingsets,
    )
    if not adoption.committed:
        return record
    no_plan = ObjectRef(record.paths(dest).plan(record.nonce), "")
    hadoop = Decider("hadoop", "", 0)
    return structs.replace(record, state=State.COMPLETED, plan=no_plan, decider=hadoop)
