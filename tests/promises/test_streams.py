"""Micro-batches of a query are published exactly once: whoever dies, whoever is paused."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.commit.register import BATCHES_PER_LOOK, DELETED_MAX
from magic_committer.errors import BatchUnsettled, PermissionDenied, Unanswered
from magic_committer.options import Mode
from magic_committer.protocol.ledger import hash_of
from magic_committer.stores.memory import MemoryStore, Request
from tests.in_memory import Fresh
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    Fits,
    Nth,
    StillClock,
    committed_task,
    control,
    crash,
    dies_at,
    failing,
    raises,
    raising,
    record_put,
    refusing,
    unanswered,
    visible,
)
from tests.promises.machine import DAY, Machine

CHECKPOINT = "s3://bucket/checkpoint"
QUERY = "7bd2f0b6-9e0c-4a6e-8d4c-0a3f4f7f6f10"
LEDGER = f"t/__magic_stream/_{QUERY}.json"


def run_of(
    number: int, mode: Mode = "append", checkpoint: str = CHECKPOINT
) -> tuple[mc.Job, list[mc.TaskCommit]]:
    job = mc.start(
        DEST, mode=mode, accept="results", track="memory", checkpoint=checkpoint, mark_success=False
    )
    body = str(number).encode()
    results = [
        committed_task(job, task, {f"{number}-{task}-{job.id}.csv": body}) for task in ("0", "1")
    ]
    return job, results


def commit(job: mc.Job, results: list[mc.TaskCommit], number: int) -> mc.JobReport:
    handle: mc.Job = pickle.loads(pickle.dumps(job))
    return handle.commit(results, batch=mc.StreamBatch(QUERY, number))


def publish(number: int, mode: Mode = "append") -> mc.JobReport:
    job, results = run_of(number, mode)
    return commit(job, results, number)


def decides(job: mc.Job) -> Callable[[Request], bool]:
    """The swap by which this job is decided."""
    return lambda request: record_put("decided")(request) and job.id in request.key


def dead(
    s3: MemoryStore, fits: Fits, *, number: int = 7, mode: Mode = "append", **when: Any
) -> tuple[mc.Job, list[mc.TaskCommit]]:
    job, results = run_of(number, mode)
    dies_at(s3, fits, lambda: commit(job, results, number), **when)
    return job, results


def rows(s3: MemoryStore) -> list[str]:
    """What readers see, in order: each batch twice, if it is published once, by two tasks."""
    return sorted(body.decode() for body in visible(s3).values())


def ledger(s3: MemoryStore) -> dict[str, Any]:
    told: dict[str, Any] = orjson.loads(s3.body(LEDGER))
    return told


def decided(s3: MemoryStore, mode: Mode = "append") -> tuple[mc.Job, list[mc.TaskCommit]]:
    return dead(s3, record_put("committing"), mode=mode, after=True)


@pytest.fixture
def still(fresh: Fresh) -> Iterator[MemoryStore]:
    with fresh(StillClock()) as store:
        yield store


@pytest.mark.parametrize("number", [7, 6], ids=["run again", "of a zombie that comes late"])
def test_a_batch_that_is_not_newer_is_passed_over(s3: MemoryStore, number: int) -> None:
    """The second run is told that the batch is published, is aborted, and leaves nothing."""
    late, results = run_of(number)
    first = publish(7)
    again = commit(late, results, number)
    told = [(one.outcome, one.skipped, one.query, one.batch) for one in (first, again)]
    assert told == [("committed", False, QUERY, 7), ("aborted", True, QUERY, number)]
    assert number == 6 or str(again).endswith(f"batch 7 of query {QUERY} is published already")
    assert rows(s3) == ["7", "7"]
    assert not s3.open_uploads()


def test_batches_follow_each_other(s3: MemoryStore) -> None:
    """Each is published, numbers may be left out, and the ledger tells the last one for people."""
    for number in (0, 1, 5):
        report = publish(number)
    assert rows(s3) == ["0", "0", "1", "1", "5", "5"]
    told = ledger(s3)
    assert (told["done"], told["done_by"], told["claim"]) == (5, report.uuid, None)
    assert mc.read_stream(DEST, QUERY) == mc.StreamState(
        QUERY, f"{DEST}/", 5, report.uuid, checkpoint=hash_of(CHECKPOINT)
    )
    assert mc.read_stream(DEST, "another") is None


def test_queries_do_not_know_of_each_other(s3: MemoryStore) -> None:
    """Two queries write the same batch number into one destination."""
    publish(7)
    job, results = run_of(7)
    assert not job.commit(results, batch=mc.StreamBatch("other", 7)).skipped
    assert rows(s3) == ["7"] * 4


def requests_of_a_commit(fresh: Fresh, mode: Mode = "append") -> int:
    """How many requests the commit of a second batch sends."""
    with fresh(StillClock()) as store:
        publish(6, mode)
        job, results = run_of(7, mode)
        sent: list[Request] = []
        store.before = sent.append
        commit(job, results, 7)
        return len(sent)


def each_request(
    fresh: Fresh, mode: Mode = "append", step: int = 1
) -> Iterator[tuple[int, MemoryStore, mc.Job, list[mc.TaskCommit]]]:
    """The number of each of them, and a store with a run that is to send it."""
    for number in range(1, requests_of_a_commit(fresh, mode) + 1, step):
        with fresh(StillClock()) as store:
            publish(6, mode)
            yield (number, store, *run_of(7, mode))


ALL = ["6", "6", "7", "7", "8", "8"]
COPY = "s3://bucket/copy"


# Copies of a checkpoint ---------------------------------------------------------------------------


@pytest.mark.parametrize("number", [6, 7], ids=["an older batch", "the last batch"])
def test_a_copied_checkpoint_is_refused_and_skips_no_rows(s3: MemoryStore, number: int) -> None:
    """It has its original's query id, and other rows: nothing is decided; the original goes on."""
    publish(6)
    publish(7)
    job, results = run_of(number, checkpoint=COPY)
    caught = raises(BatchUnsettled, commit, job, results, number, match="another checkpoint")
    assert LEDGER in str(caught)
    assert job.state == "running"
    mc.abort(DEST, job.id)
    assert publish(7).skipped
    assert publish(8).outcome == "committed"
    assert rows(s3) == ["6", "6", "7", "7", "8", "8"]


