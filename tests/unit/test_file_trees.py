"""The contract of the port of file trees, on every tree; and what each keeps beyond it."""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    OptionError,
    PathError,
    PermissionDenied,
    PreconditionFailed,
    Unanswered,
)
from magic_committer.runtime.components import SystemClock, new_id
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.trees import dialects
from magic_committer.stores.trees.base import (
    FileTree,
    make_directories,
    of_driver,
    translated,
    walk,
)
from magic_committer.stores.trees.dialects import (  # fmt: skip
    GoogleTree,
    HdfsTree,
    SftpTree,
    tree_for,
)
from magic_committer.stores.trees.disk import LocalTree
from magic_committer.stores.trees.through_fsspec import FsspecTree
from magic_committer.stores.urls import REFUSED, local_path
from tests import tree_stand_ins as stand_ins
from tests.promises.hands import raises

KINDS = ("local", "fsspec-memory", "hdfs", "sftp", "gs")
"""The last three are stand-ins (tests/tree_stand_ins.py)."""


def read(tree: FileTree, path: str) -> bytes:
    with tree.reader(path) as file:
        return file.read()


def tree_of(kind: str, place: Path) -> FileTree:
    if kind == "local":
        return LocalTree(place)
    if kind == "fsspec-memory":
        return tree_for(f"memory://{new_id()}/table")
    if kind == "hdfs":
        return HdfsTree(stand_ins.Hdfs(), str(place), "hdfs://nn/t/")
    if kind == "sftp":
        return SftpTree(stand_ins.Sftp(), str(place), "sftp://host/t/")
    return GoogleTree(stand_ins.Google(), "bucket/t", "gs://bucket/t/")


@pytest.fixture(params=KINDS)
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> FileTree:
    """With its root, which is made with its parents, may be made again, and is empty then."""
    made = tree_of(request.param, tmp_path / "x" / "y")
    for _ in range(2):
        made.make_root()
    assert [*made.list("")] == []
    return made


# The contract -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [None, {"m": {"job": "1"}}, {"gone": True}])
def test_a_file_keeps_its_mark(tree: FileTree, mark: dict[str, object] | None) -> None:
    """It is there with the file, is none of its bytes, and goes with it by a rename."""
    made = tree.make("a", mark, b"123")
    tree.rename("a", "b", replace=False)
    for bytes_max, body in ((None, b""), (2, b""), (3, b"123")):
        found = tree.look("b", bytes_max, marked=mark is not None)
        assert found is not None
        assert (found.entry.size, found.entry.etag, found.body) == (3, made.etag, body)
        assert {name: found.mark.get(name) for name in mark or ()} == (mark or {})
    assert tree.look("a", marked=True) is None
    if not tree.promises.attributes and mark is not None:
        assert read(tree, "b").startswith(b'123\n{"magic-committer":')


def test_one_of_many_threads_renames_to_a_target(tree: FileTree) -> None:
    """Of eight that rename to one target at once, one succeeds, and its bytes are there, whole."""
    start = threading.Barrier(8)
    for number in range(8):
        tree.make(f"{number}", None, bytes([number]) * 4096)

    def one(number: int) -> None:
        start.wait()
        tree.rename(f"{number}", "a", replace=False)

    with closing(ThreadPool(8)) as pool:
        outcomes = list(pool.each(one, range(8), in_flight=8))
    (won,) = [outcome.item for outcome in outcomes if outcome.error is None]
    assert {type(outcome.error) for outcome in outcomes} == {type(None), PreconditionFailed}
    assert read(tree, "a") == bytes([won]) * 4096


def test_a_file_needs_its_directory_where_directories_are_real(tree: FileTree) -> None:
    """A paused process brings back no file of a directory that is gone."""
    if not tree.promises.directories:
        tree.make("gone/a", None, b"1")
        assert read(tree, "gone/a") == b"1"
        return
    tree.make("a", None, b"")
    for verb in (
        lambda: tree.make("gone/a", None, b""),
        lambda: tree.open("gone/a"),
        lambda: tree.make_directory("gone/below"),
        lambda: tree.rename("a", "gone/a"),
    ):
        raises(NotFound, verb)


