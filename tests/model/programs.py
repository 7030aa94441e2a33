"""What processes around a job do: production's own calls, and what they are told, in a word.

A word is an outcome (``committed``, ``aborted``, ``reverted``), or why there is none (`WORDS`);
``unresolved`` and ``unfinished`` after the decision; or the state of a record that has moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from msgspec.structs import replace

import magic_committer as mc
from magic_committer.commit import register
from magic_committer.commit.fence import give_sign_of_life
from magic_committer.commit.setup import find_job
from magic_committer.committers.base import driver_of
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import StoreError, Unanswered
from magic_committer.hadoop.paths import JobPaths
from magic_committer.maintenance.cleanup import Cleaning, Limits
from magic_committer.maintenance.ending import Ending
from magic_committer.protocol.record import StartedJob, State, TaskCommit, Terms
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import Attributes
from magic_committer.upload import BlockSource
from tests.model.processes import Program, Tell, Wait, ask
from tests.model.store import DEST

P = ParamSpec("P")
OPTIONS = mc.Options(commit_threads=1, checksum="off")
AT_ONCE = Limits(dead_after=0.0, leftover_after=0.0, forget_after=1e9, forget_given_after=1e9)
BATCH = mc.StreamBatch("query", 1)
CHECKPOINT = "c" * 64
WORDS: tuple[tuple[type[Exception], str], ...] = (
    (mc.OutcomeUnknown, "unknown"), (mc.ConflictingJob, "conflict"), (mc.JobExists, "exists"),
    (mc.DestinationExists, "conflict"), (mc.CommitRefused, "aborted"),
    (mc.IncompleteJob, "nothing was asked"), (Unanswered, "unknown"),
    (StoreError, "nothing decided"), (mc.BatchUnsettled, "unsettled"),
    (mc.JobError, "refused"),
)  # fmt: skip


def program(function: Callable[Concatenate[Runtime, P], Any]) -> Callable[P, Program]:
    """Make programs of a function that makes calls, and returns a word, or a report."""

    @wraps(function)
    def made(*args: P.args, **options: P.kwargs) -> Program:
        return lambda runtime: _told(lambda: function(runtime, *args, **options))

    return made


def _told(call: Callable[[], Any]) -> str:
    try:
        told = call()
    except mc.CommitIncomplete as error:
        return "unresolved" if error.unresolved else "unfinished"
    except mc.JobNotRunning as error:
        over = error.state in (State.CLOSED, State.ABSENT)
        return error.outcome if over and error.outcome else str(error.state)
    except (mc.JobError, StoreError) as error:
        return next(word for kind, word in WORDS if isinstance(error, kind))
    return told if isinstance(told, str) else str(told.outcome) or "nothing"


def terms(
    mode: Any = "append", accept: Any = "results", marks: bool = True, track: Any = "memory"
) -> Terms:
    return Terms(mode, accept, track, marks, "off", "objects", "on")


def _committer(runtime: Runtime, job: StartedJob) -> MagicCommitter:
    return MagicCommitter(runtime, job, OPTIONS, BlockSource())


# Drivers ------------------------------------------------------------------------------------------


@program
def commit(runtime: Runtime, job: StartedJob, results: Sequence[TaskCommit] | None) -> Any:
    """A driver whose tasks are done."""
    return _committer(runtime, job).driver().commit(results)


@program
def abort(
    runtime: Runtime, job: StartedJob, *, undisturbed: bool = True, forgets: bool = False
) -> Any:
    """``forgets``: the record goes, too: an operator takes it away though a process lives."""
    mine = replace(job, undisturbed=job.undisturbed and undisturbed)
    report = _committer(runtime, mine).driver().abort()
    seen = register.read_own(runtime, job.paths.record, job.uuid) if forgets else None
    if seen is not None:
        register.remove(runtime, seen)
    return report


def _start(runtime: Runtime, what: Terms, job_id: str | None = None, stream: str = "") -> Any:
    blocks = BlockSource()
    return MagicCommitter.setup(runtime, DEST, what, OPTIONS, blocks, job_id, checkpoint=stream)


@program
def start_and_commit(
    runtime: Runtime, what: Terms, results: Sequence[TaskCommit],
    batch: mc.StreamBatch | None = None,
) -> Any:  # fmt: skip
    """A whole job whose tasks are done."""
    committer = _start(runtime, what, stream=CHECKPOINT if batch else "")
    return committer.driver().commit(results, batch=batch)


@program
def drive(
    runtime: Runtime, what: Terms, attempts: tuple[str, ...] = (), job_id: str | None = None, *,
    aborts: bool = False, job: StartedJob | None = None,
) -> Any:  # fmt: skip
    """A whole job: setup, wait for a message of one attempt of its task, commit; abort if it has no
    attempt left, or is told to. ``job``: somebody has started it."""
    committer = _committer(runtime, job) if job else _start(runtime, what, job_id)
    if not job:
        ask(Tell("started", committer.job))
    message = ask(Wait(attempts, attempts)) if attempts else None
    if aborts or (attempts and message is None):
        return committer.driver().abort()
    return committer.driver().commit([message] if message and what.accept == "results" else None)


# Tasks --------------------------------------------------------------------------------------------


@program
def attempt(
    runtime: Runtime, job: StartedJob | None, name: str, task: str = "t", file: str = "x",
    content: str = "whole", *, driver: str = "", named: bool = True, attached: str = "",
) -> str:  # fmt: skip
    """Write, commit, tell the driver; abort if that fails. ``driver``: wait until it has started
    the job. ``attached``: find the job by this id."""
    if driver:
        job = ask(Wait(("started",), (driver,)))
    if attached:
        with suppress(mc.MagicError):
            found, state, _ = find_job(runtime, DEST, attached)
            job = found if state is State.RUNNING else None
    if job is None:
        return "never started"
    one = _committer(runtime, job).attempt(task, name, sole=True)
    return _ended(one, lambda: _write(one, file, content, named), name)


def _write(one: Any, file: str, content: str, named: bool) -> None:
    stream = one.open(file, unique=named, attributes=Attributes())
    stream.write(f"{one.attempt} {file} {content}".encode())
    stream.close()


def _ended(one: Any, write: Callable[[], None], message: str = "") -> str:
    """Write, and commit the attempt; abort it if that fails."""
    try:
        write()
        result = one.commit()
    except mc.MagicError as error:
        with suppress(mc.MagicError):
            one.abort()
        return "late" if isinstance(error, mc.JobNotRunning) else "failed"
    if message:
        ask(Tell(message, result))
    return "done"


@program
def close(
    runtime: Runtime, job: StartedJob, name: str, file: str = "x", told: str = "closed"
) -> str:
    """A process that closes a file of a shared attempt, and commits nothing. ``told``: what it
    returns when the file was closed well."""
    try:
        _write(_committer(runtime, job).attempt("t", name), file, "whole", named=True)
    except mc.MagicError:
        return "failed"
    return told


@program
def handle(runtime: Runtime, job: StartedJob, name: str, *, commits: bool) -> str:
    """A handle on a shared attempt: it closes a file, and commits; or has none, and aborts."""
    one = _committer(runtime, job).attempt("t", name)
    if commits:
        return _ended(one, lambda: _write(one, "x", "whole", named=True))
    with suppress(mc.MagicError):
        one.abort()
    return "done"


@program
def alive(runtime: Runtime, job: StartedJob) -> str:
    give_sign_of_life(runtime, job)
    return "done"


# Others -------------------------------------------------------------------------------------------


@program
def recover(runtime: Runtime, job_id: str) -> Any:
    return Ending(runtime, DEST, job_id, dead_after=0.0, options=OPTIONS).recover_now()


@program
def clean(runtime: Runtime) -> str:
    errors = Cleaning(runtime, DEST, AT_ONCE, dry_run=False, options=OPTIONS).run().errors
    return "; ".join(errors) or "clean"


@program
def revert(runtime: Runtime, job: StartedJob) -> Any:
    """An operator's ``abort --revert`` of a job that he has seen decided."""
    seen = register.read(runtime, JobPaths(DEST, job.id).record)
    if seen is None or seen.record.state is not State.COMMITTING:
        return "refused"
    return driver_of(runtime, DEST, seen, OPTIONS).abort(revert=True)


@program
def adopt(runtime: Runtime, job_id: str) -> Any:
    """The operator's word that a Hadoop job is dead."""
    try:
        Ending(runtime, DEST, job_id, dead_after=0.0, options=OPTIONS).adopt_now()
        found, _, _ = find_job(runtime, DEST, job_id)
    except mc.MagicError:
        return "refused"
    return _committer(runtime, found).driver().commit()


@program
def overwrite(runtime: Runtime, key: str, body: bytes = b"foreign") -> str:
    """Another program writes a key."""
    runtime.store.put(f"{DEST.prefix}{key}", body)
    return "done"


@program
def upload(runtime: Runtime, key: str) -> str:
    """Another program uploads, and completes what it uploaded."""
    store, at = runtime.store, DEST.key(key)
    made = store.create_upload(at, attributes=Attributes())
    part = store.put_part(at, made.upload_id, 1, memoryview(b"foreign"))
    try:
        store.complete_upload(at, made.upload_id, [part])
    except StoreError:
        return "robbed"
    return "done"
