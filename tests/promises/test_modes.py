"""I7 and the conflict modes: what a job means for data that is there, and for jobs beside it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest

import magic_committer as mc
from magic_committer import errors
from magic_committer._pool import ThreadPool
from magic_committer._runtime import Runtime
from magic_committer.commit.revert import DELETE_TRIES_MAX, delete_if_same
from magic_committer.errors import (
    InvalidRequest,
    NotSupported,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.options import Mode
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    control,
    job_of,
    raising,
    refusing,
    visible,
)
from tests.promises.machine import deaths, left


def run(mode: Mode, files: Mapping[str, bytes]) -> mc.JobReport:
    job = mc.start(DEST, mode=mode)
    committed_task(job, "1", files)
    return job.commit()


def old_table(s3: MemoryStore) -> None:
    """What an earlier job left, and things that are nobody's business."""
    for name in ("a.csv", "dt=1/a.csv", "dt=1/b.csv", "dt=2/a.csv", "dt=1/hour=3/deep.csv"):
        s3.put_object(f"t/{name}", b"old")
    for name in (
        "_SUCCESS",
        "_delta_log/0.json",
        "dt=1/.hidden",
        "__magic_job-9/x.pendingset",
    ):
        s3.put_object(f"t/{name}", b"not data")
    s3.put_object("t2/a.csv", b"another table")


UNTOUCHED = {
    "t/_delta_log/0.json",
    "t/dt=1/.hidden",
    "t/__magic_job-9/x.pendingset",
    "t2/a.csv",
}


def data(s3: MemoryStore) -> dict[str, bytes]:
    return {k: v for k, v in visible(s3).items() if k not in UNTOUCHED}


def test_replace_leaves_exactly_the_new_files(s3: MemoryStore) -> None:
    """Mode ``replace``: all old data goes, hidden and foreign things stay."""
    old_table(s3)
    run("replace", {"dt=1/a.csv": b"new", "dt=3/a.csv": b"new"})
    assert data(s3) == {"t/dt=1/a.csv": b"new", "t/dt=3/a.csv": b"new"}
    assert set(s3.keys()) >= UNTOUCHED
    assert [k for k in control(s3) if "job-9" not in k] == []


def test_replace_by_partition_replaces_written_partitions_only(s3: MemoryStore) -> None:
    """Mode ``replace_partitions``: the data directly in a written partition goes, no other."""
    old_table(s3)
    run("replace_partitions", {"dt=1/new.csv": b"new", "dt=3/a.csv": b"new"})
    assert data(s3) == {
        "t/a.csv": b"old",
        "t/dt=1/hour=3/deep.csv": b"old",
        "t/dt=1/new.csv": b"new",
        "t/dt=2/a.csv": b"old",
        "t/dt=3/a.csv": b"new",
    }
    assert set(s3.keys()) >= UNTOUCHED


def test_fail_by_partition_looks_at_written_partitions_only(s3: MemoryStore) -> None:
    """Mode ``fail_partitions``: data elsewhere does not matter, in a written partition it does."""
    old_table(s3)
    run("fail_partitions", {"dt=3/a.csv": b"new"})
    with pytest.raises(mc.DestinationExists, match="dt=1"):
        run("fail_partitions", {"dt=4/a.csv": b"new", "dt=1/new.csv": b"new"})
    assert "t/dt=4/a.csv" not in data(s3)
    assert s3.open_uploads() == ()


def test_nothing_is_deleted_before_all_that_replaces_it_is_visible(s3: MemoryStore) -> None:
    """I7: at every request, either all old files are there or all new ones are."""
    old_table(s3)
    job = job_of({f"new-{n}.csv": b"new" for n in range(4)}, mode="replace")
    new = {f"t/new-{n}.csv" for n in range(4)}
    old = set(data(s3))

    def look(request: Request, reply: object) -> None:
        assert set(data(s3)) >= old or set(data(s3)) >= new

    s3.after = look
    job.commit()
    assert set(data(s3)) == new


