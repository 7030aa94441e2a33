"""Single lines of the library that could be taken away, or turned round, without any test failing:
found by `tests/mutants`, and each has a test now that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

import magic_committer as mc
from magic_committer import options
from magic_committer._pool import ThreadPool
from magic_committer._runtime import Runtime
from magic_committer.commit import records, sweep
from magic_committer.commit.deletes import DELETE_TRIES_MAX, delete_if_same
from magic_committer.commit.pendingset import PUT_TRIES_MAX
from magic_committer.committers.magic import tree
from magic_committer.errors import (
    InvalidRequest,
    NotSupported,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.maintenance.inspect import Listing, measure, with_token
from magic_committer.maintenance.uploads import Scope, Survey
from magic_committer.protocol.record import JOB_METADATA, JobRecord, State, Terms
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.costly import costly_store
from tests.hadoops import leave_job
from tests.promises.hands import DEST, At, committed_task, failing, killed, visible
from tests.promises.machine import DAY, Machine


class Killed(BaseException):
    """The process is gone."""


def kill() -> None:
    """Be killed here."""
    raise Killed


def killed_at(s3: MemoryStore, verb: str, key: str, job: mc.Job) -> None:
    """The driver of a job is killed while it commits, before such a request."""
    failing(s3, verb, key, Killed)
    with pytest.raises(Killed):
        job.commit()
    s3.before = None


# Beside other jobs --------------------------------------------------------------------------------


def test_an_append_that_is_listed_first_hides_no_other_job(s3: MemoryStore) -> None:
    """I6: a running append excludes nobody, and the look at the other jobs goes on behind it."""
    mc.start(DEST, job_id="a")
    mc.start(DEST, job_id="b", mode="replace")
    with pytest.raises(mc.ConflictingJob, match="job 'b'"):
        mc.start(DEST, job_id="c", mode="replace")


def test_an_append_that_is_listed_first_hides_no_plan(s3: MemoryStore) -> None:
    """I6: a running append has no partitions of its own, and the look at the plans goes on behind
    it: of two jobs of one partition the second is refused."""
    mc.start(DEST, job_id="a")
    first, second = (mc.start(DEST, job_id=name, mode="fail_partitions") for name in "bc")
    for job in (first, second):
        committed_task(job, "1", {f"p=1/{job.id}.csv": b"1"})
    killed_at(s3, "complete_upload", "t/p=1/b.csv", first)
    with pytest.raises(mc.ConflictingJob, match="job 'b'"):
        second.commit()
    assert visible(s3) == {}


def test_old_data_that_another_deletes_just_then_stops_no_replace(s3: MemoryStore) -> None:
    """I7: an object that a decided append is about to rewrite goes between the listing and the look
    whose it is: it is nobody's, and the replace commits."""
    s3.put_object("t/a.csv", b"old")
    append = mc.start(DEST)
    committed_task(append, "1", {"a.csv": b"a"})
    killed_at(s3, "complete_upload", "t/a.csv", append)
    replace = mc.start(DEST, mode="replace")
    committed_task(replace, "1", {"r.csv": b"r"})
    at = At(
        s3,
        lambda r: (r.verb, r.key) == ("head", "t/a.csv"),
        lambda: s3.delete_object("t/a.csv"),
    )
    assert replace.commit().outcome == "committed"
    assert at.done
    assert visible(s3) == {"t/r.csv": b"r"}


def test_what_a_decided_append_publishes_is_no_reason_to_list_again(s3: MemoryStore) -> None:
    """The second listing of a replace shows a file that a live, decided append has just made
    visible: whose it is is known, and two listings are enough."""
    append = mc.start(DEST)
    committed_task(append, "1", {"a.csv": b"a"})
    killed_at(s3, "complete_upload", "t/a.csv", append)
    replace = mc.start(DEST, mode="replace")
    committed_task(replace, "1", {"r.csv": b"r"})
    listings = 0

    def goes_on() -> None:
        failing(s3, "put", "t/_SUCCESS", Killed)
        with pytest.raises(Killed):
            mc.recover(DEST, append.id)
        s3.before = None

    def before(request: Request) -> None:
        nonlocal listings
        listings += (request.verb, request.key) == ("list", "t/")
        if listings == 2 and "t/a.csv" not in s3.keys():
            goes_on()
            s3.before = before

    s3.before = before
    assert replace.commit().outcome == "committed"
    s3.before = None
    assert listings == 2
    assert set(visible(s3)) == {"t/a.csv", "t/r.csv"}


