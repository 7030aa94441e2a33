"""Staging jobs, and local files of a task: nothing before the commit, then all of it or nothing."""

from __future__ import annotations

import errno
import gzip
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pytest

import magic_committer as mc
from magic_committer.committers import base
from magic_committer.errors import InvalidRequest
from magic_committer.stores.memory import MemoryStore
from magic_committer.upload import local
from tests.promises.hands import DEST, At, Nth, control, full_disk, raises, visible


def start(tmp_path: Path, committer: str = "directory", **more: object) -> mc.Job:
    options = mc.Options(buffer_dir=str(tmp_path))
    return mc.start(DEST, committer=committer, options=options, **more)  # type: ignore[arg-type]


def test_a_directorys_files_appear_when_the_job_commits(s3: MemoryStore, tmp_path: Path) -> None:
    """Of every depth, uploaded with the task; hidden ones are not, and no local file stays."""
    job = start(tmp_path)
    with job.task(1) as task:
        root = task.directory()
        for name in ("dt=1/a.tar.gz", "b", "_logs/c", ".crc"):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(b"1")
        assert s3.requests["create_upload"] == 0
    assert task.result.files == 2
    assert not root.exists()
    assert visible(s3) == {}
    assert job.commit([task.result]).files == 2
    assert set(visible(s3)) == {"t/b", "t/dt=1/a.tar.gz"}
    assert b'"committer":"directory"' in s3.body("t/_SUCCESS")


def test_a_link_in_the_directory_is_refused(s3: MemoryStore, tmp_path: Path) -> None:
    """What is no ordinary file is an error, and not left out."""
    task = start(tmp_path).task(1)
    (task.directory() / "link").symlink_to("/dev/null")
    raises(mc.TaskFailed, task.commit, match="a link")
    assert s3.requests["create_upload"] == 0


