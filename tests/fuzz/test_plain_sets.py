"""The quick reader of pendingsets beside the strict one: what it accepts, both read alike.

Mutations of what Hadoop wrote and of what we write: of bytes (`test_hostile_pendingsets`), and of
values in documents that are written well again, sealed or not. Whatever the quick reader accepts,
the strict reader accepts too, with the same meaning; what it does not, is the strict reader's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from magic_committer.commit.load import _first_attempt, _strict_rows
from magic_committer.commit.plain import plain_set
from magic_committer.commit.ready import RowCheck, row_of, to_pending, upload_of
from magic_committer.errors import FormatError
from magic_committer.hadoop import formats
from magic_committer.hadoop import json as documents
from magic_committer.hadoop.paths import Destination
from magic_committer.protocol.record import StartedJob, Terms
from magic_committer.stores.base import Checksum, Part
from tests.fuzz.test_hostile_pendingsets import GOLDEN, MUTATIONS, hadoops, ours

BUCKET = "bucket"
SOURCE = "t/__magic_job-j/job-j/00/a.pendingset"
UUID = "0" * 32
JOB = StartedJob("j", UUID, "s3://bucket/t/", Terms(), False, "", False)
ETAG = '"0123456789abcdef0123456789abcdef"'
CRC = Checksum("CRC32C", "AAAAAA==")
BYTES_EACH = 120
"""Changes of each kind."""
VALUE_SEEDS = range(5_000)


def plain(files: int = 3, **changes: Any) -> bytes:
    """A set as a task of ours writes it; the last file has two parts."""
    pendings = []
    for number in range(files):
        sizes = (5 * 1024**2, 7) if number == files - 1 else (3,)
        parts = [Part(n, ETAG, size, CRC) for n, size in enumerate(sizes, 1)]
        key = f"t/p=1/{number}-mcj{UUID}.csv"
        pending = to_pending(
            JOB, "a", bucket=BUCKET, uri=f"s3://bucket/{key}", key=key, upload_id=f"id{number}",
            parts=parts, length=sum(sizes), checksum=CRC, token=f"{UUID}.a.{number}",
            created_ms=1_700_000_000_000,
        )  # fmt: skip
        pendings.append(replace(pending, **changes))
    extra = {f"magic-committer.{name}": name for name in ("job", "task", "attempt")}
    made = formats.new_pendingset(
        job_id="j", commits=pendings, extra_data=extra, iostatistics={"counters": {"x": 1}}
    )
    return formats.encode_pendingset(made)


def strictly(data: bytes) -> tuple[Any, ...] | None:
    """What the strict reader says; None: it refuses the set."""
    try:
        read = formats.decode_pendingset(data, SOURCE)
        rows = _strict_rows(read, SOURCE, BUCKET)
    except FormatError:
        return None
    meaning = (read.job_id, read.extra_data or {}, read.iostatistics or {}, _first_attempt(read))
    return (*meaning, orjson.loads(orjson.dumps(rows)))


def quickly(data: bytes) -> tuple[Any, ...] | None:
    """What the quick reader says; None: it leaves the set to the strict one."""
    read = plain_set(data, BUCKET)
    if read is None:
        return None
    meaning = (read.job_id, read.extra_data, read.iostatistics, _first_attempt(read))
    return (*meaning, orjson.loads(orjson.dumps(read.rows)))


def alike(data: bytes) -> str:
    """``quick`` if both read the set, and alike; otherwise ``strict`` or ``refused``."""
    strict, quick = strictly(data), quickly(data)
    if quick is not None:
        if quick != strict:  # no diff of them: it takes minutes
            pytest.fail(f"read differently: {data[:2000]!r}")
        return "quick"
    return "strict" if strict is not None else "refused"


# Values -------------------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 2**63, 2**63 - 1, -(2**63), 2**64 - 1, 1.0, 2.0, 3.0, 0.5,
    "", "x", "/x", "a/b", "t/p=1/0.csv", "bucket", "other", "j", "j2", "\x00", "\x7f", "\x85", "\n",
    "\\", '"', '"x"', '"x', "é", "\U0001f600", "s3://b/a b", "s3://b/%2", "s3://b/%20", "3", "5*2",
    "03", "CRC32", "CRC32C", "SHA256", "MD5", "AAAAAA==", "AAAA", "!", "x" * 1025, "x" * 5000,
    [], {}, [[]], {"x": {}}, {"x": "y"}, [ETAG], {"etag": ETAG},
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values of a document."""
    found = [path] if path else []
    items: Any = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for name, child in items:
        found += places(child, (*path, name))
    return found


