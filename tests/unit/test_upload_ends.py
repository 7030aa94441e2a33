"""Files that nobody closes: dropped, left open at the interpreter's end, inherited by a fork."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magic_committer.runtime.threads import ThreadPool
from magic_committer.upload import FileState, TextUpload, UploadStream
from magic_committer.upload.sender import _unsettled
from tests.unit.uploading import BLOCK, LazyPool, World, failing

ROOT = Path(__file__).parents[2]


def drop(world: World, how: str = "a file", **hooks: Any) -> None:
    stream: Any = world.open(**hooks)
    stream.write(bytes(2 * BLOCK + 1))
    file: Any = TextUpload(stream) if how.startswith("a text") else stream
    if how.endswith("of a cycle"):
        file.myself = file
    del stream, file
    gc.collect()


@pytest.mark.parametrize("how", ["a file", "a text", "a file of a cycle", "a text of a cycle"])
def test_a_dropped_file_is_aborted_by_the_pool(how: str) -> None:
    """Garbage collection aborts, in a thread of the pool, publishes nothing and warns."""
    world = World(ThreadPool(2))
    told = threading.Semaphore(0)
    with pytest.warns(ResourceWarning, match=r"dropped without close\(\)"):
        drop(world, how, on_abort=told.release)
    assert told.acquire(timeout=300)
    assert (world.left_open(), world.finished) == ([], [])
    assert world.store.requests["abort_upload"] == 1
    assert world.blocks.bytes_in_use == 0
    world.pool.close()  # type: ignore[attr-defined]


def test_a_finalizer_does_no_request_itself() -> None:
    """Dropping only leaves word for the pool: the finalizer sends nothing and waits for nothing."""
    pool = LazyPool()
    world = World(pool)
    with pytest.warns(ResourceWarning):
        drop(world)
    assert world.store.requests["abort_upload"] == 0
    (late,) = pool.late
    late()
    world.assert_nothing_left()


def test_dropping_an_ended_file_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to warn of, abort or remember; nor of a file whose constructor raised."""
    gc.collect()  # else what other tests have left goes meanwhile
    raised, pool, before = list[object](), LazyPool(), set(_unsettled)
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    world = World(pool)
    closed, aborted = world.open("a"), world.open("b")
    assert {sender.key for sender in _unsettled - before} == {"a", "b"}
    closed.close()
    aborted.abort()
    assert (closed.state, aborted.state) == (FileState.PENDING, FileState.ABORTED)
    never_made = UploadStream.__new__(UploadStream)
    del closed, aborted, never_made
    gc.collect()
    assert (pool.late, raised, _unsettled - before) == ([], [], set())


PROGRAM = """
import io, os, sys, threading
from magic_committer.stores.memory import MemoryStore
from magic_committer.runtime.threads import ThreadPool
from magic_committer.upload import TextUpload
from tests.unit.uploading import World

LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def log(word):
    os.write(LOG, f"{os.getpid()} {word}\\n".encode())

class Published(list):
    def append(self, finished):
        super().append(finished)
        log(f"published {finished.key} {finished.length}")

world = World(ThreadPool(3), finished=Published())
world.store.before = lambda request: log(request.verb)
log("start")
"""


def run(tmp_path: Path, body: str, *, code: int = 0) -> list[tuple[int, str]]:
    """Run a program that opens files; (pid, verb or "published …") of everything it did."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + body, str(tmp_path / "log")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    lines = (tmp_path / "log").read_text().splitlines()
    return [(int(pid), word) for pid, _, word in (line.partition(" ") for line in lines)]


ENDS = {
    "end": ("f = world.open(); f.write(bytes(5500))", 0),
    "unhandled": ("f = world.open(); f.write(bytes(5500)); 1 / 0", 1),
    "text": ("f = TextUpload(world.open()); f.write('x' * 20000)", 0),
    "foreign text": ("f = io.TextIOWrapper(world.open()); f.write('x' * 20000)", 0),
    "cycle": ("f = world.open(); f.me = f; del f", 0),
    "exit in a function":
        ("def g():\n  f = world.open(); f.write(bytes(5500)); sys.exit(3)\ng()", 3),
    "exit in with": ("with world.open() as f:\n  f.write(bytes(5500)); sys.exit(3)", 3),
    "unhandled in text's with": ("with TextUpload(world.open()) as f:\n  f.write('x'); 1 / 0", 1),
    "generator":
        ("def g():\n  with world.open() as f:\n    yield f\ni = g(); next(i).write(b'x')", 0),
    "modules gone": ("f = world.open(); sys.modules['magic_committer'] = None", 0),
}  # fmt: skip


@pytest.mark.parametrize("how", ENDS)
def test_no_end_of_the_interpreter_publishes(tmp_path: Path, how: str) -> None:
    """However Python ends, an open file is not published, and its abort is sent last."""
    body, code = ENDS[how]
    words = [word for _, word in run(tmp_path, body, code=code)]
    assert "create_upload" in words
    assert not [word for word in words if word.startswith("published")]
    assert words[-1] == "abort_upload"


def test_an_abort_that_failed_is_tried_again_at_the_end(tmp_path: Path) -> None:
    """An upload that could not be aborted when its file failed is aborted at the very end."""
    body = """
def down(request):
    log(request.verb)
    raise OSError("down")
f = world.open()
f.write(bytes(10))
f._sender.created()
world.store.before = down
try:
    f.close()
except OSError:
    log("raised")
world.store.before = lambda request: log(request.verb)
"""
    words = [word for _, word in run(tmp_path, body)]
    assert words[-3:] == ["abort_upload", "raised", "abort_upload"]


def test_a_pool_that_takes_nothing_leaves_nothing() -> None:
    """If Create cannot be submitted the constructor raises, and the file is forgotten."""

    class Shut(LazyPool):
        def submit(self, function: Callable[[], Any], errand: object = None) -> Any:
            raise RuntimeError("cannot schedule new futures after shutdown")

    before = set(_unsettled)
    with pytest.raises(RuntimeError, match="cannot schedule"):
        World(Shut()).open()
    assert set(_unsettled) == before


@pytest.mark.parametrize("ran", [False, True])
def test_an_interruption_at_the_hand_over_leaves_no_upload(ran: bool) -> None:
    """The pool has taken the Create, and a signal strikes before it has said so: whoever sees the
    other first aborts the upload."""

    class Struck(LazyPool):
        taken: Callable[[], Any]

        def submit(self, function: Callable[[], Any], errand: object = None) -> Any:
            self.taken = function
            if ran:
                function()
            raise KeyboardInterrupt

    world, before = World(pool := Struck()), set(_unsettled)
    with pytest.raises(KeyboardInterrupt):
        world.open()
    if not ran:
        pool.taken()
    assert world.store.requests["abort_upload"] == world.store.requests["create_upload"] == 1
    assert (world.store.open_uploads(), set(_unsettled)) == ((), before)


def test_an_interruption_in_a_thread_of_the_pool_is_raised_once() -> None:
    """A part that ended by Ctrl-C in a thread of the pool keeps no abort from its work."""
    world = World(ThreadPool(2))
    stream = world.open("a")
    world.store.before = failing(KeyboardInterrupt(), "put_part")
    with pytest.raises(KeyboardInterrupt):
        stream.write(bytes(3 * BLOCK))
        stream.close()
    stream.abort()
    assert stream.state is FileState.FAILED
    assert world.store.open_uploads() == ()
    assert stream._sender not in _unsettled
