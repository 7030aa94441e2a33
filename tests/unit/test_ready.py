"""What our own writers put into ``extraData``, read back: as it was, or a `FormatError`."""

from __future__ import annotations

import tracemalloc

import pytest

from magic_committer.commit.ready import EXTRA_PART_BYTES, from_pending
from magic_committer.errors import FormatError
from magic_committer.hadoop.formats import Pending, UploadEtag, new_pending
from magic_committer.hadoop.paths import java_uri
from magic_committer.stores.base import PART_NUMBER_MAX

PART_BYTES_MAX = 5 * 1024**3
"""S3 API."""
LITTLE = 1024**2
"""Bytes: a text of some kB must not cost more than this."""


def pending(sizes: str, parts: int = 1, length: int = 3) -> Pending:
    """A `.pending` that tells the sizes of its parts so."""
    return new_pending(
        uri=java_uri("bucket", "a"), upload_id="u", bucket="bucket", destination_key="a",
        created_ms=0, etags=(UploadEtag('"900150983cd24fb0d6963f7d28e17f72"', None, None),) * parts,
        length=length, extra_data={EXTRA_PART_BYTES: sizes}, task_id="t",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ("3", [3]),
        ("2*3,1", [2, 2, 2, 1]),
        (f"{PART_BYTES_MAX}*9999,1", [PART_BYTES_MAX] * 9_999 + [1]),
        (f"{1024**4 * 50}", [1024**4 * 50]),
        (f"{1024**4 * 50}*10000", [1024**4 * 50] * PART_NUMBER_MAX),
    ],
)
def test_all_sizes_that_stores_allow_are_read(sizes: str, parts: list[int]) -> None:
    """Up to 10,000 parts, of objects of any length, in runs or one by one."""
    ready = from_pending(pending(sizes, len(parts), sum(parts)), "x")
    assert [part.size for part in ready.parts] == parts


@pytest.mark.parametrize(
    "sizes",
    [
        "9" * 5_000,
        "1*" + "9" * 5_000,
        "1*" + "0" * 5_000 + "1",
        ",".join(["3"] * 4_999 + ["9" * 5_000]),
        "1*10001",
        "1*10000,1",
        ",".join(["1*10000"] * 3_000),
        ",".join(["1"] * 10_001),
        "1,",
        "1*",
        "1*-1",
        "-1",
        "0x3",
        " 3",
    ],
    ids=lambda sizes: f"{sizes[:12]}... of {len(sizes)}",
)
def test_sizes_that_cannot_be_are_refused_with_little_memory(sizes: str) -> None:
    """Thousands of digits, more than 10,000 parts, what is no number: a `FormatError` with object
    and field, no longer than a line, before anything large is made of it."""
    hostile = pending(sizes)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as refused:
            from_pending(hostile, "t/x.pending")
        assert tracemalloc.get_traced_memory()[1] < LITTLE
    finally:
        tracemalloc.stop()
    assert str(refused.value).startswith("t/x.pending: extraData.magic-committer.part-bytes: ")
    assert len(str(refused.value)) < 200
