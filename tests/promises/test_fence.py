"""The fence: a late attempt learns that it is late, whenever it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.commit import register
from magic_committer.commit.fence import FENCE_SECONDS, Fence
from magic_committer.errors import PermissionDenied, StoreError, Unanswered
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.options import Accept, Track
from magic_committer.protocol.record import JOB_METADATA, Found, Phase, StartedJob, State, may_undo
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.base import PART_BYTES_MIN
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.concrete import upload_of
from tests.promises.hands import (
    DEST,
    At,
    StillClock,
    control,
    dies_at,
    failing,
    fitting,
    one_file,
    raises,
    raising,
    record_of,
    refusing,
    remains,
    unanswered,
    visible,
    write,
)
from tests.promises.machine import DAY, Machine
from tests.promises.test_record_swaps import record_of as first_record
from tests.promises.test_small_files import Gate

SET = "put *.pendingset"
SMALL = mc.Options(block_bytes=PART_BYTES_MIN)
BLOCK = bytes(PART_BYTES_MIN)


def test_a_long_file_reads_the_fence_while_it_is_written() -> None:
    """A Create that is not covered for a second is covered at the next block."""
    clock = StillClock()
    with memory_store(clock=clock) as s3:
        job = mc.start(DEST, options=SMALL)
        s3.requests.clear()  # the proof of the store
        task = job.task("1")
        f = task.open("a.bin")
        for seconds, heads in ((0, 0), (2, 1), (20, 1)):  # covered once, covered for good
            clock.sleep(seconds)
            f.write(BLOCK)
            assert s3.requests["head"] == heads
        job.abort()
        g = task.open("b.bin")
        g.write(b"")
        upload_of(g)._sender.created()
        clock.sleep(2)
        raises(mc.JobNotRunning, g.write, BLOCK)
        f.abort()
        raises(mc.TaskFailed, task.commit)
        assert (s3.keys(), s3.open_uploads()) == ((), ())


def test_an_attempt_whose_pendingset_lands_after_the_sweep_undoes_it(s3: MemoryStore) -> None:
    """I4: the read after the pendingset is stored catches all that a late attempt left. What
    another process has aborted nobody runs again by himself: the error says so."""
    for abort, says in (
        (mc.Job.abort, "It has ended; or this process"),
        (lambda job: mc.abort(DEST, job.id), "It was aborted: start a new job"),
    ):
        job = mc.start(DEST)
        task = one_file(job)
        At(s3, SET, partial(abort, job))
        raises(mc.JobNotRunning, task.commit, match=says)
        assert s3.open_uploads() == ()
        assert (s3.keys() == ()) == (abort is mc.Job.abort)


def test_an_attempt_that_a_driver_may_have_accepted_is_left_alone(s3: MemoryStore) -> None:
    """I2: decided from a listing before the second read: the attempt keeps its hands off."""
    job = mc.start(DEST)
    task = one_file(job)
    driver = mc.attach(DEST, job.id)
    At(s3, SET, lambda: dies_at(s3, "complete_upload", driver.commit), after=True)
    task.commit()
    assert mc.attach(DEST, job.id).commit().outcome == "committed"
    assert remains(s3)[:2] == ({"t/a.csv": b"1"}, [])


@pytest.mark.parametrize("error", [Unanswered, PermissionDenied])
def test_a_second_read_that_fails_leaves_the_set(s3: MemoryStore, error: type[StoreError]) -> None:
    """I2: a driver may have listed the pendingset: the task raises and leaves it to the job."""
    job = mc.start(DEST)
    task = one_file(job)
    s3.requests.clear()
    late: Callable[[Request], bool] = lambda r: r.verb == "head" and s3.requests["head"] >= 2  # noqa: E731
    with refusing(s3, late, error), pytest.raises(error):
        task.commit()
    assert any(key.endswith(".pendingset") for key in control(s3))
    assert task.commit().files == 1  # repeatable: it is the same pendingset
    assert job.commit(expect=["1"]).files == 1
    assert visible(s3) == {"t/a.csv": b"1"}


@pytest.mark.parametrize("gone", ["absent", "replaced"])
def test_a_record_that_is_not_the_jobs_stops_the_attempt(s3: MemoryStore, gone: str) -> None:
    """Absent, or another run's: the job is not running for this attempt."""
    job = mc.start(DEST, job_id="used-twice")
    task = one_file(job)
    body = s3.body(record_of(job)).replace(job.uuid.encode(), b"0" * 32)
    s3.delete_object(record_of(job))
    if gone == "replaced":
        s3.put_object(record_of(job), body, metadata={JOB_METADATA: "0" * 32})
    late = raises(mc.JobNotRunning, task.commit, match="compare AWS_ENDPOINT_URL")
    assert late.state == "absent"
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("open_before", [True, False])
def test_an_old_task_takes_no_file_of_the_next_job(machine: Machine, open_before: bool) -> None:
    """I2: what the next job's task of the same names has saved is published."""
    first = mc.start(DEST, job_id="nightly")

    def begun(job: mc.Job) -> Any:
        file = job.task("1", attempt="a").open("x.csv")
        file.write(job.uuid.encode())
        return file

    late = begun(first) if open_before else None
    mc.abort(DEST, "nightly")
    machine.later(30 * DAY)
    mc.cleanup(DEST)
    second = mc.start(DEST, job_id="nightly")
    begun(second).close()
    raises(mc.JobNotRunning, lambda: (late or begun(first)).close())
    second.task("1", attempt="a").commit()
    assert second.commit().files == 1
    assert visible(machine.s3) == {"t/x.csv": second.uuid.encode()}


