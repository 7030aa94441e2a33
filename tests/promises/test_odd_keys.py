"""Odd keys: those that no store holds are refused; those of other programs are data (I7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.commit import probe
from magic_committer.errors import InvalidRequest, PermissionDenied, Unanswered
from magic_committer.hadoop import paths
from magic_committer.options import Mode, Track
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import ObjectStore, objects
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.stores.s3 import S3Store
from tests.promises.hands import DEST, committed_task, raises, raising, remains, visible, write
from tests.servers import make_bucket, moto_options, moto_server

LONG = "a" * 256
ELEMENT_TOO_LONG = InvalidRequest("key too long", status=400, code="KeyTooLongError")


@pytest.fixture
def files(s3: MemoryStore) -> Iterator[MemoryStore]:
    """A store of files, as versitygw: it takes any upload, and cannot make a long name."""

    def file_backed(request: Request) -> None:
        elements = request.key.split("/")
        long = [n for n, element in enumerate(elements) if len(element.encode()) > 255]
        if not long:
            return
        above = "/".join(elements[: long[0]])
        reads = request.verb in ("head", "get")
        if reads and above and not any(key.startswith(f"{above}/") for key in s3.keys()):
            return
        if request.verb == "complete_upload":
            raise Unanswered("internal error", status=500, code="InternalError", attempts=8)
        if request.verb in ("head", "get", "put", "delete_one"):
            raise ELEMENT_TOO_LONG

    s3.before = file_backed
    yield s3
    s3.before = None


@pytest.mark.parametrize(
    ("name", "track"),
    [
        (f"{LONG}/x.csv", "memory"),
        (LONG, "memory"),
        ("ä" * 128, "memory"),  # 256 bytes
        ("a" * 248, "s3"),  # with `.pending`
        (f"{LONG}/x.csv", "s3"),
    ],
)
def test_a_name_that_is_too_long_is_refused(files: MemoryStore, name: str, track: Track) -> None:
    """PathError before the upload is created. The job's UUID and the `.pending` count."""
    task = mc.start(DEST, track=track).task("1")
    with pytest.raises(mc.PathError, match=r"cannot hold .* has \d+ bytes\. A store that keeps"):
        task.open(name, unique=False)
    with pytest.raises(mc.PathError, match="has 294 bytes" if track == "s3" else "has 286 bytes"):
        task.open("a" * 250, unique=True)
    with pytest.raises(mc.PathError, match="cannot hold"):
        mc.open_magic(f"{DEST}/__magic/job-1/x/__base/{'a' * 248}", fence=False)
    assert files.requests["create_upload"] == 0


@pytest.mark.parametrize(
    ("name", "track"), [("a" * 255, "memory"), ("a" * 247, "s3"), ("ä" * 127 + "b", "memory")]
)
def test_the_longest_name_is_published(files: MemoryStore, name: str, track: Track) -> None:
    """255 bytes, ``.pending`` included where it is saved: no request more than for a short one."""
    job = mc.start(DEST, track=track)
    with job.task("1") as task:
        write(task, name, unique=False)
    job.commit()
    assert visible(files) == {f"t/{name}": b"1"}


def test_s3_takes_long_elements(s3: MemoryStore) -> None:
    """S3 has no such limit: the store is asked once, and the file is published."""
    job = mc.start(DEST, track="memory")
    with job.task("1") as task:
        for part in range(3):
            write(task, f"p={LONG}/{part}.csv", unique=False)
    assert s3.requests["get"] == 1  # of all three names
    job.commit([task.result])
    assert len(visible(s3)) == 3


def test_a_long_directory_is_no_long_name(s3: MemoryStore) -> None:
    """S3 takes 1,024 bytes for a key: what is asked for is no longer, whatever the directory."""
    s3.before = raising(lambda r: len(r.key.encode()) > 1024, ELEMENT_TOO_LONG)
    probe.refuse_long_element(Runtime(s3), f"t/{LONG}", "d/" * 450)
    assert s3.requests["get"] == 1


def test_a_store_that_may_not_be_asked_takes_the_name(s3: MemoryStore) -> None:
    """Neither a GET nor a listing, or an expired token: what cannot be told is not refused."""
    job = mc.start(DEST, track="memory")
    s3.before = raising(lambda r: "x" * 256 in r.key, PermissionDenied)
    with job.task("1") as task:
        write(task, LONG, unique=False)
    job.commit([task.result])
    assert visible(s3) == {f"t/{LONG}": b"1"}


def written_by_others(monkeypatch: pytest.MonkeyPatch) -> mc.Job:
    """A job with a task whose file an older version opened, which did not ask."""
    job = mc.start(DEST, track="memory")
    with monkeypatch.context() as older:
        older.setattr(paths, "ELEMENT_BYTES_MAX", 10_000)
        with job.task("1") as task:
            write(task, "short.csv", unique=False)
            write(task, LONG, unique=False)
    return job


