"""Production's requests are paths of the model's processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import PermissionDenied, StoreError, Unanswered
from magic_committer.options import BY_PARTITION, Accept, Mode
from magic_committer.protocol.record import TaskCommit
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import memory_store
from tests.model.production import Recorder, Sent, accepts, refusal
from tests.promises.hands import At, StillClock, committed_task, failing, record_put, stored
from tests.simulation.world import knows_all

DEST = "s3://bucket/t"


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """The in-memory store of the bucket ``bucket``."""
    with memory_store(clock=StillClock()) as store:
        knows_all(store.identity)
        yield store


@pytest.fixture
def recorder(store: MemoryStore) -> Iterator[Recorder]:
    """It, behind a recorder."""
    recorder = Recorder(store)
    register_store(recorder, StillClock())
    yield recorder
    unregister_store(recorder)


def held(recorder: Recorder, kind: str, job: mc.Job, **known: Any) -> None:
    """Hold what was recorded since the last time against the model."""
    assert refusal(kind, recorder.take(), job._started, **known) == ""


def attempts(job: mc.Job, recorder: Recorder) -> list[tuple[TaskCommit, list[Sent]]]:
    """Two tasks of two files; each one's result and trace."""
    done: list[tuple[TaskCommit, list[Sent]]] = []
    for task in ("1", "2"):
        attempt = job.task(task)
        while done and attempt.attempt_id < done[-1][0].attempt:
            attempt = job.task(task)  # the traces are compared in the order of the sets
        with attempt:
            for name in ("a", "b"):
                with attempt.open(f"{task}{name}.csv", unique=True) as f:
                    f.write(b"1")
                stored(attempt)  # the model's files come one after the other
        assert attempt.result is not None
        done.append((attempt.result, recorder.take()))
    return done


@pytest.mark.parametrize("job_id", [None, "j"])
@pytest.mark.parametrize("accept", ["results", "listing"])
def test_a_job_is_a_path_of_the_model(
    recorder: Recorder, accept: Accept, job_id: str | None
) -> None:
    """Setup, both tasks and the driver of a job send what the model's processes send, and go on as
    they do."""
    job = mc.start(DEST, accept=accept, track="memory", job_id=job_id)
    held(recorder, "setup", job)
    done = attempts(job, recorder)
    for result, trace in done:
        assert refusal("attempt", trace, job._started, name=result.attempt) == ""
    results = [result for result, _ in done] if accept == "results" else None
    job.commit(results)
    held(recorder, "commit", job, results=results)


@pytest.mark.parametrize("beside", ["nobody", "an append", "a neighbour"])
@pytest.mark.parametrize("mode", ["fail", "replace", "fail_partitions", "replace_partitions"])
def test_a_job_of_each_mode_is_a_path_of_the_model(
    recorder: Recorder, store: MemoryStore, mode: Mode, beside: str
) -> None:
    """Setup and driver of a job that looks around: at jobs, their plans, the data, the marker; also
    beside a live append that is decided, and one that says it writes another partition."""
    if mode.startswith("replace"):
        store.put_object("t/p=1/old.csv", b"old")
        store.put_object("t/p=2/x/old.csv", b"older")
        store.put_object("t/_SUCCESS", b"")
    others: list[mc.Job] = []
    if beside == "an append":
        others.append(mc.start(DEST, accept="results", track="memory", mark_success=False))
    elif mode in BY_PARTITION and beside == "a neighbour":
        others.append(mc.start(DEST, mode="fail_partitions", accept="results", track="memory"))
    for other in others:
        names = ("p=1/app.csv", "p=2/app.csv") if beside == "an append" else ("p=9/b.csv",)
        result = committed_task(other, "1", dict.fromkeys(names, b"1"))
        state = "completed" if mode.startswith("replace") else "committing"
        At(store, _nth_swap(1 if state == "committing" else 2), _killed, after=state == "completed")
        with pytest.raises(_Killed):
            other.commit([result])
        store.before = store.after = None
    recorder.take()
    job = mc.start(DEST, mode=mode, accept="results", track="memory")
    held(recorder, "setup", job)
    results = [committed_task(job, task, {f"p={task}/a.csv": b"1"}) for task in ("1", "2")]
    recorder.take()
    assert job.commit(results).outcome == "committed"
    trace = recorder.take()
    assert refusal("commit", trace, job._started, results=results) == ""
    if beside == "an append" and mode.startswith("replace"):  # it was met, and spared
        heads = [step.key for step in trace if step.verb == "head"]
        assert any("/app.csv" in key for key in heads)


class _Killed(BaseException):
    """The process is gone."""


def _killed() -> None:
    raise _Killed


def _nth_swap(number: int) -> Callable[[Request], bool]:
    """The n-th swap of a record."""
    swaps = count(1)
    decides = record_put("committing")
    return lambda request: decides(request) and next(swaps) == number


