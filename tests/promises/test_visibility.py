"""I1 to I4, I7: what is visible, when; what a mode means for old data; and what is left."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from itertools import product

import pytest

import magic_committer as mc
from magic_committer import errors
from magic_committer.commit.revert import DELETE_TRIES_MAX, delete_if_same
from magic_committer.errors import (
    InvalidRequest,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.options import Accept, Mode, Track
from magic_committer.protocol.plan import Plan
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.base import same_time
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.plans import read_plan, write_plan
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    committed_task,
    control,
    half_completed,
    job_of,
    killed,
    noted,
    raises,
    raising,
    refusing,
    remains,
    visible,
)
from tests.promises.machine import DAY, Machine, deaths, matching


@pytest.mark.parametrize("track", ["memory", "s3"])
@pytest.mark.parametrize("accept", ["results", "listing"])
def test_a_job_leaves_its_files_and_marker(s3: MemoryStore, track: Track, accept: Accept) -> None:
    """I1, I2, I4: nothing before the commit; then the files, byte for byte, and `_SUCCESS`."""
    job = mc.start(DEST, track=track, accept=accept)
    results = [committed_task(job, str(n), {f"d={n}/{n}.bin": bytes([n]) * n}) for n in range(4)]
    assert visible(s3) == {}
    report = job.commit(results if accept == "results" else None)
    assert visible(s3) == {f"t/d={n}/{n}.bin": bytes([n]) * n for n in range(4)}
    assert s3.keys() == tuple(sorted(["t/_SUCCESS", *visible(s3)]))
    assert s3.open_uploads() == ()
    assert (report.outcome, report.files, report.bytes, report.tasks) == ("committed", 4, 6, 4)
    assert report.warnings == ()


@pytest.mark.parametrize("track", ["memory", "s3"])
@pytest.mark.parametrize("name", ["a.csv", "b.csv"])
def test_one_attempt_of_a_task_becomes_visible(s3: MemoryStore, name: str, track: Track) -> None:
    """I2, I9: the accepted one shows; the other, whose input was cut short, leaves nothing."""
    job = job_of({name: b"cut sho"}, accept="results", track=track)
    job.commit([committed_task(job, "1", {"a.csv": b"whole"})])
    assert remains(s3)[:2] == ({"t/a.csv": b"whole"}, [])


def test_a_listing_takes_the_newest_attempt_of_a_task(s3: MemoryStore, clock: PatientClock) -> None:
    """I2: without messages the newest attempt is taken, by the store's clock."""
    job = job_of({"a.csv": b"old", "old.csv": b""})
    clock.sleep(5)
    committed_task(job, "1", {"a.csv": b"new"})
    job.commit()
    assert remains(s3)[:2] == ({"t/a.csv": b"new"}, [])


def test_a_file_that_is_still_open_is_an_error_and_publishes_nothing(s3: MemoryStore) -> None:
    """I9: a file that was not closed may be cut short: the job is aborted."""
    with pytest.raises(mc.FileStillOpen, match=r"a\.csv"), mc.write(DEST) as job:
        job.open("a.csv").write(b"1")
    assert s3.keys() == ()
    assert s3.open_uploads() == ()


def test_a_file_that_failed_fails_its_task_even_if_the_error_was_caught(s3: MemoryStore) -> None:
    """I9: an attempt that lost a file is never committed without it."""
    job = mc.start(DEST)
    bad = errors.InvalidRequest("bad digest", status=400, code="BadDigest")
    with refusing(s3, "put_part", bad):
        task = job.task("1")
        with pytest.raises(mc.UploadFailed), task.open("a.csv") as f:
            f.write(b"1")
    raises(mc.TaskFailed, task.commit, match=r"a\.csv")
    job.abort()
    assert s3.keys() == ()
    assert s3.open_uploads() == ()


def test_a_job_of_messages_is_never_committed_from_a_listing(s3: MemoryStore) -> None:
    """I9: `commit()` without results is refused where tasks can be cut short."""
    job = mc.start(DEST, accept="results")
    result = committed_task(job, "1", {"a.csv": b"1"})
    raises(mc.OptionError, job.commit, match="results")
    assert job.commit([result]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}


def test_an_empty_job_commits_and_marks(s3: MemoryStore) -> None:
    """A job without files is a job, decided and marked; a forgotten ``open`` is told."""
    with mc.write(DEST) as job:
        pass
    assert s3.keys() == ("t/_SUCCESS",)
    assert (job.report.outcome, job.report.files) == ("committed", 0)
    assert "the job published no file" in job.report.warnings


