"""Jobs whose files wait at the destination, and real disks: all or nothing, whoever dies."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from examples import local_disk
from magic_committer.committers.manifest import BUFFER_BYTES, ManifestCommitter, TreeFile
from magic_committer.errors import InvalidRequest, PermissionDenied
from magic_committer.stores.tree import TreeStore
from magic_committer.stores.trees.disk import LocalTree
from magic_committer.stores.urls import tree_url
from magic_committer.testing import PatientClock
from tests.destinations import OnDisk
from tests.promises.hands import full_disk, raises
from tests.promises.hands import write as write_file
from tests.tree_jobs import Killed, Watched, World, die, opened, put, write
from tests.tree_store import Calls, before, check, lay_out, recover, run_job, served

OLD = {"dt=1/old.csv": b"old", "same.csv": b"before"}
NEW = {"dt=1/a.csv": b"a", "dt=2/b.csv": b"b", "same.csv": b"after"}


def fresh(mode: str) -> World:
    world = World()
    for name, data in OLD.items() if mode != "fail" else ():
        world.put(name, data)
    return world


def expected(mode: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    if mode == "fail":
        return {}, NEW
    return OLD, NEW if mode == "replace" else {**OLD, **NEW}


def both(job: ManifestCommitter) -> list[mc.TaskCommit]:
    """The two tasks of a job."""
    return [
        write(job, "1", {"dt=1/a.csv": b"a", "dt=2/b.csv": b"b"}),
        write(job, "2", {"same.csv": b"after"}),
    ]


def run(world: World, seen: Watched, mode: str, job_id: str | None = None) -> mc.JobReport:
    job = world.start(seen, job_id, mode=mode)
    return job.driver().commit(both(job))


def verbs(mode: str, job_id: str | None = None) -> range:
    """The numbers of the verbs of an undisturbed run."""
    world = fresh(mode)
    watched = Watched(world.store)
    run(world, watched, mode, job_id)
    assert world.data() == expected(mode)[1]
    return range(1, watched.count + 1)


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_paused_driver_touches_nothing_after_its_job_was_ended(mode: str) -> None:
    """At each verb of it: it brings nothing back, and deletes nothing of another program's."""
    met = 0
    for number in verbs(mode, "nightly"):
        world = fresh(mode)
        later = {**dict.fromkeys([*OLD, *NEW], b"later"), "dt=1/new.csv": b"later"}

        def end_and_go_on(world: World = world, later: dict[str, bytes] = later) -> None:
            world.end_all()
            for name in later:
                world.put(name, b"later")
            (world.root / "dt=2/b.csv").unlink()

        watched = Watched(world.store, number, before=end_and_go_on)
        job = None
        with suppress(mc.MagicError):
            job = world.start(watched, "nightly", mode=mode)
        if job is None or watched.count >= number:
            continue  # ended before it began
        with suppress(mc.MagicError):
            job.driver().commit(both(job))
        met += 1
        del later["dt=2/b.csv"]
        assert world.data() == later, number
    assert met > 20


def test_an_attempt_whose_job_ends_during_its_commit_is_told_so() -> None:
    """At each verb of it the job is aborted: the task is told, and nothing of it is left."""
    number, told = 1, 0
    while True:
        world = World()
        job = world.start(job_id="nightly", accept="listing")
        watched = Watched(world.store)
        attempt = world.again(job, watched).attempt("1")
        put(attempt, {"a": b"1"})
        watched.at = watched.count + number
        watched._before = lambda world=world, job=job: world.again(job).driver().abort()
        try:
            attempt.commit()
            break
        except mc.JobNotRunning:
            told += 1
        raises(mc.JobNotRunning, opened, job.attempt("2"), "a")
        world.clean()
        world.clean()
        assert (world.data(), world.control()) == ({}, []), number
        number += 1
    assert told > 3
    assert watched.count < watched.at


def test_a_committed_attempt_is_not_undone() -> None:
    """The job may have accepted it."""
    world = World()
    job = world.start(accept="listing")
    attempt = job.attempt("1")
    put(attempt, {"a": b"1"})
    attempt.commit()
    raises(mc.TaskFailed, attempt.abort)
    job.driver().commit()
    assert world.data() == {"a": b"1"}


