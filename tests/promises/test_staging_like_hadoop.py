"""What Hadoop's staging committers do, and ours do as well: conflicts, names, failures, sizes.

The scenarios are those of Hadoop's `TestStagingCommitter`, `TestStagingDirectoryOutputCommitter`
and `TestStagingPartitionedTaskCommit`/`...JobCommit`. What differs: docs/decisions.md, "Staging".
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import StoreError
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import memory_store
from tests.promises.hands import DEST, control, visible

MIB = 1024**2


@pytest.fixture
def s3() -> Iterator[MemoryStore]:
    """The bucket ``bucket``."""
    with memory_store("bucket") as store:
        yield store


def start(tmp_path: Path, committer: str = "directory", **terms: Any) -> mc.Job:
    """A staging job whose local files are below a directory of the test."""
    return mc.start(
        DEST, committer=committer, options=mc.Options(buffer_dir=str(tmp_path)), **terms
    )


def task_with(job: mc.Job, number: int, *names: str, unique: bool = False) -> mc.Task:
    """A task that has written files and is not committed."""
    task = job.task(number)
    for name in names:
        path = task.directory(unique=unique) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return task


def old_data(s3: MemoryStore, *names: str) -> None:
    """What an earlier job wrote."""
    for name in names:
        s3.put_object(f"t/{name}", b"old")


def nothing_left(s3: MemoryStore, tmp_path: Path) -> bool:
    """No upload is open, no control object and no local file is there."""
    return not s3.open_uploads() and not control(s3) and not list(tmp_path.glob("*/*"))


# Conflicts ----------------------------------------------------------------------------------------


def test_directory_fail_refuses_a_destination_with_data_before_any_task(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """As in Hadoop's setupJob: nothing of the job is there afterwards. Without data it commits."""
    old_data(s3, "dt=1/old")
    with pytest.raises(mc.DestinationExists):
        start(tmp_path, mode="fail")
    assert nothing_left(s3, tmp_path)
    s3.delete_object("t/dt=1/old")
    job = start(tmp_path, mode="fail")
    task = task_with(job, 1, "a")
    job.commit([task.commit()])
    assert set(visible(s3)) == {"t/a"}


TABLE = ("dt=1/old", "dt=2/old", "dt=1/h=1/old", "dt=3/old", "old")


@pytest.mark.parametrize(
    ("committer", "mode", "old", "new", "stays"),
    [
        ("directory", "append", ("dt=1/old",), ("dt=1/new",), ("dt=1/old",)),
        ("partitioned", "append", ("dt=1/old",), ("dt=1/new",), ("dt=1/old",)),
        ("directory", "replace", TABLE, ("dt=1/new",), ()),
        ("partitioned", "replace", TABLE, ("dt=1/new", "dt=2/new"), TABLE[2:]),
        ("partitioned", "fail", ("dt=1/old",), ("dt=1/new",), None),
        ("partitioned", "fail", ("dt=1/old",), ("dt=2/new",), ("dt=1/old",)),
        ("partitioned", "fail", ("dt=1/h=1/old",), ("dt=1/h=2/new",), ("dt=1/h=1/old",)),
        # Hadoop looks below, too.
        ("partitioned", "fail", ("dt=1/h=1/old",), ("dt=1/new",), ("dt=1/h=1/old",)),
        # Hadoop appends to the table's root without a question.
        ("partitioned", "fail", ("old",), ("new",), None),
        ("partitioned", "fail", ("old",), ("dt=1/new",), ("old",)),
    ],
)
def test_what_a_mode_means_for_old_data(
    s3: MemoryStore, tmp_path: Path, committer: str, mode: str, old: tuple[str, ...],
    new: tuple[str, ...], stays: tuple[str, ...] | None,
) -> None:  # fmt: skip
    """Nothing changes before the job is decided; then old data in the mode's reach goes, or refuses
    the job (None), and nothing of that stays; old data elsewhere does not matter."""
    old_data(s3, *old)
    job = start(tmp_path, committer, mode=mode)
    results = [task_with(job, number, name).commit() for number, name in enumerate(new)]
    assert set(visible(s3)) == {f"t/{name}" for name in old}
    if stays is None:
        with pytest.raises(mc.DestinationExists):
            job.commit(results)
        job.abort()
        assert not s3.open_uploads()
    else:
        job.commit(results)
    there = old if stays is None else (*stays, *new)
    assert set(visible(s3)) == {f"t/{name}" for name in there}


# Names --------------------------------------------------------------------------------------------