FILES = {"p=1/a.csv": b"1", "p=1/empty.csv": b"", "p=2/b.csv": b"22"}
MODES: list[Mode] = ["append", "fail", "fail_partitions", "replace", "replace_partitions"]


def requests_of_a_job(s3: MemoryStore, mode: Mode) -> list[Request]:
    """Every request of a job whose driver dies in its commit, and of its recovery."""
    sent: list[Request] = []
    dies = raising("complete_upload */p=2/*", Crash)

    def note(request: Request) -> None:
        sent.append(request)
        dies(request)

    s3.before = note
    job = job_of(FILES, mode=mode, track="memory", accept="listing")
    raises(Crash, job.commit)
    s3.before = sent.append
    assert mc.recover(DEST, job.id).outcome == "committed"
    s3.before = None
    assert visible(s3) == {f"t/{name}": body for name, body in FILES.items()}
    return sent


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_no_late_request_brings_a_file_back(mode: Mode, forgetful: bool) -> None:
    """A job is over, and its files were taken away: each request may land again, in any order."""
    with memory_store(forgetful_complete=forgetful) as s3:
        sent = requests_of_a_job(s3, mode)
        s3.delete(list(visible(s3)))
        for request in (*sent, *reversed(sent)):
            with suppress(mc.StoreError):
                request.effect()
            assert visible(s3) == {}
        completes = [one for one in sent if one.verb == "complete_upload"]
        assert {one.key for one in completes} >= {f"t/{name}" for name in FILES}


def test_foreign_objects_and_uploads_are_never_touched(s3: MemoryStore) -> None:
    """I6: neither end takes another program's objects or uploads, here or in a directory beside."""
    s3.put_object("t/theirs.csv", b"theirs")
    s3.put_object("t/__magic_job-9/job-9/00/tasks/x/__base/y.csv.pending", b"Hadoop's")
    theirs = {
        s3.start_upload("t/open.csv"),
        s3.start_upload("t2/open.csv"),
        s3.start_upload(f"t/part-1-{'ab' * 16}.c000.csv"),
        s3.start_upload(f"t/part-1-mcj{'ab' * 16}.csv"),
    }
    for end in ("commit", "abort"):
        job = job_of({f"{end}.csv": b"1"})
        killed(job, "2", "left.csv", unique=True)
        job.commit() if end == "commit" else job.abort()
    assert {u.upload_id for u in s3.open_uploads()} == theirs
    assert s3.body("t/theirs.csv") == b"theirs"
    assert "t/__magic_job-9/job-9/00/tasks/x/__base/y.csv.pending" in s3.keys()


def test_two_jobs_in_one_directory_do_not_disturb_each_other(s3: MemoryStore) -> None:
    """I6: the sweep of one job leaves the other's pending uploads and control objects alone."""
    one, two = mc.start(DEST), mc.start(DEST)
    result = committed_task(two, "1", {"two.csv": b"2"})
    left = killed(two, "2", "slow.csv", unique=True)
    committed_task(one, "1", {"one.csv": b"1"})
    one.commit()
    left.write(b"still here")
    left.close()
    two.commit([result])
    assert remains(s3)[:2] == ({"t/one.csv": b"1", "t/two.csv": b"2"}, [])
    assert s3.keys("t/__magic") == ()


def test_uploads_that_nobody_can_attribute_are_counted_and_left(s3: MemoryStore) -> None:
    """I4, I6: a killed attempt's upload of a name that the user chose may be another program's."""
    job = mc.start(DEST)
    killed(job, "1", "killed.csv")
    assert job.commit(expect=0).unattributed == 1
    other = mc.start(DEST)
    committed_task(other, "1", {"named.csv": b"1"})
    assert other.abort().unattributed == 1
    assert [u.key for u in s3.open_uploads()] == ["t/killed.csv"]


def test_two_thousand_five_hundred_uploads_are_swept_page_by_page(s3: MemoryStore) -> None:
    """I4: the sweep reads every page of the listing, and aborts all of its own and no other."""
    job = mc.start(DEST)
    for number in range(2500):
        s3.start_upload(f"t/part-{number:05d}-mcj{job.uuid}.csv")
    theirs = s3.start_upload("t/part-00007.csv")
    s3.requests.clear()
    job.abort()
    assert [u.upload_id for u in s3.open_uploads()] == [theirs]
    assert s3.requests["list_uploads"] == 4  # three pages, and one that shows none
    assert s3.requests["abort_upload"] == 2500


