"""Staging jobs, and local files of a task: nothing before the commit, then all of it or nothing."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.committers import registry
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import memory_store
from magic_committer.upload import local
from tests.promises.hands import DEST, control, visible


@pytest.fixture
def s3() -> Iterator[MemoryStore]:
    with memory_store("bucket") as store:
        yield store


def keys(s3: MemoryStore) -> list[str]:
    listed = (info.key for page in s3.list("t/") for info in page.objects)
    return sorted(key for key in listed if "_" not in key)


def start(tmp_path: Path, committer: str = "directory", **more: object) -> mc.Job:
    options = mc.Options(buffer_dir=str(tmp_path))
    return mc.start(DEST, committer=committer, options=options, **more)  # type: ignore[arg-type]


def test_the_files_of_a_directory_appear_when_the_job_commits(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """Files of every depth are uploaded with the task and visible with the job; hidden ones are
    not, and no local file stays."""
    job = start(tmp_path)
    with job.task(1) as task:
        root = task.directory()
        (root / "dt=1").mkdir()
        (root / "dt=1/a.tar.gz").write_bytes(b"1")
        (root / "b").write_bytes(b"")
        (root / "_logs").mkdir()
        (root / "_logs/c").write_bytes(b"3")
        (root / ".crc").write_bytes(b"4")
        assert s3.requests["create_upload"] == 0
    assert task.result.files == 2
    assert not root.exists()
    assert keys(s3) == []
    assert job.commit([task.result]).files == 2
    assert keys(s3) == ["t/b", "t/dt=1/a.tar.gz"]
    assert b'"committer":"directory"' in s3.get("t/_SUCCESS", max_bytes=10**6).body


def test_a_link_in_the_directory_is_refused(s3: MemoryStore, tmp_path: Path) -> None:
    """What is no ordinary file is an error, and not left out."""
    task = start(tmp_path).task(1)
    (task.directory() / "link").symlink_to("/dev/null")
    with pytest.raises(mc.TaskFailed, match="a link"):
        task.commit()
    assert s3.requests["create_upload"] == 0


def test_a_local_file_whose_disk_fails_is_not_uploaded(
    s3: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the disk fails as its files are counted, without a limit."""

    def fail(_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(local.LocalDirectory, "bytes_used", fail)
    task = start(tmp_path).task(1)
    with pytest.raises(mc.UploadFailed, match="could not be kept on local disk"):
        task.local_file("a").close()
    with pytest.raises(mc.TaskFailed):
        task.commit()


def test_a_local_file_of_a_magic_job_is_uploaded_when_it_is_closed(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """SQLite writes by the path; the object is the whole database. A file that is left by an
    exception is none."""
    job = mc.start(DEST, options=mc.Options(buffer_dir=str(tmp_path)))
    with job.task(1) as task:
        with task.local_file("a.db") as file:
            database = sqlite3.connect(os.fspath(file))
            database.execute("create table t (n)")
            database.commit()
            database.close()
        with pytest.raises(RuntimeError), task.local_file("b.db"):
            raise RuntimeError
        with task.local_file("c") as seeks:
            seeks.write(b"....x")
            seeks.seek(0)
            seeks.write(b"size")
    job.commit([task.result])
    assert keys(s3) == ["t/a.db", "t/c"]
    assert s3.get("t/a.db", max_bytes=10**6).body.startswith(b"SQLite format 3")
    assert s3.get("t/c", max_bytes=10**6).body == b"sizex"
    assert not list(tmp_path.glob("*/*"))


def test_a_wrong_name_lists_the_right_ones(s3: MemoryStore) -> None:
    """An unknown committer is refused before anything is sent, with the names that there are."""
    with pytest.raises(mc.OptionError, match="'directori'") as refused:
        mc.start(DEST, committer="directori")
    assert "'directory'" in str(refused.value)
    assert not s3.requests
    for name in registry.COMMITTERS:
        assert registry.named(name).name == name


def test_the_record_names_the_committer(s3: MemoryStore) -> None:
    """Every process finds it there, by its own name, and not by an alias."""
    job = mc.start(DEST, job_id="1", committer="staging")
    assert job.committer == "directory"
    assert mc.attach(DEST, "1").committer == "directory"
    assert mc.Job.from_dict(job.to_dict()).committer == "directory"


KILLED = """
import os, signal, sys
import magic_committer as mc
from magic_committer.testing import memory_store

with memory_store("bucket"):
    options = mc.Options(buffer_dir=sys.argv[1])
    task = mc.start("s3://bucket/t", committer="directory", options=options).task(1)
    (task.directory() / "a.csv").write_text("1")
    print(task.directory(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_no_local_files(s3: MemoryStore, tmp_path: Path) -> None:
    """The next attempt removes what a killed one left, and not what a living one has."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    left = Path(killed.stdout.strip())
    assert (left / "a.csv").read_text() == "1"
    mine = start(tmp_path).task(1)
    living = mine.directory()
    assert not left.exists()
    local.remove_dead(living.parent.parent)
    assert living.exists()
    mine.abort()
    assert not living.exists()


def test_a_system_without_flock_is_told_at_once(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows a task has no local files; files that it opens are published all the same."""
    monkeypatch.setattr(local, "fcntl", None)
    with mc.write("s3://bucket/t") as job:
        with pytest.raises(mc.OptionError, match="flock"):
            job.local_file("a.db")
        with job.open("b.csv", "w") as file:
            file.write("1")
    assert "t/b.csv" in s3.keys()


def test_a_staging_job_says_where_files_are_written_that_are_no_uploads_yet(
    s3: MemoryStore,
) -> None:
    """Its tasks have a local directory; a file system of uploads would be empty there."""
    with mc.write(f"s3://{s3.bucket}/t", committer="directory") as job:
        with pytest.raises(mc.OptionError, match=r"task\.directory\(\)"):
            job.filesystem()
        with pytest.raises(mc.OptionError, match=r"task\.directory\(\)"):
            job.discard("a.csv")
        (job.directory() / "a.csv").write_text("1")
    assert job.report.files == 1


def test_too_many_local_bytes_end_the_task(s3: MemoryStore, tmp_path: Path) -> None:
    """The limit is for the whole directory, whoever wrote into it; the error names it."""
    options = mc.Options(buffer_dir=str(tmp_path), local_bytes_max=10)
    task = mc.start(DEST, committer="directory", options=options).task(1)
    for name in "ab":
        (task.directory() / name).write_bytes(b"123456")
    with pytest.raises(mc.UploadFailed, match="local_bytes_max"):
        task.commit()
    assert s3.requests["create_upload"] == 0
    left = task._attempt._local
    assert left is not None
    assert not left.path.exists()


def test_a_file_that_changes_while_it_is_uploaded_ends_the_task(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """What was sent may be a mixture of both states."""
    task = start(tmp_path).task(1)
    path = task.directory() / "a.csv"
    path.write_bytes(b"old")

    def change(request: object, _: object) -> None:
        if getattr(request, "verb", "") == "put_part":
            path.write_bytes(b"new")
            os.utime(path, ns=(1, 1))

    s3.after = change
    with pytest.raises(mc.MagicError, match=r"was changed|has changed"):
        task.commit()
    s3.after = None
    assert not s3.open_uploads()


def test_a_forked_child_neither_commits_nor_removes(s3: MemoryStore, tmp_path: Path) -> None:
    """The directory belongs to the process that made it; the child's end leaves it."""
    task = start(tmp_path).task(1)
    path = task.directory() / "a.csv"
    path.write_bytes(b"1")
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (task.commit, task.abort, task.directory):
            try:
                call()
            except mc.MagicError:
                refused += 1
        os._exit(0 if refused == 3 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert path.exists()
    assert task.commit().files == 1


@pytest.mark.parametrize(
    ("terms", "told"),
    [({"track": "s3"}, "only 'memory'"), ({"mode": "replace_partitions"}, "partitioned")],
)
def test_a_term_that_staging_does_not_have_is_refused_before_the_job_starts(
    s3: MemoryStore, tmp_path: Path, terms: dict[str, str], told: str
) -> None:
    """Its files are on local disk, and modes by partition are another committer's."""
    with pytest.raises(mc.OptionError, match=told):
        start(tmp_path, **terms)
    assert not s3.requests


def task_with(job: mc.Job, number: int, *names: str, unique: bool = False) -> mc.Task:
    """A task that has written files and is not committed."""
    task = job.task(number)
    for name in names:
        path = task.directory(unique=unique) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return task


def old_data(s3: MemoryStore, *names: str) -> None:
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
            raise mc.StoreError("no", operation=verb, bucket="bucket", status=400, code="Bad")

    task = task_with(job, 1, *names)
    s3.before = fail
    with pytest.raises(mc.MagicError):
        task.commit()
    s3.before = None
    assert seen
    assert not s3.open_uploads()
    assert not list(tmp_path.glob("*/*"))
    with pytest.raises(mc.TaskFailed):
        task.commit()
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


MIB = 1024**2


def test_a_file_of_many_blocks_is_uploaded_from_disk_in_parts(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """30 MiB, and an empty file beside it: each byte is where it was."""
    job = start(tmp_path)
    task = job.task(1)
    block = bytes(range(256)) * (MIB // 256)
    with (task.directory() / "large").open("wb") as file:
        for number in range(30):
            file.write(bytes([number]) + block[1:])
    (task.directory() / "empty").touch()
    result = task.commit()
    parts = {
        upload.key: [one.size for one in s3.list_parts(upload.key, upload.upload_id)]
        for upload in s3.open_uploads()
    }
    assert parts["t/empty"] == [0]
    assert len(parts["t/large"]) >= 3
    assert sum(parts["t/large"]) == 30 * MIB
    job.commit([result])
    body = s3.body("t/large")
    assert len(body) == 30 * MIB
    for number in range(30):
        assert body[number * MIB : (number + 1) * MIB] == bytes([number]) + block[1:]


# Sizes --------------------------------------------------------------------------------------------


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
