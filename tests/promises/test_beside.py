"""I2, I6, I7 of jobs beside each other: who yields to whom, and what a replace spares."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, takewhile
from operator import itemgetter

import pytest

import magic_committer as mc
from magic_committer.commit.conflict import LISTINGS_MAX
from magic_committer.errors import Unanswered
from magic_committer.options import Mode
from magic_committer.protocol.plan import Plan
from magic_committer.runtime.components import SystemClock
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    Nth,
    committed_task,
    control,
    crash,
    dies_at,
    job_of,
    raises,
    raising,
    refusing,
    visible,
)
from tests.promises.machine import matching

JOBS = 8
PATIENCE_SECONDS = 300.0
WAITED_SECONDS = 7.75


def looks_around(request: Request) -> bool:
    """A job looks for other jobs: after setup, or after it has announced its partitions."""
    return request.verb == "list" and request.key == "t/__magic_job-"


def lists_partition(request: Request) -> bool:
    return request.verb == "list" and request.key == "t/p=1/"


def started(s3: MemoryStore) -> list[str]:
    return [key.split("__magic_job-")[1].split("/")[0] for key in control(s3)]


def while_waiting(clock: PatientClock, deed: Callable[[], object]) -> None:
    """Do something whenever somebody waits."""
    sleep = clock.sleep

    def meanwhile(seconds: float) -> None:
        sleep(seconds)
        deed()

    clock.sleep = meanwhile  # type: ignore[method-assign]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("mode", ["fail", "replace"])
def test_of_eight_jobs_that_start_at_once_one_wins(mode: Mode, given: bool) -> None:
    """All have written their records before any looks; what the others tried works afterwards."""
    gate = threading.Barrier(JOBS, timeout=PATIENCE_SECONDS)
    met = threading.local()

    def meet(request: Request) -> None:
        if looks_around(request) and not getattr(met, "done", False):
            met.done = True
            gate.wait()

    def start(number: int) -> mc.Job | str:
        try:
            return mc.start(DEST, mode=mode, job_id=f"job-{number}" if given else None)
        except mc.ConflictingJob as error:
            return str(error)

    with memory_store(clock=SystemClock()) as s3, ThreadPoolExecutor(JOBS) as pool:
        s3.before = meet
        found = list(pool.map(start, range(JOBS)))
        s3.before = None
        (won,) = (one for one in found if isinstance(one, mc.Job))
        lost = [one for one in found if isinstance(one, str)]
        assert len(lost) == JOBS - 1
        assert all("Try again when it has ended" in told for told in lost)
        committed_task(won, "1", {"a.csv": b"1"})
        won.commit()
        assert visible(s3) == {"t/a.csv": b"1"}
        if mode == "replace":
            mc.start(DEST, mode=mode).abort()


def test_a_younger_one_yields_at_once_and_says_whom(s3: MemoryStore, clock: PatientClock) -> None:
    """It need not wait, and takes its record back."""
    first = mc.start(DEST, mode="replace")
    clock.sleep(5)
    before = clock.ahead
    with pytest.raises(mc.ConflictingJob, match=f"{first.id}.*running.*this one yields to it"):
        mc.start(DEST, mode="replace")
    assert clock.ahead == before
    assert started(s3) == [first.id]


def test_the_oldest_waits_for_the_younger_to_yield(s3: MemoryStore, clock: PatientClock) -> None:
    """It sees the record of a younger one, which is gone at its second look: it wins."""

    def set_up() -> None:
        clock.sleep(5)
        mc.start(DEST, job_id="x")
        body = s3.body("t/__magic_job-x/_job.json").replace(b'"append"', b'"replace"')
        s3.put_object("t/__magic_job-x/_job.json", body)

    At(s3, looks_around, set_up)
    while_waiting(clock, lambda: s3.delete_object("t/__magic_job-x/_job.json"))
    job = mc.start(DEST, mode="replace")
    assert started(s3) == [job.id]


def test_one_that_is_being_aborted_is_waited_for(s3: MemoryStore, clock: PatientClock) -> None:
    """A given id is withdrawn through ``aborting``: whatever its age, it is soon closed."""
    older = mc.start(DEST, mode="replace", job_id="x")
    dies_at(s3, "list", older.abort)
    clock.sleep(5)
    while_waiting(clock, lambda: mc.recover(DEST, "x"))
    job = mc.start(DEST, mode="replace")
    assert mc.attach(DEST, "x").state == "closed"
    assert job.state == "running"


@pytest.mark.parametrize("decided", [False, True])
def test_the_oldest_yields_to_one_that_looked_first(
    s3: MemoryStore, clock: PatientClock, decided: bool
) -> None:
    """It came late, and waits in vain; not at all if the younger one completes, maybe for hours."""
    jobs: list[mc.Job] = []

    def younger_first() -> None:
        clock.ahead += 5
        jobs.append(job_of({"a.csv": b"1"}, mode="replace"))
        if decided:
            dies_at(s3, "complete_upload", jobs[0].commit)
        clock.ahead -= 5

    At(s3, "put */_job.json", younger_first)
    before = clock.ahead
    told = "committing" if decided else "it is younger, and has not yielded"
    raises(mc.ConflictingJob, mc.start, DEST, mode="replace", match=told)
    assert clock.ahead - before == (0 if decided else WAITED_SECONDS)
    assert set(started(s3)) == {jobs[0].id}
    jobs[0].commit()
    assert visible(s3) == {"t/a.csv": b"1"}


def test_of_one_second_the_uuids_tell(
    s3: MemoryStore, clock: PatientClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last-Modified has whole seconds: who has the greater UUID yields, and the other one waits."""
    ways: set[bool] = set()
    monkeypatch.setattr(clock, "now", lambda: 1_795_000_000.0 + clock.ahead)  # it stands
    for _ in range(40):
        clock.ahead += 1.0 - clock.now() % 1.0  # a second begins
        first = mc.start(DEST, mode="replace")
        before = clock.ahead
        raised = raises(mc.ConflictingJob, mc.start, DEST, mode="replace")
        waited = clock.ahead > before
        assert waited is ("has not yielded" in str(raised))
        assert waited is (str(raised.job_id) < first.id)
        ways.add(waited)
        first.abort()
    assert ways == {True, False}


