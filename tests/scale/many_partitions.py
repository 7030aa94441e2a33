"""One Spark job of 10,000 partitions: ``python -m tests.scale.many_partitions``.

A quarter of the partitions has no rows, most have one, and each thousandth has many.
`write_dataframe` writes them as text, by one job. Then every file that there must be is there with
the size and the CRC32 of its rows, and nothing else is: no other file, no open upload, no control
object. The driver (this process) may take `DRIVER_BYTES_MAX` more than before.

The server is the benchmarks' own, in Go: it answers at once, checks conditions, and computes the
CRC32 of what comes, but forgets the bytes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import server
from benchmarks.child import forget_peak, peak
from benchmarks.spark import session
from benchmarks.writers import environment
from magic_committer import checksum

MiB = 1024**2
PARTITIONS = 10_000
LARGE_EVERY, LARGE_ROWS = 1_000, 20_000
DRIVER_BYTES_MAX = 128 * MiB
TELL_SECONDS = 20.0


class Wrong(AssertionError):
    """What is there is not what was written."""


@dataclass(frozen=True)
class Written:
    """What a run took. ``seconds``: of the whole job. commit_seconds: of its commit.
    ``driver_bytes``: how much this process grew at its peak. ``jvm_bytes``: the most that was
    resident of the JVM, driver and executor in one. ``requests``: by verb."""

    files: int
    rows: int
    seconds: float
    commit_seconds: float
    driver_bytes: int
    jvm_bytes: int
    requests: Mapping[str, int]

    def __str__(self) -> str:
        asked = ", ".join(f"{verb} {many:,}" for verb, many in sorted(self.requests.items()))
        return (
            f"{self.files:,} files, {self.rows:,} rows; {self.seconds:.0f} s, of it the commit"
            f" {self.commit_seconds:.1f} s; driver +{self.driver_bytes / MiB:.0f} MiB, JVM"
            f" {self.jvm_bytes / MiB:.0f} MiB; {sum(self.requests.values()):,} requests: {asked}"
        )


def rows_of(partition: int) -> int:
    """How many rows a partition has. `write` says the same in SQL."""
    if partition % LARGE_EVERY == 0:
        return LARGE_ROWS
    return 0 if partition % 4 == 3 else 1


def text_of(partition: int) -> bytes:
    """What the file of a partition holds."""
    return b"".join(b"%d %d\n" % (partition, row) for row in range(rows_of(partition)))


@contextmanager
def running() -> Iterator[tuple[Any, server.Server]]:
    """A Spark of this machine, and a server that its environment leads to. Raises NoGo: there is no
    Go to build the server."""
    from tools import java

    before = dict(os.environ)
    with ExitStack() as stack:
        stack.callback(_restore, before)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="magic-committer-scale-"))
        there = stack.enter_context(server.fast())
        os.environ.update(environment(there.url, f"{folder}/aws-config", unsigned=True))
        os.environ.update(stack.enter_context(java.for_spark()))
        path = [str(Path(__file__).resolve().parents[2]), before.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))  # the workers'
        yield stack.enter_context(session(2)), there


def _restore(before: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(before)


def write(spark: Any, there: server.Server, partitions: int) -> Written:
    """Write them by one job, and look at all that is there. Raises Wrong: a file is missing or
    another one, something is left, or memory grew too much."""
    from magic_committer import Progress
    from magic_committer.spark import write_dataframe

    there.reset(verify=True)
    many = f"IF(id % {LARGE_EVERY} = 0, {LARGE_ROWS}, IF(id % 4 = 3, 0, 1))"
    numbers = spark.range(0, partitions, 1, partitions).selectExpr(
        "id", f"explode(slice(sequence(0, {many}), 1, {many})) AS n"
    )
    lines = numbers.selectExpr("concat(id, ' ', n) AS line")
    told = time.monotonic()

    def tell(step: Progress) -> None:
        nonlocal told
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            print(f"  {step.phase}: {step.done} of {step.total} {step.unit}", file=sys.stderr)

    before, began = forget_peak(), time.perf_counter()
    report = write_dataframe(
        lines, f"s3://{server.BUCKET}/many", "text", mode="append", progress=tell
    )
    seconds, driver_bytes = time.perf_counter() - began, peak() - before
    facts = there.facts(named=2 * partitions + 1000)
    expected = {
        f"many/part-{number:05d}-mcj{report.uuid}.txt": text_of(number)
        for number in range(partitions)
        if rows_of(number)
    }
    compare(expected, facts, driver_bytes)
    if (report.outcome, report.files, report.warnings) != ("committed", len(expected), ()):
        raise Wrong(f"the report says: {report!r}")
    return Written(
        files=report.files, rows=sum(map(rows_of, range(partitions))), seconds=seconds,
        commit_seconds=report.seconds, driver_bytes=driver_bytes, jvm_bytes=_jvm_peak(spark),
        requests=facts["requests"],
    )  # fmt: skip


def compare(expected: Mapping[str, bytes], facts: Mapping[str, Any], driver_bytes: int) -> None:
    """Hold what is there against what must be, and the driver's growth against its limit. Raises
    `Wrong`."""
    found = {
        key: (one["size"], one["crc32"])
        for key, one in facts["objects"].items()
        if key != "many/_SUCCESS"
    }
    if len(found) + 1 != facts["object_count"] or facts["open_uploads"]:
        raise Wrong(
            f"{facts['object_count']} objects, {len(found)} besides _SUCCESS;"
            f" {facts['open_uploads']} open uploads"
        )
    wanted = {key: (len(body), checksum.of("CRC32", body).value) for key, body in expected.items()}
    if wanted != found:
        differing = sorted(wanted.items() ^ found.items())
        raise Wrong(f"{len(differing)} differences, for example {differing[:4]}")
    if driver_bytes > DRIVER_BYTES_MAX:
        raise Wrong(f"the driver grew by {driver_bytes / MiB:.0f} MiB")


def _jvm_peak(spark: Any) -> int:
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scale.many_partitions")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="(%(default)s)")
    chosen = parser.parse_args(given)
    load = os.getloadavg()[0]
    with running() as (spark, there):
        write(spark, there, 8)  # workers and classes are there
        print(f"{chosen.partitions:,} partitions: {write(spark, there, chosen.partitions)}")
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
