"""I3 to I6 and I10 for operators: any job can be finished or undone by anyone, at any time, as
often as it takes, and cleaning up harms nobody. Ages are the store's."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

import magic_committer as mc
from magic_committer import handles, wiring
from magic_committer.committers.magic.alive import ALIVE_SECONDS
from magic_committer.errors import PermissionDenied
from magic_committer.job import JOB_METADATA, State
from magic_committer.memory import MemoryStore, Request
from magic_committer.options import Mode
from magic_committer.pool import ThreadPool
from magic_committer.testing import PatientClock, memory_store
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    control,
    killed,
    unanswered,
    visible,
)

HOUR = 3600.0
DAY = 24 * HOUR
READS = {"get", "head", "list", "list_parts", "list_uploads"}
FILES = {"t/1.csv": b"1", "t/2.csv": b"22"}


class Crash(BaseException):
    """The process is gone."""


def crash() -> None:
    """Kill the actor here."""
    raise Crash


class Machine:
    """A store with a clock that the test moves, and jobs in any state on it."""

    def __init__(self, s3: MemoryStore, clock: PatientClock) -> None:
        self.s3 = s3
        self.clock = clock

    def job(self, state: str, *, job_id: str | None = None, mode: Mode = "append") -> mc.Job:
        """A job whose driver died while its record said ``state``: two tasks are committed, one was
        killed."""
        job = mc.start(DEST, job_id=job_id, mode=mode)
        for name in ("1", "2"):
            committed_task(job, name, {f"{name}.csv": name.encode() * int(name)})
        killed(job, "3", "3.csv", unique=True)
        if state == "running":
            return job
        if state in ("committing", "reverting", "reverted"):
            self._die(job.commit, "complete_upload", "t/2.csv")
        elif state == "completed":
            self._die(job.commit, "put", "t/_SUCCESS")
        elif state == "aborting":
            self._die(job.abort, "list", "")
        if state in ("reverting", "reverted"):
            verb, key = {
                "reverting": ("head", "t/1.csv"),
                "reverted": ("list", f"{job.id}/"),
            }[state]
            self._die(lambda: mc.abort(DEST, job.id, revert=True), verb, key)
        if state == "closed":
            mc.abort(DEST, job.id)
        assert mc.attach(DEST, job.id).state == state
        return job

    def _die(self, step: Callable[[], object], verb: str, key: str) -> None:
        at = At(self.s3, lambda r: r.verb == verb and r.key.endswith(key), crash)
        with pytest.raises(Crash):
            step()
        assert at.done
        self.s3.before = None

    def later(self, seconds: float) -> None:
        """Let time pass, for the store and everybody."""
        self.clock.ahead += seconds


@pytest.fixture
def machine() -> Iterator[Machine]:
    """An empty store."""
    clock = PatientClock()
    with memory_store(clock=clock) as s3:
        yield Machine(s3, clock)
        s3.before = s3.after = None


def left(s3: MemoryStore) -> list[str]:
    """Last elements of control objects."""
    return [key.rsplit("/", 1)[-1] for key in control(s3)]


ENDS = {
    "running": "aborted",
    "committing": "committed",
    "completed": "committed",
    "reverting": "reverted",
    "reverted": "reverted",
    "aborting": "aborted",
    "closed": "aborted",
}
STATES = sorted(ENDS)


# Recover ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_recover_finishes_what_was_decided_and_undoes_what_was_not(
    machine: Machine, state: str
) -> None:
    """I5: from every state, twice: all or nothing is visible, no upload is open, and of control
    objects the closed record alone is left."""
    job = machine.job(state)
    machine.later(2 * DAY)
    for found in (state, "closed"):
        recovery = mc.recover(DEST, job.id)
        assert (recovery.found, recovery.state) == (found, "closed")
        assert recovery.outcome == ENDS[state]
        assert visible(machine.s3) == (FILES if ENDS[state] == "committed" else {})
        assert left(machine.s3) == ["job.json"]
        assert machine.s3.open_uploads() == ()
    assert ("t/_SUCCESS" in machine.s3.keys()) == (ENDS[state] == "committed")
    assert json.loads(json.dumps(recovery.to_dict()))["outcome"] == ENDS[state]


@pytest.mark.parametrize("state", STATES)
def test_a_dry_run_only_reads(machine: Machine, state: str) -> None:
    """``dry_run`` and `inspect` send reads only, and say what would be done."""
    job = machine.job(state)
    machine.later(2 * DAY)
    before = {key: machine.s3.body(key) for key in machine.s3.keys()}
    uploads = machine.s3.open_uploads()
    machine.s3.requests.clear()
    recovery = mc.recover(DEST, job.id, dry_run=True)
    report = mc.cleanup(DEST, dry_run=True)
    (found,) = mc.inspect(DEST)
    assert set(machine.s3.requests) <= READS
    assert {key: machine.s3.body(key) for key in machine.s3.keys()} == before
    assert machine.s3.open_uploads() == uploads
    assert recovery.state == found.state == state
    assert recovery.did == found.would
    assert len(report.recovered) == (state != "closed")
    assert report.records_deleted == (state == "closed")


def test_a_running_job_that_may_be_alive_is_left(machine: Machine) -> None:
    """Whoever wants to recover a young running job is told its age and the limit; it stays."""
    job = machine.job("running")
    machine.later(5 * HOUR)
    with pytest.raises(mc.JobTooYoung, match="5 h") as raised:
        mc.recover(DEST, job.id)
    assert (round(raised.value.age / HOUR), raised.value.limit) == (5, DAY)
    assert mc.attach(DEST, job.id).state == "running"
    with pytest.raises(mc.JobTooYoung):
        mc.recover(DEST, job.id, older_than=timedelta(hours=6))
    assert mc.recover(DEST, job.id, older_than=timedelta(hours=4)).outcome == "aborted"


@pytest.mark.parametrize("skew", [-10 * DAY, 10 * DAY])
def test_ages_go_by_the_stores_clock(skew: float) -> None:
    """A machine whose clock is days off takes no live job for dead, and no dead one for alive."""
    stores, mine = PatientClock(), PatientClock()
    mine.ahead = skew
    store = MemoryStore("bucket", clock=stores.now)
    wiring.register_store(store, mine)
    try:
        job = mc.start(DEST)
        stores.ahead += DAY - 60
        with pytest.raises(mc.JobTooYoung):
            mc.recover(DEST, job.id)
        assert mc.cleanup(DEST).jobs_left == 1
        stores.ahead += 120
        assert [one.outcome for one in mc.cleanup(DEST).recovered] == ["aborted"]
    finally:
        wiring.unregister_store(store)


@pytest.mark.parametrize("limit", [-1, float("nan"), "1h", True])
def test_a_limit_is_a_duration(machine: Machine, limit: float) -> None:
    """A limit that is no duration is refused before anything is asked of the store."""
    with pytest.raises(mc.OptionError, match="older_than"):
        mc.recover(DEST, "j", older_than=limit)
    assert not machine.s3.requests


def test_recovering_a_job_without_record_does_nothing_and_claims_nothing(machine: Machine) -> None:
    """I10: an absent record is "unknown", unless the marker tells that the job committed."""
    unknown = mc.recover(DEST, "never-was")
    assert (unknown.state, unknown.outcome, unknown.found) == ("absent", "", "absent")
    assert "no record" in unknown.did
    with mc.write(DEST) as job, job.open("a.csv") as f:
        f.write(b"1")
    assert mc.recover(DEST, job.id).outcome == "committed"
    with pytest.raises(mc.JobNotFound):
        mc.abort(DEST, job.id)


def test_an_unresolved_key_is_named_and_taken_only_on_the_operators_word(machine: Machine) -> None:
    """I10: an upload that is gone without its object is never guessed about: recovery stops before
    ``completed``, names the key and both ways out, and goes on by either."""
    job = machine.job("committing")
    machine.s3.drop_upload(next(u.upload_id for u in machine.s3.open_uploads("t/2.csv")))
    (found,) = mc.inspect(DEST)
    assert (found.visible, found.missing) == (1, 1)
    assert "1 are unresolved" in found.would
    assert mc.recover(DEST, job.id, dry_run=True).unresolved == ("t/2.csv",)
    assert mc.recover(DEST, job.id, dry_run=True, accept=["t/2.csv"]).unresolved == ()
    for _ in range(2):
        with pytest.raises(mc.CommitIncomplete, match=r"accept=.*revert=True") as raised:
            mc.recover(DEST, job.id)
        assert raised.value.unresolved == ("t/2.csv",)
        assert mc.attach(DEST, job.id).state == "committing"
    assert "t/2.csv" in mc.cleanup(DEST, leftover_older_than=0).errors[0]
    with pytest.raises(mc.OptionError, match="list"):
        mc.recover(DEST, job.id, accept="t/2.csv")
    assert mc.recover(DEST, job.id, accept=["t/2.csv"]).outcome == "committed"
    assert set(visible(machine.s3)) == {"t/1.csv"}


def test_a_job_of_mode_fail_that_meets_others_data_is_undone(machine: Machine) -> None:
    """I5, I6: nothing is overwritten: what the job published goes, a neighbour's object stays."""
    job = machine.job("committing", mode="fail")
    machine.s3.put_object("t/2.csv", b"theirs")
    for found in ("committing", "closed"):
        recovery = mc.recover(DEST, job.id)
        assert (recovery.found, recovery.state, recovery.outcome) == (found, "closed", "reverted")
    assert visible(machine.s3) == {"t/2.csv": b"theirs"}
    assert machine.s3.open_uploads() == ()
    assert left(machine.s3) == ["job.json"]


