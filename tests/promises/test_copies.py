"""`copy`: objects that are there already become files of a job, and no byte passes through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

import magic_committer as mc
from magic_committer.hadoop.paths import uuid_in_name
from magic_committer.stores.base import PART_BYTES_MIN, ObjectSlice, Part
from magic_committer.stores.memory_bucket import Bucket
from magic_committer.testing import MemoryStore, memory_store
from magic_committer.upload import stream
from tests.promises.hands import DEST, At, noted, raises, visible, write

STAGED = {"a.csv": b"1", "d/b.csv": b"22", "d/empty.csv": b""}
LEFT_OUT = ("_SUCCESS", "_temporary/0/x", "__magic_job-j/_job.json", "d/.crc")


@pytest.fixture
def stage(s3: MemoryStore) -> Iterator[MemoryStore]:
    """Another bucket, with a prefix of objects."""
    with memory_store("stage") as store:
        for name, body in STAGED.items():
            store.put_object(f"x/{name}", body)
        for name in (*LEFT_OUT, "d/"):
            store.put_object(f"x/{name}", b"")
        yield store


def copy(source: str = "s3://stage/x/", name: str | None = None, **terms: Any) -> Any:
    """A block copies this, and no more."""
    with mc.write(DEST) as job:
        return job.copy(source, name, **terms) if name else job.copy(source, **terms)


@pytest.mark.parametrize("by_task", [False, True])
def test_a_prefix_is_published_as_one_job(
    stage: MemoryStore, s3: MemoryStore, by_task: bool
) -> None:
    """I1, I2: nothing is visible before the commit, then all, byte for byte; nothing was read."""
    seen: list[dict[str, bytes]] = []
    s3.before = lambda r: seen.append(visible(s3)) if r.verb == "put_part" else None
    if by_task:
        job = mc.start(DEST)
        with job.task("1") as task:
            task.copy("s3://stage/x/")
        assert job.commit([task.result]).files == len(STAGED)
    else:
        copy()
    assert visible(s3) == {f"t/{name}": body for name, body in STAGED.items()}
    assert seen == [{}] * len(STAGED)
    assert set(stage.requests) == {"list", "head"}  # of the empty object


@pytest.mark.parametrize(("option", "wanted"), [("auto", None), ("CRC32", "CRC32")])
def test_a_copy_has_a_checksum_if_the_options_name_one(
    stage: MemoryStore, s3: MemoryStore, option: Any, wanted: str | None
) -> None:
    """MinIO copies no part into an upload that has one; and no byte was seen here."""
    seen: set[str | None] = set()
    s3.before = lambda _: seen.update(one.checksum for one in s3._bucket.uploads.values())
    with mc.write(DEST, options=mc.Options(checksum=option)) as job:
        job.copy("s3://stage/x/")
    assert seen == {wanted}


def test_what_is_left_out_is_told(stage: MemoryStore, s3: MemoryStore) -> None:
    """Hidden objects go along if asked for; those of committers never, nor a name with a slash."""
    stage.put_object("x/dir/", b"bytes")
    assert sorted(copy(name="one").left_out) == sorted([*LEFT_OUT, "dir/"])
    left_out = copy(name="two", hidden=True).left_out
    assert sorted(left_out) == ["_SUCCESS", "__magic_job-j/_job.json", "_temporary/0/x", "dir/"]
    assert "t/two/d/.crc" in s3.keys()
    raises(mc.PathError, copy, "s3://stage/x/dir/", match="left out: x/dir/")


def test_unique_names_of_other_jobs_are_renamed(stage: MemoryStore, s3: MemoryStore) -> None:
    """I4, I6: the old token names no job any more, and two files stay two, where that is said."""
    for body in (b"1", b"2"):
        with mc.write("s3://stage/y") as job:
            write(job, "part.csv", body, unique=True)
    raises(mc.PathError, copy, "s3://stage/y/", match="unique=True")
    with mc.write(DEST) as job:
        job.copy("s3://stage/y/", unique=True)
    assert sorted(visible(s3).values()) == [b"1", b"2"]
    assert {uuid_in_name(key) for key in visible(s3)} == {job.id}


def test_one_object_may_have_another_name(stage: MemoryStore, s3: MemoryStore) -> None:
    """A URL without a slash at its end is one object; a hidden directory may be the source."""
    stage.put_object("x/a.csv.gz", b"neighbour")
    with mc.write(DEST) as job:
        job.copy("s3://stage/x/a.csv")
        job.copy("s3://stage/x/a.csv", "2026/b.csv")
        job.copy("s3://stage/x/a.csv", "2027/")
    assert visible(s3) == dict.fromkeys(["t/a.csv", "t/2026/b.csv", "t/2027/a.csv"], b"1")
    s3.put_object("t/_staging/new.csv", b"2")
    with mc.write(DEST, mode="replace") as job:
        job.copy("s3://bucket/t/_staging/")
    assert visible(s3) == {"t/new.csv": b"2", "t/_staging/new.csv": b"2"}


def test_a_large_object_goes_by_parts(
    stage: MemoryStore, s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is its range of the object; the last one is shorter."""
    monkeypatch.setattr(stream, "COPY_PART_BYTES", PART_BYTES_MIN)
    body = bytes(range(251)) * (2 * PART_BYTES_MIN // 250)
    stage.put_object("x/a.csv", body)
    parts = noted(s3, "put_part")
    assert copy("s3://stage/x/a.csv").bytes == len(body)
    sizes = [PART_BYTES_MIN] * 2 + [len(body) - 2 * PART_BYTES_MIN]
    assert sorted(request.size for request in parts) == sorted(sizes)
    assert visible(s3) == {"t/a.csv": body}


@pytest.mark.parametrize("name", ["a.csv", "d/empty.csv"])
@pytest.mark.parametrize("deed", ["changed", "deleted", "changed unseen"])
def test_an_object_that_does_not_stay_is_not_published(
    stage: MemoryStore, s3: MemoryStore, deed: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the block fails, also where the store ignores conditions (Ceph RGW)."""

    def meddle() -> None:
        stage.delete_object(f"x/{name}")
        if deed == "changed unseen":
            monkeypatch.setattr(Bucket, "_check_etag", lambda *_: None)
        if deed != "deleted":
            stage.put_object(f"x/{name}", b"2")

    if name == "a.csv":
        At(s3, "create_upload", meddle)
    else:
        At(stage, "list", meddle, after=True)
    raises(mc.UploadFailed, copy, match="copy again")
    assert (s3.keys(), s3.open_uploads()) == ((), ())


def test_a_store_that_decodes_a_name_twice_publishes_no_other_object(
    stage: MemoryStore, s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ceph RGW does, which looks at no ETag either: the copy of the neighbour is an error."""
    really = Bucket.copy_part

    def twice(bucket: Bucket, key: str, upload: str, number: int, source: ObjectSlice) -> Part:
        name = unquote(source.key)
        other = replace(source, key=name, etag=stage.head(name).etag)
        return really(bucket, key, upload, number, other)

    monkeypatch.setattr(Bucket, "copy_part", twice)
    stage.put_object("x/a%20b", b"1")
    stage.put_object("x/a b", b"2")
    raises(mc.UploadFailed, copy, "s3://stage/x/a%20b", match="is unknown")
    assert s3.keys() == ()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("s3://stage/y/", "no object to copy"),
        ("s3://stage/x/d", "no object to copy"),
        ("s3://bucket/", "lie in each other"),
        ("s3://bucket/t/old/", "lie in each other"),
        ("/x", "not an S3 URL"),
    ],
)
def test_what_cannot_be_copied_is_refused_before_anything_is_sent(
    stage: MemoryStore, s3: MemoryStore, source: str, told: str, tmp_path: object
) -> None:
    """No object, a directory as if it were one, the destination itself; S3 copies to S3 only."""
    raises(mc.PathError, copy, source, match=told)
    assert s3.requests["create_upload"] == 0
    with pytest.raises(mc.PathError, match="on S3 only"), mc.write(f"file://{tmp_path}/t") as job:
        job.copy("s3://stage/x/")