def test_an_attempt_is_not_told_committed_by_the_manifest_of_another() -> None:
    """Two processes were given one name: the first manifest stands, the second attempt fails."""
    job = World().start()
    first, second = (job.attempt("1", "same", sole=True) for _ in range(2))
    put(first, {"a": b""})
    put(second, {"b": b""})
    first.commit()
    raises(mc.TaskFailed, second.commit)


def test_an_attempt_that_has_lost_a_closed_file_does_not_commit() -> None:
    """Somebody has removed it from the attempt's directory."""
    world = World()
    attempt = world.start().attempt("1")
    put(attempt, {"a": b"", "b": b""})
    (world.root / attempt._root / "a").unlink()
    raises(mc.TaskFailed, attempt.commit, match="is gone")


def test_a_write_that_was_interrupted_is_not_done_twice() -> None:
    """Ctrl-C comes before the file has noted the write: the file has failed."""

    class Interrupted(io.BytesIO):
        def write(self, data: Any, /) -> int:
            super().write(data)
            raise KeyboardInterrupt

    file = TreeFile(Interrupted(), "file:///t/a", drop=lambda: None, may_close=lambda: None)
    file.write(b"once")
    raises(KeyboardInterrupt, file.flush)
    raises(mc.UploadFailed, file.write, b"more", match="interrupted")
    raises(mc.UploadFailed, file.close, match="interrupted")


def test_what_a_manifest_names_lasts_before_it() -> None:
    """The files, their directories and those above are synced before the manifest is stored."""
    world, told = World(), list[tuple[str, str]]()
    job = world.start()
    watched = Watched(world.store, always=lambda verb, path: told.append((verb, path)))
    synced: list[set[str]] = []
    real = watched.tree.sync

    def sync(paths: list[str]) -> None:
        synced.append(set(paths))
        real(paths)

    watched.tree.sync = sync  # type: ignore[attr-defined]
    attempt = world.again(job, watched).attempt("1")
    put(attempt, {"dt=1/b/c.csv": b"1", "a.csv": b"1"})
    attempt.commit()
    order = [verb for verb, path in told if verb == "sync" or path.endswith("-manifest.json")]
    assert order[:2] == ["sync", "put"]
    home = job.job.paths.attempt_directory(attempt.attempt)
    files, above = {f"{home}dt=1/b/c.csv", f"{home}a.csv"}, {f"{home}dt=1/b", f"{home}dt=1"}
    wanted = files | above | {"", "_temporary"}
    assert wanted <= synced[0]


@pytest.mark.parametrize(
    ("there", "tasks"),
    [
        ({}, [{"a": b"1"}, {"a": b"2"}]),
        ({}, [{"a": b"1"}, {"a/b": b"2"}]),
        ({"a": b"file"}, [{"a/b": b"1"}]),
        ({"d/x": b"directory"}, [{"d": b"1"}]),
    ],
    ids=["one name", "a file and a directory", "a file is there", "a directory is there"],
)
def test_two_files_of_one_place_are_refused(
    there: dict[str, bytes], tasks: list[dict[str, bytes]]
) -> None:
    """Two tasks with one name, and a file where a directory is or is needed, abort the job."""
    world = World()
    for name, data in there.items():
        world.put(name, data)
    job = world.start()
    results = [write(job, str(number), files) for number, files in enumerate(tasks)]
    raises(mc.CommitRefused, job.driver().commit, results)
    assert (world.data(), world.control()) == (there, [])