@pytest.mark.parametrize("by", ["the original", "a run that dies"])
def test_a_run_that_another_aborted_is_no_skipped_one(still: MemoryStore, by: str) -> None:
    """A copy claims, and the original settles it; or a new driver does, and publishes nothing."""
    job, results = run_of(7, checkpoint=COPY if by == "the original" else CHECKPOINT)

    def other() -> None:
        still.before = None
        if by == "the original":
            publish(7)
        else:
            mine, theirs = run_of(7)
            dies_at(still, decides(mine), lambda: commit(mine, theirs, 7))

    At(still, decides(job), other)
    assert raises(mc.JobNotRunning, commit, job, results, 7).outcome == "aborted"
    assert rows(still) == (["7", "7"] if by == "the original" else [])
    assert publish(7).skipped is (by == "the original")
    assert rows(still) == ["7", "7"]


def test_a_checkpoint_that_was_moved_goes_on(s3: MemoryStore) -> None:
    """A batch that it replays is passed over once the ledger names no checkpoint; no later one."""
    publish(7)
    told = ledger(s3)
    del told["checkpoint"]
    s3.put_object(LEDGER, orjson.dumps(told))
    for number, skipped in ((7, True), (8, False)):
        job, results = run_of(number, checkpoint="s3://bucket/moved")
        assert commit(job, results, number).skipped == skipped
    assert rows(s3) == ["7", "7", "8", "8"]


