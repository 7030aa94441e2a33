"""A task as a file system: what its writer is told, and what is published. Tests with the fixture
`there` hold on S3, on disks under each committer of renames, and on a file system of fsspec."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.stores.memory import MemoryStore
from tests.destinations import There
from tests.promises.hands import DEST, raises, visible

fsspec: Any = pytest.importorskip("fsspec")  # the extra `fsspec`


class Broken(Exception):
    """The writer gave up."""


def test_what_is_written_is_shown_and_appears_at_the_commit(there: There) -> None:
    """Before, the writer sees its files and nobody else does; after, all are objects."""
    with there.write() as job:
        job.open("a").close()
        fs = job.filesystem()
        assert fs.ls("", detail=False) == ["a"]
        fs.pipe({"d/a": b"1", "b": b"22"})
        assert job.filesystem().find("") == fs.find("") == ["a", "b", "d/a"]
        job.discard("a")
        assert fs.find("") == ["b", "d/a"]
        assert fs.info("/b")["size"] == 2
        assert fs.isdir("d")
        assert fs.exists(f"{there.url}/d/a")
        assert not fs.exists("c")
        assert there.data() == {}
    assert there.data() == {"d/a": b"1", "b": b"22"}
    assert there.left() == []


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_an_error_in_a_files_block_gives_the_file_up(there: There, mode: str) -> None:
    """Also if the error is caught inside the job's block: half a file is never published."""
    with there.write() as job:
        fs = job.filesystem()
        fs.pipe("good", b"1")
        with pytest.raises(Broken), fs.open("half", mode) as file:
            file.write(b"1" if "b" in mode else "1")
            raise Broken
        assert not fs.exists("half")
    assert there.data() == {"good": b"1"}
    assert there.left() == []


@pytest.mark.parametrize("closed", [True, False], ids=["a wrapper closes it", "nobody closes it"])
def test_a_file_that_was_cut_short_is_not_published(there: There, closed: bool) -> None:
    """An error in the block aborts a closed file, too; a dropped one has lost bytes."""
    error = Broken if closed else mc.FileStillOpen
    with pytest.raises(error, match="half"), there.write() as job:
        file = job.filesystem().open("half", "wb")
        file.write(b"1")
        if closed:
            file.close()
            raise Broken("half")
        del file
    assert there.data() == {}
    assert there.left() == []


def test_a_file_that_was_not_kept_says_so(s3: MemoryStore) -> None:
    """It cannot be read or renamed, and the limit is named; a removed one makes room again."""
    with mc.write(DEST) as job:
        fs = job.filesystem(keep_bytes_max=80)
        fs.pipe({"d/large": b"x" * 11, "d/small": b"x" * 10})
        for read in (
            fs.cat,
            fs.open,
            lambda name: fs.cp(name, "x"),
            lambda name: fs.get(name, "x"),
        ):
            raises(mc.NotYetAnObject, read, "d/large", match="10 of one file")
        raises(mc.NotYetAnObject, fs.mv, "d", "e", recursive=True, match="renamed")
        assert fs.find("") == ["d/large", "d/small"]
        fs.pipe({str(number): b"x" * 10 for number in range(8)})
        raises(mc.NotYetAnObject, fs.cat, "7")
        fs.rm("0")
        fs.pipe("7", b"y" * 10)
        assert fs.cat("7") == b"y" * 10
    assert {"t/d/large", "t/d/small"} < set(visible(s3))


def test_rm_aborts_uploads(there: There) -> None:
    """Also with a directory, and of a file that is written over."""
    with there.write() as job:
        fs = job.filesystem()
        fs.pipe({"d/a": b"1", "d/e/b": b"2", "c": b"3"})
        raises(OSError, fs.rm, "d", match="not empty")
        fs.rm("d", recursive=True)
        assert fs.find("") == ["c"]
        raises(FileNotFoundError, fs.rm, "d")
        fs.pipe("c", b"4")
        raises(FileExistsError, fs.open, "c", "xb")
        raises(mc.NotYetAnObject, fs.open, "c", "ab", match="'ab'")
    assert there.data() == {"c": b"4"}
    assert there.left() == []


