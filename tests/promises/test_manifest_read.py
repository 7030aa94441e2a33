"""What a hostile reader found in jobs of renames: each test is one way to break a promise."""

from __future__ import annotations

import errno
import io
import os
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.committers.manifest import ManifestCommitter, records
from magic_committer.committers.manifest.files import TreeFile
from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.committers.manifest.plan import load_plan
from magic_committer.committers.manifest.task_manifest import TYPE, decode_manifest
from magic_committer.committers.manifest.undo import remove_job
from magic_committer.errors import (
    AbortIncomplete,
    CommitIncomplete,
    CommitRefused,
    FormatError,
    InvalidRequest,
    JobExists,
    JobNotFound,
    MagicError,
    OutcomeUnknown,
    PathError,
    StoreError,
    UploadFailed,
)
from magic_committer.file_trees import local
from magic_committer.file_trees.base import FileTree, TreeEntry, parent_of, walk
from magic_committer.file_trees.local import LocalTree
from magic_committer.file_trees.os_errors import translated
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.reports import CleanupReport
from magic_committer.maintenance.trees import (
    TreeCleaning,
    abort_tree,
    force_abort_tree,
    recover_tree,
)
from magic_committer.protocol.record import ObjectRef
from magic_committer.stores.urls import tree_url
from tests.tree_jobs import URL, Killed, Watched, World, die, write


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
    [
        "../a",
        "/etc/a",
        "a//b",
        "_temporary/manifest_1/_job-1.json",
        "x/.hidden",
        "x/_a",
        "",
        "a\0b",
    ],
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
        world.tree.create(f"_plan-{number}", data)
        with pytest.raises(FormatError, match="row"):
            load_plan(world.tree, ObjectRef(f"_plan-{number}", sha256(data).hexdigest()))


def moved_out(place: Path, elsewhere: Path) -> None:
    """A directory becomes a link to what it was."""
    place.rename(elsewhere)
    place.symlink_to(elsewhere)