@pytest.mark.parametrize(
    ("deed", "after", "operator"),
    [
        pytest.param(crash, False, "", id="dies before"),
        pytest.param(crash, True, "", id="dies after"),
        pytest.param(unanswered, True, "", id="hears nothing"),
        pytest.param(crash, False, "cleanup", id="cleaned up"),
        pytest.param(crash, False, "recover", id="recovered"),
    ],
)
def test_a_commit_that_is_cut_at_any_request_counts_once(
    fresh: Fresh, deed: Callable[[], None], after: bool, operator: str
) -> None:
    """The query runs it again, and goes on, also where an operator has ended the job before."""
    for number, store, job, results in each_request(fresh):
        with At(store, Nth(number), deed, after=after), suppress(Crash, mc.MagicError):
            assert not commit(job, results, 7).skipped
        store.before = store.after = None
        if operator == "cleanup":
            mc.cleanup(DEST, dead_after=0, leftover_after=0)
        elif operator == "recover":
            mc.recover(DEST, job.id, dead_after=0)
        publish(7)
        publish(8)
        assert rows(store) == ALL, number
        mc.cleanup(DEST, dead_after=0, leftover_after=0)
        assert (rows(store), store.open_uploads()) == (ALL, ()), number
    assert number >= 12


# Two drivers --------------------------------------------------------------------------------------


def test_a_driver_that_is_paused_at_any_request_publishes_nothing_twice(fresh: Fresh) -> None:
    """A new one runs its batch and the next; the old one is told who published, or of its abort."""
    told = set()
    for number, store, job, results in each_request(fresh):

        def new_driver(store: MemoryStore = store) -> None:
            store.before = None
            publish(7)
            publish(8)

        At(store, Nth(number), new_driver)
        report = commit(job, results, 7)
        told.add((report.outcome, report.skipped))
        assert rows(store) == ALL, number
        by_it = any(job.id in key for key in visible(store))
        assert by_it == (report.outcome == "committed") == (not report.skipped)
    assert told == {("committed", False), ("aborted", True)}


def test_a_run_that_cannot_be_settled_stops_the_next(still: MemoryStore) -> None:
    """It is decided, and not completed: the remedy names it; later the batch is there once."""
    first, _ = dead(still, record_put("committing"), after=True)
    job, results = run_of(7)
    still.before = raising("complete_upload", PermissionDenied("no"))
    caught = raises(BatchUnsettled, commit, job, results, 7)
    (remedy,) = caught.remedies
    assert (remedy.call, remedy.job_id) == ("recover", first.id)
    assert mc.attach(DEST, job.id).state == "running"
    assert rows(still) == []
    still.before = None
    assert commit(job, results, 7).skipped
    assert rows(still) == ["7", "7"]


# What is unclear ----------------------------------------------------------------------------------


def test_a_ledger_that_cannot_be_written_leaves_the_job_unfinished(still: MemoryStore) -> None:
    """All is visible, and what is missing is told; the next run finishes, and publishes no more."""
    job, results = run_of(7)
    At(still, f"put {LEDGER}", lambda: failing(still, "put", LEDGER, PermissionDenied("no")))
    caught = raises(mc.CommitIncomplete, commit, job, results, 7)
    assert caught.outstanding == (LEDGER,)
    assert caught.state == "completed"
    assert rows(still) == ["7", "7"]
    still.before = None
    assert publish(7).skipped
    assert rows(still) == ["7", "7"]
    assert mc.attach(DEST, job.id).state == "closed"


def test_an_operator_may_take_a_broken_ledger_as_it_is(still: MemoryStore) -> None:
    """Somebody has overwritten the ledger: the job cannot be finished until an operator says so."""
    job, results = run_of(7)
    At(still, "complete_upload", lambda: still.put_object(LEDGER, b"{}"))
    raises(mc.CommitIncomplete, commit, job, results, 7, match="does not say yet that batch 7")
    recovery = mc.recover(DEST, job.id, accept=[LEDGER])
    assert (recovery.state, recovery.outcome) == ("closed", "committed")