def test_a_conflict_that_is_reverted_is_a_path_of_the_model(
    recorder: Recorder, store: MemoryStore
) -> None:
    """A foreign object is at a key of a job of mode `fail` when it is to be completed: the job is
    reverted by the files that the driver knows."""
    job = mc.start(DEST, mode="fail", accept="results", track="memory")
    results = [committed_task(job, task, {f"{task}.csv": b"1"}) for task in ("1", "2")]
    recorder.take()
    At(
        store,
        lambda r: r.verb == "complete_upload" and r.key == "t/2.csv",
        lambda: store.put_object("t/2.csv", b"foreign"),
    )
    with pytest.raises(mc.DestinationExists):
        job.commit(results)
    trace = recorder.take()
    assert {"complete_upload", "abort_upload", "delete_one"} <= {step.verb for step in trace}
    assert refusal("commit", trace, job._started, results=results) == ""


@pytest.mark.parametrize(
    "answer", [Unanswered("no answer"), PermissionDenied("the token has expired", attempts=2)]
)
def test_a_decision_that_was_not_answered_is_a_path_of_the_model(
    recorder: Recorder, store: MemoryStore, answer: StoreError
) -> None:
    """The deciding swap lands, and is not answered; or its first sending lands so and the adapter's
    second is refused: the driver reads the record back and finds that it has won."""
    job = mc.start(DEST, accept="results", track="memory")
    results = [result for result, _ in attempts(job, recorder)]

    def lost() -> None:
        raise answer

    At(store, record_put("committing"), lost, after=True)
    assert job.commit(results).outcome == "committed"
    trace = recorder.take()
    assert any(step.answer is answer for step in trace)
    assert refusal("commit", trace, job._started, results=results) == ""


# Attempts that several handles share --------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then", "well"),
    [
        ("commit", "abort", False),
        ("abort", "abort", True),
        ("commit", "commit", True),
        ("abort", "commit", False),
        ("late", "commit", False),
    ],
)
def test_handles_on_one_attempt_are_paths_of_the_model(
    recorder: Recorder, first: str, then: str, well: bool
) -> None:
    """One handle closes a file; another commits or aborts the attempt before it does, or the job
    has ended: each sends what the model's handles send."""
    job = mc.start(DEST, accept="listing", track="s3")
    one, two = job.task("1", attempt="a1"), job.task("1", attempt="a1")
    recorder.take()
    with one.open("a.csv", unique=True) as f:
        f.write(b"1")
    closed = recorder.take()
    known = {"name": "a1", "of_task": "1"}
    if first == "late":
        job.abort()
        recorder.take()
    else:
        getattr(two, first)()
        held(recorder, f"{first} attempt", job, **known)
    with nullcontext() if well else pytest.raises((mc.TaskFailed, mc.JobNotRunning)):
        getattr(one, then)()
    held(recorder, f"{then} attempt", job, closed=closed, **known)


@pytest.mark.parametrize("ends", ["well", "late", "committed", "aborted"])
def test_a_file_that_is_closed_by_path_is_a_path_of_the_model(
    recorder: Recorder, ends: str
) -> None:
    """A process that opens a path by name saves its file, then looks whether it came too late: for
    the job, or for the attempt."""
    job = mc.start(DEST, accept="listing", track="s3")
    other = job.task("1", attempt="a1")
    recorder.take()
    base = f"__magic_job-{job.id}/job-{job.id}/00/tasks/a1/__base"
    file = mc.open_magic(f"{DEST}/{base}/b.csv")
    file.write(b"1")
    file._sender.created()  # its Create was answered
    opened = recorder.take()
    if ends == "late":
        job.abort()
    elif ends != "well":
        (other.commit if ends == "committed" else other.abort)()
    recorder.take()
    with nullcontext() if ends == "well" else pytest.raises((mc.TaskFailed, mc.JobNotRunning)):
        file.close()
    trace = [step for step in opened if step.verb != "get"] + recorder.take()
    assert refusal("close", trace, job._started, name="a1") == ""


def test_an_abort_is_a_path_of_the_model_with_its_proof_alone(recorder: Recorder) -> None:
    """A sweep that believes its aborts is refused, also where it goes on as if they were proved."""
    job = mc.start(DEST, accept="results", track="memory")
    attempts(job, recorder)
    job.abort()
    trace = recorder.take()
    assert refusal("abort", trace, job._started) == ""
    unproved = [step for step in trace if step.verb != "list_parts"]
    assert len(unproved) < len(trace)
    assert "did not prove" in refusal("abort", unproved, job._started)


