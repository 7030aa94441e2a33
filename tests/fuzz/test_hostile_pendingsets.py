"""Hostile and damaged `.pendingset` files: seeded mutations of real ones, 24,000 at night.

Each is refused with a `FormatError` that names the object, or accepted. What accepting may mean
depends on what the file is:

* one of ours, sealed: every meaningful field is the original's, whatever was done to the bytes;
* one of Hadoop's, which holds nothing to check it by: every meaningful field is the original's,
  unless the mutation wrote another legal value, or another list of commits, into the document; then
  it is that value, as an independent reader (the standard library's) sees it: nothing is coerced,
  dropped or made up.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from magic_committer.errors import FormatError
from magic_committer.hadoop import documents
from magic_committer.hadoop.documents import PendingSet
from tests.nightly import most

GOLDEN = Path(__file__).parent.parent / "golden"
SEEDS = range(most(24_000, 6_000))
SOURCE = "t/__magic_job-7/job-7/00/a_0.pendingset"


# Originals ----------------------------------------------------------------------------------------


def hadoops() -> list[bytes]:
    """One of each kind that Hadoop wrote: string and object etags, pretty and compact, checksums,
    many parts, odd names, no commits."""
    names = (
        "3.3.4/magic/pendingset-1", "3.3.6/names/pendingset-1", "3.4.1/multipart/pendingset-1",
        "3.5.0/directory/pendingset-1", "3.5.0/inmem/pendingset-1", "3.5.0/magic/pendingset-1",
        "3.5.0/multipart-CRC32C/pendingset-1", "3.5.0/sum-SHA256/pendingset-1",
        "3.5.0/empty-file-and-no-file/pendingset-2",
    )  # fmt: skip
    return [(GOLDEN / f"{name}.json").read_bytes() for name in names]


def ours() -> list[bytes]:
    """What we write in the place of each, sealed, in its form of etags."""
    written = []
    for data in hadoops():
        read = documents.decode_pendingset(data, SOURCE)
        made = documents.new_pendingset(
            job_id=read.job_id,
            commits=read.commits,
            extra_data={"task": "7", "attempt": "a_0"},
            iostatistics={"counters": {"committer_bytes_uploaded": 14}},
        )
        objects = b'"checksumAlgorithm"' in data
        written.append(documents.encode_pendingset(made, "objects" if objects else "strings"))
    return written


# Mutations ----------------------------------------------------------------------------------------

Mutation = Callable[[random.Random, bytes, bytes], bytes]


def flip(rng: random.Random, data: bytes, other: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """The head of one file and the tail of another, or a piece of one in the other."""
    cut, seam = rng.randrange(len(data)), rng.randrange(len(other))
    if rng.random() < 0.5:
        return data[:cut] + other[seam:]
    return data[:cut] + other[seam : seam + rng.randrange(1, 200)] + data[cut:]


def twice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A piece of the file once more, or the whole file."""
    start = rng.randrange(len(data))
    end = start + rng.randrange(1, 400)
    return rng.choice((data[:end] + data[start:], data + data, b" \n" + data + b"\n "))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a document with every one of its names or indices."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


def place(rng: random.Random, document: Any) -> tuple[Any, Any]:
    """A random place; those outside the statistics, which are most of a file, come up more."""
    every = list(places(document))
    meaningful = [
        (holder, key)
        for holder, key in every
        if not (isinstance(key, str) and ("_" in key or key.endswith((".min", ".max", ".mean"))))
    ]
    return rng.choice(meaningful if meaningful and rng.random() < 0.8 else every)


def on_document(change: Callable[[random.Random, Any, Any, Any], None]) -> Mutation:
    """A mutation of a random place of the parsed document, written again."""

    def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
        document = json.loads(data)
        holder, key = place(rng, document)
        change(rng, holder, key, json.loads(other))
        separators = (",", ":") if rng.random() < 0.8 else None
        return json.dumps(document, separators=separators, ensure_ascii=False).encode()

    mutate.__name__ = change.__name__
    return mutate


VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**53, 2**63, 2**64, -(2**63) - 1, 10**400, "", "5", "\x00",
    "a" * 5000, "ü日", '"x"', [], [[]], {}, {"etag": "x"},
)  # fmt: skip


def swap_type(rng: random.Random, holder: Any, key: Any, other: Any) -> None:
    holder[key] = rng.choice(VALUES)


def delete(rng: random.Random, holder: Any, key: Any, other: Any) -> None:
    del holder[key]


def add(rng: random.Random, holder: Any, key: Any, other: Any) -> None:
    value = rng.choice((*VALUES, holder[key]))
    if isinstance(holder, dict):
        holder[rng.choice(("unknown", "partCount", "extraData", "checksum"))] = value
    else:
        holder.insert(key, value)


