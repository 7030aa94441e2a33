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
from magic_committer.stores.base import PART_BYTES_MIN, Attributes
from magic_committer.stores.s3 import S3Store
from tests.kills import drivers
from tests.kills.field import Field, expected
from tests.outside import Outside
from tests.real_servers import drivers as real_drivers
from tests.real_servers.server import Server, options, outside

KILLS, FILES = 10, 300
REQUESTS_MAX = 3 * FILES + 40
"""A driver sends hardly more: three for each file, some for each task and the job."""
END_SECONDS_MAX = 120
RECOVER_SECONDS_MAX = 120.0
RECOVER_PAUSE_SECONDS = 2.0
PROMOTED = 1_000
PROMOTES_KILLED = 6
LARGE_BYTES = 96 * PART_BYTES_MIN
SERVER_KILLS = 3
DOWN_SECONDS = 1.0


def field_of(server: Server, bucket: str, chance: random.Random) -> Field:
    """Where jobs run; another process recovers or undoes them."""
    return Field(options, server.url, bucket, chance, (drivers.recover, drivers.abort))


def ended(field: Field, dest: str) -> dict[str, str]:
    """The files under a destination, once another process has ended the job that is left there."""
    if (job := field.only_job(dest)) is not None:
        field.finish(dest, job.id)
    return field.files(dest)


@pytest.fixture
def staged(server: Server, bucket: str) -> str:
    """A prefix of 1,000 objects. One has 96 parts, as one of 6 GiB has by `COPY_PART_BYTES`."""
    client = outside(server.url)

    def put(number: int) -> None:
        body = bytes(LARGE_BYTES) if not number else drivers.content(number)
        client.put_object(Bucket=bucket, Key=f"staging/{drivers.name(number)}.txt", Body=body)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(PROMOTED)))
    return f"s3://{bucket}/staging/"


@pytest.mark.only("versitygw")
def test_a_promote_that_is_killed_publishes_all_or_nothing(
    server: Server, bucket: str, staged: str, chance: random.Random
) -> None:
    """SIGKILL at a request drawn by chance, six times, and once never: another process ends the
    job; then all 1,000 objects are visible or none, no upload is open, and the source is whole."""
    ends = Counter[str]()
    field, promote = field_of(server, bucket, chance), real_drivers.promote
    for number in range(PROMOTES_KILLED + 1):
        dest = field.dest()
        moment = field.moment(None, 3 * PROMOTED + 50) if number < PROMOTES_KILLED else None
        killed = field.killed(promote, staged, dest, moment=moment)
        files = ended(field, dest)
        assert len(files) in (0, PROMOTED)
        assert files or killed
        if files:
            assert files.pop(drivers.name(0)).endswith("-96")
            assert files.items() < expected(PROMOTED).items()
        ends[f"{killed}, {bool(files)}"] += 1
    assert ends["True, False"]
    assert ends["False, True"]


@pytest.mark.long
def test_ten_drivers_are_killed_and_their_jobs_ended_by_others(
    server: Server, bucket: str, chance: random.Random
) -> None:
    """SIGKILL at a request drawn by chance, ten times: another process recovers or undoes the job;
    then all 300 files are visible or none, and no upload is left open."""
    killed = 0
    field = field_of(server, bucket, chance)
    for _ in range(2 * KILLS):
        if killed == KILLS:
            break
        dest, moment = field.dest(), field.moment(None, REQUESTS_MAX)
        died = field.killed(drivers.drive, dest, str(FILES), moment=moment)
        killed += died
        files = ended(field, dest)
        assert files in ({}, expected(FILES))
        assert files or died
    assert killed == KILLS


def commit_while_the_server_dies(server: Server, field: Field, dest: str, after: int) -> str:
    """Commit a job; kill the server once so many files are visible, and start it again. What was
    told of the job, after as many recoveries as it takes: its outcome, or "unresolved"."""
    job = mc.start(dest, accept="results", track="memory", s3=field.s3)
    results = drivers.write_tasks(job, FILES)
    done = threading.Event()

    def kill() -> None:
        seen = Outside(field.s3, dest.split("/")[2])
        while not done.is_set() and len(seen.files(field.name(dest))) < after:
            continue
        server.kill()
        time.sleep(DOWN_SECONDS)
        server.restart()

    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(kill)
        try:
            told = job.commit(results).outcome
        except mc.CommitIncomplete as error:
            told = "incomplete" if error.unfinished else "unresolved"
        finally:
            done.set()
            killing.result(END_SECONDS_MAX)
    deadline = time.monotonic() + RECOVER_SECONDS_MAX
    while told == "incomplete" and time.monotonic() < deadline:
        time.sleep(RECOVER_PAUSE_SECONDS)  # Ceph holds its lock on a dead Complete for a while
        try:
            told = mc.recover(dest, job.id, dead_after=0, s3=field.s3).outcome
        except mc.CommitIncomplete as error:
            told = "incomplete" if error.unfinished else "unresolved"
    return told


@pytest.mark.long
def test_a_commit_tells_the_truth_though_the_server_was_killed(
    server: Server, bucket: str, chance: random.Random
) -> None:
    """The server is killed in mid-commit and starts again: whoever is told "committed" finds every
    file; what the server has lost is told as unresolved, and never as done."""
    field = field_of(server, bucket, chance)
    for _ in range(SERVER_KILLS):
        dest = field.dest()
        told = commit_while_the_server_dies(server, field, dest, chance.randint(1, FILES - 100))
        assert told in ("committed", "unresolved")
        if told == "committed":
            assert field.files(dest) == expected(FILES), "the library lied"


@pytest.mark.only("versitygw", "minio", "ceph")
def test_an_aborted_upload_is_never_taken_for_completed(
    server: Server, bucket: str, store: S3Store
) -> None:
    """Complete of an upload that was aborted is refused, also where an object holds the key."""
    store.put("k", b"another's")
    created = store.create_upload("k", attributes=Attributes())
    part = store.put_part("k", created.upload_id, 1, memoryview(b"ours"))
    store.abort_upload("k", created.upload_id)
    with pytest.raises(mc.StoreError):
        store.complete_upload("k", created.upload_id, [part])
    assert store.get("k", max_bytes=100).body == b"another's"
