"""Two handles on one attempt, and sets and `.pending`s of others: neither breaks the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

import magic_committer as mc
from magic_committer.commit.sets import EXTRA_ABORTED
from magic_committer.errors import PreconditionFailed, Unanswered, WriteConflict
from magic_committer.hadoop.documents import decode_pendingset
from magic_committer.hadoop.manifests import EXTRA_JOB, EXTRA_TASK
from magic_committer.options import Accept, Track
from magic_committer.protocol.record import JOB_METADATA, TaskCommit
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import memory_store
from tests.concrete import attempt_of
from tests.promises.hands import (
    DEST,
    At,
    Nth,
    committed_task,
    control,
    dies_at,
    fitting,
    half_completed,
    job_of,
    one_file,
    raises,
    refusing,
    unanswered,
    visible,
    write,
)
from tests.promises.machine import matching

SET = "put *.pendingset"
STORES_SET = fitting(SET)


def other_handle(job: mc.Job, name: str = "a") -> mc.Task:
    """Another process's handle on the same attempt."""
    return mc.attach(DEST, job.id).task("1", attempt=name)


def shared(job: mc.Job) -> tuple[mc.Task, mc.Task]:
    """Two handles on one attempt, which has closed ``a.csv``."""
    return one_file(job, attempt="a"), other_handle(job)


def tombstones(s3: MemoryStore) -> list[str]:
    """Keys of the sets that say that their attempt was aborted."""
    sets = {key: decode_pendingset(s3.body(key), key) for key in matching(s3, "*.pendingset")}
    return [key for key, one in sets.items() if (one.extra_data or {}).get(EXTRA_ABORTED) == "true"]


def abort_with_a_commit_before(s3: MemoryStore, accept: Accept, number: int) -> str:
    """Another handle commits before a request of an abort: "committed", "refused" or "over"."""
    job = mc.start(DEST, accept=accept)
    first, second = shared(job)
    outcome = "over"

    def interrupt() -> None:
        nonlocal outcome
        s3.before = None
        try:
            result = second.commit()
        except mc.TaskFailed:
            outcome = "refused"
        else:
            outcome = "committed"
            results = [result] if accept == "results" else None
            dies_at(s3, "complete_upload", lambda: job.commit(results))

    At(s3, Nth(number), interrupt)
    try:
        first.abort()
        undone = True
    except mc.TaskFailed:
        undone = False
    s3.before = None
    assert undone is (outcome != "committed")
    if outcome == "committed":
        assert mc.attach(DEST, job.id).commit().files == 1
        assert visible(s3) == {"t/a.csv": b"1"}
    else:
        job.abort()
        assert visible(s3) == {}
    assert s3.open_uploads() == ()
    return outcome


@pytest.mark.parametrize("accept", ["listing", "results"])
def test_an_abort_beside_a_commit_never_takes_files_of_a_decided_job(accept: Accept) -> None:
    """I2: wherever it is paused the other one commits, and the job is whole, or is refused."""
    outcomes = []
    for number in range(1, 50):
        with memory_store() as s3:
            outcomes.append(abort_with_a_commit_before(s3, accept, number))
        if outcomes[-1] == "over":
            break
    assert outcomes[-1] == "over"
    assert outcomes.count("committed") >= 1
    assert outcomes.count("refused") >= 3


def test_an_aborted_attempt_is_never_committed_and_says_what_to_do(s3: MemoryStore) -> None:
    """I2, I10: the commit by another handle is refused, with the reason and the way out."""
    job = mc.start(DEST)
    first, second = shared(job)
    second.abort()
    assert s3.open_uploads() == ()
    raises(mc.TaskFailed, first.commit, match=r"aborted by another process.*as another attempt")
    with pytest.raises(mc.TaskFailed, match="aborted"):
        one_file(job, attempt="a").commit()  # the same name again, with files of its own
    assert s3.open_uploads() == ()
    assert one_file(job, attempt="b").commit().files == 1
    assert job.commit(expect=["1"]).files == 1
    assert control(s3) == []


