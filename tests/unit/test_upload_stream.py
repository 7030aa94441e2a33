from __future__ import annotations

import array
import io
import logging
import os
import pickle
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from magic_committer.errors import (
    InvalidRequest,
    StoreError,
    Unanswered,
    UploadFailed,
    WrongProcess,
    WrongType,
)
from magic_committer.runtime.components import SystemClock
from magic_committer.runtime.threads import Pool, ThreadPool
from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import Checksum, FileSlice, Part, objects
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.upload import FileState, TextUpload, UploadStream, blocks
from magic_committer.upload.sender import FAST_PART_SECONDS
from tests.promises.hands import raises
from tests.unit.uploading import BLOCK, LazyPool, World, failing, need_names, options


@pytest.fixture(params=["inline", "threads", "lazy"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """Nothing beside the writer; real threads; the slowest pool that there can be."""
    made = {"inline": ThreadPool(0), "threads": ThreadPool(3), "lazy": LazyPool()}[request.param]
    yield made
    made.close()


@pytest.fixture
def world(pool: Pool) -> World:
    return World(pool)


# What is written is what is there -----------------------------------------------------------------


@pytest.mark.parametrize("checksum", ["CRC32C", "CRC32", "CRC64NVME", "SHA1", "SHA256", "off"])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_written_is_what_is_published(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int, checksum: Any
) -> None:
    """In pieces of any size: bytes, length, checksum, full parts; not there before its close."""
    if checksum in ("CRC32C", "CRC64NVME"):
        pytest.importorskip("awscrt")
    draw = random.Random(seed)
    monkeypatch.setattr(blocks, "SUM_BYTES", draw.choice((1, 7, 100, BLOCK)))
    world.options = options(checksum=checksum)
    written = b""
    with world.open() as stream:
        for _ in range(draw.randrange(1, 60)):
            data = draw.randbytes(
                draw.choice((0, 1, 7, 99, 400, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK))
            )
            assert stream.write(draw.choice((bytes, bytearray))(data)) == len(data)
            written += data
            assert stream.tell() == len(written)
    assert list(objects(world.store, "")) == []
    (finished,) = world.finished
    assert finished.length == len(written)
    whole = checksums.of(checksum, written) if checksum.startswith("CRC") else None
    assert finished.checksum == whole
    assert all((part.checksum is None) == (checksum == "off") for part in finished.parts)
    assert {part.size for part in finished.parts[:-1]} <= {BLOCK}
    assert world.published() == written
    assert world.blocks.bytes_in_use == 0


BUFFERS: list[Any] = [
    b"bytes", bytearray(b"bytearray"), memoryview(b""), (b"reversed" * 3)[::-1],
    memoryview(b"every second byte")[::2], memoryview(b"backwards")[::-1],
    array.array("d", [1.5, 2.5]),
    memoryview(array.array("i", range(6))).cast("B").cast("i", (2, 3)),
]  # fmt: skip


def test_any_buffer_is_taken_in_its_own_order() -> None:
    """As ``bytes()`` of it, in C order: numpy's in Fortran order, broadcast and of records, too."""
    numpy = pytest.importorskip("numpy")
    arrays = [
        numpy.asfortranarray(numpy.arange(12, dtype=">i4").reshape(3, 4)),
        numpy.zeros(5, dtype=[("a", "i2"), ("b", "f8")]),
        numpy.zeros(4, dtype=[("One", "i2")])[::2],
        *(numpy.zeros(3, dtype=kind) for kind in ("?", "e", "c16", "U3", "S3", ">i4")),
        numpy.array(7.0),
        numpy.zeros((0, 3)),
        numpy.broadcast_to(numpy.array(7), (3, 2)),
    ]
    world = World()
    expected = [memoryview(one).tobytes() for one in BUFFERS] + [one.tobytes() for one in arrays]
    with world.open() as stream:
        for made, data in zip([*BUFFERS, *arrays], expected, strict=True):
            assert stream.write(made) == len(data)
    assert world.published() == b"".join(expected)


def test_a_buffer_may_be_used_again_at_once(world: World) -> None:
    """What a caller does to its buffer after ``write`` changes nothing that is sent."""
    buffer = bytearray(BLOCK * 2)
    with world.open() as stream:
        for value in b"01234":
            buffer[:] = bytes([value]) * len(buffer)
            stream.write(buffer)
        buffer[:] = b"!" * len(buffer)
    assert world.published() == b"".join(bytes([v]) * len(buffer) for v in b"01234")


# Small writes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [b"12345678", bytearray(b"12345678"), memoryview(b"12345678")])
@pytest.mark.parametrize("by", ["close", "abort", "a failed part", "a fork"])
def test_a_small_write_sees_each_end_of_its_file(
    piece: Any, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a few bytes into a block with room: it raises as every write does, and takes nothing."""
    stream = World().open()
    assert stream.write(piece) == stream.write(piece) == 8
    error: type[Exception] = ValueError
    if by == "a failed part":
        stream._sender.failure = ("part 1", StoreError("no", operation="put_part"))
        error = UploadFailed
    elif by == "a fork":
        there = os.getpid() + 1
        monkeypatch.setattr("os.getpid", lambda: there)
        error = WrongProcess
    else:
        getattr(stream, by)()
    length = stream.length
    raises(error, stream.write, piece)
    assert stream.length <= length
    monkeypatch.undo()
    stream.abort()


def test_arrays_without_bytes_are_refused_and_harm_nothing(world: World) -> None:
    """A TypeError says what to do, and the file goes on; a released view is a ValueError."""
    numpy = pytest.importorskip("numpy")
    times = numpy.zeros(3, dtype="M8[s]")
    released = memoryview(b"gone")
    released.release()
    with world.open() as stream:
        with pytest.raises(WrongType, match=r"ndarray of this type: .* Write data\.tobytes\(\)"):
            stream.write(times)
        for kind in ("O", [("a", "i4"), ("b", "O")]):
            with pytest.raises(WrongType, match=r"ndarray of Python objects.*pickle\.dump"):
                stream.write(numpy.zeros(2, dtype=kind))
        raises(ValueError, stream.write, released, match="released")
        stream.write(times.tobytes())
    assert world.published() == times.tobytes()


def test_part_10001_is_refused_at_the_write_that_needs_it() -> None:
    """One byte past 10,000 uniform parts fails there and then, by name, and aborts the upload."""
    world = World(options=options(1, uniform_parts=True))
    stream = world.open()
    stream.write(bytes(10_000))
    for late in (lambda: stream.write(b"2"), stream.close):
        raises(UploadFailed, late, match="part 10,001")
    world.assert_nothing_left()


# The order of requests ----------------------------------------------------------------------------


def test_create_is_sent_at_open_and_not_waited_for() -> None:
    """The first full block waits for Create, then asks the hook, then sends."""
    order: list[str] = []
    world = World(LazyPool())
    world.store.before = lambda request: order.append(request.verb)
    stream = world.open(before_block=lambda: order.append("hook"))
    stream.write(bytes(BLOCK - 1))
    assert order == []
    stream.write(b"1")
    assert order == ["create_upload", "hook"]
    stream.close()
    assert order == ["create_upload", "hook", "put_part"]
    assert len(world.answers) == 1


class Stopwatch(SystemClock):
    """Shows what it is told."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.parametrize("in_flight", [1, 2, 5])
@pytest.mark.parametrize("part_seconds", [0.1, 0.001])
def test_no_more_parts_are_in_flight_than_allowed_and_useful(
    in_flight: int, part_seconds: float
) -> None:
    """``parts_in_flight`` beside the block that fills; two, where a part is taken fast."""
    world, clock = World(LazyPool(), options(parts_in_flight=in_flight)), Stopwatch()

    def takes(request: Request) -> None:
        clock.seconds += part_seconds if request.verb == "put_part" else 0

    world.store.before = takes
    stream = world.open(clock=clock)
    seen = []
    for _ in range(4 * in_flight):
        stream.write(bytes(BLOCK))
        seen.append(stream._sender.in_flight)
    after = min(in_flight, 2) if part_seconds < FAST_PART_SECONDS else in_flight
    assert seen[:in_flight] == [*range(1, in_flight + 1)]
    assert set(seen[in_flight + 1 :]) == {after}
    stream.close()


# Failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [1, 2, 4, 6])
@pytest.mark.parametrize("error", [Unanswered("no reply"), InvalidRequest("bad part")], ids=repr)
def test_a_failed_part_surfaces_and_leaves_nothing(
    world: World, part: int, error: StoreError
) -> None:
    """Whichever it is: UploadFailed by the next write or close, and the upload is aborted."""
    world.store.before = failing(error, "put_part", part)
    stream = world.open()
    with pytest.raises(UploadFailed, match=f"part {part} of s3://bucket/table/file") as caught:
        for _ in range(11):
            stream.write(bytes(BLOCK // 2))
        stream.close()
    assert caught.value.__cause__ is error
    assert stream.state is FileState.FAILED
    for _ in range(2):
        raises(UploadFailed, stream.close)
    assert stream.closed
    world.assert_nothing_left()


def test_a_failed_part_shows_at_the_very_next_write() -> None:
    """Though its block is not full; and at the close of a wrapper that looks first."""
    world = World()
    world.store.before = failing(Unanswered("no reply"), "put_part", 1)
    stream = world.open()
    text = io.TextIOWrapper(stream, write_through=True)
    text.write("x" * BLOCK)
    raises(UploadFailed, text.write, "y")
    assert not stream.closed
    raises(UploadFailed, text.close)
    raises(ValueError, stream.write, b"1", match="closed")
    world.assert_nothing_left()


@pytest.mark.parametrize("call", [lambda s: s.write(b"x"), lambda s: s.flush(), UploadStream.close])
def test_a_failed_create_shows_at_the_next_call(call: Callable[[UploadStream], object]) -> None:
    """If the upload could not be created, the next call on the file says so."""
    world = World()
    world.store.before = failing(InvalidRequest("no such bucket"), "create_upload")
    stream = world.open()
    raises(UploadFailed, call, stream, match="no such bucket")
    assert world.store.requests["abort_upload"] == 0
    world.assert_nothing_left()


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("hook", ["on_answer", "before_block", "on_close"])
@pytest.mark.parametrize("error", [RuntimeError("refused"), KeyboardInterrupt()], ids=repr)
def test_a_hook_that_raises_ends_the_file(
    world: World, hook: str, at: int, error: BaseException
) -> None:
    """What any call of it raises comes out, as it is or as the cause; the upload is aborted."""
    at = at if hook == "before_block" else 1
    calls = []

    def fail(*_: object) -> None:
        calls.append(1)
        if len(calls) == at:
            raise error

    hooks: dict[str, Any] = {hook: fail}
    stream = world.open(**hooks)
    with pytest.raises((type(error), UploadFailed)) as caught:
        stream.write(bytes(5 * BLOCK))
        stream.close()
    assert error in (caught.value, caught.value.__cause__)
    with suppress(RuntimeError, UploadFailed):
        stream.close()
    assert stream.closed
    world.assert_nothing_left()


def test_a_hook_may_abort_the_file_itself() -> None:
    """An attempt that is fenced aborts all its files from the hook, this one among them."""
    world = World()

    def fence() -> None:
        stream.abort()
        raise RuntimeError("fenced")

    stream = world.open(before_block=fence)
    raises(RuntimeError, stream.write, bytes(BLOCK), match="fenced")
    assert stream.state is FileState.ABORTED
    stream.close()
    world.assert_nothing_left()


@pytest.mark.parametrize(
    "wrong",
    [{"size": 1}, {"number": 2}, {"number": 0}, {"etag": ""},
     {"checksum": Checksum("CRC32", "AAAAAA==")}],
    ids=str,
)  # fmt: skip
def test_a_wrong_answer_of_the_store_fails_the_file(wrong: dict[str, Any]) -> None:
    """Another part, size or checksum than was sent, or no ETag, is not believed."""
    world = World(options=options(checksum="CRC32"))
    world.store.after = lambda request, answer: (
        answer._replace(**wrong) if request.verb == "put_part" else None
    )
    stream = world.open()
    stream.write(b"bytes")
    raises(UploadFailed, stream.close, match="the store answered")
    world.assert_nothing_left()


def test_a_full_disk_fails_the_file(tmp_path: Path) -> None:
    """If a block can neither stay in memory nor go to disk, the write says so."""
    world = World(options=options(buffer_bytes_max=0, buffer_dir=str(tmp_path / "missing")))
    raises(UploadFailed, world.open().write, b"x", match="buffer_dir")
    world.assert_nothing_left()


# Abort --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, BLOCK, 3 * BLOCK + 7, 9 * BLOCK])
def test_abort_leaves_nothing_at_every_stage(world: World, length: int) -> None:
    """Wherever a file stands, with Create or parts in flight or not, abort ends it, once."""
    stream = world.open()
    stream.write(bytes(length))
    stream.abort()
    stream.abort()
    stream.close()
    assert stream.state is FileState.ABORTED
    assert world.store.requests["abort_upload"] == 1
    world.assert_nothing_left()
    raises(ValueError, stream.write, b"x", match="closed")


@pytest.mark.parametrize(
    "error", [RuntimeError("body"), KeyboardInterrupt(), GeneratorExit(), SystemExit()], ids=repr
)
@pytest.mark.parametrize("text", [False, True])
def test_leaving_with_by_any_exception_aborts(
    world: World, error: BaseException, text: bool
) -> None:
    """No exception, of whatever kind, publishes; and it is the one that comes out."""
    stream = world.open()
    with pytest.raises(type(error)) as caught, TextUpload(stream) if text else stream as file:
        file.write("x" * 5000 if text else bytes(2 * BLOCK))  # type: ignore[arg-type]
        raise error
    assert caught.value is error
    with pytest.raises(ValueError, match="closed"):
        file.write("x" if text else b"x")  # type: ignore[arg-type]
    file.close()
    world.assert_nothing_left()


def test_abort_after_close_leaves_the_pending(world: World) -> None:
    """What was closed well belongs to the attempt: neither abort nor a second close touches it."""
    with pytest.raises(RuntimeError, match="late"), world.open() as stream:
        stream.write(b"bytes")
        stream.close()
        stream.close()
        stream.abort()
        raise RuntimeError("late")
    assert world.published() == b"bytes"
    assert world.aborts == 0


def test_parts_not_yet_sent_are_never_sent_after_an_abort() -> None:
    """What waits in the pool when the file is aborted is dropped, and the abort comes last."""
    order: list[str] = []
    world = World(LazyPool())
    world.store.before = lambda request: order.append(request.verb)
    stream = world.open()
    stream.write(bytes(3 * BLOCK))
    stream.abort()
    assert order == ["create_upload", "abort_upload"]


def test_an_abort_that_fails_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with key and upload id, raised to who called it, and can be repeated."""
    world.store.before = failing(Unanswered("store down"), "abort_upload")
    stream = world.open()
    stream.write(bytes(BLOCK))
    with caplog.at_level(logging.WARNING, "magic_committer"), pytest.raises(Unanswered):
        stream.abort()
    (upload,) = world.left_open()
    assert upload.upload_id in caplog.text
    assert "table/file" in caplog.text
    world.store.before = None
    stream.abort()
    world.assert_nothing_left()


@pytest.mark.parametrize("fails", ["the body", "a part"])
def test_an_abort_that_fails_too_is_a_note_on_what_failed(fails: str) -> None:
    """The abort's failure is a note on what comes out; ``abort`` tries again."""
    world = World()

    def before(request: Request) -> None:
        if request.verb == "abort_upload" or (request.verb, fails) == ("put_part", "a part"):
            raise Unanswered(f"{request.verb} lost")

    world.store.before = before
    failed = pytest.raises((KeyError, UploadFailed), match=r"body|put_part lost")
    with failed as caught, world.open() as stream:
        if fails == "the body":
            raise KeyError("body")
    assert "abort_upload lost" in caught.value.__notes__[0]
    world.store.before = None
    stream.abort()
    world.assert_nothing_left()


# Memory and disk ----------------------------------------------------------------------------------


class Discarding(MemoryStore):
    """Takes parts and forgets them."""

    def put_part(self, key: str, upload_id: str, number: int, body: Any, **_: Any) -> Part:
        return Part(number, '"etag"', body.length if isinstance(body, FileSlice) else len(body))


@pytest.mark.parametrize(
    "pieces",
    [(1 << 20,), (600_000,), (600_000, 15), ((1 << 20) - 10, (1 << 20) - 20, 15), (300_000,) * 3,
     b"1" * 1000, b"1" * 65536, b"1" * (5 << 20)],
    ids=lambda pieces: str(pieces if isinstance(pieces, tuple) else len(pieces)),
)  # fmt: skip
def test_memory_is_bounded_by_the_formula(
    pieces: tuple[int, ...] | bytes, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    """``block_bytes * (parts_in_flight + 2)``, beside what the caller holds itself."""
    # On the heap, where tracemalloc sees it; large blocks have pages of their own otherwise.
    monkeypatch.setattr(blocks, "_memory", lambda size: memoryview(bytearray(size)))
    block, in_flight = 1 << 20, 3
    world = World(LazyPool(), options(block, parts_in_flight=in_flight), store=Discarding())
    with world.open("warm") as warm:
        warm.write(b"x")

    tracemalloc.start()
    request.addfinalizer(tracemalloc.stop)
    with world.open() as stream:
        stream.write(b"x")
        while stream.tell() < 30 * block:
            for piece in pieces if isinstance(pieces, tuple) else (pieces,):
                stream.write(bytes(piece))
    _, peak = tracemalloc.get_traced_memory()
    held = 0.1 * block + max(pieces) if isinstance(pieces, tuple) else 0
    assert 4 * block <= peak <= block * (in_flight + 2) + held


def test_one_thread_with_many_open_files_never_waits_for_itself(tmp_path: Path) -> None:
    """Fifty on a budget of two blocks: what does not fit waits on disk, and is right."""
    budget = 2 * BLOCK
    limits = options(buffer_bytes_max=budget, buffer_dir=str(tmp_path))
    world = World(LazyPool(), limits)
    data = {f"file-{n}": random.Random(n).randbytes(n * 100) for n in range(50)}
    streams = {name: world.open(name) for name in data}
    for start in range(0, 5000, 333):
        for name, stream in streams.items():
            stream.write(data[name][start : start + 333])
            assert world.blocks.bytes_in_use <= budget
    for stream in streams.values():
        stream.close()
    assert {f.key: world.complete(f) for f in world.finished} == data
    assert list(tmp_path.iterdir()) == []
    assert world.blocks.bytes_in_use == 0


@pytest.mark.parametrize("end", ["close", "abort", "fail"])
def test_a_file_on_disk_is_the_same_and_leaves_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """No block's file survives any end, also where files need names."""
    need_names(monkeypatch)
    world.options = options(buffer_bytes_max=0, buffer_dir=str(tmp_path))
    data = random.Random(0).randbytes(4 * BLOCK + 11)
    stream = world.open()
    stream.write(data)
    assert list(tmp_path.iterdir()) != []
    if end == "fail":
        world.store.before = failing(Unanswered("no reply"), "put_part", 5)
    with pytest.raises(UploadFailed) if end == "fail" else nullcontext():
        stream.abort() if end == "abort" else stream.close()
    if end == "close":
        assert world.published() == data
    else:
        world.assert_nothing_left()
    assert list(tmp_path.iterdir()) == []


# As a file of Python ------------------------------------------------------------------------------


def test_it_says_what_it_is() -> None:
    """The manners of a Python file: writable only, named, honest about its state."""
    world = World()
    stream = world.open()
    assert isinstance(stream, io.BufferedIOBase)
    assert (stream.writable(), stream.readable(), stream.seekable()) == (True, False, False)
    assert (stream.name, stream.mode, stream.key) == ("s3://bucket/table/file", "wb", "table/file")
    stream.write(b"four")
    stream.flush()
    assert repr(stream) == "<UploadStream s3://bucket/table/file open 4 bytes>"
    for wrong in (stream.read, stream.fileno, stream.truncate, lambda: stream.seek(0)):
        raises(io.UnsupportedOperation, wrong)
    raises(TypeError, pickle.dumps, stream, match="does not travel")
    stream.close()
    assert repr(stream) == "<UploadStream s3://bucket/table/file pending 4 bytes>"
    for late in (lambda: stream.write(b"x"), stream.flush, stream.tell):
        raises(ValueError, late, match="closed file")
    with pytest.raises(ValueError, match="closed file"), stream:
        pass


def test_text_has_the_encoding_and_newlines_asked_for(world: World) -> None:
    """Encoding, errors and newline are TextIOWrapper's; UTF-8 is the default."""
    with TextUpload(world.open(), encoding="latin-1", errors="replace", newline="\r\n") as text:
        text.write("é\n€\n")
    assert world.published() == b"\xe9\r\n?\r\n"
    with TextUpload(world.open("other")) as default:
        assert default.encoding == "utf-8"


@pytest.mark.parametrize("ends", ["abort", "an encoding error"])
def test_text_that_is_aborted_or_cannot_be_encoded_publishes_nothing(
    world: World, ends: str
) -> None:
    """``TextUpload.abort`` is the stream's; its repr tells the state."""
    text = TextUpload(world.open(), encoding="ascii")
    text.write("fine")
    if ends == "abort":
        text.abort()
    else:
        with pytest.raises(UnicodeEncodeError), text:
            text.write("then schön")
    assert "aborted" in repr(text)
    world.assert_nothing_left()


# Threads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "a large write", "close", "text"])
def test_a_second_thread_inside_a_file_is_told_at_once(call: str) -> None:
    """The file has failed: what both wrote could not be whole."""
    world = World(ThreadPool(2), options=options(parts_in_flight=1))
    stream, may_end = world.open("a"), threading.Event()
    text = TextUpload(stream)

    def before(request: Request) -> None:
        assert request.verb != "put_part" or may_end.wait(60)

    def write() -> None:
        with suppress(UploadFailed):  # it is the last write, or it is not
            if call == "text":
                text.write("x" * (12 * BLOCK))  # more than it keeps
            else:
                stream.write(bytes(4 * BLOCK))

    world.store.before = before
    thread = threading.Thread(target=write)
    thread.start()
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: stream.write(b"x"),
        "a large write": lambda: stream.write(bytes(2 * BLOCK)),
        "close": stream.close,
        "text": lambda: text.write("x"),
    }
    while not stream._inside:
        pass
    raises(UploadFailed, calls[call], match=r"two threads at once.*a file of its own")
    may_end.set()
    thread.join(60)
    raises(UploadFailed, stream.close, match="two threads at once")
    world.assert_nothing_left()
