"""cron: last night's rows, as one job. Run it again whenever it failed.

python nightly.py s3://bucket/table 2026-11-21
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator

import magic_committer as mc


def rows_of(day: str) -> Iterator[tuple[str, int]]:
    """Stands for your query."""
    yield from ((day, number) for number in range(1000))


def main(dest: str, day: str) -> None:
    """Write one day. A second run of the same day replaces the first."""
    # flock in the crontab sees to it that no other run lives: what is
    # unfinished is dead.
    for found in mc.inspect(dest):
        if found.kind == "ours" and found.state != "closed":
            print(mc.recover(dest, found.id, dead_after=0).did, file=sys.stderr)
    with mc.write(dest, mode="replace_partitions") as job:
        with job.open(f"day={day}/rows.csv", "w", unique=True, newline="") as f:
            csv.writer(f).writerows(rows_of(day))
    print(f"{day}: {job.report.files} file, {job.report.bytes} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
