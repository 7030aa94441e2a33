"""The protocol's rules, each with a way to take it away. The patches live in tests only.

A rule is worth its price if a promise breaks without it: `bite` runs schedules with one rule
removed until that happens. Rules that these schedules cannot show are told with the reason; the
search of the protocol's model (tests/model) is for those. Many rules hold because somebody looks
once more, at the right moment, at the right thing: at others' plans, at the data, at an upload, at
what an unanswered request has come to. Most are seen once more where an upload is a file that waits
on a file system (`on_trees`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import orjson
from msgspec import structs

from magic_committer.commit import (
    batches,
    complete,
    conflict,
    fence,
    job_commit,
    pendingset,
    prepare,
    publish,
    records,
    revert,
    setup,
    success_marker,
    sweep,
)
from magic_committer.commit.batches import Ledgers
from magic_committer.commit.complete import Completion
from magic_committer.commit.job_commit import JobCommit
from magic_committer.commit.publish import Publication
from magic_committer.commit.steps import Steps
from magic_committer.commit.upload_state import UploadLook, UploadRemover, UploadState, became
from magic_committer.committers.magic import abort, saved
from magic_committer.committers.magic.abort import RetriedCreates
from magic_committer.errors import (
    BatchUnsettled,
    CommitIncomplete,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.paths import RECORD, JobPaths
from magic_committer.job import give_up
from magic_committer.maintenance import adopt, cleanup, ending, uploads
from magic_committer.maintenance.inspect import Listing
from magic_committer.protocol import rules as protocol_rules
from magic_committer.protocol.ledger import Claim, Ledger, Move
from magic_committer.protocol.plan import Plan, PlannedSet
from magic_committer.protocol.record import JOB_METADATA, JobRecord, ObjectRef, StartedJob, State
from magic_committer.stores.base import same_etag
from magic_committer.stores.memory import MemoryStore
from magic_committer.stores.tree import TreeStore
from magic_committer.writing import Writing
from tests.simulation.drawing import EVERYTHING, Focus
from tests.simulation.promises import Violation
from tests.simulation.tally import quietly

Replacement = tuple[Any, str, Any]


@dataclass(frozen=True)
class Rule:
    """One rule. ``words``: as protocol.md says it. promises: one of them breaks, within
    ``seeds_max`` seeds. ``focus``: what the schedules go for, where those of all kinds show it too
    rarely."""

    name: str
    words: str
    promises: tuple[str, ...]
    seeds_max: int
    replacements: tuple[Replacement, ...]
    focus: Focus = EVERYTHING

    @contextmanager
    def removed(self) -> Iterator[None]:
        """The library without the rule."""
        with ExitStack() as stack:
            for target, name, value in self.replacements:
                if isinstance(value, Instead):
                    value = value.of(getattr(target, name))
                put: AbstractContextManager[Any] = patch.object(target, name, value)
                stack.enter_context(put)
            yield


def takes_other_arguments(replacements: Iterable[Replacement]) -> list[str]:
    """Functions that take other arguments than what they stand for, or are no generators as those
    are. A rule that got one argument more would be "missed" by a TypeError, or by nothing."""
    other = []
    for target, name, value in replacements:
        real = getattr(target, name)
        value = value.of(real) if isinstance(value, Instead) else value
        if not inspect.isfunction(real) or not inspect.isfunction(value):
            continue
        if inspect.isgeneratorfunction(real) and not inspect.isgeneratorfunction(value):
            other.append(f"{name}: {value}")
        mine = inspect.signature(value).parameters.values()
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in mine):
            continue
        theirs = inspect.signature(real).parameters.values()
        if [p.kind for p in mine] != [p.kind for p in theirs]:
            other.append(f"{name}: {value}")
    return other


# What is done in a rule's place -------------------------------------------------------------------


def _nothing(*_: Any, **__: Any) -> None:
    return None


@dataclass(frozen=True)
class Instead:
    """A function that stands for another one, which is passed to it first."""

    function: Callable[..., Any]

    def of(self, real: Any) -> Any:

        def stands(*args: Any, **named: Any) -> Any:
            return self.function(real, *args, **named)

        def steps(*args: Any, **named: Any) -> Any:
            return (yield from self.function(real, *args, **named))

        put: Any = steps if inspect.isgeneratorfunction(real) else stands
        _, *mine = inspect.signature(self.function).parameters.values()
        put.__signature__ = inspect.Signature(mine)
        return put


def instead(target: Any, name: str) -> Callable[[Callable[..., Any]], Replacement]:
    """Let a function stand for a target's one, which is passed to it first."""
    return lambda function: (target, name, Instead(function))


