"""The work before the decision: the arguments, the sets that tasks left, the checks, the plan.

The checks find everything that can be known to be wrong, before anything becomes visible. Nothing
here changes the store, and nothing decides: `driver` calls these functions in the protocol's order
(protocol.md, "Commit") and obeys what they find.

The checks are pure where possible (`RowCheck`). `missing_uploads` asks the store whether every
upload is still open, because a Hadoop neighbour with default options, or a lifecycle rule, aborts
the uploads of others (counterexamples.md, #15). If a check fails, the decision is *abort*. If a
check cannot be made, it raises, and the job stays running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain

from magic_committer.commit import requests
from magic_committer.commit.conflict import refuse_existing_data, replaced
from magic_committer.commit.outcome import end
from magic_committer.commit.probe import refuse_long_element
from magic_committer.commit.requests import Ahead
from magic_committer.commit.revert import has_begun
from magic_committer.commit.sets import (
    Loaded,
    ReadyUpload,
    RowCheck,
    SetRef,
    Spool,
    Uploads,
    load,
)
from magic_committer.commit.uploads import UploadLook, UploadState, looking
from magic_committer.errors import (
    CommitRefused,
    IncompleteJob,
    NotSupported,
    OptionError,
    PathError,
)
from magic_committer.errors.messages import Remedy, counted, name_some
from magic_committer.hadoop.paths import SET_SUFFIXES, is_long
from magic_committer.options import FAILING, REPLACING
from magic_committer.protocol.plan import KeySet, Plan, PlannedSet
from magic_committer.protocol.record import (
    ObjectRef,
    OwnCommit,
    StartedJob,
    TaskCommit,
)
from magic_committer.runtime.components import Progress, Runtime
from magic_committer.stores.base import UploadPage, not_held

PROBLEMS_MAX = 100
"""How many problems are named. There may be millions of the same kind."""


def expected(
    job: StartedJob,
    tasks: Sequence[str],
    expect: int | Iterable[str] | None,
    *,
    by_results: bool = False,
) -> None:
    """Compare the tasks with what the caller expects: a number of tasks, or their ids.

    Nobody commits a job without tasks on purpose. The reason is a generator that an earlier call
    has used up, a task that was killed, or a forgotten ``task.commit()``; and in mode ``replace``
    such a commit would empty the table. It needs ``expect=0``. ``by_results`` is for the hint."""
    if expect is None:
        if tasks:
            return
        options: dict[str, object] = {"results": (), "expect": 0} if by_results else {"expect": 0}
        right = "if it is right that there is no task"
        raise IncompleteJob(
            f"job {job.id!r}: no task is committed: there is nothing to publish",
            job_id=job.id,
            hint="Nothing was decided. Commit the tasks first: `with job.task(...) as task:`, or"
            " task.commit(); pass results as a list, for a generator is empty at the second call",
            remedies=(
                end(job.dest, job.id, "abort the job"),
                Remedy("commit", job.dest, job.id, right, options),
            ),
        )
    if isinstance(expect, int):
        if len(tasks) == expect:
            return
        missing: list[str] = []
        surplus: list[str] = []
        found = f"{counted(len(tasks), 'task')} committed, {expect} expected"
    else:
        wanted = set(expect)
        missing = sorted(wanted - set(tasks))
        surplus = sorted(set(tasks) - wanted)
        if not missing and not surplus:
            return
        parts = [("missing", missing), ("not expected", surplus)]
        found = "; ".join(f"{word}: {name_some(names)}" for word, names in parts if names)
    raise IncompleteJob(
        f"job {job.id!r}: {found}",
        job_id=job.id,
        missing=missing,
        surplus=surplus,
        hint="Nothing was decided: run the missing tasks, and commit again",
        remedies=(end(job.dest, job.id, "abort the job"),),
    )


class Checked:
    """The result of checking all uploads: their number, their bytes, and the set of their names.
    The sweep uses this set to spare them."""

    def __init__(self, files: int = 0) -> None:
        self.names = KeySet(files, by_key=True)
        self.files = 0
        self.bytes = 0
        self.problems: list[str] = []

    def problem(self, text: str) -> None:
        """Note a problem."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)