def test_a_tombstone_is_a_pendingset_that_hadoop_can_read(s3: MemoryStore) -> None:
    """I6, I2: valid by S3A's rules, without commits; a listing passes over it, and sweeps it."""
    job = mc.start(DEST)
    one_file(job, attempt="a").abort()
    (key,) = tombstones(s3)
    tombstone = decode_pendingset(s3.body(key), key)
    assert (tombstone.commits, tombstone.job_id) == ((), job.id)
    assert (tombstone.extra_data or {})[EXTRA_TASK] == "1"
    assert s3.attributes(key).metadata[JOB_METADATA] == job.uuid
    committed_task(job, "2", {"b.csv": b"2"})
    report = job.commit(expect=["2"])
    assert (report.files, report.warnings) == (1, ())
    assert control(s3) == []


def test_a_result_that_names_a_tombstone_is_refused(s3: MemoryStore) -> None:
    """I9: a result is not believed against the store, which says that the attempt was aborted."""
    job = mc.start(DEST, accept="results")
    one_file(job, attempt="a").abort()
    (key,) = tombstones(s3)
    told = {"key": key, "etag": s3.head(key).etag, "pendingset_bytes": 0, "files": 0, "bytes": 0}
    forged = replace(mc.TaskCommit(job.uuid, "1", "a"), **told)
    raises(mc.CommitRefused, job.commit, [forged], match="aborted")
    assert visible(s3) == {}


def test_aborting_is_repeatable_by_every_handle(s3: MemoryStore) -> None:
    """I5: abort after abort ends well, whoever sends it, before and after the job's end."""
    job = mc.start(DEST)
    handles = shared(job) * 2
    for handle in handles:
        handle.abort()
    assert len(tombstones(s3)) == 1
    job.abort()
    for handle in handles:
        assert s3.keys() == ()
        handle.abort()


@pytest.mark.parametrize("late", [True, False], ids=["after the sweep", "without an answer"])
def test_a_tombstone_is_known_and_taken_back_when_it_is_late(s3: MemoryStore, late: bool) -> None:
    """I4: the job was swept meanwhile. I5: a claim that lost its answer meets itself."""
    job = mc.start(DEST)
    task = one_file(job, attempt="a")
    with At(s3, SET, job.abort if late else unanswered, after=not late):
        task.abort()
    assert s3.open_uploads() == ()
    assert len(tombstones(s3)) == (not late)
    assert not late or s3.keys() == ()


@pytest.mark.parametrize("claim", ["lost", "landed", "refused"])
def test_a_claim_that_is_not_known_to_be_taken_undoes_nothing(s3: MemoryStore, claim: str) -> None:
    """I2: the uploads stay until the abort is repeated; who has no right to claim may commit."""
    job = mc.start(DEST)
    task = one_file(job, attempt="a")
    error = mc.PermissionDenied("no", status=403) if claim == "refused" else Unanswered("no answer")

    def lose(request: Request) -> None:
        if STORES_SET(request):
            if claim == "landed" and not tombstones(s3):
                request.effect()
            raise error

    s3.before = lose
    raises(type(error), task.abort)
    s3.before = None
    assert len(s3.open_uploads()) == 1
    assert len(tombstones(s3)) == (claim == "landed")
    if claim == "refused":
        assert task.commit().files == 1
        assert job.commit(expect=["1"]).files == 1
    else:
        task.abort()
        assert s3.open_uploads() == ()


def test_a_conflict_is_not_taken_for_a_claim(s3: MemoryStore) -> None:
    """I2: 409, and nothing is there yet: the claim is sent again, and meets the other's set."""
    job = mc.start(DEST)
    task, other = shared(job)
    next_claim: list[At] = []

    def conflict() -> None:
        next_claim.append(At(s3, SET, other.commit))
        raise WriteConflict("another write is under way", status=409)

    At(s3, SET, conflict)
    raises(mc.TaskFailed, task.abort, match="committed")
    assert next_claim[0].done
    assert job.commit(expect=["1"]).files == 1
    assert visible(s3) == {"t/a.csv": b"1"}


