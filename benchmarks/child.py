"""The process in which one thing is measured, once.

    python -m benchmarks.child SPEC          SPEC: JSON, see `benchmarks.measure.Machine.run`

Before the clock starts the library has made its client and written one small file, so that imports,
clients and connections are in nobody's figure; the server then forgets what it counted. It runs in
the environment of the peers, too: no import of ours above a function.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from benchmarks.writers import BUCKET, LIBRARIES, Library, MiB, ask, pieces

Spec = Mapping[str, Any]
Told = dict[str, Any]
Step = Callable[[], Told | None]
"""What is measured; gives what else is to be told."""

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def library_of(spec: Spec) -> Library:
    """The library, warm: one small file is written at full speed."""
    library = LIBRARIES[spec["library"]](spec["options"])
    ask(spec["control"], "latency?ms=0")
    library.write("warm-up.bin", pieces(MiB))
    ask(spec["control"], f"latency?ms={spec['latency_ms']}")
    return library


# What can be measured -----------------------------------------------------------------------------


def stream(spec: Spec) -> Step:
    """Write a file of ``amount`` bytes."""
    library = library_of(spec)
    crc = 0

    def summed(data: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal crc
        for piece in data:
            crc = zlib.crc32(piece, crc)
            yield piece

    def step() -> Told | None:
        data = pieces(spec["amount"])
        library.write("measured.bin", summed(data) if spec["verify"] else data)
        return {"crc32": f"{crc:08x}"} if spec["verify"] else None

    return step


def small_files(spec: Spec) -> Step:
    """Write ``amount`` files of 10 KiB, and make them visible."""
    library = library_of(spec)
    keys = [f"table/part-{n:05d}.bin" for n in range(spec["amount"])]
    content = os.urandom(10 * 1024)

    return lambda: library.put_all(keys, content)


def job(spec: Spec) -> Step:
    """A whole job of 4 tasks, one after the other, with 20 files each; only its requests count."""
    from benchmarks.jobs import whole_job

    library_of(spec)
    return lambda: whole_job(spec)


def commit(spec: Spec) -> Step:
    """Commit a job of ``amount`` files that lies on the server."""
    if spec["library"] != "magic_committer":
        return _raw_completes(spec)
    from benchmarks.jobs import seeded_job

    library_of(spec)
    return seeded_job(spec)


def disk(spec: Spec) -> Step:
    """Publish ``amount`` files on a disk."""
    from benchmarks.jobs import published

    return published(spec, Path(spec["folder"]))


def _raw_completes(spec: Spec) -> Step:
    """Complete ``amount`` uploads with an SDK's client: no job, no checks."""
    from benchmarks.writers import Boto3

    library = library_of(spec)
    assert isinstance(library, Boto3)
    client = library.client
    keys = [f"table/part-{n:06d}.bin" for n in range(spec["amount"])]
    seeded = ask(spec["control"], "seed", "\n".join(keys).encode())
    part = {"Parts": [{"PartNumber": 1, "ETag": seeded["etag"]}]}

    def complete(key: str, upload: str) -> None:
        client.complete_multipart_upload(
            Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload=part
        )

    many = spec["options"].get("threads", 1)
    return lambda: library.at_once(many, complete, keys, seeded["ids"])


WORKS: dict[str, Callable[[Spec], Step]] = {
    "stream": stream, "small-files": small_files, "job": job, "commit": commit, "disk": disk,
}  # fmt: skip


# Measuring ----------------------------------------------------------------------------------------


def run(spec: Spec) -> Told:
    step = WORKS[spec["work"]](spec)
    ask(spec["control"], "facts?forget=1")
    packages = LIBRARIES[spec["library"]].packages
    found = {one.name: one.version for one in distributions() if one.name in packages}
    return clocked(step) | {"versions": found}


def clocked(step: Step) -> Told:
    """What a step tells; its seconds, CPU seconds, and the memory before it and at its peak."""
    gc.collect()
    start_bytes = forget_peak()
    cpu, started = cpu_seconds(), time.perf_counter()
    told = step() or {}
    seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu
    told |= {"seconds": seconds, "cpu_seconds": cpu}
    return told | {"start_bytes": start_bytes, "peak_bytes": peak()}


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def forget_peak() -> int:
    """Set the high-water mark to what is resident now, and give that. Where the system cannot
    (other than Linux) the mark of the warm-up stands in for the start."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")  # proc(5)
    return peak()


def peak() -> int:
    """The most memory that was resident, in bytes."""
    if _STATUS.exists():
        # Not ru_maxrss, which a child inherits from the process that forked it.
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))), flush=True)
    # What is left open, and threads that wait, are not worth the time of an orderly end.
    os._exit(0)