def check_uploads(
    runtime: Runtime,
    job: StartedJob,
    spool: Spool,
    taken_as_is: Collection[str] = (),
    listed: Ahead[UploadPage] | None = None,
) -> Checked:
    """Check every accepted upload against the rules, then against the open uploads of the store.
    The uploads of keys in ``taken_as_is`` need not be open: the operator says that the present
    objects are right. ``listed``: the open uploads under the destination, if all uploads of the
    sets were made before that listing began."""
    files = sum(loaded.files for loaded in spool.accepted)
    checked = Checked(files)
    checked.files, checked.bytes = files, sum(loaded.bytes for loaded in spool.accepted)
    add, problem_of = checked.names.add_upload, RowCheck(job).problem
    any_long, twice = False, set[str]()
    for one in spool.named():
        key = one.key
        if (wrong := problem_of(key, one.upload_id, one.token)) is not None:
            checked.problem(wrong)
        if len(twice) < PROBLEMS_MAX and key not in twice and not add(key, one.upload_id):
            twice.add(key)
        any_long = any_long or is_long(key)
    if twice:
        found = Counter(one.key for one in spool.named() if one.key in twice)
        for key, count in found.items():
            if count > 1:
                checked.problem(f"{key}: {count} files of the job have this destination")
    if not checked.problems:
        keys = partial(_keys, spool, taken_as_is)
        for problem in chain(
            _too_long(runtime, job, keys() if any_long else ()), not_held(runtime.store, keys)
        ):
            checked.problem(problem)
        for upload in missing_uploads(runtime, job, checked, spool.uploads(), listed):
            if upload.key in taken_as_is:
                continue
            checked.problem(
                f"{upload.key}: its upload {upload.upload_id} is not open any more: somebody"
                " aborted or completed it"
            )
    return checked


def _keys(spool: Spool, taken_as_is: Collection[str]) -> Iterator[str]:
    return (one.key for one in spool.named() if one.key not in taken_as_is)


def _too_long(runtime: Runtime, job: StartedJob, keys: Iterable[str]) -> Iterator[str]:
    """Keys that the store cannot hold, and whose uploads therefore could never be completed. It
    sends a request only for the first key with a long element."""
    for key in keys:
        try:
            refuse_long_element(runtime, key, job.paths.directory)
        except PathError as error:
            yield f"{key}: {error.message}"


def missing_uploads(
    runtime: Runtime,
    job: StartedJob,
    checked: Checked,
    sets: Uploads,
    listed: Ahead[UploadPage] | None = None,
) -> Iterator[ReadyUpload]:
    """Give the uploads that are not open. It sends one listing request for each thousand uploads
    under the destination. The listing is only a hint, so each upload that it does not show is
    looked up by itself (`upload_state`).

    Hadoop's uploads (no token) may have been completed by their own driver before it died: if such
    an upload is the object at its key, it is not missing. Our uploads are never completed before
    the decision, so their object is not looked at. If nobody can tell what an upload is, its
    `StoreError` is raised: the check could not be made."""
    store, tick = runtime.store, checked.names.tick
    if not checked.files:
        return
    with (
        suppress(NotSupported),  # then each upload is looked up, below
        closing(listed)
        if listed
        else Ahead(runtime, lambda: store.list_uploads(job.paths.dest.prefix)) as pages,
    ):
        for page in pages:
            for seen in page.uploads:
                tick(seen.key, seen.upload_id)
            done = checked.files - checked.names.unticked
            runtime.progress(Progress("check", done, checked.files, "files"))
            if not checked.names.unticked:
                return
    ticked = checked.names.ticked
    unseen = (upload for some, _ in sets for upload in some if not ticked(upload.name))

    def question(upload: ReadyUpload) -> tuple[ReadyUpload, requests.Steps[UploadLook]]:
        asked = ReadyUpload(upload.key, upload.upload_id) if upload.token else upload
        return upload, looking(runtime, asked)

    with closing(requests.each(runtime, map(question, unseen))) as looks:
        for upload, look in looks:
            if look.error is not None:
                raise look.error
            if look.state not in (UploadState.OPEN, UploadState.VISIBLE):
                yield upload


# The arguments, the sets, the plan ----------------------------------------------------------------


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
            raise OptionError(
                f"the result of task {result.task!r} is of another job",
                hint="Run the task again, with this job; of Spark's, unpersist what keeps its rows",
            )
        if not result.key and (result.files or result.bytes):
            raise OptionError(
                f"the result of task {result.task!r} has {counted(result.files, 'file')}, but"
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
        return load(runtime, job, _listed(runtime, job), spool, None)
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
            own=r.own if isinstance(r, OwnCommit) else None,
        )
        for r in stored
    )  # fmt: skip
    loaded = load(runtime, job, refs, spool, len(stored))
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
    checked: Checked,
    spool: Spool,
    partitions: tuple[str, ...] | None,
) -> Plan:
    """Step 3: make the plan that is to be decided. Pure, except for the look at the present
    data."""
    mode, tree = job.terms.mode, job.paths.tree
    if mode in FAILING and not has_begun(runtime, job):
        refuse_existing_data(runtime, job, partitions)
    deletes: tuple[ObjectRef, ...] = ()
    marker: ObjectRef | None = None
    if mode in REPLACING:
        rewritten = KeySet(checked.files)
        for one in spool.named():
            rewritten.add(one.key)
        deletes, marker = replaced(runtime, job, partitions, rewritten)
    return Plan(
        job_id=job.id,
        uuid=job.uuid,
        nonce=runtime.ids(),
        files=checked.files,
        data_bytes=checked.bytes,
        sets=tuple(
            PlannedSet(one.key[len(tree) :], one.etag, one.task, one.attempt)
            for one in spool.accepted
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
