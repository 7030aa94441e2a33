"""The work before the decision: the arguments, the sets that tasks left, the plan.

Nothing here changes the store, and nothing decides. `job_commit` calls these functions in the
protocol's order (protocol.md, "Commit") and obeys what they find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import structs

from magic_committer._quantities import counted, name_some
from magic_committer._runtime import Runtime
from magic_committer.commit.check import PROBLEMS_MAX, Checked
from magic_committer.commit.conflict import refuse_existing_data, replaced
from magic_committer.commit.load import Loaded, LoadedSet, SetRef, Spool, load
from magic_committer.commit.outcome import end
from magic_committer.commit.published import has_begun
from magic_committer.errors import CommitRefused, IncompleteJob, OptionError
from magic_committer.hadoop.paths import SET_SUFFIXES
from magic_committer.options import FAILING, REPLACING
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.plan import Plan, PlannedSet
from magic_committer.protocol.record import (
    JobRecord,
    ObjectRef,
    OwnCommit,
    StartedJob,
    TaskCommit,
)
from magic_committer.remedy import Remedy

ACCEPT_EACH = (
    "Nothing was decided. Commit it at the command line, with --accept and each key that is right"
    " as it is"
)
"""What to do about an adopted job with something wrong."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a commit would publish: the chosen tasks, and the problems with them."""

    tasks: tuple[str, ...]
    files: int
    bytes: int
    problems: tuple[str, ...]


def refuse_other_terms(job: StartedJob, record: JobRecord) -> None:
    """Refuse a handle whose terms are not those of the job's record: everyone obeys the record.
    Pure."""
    if job.terms == record.terms:
        return
    mine, theirs = structs.asdict(job.terms), structs.asdict(record.terms)
    differ = [
        f"{name} {own!r}, and the record {theirs[name]!r}"
        for name, own in mine.items()
        if own != theirs[name]
    ]
    raise OptionError(
        f"job {job.id!r}: this handle says {'; '.join(differ)}: it was edited, or is an old one",
        hint="Nothing was done. Use a handle that says what the record says",
        remedies=(
            Remedy("commit", job.dest, job.id, "commit it by its record"),
            end(job.dest, job.id, "abort it"),
        ),
    )


def wanted_results(
    job: StartedJob, results: Iterable[TaskCommit] | None
) -> list[TaskCommit] | None:
    """Check the results against the job's terms. Wrong ones raise, and change nothing."""
    if results is None:
        if job.terms.accept == "results":
            raise OptionError(
                f"job {job.id!r} was started with accept='results': pass the results"
                " of its tasks to commit",
                hint="What lies on the store may hold attempts whose input was cut",
            )
        return None
    wanted = list(results)
    tasks: set[str] = set()
    for result in wanted:
        if result.job_uuid != job.uuid:
            raise OptionError(f"the result of task {result.task!r} is of another job")
        if not result.key and (result.files or result.bytes):
            raise OptionError(
                f"the result of task {result.task!r} tells of {counted(result.files, 'file')}, but"
                " its key is empty: it does not name the pendingset that holds them",
                hint="Pass what task.commit() returned, as it is, or run the task again",
            )
        if result.key and not result.etag:
            raise OptionError(
                f"the result of task {result.task!r} has no ETag: it does not say which version of"
                f" {result.key} the task wrote",
                hint="Pass what task.commit() returned, as it is, or run the task again",
            )
        if result.task in tasks:
            raise OptionError(
                f"two results of task {result.task!r}", hint="Accept one attempt of each task"
            )
        tasks.add(result.task)
    return wanted


def load_sets(
    runtime: Runtime, job: StartedJob, wanted: list[TaskCommit] | None, spool: Spool
) -> Loaded:
    """Load the pendingsets of a commit: those that the results name; without results, those in a
    listing."""
    if wanted is None:
        refs: Iterable[SetRef] = _listed(runtime, job)
        return load(runtime, job.id, refs, spool, None, owns=job.owns)
    stored = [result for result in wanted if result.key]  # two of one key are two: one is wrong
    wrong = [
        f"task {result.task!r}: {result.key} is not where its pendingset belongs"
        for result in stored
        if result.key != job.paths.pendingset(result.attempt)
    ]
    if wrong:
        return Loaded(problems=wrong[:PROBLEMS_MAX])
    refs = (
        SetRef(
            r.key, r.etag, r.task, r.attempt, r.pendingset_bytes,
            own=runtime.own_sets.take(runtime.store.bucket, r.key),
            just_now=isinstance(r, OwnCommit),
        )
        for r in stored
    )  # fmt: skip
    loaded = load(runtime, job.id, refs, spool, len(stored))
    told = {result.key: result for result in stored}
    for one in loaded.sets:
        result = told[one.key]
        if (one.files, one.bytes) != (result.files, result.bytes):
            loaded.problems.append(
                f"{one.key}: holds {counted(one.files, 'file')} and"
                f" {counted(one.bytes, 'byte')}, its task said {result.files} and {result.bytes}"
            )
    return loaded


def _listed(runtime: Runtime, job: StartedJob) -> Iterator[SetRef]:
    prefix = job.paths.job_attempt
    for page in runtime.store.list(prefix, delimiter="/"):
        for info in page.objects:
            if info.key.endswith(SET_SUFFIXES):
                yield SetRef(info.key, info.etag, size=info.size)


def make_plan(
    runtime: Runtime,
    job: StartedJob,
    in_flight: int,
    accepted: Sequence[LoadedSet],
    checked: Checked,
    spool: Spool,
    partitions: tuple[str, ...] | None,
) -> Plan:
    """Step 3: make the plan that is to be decided. Pure, except for the look at the present
    data."""
    mode, tree = job.terms.mode, job.paths.tree
    if mode in FAILING and not has_begun(runtime, job):
        refuse_existing_data(runtime, job, in_flight, partitions)
    deletes: tuple[ObjectRef, ...] = ()
    marker: ObjectRef | None = None
    if mode in REPLACING:
        rewritten = KeySet(checked.files)
        for key in spool.keys(accepted):
            rewritten.add(key)
        deletes, marker = replaced(runtime, job, partitions, rewritten, in_flight)
    return Plan(
        job_id=job.id,
        uuid=job.uuid,
        nonce=runtime.ids(),
        files=checked.files,
        data_bytes=checked.bytes,
        sets=tuple(
            PlannedSet(one.key[len(tree) :], one.etag, one.task, one.attempt) for one in accepted
        ),
        deletes=deletes,
        partitions=partitions or (),
        marker=marker if mode == "replace" else None,
    )


def whose_they_are_is_lost(job: StartedJob, keys: list[str]) -> IncompleteJob:
    return IncompleteJob(
        f"job {job.id!r}: in its directory there are pendingsets that say nowhere whose"
        f" they are: {name_some(keys)}",
        job_id=job.id,
        hint="Nothing was decided. They may be this job's own, if their metadata got lost."
        " Otherwise somebody else wrote them: delete them and commit again",
        remedies=(
            Remedy("doctor", job.dest, why="ask whether the store or a proxy loses metadata"),
            end(job.dest, job.id, "abort the job"),
        ),
    )


def refusal(job: StartedJob, problems: list[str]) -> CommitRefused:
    shown = "; ".join(problems[:3])
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    return CommitRefused(
        f"job {job.id!r} was not committed: {shown}{more}",
        job_id=job.id,
        problems=problems,
        hint=ACCEPT_EACH
        if job.adopted
        else "The job is aborted, nothing of it is visible: run it again as a new job",
        remedies=(end(job.dest, job.id, "abort it"),) if job.adopted else (),
    )
