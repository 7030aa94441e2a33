"""A process at the limits of its machine: told what to do, and nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import resource, sys, tempfile
import magic_committer as mc
from magic_committer.testing import memory_store

with memory_store() as s3:
    with mc.write("s3://bucket/warm") as job, job.open("a") as file:
        file.write(b"x")
    before = resource.getrlimit(getattr(resource, sys.argv[1]))
    resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]), before[1]))
    options = mc.Options(buffer="disk")
    try:
        with mc.write("s3://bucket/t", options=options) as job:
            files = [job.open(f"{number}.bin") for number in range(100)]
            for file in files:
                for _ in range(30):
                    file.write(bytes(100_000))
            for file in files:
                file.close()
    except mc.UploadFailed as error:
        print(error)
    assert not [key for key in s3.keys() if key.startswith("t/")]
    assert not s3.open_uploads()
"""


@pytest.mark.parametrize(
    ("limit", "value", "told"),
    [
        ("RLIMIT_NOFILE", 64, "ulimit -n"),
        ("RLIMIT_FSIZE", 1_000_000, "buffer_dir"),
    ],
)
def test_a_limit_is_told_with_what_helps(limit: str, value: int, told: str) -> None:
    """Too many open files, and a disk that takes no more: the hint is the one that helps, and the
    job is aborted."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, limit, str(value)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert told in done.stdout
    assert ("buffer_dir" in done.stdout) == (told == "buffer_dir")
