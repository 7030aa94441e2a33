"""What one accepted upload must be (`RowCheck`), and how the spool gives them."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

import magic_committer as mc
from magic_committer.commit import sets as loading
from magic_committer.commit.sets import (
    EXTRA_PART_BYTES,
    SMALL_SET_BYTES,
    SPREAD_SETS,
    LoadedSet,
    ReadyUpload,
    RowCheck,
    Spool,
    Uploads,
    from_pending,
    pack,
)
from magic_committer.commit.uploads import became
from magic_committer.hadoop.documents import (
    PENDINGSET_BYTES_MAX,
    SIZE_ONLY,
    Pending,
    UploadEtag,
    new_pending,
)
from magic_committer.hadoop.paths import Destination, java_uri, waiting_path
from magic_committer.protocol.record import USUAL_TERMS, StartedJob
from magic_committer.stores.base import PART_NUMBER_MAX, ObjectInfo
from magic_committer.testing import memory_store
from tests.promises.hands import raises

UUID = "0" * 32
DEST = Destination.parse("s3://bucket/t")
JOB = StartedJob("j", UUID, DEST.url, USUAL_TERMS, False, "", False)
UPLOAD = ReadyUpload("t/a.csv", "id", f"{UUID}.a.0")


def wrong(job: StartedJob = JOB, **changes: Any) -> str:
    """What is wrong with an upload that is changed so."""
    return RowCheck(job).problem(*UPLOAD._replace(**changes)[:3]) or ""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        *(({"key": key}, "lies outside the destination")
          for key in ("other/a.csv", "t2/a.csv", "a.csv")),
        *(({"key": key}, "") for key in (
            "t/__magic_job-j/_job.json", "t/__magic/a.csv", "t/", "t/__magic",
            "t/a/__magic_job-j", "t/a.pending", "t/b/a.pendingset", "t/_SUCCESS", "t//a.csv",
            "t/./a.csv", "t/../a.csv", "t/s3://b/a.csv",
        )),
        *(({"token": token}, "is not of this job")
          for token in (f"{'1' * 32}.a.0", UUID, f"{UUID}0.a.0", "")),
    ],
)  # fmt: skip
def test_what_cannot_be_a_file_of_the_job_is_wrong(changes: dict[str, Any], told: str) -> None:
    """I2, I6: keys below the destination, none of a committer's; tokens of its UUID, whole."""
    assert wrong() == ""
    assert wrong(**changes)
    assert told in wrong(**changes)


@pytest.mark.parametrize("character", ["\x00", "\n", "\x1b", "\x7f", "\x85", "\ufffe"])
@pytest.mark.parametrize("adopted", ["", "__magic_job-j/job-j/00/"])
def test_a_key_that_listings_cannot_carry_is_wrong(character: str, adopted: str) -> None:
    """One such key breaks Ceph's listing of the whole prefix: refused before the decision, also of
    a Hadoop job's pendingset."""
    job = structs.replace(JOB, adopted=adopted)
    told = wrong(job, key=f"t/a{character}b", token="" if adopted else UPLOAD.token)
    assert "cannot carry control characters" in told or "has the character" in told
    assert character not in told


def test_of_an_adopted_job_no_token_is_right_and_any_is_wrong() -> None:
    """I1: Hadoop's uploads carry no token; one with a token of ours is a zombie's."""
    adopted = structs.replace(JOB, adopted="__magic_job-j/job-j/00/")
    assert wrong(adopted, token="", multipart_etag='"x-1"') == ""
    assert "is not of this job" in wrong(adopted, token=f"{'1' * 32}.a.0")


def test_a_key_that_is_taken_as_it_is_stands_for_itself_only() -> None:
    """I2: of two uploads that are not open any more the operator takes one as it is: the other one
    still refuses the job."""
    with memory_store() as s3:
        job = mc.start("s3://bucket/t")
        with job.task("1") as task:
            for name in ("a.csv", "b.csv"):
                task.open(name).close()
        for upload in s3.open_uploads():
            s3.drop_upload(upload.upload_id)
        raised = raises(mc.CommitRefused, job._committer().driver(accept=["t/a.csv"]).commit)
        assert [problem.partition(":")[0] for problem in raised.problems] == ["t/b.csv"]


