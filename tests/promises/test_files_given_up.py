"""Files of a task on a file system: what is discarded, renamed or given up is never published, also
where the file system fails, an answer is lost, or a process dies there."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.committers.classic import V1Committer
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.errors import NotFound, PreconditionFailed, StoreError, Unanswered
from tests.destinations import OnDisk
from tests.tree_jobs import Killed, Watched, World, die, lose_the_answer, opened, put

WANTED = {"kept": b"kept", "d/new": b"renamed", "again": b"second"}
CLASSES: tuple[type[ManifestCommitter], ...] = (ManifestCommitter, V1Committer)


def worked(job: ManifestCommitter) -> Any:
    """An attempt that has discarded, renamed and given up files: `WANTED` is what it publishes."""
    attempt: Any = job.attempt("1")
    put(attempt, {"kept": b"kept"})
    put(attempt, {"again": b"first"})
    attempt.discard("again")
    put(attempt, {"again": b"second"})
    put(attempt, {"old": b"renamed"})
    attempt.rename("old", "d/new", unique=False)
    given_up = opened(attempt, "half")
    given_up.write(b"ha")
    given_up.flush()
    given_up.abort()
    put(attempt, {"gone": b"gone"})
    attempt.discard("gone")
    return attempt


def all_verbs() -> range:
    """The numbers of the verbs of an undisturbed run."""
    world = World()
    watched = Watched(world.store)
    job = world.start(watched, kind=ManifestCommitter)
    job.commit_job([worked(job).commit()])
    assert world.data() == WANTED
    return range(1, watched.count + 1)


def broken() -> None:
    """The file system refuses."""
    raise mc.PermissionDenied("no", operation="test")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", [die, lose_the_answer, broken])
def test_what_goes_wrong_anywhere_publishes_all_or_nothing(
    what: Callable[[], None], when: str
) -> None:
    """A death, a lost answer, a refusal, also in a discard and in a rename: what is published is
    whole, and no old name and no discarded file ever appears."""
    outcomes = set()
    for number in all_verbs():
        world = World()
        watched = Watched(world.store, number, **{when: what})  # type: ignore[arg-type]
        try:
            job = world.start(watched, kind=ManifestCommitter)
            result = worked(job).commit()
            if what is not die:
                watched.at = 0  # what the job's own commit does then is tested elsewhere
            job.commit_job([result])
        except Killed:
            world.end_all()
        except mc.MagicError:
            assert world.data() == {}, number
        assert world.data() in ({}, WANTED), number
        outcomes.add(bool(world.data()))
    assert outcomes == {True, False}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("closed", [True, False])
def test_what_could_not_be_removed_is_removed_by_the_commit_or_it_fails(
    kind: type[ManifestCommitter], closed: bool
) -> None:
    """What a program left in the directory is published: a file that was given up must not be."""
    for lasting in (False, True):
        world = World()

        def refuse(verb: str, path: str) -> None:
            if verb == "remove" and path.endswith("/bad"):
                broken()

        job = world.start(None, kind=kind)
        attempt: Any = job.attempt("1")
        put(attempt, {"good": b"good"})
        file = opened(attempt, "bad")
        file.write(b"bad")
        file.flush()
        world.before = refuse
        if closed:
            file.close()
        with pytest.raises(mc.PermissionDenied):
            attempt.discard("bad") if closed else file.abort()
        if not lasting:
            world.before = None
            job.commit_job([attempt.commit()])
            assert world.data() == {"good": b"good"}
            continue
        with pytest.raises(mc.PermissionDenied):
            attempt.commit()
        world.before = None
        assert world.data() == {}


def test_a_discard_may_be_called_again() -> None:
    """After an error the file is out of the attempt, and its name is free when it is gone."""
    world = World()
    job = world.start(None, kind=ManifestCommitter)
    attempt: Any = job.attempt("1")
    put(attempt, {"a": b"1"})
    world.before = lambda verb, path: broken() if verb == "remove" else None
    with pytest.raises(mc.PermissionDenied):
        attempt.discard("a")
    world.before = None
    attempt.discard("a")
    put(attempt, {"a": b"2"})
    job.commit_job([attempt.commit()])
    assert world.data() == {"a": b"2"}


def test_giving_up_a_file_twice_leaves_another_of_that_name(disk: OnDisk) -> None:
    """An old handle's ``abort`` removes nothing that it has not written."""
    with disk.write() as job:
        old = job.open("a")
        old.abort()
        other = job.open("b")
        job.discard("b")
        for name in ("a", "b"):
            with job.open(name) as file:
                file.write(b"new")
        old.abort()
        other.abort()
    assert disk.data() == {"a": b"new", "b": b"new"}


def test_a_rename_that_was_half_done_ends_the_attempt() -> None:
    """The file may have two names: nothing of the attempt is published."""
    world = World()
    job = world.start(None, kind=ManifestCommitter)
    attempt: Any = job.attempt("1")
    put(attempt, {"a": b"1"})
    world.before = lambda verb, path: broken() if verb == "rename" else None
    with pytest.raises(mc.PermissionDenied):
        attempt.rename("a", "b", unique=False)
    world.before = None
    with pytest.raises(mc.TaskFailed, match="nobody can tell which names"):
        attempt.commit()


