"""Drivers killed by SIGKILL, and servers killed and started again in the middle of a commit.

The bucket is read from outside, by S3's own client: all files byte for byte, or none.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import magic_committer as mc
from magic_committer.stores.base import PART_BYTES_MIN, Attributes
from magic_committer.stores.s3 import S3Store
from tests.outside import Outside, etag
from tests.real_servers import drivers
from tests.real_servers.server import Server, options, outside
from tests.striker import Moment, struck

KILLS = 10
REQUESTS_MAX = 3 * drivers.FILES + 40
"""A driver sends hardly more: three for each file, some for each task and the job."""
END_SECONDS_MAX = 120
RECOVER_SECONDS_MAX = 120.0
RECOVER_PAUSE_SECONDS = 2.0
PROMOTED = 1_000
PROMOTES_KILLED = 6
LARGE_BYTES = 96 * PART_BYTES_MIN
SERVER_KILLS = 3
SERVER_FILES = 300
DOWN_SECONDS = 1.0

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.real_servers.drivers"])


class Place:
    """A destination of its own, and what somebody else sees in it."""

    def __init__(self, server: Server, bucket: str, name: str, chance: random.Random) -> None:
        self.server, self.bucket, self.name, self.chance = server, bucket, name, chance
        self.dest = f"s3://{bucket}/{name}"
        self.s3 = options(server.url)
        self._seen = Outside(self.s3, bucket)

    def files(self) -> dict[str, str]:
        """Names, without the job's token, and ETags of the data; nothing else may be there but a
        closed record and the marker, which is there exactly if there is data."""
        assert self._seen.control(self.name) == []
        data = self._seen.files(self.name)
        assert ("_SUCCESS" in self._seen.objects(self.name)) == bool(data)
        return data

    def strike(self, moment: Moment, drive: Callable[..., None], *told: str) -> bool:
        """Let a driver run that is killed at a moment, and another process end what it left;
        whether it was killed. No process and no upload is left."""
        killed = struck(context, self.server.url, moment, drive, *told, self.dest)
        for job in mc.inspect(self.dest, s3=self.s3):
            end = self.chance.choice([drivers.recover, drivers.abort])
            end(self.server.url, self.dest, job.id)
        assert self._seen.uploads(self.name) == []  # MinIO shows none, whatever there is
        assert multiprocessing.active_children() == []
        return killed


def expected(files: int = drivers.FILES) -> dict[str, str]:
    """Names and ETags of the files of a committed job: one part each."""
    return {drivers.name(n): etag(drivers.content(n)) for n in range(files)}


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
    for number in range(PROMOTES_KILLED + 1):
        place = Place(server, bucket, f"t{number}", chance)
        never = number == PROMOTES_KILLED
        at = 10**9 if never else chance.randint(1, 3 * PROMOTED + 50)
        killed = place.strike(Moment(None, at, chance.random() < 0.5), drivers.promote, staged)
        files = place.files()
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
    for number in range(2 * KILLS):
        if killed == KILLS:
            break
        place = Place(server, bucket, f"t{number}", chance)
        moment = Moment(None, chance.randint(1, REQUESTS_MAX), chance.random() < 0.5)
        died = place.strike(moment, drivers.drive)
        killed += died
        files = place.files()
        assert files in ({}, expected())
        assert files or died
    assert killed == KILLS


def commit_while_the_server_dies(place: Place, after: int) -> str:
    """Commit a job; kill the server once so many files are visible, and start it again. What was
    told of the job, after as many recoveries as it takes: its outcome, or "unresolved"."""
    job = mc.start(place.dest, accept="results", track="memory", s3=place.s3)
    results = drivers.write_tasks(job, SERVER_FILES)
    done = threading.Event()

    def kill() -> None:
        client = outside(place.server.url)
        while not done.is_set():
            page = client.list_objects_v2(Bucket=place.bucket, Prefix=f"{place.name}/dt=")
            if len(page.get("Contents", [])) >= after:
                break
        place.server.kill()
        time.sleep(DOWN_SECONDS)
        place.server.restart()

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
            told = mc.recover(place.dest, job.id, dead_after=0, s3=place.s3).outcome
        except mc.CommitIncomplete as error:
            told = "incomplete" if error.unfinished else "unresolved"
    return told


@pytest.mark.long
def test_a_commit_tells_the_truth_though_the_server_was_killed(
    server: Server, bucket: str, chance: random.Random
) -> None:
    """The server is killed in mid-commit and starts again: whoever is told "committed" finds every
    file; what the server has lost is told as unresolved, and never as done."""
    for number in range(SERVER_KILLS):
        place = Place(server, bucket, f"t{number}", chance)
        told = commit_while_the_server_dies(place, chance.randint(1, SERVER_FILES - 100))
        assert told in ("committed", "unresolved")
        if told == "committed":
            assert place.files() == expected(SERVER_FILES), "the library lied"


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
