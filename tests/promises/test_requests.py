"""The number of requests of a job, verb by verb, is the formula of docs/performance.md; and a call
waits for a store that is silent as long as docs/limits.md says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from inspect import signature
from itertools import chain
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.commit import probe
from magic_committer.errors import Unanswered
from magic_committer.hadoop.paths import unique_name
from magic_committer.maintenance import api
from magic_committer.options import Accept, S3Options, Track
from magic_committer.runtime import wiring
from magic_committer.runtime.threads import ThreadPool, patience
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.stores.s3.retry import seconds_max
from magic_committer.testing import PatientClock, memory_store
from tests.concrete import upload_of
from tests.hadoops import leave_job
from tests.promises.hands import DEST, StillClock, committed_task
from tests.promises.machine import DAY, Machine

PAGE = 1000


@pytest.fixture
def s3() -> Iterator[MemoryStore]:
    """A store whose clock stands still: how long the test takes adds no request."""
    with memory_store(clock=StillClock()) as store:
        probe._known.pop(store.identity)  # as of a store that nobody knows
        yield store


def pages(entries: int) -> int:
    return max(1, -(-entries // PAGE))


def formula(
    tasks: int, files: int, *, track: Track, accept: Accept, given_id: bool, first: bool
) -> Counter[str]:
    """Requests of an undisturbed job, alone under its destination (docs/performance.md)."""
    every = tasks * files
    count = Counter(
        # a file: 3
        create_upload=every,
        put_part=every,
        complete_upload=every,
        # a task: 4
        head=2 * tasks,
        # a job
        list=pages(tasks + 2),
        list_uploads=pages(every) + 1,
        delete=1 + pages(tasks),
    )
    count["put"] = tasks + 5
    if first:  # the proof of the store
        count.update(put=2 + 1, head=1, create_upload=1, put_part=1, abort_upload=2)
        count.update(complete_upload=1, delete_one=1)
    count["get"] = tasks + 3
    if given_id:
        # the closed record instead of its deletion; the used directory, and the records of others
        # behind the own one and before it, of which there are none; whose the plan is
        count.update(put=1, list=3, head=1)
    else:
        count["delete_one"] += 1
    if accept == "listing":
        count["list"] += pages(tasks)
    if track == "s3":
        # the `.pending` of a file; the attempt's tree, listed and deleted
        count.update(put=every, list=tasks * pages(files), delete=tasks)
    return count


@pytest.mark.parametrize("given_id", [False, True])
@pytest.mark.parametrize("accept", ["results", "listing"])
@pytest.mark.parametrize("track", ["memory", "s3"])
@pytest.mark.parametrize(("tasks", "files"), [(1, 1), (3, 4), (7, 1)])
def test_a_job_makes_exactly_the_requests_that_the_docs_state(
    s3: MemoryStore, tasks: int, files: int, track: Track, accept: Accept, given_id: bool
) -> None:
    """So many a file, a task, a page and a job; the same for the second job, but for the proof."""
    for first in (True, False):
        s3.requests.clear()
        job = mc.start(
            f"{DEST}{first}", track=track, accept=accept, job_id="j" if given_id else None
        )
        results = [
            committed_task(job, str(task), {f"{task}-{n}.csv": b"1" for n in range(files)})
            for task in range(tasks)
        ]
        job.commit(results if accept == "results" else None)
        expected = formula(tasks, files, track=track, accept=accept, given_id=given_id, first=first)
        assert s3.requests == expected


def test_listings_cost_a_request_a_thousand(s3: MemoryStore) -> None:
    """2,500 files in one task: the open uploads are three pages, the rest as ever."""
    job = mc.start(DEST, track="memory", accept="results")
    result = committed_task(job, "1", {f"{n}.csv": b"" for n in range(2500)})
    job.commit([result])
    assert s3.requests == formula(
        1, 2500, track="memory", accept="results", given_id=False, first=True
    )


@pytest.mark.parametrize(("files", "heads"), [(0, 0), (100, 2)])
def test_a_task_reads_the_fence_twice(s3: MemoryStore, files: int, heads: int) -> None:
    """Not once a file, however many it writes within a second; one without files costs nothing."""
    job = mc.start(DEST, track="memory", accept="results")
    s3.requests.clear()
    committed_task(job, "1", {f"{n}.csv": b"" for n in range(files)})
    assert s3.requests["head"] == heads
    assert files or not s3.requests


@pytest.mark.parametrize("track", ["memory", "s3"])
def test_an_aborted_task_makes_the_requests_of_the_docs(s3: MemoryStore, track: Track) -> None:
    """Abort and look for each upload; a shared one claims, reads the fence, deletes its tree."""
    task = mc.start(DEST, track=track).task("1")
    for name in "abc":
        with task.open(name) as f:
            f.write(b"1")
        upload_of(f).wait()
    s3.requests.clear()
    task.abort()
    expected = Counter(abort_upload=3, list_parts=3)
    if track == "s3":
        expected.update(put=1, head=1, list=1, delete=1)
    assert s3.requests == expected


# A store that is silent ---------------------------------------------------------------------------

MANY = 20
"""Tasks, files and uploads: each of them costs a request at least."""
SILENCE = S3Options(retry_seconds_max=5.0, decided_seconds_max=5.0)
GIVEN = {
    "dest": DEST,
    "path": DEST,
    "job_id": "mine",
    "query": "q",
    "checkpoint": "c",
    "role": "writer",
}
Step = Callable[[], object]


class Silent:
    """The store answers so many requests, and no more: each of the others waits as one on S3 does,
    by the test's clock. ``waited``: for how many seconds, in all; ``verbs``: of which verbs."""

    def __init__(self, clock: PatientClock, answers: int) -> None:
        self.clock, self.answers, self.waited, self.verbs = clock, answers, 0.0, set[str]()

    def __call__(self, request: Request) -> None:
        self.answers -= 1
        if self.answers >= 0:
            return
        self.verbs.add(request.verb)
        mine = patience()
        left = most = seconds_max(SILENCE, mine)
        if mine is not None:
            left = mine.left(request.verb, self.clock.monotonic(), most)
        self.clock.sleep(max(0.0, left))
        self.waited += max(0.0, left)
        raise Unanswered("silent", sent=left > 0)