def test_a_fence_that_cannot_be_read_after_the_claim_is_told(s3: MemoryStore) -> None:
    """I4, I10: the attempt is undone; that its tombstone may be litter is raised."""
    job = mc.start(DEST)
    task = one_file(job, attempt="a")
    with refusing(s3, "head *_job.json", Unanswered("no answer")), pytest.raises(Unanswered):
        task.abort()
    assert s3.open_uploads() == ()
    task.abort()
    job.abort()
    assert s3.keys() == ()


def test_an_object_of_another_run_at_the_key_is_left_alone(s3: MemoryStore) -> None:
    """I6: a zombie's set is no claim, and is not deleted; the uploads wait for the job's end."""
    job = mc.start(DEST, job_id="1")
    task = one_file(job, attempt="a")
    key = f"t/__magic_job-1/job-1/00/_{task.attempt_id}.pendingset"
    s3.put_object(key, b"{}", metadata={JOB_METADATA: "0" * 32})
    raises(mc.TaskFailed, task.abort)
    assert s3.body(key) == b"{}"
    assert len(s3.open_uploads()) == 1
    job.abort()
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("committed", [False, True])
def test_without_conditions_nothing_is_claimed(s3: MemoryStore, committed: bool) -> None:
    """I2: a tombstone would overwrite a set that came between: the aborter looks, as S3A does."""
    job = mc.start(DEST, options=mc.Options(conditional_writes="off"))
    task, other = shared(job)
    if committed:
        other.commit()
        raises(mc.TaskFailed, task.abort, match="committed")
        assert job.commit().files == 1
    else:
        puts = s3.requests["put"]
        task.abort()
        assert s3.requests["put"] == puts
        assert s3.open_uploads() == ()


LOST = Unanswered("no answer")


def held(s3: MemoryStore, task: mc.Task, *errors: mc.StoreError) -> list[Request]:
    """Commit while the PUTs of the set get these answers: the requests, which may land later."""
    late: list[Request] = []

    def hold(request: Request) -> None:
        if STORES_SET(request):
            late.append(request)
            raise errors[min(len(late), len(errors)) - 1]

    s3.before = hold
    raises(type(errors[-1]), task.commit)
    s3.before = None
    return late


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("track", ["memory", "s3"])
def test_a_claim_ends_the_doubt_of_a_put(s3: MemoryStore, track: Track, landed: bool) -> None:
    """I2, I4: its set can never land, and the attempt is undone; or it has landed, and counts."""
    job = mc.start(DEST, track=track)
    task = one_file(job)
    late = held(s3, task, LOST)
    assert len(s3.open_uploads()) == 1
    if landed:
        late[0].effect()
        raises(mc.TaskFailed, task.abort, match="committed, or may be")
    else:
        task.abort()
        assert s3.open_uploads() == ()
        for request in late[:3]:  # those of the set; then come the claim's
            raises(PreconditionFailed, request.effect)
    assert job.commit(expect=["1"] if landed else 0).files == landed
    assert visible(s3) == ({"t/a.csv": b"1"} if landed else {})
    assert control(s3) == []


@pytest.mark.parametrize(
    ("track", "lost", "attempts"),
    [("memory", True, 1), ("memory", False, 2), ("memory", False, 1), ("s3", True, 1),
     ("s3", False, 2)],
)  # fmt: skip
def test_a_put_that_may_land_is_never_called_refused(
    s3: MemoryStore, track: Track, lost: bool, attempts: int
) -> None:
    """I2, I4: only one try and one refusal, without another handle, leave nothing to land."""
    job = mc.start(DEST, track=track)
    task = one_file(job)
    refused = mc.PermissionDenied("expired", status=403, attempts=attempts)
    late = held(s3, task, *[LOST] * lost, refused)
    may_land = lost or attempts == 2
    assert len(s3.open_uploads()) == may_land
    if may_land:
        late[0].effect()
        assert job.commit(expect=["1"]).files == 1
        assert visible(s3) == {"t/a.csv": b"1"}


