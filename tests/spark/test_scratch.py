"""The scratch directory of ``via=``: whose it is, what is read from it, and what is removed."""

from __future__ import annotations

import gzip
import json
import logging
import os
import pickle
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer import _wiring
from magic_committer.maintenance.reports import DEAD_AFTER_SECONDS
from magic_committer.spark import scratch
from magic_committer.spark.scratch import FORMAT, ScratchPlace, StagedFile, Staging, remove_dead

UUID, OTHER = "0" * 31 + "1", "0" * 31 + "2"
DEST = "s3://bucket/table/"


@pytest.fixture
def place(tmp_path: Path) -> ScratchPlace:
    """An empty ``via``."""
    return ScratchPlace.parse(tmp_path.as_uri())


def committed(scratch: Staging, **files: str) -> Path:
    """What Spark's writer would leave; gives the folder of the data."""
    data = Path(scratch.path, "data")
    for name, text in {"_SUCCESS": "", **files}.items():
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return data


def age(folder: Path, seconds: float) -> None:
    """Make all of a directory older."""
    for path in (*folder.rglob("*"), folder):
        at = path.lstat().st_mtime - seconds
        os.utime(path, (at, at), follow_symlinks=False)


def dead(place: ScratchPlace, uuid: str, seconds: float) -> Path:
    """The directory of a driver that was killed so long ago."""
    scratch = Staging.make(place, uuid, DEST)
    committed(scratch, part="rows")
    age(Path(scratch.path), seconds)
    return Path(scratch.path)


@pytest.mark.parametrize(
    ("via", "url", "path"),
    [
        ("file:///scratch", "file:///scratch", "/scratch"),
        ("file:///scratch//a b%20/", "file:///scratch/a b%20", "/scratch/a b%20"),
        ("hdfs://name:8020/scratch/", "hdfs://name:8020/scratch", "/scratch"),
        ("hdfs:///scratch", "hdfs:///scratch", "/scratch"),
    ],
)
def test_a_via_is_understood(via: str, url: str, path: str) -> None:
    """A local URL and one of HDFS give what Spark is told and what pyarrow is asked."""
    place = ScratchPlace.parse(via)
    assert (place.url, place.path) == (url, path)


@pytest.mark.parametrize(
    "via", ["/scratch", "scratch", "file://host/scratch", "file:///", "s3://b/x", "hdfs://n", ""]
)
def test_another_via_is_refused(via: str) -> None:
    """Relative, remote and unknown places are refused, and the error shows one that is none."""
    with pytest.raises(mc.OptionError, match="Pass an absolute URL like 'file:///scratch'"):
        ScratchPlace.parse(via)


def test_a_via_that_is_no_text_is_refused() -> None:
    """A Path is refused with the URL to pass; so is anything else."""
    with pytest.raises(mc.WrongType, match="Pass via='file:///scratch/a%20b'"):
        ScratchPlace.parse(Path("/scratch/a b"))
    with pytest.raises(mc.WrongType, match="via is a URL, not 7"):
        ScratchPlace.parse(7)


def test_a_via_that_is_not_there_is_refused(place: ScratchPlace) -> None:
    """A directory that does not exist, and a file, are refused on the driver."""
    place.check()
    Path(place.path, "file").touch()
    for name in ("missing", "file"):
        with pytest.raises(mc.OptionError, match="there is no such directory on the driver"):
            ScratchPlace.parse(f"{place.url}/{name}").check()


def test_hdfs_without_its_library_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python cannot reach HDFS, the error says what pyarrow needs, and not each of the
    hundred places where it looked."""
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(mc.OptionError, match=r"libhdfs and its class path") as caught:
        ScratchPlace.parse("hdfs://127.0.0.1:1/scratch").check()
    assert "\n" not in str(caught.value)


def test_a_directory_is_its_owners(place: ScratchPlace) -> None:
    """Nobody but its user may look into a job's directory, which names the job."""
    scratch = Staging.make(place, UUID, DEST)
    assert stat.S_IMODE(os.stat(scratch.path).st_mode) == 0o700
    owner = json.loads(Path(scratch.path, "owner.json").read_text())
    assert (owner["format"], owner["job"], owner["dest"]) == (FORMAT, UUID, DEST)


def test_one_that_cannot_be_made_is_an_error_that_says_why(place: ScratchPlace) -> None:
    """A directory that is there already, or cannot be made, ends the job at its start."""
    Staging.make(place, UUID, DEST)
    with pytest.raises(mc.OptionError, match=r"a directory cannot be made there: .*exists"):
        Staging.make(place, UUID, DEST)


