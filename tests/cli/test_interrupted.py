"""A command that is interrupted says what is known of the job, and how to go on."""

from __future__ import annotations

import pytest

from magic_committer.cli import exits
from magic_committer.testing import MemoryStore
from tests.cli.conftest import Command, pasted
from tests.promises.hands import job_of, raising


@pytest.mark.parametrize("verb", ["complete_upload", "put"])
def test_an_interrupted_commit_tells_whether_it_is_decided(
    command: Command, memory_s3: MemoryStore, verb: str
) -> None:
    """Ctrl-C before the decision: commit or abort it; after it: recover it. Exit code 130."""
    job, decided = job_of({"a.csv": b"1"}), verb == "complete_upload"
    memory_s3.before = raising(lambda r: r.verb == verb, KeyboardInterrupt)
    ran = command("job", "commit", job.dest, job.id, "--yes")
    memory_s3.before = None
    assert ran.code == exits.INTERRUPTED
    assert ("was not decided" in ran.err) is not decided
    call = "recover" if decided else "abort"
    assert ["job", call, "s3://bucket/t/", job.id] in pasted(ran.err)
