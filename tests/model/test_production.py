"""Production's requests are paths of the model's processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import magic_committer as mc
from magic_committer.errors import Unanswered
from magic_committer.job import TaskCommit
from magic_committer.options import Accept
from magic_committer.testing import memory_store
from magic_committer.wiring import register_store, unregister_store
from tests.model.production import Recorder, Sent, accepts, refusal
from tests.promises.hands import At, StillClock, record_put, unanswered

DEST = "s3://bucket/t"


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """The in-memory store of the bucket ``bucket``, behind a recorder."""
    clock = StillClock()
    with memory_store(clock=clock) as store:
        recorder = Recorder(store)
        register_store(recorder, clock)
        yield recorder
        unregister_store(recorder)


def attempts(job: mc.Job, recorder: Recorder) -> list[tuple[TaskCommit, list[Sent]]]:
    """Two tasks of two files; each one's result and trace."""
    done = []
    for task in ("1", "2"):
        with job.task(task) as attempt:
            for name in ("a", "b"):
                with attempt.open(f"{task}{name}.csv", unique=True) as f:
                    f.write(b"1")
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
    assert refusal("setup", recorder.take(), job._started) == ""
    done = attempts(job, recorder)
    for result, trace in done:
        assert refusal("attempt", trace, job._started, name=result.attempt) == ""
    results = [result for result, _ in done] if accept == "results" else None
    job.commit(results)
    trace = recorder.take()
    assert refusal("commit", trace, job._started, results=results) == ""


def test_an_abort_and_the_late_task_are_paths_of_the_model(recorder: Recorder) -> None:
    """A driver that aborts, and a task that finds out after its pendingset is stored."""
    job = mc.start(DEST, accept="results", track="memory")
    recorder.take()
    attempt = job.task("1")
    with attempt.open("a.csv", unique=True) as f:
        f.write(b"1")
    writing = recorder.take()
    job.abort()
    assert refusal("abort", recorder.take(), job._started) == ""
    with pytest.raises(mc.JobNotRunning):
        attempt.commit()
    trace = writing + recorder.take()
    assert refusal("attempt", trace, job._started, name=attempt.attempt_id) == ""


def test_a_task_that_is_late_after_its_pendingset_is_a_path_of_the_model(
    recorder: Recorder,
) -> None:
    """The job is aborted and swept just before the pendingset lands: the second read undoes it."""
    job = mc.start(DEST, accept="results", track="memory")
    recorder.take()
    attempt = job.task("1")
    with attempt.open("a.csv", unique=True) as f:
        f.write(b"1")
    before = recorder.take()
    aborted: list[Sent] = []

    def abort() -> None:
        noted = recorder.take()
        job.abort()
        aborted[:] = recorder.take()
        recorder.trace = noted

    At(
        recorder._store,  # type: ignore[arg-type]
        lambda request: request.verb == "put" and request.key.endswith(".pendingset"),
        abort,
    )
    with pytest.raises(mc.JobNotRunning):
        attempt.commit()
    assert aborted
    trace = recorder.take()
    assert any(step.verb == "delete" for step in trace)
    assert refusal("attempt", before + trace, job._started, name=attempt.attempt_id) == ""


def test_a_lost_reply_to_the_decision_is_a_path_of_the_model(recorder: Recorder) -> None:
    """The driver whose deciding swap was not answered reads the record back, as the model does."""
    job = mc.start(DEST, accept="results", track="memory")
    results = [result for result, _ in attempts(job, recorder)]
    At(recorder._store, record_put("committing"), unanswered, after=True)  # type: ignore[arg-type]
    job.commit(results)
    trace = recorder.take()
    assert any(isinstance(step.answer, Unanswered) for step in trace)
    assert refusal("commit", trace, job._started, results=results) == ""


@pytest.mark.parametrize("reverts", [False, True])
def test_a_recovery_and_a_revert_are_paths_of_the_model(recorder: Recorder, reverts: bool) -> None:
    """A Complete is not answered, so the driver stops when the others are done; a recovery finishes
    the job, or an operator reverts it."""
    job = mc.start(DEST, accept="results", track="memory")
    results = [result for result, _ in attempts(job, recorder)]
    At(recorder._store, lambda request: request.verb == "complete_upload", unanswered)  # type: ignore[arg-type]
    with pytest.raises(mc.CommitIncomplete):
        job.commit(results)
    assert refusal("commit", recorder.take(), job._started, results=results) == ""
    if reverts:
        assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    else:
        assert mc.recover(DEST, job.id).outcome == "committed"
    kind = "operator" if reverts else "recovery"
    assert refusal(kind, recorder.take(), job._started) == ""


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