@pytest.mark.parametrize("track", ["memory", "s3"])
@pytest.mark.parametrize("when", ["at the commit", "in a long file"])
def test_a_record_that_may_not_be_read_is_told_as_it_is(
    s3: MemoryStore, clock: PatientClock, track: Track, when: str
) -> None:
    """I10: PermissionDenied, not that it is late; nothing is published, the upload is aborted."""
    job = mc.start(DEST, track=track, accept="results", options=SMALL)
    if when == "at the commit":
        task = one_file(job)
        end: Callable[[], object] = task.commit
        again: Any = (mc.TaskFailed, "aborted", task.commit)
    else:
        task = job.task("1")
        f = task.open("a.bin")
        upload_of(f)._sender.created()
        clock.sleep(2)
        end = partial(f.write, BLOCK)
        again = (PermissionDenied, "refused", f.close)
    with refusing(s3, "head", PermissionDenied), pytest.raises(PermissionDenied, match="refused"):
        end()
    assert s3.open_uploads() == ()
    error, told, call = again
    raises(error, call, match=told)
    job.abort()
    assert (s3.keys(), s3.open_uploads()) == ((), ())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_by_path_reads_the_fence_after_its_pending(s3: MemoryStore, when: str) -> None:
    """I4: who only closes files by path does not commit the task, so each close looks again."""
    job = mc.start(DEST, job_id="1")
    f = mc.open_magic("s3a://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/x.csv")
    f.write(b"1")
    f._sender.created()
    if when == "before":
        job.abort()
    else:
        At(s3, "put *.pending", job.abort)
    raises(mc.JobNotRunning, f.close)
    assert remains(s3) == ({}, [], ["_job.json"])
    assert mc.attach(DEST, "1").outcome == "aborted"


