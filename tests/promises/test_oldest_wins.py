"""Of excluding jobs that start at once the oldest wins: who is younger yields, who is the oldest
waits, and nobody goes on while another one is there (I6, I7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import magic_committer as mc
from magic_committer.options import Mode
from magic_committer.runtime.components import SystemClock
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock, memory_store
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    committed_task,
    control,
    dies_at,
    job_of,
    raises,
    raising,
    visible,
)

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


def test_of_one_second_the_uuids_tell(s3: MemoryStore, clock: PatientClock) -> None:
    """Last-Modified has whole seconds: who has the greater UUID yields, and the other one waits."""
    ways: set[bool] = set()
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
    dying: list[Request] = []

    def die(request: Request) -> None:
        if dying or looks_around(request):
            dying.append(request)
            raise Crash

    s3.before = die
    raises(Crash, dead.commit)

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
