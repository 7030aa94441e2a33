"""What a hostile reader found in jobs of renames: each test is one way to break a promise."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.committers.manifest.files import TreeFile
from magic_committer.errors import InvalidRequest, PathError, UploadFailed
from magic_committer.file_trees.by_url import tree_url
from magic_committer.file_trees.local import LocalTree
from magic_committer.maintenance.trees import abort_tree, recover_tree
from tests.tree_jobs import Killed, Watched, World, die, write


def on_disk(place: Path) -> World:
    """A world on a directory of this machine."""
    world = World()
    world.tree = LocalTree(place / "t")  # type: ignore[assignment]  # it is another FileTree
    world.tree.make_root()
    return world


def killed_at(world: World, job: ManifestCommitter, verb: str, part: str) -> None:
    """Commit the job, and kill its driver before its first such call."""
    dying = Watched(world.tree, before=die, on=lambda v, path: v == verb and part in path)
    with pytest.raises(Killed):
        world.again(job, dying).commit_job(None)


def test_a_revert_takes_a_file_back_that_has_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver dies between the link and the unlink of a publish. A rename of one name of a file
    over its other name does nothing: the undo must not do that."""
    world = on_disk(tmp_path)
    job = world.start(mode="fail", accept="listing")
    write(job, "1", {"a.csv": b"a"})
    unlink = os.unlink

    def killed(path: str, **named: int) -> None:
        if "/00/tasks/" in path:
            raise Killed
        unlink(path, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", killed)
        with pytest.raises(Killed):
            job.commit_job(None)
    assert world.data() == {"a.csv": b"a"}
    report = abort_tree(world.parts(), job.job.id, revert=True)
    assert (report.outcome, world.data()) == ("reverted", {})


def test_a_link_in_the_trash_goes_back(tmp_path: Path) -> None:
    """Another program puts a link in the place of a file, just before it is taken away. Another
    process sweeps the job before the link was looked at: the link is no planned file."""
    world = on_disk(tmp_path)
    world.put("old.csv", b"old")
    job = world.start(mode="replace", accept="listing")
    write(job, "1", {"a.csv": b"a"})
    place = tmp_path / "t" / "old.csv"

    def link_instead() -> None:
        place.unlink()
        place.symlink_to("elsewhere")

    def swept() -> None:
        recover_tree(world.parts(), job.job.id, dead_after=0.0)

    linking = Watched(
        world.tree, before=link_instead, on=lambda v, path: (v, path) == ("rename", "old.csv")
    )
    sweeping = Watched(
        linking, before=swept, on=lambda v, path: v == "stat" and path.endswith("/old.csv")
    )
    world.again(job, sweeping).commit_job(None)
    assert os.readlink(place) == "elsewhere"


@pytest.mark.parametrize("name", ["_SUCCESS", "a.csv"])
def test_a_fifo_at_the_destination_does_not_hang(tmp_path: Path, name: str) -> None:
    """The open of a FIFO waits for a writer: nothing of another program's is opened like that."""
    world = on_disk(tmp_path)
    os.mkfifo(tmp_path / "t" / name)
    tree = world.tree
    with pytest.raises(InvalidRequest, match="no ordinary file"):
        tree.read(name, 10)
    with pytest.raises(InvalidRequest, match="no ordinary file"):
        tree.reader(name)
    job = world.start(accept="listing")
    write(job, "1", {"b.csv": b"b"})
    job.commit_job(None)
    assert world.data()["b.csv"] == b"b"


@pytest.mark.parametrize(
    "url",
    [
        "file:///data/t#1",
        "file:///data/t?",
        "file:///data/t?x",
        "file:///data/a\tb",
        "file:///data/a\nb",
        "file:///data/%ff",
        "file:///data/\udcff",
    ],
)
def test_a_url_never_names_another_directory(url: str) -> None:
    """What a URL cannot hold would be cut or replaced, and the job would write elsewhere."""
    with pytest.raises(PathError):
        tree_url(url)
    assert tree_url(Path("/data/t#1?\tü").as_uri()) == "file:///data/t%231%3F%09%C3%BC/"


def test_a_write_that_was_interrupted_is_not_done_twice() -> None:
    """Ctrl-C comes after the bytes were written and before the file has noted it: to go on would
    write them twice. The file has failed."""

    class Interrupted(io.BytesIO):
        def write(self, data: Any, /) -> int:
            super().write(data)
            raise KeyboardInterrupt

    file = TreeFile(Interrupted(), "file:///t/a", drop=lambda: None, may_close=lambda: None)
    file.write(b"once")
    with pytest.raises(KeyboardInterrupt):
        file.flush()
    with pytest.raises(UploadFailed, match="interrupted"):
        file.write(b"more")
    with pytest.raises(UploadFailed, match="interrupted"):
        file.close()