@instead(records, "swap")
def _plain_put(_: Any, runtime: Any, leaves: Any, record: Any) -> records.Swapped:
    written = runtime.store.put(leaves.key, record.encode(), metadata=records._metadata(record))
    return records.Swapped(True, records._stored(leaves.key, record, written))


@instead(complete, "_settle")
def _not_repeatable(_: Any, runtime: Any, upload: Any, error: Any, conflict: bool) -> Steps[Any]:
    yield from ()
    return Completion.UNRESOLVED, error


@instead(JobRecord, "step")
def _any_step(_: Any, self: Any, state: State, nonce: str, **changes: Any) -> JobRecord:
    record: JobRecord = structs.replace(self, state=state, nonce=nonce, **changes)
    return record


@instead(JobCommit, "_swap_to_completed")
def _no_completed(_: Any, self: Any, seen: Any) -> records.Swapped:
    completed = replace(seen, record=structs.replace(seen.record, state=State.COMPLETED))
    return records.Swapped(True, completed)


@instead(JobCommit, "_stored_plan")
def _plan_by_listing(_: Any, self: Any, seen: Any) -> Plan:
    """What lies there, the newest of each task, in place of the plan that was decided."""
    newest: dict[str, tuple[float, PlannedSet]] = {}
    files = 0
    for page in self.runtime.store.list(self.paths.job_attempt, delimiter="/"):
        for info in page.objects:
            try:
                stored = self.runtime.store.get(info.key, max_bytes=10**6)
            except NotFound:
                continue
            document = orjson.loads(stored.body)
            extra = document["extraData"]
            task, name = extra["magic-committer.task"], extra["magic-committer.attempt"]
            found = PlannedSet(info.key[len(self.paths.directory) :], info.etag, task, name)
            if task not in newest or newest[task][0] <= info.last_modified:
                newest[task] = info.last_modified, found
                files += len(document["commits"])
    sets = tuple(found for _, found in newest.values())
    return Plan(self.job.id, self.job.uuid, "0" * 32, files, 0, sets)


@instead(sweep._Sweep, "mine")
def _take_all(_: Any, self: Any, pages: Any) -> list[Any]:
    return [u for page in pages for u in page.uploads if not self.spared(f"{u.key}\0{u.upload_id}")]


def _delete_by_name(runtime: Any, key: str, *_: Any, **__: Any) -> bool:
    runtime.store.delete_one(key)
    return True


@instead(Publication, "complete_all")
def _delete_first(real: Any, self: Any) -> CommitIncomplete | None:
    self.delete_replaced()
    incomplete: CommitIncomplete | None = real(self)
    return incomplete


@instead(revert, "_each")
def _look_first(_: Any, runtime: Any, job: Any, uploads: Any, in_flight: int) -> Any:
    def one(upload: Any) -> None:
        try:
            info = runtime.store.head(upload.key)
        except NotFound:
            info = None
        runtime.store.abort_upload(upload.key, upload.upload_id)
        if info is not None and became(upload, info):
            revert.delete_if_same(runtime, info.key, info.etag, info.version_id)

    yield from runtime.pool.each(one, uploads, in_flight=in_flight)


@instead(Writing, "_undo")
def _block_leaves_its_set(real: Any, self: Any, error: BaseException) -> None:
    if self._own().result is not None:
        give_up(self._job, error)
    else:
        real(self, error)


HANDS_ON = frozenset({State.RUNNING, State.REVERTING})


@instead(setup, "_withdraw")
def _withdraw_simply(_: Any, runtime: Any, job: Any, seen: Any, in_flight: int, why: Any) -> None:
    records.remove(runtime, seen)


@instead(uploads.Survey, "__init__")
def _records_first(
    real: Any, self: Any, runtime: Any, dest: Any, *, dead_after: float = 0.0, in_flight: int,
    by_name: bool,
) -> None:  # fmt: skip
    """The records at and above the destination are read before the uploads are listed, and only
    they count."""
    early = uploads.Places(runtime, in_flight)
    early.look((dest.prefix,))
    real(self, runtime, dest, dead_after=dead_after, in_flight=in_flight, by_name=by_name)
    self.places = early


