"""One run of one writer: the process it happens in, and its parent's side.

    python -m benchmarks.measure NAME BYTES VERIFY [PROFILE]

Before the clock starts the writer has made its client and written one small file, so that imports,
clients and connections are in nobody's figure. The server then forgets what it saw.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import sampling
from benchmarks.server import Server
from benchmarks.writers import WRITERS, MiB, environment, pieces
from magic_committer import checksum

ROOT = Path(__file__).resolve().parent.parent
KEY = "measured.bin"
WARM_UP_BYTES = MiB
RUN_SECONDS_MAX = 300.0

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class Failed(RuntimeError):
    """A run did not do what it should; the message says what."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run, measured.

    Attributes:
        seconds: wall clock, from the opening of the file until it is visible.
        cpu_seconds: of the writer's process, all threads, user and system.
        start_bytes, peak_bytes: resident memory before, and its high-water mark.
        requests: by verb, as the server counted them.
        part_bytes: the largest part.
        payload: how payloads were signed, as the server saw it.
        checksum: checksums that came with the parts.
    """

    writer: str
    size: int
    seconds: float
    cpu_seconds: float
    start_bytes: int
    peak_bytes: int
    requests: Mapping[str, int]
    part_bytes: int
    payload: str
    checksum: str

    @property
    def mb_per_second(self) -> float:
        """Millions of bytes a second."""
        return self.size / 1e6 / self.seconds

    @property
    def cpu_seconds_per_gb(self) -> float:
        """CPU seconds for 10**9 bytes."""
        return self.cpu_seconds / (self.size / 1e9)

    @property
    def grown_mib(self) -> float:
        """Peak of memory above the start."""
        return (self.peak_bytes - self.start_bytes) / MiB


def measure(
    server: Server,
    name: str,
    size: int,
    *,
    unsigned: bool = False,
    verify: bool = False,
    profile_to: str = "",
) -> Run:
    """Run a writer in a process of its own, and check that the server has what it wrote.

    Args:
        unsigned: payloads are not signed, where the writer can be told.
        verify: compare CRCs as well as lengths; the figures are then worth nothing.
        profile_to: a file for `sampling.Sampler`'s report.

    Raises:
        Failed: the writer failed, or bytes are missing or wrong.
    """
    with tempfile.TemporaryDirectory(prefix="magic-committer-bench-") as folder:
        command = [sys.executable, "-m", "benchmarks.measure", name, str(size), str(int(verify))]
        done = subprocess.run(
            [*command, *([profile_to] if profile_to else [])],
            cwd=ROOT,
            env=environment(server.url, f"{folder}/aws-config", unsigned=unsigned),
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
        )
    if done.returncode:
        raise Failed(f"{name} failed:\n{done.stderr.strip()[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    facts = server.facts()
    _check(name, size, told.pop("crc32"), facts)
    return Run(
        writer=name,
        size=size,
        requests=facts["requests"],
        part_bytes=facts["part_bytes"],
        payload=facts["payload"],
        checksum=facts["checksum"],
        **told,
    )


def _check(name: str, size: int, crc32: str | None, facts: Mapping[str, Any]) -> None:
    found = [one for key, one in facts["objects"].items() if key.endswith(KEY)]
    if [one["size"] for one in found] != [size]:
        raise Failed(f"{name} wrote {size} bytes, and the server has {facts['objects']}")
    if found[0]["crc32"] != crc32:
        raise Failed(f"{name}: CRC32 of what was written {crc32}, of what came {found[0]['crc32']}")
    if facts["unknown"]:
        raise Failed(f"{name} asked for what the server does not know: {facts['unknown']}")
    if facts["open_uploads"]:
        raise Failed(f"{name} left {facts['open_uploads']} uploads open")


# The writer's process ----------------------------------------------------------------------------


def run(name: str, size: int, *, verify: bool, profile_to: str) -> dict[str, Any]:
    """Write ``size`` bytes and measure it."""
    write = WRITERS[name].prepare()
    write("warm-up.bin", pieces(WARM_UP_BYTES))
    Server(os.environ["AWS_ENDPOINT_URL"]).reset(verify=verify)
    running = checksum.Running("CRC32")
    data = _summed(pieces(size), running) if verify else pieces(size)
    sampler = sampling.Sampler() if profile_to else None
    gc.collect()
    start_bytes = _forget_peak()
    cpu, started = _cpu_seconds(), time.perf_counter()
    if sampler is None:
        write(KEY, data)
    else:
        with sampler:
            write(KEY, data)
    seconds, cpu = time.perf_counter() - started, _cpu_seconds() - cpu
    if sampler is not None:
        Path(profile_to).write_text(sampler.report(), encoding="utf-8")
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "start_bytes": start_bytes,
        "peak_bytes": _peak(),
        "crc32": running.checksum().value if verify else None,
    }


def _summed(data: Iterable[bytes], running: checksum.Running) -> Iterator[bytes]:
    for piece in data:
        running.update(piece)
        yield piece


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _forget_peak() -> int:
    """Set the high-water mark to what is resident now, and give that. Where the system cannot
    (other than Linux) the mark of the warm-up stands in for the start."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")  # proc(5)
    return _peak()


def _peak() -> int:
    if _STATUS.exists():
        # Not ru_maxrss, which a child inherits from the process that forked it.
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    name, size, verify, *rest = sys.argv[1:]
    print(json.dumps(run(name, int(size), verify=verify == "1", profile_to="".join(rest))))