def test_a_local_file_whose_disk_fails_is_not_uploaded(
    s3: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the disk fails as its files are counted, without a limit."""

    def fail(_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(local.LocalDirectory, "bytes_used", fail)
    task = start(tmp_path).task(1)
    raises(mc.UploadFailed, task.local_file("a").close, match="could not be kept on local disk")
    raises(mc.TaskFailed, task.commit)


def test_a_local_file_is_uploaded_when_it_is_closed(s3: MemoryStore, tmp_path: Path) -> None:
    """SQLite writes by the path, whole; a file that is left by an exception is none."""
    job = mc.start(DEST, options=mc.Options(buffer_dir=str(tmp_path)))
    with job.task(1) as task:
        with task.local_file("a.db") as file:
            database = sqlite3.connect(file.path)
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
    assert set(visible(s3)) == {"t/a.db", "t/c"}
    assert s3.body("t/a.db").startswith(b"SQLite format 3")
    assert s3.body("t/c") == b"sizex"
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.parametrize("committer", ["magic", "directory"])
def test_a_local_file_is_a_file(s3: MemoryStore, committer: str) -> None:
    """It is read, cut and locked by its descriptor, as a library does that a stream refuses."""
    with mc.write(DEST, committer=committer) as job:
        with job.local_file("a.csv") as file:
            file.write(b"1,2\n3,4\n5,6\n")
            assert (file.readable(), file.seekable(), file.tell()) == (True, True, 12)
            assert os.fstat(file.fileno()).st_ino == file.path.stat().st_ino
            file.seek(0)
            read = bytearray(2)
            assert (file.readline(), file.read(2), file.readinto(read)) == (b"1,2\n", b"3,", 2)
            assert (bytes(read), file.read(), file.truncate(8)) == (b"4\n", b"5,6\n", 8)
        for call in (file.read, file.tell, file.fileno, file.truncate):
            raises(ValueError, call, match="closed file")
    assert visible(s3) == {"t/a.csv": b"1,2\n3,4\n"}


def header(file: Any) -> None:
    file.write(b"header..")
    np.arange(5).tofile(file)


def text_twice(file: Any) -> None:
    np.savetxt(file, [1.5])
    np.savetxt(file, [2.5])


def arrow(file: Any) -> None:
    file.write(b"# made by x\n")
    pyarrow.csv.write_csv(pyarrow.table({"a": [1]}), file)


def members(file: Any) -> None:
    for one in (b"one", b"two"):
        with gzip.open(file, "wb") as member:
            member.write(one)


def arrays(file: Any) -> None:
    square = np.ones((4, 4))
    for array in (np.zeros((0, 3)), np.asfortranarray(square), square[::2]):
        file.write(array if isinstance(file, mc.LocalFile) else array.tobytes())


@pytest.mark.parametrize("write", [header, text_twice, arrow, members, arrays])
@pytest.mark.parametrize("committer", ["magic", "directory"])
def test_a_library_that_is_given_a_local_file_adds_to_it(
    s3: MemoryStore, tmp_path: Path, committer: str, write: Callable[[Any], None]
) -> None:
    """Nothing that was written before is lost, as if its path were opened anew."""
    with open(tmp_path / "plain", "w+b", buffering=0) as plain:
        write(plain)
    with mc.write(DEST, committer=committer) as job, job.local_file("a") as file:
        write(file)
    unpack = gzip.decompress if write is members else bytes  # their heads have times
    assert unpack(s3.body("t/a")) == unpack((tmp_path / "plain").read_bytes())


@pytest.mark.parametrize("committer", ["magic", "directory"])
def test_a_program_may_rename_over_a_local_file(s3: MemoryStore, committer: str) -> None:
    """What is at the path is sent; but not if something that was written is lost by that."""

    def rename_over(file: mc.LocalFile) -> None:
        (new := file.path.with_suffix(".tmp")).write_bytes(b"new")
        new.rename(file.path)

    with mc.write(DEST, committer=committer) as job, job.local_file("a") as file:
        raises(mc.WrongType, lambda: file.write("text"), match="a file of bytes")  # type: ignore[arg-type]
        rename_over(file)
        assert file.length == 3
    lost = mc.start(DEST, committer=committer).task(1).local_file("b")
    lost.write(b"old")
    rename_over(lost)
    raises(mc.UploadFailed, lost.close, match="what was written to it is lost")
    assert (visible(s3), file.length) == ({"t/a": b"new"}, 3)


def test_what_a_task_finds_in_its_directory_is_told(s3: MemoryStore, tmp_path: Path) -> None:
    """A name that no key can have, a file that is gone, a name that is a directory's: each is an
    error that says so, and the job goes on with another attempt."""
    job = start(tmp_path)
    odd, gone, taken = (job.task(number) for number in "123")
    (odd.directory() / os.fsdecode(b"\xff")).write_bytes(b"1")
    raises(mc.PathError, odd.commit, match="is not UTF-8")
    gone.write_bytes("a", b"1")
    (gone.directory() / "a").unlink()
    raises(mc.TaskFailed, gone.commit, match="cannot be found")
    (taken.directory() / "a").mkdir()
    raises(mc.UploadFailed, taken.write_bytes, "a", b"1", match="cannot be put into")
    for task in (odd, gone, taken):
        task.abort()
    assert (job.commit(expect=0).files, s3.open_uploads()) == (0, ())


def test_a_wrong_name_lists_the_right_ones(s3: MemoryStore) -> None:
    """An unknown committer is refused before anything is sent, with the names that there are."""
    refused = raises(mc.OptionError, mc.start, DEST, committer="directori", match="'directori'")
    assert "'directory'" in str(refused)
    assert not s3.requests
    for name in base.COMMITTERS:
        assert base.named(name).name == name


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


def test_no_flock_is_told_at_once(s3: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows a task has no local files; files that it opens are published all the same."""
    monkeypatch.setattr(local, "fcntl", None)
    with mc.write(DEST) as job:
        raises(mc.OptionError, job.local_file, "a.db", match="flock")
        with job.open("b.csv", "w") as file:
            file.write("1")
    assert "t/b.csv" in s3.keys()


def test_a_staging_job_says_where_files_are_written(s3: MemoryStore) -> None:
    """Its tasks have a local directory; a file system of uploads would be empty there."""
    with mc.write(DEST, committer="directory") as job:
        for call in (job.filesystem, lambda: job.discard("a.csv")):
            raises(mc.OptionError, call, match=r"task\.directory\(\)")
        (job.directory() / "a.csv").write_text("1")
    assert job.report.files == 1


def test_too_many_local_bytes_end_the_task(s3: MemoryStore, tmp_path: Path) -> None:
    """The limit is for the whole directory, whoever wrote into it; the error names it."""
    options = mc.Options(buffer_dir=str(tmp_path), local_bytes_max=10)
    task = mc.start(DEST, committer="directory", options=options).task(1)
    for name in "ab":
        (task.directory() / name).write_bytes(b"123456")
    raises(mc.UploadFailed, task.commit, match="local_bytes_max")
    assert s3.requests["create_upload"] == 0
    left = task._attempt._local
    assert left is not None
    assert not left.path.exists()


def test_a_file_that_changes_in_its_upload_ends_the_task(s3: MemoryStore, tmp_path: Path) -> None:
    """What was sent may be a mixture of both states."""
    task = task_with(start(tmp_path), 1, "a.csv")
    path = task.directory() / "a.csv"

    def change() -> None:
        path.write_bytes(b"new")
        os.utime(path, ns=(1, 1))

    At(s3, "put_part", change, after=True)
    raises(mc.MagicError, task.commit, match=r"was changed|has changed")
    assert not s3.open_uploads()


@pytest.mark.parametrize(
    ("terms", "told"),
    [({"track": "s3"}, "only 'memory'"), ({"mode": "replace_partitions"}, "partitioned")],
)
def test_a_term_that_staging_does_not_have_is_refused_before_the_job_starts(
    s3: MemoryStore, tmp_path: Path, terms: dict[str, str], told: str
) -> None:
    """Its files are on local disk, and modes by partition are another committer's."""
    raises(mc.OptionError, start, tmp_path, **terms, match=told)
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


TABLE = ("dt=1/old", "dt=2/old", "dt=1/h=1/old", "dt=3/old", "old")


@pytest.mark.parametrize(
    ("committer", "mode", "old", "new", "stays"),
    [
        ("directory", "fail", ("dt=1/old",), ("dt=2/new",), None),
        ("directory", "fail", (), ("dt=2/new",), ()),
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
    """Old data in its reach goes with the decision, or refuses the job (None); other data stays."""
    old_data(s3, *old)

    def write() -> None:
        job = start(tmp_path, committer, mode=mode)
        results = [task_with(job, number, name).commit() for number, name in enumerate(new)]
        assert set(visible(s3)) == {f"t/{name}" for name in old}
        job.commit(results)

    if stays is None:
        raises(mc.DestinationExists, write)
        for found in mc.inspect(DEST):
            mc.abort(DEST, found.id)
        assert nothing_left(s3, tmp_path)
    else:
        write()
    there = old if stays is None else (*stays, *new)
    assert set(visible(s3)) == {f"t/{name}" for name in there}


@pytest.mark.parametrize("verb", ["create_upload", "put_part", "put"])
def test_a_task_that_fails_leaves_nothing(s3: MemoryStore, tmp_path: Path, verb: str) -> None:
    """At any request: its uploads are aborted, its files gone, and another attempt is the task."""
    job = start(tmp_path)
    names = [f"{number}.csv" for number in range(5)]
    nth = Nth(1 if verb == "put" else 3)
    task = task_with(job, 1, *names)
    with At(s3, lambda r: r.verb == verb and nth(r), InvalidRequest("no", status=400)):
        raises(mc.MagicError, task.commit)
    assert not s3.open_uploads()
    assert not list(tmp_path.glob("*/*"))
    raises(mc.TaskFailed, task.commit)
    job.commit([task_with(job, 1, *names).commit()])
    assert set(visible(s3)) == {f"t/{name}" for name in names}


def test_tasks_without_files_commit(s3: MemoryStore, tmp_path: Path) -> None:
    """With nothing, an empty directory, or hidden files only; Hadoop skips such tasks."""
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


def test_a_file_of_many_blocks_is_uploaded_in_parts(s3: MemoryStore, tmp_path: Path) -> None:
    """30 MiB, and an empty file beside it: each byte is where it was."""
    job = start(tmp_path)
    task = task_with(job, 1, "empty")
    body = os.urandom(30 * 1024**2)
    (task.directory() / "large").write_bytes(body)
    result = task.commit()
    (upload,) = s3.open_uploads("t/large")
    sizes = [one.size for one in s3.list_parts(upload.key, upload.upload_id)]
    assert (len(sizes) >= 3, sum(sizes)) == (True, len(body))
    job.commit([result])
    assert s3.body("t/large") == body
    assert "t/empty" in visible(s3)


def test_a_full_disk_ends_the_attempt_and_not_the_job(s3: MemoryStore, tmp_path: Path) -> None:
    """The system refuses a write in the middle: no commit without the file; another attempt may."""
    job = start(tmp_path)
    task = task_with(job, 1, "before")
    file = task.open("large")
    with full_disk():
        failed = raises(mc.UploadFailed, file.write, b"2" * 4000, match=r"local disk.*buffer_dir")
    assert isinstance(failed.__cause__, OSError)
    assert failed.__cause__.errno == errno.EFBIG
    raises(mc.MagicError, task.commit, match="large")
    assert not s3.open_uploads()
    job.commit([task_with(job, 1, "large").commit()])
    assert visible(s3) == {"t/large": b"large"}
    assert not list(tmp_path.glob("*/*"))


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


def test_an_abort_before_the_commit_sends_nothing(s3: MemoryStore, tmp_path: Path) -> None:
    """Only local files were there: they go, and no upload was ever made."""
    task = task_with(start(tmp_path), 1, "a", "b")
    root = task.directory()
    task.abort()
    assert not root.exists()
    assert s3.requests["create_upload"] == s3.requests["abort_upload"] == 0