@instead(uploads.Survey, "_look_up")
def _all_orphans(_: Any, self: Any, directory: str, uuid: str) -> uploads.FoundUpload:
    return uploads.FoundUpload("", "", "orphan", uuid=uuid)


@instead(ending, "Listing")
def _record_alone(_: Any, runtime: Any, directory: str, *more: Any) -> Listing:
    return Listing(runtime, f"{directory}{RECORD}")


def _blind(runtime: Any, *, look_first: bool = True) -> UploadRemover:
    return UploadRemover(runtime, look_first=False)


@instead(cleanup.Cleaning, "_take")
def _any_token(real: Any, self: Any, info: Any, known_over: str) -> Any:
    store = self.runtime.store
    head = store.head

    def with_token(key: str) -> Any:
        return replace(head(key), metadata={JOB_METADATA: known_over or "any"})

    with patch.object(store, "head", with_token):
        return real(self, info, known_over)


@instead(saved.SavedFiles, "late")
def _fence_only(_: Any, self: Any, pending: object) -> object:
    """The look at a closed file's fence, without that at its attempt's set."""
    return self._fence.must_undo()


_early: dict[int, list[Any]] = {}
"""By process: the data as it was listed before its partitions were announced, and not again."""


@instead(JobCommit, "_announce")
def _list_then_announce(real: Any, self: Any, partitions: Any) -> str:
    found = _existing(self.runtime, self.dest, partitions, self.in_flight)
    _early[id(self.runtime)] = list(found)
    announced: str = real(self, partitions)
    return announced


_existing = conflict.existing


@instead(conflict, "existing")
def _as_listed(
    real: Any, runtime: Any, dest: Any, partitions: Any, in_flight: int, *_: Any, **__: Any
) -> Any:
    there = _early.get(id(runtime))
    yield from real(runtime, dest, partitions, in_flight) if there is None else there


@instead(prepare, "refuse_existing_data")
def _refuse_as_listed(
    real: Any, runtime: Any, job: Any, in_flight: int, partitions: Any = None
) -> None:
    there = _early.get(id(runtime))
    if there is None:
        real(runtime, job, in_flight, partitions)
    elif there:
        raise conflict.destination_exists(job, there[0].key)


@instead(job_commit, "make_plan")
def _plan_as_listed(real: Any, runtime: Any, *rest: Any) -> Any:
    try:
        return real(runtime, *rest)
    finally:
        _early.pop(id(runtime), None)


@instead(complete, "looking")
def _refused_is_gone(real: Any, runtime: Any, upload: Any) -> Steps[UploadLook]:
    look: UploadLook = yield from real(runtime, upload)
    if look.state is UploadState.UNKNOWN and isinstance(look.error, PermissionDenied):
        return UploadLook(UploadState.GONE)
    return look


@instead(ObjectRef, "is_same")
def _by_etag_alone(_: Any, self: ObjectRef, etag: str, modified: float) -> bool:
    return same_etag(self.etag, etag)


@instead(Publication, "delete_replaced")
def _deletes_as_it_can(real: Any, self: Any) -> None:
    try:
        real(self)
    except CommitIncomplete as error:
        self.warnings.append(str(error))


@instead(job_commit, "expected")
def _never_asked(
    real: Any, job: StartedJob, tasks: Any, expect: Any, *, by_results: bool = False
) -> None:
    if expect is not None:
        real(job, tasks, expect, by_results=by_results)


@instead(job_commit, "wanted_results")
def _keyless(real: Any, job: Any, results: Any) -> Any:
    if results is None:
        return real(job, None)
    return real(job, [r if r.key else structs.replace(r, files=0, bytes=0) for r in results])


@instead(complete, "_settle")
def _any_conflict(real: Any, runtime: Any, upload: Any, error: Any, conflicting: bool) -> Any:
    settled = yield from real(runtime, upload, error, conflicting)
    refused = isinstance(error, PreconditionFailed | WriteConflict)
    return (Completion.CONFLICT, error) if refused and settled[1] is not None else settled


@instead(records, "_read_back")
def _believed_refusals(
    real: Any, runtime: Any, key: str, job_id: str, why: StoreError
) -> records.Seen | None:
    if records.is_final(why) and not records.may_still_land(why):
        raise why
    seen: records.Seen | None = real(runtime, key, job_id, why)
    return seen


