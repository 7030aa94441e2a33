"""I4 and I6: cleaning up takes what dead jobs left and old records, and harms nobody."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.commit.register import DELETED_MAX, IN_FLIGHT, LOOKED_AT_MAX, forget_some
from magic_committer.errors import NotSupported, PermissionDenied, StoreError, Unanswered
from magic_committer.hadoop.paths import unique_name
from magic_committer.options import Mode
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.costly import costly_store
from tests.promises.hands import (
    DEST,
    At,
    Fits,
    committed_task,
    control,
    dies_at,
    failing,
    job_of,
    killed,
    noted,
    open_ids,
    raises,
    raising,
    record_of,
    refusing,
    remains,
    visible,
    write,
)
from tests.promises.machine import DAY, ENDS, FILES, READS, STATES, YOUNG, Machine, deaths
from tests.promises.situations import contents
from tests.tree_bucket import jobs_of_renames, tree_bucket


@pytest.mark.parametrize(
    ("below", "hidden", "left"),
    [(False, "", 1), (False, "t/a/", 3), (True, "", 1), (True, "t/a/", 3), (True, "t/", 1)],
)
def test_jobs_of_destinations_below_are_cleaned_if_asked(
    machine: Machine, kind: str, below: bool, hidden: str, left: int
) -> None:
    """One report tells of all, and counts each upload once, though each place sees those below it;
    a place that cannot be listed stops no other."""
    places = ("t/", "t/a/", "t/b/")
    for place in places:
        write(mc.start(f"s3://bucket/{place}").task("1"), "left.csv", unique=True)
        over = mc.start(f"s3://bucket/{place}", job_id="over")
        over.abort()
        machine.s3.start_upload(f"{place}{unique_name('late.csv', over.uuid)}")
    machine.s3.start_upload("t/b/others.csv")
    if kind == "s3":  # a disk has no such path
        machine.s3.put_object("t/x//__magic_job-1/_job.json", b"{}")
    machine.later(8 * DAY)
    machine.s3.start_upload(f"t/b/{unique_name('young.csv', over.uuid)}")
    cleaned = [f"s3://bucket/{place}" for place in places if place != hidden]
    if hidden:
        machine.s3.before = raising(f"list {hidden}__magic*", mc.PermissionDenied)
    before = contents(machine.s3)
    for dry_run in (True, False):
        assert contents(machine.s3) == before
        report = mc.cleanup(DEST, below=below, dry_run=dry_run)
        assert [one.dest for one in report.recovered] == (cleaned if below else cleaned[:1])
        assert (report.dest, report.dry_run, report.uploads_nameless) == (f"{DEST}/", dry_run, 1)
        assert (report.uploads_aborted, report.uploads_left) == (len(cleaned), left)
        assert (f"s3://bucket/{hidden}: refused" in report.errors) == (below and bool(hidden))
        assert any("t/x//" in error for error in report.errors) == (below and kind == "s3")


@pytest.mark.parametrize("state", STATES)
def test_cleanup_ends_what_is_dead_and_is_repeatable(machine: Machine, state: str) -> None:
    """I4, I5: a job in any state, after two days: ended; then its closed record goes."""
    machine.job(state)
    machine.later(2 * DAY)
    assert mc.cleanup(DEST).errors == ()
    files = FILES if ENDS[state] == "committed" else {}
    assert remains(machine.s3) == (files, [], [] if state == "closed" else ["_job.json"])
    second = mc.cleanup(DEST)
    assert (second.recovered, second.records_deleted) == ((), 0)
    machine.later(2 * DAY)
    assert mc.cleanup(DEST).records_deleted == (state != "closed")
    assert control(machine.s3) == []


def test_the_record_of_a_given_id_goes_after_thirty_days(machine: Machine) -> None:
    """I2, I4: until then it keeps the id taken, unless the operator says another age."""
    for job_id in ("nightly", "weekly"):
        machine.job("closed", job_id=job_id)
    machine.later(29 * DAY)
    assert mc.cleanup(DEST).records_deleted == 0
    raises(mc.JobExists, mc.start, DEST, job_id="nightly")
    machine.later(DAY)
    assert mc.cleanup(DEST, forget_given_after=40 * DAY).records_deleted == 0
    assert mc.cleanup(DEST).records_deleted == 2
    assert control(machine.s3) == []


@pytest.mark.parametrize("state", STATES)
def test_cleanup_leaves_what_is_young(machine: Machine, state: str) -> None:
    """A cleanup right beside a driver at work, in whatever state, changes nothing."""
    machine.job(state)
    before = contents(machine.s3)
    machine.s3.requests.clear()
    report = mc.cleanup(DEST)
    assert set(machine.s3.requests) <= READS
    assert contents(machine.s3) == before
    assert (report.did, report.errors) == ((), ())
    machine.later(2 * DAY)
    assert mc.cleanup(DEST).did


def test_cleanup_touches_nothing_of_others(machine: Machine) -> None:
    """I6: Hadoop's jobs, streams, foreign objects and names that begin alike stay, however old."""
    s3, uuid = machine.s3, "ab" * 16
    for key in (
        "t/data.csv",
        "t/__magic_job-hadoop/job-hadoop/00/tasks/a/__base/x.pending",
        "t/__magic_job-hadoop/job-hadoop/00/task_1.pendingset",
        "t/__magic/job-1/task.pendingset",
        "t/__magic_stream/_query.json",
        "t2/__magic_job-x/_plan-1.json",
    ):
        s3.put_object(key, b"theirs")
    for name in ("t/theirs", f"t/part-{uuid}", f"t/part-xmcj{uuid}", f"t2/part-mcj{uuid}"):
        s3.start_upload(f"{name}.csv")
    before = contents(s3)
    machine.job("running")
    machine.later(100 * DAY)
    for _ in range(2):
        mc.cleanup(DEST, forget_given_after=0)
        machine.later(2 * DAY)
    assert contents(s3) == before