def changed(rng: random.Random, document: Any) -> Any:
    """One or two values are others, are gone, are there twice, or have a new neighbour."""
    for _ in range(rng.choice((1, 1, 2))):
        *above, last = rng.choice(places(document))
        parent = document
        for name in above:
            parent = parent[name]
        deed = rng.random()
        if deed < 0.7:
            parent[last] = rng.choice(ODD)
        elif deed < 0.8:
            del parent[last]
        elif deed < 0.9 and isinstance(parent, list):
            parent.append(parent[last])
        elif isinstance(parent, dict):
            name = rng.choice(("other", "version", "etag", "jobId"))
            parent[name] = rng.choice(ODD)
        if not document:
            break
    return document


def written(rng: random.Random, document: Any) -> bytes:
    """The document as bytes; mostly sealed, and mostly in one line."""
    sealed = rng.random() < 0.7
    data = orjson.dumps(document)
    if sealed and isinstance(document, dict):
        data = orjson.dumps(document | {documents.SEAL: documents._digest(data)})
    if rng.random() < 0.1:
        data = orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2)
    return data


def test_what_we_write_is_plain() -> None:
    """The quick reader reads it all, as the strict reader does: sets of ours, with checksums or
    none, of one file and of many parts, and tombstones."""
    for data in (plain(1), plain(3), plain(40), plain(0)):
        assert alike(data) == "quick"
    assert alike(plain(2, filename="x", text="y")) == "quick"
    bare = orjson.loads(plain(2))
    del bare[documents.SEAL]
    assert alike(orjson.dumps(bare)) == "quick"


def test_a_changed_letter_under_a_seal_is_not_plain() -> None:
    """A sealed set with another letter in an upload id is left to the strict reader's refusal."""
    damaged = plain(2).replace(b'"id0"', b'"id9"')
    assert plain_set(damaged, BUCKET) is None
    assert alike(damaged) == "refused"


def test_what_hadoop_wrote_is_read_alike() -> None:
    """Every pendingset of every release in tests/golden."""
    found = sorted(GOLDEN.glob("*/*/pendingset-*.json"))
    assert len(found) >= 20
    told = Counter(alike(path.read_bytes()) for path in found)
    assert set(told) <= {"quick", "strict", "refused"}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_changed_bytes_are_read_alike(mutation: Callable[..., bytes]) -> None:
    """Bits, bytes and pieces of sets of ours and of Hadoop's, changed, moved, cut or doubled."""
    originals = [plain(1), plain(3), *ours(), *hadoops()]
    told: Counter[str] = Counter()
    for seed in range(BYTES_EACH):
        rng = random.Random(f"{mutation.__name__} {seed}")
        data = mutation(rng, rng.choice(originals[:2] * 4 + originals), rng.choice(originals))
        told[alike(data)] += 1
    assert told["refused"] > BYTES_EACH // 4, told  # the mutation bites


def test_changed_values_are_read_alike() -> None:
    """Values of all kinds in all places, in documents that are sealed again: most are refused by
    both, and what the quick reader accepts is what the strict one reads."""
    told: Counter[str] = Counter()
    for seed in VALUE_SEEDS:
        rng = random.Random(seed)
        document = orjson.loads(plain(rng.choice((1, 2, 3))))
        del document[documents.SEAL]
        told[alike(written(rng, changed(rng, document)))] += 1
    assert min(told["quick"], told["strict"], told["refused"]) > 200, told


def test_every_place_takes_every_odd_value_alike() -> None:
    """Each odd value once in each place of a set, sealed."""
    fresh = orjson.loads(plain(1))
    del fresh[documents.SEAL]
    told: Counter[str] = Counter()
    for path in places(fresh):
        for odd in ODD:
            document = orjson.loads(orjson.dumps(fresh))
            parent = document
            for name in path[:-1]:
                parent = parent[name]
            parent[path[-1]] = odd
            data = orjson.dumps(document)
            told[alike(orjson.dumps(document | {documents.SEAL: documents._digest(data)}))] += 1
    assert min(told["quick"], told["strict"], told["refused"]) > 20, told


def test_a_row_is_its_upload() -> None:
    """From an upload to its row, through JSON, and back."""
    read = plain_set(plain(3), BUCKET)
    assert read is not None
    for row in orjson.loads(orjson.dumps(read.rows)):
        upload = upload_of(row)
        assert orjson.loads(orjson.dumps(row_of(upload))) == row
        assert RowCheck(JOB, Destination.parse("s3://bucket/t")).problem(*row[:4]) is None
