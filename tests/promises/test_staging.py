"""Staging jobs, and local files of a task: nothing before the commit, then all of it or nothing."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.committers import registry
from magic_committer.errors import OptionError, StoreError
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import memory_store
from magic_committer.upload import local
from tests.promises.hands import Crash

DEST = "s3://bucket/t"


@pytest.fixture
def s3() -> Iterator[MemoryStore]:
    with memory_store("bucket") as store:
        yield store


def keys(s3: MemoryStore) -> list[str]:
    """The data that readers see."""
    listed = (info.key for page in s3.list("t/") for info in page.objects)
    return sorted(key for key in listed if "_" not in key)


def start(tmp_path: Path, committer: str = "directory", **more: object) -> mc.Job:
    """A staging job whose local files are below a directory of the test."""
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


def test_one_failed_upload_ends_the_attempt(s3: MemoryStore, tmp_path: Path) -> None:
    """If one file cannot be uploaded, no upload of the task stays, and no local file."""
    job = start(tmp_path)
    task = job.task(1)
    root = task.directory()
    for number in range(5):
        (root / f"{number}.csv").write_bytes(b"1")

    def before(request: object) -> None:
        if getattr(request, "verb", "") == "put_part" and "3.csv" in str(request):
            raise StoreError("down", operation="put_part", bucket="bucket")

    s3.before = before
    with pytest.raises(mc.MagicError):
        task.commit()
    s3.before = None
    assert not s3.open_uploads()
    assert not root.exists()
    with pytest.raises(mc.TaskFailed):
        task.commit()


def test_a_link_in_the_directory_is_refused(s3: MemoryStore, tmp_path: Path) -> None:
    """What is no ordinary file is an error, and not left out."""
    task = start(tmp_path).task(1)
    (task.directory() / "link").symlink_to("/dev/null")
    with pytest.raises(mc.TaskFailed, match="a link"):
        task.commit()
    assert s3.requests["create_upload"] == 0


def test_the_modes_of_the_partitioned_committer_are_by_partition(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """Replace replaces the written partitions only; directory has no such modes."""
    for mode, name in (("append", "dt=1/a"), ("append", "dt=2/a"), ("replace", "dt=2/b")):
        job = start(tmp_path, "partitioned", mode=mode)
        with job.task(1) as task, task.open(name) as file:
            file.write(b"1")
        job.commit([task.result])
    assert keys(s3) == ["t/dt=1/a", "t/dt=2/b"]
    with pytest.raises(mc.OptionError, match="partitioned"):
        start(tmp_path, mode="replace_partitions")


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
    """The next attempt of another process removes what a killed one left, and not what a living one
    has."""
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
        with pytest.raises(OptionError, match="flock"):
            job.local_file("a.db")
        with job.open("b.csv", "w") as file:
            file.write("1")
    assert "t/b.csv" in s3.keys()


def test_many_tasks_with_many_files_are_all_published(s3: MemoryStore, tmp_path: Path) -> None:
    """500 tasks of 10 files, as Hadoop's own test: each file once, and no upload left."""
    job = start(tmp_path)
    results = []
    for number in range(500):
        with job.task(number) as task:
            for part in range(10):
                (task.directory() / f"{number}-{part}").write_bytes(b"1")
        results.append(task.result)
    assert job.commit(results, expect=500).files == 5000
    assert len(keys(s3)) == 5000
    assert not s3.open_uploads()


def test_a_task_that_is_not_accepted_publishes_nothing(s3: MemoryStore, tmp_path: Path) -> None:
    """Of two committed tasks the job takes one: the other's files do not appear, and its uploads
    go."""
    job = start(tmp_path, accept="results")
    results = []
    for name in ("a", "b"):
        with job.task(name) as task:
            (task.directory(unique=True) / f"{name}.tar.gz").write_bytes(b"1")
        results.append(task.result)
    job.commit(results[:1])
    assert keys(s3) == [f"t/a-mcj{job.uuid}.tar.gz"]
    assert not s3.open_uploads()


def test_a_staging_job_says_where_files_are_written_that_are_no_uploads_yet(
    s3: MemoryStore,
) -> None:
    """Its tasks have a local directory; a file system of uploads would be empty there."""
    with mc.write(f"s3://{s3.bucket}/t", committer="directory") as job:
        with pytest.raises(OptionError, match=r"task\.directory\(\)"):
            job.filesystem()
        with pytest.raises(OptionError, match=r"task\.directory\(\)"):
            job.discard("a.csv")
        (job.directory() / "a.csv").write_text("1")
    assert job.report.files == 1


def plain_keys(s3: MemoryStore) -> list[str]:
    """The data that readers see, without the job's UUID in the names."""
    return [re.sub("-mcj[0-9a-f]{32}", "", key) for key in keys(s3)]


def run_and_die(s3: MemoryStore, tmp_path: Path, requests: int) -> bool:
    """A job of two tasks, whose process dies before or after a request. Gives whether it lived."""
    sent = 0

    def strike(request: object) -> None:
        nonlocal sent
        sent += 1
        if sent > requests:
            raise Crash

    s3.before = strike
    try:
        job = start(tmp_path, "partitioned", mode="replace", job_id="j")
        results = []
        for number in range(2):
            task = job.task(number)
            directory = task.directory(unique=True) / f"dt={number}"
            directory.mkdir()
            (directory / "a.csv").write_bytes(b"new")
            (directory / "b.csv").write_bytes(b"")
            results.append(task.commit())
        job.commit(results)
    except Crash:
        return False
    except mc.UploadFailed as error:  # a thread has died of it before the close could end
        if "Crash" not in str(error):
            raise
        return False
    finally:
        s3.before = None
    return True


def test_a_driver_that_dies_at_any_request_leaves_all_or_nothing(tmp_path: Path) -> None:
    """Whoever recovers the job afterwards finds a table of the old files or of the new ones, and
    nothing of the job stays open: the names hold the job's UUID."""
    old, new = ["t/dt=0/old"], [f"t/dt={n}/{name}.csv" for n in range(2) for name in "ab"]
    seen: set[str] = set()
    for requests in range(200):
        with memory_store("bucket") as s3:
            s3.put("t/dt=0/old", b"old")
            if run_and_die(s3, tmp_path, requests):
                assert plain_keys(s3) == new
                break
            try:
                mc.recover(DEST, "j", dead_after=0)
            except mc.JobNotFound:  # it died before its record, or after its end
                assert plain_keys(s3) in (old, new)
            found = plain_keys(s3)
            assert found in (old, new), (requests, found)
            assert not s3.open_uploads(), requests
            seen.add("new" if found == new else "old")
    else:
        pytest.fail("the job never ends")
    assert seen == {"old", "new"}
    assert requests > 30


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


def test_a_track_that_staging_does_not_have_is_refused_before_the_job_starts(
    s3: MemoryStore, tmp_path: Path
) -> None:
    """Its files are on local disk; nothing is written for such a job."""
    with pytest.raises(mc.OptionError, match="only 'memory'"):
        start(tmp_path, track="s3")
    assert not s3.requests