def test_a_key_that_cannot_be_held_is_refused_before_the_decision(
    files: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version or Hadoop has opened it: nothing of the job becomes visible or stays."""
    job = written_by_others(monkeypatch)
    raises(mc.CommitRefused, job.commit, match="cannot hold")
    assert remains(files)[:2] == ({}, [])


def test_a_job_that_was_decided_with_such_a_key_can_be_undone(
    files: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HEAD 400, Complete 500, for ever: ``revert`` proves by a listing that nothing is there."""
    job = written_by_others(monkeypatch)
    with monkeypatch.context() as older:
        older.setattr(paths, "ELEMENT_BYTES_MAX", 10_000)
        raises(mc.CommitIncomplete, job.commit)
    assert visible(files) == {"t/short.csv": b"1"}
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert remains(files) == ({}, [], ["_job.json"])


UNLISTED = ("\x00", "\x01", "\t", "\n", "\r", "\x1f", "\x7f", "\x85", "\x9f", "\ufffe", "\uffff")


@pytest.mark.parametrize("character", UNLISTED)
def test_what_listings_cannot_carry_is_refused(s3: MemoryStore, character: str) -> None:
    """One such key breaks Ceph's listing of the whole prefix; nothing is sent."""
    job = mc.start(DEST)
    task = job.task("1")
    s3.requests.clear()
    for ask in (
        lambda: mc.start(f"s3://bucket/a{character}b"),
        lambda: mc.attach(f"s3://bucket/a{character}b", "1"),
        lambda: mc.start(DEST, job_id=f"a{character}b"),
        lambda: task.open(f"a{character}b"),
        lambda: task.open(f"a{character}b/c.csv", unique=False),
        lambda: mc.open_magic(f"{DEST}/__magic/job-1/x/__base/a{character}b", fence=False),
        lambda: mc.inspect(f"s3://bucket/a{character}b"),
        lambda: mc.recover(f"s3://bucket/a{character}b", "1"),
        lambda: mc.cleanup(f"s3://bucket/a{character}b"),
    ):
        raises(mc.PathError, ask)
    assert not s3.requests


STRANGE = ("/x", "//y", "/dt=1//z", "dt=1//", "dt=1//z", "dt=1///z")
"""Below a destination: empty elements at the beginning, in the middle, at the end, and two."""
HIDDEN = ("/_x", "/.y", "dt=1//_z", "_x//z")
"""The same, below an element that readers pass over."""


@pytest.fixture(params=["t/", ""])
def prefix(request: pytest.FixtureRequest) -> str:
    """Of the destination: a directory, or the whole bucket."""
    return str(request.param)


def run(prefix: str, mode: Mode, bucket: str = "bucket", **terms: Any) -> mc.JobReport:
    job = mc.start(f"s3://{bucket}/{prefix}", mode=mode, **terms)
    committed_task(job, "1", {"dt=1/new.csv": b"new"})
    return job.commit()


@pytest.mark.parametrize("name", STRANGE)
def test_fail_sees_keys_with_empty_elements(s3: MemoryStore, prefix: str, name: str) -> None:
    """Such a key is data: mode ``fail`` is refused and names it, mode ``replace`` deletes it."""
    s3.put_object(prefix + name, b"old")
    assert f"e.g. {prefix}{name}." in str(raises(mc.DestinationExists, run, prefix, "fail"))
    assert s3.keys() == (prefix + name,)
    assert run(prefix, "replace").state == "absent"
    assert s3.keys() == (f"{prefix}_SUCCESS", f"{prefix}dt=1/new.csv")


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_stays_hidden_beside_an_empty_one(s3: MemoryStore, prefix: str, name: str) -> None:
    """Also beside an empty element; an object of the destination's own name is not below it."""
    keys = {prefix + name, prefix} - {""}
    for key in keys:
        s3.put_object(key, b"not data")
    assert run(prefix, "fail").outcome == "committed"
    assert run(prefix, "replace").outcome == "committed"
    assert keys < set(s3.keys())


def test_an_empty_marker_with_an_empty_element_is_no_data(s3: MemoryStore, prefix: str) -> None:
    """A directory marker of no bytes is no data, and one with bytes is: whatever its elements."""
    s3.put_object(f"{prefix}a//")
    s3.put_object(f"{prefix}b/")
    assert run(prefix, "fail").outcome == "committed"
    s3.put_object(f"{prefix}b/", b"old")
    run(prefix, "replace")
    assert set(s3.keys()) == {prefix + name for name in ("_SUCCESS", "a//", "dt=1/new.csv")}


@pytest.mark.parametrize("mode", ["fail_partitions", "replace_partitions"])
def test_a_partition_is_its_exact_directory(s3: MemoryStore, mode: Mode) -> None:
    """By partition, ``dt=1//z`` is not directly in ``dt=1/``: it is left, and not in the way."""
    s3.put_object("t/dt=1//z", b"other partition")
    s3.put_object("t//dt=1/z", b"other partition")
    assert run("t/", mode).outcome == "committed"
    assert set(s3.keys()) >= {"t/dt=1//z", "t//dt=1/z", "t/dt=1/new.csv"}


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as url:
        yield url


def test_a_real_client_keeps_empty_elements(moto: str, prefix: str) -> None:
    """Over HTTP too: listed, refused by ``fail``, deleted by ``replace``."""
    bucket = "bucket" if prefix else "bucket-root"
    make_bucket(moto, bucket)
    way = moto_options(moto)
    store: ObjectStore = S3Store(bucket, way)
    for name in STRANGE:
        store.put(prefix + name, b"old")
    raises(mc.DestinationExists, mc.start, f"s3://{bucket}/{prefix}", mode="fail", s3=way)
    run(prefix, "replace", bucket, s3=way)
    assert [one.key for one in objects(store, "")] == [f"{prefix}_SUCCESS", f"{prefix}dt=1/new.csv"]
