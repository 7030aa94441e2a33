"""The number of requests of a job, verb by verb, is the formula of docs/performance.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

import magic_committer as mc
from magic_committer.commit import probe
from magic_committer.options import Accept, Track
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import memory_store
from tests.concrete import upload_of
from tests.promises.hands import DEST, StillClock, committed_task

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
        head=(3 if accept == "results" else 2) * tasks,
        get=tasks if accept == "listing" else 0,
        # a job
        list=pages(tasks + 2),
        list_uploads=pages(every) + 1,
        delete=1 + pages(tasks),
    )
    count["put"] = tasks + 5
    if first:  # the proof of the store
        count.update(put=2 + 1, head=1, create_upload=1, put_part=1, abort_upload=2)
        count.update(complete_upload=1, delete_one=1)
    count["get"] += 3
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
