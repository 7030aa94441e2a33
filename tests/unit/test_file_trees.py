"""The port of file trees, held by a local disk and by memory; and Hadoop's task manifest."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from magic_committer.committers.manifest.task_manifest import (
    ManifestFile,
    TaskManifest,
    decode_manifest,
    encode_manifest,
)
from magic_committer.errors import FormatError, NotFound, PathError, PreconditionFailed
from magic_committer.file_trees.base import FileTree, make_directories, remove_tree, walk
from magic_committer.file_trees.local import LocalTree, local_path
from magic_committer.file_trees.memory import MemoryTree

GOLDEN = Path(__file__).parents[1] / "golden" / "3.5.0" / "manifest-committer"
ROOT = "file:///data/t/"
TASKS = "_temporary/manifest_j/00/tasks"


@pytest.fixture(params=["local", "memory"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> FileTree:
    """A tree of each kind, empty."""
    return LocalTree(tmp_path) if request.param == "local" else MemoryTree(now=lambda: 1.0)


def test_create_is_exclusive_and_leaves_nothing_beside(tree: FileTree) -> None:
    """The second create is refused, the first one's bytes stay, and no other file is left."""
    tree.create("a", b"1")
    with pytest.raises(PreconditionFailed):
        tree.create("a", b"2")
    assert tree.read("a", 9) == b"1"
    assert [entry.path for entry in tree.list("")] == ["a"]


def test_a_file_needs_its_directory(tree: FileTree) -> None:
    """A paused process cannot bring back a file of a directory that is gone."""
    with pytest.raises(NotFound):
        tree.create("gone/a", b"")
    with pytest.raises(NotFound):
        make_directories(tree, "gone/below", below="gone")


def test_a_rename_uses_its_source_up_and_keeps_the_etag(tree: FileTree) -> None:
    """The second rename finds no source, and the file is known again by its etag."""
    tree.create("a", b"1")
    before = tree.stat("a")
    tree.rename("a", "b")
    after = tree.stat("b")
    assert before is not None
    assert after is not None
    assert before.etag == after.etag != ""
    with pytest.raises(NotFound):
        tree.rename("a", "c")


def test_a_rename_replaces_only_if_it_may(tree: FileTree) -> None:
    """Without ``replace`` the file that is there stays, and so does the source."""
    tree.create("a", b"new")
    tree.create("b", b"old")
    with pytest.raises(PreconditionFailed):
        tree.rename("a", "b", replace=False)
    assert tree.read("b", 9) == b"old"
    tree.rename("a", "b")
    assert tree.read("b", 9) == b"new"


def test_a_tree_is_walked_and_removed(tree: FileTree) -> None:
    """Removing is repeatable, and touches nothing beside."""
    make_directories(tree, "x/y")
    tree.create("x/y/a", b"")
    tree.create("b", b"")
    assert sorted(e.path for e in walk(tree, "x")) == ["x/y", "x/y/a"]
    assert tree.remove_directory("x") is False
    for _ in range(2):
        remove_tree(tree, "x")
    assert [e.path for e in walk(tree, "")] == ["b"]


def test_a_rename_that_died_between_its_two_steps_goes_on(tmp_path: Path) -> None:
    """A file that has both names is one file: the next call takes the old name away."""
    tree = LocalTree(tmp_path)
    tree.create("a", b"1")
    os.link(tmp_path / "a", tmp_path / "b")
    tree.rename("a", "b", replace=False)
    assert [e.path for e in tree.list("")] == ["b"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link is neither a file nor a directory, and what it leads to is not walked."""
    (tmp_path / "t").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").touch()
    os.symlink(tmp_path / "secret", tmp_path / "t" / "link")
    assert [(e.path, e.kind) for e in walk(LocalTree(tmp_path / "t"), "")] == [("link", "other")]


@pytest.mark.parametrize("path", ["../a", "a/../b", "a//b", "./a", "a\0b"])
def test_nothing_outside_can_be_named(tmp_path: Path, path: str) -> None:
    """A path that leads out of the root is refused."""
    with pytest.raises(PathError):
        LocalTree(tmp_path).stat(path)


@pytest.mark.parametrize("url", ["file:///", "file://host/a", "file:///a/../b", "s3://b/a", "/a"])
def test_a_url_that_names_no_local_directory_is_refused(url: str) -> None:
    """Another machine, the machine's root, a relative path and other schemes are refused."""
    with pytest.raises(PathError):
        local_path(url)


def test_a_manifest_is_read_as_it_was_written() -> None:
    """Blanks, percent signs and letters of all languages come back."""
    files = tuple(ManifestFile(n, 3, "e") for n in ("a b.txt", "dt=1/%25.csv", "日/ü+&.x"))
    manifest = TaskManifest("j", "u", "t", "a0", files, ("empty/one",))
    data = encode_manifest(manifest, ROOT, f"{TASKS}/a0")
    assert decode_manifest(data, ROOT, TASKS, "m") == manifest


def test_a_manifest_of_hadoop_is_read() -> None:
    """What Hadoop 3.5.0 wrote: two files, one of them in a directory, and no UUID of ours."""
    data = (GOLDEN / "task-manifest-1.json").read_bytes()
    tasks = "_temporary/job_202601010000_0001/00/tasks"
    manifest = decode_manifest(data, ROOT, tasks, "golden")
    assert manifest.attempt == "attempt_202601010000_0001_m_000000_0"
    assert manifest.files == (ManifestFile("a b.txt", 1), ManifestFile("dt=1/part-0.txt", 5))
    assert (manifest.directories, manifest.uuid, manifest.bytes) == (("dt=1",), "", 6)


def test_a_manifest_has_hadoops_form() -> None:
    """Source and destination are URIs as Hadoop 3.5.0 writes and reads them."""
    manifest = TaskManifest("j", "u", "t", "a0", (ManifestFile("a b.txt", 1),))
    document = orjson.loads(encode_manifest(manifest, ROOT, f"{TASKS}/a0"))
    assert document["type"].endswith(".manifest.files.TaskManifest/1")
    assert document["files"] == [
        {"s": f"file:/data/t/{TASKS}/a0/a%20b.txt", "d": "file:/data/t/a%20b.txt", "z": 1}
    ]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("file:/etc/passwd", "file:/data/t/passwd"),
        (f"file:/data/t/{TASKS}/other/x", "file:/data/t/x"),
        (f"file:/data/t/{TASKS}/a0/x", "file:/data/u/x"),
        (f"file:/data/t/{TASKS}/a0/../x", "file:/data/t/../x"),
        (f"file:/data/t/{TASKS}/a0/_temporary/x", "file:/data/t/_temporary/x"),
    ],
)
def test_a_forged_manifest_moves_no_other_file(source: str, target: str) -> None:
    """A source outside of the attempt, or a destination outside of the job's, is refused."""
    manifest = TaskManifest("j", "u", "t", "a0")
    document = orjson.loads(encode_manifest(manifest, ROOT, f"{TASKS}/a0"))
    document["files"] = [{"s": source, "d": target, "z": 1}]
    with pytest.raises(FormatError):
        decode_manifest(orjson.dumps(document), ROOT, TASKS, "m")