def names(place: Path) -> list[str]:
    """What is in a directory."""
    return sorted(os.listdir(place))


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_recovery_publishes_and_deletes_nothing_through_a_link(tmp_path: Path, mode: str) -> None:
    """Whoever may write below the destination may put a link there that leads to other data, and
    an operator with more rights recovers the job."""
    world = on_disk(tmp_path)
    world.put("dt=1/old.csv", b"old")
    job = world.start(mode=mode, accept="listing")
    write(job, "1", {"b.csv" if mode == "replace" else "dt=1/b.csv": b"b"})
    killed_at(world, job, "rename", "/00/tasks/")
    moved_out(tmp_path / "t" / "dt=1", tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(CommitIncomplete, match="is a link"):
            recover_tree(world.parts(), job.job.id, dead_after=0.0)
    assert names(tmp_path / "elsewhere") == ["old.csv"]


def test_a_revert_takes_nothing_back_through_a_link(tmp_path: Path) -> None:
    """As for a recovery."""
    world = on_disk(tmp_path)
    job = world.start(accept="listing")
    write(job, "1", {"dt=1/b.csv": b"b"})
    killed_at(world, job, "create", "_job-3.json")
    moved_out(tmp_path / "t" / "dt=1", tmp_path / "elsewhere")
    with pytest.raises(AbortIncomplete, match="is a link"):
        abort_tree(world.parts(), job.job.id, revert=True)
    assert names(tmp_path / "elsewhere") == ["b.csv"]


def test_nothing_is_published_out_of_a_link(tmp_path: Path) -> None:
    """The directory of an attempt that is a link would move files from elsewhere."""
    world = on_disk(tmp_path)
    job = world.start(accept="listing")
    result = write(job, "1", {"b.csv": b"b"})
    attempt = tmp_path / "t" / TreeJobPaths(job.job.uuid).attempt(result.attempt)
    moved_out(attempt, tmp_path / "elsewhere")
    with pytest.raises(CommitRefused, match="is a link"):
        job.commit_job(None)
    assert names(tmp_path / "elsewhere") == ["b.csv"]


def test_nothing_is_swept_through_a_link(tmp_path: Path) -> None:
    """Also if the directory of a job is one: a directory with a forged record would be emptied."""
    world = on_disk(tmp_path)
    job = world.start(accept="listing")
    elsewhere = tmp_path / "elsewhere"
    moved_out(tmp_path / "t" / TreeJobPaths(job.job.uuid).directory, elsewhere)
    (elsewhere / "precious").write_text("x")
    with suppress(MagicError):
        abort_tree(world.parts(), job.job.id, revert=False)
    with suppress(MagicError):
        force_abort_tree(world.parts(), job.job.id, dead_after=0.0)
    assert "precious" in names(elsewhere)


def test_a_file_in_the_trash_does_not_go_back_through_a_link(tmp_path: Path) -> None:
    """The place in the trash names where it goes, and may be forged."""
    world = on_disk(tmp_path)
    job = world.start(accept="listing")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t" / "out").symlink_to(tmp_path / "elsewhere")
    trash = tmp_path / "t" / TreeJobPaths(job.job.uuid).trash / "nonce" / "mark" / "out"
    trash.mkdir(parents=True)
    (trash / "authorized_keys").write_text("mine")
    abort_tree(world.parts(), job.job.id, revert=False)
    assert names(tmp_path / "elsewhere") == []


def test_a_job_is_not_started_below_a_link(tmp_path: Path) -> None:
    """It could not be ended: nothing is deleted through a link. The destination itself may be
    one."""
    world = on_disk(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t" / "_temporary").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequest, match="_temporary is a link"):
        world.start()
    assert names(tmp_path / "elsewhere") == []
    (tmp_path / "t" / "_temporary").unlink()
    moved_out(tmp_path / "t", tmp_path / "moved")
    job = world.start(accept="listing")
    write(job, "1", {"b.csv": b"b"})
    job.commit_job(None)
    assert "b.csv" in names(tmp_path / "moved")


def test_a_destination_on_another_file_system_is_refused_before_the_decision(
    tmp_path: Path,
) -> None:
    """``_temporary`` is a mount point: no file can be renamed from there to the root."""

    class Mounted(LocalTree):
        def stat(self, path: str) -> TreeEntry | None:
            entry = super().stat(path)
            return entry and replace(entry, device="1" if "_temporary" in path else "2")

    world = World()
    world.tree = Mounted(tmp_path)  # type: ignore[assignment]  # it is another FileTree
    job = world.start(accept="listing")
    write(job, "1", {"b.csv": b"b"})
    with pytest.raises(CommitRefused, match="another file system"):
        job.commit_job(None)


class Written:
    """A tree that notes in which order entries are made, and the directories that hold them are
    synced."""

    def __init__(self, tree: FileTree) -> None:
        self._tree = tree
        self.made: dict[str, int] = {}
        self.synced: dict[str, int] = {}
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._tree, name)
        if name not in ("make_directory", "create", "open", "rename", "sync"):
            return verb

        def noted(*args: Any, **named: Any) -> Any:
            done = verb(*args, **named)
            self._count += 1
            if name == "sync":
                self.synced |= dict.fromkeys(args[1], self._count)
            else:
                self.made.setdefault(args[name == "rename"], self._count)
            if name == "create":
                self.synced[parent_of(args[0])] = self._count
            return done

        return noted

    def lasts(self, path: str) -> bool:
        """Whether a power cut leaves the path there."""
        while path:
            above = parent_of(path)
            if self.synced.get(above, 0) <= self.made[path] - (path.endswith(".json")):
                return False
            path = above
        return True


@pytest.mark.parametrize("accept", ["listing", "results"])
def test_what_a_decision_names_lasts_before_it_through_a_power_cut(accept: str) -> None:
    """A file system may keep an entry of a directory and lose another one that is older, as long
    as the directory was not synced."""
    world = World()
    tree = Written(world.tree)
    job = world.start(tree, accept=accept)
    result = write(job, "1", {"dt=1/b/c.csv": b"b", "a.csv": b"a"})
    paths, plans = TreeJobPaths(job.job.uuid), list[str]()

    def look() -> None:
        plans[:] = [path for path in tree.made if "/_plan-" in path]
        for name in ("dt=1/b/c.csv", "a.csv"):
            assert tree.lasts(f"{paths.attempt(result.attempt)}/{name}")
        assert tree.lasts(result.key)
        assert [tree.lasts(plan) for plan in plans] == [True]

    watched = Watched(
        tree, before=look, on=lambda v, path: (v, path) == ("create", paths.record(2))
    )
    world.again(job, watched).commit_job([result] if accept == "results" else None)
    assert plans


def test_a_destination_that_was_made_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was told would else be gone with its directory after a power cut."""
    synced: list[str] = []
    monkeypatch.setattr(local, "_sync_directory", synced.append)
    LocalTree(tmp_path / "a" / "b" / "t").make_root()
    assert synced == [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)]
    LocalTree(tmp_path / "a" / "b" / "t").make_root()
    assert len(synced) == 3


def test_a_decision_without_an_answer_says_why() -> None:
    """A full disk is named, and what to do about it."""
    world = World()
    job = world.start(accept="listing")
    write(job, "1", {"a.csv": b"a"})

    class Full(Watched):
        def create(self, path: str, data: bytes) -> None:
            raise translated(OSError(errno.ENOSPC, "no room"), "create", URL, path)

    with pytest.raises(OutcomeUnknown, match=r"no room.*Make room on the disk"):
        world.again(job, Full(world.tree)).commit_job(None)


@pytest.mark.parametrize(
    "url", ["file:{}/t", "FILE://{}/t", "file://localhost{}/t/", "file:///{}//t"]
)
def test_every_form_of_a_file_url_names_the_same_job(tmp_path: Path, url: str) -> None:
    """Java, and so Spark, writes ``file:/x``."""
    with mc.write(url.format(tmp_path)) as job, job.open("a", "w") as file:
        file.write("1")
    assert (tmp_path / "t" / "a").read_text() == "1"
    again = mc.start(url.format(tmp_path), job_id="one")
    assert mc.attach(f"file://{tmp_path}/t", "one").dest == again.dest == f"file://{tmp_path}/t/"


def forgetting(world: World, tree: object | None = None) -> CleanupReport:
    """Clean up, and forget given ids."""
    limits = Limits(dead_after=0.0, leftover_after=0.0, forget_after=0.0, forget_given_after=0.0)
    return TreeCleaning(world.parts(tree), limits, dry_run=False).run()


@pytest.mark.parametrize("record_is_gone", [False, True])
def test_a_late_cleanup_does_not_free_the_id_of_a_new_job(record_is_gone: bool) -> None:
    """Two processes forget a job. One is paused before it frees the id; the other one frees it, and
    a new job takes it."""
    world = World()
    old = world.start(job_id="nightly")
    old.abort_job()
    if record_is_gone:
        remove_job(world.parts(), TreeJobPaths(old.job.uuid))
    started: list[ManifestCommitter] = []

    def freed() -> None:
        forgetting(world)
        started.append(world.start(job_id="nightly"))

    slow = Watched(
        world.tree,
        before=freed,
        on=lambda v, path: v in ("remove", "rename") and path.endswith("_id_nightly.json"),
    )
    forgetting(world, slow)
    paths = records.find(world.parts(), "nightly")
    assert started
    assert paths == TreeJobPaths(started[0].job.uuid)
    with pytest.raises(JobExists):
        world.start(job_id="nightly")
    assert not [path for path in world.control() if path.endswith(".tmp")]


def test_a_forged_claim_gives_up_no_other_job() -> None:
    """The claim of an id may name any job."""
    world = World()
    job = world.start()
    world.tree.create("_temporary/_id_x.json", orjson.dumps({"version": 1, "uuid": job.job.uuid}))
    with pytest.raises(JobNotFound):
        force_abort_tree(world.parts(), "x", dead_after=0.0)
    assert records.read(world.parts(), TreeJobPaths(job.job.uuid)) is not None


def test_a_manifest_of_an_attempt_that_leads_out_is_a_format_error() -> None:
    """So the commit is refused, and `inspect` goes on with the other jobs."""
    document = {"type": TYPE, "version": 1, "jobId": "j", "taskID": "t", "taskAttemptID": "../x"}
    with pytest.raises(FormatError, match="taskAttemptID"):
        decode_manifest(orjson.dumps(document), URL, "tasks", "m")


def test_a_cleanup_removes_what_a_killed_claim_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process was killed while it took an id. What others have there stays."""
    world = on_disk(tmp_path)

    def killed(*_: object) -> None:
        raise Killed

    def nothing(path: str) -> None:
        raise FileNotFoundError(path)

    world.tree.make_directory("_temporary")
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed)
        patched.setattr(os, "unlink", nothing)
        with pytest.raises(Killed):
            world.tree.create("_temporary/_id_nightly.json", b"{}")
    others = ["_id_a.tmp", "0"]
    for name in others:
        world.tree.create(f"_temporary/{name}", b"")
    assert len(names(tmp_path / "t" / "_temporary")) == 3
    limits = Limits(dead_after=0.0, leftover_after=1e9, forget_after=0.0, forget_given_after=1e9)
    TreeCleaning(world.parts(), limits, dry_run=False).run()
    assert len(names(tmp_path / "t" / "_temporary")) == 3
    world.clock.seconds = 9e9
    TreeCleaning(world.parts(), limits, dry_run=False).run()
    assert names(tmp_path / "t" / "_temporary") == sorted(others)


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_marker_that_is_no_file_is_told(tmp_path: Path, kind: str) -> None:
    """Whatever another program has made at _SUCCESS stays, and the warning says what it is."""
    world = on_disk(tmp_path)
    marker = tmp_path / "t" / "_SUCCESS"
    marker.mkdir() if kind == "directory" else marker.symlink_to("nowhere")
    job = world.start(accept="listing")
    write(job, "1", {"a.csv": b"a"})
    [warning] = job.commit_job(None).warnings
    assert warning == f"_SUCCESS was not written: a {kind} of that name is there"
    assert marker.is_dir() or marker.is_symlink()