@pytest.mark.parametrize("swept", ["before", "as its pendingset lands"])
def test_a_late_task_is_a_path_of_the_model(
    recorder: Recorder, store: MemoryStore, swept: str
) -> None:
    """Its job is aborted and swept before it commits, or just before its pendingset lands: the
    second read undoes it."""
    job = mc.start(DEST, accept="results", track="memory")
    recorder.take()
    attempt = job.task("1")
    with attempt.open("a.csv", unique=True) as f:
        f.write(b"1")
    stored(attempt)
    own = recorder.take()
    aborted: list[Sent] = []

    def abort() -> None:
        noted = recorder.take()
        job.abort()
        aborted[:] = recorder.take()
        recorder.trace = noted

    lands = At(store, lambda r: r.verb == "put" and r.key.endswith(".pendingset"), abort)
    if swept == "before":
        store.before = None
        abort()
    with pytest.raises(mc.JobNotRunning):
        attempt.commit()
    assert refusal("abort", aborted, job._started) == ""
    trace = recorder.take()
    assert lands.done == any(step.verb == "delete" for step in trace)
    assert refusal("attempt", own + trace, job._started, name=attempt.attempt_id) == ""


@pytest.mark.parametrize("reverts", [False, True])
def test_a_recovery_and_a_revert_are_paths_of_the_model(
    recorder: Recorder, store: MemoryStore, reverts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Completes of a file are not answered, so the driver stops when the others are done; a
    recovery finishes the job, or an operator reverts it."""
    # The model's read one set after the other, and do one file after the other.
    monkeypatch.setattr("magic_committer.commit.sets.LOADING_SETS_MAX", 1)
    one = mc.Options(commit_threads=1)
    job = mc.start(DEST, accept="results", track="memory")
    results = [result for result, _ in attempts(job, recorder)]
    failing(store, "complete_upload", store.open_uploads()[0].key, Unanswered("no answer"))
    with pytest.raises(mc.CommitIncomplete):
        job.commit(results)
    store.before = None
    held(recorder, "commit", job, results=results)
    if reverts:
        assert mc.abort(DEST, job.id, revert=True, options=one).outcome == "reverted"
    else:
        assert mc.recover(DEST, job.id, options=one).outcome == "committed"
    kind = "operator" if reverts else "recovery"
    held(recorder, kind, job)


def test_another_order_is_no_path_of_the_model(recorder: Recorder) -> None:
    """Traces in which one step was left out, moved or made unconditional are refused."""
    job = mc.start(DEST, accept="results", track="memory")
    done = attempts(job, recorder)
    results = [result for result, _ in done]
    job.commit(results)
    trace = recorder.take()
    assert accepts("commit", trace, job._started, results=results)
    puts = [n for n, step in enumerate(trace) if step.verb == "put"]
    plan, decision = puts[:2]
    without_plan = [*trace[:plan], *trace[plan + 1 :]]
    plan_last = [*trace[:plan], trace[decision], trace[plan], *trace[decision + 1 :]]
    plain = Sent(**{**vars(trace[decision]), "options": {}})
    unconditional = [*trace[:decision], plain, *trace[decision + 1 :]]
    sweeps_first = [*trace[: decision + 1], *trace[-3:]]
    for changed in (without_plan, plan_last, unconditional, sweeps_first):
        assert not accepts("commit", changed, job._started, results=results)
    result, trace = done[0]
    fence = next(n for n, step in enumerate(trace) if step.verb == "head")
    fence_first = [trace[fence], *trace[:fence], *trace[fence + 1 :]]
    for changed in (fence_first, trace[::-1]):
        assert not accepts("attempt", changed, job._started, name=result.attempt)


def test_another_order_of_looks_is_no_path_of_the_model(
    recorder: Recorder, store: MemoryStore
) -> None:
    """A job by partition that lists before it looks, does not list again, or does not announce, is
    refused."""
    store.put_object("t/p=1/old.csv", b"old")
    job = mc.start(DEST, mode="replace_partitions", accept="results", track="memory")
    results = [committed_task(job, "1", {"p=1/a.csv": b"1"})]
    recorder.take()
    job.commit(results)
    trace = recorder.take()
    assert accepts("commit", trace, job._started, results=results)
    look = next(n for n, s in enumerate(trace) if s.verb == "list" and s.key == "t/__magic_job-")
    data = [n for n, s in enumerate(trace) if s.verb == "list" and s.key == "t/p=1/"]
    announcement = next(n for n, s in enumerate(trace) if s.verb == "put")
    assert announcement < look < data[0] < data[1]
    listed = trace[data[0]]
    lists_first = [*trace[:look], listed, *(s for s in trace[look:] if s is not listed)]
    once = [*trace[: data[1]], *trace[data[1] + 1 :]]
    unannounced = [*trace[:announcement], *trace[announcement + 1 :]]
    for changed in (lists_first, once, unannounced):
        assert not accepts("commit", changed, job._started, results=results)
