"""A task's files by name: written, renamed, discarded or put, on each kind of destination."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.filesystem.put import files_in
from magic_committer.options import Track
from magic_committer.stores.memory import MemoryStore
from tests.destinations import DISKS, OnDisk, There
from tests.promises.hands import DEST, At, raises, refusing, remains, visible, write

fsspec: Any = pytest.importorskip("fsspec")  # the extra `fsspec`


class Broken(Exception):
    """The writer gave up."""


def test_what_is_written_is_shown_and_appears_at_the_commit(there: There) -> None:
    """Before, the writer sees its files and nobody else does; after, all are objects."""
    with there.write() as job:
        job.open("a").close()
        fs = job.filesystem()
        assert fs.ls("", detail=False) == ["a"]
        fs.pipe({"d/a": b"1", "b": b"22"})
        assert job.filesystem().find("") == fs.find("") == ["a", "b", "d/a"]
        job.discard("a")
        assert fs.find("") == ["b", "d/a"]
        assert fs.info("/b")["size"] == 2
        assert fs.isdir("d")
        assert fs.exists(f"{there.url}/d/a")
        assert not fs.exists("c")
        assert there.data() == {}
    assert there.data() == {"d/a": b"1", "b": b"22"}
    assert there.left() == []


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_an_error_in_a_files_block_gives_the_file_up(there: There, mode: str) -> None:
    """Also if the error is caught inside the job's block: half a file is never published."""
    with there.write() as job:
        fs = job.filesystem()
        fs.pipe("good", b"1")
        with pytest.raises(Broken), fs.open("half", mode) as file:
            file.write(b"1" if "b" in mode else "1")
            raise Broken
        assert not fs.exists("half")
    assert there.data() == {"good": b"1"}
    assert there.left() == []


@pytest.mark.parametrize("closed", [True, False], ids=["a wrapper closes it", "nobody closes it"])
def test_a_file_that_was_cut_short_is_not_published(there: There, closed: bool) -> None:
    """An error in the block aborts a closed file, too; a dropped one has lost bytes."""
    error = Broken if closed else mc.FileStillOpen
    with pytest.raises(error, match="half"), there.write() as job:
        file = job.filesystem().open("half", "wb")
        file.write(b"1")
        if closed:
            file.close()
            raise Broken("half")
        del file
    assert there.data() == {}
    assert there.left() == []


def test_a_file_that_was_not_kept_says_so(s3: MemoryStore) -> None:
    """It cannot be read or renamed, and the limit is named; a removed one makes room again."""
    with mc.write(DEST) as job:
        fs = job.filesystem(keep_bytes_max=80)
        fs.pipe({"d/large": b"x" * 11, "d/small": b"x" * 10})
        for read in (
            fs.cat,
            fs.open,
            lambda name: fs.cp(name, "x"),
            lambda name: fs.get(name, "x"),
        ):
            raises(mc.NotYetAnObject, read, "d/large", match="10 of one file")
        raises(mc.NotYetAnObject, fs.mv, "d", "e", recursive=True, match="renamed")
        assert fs.find("") == ["d/large", "d/small"]
        fs.pipe({str(number): b"x" * 10 for number in range(8)})
        raises(mc.NotYetAnObject, fs.cat, "7")
        fs.rm("0")
        fs.pipe("7", b"y" * 10)
        assert fs.cat("7") == b"y" * 10
    assert {"t/d/large", "t/d/small"} < set(visible(s3))


def test_rm_aborts_uploads(there: There) -> None:
    """Also with a directory, and of a file that is written over."""
    with there.write() as job:
        fs = job.filesystem()
        fs.pipe({"d/a": b"1", "d/e/b": b"2", "c": b"3"})
        raises(OSError, fs.rm, "d", match="not empty")
        fs.rm("d", recursive=True)
        assert fs.find("") == ["c"]
        raises(FileNotFoundError, fs.rm, "d")
        fs.pipe("c", b"4")
        raises(FileExistsError, fs.open, "c", "xb")
        raises(mc.NotYetAnObject, fs.open, "c", "ab", match="'ab'")
    assert there.data() == {"c": b"4"}
    assert there.left() == []


def test_read_through_shows_the_destination_and_changes_nothing_there(there: There) -> None:
    """Old objects are shown and read, and neither deleted nor renamed."""
    there.put("d/old", b"old")
    with there.write() as job:
        assert not job.filesystem().exists("d/old")
        fs = job.filesystem(read_through=True)
        fs.pipe("d/new", b"new")
        assert fs.cat("d/old") == b"old"
        for change, target in (("rm", ()), ("mv", ("e",))):
            with pytest.raises(PermissionError, match="mode='replace'"):
                getattr(fs, change)("d", *target, recursive=True)
            assert fs.find("") == ["d/new", "d/old"]
    assert there.data() == {"d/old": b"old", "d/new": b"new"}