@pytest.mark.parametrize("what", ["goes", "is another", "is written to", "the manifest is another"])
def test_what_a_task_has_left_must_be_there_and_the_same(what: str) -> None:
    """Else the job is refused, and nothing of it is visible."""
    world = World()
    job = world.start()
    result = write(job, "1", {"a": b"1"})
    (source,) = world.root.glob("_temporary/manifest_*/00/tasks/*/a")
    if what == "goes":
        source.unlink()
    elif what == "is another":
        (source.parent / "new").write_bytes(b"2")
        (source.parent / "new").replace(source)
    elif what == "is written to":
        source.write_bytes(b"2")
    else:
        manifest = world.root / result.key
        manifest.write_bytes(manifest.read_bytes() + b" ")
    raises(mc.CommitRefused, job.driver().commit, [result])
    assert world.data() == {}


def killed_at_its_first_file(world: World, job: ManifestCommitter) -> None:
    """Commit a job whose driver dies before its first file is visible."""
    watched = Watched(world.store, on=lambda verb, _: verb == "complete_upload", before=die)
    raises(Killed, world.again(job, watched).driver().commit)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", [b"a\nb", b"x.pending", b"dt=1\x01/b.csv", b"\\u\"'"])
def test_old_data_of_any_name_is_replaced_also_by_a_recovery(name: bytes) -> None:
    """Other programs give files names that a job may not; a plan with one can be read."""
    world = World()
    world.put(os.fsdecode(name), b"old")
    job = world.start(mode="replace", accept="listing")
    write(job, "1", {"a.csv": b"a"})
    killed_at_its_first_file(world, job)
    assert world.recover(job.job.id).outcome == "committed"
    assert world.data() == {"a.csv": b"a"}


@pytest.mark.parametrize("which", ["_temporary", "_temporary/manifest_", "__magic_job-nightly"])
def test_nothing_is_swept_through_a_link(tmp_path: Path, which: str) -> None:
    """Also if the directory of a job is one: a directory with a forged record would be emptied."""
    world = World()
    job = world.start(job_id="nightly", accept="listing")
    write(job, "1", {"b.csv": b"b"})
    (directory,) = world.root.glob(f"{which}*")
    directory.rename(tmp_path / "elsewhere")
    directory.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "precious").write_text("x")
    with suppress(mc.MagicError, AssertionError):
        world.abort(job.job.id)
    with suppress(mc.MagicError):
        world.clean()
    assert "precious" in names(tmp_path / "elsewhere")


def test_no_task_writes_below_a_link(tmp_path: Path) -> None:
    """Nothing is deleted through a link, so nothing is put there. The destination may be one."""
    world = World()
    world.put("x", b"1")
    (tmp_path / "elsewhere").mkdir()
    (world.root / "_temporary").symlink_to(tmp_path / "elsewhere")
    raises(InvalidRequest, write, world.start(), "1", {"a": b"1"}, match="is a link")
    assert names(tmp_path / "elsewhere") == []
    (world.root / "_temporary").unlink()
    world.root.rename(tmp_path / "moved")
    world.root.symlink_to(tmp_path / "moved")
    job = world.start(accept="listing")
    write(job, "1", {"b.csv": b"b"})
    job.driver().commit(None)
    assert "b.csv" in names(tmp_path / "moved")


@pytest.mark.parametrize("ends", ["recover", "abort"])
@pytest.mark.parametrize("where", ["target", "source"])
def test_an_operator_follows_no_link_of_a_writer(tmp_path: Path, ends: str, where: str) -> None:
    """What is outside of the destination stays, and nothing is put there."""
    world, outside = World(), tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("secret")
    world.put("dt=1/other", b"other")
    job = world.start(accept="listing")
    write(job, "1", {"dt=1/key": b"public"})
    killed_at_its_first_file(world, job)
    replaced = world.root / "dt=1"
    if where == "source":
        (replaced,) = world.root.glob("_temporary/manifest_*/00/tasks/*/dt=1")
    shutil.rmtree(replaced)
    replaced.symlink_to(outside)
    with suppress(mc.CommitIncomplete, mc.AbortIncomplete):
        if ends == "recover":
            world.recover(job.job.id)
        else:
            world.abort(job.job.id, revert=True)
    assert [path.read_text() for path in outside.iterdir()] == ["secret"]


