"""I4: closed records do not pile up, and none goes that somebody may still ask for."""

from __future__ import annotations

from contextlib import suppress

import pytest

import magic_committer as mc
from magic_committer.commit.register import DELETED_MAX, IN_FLIGHT, LOOKED_AT_MAX, forget_some
from magic_committer.errors import PermissionDenied, StoreError, Unanswered
from magic_committer.options import Mode
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.promises.hands import (
    DEST,
    At,
    Fits,
    committed_task,
    control,
    dies_at,
    failing,
    job_of,
    noted,
    raises,
    record_of,
    refusing,
    visible,
    write,
)
from tests.promises.machine import DAY, Machine

NO_CHANCE = (PermissionDenied("no", status=403), Unanswered("no answer"))


def closed(number: int = 1, dest: str = DEST) -> list[str]:
    """So many jobs of drawn ids that another process ended: keys of their records."""
    jobs = [mc.start(dest, mark_success=False) for _ in range(number)]
    for job in jobs:
        mc.abort(dest, job.id)
    return [
        f"{job.dest.removeprefix('s3://bucket/')}__magic_job-{job.id}/_job.json" for job in jobs
    ]


def leaving(job_id: str | None = None) -> mc.Job:
    """A job that leaves a closed record: another process commits it."""
    job = mc.start(DEST, job_id=job_id)
    committed_task(job, "1", {f"{job.id}.csv": b"1"})
    assert mc.attach(DEST, job.id).commit().outcome == "committed"
    return job


def nightly(name: str) -> mc.Job:
    """A run of an id, of which a task has committed."""
    run = mc.start(DEST, job_id="nightly")
    with run.task("1", attempt="a") as task:
        write(task, name)
    return run


def next_run(machine: Machine) -> mc.Job:
    """30 days later: the id is used again."""
    machine.later(30 * DAY)
    leaving()
    machine.s3.delete_object("t/_SUCCESS")
    return nightly("1.csv")


def test_records_that_are_not_a_day_old_stay(machine: Machine) -> None:
    """By the store's clock: a driver may still ask. Some seconds after the day they go."""
    keys = set(closed(2))
    machine.clock.ahead += DAY - 60  # a loaded machine takes seconds for what follows
    first = leaving()
    assert keys < set(control(machine.s3))
    machine.clock.ahead += 62
    second = leaving()
    assert set(control(machine.s3)) == {record_of(first), record_of(second)}


def test_records_of_given_ids_stay_for_thirty_days(machine: Machine) -> None:
    """I4: also of one that looks drawn; then any job deletes them, and the id starts a new one."""
    names = ["batch-1", "f" * 32]
    for name in names:
        mc.start(DEST, job_id=name).abort()
    machine.later(29 * DAY)
    leaving()
    assert set(map(record_of, names)) < set(control(machine.s3))
    machine.later(DAY)
    job = leaving()
    assert control(machine.s3) == [record_of(job)]
    assert mc.start(DEST, job_id="batch-1").state == "running"


@pytest.mark.parametrize("paused_at", ["complete_upload", "list"])
def test_who_slept_until_its_id_was_free_harms_no_job(machine: Machine, paused_at: str) -> None:
    """I2, I6: the set and the files of the next job of its id, 30 days later, stay."""
    runs = [nightly("0.csv")]

    def meanwhile() -> None:
        mc.recover(DEST, "nightly")
        runs.append(next_run(machine))

    def fits(request: Request) -> bool:
        sweeps = request.key == "t/__magic_job-nightly/" and "t/0.csv" in visible(machine.s3)
        return request.verb == paused_at and (sweeps or paused_at != "list")

    with At(machine.s3, fits, meanwhile), suppress(mc.OutcomeUnknown):  # its record is gone
        runs[0].commit()
    assert runs[1].commit(expect=1).files == 1
    assert {"t/0.csv", "t/1.csv"} < set(visible(machine.s3))


