"""What a task discards, renames or gives up is never published, whatever fails or dies."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.committers.manifest import ManifestCommitter, V1Committer
from magic_committer.errors import NotFound, PreconditionFailed, StoreError, Unanswered
from tests.destinations import OnDisk
from tests.promises.hands import raises, write
from tests.tree_jobs import Killed, Watched, World, die, lose_the_answer, opened, put

WANTED = {"kept": b"kept", "d/new": b"renamed", "again": b"second"}
CLASSES: tuple[type[ManifestCommitter], ...] = (ManifestCommitter, V1Committer)


def worked(attempt: Any) -> mc.TaskCommit:
    """An attempt that has discarded, renamed and given up files: `WANTED` is what it publishes."""
    put(attempt, {"kept": b"kept", "again": b"first"})
    attempt.discard("again")
    put(attempt, {"again": b"second", "old": b"renamed"})
    attempt.rename("old", "d/new", unique=False)
    given_up = opened(attempt, "half")
    given_up.write(b"ha")
    given_up.flush()
    given_up.abort()
    put(attempt, {"gone": b"gone"})
    attempt.discard("gone")
    committed: mc.TaskCommit = attempt.commit()
    return committed


def attempt_of(
    world: World, seen: Any = None, kind: type[ManifestCommitter] = ManifestCommitter
) -> Any:
    """A job, and an attempt of it."""
    job = world.start(seen, kind=kind)
    return job, job.attempt("1")


def broken() -> None:
    """The file system refuses."""
    raise mc.PermissionDenied("no", operation="test")


def refuses(verb: str, path: str = "") -> Callable[[str, str], None]:
    """The file system refuses such a verb."""
    return lambda called, at: broken() if called == verb and at.endswith(path) else None


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", [die, lose_the_answer, broken])
def test_a_fault_anywhere_publishes_all_or_nothing(what: Callable[[], None], when: str) -> None:
    """Also in a discard and in a rename: no old name and no discarded file ever appears."""
    outcomes = set()
    for number in count(1):
        world = World()
        watched = Watched(world.store, number, **{when: what})  # type: ignore[arg-type]
        try:
            job, attempt = attempt_of(world, watched)
            result = worked(attempt)
            if what is not die:
                watched.at = 0  # what the job's own commit does then is tested elsewhere
            job.driver().commit([result])
        except Killed:
            world.end_all()
        except mc.MagicError:
            assert world.data() == {}, number
        assert world.data() in ({}, WANTED), number
        outcomes.add(bool(world.data()))
        if watched.count < number:
            break
    assert outcomes == {True, False}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("closed", [True, False])
def test_what_stays_is_removed_by_the_commit(kind: type[ManifestCommitter], closed: bool) -> None:
    """What a program left in the directory is published: a file that was given up must not be."""
    for lasting in (False, True):
        world = World()
        job, attempt = attempt_of(world, kind=kind)
        put(attempt, {"good": b"good"})
        file = opened(attempt, "bad")
        file.write(b"bad")
        file.flush()
        if closed:
            file.close()
        world.before = refuses("remove", "/bad")
        with pytest.raises(mc.PermissionDenied):
            attempt.discard("bad") if closed else file.abort()
        if lasting:
            raises(mc.PermissionDenied, attempt.commit)
            world.before = None
        else:
            world.before = None
            job.driver().commit([attempt.commit()])
        assert world.data() == ({} if lasting else {"good": b"good"})


def test_giving_up_a_file_twice_leaves_another_of_that_name(disk: OnDisk) -> None:
    """An old handle's ``abort`` removes nothing that it has not written."""
    with disk.write() as job:
        old = job.open("a")
        old.abort()
        other = job.open("b")
        job.discard("b")
        write(job, "a", b"new")
        write(job, "b", b"new")
        old.abort()
        other.abort()
    assert disk.data() == {"a": b"new", "b": b"new"}


@pytest.mark.parametrize("deed", ["is refused", "another file is there"])
def test_a_rename_that_was_half_done_ends_the_attempt(deed: str) -> None:
    """The file may have two names, or another be in its place: nothing is published."""
    world = World()
    _, attempt = attempt_of(world)
    put(attempt, {"a": b"1"})

    def meddle(verb: str, path: str) -> None:
        if verb == "rename":
            if deed == "is refused":
                broken()
            (world.root / attempt._root / "a").unlink()
            (world.root / attempt._root / "b").write_bytes(b"another")

    world.before = meddle
    with pytest.raises(mc.PermissionDenied if deed == "is refused" else NotFound):
        attempt.rename("a", "b", unique=False)
    world.before = None
    raises(mc.TaskFailed, attempt.commit, match="nobody can tell which names")


@pytest.mark.parametrize("told", [Unanswered, NotFound, PreconditionFailed])
def test_a_rename_that_took_effect_is_done_whatever_is_answered(told: type[StoreError]) -> None:
    """The file is looked for where it should be."""

    def answer() -> None:
        raise told("what was done is not told", operation="rename")

    world = World()
    seen = Watched(world.store, on=lambda verb, _: verb == "rename", after=answer)
    job, attempt = attempt_of(world, seen)
    put(attempt, {"a": b"1"})
    attempt.rename("a", "b", unique=False)
    job.driver().commit([attempt.commit()])
    assert world.data() == {"b": b"1"}