@instead(complete, "_look_after")
def _believed(_: Any, runtime: Any, upload: Any, answer: Any) -> Steps[Any]:
    yield from ()
    return Completion.DONE, None


# Streams ------------------------------------------------------------------------------------------


@instead(batches, "next_move")
def _nobody_claims(real: Any, ledger: Any, number: int, uuid: str) -> Move:
    """The ledger is looked at, and written at the end."""
    return Move.SKIP if real(ledger, number, uuid) is Move.SKIP else Move.DECIDE


@instead(batches, "publish_batch")
def _publish_at_the_end(_: Any, ledgers: Any, job: StartedJob, batch: Any) -> str:
    stored = ledgers.read(batch.query)
    ledger = stored.ledger or Ledger(batch.query, "", None, "", None)
    if not ledger.covers(batch.number):
        claim = Claim(job.id, job.uuid, batch.number)
        done = ledger.claimed(claim, "").published(batch.number, ledgers.ids())
        ledgers.write(stored, done)
    return ""


@instead(batches, "settle_claim")
def _takes_what_it_cannot_settle(real: Any, *rest: Any, **more: Any) -> None:
    with suppress(BatchUnsettled):
        real(*rest, **more)


@instead(JobCommit, "_say_published")
def _driver_alone_writes(real: Any, self: Any, seen: Any, warnings: list[str]) -> None:
    """Recovery and cleanup finish the job, and leave the ledger to its driver."""
    if self.role == "driver":
        real(self, seen, warnings)


@instead(JobCommit, "_publish")
def _done_at_the_decision(real: Any, self: Any, seen: Any, *rest: Any, **more: Any) -> Any:
    """The ledger is written as soon as the job is decided."""
    self._say_published(seen, [])
    return real(self, seen, *rest, **more)


@instead(JobCommit, "_go_on")
def _done_before_the_old_is_gone(
    real: Any, self: Any, now: Any, publication: Any, may_remove: bool, just_now: bool
) -> Any:
    """The ledger is written before what the job replaces is deleted."""
    if now is not None and now.record.state is State.COMPLETED:
        self._say_published(now, publication.warnings)
    return real(self, now, publication, may_remove, just_now)


@instead(records, "read")
def _no_batch_needed(real: Any, runtime: Any, key: str) -> Any:
    """A job of a query is committed like any other."""
    seen = real(runtime, key)
    return seen and replace(seen, record=structs.replace(seen.record, checkpoint=""))


@instead(Ledgers, "write")
def _unconditional(_: Any, self: Any, leaves: Any, ledger: Any) -> bool:
    self._runtime.store.put(leaves.key, ledger.encode())
    return True


# File systems -------------------------------------------------------------------------------------


@instead(JobCommit, "abort")
def _aborts_what_commits(real: Any, self: Any, *rest: Any, **more: Any) -> Any:
    seen = records.read(self.runtime, self.job.paths.record)
    if seen is not None and seen.record.state is State.COMMITTING:
        return self._report("aborted", State.CLOSED)
    return real(self, *rest, **more)


@instead(job_commit, "wanted_results")
def _all_but_one(real: Any, job: Any, results: Any) -> Any:
    found = real(job, results)
    return found[1:] if found else found


@instead(records, "_read_back")
def _refused_look(_: Any, runtime: Any, key: str, job_id: str, why: Any) -> Any:
    raise PermissionDenied("it was refused", operation="get")


@instead(TreeStore, "clear")
def _clears_all(real: Any, self: Any, directory: str) -> int:
    return int(
        real(self, directory)
        + sum(real(self, f"{job.path}/") for job in self._tree.list("_temporary"))
    )


# The rules ----------------------------------------------------------------------------------------

