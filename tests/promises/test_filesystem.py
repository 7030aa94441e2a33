"""A task as a file system: what its writer is told, and what is published."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, visible

fsspec: Any = pytest.importorskip("fsspec")  # the extra `fsspec`


class Broken(Exception):
    """The writer gave up."""


def test_what_is_written_is_shown_and_appears_at_the_commit(s3: MemoryStore) -> None:
    """Before: the writer sees its files, nobody else does. After: all are objects."""
    with mc.write(DEST) as job:
        fs = job.filesystem()
        assert fs.ls("") == []
        fs.pipe({"d/a": b"1", "b": b"22"})
        assert fs.find("") == ["b", "d/a"]
        assert fs.info("/b")["size"] == 2
        assert fs.isdir("d")
        assert fs.exists("s3://bucket/t/d/a")
        assert not fs.exists("c")
        assert visible(s3) == {}
    assert visible(s3) == {"t/d/a": b"1", "t/b": b"22"}
    assert s3.open_uploads() == ()


def test_all_file_systems_of_a_task_and_open_show_the_same(s3: MemoryStore) -> None:
    """A file of `open`, before and after the first call of `filesystem`, is shown by each."""
    with mc.write(DEST) as job:
        job.open("a").close()
        fs = job.filesystem()
        job.open("b").close()
        assert job.filesystem().find("") == fs.find("") == ["a", "b"]
        job.discard("a")
        assert fs.find("") == ["b"]


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_an_error_in_a_files_block_gives_the_file_up(s3: MemoryStore, mode: str) -> None:
    """Also if the error is caught inside the job's block: half a file is never published."""
    with mc.write(DEST) as job:
        fs = job.filesystem()
        fs.pipe("good", b"1")
        with pytest.raises(Broken), fs.open("half", mode) as file:
            file.write(b"1" if "b" in mode else "1")
            raise Broken
        assert not fs.exists("half")
    assert visible(s3) == {"t/good": b"1"}
    assert s3.open_uploads() == ()


def test_a_wrapper_that_closes_on_an_error_publishes_nothing(s3: MemoryStore) -> None:
    """The task decides: the error that leaves the job's block aborts the closed file, too."""
    with pytest.raises(Broken), mc.write(DEST) as job:
        file = job.filesystem().open("half", "wb")
        try:
            file.write(b"1")
            raise Broken
        finally:
            file.close()
    assert visible(s3) == {}
    assert s3.open_uploads() == ()


def test_a_file_that_nobody_closed_is_refused(s3: MemoryStore) -> None:
    """A dropped file has lost bytes: the commit says which it is, and nothing appears."""
    with pytest.raises(mc.FileStillOpen, match="lost"), mc.write(DEST) as job:
        job.filesystem().open("lost", "wb").write(b"1")
    assert visible(s3) == {}
    assert s3.open_uploads() == ()


def test_a_small_file_is_read_copied_and_renamed(s3: MemoryStore) -> None:
    """Its bytes were kept. What was renamed is there once."""
    with mc.write(DEST) as job:
        fs = job.filesystem()
        fs.pipe("a", b"12")
        assert fs.cat("a") == b"12"
        fs.cp("a", "copy")
        fs.mv("a", "d/b")
        assert fs.find("") == ["copy", "d/b"]
    assert visible(s3) == {"t/copy": b"12", "t/d/b": b"12"}
    assert s3.open_uploads() == ()


def test_a_file_that_was_not_kept_says_so(s3: MemoryStore) -> None:
    """Reading and renaming name the limit; the rename changes nothing, and the file appears."""
    with mc.write(DEST) as job:
        fs = job.filesystem(keep_bytes_max=80)
        fs.pipe({"d/large": b"x" * 11, "d/small": b"x" * 10})
        with pytest.raises(mc.NotYetAnObject, match="10 of one file"):
            fs.cat("d/large")
        with pytest.raises(mc.NotYetAnObject, match="renamed"):
            fs.mv("d", "e", recursive=True)
        assert fs.find("") == ["d/large", "d/small"]
    assert sorted(visible(s3)) == ["t/d/large", "t/d/small"]


def test_all_kept_bytes_together_have_a_limit(s3: MemoryStore) -> None:
    """The ninth file of an eighth each is not kept; when one is removed there is room again."""
    with mc.write(DEST) as job:
        fs = job.filesystem(keep_bytes_max=80)
        fs.pipe({str(number): b"x" * 10 for number in range(9)})
        with pytest.raises(mc.NotYetAnObject):
            fs.cat("8")
        fs.rm("0")
        fs.pipe("8", b"y" * 10)
        assert fs.cat("8") == b"y" * 10