def test_a_reader_that_goes_by_success_sees_the_old_table_or_the_new_one(s3: MemoryStore) -> None:
    """The old `_SUCCESS` goes before anything new comes; the new one when the old data is gone."""
    old_table(s3)
    old = data(s3)
    job = job_of({"new.csv": b"new"}, mode="replace")

    def look(request: Request, reply: object) -> None:
        if "t/_SUCCESS" in s3.keys():
            assert data(s3) in (old, {"t/new.csv": b"new"})

    s3.after = look
    job.commit()
    assert "t/_SUCCESS" in s3.keys()
    assert data(s3) == {"t/new.csv": b"new"}


@pytest.mark.parametrize("when", ["planned", "completed"])
def test_what_a_neighbour_has_written_since_stays(s3: MemoryStore, when: str) -> None:
    """I6: an old file that was rewritten, or a new one that came after the plan, is not deleted."""
    old_table(s3)
    job = job_of({"new.csv": b"new"}, mode="replace")

    def neighbour() -> None:
        s3.put_object("t/dt=2/a.csv", b"theirs")
        s3.put_object("t/added.csv", b"theirs")

    at = "_plan-" if when == "planned" else "t/_SUCCESS"
    verb = "put" if when == "planned" else "get"
    seen_at = {"planned": 1, "completed": 2}[when]
    count = 0

    def fits(request: Request) -> bool:
        nonlocal count
        count += request.verb == verb and at in request.key
        return count == seen_at and request.verb == verb and at in request.key

    At(s3, fits, neighbour, after=True)
    job.commit()
    assert s3.body("t/added.csv") == b"theirs"
    if when == "planned":
        assert s3.body("t/dt=2/a.csv") == b"theirs"


def test_a_foreign_file_in_the_way_of_a_fail_job_undoes_it(s3: MemoryStore) -> None:
    """Mode ``fail``: what appears after the last look is not overwritten; nothing of the job stays,
    and the error says which key it was."""
    job = job_of({"a.csv": b"1", "b.csv": b"2", "c.csv": b"3"}, mode="fail")
    At(s3, "put *_plan-*", lambda: s3.put_object("t/b.csv", b"theirs"))
    with pytest.raises(mc.DestinationExists, match=r"b\.csv"):
        job.commit()
    assert visible(s3) == {"t/b.csv": b"theirs"}
    assert s3.open_uploads() == ()
    assert (job.outcome, job.state) == ("reverted", "closed")
    assert [k.rsplit("/", 1)[-1] for k in control(s3)] == ["_job.json"]
    assert job.abort().outcome == "reverted"


def test_an_undoing_that_crashed_anywhere_is_finished_by_anyone() -> None:
    """I5: whichever request of a commit that meets a foreign file it was killed at."""
    for machine, dies in deaths(least=25):
        s3 = machine.s3
        job = job_of({"a.csv": b"1", "b.csv": b"2", "c.csv": b"3"}, mode="fail")

        def theirs(request: Request, s3: MemoryStore = s3) -> None:
            if request.verb == "put" and "_plan-" in request.key:
                s3.put_object("t/b.csv", b"theirs")

        dies.meanwhile = theirs
        with suppress(mc.DestinationExists):
            dies(job.commit)
        s3.before = s3.after = None
        found = mc.attach(DEST, job.id)
        if found.state == "committing":
            with pytest.raises(mc.DestinationExists):
                found.commit()
        elif found.state != "closed":
            found.abort()
        assert visible(s3) in ({"t/b.csv": b"theirs"}, {})
        assert s3.open_uploads() == ()
        assert left(s3) == ["_job.json"]


def test_a_committing_job_is_reverted_on_the_operators_word(s3: MemoryStore) -> None:
    """``abort --revert``: what was completed is deleted, what a neighbour has rewritten stays."""
    job = job_of({"a.csv": b"1", "b.csv": b"2", "c.csv": b"3"})

    with refusing(s3, "complete_upload t/c.csv", Unanswered), pytest.raises(mc.CommitIncomplete):
        job.commit()
    s3.put_object("t/b.csv", b"theirs")
    with pytest.raises(mc.JobNotRunning):
        job.abort()
    report = job._committer().abort_job(revert=True)
    assert report.outcome == "reverted"
    assert visible(s3) == {"t/b.csv": b"theirs"}
    assert s3.open_uploads() == ()
    with pytest.raises(mc.JobNotRunning) as raised:
        job.commit()
    assert raised.value.outcome == "reverted"