def test_a_destination_that_is_a_file_is_told(tmp_path: Path) -> None:
    """The error says what is there, and the file stays."""
    (tmp_path / "t").write_text("precious")
    for dest in ("t", "t/u"):
        with pytest.raises(StoreError, match=r"a file is there, and no directory|Not a directory"):
            mc.start(f"file://{tmp_path}/{dest}")
    assert (tmp_path / "t").read_text() == "precious"


def test_the_only_file_of_a_directory_is_renamed_in_it() -> None:
    """Where directories are not real, one vanishes with its last file, but not in between."""
    tree = World(directories=False).tree
    tree.create("a/b", b"1")
    for source, target in (("a/b", "a/c"), ("a/c", "a/c"), ("a/c", "d/e")):
        tree.rename(source, target)
        assert [entry.path for entry in walk(tree, "")] == [parent_of(target), target]


def test_a_plan_without_line_ends_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    """A forged plan of one endless row is read up to the limit of a row, and refused."""
    tree = LocalTree(tmp_path)
    (tmp_path / "plan").write_bytes(b"[" * 3_000_000)
    with pytest.raises(FormatError, match="has a row"):
        load_plan(tree, ObjectRef("plan", "0" * 64))


def test_a_path_of_this_machine_is_told_as_a_url() -> None:
    """Who forgets the scheme gets the URL to paste."""
    with pytest.raises(PathError, match=r"Write 'file:///data/t', or 's3://bucket/path'"):
        mc.write("/data/t")