def test_a_rename_uses_its_source_up(tree: FileTree) -> None:
    """The second rename finds no source; where there are etags the file is known again by it."""
    tree.make("a", None, b"1")
    before = tree.stat("a")
    tree.rename("a", "b")
    after = tree.stat("b")
    assert before is not None
    assert after is not None
    assert after.etag == before.etag
    assert (after.kind, after.size, after.name, tree.stat("a")) == ("file", 1, "b", None)
    for over in (True, False):
        raises(NotFound, tree.rename, "a", "c", replace=over)


def test_a_rename_replaces_only_if_it_may(tree: FileTree) -> None:
    """Without ``replace`` the file that is there stays, and so does the source."""
    tree.make("a", None, b"new")
    tree.make("b", None, b"old")
    raises(PreconditionFailed, tree.rename, "a", "b", replace=False)
    assert (read(tree, "a"), read(tree, "b")) == (b"new", b"old")
    tree.rename("a", "b")
    assert read(tree, "b") == b"new"
    tree.rename("b", "c", replace=False)
    assert [(e.path, read(tree, e.path)) for e in tree.list("")] == [("c", b"new")]


def test_a_file_and_a_directory_of_one_name_are_told(tree: FileTree) -> None:
    """No rename goes into a directory, and no directory is made over a file: nothing moves."""
    if not tree.promises.directories:
        return  # there is no directory that could be in the way
    tree.make_directory("d")
    tree.make("a", None, b"1")
    for over in (True, False):
        raises((InvalidRequest, PreconditionFailed), tree.rename, "a", "d", replace=over)
    raises(PreconditionFailed, tree.make_directory, "a")
    assert read(tree, "a") == b"1"
    assert [*tree.list("d")] == []


def test_names_are_kept_as_they_are(tree: FileTree) -> None:
    """Blanks, percent signs, wildcards and letters of all languages."""
    names = sorted(["a b", "%25", "日=ü", "x*[1]", "+&'"])
    for name in names:
        tree.make(name, None, b"1")
        tree.rename(name, f"{name}~")
    assert sorted(e.name for e in tree.list("")) == [f"{name}~" for name in names]


def test_a_tree_is_walked_and_removed(tree: FileTree) -> None:
    """Removing is repeatable, and touches nothing beside; what is not empty stays."""
    make_directories(tree, "x/y")
    make_directories(tree, "x/y")
    tree.make("x/y/a", None, b"")
    tree.make("b", None, b"")
    assert {e.path for e in walk(tree, "x")} == {"x/y", "x/y/a"}
    if tree.promises.directories:
        assert tree.remove_directory("x") is False
        assert tree.remove_directory("x/y") is False
    assert read(tree, "x/y/a") == b""
    for _ in range(2):
        tree.remove("x/y/a")
        assert tree.remove_directory("x/y")
        assert tree.remove_directory("x")
    assert [e.path for e in walk(tree, "")] == ["b"]
    assert [*tree.list("x")] == []
    assert tree.remove_directory("x") is True
    tree.remove("x/y/a")


def test_a_new_file_is_written_and_read(tree: FileTree) -> None:
    """It is there at its close, for two readers; a second one of the name is refused."""
    raises(NotFound, lambda: tree.reader("a").read())
    assert tree.look("a", 9, marked=False) is None
    with tree.open("a") as file:
        file.write(b"12")
        file.write(b"3")
    entry = tree.stat("a")
    assert entry is not None
    assert entry.size == 3
    with tree.reader("a") as one, tree.reader("a") as other:
        assert (one.read(2), other.read(1), one.read()) == (b"12", b"1", b"3")
    with pytest.raises(PreconditionFailed), tree.open("a") as second:
        second.write(b"4")
    assert read(tree, "a") == b"123"


