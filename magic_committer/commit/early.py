"""Jobs whose files become visible before the job is decided: MapReduce's algorithms 1 and 2.

Before the first file does, a process leaves a mark in the job's directory. So whoever aborts the
job can say that what is visible stays. Nobody else asks: where the mark is, data that is there may
be the job's own.
"""

from __future__ import annotations

from magic_committer._runtime import Runtime
from magic_committer.errors import NotFound, StoreError
from magic_committer.protocol.record import JOB_METADATA, StartedJob

EARLY = frozenset(("v1", "v2"))
"""The committers of such jobs. The driver of ``v1`` completes all uploads and then decides; each
task of ``v2`` completes its own."""


def begin(runtime: Runtime, job: StartedJob) -> None:
    """Leave the mark. Repeatable."""
    runtime.store.put(_mark(job), b"", metadata={JOB_METADATA: job.uuid})


def has_begun(runtime: Runtime, job: StartedJob) -> bool:
    """Whether a file of the job may be visible that nobody has decided."""
    if job.terms.committer not in EARLY:
        return False
    try:
        runtime.store.head(_mark(job))
    except NotFound:
        return False
    return True


def stays(runtime: Runtime, job: StartedJob) -> str:
    """What to say of the files that an aborted job leaves visible; "": it leaves none."""
    who = job.terms.committer
    try:
        begun = has_begun(runtime, job)
    except StoreError as error:  # the job is aborted all the same
        return (
            f"whether committer={who!r} had begun to make files of the job visible cannot be told"
            f" ({error.message}): what is visible stays"
        )
    told = f"committer={who!r} had begun to make files of the job visible: they stay"
    return told if begun else ""


def _mark(job: StartedJob) -> str:
    return f"{job.paths.tree}00/_visible"