@pytest.mark.parametrize("body", [None, b"", b"{}", b"not json", b'{"name":"other"}'])
def test_an_earlier_marker_is_replaced(s3: MemoryStore, body: bytes | None) -> None:
    """I8: Hadoop's, anybody's, or ours within a second; a job that writes no marker leaves it."""
    if body is not None:
        s3.put_object("t/_SUCCESS", body)
    for number in range(2):
        with mc.write(DEST) as job, job.open(f"{number}.csv") as f:
            f.write(b"1")
        assert json.loads(s3.body("t/_SUCCESS"))["jobId"] == job.id
    marker = s3.body("t/_SUCCESS")
    job_of({"last.csv": b"1"}, mark_success=False).commit()
    assert s3.body("t/_SUCCESS") == marker


def test_an_append_that_is_listed_first_hides_no_other_job(s3: MemoryStore) -> None:
    """I6: a running append excludes nobody, and the look at the other jobs goes on behind it."""
    mc.start(DEST, job_id="a")
    mc.start(DEST, job_id="b", mode="replace")
    raises(mc.ConflictingJob, mc.start, DEST, job_id="c", mode="replace", match="job 'b'")


def test_another_jobs_spoilt_set_is_told_as_that_jobs(s3: MemoryStore) -> None:
    """I10: a replace beside a job that cannot be read names that job, and ends."""
    append = half_completed(s3)
    for key in matching(s3, "*.pendingset"):
        s3.put_object(key, b"{}", metadata=s3.head(key).metadata)
    replace = job_of({"new.csv": b"new"}, mode="replace")
    raises(mc.ConflictingJob, replace.commit, match=append.id)
    assert (replace.outcome, "t/new.csv" in visible(s3)) == ("aborted", False)


def run(mode: Mode, files: Mapping[str, bytes]) -> mc.JobReport:
    return job_of(files, mode=mode).commit()


UNTOUCHED = {"t/_delta_log/0.json", "t/dt=1/.hidden", "t/__magic_job-9/x.pendingset", "t2/a.csv"}
THREE = {"a.csv": b"1", "b.csv": b"2", "c.csv": b"3"}


def old_table(s3: MemoryStore) -> None:
    """What an earlier job left, and things that are nobody's business."""
    for name in ("a.csv", "dt=1/a.csv", "dt=1/b.csv", "dt=2/a.csv", "dt=1/hour=3/deep.csv"):
        s3.put_object(f"t/{name}", b"old")
    for key in (*UNTOUCHED, "t/_SUCCESS"):
        s3.put_object(key, b"not data")


def data(s3: MemoryStore) -> dict[str, bytes]:
    return {k: v for k, v in visible(s3).items() if k not in UNTOUCHED}


def runtime(s3: MemoryStore) -> Runtime:
    return Runtime(s3, pool=ThreadPool(0), clock=PatientClock())


@pytest.mark.parametrize(
    ("mode", "new", "stays"),
    [
        ("replace", ("dt=1/a.csv", "dt=3/a.csv"), ()),
        ("replace_partitions", ("dt=1/new.csv", "dt=3/a.csv"),
         ("a.csv", "dt=1/hour=3/deep.csv", "dt=2/a.csv")),
    ],
)  # fmt: skip
def test_replace_leaves_the_new_files_and_what_is_out_of_its_reach(
    s3: MemoryStore, mode: Mode, new: tuple[str, ...], stays: tuple[str, ...]
) -> None:
    """All old data goes, or what is directly in a written partition; hidden and foreign stays."""
    old_table(s3)
    run(mode, dict.fromkeys(new, b"new"))
    assert data(s3) == {
        **{f"t/{name}": b"new" for name in new},
        **{f"t/{name}": b"old" for name in stays},
    }
    assert set(s3.keys()) >= UNTOUCHED
    assert [k for k in control(s3) if "job-9" not in k] == []


def test_fail_by_partition_looks_at_written_partitions_only(s3: MemoryStore) -> None:
    """Mode ``fail_partitions``: data elsewhere does not matter, in a written partition it does."""
    old_table(s3)
    run("fail_partitions", {"dt=3/a.csv": b"new"})
    with pytest.raises(mc.DestinationExists, match="dt=1"):
        run("fail_partitions", {"dt=4/a.csv": b"new", "dt=1/new.csv": b"new"})
    assert "t/dt=4/a.csv" not in data(s3)
    assert s3.open_uploads() == ()


