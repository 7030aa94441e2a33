"""The JVM that `make bench` measures does what it is told, and its jobs are whole."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.hadoop import Jvm
from benchmarks.plan import IN_MEMORY, S3A_BEST, Failed
from benchmarks.server import Server


def spec(library: str, amount: int, options: Any = None) -> dict[str, Any]:
    """What the JVM is told."""
    return {"library": library, "amount": amount, "options": options or {}, "latency_ms": 0}


def test_it_commits_jobs_that_lie_on_the_server(measured: tuple[Server, Jvm]) -> None:
    """250 files of three pendingsets are completed, each once, and nothing stays open."""
    server, jvm = measured
    told = jvm.run(spec("commit", 250, S3A_BEST))
    facts = server.facts()
    assert facts["requests"]["CompleteMultipartUpload"] == 250
    assert (facts["open_uploads"], facts["unknown"]) == (0, [])
    assert min(told["seconds"], told["cpu_seconds"]) > 0


def test_it_runs_whole_jobs_and_streams(measured: tuple[Server, Jvm]) -> None:
    """A job of 4 tasks writes 80 files; a file of 12 MiB is streamed, whole."""
    server, jvm = measured
    jvm.run(spec("job", 80, IN_MEMORY))
    assert server.facts()["requests"]["CompleteMultipartUpload"] == 80
    jvm.run(spec("stream", 12 * 2**20))
    sizes = {key: one["size"] for key, one in server.facts()["objects"].items()}
    assert sizes["measured.bin"] == 12 * 2**20


def test_a_run_that_fails_says_why_and_the_next_one_works(measured: tuple[Server, Jvm]) -> None:
    """A wrong setting is an error that names it; the JVM lives on."""
    _, jvm = measured
    with pytest.raises(Failed, match=r"fs\.s3a\.threads\.max=none"):
        jvm.run(spec("job", 4, {"fs.s3a.threads.max": "none"}))
    assert jvm.run(spec("job", 4, IN_MEMORY))["seconds"] > 0
