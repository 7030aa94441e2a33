"""Whole jobs on real servers: many parts, many handles, many jobs, many uploads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.stores.base import Attributes, objects, uploads
from magic_committer.stores.s3 import S3Store
from tests.real_servers.server import Server, command_line, options
from tests.real_servers.visible import visible

UPLOADS = 1500
"""More than a page of a listing."""
JOBS = 20
FILES_A_JOB = 5
LISTS_WHOLE_KEYS_ONLY = ("minio",)


def test_a_file_of_many_parts_appears_when_its_job_commits(
    url: str, bucket: str, store: S3Store
) -> None:
    """Parts, checksums and length pass a strict server; before the commit nothing is visible."""
    body = bytes(range(256)) * (11 * 1024**2 // 256) + b"tail"
    blocks = mc.Options(block_bytes=5 * 1024**2)
    with mc.write(f"s3://{bucket}/t", s3=options(url), options=blocks) as job:
        with job.open("dt=2026-11-21/a b%2F+é.csv") as f:
            f.write(body)
        with job.open("small.csv") as f:
            f.write(b"1")
        assert not [one for one in objects(store, "t/") if "__magic" not in one.key]
    assert job.report.outcome == "committed"
    assert job.report.warnings == ()
    key = "t/dt=2026-11-21/a b%2F+é.csv"
    assert store.get(key, max_bytes=len(body)).body == body
    store.delete_one(key)
    assert visible(store) == {"t/small.csv": b"1"}


def test_tasks_in_many_handles_are_committed_by_name(url: str, bucket: str, store: S3Store) -> None:
    """Tasks that know the job by name only write; another handle commits what they left, and a
    failed attempt leaves nothing."""
    s3, dest = options(url), f"s3://{bucket}/t"
    mc.start(dest, job_id="j", s3=s3)
    for number in range(3):
        task = mc.attach(dest, "j", s3=s3).task(str(number))
        with task, task.open(f"{number}.csv") as f:
            f.write(b"%d" % number)
    task = mc.attach(dest, "j", s3=s3).task("0")
    with pytest.raises(ZeroDivisionError), task, task.open("0.csv") as f:
        f.write(b"%d" % (1 // 0))
    report = mc.attach(dest, "j", s3=s3).commit(expect=3)
    assert (report.outcome, report.files, report.warnings) == ("committed", 3, ())
    assert mc.attach(dest, "j", s3=s3).outcome == "committed"
    store.delete_one("t/__magic_job-j/_job.json")  # a given id stays closed
    assert visible(store) == {f"t/{number}.csv": b"%d" % number for number in range(3)}


def test_an_aborted_job_leaves_nothing(url: str, bucket: str, store: S3Store) -> None:
    """An exception in the body aborts: no object, no upload, no control object."""
    job = mc.write(f"s3://{bucket}/t", s3=options(url))
    with pytest.raises(ZeroDivisionError), job:
        with job.open("a.csv", unique=True) as f:
            f.write(b"1")
        raise ZeroDivisionError
    assert visible(store) == {}


@pytest.mark.long
def test_twenty_jobs_in_one_directory(url: str, bucket: str, store: S3Store) -> None:
    """Twenty jobs that append at once, in one process: each publishes its own files, and sweeps
    none of another's."""
    s3 = options(url)

    def run(number: int) -> str:
        with mc.write(f"s3://{bucket}/t", s3=s3) as job:
            for file in range(FILES_A_JOB):
                with job.open(f"{number}-{file}.csv") as f:
                    f.write(b"%d %d" % (number, file))
        assert job.report.left_open == ()
        return job.report.outcome

    with ThreadPoolExecutor(JOBS) as threads:
        assert list(threads.map(run, range(JOBS))) == ["committed"] * JOBS
    assert visible(store) == {
        f"t/{number}-{file}.csv": b"%d %d" % (number, file)
        for number in range(JOBS)
        for file in range(FILES_A_JOB)
    }


@pytest.mark.long
def test_uploads_past_a_page_are_counted_or_said_to_be_out_of_sight(
    server: Server, url: str, bucket: str, store: S3Store
) -> None:
    """Of 1,500 open uploads `uploads expect` tells the number, and aborting them leaves none; where
    a server shows uploads by whole keys only it says so, and never that there are none."""
    keys = [f"t/d{number % 7}/{number:04}" for number in range(UPLOADS)]
    with ThreadPoolExecutor(16) as threads:
        made = list(
            threads.map(lambda key: store.create_upload(key, attributes=Attributes()), keys)
        )
    try:
        expect = ("uploads", "expect", f"s3://{bucket}/t")
        expected = command_line(url, *expect, str(UPLOADS)).returncode
        none = command_line(url, *expect, "0").returncode
        if server.NAME in LISTS_WHOLE_KEYS_ONLY:
            assert (expected, none) == (exits.BAD_STATE, exits.BAD_STATE)
            return
        assert expected == exits.OK
        assert none != exits.OK
        assert len({one.upload_id for one in uploads(store, "t/d3/")}) == len(keys[3::7])
    finally:
        with ThreadPoolExecutor(16) as threads:
            ids = (one.upload_id for one in made)
            list(threads.map(lambda one: store.abort_upload(*one), zip(keys, ids, strict=True)))
    assert list(uploads(store, "")) == []


def test_a_cleanup_aborts_what_nothing_names_or_says_that_it_cannot_see(
    server: Server, url: str, bucket: str, store: S3Store
) -> None:
    """An upload of a task that died before it named it goes, exit code 0; where a server shows
    uploads by whole keys only, the cleanup says so, exits with 46, and leaves it."""
    key = f"t/a.csv-mcj{'5' * 32}"
    upload_id = store.create_upload(key, attributes=Attributes()).upload_id
    time.sleep(1.1)  # an age is told in whole seconds
    ran = command_line(url, "cleanup", f"s3://{bucket}/t", "--leftover-after", "0")
    if server.NAME in LISTS_WHOLE_KEYS_ONLY:
        assert ran.returncode == exits.BAD_STATE
        assert f"uploads may be open under s3://{bucket}/t/ that cannot be seen" in ran.stderr
        assert list(store.list_parts(key, upload_id)) == []  # it is open
        store.abort_upload(key, upload_id)
        return
    assert (ran.returncode, ran.stderr) == (exits.OK, "")
    assert "1 orphan aborted" in ran.stdout
    with pytest.raises(mc.NotFound):
        list(store.list_parts(key, upload_id))