@pytest.mark.parametrize("kind", ["directory", "link", "FIFO"])
def test_a_marker_that_is_no_file_is_told(kind: str) -> None:
    """What another program made at `_SUCCESS` stays. The open of a FIFO would wait."""
    world = World()
    world.put("x", b"1")
    marker = world.root / "_SUCCESS"
    makes: dict[str, Callable[[], object]] = {
        "directory": marker.mkdir,
        "link": lambda: marker.symlink_to("nowhere"),
        "FIFO": lambda: os.mkfifo(marker),
    }
    makes[kind]()
    job = world.start(accept="listing")
    write(job, "1", {"a.csv": b"a"})
    assert "_SUCCESS" in " ".join(job.driver().commit(None).warnings)
    assert marker.is_dir() or marker.is_symlink() or marker.is_fifo()


def test_a_destination_that_is_a_file_is_told(tmp_path: Path) -> None:
    """The error says what is there, and the file stays."""
    (tmp_path / "t").write_text("precious")
    for dest in ("t", "t/u"):
        raises(mc.StoreError, mc.start, f"file://{tmp_path}/{dest}", match=r"file|Not a directory")
    assert (tmp_path / "t").read_text() == "precious"


def test_a_cleanup_removes_what_a_killed_late_attempt_left() -> None:
    """Its job had ended when it made its files: nobody else knows them. A live job's stay."""
    world = World()
    late, alive = world.start(), world.start(accept="listing")
    attempt = late.attempt("1")
    opened(attempt, "a").close()
    late.driver().abort()
    write(alive, "1", {"b": b"1"})
    world.put(f"{late.job.paths.attempt_directory(attempt.attempt)}a", b"1")
    world.put(late.job.paths.pendingset(attempt.attempt), b"{}")
    report = mc.cleanup(world.url, leftover_after=0, dry_run=True)
    assert late.job.paths.tree in [line.partition(":")[0] for line in report.did]
    mc.cleanup(world.url, leftover_after=0)
    assert late.job.uuid not in " ".join(world.control())
    alive.driver().commit()
    assert world.data() == {"b": b"1"}


@pytest.mark.parametrize(
    "url", ["file:///data/t#1", "file:///data/t?x", "file:///data/t\tx", "file:///data/%ff"]
)
def test_a_url_never_names_another_directory(url: str) -> None:
    """What a URL cannot hold is refused. A path gets the URL to paste."""
    raises(mc.PathError, tree_url, url)
    assert tree_url(Path("/data/t#1?\tü").as_uri()) == "file:///data/t%231%3F%09%C3%BC/"
    with pytest.raises(mc.PathError, match=r"Write 'file:///data/t', or 's3://bucket/path'"):
        mc.write("/data/t")


@pytest.mark.parametrize("url", ["file:{}/t", "file://{}/t/", "file://localhost{}/t"])
def test_every_form_of_a_file_url_names_the_same_job(tmp_path: Path, url: str) -> None:
    """Java, and so Spark, writes ``file:/x``."""
    started = mc.start(url.format(tmp_path), job_id="one")
    assert mc.attach(f"file://{tmp_path}/t", "one").dest == started.dest == f"file://{tmp_path}/t/"


def test_the_example_does_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """examples/local_disk.py: a failure changes nothing, a dead driver's job is found and ended."""
    local_disk.main(str(tmp_path / "a table"))
    written = "dt=2026-11-21/part-0.csv dt=2026-11-22/part-0.csv"
    assert capsys.readouterr().out.splitlines() == [
        f"written: {written}",
        f"after a failure: {written}",
        "found: True running",
        "ended: aborted",
    ]
    left = {path.name for path in (tmp_path / "a table").iterdir()}
    seen = {name for name in left if not name.startswith("__magic")}  # a closed record stays a day
    assert seen == {"dt=2026-11-21", "dt=2026-11-22", "_SUCCESS"}


def test_a_task_whose_machine_does_not_share_the_directory_is_told(tmp_path: Path) -> None:
    """As an executor of a cluster finds it: it writes nothing, and the error names the reason."""
    job = mc.start((tmp_path / "shared").as_uri())
    (tmp_path / "shared").rename(tmp_path / "elsewhere")
    raises(mc.JobNotRunning, job.task("0").open, "a.csv", match="does not share file:///")
    assert not (tmp_path / "shared").exists()