# The record ---------------------------------------------------------------------------------------


def record_of(job_id: str) -> JobRecord:
    """The first version of a job's record."""
    return JobRecord(
        id=job_id, uuid="0" * 32, state=State.RUNNING, nonce="1" * 32, terms=Terms(),
        given_id=True, started=0.0,
    )  # fmt: skip


def creates(runtime: Runtime, seen: records.Seen) -> object:
    """A new record beside the one that is there."""
    return records.create(runtime, "t/__magic_job-new/_job.json", record_of("new"))


def swaps(runtime: Runtime, seen: records.Seen) -> object:
    """The record that is there moves on."""
    return records.swap(runtime, seen, seen.record.step(State.ABORTING, "2" * 32))


@pytest.mark.parametrize("write", [creates, swaps])
def test_a_record_that_is_written_again_is_waited_for_longer_each_time(
    s3: MemoryStore, write: Callable[[Runtime, records.Seen], object]
) -> None:
    """A store that does not answer is not pressed: half a second, then twice as long each time, and
    no wait behind the last try."""
    clock = PatientClock()
    runtime = Runtime(s3, pool=ThreadPool(0), clock=clock)
    seen = records.create(runtime, "t/__magic_job-j/_job.json", record_of("j")).seen

    def before(request: Request) -> None:
        if request.verb == "put":
            raise Unanswered("no answer")

    s3.before = before
    with pytest.raises(OutcomeUnknown):
        write(runtime, seen)
    assert clock.ahead == 0.5 + 1 + 2 + 4 + 8


def test_a_swap_without_conditions_whose_record_is_gone_is_unknown(s3: MemoryStore) -> None:
    """I10: with ``conditional_writes="off"`` a PUT gets no answer, and then there is no record: it
    may have been written and deleted."""
    runtime = Runtime(s3, pool=ThreadPool(0), clock=PatientClock())
    record = replace(record_of("j"), terms=Terms(conditional_writes="off"))
    seen = records.create(runtime, "t/__magic_job-j/_job.json", record).seen

    def lost() -> None:
        s3.delete_object(seen.key)
        raise Unanswered("no answer")

    At(s3, lambda r: r.verb == "put", lost)
    with pytest.raises(OutcomeUnknown):
        swaps(runtime, seen)


def test_without_conditions_too_a_record_is_created_once(s3: MemoryStore) -> None:
    """I2: with ``conditional_writes="off"`` the record that is there is read first, and another run
    of the id does not overwrite it."""
    runtime = Runtime(s3, pool=ThreadPool(0), clock=PatientClock())
    record = replace(record_of("j"), terms=Terms(conditional_writes="off"))
    seen = records.create(runtime, "t/__magic_job-j/_job.json", record).seen
    with pytest.raises(mc.JobExists):
        records.create(runtime, seen.key, replace(record, uuid="3" * 32, nonce="4" * 32))
    now = records.read(runtime, seen.key)
    assert now is not None
    assert now.record.uuid == record.uuid


def test_a_record_that_another_has_deleted_is_gone(s3: MemoryStore) -> None:
    """I4: a delete that meets a conflict, and then finds no record, has come to its end."""
    runtime = Runtime(s3, pool=ThreadPool(0), clock=PatientClock())
    seen = records.create(runtime, "t/__magic_job-j/_job.json", record_of("j")).seen

    def another() -> None:
        s3.delete_object(seen.key)
        raise WriteConflict("another deletes it")

    At(s3, lambda r: r.verb == "delete_one", another)
    assert records.remove(runtime, seen)