@pytest.mark.parametrize("came", [b"", b"{}"])
@pytest.mark.parametrize("bytes_max", [None, 100])
def test_a_file_that_comes_short_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, came: bytes, bytes_max: int | None
) -> None:
    """Fewer bytes than the file has would lose its mark; if it is gone by then, there is none."""
    tree = tree_of("fsspec-memory", tmp_path)
    tree.make_root()
    tree.make("a", {"gone": True}, b"")
    monkeypatch.setattr(tree, "reader", lambda path: io.BytesIO(came))
    raises(Unanswered, tree.look, "a", bytes_max, marked=True, match="bytes came")

    def deleted(path: str) -> io.BytesIO:
        tree.remove(path)
        return io.BytesIO(came)

    monkeypatch.setattr(tree, "reader", deleted)
    assert tree.look("a", bytes_max, marked=True) is None


@pytest.mark.parametrize("short", [3, 99])
def test_hdfs_is_read_when_its_last_block_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    """Where a close does not wait for it, the driver reads the file without it, as if it ended
    there. A file that stays so is no answer."""
    tree = HdfsTree(stand_ins.Hdfs(), str(tmp_path), "hdfs://nn/t/")
    tree.make("a", None, b"123")
    opened, pauses = tree._fs.open, list[float]()

    def open_short(path: str, mode: str) -> Any:
        file = opened(path, mode)
        if len(pauses) < short:
            file.size = 0
        return file

    monkeypatch.setattr(tree._fs, "open", open_short)
    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: pauses.append(seconds))
    if short == 3:
        assert read(tree, "a") == b"123"
        assert pauses == [0.01, 0.02, 0.04]
    else:
        raises(Unanswered, tree.reader, "a", match="0 of its 3 bytes")


# fsspec -------------------------------------------------------------------------------------------


def test_a_file_system_that_is_not_exclusive_is_refused(tmp_path: Path) -> None:
    """Whatever a table says: the file system that lets two rename to one target is found out."""

    class Forged(HdfsTree):
        def _claim(self, source: str, target: str) -> None:
            os.rename(source, target)

    tree = Forged(stand_ins.Hdfs(), str(tmp_path), "hdfs://nn/t/")
    raises(NotSupported, tree.make_root, match="lets two writers")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("kind", ["local", "sftp", "hdfs"])
def test_a_link_is_not_followed(kind: str, tmp_path: Path) -> None:
    """A link is neither a file nor a directory: in a listing and in a look."""
    for directory in ("t", "secret/key"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "secret" / "file").write_bytes(b"1")
    for name, target in (("link", "secret"), ("link 2", "secret/file")):
        os.symlink(tmp_path / target, tmp_path / "t" / name)
    tree = tree_of(kind, tmp_path / "t")
    seen = [tree.stat("link"), tree.stat("link 2")]
    assert [entry.kind for entry in seen if entry] == ["other", "other"]
    assert sorted((e.path, e.kind) for e in walk(tree, "")) == [
        ("link", "other"),
        ("link 2", "other"),
    ]