def _same_without_doing(s3: MemoryStore) -> int:
    """A dry run counts what there is to do, and does none of it; of uploads the number."""
    before = contents(s3)
    s3.requests.clear()
    report = mc.cleanup(DEST, dry_run=True)
    assert report.uploads_aborted + report.objects_deleted >= 2
    assert len(report.did) >= 2
    assert set(s3.requests) <= READS
    assert contents(s3) == before
    return report.uploads_aborted


def test_uploads_of_jobs_that_are_over_go_by_name_when_they_are_old(machine: Machine) -> None:
    """I4: what a task created after the sweep of its job is found by its name."""
    s3 = machine.s3
    with mc.write(DEST) as gone:
        write(gone)
    closed = mc.start(DEST, job_id="given")
    closed.abort()
    for uuid in (gone.job.uuid, closed.uuid):
        s3.start_upload(f"t/dt=1/late-mcj{uuid}.csv")
    report = mc.cleanup(DEST)
    assert (report.uploads_aborted, report.uploads_left) == (0, 2)
    machine.later(YOUNG)
    assert _same_without_doing(s3) == mc.cleanup(DEST).uploads_aborted == 2
    assert remains(s3)[:2] == ({"t/a.csv": b"1"}, [])


def test_an_upload_on_a_disk_is_known_by_its_mark_whatever_its_name(tmp_path: Path) -> None:
    """I4, I6: it goes as one with a job's name does: when it is old, and its job is over."""
    clock = PatientClock()
    with tree_bucket(tmp_path, "bucket", clock=clock) as store:
        others = store.start_upload("t/others.csv")
        closed, gone, live = (mc.start(DEST, job_id=name) for name in ("closed", "gone", "live"))
        for job in (closed, gone, live):
            killed(job, "1", f"{job.id}.csv")
        gone.abort()
        store.delete_object(record_of(gone))
        assert closed.abort().unattributed == 4
        assert mc.cleanup(DEST).uploads_left == 2
        clock.ahead += 2 * YOUNG
        assert mc.cleanup(DEST, dry_run=True).uploads_aborted == 2
        report = mc.cleanup(DEST)
        assert (report.uploads_aborted, report.uploads_left) == (2, 0)
        assert [one.key for one in store.open_uploads()] == ["t/live.csv", "t/others.csv"]
        clock.ahead += 8 * DAY
        assert mc.cleanup(DEST).uploads_nameless == 1  # and the live one's job is dead by now
        assert mc.cleanup(DEST).uploads_aborted == 1
        assert open_ids(store) == {others}