def test_what_would_lose_a_file_is_refused(there: There) -> None:
    """A URL elsewhere, a compression that loses its end, and a pickle."""
    with there.write() as job:
        fs = job.filesystem()
        for url in (f"{there.url}2/a", "s3://other/t/a", "file:///other/t/a", "gs://bucket/t/a"):
            raises(mc.PathError, fs.open, url, "wb", match=f"not below {there.url}/")
        raises(mc.OptionError, fs.open, "a.gz", "wb", compression="gzip", match=r"gzip\.open")
        raises(pickle.PicklingError, pickle.dumps, fs, match="does not travel")


def test_urls_mean_the_open_block(there: There) -> None:
    """``magic://`` writes files of the block whose destination it is below; outside it raises."""
    fsspec.register_implementation("magic", "magic_committer.filesystem.urls.MagicUrls", True)
    with pytest.raises(mc.OptionError, match="no `with"):
        fsspec.open(f"magic://{there.bare}/a", "wb").open()
    with there.write() as job, mc.write(f"{there.url}/deep", **there.terms) as deep:
        with fsspec.open(f"magic://{there.bare}/a", "w") as file:
            file.write("1")
        with fsspec.open(f"magic://{there.bare}/deep/b", "wb") as file:
            file.write(b"2")
        fs = fsspec.filesystem("magic")
        assert fs.ls(f"magic://{there.bare}", detail=False) == [f"{there.bare}/a"]
        assert (job.filesystem().find(""), deep.filesystem().find("")) == (["a"], ["b"])
        fs.pipe({f"magic://{there.bare}/{name}": b"3" for name in ("b", "c", "d/e")})
        fs.mv(f"magic://{there.bare}/b", f"magic://{there.bare}/f")
        fs.rm([f"magic://{there.bare}/{name}" for name in ("c", "d")], recursive=True)
        assert fs.find(f"magic://{there.bare}") == [f"{there.bare}/a", f"{there.bare}/f"]
        fs.rm(f"magic://{there.bare}/f")
        raises(mc.OptionError, fs.mv, f"{there.bare}/a", f"{there.bare}/deep/a", match="two jobs")
        with there.write(), pytest.raises(mc.OptionError, match="2 open blocks"):
            fs.exists(f"magic://{there.bare}/a") or fs.info(f"magic://{there.bare}/a")
    assert there.data() == {"a": b"1", "deep/b": b"2"}


def test_directories_are_renamed_with_what_is_in_them(there: There) -> None:
    """Into another one or itself, and under another name; to its own name changes nothing. What is
    in it already is not written over by what is renamed into it."""
    with there.write() as job:
        fs = job.filesystem()
        fs.pipe({"p/d/a": b"1", "p/d/e/b": b"2", "x/c": b"3"})
        fs.mv("p", "p/z", recursive=True)
        raises(OSError, fs.mv, "p", "p/z", recursive=True, match="in what is to be renamed")
        assert fs.find("p") == ["p/z/d/a", "p/z/d/e/b"]
        fs.mv("p/z/d", "p/y", recursive=True)
        fs.mv("p/y", "x/", recursive=True)
        fs.mv("x/c", "/x/c")
        fs.mv("x", "/x", recursive=True)
        fs.mv(["x/c"], ["x/c"])
        fs.cp("x/c", f"{there.url}/x/c")
        fs.cp("x/c", "copy")
        assert fs.cat("x/c") == b"3"
        assert fs.find("x", withdirs=True) == ["x", "x/c", "x/y", "x/y/a", "x/y/e", "x/y/e/b"]
        assert fs.find("p") == []
    assert there.data() == {"copy": b"3", "x/c": b"3", "x/y/a": b"1", "x/y/e/b": b"2"}
    assert there.left() == []


def test_an_open_file_is_neither_read_nor_renamed(there: There) -> None:
    """It has not all its bytes; nothing else of that call is renamed either."""
    with there.write() as job:
        fs = job.filesystem()
        fs.pipe("d/a", b"1")
        with fs.open("d/b", "wb") as file:
            raises(mc.NotYetAnObject, fs.cat, "d/b", match="still being written")
            raises(mc.NotYetAnObject, fs.mv, "d", "e", recursive=True, match="still being written")
            file.write(b"2")
        assert fs.find("") == ["d/a", "d/b"]
    assert there.data() == {"d/a": b"1", "d/b": b"2"}


