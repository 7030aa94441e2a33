"""`put_file` and `put_directory`: files of this machine, all of them or an error."""

from __future__ import annotations

import doctest
import inspect
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import magic_committer as mc
from magic_committer.filesystem.calls import FileCalls
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, visible


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A directory with a file at the top, one below, hidden ones, and a marker."""
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("a", "d/e/b", ".git/c", "d/.h", "_SUCCESS", "d/_SUCCESS"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def test_a_directory_is_put_and_what_is_left_out_is_told(s3: MemoryStore, there: Path) -> None:
    """Hidden files and the top's ``_SUCCESS`` are left out by name; progress counts each file."""
    told: list[mc.Progress] = []
    with mc.write(DEST, progress=told.append) as job:
        report = job.put_directory(there)
    assert report == mc.PutReport(3, 16, (".git", "_SUCCESS", "d/.h"))
    assert visible(s3) == {"t/a": b"a", "t/d/e/b": b"d/e/b"}
    assert s3.body("t/d/_SUCCESS") == b"d/_SUCCESS"
    assert [one.done for one in told if one.phase == "put"] == [1, 2, 3]


def test_hidden_files_are_put_where_they_are_wanted(s3: MemoryStore, there: Path) -> None:
    """With ``hidden=True``, below another directory: there ``_SUCCESS`` is a file like any."""
    with mc.write(DEST) as job:
        assert job.put_directory(there, "x", hidden=True).left_out == ()
    assert {"t/x/.git/c", "t/x/d/.h", "t/x/_SUCCESS"} <= set(s3.keys())


def test_files_of_many_blocks_are_put(s3: MemoryStore, tmp_path: Path) -> None:
    """A large file and small ones arrive whole."""
    content = {"large": os.urandom(6 * 1024**2), "small": b"1", "empty": b""}
    for name, body in content.items():
        (tmp_path / name).write_bytes(body)
    with mc.write(DEST, options=mc.Options(block_bytes=5 * 1024**2)) as job:
        job.put_directory(tmp_path)
    assert visible(s3) == {f"t/{name}": body for name, body in content.items()}


@pytest.mark.parametrize("bad", ["pipe", "link to a directory", "link to nothing", "no name"])
def test_what_cannot_be_put_is_an_error_before_anything_is(
    s3: MemoryStore, there: Path, bad: str
) -> None:
    """Nothing is passed over in silence: not a pipe, not a link, not a name that is refused."""
    if bad == "pipe":
        os.mkfifo(there / "z")
    elif bad == "no name":
        (there / "z.pending").touch()
    else:
        (there / "z").symlink_to(there / "d" if "directory" in bad else there / "gone")
    with pytest.raises(mc.PathError, match="z"), mc.write(DEST) as job:
        job.put_directory(there)
    assert visible(s3) == {}
    assert s3.open_uploads() == ()


def test_a_file_that_changes_meanwhile_is_an_error(
    s3: MemoryStore, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could say which of the two was put: nothing appears."""
    path = there / "a"
    before = os.stat(path)
    path.write_bytes(b"longer")
    old = SimpleNamespace(stat=lambda _: before, fstat=os.fstat, fspath=os.fspath)
    monkeypatch.setattr("magic_committer.filesystem.local.os", old)
    with pytest.raises(mc.UploadFailed, match="changed"), mc.write(DEST) as job:
        job.put_file(path)
    assert visible(s3) == {}
    assert s3.open_uploads() == ()


def test_an_empty_directory_is_an_error(s3: MemoryStore, tmp_path: Path) -> None:
    """With mode ``replace`` a wrong path would else empty the table."""
    with pytest.raises(mc.PathError, match="no file to put"), mc.write(DEST, mode="replace") as job:
        job.put_directory(tmp_path)


@pytest.mark.parametrize("name", ["discard", "put_file", "put_directory"])
def test_the_examples_run(s3: MemoryStore, name: str) -> None:
    """What the docstrings show is what a user gets."""
    text = inspect.getdoc(getattr(FileCalls, name)) or ""
    test = doctest.DocTestParser().get_doctest(text, {"mc": mc}, name, None, 0)
    told: list[str] = []
    assert doctest.DocTestRunner().run(test, out=told.append) == (0, len(test.examples)), told