def test_the_jobs_uuid_stands_before_the_first_dot_of_the_last_element(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """Hadoop's `Paths.addUUID`: no dot, many dots, a dot in the directory, a name that has it."""
    job = start(tmp_path)
    token = f"mcj{job.uuid}"
    names = ("part-0000", "part-0001.gz.csv", "parent.dir/part-0002", f"part-3-{token}.csv")
    job.commit([task_with(job, 1, *names, unique=True).commit()])
    assert set(visible(s3)) == {
        f"t/part-0000-{token}",
        f"t/part-0001-{token}.gz.csv",
        f"t/parent.dir/part-0002-{token}",
        f"t/part-3-{token}.csv",
    }


# Failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["create_upload", "put_part", "put"])
def test_a_task_that_fails_leaves_nothing_and_another_attempt_commits(
    s3: MemoryStore, tmp_path: Path, verb: str
) -> None:
    """The third request of a kind, or the pendingset's, is refused: all uploads of the attempt are
    aborted, its local files are gone, and its second attempt is the task."""
    job = start(tmp_path)
    names = [f"{number}.csv" for number in range(5)]
    seen = 0

    def fail(request: Request) -> None:
        nonlocal seen
        seen += request.verb == verb
        if request.verb == verb and seen == (1 if verb == "put" else 3):
            raise StoreError("no", operation=verb, bucket="bucket", status=400, code="Bad")

    task = task_with(job, 1, *names)
    s3.before = fail
    with pytest.raises(mc.MagicError):
        task.commit()
    s3.before = None
    task.abort()
    assert seen
    assert not s3.open_uploads()
    assert not list(tmp_path.glob("*/*"))
    job.commit([task_with(job, 1, *names).commit()])
    assert set(visible(s3)) == {f"t/{name}" for name in names}


def test_an_abort_before_the_commit_sends_nothing(s3: MemoryStore, tmp_path: Path) -> None:
    """Only local files were there: they go, and no upload was ever made."""
    task = task_with(start(tmp_path), 1, "a", "b")
    root = task.directory()
    task.abort()
    assert not root.exists()
    assert s3.requests["create_upload"] == s3.requests["abort_upload"] == 0


def test_a_job_that_is_aborted_aborts_what_its_tasks_have_uploaded(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """A committed task's uploads go, and a task that was still writing can commit no more."""
    old_data(s3, "old")
    job = start(tmp_path, mode="replace")
    task_with(job, 1, "a", "b").commit()
    late = task_with(job, 2, "c")
    assert len(s3.open_uploads()) == 2
    job.abort()
    with pytest.raises(mc.MagicError):
        late.commit()
    assert set(visible(s3)) == {"t/old"}
    assert nothing_left(s3, tmp_path)


def test_tasks_without_files_commit(s3: MemoryStore, tmp_path: Path) -> None:
    """A task that wrote nothing, one with an empty directory, and one with hidden files only: each
    is committed with no file. Hadoop asks `needsTaskCommit` and skips them."""
    job = start(tmp_path)
    empty = job.task(2)
    empty.directory()
    results = [
        job.task(1).commit(),
        empty.commit(),
        task_with(job, 3, "_temporary/x", ".hidden").commit(),
        task_with(job, 4, "a").commit(),
    ]
    assert [one.files for one in results] == [0, 0, 0, 1]
    assert job.commit(results, expect=4).files == 1
    assert set(visible(s3)) == {"t/a"}
    assert not list(tmp_path.glob("*/*"))


# Sizes --------------------------------------------------------------------------------------------


def test_a_file_of_many_blocks_is_uploaded_from_disk_in_parts(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """70 MiB, and an empty file beside it: each byte is where it was."""
    job = start(tmp_path)
    task = job.task(1)
    block = bytes(range(256)) * (MIB // 256)
    with (task.directory() / "large").open("wb") as file:
        for number in range(70):
            file.write(bytes([number]) + block[1:])
    (task.directory() / "empty").touch()
    result = task.commit()
    parts = {
        upload.key: [one.size for one in s3.list_parts(upload.key, upload.upload_id)]
        for upload in s3.open_uploads()
    }
    assert parts["t/empty"] == [0]
    assert len(parts["t/large"]) > 3
    assert sum(parts["t/large"]) == 70 * MIB
    job.commit([result])
    body = s3.body("t/large")
    assert len(body) == 70 * MIB
    for number in range(70):
        assert body[number * MIB : (number + 1) * MIB] == bytes([number]) + block[1:]


FULL = """
import errno, resource, signal, sys
import magic_committer as mc
from magic_committer.testing import memory_store

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
with memory_store("bucket") as s3:
    options = mc.Options(buffer_dir=sys.argv[1])
    job = mc.start("s3://bucket/t", committer="directory", options=options)
    task = job.task(1)
    (task.directory() / "before").write_bytes(b"1")
    file = task.open("large")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        file.write(b"2" * 4000)
    except mc.UploadFailed as error:
        assert "local disk" in str(error) and "buffer_dir" in str(error), error
        assert error.__cause__.errno == errno.EFBIG, error.__cause__
    else:
        raise AssertionError("written")
    try:
        task.commit()
    except mc.MagicError as error:
        assert "large" in str(error), error
    else:
        raise AssertionError("committed without a file that failed")
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not s3.open_uploads()
    again = job.task(1)
    with again.open("large") as file:
        file.write(b"2" * 4000)
    job.commit([again.commit()])
    assert s3.body("t/large") == b"2" * 4000
    assert "t/before" not in s3.keys()
"""


def test_a_disk_that_takes_no_more_ends_the_attempt_and_not_the_job(tmp_path: Path) -> None:
    """The system itself refuses the write in the middle, in a process of its own: the file has
    failed, the task cannot be committed without it, and another attempt is the task."""
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert not list(tmp_path.glob("*/*"))