def test_a_rename_spares_a_file_that_a_program_has_written(tmp_path: Path) -> None:
    """Nobody has opened it by name. A discarded name is free for a program's own file."""
    with mc.write(tmp_path.as_uri()) as job:
        write(job, "c")
        job.discard("c")
        for name in ("b", "c"):
            (job.directory() / name).write_bytes(b"of a program")
        write(job, "a")
        attempt: Any = job._own()
        raises(mc.PathError, attempt.rename, "a", "b", unique=False, match="already")
    found = [(tmp_path / name).read_bytes() for name in ("a", "b", "c")]
    assert found == [b"1", b"of a program", b"of a program"]


@pytest.mark.parametrize("new", ["b", "_temporary/a", "d/b/c"])
def test_a_name_that_is_taken_or_refused_leaves_the_file_as_it_is(disk: OnDisk, new: str) -> None:
    """A rename to it raises, and the attempt publishes the old name."""
    with disk.start().task("1") as task:
        for name in ("a", "b", "d/b"):
            write(task, name, name.encode())
        attempt: Any = task._attempt
        raises(mc.PathError, attempt.rename, "a", new, unique=False)
        assert task.filesystem().cat("a") == b"a"
    assert task.result.files == 3


@pytest.mark.parametrize("call", ["discard", "filesystem", "put_file", "mv"])
def test_a_committed_task_takes_no_changes(disk: OnDisk, call: str, tmp_path: Path) -> None:
    """A driver may have accepted it: it publishes what it had."""
    (tmp_path / "x").write_bytes(b"x")
    job = disk.start()
    with job.task("1") as task:
        fs = task.filesystem()
        fs.pipe("a", b"1")
    calls: dict[str, Callable[[], object]] = {
        "discard": lambda: task.discard("a"),
        "filesystem": lambda: fs.pipe("b", b"2"),
        "put_file": lambda: task.put_file(tmp_path / "x"),
        "mv": lambda: fs.mv("a", "b"),
    }
    raises(mc.TaskFailed, calls[call], match="committed")
    job.commit([task.result])
    assert disk.data() == {"a": b"1"}


def test_a_large_file_is_read_back_in_any_order(disk: OnDisk) -> None:
    """It is on a disk: there is no budget. A reader that comes too late is told."""
    body = bytes(range(256)) * 4096 * 12
    with disk.write() as job:
        fs = job.filesystem(keep_bytes_max=0)
        fs.pipe("large", body)
        with fs.open("large", "rb") as file:
            file.seek(5 * 1024**2 + 7)
            assert file.read(3) == b"\x07\x08\x09"
        assert fs.cat_file("large", start=10, end=12) == b"\x0a\x0b"
        fs.mv("large", "d/large")
    assert disk.data() == {"d/large": body}
    raises(FileNotFoundError, fs.cat_file, "d/large", match="is gone")


def test_local_files_are_shown_renamed_and_discarded(disk: OnDisk, tmp_path: Path) -> None:
    """Closed, it is a file of the task like any other, and its local copy is gone."""
    with disk.write() as job:
        fs = job.filesystem()
        for name in ("a.db", "b.db"):
            with job.local_file(name) as local, sqlite3.connect(local.path) as database:
                database.execute("create table t (n)")
                path = local.path
            assert not path.exists()
        assert fs.find("") == ["a.db", "b.db"]
        assert fs.info("a.db")["size"] == len(fs.cat("a.db")) > 0
        fs.mv("a.db", "c.db")
        job.discard("b.db")
    (body,) = disk.data().values()
    assert list(disk.data()) == ["c.db"]
    copy = tmp_path / "copy.db"
    copy.write_bytes(body)
    assert sqlite3.connect(copy).execute("select count(*) from t").fetchone() == (0,)


def test_an_open_local_file_is_discarded(disk: OnDisk) -> None:
    """Its close does nothing then. A failed transaction of fsspec leaves nothing of its files."""
    with disk.write() as job:
        with job.local_file("a") as local:
            local.write(b"1")
            job.discard("a")
        fs = job.filesystem()
        with pytest.raises(io.UnsupportedOperation), fs.transaction:
            fs.pipe("c", b"1")
            raise io.UnsupportedOperation
        with fs.transaction:
            fs.pipe("b", b"2")
    assert disk.data() == {"b": b"2"}


def test_no_link_is_shown_or_followed(tmp_path: Path) -> None:
    """``read_through``: whoever may write to the destination may have made it lead elsewhere."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_bytes(b"secret")
    table = tmp_path / "t"
    (table / "d").mkdir(parents=True)
    (table / "file").symlink_to(tmp_path / "secret" / "key")
    (table / "d" / "link").symlink_to(tmp_path / "secret")
    with mc.write(table.as_uri()) as job:
        fs = job.filesystem(read_through=True)
        assert fs.find("") == []
        for name in ("file", "d/link", "d/link/key", "_temporary"):
            assert not fs.exists(name)
            raises(FileNotFoundError, fs.cat_file, name)
        assert not fs.exists("d")  # nothing that is shown is in it


def test_attributes_are_refused(disk: OnDisk) -> None:
    """A file has none; the hint says to leave them out."""
    attributes = mc.Attributes(content_type="text/plain")
    with disk.write() as job:
        for call in (
            lambda: job.filesystem().open("a", "wb", attributes=attributes),
            lambda: job.put_file(__file__, attributes=attributes),
        ):
            raises(mc.OptionError, call, match="no attributes")
    assert disk.data() == {}