def test_a_job_that_moves_on_while_it_is_recovered_is_obeyed(machine: Machine) -> None:
    """I5: the driver was not dead after all and commits between recovery's look and its swap:
    recovery rolls forward, and says so."""
    job = machine.job("running")
    machine.later(2 * DAY)
    at = At(machine.s3, lambda r: r.verb == "put" and r.key.endswith("job.json"), job.commit)
    recovery = mc.recover(DEST, job.id)
    assert at.done
    assert recovery.found == "running"
    assert recovery.outcome == "committed"
    assert visible(machine.s3) == FILES
    assert machine.s3.open_uploads() == ()


@pytest.mark.parametrize("state", ["running", "committing", "completed", "reverting", "aborting"])
def test_a_recovery_that_crashed_at_any_request_is_recovered(state: str) -> None:
    """I5: recovery killed before or after each of its requests, then done again: the same end."""
    for number in range(1, 200):
        for after in (False, True):
            clock = PatientClock()
            with memory_store(clock=clock) as s3:
                machine = Machine(s3, clock)
                job = machine.job(state)
                machine.later(2 * DAY)
                s3.requests.clear()
                at = At(s3, lambda r: s3.requests.total() == number, crash, after=after)  # noqa: B023
                with suppress(Crash):
                    mc.recover(DEST, job.id)
                s3.before = s3.after = None
                if at.done:
                    assert mc.recover(DEST, job.id, older_than=0).state == "closed"
                assert visible(s3) == (FILES if ENDS[state] == "committed" else {})
                assert left(s3) == ["job.json"]
                assert s3.open_uploads() == ()
        if not at.done:
            break
    assert 5 < number < 199