def test_an_upload_without_an_age_is_left(machine: Machine) -> None:
    """I6: somebody may be copying it; beside a record or litter of its job it has their age."""
    s3 = machine.s3

    def undated(request: object, reply: object) -> object:
        if getattr(request, "verb", "") != "list_uploads" or not isinstance(reply, tuple):
            return None
        page, bound = reply
        uploads = tuple(replace(upload, initiated=None) for upload in page.uploads)
        return replace(page, uploads=uploads), bound

    for dest in ("t", "t/below"):
        closed = mc.start(f"s3://bucket/{dest}", job_id="given")
        closed.abort()
        s3.start_upload(f"{dest}/late-mcj{closed.uuid}.csv")
    unknown = f"t/late-mcj{'cd' * 16}.csv"
    s3.start_upload(unknown)
    machine.later(2 * YOUNG)
    s3.after = undated
    report = mc.cleanup(DEST, below=True)
    assert (report.uploads_aborted, report.uploads_left) == (2, 1)
    s3.after = None
    assert remains(s3)[1] == [unknown]


def test_a_live_job_of_a_directory_above_keeps_its_uploads(machine: Machine) -> None:
    """I6: its record is looked for there; where that is forbidden the upload stays."""
    above = mc.start("s3://bucket/")
    file = killed(above, "1", "t/dt=1/slow.csv", unique=True)
    machine.later(5 * YOUNG)
    report = mc.cleanup(DEST)
    assert (report.uploads_aborted, report.uploads_left) == (0, 0)
    mc.abort("s3://bucket/", above.id)
    machine.s3.start_upload(f"t/dt=1/slow-mcj{above.uuid}.csv")
    machine.later(5 * YOUNG)
    failing(machine.s3, "list", "__magic", PermissionDenied("no"))
    report = mc.cleanup(DEST)
    assert (report.uploads_aborted, report.uploads_left) == (0, 1)
    assert "no" in report.errors[0]
    machine.s3.before = None
    assert mc.cleanup(DEST).uploads_aborted == 1
    file.abort()


@pytest.mark.parametrize("job_id", [None, "given"])
def test_a_listing_that_lags_behind_costs_no_object(job_id: str | None) -> None:
    """I2: of what a listing shows the parts are asked for first; nothing is aborted or counted."""
    clock = PatientClock()
    with costly_store(clock) as s3:
        job = mc.start(DEST, job_id=job_id)
        s3.requests.clear()  # the proof of the store
        with job.task("1") as task:
            write(task, unique=True)
        job.commit()
        s3.lags = True
        clock.ahead += 3 * YOUNG
        looks = noted(s3, "list_parts")
        for dry_run in (True, False):
            report = mc.cleanup(DEST, dry_run=dry_run)
            assert (report.uploads_aborted, report.did, report.errors) == (0, (), ())
        assert len(looks) == 2
        assert s3.requests["abort_upload"] == 0
        assert list(visible(s3).values()) == [b"1"]