def scene(machine: Machine) -> mc.Job:
    """A job whose record is old, one of Hadoop's, and uploads of nobody."""
    job = mc.start(DEST, job_id="mine", checkpoint="c")
    for number in range(MANY):
        committed_task(job, f"{number}", {f"{number}.csv": b"1"})
        machine.s3.start_upload(f"t/{unique_name(f'{number}.csv', '0' * 32)}")
    leave_job(machine.s3, "3.5.0")
    machine.later(2 * DAY)
    return job


def call(name: str, *_: object) -> Step:
    """A call of operators, with what it must be given."""
    function = getattr(api, name)
    needs = signature(function).parameters.items()
    values = {key: GIVEN[key] for key, one in needs if one.default is one.empty and key != "place"}
    if name == "adopt":
        values["job_id"] = "hadoops"
    return partial(function, **values)


def planned(verb: str, job_id: str, *_: object) -> Callable[[], mc.ActionPlan[object]]:
    """A verb of a job that `inspect` has found."""
    (found,) = (one for one in mc.inspect(DEST) if one.id == job_id)
    adopts = {"adopt": True} if job_id == "hadoops" and verb != "adopt" else {}
    return partial(getattr(found, verb), **adopts)


def run(verb: str, job_id: str, *_: object) -> Step:
    """The run of its plan."""
    return planned(verb, job_id)().run


def a_task(job: mc.Job) -> mc.Task:
    """With many files, not committed."""
    task = job.task("more")
    for number in range(MANY):
        task.write_bytes(f"more-{number}.csv", b"1")
    return task


def directory(path: Path) -> Path:
    """With many files."""
    for number in range(MANY):
        (path / f"{number}.csv").write_bytes(b"1")
    return path


VERBS = tuple(name for name, one in vars(mc.FoundJob).items() if name[0] != "_" and callable(one))
PLANS = [(verb, "mine") for verb in VERBS if verb != "adopt"]
PLANS += [(verb, "hadoops") for verb in VERBS if verb != "give_up"]
CALLS: dict[str, Callable[[mc.Job, Path], Step]] = {
    **{name: partial(call, name) for name in mc._NAMES_OF["maintenance.api"].split()},
    **{f"{of} {verb}": partial(planned, verb, of) for verb, of in PLANS},
    **{f"{of} {verb} run": partial(run, verb, of) for verb, of in PLANS},
    "uploads looked at": lambda _, __: partial(list, mc.uploads(DEST, sizes=True)),
    "uploads planned": lambda _, __: mc.uploads(DEST).abort,
    "uploads told": lambda _, __: partial(list, mc.uploads(DEST, sizes=True).abort().rows),
    "uploads run": lambda _, __: mc.uploads(DEST).abort().run,
    "Job.commit": lambda job, _: job.commit,
    "Job.abort": lambda job, _: job.abort,
    "Task.commit": lambda job, _: a_task(job).commit,
    "Task.abort": lambda job, _: a_task(job).abort,
    "Task.put_directory": lambda job, path: partial(job.task("p").put_directory, directory(path)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_silent_store_costs_a_call_the_time_of_one_request(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whenever its silence begins, and however many requests a call would send: each verb that was
    not tried in the silence has a short look, but no request has a time of its own."""
    monkeypatch.setattr(wiring, "pool", ThreadPool(0))
    for answers in chain((0, 1, 2), (2**n for n in range(2, 20))):
        clock = PatientClock()
        with memory_store(clock=clock) as store:
            step = CALLS[name](scene(Machine(store, clock)), tmp_path)
            store.before = silent = Silent(clock, answers)
            with suppress(mc.MagicError):
                step()
            store.before = None
        phases = 2 if name == "uploads told" else 1  # the dead jobs', then each page that comes
        looks = len(silent.verbs) / 4
        assert silent.waited <= phases * (1 + looks) * SILENCE.retry_seconds_max
        if silent.answers >= 0:
            return
