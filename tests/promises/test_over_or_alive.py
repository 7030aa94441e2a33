"""I6: who takes away what is over looks whether it still is, at the last moment before it acts."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer._pool import ThreadPool
from magic_committer._runtime import Runtime
from magic_committer.errors import (
    PermissionDenied,
)
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.abort_uploads import Clearing
from magic_committer.maintenance.attribution import Places
from magic_committer.maintenance.uploads import Filters, Rules, Survey
from magic_committer.options import Options
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.memory import Request
from tests.hadoops import leave_job
from tests.promises.hands import DEST, committed_task, failing, raising, visible
from tests.promises.machine import DAY, STATES, Machine


def runtime(machine: Machine) -> Runtime:
    """An operator's process."""
    return Runtime(machine.s3, pool=ThreadPool(0), clock=machine.clock)


@pytest.mark.parametrize("state", STATES)
def test_only_a_closed_job_is_over(machine: Machine, state: str) -> None:
    """I2: a job in any other state may need its uploads, or is swept by whoever recovers it."""
    job = machine.job(state)
    places = Places(runtime(machine), in_flight=1)
    assert places.is_over("t/", job.uuid) is (state == "closed")


def test_a_job_without_record_is_over(machine: Machine) -> None:
    """A UUID that no record at or above the directory holds is of a job that is over."""
    assert Places(runtime(machine), in_flight=1).is_over("t/dt=1/", "0" * 32) is True


def test_a_record_above_the_upload_counts(machine: Machine) -> None:
    """I6: a job's uploads lie in directories below its destination: its record is found there."""
    job = machine.job("running")
    assert Places(runtime(machine), in_flight=1).is_over("t/dt=1/hour=2/", job.uuid) is False


def test_a_listing_that_takes_long_makes_a_job_no_older(machine: Machine) -> None:
    """I6: a job's directory is listed page by page, and between two pages a day passes: what was
    on the first page may have changed in that day, so nobody takes the job for dead."""
    job = machine.job("running")
    s3 = machine.s3
    s3._bucket.page_keys = 1
    pages: list[str] = []

    def a_day_later(request: Request) -> None:
        if request.verb == "list" and job.id in request.key:
            pages.append(request.key)
            if len(pages) == 2:
                machine.later(DAY)

    s3.before = a_day_later
    with pytest.raises(mc.JobTooYoung):
        mc.recover(DEST, job.id, dead_after=DAY)
    assert len(pages) > 2
    s3.before = None
    assert mc.attach(DEST, job.id).state == "running"


def test_a_job_that_is_set_up_while_litter_is_looked_at_keeps_its_objects(machine: Machine) -> None:
    """I6: cleanup finds a directory without a record; a job of that id is set up there before its
    objects are deleted: what carries that job's token stays."""
    s3 = machine.s3
    litter = "t/__magic_job-given/left.txt"
    s3.put(litter, b"", metadata={JOB_METADATA: "e" * 32})
    started: list[tuple[mc.Job, mc.TaskCommit]] = []

    def set_up(request: Request, reply: object) -> None:
        if request.verb == "get" and request.key.endswith("given/_job.json") and not started:
            s3.after = None
            s3.delete_one(litter)
            job = mc.start(DEST, job_id="given")
            started.append((job, committed_task(job, "1", {"a.csv": b"1"})))

    s3.after = set_up
    mc.cleanup(DEST, leftover_after=0)
    ((job, result),) = started
    assert job.commit([result]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}