HERE = Destination.parse("file:///data/t")
WAITING = StartedJob(
    "j", UUID, HERE.url, structs.replace(USUAL_TERMS, committer="manifest"), False, "", False
)
HOME = f"_temporary/manifest_{UUID}/00/tasks"


@pytest.mark.parametrize(
    ("upload_id", "fine"),
    [
        (f"{HOME}/a0/p=1/a.csv#e", True),
        (f"{HOME}/a0/p=1/a.csv#", True),
        (f"{HOME.replace('0' * 32, '1' * 32)}/a0/p=1/a.csv#e", False),
        (f"{HOME}/a0/p=2/a.csv#e", False),
        (f"{HOME}/a0/b/p=1/a.csv#e", False),
        (f"{HOME}/p=1/a.csv#e", False),
        (f"{HOME}/a0/p=1/a.csv", False),
        (f"x/{HOME}/a0/p=1/a.csv#e", False),
        ("0123456789abcdef0123456789abcdef", False),
    ],
)
def test_a_waiting_file_is_of_an_attempt_of_the_job(upload_id: str, fine: bool) -> None:
    """Of no other job, and of its own key: a forged manifest publishes nothing else."""
    problem = RowCheck(WAITING).problem("p=1/a.csv", upload_id, "")
    assert (problem is None) == fine
    assert not fine or waiting_path("p=1/a.csv", upload_id) is not None


def test_a_file_of_no_etag_became_what_has_its_size() -> None:
    """Hadoop's manifests of a local disk name none: another size is another file's."""
    upload = ReadyUpload("a", "id", multipart_etag=f"{SIZE_ONLY}3")
    there = {size: ObjectInfo("a", size, '"e"', 0.0, 0.0, None) for size in (3, 4)}
    assert (became(upload, there[3]), became(upload, there[4])) == (True, False)


PART_BYTES_MAX = 5 * 1024**3
"""S3 API."""
LITTLE = 1024**2
"""Bytes: a text of some kB must not cost more than this."""


def pending(sizes: str, parts: int = 1, length: int = 3) -> Pending:
    """A `.pending` that tells the sizes of its parts so."""
    return new_pending(
        uri=java_uri("bucket", "a"), upload_id="u", bucket="bucket", destination_key="a",
        created_ms=0, etags=(UploadEtag('"900150983cd24fb0d6963f7d28e17f72"', None, None),) * parts,
        length=length, extra_data={EXTRA_PART_BYTES: sizes}, task_id="t",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ("3", [3]),
        ("2*3,1", [2, 2, 2, 1]),
        (f"{PART_BYTES_MAX}*9999,1", [PART_BYTES_MAX] * 9_999 + [1]),
        (f"{1024**4 * 50}", [1024**4 * 50]),
        (f"{1024**4 * 50}*10000", [1024**4 * 50] * PART_NUMBER_MAX),
    ],
)
def test_all_sizes_that_stores_allow_are_read(sizes: str, parts: list[int]) -> None:
    """Up to 10,000 parts, of objects of any length, in runs or one by one."""
    ready = from_pending(pending(sizes, len(parts), sum(parts)), "x")
    assert [part.size for part in ready.parts] == parts


@pytest.mark.parametrize(
    "sizes",
    [
        "9" * 5_000, "1*" + "9" * 5_000, "1*" + "0" * 5_000 + "1",
        ",".join(["3"] * 4_999 + ["9" * 5_000]), "1*10001", "1*10000,1",
        ",".join(["1*10000"] * 3_000), ",".join(["1"] * 10_001), "1,", "1*", "1*-1", "-1", "0x3",
        " 3",
    ],
    ids=lambda sizes: f"{sizes[:12]}... of {len(sizes)}",
)  # fmt: skip
def test_sizes_that_cannot_be_are_refused_with_little_memory(sizes: str) -> None:
    """Thousands of digits, more than 10,000 parts, what is no number: a `FormatError` with object
    and field, no longer than a line, before anything large is made of it."""
    hostile = pending(sizes)
    tracemalloc.start()
    try:
        refused = raises(mc.FormatError, from_pending, hostile, "t/x.pending")
        assert tracemalloc.get_traced_memory()[1] < LITTLE
    finally:
        tracemalloc.stop()
    assert str(refused).startswith("t/x.pending: extraData.magic-committer.part-bytes: ")
    assert len(str(refused)) < 200