RIVALS = Focus(others=("rival",))
TWICE = Focus(others=("aborter",), fault="sent twice", target="create_upload")
REPLACED = Focus(modes=("replace", "replace_partitions"), deeds=("overwrite old",))
FAILING = Focus(modes=("fail",), deeds=("ahead",))
REVERTED = Focus(
    modes=("append",), others=("reverter",), fault="crash in flight", target="complete_upload"
)
LATE_READ = Focus(modes=("append",), others=("rival",), fault="pause", target="head record")
WITHDRAWN = Focus(modes=("fail", "replace"), fault="late and again", target="create record")
CLEANED = Focus(others=("cleanup",))
PAUSED_BLOCK = Focus(others=("writer", "cleanup"), fault="pause", target="put pendingset")
RECOVERED = Focus(others=("recovery",))
BESIDE_HADOOP = Focus(others=("cleanup", "Hadoop"))
BY_PARTITION = Focus(
    modes=("replace_partitions", "fail_partitions"), others=("neighbour", "writer")
)
BESIDE_APPEND = Focus(modes=("replace", "replace_partitions"), others=("neighbour", "writer"))
TWINS = Focus(modes=("append",))
REFUSED = Focus(fault="refused again", target="swap record")
REFUSED_AFTER = Focus(fault="refused after", target="swap record")
FORBIDDEN = Focus(modes=("append",), fault="refused", target="list_parts")
ALIKE = Focus(modes=("replace",), deeds=("mark alike", "same"))
UNDELETED = Focus(modes=("replace",), fault="refused", target="delete_one data")
IN_CONFLICT = Focus(modes=("append",), fault="conflict", target="complete_upload")
FALSE_SUCCESS = Focus(modes=("append",), fault="false success", target="complete_upload")
HADOOPS = Focus(others=("Hadoop",))
STREAMS = Focus(others=("stream",))
SETTLED = Focus(modes=("append",), others=("stream",), fault="refused", target="complete_upload")
RUN_RECOVERED = Focus(others=("stream", "recovery", "cleanup"))
BATCH_UNDELETED = Focus(
    modes=("append",), others=("stream",), fault="refused", target="delete_one data"
)
RENAMES = Focus(tree="renames")
FAILING_TREES = Focus(modes=("fail", "fail_partitions"), deeds=("write", "same"), tree="renames")
REPLACED_TREES = Focus(modes=("replace", "replace_partitions"), tree="renames")
ADOPTED = Focus(others=("adopter",), tree="renames")
UNREAD = Focus(fault="lost reply", target="swap record", tree="renames")
PROBED = Focus(modes=("fail",), fault="crash after", target="create_upload", tree="renames")