@pytest.mark.parametrize("accept", ["results", "listing"])
@pytest.mark.parametrize("track", ["memory", "s3"])
@pytest.mark.parametrize("landed", [False, True])
def test_a_pendingset_whose_put_was_not_answered(
    s3: MemoryStore, accept: Accept, track: Track, landed: bool
) -> None:
    """I2, I4: an attempt that nobody else can commit aborts; else it may be committed again."""
    job = mc.start(DEST, accept=accept, track=track)
    task = one_file(job)
    sets = fitting(SET)

    def lose(request: Request, reply: object = None) -> None:
        if sets(request) and not isinstance(reply, StoreError):  # the second time it is a 412
            raise Unanswered("no answer")

    if landed:
        s3.after = lose
    else:
        s3.before = lose
    with pytest.raises(Unanswered) if not landed else nullcontext():
        task.commit()
    s3.before = s3.after = None
    if not landed and accept == "results" and track == "memory":
        assert remains(s3) == ({}, [], ["_job.json"])
        job.abort()
    else:
        assert len(s3.open_uploads()) == 1
        result = task.result if landed else task.commit()  # the second PUT has found it stored
        assert job.commit([result] if accept == "results" else None, expect=["1"]).files == 1
        assert visible(s3) == {"t/a.csv": b"1"}
    assert remains(s3)[1:] == ([], [])


@pytest.mark.parametrize("at_once", [True, False])
def test_two_handles_that_commit_one_attempt_at_once_agree(s3: MemoryStore, at_once: bool) -> None:
    """I2: the second takes the pendingset that is stored; it cannot abort the attempt."""
    job = mc.start(DEST)
    first = job.task("1", attempt="a")
    write(first, "a.csv")
    write(first, "b.csv")
    second = mc.attach(DEST, job.id).task("1", attempt="a")
    if at_once:
        At(s3, "get *.pending", first.commit)
    else:
        with refusing(s3, "delete", Unanswered):
            first.commit()
        raises(mc.TaskFailed, second.abort, match="committed")
    assert second.commit() == first.result
    assert job.commit([first.result]).files == 2


@pytest.mark.parametrize(
    ("phase", "sole", "accept", "found", "late", "may"),
    [
        (Phase.OPEN, True, "listing", Found.NOTHING, None, True),
        (Phase.OPEN, False, "listing", Found.NOTHING, None, True),
        (Phase.OPEN, False, "listing", Found.SET, None, False),
        (Phase.OPEN, False, "results", Found.SET, None, False),
        (Phase.OPEN, False, "results", Found.FOREIGN, None, False),
        (Phase.OPEN, False, "listing", Found.CLAIMED, None, True),
        (Phase.SENT, True, "results", Found.SET, None, True),
        (Phase.SENT, True, "listing", Found.NOTHING, None, False),
        (Phase.SENT, True, "listing", Found.CLAIMED, None, True),
        (Phase.SENT, True, "listing", Found.SET, None, False),
        (Phase.SENT, False, "listing", Found.CLAIMED, State.COMMITTING, True),
        (Phase.SENT, False, "results", Found.NOTHING, None, True),
        (Phase.SENT, False, "results", Found.SET, None, False),
        (Phase.COMMITTED, True, "results", Found.SET, None, False),
        (Phase.COMMITTED, False, "listing", Found.CLAIMED, None, False),
        (Phase.COMMITTED, True, "results", Found.SET, State.ABSENT, True),
        (Phase.SENT, False, "listing", Found.SET, State.CLOSED, True),
        (Phase.SENT, False, "listing", Found.SET, State.COMMITTING, False),
        (Phase.SENT, False, "listing", Found.SET, State.REVERTING, False),
        (Phase.OPEN, True, "listing", Found.NOTHING, State.COMMITTING, True),
    ],
)
def test_when_an_attempt_may_be_undone(
    phase: Phase, sole: bool, accept: Accept, found: Found, late: State | None, may: bool
) -> None:
    """The rule as a table: never what a driver may have accepted and may still complete."""
    assert may_undo(phase, sole=sole, accept=accept, found=found, late=late) is may


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_late_attempt_is_undone_without_its_set(s3: MemoryStore, unreadable: bool) -> None:
    """I4: nobody accepts anything any more of a job that is being aborted."""
    job = mc.start(DEST)
    task = one_file(job, attempt="a")
    dies_at(s3, "list", lambda: mc.abort(DEST, job.id))
    key = f"t/__magic_job-{job.id}/job-{job.id}/00/_{task.attempt_id}.pendingset"
    if unreadable:
        s3.put_object(key, b"{", metadata={JOB_METADATA: job.uuid})
    else:
        failing(s3, "get", key, PermissionDenied)
    raises(mc.JobNotRunning, task.commit)
    s3.before = None
    assert s3.open_uploads() == ()


