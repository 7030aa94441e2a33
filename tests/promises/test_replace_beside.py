"""I2 and I6 of what a replace spares: schedules that the search of tests/model found."""

from __future__ import annotations

import threading

import pytest

import magic_committer as mc
from magic_committer.options import Mode
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    committed_task,
    crash,
    dies_at,
    job_of,
    killed_at,
    refusing,
    visible,
)


@pytest.mark.parametrize("mode", ["replace_partitions", "fail_partitions"])
def test_a_plan_that_lands_late_does_not_spare_a_partition(s3: MemoryStore, mode: Mode) -> None:
    """I6: the plan of a job by partition is sent twice, and the first lands when the job has swept
    it. A replace of the partition that has looked at the plans by then takes its file all the
    same."""
    earlier = job_of({"p=1/earlier.csv": b"1"}, mode=mode)
    At(s3, "delete", crash)
    plans: dict[str, bytes] = {}

    def note(request: Request, reply: object) -> None:
        if request.verb == "put" and "/_plan-" in request.key:
            plans[request.key] = s3.body(request.key)

    s3.after = note
    with pytest.raises(Crash):
        earlier.commit()
    s3.after = None
    key = list(plans)[-1]
    metadata = s3.attributes(key).metadata
    for plan in plans:  # the sweep deletes them first: as if it were killed behind that
        s3.delete_object(plan)
    later = job_of({"p=1/later.csv": b"2"}, mode="replace_partitions")

    def lands() -> None:
        s3.before = None
        s3.put_object(key, plans[key], metadata=metadata)

    at = At(s3, "list t/p=1/", lands)
    later.commit()
    assert at.done
    assert set(visible(s3)) == {"t/p=1/later.csv"}


def test_an_append_that_ends_while_its_sets_are_read_is_not_spared_in_part(s3: MemoryStore) -> None:
    """I2: a replace has read one pendingset of an append when the append is finished and swept: of
    its files either all stay or all go."""
    append = job_of({"a.csv": b"a"}, {"b.csv": b"b"}, accept="listing")
    dies_at(s3, "put *_SUCCESS", append.commit)
    sets = sorted(key for key in s3.keys() if key.endswith(".pendingset"))
    replace = job_of({"r.csv": b"r"}, mode="replace")
    read = threading.Event()

    def at_first(request: Request, reply: object) -> None:
        if request.verb == "get" and request.key == sets[0]:
            read.set()

    def at_second(request: Request) -> None:
        if request.verb == "get" and request.key == sets[1]:
            assert read.wait(timeout=300)
            s3.before = s3.after = None
            assert mc.recover(DEST, append.id).outcome == "committed"

    s3.before, s3.after = at_second, at_first
    replace.commit()
    assert s3.before is None
    assert set(visible(s3)) in ({"t/r.csv"}, {"t/r.csv", "t/a.csv", "t/b.csv"})


def completed_append_without_a_set(s3: MemoryStore) -> mc.Job:
    """An append of two files that is completed and not swept: its driver was killed. One of its
    attempts was aborted late, and has taken its pendingset with it."""
    append = job_of({"a.csv": b"a"}, accept="listing")
    late = append.task("2", attempt="a2")
    with late.open("b.csv") as f:
        f.write(b"b")
    late.commit()
    dies_at(s3, "put *_SUCCESS", append.commit)
    sets = [key for key in s3.keys() if key.endswith(".pendingset")]
    late.abort()
    assert len(sets) == 2
    assert [key for key in s3.keys() if key.endswith(".pendingset")] == [
        key for key in sets if not key.endswith("/_a2.pendingset")
    ]
    return append


def test_a_set_that_a_late_attempt_took_is_no_end_of_its_job(s3: MemoryStore) -> None:
    """I2: an append is completed and not over, and what it has published is not known any more: a
    replace refuses, and takes nothing of it."""
    append = completed_append_without_a_set(s3)
    replace = job_of({"r.csv": b"r"}, mode="replace")
    with pytest.raises(mc.ConflictingJob, match=append.id) as told:
        replace.commit()
    assert "a2.pendingset" in str(told.value)
    assert "recover(" in str(told.value)
    assert set(visible(s3)) == {"t/a.csv", "t/b.csv"}


def test_who_misses_a_set_of_a_job_waits_for_its_sweep(s3: MemoryStore) -> None:
    """I2: the append is over while a replace waits: all of its files are data that was there."""
    append = completed_append_without_a_set(s3)
    replace = job_of({"r.csv": b"r"}, mode="replace")
    looks: list[str] = []

    def at_the_second_look(request: Request) -> None:
        if request.verb == "head" and f"{append.id}/_plan-" in request.key:
            looks.append(request.key)
        if len(looks) == 2:
            s3.before = None
            assert mc.recover(DEST, append.id).outcome == "committed"

    s3.before = at_the_second_look
    replace.commit()
    assert len(looks) == 2
    assert set(visible(s3)) == {"t/r.csv"}