@pytest.mark.parametrize("first", [True, False], ids=["the unique one first", "the other first"])
def test_two_files_of_one_name_are_both_shown(there: There, first: bool) -> None:
    """One has the job's UUID in its name, the other has not: what ``rm`` has left is published."""
    with there.write() as job:
        fs, stored = job.filesystem(), f"a-mcj{job.job.uuid}.csv"
        for unique in (first, not first):
            write(job, "a.csv", b"unique" if unique else b"1", unique=unique)
        assert fs.find("") == [stored, "a.csv"]
        fs.rm("a.csv")
        assert fs.find("") == [stored]
    assert there.data() == {stored: b"unique"}


def test_unique_names_stay_unique_when_renamed(there: There) -> None:
    """The writer sees the new name; the published one has the job's UUID, once."""
    with there.write() as job:
        fs = job.filesystem(unique=True)
        fs.pipe("a.csv", b"1")
        fs.mv("a.csv", "b.csv")
        assert fs.cat("b.csv") == b"1"
        job.discard("b.csv", unique=True)
        fs.pipe("b.csv", b"2")
    assert there.data() == {f"b-mcj{job.job.uuid}.csv": b"2"}


TRACKED = [("s3", "memory"), ("s3", "s3"), *((kind, "memory") for kind in DISKS)]
"""Each kind of destination, with each of its tracks."""


def written(task: mc.Task, *names: str) -> None:
    for name in names:
        write(task, name, name.encode())


@pytest.mark.parametrize("what", ["a closed file", "an open one", "a name that is used again"])
@pytest.mark.parametrize(("there", "track"), TRACKED, indirect=["there"])
def test_a_file_leaves_its_task(there: There, track: Track, what: str) -> None:
    """Of the discarded one nothing is left, no commit waits for its close, and its name is free."""
    job = there.start(track=track)
    with job.task(1) as task:
        written(task, "b")
        if what == "an open one":
            task.open("a").write(b"1")
        else:
            written(task, "a")
        task.discard("a")
        assert len(there.left()) <= 1
        if "again" in what:
            write(task, "a", b"second")
    job.commit([task.result])
    again = {"a": b"second"} if "again" in what else {}
    assert there.data() == {"b": b"b", **again}
    assert there.left() == []


def test_a_unique_name_is_discarded_as_it_was_opened(there: There) -> None:
    """With ``unique=True`` the plain name is enough. An unknown one is refused, by its name."""
    job = there.start()
    with job.task(1) as task:
        write(task, "a.csv", unique=True)
        task.discard("a.csv", unique=True)
        raises(mc.PathError, task.discard, "x", match="no file 'x'")
    assert task.result.files == 0
    job.abort()
    assert there.left() == []


def test_a_file_that_others_may_commit_stays(s3: MemoryStore) -> None:
    """Another handle of the attempt, or a driver once it is committed, may have accepted it."""
    job = mc.start(DEST, track="s3")
    task = job.task(1, attempt="a_0")
    written(task, "a")
    raises(mc.TaskFailed, task.discard, "a", match="other processes")
    other = job.task(1, attempt="a_0")
    result = other.commit()
    raises(mc.TaskFailed, other.discard, "a", match="committed")
    job.commit([result])
    assert visible(s3) == {"t/a": b"a"}


@pytest.mark.parametrize(("fails", "published"), [("delete", "ab"), ("abort_upload", "b")])
def test_a_discard_that_fails_halves_no_file(s3: MemoryStore, fails: str, published: str) -> None:
    """While the `.pending` may be stored nothing is aborted; the commit tries an abort again."""
    job = mc.start(DEST, track="s3")
    with job.task(1) as task:
        written(task, "a", "b")
        with refusing(s3, fails, mc.PermissionDenied), pytest.raises(mc.PermissionDenied):
            task.discard("a")
    job.commit([task.result])
    assert remains(s3)[:2] == ({f"t/{name}": name.encode() for name in published}, [])