def test_a_checksum_that_s3_does_not_have_is_dropped() -> None:
    """As Hadoop does: the ETag alone decides then."""
    for algorithm, kept in (("CRC32C", True), ("MD9", False), (None, False)):
        etags = (UploadEtag('"900150983cd24fb0d6963f7d28e17f72"', algorithm, "AAAAAA=="),)
        (part,) = from_pending(structs.replace(pending("3"), etags=etags), "x").parts
        assert (part.checksum is not None) is kept


def spooled(spool: Spool, *sizes: int) -> list[LoadedSet]:
    accepted = []
    for task, files in enumerate(sizes):
        made = [ReadyUpload(f"t/{task}/{n}", "id", "token") for n in range(files)]
        packed = pack(made, {"counters": {f"task {task}": 1}})
        place = spool.append(packed), len(packed)
        key = f"{task}.pendingset"
        accepted.append(LoadedSet(key, "", str(task), "a", "u", 0.0, files, files, *place))
    spool.accepted = accepted
    return accepted


def directories(sets: Uploads) -> list[str]:
    return [upload.key.rpartition("/")[0] for uploads, _ in sets for upload in uploads]


def test_neighbours_are_of_different_tasks() -> None:
    """S3 limits the requests of each prefix, and the files of a task often share one."""
    with Spool() as spool:
        spooled(spool, *[10] * 20)
        found = directories(spool.uploads())
    assert Counter(found) == {f"t/{task}": 10 for task in range(20)}
    assert all(one != two for one, two in pairwise(found))


@pytest.mark.parametrize("sizes", [(), (1,), (3, 0, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)])
def test_every_upload_and_every_statistic_is_given_once(sizes: tuple[int, ...]) -> None:
    """Sets of different sizes, empty ones too, are mixed, and nothing is lost or given twice."""
    with Spool() as spool:
        sets = spooled(spool, *sizes)
        keys = Counter(upload.key for uploads, _ in spool.uploads() for upload in uploads)
        told = Counter(name for _, said in spool.uploads() for name in said["counters"])
        named = [(one.key, one.upload_id, one.token) for one in spool.named()]
        assert named == [one[:3] for two in sets for one in spool.read(two)[0]]
        before = [spool.read(one) for one in reversed(sets)]
        (last,) = spooled(spool, 1)  # behind all, wherever was read
        assert spool.read(last)[1] == {"counters": {"task 0": 1}}
        assert before == [spool.read(one) for one in reversed(sets)]
    assert keys == {f"t/{task}/{n}": 1 for task, files in enumerate(sizes) for n in range(files)}
    assert told == {f"task {task}": 1 for task in range(len(sizes))}


def test_large_sets_are_unpacked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds one large set, or a few small ones."""
    read: list[int] = []
    real = Spool.read

    def noting(self: Spool, loaded: LoadedSet) -> Any:
        read.append(loaded.packed_bytes)
        return real(self, loaded)

    monkeypatch.setattr(Spool, "read", noting)
    with Spool() as spool:
        sets = spooled(spool, *[50] * 20, 100)
        monkeypatch.setattr(loading, "SPREAD_BYTES_MAX", sets[0].packed_bytes + 50)
        most = 0
        for _, _ in spool.uploads():
            most, read[:] = max(most, len(read)), []
    assert 1 < most <= SPREAD_SETS
    with Spool() as spool:
        sets = spooled(spool, *[50] * 5)
        monkeypatch.setattr(loading, "SPREAD_BYTES_MAX", 10)
        for _, _ in spool.uploads():
            assert len(read) == 1
            read.clear()


def test_no_object_is_read_beside_others_that_is_larger_than_a_pendingset() -> None:
    """Whatever size a listing tells, and where it tells none."""
    most = PENDINGSET_BYTES_MAX
    told = (0, 1, SMALL_SET_BYTES, SMALL_SET_BYTES + 1, most, most + 1, 2**60)
    read = (*[SMALL_SET_BYTES] * 3, SMALL_SET_BYTES + 1, *[most] * 3)
    assert tuple(map(loading.set_bytes_max, told)) == read