def test_litter_that_names_what_was_completed_costs_no_object() -> None:
    """I2: a pendingset that lands after the sweep goes, and no abort is sent for what it names."""
    clock = PatientClock()
    with costly_store(clock) as s3:
        job = mc.start(DEST)
        mc.cleanup("s3://bucket/elsewhere")
        s3.requests.clear()  # the proofs of the store
        key = committed_task(job, "1", {"a.csv": b"1", "b.csv": b"2"}).key
        body, metadata = s3.body(key), s3.attributes(key).metadata
        job.commit()
        s3.put_object(key, body, metadata=metadata)
        s3.put_object("t/b.csv", b"a later job's")
        clock.ahead += 3 * YOUNG
        report = mc.cleanup(DEST)
        assert (report.objects_deleted, report.uploads_aborted, report.errors) == (1, 0, ())
        assert s3.requests["abort_upload"] == 0
        assert remains(s3) == ({"t/a.csv": b"1", "t/b.csv": b"a later job's"}, [], [])


def test_litter_goes_by_its_token_with_the_uploads_that_it_names(machine: Machine) -> None:
    """I4: a zombie's pendingset goes when it is old, with its uploads that are still open."""
    s3 = machine.s3
    job = mc.start(DEST, track="memory", accept="results")
    zombie = job.task("2")
    write(zombie, "zombie.csv", unique=True)  # the name tells the job, too: it counts once
    results = [committed_task(job, "1", {"a.csv": b"1"}), zombie.commit()]
    sets = [(one.key, s3.body(one.key), s3.attributes(one.key).metadata) for one in results]
    (doomed,) = s3.open_uploads(f"t/{unique_name('zombie.csv', job.uuid)}")
    job.commit(results[:1])
    assert s3.open_uploads() == ()
    for key, body, metadata in sets:
        s3.put_object(key, body, metadata=metadata)
    _open_again(s3, doomed.key, doomed.upload_id)
    aborts = noted(s3, "abort_upload")
    assert mc.cleanup(DEST).objects_deleted == 0
    machine.later(YOUNG)
    assert _same_without_doing(s3) == 1
    report = mc.cleanup(DEST)
    assert (report.objects_deleted, report.uploads_aborted, report.errors) == (2, 1, ())
    assert [request.key for request in aborts] == [doomed.key]
    assert remains(s3) == ({"t/a.csv": b"1"}, [], [])


def _open_again(s3: MemoryStore, key: str, upload_id: str) -> None:
    """Give an aborted upload its life back, as a Create that landed after the sweep would."""
    fresh = s3.start_upload(key)
    held = s3._bucket.uploads
    upload = held.pop(fresh)
    upload.upload_id = upload_id
    held[upload_id] = upload


def test_litter_that_is_written_anew_while_a_cleanup_looks_is_young(machine: Machine) -> None:
    """It is left until it is old again, as is all that a process may still be writing."""
    s3 = machine.s3
    job = machine.job("closed")
    key, metadata = f"t/__magic_job-{job.id}/late", {JOB_METADATA: job.uuid}
    s3.put_object(key, b"1", metadata=metadata)
    machine.later(YOUNG)
    with At(s3, f"head {key}", lambda: s3.put_object(key, b"2", metadata=metadata)):
        assert mc.cleanup(DEST).objects_deleted == 0
    assert s3.body(key) == b"2"
    machine.later(YOUNG)
    assert mc.cleanup(DEST).objects_deleted == 1


def test_a_cleanup_that_may_not_list_uploads_says_so(machine: Machine) -> None:
    """It gives no all-clear: uploads that nothing names may be open."""
    machine.job("running")
    machine.later(2 * DAY)
    with refusing(machine.s3, "list_uploads", PermissionDenied):
        errors = mc.cleanup(DEST).errors
    assert [one for one in errors if one.startswith("uploads could not be listed: ")]


def test_litter_of_another_run_than_the_closed_ones_stays(machine: Machine) -> None:
    """I6: a closed record tells that its own run is over, and of no other."""
    job = machine.job("closed", job_id="given")
    key = f"t/__magic_job-{job.id}/late"
    machine.s3.put_object(key, metadata={JOB_METADATA: "0" * 32})
    machine.s3.put_object(f"{key}-own", metadata={JOB_METADATA: job.uuid})
    machine.later(YOUNG)
    assert mc.cleanup(DEST).objects_deleted == 1
    assert key in machine.s3.keys()
    machine.s3.delete_object(record_of(job))  # without the record it is old enough
    assert mc.cleanup(DEST).objects_deleted == 1


