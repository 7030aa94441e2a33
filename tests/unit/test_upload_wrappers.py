"""Python's own writers, and the common libraries', on top of an `UploadStream`."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from magic_committer._pool import ThreadPool
from magic_committer.upload import TextUpload
from tests.unit.uploading import World


@pytest.fixture
def world() -> World:
    return World(ThreadPool(0))


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