# Abort --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revert", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_abort_undoes_what_may_be_undone_and_refuses_the_rest(
    machine: Machine, state: str, revert: bool
) -> None:
    """I3, I7: a decided job is undone only on the operator's word, a completed one never; twice."""
    job = machine.job(state)
    refused = state == "completed" or (state == "committing" and not revert)
    for _ in range(2):
        if refused:
            with pytest.raises(mc.JobNotRunning) as raised:
                mc.abort(DEST, job.id, revert=revert)
            assert raised.value.outcome == "committed"
            continue
        outcome = "reverted" if state == "committing" else ENDS[state]
        assert mc.abort(DEST, job.id, revert=revert).outcome == outcome
        assert visible(machine.s3) == {}
        assert left(machine.s3) == ["job.json"]
        assert machine.s3.open_uploads() == ()


def test_a_driver_whose_job_was_recovered_is_told(machine: Machine) -> None:
    """I3, I10: a driver that was only asleep publishes nothing, nor do its tasks; it is told."""
    job = machine.job("running")
    asleep = job.task("4")
    file = asleep.open("4.csv")
    file.write(b"4")
    machine.later(2 * DAY)
    mc.recover(DEST, job.id)
    with pytest.raises(mc.JobNotRunning), asleep:
        file.close()
    with pytest.raises(mc.JobNotRunning) as raised:
        job.commit()
    assert raised.value.outcome == "aborted"
    assert visible(machine.s3) == {}
    assert left(machine.s3) == ["job.json"]
    assert machine.s3.open_uploads() == ()


