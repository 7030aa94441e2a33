"""What a hostile reader found in jobs of renames: each test is one way to break a promise."""

from __future__ import annotations

import io
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.committers.manifest.files import TreeFile
from magic_committer.committers.manifest.plan import load_plan
from magic_committer.errors import FormatError, InvalidRequest, PathError, UploadFailed
from magic_committer.file_trees.by_url import tree_url
from magic_committer.file_trees.local import LocalTree
from magic_committer.maintenance.trees import abort_tree, recover_tree
from magic_committer.protocol.record import ObjectRef
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


@pytest.mark.parametrize(
    "name",
    [b"a\nb", b"\xff\xfe.csv", b"x.pending", b"dt=1\x01/\xc3.csv", b"\\u\"'"],
)
def test_old_data_of_any_name_is_replaced_also_by_a_recovery(tmp_path: Path, name: bytes) -> None:
    """Other programs give files names that a job may not. A driver that has planned to replace one
    dies, and whoever recovers the job can read its plan."""
    world = on_disk(tmp_path)
    place = os.path.join(os.fsencode(tmp_path / "t"), name)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    Path(os.fsdecode(place)).write_bytes(b"old")
    job = world.start(mode="replace", accept="listing")
    write(job, "1", {"a.csv": b"a"})
    killed_at(world, job, "rename", "/00/tasks/")
    assert recover_tree(world.parts(), job.job.id, dead_after=0.0).outcome == "committed"
    assert world.data() == {"a.csv": b"a"}


@pytest.mark.parametrize(
    "name",
    ["../a", "/etc/a", "a//b", "_temporary/manifest_1/job-1.json", "x/.hidden", "x/_a", "", "a\0b"],
)
def test_a_plan_deletes_data_of_the_destination_only(tmp_path: Path, name: str) -> None:
    """Whoever may write below the destination may have forged the plan."""
    world = on_disk(tmp_path)
    rows = [["d", name, 1, "e"], ["end", 0, 0, 0]]
    data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    world.tree.create("plan", data)
    with pytest.raises(FormatError, match="plan"):
        load_plan(world.tree, ObjectRef("plan", sha256(data).hexdigest()))


def test_a_row_of_a_plan_that_is_no_json_is_a_format_error(tmp_path: Path) -> None:
    """Also one that is nested so deeply that a parser gives up."""
    world = on_disk(tmp_path)
    for number, data in enumerate([b"[" * 60_000 + b"\n", b'["d", "\xff"\n', b"NaN\n"]):
        world.tree.create(f"plan-{number}", data)
        with pytest.raises(FormatError, match="row"):
            load_plan(world.tree, ObjectRef(f"plan-{number}", sha256(data).hexdigest()))