RULES = (
    Rule("swap", "every arrow is a PUT If-Match; the decision is no plain PUT",
         ("I1", "I2", "I3", "I5", "I10"), 2000, (_plain_put,)),
    Rule("plan of one try †", "_plan-<nonce>.json, one for each try, immutable",
         ("I2", "I5", "I10"), 3000,
         ((JobPaths, "plan", lambda self, nonce: f"{self.directory}_plan-of-all.json"),), RIVALS),
    Rule("completed †", "`completed` by swap before plan and pendingsets are deleted",
         ("I5", "I2", "I8"), 2000, (_no_completed, _any_step,)),
    Rule("fence", "a task reads the record after its Creates were answered",
         ("I4",), 2000,
         ((fence.Fence, "check", _nothing), (fence.Fence, "check_if_due", _nothing),
         (fence.Fence, "must_undo", _nothing),)),
    Rule("second read †", "and once after its pendingset is stored",
         ("I4",), 2000, ((fence.Fence, "must_undo", _nothing),)),
    Rule("second read of a block", "a block whose job was not committed aborts its attempt",
         ("I4",), 3000, (_block_leaves_its_set,), PAUSED_BLOCK),
    Rule("second read by path", "whoever only closes files reads the fence after each .pending",
         ("I4",), 6000, ((saved.SavedFiles, "late", _nothing),)),
    Rule("hands off †", "the second read leaves what a driver may have accepted",
         ("I2", "I5"), 3000,
         ((fence, "HANDS_OFF", HANDS_ON), (protocol_rules, "HANDS_OFF", HANDS_ON),), LATE_READ),
    Rule("retried Create †", "fenced after a retried Create: list the key, abort what is ours",
         ("I4",), 3000, ((RetriedCreates, "abort_if_late", _nothing),), TWICE),
    Rule("repeatable Complete", "a final error is settled by the object's token",
         ("I5", "I2"), 2000, (_not_repeatable,)),
    Rule("recovery by the plan", "recovery executes the plan, it does not list",
         ("I2", "I3", "I5", "I9"), 6000, (_plan_by_listing,)),
    Rule("marker of a later job †", "_SUCCESS never over the marker of a job that ran after ours",
         ("I8",), 6000, ((success_marker, "may_replace_marker", lambda *_: True),)),
    Rule("never by inference †", "uploads are swept by id or by our UUID in their names only",
         ("I6",), 200, (_take_all,)),
    Rule("set up, then look †", "fail and replace jobs look for others after their setup",
         ("I6",), 3000, ((setup, "refuse_other_jobs", _nothing),)),
    Rule("delete If-Match †", "what is replaced is deleted only as it was planned",
         ("I6",), 3000, ((publish, "delete_if_same", _delete_by_name),), REPLACED),
    Rule("complete, then delete", "old data goes after all that replaces it is visible",
         ("I7",), 500, (_delete_first,)),
    Rule("fail by If-None-Match", "mode fail completes only where nothing is",
         ("I6",), 6000, ((publish, "FAILING", frozenset()),), FAILING),
    Rule("abort, HEAD, delete †", "revert looks after it aborted the upload",
         ("I3",), 12000, (_look_first,), REVERTED),
    Rule("an id is used once †", "a given id ends in `closed`, and its directory must be empty",
         ("I2", "I3", "I4", "I5", "I6", "I10"), 6000,
         ((JobCommit, "may_remove", property(lambda self: True)), (setup,
         "_refuse_used_directory", _nothing),)),
    Rule("messages, not listings", "a job of results is never committed from a listing",
         ("I9",), 1000, ((job_commit, "wanted_results", _nothing),)),
    Rule("the loser's plan", "a driver whose swap loses deletes its plan",
         ("I4",), 6000, ((job_commit, "drop_plan", _nothing),)),
    Rule("withdraw by aborting", "a setup that was sent twice is withdrawn through `aborting`",
         ("I4",), 3000, (_withdraw_simply,), WITHDRAWN),
    Rule("a young job is left", "a running job is judged dead by its age alone",
         ("I6",), 500, ((ending, "refuse_younger", _nothing),), RECOVERED),
    Rule("age of the directory", "a job's age is the newest Last-Modified of its directory",
         ("I6",), 3000, (_record_alone,), RECOVERED),
    Rule("uploads, then records", "cleanup lists uploads, then reads records, then lists again",
         ("I6", "I2"), 3000, (_records_first,), CLEANED),
    Rule("over says the record", "cleanup takes uploads of jobs whose record is closed or gone",
         ("I6", "I2"), 500, (_all_orphans,), CLEANED),
    Rule("ours by token", "cleanup takes what carries a token of ours",
         ("I6",), 500, (_any_token,), BESIDE_HADOOP),
    Rule("spare what is visible", "who sweeps after the plan is gone aborts no completed upload",
         ("I2",), 3000, ((sweep, "UploadRemover", _blind),)),
    Rule("cleanup spares it, too", "cleanup aborts no completed upload that litter names",
         ("I2",), 6000, ((cleanup, "UploadRemover", _blind),), CLEANED),
    Rule("a 403 is looked at", "what is refused is listed: a missing object answers 403 as well",
         ("I5", "I10"), 500, ((MemoryStore, "_look", lambda self, key, look: look()),)),
    Rule("announce", "by partition: a plan of the partitions first, then the look at others'",
         ("I6", "I2"), 3000, ((JobCommit, "_announce", lambda *_: ""),), BY_PARTITION),
    Rule("look at others' plans", "by partition: who has announced one of them is given way to",
         ("I6", "I2"), 3000, ((job_commit, "refuse_overlapping_plans", _nothing),), BY_PARTITION),
    Rule("then list", "by partition: the data is listed after the look at others' plans",
         ("I6", "I2"), 6000,
         (_list_then_announce, _as_listed, _refuse_as_listed, _plan_as_listed,), BY_PARTITION),
    Rule("spare the decided", "a replace spares what a decided live job has published",
         ("I2",), 3000, ((conflict, "_of_decided_jobs", lambda *_: ([], set())),), BESIDE_APPEND),
    Rule("claim the key", "who may not be alone claims the pendingset's key before he aborts",
         ("I2", "I5"), 12000,
         ((pendingset.AttemptSet, "claim", pendingset.AttemptSet.read),), TWINS),
    Rule("late, but looks", "a late attempt aborts nothing that has become visible",
         ("I2",), 6000, ((abort, "UploadRemover", _blind),)),
    Rule("a refused swap is read back", "a refusal may hide that the swap took effect",
         ("I10",), 3000, (_believed_refusals,), REFUSED_AFTER),
    Rule("a refused retry is unknown", "once any try was unanswered, the record is read back",
         ("I10", "I4"), 6000,
         ((records, "may_still_land", lambda e: isinstance(e, Unanswered)),), REFUSED),
    Rule("refused is not gone", "an upload that nobody may look at is unfinished, not unresolved",
         ("I10", "I2", "I5"), 6000, (_refused_is_gone,), FORBIDDEN),
    Rule("Last-Modified, too", "an object is recognised by its ETag and its Last-Modified",
         ("I6", "I8"), 6000, (_by_etag_alone,), ALIKE),
    Rule("gone, then told", "\"committed\" is told when what is replaced is gone",
         ("I2",), 3000, (_deletes_as_it_can,), UNDELETED),
    Rule("nothing is asked for", "a commit of no task takes expect=0",
         ("I2", "I7"), 3000, (_never_asked,)),
    Rule("a result names its set", "a result with files names the pendingset that holds them",
         ("I2",), 3000, (_keyless,)),
    Rule("only a condition conflicts", "409 and 412 undo a job only where If-None-Match was sent",
         ("I2",), 3000, (_any_conflict,), IN_CONFLICT),
    Rule("closed too late", "who closes a file of an attempt that is committed is told",
         ("I2",), 6000, (_fence_only,)),
    Rule("look after a 200", "a 200 to a Complete that was sent again is looked after",
         ("I2", "I10"), 3000, (_believed,), FALSE_SUCCESS),
    Rule("distrust a stored plan", "who executes a stored plan looks after every 200",
         ("I2", "I10"), 3000, ((Publication, "_distrusts", lambda *_: False),), FALSE_SUCCESS),
    Rule("claim in the ledger †", "a run claims its batch before it is decided",
         ("I2", "I10"), 3000, (_nobody_claims, _publish_at_the_end,), STREAMS),
    Rule("settle the claimant †", "a claim is taken only from a job that was settled",
         ("I2", "I10"), 3000, ((batches, "settle_claim", _nothing),), STREAMS),
    Rule("unsettled stops the next †", "what cannot be settled stops the next run",
         ("I2", "I10"), 12000, (_takes_what_it_cannot_settle,), SETTLED),
    Rule("done before finish †", "whoever completes a job writes the ledger before it is finished",
         ("I2", "I10"), 3000, (_driver_alone_writes,), RUN_RECOVERED),
    Rule("done after all is visible", "the ledger says done when all files are visible",
         ("I10", "I2"), 3000, (_done_at_the_decision,), STREAMS),
    Rule("done after the old is gone", "the ledger says done when what is replaced is deleted",
         ("I2",), 12000, (_done_before_the_old_is_gone,), BATCH_UNDELETED),
    Rule("a batch is needed", "a job with a checkpoint is committed as a batch only",
         ("I2", "I10"), 6000, (_no_batch_needed,), SETTLED),
    Rule("claim by If-Match", "every write of the ledger is conditional on what it leaves",
         ("I2", "I10"), 3000, (_unconditional,), STREAMS),
    Rule("a decided job is not called aborted", "an abort tells what was decided",
         ("I10",), 1000, (_aborts_what_commits,), RENAMES),
    Rule("a look that fails is no refusal", "what a swap came to is unknown if nobody can look",
         ("I10", "I2"), 3000, (_refused_look,), UNREAD),
    Rule("every result is taken", "what was handed over is published",
         ("I2",), 300, (_all_but_one, (job_commit, "expected", _nothing),), RENAMES),
    Rule("mode fail looks before the decision", "data that came while the job ran refuses it",
         ("I6",), 3000, ((prepare, "refuse_existing_data", _nothing),), FAILING_TREES),
    Rule("a replace replaces what is there", "the plan deletes what the listing shows",
         ("I2",), 500, ((prepare, "replaced", lambda *_: ((), None)),), REPLACED_TREES),
    Rule("files of tasks go with their job", "the sweep removes the job's directory",
         ("I4",), 500, ((TreeStore, "clear", lambda self, directory: 0),), RENAMES),
    Rule("a job's own directory", "the sweep removes nothing of another job's",
         ("I2", "I6"), 500, (_clears_all,), RENAMES),
    Rule("uploads of a dead probe go, too", "the sweep looks for the uploads of its driver",
         ("I4",), 3000, ((sweep._Sweep, "abort_listed", _nothing),), PROBED),
    Rule("Hadoop's magic jobs stay Hadoop's", "on a file system none is adopted",
         ("I6",), 500, ((adopt, "is_tree", lambda bucket: False),), ADOPTED),
)  # fmt: skip