# Inspect ------------------------------------------------------------------------------------------


def test_inspect_tells_what_is_pending_and_whose(machine: Machine) -> None:
    """Of each job: who, how old, how much; Hadoop's and litter told apart; what cannot be read is
    reported, not raised; streams are no jobs."""
    running = machine.job("running", job_id="run")
    machine.later(HOUR)
    with running.task("9") as task, task.open("x.csv") as f:
        f.write(b"12345")
        machine.later(60)
    s3 = machine.s3
    s3.put_object("t/__magic_job-hadoop/job-hadoop/00/tasks/a/__base/x", b"")
    s3.put_object("t/__magic/job-old/x.pendingset", b"{}")
    s3.put_object("t/__magic_job-litter/plan-1.json", b"{}", metadata={JOB_METADATA: "ab" * 16})
    s3.put_object("t/__magic_job-new/job.json", b'{"version":99}')
    s3.put_object("t/__magic_stream/q.json", b"{}")
    found = {job.id: job for job in mc.inspect(DEST)}
    assert {name: job.kind for name, job in found.items()} == {
        "run": "ours",
        "hadoop": "hadoop",
        "old": "hadoop",
        "litter": "litter",
        "new": "unreadable",
    }
    mine = found["run"]
    assert (mine.tasks, mine.files, mine.bytes) == (3, 3, 8)
    assert (mine.state, mine.mode, mine.accept, mine.track) == (
        "running",
        "append",
        "listing",
        "s3",
    )
    assert mine.age < 120
    assert mine.given_id
    assert "may be alive" in mine.would
    assert "Upgrade" in found["new"].problem
    json.dumps([job.to_dict() for job in found.values()])


def test_inspect_sees_files_that_no_task_has_committed(machine: Machine) -> None:
    """Closed files of attempts that never committed count as pending too."""
    job = mc.start(DEST)
    task = job.task("1")
    with task.open("a.csv") as f:
        f.write(b"123")
    (found,) = mc.inspect(DEST)
    assert (found.tasks, found.files, found.bytes) == (0, 1, 3)


def test_inspect_of_a_decided_job_goes_by_its_plan(machine: Machine) -> None:
    """A committing job tells its plan, how far it is, and who decided."""
    machine.job("committing")
    (found,) = mc.inspect(DEST)
    assert (found.tasks, found.files, found.bytes, found.visible, found.missing) == (2, 2, 3, 1, 0)
    assert found.role == "driver"
    assert found.pid > 0
    assert "complete 1 files of 2" in found.would


def test_one_unreadable_job_does_not_hide_the_others(machine: Machine) -> None:
    """A record that the store refuses is a ``problem`` of its own job, for inspect and cleanup."""
    job = machine.job("running")
    machine.s3.put_object("t/__magic_job-secret/job.json", b"{}")
    machine.later(2 * DAY)

    def refuse(request: Request) -> None:
        if request.verb == "get" and "secret" in request.key:
            raise PermissionDenied("no")

    machine.s3.before = refuse
    found = {one.id: one.problem for one in mc.inspect(DEST)}
    assert found == {"secret": "no", job.id: ""}
    report = mc.cleanup(DEST)
    assert [one.outcome for one in report.recovered] == ["aborted"]
    assert any("secret" in error for error in report.errors)


# Cleanup ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_cleanup_ends_what_is_dead_and_is_repeatable(machine: Machine, state: str) -> None:
    """I4, I5: a job in any state, after two days: ended; then its closed record goes."""
    machine.job(state)
    machine.later(2 * DAY)
    first = mc.cleanup(DEST)
    assert first.errors == ()
    assert visible(machine.s3) == (FILES if ENDS[state] == "committed" else {})
    assert machine.s3.open_uploads() == ()
    assert left(machine.s3) == ([] if state == "closed" else ["job.json"])
    second = mc.cleanup(DEST)
    assert (second.recovered, second.records_deleted) == ((), 0)
    machine.later(2 * DAY)
    assert mc.cleanup(DEST).records_deleted == (state != "closed")
    assert control(machine.s3) == []