@pytest.mark.parametrize("named", [False, True], ids=["deleted", "with another claim"])
def test_a_ledger_without_the_claim_is_told_and_left(still: MemoryStore, named: bool) -> None:
    """Somebody has changed it: what another job has not published is not said to be."""
    job, results = run_of(7)
    other, _ = run_of(8)
    claim = {"job": other.id, "uuid": other.uuid, "batch": 8}

    def tamper() -> None:
        if named:
            still.put_object(LEDGER, orjson.dumps({**ledger(still), "claim": claim}))
        else:
            still.delete_object(LEDGER)

    At(still, "complete_upload", tamper)
    report = commit(job, results, 7)
    assert report.outcome == "committed"
    told = "names another claim" if named else "somebody has changed it"
    assert [warning for warning in report.warnings if told in warning]
    if named:
        assert (ledger(still)["done"], ledger(still)["claim"]) == (None, claim)


@pytest.mark.parametrize("broken", [False, True])
def test_a_job_given_up_leaves_its_word_in_the_ledger(still: MemoryStore, broken: bool) -> None:
    """Its visible files stay: the batch is done; a ledger that cannot say so is told."""
    job, _ = dead(still, f"put {LEDGER}", nth=2)
    if broken:
        still.put_object(LEDGER, b"{}")
    told = mc.force_abort(DEST, job.id, dead_after=0)
    assert told.outcome == "committed"
    assert ("the ledger does not say that batch 7" in told.why) is broken
    if not broken:
        assert publish(7).skipped
    assert rows(still) == ["7", "7"]


def test_a_commit_that_is_called_again_says_the_same(s3: MemoryStore) -> None:
    """By any handle, also of a skipped run; another number for the job is the caller's mistake."""
    job, results = run_of(7)
    batch = mc.StreamBatch(QUERY, 7)
    assert [job.commit(results, batch=batch).outcome for _ in range(2)] == ["committed"] * 2
    assert commit(job, results, 7).outcome == "committed"
    again, results = run_of(7)
    assert [again.commit(results, batch=batch).skipped for _ in range(2)] == [True, True]
    assert commit(again, results, 7).skipped
    last, results = run_of(8)
    commit(last, results, 8)
    raises(mc.OptionError, commit, last, results, 9, match="committed as batch 8 of")
    assert rows(s3) == ["7", "7", "8", "8"]
    assert ledger(s3)["done"] == 8


def test_a_decided_batch_is_finished_as_the_same_batch_only(s3: MemoryStore) -> None:
    """A driver that died after its decision commits again: as another batch it is refused."""
    job, results = decided(s3)
    raises(mc.OptionError, commit, job, results, 9, match="committed as batch 7 of")
    assert commit(job, results, 7).outcome == "committed"
    assert rows(s3) == ["7", "7"]


# Starting and aborting ----------------------------------------------------------------------------


def test_a_job_of_a_query_is_not_committed_without_its_batch(s3: MemoryStore) -> None:
    """By nobody: it would be published beside the ledger."""
    job, results = run_of(7)
    raises(mc.OptionError, job.commit, results, match="committed as a batch")
    assert job.state == "running"
    assert commit(job, results, 7).outcome == "committed"


def test_a_job_without_checkpoint_or_tasks_may_be_a_batch(s3: MemoryStore) -> None:
    """As a function for `foreachBatch` has it; an empty batch is published like any other."""
    for number, tasks in ((7, 1), (7, 1), (8, 0)):
        job = mc.start(DEST)
        results = [committed_task(job, "0", {f"{job.id}.csv": b"7"}) for _ in range(tasks)]
        job.commit(results, expect=tasks, batch=mc.StreamBatch(QUERY, number))
    assert rows(s3) == ["7"]
    assert ledger(s3)["done"] == 8