def test_read_through_shows_the_destination_and_changes_nothing_there(there: There) -> None:
    """Old objects are shown and read, and neither deleted nor renamed."""
    there.put("d/old", b"old")
    with there.write() as job:
        assert not job.filesystem().exists("d/old")
        fs = job.filesystem(read_through=True)
        fs.pipe("d/new", b"new")
        assert fs.cat("d/old") == b"old"
        for change, target in (("rm", ()), ("mv", ("e",))):
            with pytest.raises(PermissionError, match="mode='replace'"):
                getattr(fs, change)("d", *target, recursive=True)
            assert fs.find("") == ["d/new", "d/old"]
    assert there.data() == {"d/old": b"old", "d/new": b"new"}


def test_what_would_lose_a_file_is_refused(there: There) -> None:
    """A URL elsewhere, a compression that loses its end, and a pickle."""
    with there.write() as job:
        fs = job.filesystem()
        for url in (f"{there.url}2/a", "s3://other/t/a", "file:///other/t/a", "gs://bucket/t/a"):
            raises(mc.PathError, fs.open, url, "wb", match=f"not below {there.url}/")
        raises(mc.OptionError, fs.open, "a.gz", "wb", compression="gzip", match=r"gzip\.open")
        raises(pickle.PicklingError, pickle.dumps, fs, match="does not travel")


def test_urls_mean_the_open_block(there: There) -> None:
    """``magic://`` writes files of the block whose destination it is below; outside it raises."""
    fsspec.register_implementation("magic", "magic_committer.filesystem.urls.MagicUrls", True)
    raises(mc.OptionError, fsspec.open(f"magic://{there.bare}/a", "wb").open, match="no `with")
    with there.write() as job, mc.write(f"{there.url}/deep", **there.terms) as deep:
        with fsspec.open(f"magic://{there.bare}/a", "w") as file:
            file.write("1")
        with fsspec.open(f"magic://{there.bare}/deep/b", "wb") as file:
            file.write(b"2")
        fs = fsspec.filesystem("magic")
        assert fs.ls(f"magic://{there.bare}", detail=False) == [f"{there.bare}/a"]
        assert (job.filesystem().find(""), deep.filesystem().find("")) == (["a"], ["b"])
        with there.write(), pytest.raises(mc.OptionError, match="2 open blocks"):
            fs.exists(f"magic://{there.bare}/a") or fs.info(f"magic://{there.bare}/a")
    assert there.data() == {"a": b"1", "deep/b": b"2"}


def test_directories_are_renamed_with_what_is_in_them(there: There) -> None:
    """Into another one, and under another name; to its own name changes nothing."""
    with there.write() as job:
        fs = job.filesystem()
        fs.pipe({"p/d/a": b"1", "p/d/e/b": b"2", "x/c": b"3"})
        fs.mv("p/d", "p/y", recursive=True)
        fs.mv("p/y", "x/", recursive=True)
        fs.mv("x/c", "/x/c")
        fs.cp("x/c", f"{there.url}/x/c")
        fs.cp("x/c", "copy")
        assert fs.cat("x/c") == b"3"
        found = fs.find("x", withdirs=True)
        assert found == ["x", "x/c", "x/y", "x/y/a", "x/y/e", "x/y/e/b"]
        assert fs.find("p") == []
    assert there.data() == {"copy": b"3", "x/c": b"3", "x/y/a": b"1", "x/y/e/b": b"2"}
    assert there.left() == []


def test_an_open_file_is_neither_read_nor_renamed(there: There) -> None:
    """It has not all its bytes; nothing else of that call is renamed either."""
    with there.write() as job:
        fs = job.filesystem()
        fs.pipe("d/a", b"1")
        with fs.open("d/b", "wb") as file:
            raises(mc.NotYetAnObject, fs.cat, "d/b", match="still being written")
            raises(mc.NotYetAnObject, fs.mv, "d", "e", recursive=True, match="still being written")
            file.write(b"2")
        assert fs.find("") == ["d/a", "d/b"]
    assert there.data() == {"d/a": b"1", "d/b": b"2"}


def test_unique_names_stay_unique_when_renamed(there: There) -> None:
    """The writer sees the new name; the published one has the job's UUID, once."""
    with there.write() as job:
        fs = job.filesystem(unique=True)
        fs.pipe("a.csv", b"1")
        fs.mv("a.csv", "b.csv")
        assert fs.cat("b.csv") == b"1"
        job.discard("b.csv", unique=True)
        fs.pipe("b.csv", b"2")
    assert there.data() == {f"b-mcj{job.job.uuid}.csv": b"2"}
