"""``via=`` without a Spark: which directory, what is listed, who uploads what, under which name."""

from __future__ import annotations

import gzip
import os
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.spark import via as module
from magic_committer.spark.driver import refuse_hidden
from magic_committer.spark.via import (
    ViaFile,
    balanced,
    final_name,
    folder_of,
    refuse_option,
    upload_files,
)
from magic_committer.testing import memory_store
from tests.promises.hands import DEST, raising

UUID = "0" * 32


@pytest.mark.parametrize("name", ["PATH", "mapreduce.fileoutputcommitter.algorithm.version"])
def test_an_option_that_is_ours_is_refused(name: str) -> None:
    """Where Spark's writer writes, and how it commits, is not the user's to say."""
    with pytest.raises(mc.OptionError, match=r"is the library's own when via= is used"):
        refuse_option(name, "2")


@pytest.mark.parametrize(
    "via", ["/scratch", "scratch", "file://host/scratch", "file:///", "s3://b/x", "hdfs://n/x", ""]
)
def test_another_via_is_refused(via: str) -> None:
    """Relative, remote and unknown places are refused, and the error shows one that is none."""
    with pytest.raises(mc.OptionError, match="Pass an absolute URL like 'file:///scratch'"):
        folder_of(via)


def test_a_via_is_a_directory_by_its_url(tmp_path: Path) -> None:
    """What is no text is refused, a Path with the URL to pass; and so is a file."""
    assert folder_of(f"file://{tmp_path}//x/..//") == str(tmp_path)
    (tmp_path / "file").touch()
    wrong: list[tuple[Any, type[Exception], str]] = [
        (Path("/scratch/a b"), mc.WrongType, "Pass via='file:///scratch/a b'"),
        (7, mc.WrongType, "via is a URL, not 7"),
        (f"file://{tmp_path}/file", mc.OptionError, "there is no such directory on the driver"),
    ]
    for via, error, told in wrong:
        with pytest.raises(error, match=told):
            folder_of(via)


def test_the_directory_of_a_job_is_its_owners_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However the job ends, or the log names it; where none can be made the error says why."""
    with pytest.raises(LookupError), module.scratch(str(tmp_path), UUID) as path:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
        assert Path(path).name.startswith(f"magic-{UUID}-")
        Path(path, "data").mkdir()
        raise LookupError
    assert list(tmp_path.iterdir()) == []
    told = r"a directory cannot be made there: .*No such file"
    with pytest.raises(mc.OptionError, match=told), module.scratch(f"{tmp_path}/gone", UUID):
        raise AssertionError
    monkeypatch.setattr("shutil.rmtree", lambda path, ignore_errors: None)
    with module.scratch(str(tmp_path), UUID) as path:
        pass
    assert f"the scratch directory {path} could not be removed" in caplog.text


def test_what_is_listed_is_what_was_committed(tmp_path: Path) -> None:
    """But for hidden files; other counts than those of Spark's tasks are an error."""
    hidden = {"_metadata": "m", ".part-1.crc": "c", "_temporary/0/part-2": "half"}
    files = {"part-1": "abc", "day=1/hour=2/part-1": ""}
    for name, text in {"_SUCCESS": "", **hidden, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert module.listed(str(tmp_path), (2, 3)) == [
        ViaFile(name, len(files[name]), (tmp_path / name).stat().st_mtime_ns)
        for name in ("day=1/hour=2/part-1", "part-1")
    ]
    for counted in ((3, 3), (1, 3), (2, 4)):
        with pytest.raises(mc.MagicError, match=rf"wrote {counted[0]} files of {counted[1]} bytes"):
            module.listed(str(tmp_path), counted)
    for name in ("_day", ".day"):
        with pytest.raises(mc.OptionError, match="take directories whose names begin"):
            refuse_hidden(("team", name))


def longer(path: Path) -> None:
    """More bytes at the same time."""
    at = path.stat().st_mtime_ns
    path.write_text("rowsrows")
    os.utime(path, ns=(at, at))


def later(path: Path) -> None:
    """The same bytes at another time."""
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [longer, later, Path.unlink])
@pytest.mark.parametrize("when", ["before", "when it was read"])
def test_a_file_is_uploaded_as_it_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], when: str
) -> None:
    """Of another size or time, or none, it fails the task; what is packed stays packed."""
    packed = tmp_path / "part.csv.gz"
    packed.write_bytes(gzip.compress(b"rows"))
    listed = module.listed(str(tmp_path), (1, packed.stat().st_size))
    with memory_store() as store:
        job = mc.start(DEST)
        with job.task(1) as task:
            upload_files(task, [(str(tmp_path), listed)])
        job.commit([task.result])
        (key,) = (key for key in store.keys() if key.endswith(".gz"))
        assert gzip.decompress(store.body(key)) == b"rows"
        put = mc.Task.put_file

        def changing(*given: Any, **more: Any) -> int:
            size = put(*given, **more)
            change(packed)
            return size

        if when == "before":
            change(packed)
        else:
            monkeypatch.setattr(mc.Task, "put_file", changing)
        told = r"is not what Spark's writer left"
        again = mc.start(DEST)
        with pytest.raises(mc.MagicError, match=told), again.task(1) as task:
            upload_files(task, [(str(tmp_path), listed)])
        again.abort()


def test_a_refusal_of_the_store_is_told_as_it_is(tmp_path: Path) -> None:
    """The file is what Spark left: what the store says is no fault of the directory."""
    (tmp_path / "part-0.csv").write_bytes(b"rows")
    listed = module.listed(str(tmp_path), (1, 4))
    with memory_store() as s3:
        s3.before = raising("put_part", mc.PermissionDenied("not this one", status=403))
        job = mc.start(DEST)
        with pytest.raises(mc.UploadFailed, match="not this one"), job.task("0") as task:
            upload_files(task, [(str(tmp_path), listed)])


def test_tasks_get_about_as_many_bytes() -> None:
    """None has more than its share and one file, or is empty; many and large files make more."""
    files = [ViaFile(f"f{size}", size, 0) for size in (50, 10, 10, 10, 10, 10, 0, 0)]
    groups = balanced(files, 2)
    assert max(sum(file.size for file in group) for group in groups) <= 50 + 100 / 2
    assert [len(group) for group in groups] == [4, 4]
    assert Counter(file for group in groups for file in group) == Counter(files)
    assert len(balanced(files[:2], 8)) == 2
    assert balanced([], 8) == []
    empty = [ViaFile(f"f{number}", 0, 0) for number in range(module.GROUP_FILES * 3)]
    assert [len(group) for group in balanced(empty, 1)] == [module.GROUP_FILES] * 3
    large = [ViaFile(f"f{number}", module.GROUP_BYTES // 2, 0) for number in range(8)]
    assert [len(group) for group in balanced(large, 1)] == [2] * 4


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("part-00000-3f0b1c2d-1111-2222-3333-444455556666-c000.gz.parquet",
         f"part-00000-mcj{UUID}-c000.gz.parquet"),
        ("a=3f0b1c2d-1111-2222-3333-444455556666/part-100000-3f0b1c2d-1111-2222-3333-444455556666.c"
         "001.csv", f"a=3f0b1c2d-1111-2222-3333-444455556666/part-100000-mcj{UUID}.c001.csv"),
        ("other.csv", "other.csv"),
    ],
)  # fmt: skip
def test_names_carry_the_job_instead_of_the_write(name: str, named: str) -> None:
    """Spark's own UUID gives way to the job's token, in the file's name alone."""
    assert final_name(name, UUID) == named