def test_the_record_of_a_given_id_goes_only_on_the_operators_word(machine: Machine) -> None:
    """I2: a closed record of a given id keeps the id taken, until it is said that no process of the
    run lives."""
    machine.job("closed", job_id="nightly")
    machine.later(30 * DAY)
    assert mc.cleanup(DEST).records_deleted == 0
    with pytest.raises(mc.JobExists):
        mc.start(DEST, job_id="nightly")
    assert mc.cleanup(DEST, forget_given=True).records_deleted == 1
    assert control(machine.s3) == []


@pytest.mark.parametrize("state", STATES)
def test_cleanup_leaves_what_is_young(machine: Machine, state: str) -> None:
    """A cleanup right beside a driver at work, in whatever state, changes nothing."""
    machine.job(state)
    before = machine.s3.keys(), machine.s3.open_uploads()
    machine.s3.requests.clear()
    report = mc.cleanup(DEST)
    assert set(machine.s3.requests) <= READS
    assert (machine.s3.keys(), machine.s3.open_uploads()) == before
    assert report.did == ()
    assert report.errors == ()


def neighbourhood(s3: MemoryStore) -> tuple[set[str], set[str]]:
    """What belongs to others: keys, and ids of uploads."""
    spark = "ab" * 16
    keys = [
        "t/data.csv",
        "t/__magic_job-hadoop/job-hadoop/00/tasks/a/__base/x.pending",
        "t/__magic_job-hadoop/job-hadoop/00/task_1.pendingset",
        "t/__magic/job-1/task.pendingset",
        "t/__magic_stream/query.json",
        "t2/__magic_job-x/plan-1.json",
    ]
    for key in keys:
        s3.put_object(key, b"theirs")
    uploads = {
        s3.start_upload(key)
        for key in (
            "t/theirs.csv",
            f"t/part-{spark}.csv",
            f"t/part-xmcj{spark}.csv",
            f"t2/part-mcj{spark}.csv",
        )
    }
    return set(keys), uploads


def test_cleanup_touches_nothing_of_others(machine: Machine) -> None:
    """I6: Hadoop's jobs, streams, foreign objects and uploads, and neighbours whose names begin
    alike stay, however old."""
    keys, uploads = neighbourhood(machine.s3)
    machine.job("running")
    machine.later(100 * DAY)
    for _ in range(2):
        mc.cleanup(DEST, forget_given=True)
        machine.later(2 * DAY)
    assert set(machine.s3.keys()) == keys
    assert {u.upload_id for u in machine.s3.open_uploads()} == uploads


def test_uploads_of_jobs_that_are_over_go_by_name_after_an_hour(machine: Machine) -> None:
    """I4: what a task created after the sweep of its job is found by its name."""
    s3 = machine.s3
    with mc.write(DEST) as gone, gone.open("a.csv") as f:
        f.write(b"1")
    closed = mc.start(DEST, job_id="given")
    closed.abort()
    for uuid in (gone.job.uuid, closed.uuid):
        s3.start_upload(f"t/dt=1/late-mcj{uuid}.csv")
    report = mc.cleanup(DEST)
    assert (report.uploads_aborted, report.uploads_left) == (0, 2)
    machine.later(HOUR)
    _same_without_doing(s3)
    assert mc.cleanup(DEST).uploads_aborted == 2
    assert s3.open_uploads() == ()
    assert set(visible(s3)) == {"t/a.csv"}


def _same_without_doing(s3: MemoryStore) -> None:
    """A dry run counts what there is to do, and does none of it."""
    before = s3.keys(), s3.open_uploads()
    s3.requests.clear()
    report = mc.cleanup(DEST, dry_run=True)
    assert report.uploads_aborted + report.objects_deleted >= 2
    assert len(report.did) >= 2
    assert set(s3.requests) <= READS
    assert (s3.keys(), s3.open_uploads()) == before


def test_an_upload_without_an_age_is_left(machine: Machine) -> None:
    """I6: where the store does not say when an upload began, somebody may just be copying a file of
    that name: it stays. Beside a record or litter of its job, it has their age."""
    s3 = machine.s3

    def undated(request: Request, reply: object) -> object:
        if request.verb != "list_uploads" or not isinstance(reply, tuple):
            return None
        page, bound = reply
        uploads = tuple(replace(upload, initiated=None) for upload in page.uploads)
        return replace(page, uploads=uploads), bound

    closed = mc.start(DEST, job_id="given")
    closed.abort()
    mine = s3.start_upload(f"t/late-mcj{closed.uuid}.csv")
    unknown = s3.start_upload(f"t/late-mcj{'cd' * 16}.csv")
    machine.later(2 * HOUR)
    s3.after = undated
    report = mc.cleanup(DEST)
    assert (report.uploads_aborted, report.uploads_left) == (1, 1)
    s3.after = None
    assert [u.upload_id for u in s3.open_uploads()] == [unknown]
    assert mine != unknown