@pytest.mark.parametrize("committed", [True, False])
def test_who_slept_is_told_nothing_of_the_next_job(machine: Machine, committed: bool) -> None:
    """I10: the record is of the job that has the id now: nobody can tell any more."""
    runs = [nightly("0.csv")]

    def meanwhile() -> None:
        mc.abort(DEST, "nightly", revert=True)
        runs.append(next_run(machine))
        if committed:
            mc.attach(DEST, "nightly").commit()
            machine.s3.delete_object("t/_SUCCESS")

    with At(machine.s3, "complete_upload", meanwhile):
        raises(mc.OutcomeUnknown, runs[0].commit)
    assert runs[1].commit().outcome == "committed"
    assert "t/1.csv" in visible(machine.s3)
    assert "t/0.csv" not in visible(machine.s3)


def test_an_abort_that_slept_aborts_nothing_of_the_next_job(machine: Machine) -> None:
    """I6: it read that its own job runs, and slept; the next one is decided, and not reverted."""
    mc.start(DEST, job_id="nightly")

    def meanwhile() -> None:
        mc.abort(DEST, "nightly")
        dies_at(machine.s3, "complete_upload", next_run(machine).commit)

    At(machine.s3, lambda r: r.verb == "put" and r.if_match is not None, meanwhile)
    raises(mc.OutcomeUnknown, mc.abort, DEST, "nightly", revert=True)
    assert mc.attach(DEST, "nightly").state == "committing"


@pytest.mark.parametrize("state", ["running", "committing", "completed", "reverting", "aborting"])
def test_records_of_jobs_that_are_not_over_stay(machine: Machine, state: str) -> None:
    """However old: recovery needs them."""
    job = machine.job(state)
    machine.later(30 * DAY)
    leaving()
    assert mc.attach(DEST, job.id).state == state


def test_a_job_that_deletes_its_own_record_pays_nothing(machine: Machine) -> None:
    """The undisturbed driver of a drawn id reads no record of others, and leaves them."""
    keys = closed(3)
    machine.later(DAY)
    looks = noted(machine.s3, lambda r: r.key in keys)
    with mc.write(DEST) as job:
        write(job)
    assert control(machine.s3) == sorted(keys)
    assert not looks


def test_the_work_is_bounded_and_shared(machine: Machine) -> None:
    """One job reads so many records and deletes so many; the next ones do the rest."""
    total = LOOKED_AT_MAX + 30
    keys = set(closed(total))
    machine.later(DAY)
    reads = noted(machine.s3, lambda r: r.verb == "get" and r.key in keys)
    jobs = [leaving()]
    left = keys & set(control(machine.s3))
    assert total - len(left) == DELETED_MAX  # more of them may be read, none is deleted more
    assert len(reads) <= LOOKED_AT_MAX
    while keys & set(control(machine.s3)):
        jobs.append(leaving())
        assert len(jobs) < 20
    assert set(control(machine.s3)) == {record_of(job) for job in jobs}


@pytest.mark.parametrize("start", [0, 60, None])
def test_the_look_begins_at_its_own_place_and_goes_on(machine: Machine, start: int | None) -> None:
    """Jobs of different ids do different work: each reads what is behind its own record."""
    keys = sorted(closed(LOOKED_AT_MAX + 20))
    machine.later(DAY)
    # A dash sorts before the slash that ends an id.
    leaving("zz" if start is None else keys[start].split("/")[1][len("__magic_job-") :] + "-")
    gone = set(keys) - set(control(machine.s3))
    first = start or 0
    assert len(gone) >= DELETED_MAX
    assert gone <= set(keys[first : first + DELETED_MAX + IN_FLIGHT])