def test_no_commit_runs_beside_a_discard(s3: MemoryStore) -> None:
    """A commit that begins while a file is being discarded is refused, and may be made later."""
    job = mc.start(DEST, track="s3")
    task = job.task(1)
    written(task, "a", "b")

    def commit_now() -> None:
        raises(mc.TaskFailed, task.commit, match="discarded")

    with At(s3, "delete", commit_now):
        task.discard("a")
    job.commit([task.commit()])
    assert visible(s3) == {"t/b": b"b"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with a file at the top, one below, hidden ones, and a marker."""
    tmp_path = tmp_path / "source"
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("a", "d/e/b", ".git/c", "d/.h", "_SUCCESS", "d/_SUCCESS"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def test_a_directory_is_put_and_what_is_left_out_is_told(there: There, source: Path) -> None:
    """Hidden files and the top's ``_SUCCESS`` are left out by name; progress counts each file."""
    told: list[mc.Progress] = []
    with there.write(progress=told.append) as job:
        report = job.put_directory(source)
    assert report == mc.PutReport(3, 16, (".git", "_SUCCESS", "d/.h"))
    assert there.data() == {"a": b"a", "d/e/b": b"d/e/b"}
    assert there.read("d/_SUCCESS") == b"d/_SUCCESS"
    assert [one.done for one in told if one.phase == "put"] == [1, 2, 3]


def test_hidden_files_are_put_where_they_are_wanted(there: There, source: Path) -> None:
    """With ``hidden=True``, below another directory: there ``_SUCCESS`` is a file like any."""
    with there.write() as job:
        assert job.put_directory(source, "x", hidden=True).left_out == ()
    assert {"x/.git/c", "x/d/.h", "x/_SUCCESS"} <= set(there.names())


def test_files_of_many_blocks_are_put(there: There, tmp_path: Path) -> None:
    """A large file and small ones arrive whole."""
    content = {"large": os.urandom(6 * 1024**2), "small": b"1", "empty": b""}
    (tmp_path / "source").mkdir()
    for name, body in content.items():
        (tmp_path / "source" / name).write_bytes(body)
    with there.write(options=mc.Options(block_bytes=5 * 1024**2)) as job:
        job.put_directory(tmp_path / "source")
    assert there.data() == content


@pytest.mark.parametrize("bad", ["pipe", "link to a directory", "link to nothing", "no name"])
def test_what_cannot_be_put_is_an_error_at_once(there: There, source: Path, bad: str) -> None:
    """Nothing is passed over in silence: not a pipe, not a link, not a name that is refused."""
    if bad == "pipe":
        os.mkfifo(source / "z")
    elif bad == "no name":
        (source / "z.pending").touch()
    else:
        (source / "z").symlink_to(source / "d" if "directory" in bad else source / "gone")
    with pytest.raises(mc.PathError, match="z"), there.write() as job:
        job.put_directory(source)
    assert there.data() == {}
    assert there.left() == []


def test_directories_may_lie_deep(tmp_path: Path) -> None:
    """Deeper than Python calls itself; what is too deep for a key is refused by that."""
    (tmp_path / "stays").touch()
    deep = source = tmp_path / "source"
    source.mkdir()
    for _ in range(1500):
        deep = deep / "d"
        deep.mkdir()
    (path := deep / "a").touch()
    try:
        files, _ = files_in(str(source))
    finally:
        path.unlink()
        os.removedirs(deep)  # pytest's removal calls itself
    assert [file.path for file in files] == [str(path)]


def test_a_file_that_changes_meanwhile_is_an_error(
    there: There, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could say which of the two was put: nothing appears."""
    path = source / "a"
    before = os.stat(path)
    path.write_bytes(b"longer")
    old = SimpleNamespace(stat=lambda _: before, fstat=os.fstat, fspath=os.fspath)
    monkeypatch.setattr("magic_committer.filesystem.put.os", old)
    with pytest.raises(mc.UploadFailed, match="changed"), there.write() as job:
        job.put_file(path)
    assert there.data() == {}
    assert there.left() == []


def test_an_empty_directory_is_an_error(there: There, tmp_path: Path) -> None:
    """With mode ``replace`` a wrong path would else empty the table."""
    (tmp_path / "source").mkdir()
    with pytest.raises(mc.PathError, match="no file to put"), there.write() as job:
        job.put_directory(tmp_path / "source")


def test_a_directory_is_not_put_into_itself(disk: OnDisk, tmp_path: Path) -> None:
    """Nor into a directory in it, by whatever path: it would be put with what the job writes. Nor
    from one that a mode which replaces would delete; a hidden one stays."""
    if disk.url.startswith("memory"):
        pytest.skip("a directory of this machine holds no other file system")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("old", "_stage"):
        (tmp_path / "t" / name).mkdir(parents=True)
        (tmp_path / "t" / name / "b").write_bytes(b"1")
    for path in (tmp_path, tmp_path / "t", tmp_path / "link", tmp_path / "link" / "t" / "old"):
        with disk.write() as job:
            (tmp_path / "t" / "a").write_bytes(b"1")
            raises(mc.PathError, job.put_directory, path, match="lie in each other")
    with disk.write() as job:
        assert job.put_directory(tmp_path / "t" / "_stage").files == 1
    assert disk.left() == []


def test_names_that_a_file_system_cannot_hold_are_refused_first(disk: OnDisk, source: Path) -> None:
    """Also if the block goes on after the error: nothing was put before it."""
    (source / "_temporary").mkdir()
    (source / "_temporary" / "x").touch()
    with disk.write() as job, pytest.raises(mc.PathError, match="_temporary"):
        job.put_directory(source)
    assert disk.data() == {}