def test_a_file_that_comes_while_a_directory_is_deleted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The NameNode deletes no directory that has something in it, and says so by its exception."""
    tree = tree_of("hdfs", tmp_path)
    tree.make_directory("d")
    (tmp_path / "d" / "a").write_bytes(b"1")
    monkeypatch.setattr(FsspecTree, "list", lambda self, directory: iter(()))
    assert tree.remove_directory("d") is False
    assert (tmp_path / "d" / "a").read_bytes() == b"1"


@pytest.mark.parametrize("moved", [False, True], ids=["nobody did it", "another driver did it"])
def test_a_rename_that_says_only_that_it_failed_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    """OpenSSH tells the later of two drivers only that it failed: its source is gone."""
    tree = tree_of("sftp", tmp_path)
    tree.make("a", None, b"1")

    def broken(old: str, new: str) -> None:
        if moved:
            os.rename(old, new)
        raise OSError("Failure")

    monkeypatch.setattr(stand_ins._Sftp, "hardlink", staticmethod(broken))
    raises(NotFound if moved else Unanswered, tree.rename, "a", "b", replace=False)
    assert read(tree, "b" if moved else "a") == b"1"


class _Answer(Exception):
    def __init__(self, code: object) -> None:
        super().__init__("said so")
        self.code = code


@pytest.mark.parametrize(
    ("raised", "kind", "status"),
    [
        (_Answer(404), NotFound, 404),
        (_Answer("403"), PermissionDenied, 403),
        (_Answer(412), PreconditionFailed, 412),
        (_Answer(503), Unanswered, 503),
        (_Answer(429), Unanswered, 429),
        (_Answer(400), InvalidRequest, 400),
        (_Answer("SlowDown"), Unanswered, 0),
        (NotImplementedError("no"), NotSupported, 0),
        (RuntimeError("no"), Unanswered, 0),
    ],
)
def test_an_error_of_a_driver_is_translated(
    raised: Exception, kind: type[Exception], status: int
) -> None:
    """By its status of HTTP; what nobody can tell is Unanswered, and its words are kept."""
    told = of_driver(raised, "rename", "gs://b/t/", "a")
    assert type(told) is kind
    assert (told.status, told.operation, told.key) == (status, "rename", "a")
    assert str(raised) in told.message


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "Make room on the disk"), (errno.EDQUOT, "Make room within the quota"),
        (errno.EMFILE, "ulimit -n"), (errno.EXDEV, "Mount nothing inside"),
    ],
)  # fmt: skip
def test_what_a_full_disk_needs_is_said(number: int, says: str) -> None:
    """Whoever may call again is told what to do before."""
    told = translated(OSError(number, os.strerror(number)), "open", "file:///t/", "a")
    assert (says in told.hint, told.code) == (True, errno.errorcode[number])


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (_Answer(503), Unanswered),
        # gcsfs gives 403 as an OSError without a number; nothing was changed, and it is final.
        (OSError("Forbidden: b/t/a\nno storage.objects.create access"), PermissionDenied),
    ],
    ids=["503", "403 of gcsfs"],
)
def test_what_a_driver_raises_in_a_file_is_translated(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[Exception]
) -> None:
    """A write that fails is the library's error, and the driver's is its cause."""

    def broken(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(stand_ins.Google, "pipe_file", broken)
    tree = tree_of("gs", Path())
    file = tree.open("a")
    file.write(b"1")
    assert raises(error, file.close).__cause__ is raised
    raises(ValueError, file.write, b"2", match="closed")
    raises(error, tree.make, "a", None, b"1")


@pytest.mark.parametrize("said", ["Permission denied", "Operation unsupported"])
def test_a_server_of_sftp_without_hard_links_is_refused(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else makes a create exclusive there. What was written beside is removed."""

    def refused(old: str, new: str) -> None:
        raise PermissionError(13, said) if "denied" in said else OSError(said)

    monkeypatch.setattr(stand_ins._Sftp, "hardlink", staticmethod(refused))
    raises(NotSupported, tree_of("sftp", tmp_path).make_root, match="no hard links")
    assert [*tmp_path.iterdir()] == []


# By URL -------------------------------------------------------------------------------------------


def test_a_url_is_decoded_once() -> None:
    """A blank is a blank in the file system, and %20 in the tree's URL."""
    name = new_id()
    tree = tree_for(f"memory://{name}/a%20b")
    assert tree.url == f"memory://{name}/a%20b/"
    tree.make("x", None, b"1")
    assert fsspec.filesystem("memory").cat_file(f"/{name}/a b/x") == b"1"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        *((url, "") for url in (
            "memory://", "hdfs://nn/", "hdfs://nn/a//b", "hdfs://nn/a/../b", "sftp://h/%2e%2e/b",
            "sftp://me:secret@h/a", "gs://b/a?x=1", "gs://b/a#1", "memory://x::file:///a", 7,
        )),
        ("hdfs://me@nn:8020/data/table", "HADOOP_USER_NAME=me"),  # it would be ignored
        *((f"{scheme}://host/data/table", REFUSED.get(scheme, ("nobody has said",))[0])
          for scheme in (*REFUSED, "ftp", "http", "nothing")),
    ],
)  # fmt: skip
def test_a_url_that_names_no_directory_with_the_promises_is_refused(url: Any, says: str) -> None:
    """The error says why; nothing is connected to or imported, and a password is never shown."""
    raised = raises(PathError, tree_for, url)
    assert says in str(raised)
    assert "secret" not in str(raised)


