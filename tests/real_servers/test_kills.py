"""Drivers killed by SIGKILL, and servers killed and started again in the middle of a commit.

The bucket is read from outside, by S3's own client: all files byte for byte, or none.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import magic_committer as mc
from magic_committer.stores.base import PART_BYTES_MIN
from tests.chaos import jobs, judge
from tests.chaos.jobs import Round, Way
from tests.chaos.judge import lies
from tests.chaos.test_kills import Field
from tests.outside import Outside
from tests.real_servers.server import Server, outside

KILLS = 10
JOB = Round(0, files=300, tasks=4, threads=4, bytes_each=20)
REQUESTS_MAX = 3 * JOB.files + 40
"""A driver sends hardly more: three for each file, some for each task and the job."""
END_SECONDS_MAX = 300
RECOVER_SECONDS_MAX = 120.0
RECOVER_PAUSE_SECONDS = 2.0
PROMOTED = Round(0, files=1_000, bytes_each=20)
PROMOTES_KILLED = 6
LARGE_BYTES = 96 * PART_BYTES_MIN
SERVER_KILLS = 3
DOWN_SECONDS = 1.0


@pytest.fixture
def field(server: Server, bucket: str, chance: random.Random) -> Field:
    """Where jobs run; another process recovers or undoes them."""
    return Field(Way(server.url), bucket, chance, JOB, ("recover", "abort"))


@pytest.fixture
def staged(server: Server, bucket: str) -> str:
    """A prefix of 1,000 objects. One has 96 parts, as one of 6 GiB has by `COPY_PART_BYTES`."""
    client = outside(server.url)

    def put(number: int, name: str, body: bytes) -> None:
        body = body if number else bytes(LARGE_BYTES)
        client.put_object(Bucket=bucket, Key=f"staging/{name}.txt", Body=body)

    contents = PROMOTED.contents()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(len(contents)), contents, contents.values()))
    return f"s3://{bucket}/staging/"


@pytest.mark.only("versitygw")
def test_a_promote_that_is_killed_publishes_all_or_nothing(field: Field, staged: str) -> None:
    """SIGKILL at a request drawn by chance, six times, and once never: another process ends the
    job; then all 1,000 objects are visible or none, no upload is open, and the source is whole."""
    ends, expected = Counter[str](), PROMOTED.expected()
    (large, _), *_ = expected.items()
    bucket = Outside(field.way.s3(), field.bucket)
    for number in range(PROMOTES_KILLED + 1):
        job = field.job()
        moment = field.moment(None, 3 * PROMOTED.files + 50) if number < PROMOTES_KILLED else None
        killed = field.killed(jobs.promote, staged, field.dest(job), moment=moment)
        if field.state(job)[0]:
            assert not field.killed(judge.end, field.bucket, job, moment=None)
        found = bucket.look(job.dest)
        assert found.left == ()
        assert found.marked == bool(found.files)
        assert len(found.files) in (0, PROMOTED.files)
        assert found.files or killed
        if found.files:
            assert found.files.pop(large).endswith("-96")
            assert found.files.items() < expected.items()
        ends[f"{killed}, {found.marked}"] += 1
    assert ends["True, False"]
    assert ends["False, True"]


@pytest.mark.long
def test_ten_drivers_are_killed_and_their_jobs_ended_by_others(field: Field) -> None:
    """SIGKILL at a request drawn by chance, ten times: another process recovers or undoes the job;
    then all 300 files are visible or none, and no upload is left open."""
    killed = 0
    for _ in range(2 * KILLS):
        if killed == KILLS:
            break
        job = field.job()
        died = field.killed(jobs.run, field.bucket, job, moment=field.moment(None, REQUESTS_MAX))
        killed += died
        assert field.end(job) or died
    assert killed == KILLS


def commit_while_the_server_dies(server: Server, field: Field, job: Round, after: int) -> str:
    """Commit a job; kill the server once so many files are visible, and start it again. What was
    told of the job, after as many recoveries as it takes: its outcome, or "unresolved"."""
    s3, dest, done = field.way.s3(), field.dest(job), threading.Event()
    handle = mc.start(dest, accept="results", track="memory", s3=s3)
    results = jobs.write_tasks(handle, job)

    def kill() -> None:
        seen = Outside(s3, field.bucket)
        while not done.is_set() and len(seen.files(job.dest)) < after:
            continue
        server.kill()
        time.sleep(DOWN_SECONDS)
        server.restart()

    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(kill)
        try:
            told = handle.commit(results).outcome
        except mc.CommitIncomplete as error:
            told = "incomplete" if error.unfinished else "unresolved"
        finally:
            done.set()
            killing.result(END_SECONDS_MAX)
    deadline = time.monotonic() + RECOVER_SECONDS_MAX
    while told == "incomplete" and time.monotonic() < deadline:
        time.sleep(RECOVER_PAUSE_SECONDS)  # Ceph holds its lock on a dead Complete for a while
        try:
            told = mc.recover(dest, handle.id, dead_after=0, s3=s3).outcome
        except mc.CommitIncomplete as error:
            told = "incomplete" if error.unfinished else "unresolved"
    return told


@pytest.mark.long
def test_a_commit_tells_the_truth_though_the_server_was_killed(
    server: Server, field: Field
) -> None:
    """The server is killed in mid-commit and starts again: whoever is told "committed" finds every
    file; what the server has lost is told as unresolved, and never as done."""
    bucket = Outside(field.way.s3(), field.bucket)
    for _ in range(SERVER_KILLS):
        job, after = field.job(), field.chance.randint(1, JOB.files - 100)
        told = commit_while_the_server_dies(server, field, job, after)
        assert told in ("committed", "unresolved")
        if told == "committed":
            found = bucket.look(job.dest)
            assert lies(told, found, job) == "", "the library lied"
            assert found.left == ()