def test_a_process_tells_whether_it_sees_the_directory(place: ScratchPlace) -> None:
    """Nothing is wrong where the directory is; a missing one, another one of the same name, and one
    that is not ours are told."""
    scratch = Staging.make(place, UUID, DEST)
    there = pickle.loads(pickle.dumps(scratch))
    assert there.wrong_here() == ""
    other = Staging(place, UUID, "another nonce")
    assert other.wrong_here().endswith(": another directory has this name")
    Path(scratch.path, "owner.json").write_text("[]")
    assert "another directory" in scratch.wrong_here()
    assert scratch.remove()
    assert "owner.json" in scratch.wrong_here()


def test_what_is_staged_is_what_was_committed(place: ScratchPlace) -> None:
    """Names, sizes and times of all files, those of partitions too; hidden files and what tasks
    have not committed are no output."""
    scratch = Staging.make(place, UUID, DEST)
    data = committed(
        scratch,
        **{
            "part-1": "abc", "day=1/hour=2/part-1": "", "_metadata": "m", ".part-1.crc": "c",
            "_temporary/0/part-2": "half", "day=1/.part-1.crc": "c",
        },
    )  # fmt: skip
    assert scratch.staged() == [
        StagedFile(name, len(text), (data / name).stat().st_mtime_ns)
        for name, text in (("day=1/hour=2/part-1", ""), ("part-1", "abc"))
    ]


@pytest.mark.parametrize("there", [True, False])
def test_a_write_that_did_not_finish_is_not_listed(place: ScratchPlace, there: bool) -> None:
    """Without the marker of Spark's writer there may be a part of the files: that is an error."""
    scratch = Staging.make(place, UUID, DEST)
    if there:
        (committed(scratch, part="rows") / "_SUCCESS").unlink()
    with pytest.raises(mc.MagicError, match="left no _SUCCESS"):
        scratch.staged()


def read(scratch: Staging, file: StagedFile) -> bytes:
    """All of a file."""
    chunks: list[bytes] = []
    scratch.read(file, chunks.append, 2)
    return b"".join(chunks)


def longer(path: Path) -> None:
    """More bytes at the same time."""
    at = path.stat().st_mtime_ns
    path.write_text("rowsrows")
    os.utime(path, ns=(at, at))


def later(path: Path) -> None:
    """The same bytes at another time."""
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [longer, later, Path.unlink])
def test_a_file_that_changed_is_not_read(
    place: ScratchPlace, change: Callable[[Path], None]
) -> None:
    """A file is read as it was listed; one of another size or time, or none, is an error."""
    scratch = Staging.make(place, UUID, DEST)
    data = committed(scratch, part="rows!")
    (file,) = scratch.staged()
    assert read(scratch, file) == b"rows!"
    change(data / "part")
    with pytest.raises(mc.MagicError, match="is not what Spark's writer left"):
        read(scratch, file)


def test_packed_files_stay_packed(place: ScratchPlace) -> None:
    """A file whose name says that it is compressed is read byte for byte."""
    scratch = Staging.make(place, UUID, DEST)
    data = committed(scratch)
    (data / "part.csv.gz").write_bytes(gzip.compress(b"rows"))
    (file,) = scratch.staged()
    assert gzip.decompress(read(scratch, file)) == b"rows"


def test_a_file_that_changes_while_it_is_read_is_given_up(place: ScratchPlace) -> None:
    """Bytes that are added, or changed, after the first look are noticed at the end."""
    scratch = Staging.make(place, UUID, DEST)
    data = committed(scratch, part="rows")
    (file,) = scratch.staged()
    with pytest.raises(mc.MagicError, match="6 bytes were read"):
        scratch.read(file, lambda _: (data / "part").write_text("rows++"), 2)
    (file,) = scratch.staged()
    with pytest.raises(mc.MagicError, match="planned were 6 bytes"):
        scratch.read(file, lambda _: later(data / "part"), 2)


