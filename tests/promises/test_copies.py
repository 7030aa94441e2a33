"""`copy`: objects that are there already become files of a job, and no byte passes through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

import pytest

import magic_committer as mc
from magic_committer.hadoop.paths import uuid_in_name
from magic_committer.stores.base import PART_BYTES_MIN, ObjectSlice, Part
from magic_committer.stores.memory import Request
from magic_committer.stores.memory_bucket import Bucket
from magic_committer.testing import MemoryStore, memory_store
from magic_committer.upload import stream
from tests.promises.hands import DEST, At, visible

STAGED = {"a.csv": b"1", "d/b.csv": b"22", "d/empty.csv": b""}
LEFT_OUT = ("_SUCCESS", "_temporary/0/x", "__magic_job-j/_job.json", "d/.crc")


@pytest.fixture
def stage(memory_s3: MemoryStore) -> Iterator[MemoryStore]:
    """Another bucket, with a prefix of objects."""
    with memory_store("stage") as store:
        for name, body in STAGED.items():
            store.put_object(f"x/{name}", body)
        for name in (*LEFT_OUT, "d/"):
            store.put_object(f"x/{name}", b"")
        yield store


@pytest.fixture
def memory_s3() -> Iterator[MemoryStore]:
    with memory_store() as store:
        yield store


def copied_by(job: mc.Job | None) -> mc.JobReport | None:
    """Copy the prefix by a block, or by a task of a job."""
    if job is None:
        with mc.write(DEST) as writing:
            writing.copy("s3://stage/x/")
        return writing.report
    with job.task("1") as task:
        task.copy("s3://stage/x/")
    return job.commit([task.result])


@pytest.mark.parametrize("by_task", [False, True])
def test_a_prefix_is_published_as_one_job(
    stage: MemoryStore, memory_s3: MemoryStore, by_task: bool
) -> None:
    """I1, I2: nothing is visible before the commit, then all, byte for byte; nothing was read."""
    seen: list[dict[str, bytes]] = []
    memory_s3.before = lambda r: seen.append(visible(memory_s3)) if r.verb == "put_part" else None
    report = copied_by(mc.start(DEST) if by_task else None)
    assert report is not None
    assert report.files == len(STAGED)
    assert {name.removeprefix("t/"): body for name, body in visible(memory_s3).items()} == STAGED
    assert seen == [{}] * len(STAGED)
    assert set(stage.requests) == {"list", "head"}  # of the empty object


def test_what_is_left_out_is_told(stage: MemoryStore, memory_s3: MemoryStore) -> None:
    """Hidden objects go along if they are asked for; those of committers never."""
    with mc.write(DEST) as job:
        assert sorted(job.copy("s3://stage/x/", "one").left_out) == sorted(LEFT_OUT)
        left_out = job.copy("s3://stage/x/", "two", hidden=True).left_out
    assert sorted(left_out) == ["_SUCCESS", "__magic_job-j/_job.json", "_temporary/0/x"]
    assert "t/two/d/.crc" in memory_s3.keys()


def test_an_object_whose_name_ends_in_a_slash_is_told(
    stage: MemoryStore, memory_s3: MemoryStore
) -> None:
    """One with bytes is left out, and told, as no file of a job may have such a name; an empty one
    is a directory's marker."""
    stage.put_object("x/dir/", b"bytes")
    with mc.write(DEST) as job:
        assert "dir/" in job.copy("s3://stage/x/").left_out
        with pytest.raises(mc.PathError, match="left out: x/dir/"):
            job.copy("s3://stage/x/dir/")


def test_files_of_other_jobs_with_unique_names_are_copied(
    stage: MemoryStore, memory_s3: MemoryStore
) -> None:
    """I4, I6: each gets the job's own token; the old one names no job any more, so nobody's
    clean-up takes the upload, and two files stay two. Without ``unique`` that is asked for."""
    for text in "12":
        with mc.write("s3://stage/y") as job, job.open("part.csv", "w", unique=True) as file:
            file.write(text)
    with pytest.raises(mc.PathError, match="unique=True"), mc.write(DEST) as job:
        job.copy("s3://stage/y/")
    with mc.write(DEST) as job:
        job.copy("s3://stage/y/", unique=True)
    assert sorted(visible(memory_s3).values()) == [b"1", b"2"]
    assert {uuid_in_name(key) for key in visible(memory_s3)} == {job.id}