_SHARED = (
    "swap", "plan of one try †", "completed †", "fence", "repeatable Complete",
    "recovery by the plan", "marker of a later job †", "set up, then look †", "delete If-Match †",
    "complete, then delete", "fail by If-None-Match", "abort, HEAD, delete †",
    "messages, not listings", "the loser's plan", "withdraw by aborting", "a young job is left",
    "age of the directory", "over says the record", "ours by token", "announce",
    "look at others' plans", "spare the decided", "a refused swap is read back",
    "refused is not gone", "gone, then told", "a result names its set",
    "only a condition conflicts", "claim in the ledger †", "settle the claimant †",
    "done before finish †",
)  # fmt: skip


def on_trees(rules: Sequence[Rule]) -> list[Rule]:
    """The rules of the protocol that jobs of renames show, too: `--table` tries them there."""
    return [
        replace(rule, name=f"{rule.name}, on a tree", focus=replace(rule.focus, tree="renames"))
        for rule in rules
        if rule.name in _SHARED
    ]


NOT_SEEN_HERE = {
    "closed for all but the undisturbed decider †": (
        'who finds no record is told "unknown" in either case, which is true; that a rerun then'
        " doubles the data is beyond one job"
    ),
    "an unanswered swap is unknown": (
        "the late PUT lands on another ETag unless the driver stops for good; the model shows it"
    ),
    "the closed record of a given id stays": (
        "needs a sweep that is paused over a whole second run with the same names of attempts; the"
        " model shows it"
    ),
    "delete as it was looked at": (
        "nobody writes a control object of a job that is over once more, but with the same bytes"
    ),
    "uploads are listed again": (
        "only uploads of jobs that are over are aborted, and of these nothing is completed any more"
    ),
    "reverted †": "needs a listing task between two steps of a revert; the model shows it",
    "a settled run stays closed †": (
        "recovery closes what it did not start, for every job; a late setup that meets nothing of"
        " it is the model's"
    ),
    "adopt never where our tokens lie †": (
        "an operator's deed; the model shows it, tests/promises crashes it at each request"
    ),
}
"""Rules that these schedules do not show, and why."""


