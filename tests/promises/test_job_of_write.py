"""The job of `with write(...)` is its process's: nobody else can take its tasks or end it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.job import give_up
from magic_committer.stores.memory import MemoryStore
from tests.destinations import There
from tests.promises.hands import (
    DEST,
    At,
    control,
    dies_at,
    raises,
    raising,
    refusing,
    visible,
    write,
)


def test_it_takes_no_task(s3: MemoryStore) -> None:
    """`write` would not commit it. What became of the job stays readable, and travels."""
    with mc.write(DEST) as writing:
        write(writing)
        job = writing.job
        assert mc.WrongProcess.advice in str(raises(mc.TaskFailed, job.task, "1"))
        assert (job.id, len(job.uuid), job.dest) == (writing.id, 32, f"{DEST}/")
        assert job.state == "running"
    assert visible(s3) == {"t/a.csv": b"1"}
    assert job.report is writing.report
    assert job.state == "absent"
    assert pickle.loads(pickle.dumps(job)).outcome == "committed"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_second_interruption_names_the_call_to_end_it(s3: MemoryStore, number: int) -> None:
    """Ctrl-C while `write` aborts leaves a note with the call that ends the job."""
    here = threading.current_thread()
    with pytest.raises(KeyboardInterrupt) as caught, mc.write(DEST) as writing:
        write(writing)
        At(s3, lambda _: threading.current_thread() is here, KeyboardInterrupt(), nth=number)
        raise ZeroDivisionError
    s3.before = None
    call = f"magic_committer.abort({writing.job.dest!r}, {writing.id!r})"
    assert any(call in note for note in caught.value.__notes__)
    if any(key.endswith("_job.json") for key in control(s3)):
        eval(call, {"magic_committer": mc})
    assert visible(s3) == {}


def test_what_somebody_else_aborts_is_left_to_them(s3: MemoryStore) -> None:
    """`give_up` sends nothing for a job that it knows to be aborted already."""
    job = mc.start(DEST)
    dies_at(s3, "list_uploads", lambda: mc.abort(DEST, job.id))
    seen = mc.attach(DEST, job.id)
    assert (seen.outcome, seen.state) == ("aborted", "aborting")
    s3.before = raising("*", AssertionError("a request is sent"))
    give_up(seen, ValueError("a worker failed"))


URL = "s3://bucket/t/a.csv"


@pytest.mark.parametrize(
    ("suffix", "read"),
    [("", bytes), (".gz", gzip.decompress), (".bz2", bz2.decompress), (".XZ", lzma.decompress)],
)
def test_one_file_appears_at_its_close_compressed_by_its_suffix(
    s3: MemoryStore, suffix: str, read: Callable[[bytes], bytes]
) -> None:
    """Nothing is visible before, and nothing but the file after."""
    with mc.open(URL + suffix, "w", newline="") as file:
        file.write("1\n" * 1000)
        assert visible(s3) == {}
    assert read(visible(s3)[f"t/a.csv{suffix}"]) == b"1\n" * 1000
    assert len(s3.keys()) == 1
    assert not s3.open_uploads()


def test_compression_is_as_it_is_said(s3: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suffix counts with "infer" only. A missing compression is an error."""
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    raises(mc.OptionError, mc.open, f"{URL}.zst", "w", match=r"pip install backports\.zstd")
    assert not s3.requests
    for name, compression in (("a", "gzip"), ("b", ".gz"), ("c.gz", None), ("d.gz", "disable")):
        with mc.open(f"{DEST}/{name}", "wb", compression=compression) as file:
            file.write(b"1")
    seen = visible(s3)
    assert gzip.decompress(seen["t/a"]) == gzip.decompress(seen["t/b"]) == b"1"
    assert seen["t/c.gz"] == seen["t/d.gz"] == b"1"
    raises(mc.OptionError, mc.open, URL, "wb", compression="lz4", match="'lz4' is none of")


def _raises(wrap: Callable[[Any], Any]) -> None:
    with wrap(mc.open(URL, "wb")) as file:
        file.write(b"half of it")
        raise KeyError


def _closes_finally(wrap: Callable[[Any], Any]) -> None:
    file = wrap(mc.open(URL, "wb"))
    try:
        file.write(b"half of it")
        raise KeyError
    finally:
        file.close()


@pytest.mark.parametrize("fails", [_raises, _closes_finally])
@pytest.mark.parametrize("wrap", [lambda file: file, io.BufferedWriter], ids=["itself", "wrapper"])
def test_one_file_is_not_published_by_an_exception(
    s3: MemoryStore, fails: Callable[[Any], None], wrap: Callable[[Any], Any]
) -> None:
    """Nor by a wrapper or a ``finally``; in the handler of an older exception it is."""
    try:
        raise KeyError
    except KeyError:
        with mc.open(URL, "wb") as file:
            file.write(b"old")
    raises(KeyError, fails, wrap)
    assert s3.keys() == ("t/a.csv",)
    assert visible(s3) == {"t/a.csv": b"old"}
    assert not s3.open_uploads()


def test_one_file_that_is_dropped_is_given_up(s3: MemoryStore) -> None:
    """Its job is aborted, and the record goes."""
    with pytest.warns(ResourceWarning, match="was dropped"):
        mc.open(URL, "wb").write(b"1")
    until = time.monotonic() + 10
    while s3.keys() and time.monotonic() < until:
        time.sleep(0.01)
    assert s3.keys() == ()


@pytest.mark.parametrize("mode", ["r", "rb", "a", "x", "r+"])
def test_modes_that_do_not_write_a_new_file_name_who_has_them(s3: MemoryStore, mode: str) -> None:
    """And a call without a mode overwrites nothing."""
    with pytest.raises(ValueError, match=r"smart_open\.open\('s3://bucket/t/a\.csv'\) or s3fs"):
        mc.open(URL, mode)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="mode"):
        mc.open(URL)  # type: ignore[call-overload]
    assert not s3.requests


def test_a_close_that_fails_never_counts_as_published(s3: MemoryStore) -> None:
    """Each further ``close`` raises the same."""
    file = mc.open(URL, "wb")
    file.write(b"1")
    denied = mc.PermissionDenied("you may not", code="AccessDenied", status=403)
    with refusing(s3, "*", denied):
        for _ in range(2):
            raises(mc.UploadFailed, file.close, match="you may not")
    assert visible(s3) == {}


def test_one_file_replaces_what_is_there_at_its_close(there: There) -> None:
    """On each kind of destination; a reader finds the old file until then, in one piece."""
    there.put("a.txt", b"old")
    with mc.open(f"{there.url}/a.txt", "w", encoding="latin-1") as file:
        file.write("ä")
        assert there.read("a.txt") == b"old"
    assert there.data() == {"a.txt": b"\xe4"}
    assert not there.left()


def test_a_cut_write_publishes_no_file(s3: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may leave bytes in the compressor that the file does not have."""

    def cut(data: object) -> None:
        raise KeyboardInterrupt

    file = mc.open(f"{URL}.gz", "wb")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(file._file, "write", cut)  # type: ignore[attr-defined]
        file.write(b"1")
    for call in (lambda: file.write(b"2"), file.close, file.close):
        raises(mc.UploadFailed, call, match="what it has interrupted")
    assert s3.keys() == ()
