"""A process that serves many jobs for long does not grow: other buckets, fresh keys for each job,
jobs that fail. What is left by each of them would end a service after a day."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import magic_committer as mc
from tests.process.conftest import fresh
from tests.servers import make_bucket

JOBS = 300
WARM_JOBS = 60
"""After so many, everything that is kept for later is there: thrice what is kept of clients."""
LOOK_JOBS = 30
BUCKETS = 20
KEYS = 20
GROWS_MAX = {"descriptors": 200, "threads": 100, "objects": 4_000, "KiB": 16 * 1024}
"""More than idle connections, which a slow machine has closed, and the memory's allocator make of
it. Less than what is lost if each job loses one descriptor, one thread, 20 objects or 70 KiB."""
OPEN_FILES = 48
BUFFER_BYTES_MAX = 32 * 1024**2
SENDING_BYTES_MAX = 40 * 1024**2


def look() -> dict[str, int]:
    """What this process has."""
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(),
        "objects": len(gc.get_objects()), "KiB": memory("VmRSS"),
    }  # fmt: skip


def memory(name: str) -> int:
    """What the system says of this process's memory, in KiB."""
    found = re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


def job(transport: str, number: int) -> None:
    """A job that commits; each third one fails and is aborted. No two have the same bucket and
    keys."""
    s3 = mc.S3Options(
        region="us-east-1", access_key="access", secret_key="secret",
        session_token=f"token-{number // BUCKETS % KEYS}",
        transport=transport,  # type: ignore[arg-type]
    )  # fmt: skip
    with suppress(LookupError), mc.write(f"s3://b-{number % BUCKETS}/{number}", s3=s3) as writing:
        with writing.open("a.csv", "w") as file:
            file.write("x")
        if number % 3 == 0:
            raise LookupError("the job's own")


def serve(transport: str) -> None:
    """Run the jobs, and print a line for each look. Ends early if it has grown: a process that
    loses a client with each job would take the machine's memory."""
    logging.disable(logging.CRITICAL)
    warm: dict[str, int] = {}
    for number in range(JOBS):
        job(transport, number)
        done = number + 1
        if done >= WARM_JOBS and done % LOOK_JOBS == 0:
            now = look()
            warm = warm or now
            print(json.dumps({"jobs": done, **now}), flush=True)
            if any(now[what] - warm[what] > most for what, most in GROWS_MAX.items()):
                return


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_a_process_of_many_jobs_does_not_grow(server: str, transport: str) -> None:
    """Descriptors, threads, objects and memory after the warm-up are those at the end."""
    for number in range(BUCKETS):
        make_bucket(server, f"b-{number}")
    ended = fresh(server, "-m", "tests.process.test_growth", "serve", transport)
    assert ended.code == 0, ended
    looks = [json.loads(line) for line in ended.said.splitlines()]
    grown = {what: looks[-1][what] - looks[0][what] for what in GROWS_MAX}
    assert all(grown[what] <= most for what, most in GROWS_MAX.items()), ended
    assert looks[-1]["jobs"] == JOBS


def fill(transport: str) -> None:
    """Write into many files at once, and print by how many KiB the process has grown at its most
    since a first small job."""
    s3 = mc.S3Options(transport=transport)  # type: ignore[arg-type]
    with mc.write("s3://bucket/warm", s3=s3) as job, job.open("a.bin") as file:
        file.write(b"x")
    options = mc.Options(buffer_bytes_max=BUFFER_BYTES_MAX)
    before = memory("VmRSS")
    with mc.write("s3://bucket/many", s3=s3, options=options) as job:
        files = [job.open(f"{number}.bin") for number in range(OPEN_FILES)]
        for _ in range(90):
            for file in files:
                file.write(b"x" * 100_000)
        for file in files:
            file.close()
    print(memory("VmHWM") - before)


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_many_open_files_stay_within_their_memory(server: str, transport: str) -> None:
    """So many files of two parts each, written in turns: the process grows by what
    ``buffer_bytes_max`` allows, and by what the threads that send hold."""
    ended = fresh(server, "-m", "tests.process.test_growth", "fill", transport)
    assert ended.code == 0, ended
    assert int(ended.said) * 1024 <= BUFFER_BYTES_MAX + SENDING_BYTES_MAX


if __name__ == "__main__":
    {"serve": serve, "fill": fill}[sys.argv[1]](sys.argv[2])