@pytest.mark.parametrize("mode", ["replace", "replace_partitions"])
@pytest.mark.parametrize("at", ["begins", "lists"])
def test_an_append_below_that_is_half_completed_keeps_its_files(
    s3: MemoryStore, mode: Mode, at: str
) -> None:
    """I2: a replace of `t` begins when the first of two files of an append to `t/a` is visible, or
    its second listing is the first that could show the append's job: all of the append stays."""
    s3.put_object("t/a/old.csv", b"old")
    append = mc.start(f"{DEST}/a", accept="listing")
    committed_task(append, "1", {"1.csv": b"1", "b/2.csv": b"2"})
    dies_at(s3, "complete_upload", append.commit, after=True)
    hidden = {k: (s3.body(k), s3.attributes(k).metadata) for k in s3.keys() if "/a/__magic" in k}
    if at == "lists":
        for key in hidden:
            s3.delete_object(key)
    replace = job_of({"a/r.csv": b"r"}, mode=mode)

    def shows() -> None:
        for key, (body, metadata) in hidden.items():
            s3.put_object(key, body, metadata=metadata)

    first = At(s3, "list t/a/", shows, after=True)
    assert replace.commit().outcome == "committed"
    assert first.done
    s3.after = None
    mc.recover(f"{DEST}/a", append.id, dead_after=0)
    assert visible(s3) == {"t/a/1.csv": b"1", "t/a/b/2.csv": b"2", "t/a/r.csv": b"r"}


def test_a_replace_below_that_is_decided_is_in_the_way(s3: MemoryStore) -> None:
    """I2: it deletes data itself, so nobody can tell what is to stay. The error names the job where
    it lives, and its remedy ends it; then the way is free. A job below that only runs, or has
    ended, or whose directory has no record, is in nobody's way."""
    s3.put_object("t/a/old.csv", b"old")
    s3.put_object("t/c/__magic_job-hadoop/x", b"")
    s3.put_object("t/a//__magic_job-odd/x", b"")
    inner = mc.start(f"{DEST}/a", mode="replace", job_id="inner")
    result = committed_task(inner, "1", {"1.csv": b"1", "2.csv": b"2"})
    running = mc.start(DEST, mode="replace")
    running.commit([committed_task(running, "1", {"r.csv": b"r"})])
    dies_at(s3, "complete_upload", lambda: inner.commit([result]), after=True)
    outer = mc.start(DEST, mode="replace")
    with pytest.raises(mc.ConflictingJob, match="in s3://bucket/t/a/, and is publishing") as caught:
        outer.commit([committed_task(outer, "1", {"o.csv": b"o"})])
    (remedy,) = caught.value.remedies
    assert (remedy.dest, remedy.job_id) == ("s3://bucket/t/a/", "inner")
    mc.recover(remedy.dest, remedy.job_id, dead_after=0)
    assert set(visible(s3)) == {"t/a/1.csv", "t/a/2.csv", "t/r.csv"}
    last = mc.start(DEST, mode="replace")
    last.commit([committed_task(last, "1", {"o.csv": b"o"})])
    assert set(visible(s3)) == {"t/o.csv"}


def test_old_data_that_another_deletes_just_then_stops_no_replace(s3: MemoryStore) -> None:
    """I7: an object that a decided append is about to rewrite goes between the listing and the look
    whose it is: it is nobody's, and the replace commits."""
    s3.put_object("t/a.csv", b"old")
    append = job_of({"a.csv": b"a"})
    killed_at(s3, "complete_upload", "t/a.csv", append)
    replace = job_of({"r.csv": b"r"}, mode="replace")
    at = At(s3, "head t/a.csv", lambda: s3.delete_object("t/a.csv"))
    assert replace.commit().outcome == "committed"
    assert at.done
    assert visible(s3) == {"t/r.csv": b"r"}


def test_what_a_decided_append_publishes_is_no_reason_to_list_again(s3: MemoryStore) -> None:
    """The second listing of a replace shows a file that a live, decided append has just made
    visible: whose it is is known, and two listings are enough."""
    append = job_of({"a.csv": b"a"})
    killed_at(s3, "complete_upload", "t/a.csv", append)
    replace = job_of({"r.csv": b"r"}, mode="replace")
    listings = 0

    def goes_on() -> None:
        with refusing(s3, "put t/_SUCCESS", Crash), pytest.raises(Crash):
            mc.recover(DEST, append.id)

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


def test_an_append_that_rewrites_one_key_and_adds_another_is_not_halved(s3: MemoryStore) -> None:
    """I2: a replace has listed the old object of a key that an append then rewrites in place, and
    lists the file that it adds: both stay or both go."""
    s3.put_object("t/a.csv", b"old")
    s3.put_object("t/d=1/old.csv", b"old")
    append = job_of({"a.csv": b"appended", "d=1/b.csv": b"appended"})
    replace = job_of({"r.csv": b"r"}, mode="replace")
    at = At(s3, "list t/d=1/", append.commit)
    assert replace.commit().outcome == "committed"
    assert at.done
    there = visible(s3)
    assert there.pop("t/r.csv") == b"r"
    assert there in ({}, {"t/a.csv": b"appended", "t/d=1/b.csv": b"appended"})


def test_a_replace_lists_as_often_as_appends_end_while_it_lists(s3: MemoryStore) -> None:
    """I2: two appends, one ends in the first listing and one in the next: none goes by half."""
    s3.put_object("t/d=1/old.csv", b"old")
    appends = []
    for name in ("a", "b"):
        append = job_of({f"{name}.csv": b"1", f"d=1/{name}.csv": b"1"})
        appends.append(append)
    replace = job_of({"r.csv": b"r"}, mode="replace")
    roots = 0

    def before(request: Request) -> None:
        nonlocal roots
        roots += (request.verb, request.key) == ("list", "t/")
        # The second listing of a round ends at the first file that is new.
        due = appends and roots == 5 - 2 * len(appends)
        if due and (request.verb, request.key) == ("list", "t/d=1/"):
            appends.pop(0).commit()

    s3.before = before
    assert replace.commit().outcome == "committed"
    s3.before = None
    assert appends == []
    there = set(visible(s3)) - {"t/r.csv"}
    for name in ("a", "b"):
        assert len(there & {f"t/{name}.csv", f"t/d=1/{name}.csv"}) in (0, 2), there
