"""Python's own writers, and the common libraries', on top of an `UploadStream`."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable

import pytest

from magic_committer._pool import ThreadPool
from magic_committer.upload import FileState, TextUpload
from tests.unit.uploading import World


@pytest.fixture
def world() -> World:
    return World(ThreadPool(0))


def test_csv_through_a_text_wrapper(world: World) -> None:
    """csv writes rows through io.TextIOWrapper, which closes the file."""
    rows = [["a", "ä"], ["1", "2"] * 300]
    with io.TextIOWrapper(world.open(), encoding="utf-8", newline="") as text:
        csv.writer(text).writerows(rows)
    read = csv.reader(io.StringIO(world.published().decode(), newline=""))
    assert list(read) == rows


def test_json_into_text(world: World) -> None:
    """json.dump writes into a TextUpload."""
    value = {"key": ["värde"] * 400}
    with TextUpload(world.open()) as text:
        json.dump(value, text, ensure_ascii=False)
    assert json.loads(world.published().decode("utf-8")) == value


def test_text_has_the_encoding_and_newlines_asked_for(world: World) -> None:
    """Encoding, errors and newline are TextIOWrapper's; UTF-8 is the default."""
    with TextUpload(world.open(), encoding="latin-1", errors="replace", newline="\r\n") as text:
        text.write("é\n€\n")
    assert world.published() == b"\xe9\r\n?\r\n"
    with TextUpload(world.open("other")) as default:
        assert default.encoding == "utf-8"


def test_text_left_by_exception_aborts(world: World) -> None:
    """Leaving TextUpload's ``with`` by exception publishes nothing; closed text takes no more."""
    text = TextUpload(world.open())

    def body() -> None:
        with text:
            text.write("x" * 5000)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        body()
    with pytest.raises(ValueError, match="closed"):
        text.write("y")
    text.close()
    world.assert_nothing_left()


def test_text_that_cannot_be_encoded_publishes_nothing(world: World) -> None:
    """An encoding error leaves ``with`` as every exception does."""
    with pytest.raises(UnicodeEncodeError), TextUpload(world.open(), encoding="ascii") as text:
        text.write("fine, then schön")
    world.assert_nothing_left()


def test_text_aborts_when_told(world: World) -> None:
    """``TextUpload.abort`` is the stream's; its repr tells the state."""
    text = TextUpload(world.open())
    text.write("x")
    text.abort()
    assert "aborted" in repr(text)
    world.assert_nothing_left()


def test_pickle(world: World) -> None:
    """pickle.dump, whose protocol 5 hands over large buffers as they are."""
    value = [random.Random(0).randbytes(100_000), {"a": 1}]
    with world.open() as stream:
        pickle.dump(value, stream, protocol=5)
    assert pickle.loads(world.published()) == value


def test_copyfileobj(world: World) -> None:
    """shutil.copyfileobj."""
    data = random.Random(1).randbytes(5432)
    with world.open() as stream:
        shutil.copyfileobj(io.BytesIO(data), stream, 1000)
    assert world.published() == data


def test_zipfile(world: World) -> None:
    """zipfile finds that it cannot seek, and writes a file that it can read."""
    with world.open() as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "a" * 5000)
        archive.writestr("b.bin", random.Random(2).randbytes(3000))
    read = zipfile.ZipFile(io.BytesIO(world.published()))
    assert read.testzip() is None
    assert read.read("a.txt") == b"a" * 5000


def test_gzip_and_tar(world: World) -> None:
    """gzip over the file, and tarfile as a stream over gzip."""
    with (
        world.open() as stream,
        gzip.GzipFile(fileobj=stream, mode="wb") as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        info = tarfile.TarInfo("member")
        info.size = 4000
        archive.addfile(info, io.BytesIO(b"m" * 4000))
    with tarfile.open(fileobj=io.BytesIO(world.published()), mode="r:gz") as archive:
        member = archive.extractfile("member")
        assert member is not None
        assert member.read() == b"m" * 4000


def _arrow(world: World) -> Callable[[bytes], int]:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"n": list(range(2000)), "s": ["text"] * 2000})
    stream = world.open()
    file = pyarrow.PythonFile(stream, mode="w")
    parquet.write_table(table, file)
    file.close()
    assert stream.state is FileState.PENDING
    return lambda data: int(parquet.read_table(pyarrow.BufferReader(data)).num_rows)


def _pandas(world: World) -> Callable[[bytes], int]:
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    with world.open() as stream:
        pandas.DataFrame({"n": range(2000)}).to_parquet(stream, engine="pyarrow")
    return lambda data: len(pandas.read_parquet(io.BytesIO(data)))


@pytest.mark.parametrize("write", [_arrow, _pandas])
def test_parquet(world: World, write: Callable[[World], Callable[[bytes], int]]) -> None:
    """pyarrow through PythonFile, and pandas, write Parquet that reads back whole."""
    rows = write(world)
    assert rows(world.published()) == 2000