def test_what_a_killed_driver_left_is_removed_by_its_age(
    place: ScratchPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """A later job removes a directory without a sign of life for a day, and no younger one; and
    says so."""
    old = dead(place, "a" * 32, DEAD_AFTER_SECONDS + 60)
    young = dead(place, "b" * 32, DEAD_AFTER_SECONDS - 60)
    own = Staging.make(place, UUID, DEST)
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert remove_dead(own) == [str(old)]
    assert str(old) in caplog.text
    assert not old.exists()
    assert Path(young, "data", "part").read_text() == "rows"
    assert own.wrong_here() == ""


def test_a_driver_that_lives_keeps_its_directory(
    place: ScratchPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a job takes: its driver gives signs of life, and one of them is enough."""
    signs: list[Callable[[], bool]] = []

    def every(seconds: float, sign: Callable[[], bool]) -> Callable[[], None]:
        signs.append(sign)
        return signs.clear

    monkeypatch.setattr(_wiring.pool, "every", every)
    long = Staging.make(place, OTHER, DEST)
    end_life = long.keep_alive()
    age(Path(long.path), DEAD_AFTER_SECONDS * 3)
    assert [sign() for sign in signs] == [True]
    own = Staging.make(place, UUID, DEST)
    assert remove_dead(own) == []
    end_life()
    assert signs == []


def test_what_is_not_ours_is_never_removed(place: ScratchPlace, tmp_path: Path) -> None:
    """However old: other names, directories of that name with another owner, without one or with
    more in them, files, and links."""
    dead(place, "a" * 32, 0).rename(tmp_path / "magic-tables")
    dead(place, "b" * 32, 0).rename(tmp_path / f"magic-{'c' * 32}")
    for number, said in enumerate(("[]", "", '{"format": "x", "job": "%s"}'), 16):
        name = f"magic-{number:032x}"
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner.json").write_text(said % name[6:] if "%" in said else said)
    (tmp_path / f"magic-{'d' * 32}" / "data").mkdir(parents=True)
    (tmp_path / f"magic-{'d' * 32}" / "data" / "table.parquet").touch()
    (tmp_path / f"magic-{'e' * 32}").touch()
    dead(place, "f" * 32, 0).rename(tmp_path / "elsewhere")
    (tmp_path / f"magic-{'f' * 32}").symlink_to(tmp_path / "elsewhere")
    age(tmp_path, DEAD_AFTER_SECONDS * 9)
    before = sorted(tmp_path.rglob("*"))
    own = Staging.make(place, UUID, DEST)
    assert remove_dead(own) == []
    assert own.remove()
    assert sorted(tmp_path.rglob("*")) == before


def test_another_user_s_directory_is_not_looked_into(
    place: ScratchPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even opened: a pipe in it would stop the job for ever."""
    theirs = dead(place, OTHER, DEAD_AFTER_SECONDS + 60)
    own = Staging.make(place, UUID, DEST)
    real = os.lstat

    def lstat(path: str) -> os.stat_result:
        seen = list(real(path))
        seen[stat.ST_UID] += path == str(theirs)
        return os.stat_result(seen)

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", lstat)
        assert remove_dead(own) == []
    assert theirs.exists()
    assert remove_dead(own) == [str(theirs)]


@pytest.mark.parametrize("asked", ["_is_ours", "_owner_of"])
def test_a_directory_that_vanishes_while_it_is_looked_at_is_passed_over(
    place: ScratchPlace, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Two jobs may remove the same dead directory: neither fails, and the rest is still removed."""
    first = dead(place, "2" * 32, DEAD_AFTER_SECONDS + 60)
    second = dead(place, "3" * 32, DEAD_AFTER_SECONDS + 60)
    own = Staging.make(place, UUID, DEST)
    real = getattr(scratch, asked)

    def answer_then_vanish(files: Any, path: str, *rest: str) -> Any:
        told = real(files, path, *rest)
        if path == str(first):
            shutil.rmtree(first)
        return told

    monkeypatch.setattr(scratch, asked, answer_then_vanish)
    assert remove_dead(own) == [str(second)]


def test_an_owner_file_of_any_depth_harms_nobody(place: ScratchPlace) -> None:
    """JSON that is too deep for the parser is not ours."""
    odd = dead(place, OTHER, 0)
    (odd / "owner.json").write_text("[" * 60_000)
    age(odd, DEAD_AFTER_SECONDS + 60)
    assert remove_dead(Staging.make(place, UUID, DEST)) == []
    assert odd.exists()


def test_what_a_late_task_made_anew_is_removed(place: ScratchPlace, tmp_path: Path) -> None:
    """A JVM task that outlives its job makes the directory again, without its owner: nothing but a
    writer's own temporary files. It goes by its age, too."""
    bones = tmp_path / f"magic-{OTHER}"
    (bones / "data" / "_temporary" / "0").mkdir(parents=True)
    (bones / "data" / "_temporary" / "0" / "part-1").touch()
    own = Staging.make(place, UUID, DEST)
    assert remove_dead(own) == []
    age(bones, DEAD_AFTER_SECONDS + 60)
    assert remove_dead(own) == [str(bones)]
    assert not bones.exists()


def test_a_directory_that_cannot_be_removed_is_told(
    place: ScratchPlace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A removal that fails does not fail the job: the log names the directory, and says when it
    goes."""

    class Busy:
        def delete_dir(self, path: str) -> None:
            raise OSError(16, "Device or resource busy")

    scratch = Staging.make(place, UUID, DEST)
    monkeypatch.setitem(place.__dict__, "files", Busy())
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert not scratch.remove()
    assert scratch.path in caplog.text
    assert "after 24 hours" in caplog.text
    monkeypatch.undo()
    assert scratch.remove()
    assert scratch.remove()