def test_a_record_that_is_there_again_keeps_its_jobs_objects(machine: Machine) -> None:
    """I2: the record is looked for again before an object without one is taken."""
    s3 = machine.s3
    job = job_of({"a.csv": b"1"})
    record = record_of(job)
    (stored,) = [key for key in control(s3) if key.endswith(".pendingset")]
    body, metadata = s3.body(record), s3.attributes(record).metadata
    s3.delete_object(record)
    machine.later(YOUNG)
    with At(s3, f"head {stored}", lambda: s3.put_object(record, body, metadata=metadata)):
        assert mc.cleanup(DEST).objects_deleted == 0
    assert job.commit().files == 1


def test_litter_that_cannot_be_read_goes_and_is_told(machine: Machine) -> None:
    """It is deleted by its token, and an error says that uploads may stay."""
    litter = "t/__magic_job-gone/left.pendingset"
    machine.s3.put_object(litter, b"{", metadata={JOB_METADATA: "e" * 32})
    machine.later(2 * DAY)
    report = mc.cleanup(DEST)
    assert (machine.s3.keys(), report.objects_deleted) == ((), 1)
    assert [litter in error for error in report.errors] == [True]


def test_two_cleanups_at_once_do_no_harm() -> None:
    """I5: a second one before each request of the first, over jobs in every state: one's end."""
    for number in count(1):
        clock = PatientClock()
        with memory_store(clock=clock) as s3:
            machine = Machine(s3, clock)
            mine = machine.job("committing")
            machine.job("running", job_id="r")
            machine.later(2 * DAY)
            second: list[mc.CleanupReport] = []
            at = At(s3, "*", lambda: second.append(mc.cleanup(DEST)), nth=number)  # noqa: B023
            reports = [mc.cleanup(DEST), *second]
            s3.before = None
            assert [report.errors for report in reports] == [()] * (1 + at.done)
            assert remains(s3) == (FILES, [], ["_job.json", "_job.json"])
            assert mc.attach(DEST, mine.id).outcome == "committed"
        if not at.done:
            break
    assert number > 20


def test_a_cleanup_that_crashed_at_any_request_is_done_by_the_next() -> None:
    """I5: killed at each of its requests; the next one comes to the same end."""
    for machine, dies in deaths(least=40):
        s3 = machine.s3
        for state in ("running", "committing", "closed"):
            job = machine.job(state)
            s3.start_upload(f"t/late-mcj{job.uuid}.csv")
        plan = f"t/__magic_job-{job.id}/_plan-1.json"
        s3.put_object(plan, b"{}", metadata={JOB_METADATA: job.uuid})
        machine.later(2 * DAY)
        dies(lambda: mc.cleanup(DEST))
        machine.later(YOUNG)  # what the dead one has decided looks young until then
        assert mc.cleanup(DEST).errors == ()
        assert remains(s3) == (FILES, [], ["_job.json", "_job.json"])


@pytest.mark.parametrize(
    ("fails", "error", "ended"),
    [
        ("list *other/", Unanswered, 1),
        ("list_uploads", PermissionDenied, 2),
        ("list_uploads", NotSupported, 2),
    ],
)
def test_a_store_that_fails_for_one_job_does_not_stop_the_others(
    machine: Machine, fails: str, error: type[StoreError], ended: int
) -> None:
    """What fails is in the report, the rest is done, and the next cleanup does what was left."""
    machine.job("committing")
    machine.job("running", job_id="other")
    machine.later(2 * DAY)
    with refusing(machine.s3, fails, error):
        report = mc.cleanup(DEST)
    assert report.errors
    assert len(report.recovered) == ended
    assert visible(machine.s3) == FILES
    machine.later(2 * DAY)
    again = mc.cleanup(DEST)
    assert again.errors == ()
    assert machine.s3.open_uploads() == ()
    json.dumps(again.to_dict())