@pytest.mark.parametrize("told", [Unanswered, NotFound, PreconditionFailed])
def test_a_rename_that_took_effect_is_done_whatever_is_answered(told: type[StoreError]) -> None:
    """The file is looked for where it should be."""

    def answer() -> None:
        raise told("what was done is not told", operation="rename")

    world = World()
    seen = Watched(world.store, on=lambda verb, _: verb == "rename", after=answer)
    job = world.start(seen, kind=ManifestCommitter)
    attempt: Any = job.attempt("1")
    put(attempt, {"a": b"1"})
    attempt.rename("a", "b", unique=False)
    job.commit_job([attempt.commit()])
    assert world.data() == {"b": b"1"}


def test_another_file_at_the_new_name_is_not_the_renamed_one() -> None:
    """The file is gone, and somebody has put another one where it should be."""
    world = World()

    def meddle() -> None:
        (world.root / attempt._root / "a").unlink()
        (world.root / attempt._root / "b").write_bytes(b"another")

    seen = Watched(world.store, on=lambda verb, _: verb == "rename", before=meddle)
    attempt: Any = world.start(seen, kind=ManifestCommitter).attempt("1")
    put(attempt, {"a": b"1"})
    with pytest.raises(NotFound):
        attempt.rename("a", "b", unique=False)
    with pytest.raises(mc.TaskFailed, match="nobody can tell which names"):
        attempt.commit()


def test_a_rename_spares_a_file_that_a_program_has_written(tmp_path: Path) -> None:
    """Nobody has opened it by name: the attempt finds it there."""
    with mc.write(tmp_path.as_uri()) as job:
        (job.directory() / "b").write_bytes(b"of a program")
        with job.open("a") as file:
            file.write(b"1")
        attempt: Any = job._own()
        with pytest.raises(mc.PathError, match="already"):
            attempt.rename("a", "b", unique=False)
    names = ("a", "b")
    assert [(tmp_path / name).read_bytes() for name in names] == [b"1", b"of a program"]


@pytest.mark.parametrize("new", ["b", "_temporary/a", "d/b/c"])
def test_a_name_that_is_taken_or_refused_leaves_the_file_as_it_is(disk: OnDisk, new: str) -> None:
    """A rename to it raises, and the attempt publishes the old name."""
    with disk.start().task("1") as task:
        for name in ("a", "b", "d/b"):
            with task.open(name) as file:
                file.write(name.encode())
        attempt: Any = task._attempt
        with pytest.raises(mc.PathError):
            attempt.rename("a", new, unique=False)
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
    with pytest.raises(mc.TaskFailed, match="committed"):
        calls[call]()
    job.commit([task.result])
    assert disk.data() == {"a": b"1"}


def test_a_program_keeps_its_file_of_a_discarded_name(tmp_path: Path) -> None:
    """What a program writes by its path is its own: a name that was discarded is free for it."""
    with mc.write(tmp_path.as_uri()) as job:
        with job.open("a") as file:
            file.write(b"1")
        job.discard("a")
        (job.directory() / "a").write_bytes(b"program's")
    assert (tmp_path / "a").read_bytes() == b"program's"


# Reading back, and local files --------------------------------------------------------------------


def test_a_large_file_is_read_back_in_any_order(disk: OnDisk) -> None:
    """There is no budget: it is on a disk. ``keep_bytes_max`` changes nothing."""
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


def test_local_files_are_shown_renamed_and_discarded(disk: OnDisk, tmp_path: Path) -> None:
    """A database is written by its path; closed, it is a file of the task like any other, and its
    local copy is gone."""
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
    """Its close does nothing then."""
    with disk.write() as job:
        with job.local_file("a") as local:
            local.write(b"1")
            job.discard("a")
        job.open("b").close()
    assert list(disk.data()) == ["b"]


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
            with pytest.raises(FileNotFoundError):
                fs.cat_file(name)
        assert not fs.exists("d")  # nothing that is shown is in it


def test_what_a_task_wrote_is_gone_when_it_has_ended(disk: OnDisk) -> None:
    """A reader that comes too late is told, as by every file system."""
    with disk.write() as job:
        fs = job.filesystem()
        fs.pipe("a", b"1")
    with pytest.raises(FileNotFoundError, match="is gone"):
        fs.cat_file("a")


def test_attributes_are_refused(disk: OnDisk) -> None:
    """A file has none; the hint says to leave them out."""
    attributes = mc.Attributes(content_type="text/plain")
    with disk.write() as job:
        with pytest.raises(mc.OptionError, match="no attributes"):
            job.filesystem().open("a", "wb", attributes=attributes)
        with pytest.raises(mc.OptionError, match="no attributes"):
            job.put_file(__file__, attributes=attributes)
    assert disk.data() == {}


def test_a_transaction_of_fsspec_that_fails_leaves_nothing(disk: OnDisk) -> None:
    """Its files leave the task, which goes on."""
    with disk.write() as job:
        fs = job.filesystem()
        with pytest.raises(io.UnsupportedOperation), fs.transaction:
            fs.pipe("a", b"1")
            raise io.UnsupportedOperation
        with fs.transaction:
            fs.pipe("b", b"2")
    assert disk.data() == {"b": b"2"}
