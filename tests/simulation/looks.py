"""Rules that hold because somebody looks once more, at the right moment, at the right thing: at
others' plans, at the data, at an upload, at what an unanswered request has come to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from magic_committer.commit import (
    complete,
    conflict,
    job_commit,
    pendingset,
    prepare,
    records,
)
from magic_committer.commit.check import expected
from magic_committer.commit.complete import Completion
from magic_committer.commit.job_commit import JobCommit
from magic_committer.commit.publish import Publication
from magic_committer.commit.steps import Steps
from magic_committer.commit.upload_state import (
    UploadLook,
    UploadRemover,
    UploadState,
    looking,
)
from magic_committer.committers.magic import abort, saved
from magic_committer.errors import (
    CommitIncomplete,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.protocol.record import ObjectRef, StartedJob
from magic_committer.stores.base import same_etag
from tests.simulation.drawing import Focus
from tests.simulation.rule import Replacement, Rule


def _fence_only(self: Any, pending: object) -> object:
    """The look at a closed file's fence, without that at its attempt's set."""
    return self._fence.must_undo()


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _list_first() -> list[Replacement]:
    """The data is listed before the partitions are announced, and not again."""
    early: dict[int, list[Any]] = {}
    announce, existing = JobCommit._announce, conflict.existing
    refuse, make = conflict.refuse_existing_data, prepare.make_plan

    def list_then_announce(self: Any, partitions: Any) -> str:
        found = existing(self.runtime, self.dest, partitions, self.in_flight)
        early[id(self.runtime)] = list(found)
        return announce(self, partitions)

    def as_listed(
        runtime: Any, dest: Any, partitions: Any, in_flight: int, *_: Any, **__: Any
    ) -> Any:
        there = early.get(id(runtime))
        yield from existing(runtime, dest, partitions, in_flight) if there is None else there

    def refuse_as_listed(runtime: Any, job: Any, in_flight: int, partitions: Any = None) -> None:
        there = early.get(id(runtime))
        if there is None:
            refuse(runtime, job, in_flight, partitions)
        elif there:
            raise conflict.destination_exists(job, there[0].key)

    def make_plan(runtime: Any, *rest: Any) -> Any:
        try:
            return make(runtime, *rest)
        finally:
            early.pop(id(runtime), None)

    return [
        (JobCommit, "_announce", list_then_announce),
        (conflict, "existing", as_listed),
        (prepare, "refuse_existing_data", refuse_as_listed),
        (job_commit, "make_plan", make_plan),
    ]


def _blind(module: Any) -> list[Replacement]:
    def blind(runtime: Any, *, look_first: bool = True) -> UploadRemover:
        return UploadRemover(runtime, look_first=False)

    return [(module, "UploadRemover", blind)]


def _refused_is_gone() -> list[Replacement]:
    def state(runtime: Any, upload: Any) -> Steps[UploadLook]:
        look = yield from looking(runtime, upload)
        if look.state is UploadState.UNKNOWN and isinstance(look.error, PermissionDenied):
            return UploadLook(UploadState.GONE)
        return look

    return [(complete, "looking", state)]


def _by_etag_alone() -> list[Replacement]:
    def is_same(self: ObjectRef, etag: str, modified: float) -> bool:
        return same_etag(self.etag, etag)

    return [(ObjectRef, "is_same", is_same)]


def _deletes_as_it_can() -> list[Replacement]:
    real = Publication.delete_replaced

    def delete(self: Any) -> None:
        try:
            real(self)
        except CommitIncomplete as error:
            self.warnings.append(str(error))

    return [(Publication, "delete_replaced", delete)]


def _never_asked() -> list[Replacement]:
    def unless_none(job: StartedJob, tasks: Any, expect: Any, *, by_results: bool = False) -> None:
        if expect is not None:
            expected(job, tasks, expect, by_results=by_results)

    return [(job_commit, "expected", unless_none)]


def _keyless() -> list[Replacement]:
    real = prepare.wanted_results

    def wanted(job: Any, results: Any) -> Any:
        if results is None:
            return real(job, None)
        return real(job, [r if r.key else replace(r, files=0, bytes=0) for r in results])

    return [(job_commit, "wanted_results", wanted)]


def _any_conflict() -> list[Replacement]:
    real = complete._settle

    def settle(runtime: Any, upload: Any, error: Any, conflicting: bool) -> Any:
        settled = yield from real(runtime, upload, error, conflicting)
        refused = isinstance(error, PreconditionFailed | WriteConflict)
        return (Completion.CONFLICT, error) if refused and settled[1] is not None else settled

    return [(complete, "_settle", settle)]


def _believed_refusals() -> list[Replacement]:
    real = records._read_back

    def read_back(runtime: Any, key: str, job_id: str, why: StoreError) -> records.Seen | None:
        if records.is_final(why) and not records.may_still_land(why):
            raise why
        return real(runtime, key, job_id, why)

    return [(records, "_read_back", read_back)]


def _believed(runtime: Any, upload: Any, answer: Any) -> Steps[Any]:
    yield from ()
    return Completion.DONE, None


BY_PARTITION = Focus(
    modes=("replace_partitions", "fail_partitions"), others=("neighbour", "writer")
)
BESIDE_APPEND = Focus(modes=("replace", "replace_partitions"), others=("neighbour", "writer"))
TWINS = Focus(modes=("append",))
REFUSED = Focus(fault="refused again", target="swap record")
REFUSED_AFTER = Focus(fault="refused after", target="swap record")
FORBIDDEN = Focus(modes=("append",), fault="refused", target="list_parts")
ALIKE = Focus(modes=("replace",), deeds=("mark alike", "same"))
NOT_DELETED = Focus(modes=("replace",), fault="refused", target="delete_one data")
IN_CONFLICT = Focus(modes=("append",), fault="conflict", target="complete_upload")
FALSE_SUCCESS = Focus(modes=("append",), fault="false success", target="complete_upload")
HADOOPS = Focus(others=("Hadoop",))

RULES_OF_LOOKS = (
    Rule("announce", "by partition: a plan of the partitions first, then the look at others'",
         ("I6", "I2"), 3000, lambda: [(JobCommit, "_announce", lambda *_: "")],
         BY_PARTITION),
    Rule("look at others' plans", "by partition: who has announced one of them is given way to",
         ("I6", "I2"), 3000, lambda: [(job_commit, "refuse_overlapping_plans", _nothing)],
         BY_PARTITION),
    Rule("then list", "by partition: the data is listed after the look at others' plans",
         ("I6", "I2"), 6000, _list_first, BY_PARTITION),
    Rule("spare the decided", "a replace spares what a decided live job has published",
         ("I2",), 3000, lambda: [(conflict, "_of_decided_jobs", lambda *_: ([], set()))],
         BESIDE_APPEND),
    Rule("claim the key", "who may not be alone claims the pendingset's key before he aborts",
         ("I2", "I5"), 12000,
         lambda: [(pendingset.AttemptSet, "claim", pendingset.AttemptSet.read)], TWINS),
    Rule("late, but looks", "a late attempt aborts nothing that has become visible",
         ("I2",), 6000, lambda: _blind(abort)),
    Rule("a refused swap is read back", "a refusal may hide that the swap took effect",
         ("I10",), 3000, _believed_refusals, REFUSED_AFTER),
    Rule("a refused retry is unknown", "once any try was unanswered, the record is read back",
         ("I10", "I4"), 6000,
         lambda: [(records, "may_still_land", lambda e: isinstance(e, Unanswered))], REFUSED),
    Rule("refused is not gone", "an upload that nobody may look at is unfinished, not unresolved",
         ("I10", "I2", "I5"), 6000, _refused_is_gone, FORBIDDEN),
    Rule("Last-Modified, too", "an object is recognised by its ETag and its Last-Modified",
         ("I6", "I8"), 6000, _by_etag_alone, ALIKE),
    Rule("gone, then told", "\"committed\" is told when what is replaced is gone",
         ("I2",), 3000, _deletes_as_it_can, NOT_DELETED),
    Rule("nothing is asked for", "a commit of no task takes expect=0",
         ("I2", "I7"), 3000, _never_asked),
    Rule("a result names its set", "a result with files names the pendingset that holds them",
         ("I2",), 3000, _keyless),
    Rule("only a condition conflicts", "409 and 412 undo a job only where If-None-Match was sent",
         ("I2",), 3000, _any_conflict, IN_CONFLICT),
    Rule("closed too late", "who closes a file of an attempt that is committed is told",
         ("I2",), 6000, lambda: [(saved.SavedFiles, "late", _fence_only)]),
    Rule("look after a 200", "a 200 to a Complete that was sent again is looked after",
         ("I2", "I10"), 3000,
         lambda: [(complete, "_look_after", _believed)], FALSE_SUCCESS),
    Rule("distrust a stored plan", "who executes a stored plan looks after every 200",
         ("I2", "I10"), 3000, lambda: [(Publication, "_distrusts", lambda *_: False)],
         FALSE_SUCCESS),
)  # fmt: skip