def test_a_live_job_of_a_directory_above_keeps_its_uploads(machine: Machine) -> None:
    """I6: the record of an upload's job may lie above the destination that is cleaned: it is looked
    for there, and where that is forbidden the upload stays."""
    above = mc.start("s3://bucket/")
    file = killed(above, "1", "t/dt=1/slow.csv", unique=True)
    machine.later(5 * HOUR)
    report = mc.cleanup(DEST)
    assert (report.uploads_aborted, report.uploads_left) == (0, 0)
    mc.abort("s3://bucket/", above.id)
    machine.s3.start_upload(f"t/dt=1/slow-mcj{above.uuid}.csv")
    machine.later(5 * HOUR)

    def forbid(request: Request) -> None:
        if request.verb == "list" and request.key == "__magic_job-":
            raise PermissionDenied("no")

    machine.s3.before = forbid
    report = mc.cleanup(DEST)
    assert (report.uploads_aborted, report.uploads_left) == (0, 1)
    assert "no" in report.errors[0]
    machine.s3.before = None
    assert mc.cleanup(DEST).uploads_aborted == 1
    file.abort()


def test_an_upload_that_is_completed_meanwhile_is_not_aborted(machine: Machine) -> None:
    """I2: a job commits between cleanup's first look at the uploads and its look at the records:
    it is over then, but its uploads became objects, and no abort is sent after them (on some stores
    that would cost the object)."""
    s3 = machine.s3
    job = mc.start(DEST, accept="results")
    with job.task("1") as task, task.open("a.csv", unique=True) as f:
        f.write(b"1")
    machine.later(5 * HOUR)
    at = At(s3, lambda r: r.verb == "list", lambda: job.commit([task.result]))
    aborts: list[str] = []

    def watch(request: Request, reply: object) -> None:
        if request.verb == "abort_upload":
            aborts.append(request.key)

    s3.after = watch
    report = mc.cleanup(DEST)
    assert at.done
    assert (aborts, report.uploads_aborted, report.errors) == ([], 0, ())
    assert len(visible(s3)) == 1


def test_litter_goes_by_its_token_with_the_uploads_that_it_names(machine: Machine) -> None:
    """I4: a pendingset that a zombie stored after the sweep is taken an hour later, with its upload
    of a name that the user chose; an upload of it that was completed is left alone."""
    s3 = machine.s3
    job = mc.start(DEST, track="memory", accept="results")
    zombie = job.task("2")
    with zombie.open("zombie.csv") as f:
        f.write(b"z")
    kept: list[tuple[str, bytes, dict[str, str]]] = []

    def keep(request: Request, reply: object) -> None:
        if request.verb == "put" and request.key.endswith(".pendingset"):
            attributes = s3.attributes(request.key)
            kept.append((request.key, s3.body(request.key), dict(attributes.metadata)))

    s3.after = keep
    accepted = committed_task(job, "1", {"a.csv": b"1"})
    zombie.commit()
    s3.after = None
    doomed = s3.open_uploads("t/zombie.csv")
    job.commit([accepted])
    assert s3.open_uploads() == ()
    for key, body, metadata in kept:
        s3.put_object(key, body, metadata=metadata)
    revived = _open_again(s3, doomed[0].key, doomed[0].upload_id)
    aborts: list[str] = []
    s3.before = lambda r: aborts.append(r.key) if r.verb == "abort_upload" else None
    assert mc.cleanup(DEST).objects_deleted == 0
    machine.later(HOUR)
    _same_without_doing(s3)
    report = mc.cleanup(DEST)
    assert (report.objects_deleted, report.uploads_aborted, report.errors) == (2, 1, ())
    assert aborts == ["t/zombie.csv"]
    assert revived
    assert control(s3) == []
    assert visible(s3) == {"t/a.csv": b"1"}
    assert s3.open_uploads() == ()