BY_PARTITION: tuple[Mode, ...] = ("fail_partitions", "replace_partitions")


class Ready:
    def __init__(self, mode: Mode, name: str = "a.csv") -> None:
        self.job = mc.start(DEST, mode=mode)
        self.results = [committed_task(self.job, "1", {f"p=1/{name}": b"1"})]

    def commit(self) -> str:
        self.job.commit(self.results)
        return self.job.id


def two_ready(clock: PatientClock, mode: Mode) -> tuple[Ready, Ready]:
    """An older and a younger job of one partition, with ``a.csv`` and ``b.csv``."""
    older = Ready(mode)
    clock.sleep(5)
    return older, Ready(mode, "b.csv")


@pytest.mark.parametrize("mode", BY_PARTITION)
@pytest.mark.parametrize(
    ("who", "when", "told", "waits"),
    [
        pytest.param("younger", looks_around, "p=1/ too: this one yields", 0.0, id="announced"),
        pytest.param(
            "older", lists_partition, "it is younger, and has not yielded", WAITED_SECONDS,
            id="looked first",
        ),
        pytest.param(
            "older", lambda r: r.verb == "complete_upload", r"committing.*this one yields to it",
            0.0, id="decided",
        ),
    ],
)  # fmt: skip
def test_of_two_of_one_partition_the_one_that_meets_the_other_yields(
    s3: MemoryStore, clock: PatientClock, who: str, when: Callable[[Request], bool], told: str,
    waits: float, mode: Mode,
) -> None:  # fmt: skip
    """The younger one, or the older one if the other has looked before it, or has decided."""
    older, younger = two_ready(clock, mode)
    refused, goes_on = (younger, older) if who == "younger" else (older, younger)

    def meets() -> None:
        before = clock.ahead
        raises(mc.ConflictingJob, refused.commit, match=told)
        assert clock.ahead - before == waits

    with At(s3, when, meets):
        goes_on.commit()
    assert set(visible(s3)) == {f"t/p=1/{'a' if who == 'younger' else 'b'}.csv"}


def test_a_rival_that_is_being_ended_is_not_younger(s3: MemoryStore, clock: PatientClock) -> None:
    """Its abort is refused, its plan stays: who waits in vain says so, and what ends it."""
    dead = Ready("replace_partitions")
    dies_at(s3, looks_around, dead.commit, silent=True)
    s3.before = raising("abort_upload t/p=1/a.csv", mc.PermissionDenied)
    assert mc.abort(DEST, dead.job.id).warnings
    clock.sleep(600)
    told = r"aborting.*it is being ended, and has not gone yet"
    raises(mc.ConflictingJob, Ready("replace_partitions", "b.csv").commit, match=told)
    s3.before = None
    mc.recover(DEST, dead.job.id, dead_after=0)
    Ready("replace_partitions", "c.csv").commit()
    assert set(visible(s3)) == {"t/p=1/c.csv"}