@pytest.mark.parametrize(
    ("answer", "deleted"),
    [(PreconditionFailed, False), (WriteConflict, False), (InvalidRequest, True),
     (NotSupported, True)],
)  # fmt: skip
def test_a_plain_delete_is_sent_only_where_the_condition_is_called_wrong(
    s3: MemoryStore, answer: type[StoreError], deleted: bool
) -> None:
    """I6: a store that refuses `If-Match` each time, for a reason of the object's, gets no DELETE
    without it: another writer may be about to replace the object."""
    etag = s3.put_object("t/old.csv", b"old")

    def before(request: Request) -> None:
        if request.verb == "delete_one" and request.if_match is not None:
            raise answer("each time")

    s3.before = before
    runtime = Runtime(s3, pool=ThreadPool(0), clock=PatientClock())
    if deleted:
        assert delete_if_same(runtime, "t/old.csv", etag)
    else:
        with pytest.raises(answer):
            delete_if_same(runtime, "t/old.csv", etag)
    assert (s3.keys() == ()) is deleted


@pytest.mark.parametrize("answer", [InvalidRequest, NotSupported])
@pytest.mark.parametrize("times", range(1, DELETE_TRIES_MAX - 1))
def test_an_odd_refusal_of_a_condition_sends_no_plain_delete(
    s3: MemoryStore, answer: type[StoreError], times: int
) -> None:
    """I6: a store that calls the condition wrong now and then knows it: every DELETE carries it."""
    etag = s3.put_object("t/old.csv", b"old")
    conditions: list[str | None] = []

    def before(request: Request) -> None:
        if request.verb == "delete_one":
            conditions.append(request.if_match)
            if len(conditions) <= times:
                raise answer("odd")

    s3.before = before
    runtime = Runtime(s3, pool=ThreadPool(0), clock=PatientClock())
    assert delete_if_same(runtime, "t/old.csv", etag)
    assert (s3.keys(), conditions) == ((), [etag] * (times + 1))


def test_a_driver_whose_job_another_has_committed_and_forgotten_asks_the_marker(
    s3: MemoryStore,
) -> None:
    """I10: another process commits the job while its driver lists the sets, and the record is
    deleted: the driver, which finds no set of its task, is told by `_SUCCESS` that it is done."""
    job = mc.start(DEST)
    committed_task(job, "1", {"a.csv": b"a"})

    def commits() -> None:
        assert mc.attach(DEST, job.id).commit().outcome == "committed"
        s3.delete_object(f"t/__magic_job-{job.id}/_job.json")

    tree = f"t/__magic_job-{job.id}/job-{job.id}/"
    at = At(s3, lambda r: r.verb == "list" and r.key.startswith(tree), commits)
    assert job.commit(expect=1).outcome == "committed"
    assert at.done


def test_a_job_counts_what_its_tasks_counted(s3: MemoryStore) -> None:
    """The statistics of the report, and those in `_SUCCESS`, hold the sums of all tasks."""
    job = mc.start(DEST)
    committed_task(job, "1", {"a.csv": b"a", "b.csv": b"b"})
    committed_task(job, "2", {"c.csv": b"c"})
    report = job.commit()
    marker = orjson.loads(s3.body("t/_SUCCESS"))
    for found in (report.statistics, marker["iostatistics"]):
        assert found["counters"]["committer_magic_files_created"] == 3


# The sweep ----------------------------------------------------------------------------------------


