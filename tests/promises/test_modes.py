"""I7 and the conflict modes: what a job means for data that is there, and for jobs beside it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress

import pytest

import magic_committer as mc
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
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.promises.hands import (
    DEST,
    At,
    control,
    job_of,
    noted,
    raises,
    raising,
    refusing,
    remains,
    visible,
)
from tests.promises.machine import deaths


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
        assert job._committer().abort_job(revert=True).outcome == "reverted"
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


@pytest.mark.parametrize(
    ("answer", "deleted"),
    [(PreconditionFailed, False), (WriteConflict, False), (InvalidRequest, True),
     (NotSupported, True)],
)  # fmt: skip
def test_a_plain_delete_is_sent_only_where_the_condition_is_called_wrong(
    s3: MemoryStore, answer: type[StoreError], deleted: bool
) -> None:
    """I6: another writer may be about to replace an object that refuses `If-Match`."""
    etag = s3.put_object("t/old.csv", b"old")
    s3.before = raising(lambda r: r.verb == "delete_one" and r.if_match, answer("each time"))
    with nullcontext() if deleted else pytest.raises(answer):
        assert delete_if_same(runtime(s3), "t/old.csv", etag)
    assert (s3.keys() == ()) is deleted


@pytest.mark.parametrize("answer", [InvalidRequest, NotSupported])
@pytest.mark.parametrize("times", range(1, DELETE_TRIES_MAX - 1))
def test_an_odd_refusal_of_a_condition_sends_no_plain_delete(
    s3: MemoryStore, answer: type[StoreError], times: int
) -> None:
    """I6: a store that calls the condition wrong now and then knows it: every DELETE carries it."""
    etag = s3.put_object("t/old.csv", b"old")
    odd = raising("delete_one", answer, times=times)
    conditions: list[str | None] = []

    def before(request: Request) -> None:
        if request.verb == "delete_one":
            conditions.append(request.if_match)
            odd(request)

    s3.before = before
    assert delete_if_same(runtime(s3), "t/old.csv", etag)
    assert (s3.keys(), conditions) == ((), [etag] * (times + 1))


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
