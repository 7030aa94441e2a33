"""I6: who takes away what is over looks whether it still is, at the last moment before it acts."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.uploads import Clearing, OpenUploads, Places
from magic_committer.options import Options
from magic_committer.protocol.record import JOB_METADATA
from tests.hadoops import leave_job
from tests.promises.hands import DEST, At, committed_task, failing, raises, refusing, visible
from tests.promises.machine import DAY, STATES, Machine


@pytest.mark.parametrize("state", STATES)
def test_only_a_closed_job_is_over(machine: Machine, state: str) -> None:
    """I2, I6: any other may need its uploads; a job that no record there or above holds is over."""
    job = machine.job(state)
    for directory in ("t/", "t/dt=1/hour=2/"):
        places = Places(machine.runtime, in_flight=1)
        assert places.is_over(directory, job.uuid) is (state == "closed")
        assert places.is_over(directory, "0" * 32) is True


def test_a_listing_that_takes_long_makes_a_job_no_older(machine: Machine) -> None:
    """I6: between two pages of it a day passes, in which what the first showed may have changed."""
    job = machine.job("running")
    s3 = machine.s3
    s3._bucket.page_keys = 1
    assert len(s3.keys(f"t/__magic_job-{job.id}/")) > 2  # and so many pages
    with At(s3, f"list *{job.id}*", lambda: machine.later(DAY), nth=2):
        raises(mc.JobTooYoung, mc.recover, DEST, job.id, dead_after=DAY)
    assert mc.attach(DEST, job.id).state == "running"


def test_a_job_that_is_set_up_while_litter_is_looked_at_keeps_its_objects(machine: Machine) -> None:
    """I6: cleanup deletes in a directory without a record, and a job of that id begins there."""
    s3 = machine.s3
    litter = "t/__magic_job-given/left.txt"
    s3.put(litter, b"", metadata={JOB_METADATA: "e" * 32})
    started: list[tuple[mc.Job, mc.TaskCommit]] = []

    def set_up() -> None:
        s3.delete_one(litter)
        job = mc.start(DEST, job_id="given")
        started.append((job, committed_task(job, "1", {"a.csv": b"1"})))

    At(s3, "get *given/_job.json", set_up, after=True)
    mc.cleanup(DEST, leftover_after=0)
    ((job, result),) = started
    assert job.commit([result]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}


def survey_of(machine: Machine, sizes: bool = False) -> OpenUploads:
    one = Options(commit_threads=1)
    return OpenUploads(machine.runtime, Destination.parse(DEST), sizes=sizes, options=one)


def clearing(machine: Machine) -> tuple[mc.Job, Clearing]:
    """A job that has been silent for days, and the plan to abort its three uploads."""
    job = machine.job("running")
    machine.later(2 * DAY)
    plan = Clearing(survey_of(machine, sizes=True))
    assert (plan.chosen.total(), list(plan.jobs)) == (3, [job.uuid])
    return job, plan


@pytest.mark.parametrize("meanwhile", ["nothing", "it says that it lives", "it is decided"])
def test_a_dead_job_is_aborted_with_all_its_uploads(machine: Machine, meanwhile: str) -> None:
    """I2, I6: unless between plan and deed it changes something, or is decided: then all stays."""
    (job, plan), s3 = clearing(machine), machine.s3
    if meanwhile == "it says that it lives":
        sign = f"t/__magic_job-{job.id}/_alive.json"
        s3.put(sign, b"{}", metadata={JOB_METADATA: job.uuid})
    elif meanwhile == "it is decided":
        with refusing(s3, "complete_upload", mc.StoreError), pytest.raises(mc.CommitIncomplete):
            job.commit()
    done = {(one.action, one.why.partition(":")[0]) for one in plan.run()}
    if meanwhile == "nothing":
        assert {action for action, _ in done} == {"aborted"}
        assert (mc.attach(DEST, job.id).state, s3.open_uploads()) == ("closed", ())
    elif meanwhile == "it is decided":
        assert done == {("left", "its job is committing")}
        assert mc.recover(DEST, job.id).outcome == "committed"
        assert set(visible(s3)) == {"t/1.csv", "t/2.csv"}
    else:
        assert done == {("left", "its job lives")}
        assert (mc.attach(DEST, job.id).state, len(s3.open_uploads())) == ("running", 3)


@pytest.mark.parametrize("beside", ["what cannot be listed", "a job of Hadoop's", "our litter"])
def test_what_nothing_names_may_be_a_live_jobs_that_is_near(machine: Machine, beside: str) -> None:
    """I6: one whose directory cannot be listed, or Hadoop's; but not that of our own litter."""
    s3 = machine.s3
    s3.start_upload("t/nobodys.csv")
    directory = ""
    if beside == "a job of Hadoop's":
        leave_job(s3, "3.4.1", unfinished=True)
    else:
        directory = f"t/__magic_job-{machine.job('running').id}/"
        if beside == "our litter":
            s3.delete_object(f"{directory}_job.json")
        else:
            machine.later(2 * DAY)
            failing(s3, "list", directory, mc.PermissionDenied("not this one", status=403))
    survey = survey_of(machine)
    (found,) = (one for one in survey if one.key == "t/nobodys.csv")
    assert (found.owner_class, found.near) == ("foreign", beside != "our litter")
    told = [directory in problem for problem in survey.problems]
    assert told == ([True] if beside == "what cannot be listed" else [])


@pytest.mark.parametrize("state", ["aborting", "reverted"])
def test_a_job_that_is_only_to_be_swept_is_over_however_young(machine: Machine, state: str) -> None:
    """Nothing of it becomes visible any more: its uploads are not those of a live job."""
    machine.job(state)
    survey = survey_of(machine)
    assert {one.owner_class for one in survey} == {"over"}
