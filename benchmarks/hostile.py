"""What reading a plan or a pendingset takes: of a real job, and of one that somebody forged.

python -m benchmarks.hostile

Each is read in a new process, which tells by how much it grew. Linux only.
"""

from __future__ import annotations

import subprocess
import sys

MiB = 1024**2
PLAN = (
    b'{"version":3,"job_id":"j","uuid":"%032d","nonce":"n","files":1,"bytes":1,"sets":%d,'
    b'"deletes":%d,"partitions":0,"marker":null}\n'
)
SET = b'{"version":3,"jobId":"j","commits":[],"x":[%b]}'
READ = """
import sys, time
from pathlib import Path
from magic_committer.protocol.plan import FormatError, Plan
from magic_committer.hadoop.documents import decode_pendingset
def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
data = sys.stdin.buffer.read()
before, began = peak(), time.monotonic()
try:
    if sys.argv[1] == "plan":
        plan = Plan.decode(data, "plan")
        met = f"read: {len(plan.sets)} sets, {sum(1 for _ in plan.deletes)} deletes"
    else:
        met = f"read: {len(decode_pendingset(data, 'set').commits)} files"
except FormatError as error:
    met = f"refused: {error.reason[:50]}"
print(f"{(peak() - before) / 2**20:.0f} MiB | {time.monotonic() - began:.1f} s | {met}")
"""


def real_plan(sets: int, deletes: int) -> bytes:
    """The plan of a job of so many tasks that replaces so many files."""
    tasks = (
        b'["job-%032d/00/task-%d-%032d.pendingset","\\"%032x\\"","%d","task-%d-%032d"]'
        % (0, n, n, n, n, n, n)
        for n in range(sets)
    )
    files = (
        b'["warehouse/sales/dt=2026-01-%02d/part-%05d-%032x-c000.snappy.parquet","\\"%032x\\"",'
        b"1700000000.0]" % (n % 28, n, n, n)
        for n in range(deletes)
    )
    return PLAN % (0, sets, deletes) + b"".join(row + b"\n" for row in (*tasks, *files))


def cases() -> dict[str, tuple[str, bytes]]:
    """What is read: its name, its kind and its bytes."""
    found = {"a plan of 100,000 tasks, 1,000,000 deletes": ("plan", real_plan(100_000, 1_000_000))}
    for size in (34_000_000, 209_000_000):
        for name, filling in (("[],", b"[],"), ('{"a":1},', b'{"a":1},')):
            data = PLAN % (0, 1, 0) + filling * (size // len(filling)) + b"\n"
            found[f"a plan of `{name}`, {size // 10**6} MB"] = ("plan", data)
    rows = b'["t/a","e",1]\n' * 2_000_000
    found["a plan of 2,000,000 short deletes"] = ("plan", PLAN % (0, 0, 2_000_000) + rows)
    found["a pendingset of `[],`, 32 MB"] = ("set", SET % (b"[]," * 10_600_000 + b"[]"))
    names = b",".join(b'"%09x":"x"' % n for n in range(2_000_000))
    found["a pendingset of names, 32 MB"] = ("set", SET % (b"{%b}" % names))
    return found


def main() -> int:
    print("| what | bytes | beside its bytes | time | |\n| --- | ---: | ---: | ---: | --- |")
    for name, (kind, data) in cases().items():
        told = subprocess.run(
            [sys.executable, "-c", READ, kind], input=data, capture_output=True, check=True
        )
        print(
            f"| {name} | {len(data) / MiB:.0f} MiB | {told.stdout.decode().strip()} |", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