class Dead:
    """A dead job with open uploads, and an operator who is about to abort them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.job = machine.job("running")
        machine.later(2 * DAY)
        survey = Survey(runtime(machine), Destination.parse(DEST), in_flight=1)
        self.plan = Clearing(survey, Filters(), Rules(), options=Options())
        assert self.plan.chosen.total() == 3
        assert list(self.plan.jobs) == [self.job.uuid]

    def run(self) -> set[tuple[str, str]]:
        """What was done, and why."""
        return {(one.action, one.why.partition(":")[0]) for one in self.plan.run()}


def test_a_dead_job_is_aborted_with_all_its_uploads(machine: Machine) -> None:
    """A job of which nothing changed for a day is aborted as a whole."""
    dead = Dead(machine)
    assert {action for action, _ in dead.run()} == {"aborted"}
    assert machine.s3.open_uploads() == ()
    assert mc.attach(DEST, dead.job.id).state == "closed"


def test_a_job_that_says_meanwhile_that_it_lives_is_left(machine: Machine) -> None:
    """I6: a job that was taken for dead changes something between plan and deed: it is left, and so
    are its uploads."""
    dead = Dead(machine)
    directory = f"t/__magic_job-{dead.job.id}/"
    machine.s3.put(f"{directory}_alive.json", b"{}", metadata={JOB_METADATA: dead.job.uuid})
    assert dead.run() == {("left", "its job lives")}
    assert mc.attach(DEST, dead.job.id).state == "running"
    assert len(machine.s3.open_uploads()) == 3


def test_a_job_that_is_decided_meanwhile_is_left(machine: Machine) -> None:
    """I2: a job that was taken for dead is decided between plan and deed: it is left to recover,
    and none of its files is lost."""
    dead = Dead(machine)
    machine.s3.before = raising(lambda r: r.verb == "complete_upload", mc.StoreError("not now"))
    with pytest.raises(mc.CommitIncomplete):
        dead.job.commit()
    machine.s3.before = None
    assert dead.run() == {("left", "its job is committing")}
    assert mc.recover(DEST, dead.job.id).outcome == "committed"
    assert set(visible(machine.s3)) == {"t/1.csv", "t/2.csv"}


def nobodys(machine: Machine) -> tuple[tuple[str, bool], list[str]]:
    """How a survey sees the upload ``t/nobodys.csv``: its class, and whether a live job is near;
    and what the survey could not see."""
    runtime = Runtime(machine.s3, pool=ThreadPool(0), clock=machine.clock)
    survey = Survey(runtime, Destination.parse(DEST), in_flight=1)
    (found,) = (one for page in survey.pages() for one in page if one.key == "t/nobodys.csv")
    return (found.owner_class, found.near), list(survey.problems)


def test_what_lies_beside_a_directory_that_cannot_be_listed_is_not_plainly_foreign(
    machine: Machine,
) -> None:
    """I6: an upload that nothing names may be the job's whose directory cannot be listed: it is
    near a live job, and the reason is told."""
    job = machine.job("running")
    machine.s3.start_upload("t/nobodys.csv")
    machine.later(2 * DAY)
    directory = f"t/__magic_job-{job.id}/"
    failing(machine.s3, "list", directory, PermissionDenied("not this one", status=403))
    seen, problems = nobodys(machine)
    assert seen == ("foreign", True)
    assert [directory in problem for problem in problems] == [True]


def test_what_lies_beside_a_job_of_hadoops_is_near_it(machine: Machine) -> None:
    """I6: a directory whose pendings carry no token of ours is no leftover of ours: an upload
    beside it that nothing names may be that job's next file."""
    leave_job(machine.s3, "3.4.1", unfinished=True)
    machine.s3.start_upload("t/nobodys.csv")
    assert nobodys(machine)[0] == ("foreign", True)


def test_what_lies_beside_litter_of_ours_is_plainly_foreign(machine: Machine) -> None:
    """A directory without a record, whose pendings carry our token, is of a job that is over: an
    upload beside it that nothing names is not near a live job."""
    job = machine.job("running")
    machine.s3.delete_object(f"t/__magic_job-{job.id}/_job.json")
    machine.s3.start_upload("t/nobodys.csv")
    assert nobodys(machine)[0] == ("foreign", False)


@pytest.mark.parametrize("state", ["aborting", "reverted"])
def test_a_job_that_is_only_to_be_swept_is_over_however_young(machine: Machine, state: str) -> None:
    """Nothing of it becomes visible any more: its uploads are not those of a live job."""
    machine.job(state)
    runtime = Runtime(machine.s3, pool=ThreadPool(0), clock=machine.clock)
    survey = Survey(runtime, Destination.parse(DEST), in_flight=1)
    assert {one.owner_class for page in survey.pages() for one in page} == {"over"}