def test_as_many_uploads_as_a_report_names_are_told_of_no_more(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each upload that is left is named in a warning, and none is said to be left beside them."""
    monkeypatch.setattr(sweep, "NAMED_MAX", 2)
    job = mc.start(DEST)
    committed_task(job, "1", {"a.csv": b"a", "b.csv": b"b"})

    def before(request: Request) -> None:
        if request.verb == "abort_upload":
            raise PermissionDenied("not now", status=403)

    s3.before = before
    warnings = job.abort().warnings
    s3.before = None
    assert [("t/a.csv" in one, "t/b.csv" in one) for one in warnings] == [
        (True, False),
        (False, True),
    ]


def test_an_abort_of_a_running_job_looks_for_no_object(s3: MemoryStore) -> None:
    """Nobody can have completed an upload of a job that never was decided: its uploads are aborted
    and proved gone, and no request is sent for what they might have become."""
    job = mc.start(DEST)
    committed_task(job, "1", {"a.csv": b"a"})
    looked: list[str] = []
    s3.before = lambda r: looked.append(r.key) if r.verb == "head" else None
    job.abort()
    s3.before = None
    assert "t/a.csv" not in looked
    assert s3.open_uploads() == ()


def test_an_upload_of_the_plan_that_is_listed_still_hides_no_other() -> None:
    """I4: a listing that lags behind shows what the job has completed, and behind it the upload of
    a killed attempt: that one is aborted."""
    with costly_store() as s3:
        job = mc.start(DEST)
        committed_task(job, "1", {"a.csv": b"a"})
        killed(job, "2", "z.csv", unique=True)
        s3.lags = True
        job.commit()
        assert s3.open_uploads() == ()
        assert visible(s3) == {"t/a.csv": b"a"}


# The revert ---------------------------------------------------------------------------------------


def test_the_same_bytes_of_another_writer_survive_a_revert(machine: Machine) -> None:
    """I6: another program writes the same bytes at the key, in parts too, after the revert has seen
    the job's own object there: the ETag is the same, and the time is not: the object stays."""
    s3 = machine.s3
    job = machine.job("committing")
    heads = 0

    def after(request: Request, reply: object) -> None:
        nonlocal heads
        heads += (request.verb, request.key) == ("head", "t/1.csv")
        if heads == 2:
            s3.after = None
            machine.later(10)
            upload = s3.start_upload("t/1.csv")
            part = s3.put_part("t/1.csv", upload, 1, memoryview(b"1"))
            s3.complete_upload("t/1.csv", upload, [part], length=1, checksum=None)

    s3.after = after
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert s3.after is None
    assert visible(s3) == {"t/1.csv": b"1"}


def test_a_file_that_is_there_again_after_its_delete_was_left_is_not_reverted(
    machine: Machine,
) -> None:
    """I3: the job's own file is stored once more between the revert's look and its DELETE, as by a
    Complete that was on its way: the DELETE leaves it, and the job is not told to be reverted."""
    s3 = machine.s3
    job = machine.job("committing")
    heads = 0

    def again(request: Request, reply: object) -> None:
        nonlocal heads
        heads += (request.verb, request.key) == ("head", "t/1.csv")
        if heads == 2:
            s3.after = None
            machine.later(10)
            s3.put_object("t/1.csv", b"1", metadata=s3.attributes("t/1.csv").metadata)

    s3.after = again
    with pytest.raises(mc.AbortIncomplete, match=r"t/1\.csv was not deleted"):
        mc.abort(DEST, job.id, revert=True)
    assert visible(s3) == {"t/1.csv": b"1"}
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert visible(s3) == {}


# Operators ----------------------------------------------------------------------------------------


def test_a_cleanup_that_finishes_nothing_still_aborts_the_dead(machine: Machine) -> None:
    """I4: ``finish=False`` is about decided jobs: a running one whose driver is dead is aborted."""
    machine.job("running")
    machine.later(2 * DAY)
    report = mc.cleanup(DEST, finish=False)
    assert [found.state for found in report.recovered] == ["closed"]
    assert report.unfinished == ()
    assert machine.s3.open_uploads() == ()


@pytest.mark.parametrize("answer", [PermissionDenied, NotSupported])
def test_a_cleanup_that_cannot_list_uploads_still_ends_the_dead(
    machine: Machine, answer: type[StoreError]
) -> None:
    """I4: that uploads could not be listed is told, and everything else is done."""
    job = mc.start(DEST)
    committed_task(job, "1", {"a.csv": b"a"})
    killed_at(machine.s3, "complete_upload", "t/a.csv", job)
    machine.later(2 * DAY)

    def before(request: Request) -> None:
        if request.verb == "list_uploads":
            raise answer("no listing")

    machine.s3.before = before
    report = mc.cleanup(DEST)
    machine.s3.before = None
    assert any("list" in error for error in report.errors)
    assert visible(machine.s3) == {"t/a.csv": b"a"}


def test_a_job_that_another_ends_during_a_cleanup_is_no_error(machine: Machine) -> None:
    """Its record is gone when the cleanup is about to finish it: there is nothing to do, and
    nothing to complain of."""
    s3 = machine.s3
    job = machine.job("committing")
    machine.later(2 * DAY)
    record = f"t/__magic_job-{job.id}/_job.json"
    reads = 0

    def before(request: Request) -> None:
        nonlocal reads
        reads += (request.verb, request.key) == ("get", record)
        if reads == 2:
            s3.before = None
            assert mc.recover(DEST, job.id).outcome == "committed"
            s3.delete_object(record)

    s3.before = before
    report = mc.cleanup(DEST)
    assert [found.state for found in report.recovered] == ["absent"]
    assert report.errors == ()


@pytest.mark.parametrize("end", [mc.abort, mc.recover])
def test_the_record_says_that_an_operator_has_decided(
    machine: Machine, end: Callable[..., object]
) -> None:
    """I10: a driver whose job an operator has aborted reads in its error that it was no driver."""
    job = machine.job("running", job_id="given")
    machine.later(2 * DAY)
    end(DEST, "given")
    with pytest.raises(mc.JobNotRunning, match="decided by recovery on"):
        job.commit()


def test_a_recovery_leaves_the_closed_records_of_others(machine: Machine) -> None:
    """A driver deletes some old ones on its way; who recovers one job touches that job only."""
    closed = machine.job("closed")
    machine.later(2 * DAY)
    mc.recover(DEST, machine.job("committing").id)
    assert f"t/__magic_job-{closed.id}/_job.json" in machine.s3.keys()


def test_a_dry_recovery_of_a_job_without_record_says_that_it_is_one(s3: MemoryStore) -> None:
    """Whoever reads the result knows that nothing was tried."""
    assert mc.recover(DEST, "nobody", dry_run=True).dry_run


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_recovery_tells_whose_it_was(machine: Machine, dry_run: bool) -> None:
    """The UUID of the job is in the result, by which its uploads and objects are known; and whether
    anything was done."""
    job = machine.job("committing")
    told = mc.recover(DEST, job.id, dry_run=dry_run)
    assert (told.uuid, told.dry_run) == (job.uuid, dry_run)


def test_litter_that_cannot_be_read_goes_and_is_told(machine: Machine) -> None:
    """What it names can never be known: it is deleted with its token as the only reason, and an
    error says that uploads may stay."""
    litter = "t/__magic_job-gone/left.pendingset"
    machine.s3.put_object(litter, b"{", metadata={JOB_METADATA: "e" * 32})
    machine.later(2 * DAY)
    report = mc.cleanup(DEST)
    assert machine.s3.keys() == ()
    assert report.objects_deleted == 1
    assert [litter in error for error in report.errors] == [True]


def nobodys(machine: Machine) -> tuple[tuple[str, bool], list[str]]:
    """How a survey sees the upload ``t/nobodys.csv``: its class, and whether a live job is near;
    and what the survey could not see."""
    runtime = Runtime(machine.s3, pool=ThreadPool(0), clock=machine.clock)
    survey = Survey(runtime, Scope.parse(DEST), in_flight=1)
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


def test_a_file_outside_the_destination_is_no_file_of_a_dead_jvm(s3: MemoryStore) -> None:
    """I6: a set of an adopted job names a key elsewhere, where there is an object of the same size:
    the job has nothing visible, and is aborted."""
    hadoops = leave_job(s3, "3.5.0")
    mc.adopt(DEST, "hadoops", dead_after=0)
    document = orjson.loads(s3.body(hadoops.sets[0]))
    commit = document["commits"][0]
    commit["destinationKey"] = "elsewhere/x.csv"
    commit["uri"] = "s3a://bucket/elsewhere/x.csv"
    s3.put_object("elsewhere/x.csv", b"x" * commit["length"])
    s3.put_object(hadoops.sets[0], orjson.dumps(document))
    assert mc.abort(DEST, "hadoops").outcome == "aborted"


@pytest.mark.parametrize("state", ["aborting", "reverted"])
def test_a_job_that_is_only_to_be_swept_is_over_however_young(machine: Machine, state: str) -> None:
    """Nothing of it becomes visible any more: its uploads are not those of a live job."""
    machine.job(state)
    runtime = Runtime(machine.s3, pool=ThreadPool(0), clock=machine.clock)
    survey = Survey(runtime, Scope.parse(DEST), in_flight=1)
    assert {one.owner_class for page in survey.pages() for one in page} == {"over"}


def test_a_set_that_goes_while_a_job_is_measured_hides_no_other(machine: Machine) -> None:
    """An attempt takes its set away just then: what the other tasks have saved is counted."""
    job = machine.job("running")
    directory = f"t/__magic_job-{job.id}/"
    sets = sorted(key for key in machine.s3.keys() if key.endswith(".pendingset"))
    assert len(sets) == 2
    runtime = Runtime(machine.s3, pool=ThreadPool(0), clock=machine.clock)
    at = At(
        machine.s3,
        lambda r: (r.verb, r.key) == ("get", sets[0]),
        lambda: machine.s3.delete_object(sets[0]),
    )
    found = measure(runtime, Listing(runtime, directory))
    assert at.done
    assert (len(found.tasks), found.files, found.problems) == (1, 1, 0)


def test_an_object_that_goes_while_tokens_are_looked_for_carries_none(machine: Machine) -> None:
    """It is in the listing and not there any more: no reason to give up the look."""
    machine.s3.put_object("t/__magic_job-x/a.txt")
    runtime = Runtime(machine.s3, pool=ThreadPool(0), clock=machine.clock)
    at = At(
        machine.s3,
        lambda r: r.verb == "head",
        lambda: machine.s3.delete_object("t/__magic_job-x/a.txt"),
    )
    assert with_token(runtime, "t/__magic_job-x/") == ""
    assert at.done


# Attempts -----------------------------------------------------------------------------------------


def shared_file(job: mc.Job) -> mc.Task:
    """An attempt that others may share, with one closed file."""
    task = job.task("1", attempt="a")
    with task.open("a.csv") as f:
        f.write(b"1")
    return task


def test_a_task_takes_the_checksum_that_its_job_has_agreed_on(s3: MemoryStore) -> None:
    """A process that attaches to the job without its options writes parts that the job can
    complete."""
    job = mc.start(DEST, options=mc.Options(checksum="CRC32C"))
    committed_task(mc.attach(DEST, job.id), "1", {"a.csv": b"a"})
    (upload,) = s3.open_uploads()
    (part,) = s3.list_parts(upload.key, upload.upload_id)
    assert part.checksum is not None
    assert part.checksum.algorithm == "CRC32C"


def test_processes_with_different_packages_write_one_job(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default each process takes the checksum that it computes fastest: a file of a worker
    without awscrt has another one than its neighbour, and the job completes both with theirs."""
    job = mc.start(DEST)
    used = []
    for task, algorithm in (("1", "CRC32"), ("2", "CRC32C")):
        monkeypatch.setattr(options, "fastest", lambda algorithm=algorithm: algorithm)
        committed_task(mc.attach(DEST, job.id), task, {f"{task}.csv": b"1"})
    for upload in s3.open_uploads():
        used += [part.checksum for part in s3.list_parts(upload.key, upload.upload_id)]
    assert {one.algorithm for one in used if one} == {"CRC32", "CRC32C"}
    assert job.commit().outcome == "committed"
    assert visible(s3) == {"t/1.csv": b"1", "t/2.csv": b"1"}


def test_large_pendings_are_not_read_side_by_side(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a task's commit holds of its tree is bounded in bytes, whatever the number of
    threads."""
    monkeypatch.setattr(tree, "LOADING_BYTES_MAX", 1)
    job = mc.start(DEST)
    task = job.task("1", attempt="a")
    for name in "abcd":
        with task.open(f"{name}.csv") as f:
            f.write(b"1")
    lock = threading.Lock()
    now = most = 0

    def before(request: Request) -> None:
        nonlocal now, most
        if request.verb == "get" and request.key.endswith(".pending"):
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.02)  # so that the others come, if they are let
            with lock:
                now -= 1

    s3.before = before
    assert mc.attach(DEST, job.id).task("1", attempt="a").commit().files == 4
    s3.before = None
    assert most == 1


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_late_attempt_is_undone_though_its_set_cannot_be_read(
    s3: MemoryStore, unreadable: bool
) -> None:
    """I4: the job is being aborted and nobody accepts anything any more: what is at the key of the
    set does not matter, and the attempt's upload goes."""
    job = mc.start(DEST)
    task = shared_file(job)
    At(s3, lambda r: r.verb == "list", kill)
    with pytest.raises(Killed):
        mc.abort(DEST, job.id)
    s3.before = None
    key = f"t/__magic_job-{job.id}/job-{job.id}/00/_{task.attempt_id}.pendingset"
    if unreadable:
        s3.put_object(key, b"{", metadata={JOB_METADATA: job.uuid})
    else:
        failing(s3, "get", key, PermissionDenied("not this one", status=403))
    with pytest.raises(mc.JobNotRunning):
        task.commit()
    s3.before = None
    assert s3.open_uploads() == ()


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


def test_a_pending_that_cannot_be_read_fails_its_attempt(s3: MemoryStore) -> None:
    """I2: the attempt is not committed without that file, and the error is one of the task."""
    job = mc.start(DEST)
    shared_file(job)
    (key,) = (key for key in s3.keys() if key.endswith(".pending"))
    s3.put_object(key, b"{", metadata={JOB_METADATA: job.uuid})
    with pytest.raises(mc.TaskFailed, match=r"a\.csv\.pending"):
        mc.attach(DEST, job.id).task("1", attempt="a").commit()


def test_a_set_that_cannot_be_read_when_a_file_is_closed_costs_no_file(s3: MemoryStore) -> None:
    """I2: whether the attempt is committed already cannot be told: the file is closed and stays
    saved, for whoever commits the attempt or ends the job."""
    job = mc.start(DEST)
    task = job.task("1", attempt="a")
    key = f"t/__magic_job-{job.id}/job-{job.id}/00/_{task.attempt_id}.pendingset"
    with task.open("a.csv") as f:
        f.write(b"1")
        s3.put_object(key, b"{", metadata={JOB_METADATA: job.uuid})
    assert [one for one in s3.keys() if one.endswith("a.csv.pending")]
    assert len(s3.open_uploads("t/a.csv")) == 1


def test_an_attempt_whose_result_nobody_has_leaves_no_tombstone(s3: MemoryStore) -> None:
    """I4: nobody else can commit it: its commit, which gets no answer, undoes it by a look at its
    set, and claims nothing."""
    job = mc.start(DEST, track="memory", accept="results")
    task = job.task("1")
    with task.open("a.csv") as f:
        f.write(b"1")
    puts = 0

    def before(request: Request) -> None:
        nonlocal puts
        if request.verb == "put" and request.key.endswith(".pendingset"):
            puts += 1
            if puts <= PUT_TRIES_MAX:
                raise Unanswered("no answer")

    s3.before = before
    with pytest.raises(mc.StoreError):
        task.commit()
    s3.before = None
    assert puts == PUT_TRIES_MAX
    assert s3.open_uploads() == ()
    assert s3.keys() == (f"t/__magic_job-{job.id}/_job.json",)


def test_an_upload_that_cannot_be_aborted_keeps_no_other_open(s3: MemoryStore) -> None:
    """I4: the abort of an attempt goes on behind a failure, and raises it at its end."""
    task = mc.start(DEST).task("1")
    for name in ("a.csv", "b.csv"):
        task.open(name).write(b"1")
    failing(s3, "abort_upload", "t/a.csv", PermissionDenied("not this one", status=403))
    with pytest.raises(PermissionDenied):
        task.abort()
    s3.before = None
    assert [upload.key for upload in s3.open_uploads()] == ["t/a.csv"]
    task.abort()
    assert s3.open_uploads() == ()