@pytest.mark.parametrize("mode", BY_PARTITION)
def test_the_older_one_of_a_partition_lists_after_its_last_look(
    s3: MemoryStore, clock: PatientClock, mode: Mode
) -> None:
    """The younger one ends while the older one waits, which replaces its file, or refuses."""
    older, younger = two_ready(clock, mode)
    sleep, waits, ended = clock.sleep, threading.Event(), threading.Event()
    told: list[BaseException | None] = []

    def wait(seconds: float) -> None:
        sleep(seconds)
        waits.set()
        assert ended.wait(PATIENCE_SECONDS)

    def commit() -> None:
        try:
            older.commit()
            told.append(None)
        except mc.DestinationExists as error:
            told.append(error)

    thread = threading.Thread(target=commit)

    def meet() -> None:
        clock.sleep = wait  # type: ignore[method-assign]
        thread.start()
        assert waits.wait(PATIENCE_SECONDS)

    at = At(s3, lists_partition, meet)
    younger.commit()
    ended.set()
    thread.join(PATIENCE_SECONDS)
    assert at.done
    assert set(visible(s3)) == {"t/p=1/b.csv" if mode == "fail_partitions" else "t/p=1/a.csv"}
    assert [type(one) for one in told] == [
        mc.DestinationExists if mode == "fail_partitions" else type(None)
    ]


def outcome(files: dict[str, bytes], mode: Mode) -> str:
    """Of a job of these files, from its start to its end."""
    try:
        job_of(files, mode=mode).commit()
    except (mc.ConflictingJob, mc.DestinationExists):
        return "refused"
    return "committed"


@pytest.mark.parametrize("other", ["replace_partitions", "fail_partitions"])
@pytest.mark.parametrize("mode", ["replace_partitions", "fail_partitions"])
def test_no_union_of_one_within_another(mode: Mode, other: Mode) -> None:
    """I6: at whatever request: the partition holds one's files, and nobody was told otherwise."""

    def meet(moment: int) -> tuple[bool, bool]:
        """Whether the job sends so many requests, and whether both were committed."""
        told: list[str] = []

        def neighbour() -> None:
            s3.before = None
            told.append(outcome({"p=1/theirs.csv": b"1"}, other))

        with memory_store("bucket") as s3:
            s3.put_object("t/p=2/old.csv", b"old")
            at = At(s3, Nth(moment), neighbour)
            told.append(outcome({"p=1/ours.csv": b"1"}, mode))
            s3.before = None
            there = set(visible(s3)) - {"t/p=2/old.csv"}
            assert len(there) <= 1, (moment, told, there)
            assert there or "committed" not in told
            both = told == ["committed", "committed"]
            if both:  # the later one replaced the other
                later = mode if there == {"t/p=1/ours.csv"} else other
                assert later == "replace_partitions", moment
            assert "t/p=2/old.csv" in visible(s3)
            assert s3.open_uploads() == ()
            return at.done, both

    met = [both for sent, both in takewhile(itemgetter(0), map(meet, count(1)))]
    assert len(met) > 10
    # One after the other is allowed: the case that could fail was there.
    assert any(met) or "replace_partitions" not in (mode, other)


def test_a_neighbour_whose_plan_goes_while_it_is_looked_at_is_no_failure(s3: MemoryStore) -> None:
    """I5: between the listing of its plans and the read of one it was aborted: it is over."""
    job, other = (mc.start(DEST, mode="replace_partitions") for _ in range(2))
    committed_task(job, "1", {"p=1/ours.csv": b"1"})
    plan = f"t/__magic_job-{other.id}/_plan-late.json"
    stored = Plan(other.id, other.uuid, "0" * 32, 0, 0, (), partitions=("p=1/",))
    s3.put_object(plan, stored.encode())
    with At(s3, f"get {plan}", other.abort):
        assert job.commit().files == 1


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


def test_a_replace_beside_appends_that_never_end_still_commits() -> None:
    """A replace lists so many times and no more: it does not wait for ever for the others."""
    clock = PatientClock()
    with memory_store("bucket", clock=clock) as s3:
        s3.put_object("t/old.csv", b"old")
        replace = job_of({"r.csv": b"r"}, mode="replace")
        numbers = count()

        def another(request: Request) -> None:
            if request.verb == "list" and request.key == "t/":
                s3.before = None
                outcome({f"{next(numbers)}.csv": b"1"}, "append")
                clock.ahead += 5
                s3.before = another

        s3.before = another
        assert replace.commit().outcome == "committed"
        s3.before = None
        assert "t/old.csv" not in visible(s3)
        assert next(numbers) == 2 * LISTINGS_MAX


