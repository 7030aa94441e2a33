"""I2 and I6 of jobs that run beside each other: by partition, and an append beside a replace."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

import magic_committer as mc
from magic_committer.commit.conflict import LISTINGS_MAX
from magic_committer.errors import Unanswered
from magic_committer.options import Mode
from magic_committer.protocol.plan import Plan
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    control,
    job_of,
    killed_at,
    raising,
    visible,
)


def whole_job(mode: Mode, name: str, *, mark_success: bool = True) -> mc.JobReport:
    """A job of one file in partition ``p=1``, from start to end."""
    job = job_of({f"p=1/{name}": name.encode()}, mode=mode, mark_success=mark_success)
    return job.commit()


def moments(mode: Mode) -> int:
    """How many requests a commit by partition sends."""
    with memory_store("bucket") as s3:
        s3.put_object("t/p=2/old.csv", b"old")
        job = job_of({"p=1/a.csv": b"a"}, mode=mode)
        s3.requests.clear()
        job.commit()
        return s3.requests.total()


@pytest.mark.parametrize("other", ["replace_partitions", "fail_partitions"])
@pytest.mark.parametrize("mode", ["replace_partitions", "fail_partitions"])
def test_a_job_that_begins_and_ends_within_anothers_commit_leaves_no_union(
    mode: Mode, other: Mode
) -> None:
    """I6: at whatever request of a commit another job of the partition begins and ends: the
    partition holds the files of one of them at the end, and nobody was told otherwise."""
    met = 0
    for moment in range(moments(mode)):
        with memory_store("bucket") as s3:
            s3.put_object("t/p=2/old.csv", b"old")
            job = job_of({"p=1/ours.csv": b"ours.csv"}, mode=mode)
            told: list[str] = []
            seen = iter(range(10_000))

            def neighbour(
                told: list[str] = told, s3: MemoryStore = s3, before: object = None
            ) -> None:
                s3.before = None
                try:
                    whole_job(other, "theirs.csv")
                except (mc.ConflictingJob, mc.DestinationExists):
                    told.append("refused")
                else:
                    told.append("committed")

            at = At(s3, lambda r, seen=seen, n=moment: next(seen) == n, neighbour)  # type: ignore[misc]
            try:
                job.commit()
            except (mc.ConflictingJob, mc.DestinationExists):
                ours = "refused"
            else:
                ours = "committed"
            s3.before = None
            assert at.done
            there = set(visible(s3)) - {"t/p=2/old.csv"}
            assert len(there) <= 1, (moment, ours, told, there)
            assert (ours, *told).count("committed") == 0 or there
            if (ours, told) == ("committed", ["committed"]):  # the later one replaced the other
                later = mode if there == {"t/p=1/ours.csv"} else other
                assert later == "replace_partitions", moment
                met += 1
            assert "t/p=2/old.csv" in visible(s3)
            assert s3.open_uploads() == ()
    if "replace_partitions" in (mode, other):
        assert met  # one after the other is allowed: the case that could fail was there


def test_a_neighbour_whose_plan_goes_while_it_is_looked_at_is_no_failure(s3: MemoryStore) -> None:
    """I5: between the listing of its plans and the read of one it was aborted: it is over."""
    job, other = (mc.start(DEST, mode="replace_partitions") for _ in range(2))
    committed_task(job, "1", {"p=1/ours.csv": b"1"})
    plan = f"t/__magic_job-{other.id}/_plan-late.json"
    stored = Plan(other.id, other.uuid, "0" * 32, 0, 0, (), partitions=("p=1/",))
    s3.put_object(plan, stored.encode())
    at = At(s3, f"get {plan}", other.abort)
    assert job.commit().files == 1
    assert at.done


def test_partitions_are_listed_side_by_side() -> None:
    """Of many partitions several listings are under way at once: the window stays small."""

    with memory_store("bucket") as s3:
        job = job_of({f"p={n}/a.csv": b"a" for n in range(8)}, mode="replace_partitions")
        meeting = threading.Barrier(4)

        def wait(request: Request) -> None:
            if request.verb == "list" and "/p=" in request.key:
                meeting.wait(timeout=300)

        s3.before = wait
        job.commit()
        assert len(visible(s3)) == 8


def test_what_an_append_rewrites_in_place_is_not_taken_for_old_data(s3: MemoryStore) -> None:
    """I2: it does not save the old object at that key, and its own one stays."""
    s3.put_object("t/a.csv", b"old")
    append = job_of({"a.csv": b"appended"})
    replace = job_of({"new.csv": b"new"}, mode="replace")

    def at_decision() -> None:
        replace.commit()
        assert set(visible(s3)) == {"t/new.csv"}

    At(s3, "complete_upload t/a.csv", at_decision)
    append.commit()
    assert visible(s3) == {"t/a.csv": b"appended", "t/new.csv": b"new"}


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("listing", range(4))
def test_an_append_that_ends_while_a_replace_lists_is_replaced_whole_or_not_at_all(
    s3: MemoryStore, listing: int, marks: bool
) -> None:
    """I2: what an append publishes within a listing is never deleted in part, marker or none."""
    for n in range(3):
        s3.put_object(f"t/d={n}/old.csv", b"old")
    append = job_of({f"d={n}/new-{n}.csv": b"a" for n in range(3)}, mark_success=marks)
    replace = job_of({"r.csv": b"r"}, mode="replace")

    seen = iter(range(100))

    def at_listing(request: Request, reply: object) -> None:
        if request.verb == "list" and "/d=" in request.key and next(seen) == listing:
            s3.after = None
            append.commit()

    s3.after = at_listing
    replace.commit()
    assert s3.after is None
    left = {key for key in visible(s3) if "/new-" in key}
    assert len(left) in (0, 3), left
    assert "t/r.csv" in visible(s3)


def test_a_replace_beside_appends_that_never_end_still_commits() -> None:
    """A replace lists so many times and no more: it does not wait for ever for the others."""
    clock = PatientClock()
    with memory_store("bucket", clock=clock) as s3:
        s3.put_object("t/old.csv", b"old")
        replace = job_of({"r.csv": b"r"}, mode="replace")
        count = iter(range(1000))

        def another(request: Request) -> None:
            if request.verb == "list" and request.key == "t/":
                s3.before = None
                whole_job("append", f"{next(count)}.csv")
                clock.ahead += 5
                s3.before = another

        s3.before = another
        assert replace.commit().outcome == "committed"
        s3.before = None
        assert "t/old.csv" not in visible(s3)
        assert next(count) == 2 * LISTINGS_MAX


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


def test_an_announcement_goes_with_the_call_that_made_it(s3: MemoryStore) -> None:
    """I4: the look at the plans fails: the announcement is withdrawn, also beside a sweep."""
    job = job_of({"p=1/a.csv": b"1"}, mode="replace_partitions")

    def announced() -> None:
        mc.abort(DEST, job.id)
        s3.before = raising("list *__magic_job-", Unanswered("slow down", status=503))

    At(s3, "put */_plan-*", announced)
    with pytest.raises(Unanswered):
        job.commit()
    s3.before = None
    with suppress(mc.JobNotRunning):
        job.commit()
    assert [key for key in control(s3) if "/_plan-" in key] == []


def plans(store: MemoryStore) -> list[str]:
    return [key for key in control(store) if "/_plan-" in key]


@pytest.mark.parametrize("refused", [True, False])
def test_an_announcement_that_lands_after_an_abort_is_taken_back(
    s3: MemoryStore, refused: bool
) -> None:
    """I4: another process has aborted and swept the job by the time that its announcement is
    stored: the driver, refused or beaten, leaves no plan behind."""
    if refused:
        s3.put_object("t/p=1/old.csv", b"old")
    job = job_of({"p=1/a.csv": b"a"}, mode="fail_partitions")
    at = At(s3, "put */_plan-*", lambda: mc.abort(DEST, job.id))
    with pytest.raises(mc.JobNotRunning):
        job.commit()
    assert at.done
    assert plans(s3) == []
    assert s3.open_uploads() == ()
