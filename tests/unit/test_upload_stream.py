from __future__ import annotations

import array
import contextlib
import gc
import io
import logging
import os
import pickle
import random
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from magic_committer import checksum as checksums
from magic_committer._pool import Pool, ThreadPool
from magic_committer.errors import (
    InvalidRequest,
    StoreError,
    Unanswered,
    UploadFailed,
    WrongProcess,
    WrongType,
)
from magic_committer.stores.base import FileSlice, Part, objects
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.upload import FileState, TextUpload, UploadStream, blocks
from magic_committer.upload import stream as stream_module
from tests.unit.uploading import BLOCK, LazyPool, World, failing, options


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
    """A file written in pieces of any size, with checksums that go on at any byte, has the same
    bytes, length and checksum once it is completed, and is not there before; no memory is left. The
    strict store accepts parts and object with each algorithm; SHA has no whole one."""
    if checksum in ("CRC32C", "CRC64NVME"):
        pytest.importorskip("awscrt")
    draw = random.Random(seed)
    monkeypatch.setattr(blocks, "SUM_BYTES", draw.choice((1, 7, 100, BLOCK)))
    world.options = options(checksum=checksum)
    written = b""
    with world.open() as stream:
        for _ in range(draw.randrange(1, 60)):
            data = draw.randbytes(
                draw.choice((1, 7, 99, 400, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK))
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
    assert world.published() == written
    assert world.blocks.bytes_in_use == 0


@pytest.mark.parametrize(
    "buffer",
    [
        pytest.param(b"bytes", id="bytes"),
        pytest.param(bytearray(b"bytearray"), id="bytearray"),
        pytest.param(memoryview(b"every second byte")[::2], id="every second byte"),
        pytest.param(array.array("d", [1.5, 2.5]), id="array"),
        pytest.param(
            memoryview(array.array("i", range(6))).cast("B").cast("i", (2, 3)), id="two dimensions"
        ),
        pytest.param(memoryview(b""), id="empty"),
        pytest.param((b"reversed" * 3)[::-1], id="reversed bytes"),
        pytest.param(memoryview(b"backwards")[::-1], id="backwards"),
    ],
)
def test_any_buffer_is_taken_in_its_own_order(buffer: Any) -> None:
    """Buffers of every format and layout are written as ``bytes()`` of them, in C order."""
    world = World()
    expected = memoryview(buffer).tobytes()
    with world.open() as stream:
        assert stream.write(buffer) == len(expected)
    assert world.published() == expected


def test_arrays_of_other_layouts_are_written_in_c_order() -> None:
    """numpy arrays in Fortran order, and of records, give what ``tobytes()`` gives."""
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
    with world.open() as stream:
        for made in arrays:
            stream.write(made)
    assert world.published() == b"".join(made.tobytes() for made in arrays)


def test_a_buffer_may_be_used_again_at_once(world: World) -> None:
    """What a caller does to its buffer after ``write`` changes nothing that is sent."""
    buffer = bytearray(BLOCK * 2)
    with world.open() as stream:
        for value in range(5):
            buffer[:] = bytes([value]) * len(buffer)
            stream.write(buffer)
        buffer[:] = b"!" * len(buffer)
    assert world.published() == b"".join(bytes([v]) * len(buffer) for v in range(5))


# Small writes -------------------------------------------------------------------------------------


def ended(stream: UploadStream, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring an open stream to one of the states in which it takes no bytes."""
    if by == "close":
        stream.close()
    elif by == "abort":
        stream.abort()
    elif by == "a failed part":
        stream._sender.failure = ("part 1", StoreError("no", operation="put_part"))
    else:
        there = os.getpid() + 1
        monkeypatch.setattr("os.getpid", lambda: there)


@pytest.mark.parametrize("piece", [b"12345678", bytearray(b"12345678"), memoryview(b"12345678")])
@pytest.mark.parametrize(
    ("by", "error"),
    [
        ("close", ValueError),
        ("abort", ValueError),
        ("a failed part", UploadFailed),
        ("a fork", WrongProcess),
    ],
)
def test_a_small_write_sees_each_end_of_its_file(
    piece: Any, by: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a few bytes into a block with room: it raises as every write does, and takes nothing."""
    world = World()
    stream = world.open()
    assert stream.write(piece) == stream.write(piece) == 8
    ended(stream, by, monkeypatch)
    length = stream.length
    with pytest.raises(error):
        stream.write(piece)
    assert stream.length <= length
    monkeypatch.undo()
    stream.abort()


def test_small_writes_fill_blocks_to_the_byte(world: World) -> None:
    """Single bytes, with an empty write and a large one among them, make the parts that one write
    makes, and `tell` counts each byte at once."""
    data = bytes(n % 251 for n in range(2 * BLOCK + 3))
    with world.open() as stream:
        for at in range(BLOCK + 1):
            stream.write(data[at : at + 1])
            assert stream.tell() == at + 1
        assert stream.write(b"") == 0
        stream.write(data[BLOCK + 1 : 2 * BLOCK])
        for at in range(2 * BLOCK, len(data)):
            stream.write(bytearray(data[at : at + 1]))
    (finished,) = world.finished
    assert [part.size for part in finished.parts] == [BLOCK, BLOCK, 3]
    assert world.published() == data


def test_arrays_without_bytes_are_refused_and_harm_nothing(world: World) -> None:
    """Times of numpy give no buffer, objects only their addresses: a TypeError that says what to
    do, and the file goes on. A released view is Python's own ValueError."""
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
        with pytest.raises(ValueError, match="released"):
            stream.write(released)
        stream.write(times.tobytes())
    assert world.published() == times.tobytes()


def test_no_view_is_exported_from_a_view() -> None:
    """Each view of what was written can be released: no buffer was taken from it. Before Python
    3.12.7 the collector crashes where it meets another kind."""
    data = b"bytes"
    flat = stream_module.flat(data, "a file")
    views = []
    for one in gc.get_objects():
        with contextlib.suppress(ValueError):  # a released one
            if type(one) is memoryview and one.obj is data:
                views.append(one)
    assert any(one is flat for one in views)
    for one in views:
        one.release()


def test_part_10001_is_refused_at_the_write_that_needs_it() -> None:
    """One byte past 10,000 uniform parts fails there and then, by name, and aborts the upload."""
    world = World(options=options(1, uniform_parts=True))
    stream = world.open()
    stream.write(bytes(9_999))
    stream.write(b"1")
    with pytest.raises(UploadFailed, match="part 10,001"):
        stream.write(b"2")
    with pytest.raises(UploadFailed, match="part 10,001"):
        stream.close()
    world.assert_nothing_left()


# The order of requests ----------------------------------------------------------------------------


def test_create_is_sent_at_open_and_not_waited_for() -> None:
    """Opening and filling less than a block waits for nothing; the first full block waits for
    Create, then asks the hook, then sends."""
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


def test_in_threads_create_leaves_without_a_further_call() -> None:
    """With real threads Create reaches the store although nothing was written yet."""
    world = World(ThreadPool(1))
    answered = threading.Event()
    stream = world.open(on_answer=lambda _: answered.set())
    assert answered.wait(300)
    stream.abort()
    world.pool.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_no_more_parts_are_in_flight_than_allowed(in_flight: int) -> None:
    """Beside the block that fills ``parts_in_flight`` parts are being sent, and no more."""
    world = World(LazyPool(), options(parts_in_flight=in_flight))
    stream = world.open()
    seen = []
    for _ in range(4 * in_flight):
        stream.write(bytes(BLOCK))
        seen.append(stream._sender.in_flight)
    assert seen == [min(count, in_flight) for count in range(1, 4 * in_flight + 1)]
    stream.close()


# Failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [1, 2, 4, 6])
@pytest.mark.parametrize("error", [Unanswered("no reply"), InvalidRequest("bad part")], ids=repr)
def test_a_failed_part_surfaces_and_leaves_nothing(
    world: World, part: int, error: StoreError
) -> None:
    """Whichever of six parts fails: the next write or close raises UploadFailed with the store's
    error as its cause, close says it again, and the upload is aborted."""
    world.store.before = failing(error, "put_part", part)
    stream = world.open()

    def write_and_close() -> None:
        for _ in range(11):
            stream.write(bytes(BLOCK // 2))
        stream.close()

    with pytest.raises(UploadFailed, match=f"part {part} of s3://bucket/table/file") as caught:
        write_and_close()
    assert caught.value.__cause__ is error
    assert stream.state is FileState.FAILED
    for _ in range(2):
        with pytest.raises(UploadFailed):
            stream.close()
    assert stream.closed
    world.assert_nothing_left()


def test_a_failed_part_shows_at_the_very_next_write() -> None:
    """The write after the one that sent the bad part raises, though its own block is not full."""
    world = World()
    world.store.before = failing(Unanswered("no reply"), "put_part", 1)
    stream = world.open()
    stream.write(bytes(BLOCK))
    with pytest.raises(UploadFailed):
        stream.write(b"1")
    assert not stream.closed  # a wrapper that looks before it closes must still hear of it
    with pytest.raises(UploadFailed):
        stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.write(b"1")


def test_a_failed_part_is_heard_through_a_wrapper() -> None:
    """A TextIOWrapper's close raises when the file below it has failed at an earlier write."""
    world = World()
    world.store.before = failing(Unanswered("no reply"), "put_part", 1)
    text = io.TextIOWrapper(world.open(), write_through=True)
    text.write("x" * BLOCK)
    with pytest.raises(UploadFailed):
        text.write("y")
    with pytest.raises(UploadFailed):
        text.close()
    world.assert_nothing_left()


@pytest.mark.parametrize("call", [lambda s: s.write(b"x"), lambda s: s.flush(), UploadStream.close])
def test_a_failed_create_shows_at_the_next_call(call: Callable[[UploadStream], object]) -> None:
    """If the upload could not be created, the next call on the file says so."""
    world = World()
    world.store.before = failing(InvalidRequest("no such bucket"), "create_upload")
    stream = world.open()
    with pytest.raises(UploadFailed, match="no such bucket"):
        call(stream)
    assert world.store.requests["abort_upload"] == 0
    world.assert_nothing_left()


def test_an_upload_whose_answer_was_not_heard_is_aborted(world: World) -> None:
    """If ``on_answer`` raises, the upload that exists by then is aborted."""

    def deaf(_: object) -> None:
        raise RuntimeError("deaf")

    stream = world.open(on_answer=deaf)
    with pytest.raises(UploadFailed, match="deaf"):
        stream.close()
    world.assert_nothing_left()


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("error", [RuntimeError("fenced"), KeyboardInterrupt()], ids=repr)
def test_a_hook_that_raises_ends_the_file(world: World, at: int, error: BaseException) -> None:
    """What ``before_block`` raises comes out as it is, and the upload is aborted."""
    calls = []

    def fence() -> None:
        calls.append(1)
        if len(calls) == at:
            raise error

    stream = world.open(before_block=fence)
    with pytest.raises(type(error)) as caught:
        stream.write(bytes(5 * BLOCK))
    assert caught.value is error
    with pytest.raises((RuntimeError, UploadFailed)):
        stream.close()
    world.assert_nothing_left()


def test_a_hook_may_abort_the_file_itself(world: World) -> None:
    """An attempt that is fenced aborts all its files from the hook, this one among them."""

    def fence() -> None:
        stream.abort()
        raise RuntimeError("fenced")

    stream = world.open(before_block=fence)
    with pytest.raises(RuntimeError, match="fenced"):
        stream.write(bytes(BLOCK))
    assert stream.state is FileState.ABORTED
    stream.close()
    world.assert_nothing_left()


@pytest.mark.parametrize("error", [RuntimeError("record refused"), SystemExit(1)], ids=repr)
def test_a_pending_that_cannot_be_recorded_aborts(world: World, error: BaseException) -> None:
    """If ``on_close`` raises, close raises that and the upload is aborted."""

    def refuse(_: object) -> None:
        raise error

    stream = world.open(on_close=refuse)
    stream.write(b"bytes")
    with pytest.raises(type(error)):
        stream.close()
    assert stream.closed
    world.assert_nothing_left()


def test_a_wrong_answer_of_the_store_fails_the_file() -> None:
    """A store that stored fewer bytes than were sent is not believed."""

    def shorten(request: Request, answer: Any) -> Any:
        return answer._replace(size=1) if request.verb == "put_part" else None

    world = World()
    world.store.after = shorten
    stream = world.open()
    stream.write(b"bytes")
    with pytest.raises(UploadFailed, match="answered 1 bytes"):
        stream.close()
    world.assert_nothing_left()


def test_a_full_disk_fails_the_file(tmp_path: Path) -> None:
    """If a block can neither stay in memory nor go to disk, the write says so."""
    nowhere = options(buffer_bytes_max=0, buffer_dir=str(tmp_path / "missing"))
    world = World(options=nowhere)
    stream = world.open()
    with pytest.raises(UploadFailed, match="buffer_dir"):
        stream.write(b"x")
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
    with pytest.raises(ValueError, match="closed"):
        stream.write(b"x")


@pytest.mark.parametrize(
    "error", [RuntimeError("body"), KeyboardInterrupt(), GeneratorExit(), SystemExit()], ids=repr
)
def test_leaving_with_by_any_exception_aborts(world: World, error: BaseException) -> None:
    """No exception, of whatever kind, publishes; and it is the one that comes out."""

    def body() -> None:
        with world.open() as stream:
            stream.write(bytes(2 * BLOCK))
            raise error

    with pytest.raises(type(error)) as caught:
        body()
    assert caught.value is error
    world.assert_nothing_left()


def test_abort_after_close_leaves_the_pending(world: World) -> None:
    """What was closed well belongs to the attempt: neither abort nor a second close touches it."""

    def body() -> None:
        with world.open() as stream:
            stream.write(b"bytes")
            stream.close()
            stream.close()
            stream.abort()
            raise RuntimeError("late")

    with pytest.raises(RuntimeError, match="late"):
        body()
    assert world.published() == b"bytes"
    assert world.aborts == 0


def test_parts_not_yet_sent_are_never_sent_after_an_abort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    (record,) = caplog.records
    assert upload.upload_id in record.getMessage()
    assert "table/file" in record.getMessage()
    world.store.before = None
    stream.abort()
    world.assert_nothing_left()


def test_an_abort_that_fails_is_a_note_on_the_body_s_exception() -> None:
    """Leaving ``with`` by exception raises that exception; the abort's failure is a note on it."""
    world = World()
    world.store.before = failing(Unanswered("store down"), "abort_upload")
    with pytest.raises(KeyError) as caught, world.open():
        raise KeyError("body")
    assert "store down" in caught.value.__notes__[0]
    world.store.before = None  # for the end of the interpreter, which tries again


def test_a_failed_file_whose_abort_fails_says_both() -> None:
    """UploadFailed carries a note when the upload could not be aborted; abort() tries again."""
    world = World()

    def before(request: Request) -> None:
        if request.verb in ("put_part", "abort_upload"):
            raise Unanswered(f"{request.verb} lost")

    world.store.before = before
    stream = world.open()
    with pytest.raises(UploadFailed, match="put_part lost") as caught:
        stream.close()
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
    pieces: tuple[int, ...] | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many parts in flight as may be, a stream's peak is at most
    ``block_bytes * (parts_in_flight + 2)``, beside what the caller holds itself: bytes that are
    written again and again, or new ones, wherever the parts begin and end."""
    # On the heap, where tracemalloc sees it; large blocks have pages of their own otherwise.
    monkeypatch.setattr(blocks, "_memory", lambda size: memoryview(bytearray(size)))
    block, in_flight = 1 << 20, 3
    world = World(LazyPool(), options(block, parts_in_flight=in_flight), store=Discarding())
    with world.open("warm") as warm:
        warm.write(b"x")
    tracemalloc.start()
    try:
        with world.open() as stream:
            stream.write(b"x")
            while stream.tell() < 30 * block:
                for count in pieces if isinstance(pieces, tuple) else ():
                    stream.write(bytes(count))
                if isinstance(pieces, bytes):
                    stream.write(pieces)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    held = 0.1 * block + max(pieces) if isinstance(pieces, tuple) else 0
    assert 4 * block <= peak <= block * (in_flight + 2) + held


def test_what_open_files_hold_is_what_they_count(tmp_path: Path) -> None:
    """A block that begins with the end of a large object does not keep all of it: with many open
    files it would be much more than the budget."""
    block = 1 << 20
    limits = options(block, buffer_bytes_max=4 * block, buffer_dir=str(tmp_path))
    world = World(options=limits, store=Discarding())
    tracemalloc.start()
    try:
        streams = [world.open(str(number)) for number in range(20)]
        for stream in streams:
            stream.write(b"x")
            stream.write(bytes(block))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        for stream in streams:
            stream.abort()
    assert held <= 5 * block


def test_one_thread_with_many_open_files_never_waits_for_itself(tmp_path: Path) -> None:
    """Fifty files open at once on a budget of two blocks: what does not fit waits on disk, memory
    stays within the budget, every file is right, and no disk is left in use."""
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
    """With ``buffer="disk"`` the bytes are the same, and no block's file survives any end, also
    where files need names."""
    exists = Path.exists
    monkeypatch.setattr(
        "os.path.exists", lambda path: "/fd/" not in str(path) and exists(Path(path))
    )
    world.options = options(buffer="disk", buffer_dir=str(tmp_path))
    data = random.Random(0).randbytes(4 * BLOCK + 11)
    stream = world.open()
    stream.write(data)
    assert list(tmp_path.iterdir()) != []
    if end == "close":
        stream.close()
        assert world.published() == data
    elif end == "abort":
        stream.abort()
        world.assert_nothing_left()
    else:
        world.store.before = failing(Unanswered("no reply"), "put_part", 5)
        with pytest.raises(UploadFailed):
            stream.close()
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
        with pytest.raises(io.UnsupportedOperation):
            wrong()
    with pytest.raises(TypeError, match="does not travel"):
        pickle.dumps(stream)
    stream.close()
    assert repr(stream) == "<UploadStream s3://bucket/table/file pending 4 bytes>"
    for late in (lambda: stream.write(b"x"), stream.flush, stream.tell):
        with pytest.raises(ValueError, match="closed file"):
            late()
    with pytest.raises(ValueError, match="closed file"), stream:
        pass


# Threads ------------------------------------------------------------------------------------------


def slow_parts(world: World) -> tuple[threading.Event, threading.Event]:
    """Let each part wait. Gives what says that one has begun, and what lets all go on."""
    begun, may_end = threading.Event(), threading.Event()

    def before(request: Any) -> None:
        if request.verb == "put_part":
            begun.set()
            assert may_end.wait(60)

    world.store.before = before
    return begun, may_end


@pytest.mark.parametrize("call", ["write", "a large write", "close", "text"])
def test_a_second_thread_inside_a_file_is_told_at_once(call: str) -> None:
    """While one thread waits for a part, another one's call raises, and the file has failed: what
    both wrote could not be whole."""
    world = World(ThreadPool(2), options=options(parts_in_flight=1))
    stream = world.open("a")
    text = TextUpload(stream)
    begun, may_end = slow_parts(world)

    def write() -> None:
        with contextlib.suppress(UploadFailed):  # it is the last write, or it is not
            if call == "text":
                text.write("x" * (12 * BLOCK))  # more than it keeps
            else:
                stream.write(bytes(4 * BLOCK))

    thread = threading.Thread(target=write)
    thread.start()
    assert begun.wait(60)
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: stream.write(b"x"),
        "a large write": lambda: stream.write(bytes(2 * BLOCK)),
        "close": stream.close,
        "text": lambda: text.write("x"),
    }
    while not stream._inside:
        pass
    with pytest.raises(UploadFailed, match=r"two threads at once.*a file of its own"):
        calls[call]()
    may_end.set()
    thread.join(60)
    with pytest.raises(UploadFailed, match="two threads at once"):
        stream.close()
    world.assert_nothing_left()


def test_threads_may_write_a_file_one_after_the_other() -> None:
    """A file that is handed from thread to thread is as good as any."""
    world = World(ThreadPool(2))
    stream = world.open("a")
    text = TextUpload(stream)
    for number in range(6):
        thread = threading.Thread(target=lambda number=number: text.write(str(number) * BLOCK))
        thread.start()
        thread.join(60)
    text.close()
    assert world.finished[0].length == 6 * BLOCK


def test_what_two_threads_write_at_once_is_whole_or_the_file_fails() -> None:
    """Small records, without a lock: all that were taken are there, or an error was raised."""
    world = World(ThreadPool(2))
    stream = world.open("a")
    taken, errors = [0, 0], []

    def write(number: int) -> None:
        record = bytes([number]) * 10
        try:
            for _ in range(20_000):
                taken[number] += stream.write(record)
        except (UploadFailed, ValueError) as error:
            errors.append(str(error))  # not its frames, which hold the block

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    if errors:
        with pytest.raises(UploadFailed, match="two threads at once"):
            stream.close()
        world.assert_nothing_left()
    else:
        stream.close()
        assert world.finished[0].length == sum(taken)