def test_nothing_is_deleted_before_all_that_replaces_it_is_visible(s3: MemoryStore) -> None:
    """I7: all old files are there, or all new ones; and by `_SUCCESS` one table or the other."""
    old_table(s3)
    job = job_of({f"new-{n}.csv": b"new" for n in range(4)}, mode="replace")
    new = {f"t/new-{n}.csv" for n in range(4)}
    old = set(data(s3))

    def look(request: Request, reply: object) -> None:
        seen = set(data(s3))
        assert seen >= old or seen >= new
        assert "t/_SUCCESS" not in s3.keys() or seen in (old, new)

    s3.after = look
    job.commit()
    assert "t/_SUCCESS" in s3.keys()
    assert set(data(s3)) == new


@pytest.mark.parametrize(
    ("moment", "asked"),
    [
        ("put *_plan-*", False),
        ("complete_upload", False),
        ("delete_one t/dt=2/a.csv", True),
        ("put t/_SUCCESS", True),
    ],
)
def test_what_a_neighbour_has_written_since_stays(
    s3: MemoryStore, moment: str, asked: bool
) -> None:
    """I6: an old file that was rewritten, and a new one; what is seen to be another is spared."""
    old_table(s3)
    job = job_of({"new.csv": b"new"}, mode="replace")
    theirs = dict.fromkeys(("t/dt=2/a.csv", "t/added.csv"), b"theirs")
    at = At(
        s3,
        moment,
        lambda: [s3.put_object(key, body) for key, body in theirs.items()],
        after=not moment.startswith("delete"),
    )
    deleted = noted(s3, "delete_one t/dt=2/a.csv") if s3.before is None else []
    job.commit()
    assert at.done
    assert data(s3) == theirs | {"t/new.csv": b"new"}
    assert bool(deleted) is (asked and "delete" not in moment)


def test_a_foreign_file_in_the_way_of_a_fail_job_undoes_it(s3: MemoryStore) -> None:
    """What appears after the last look is not overwritten, and nothing of the job stays."""
    job = job_of(THREE, mode="fail")
    At(s3, "put *_plan-*", lambda: s3.put_object("t/b.csv", b"theirs"))
    raises(mc.DestinationExists, job.commit, match=r"b\.csv")
    assert remains(s3) == ({"t/b.csv": b"theirs"}, [], ["_job.json"])
    assert (job.outcome, job.state) == ("reverted", "closed")
    assert job.abort().outcome == "reverted"


def test_an_undoing_that_crashed_anywhere_is_finished_by_anyone() -> None:
    """I5: whichever request of a commit that meets a foreign file it was killed at."""
    for machine, dies in deaths(least=25):
        s3 = machine.s3
        job = job_of(THREE, mode="fail")

        def theirs(request: Request, s3: MemoryStore = s3) -> None:
            if request.verb == "put" and "_plan-" in request.key:
                s3.put_object("t/b.csv", b"theirs")

        dies.meanwhile = theirs
        with suppress(mc.DestinationExists):
            dies(job.commit)
        s3.before = s3.after = None
        found = mc.attach(DEST, job.id)
        if found.state == "committing":
            raises(mc.DestinationExists, found.commit)
        elif found.state != "closed":
            found.abort()
        assert remains(s3) in [(files, [], ["_job.json"]) for files in ({"t/b.csv": b"theirs"}, {})]


@pytest.mark.parametrize("moment", ["get *_job.json", "delete_one t/b.csv"])
def test_a_committing_job_is_reverted_on_the_operators_word(s3: MemoryStore, moment: str) -> None:
    """I6: what a neighbour has rewritten stays, also if it comes between HEAD and DELETE."""
    job = job_of(THREE)
    with refusing(s3, "complete_upload t/c.csv", Unanswered), pytest.raises(mc.CommitIncomplete):
        job.commit()
    raises(mc.JobNotRunning, job.abort)
    with At(s3, moment, lambda: s3.put_object("t/b.csv", b"theirs")):
        assert job._committer().driver().abort(revert=True).outcome == "reverted"
    assert remains(s3)[:2] == ({"t/b.csv": b"theirs"}, [])
    assert raises(mc.JobNotRunning, job.commit).outcome == "reverted"