def test_a_batch_far_below_is_passed_over_with_a_warning(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine replays its last batch only: this one may come of another checkpoint."""
    publish(6)
    publish(7)
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert publish(7).skipped
        assert caplog.text == ""
        assert publish(6).skipped
    assert "batch 6" in caplog.text
    assert "batch 7 is published already" in caplog.text
    assert "checkpoint" in caplog.text


@pytest.mark.parametrize("undone", [False, True])
def test_an_abort_finds_the_running_jobs_of_the_query(s3: MemoryStore, undone: bool) -> None:
    """By the checkpoint; others' stay, and what is decided, also where an operator undoes it."""
    running, _ = run_of(7)
    others = [mc.start(DEST), mc.start(DEST, checkpoint="s3://bucket/other")]
    left, _ = dead(s3, lambda r: r.verb == "complete_upload", number=8)
    if undone:
        revert = lambda: mc.abort(DEST, left.id, revert=True)  # noqa: E731
        dies_at(s3, record_put("reverting"), revert, after=True)
    s3.put_object("t/__magic_job-forged/_job.json", b"{}")
    (report,) = mc.abort_stream(DEST, CHECKPOINT)
    assert (report.job_id, report.outcome) == (running.id, "aborted")
    assert mc.abort_stream(DEST, CHECKPOINT) == ()
    assert {mc.attach(DEST, job.id).state for job in others} == {"running"}
    assert mc.attach(DEST, left.id).state == ("reverting" if undone else "committing")


def test_an_abort_passes_over_a_job_that_ends_at_this_moment(s3: MemoryStore) -> None:
    """Its driver commits between look and abort: no error, and the other jobs are aborted."""
    jobs = dict([run_of(7), run_of(8)])
    reads: list[str] = []

    def ends(request: Request) -> None:
        if request.verb != "get" or not request.key.endswith("/_job.json"):
            return
        reads.append(request.key)
        if len(reads) == len(jobs) + 1:  # both are seen: the first abort begins
            s3.before = None
            (job,) = (job for job in jobs if job.id in request.key)
            job.commit(jobs[job], batch=mc.StreamBatch(QUERY, 7))

    s3.before = ends
    (report,) = mc.abort_stream(DEST, CHECKPOINT)
    assert report.outcome == "aborted"
    (ended,) = (job for job in jobs if job.id != report.job_id)
    assert (ended.report.outcome, ended.report.state) == ("committed", "absent")


def test_an_abort_that_nobody_answered_is_not_told_as_done(s3: MemoryStore) -> None:
    """The record says that the job runs: it may be committed yet."""
    job, _ = run_of(7)
    key = f"t/__magic_job-{job.id}/_job.json"
    failing(s3, "put", key, Unanswered("no answer"))
    raises(mc.OutcomeUnknown, mc.abort_stream, DEST, CHECKPOINT)


def test_the_checkpoint_is_not_in_the_record(s3: MemoryStore) -> None:
    """A location may hold more than readers of the destination should see."""
    job = mc.start(DEST, checkpoint="s3://secret-bucket/ck")
    assert b"secret-bucket" not in s3.body(f"t/__magic_job-{job.id}/_job.json")


def test_a_store_without_conditions_takes_no_batch(s3: MemoryStore) -> None:
    """Two runs could both publish: the error says so, and nothing is decided."""
    job = mc.start(DEST, options=mc.Options(conditional_writes="off"))
    result = committed_task(job, "0", {"a.csv": b"7"})
    with pytest.raises(mc.ConditionsNotSupported, match="two runs of a batch"):
        job.commit([result], batch=mc.StreamBatch(QUERY, 7))
    assert rows(s3) == []
    assert job.commit([result]).outcome == "committed"


def test_whoever_takes_a_job_by_its_id_must_name_its_checkpoint(s3: MemoryStore) -> None:
    """A retry of the call that starts it does."""
    first = mc.start(DEST, job_id="j", exist_ok=True, checkpoint=CHECKPOINT)
    assert first.uuid == mc.start(DEST, job_id="j", exist_ok=True, checkpoint=CHECKPOINT).uuid
    for other in ("s3://bucket/other", None):
        with pytest.raises(mc.JobExists, match="another streaming query"):
            mc.start(DEST, job_id="j", exist_ok=True, checkpoint=other)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda job: job.commit([], batch=7), "batch=magic_committer.StreamBatch(query, 7)"),
        (lambda job: job.commit([], batch=(QUERY, 7)), "with the id of the query"),
        (lambda job: mc.start(DEST, checkpoint=7), "the same in every run of the query"),  # type: ignore[arg-type]
        (lambda job: mc.start(DEST, checkpoint=""), "the same in every run of the query"),
    ],
)
def test_a_plain_mistake_is_refused(
    s3: MemoryStore, call: Callable[[Any], object], said: str
) -> None:
    """Nothing is sent, and the hint says what to pass."""
    job = mc.start(DEST)
    before = s3.keys()
    assert said in raises(mc.WrongType, call, job).hint
    assert s3.keys() == before


