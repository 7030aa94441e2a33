"""What a reader of the driver's side has found by running it: one promise a test."""

from __future__ import annotations

from contextlib import suppress

import pytest

import magic_committer as mc
from magic_committer.errors import NotSupported, PermissionDenied, Unanswered
from magic_committer.options import Mode
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.costly import costly_store
from tests.promises.hands import DEST, At, committed_task, control, failing, visible
from tests.promises.machine import Crash, crash


def half_completed(s3: MemoryStore, *, mode: Mode = "append") -> mc.Job:
    """A job of two files whose driver died after it had completed ``a.csv``."""
    job = mc.start(DEST, mode=mode)
    committed_task(job, "1", {"a.csv": b"1"})
    committed_task(job, "2", {"b.csv": b"2"})
    dies = At(s3, lambda r: r.verb == "complete_upload" and r.key == "t/b.csv", crash)
    with pytest.raises(Crash):
        job.commit()
    assert dies.done
    s3.before = None
    return job


def test_a_revert_that_slept_leaves_the_file_of_a_rerun(
    s3: MemoryStore, clock: PatientClock
) -> None:
    """I6: days later the same bytes have been written to the key anew: they are the rerun's."""
    job = half_completed(s3)

    def days_later() -> None:
        clock.ahead += 3 * 86_400.0
        s3.put_object("t/a.csv", b"1")

    heads = iter(range(100))
    at = At(s3, lambda r: (r.verb, r.key) == ("head", "t/a.csv") and next(heads) == 2, days_later)
    mc.abort(DEST, job.id, revert=True)
    assert at.done
    assert visible(s3) == {"t/a.csv": b"1"}


def test_a_revert_does_not_abort_what_became_visible() -> None:
    """I6: a neighbour has written over our object; on a store where the abort of a completed upload
    takes the object at its key, the neighbour's stays."""
    with costly_store() as s3:
        job = half_completed(s3)
        s3.put_object("t/a.csv", b"a neighbour's")
        assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
        assert visible(s3) == {"t/a.csv": b"a neighbour's"}


def test_a_refused_start_leaves_no_live_job_where_deletes_have_no_condition(
    s3: MemoryStore,
) -> None:
    """I4: the record cannot be deleted conditionally: it is closed, and shuts nobody out."""
    s3.put_object("t/old.csv", b"old")

    def refuse(request: Request) -> None:
        if request.verb == "delete_one" and request.if_match is not None:
            raise NotSupported("no", status=501)

    s3.before = refuse
    with pytest.raises(mc.DestinationExists):
        mc.start(DEST, mode="fail")
    assert [found.state for found in mc.inspect(DEST)] == ["closed"]


def test_an_accepted_conflict_leaves_no_open_upload(s3: MemoryStore) -> None:
    """I4: what is at the key is taken as it is; the job's own upload is not needed any more."""
    job = half_completed(s3, mode="fail")
    s3.put_object("t/b.csv", b"theirs")
    recovery = mc.recover(DEST, job.id, accept=["t/b.csv"])
    assert (recovery.outcome, recovery.state) == ("committed", "closed")
    assert visible(s3) == {"t/a.csv": b"1", "t/b.csv": b"theirs"}
    assert s3.open_uploads() == ()


def test_a_marker_is_written_without_names_that_cannot_be_read(s3: MemoryStore) -> None:
    """I8: `replace` took the marker away; a set that is spoilt since does not keep it away."""
    s3.put_object("t/_SUCCESS", b"")
    job = mc.start(DEST, mode="replace")
    result = committed_task(job, "1", {"a.csv": b"1"})

    failing(s3, "put", "t/_SUCCESS", PermissionDenied("no", status=403))
    with pytest.raises(mc.CommitIncomplete):
        job.commit()
    s3.before = None
    s3.put_object(result.key, b"{}", metadata=s3.head(result.key).metadata)
    recovery = mc.recover(DEST, job.id)
    assert recovery.outcome == "committed"
    assert b"magic-committer" in s3.body("t/_SUCCESS")


def test_another_jobs_spoilt_set_is_told_as_that_jobs(s3: MemoryStore) -> None:
    """I10: a replace beside a job that cannot be read names that job, and ends."""
    append = half_completed(s3)
    for key in control(s3):
        if key.endswith(".pendingset"):
            s3.put_object(key, b"{}", metadata=s3.head(key).metadata)
    replace = mc.start(DEST, mode="replace")
    committed_task(replace, "1", {"new.csv": b"new"})
    with pytest.raises(mc.ConflictingJob, match=append.id):
        replace.commit()
    assert (replace.outcome, "t/new.csv" in visible(s3)) == ("aborted", False)


def test_fail_stops_at_the_first_data_that_it_sees(s3: MemoryStore) -> None:
    """Mode ``fail`` reads no more pages than it needs to say no."""
    for number in range(2500):
        s3.put_object(f"t/{number:04}.csv", b"")
    mc.start("s3://bucket/empty", mode="fail").abort()
    s3.requests.clear()
    with pytest.raises(mc.DestinationExists):
        mc.start(DEST, mode="fail")
    assert s3.requests["list"] <= 3


def test_an_announcement_goes_with_the_call_that_made_it(s3: MemoryStore) -> None:
    """I4: the look at the plans fails: the announcement is withdrawn, also beside a sweep."""
    job = mc.start(DEST, mode="replace_partitions")
    committed_task(job, "1", {"p=1/a.csv": b"1"})

    def announced(request: Request) -> None:
        if request.verb == "put" and "/_plan-" in request.key:
            s3.before = None
            mc.abort(DEST, job.id)

            def fail(later: Request) -> None:
                if later.verb == "list" and later.key.endswith("__magic_job-"):
                    raise Unanswered("slow down", status=503)

            s3.before = fail

    s3.before = announced
    with pytest.raises(Unanswered):
        job.commit()
    s3.before = None
    with suppress(mc.JobNotRunning):
        job.commit()
    assert [key for key in control(s3) if "/_plan-" in key] == []


def test_a_revert_that_loses_to_the_driver_reverts_all_the_same(s3: MemoryStore) -> None:
    """I3: the operator's abort with ``revert`` finds a running job decided a moment later."""
    job = mc.start(DEST)
    committed_task(job, "1", {"a.csv": b"1"})

    def driver_is_faster(request: Request) -> None:
        if request.verb == "put" and request.key.endswith("_job.json"):
            s3.before = None
            At(s3, lambda r: r.verb == "complete_upload", crash)
            with pytest.raises(Crash):
                job.commit()
            s3.before = None

    s3.before = driver_is_faster
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert visible(s3) == {}
    assert s3.open_uploads() == ()


def test_cleanup_of_many_jobs_looks_at_closed_records_once(
    s3: MemoryStore, clock: PatientClock
) -> None:
    """An operator's cleanup takes closed records itself: the jobs that it ends do not."""
    for _ in range(12):
        mc.start(DEST)
    clock.ahead += 3 * 86_400.0
    s3.requests.clear()
    mc.cleanup(DEST)
    assert s3.requests["get"] <= 4 * 12
