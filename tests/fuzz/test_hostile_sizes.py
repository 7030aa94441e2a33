"""What somebody forged to exhaust the memory of whoever reads it: `.pendingset`s of many short
values, many at once, larger than told. And where what is read waits: temporary files."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from magic_committer.commit import sets as loading
from magic_committer.commit.sets import (
    LOADING_BYTES_MAX,
    LOADING_SETS_MAX,
    SMALL_SET_BYTES,
    SetRef,
    Spool,
    each_listed,
    load,
)
from magic_committer.errors import FormatError
from magic_committer.hadoop import documents
from magic_committer.hadoop.documents import BYTES_A_VALUE_MIN, VALUES_FREE
from magic_committer.options import Options
from magic_committer.protocol.record import USUAL_TERMS, StartedJob
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.memory import MemoryStore
from magic_committer.upload.blocks import BlockSource
from tests.fuzz.growing import MiB, growth

SET = documents.new_pendingset(
    job_id="j",
    commits=[
        documents.new_pending(
            uri="s3a://bucket/t/a.csv", upload_id="u", bucket="bucket", destination_key="t/a.csv",
            created_ms=0, etags=(documents.UploadEtag('"e"'),), length=1, extra_data={}, job_id="j",
            task_id="a",
        )
    ],
    extra_data={"magic-committer.task": "1", "magic-committer.attempt": "a"},
    iostatistics={},
)  # fmt: skip

FILLINGS = {
    "empty lists": b"[],",
    "empty objects": b"{},",
    "objects": b'{"a":1},',
    "empty texts": b'"",',
    "numbers": b"1,",
    "lists with white space": b"[] ,",
    "texts that hide nothing": b'"\\"",[],',
}


def crowded(filling: bytes, size: int) -> bytes:
    """A pendingset with a field that nobody knows, of so many bytes."""
    document = orjson.dumps({"version": 3, "jobId": "j", "commits": [], "x": []})
    return document[:-2] + filling * (size // len(filling)) + b"0]}"


def dense(size: int) -> bytes:
    """The worst that is read: names that differ, one for each `BYTES_A_VALUE_MIN` bytes."""
    names = b",".join(b'"%09x":"x"' % number for number in range(size // BYTES_A_VALUE_MIN))
    return b'{"version":3,"jobId":"j","commits":[],"x":{%b}}' % names


IMPORTS = "from magic_committer.hadoop.documents import FormatError, decode_pendingset"
READ = """
try:
    met = len(decode_pendingset(data, "set").commits)
except FormatError as error:
    met = error
"""


@pytest.mark.parametrize("kind", FILLINGS)
def test_many_short_values_are_refused_before_they_are_parsed(kind: str) -> None:
    """12 MB of empty lists took 450 MB: refused with hardly more than the file's own size."""
    grown, met = growth(crowded(FILLINGS[kind], 12_000_000), IMPORTS, READ)
    assert "values in" in met
    assert grown < 16 * MiB, f"{grown / MiB:.0f} MiB"


def test_what_is_read_takes_18_times_its_size_at_most() -> None:
    """The densest document that passes stays below what the docs say."""
    data = dense(8_000_000)
    grown, met = growth(data, IMPORTS, READ)
    assert met == "0"
    assert grown < 18 * len(data), f"{grown / len(data):.1f} times"