# Taking them away ---------------------------------------------------------------------------------

EVERYWHERE = (*RULES, *on_trees(RULES))
"""Those of the table."""


@dataclass(frozen=True)
class Bite:
    """How a removed rule was caught: at which seed, by which broken promise. ``clean``: that seed
    breaks nothing when the rule is in place."""

    rule: str
    seed: int | None
    violation: Violation | None
    clean: bool


def bite(name: str, first: int = 0, last: int | None = None) -> Bite:
    """Remove one rule and look for a seed that shows it: from the first to before the last; None:
    as many as the rule allows."""
    rule = next(rule for rule in EVERYWHERE if rule.name == name)
    end = rule.seeds_max if last is None else min(last, rule.seeds_max)
    seed, violation = _caught(rule, range(first, end))
    if seed is None:
        return Bite(name, None, None, clean=True)
    (green,) = quietly(seed, 1, rule.focus)
    return Bite(name, seed, violation, clean=not green.violations)


def _caught(rule: Rule, seeds: range) -> tuple[int | None, Violation | None]:
    with rule.removed():
        for result in quietly(seeds.start, len(seeds), rule.focus):
            for violation in result.violations:
                if "raised TypeError" in violation.what or "raised Attribute" in violation.what:
                    raise AssertionError(f"what stands for {rule.name!r} fails: {violation}")
                if violation.promise in rule.promises:
                    return result.seed, violation
    return None, None


def all_bites(processes: int) -> list[Bite]:
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(bite, [rule.name for rule in EVERYWHERE]))


def print_table(processes: int) -> int:
    bites = all_bites(processes)
    print(f"{'rule taken away':<38} {'seeds':>7} {'cap':>7}  the promise that breaks")
    failed = 0
    for rule, found in zip(EVERYWHERE, bites, strict=True):
        if found.seed is None:
            failed += 1
            print(f"{rule.name:<38} {'-':>7} {rule.seeds_max:>7,}  NOT CAUGHT")
            continue
        note = "" if found.clean else "  (this seed breaks a promise with the rule, too!)"
        failed += not found.clean
        print(f"{rule.name:<38} {found.seed + 1:>7,} {rule.seeds_max:>7,}  {found.violation}{note}")
    for name, why in NOT_SEEN_HERE.items():
        print(f"{name}: not seen here: {why}")
    return 1 if failed else 0