def test_an_append_that_is_listed_first_hides_no_plan(s3: MemoryStore) -> None:
    """I6: it has no partitions; of two jobs of one partition behind it the second is refused."""
    mc.start(DEST, job_id="a")
    first, second = (mc.start(DEST, job_id=name, mode="fail_partitions") for name in "bc")
    for job in (first, second):
        committed_task(job, "1", {f"p=1/{job.id}.csv": b"1"})
    dies_at(s3, "complete_upload t/p=1/b.csv", first.commit)
    raises(mc.ConflictingJob, second.commit, match="job 'b'")
    assert visible(s3) == {}


def test_an_announcement_goes_with_the_call_that_made_it(s3: MemoryStore) -> None:
    """I4: the look at the plans fails: the announcement is withdrawn, also beside a sweep."""
    job = job_of({"p=1/a.csv": b"1"}, mode="replace_partitions")

    def announced() -> None:
        mc.abort(DEST, job.id)
        s3.before = raising("list *__magic_job-", Unanswered("slow down", status=503))

    At(s3, "put */_plan-*", announced)
    raises(Unanswered, job.commit)
    s3.before = None
    with suppress(mc.JobNotRunning):
        job.commit()
    assert matching(s3, "*/_plan-*") == []


@pytest.mark.parametrize("refused", [True, False])
def test_an_announcement_after_an_abort_is_taken_back(s3: MemoryStore, refused: bool) -> None:
    """I4: another has swept the job by then: the driver, refused or beaten, leaves no plan."""
    if refused:
        s3.put_object("t/p=1/old.csv", b"old")
    job = job_of({"p=1/a.csv": b"a"}, mode="fail_partitions")
    with At(s3, "put */_plan-*", lambda: mc.abort(DEST, job.id)):
        raises(mc.JobNotRunning, job.commit)
    assert matching(s3, "*/_plan-*") == []
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("mode", ["replace_partitions", "fail_partitions"])
def test_a_plan_that_lands_late_does_not_spare_a_partition(s3: MemoryStore, mode: Mode) -> None:
    """I6: it was swept, and lands again once a replace has looked: that spares nothing."""
    earlier = job_of({"p=1/earlier.csv": b"1"}, mode=mode)
    At(s3, "delete", crash)
    plans: dict[str, bytes] = {}

    def note(request: Request, reply: object) -> None:
        if request.verb == "put" and "/_plan-" in request.key:
            plans[request.key] = s3.body(request.key)

    s3.after = note
    raises(Crash, earlier.commit)
    s3.after = None
    key = list(plans)[-1]
    metadata = s3.attributes(key).metadata
    for plan in plans:  # the sweep deletes them first: as if it were killed behind that
        s3.delete_object(plan)
    later = job_of({"p=1/later.csv": b"2"}, mode="replace_partitions")

    def lands() -> None:
        s3.before = None
        s3.put_object(key, plans[key], metadata=metadata)

    with At(s3, "list t/p=1/", lands):
        later.commit()
    assert set(visible(s3)) == {"t/p=1/later.csv"}


def completed_append_without_a_set(s3: MemoryStore) -> mc.Job:
    """An append that is completed and not swept; a late attempt has taken its set away."""
    append = job_of({"a.csv": b"a"}, accept="listing")
    late = append.task("2", attempt="a2")
    with late.open("b.csv") as f:
        f.write(b"b")
    late.commit()
    dies_at(s3, "put *_SUCCESS", append.commit)
    sets = matching(s3, "*.pendingset")
    late.abort()
    (gone,) = set(sets) - set(matching(s3, "*.pendingset"))
    assert gone.endswith("/_a2.pendingset")
    return append


def test_a_set_that_a_late_attempt_took_is_no_end_of_its_job(s3: MemoryStore) -> None:
    """I2: what an append has published is not known any more: a replace refuses to take it."""
    append = completed_append_without_a_set(s3)
    replace = job_of({"r.csv": b"r"}, mode="replace")
    told = raises(mc.ConflictingJob, replace.commit, match=append.id)
    assert "a2.pendingset" in str(told)
    assert "recover(" in str(told)
    assert set(visible(s3)) == {"t/a.csv", "t/b.csv"}