@pytest.mark.parametrize("other", ["fail", "replace", "replace_partitions"])
@pytest.mark.parametrize("mode", ["fail", "replace"])
def test_excluding_jobs_exclude_each_other(s3: MemoryStore, mode: Mode, other: Mode) -> None:
    """Of two excluding jobs the second is refused, whole directory or by partition."""
    first = mc.start(DEST, mode=other)
    raises(mc.ConflictingJob, mc.start, DEST, mode=mode, match=first.id)
    first.abort()
    mc.start(DEST, mode=mode).abort()


def test_jobs_on_different_partitions_run_beside_each_other(s3: MemoryStore) -> None:
    """By partition, only jobs that write the same one exclude each other: their plans tell."""
    one, two, three = (
        job_of({name: b"1"}, mode="replace_partitions")
        for name in ("dt=1/a.csv", "dt=2/a.csv", "dt=1/b.csv")
    )

    def three_tries() -> None:
        raises(mc.ConflictingJob, three.commit)

    at = At(s3, "put *_plan-*", three_tries, after=True)
    one.commit()
    two.commit()
    assert at.done
    assert remains(s3)[:2] == ({"t/dt=1/a.csv": b"1", "t/dt=2/a.csv": b"1"}, [])
    assert three.outcome == "aborted"


WRONG_CONDITION = (InvalidRequest, NotSupported)
"""How a store says that it does not know the condition of a DELETE."""


@pytest.mark.parametrize(
    ("answer", "times"),
    [
        *((answer, None) for answer in (PreconditionFailed, WriteConflict, *WRONG_CONDITION)),
        *product(WRONG_CONDITION, range(1, DELETE_TRIES_MAX - 1)),
    ],
)
def test_a_plain_delete_is_sent_only_where_the_condition_is_called_wrong_each_time(
    s3: MemoryStore, answer: type[StoreError], times: int | None
) -> None:
    """I6: another writer may be about to replace an object; now and then the condition is known."""
    etag = s3.put_object("t/old.csv", b"old")
    fails = raising(lambda r: r.verb == "delete_one" and r.if_match, answer("odd"), times=times)
    sent: list[str | None] = []

    def before(request: Request) -> None:
        sent.extend([request.if_match] if request.verb == "delete_one" else [])
        fails(request)

    s3.before = before
    deleted = answer in WRONG_CONDITION
    with nullcontext() if deleted else pytest.raises(answer):
        assert delete_if_same(runtime(s3), "t/old.csv", etag)
    assert (s3.keys() == ()) is deleted
    assert (None in sent) is (deleted and times is None)
    assert times is None or sent == [etag] * (times + 1)


def test_a_store_without_conditional_deletes_still_replaces(s3: MemoryStore) -> None:
    """HEAD, compare, delete, where the store refuses If-Match on DELETE."""
    s3.put_object("t/old.csv", b"old")
    refused = NotSupported("no", status=501, code="NotImplemented")
    s3.before = raising(lambda r: r.verb == "delete_one" and r.if_match, refused)
    assert run("replace", {"new.csv": b"new"}).outcome == "committed"
    assert visible(s3) == {"t/new.csv": b"new"}


def test_fail_stops_at_the_first_data_that_it_sees(s3: MemoryStore) -> None:
    """Mode ``fail`` reads no more pages than it needs to say no."""
    for number in range(2500):
        s3.put_object(f"t/{number:04}.csv", b"")
    mc.start("s3://bucket/empty", mode="fail").abort()
    s3.requests.clear()
    raises(mc.DestinationExists, mc.start, DEST, mode="fail")
    assert s3.requests["list"] <= 3


@pytest.mark.parametrize("mode", ["replace", "replace_partitions"])
def test_a_delete_that_is_a_conflict_three_times_is_sent_again(s3: MemoryStore, mode: Mode) -> None:
    """I7: the fourth DELETE of old data is sent, and the job is committed without a word."""
    s3.put_object("t/p=1/old.csv", b"old")
    job = job_of({"p=1/new.csv": b"new"}, mode=mode)
    with refusing(s3, "delete_one t/p=1/old.csv", WriteConflict("now", status=409), times=3):
        report = job.commit()
    assert (report.outcome, report.warnings) == ("committed", ())
    assert visible(s3) == {"t/p=1/new.csv": b"new"}


@pytest.mark.parametrize("version_id", [None, "", "null"])
def test_without_versions_only_the_same_is_deleted(s3: MemoryStore, version_id: str | None) -> None:
    """I6: stores name a missing version in three ways; none of them is a version to be deleted."""
    s3.put_object("t/a.csv", b"old")
    etag = s3.head("t/a.csv").etag
    s3.put_object("t/a.csv", b"another's")
    assert not delete_if_same(Runtime(s3), "t/a.csv", etag, version_id)
    assert s3.body("t/a.csv") == b"another's"