class Fenced:
    """The fence of a job, and its store."""

    def __init__(self, s3: MemoryStore) -> None:
        self.s3 = s3
        self.runtime = Runtime(s3, pool=ThreadPool(0), clock=StillClock())
        paths = JobPaths(Destination.parse(DEST), "j")
        record = first_record("j")
        seen, _ = register.create(self.runtime, paths.record, record)
        self.fence = Fence(self.runtime, StartedJob.attached(record, DEST, seen.etag))

    @property
    def heads(self) -> int:
        return self.s3.requests["head"]


@pytest.fixture
def fenced(s3: MemoryStore) -> Fenced:
    return Fenced(s3)


def test_only_creates_that_are_not_covered_cost_a_read(fenced: Fenced) -> None:
    """I4: a read covers the Creates that were answered before it was sent."""
    fenced.fence.check_if_due()
    fenced.fence.check()
    assert fenced.heads == 0
    fenced.fence.created()
    fenced.fence.created()
    fenced.fence.check()
    fenced.fence.check()
    assert fenced.heads == 1
    fenced.fence.created()
    At(fenced.s3, "head", fenced.fence.created, after=True)
    fenced.fence.check()
    assert fenced.heads == 2
    fenced.fence.check()
    assert fenced.heads == 3


def test_a_read_that_is_under_way_is_not_sent_twice(fenced: Fenced) -> None:
    """A block of another thread does not wait meanwhile, and costs no read of its own."""
    fenced.fence.created()
    fenced.runtime.clock.sleep(2 * FENCE_SECONDS)
    at = At(fenced.s3, "head", fenced.fence.check_if_due)
    fenced.fence.check_if_due()
    assert (at.done, fenced.heads) == (True, 1)


def test_a_fence_that_cannot_be_read_after_a_close_costs_no_file(s3: MemoryStore) -> None:
    """I2: the file is closed, and whoever commits the attempt commits it."""
    job = mc.start(DEST)
    task = job.task("1", attempt="a")
    silent = raising(f"head {record_of(job)}", Unanswered)
    with At(s3, "put *.pending", lambda: setattr(s3, "before", silent), after=True):
        write(task)
    s3.before = None
    assert mc.attach(DEST, job.id).task("1", attempt="a").commit().files == 1


@pytest.mark.parametrize("told", ["at the commit", "by the store", "at a second try"])
def test_a_block_that_was_swept_leaves_nothing(s3: MemoryStore, told: str) -> None:
    """I4: what an aborter's sweep did not see goes with the attempt, though the look fails once."""

    def swept() -> None:
        mc.recover(DEST, job.id, dead_after=0)
        if told == "by the store":
            At(s3, "get *_job.json", PermissionDenied("no"))
        if told == "at a second try":
            At(s3, "get *.pendingset", unanswered)

    error = PermissionDenied if told == "by the store" else mc.JobNotRunning
    with pytest.raises(error), mc.write(DEST) as job:
        write(job)
        At(s3, SET, swept)
    s3.before = s3.after = None
    assert remains(s3) == ({}, [], ["_job.json"])  # the aborter's


def test_the_fence_is_read_while_the_last_parts_are_under_way(s3: MemoryStore) -> None:
    """The read is sent when the last Create is answered, and none after the parts."""
    order: list[str] = []
    job = mc.start(DEST, track="memory")
    with Gate(s3, "create_upload") as gate:
        task = job.task("1")
        write(task, "a.csv")
        write(task, "b.csv")
        gate.wait(2)
        s3.after = lambda request, reply: order.append(request.verb)
        committing = threading.Thread(target=task.commit)
        committing.start()
        while not task._attempt._fence._awaited:
            time.sleep(0.001)
        gate.open.set()
        committing.join(300)
    assert order.count("head") == 2  # the second one comes after the set
    assert order.index("head") < len(order) - 1 - order[::-1].index("put_part")