@pytest.mark.parametrize("error", NO_CHANCE)
@pytest.mark.parametrize("verb", ["list", "get", "delete_one"])
def test_its_failure_is_not_the_jobs(machine: Machine, verb: str, error: StoreError) -> None:
    """What cannot be listed, read or deleted is left to the next; no warning is made of it."""
    keys = closed(2)
    machine.later(DAY)
    job = job_of({"a.csv": b"1"}, job_id="j")
    ours: Fits = lambda r: r.verb == verb and r.key in (*keys, "t/__magic_job-")  # noqa: E731
    with refusing(machine.s3, ours, error):
        report = job.commit()
    assert (report.outcome, report.state, report.warnings) == ("committed", "closed", ())
    assert set(keys) <= set(machine.s3.keys())  # it was hit
    leaving()
    assert not set(keys) & set(machine.s3.keys())


@pytest.mark.parametrize("mode", ["fail", "replace"])
@pytest.mark.parametrize("error", NO_CHANCE)
def test_a_job_that_reads_all_records_anyway_takes_old_ones_along(
    machine: Machine, mode: Mode, error: StoreError
) -> None:
    """The look of an excluding job at the others does, and where the DELETE fails it goes on."""
    keys = closed(3)
    machine.later(DAY)
    failing(machine.s3, "delete_one", keys[0], error)
    with mc.write(DEST, mode=mode) as job:
        write(job)
    assert control(machine.s3) == [keys[0]]


def test_the_look_of_a_job_that_excludes_deletes_so_many_and_no_more(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job that comes next goes on where the first one stopped."""
    monkeypatch.setattr("magic_committer.commit.conflict.CLOSED_TIDIED_MAX", 2)
    keys = set(closed(5))
    machine.later(DAY)
    for left in (3, 1, 0):
        mc.start(DEST, mode="replace").abort()
        assert len(keys & set(control(machine.s3))) == left


def test_a_look_that_is_no_tidying_deletes_none(machine: Machine) -> None:
    """A job by partition looks at the others' plans again when it commits: that look reads only."""
    job = job_of({"p=1/a.csv": b"1"}, mode="replace_partitions")
    keys = closed(2)
    machine.later(DAY)
    deletes = noted(machine.s3, lambda r: r.verb == "delete_one" and r.key in keys)
    job.commit()
    assert not deletes


def test_a_record_that_changes_between_read_and_delete_stays(machine: Machine) -> None:
    """It goes by If-Match: what somebody wrote there since is theirs."""
    (key,) = closed()
    machine.later(DAY)
    with At(machine.s3, f"delete_one {key}", lambda: machine.s3.put_object(key, b"another's")):
        leaving()
    assert machine.s3.body(key) == b"another's"


@pytest.mark.parametrize("dest", ["s3://bucket", "s3://bucket/t"])
def test_only_records_of_the_own_destination_go(machine: Machine, dest: str) -> None:
    """Above, below and beside is others' work; the bucket's root is a destination too."""
    beside = ["s3://bucket/t/sub", "s3://bucket/t2", *{"s3://bucket", DEST} - {dest}]
    elsewhere = {key for one in beside for key in closed(1, one)}
    own = closed(2, dest)
    machine.later(DAY)
    job = mc.start(dest, job_id="j")
    committed_task(job, "1", {"a.csv": b"1"})
    job.commit()
    keys = set(machine.s3.keys())
    assert elsewhere <= keys
    assert not set(own) & keys


def test_a_hadoop_directory_and_a_newer_record_are_passed_over(machine: Machine) -> None:
    """What is no closed record of ours is left as it is."""
    others = [record_of("a" * 32), record_of("b" * 32), f"t/__magic_job-{'c' * 32}/x.pendingset"]
    for key, body in zip(others, (b"{}", b"", b""), strict=True):
        machine.s3.put_object(key, body)
    closed(1)
    machine.later(DAY)
    job = leaving()
    assert set(control(machine.s3)) == {*others, record_of(job)}


def test_the_look_at_closed_records_goes_round_once(s3: MemoryStore) -> None:
    """Each other record is read once, and one's own never."""
    keys = sorted(closed(5))
    reads = noted(s3, "get")
    assert forget_some(Runtime(s3, pool=ThreadPool(0), clock=PatientClock()), keys[2]) == 0
    assert sorted(request.key for request in reads) == [*keys[:2], *keys[3:]]