def test_rm_aborts_uploads(s3: MemoryStore) -> None:
    """A directory is removed with all its files; what is missing is an error."""
    with mc.write(DEST) as job:
        fs = job.filesystem()
        fs.pipe({"d/a": b"1", "d/e/b": b"2", "c": b"3"})
        with pytest.raises(OSError, match="not empty"):
            fs.rm("d")
        fs.rm("d", recursive=True)
        assert fs.find("") == ["c"]
        with pytest.raises(FileNotFoundError):
            fs.rm("d")
    assert visible(s3) == {"t/c": b"3"}
    assert s3.open_uploads() == ()


def test_a_file_is_written_over(s3: MemoryStore) -> None:
    """The last one counts, ``xb`` refuses, and the first one's upload is aborted."""
    with mc.write(DEST) as job:
        fs = job.filesystem()
        fs.pipe("a", b"1")
        fs.pipe("a", b"2")
        with pytest.raises(FileExistsError):
            fs.open("a", "xb")
        with pytest.raises(mc.NotYetAnObject, match="'ab'"):
            fs.open("a", "ab")
    assert visible(s3) == {"t/a": b"2"}
    assert s3.open_uploads() == ()


def test_read_through_shows_the_destination_and_deletes_nothing(s3: MemoryStore) -> None:
    """Without it a writer meets an empty directory; with it old objects are shown and read."""
    s3.put("t/d/old", b"old")
    with mc.write(DEST) as job:
        assert not job.filesystem().exists("d/old")
        fs = job.filesystem(read_through=True)
        fs.pipe("d/new", b"new")
        assert fs.find("") == ["d/new", "d/old"]
        assert fs.cat("d/old") == b"old"
        with pytest.raises(PermissionError, match="mode='replace'"):
            fs.rm("d", recursive=True)
        assert fs.exists("d/new")
    assert visible(s3) == {"t/d/old": b"old", "t/d/new": b"new"}


def test_unique_names_are_shown_as_they_were_given(s3: MemoryStore) -> None:
    """The writer sees ``a.csv``; the object's name has the job's UUID."""
    with mc.write(DEST) as job:
        fs = job.filesystem(unique=True)
        fs.pipe({"a.csv": b"1", "b.csv": b"2"})
        fs.rm("b.csv")
        assert fs.find("") == ["a.csv"]
    assert list(visible(s3)) == [f"t/a-mcj{job.job.uuid}.csv"]


def test_a_path_elsewhere_is_refused(s3: MemoryStore) -> None:
    """A URL outside of the destination is an error that names the destination."""
    with mc.write(DEST) as job:
        for url in ("s3://bucket/t2/a", "s3://other/t/a"):
            with pytest.raises(mc.PathError, match="not below s3://bucket/t/"):
                job.filesystem().open(url, "wb")


def test_compression_that_would_lose_its_end_is_refused(s3: MemoryStore) -> None:
    """fsspec's wrapper leaves our file open; the hint says what closes it."""
    with mc.write(DEST) as job, pytest.raises(mc.OptionError, match=r"gzip\.open"):
        job.filesystem().open("a.gz", "wb", compression="gzip")


def test_it_does_not_travel(s3: MemoryStore) -> None:
    """A pickle would write files that nobody commits."""
    with mc.write(DEST) as job, pytest.raises(pickle.PicklingError, match="does not travel"):
        pickle.dumps(job.filesystem())


def test_urls_mean_the_open_block(s3: MemoryStore) -> None:
    """``magic://`` writes files of the block whose destination it is below; outside it raises."""
    fsspec.register_implementation("magic", "magic_committer.filesystem.urls.MagicUrls", True)
    with pytest.raises(mc.OptionError, match="no `with"):
        fsspec.open("magic://bucket/t/a", "wb").open()
    with mc.write(DEST) as job, mc.write("s3://bucket/t/deep") as deep:
        with fsspec.open("magic://bucket/t/a", "w") as file:
            file.write("1")
        with fsspec.open("magic://bucket/t/deep/b", "wb") as file:
            file.write(b"2")
        fs = fsspec.filesystem("magic")
        assert fs.ls("magic://bucket/t", detail=False) == ["bucket/t/a"]
        assert (job.filesystem().find(""), deep.filesystem().find("")) == (["a"], ["b"])
        with mc.write(DEST), pytest.raises(mc.OptionError, match="2 open blocks"):
            fs.exists("magic://bucket/t/a") or fs.info("magic://bucket/t/a")
    assert visible(s3) == {"t/a": b"1", "t/deep/b": b"2"}