def transplant(rng: random.Random, holder: Any, key: Any, other: Any) -> None:
    there, name = place(rng, other)
    holder[key] = there[name]


def shuffle(rng: random.Random, holder: Any, key: Any, other: Any) -> None:
    """Lists in another order, objects with their fields in another order."""
    if isinstance(holder, list):
        rng.shuffle(holder)
    else:
        items = list(holder.items())
        rng.shuffle(items)
        holder.clear()
        holder.update(items)


MUTATIONS: tuple[Mutation, ...] = (
    *(flip, flip, truncate, splice, twice),
    *map(on_document, (swap_type, swap_type, delete, delete, add, transplant, shuffle)),
)
"""What stands twice, is nested too deep or is too large a number: tests/unit/test_formats.py."""


# Meaning ------------------------------------------------------------------------------------------

Meaning = tuple[Any, ...]
"""Job, and for each commit `FIELDS`, parts and extra data: what decides what becomes visible."""
FIELDS = {
    "bucket": "bucket", "destination_key": "destinationKey", "upload_id": "uploadId",
    "length": "length", "job_id": "jobId", "task_id": "taskId",
}  # fmt: skip


def meaning(read: PendingSet) -> Meaning:
    """Of a set that was accepted."""
    return read.job_id, [
        (
            *(getattr(commit, field) for field in FIELDS),
            [(e.etag, e.checksum_algorithm, e.checksum) for e in commit.parts],
            commit.extra_data or {},
        )
        for commit in read.commits
    ]


def meaning_of_bytes(data: bytes) -> Meaning:
    """The same from the bytes, by another reader that knows none of our code."""
    document = json.loads(data.decode("utf-8"))
    return document["jobId"], [
        (
            *(commit[field] for field in FIELDS.values()),
            [
                (e, None, None)
                if isinstance(e, str)
                else (e["etag"], e.get("checksumAlgorithm"), e.get("checksum"))
                for e in commit["etags"]
            ],
            commit.get("extraData") or {},
        )
        for commit in document["commits"]
    ]


def mutant(seed: int, originals: list[bytes]) -> tuple[bytes, bytes, str]:
    """An original, its mutation, and the mutation's name: all from the seed."""
    rng = random.Random(seed)
    original, other = rng.choice(originals), rng.choice(originals)
    mutation = rng.choice(MUTATIONS)
    return original, mutation(rng, original, other), mutation.__name__


@pytest.mark.parametrize("sealed", [True, False], ids=["ours", "hadoops"])
def test_damage_is_refused_by_name_or_harmless(sealed: bool) -> None:
    """Half of the mutations each: a refusal names object, field and reason; what is accepted means
    what the original did (ours), or exactly what the document says (Hadoop's)."""
    originals = ours() if sealed else hadoops()
    outcomes: Counter[tuple[str, str]] = Counter()
    for seed in SEEDS[sealed::2]:
        original, data, name = mutant(seed, originals)
        try:
            outcomes[name, verdict(original, data, sealed)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}, mutation {name}, sealed={sealed}")
            raise
    assert outcomes.total() == len(SEEDS) // 2
    verdicts = {"refused", "accepted, same", *(() if sealed else ("accepted, other values",))}
    assert {verdict for _, verdict in outcomes} == verdicts
    assert {name for name, _ in outcomes} == {mutation.__name__ for mutation in MUTATIONS}


def named(refusal: FormatError) -> str:
    """A refusal says object, field and reason."""
    assert refusal.source == SOURCE
    assert refusal.reason
    assert refusal.field or any(words in refusal.reason for words in WHOLE)
    assert str(refusal).startswith(f"{SOURCE}: {refusal.field or 'document'}: ")
    return "refused"


def verdict(original: bytes, data: bytes, sealed: bool) -> str:
    """What becomes of damaged data."""
    try:
        result = documents.decode_pendingset(data, SOURCE)
    except FormatError as error:
        return named(error)
    read = meaning(result)
    same = read == meaning_of_bytes(original)
    assert same if sealed else read == meaning_of_bytes(data)
    plain = all(e.checksum is None for commit in result.commits for e in commit.parts)
    again = documents.encode_pendingset(result, "strings" if plain else "objects")
    assert meaning(documents.decode_pendingset(again, SOURCE)) == read
    return "accepted, same" if same else "accepted, other values"


WHOLE = (
    "is not JSON", "has no data", "is nested", "values in", "not an object", "is a number beyond",
)  # fmt: skip
"""Words of a refusal that has no single field to name."""
