"""One Spark job of many partitions: `make nightly` has 10,000.

A quarter of the partitions has no rows, most have one, and each thousandth has many. The server is
the benchmarks' own, in Go: it answers at once, checks conditions, and computes the CRC32 of what
comes, but forgets the bytes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from benchmarks import server
from benchmarks.child import forget_peak, peak
from benchmarks.spark import session
from benchmarks.writers import BUCKET, environment
from magic_committer.spark import write_dataframe
from magic_committer.stores import checksum
from tests.nightly import most
from tests.process.conftest import ROOT
from tools import java

PARTITIONS = most(10_000, 40)
LARGE_EVERY, LARGE_ROWS = 1_000, 20_000
ROWS = f"IF(id % {LARGE_EVERY} = 0, {LARGE_ROWS}, IF(id % 4 = 3, 0, 1))"
DRIVER_BYTES_MAX = 128 * 1024**2


def text_of(partition: int) -> bytes:
    """What the file of a partition holds: `ROWS` says the same in SQL."""
    rows = LARGE_ROWS if partition % LARGE_EVERY == 0 else int(partition % 4 != 3)
    return b"".join(b"%d %d\n" % (partition, row) for row in range(rows))


@pytest.fixture
def spark() -> Iterator[tuple[Any, server.Server]]:
    """A Spark of this machine, and a server that its environment leads to."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        there = stack.enter_context(server.fast())
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        for name, value in {
            **environment(there.url, f"{folder}/aws-config", unsigned=True),
            **stack.enter_context(java.for_spark()), "PYTHONPATH": path,
        }.items():  # fmt: skip
            patch.setenv(name, value)
        yield stack.enter_context(session(2)), there


def test_each_partition_with_rows_becomes_its_file_and_nothing_is_left(
    spark: tuple[Any, server.Server],
) -> None:
    """Every file that there must be has the size and the CRC32 of its rows, and nothing else is
    there: no other file, no open upload, no control object. The driver hardly grows."""
    session, there = spark
    there.reset(verify=True)
    numbers = session.range(0, PARTITIONS, 1, PARTITIONS).selectExpr(
        "id", f"explode(slice(sequence(0, {ROWS}), 1, {ROWS})) AS n"
    )
    lines, before = numbers.selectExpr("concat(id, ' ', n) AS line"), forget_peak()
    report = write_dataframe(lines, f"s3://{BUCKET}/many", "text", mode="append")
    grown, facts = peak() - before, there.facts(named=2 * PARTITIONS + 1000)
    written = {
        f"many/part-{number:05d}-mcj{report.uuid}.txt": text
        for number in range(PARTITIONS)
        if (text := text_of(number))
    }
    assert (report.outcome, report.files, report.warnings) == ("committed", len(written), ())
    assert facts["objects"].pop("many/_SUCCESS")
    assert facts["objects"] == {
        key: {"size": len(text), "crc32": checksum.of("CRC32", text).value}
        for key, text in written.items()
    }
    assert (facts["object_count"], facts["open_uploads"]) == (len(written) + 1, 0)
    assert grown < DRIVER_BYTES_MAX
    print(f"{len(written):,} files; the driver grew by {grown / 2**20:.0f} MiB")