def test_a_set_that_cannot_be_read_after_a_412_is_not_called_refused(s3: MemoryStore) -> None:
    """I2: the second try met the first, and the refusal is of the read: the set is stored."""
    job = mc.start(DEST, track="memory")
    task = one_file(job)

    def expire(request: Request) -> None:
        if STORES_SET(request) and not matching(s3, "*.pendingset"):
            request.effect()
        if fitting("get *.pendingset")(request):
            raise mc.PermissionDenied("expired", status=403)

    s3.before = expire
    raises(mc.PermissionDenied, task.commit)
    s3.before = None
    assert job.commit(expect=["1"]).files == 1
    assert visible(s3) == {"t/a.csv": b"1"}


OTHER = "0" * 32
"""The UUID of another run."""
A, B = {"t/a.csv": b"1"}, {"t/b.csv": b"2"}


def test_an_attempt_that_was_committed_with_other_files_is_told(s3: MemoryStore) -> None:
    """I2: a second handle's file is in no pendingset, and is told so when it is closed."""
    job = mc.start(DEST)
    first, second = one_file(job, attempt="a"), job.task("1", attempt="a")
    first.commit()
    raises(mc.TaskFailed, write, second, "b.csv", match="not part of it")
    assert [u.key for u in s3.open_uploads()] == ["t/a.csv"]


def test_a_commit_under_a_given_id_leaves_anothers_tree(s3: MemoryStore) -> None:
    """I6: only what is proved to be the attempt's own goes; of a drawn id all."""
    for job, stays in ((mc.start(DEST, job_id="given"), True), (mc.start(DEST), False)):
        task = job.task("1", attempt="a")
        write(task, f"{job.id}.csv")
        (pending,) = matching(s3, "*.pending")
        zombies = pending.removesuffix(".pending")  # Hadoop's marker, of another run
        s3.put_object(zombies, metadata={JOB_METADATA: OTHER})
        task.commit()
        assert pending not in s3.keys()
        assert (zombies in s3.keys()) is stays


def test_a_commit_that_comes_second_with_another_file_is_told(s3: MemoryStore) -> None:
    """I2: a file is closed between another handle's listing and its PUT of the set."""
    job = mc.start(DEST)
    first, second = shared(job)
    file = second.open("b.csv")
    file.write(b"1")
    with At(s3, "put *.pendingset", file.close):
        first.commit()
    raises(mc.TaskFailed, second.commit, match="committed before, with other files")
    assert job.commit([first.result]).files == 1
    assert visible(s3) == A


@pytest.mark.parametrize("conditions", ["on", "off"])
@pytest.mark.parametrize("open_at_once", [False, True])
def test_of_two_files_of_one_name_the_first_stays(
    s3: MemoryStore, conditions: Any, open_at_once: bool
) -> None:
    """I2, I4: who closes the second one is told, its upload goes, and the first is published."""
    job = mc.start(DEST, options=mc.Options(conditional_writes=conditions))
    mine, other = job.task("1", attempt="a"), other_handle(job)
    if open_at_once:
        second = other.open("a.csv")
    write(mine, "a.csv")
    if not open_at_once:
        second = other.open("a.csv")
    raises(mc.TaskFailed, second.close, match="another handle has closed a file 't/a.csv'")
    assert len(s3.open_uploads()) == 1
    assert other_handle(job).commit().files == mine.commit().files == 1
    assert job.commit(expect=["1"]).unattributed == 0
    assert visible(s3) == A
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("how", ["aborted", "closed anew"])
def test_an_attempt_whose_closed_files_are_gone_is_not_committed(s3: MemoryStore, how: str) -> None:
    """I2: without conditions another handle has aborted it, or closed a file of the name at the
    same moment."""
    mine, other = shared(mc.start(DEST, options=mc.Options(conditional_writes="off")))
    if how == "aborted":
        other.abort()
    else:
        with At(s3, "put *.pending", lambda: write(mine, "b.csv")):
            write(other, "b.csv")
    raises(mc.TaskFailed, mine.commit, match="gone from its tree")
    assert not matching(s3, "*.pendingset")