def test_a_ledger_of_another_query_is_refused(s3: MemoryStore) -> None:
    """It was copied, or forged: nothing is decided by it."""
    publish(7)
    s3.put_object("t/__magic_stream/_copy.json", s3.body(LEDGER))
    raises(mc.FormatError, mc.read_stream, DEST, "copy", match="the ledger of another query")


def test_a_query_in_complete_mode_goes_on_after_a_crash(fresh: Fresh) -> None:
    """Each batch is the whole result, and excludes others: the next run settles the crashed one."""
    for number, store, job, results in each_request(fresh, "replace", 3):
        dies_at(store, Nth(number), lambda job=job, results=results: commit(job, results, 7))  # type: ignore[misc]
        for batch in (7, 8):
            publish(batch, "replace")
            assert rows(store) == [str(batch)] * 2, number
        assert publish(8, "replace").skipped


@pytest.mark.parametrize("given", [False, True], ids=["another query's run", "a start with an id"])
def test_a_start_that_settles_nothing_meets_a_conflict(s3: MemoryStore, given: bool) -> None:
    """Another query's run excludes it like any job; an id was used by the try that met a crash."""
    if given:
        job, _ = decided(s3, "replace")
    else:
        job = mc.start(DEST, mode="replace", checkpoint="s3://bucket/other")
    with pytest.raises(mc.ConflictingJob):
        mc.start(DEST, mode="replace", job_id="night" if given else None, checkpoint=CHECKPOINT)
    assert mc.attach(DEST, job.id).state == ("committing" if given else "running")


def test_one_batch_in_so_many_looks_at_old_records(machine: Machine) -> None:
    """Not a hundred records a second; and what the batches leave is deleted in the end."""
    assert DELETED_MAX >= 2 * BATCHES_PER_LOOK
    for number in range(BATCHES_PER_LOOK + 1):
        publish(number)
    old = {key for key in control(machine.s3) if key.endswith("_job.json")}
    assert len(old) == BATCHES_PER_LOOK + 1
    machine.later(DAY + 60)
    seen: list[str] = []
    machine.s3.before = lambda request: seen.append(request.key)
    for number in range(BATCHES_PER_LOOK + 1, 2 * BATCHES_PER_LOOK):
        publish(number)
    assert not old & set(seen)
    publish(2 * BATCHES_PER_LOOK)
    assert not old & set(control(machine.s3))


@pytest.mark.parametrize("finished", ["by recover", "not at all"])
def test_a_job_completed_while_given_up_tells_its_ledger(s3: MemoryStore, finished: str) -> None:
    """Another makes its files visible, and may die before the ledger says so: no second run."""
    job, _ = decided(s3)

    def complete() -> None:
        if finished == "not at all":
            dies_at(s3, f"put {LEDGER}", lambda: mc.recover(DEST, job.id, dead_after=0))
        else:
            mc.recover(DEST, job.id, dead_after=0)

    At(s3, record_put("reverting"), complete)
    give_up = partial(mc.force_abort, DEST, job.id, dead_after=0)
    if finished == "by recover":
        assert give_up().outcome == "committed"
    else:
        raises(mc.JobError, give_up, match="it was not given up")
    s3.before = None
    assert publish(7).skipped
    assert rows(s3) == ["7", "7"]