def test_one_object_may_have_another_name(stage: MemoryStore, memory_s3: MemoryStore) -> None:
    """A URL that does not end in a slash is one object: its neighbours stay."""
    stage.put_object("x/a.csv.gz", b"neighbour")
    with mc.write(DEST) as job:
        job.copy("s3://stage/x/a.csv")
        job.copy("s3://stage/x/a.csv", "2026/b.csv")
        job.copy("s3://stage/x/a.csv", "2027/")
    assert visible(memory_s3) == dict.fromkeys(["t/a.csv", "t/2026/b.csv", "t/2027/a.csv"], b"1")


def test_a_large_object_goes_by_parts(
    stage: MemoryStore, memory_s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is its range of the object; the last one is shorter."""
    monkeypatch.setattr(stream, "COPY_PART_BYTES", PART_BYTES_MIN)
    body = bytes(range(251)) * (2 * PART_BYTES_MIN // 250)
    stage.put_object("x/a.csv", body)
    sizes: list[int] = []
    memory_s3.before = lambda r: sizes.append(r.size) if r.verb == "put_part" else None
    with mc.write(DEST) as job:
        assert job.copy("s3://stage/x/a.csv").bytes == len(body)
    assert sorted(sizes) == sorted([PART_BYTES_MIN] * 2 + [len(body) - 2 * PART_BYTES_MIN])
    assert visible(memory_s3) == {"t/a.csv": body}


@pytest.mark.parametrize("deed", ["changed", "deleted", "changed unseen"])
def test_an_object_that_does_not_stay_is_not_published(
    stage: MemoryStore, memory_s3: MemoryStore, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was listed is what is copied, also where the store ignores the condition (Ceph RGW):
    otherwise the block fails, nothing is visible, and nothing is open."""

    def meddle() -> None:
        stage.delete_object("x/a.csv")
        if deed == "changed unseen":
            monkeypatch.setattr(Bucket, "_check_etag", lambda *_: None)
        if deed != "deleted":
            stage.put_object("x/a.csv", b"2")

    At(memory_s3, "create_upload", meddle)
    with (
        pytest.raises(mc.UploadFailed, match=r"a copy of s3://stage/x/a\.csv.* copy again"),
        mc.write(DEST) as job,
    ):
        job.copy("s3://stage/x/a.csv")
    assert memory_s3.keys() == ()
    assert memory_s3.open_uploads() == ()


def test_a_store_that_decodes_a_name_twice_publishes_no_other_object(
    stage: MemoryStore, memory_s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
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
    with pytest.raises(mc.UploadFailed, match="cannot be told"), mc.write(DEST) as job:
        job.copy("s3://stage/x/a%20b")
    assert memory_s3.keys() == ()


@pytest.mark.parametrize("deed", ["changed", "deleted"])
def test_an_empty_object_that_does_not_stay_is_not_published(
    stage: MemoryStore, memory_s3: MemoryStore, deed: str
) -> None:
    """A writer's first object, say, which it fills meanwhile: it has no part with a condition, and
    is looked at."""

    def meddle(request: Request, reply: object) -> None:
        stage.after = None
        stage.delete_object("x/d/empty.csv")
        if deed == "changed":
            stage.put_object("x/d/empty.csv", b"2")

    stage.after = meddle
    with pytest.raises(mc.UploadFailed, match="copy again"), mc.write(DEST) as job:
        job.copy("s3://stage/x/")
    assert memory_s3.keys() == ()
    assert memory_s3.open_uploads() == ()


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
    stage: MemoryStore, memory_s3: MemoryStore, source: str, told: str
) -> None:
    """A prefix without objects, a directory as if it were an object, the destination itself."""
    with pytest.raises(mc.PathError, match=told), mc.write(DEST) as job:
        job.copy(source)
    assert memory_s3.requests["create_upload"] == 0


def test_a_hidden_directory_of_the_destination_may_be_the_source(memory_s3: MemoryStore) -> None:
    """Stage in ``_staging``, look at it, publish it: readers never see it."""
    memory_s3.put_object("t/_staging/a.csv", b"1")
    memory_s3.put_object("t/old.csv", b"0")
    with mc.write(DEST, mode="replace") as job:
        job.copy("s3://bucket/t/_staging/")
    assert visible(memory_s3) == {"t/a.csv": b"1", "t/_staging/a.csv": b"1"}


def test_a_file_system_takes_no_objects(stage: MemoryStore, tmp_path: object) -> None:
    """S3 copies to S3 only."""
    with (
        pytest.raises(mc.PathError, match="on S3 only"),
        mc.write(f"file://{tmp_path}/t") as job,
    ):
        job.copy("s3://stage/x/")