@pytest.mark.parametrize("what", ["another run's", "another attempt's", "unreadable"])
def test_a_pending_that_is_not_the_attempts_fails_it(s3: MemoryStore, what: str) -> None:
    """I2: it is not committed with a file of another token, nor without one that cannot be read."""
    job = mc.start(DEST, job_id="given")
    for attempt in "ab":
        write(job.task("1", attempt=attempt), f"{attempt}.csv")
    mine, theirs = matching(s3, "*.pending")
    metadata = s3.attributes(mine).metadata
    if what == "another run's":
        s3.put_object(mine, s3.body(mine), metadata={JOB_METADATA: "f" * 32})
    elif what == "another attempt's":
        moved = theirs.replace("/tasks/b/", "/tasks/a/")
        s3.put_object(moved, s3.body(theirs), metadata=metadata)
    else:
        s3.put_object(mine, b"{", metadata=metadata)
    told = r"a\.csv\.pending" if what == "unreadable" else "not of this attempt"
    raises(mc.TaskFailed, mc.attach(DEST, job.id).task("1", attempt="a").commit, match=told)


@pytest.mark.parametrize("options", [mc.Options(), mc.Options(etag_form="strings", checksum="off")])
def test_what_a_handle_has_saved_it_need_not_read(s3: MemoryStore, options: mc.Options) -> None:
    """The listing shows the ETag of its own PUT: it remembers what another handle reads."""
    job = mc.start(DEST, options=options)
    mine, other = shared(job)
    s3.requests.clear()
    remembered = attempt_of(mine._attempt)._saved.pendings()
    assert s3.requests["get"] == 0
    read = attempt_of(other._attempt)._saved.pendings()
    known, found = ([replace(p, etags=tuple(p.parts)) for p in one] for one in (remembered, read))
    assert known == found
    assert s3.requests["get"] == 1


def test_a_set_of_another_run_is_not_this_attempts(s3: MemoryStore) -> None:
    """I2: where another run's set lies under its name, an attempt is not called committed."""
    task = mc.start(DEST, job_id="given").task("1", attempt="a")
    write(task, "a.csv")

    def another_was_faster(request: Request) -> None:
        if fitting("put *.pendingset")(request):
            s3.before = None
            request.effect()
            s3.put(request.key, s3.body(request.key), metadata={JOB_METADATA: "f" * 32})

    s3.before = another_was_faster
    raises(mc.MagicError, task.commit)
    assert task.committed is False


def test_a_decided_replace_excludes_the_next_one(s3: MemoryStore) -> None:
    """I6: as one that runs does."""
    first = half_completed(s3, mode="replace")
    raises(mc.ConflictingJob, mc.start, DEST, mode="replace", match=first.id)


def test_a_plan_of_another_version_is_not_executed(s3: MemoryStore) -> None:
    """I2: the record names the plan and its ETag: one with other bytes is nobody's decision."""
    job = job_of({"a.csv": b"1"})
    with refusing(s3, "complete_upload", mc.StoreError), pytest.raises(mc.CommitIncomplete):
        job.commit()
    (plan,) = matching(s3, "*/_plan-*")
    s3.put(plan, s3.body(plan) + b" ", metadata=s3.head(plan).metadata)
    raises(mc.CommitIncomplete, mc.recover, DEST, job.id, match="not the version")
    assert visible(s3) == {}


