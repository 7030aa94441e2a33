"""The probe and whole jobs on versitygw."""

from __future__ import annotations

from dataclasses import replace

import pytest

import magic_committer as mc
from magic_committer.commit import probe
from magic_committer.commit.probe import Capabilities
from magic_committer.memory import MemoryStore
from magic_committer.pool import ThreadPool
from magic_committer.runtime import Runtime
from magic_committer.s3 import S3Store
from magic_committer.store import objects, uploads
from tests.real_servers import versitygw


def visible(store: S3Store) -> dict[str, bytes]:
    """What a reader sees, but markers; nothing hidden may be left, and no upload."""
    keys = [one.key for one in objects(store, "")]
    assert not [key for key in keys if "__magic" in key]
    assert list(uploads(store, "")) == []
    data = [key for key in keys if not key.endswith("_SUCCESS")]
    return {key: store.get(key, max_bytes=100).body for key in data}


def test_the_probe_finds_all_that_a_job_can_want(store: S3Store) -> None:
    """versitygw keeps every condition, completes twice and lists past a page, as the in-memory
    store does, but for one: it believes a dead upload. The probe leaves nothing there."""
    store.put("t/data.csv", b"1")
    pool = ThreadPool()
    try:
        found = probe.probe_all(Runtime(store, pool), "t/", paging=True)
        in_memory = probe.probe_all(Runtime(MemoryStore(), pool), "t/", paging=True)
        assert found == replace(in_memory, true_complete=False)
    finally:
        pool.close()
    expected = Capabilities(True, True, "quoted", True, True, "idempotent", True, True, True, False)
    assert found == expected
    assert visible(store) == {"t/data.csv": b"1"}


def test_a_file_of_many_parts_appears_when_its_job_commits(
    url: str, bucket: str, store: S3Store
) -> None:
    """Parts, checksums and length pass a strict server; before the commit nothing is visible."""
    body = bytes(range(256)) * (11 * 1024**2 // 256) + b"tail"
    options = mc.Options(block_bytes=5 * 1024**2)
    with mc.write(f"s3://{bucket}/t", s3=versitygw.options(url), options=options) as job:
        with job.open("dt=2026-11-21/a b%2F+é.csv") as f:
            f.write(body)
        with job.open("empty.csv"):
            pass
        assert not [one for one in objects(store, "t/") if "__magic" not in one.key]
    assert job.report is not None
    assert job.report.outcome == "committed"
    assert job.report.warnings == ()
    key = "t/dt=2026-11-21/a b%2F+é.csv"
    assert store.get(key, max_bytes=len(body)).body == body
    store.delete_one(key)
    assert visible(store) == {"t/empty.csv": b""}


def test_tasks_in_many_handles_are_committed_by_name(url: str, bucket: str, store: S3Store) -> None:
    """Tasks that know the job by name only write; another handle commits what they left, and a
    failed attempt leaves nothing."""
    s3, dest = versitygw.options(url), f"s3://{bucket}/t"
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
    store.delete_one("t/__magic_job-j/job.json")  # a given id stays closed
    assert visible(store) == {f"t/{number}.csv": b"%d" % number for number in range(3)}


def test_an_aborted_job_leaves_nothing(url: str, bucket: str, store: S3Store) -> None:
    """An exception in the body aborts: no object, no upload, no control object."""
    job = mc.write(f"s3://{bucket}/t", s3=versitygw.options(url))
    with pytest.raises(ZeroDivisionError), job:
        with job.open("a.csv", unique=True) as f:
            f.write(b"1")
        raise ZeroDivisionError
    assert visible(store) == {}


def test_mode_fail_writes_over_nothing(url: str, bucket: str, store: S3Store) -> None:
    """Into an empty place it commits; where somebody was faster it raises, and theirs stays."""
    s3, dest = versitygw.options(url), f"s3://{bucket}/t"
    with mc.write(dest, mode="fail", s3=s3) as job, job.open("a.csv") as f:
        f.write(b"1")
    with pytest.raises(mc.DestinationExists):
        mc.start(dest, mode="fail", s3=s3)
    late = mc.write(f"{dest}/new", mode="fail", s3=s3)
    with pytest.raises(mc.DestinationExists), late:
        with late.open("a.csv") as f:
            f.write(b"ours")
        store.put("t/new/a.csv", b"theirs")
    assert visible(store) == {"t/a.csv": b"1", "t/new/a.csv": b"theirs"}
