"""Whole jobs on real servers: many parts, many handles, many jobs, many uploads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.stores.base import PART_BYTES_MIN, Attributes, objects, uploads
from tests.real_servers.conftest import SeenStore
from tests.real_servers.server import Server, command_line

UPLOADS = 1500
"""More than a page of a listing."""
JOBS = 20
FILES_A_JOB = 5
LISTS_WHOLE_KEYS_ONLY = ("minio",)


def test_a_file_of_many_parts_appears_when_its_job_commits(store: SeenStore) -> None:
    """Parts, checksums and length pass a strict server; before the commit nothing is visible."""
    body = bytes(range(256)) * (11 * 1024**2 // 256) + b"tail"
    with store.write(options=mc.Options(block_bytes=PART_BYTES_MIN)) as job:
        with job.open("dt=2026-11-21/a b%2F+é.csv") as f:
            f.write(body)
        with job.open("small.csv") as f:
            f.write(b"1")
        assert not [one for one in objects(store, "t/") if "__magic" not in one.key]
    assert (job.report.outcome, job.report.warnings) == ("committed", ())
    key = "t/dt=2026-11-21/a b%2F+é.csv"
    assert store.get(key, max_bytes=len(body)).body == body
    store.delete_one(key)
    assert store.visible() == {"t/small.csv": b"1"}


@pytest.mark.long
def test_twenty_jobs_in_one_directory(store: SeenStore) -> None:
    """Twenty jobs that append at once, in one process: each publishes its own files, and sweeps
    none of another's."""

    def run(number: int) -> str:
        with store.write() as job:
            for file in range(FILES_A_JOB):
                with job.open(f"{number}-{file}.csv") as f:
                    f.write(b"%d %d" % (number, file))
        assert job.report.left_open == ()
        return job.report.outcome

    with ThreadPoolExecutor(JOBS) as threads:
        assert list(threads.map(run, range(JOBS))) == ["committed"] * JOBS
    assert store.visible() == {
        f"t/{number}-{file}.csv": b"%d %d" % (number, file)
        for number in range(JOBS)
        for file in range(FILES_A_JOB)
    }


@pytest.mark.long
def test_uploads_past_a_page_are_counted_or_said_to_be_out_of_sight(
    server: Server, store: SeenStore
) -> None:
    """Of 1,500 open uploads `uploads expect` tells the number, and aborting them leaves none; where
    a server shows uploads by whole keys only it says so, and never that there are none."""
    keys = [f"t/d{number % 7}/{number:04}" for number in range(UPLOADS)]

    def create(key: str) -> str:
        return store.create_upload(key, attributes=Attributes()).upload_id

    with ThreadPoolExecutor(16) as threads:
        ids = list(threads.map(create, keys))
        try:
            expected, none = (
                command_line(server.url, "uploads", "expect", store.dest, many).returncode
                for many in (str(UPLOADS), "0")
            )
            if server.NAME in LISTS_WHOLE_KEYS_ONLY:
                assert (expected, none) == (exits.BAD_STATE, exits.BAD_STATE)
                return
            assert expected == exits.OK
            assert none != exits.OK
            assert len({one.upload_id for one in uploads(store, "t/d3/")}) == len(keys[3::7])
        finally:
            list(threads.map(store.abort_upload, keys, ids))
    assert list(uploads(store, "")) == []


def test_a_cleanup_aborts_what_nothing_names_or_says_that_it_cannot_see(
    server: Server, store: SeenStore
) -> None:
    """An upload of a task that died before it named it goes, exit code 0; where a server shows
    uploads by whole keys only, the cleanup says so, exits with 46, and leaves it."""
    key = f"t/a.csv-mcj{'5' * 32}"
    upload_id = store.create_upload(key, attributes=Attributes()).upload_id
    time.sleep(1.1)  # an age is told in whole seconds
    ran = command_line(server.url, "cleanup", store.dest, "--leftover-after", "0")
    if server.NAME in LISTS_WHOLE_KEYS_ONLY:
        assert ran.returncode == exits.BAD_STATE
        assert f"uploads may be open under {store.dest}/ that cannot be seen" in ran.stderr
        assert list(store.list_parts(key, upload_id)) == []  # it is open
        store.abort_upload(key, upload_id)
        return
    assert (ran.returncode, ran.stderr) == (exits.OK, "")
    assert "1 orphan aborted" in ran.stdout
    with pytest.raises(mc.NotFound):
        list(store.list_parts(key, upload_id))


def test_an_aborted_upload_is_never_taken_for_completed(store: SeenStore) -> None:
    """Complete of an upload that was aborted is refused, also where an object holds the key."""
    store.put("k", b"another's")
    created = store.create_upload("k", attributes=Attributes())
    part = store.put_part("k", created.upload_id, 1, memoryview(b"ours"))
    store.abort_upload("k", created.upload_id)
    with pytest.raises(mc.StoreError):
        store.complete_upload("k", created.upload_id, [part])
    assert store.get("k", max_bytes=100).body == b"another's"