def test_a_claim_whose_job_has_no_record_is_told(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody deleted it while its batch was published: the next run warns of rows twice."""
    job, results = run_of(7)

    def delete() -> None:
        for key in s3.keys("t/__magic_job-"):
            s3.delete_object(key)

    At(s3, record_put("committing"), delete)
    raises((mc.OutcomeUnknown, mc.JobNotRunning), commit, job, results, 7)
    s3.before = None
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert publish(7).outcome == "committed"
    (told,) = [r.getMessage() for r in caplog.records if "has no record" in r.getMessage()]
    assert job.id in told
    assert "batch 7" in told


def test_a_claim_that_was_settled_is_not_told_as_lost(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Its job runs still, is aborted, and its record says so: no row can be there twice."""
    dead(s3, record_put("committing"))
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert publish(7).outcome == "committed"
    assert "has no record" not in caplog.text


@pytest.mark.parametrize("query", [".", "..", "__magic_stream", "a/b", ""])
def test_odd_names_of_queries_lead_nowhere_else(s3: MemoryStore, query: str) -> None:
    """They are refused."""
    raises(mc.PathError, mc.read_stream, DEST, query)


@pytest.mark.parametrize("committer", ["v1", "v2"])
def test_the_classic_committers_take_no_batch(committer: str, tmp_path: Path) -> None:
    """What a dead run has made visible stays, and the next run writes it again."""
    dest = tmp_path.as_uri()
    with pytest.raises(mc.OptionError, match="no batch of a streaming query exactly once"):
        mc.start(dest, committer=committer, checkpoint="file:///checkpoint")
    job = mc.start(dest, committer=committer, accept="results", track="memory")
    with pytest.raises(mc.OptionError, match="no batch of a streaming query exactly once"):
        job.commit([], expect=0, batch=mc.StreamBatch("query", 1))
    job.abort()


def test_a_run_that_is_skipped_while_its_job_is_given_up_is_told_so(s3: MemoryStore) -> None:
    """An operator gives the job up at the moment when its own driver would abort it."""
    job, results = run_of(7)
    publish(7)

    def give_up() -> None:
        mc.force_abort(DEST, job.id, dead_after=0)
        for _ in range(2):
            mc.cleanup(DEST, dead_after=0, leftover_after=0, forget_after=0)

    At(s3, f"put *{job.id}*", give_up)
    told = commit(job, results, 7)
    assert (told.skipped, told.state) == (True, "absent")


def test_a_start_that_cannot_settle_a_crashed_run_names_it(s3: MemoryStore) -> None:
    """Its files cannot be completed now: the error is the conflict, with the reason below it."""
    job, _ = decided(s3, "replace")
    s3.before = raising("complete_upload", PermissionDenied("no"))
    told = raises(mc.ConflictingJob, run_of, 8, "replace", match=job.id)
    assert isinstance(told.__cause__, mc.CommitIncomplete)


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it dies"])
def test_a_claimant_that_decides_is_looked_at_again(
    s3: MemoryStore, ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is to be aborted, and is decided just then: it is finished, and nobody is warned."""
    job, results = dead(s3, record_put("committing"))

    def decide() -> None:
        if ends:
            commit(job, results, 7)
            return
        dies_at(s3, record_put("committing"), lambda: commit(job, results, 7), after=True)

    another, theirs = run_of(7)
    At(s3, decides(job), decide)
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert commit(another, theirs, 7).skipped
    assert rows(s3) == ["7", "7"]
    assert not caplog.records


def cut_at_each_request(
    fresh: Fresh, begin: Callable[[MemoryStore], tuple[mc.Job, list[mc.TaskCommit], int]]
) -> Iterator[tuple[mc.Job, KeyboardInterrupt]]:
    """A commit that Ctrl-C ends before its first request, the second, …: the job, and the error."""
    for number in count(1):
        with fresh(StillClock()) as store:
            job, results, batch = begin(store)
            At(store, Nth(number), KeyboardInterrupt())
            try:
                commit(job, results, batch)
                return
            except KeyboardInterrupt as error:
                store.before = None
                yield job, error


def test_ctrl_c_while_another_run_is_settled_tells_of_both_jobs(fresh: Fresh) -> None:
    """The note says what is known of its own job, and no report is another job's."""
    dead: list[mc.Job] = []
    both = 0

    def begin(store: MemoryStore) -> tuple[mc.Job, list[mc.TaskCommit], int]:
        dead.append(decided(store)[0])
        return (*run_of(7), 7)

    for job, error in cut_at_each_request(fresh, begin):
        notes = " ".join(error.__notes__)
        report = getattr(error, "report", None)
        assert job.id in notes
        both += dead[-1].id in notes
        assert report is None or report.job_id == job.id
    assert both >= 3


def test_others_that_keep_claiming_stop_a_run(s3: MemoryStore) -> None:
    """Two runs of a query that take the claim from each other for ever: one of them gives up."""
    job, results = run_of(7)

    def another(request: Request) -> None:
        if request.verb == "put" and request.key == LEDGER:
            s3.before = None
            dead(s3, record_put("committing"))
            s3.before = another

    s3.before = another
    with pytest.raises(BatchUnsettled, match="other runs of the query keep changing its ledger"):
        commit(job, results, 7)


def test_a_job_that_publishes_is_not_given_up_for_want_of_an_answer(s3: MemoryStore) -> None:
    """Its driver may live, and its files come: its record stays, and later the batch is there."""
    job, _ = decided(s3)
    s3.before = raising(f"put t/__magic_job-{job.id}/_job.json", Unanswered("no answer"))
    raises(mc.MagicError, mc.force_abort, DEST, job.id, dead_after=3600.0)
    s3.before = None
    (found,) = mc.inspect(DEST)
    assert (found.query, found.batch, found.state) == (QUERY, 7, "committing")
    assert mc.recover(DEST, job.id, dead_after=0).outcome == "committed"
    assert publish(7).skipped
    assert rows(s3) == ["7", "7"]


def test_a_ledger_that_gives_no_answer_decides_nothing(s3: MemoryStore) -> None:
    """No claim of it is told, nor that there is none; later the batch is published once."""
    publish(6)
    before = s3.body(LEDGER)
    job, results = run_of(7)
    with refusing(s3, f"put {LEDGER}", Unanswered), pytest.raises((Unanswered, mc.OutcomeUnknown)):
        commit(job, results, 7)
    assert s3.body(LEDGER) == before
    assert rows(s3) == ["6", "6"]
    assert publish(7).outcome == "committed"
    assert rows(s3) == ["6", "6", "7", "7"]


def test_a_run_that_has_ended_is_not_settled_again(s3: MemoryStore) -> None:
    """Its record is closed, and is there for a day: the next run leaves it as it is."""
    ended, _ = run_of(6, "replace")
    mc.recover(DEST, ended.id, dead_after=0)
    (record,) = s3.keys("t/__magic_job-")
    closed = s3.body(record)
    assert publish(7, "replace").outcome == "committed"
    assert s3.body(record) == closed


def test_a_job_that_only_claimed_is_no_data_for_mode_fail(s3: MemoryStore) -> None:
    """Its ledger stays; the next run of the first batch finds an empty destination."""
    dead(s3, record_put("committing"), mode="fail", number=0)
    assert publish(0, "fail").outcome == "committed"
    assert rows(s3) == ["0", "0"]


def test_ctrl_c_never_says_that_a_skipped_run_was_not_decided(fresh: Fresh) -> None:
    """Its batch is published already, and it is being aborted."""
    told = []

    def begin(_: MemoryStore) -> tuple[mc.Job, list[mc.TaskCommit], int]:
        publish(7)
        return (*run_of(6), 6)

    for job, error in cut_at_each_request(fresh, begin):
        if (job.id, "running") not in [(one.id, one.state) for one in mc.inspect(DEST)]:
            told.append(" ".join(error.__notes__))
    assert len(told) >= 3
    assert not [notes for notes in told if "was not decided" in notes]
