"""Jobs of renames on each kind of file tree: the same data, whatever is behind the port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest

from magic_committer._runtime import new_id
from magic_committer.errors import OptionError
from magic_committer.file_trees.base import FileTree, walk
from magic_committer.file_trees.by_url import tree_for
from magic_committer.file_trees.dialects import (
    GoogleDialect,
    HdfsDialect,
    LocalDialect,
    SftpDialect,
)
from magic_committer.file_trees.local import LocalTree
from magic_committer.file_trees.through_fsspec import FsspecTree
from magic_committer.maintenance.trees import abort_tree
from tests import tree_stand_ins as stand_ins
from tests.faulty_tree import Fault, FaultyTree, drawn
from tests.tree_jobs import World, write

NEW = {"dt=1/a b.csv": b"a", "dt=2/b.csv": b"b" * 100_000, "same.csv": b"after"}
KINDS = ("local", "fsspec-local", "fsspec-memory", "hdfs", "sftp", "gs")

NO_ETAGS = ("fsspec-memory", "hdfs", "sftp")


def world_on(kind: str, place: Path) -> World:
    """A world whose tree is of that kind. HDFS, SFTP and GCS are stand-ins."""
    world, where = World(), str(place)
    trees: dict[str, Any] = {
        "local": lambda: LocalTree(place),
        "fsspec-local": lambda: FsspecTree(
            fsspec.filesystem("file"), where, f"file://{where}/", LocalDialect()
        ),
        "fsspec-memory": lambda: tree_for(f"memory://{new_id()}/table"),
        "hdfs": lambda: FsspecTree(stand_ins.Hdfs(), where, "hdfs://nn/t/", HdfsDialect()),
        "sftp": lambda: FsspecTree(stand_ins.Sftp(), where, "sftp://host/t/", SftpDialect()),
        "gs": lambda: FsspecTree(stand_ins.Google(), "b/t", "gs://b/t/", GoogleDialect()),
    }
    world.tree = trees[kind]()
    world.tree.make_root()
    return world


def left_over(tree: FileTree) -> list[str]:
    """The files of committers that a reader skips, but for closed records and the marker."""
    return [
        entry.path
        for entry in walk(tree, "")
        if entry.kind == "file"
        and entry.path.startswith(("_", "."))
        and entry.path != "_SUCCESS"
        and "/_job-" not in entry.path
    ]


@pytest.mark.parametrize("mode", ["append", "fail", "replace"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_on_each_kind_of_tree(kind: str, mode: str, tmp_path: Path) -> None:
    """Its files are there, what it replaces is gone, and nothing else is left. Without etags a
    job that replaces is refused before it begins."""
    world = world_on(kind, tmp_path / "t")
    if mode == "replace" and kind in NO_ETAGS:
        with pytest.raises(OptionError, match="without etags"):
            world.start(mode=mode)
        return
    old = {"dt=1/old.csv": b"old", "same.csv": b"before"} if mode != "fail" else {}
    for name, data in old.items():
        world.put(name, data)
    job = world.start(mode=mode)
    first = write(job, "1", {name: NEW[name] for name in ("dt=1/a b.csv", "dt=2/b.csv")})
    assert world.data() == old, "nothing is visible before the commit"
    second = write(job, "2", {"same.csv": b"after"})
    assert job.commit_job([first, second]).outcome == "committed"
    assert world.data() == ({**old, **NEW} if mode == "append" else NEW)
    assert left_over(world.tree) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_aborted_job_leaves_nothing(kind: str, tmp_path: Path) -> None:
    """On each kind of tree: neither data nor files of tasks."""
    world = world_on(kind, tmp_path / "t")
    world.put("same.csv", b"before")
    job = world.start()
    write(job, "1", NEW)
    assert abort_tree(world.parts(), job.job.id, revert=False).outcome == "aborted"
    assert world.data() == {"same.csv": b"before"}
    assert left_over(world.tree) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_whose_renames_lose_their_answers(kind: str, tmp_path: Path) -> None:
    """Renames that took effect and failed, and retries of the client: the job commits all the
    same, on each kind of tree."""
    done = 0
    for number in range(6):
        world = world_on(kind, tmp_path / str(number))
        job = world.start()
        result = write(job, "1", NEW)
        draw = drawn(f"{kind} {number}", 0.5, [Fault.ANSWER_LOST, Fault.RETRIED])

        def of_renames(asked: int, verb: str, path: str, draw: Any = draw) -> Fault | None:
            found: Fault | None = draw(asked, verb, path) if verb == "rename" else None
            return found

        driver = FaultyTree(world.tree, of_renames)
        assert world.again(job, driver).commit_job([result]).outcome == "committed"
        assert world.data() == NEW
        done += len(driver.befell)
    assert done >= 6