def change(document: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Change fields, also of what lies in them; None: without it."""
    for name, value in changes.items():
        if value is None:
            del document[name]
        elif isinstance(value, Mapping):
            inner = document[name]
            change(inner[0] if isinstance(inner, list) else inner, value)
        else:
            document[name] = value


def rewritten(
    s3: MemoryStore, result: TaskCommit, metadata: Mapping[str, str] | None, **changes: Any
) -> None:
    """Store a set once more, as Hadoop writes it, with changed fields or other metadata."""
    document = orjson.loads(s3.body(result.key))
    change(document, {"contentSha256": None, **changes})
    kept = s3.attributes(result.key).metadata if metadata is None else metadata
    s3.put_object(result.key, orjson.dumps(document), metadata=kept)


def two_tasks() -> tuple[mc.Job, TaskCommit]:
    """A job of two tasks, and the result of the second."""
    job = job_of({"a.csv": b"1"}, job_id="1", accept="listing", track="memory")
    return job, committed_task(job, "2", {"b.csv": b"2"})


NO_JOB = {"extraData": {EXTRA_JOB: None}}
OF_OTHER = {"extraData": {EXTRA_JOB: OTHER}}
ANOTHER_ID = {"jobId": "another", "commits": {"jobId": "another"}}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"commits": {"bucket": "other"}}, "bucket", id="another bucket"),
        pytest.param(ANOTHER_ID, "jobId", id="another job"),
        pytest.param({"extraData": {EXTRA_TASK: None}}, "no task or no attempt", id="no task"),
        pytest.param(OF_OTHER, "the object's metadata says", id="two names"),
    ],
)
def test_a_set_of_ours_that_says_something_else_refuses_the_job(
    s3: MemoryStore, changes: dict[str, Any], told: str
) -> None:
    """I2, I6: another bucket, or another job; and which task's it is is not guessed."""
    job, result = two_tasks()
    rewritten(s3, result, {JOB_METADATA: job.uuid}, **changes)
    raises(mc.CommitRefused, job.commit, match=told)
    assert visible(s3) == {}


@pytest.mark.parametrize("how", ["by its metadata", "by its body", "spelt otherwise by a proxy"])
def test_a_set_is_known_by_its_metadata_or_by_its_body(s3: MemoryStore, how: str) -> None:
    """I2: job, task and attempt stand in both: else its task would not be published, untold."""
    job, result = two_tasks()
    if how == "by its metadata":
        rewritten(s3, result, None, extraData=None)
    else:
        rewritten(s3, result, {} if how == "by its body" else {"Magic-Committer-Job": job.uuid})
    assert job.commit().files == 2
    assert visible(s3) == A | B


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_set_of_nobody_stops_the_commit(s3: MemoryStore, unreadable: bool) -> None:
    """It is named, also to who looks before, and nothing is decided; without it the rest is."""
    job, result = two_tasks()
    rewritten(s3, result, {}, **NO_JOB)
    prospect = job._committer().driver().look()
    assert [result.key in problem for problem in prospect.problems] == [True]
    if unreadable:
        s3.put_object(result.key, b"{")
    caught = raises(mc.IncompleteJob, job.commit, match="say nowhere whose they are")
    assert result.key in str(caught)
    assert (job.state, visible(s3)) == ("running", {})
    s3.delete_object(result.key)
    assert job.commit().files == 1


@pytest.mark.parametrize(
    ("metadata", "changes"),
    [
        pytest.param({JOB_METADATA: OTHER}, NO_JOB, id="in metadata"),
        pytest.param({}, OF_OTHER, id="in the body"),
        pytest.param({JOB_METADATA: OTHER}, OF_OTHER, id="in both"),
        pytest.param({}, OF_OTHER | ANOTHER_ID, id="with another id"),
    ],
)
def test_a_zombies_set_is_passed_over(
    s3: MemoryStore, metadata: dict[str, str], changes: dict[str, Any]
) -> None:
    """By its UUID it is another run's, wherever that stands, and no reason to refuse the job."""
    job, result = two_tasks()
    rewritten(s3, result, metadata, **changes)
    assert job.commit().files == 1
    assert visible(s3) == A


def test_a_job_of_results_needs_no_metadata_of_a_set(s3: MemoryStore) -> None:
    """Its driver was told which sets are its own; others in the directory do not concern it."""
    job = mc.start(DEST, job_id="1", accept="results", track="memory")
    result = committed_task(job, "1", {"a.csv": b"1"})
    rewritten(s3, committed_task(job, "2", {"b.csv": b"2"}), {}, **NO_JOB)
    s3.put_object(result.key, s3.body(result.key), metadata={})
    assert job.commit([result]).files == 1
