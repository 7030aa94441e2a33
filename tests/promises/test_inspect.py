"""What `inspect` tells of jobs is so, whatever state they are in."""

from __future__ import annotations

import json

import magic_committer as mc
from magic_committer.maintenance.inspect import Listing, measure, with_token
from magic_committer.protocol.record import JOB_METADATA
from tests.promises.hands import DEST, At, one_file, raising, write
from tests.promises.machine import DAY, YOUNG, Machine


def test_inspect_tells_what_is_pending_and_whose(machine: Machine) -> None:
    """What cannot be read is reported, not raised; streams are no jobs."""
    running = machine.job("running", job_id="run")
    machine.later(YOUNG)
    with running.task("9") as task:
        write(task, "x.csv", b"12345")
        machine.later(60)
    s3 = machine.s3
    s3.put_object("t/__magic_job-hadoop/job-hadoop/00/tasks/a/__base/x", b"")
    s3.put_object("t/__magic/job-old/x.pendingset", b"{}")
    s3.put_object("t/__magic_job-litter/_plan-1.json", b"{}", metadata={JOB_METADATA: "ab" * 16})
    s3.put_object("t/__magic_job-new/_job.json", b'{"version":99}')
    s3.put_object("t/__magic_stream/_q.json", b"{}")
    found = {job.id: job for job in mc.inspect(DEST)}
    kinds = {"run": "ours", "hadoop": "hadoop", "old": "hadoop", "litter": "litter"}
    assert {name: job.kind for name, job in found.items()} == {**kinds, "new": "unreadable"}
    mine = found["run"]
    assert (mine.tasks, mine.files, mine.bytes, mine.given_id) == (3, 3, 8, True)
    terms = (mine.state, mine.mode, mine.accept, mine.track)
    assert terms == ("running", "append", "listing", "s3")
    assert mine.age < 120
    assert "may be alive" in mine.would
    assert "Upgrade" in found["new"].problem
    told = [job.to_dict() for job in found.values()]
    assert json.loads(json.dumps(told)) == told
    assert not any(name.startswith("_") for one in told for name in one)  # how it is reached


def test_inspect_sees_files_that_no_task_has_committed(machine: Machine) -> None:
    """Closed files of attempts that never committed count as pending too."""
    one_file(mc.start(DEST))
    (found,) = mc.inspect(DEST)
    assert (found.tasks, found.files, found.bytes) == (0, 1, 1)


def test_inspect_of_a_decided_job_goes_by_its_plan(machine: Machine) -> None:
    """A committing job tells its plan, how far it is, and who decided."""
    machine.job("committing")
    (found,) = mc.inspect(DEST)
    assert (found.tasks, found.files, found.bytes, found.visible, found.missing) == (2, 2, 3, 1, 0)
    assert found.role == "driver"
    assert found.pid > 0
    assert "complete 1 file of 2" in found.would


def test_one_unreadable_job_does_not_hide_the_others(machine: Machine) -> None:
    """A record that the store refuses is a ``problem`` of its own job, for inspect and cleanup."""
    job = machine.job("running")
    machine.s3.put_object("t/__magic_job-secret/_job.json", b"{}")
    machine.later(2 * DAY)
    machine.s3.before = raising("get *secret*", mc.PermissionDenied)
    assert {one.id: one.problem for one in mc.inspect(DEST)} == {"secret": "refused", job.id: ""}
    report = mc.cleanup(DEST)
    assert [one.outcome for one in report.recovered] == ["aborted"]
    assert any("secret" in error for error in report.errors)


def test_a_set_that_goes_while_a_job_is_measured_hides_no_other(machine: Machine) -> None:
    """An attempt takes its set away just then: what the other tasks have saved is counted."""
    job = machine.job("running")
    directory = f"t/__magic_job-{job.id}/"
    sets = sorted(key for key in machine.s3.keys() if key.endswith(".pendingset"))
    assert len(sets) == 2
    with At(machine.s3, f"get {sets[0]}", lambda: machine.s3.delete_object(sets[0])):
        found = measure(machine.runtime, Listing(machine.runtime, directory))
    assert (len(found.tasks), found.files, found.problems) == (1, 1, 0)


def test_an_object_that_goes_while_tokens_are_looked_for_carries_none(machine: Machine) -> None:
    """It is in the listing and not there any more: no reason to give up the look."""
    machine.s3.put_object("t/__magic_job-x/a.txt")
    with At(machine.s3, "head", lambda: machine.s3.delete_object("t/__magic_job-x/a.txt")):
        assert with_token(machine.runtime, "t/__magic_job-x/") == ""


def test_what_cannot_be_read_hides_nothing_else(machine: Machine) -> None:
    """A damaged pendingset that is listed first: the others are counted, and the job is told of."""
    machine.job("running", job_id="run")
    (whole,) = mc.inspect(DEST)
    machine.s3.put_object("t/__magic_job-run/job-run/00/_0.pendingset", b"{")
    (found,) = mc.inspect(DEST)
    assert found.problem
    assert (found.tasks, found.files) == (whole.tasks, whole.files) == (2, 2)
