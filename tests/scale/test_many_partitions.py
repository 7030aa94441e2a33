"""One Spark job of many partitions, in small: the program that runs 10,000 of them is right."""

from __future__ import annotations

import pytest

from magic_committer import checksum
from tests.scale import many_partitions
from tests.scale.many_partitions import LARGE_ROWS, Wrong, compare, running, text_of, write

PARTITIONS = 40


def test_each_partition_with_rows_becomes_its_file_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 40 partitions 10 have no rows and one has many: 30 files have just their rows; no upload
    and no control object is left. A driver that may not grow at all is noticed."""
    with running() as (spark, there):
        written = write(spark, there, PARTITIONS)
        assert (written.files, written.rows) == (30, LARGE_ROWS + 29)
        monkeypatch.setattr(many_partitions, "DRIVER_BYTES_MAX", -1)
        with pytest.raises(Wrong, match="the driver grew by"):
            write(spark, there, PARTITIONS)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"objects": {}}, "objects"),
        ({"open_uploads": 1}, "1 open uploads"),
        ({"object_count": 4}, "4 objects"),
        ({"objects": {"many/a": {"size": 4, "crc32": "AAAAAA=="}}}, "2 differences"),
        ({"objects": {"many/b": {"size": 4, "crc32": "AAAAAA=="}}}, "2 differences"),
    ],
)
def test_what_is_missing_or_left_is_told(change: dict[str, object], told: str) -> None:
    """A file too few or too many, other bytes, an open upload: each is an error."""
    body = text_of(1)
    right = {
        "objects": {"many/a": {"size": len(body), "crc32": checksum.of("CRC32", body).value}},
        "object_count": 2,
        "open_uploads": 0,
    }
    compare({"many/a": body}, right)
    with pytest.raises(Wrong, match=told):
        compare({"many/a": body}, {**right, **change})
