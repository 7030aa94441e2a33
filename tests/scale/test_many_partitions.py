"""One Spark job of many partitions, in small: the program that runs 10,000 of them is right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from magic_committer import checksum
from tests.scale.many_partitions import DRIVER_BYTES_MAX, LARGE_ROWS, Wrong, compare, text_of

PROGRAM = [sys.executable, "-m", "tests.scale.many_partitions", "--partitions", "40"]
SECONDS_MAX = 400.0


def test_each_partition_with_rows_becomes_its_file_and_nothing_is_left() -> None:
    """Of 40 partitions 10 have no rows and one has many: 30 files have just their rows; no upload
    and no control object is left."""
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run(PROGRAM, cwd=root, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert run.returncode == 0, run.stderr[-4000:]
    assert f"40 partitions: 30 files, {LARGE_ROWS + 29:,} rows" in run.stdout


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
    """A file too few or too many, other bytes, an open upload: each is an error; so is a driver
    that grows by one byte more than it may."""
    body = text_of(1)
    right = {
        "objects": {"many/a": {"size": len(body), "crc32": checksum.of("CRC32", body).value}},
        "object_count": 2,
        "open_uploads": 0,
    }
    compare({"many/a": body}, right, DRIVER_BYTES_MAX)
    with pytest.raises(Wrong, match=told):
        compare({"many/a": body}, {**right, **change}, DRIVER_BYTES_MAX)
    with pytest.raises(Wrong, match="the driver grew by 128 MiB"):
        compare({"many/a": body}, right, DRIVER_BYTES_MAX + 1)