def _open_again(s3: MemoryStore, key: str, upload_id: str) -> bool:
    """Give an aborted upload its life back, as a Create that landed after the sweep would."""
    fresh = s3.start_upload(key)
    held = s3._bucket.uploads
    upload = held.pop(fresh)
    upload.upload_id = upload_id
    held[upload_id] = upload
    s3._bucket._upload_ids[upload.number] = upload_id
    return True


def test_two_cleanups_at_once_do_no_harm() -> None:
    """I5: a second cleanup before each request of the first, over jobs in every state: the end is
    that of one."""
    for number in range(1, 400):
        clock = PatientClock()
        with memory_store(clock=clock) as s3:
            machine = Machine(s3, clock)
            mine = machine.job("committing")
            machine.job("running", job_id="r")
            machine.later(2 * DAY)
            s3.requests.clear()
            second: list[mc.CleanupReport] = []
            at = At(
                s3,
                lambda r: s3.requests.total() == number,  # noqa: B023
                lambda: second.append(mc.cleanup(DEST)),  # noqa: B023
            )
            first = mc.cleanup(DEST)
            s3.before = None
            assert first.errors == ()
            assert at.done == (len(second) == 1)
            assert all(report.errors == () for report in second)
            assert visible(s3) == FILES
            assert left(s3) == ["job.json", "job.json"]
            assert s3.open_uploads() == ()
            assert mc.attach(DEST, mine.id).outcome == "committed"
        if not at.done:
            break
    assert 20 < number < 399


def test_a_cleanup_that_crashed_at_any_request_is_done_by_the_next() -> None:
    """I5: cleanup killed before or after each of its requests, over jobs in several states, litter
    and closed records: the next one comes to the same end."""
    for number in range(1, 400):
        for after in (False, True):
            clock = PatientClock()
            with memory_store(clock=clock) as s3:
                machine = Machine(s3, clock)
                for state in ("running", "committing", "closed"):
                    job = machine.job(state)
                    s3.start_upload(f"t/late-mcj{job.uuid}.csv")
                plan = f"{job.dest.removeprefix('s3://bucket/')}__magic_job-{job.id}/plan-1.json"
                s3.put_object(plan, b"{}", metadata={JOB_METADATA: job.uuid})
                machine.later(2 * DAY)
                s3.requests.clear()
                at = At(s3, lambda r: s3.requests.total() == number, crash, after=after)  # noqa: B023
                with suppress(Crash):
                    mc.cleanup(DEST)
                s3.before = s3.after = None
                machine.later(HOUR)  # what the dead one has decided looks young until then
                assert mc.cleanup(DEST).errors == ()
                assert visible(s3) == FILES
                assert left(s3) == ["job.json", "job.json"]
                assert s3.open_uploads() == ()
        if not at.done:
            break
    assert 40 < number < 399


def test_a_store_that_fails_for_one_job_does_not_stop_the_others(machine: Machine) -> None:
    """What fails is in the report, the rest is done, and the next cleanup does what was left."""
    machine.job("running")
    other = machine.job("running", job_id="other")
    machine.later(2 * DAY)
    At(machine.s3, lambda r: r.verb == "list" and r.key.endswith("other/"), unanswered)
    report = mc.cleanup(DEST)
    assert len(report.errors) == 1
    assert mc.attach(DEST, other.id).state == "running"
    assert len(report.recovered) == 1
    again = mc.cleanup(DEST)
    assert again.errors == ()
    assert machine.s3.open_uploads() == ()
    json.dumps(again.to_dict())


def test_a_dead_driver_with_live_tasks_leaves_nothing(machine: Machine) -> None:
    """I3, I4: tasks that live on after their driver died meet the fence of cleanup's decision."""
    job = mc.start(DEST)
    tasks = [job.task(str(number)) for number in range(3)]
    files = [task.open(f"{task.task_id}.csv") for task in tasks]
    for file in files:
        file.write(b"1")
    machine.later(2 * DAY)
    assert mc.cleanup(DEST).recovered[0].outcome == "aborted"
    for task, file in zip(tasks, files, strict=True):
        with pytest.raises(mc.JobNotRunning), task:
            file.close()
    assert visible(machine.s3) == {}
    assert left(machine.s3) == ["job.json"]
    assert machine.s3.open_uploads() == ()


# Signs of life ------------------------------------------------------------------------------------


