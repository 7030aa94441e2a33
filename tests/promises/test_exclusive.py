"""I6 for `exclusive`: "nobody else writes here" was said for as long as the driver lives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import magic_committer as mc
from magic_committer.hadoop.paths import unique_name
from tests.hadoops import leave_job
from tests.promises.hands import DEST, At, committed_task, killed, visible
from tests.promises.machine import DAY, Crash, Machine, crash

UNTIL = {
    "running": None,
    "committing": "complete_upload",
    "completed": "delete",
    "aborting": "abort_upload",
}
"""The request at which its driver dies, in each state."""
TAKERS: dict[str, Callable[[mc.Job], object]] = {
    "recover": lambda job: mc.recover(DEST, job.id, dead_after=0),
    "cleanup": lambda job: mc.cleanup(DEST, dead_after=0, leftover_after=0),
    "abort": lambda job: mc.abort(DEST, job.id),
}


def dead(machine: Machine, state: str) -> mc.Job:
    """An exclusive job whose driver died in a state, days ago."""
    job = mc.start(DEST, job_id="ex", exclusive=True)
    committed_task(job, "1", {"mine.csv": b"1"})
    killed(job, "2", "cut.csv", unique=True)
    if UNTIL[state] is not None:
        at = At(machine.s3, lambda r: r.verb == UNTIL[state], crash)
        with pytest.raises(Crash):
            job.abort() if state == "aborting" else job.commit()
        assert at.done
        machine.s3.before = None
    assert mc.attach(DEST, job.id).state == state
    machine.later(3 * DAY)
    return job


@pytest.mark.parametrize("how", TAKERS)
@pytest.mark.parametrize("state", UNTIL)
def test_who_takes_over_a_dead_exclusive_job_takes_its_own_uploads_only(
    machine: Machine, state: str, how: str
) -> None:
    """I6: others came after its driver had died: a foreign upload, those of a job of Hadoop's and
    that of a live job below stay, and the job is ended with all of its own."""
    job = dead(machine, state)
    s3 = machine.s3
    own = set(s3.open_uploads())
    below = mc.start(f"{DEST}/sub", job_id="below")
    s3.start_upload("t/foreign.bin")
    s3.start_upload(f"t/sub/{unique_name('x.csv', below.uuid)}")
    leave_job(s3, "3.5.0", unfinished=True)
    others = set(s3.open_uploads()) - own
    published = state in ("committing", "completed")
    try:
        TAKERS[how](job)
    except mc.JobNotRunning:
        assert how == "abort"
        assert published
        mc.recover(DEST, job.id)
    assert mc.attach(DEST, job.id).state == "closed"
    assert set(s3.open_uploads()) == others
    assert visible(s3) == ({"t/mine.csv": b"1"} if published else {})


@pytest.mark.parametrize("how", TAKERS)
@pytest.mark.parametrize("state", UNTIL)
def test_who_takes_over_a_dead_exclusive_job_leaves_an_upload_of_nobody(
    machine: Machine, state: str, how: str
) -> None:
    """I6: no other job is there, so nobody is yielded to: a foreign upload stays all the same, for
    that nobody else writes there was said for as long as the driver lives."""
    job = dead(machine, state)
    foreign = machine.s3.start_upload("t/foreign.bin")
    try:
        TAKERS[how](job)
    except mc.JobNotRunning:
        mc.recover(DEST, job.id)
    assert mc.attach(DEST, job.id).state == "closed"
    assert [upload.upload_id for upload in machine.s3.open_uploads()] == [foreign]