def test_a_cleanup_that_finishes_nothing_still_aborts_the_dead(machine: Machine) -> None:
    """I4: ``finish=False`` is about decided jobs: a running one whose driver is dead is aborted."""
    machine.job("running")
    machine.later(2 * DAY)
    report = mc.cleanup(DEST, finish=False)
    assert [found.state for found in report.recovered] == ["closed"]
    assert report.unfinished == ()
    assert machine.s3.open_uploads() == ()


def test_a_job_that_another_ends_during_a_cleanup_is_no_error(machine: Machine) -> None:
    """Its record is gone when the cleanup is about to finish it: nothing to complain of."""
    s3 = machine.s3
    job = machine.job("committing")
    machine.later(2 * DAY)

    def ends() -> None:
        assert mc.recover(DEST, job.id).outcome == "committed"
        s3.delete_object(record_of(job))

    # to tell whose uploads are open, to see its state, to finish it
    with At(s3, f"get {record_of(job)}", ends, nth=3):
        report = mc.cleanup(DEST)
    assert [found.state for found in report.recovered] == ["absent"]
    assert report.errors == ()


def test_a_job_that_begins_beside_a_cleanup_keeps_the_files_of_its_tasks(tmp_path: Path) -> None:
    """I6: the records are read after the directories of waiting files were listed."""
    with jobs_of_renames(tmp_path / "t", clock=PatientClock()) as store:
        committed_task(mc.start(DEST), "0", {"dead": b"1"})
        begun: list[mc.Job] = []
        At(store, "list t/_temporary/", lambda: begun.append(job_of({"a": b"1"})))
        mc.cleanup(DEST, dead_after=0, leftover_after=0)
        begun[0].commit()
        assert visible(store) == {"t/a": b"1"}


@pytest.mark.parametrize("hidden", ["one directory", "all of them"])
def test_waiting_files_that_cannot_be_listed_stop_no_cleanup(tmp_path: Path, hidden: str) -> None:
    """They are named as an error, the rest is taken, and the cleanup ends with its report."""
    with jobs_of_renames(tmp_path / "t", clock=PatientClock()) as store:
        for _ in range(2):
            store.delete_one(record_of(job_of({"a": b"1"})).removeprefix("t/"))
        (page,) = store.list("_temporary/", delimiter="/")
        lost = page.prefixes[0] if hidden == "one directory" else "_temporary/"
        with refusing(store, f"list t/{lost}", PermissionDenied):
            report = mc.cleanup(DEST, leftover_after=0)
        assert [error.partition(": ")[0] for error in report.errors] == [lost]
        stays = page.prefixes[:1] if hidden == "one directory" else page.prefixes
        assert [one.prefixes for one in store.list("_temporary/", delimiter="/")] == [stays]


def test_cleanup_looks_at_closed_records_once(s3: MemoryStore, clock: PatientClock) -> None:
    """An operator's cleanup takes closed records itself: the jobs that it ends do not."""
    for _ in range(12):
        mc.start(DEST)
    clock.ahead += 3 * 86_400.0
    s3.requests.clear()
    assert len(mc.cleanup(DEST).recovered) == 12
    assert s3.requests["get"] <= 4 * 12


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
    job, (old,) = machine.job(state), closed()
    machine.later(30 * DAY)
    leaving()
    assert mc.attach(DEST, job.id).state == state
    assert old not in control(machine.s3)


def test_a_job_that_deletes_its_own_record_pays_nothing(machine: Machine) -> None:
    """The undisturbed driver of a drawn id reads no record of others, and leaves them."""
    keys = closed(3)
    machine.later(DAY)
    looks = noted(machine.s3, lambda r: r.key in keys)
    with mc.write(DEST) as job:
        write(job)
    assert control(machine.s3) == sorted(keys)
    assert not looks
    leaving()
    assert not set(keys) & set(control(machine.s3))


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
    leaving()
    assert len(deletes) == 2


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