def test_a_file_system_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that fails took no effect, and says so."""

    class Down(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
        cachable = False

        def __init__(self, **options: Any) -> None:
            raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(dialects, "_class_of", lambda kind: Down)
    raised = raises(Unanswered, tree_for, "memory://x/y", match=r"connect of .* refused")
    assert raised.sent is False


def test_a_package_that_registers_a_protocol_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """sshfs registers itself for sftp://: what a tree was written for is used all the same."""

    class Other(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
        pass

    for module in (fsspec, fsspec.core):
        monkeypatch.setattr(module, "get_filesystem_class", lambda name: Other)
    tree = tree_for("memory://x/y")
    assert isinstance(tree, FsspecTree)
    assert type(tree._fs) is MemoryFileSystem


@pytest.mark.parametrize(
    ("module", "url", "says"),
    [
        ("gcsfs", "gs://bucket/table", "pip install gcsfs"),
        ("fsspec", "memory://x/y", r"magic-committer\[fsspec\]"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, module: str, url: str, says: str
) -> None:
    """The error can be pasted; a local directory needs none."""
    monkeypatch.setitem(sys.modules, module, None)
    raises(OptionError, tree_for, url, match=says)
    assert isinstance(tree_for("file:///data/table"), LocalTree)


# A local disk -------------------------------------------------------------------------------------


def test_what_is_no_ordinary_file_is_not_read(tmp_path: Path) -> None:
    """A FIFO would keep its reader waiting."""
    os.mkfifo(tmp_path / "a")
    raises(InvalidRequest, LocalTree(tmp_path).reader, "a", match="no ordinary file")


def test_a_rename_that_died_between_its_two_steps_goes_on(tmp_path: Path) -> None:
    """A file that has both names is one file: the next call takes the old name away."""
    tree = LocalTree(tmp_path)
    tree.make("a", None, b"1")
    os.link(tmp_path / "a", tmp_path / "b")
    tree.rename("a", "b", replace=False)
    assert [e.path for e in tree.list("")] == ["b"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_a_disk_that_renames_to_a_free_name_in_no_way_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Without ``renameat2`` and without links nothing is exclusive: that is no missing right."""

    def no_links(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("magic_committer.stores.trees.disk.rename_by", lambda *_: False)
    monkeypatch.setattr("magic_committer.stores.trees.disk.os.link", no_links)
    tree = LocalTree(tmp_path)
    tree.make("a", None, b"1")
    with pytest.raises(NotSupported, match="neither an exclusive rename nor a hard link"):
        tree.rename("a", "b", replace=False)
    assert [e.path for e in tree.list("")] == ["a"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_file_takes_the_place_only_of_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    """Also where the disk cannot exchange two names in one step."""
    if not exchanges:
        monkeypatch.setattr("magic_committer.stores.trees.disk.rename_by", lambda *_: False)
    tree = LocalTree(tmp_path)
    tree.make("new", None, b"2")
    raises(NotFound, tree.take_place, "a", "new")
    tree.make("a", None, b"1")
    tree.take_place("a", "new")
    assert (tmp_path / "a").read_bytes() == b"2"


@pytest.mark.parametrize("url", ["file:///", "file://host/a", "file:///a/../b", "s3://b/a", "/a"])
def test_a_url_that_names_no_local_directory_is_refused(url: str) -> None:
    """Another machine, the machine's root, a relative path and other schemes are refused."""
    raises(PathError, local_path, url)