class Ticker(ThreadPool):
    """A pool whose time passes when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.ticking: list[Callable[[], bool]] = []
        self.seconds: list[float] = []

    def every(self, seconds: float, function: Callable[[], bool]) -> Callable[[], None]:
        """Keep the function."""
        self.ticking.append(function)
        self.seconds.append(seconds)
        return lambda: self.ticking.remove(function) if function in self.ticking else None

    def tick(self) -> list[bool]:
        """Let the period pass."""
        return [function() for function in self.ticking]


@pytest.fixture
def ticker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticker]:
    """The process's pool, with a ticker."""
    pool = Ticker()
    monkeypatch.setattr(wiring, "pool", pool)
    yield pool
    pool.close()


def test_a_sign_of_life_keeps_a_long_job_alive(machine: Machine, ticker: Ticker) -> None:
    """A job that is silent for days but for its sign is left by cleanup, and tells who drives it;
    its commit sweeps the sign."""
    with mc.write(DEST) as job:
        file = job.open("a.csv")
        file.write(b"1")
        machine.later(2 * DAY)
        assert ticker.tick() == [True]
        assert ticker.seconds == [ALIVE_SECONDS]
        machine.later(HOUR)
        assert mc.cleanup(DEST).jobs_left == 1
        (found,) = mc.inspect(DEST)
        assert found.pid > 0
        assert "alive.json" in left(machine.s3)
        file.close()
    assert ticker.ticking == []
    assert visible(machine.s3) == {"t/a.csv": b"1"}
    assert control(machine.s3) == []


def test_the_sign_of_life_ends_with_an_aborted_job(machine: Machine, ticker: Ticker) -> None:
    """Leaving ``with write`` by exception ends the sign too."""
    with pytest.raises(ZeroDivisionError), mc.write(DEST):
        assert ticker.tick() == [True]
        raise ZeroDivisionError
    assert ticker.ticking == []
    assert control(machine.s3) == []


@pytest.mark.parametrize("state", STATES)
def test_a_late_sign_of_life_takes_itself_back(
    machine: Machine, ticker: Ticker, state: str
) -> None:
    """I4: a driver that was paused gives its sign after the sweep: it reads the record, and unless
    the job lives, leaves nothing and stops."""
    job = machine.job(state)
    end = job.keep_alive()
    lives = State(state) in (State.RUNNING, State.COMMITTING, State.REVERTING)
    assert ticker.tick() == [lives]
    assert ("alive.json" in left(machine.s3)) == lives
    end()


def test_a_sign_whose_put_or_read_fails_leaves_nothing_behind(
    machine: Machine, ticker: Ticker
) -> None:
    """I4: an unanswered PUT is looked after like an answered one; a record that cannot be read
    takes the sign back, and the next one is given."""
    job = machine.job("running")
    job.keep_alive()
    At(machine.s3, lambda r: r.key.endswith("alive.json"), unanswered, after=True)
    assert ticker.tick() == [True]
    assert "alive.json" in left(machine.s3)
    machine.s3.after = None
    At(machine.s3, lambda r: r.verb == "get", unanswered)
    assert ticker.tick() == [True]
    assert "alive.json" not in left(machine.s3)
    assert ticker.tick() == [True]
    job.abort()
    At(machine.s3, lambda r: r.key.endswith("alive.json"), unanswered, after=True)
    assert ticker.tick() == [False]
    assert "alive.json" not in left(machine.s3)


def test_signs_are_given_by_a_thread_that_ends_with_the_job(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real pool: signs come while the job runs, no thread outlives it, nor a job that is
    dropped."""
    monkeypatch.setattr(handles, "ALIVE_SECONDS", 0.005)
    given = threading.Semaphore(0)

    def count(request: Request, reply: object) -> None:
        if request.verb == "put" and request.key.endswith("alive.json"):
            given.release()

    def tickers() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name.endswith("-every")]

    s3.after = count
    with mc.write(DEST):
        assert given.acquire(timeout=30)
        assert given.acquire(timeout=30)
        (thread,) = tickers()
    thread.join(timeout=30)
    assert not thread.is_alive()
    dropped = mc.write(DEST).__enter__()
    (thread,) = tickers()
    del dropped
    gc.collect()
    thread.join(timeout=30)
    assert not thread.is_alive()