def test_a_paused_append_leaves_the_marker_of_a_later_job(machine: Machine) -> None:
    """I8: the empty `_SUCCESS` that its record names has been written anew by a later job."""
    s3 = machine.s3
    s3.put_object("t/_SUCCESS", b"")
    job = job_of({"a.csv": b"1"})

    def days_later() -> None:
        machine.later(3 * DAY)
        s3.put_object("t/_SUCCESS", b"")

    At(s3, "get t/_SUCCESS", days_later, nth=2)
    report = job.commit()
    assert s3.body("t/_SUCCESS") == b""
    assert any("later" in warning for warning in report.warnings)


@pytest.mark.parametrize("row", [["k"], ["k", "e", "5"], ["k", "e", True], ["k", "e", 1.0, 2], 5])
def test_a_row_of_a_plan_of_another_shape_is_refused(row: object) -> None:
    """A plan that cannot be trusted is not executed."""
    plan = read_plan(Plan("j", "u", "n", 0, 0, ()).encode())
    damaged = write_plan({**plan, "deletes": [row]})
    raises(mc.FormatError, Plan.decode, damaged, "plan", match="deletes")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [(5.0, 5.0, True), (5.0, 6.0, False), (5.7, 5.0, True), (5.0, 5.999, True), (6.0, 5.0, False)],
)
def test_times_are_compared_to_the_second(a: float, b: float, same: bool) -> None:
    """Some stores give fractions in listings and none in headers."""
    assert same_time(a, b) is same


@pytest.mark.parametrize("error", [InvalidRequest, PermissionDenied])
@pytest.mark.parametrize("theirs", [True, False])
@pytest.mark.parametrize("mode", ["replace", "replace_partitions"])
def test_what_the_store_does_not_show_is_compared_by_a_listing(
    s3: MemoryStore, error: type[StoreError], theirs: bool, mode: Mode
) -> None:
    """I6, I7: an old object of a customer's key goes if a listing shows the planned version."""
    s3.put_object("t/old.csv", b"old")
    job = job_of({"a.csv": b"1"}, mode=mode)
    refuse = raising("get|head t/old.csv", error)
    sent: list[str | None] = []

    def before(request: Request) -> None:
        if request.key != "t/old.csv":
            return
        if theirs and request.verb in ("get", "head"):
            s3.put_object("t/old.csv", b"theirs")
        refuse(request)
        if request.verb == "delete_one":
            sent.append(request.if_match)

    s3.before = before
    assert job.commit().outcome == "committed"
    assert (sent == []) is theirs
    assert None not in sent
    kept = {"t/old.csv": b"theirs"} if theirs else {}
    assert visible(s3) == {"t/a.csv": b"1", **kept}


def at_the_second_look(machine: Machine, deed: Callable[[], object]) -> At:
    """Somebody does this ten seconds later than a revert has looked at ``t/1.csv`` once more."""

    def later() -> None:
        machine.later(10)
        deed()

    return At(machine.s3, "head t/1.csv", later, after=True, nth=2)


def test_the_same_bytes_of_another_writer_survive_a_revert(machine: Machine) -> None:
    """I6: the ETag is the same, the time is not: the object stays."""
    s3 = machine.s3
    job = machine.job("committing")

    def by_parts() -> None:
        upload = s3.start_upload("t/1.csv")
        part = s3.put_part("t/1.csv", upload, 1, memoryview(b"1"))
        s3.complete_upload("t/1.csv", upload, [part], length=1, checksum=None)

    with at_the_second_look(machine, by_parts):
        assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert visible(s3) == {"t/1.csv": b"1"}


def test_a_file_that_is_there_again_is_not_reverted(machine: Machine) -> None:
    """I3: a late Complete stores the job's own file once more: the job is not called reverted."""
    s3 = machine.s3
    job = machine.job("committing")
    metadata = s3.attributes("t/1.csv").metadata
    at_the_second_look(machine, lambda: s3.put_object("t/1.csv", b"1", metadata=metadata))
    with pytest.raises(mc.AbortIncomplete, match=r"t/1\.csv was not deleted"):
        mc.abort(DEST, job.id, revert=True)
    assert visible(s3) == {"t/1.csv": b"1"}
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert visible(s3) == {}
