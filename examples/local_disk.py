"""All or nothing on a local disk, or on a network file system that is mounted.

    python -m examples.local_disk /data/table

A job writes two days. A second job replaces one of them, and fails half-way: nothing changes. A
third one's driver dies before its commit: an operator finds it, and ends it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import magic_committer as mc


def files(root: Path) -> list[str]:
    """The data that readers find: what begins with _ or . is hidden."""
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not any(p[0] in "_." for p in path.parts))


def main(directory: str) -> None:
    """Write below ``directory``, which need not exist."""
    root = Path(directory).resolve()
    dest = root.as_uri()

    with mc.write(dest) as job:
        for day in ("2026-11-21", "2026-11-22"):
            with job.open(f"dt={day}/part-0.csv", "w") as file:
                file.write("1,2,3\n")
    print("written:", *files(root))

    try:
        with mc.write(dest, mode="overwrite_partitions") as job:
            with job.open("dt=2026-11-22/part-1.csv", "w") as file:
                file.write("4,5,6\n")
            raise RuntimeError("half-way")
    except RuntimeError:
        print("after a failure:", *files(root))

    left = mc.start(dest)  # and its driver dies here
    for found in mc.inspect(dest):
        print("found:", found.id == left.id, found.state)
    print("ended:", mc.recover(dest, left.id, dead_after=0).outcome)  # 0: the driver is dead


if __name__ == "__main__":
    main(sys.argv[1])