def test_a_look_makes_nothing(tmp_path: Path) -> None:
    """At a destination that is empty or not there; Hadoop's jobs are on S3 only."""
    for dest in (tmp_path.as_uri(), (tmp_path / "none").as_uri()):
        assert mc.read_stream(dest, "query") is None
        assert mc.abort_stream(dest, "checkpoint") == ()
        with pytest.raises(mc.PathError, match="on a file system: there are no jobs of Hadoop's"):
            mc.adopt(dest, "job")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_cleared_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is committed; its report says what stays, and why."""

    def refused(*_: object) -> int:
        raise PermissionDenied("not yours")

    monkeypatch.setattr(TreeStore, "clear", refused)
    with mc.write((tmp_path / "t").as_uri(), committer="manifest") as job:
        job.write_text("a", "1")
    (told,) = [one for one in job.report.warnings if "files of tasks could not be removed" in one]
    assert "not yours" in told


@pytest.mark.parametrize("committer", ["magic", "manifest"])
def test_a_full_disk_is_named_at_the_start(committer: str, tmp_path: Path) -> None:
    """Not only that there was no clear answer; and no empty directory stays."""
    with full_disk(10):
        raises(
            mc.OutcomeUnknown, mc.start, (tmp_path / "t").as_uri(), committer=committer,
            match=r"could not be written: put of .*: File too large\. Start a new job",
        )  # fmt: skip
    assert not list((tmp_path / "t").iterdir())


@pytest.mark.parametrize("fails", ["write", "close"])
def test_a_full_disk_ends_the_attempt_and_not_the_job(tmp_path: Path, fails: str) -> None:
    """The system refuses a file's bytes: no commit without the file; another attempt may."""
    job = mc.start((tmp_path / "t").as_uri(), committer="manifest")
    task = job.task("1")
    file = task.open("large")
    with full_disk():
        file.write(b"2" * 4000)
        call = file.close if fails == "close" else partial(file.write, bytes(BUFFER_BYTES))
        raises(mc.UploadFailed, call, match="large could not be written: .*too large")
    raises(mc.MagicError, task.commit, match="large")
    with job.task("1") as again:
        again.write_bytes("small", b"1")
    job.commit([again.result])
    assert [path.name for path in (tmp_path / "t").iterdir() if path.name[0] != "_"] == ["small"]


COMMITTERS = pytest.mark.parametrize("committer", ["magic", "manifest"])


@COMMITTERS
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_fails_shows_nothing_half(committer: str, code: int, tmp_path: Path) -> None:
    """What is told as committed is there; a recovery when it works leaves all or nothing."""

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    at, failed = 1, True
    while failed:
        at += 3  # every third one, for time
        root, told = tmp_path / str(at), False
        lay_out(root, before("replace"))
        with (
            served(root, PatientClock()),
            suppress(mc.MagicError),
            Calls(at, fail, syncs=False).watched() as calls,
        ):
            run_job(root, "replace", committer)
            told = True
        with served(root):
            recover(root)
        assert check(root, "replace") or not told
        failed = len(calls.names) >= at
    assert at > 50


@COMMITTERS
def test_a_mount_in_a_file_s_way_is_refused_before_the_decision(
    committer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could be renamed into it: the job is aborted, and none of its files is visible."""
    there = OnDisk(tmp_path / "a table", committer)
    job = there.start()
    with job.task("1") as task:
        write_file(task, "a.csv")
        write_file(task, "p=1/b.csv")
    (there.root / "p=1").mkdir(exist_ok=True)
    mount_of = LocalTree.mount_of

    def mounted(tree: LocalTree, path: str) -> str:
        return "another" if path == "p=1" else mount_of(tree, path)

    monkeypatch.setattr(LocalTree, "mount_of", mounted)
    raises(mc.MagicError, job.commit, match="is mounted from elsewhere")
    assert there.data() == {}
    assert job.state == "closed" or job.abort()
