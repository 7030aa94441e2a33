"""`put_file` and `put_directory`: files of this machine, all of them or an error."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import magic_committer as mc
from tests.destinations import OnDisk, There
from tests.promises.hands import raises


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
    """Nor into a directory in it, by whatever path: it would be put with what the job writes."""
    if disk.url.startswith("memory"):
        pytest.skip("a directory of this machine holds no other file system")
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path, tmp_path / "t", tmp_path / "link"):
        with disk.write() as job:
            (tmp_path / "t" / "a").write_bytes(b"1")
            raises(mc.PathError, job.put_directory, path, match="the directory that is to be put")
    assert disk.left() == []


def test_names_that_a_file_system_cannot_hold_are_refused_first(disk: OnDisk, source: Path) -> None:
    """Also if the block goes on after the error: nothing was put before it."""
    (source / "_temporary").mkdir()
    (source / "_temporary" / "x").touch()
    with disk.write() as job, pytest.raises(mc.PathError, match="_temporary"):
        job.put_directory(source)
    assert disk.data() == {}