def test_who_misses_a_set_of_a_job_waits_for_its_sweep(s3: MemoryStore) -> None:
    """I2: the append is over while a replace waits: all of its files are data that was there."""
    append = completed_append_without_a_set(s3)
    replace = job_of({"r.csv": b"r"}, mode="replace")
    ends: list[mc.Recovery] = []
    with At(
        s3, f"head *{append.id}/_plan-*", lambda: ends.append(mc.recover(DEST, append.id)), nth=2
    ):
        replace.commit()
    assert [end.outcome for end in ends] == ["committed"]
    assert set(visible(s3)) == {"t/r.csv"}


@pytest.mark.parametrize("mode", ["replace", "replace_partitions"])
@pytest.mark.parametrize("at", ["begins", "lists"])
def test_a_half_completed_append_keeps_its_files(s3: MemoryStore, mode: Mode, at: str) -> None:
    """I2: of `t/a`, as a replace of `t` begins, or shown by its second listing: all of it stays."""
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

    with At(s3, "list t/a/", shows, after=True):
        assert replace.commit().outcome == "committed"
    s3.after = None
    mc.recover(f"{DEST}/a", append.id, dead_after=0)
    assert visible(s3) == {"t/a/1.csv": b"1", "t/a/b/2.csv": b"2", "t/a/r.csv": b"r"}


def test_a_replace_below_that_is_decided_is_in_the_way(s3: MemoryStore) -> None:
    """I2: the error's remedy ends it where it lives; one that runs, or has ended, bars nobody."""
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
    """I7: it goes between the listing and the look whose it is: it is nobody's."""
    s3.put_object("t/a.csv", b"old")
    append = job_of({"a.csv": b"a"})
    dies_at(s3, "complete_upload t/a.csv", append.commit)
    replace = job_of({"r.csv": b"r"}, mode="replace")
    with At(s3, "head t/a.csv", lambda: s3.delete_object("t/a.csv")):
        assert replace.commit().outcome == "committed"
    assert visible(s3) == {"t/r.csv": b"r"}


def test_what_a_decided_append_publishes_is_no_reason_to_list_again(s3: MemoryStore) -> None:
    """Whose the new file in the second listing is is known: two listings are enough."""
    append = job_of({"a.csv": b"a"})
    dies_at(s3, "complete_upload t/a.csv", append.commit)
    replace = job_of({"r.csv": b"r"}, mode="replace")
    listings: list[str] = []

    def before(request: Request) -> None:
        listings.extend([request.key] if (request.verb, request.key) == ("list", "t/") else [])
        if len(listings) == 2 and "t/a.csv" not in s3.keys():
            with refusing(s3, "put t/_SUCCESS", Crash), pytest.raises(Crash):
                mc.recover(DEST, append.id)
            s3.before = before

    s3.before = before
    assert replace.commit().outcome == "committed"
    assert len(listings) == 2
    assert set(visible(s3)) == {"t/a.csv", "t/r.csv"}


def test_an_append_that_rewrites_one_key_and_adds_another_is_not_halved(s3: MemoryStore) -> None:
    """I2: a replace has listed the old object, and lists the new file: both stay or both go."""
    s3.put_object("t/a.csv", b"old")
    s3.put_object("t/d=1/old.csv", b"old")
    append = job_of({"a.csv": b"appended", "d=1/b.csv": b"appended"})
    replace = job_of({"r.csv": b"r"}, mode="replace")
    with At(s3, "list t/d=1/", append.commit):
        assert replace.commit().outcome == "committed"
    there = visible(s3)
    assert there.pop("t/r.csv") == b"r"
    assert there in ({}, {"t/a.csv": b"appended", "t/d=1/b.csv": b"appended"})


def test_a_replace_lists_as_often_as_appends_end_while_it_lists(s3: MemoryStore) -> None:
    """I2: two appends, one ends in the first listing and one in the next: none goes by half."""
    s3.put_object("t/d=1/old.csv", b"old")
    appends = [job_of({f"{name}.csv": b"1", f"d=1/{name}.csv": b"1"}) for name in "ab"]
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


def test_partitions_are_listed_side_by_side() -> None:
    """Of many partitions several listings are under way at once: the window stays small."""
    with memory_store("bucket") as s3:
        job = job_of({f"p={n}/a.csv": b"a" for n in range(8)}, mode="replace_partitions")
        meeting = threading.Barrier(4)

        def wait(request: Request) -> None:
            if request.verb == "list" and "/p=" in request.key:
                meeting.wait(PATIENCE_SECONDS)

        s3.before = wait
        job.commit()
        assert len(visible(s3)) == 8
