"""I4: what one read of the fence covers, and whose record it is."""

from __future__ import annotations

import threading
import time

import pytest

import magic_committer as mc
from magic_committer._pool import ThreadPool
from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.commit.fence import FENCE_SECONDS, Fence
from magic_committer.errors import PermissionDenied, Unanswered
from magic_committer.hadoop.paths import Destination, JobPaths
from magic_committer.protocol.record import JobRecord, StartedJob, State, Terms
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.promises.hands import DEST, At, failing, unanswered
from tests.promises.test_small_files import held, is_verb

PATHS = JobPaths(Destination.parse(DEST), "j")


class Fenced:
    """An attempt's fence, and the record that it reads."""

    def __init__(self, s3: MemoryStore) -> None:
        self.s3 = s3
        self.runtime = Runtime(s3, pool=ThreadPool(0), clock=PatientClock())
        record = JobRecord(
            id="j", uuid="0" * 32, state=State.RUNNING, nonce=self.runtime.ids(), terms=Terms(),
            given_id=True, started=0.0,
        )  # fmt: skip
        seen = records.create(self.runtime, PATHS.record, record).seen
        self.fence = Fence(self.runtime, StartedJob.attached(record, DEST, seen.etag), PATHS)


@pytest.fixture
def fenced(s3: MemoryStore) -> Fenced:
    """A running job."""
    return Fenced(s3)


def heads(fenced: Fenced) -> int:
    """Reads of the fence so far."""
    return fenced.s3.requests["head"]


def test_a_create_that_is_answered_during_a_read_is_not_covered(fenced: Fenced) -> None:
    """I4: a read covers the Creates that were answered before it was sent: one that is answered
    while it is on its way needs another."""
    fenced.fence.created()
    At(fenced.s3, lambda r: r.verb == "head", fenced.fence.created, after=True)
    fenced.fence.check()
    assert heads(fenced) == 1
    fenced.fence.check()
    assert heads(fenced) == 2


def test_only_creates_that_are_not_covered_cost_a_read(fenced: Fenced) -> None:
    """Before the first Create is answered there is nothing to cover, and one read covers two."""
    fenced.fence.check_if_due()
    fenced.fence.check()
    assert heads(fenced) == 0
    fenced.fence.created()
    fenced.fence.created()
    fenced.fence.check()
    fenced.fence.check()
    assert heads(fenced) == 1


def test_a_read_that_is_under_way_is_not_sent_twice(fenced: Fenced) -> None:
    """A block that is handed over while the fence is being read, by another thread, does not wait
    for it, and costs no read of its own."""
    fenced.fence.created()
    fenced.runtime.clock.sleep(2 * FENCE_SECONDS)
    at = At(fenced.s3, lambda r: r.verb == "head", fenced.fence.check_if_due)
    fenced.fence.check_if_due()
    assert at.done
    assert heads(fenced) == 1


def test_a_fence_that_cannot_be_read_after_a_close_costs_no_file(s3: MemoryStore) -> None:
    """I2: the `.pending` of a shared attempt is stored, and the store does not tell whether the job
    has ended: the file is closed, and whoever commits the attempt commits it."""
    job = mc.start(DEST)
    task = job.task("1", attempt="a")

    def after(request: Request, reply: object) -> None:
        if request.verb == "put" and request.key.endswith(".pending"):
            s3.after = None
            record = f"t/__magic_job-{job.id}/_job.json"
            failing(s3, "head", record, Unanswered("no answer"))

    with task.open("a.csv") as f:
        f.write(b"1")
        s3.after = after
    assert s3.after is None
    s3.before = None
    assert mc.attach(DEST, job.id).task("1", attempt="a").commit().files == 1


@pytest.mark.parametrize("told", ["at the commit", "by the store", "at a second try"])
def test_a_block_whose_job_was_swept_before_its_set_was_stored_leaves_nothing(
    s3: MemoryStore, told: str
) -> None:
    """I4: of `write` the driver's own read of the record is the second one: what an aborter's sweep
    did not see goes with the attempt, also if that read fails once."""

    def swept() -> None:
        mc.recover(DEST, job.id, dead_after=0)
        if told == "by the store":
            no = PermissionDenied("no")
            At(s3, lambda r: r.verb == "get" and r.key.endswith("_job.json"), no)
        if told == "at a second try":
            At(s3, lambda r: r.verb == "get" and r.key.endswith(".pendingset"), unanswered)

    error = PermissionDenied if told == "by the store" else mc.JobNotRunning
    with pytest.raises(error), mc.write(DEST) as job:
        with job.open("a.csv") as f:
            f.write(b"1")
        At(s3, lambda r: r.verb == "put" and r.key.endswith(".pendingset"), swept)
    s3.before = s3.after = None
    assert not s3.open_uploads()
    assert [key.rpartition("/")[2] for key in s3.keys()] == ["_job.json"]  # the aborter's


def test_the_fence_is_read_while_the_last_parts_are_under_way(s3: MemoryStore) -> None:
    """The commit of a task that waits for its Creates sends the read when the last one is
    answered, and none after its parts."""
    order: list[str] = []
    job = mc.start(DEST, track="memory")
    with held(s3, is_verb("create_upload")) as gate:
        task = job.task("1")
        for name in ("a.csv", "b.csv"):
            with task.open(name) as f:
                f.write(b"1")
        gate.wait(2)
        s3.after = lambda request, reply: order.append(request.verb)
        committing = threading.Thread(target=task.commit)
        committing.start()
        while not task._attempt._fence._awaited:  # type: ignore[attr-defined]
            time.sleep(0.001)
        gate.open.set()
        committing.join(300)
    assert order.count("head") == 2  # the second one comes after the set
    assert order.index("head") < len(order) - 1 - order[::-1].index("put_part")