def test_a_completed_job_is_not_reverted(s3: MemoryStore) -> None:
    """I7: from ``completed`` on old data may be gone: revert is refused."""
    job = mc.start(DEST, mode="replace")
    s3.put_object("t/old.csv", b"old")
    committed_task(job, "1", {"a.csv": b"1"})
    with refusing(s3, "delete_one", Unanswered("no answer")):
        with pytest.raises(mc.CommitIncomplete) as raised:
            job.commit()
        assert (raised.value.state, job.outcome) == ("completed", "committed")
    with pytest.raises(mc.JobNotRunning, match="completed"):
        mc.attach(DEST, job.id)._committer().abort_job(revert=True)
    mc.attach(DEST, job.id).commit()
    assert visible(s3) == {"t/a.csv": b"1"}


@pytest.mark.parametrize("other", ["fail", "replace", "replace_partitions"])
@pytest.mark.parametrize("mode", ["fail", "replace"])
def test_excluding_jobs_exclude_each_other(s3: MemoryStore, mode: Mode, other: Mode) -> None:
    """Of two excluding jobs the second is refused, whole directory or by partition."""
    first = mc.start(DEST, mode=other)
    with pytest.raises(mc.ConflictingJob, match=first.id):
        mc.start(DEST, mode=mode)
    first.abort()
    mc.start(DEST, mode=mode).abort()


def test_jobs_on_different_partitions_run_beside_each_other(s3: MemoryStore) -> None:
    """By partition, only jobs that write the same one exclude each other: their plans tell."""
    one, two, three = (mc.start(DEST, mode="replace_partitions") for _ in range(3))
    committed_task(one, "1", {"dt=1/a.csv": b"1"})
    committed_task(two, "1", {"dt=2/a.csv": b"2"})
    committed_task(three, "1", {"dt=1/b.csv": b"3"})
    refused: list[str] = []

    def three_tries() -> None:
        try:
            three.commit()
        except mc.ConflictingJob as error:
            refused.append(str(error))

    At(s3, "put *_plan-*", three_tries, after=True)
    one.commit()
    two.commit()
    assert len(refused) == 1
    assert visible(s3) == {"t/dt=1/a.csv": b"1", "t/dt=2/a.csv": b"2"}
    assert s3.open_uploads() == ()
    assert three.outcome == "aborted"


def test_a_store_without_conditional_deletes_still_replaces(s3: MemoryStore) -> None:
    """HEAD, compare, delete, where the store refuses If-Match on DELETE."""
    s3.put_object("t/old.csv", b"old")
    s3.before = raising(
        lambda r: r.verb == "delete_one" and r.if_match,
        errors.NotSupported("no", status=501, code="NotImplemented"),
    )
    report = run("replace", {"new.csv": b"new"})
    assert visible(s3) == {"t/new.csv": b"new"}
    assert report.outcome == "committed"


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

    s3.before = raising(
        lambda r: r.verb == "delete_one" and r.if_match is not None, answer("each time")
    )
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


def test_fail_stops_at_the_first_data_that_it_sees(s3: MemoryStore) -> None:
    """Mode ``fail`` reads no more pages than it needs to say no."""
    for number in range(2500):
        s3.put_object(f"t/{number:04}.csv", b"")
    mc.start("s3://bucket/empty", mode="fail").abort()
    s3.requests.clear()
    with pytest.raises(mc.DestinationExists):
        mc.start(DEST, mode="fail")
    assert s3.requests["list"] <= 3


@pytest.mark.parametrize("mode", ["replace", "replace_partitions"])
def test_a_delete_that_is_a_conflict_three_times_is_sent_again(s3: MemoryStore, mode: Mode) -> None:
    """I7: the fourth DELETE of old data is sent, and the job is committed without a word."""
    s3.put_object("t/p=1/old.csv", b"old")
    job = job_of({"p=1/new.csv": b"new"}, mode=mode)
    left = 3

    def before(request: Request) -> None:
        nonlocal left
        if left and request.verb == "delete_one" and request.key == "t/p=1/old.csv":
            left -= 1
            raise WriteConflict("at the same time", status=409)

    s3.before = before
    report = job.commit()
    assert (report.outcome, report.warnings, left) == ("committed", (), 0)
    assert visible(s3) == {"t/p=1/new.csv": b"new"}