def test_so_many_values_are_read_and_one_more_is_not() -> None:
    """The limit is where it says: 10,000, and one for each 16 bytes."""

    def of(values: int) -> bytes:
        return b'{"x":[%b1]}' % (b"1," * (values - 3))

    number = next(n for n in range(VALUES_FREE, 20_000) if n > VALUES_FREE + len(of(n)) // 16)
    documents.refuse_crowded(of(number - 1))
    with pytest.raises(documents.Invalid, match="values in"):
        documents.refuse_crowded(of(number))


def test_names_full_of_commas_are_no_values() -> None:
    """Whatever stands in texts, quotes too, does not count: real files may be called so."""
    odd = ',[{\\"' * 150
    many = [
        replace(SET.commits[0], destination_key=f"t/{n}{odd}", upload_id=odd) for n in range(100)
    ]
    data = documents.encode_pendingset(replace(SET, commits=tuple(many)))
    assert sum(map(data.count, b",[{")) > VALUES_FREE + len(data) // BYTES_A_VALUE_MIN
    assert len(documents.decode_pendingset(data, "x").commits) == 100


def test_what_no_reader_takes_is_not_written() -> None:
    """Statistics of so many short values are refused by the writer."""
    counters = {f"{n:x}": n % 10 for n in range(3 * VALUES_FREE)}
    with pytest.raises(FormatError, match="values in"):
        documents.encode_pendingset(replace(SET, iostatistics={"counters": counters}))


# Many at once -------------------------------------------------------------------------------------


class Held:
    """Bytes of the sets that are being parsed at once. ``meet``: so many wait for each other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, meet: int = 1) -> None:
        self.bytes = self.most = self.sets = self.most_sets = 0
        self._meet = meet
        self._lock = threading.Condition()
        self._parse = loading._parse
        monkeypatch.setattr(loading, "_parse", self)

    def __call__(self, stored: Any, *args: Any, **named: Any) -> Any:
        with self._lock:
            self.sets, self.bytes = self.sets + 1, self.bytes + len(stored.body)
            self.most, self.most_sets = max(self.most, self.bytes), max(self.most_sets, self.sets)
            self._lock.notify_all()
            assert self._lock.wait_for(lambda: self.most_sets >= self._meet, 300)
        time.sleep(0.02)  # so that the others come, if they are let
        try:
            return self._parse(stored, *args, **named)
        finally:
            with self._lock:
                self.sets, self.bytes = self.sets - 1, self.bytes - len(stored.body)


JOB = StartedJob("j", "0" * 32, "s3://bucket/t/", USUAL_TERMS, False, "", False)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """A bucket, and as many threads as sets are ever read by."""
    pool = ThreadPool(LOADING_SETS_MAX)
    yield Runtime(MemoryStore(bucket="bucket"), pool=pool)
    pool.close()


def stored(runtime: Runtime, number: int, size: int) -> list[str]:
    """So many sets of at least so many bytes; their keys."""
    padded = replace(SET, extra_data={**(SET.extra_data or {}), "padding": "x" * size})
    data = documents.encode_pendingset(padded)
    keys = [f"{n}.pendingset" for n in range(number)]
    for key in keys:
        runtime.store.put(key, data)
    return keys


@pytest.mark.parametrize("told", ["nothing", "too little", "the truth"])
def test_large_sets_are_not_read_side_by_side(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """20 sets of 400 KB, 16 threads: what is parsed at once stays below the limit, whatever the
    plan, the task's result or the listing told of their size; and all of them are read."""
    keys = stored(runtime, 20, 400_000)
    true = runtime.store.head(keys[0]).size
    together = LOADING_BYTES_MAX // true if told == "the truth" else 1
    held = Held(monkeypatch, together)
    size = {"nothing": 0, "too little": 10, "the truth": true}[told]
    with Spool() as spool:
        read = load(runtime, JOB, [SetRef(k, size=size) for k in keys], spool, len(keys))
    assert (len(read.sets), read.problems, read.nobodys) == (20, [], [])
    assert {one.key for one in read.sets} == set(keys)
    assert held.most <= LOADING_BYTES_MAX
    assert held.most_sets == together


def test_small_sets_are_read_side_by_side(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sets up to the limit of small ones are read once each, many at once, of unknown size too."""
    held = Held(monkeypatch, meet=5)
    keys = stored(runtime, 64, SMALL_SET_BYTES - 2_000)
    with Spool() as spool:
        read = load(runtime, JOB, [SetRef(key) for key in keys], spool, len(keys))
    assert (len(read.sets), read.problems, read.nobodys) == (64, [], [])
    assert held.most_sets >= 5
    assert held.most <= LOADING_BYTES_MAX


def test_a_set_beyond_the_limit_is_named(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set of more bytes than any set has is a problem of that set, and not read."""
    monkeypatch.setattr(loading, "PENDINGSET_BYTES_MAX", SMALL_SET_BYTES + 1)
    held = Held(monkeypatch)
    (key,) = stored(runtime, 1, 2 * SMALL_SET_BYTES)
    with Spool() as spool:
        read = load(runtime, JOB, [SetRef(key)], spool, 1)
    assert read.sets == []
    assert f"has over {SMALL_SET_BYTES + 1} bytes" in read.problems[0]
    assert held.most == 0


def test_large_leftovers_are_not_read_side_by_side(runtime: Runtime) -> None:
    """What a sweep or a cleanup reads of a listing is bounded in bytes, as the listing tells them,
    whatever the number of threads."""
    keys = stored(runtime, 20, 400_000)
    infos = [runtime.store.head(key) for key in keys]
    lock = threading.Lock()
    now = most = 0

    def read(info: Any) -> None:
        nonlocal now, most
        with lock:
            now += info.size
            most = max(most, now)
        time.sleep(0.02)  # so that the others come, if they are let
        with lock:
            now -= info.size

    for outcome in each_listed(runtime, read, infos):
        outcome.unwrap()
    assert infos[0].size < most <= LOADING_BYTES_MAX


# Temporary files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True], ids=["without a name", "with a name"])
def test_temporary_files_are_their_owners_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """What waits on disk, of commits and of files, may be read by its owner only, whatever the
    umask; it has no name, or, where the system must have one, a drawn one; and nothing stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if named:
        exists = os.path.exists
        monkeypatch.setattr(
            os.path, "exists", lambda path: not str(path).startswith("/proc") and exists(path)
        )
    names: set[str] = set()
    before = os.umask(0)
    try:
        with Spool() as spool:
            spool.append(b"x" * (loading.SPOOL_MEMORY_BYTES_MAX + 1))
            descriptor = spool._file.fileno()
            assert os.fstat(descriptor).st_mode & 0o777 == 0o600
            for _ in range(3):
                block = BlockSource().block(8 * MiB, Options(buffer_bytes_max=0))
                block.append(memoryview(b"1"))
                assert block._file is not None
                assert os.stat(block._file.path).st_mode & 0o777 == 0o600
                names |= {path.name for path in tmp_path.iterdir()}
                block.release()
    finally:
        os.umask(before)
    assert len(names) == (3 if named else 0)
    assert list(tmp_path.iterdir()) == []
