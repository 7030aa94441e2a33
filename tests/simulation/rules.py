"""The protocol's rules, each with a way to take it away. The patches live in tests only.

A rule is worth its price if a promise breaks without it. `bite` runs schedules with one rule
removed until that happens. Rules that these schedules cannot show are told with the reason; the
search of the protocol's model (tests/model) is for those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import orjson

from magic_committer.commit import (
    complete,
    fence,
    job_commit,
    publish,
    records,
    revert,
    setup,
    success_marker,
    sweep,
)
from magic_committer.commit.complete import Completion
from magic_committer.commit.job_commit import JobCommit
from magic_committer.commit.publish import Publication
from magic_committer.commit.steps import Steps
from magic_committer.commit.upload_state import UploadRemover, became
from magic_committer.committers.magic import saved
from magic_committer.committers.magic.abort import RetriedCreates
from magic_committer.errors import CommitIncomplete, NotFound
from magic_committer.hadoop.paths import RECORD, JobPaths
from magic_committer.job import give_up
from magic_committer.maintenance import cleanup, ending, uploads
from magic_committer.maintenance.inspect import Listing
from magic_committer.protocol import rules as protocol_rules
from magic_committer.protocol.plan import Plan, PlannedSet
from magic_committer.protocol.record import JOB_METADATA, JobRecord, State
from magic_committer.stores.memory import MemoryStore
from magic_committer.writing import Writing
from tests.simulation.drawing import Focus
from tests.simulation.looks import RULES_OF_LOOKS
from tests.simulation.rule import Replacement, Rule
from tests.simulation.streams_rules import RULES_OF_STREAMS
from tests.simulation.tree_rules import RULES_OF_RENAMES


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _plain_put(runtime: Any, leaves: Any, record: Any) -> records.Swapped:
    written = runtime.store.put(leaves.key, record.encode(), metadata=records._metadata(record))
    return records.Swapped(True, records._stored(leaves.key, record, written))


def _not_repeatable(runtime: Any, upload: Any, error: Any, conflict: bool) -> Steps[Any]:
    yield from ()
    return Completion.UNRESOLVED, error


def _one_plan() -> list[Replacement]:
    return [(JobPaths, "plan", lambda self, nonce: f"{self.directory}_plan-of-all.json")]


def _no_completed() -> list[Replacement]:
    def step(self: JobRecord, state: State, nonce: str, **changes: Any) -> JobRecord:
        return replace(self, state=state, nonce=nonce, **changes)

    return [
        (
            JobCommit,
            "_swap_to_completed",
            lambda self, seen: records.Swapped(
                True, replace(seen, record=replace(seen.record, state=State.COMPLETED))
            ),
        ),
        (JobRecord, "step", step),
    ]


def _plan_by_listing(self: Any, seen: Any) -> Plan:
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


def _take_all(self: Any, pages: Any) -> list[Any]:
    return [u for page in pages for u in page.uploads if not self.spared(f"{u.key}\0{u.upload_id}")]


def _delete_by_name(runtime: Any, key: str, *_: Any, **__: Any) -> bool:
    runtime.store.delete_one(key)
    return True


def _delete_first() -> list[Replacement]:
    real = Publication.complete_all

    def complete_all(self: Any) -> CommitIncomplete | None:
        self.delete_replaced()
        return real(self)

    return [(Publication, "complete_all", complete_all)]


def _look_first() -> list[Replacement]:
    real = revert.delete_if_same

    def each(runtime: Any, job: Any, uploads: Any, in_flight: int) -> Any:
        def one(upload: Any) -> None:
            try:
                info = runtime.store.head(upload.key)
            except NotFound:
                info = None
            runtime.store.abort_upload(upload.key, upload.upload_id)
            if info is not None and became(upload, info):
                real(runtime, info.key, info.etag, info.version_id)

        yield from runtime.pool.each(one, uploads, in_flight=in_flight)

    return [(revert, "_each", each)]


def _ids_again() -> list[Replacement]:
    return [
        (JobCommit, "may_remove", property(lambda self: True)),
        (setup, "_refuse_used_directory", _nothing),
    ]


def _no_second_read_by_path() -> list[Replacement]:
    return [(saved.SavedFiles, "late", _nothing)]


def _block_leaves_its_set() -> list[Replacement]:
    real = Writing._undo

    def undo(self: Any, error: BaseException) -> None:
        if self._task.committed:
            give_up(self._job, error)
        else:
            real(self, error)

    return [(Writing, "_undo", undo)]


def _hands_on(*states: State) -> Callable[[], list[Replacement]]:
    left = frozenset({State.RUNNING, State.COMMITTING, State.REVERTING} - set(states))
    return lambda: [(fence, "HANDS_OFF", left), (protocol_rules, "HANDS_OFF", left)]


def _withdraw_simply() -> list[Replacement]:
    def withdraw(runtime: Any, job: Any, seen: Any, in_flight: int, why: Any) -> None:
        records.remove(runtime, seen)

    return [(setup, "_withdraw", withdraw)]


def _records_first() -> list[Replacement]:
    """The records at and above the destination are read before the uploads are listed, and only
    they count."""

    def survey(
        self: Any,
        runtime: Any,
        dest: Any,
        *,
        dead_after: float = 0.0,
        in_flight: int,
        by_name: bool,
    ) -> None:
        early = uploads.Places(runtime, in_flight)
        early.look((dest.prefix,))
        real(self, runtime, dest, dead_after=dead_after, in_flight=in_flight, by_name=by_name)
        self.places = early

    real = uploads.Survey.__init__
    return [(uploads.Survey, "__init__", survey)]


def _all_orphans() -> list[Replacement]:
    def orphan(self: Any, directory: str, uuid: str) -> uploads.FoundUpload:
        return uploads.FoundUpload("", "", "orphan", uuid=uuid)

    return [(uploads.Survey, "_look_up", orphan)]


def _record_alone(runtime: Any, directory: str, *_: Any) -> Listing:
    return Listing(runtime, f"{directory}{RECORD}")


def _aborts_what_ended(module: Any) -> list[Replacement]:
    def blind(runtime: Any, *, look_first: bool = True) -> UploadRemover:
        return UploadRemover(runtime, look_first=False)

    return [(module, "UploadRemover", blind)]


def _any_token() -> list[Replacement]:
    real = cleanup.Cleaning._take

    def take(self: Any, info: Any, known_over: str) -> Any:
        store = self._runtime.store
        head = store.head

        def with_token(key: str) -> Any:
            found = head(key)
            return replace(found, metadata={JOB_METADATA: known_over or "any"})

        with patch.object(store, "head", with_token):
            return real(self, info, known_over)

    return [(cleanup.Cleaning, "_take", take)]


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

RULES = (
    Rule("swap", "every arrow is a PUT If-Match; the decision is no plain PUT",
         ("I1", "I2", "I3", "I5", "I10"), 2000, lambda: [(records, "swap", _plain_put)]),
    Rule("plan of one try †", "_plan-<nonce>.json, one for each try, immutable",
         ("I2", "I5", "I10"), 3000, _one_plan, RIVALS),
    Rule("completed †", "`completed` by swap before plan and pendingsets are deleted",
         ("I5", "I2", "I8"), 2000, _no_completed),
    Rule("fence", "a task reads the record after its Creates were answered",
         ("I4",), 2000,
         lambda: [(fence.Fence, "check", _nothing), (fence.Fence, "check_if_due", _nothing),
                  (fence.Fence, "must_undo", _nothing)]),
    Rule("second read †", "and once after its pendingset is stored",
         ("I4",), 2000, lambda: [(fence.Fence, "must_undo", _nothing)]),
    Rule("second read of a block", "a block whose job was not committed aborts its attempt",
         ("I4",), 3000, _block_leaves_its_set, PAUSED_BLOCK),
    Rule("second read by path", "whoever only closes files reads the fence after each .pending",
         ("I4",), 6000, _no_second_read_by_path),
    Rule("hands off †", "the second read leaves what a driver may have accepted",
         ("I2", "I5"), 3000, _hands_on(State.COMMITTING), LATE_READ),
    Rule("retried Create †", "fenced after a retried Create: list the key, abort what is ours",
         ("I4",), 3000, lambda: [(RetriedCreates, "abort_if_late", _nothing)], TWICE),
    Rule("repeatable Complete", "a final error is settled by the object's token",
         ("I5", "I2"), 2000, lambda: [(complete, "_settle", _not_repeatable)]),
    Rule("recovery by the plan", "recovery executes the plan, it does not list",
         ("I2", "I3", "I5", "I9"), 6000,
         lambda: [(JobCommit, "_stored_plan", _plan_by_listing)]),
    Rule("marker of a later job †", "_SUCCESS never over the marker of a job that ran after ours",
         ("I8",), 6000, lambda: [(success_marker, "may_replace_marker", lambda *_: True)]),
    Rule("never by inference †", "uploads are swept by id or by our UUID in their names only",
         ("I6",), 200, lambda: [(sweep._Sweep, "mine", _take_all)]),
    Rule("set up, then look †", "fail and replace jobs look for others after their setup",
         ("I6",), 3000, lambda: [(setup, "refuse_other_jobs", _nothing)]),
    Rule("delete If-Match †", "what is replaced is deleted only as it was planned",
         ("I6",), 3000, lambda: [(publish, "delete_if_same", _delete_by_name)], REPLACED),
    Rule("complete, then delete", "old data goes after all that replaces it is visible",
         ("I7",), 500, _delete_first),
    Rule("fail by If-None-Match", "mode fail completes only where nothing is",
         ("I6",), 6000, lambda: [(publish, "FAILING", frozenset())], FAILING),
    Rule("abort, HEAD, delete †", "revert looks after it aborted the upload",
         ("I3",), 12000, _look_first, REVERTED),
    Rule("an id is used once †", "a given id ends in `closed`, and its directory must be empty",
         ("I2", "I3", "I4", "I5", "I6", "I10"), 6000, _ids_again),
    Rule("messages, not listings", "a job of results is never committed from a listing",
         ("I9",), 1000, lambda: [(job_commit, "wanted_results", _nothing)]),
    Rule("the loser's plan", "a driver whose swap loses deletes its plan",
         ("I4",), 6000, lambda: [(job_commit, "drop_plan", _nothing)]),
    Rule("withdraw by aborting", "a setup that was sent twice is withdrawn through `aborting`",
         ("I4",), 3000, _withdraw_simply, WITHDRAWN),
    Rule("a young job is left", "a running job is judged dead by its age alone",
         ("I6",), 500, lambda: [(ending, "refuse_younger", _nothing)], RECOVERED),
    Rule("age of the directory", "a job's age is the newest Last-Modified of its directory",
         ("I6",), 3000, lambda: [(ending, "Listing", _record_alone)], RECOVERED),
    Rule("uploads, then records", "cleanup lists uploads, then reads records, then lists again",
         ("I6", "I2"), 3000, _records_first, CLEANED),
    Rule("over says the record", "cleanup takes uploads of jobs whose record is closed or gone",
         ("I6", "I2"), 500, _all_orphans, CLEANED),
    Rule("ours by token", "cleanup takes what carries a token of ours",
         ("I6",), 500, _any_token, BESIDE_HADOOP),
    Rule("spare what is visible", "who sweeps after the plan is gone aborts no completed upload",
         ("I2",), 3000, lambda: _aborts_what_ended(sweep)),
    Rule("cleanup spares it, too", "cleanup aborts no completed upload that litter names",
         ("I2",), 6000, lambda: _aborts_what_ended(cleanup), CLEANED),
    Rule("a 403 is looked at", "what is refused is listed: a missing object answers 403 as well",
         ("I5", "I10"), 500, lambda: [(MemoryStore, "_look", lambda self, key, look: look())]),
    *RULES_OF_LOOKS,
    *RULES_OF_STREAMS,
    *RULES_OF_RENAMES,
)  # fmt: skip

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
