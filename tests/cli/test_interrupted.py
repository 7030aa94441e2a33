"""A command that is interrupted says what is known of the job, and how to go on."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.cli.main import run
from magic_committer.stores.memory import Request
from magic_committer.testing import memory_store


@pytest.mark.parametrize("verb", ["complete_upload", "put"])
def test_an_interrupted_commit_tells_whether_it_is_decided(
    capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """Ctrl-C before the decision: commit or abort it; after it: recover it. Exit code 130."""
    with memory_store("bucket") as store:
        job = mc.start("s3://bucket/t")
        with job.task("1") as task, task.open("a.csv", "w") as file:
            file.write("1")

        def interrupt(request: Request) -> None:
            if request.verb == verb:
                raise KeyboardInterrupt

        store.before = interrupt
        code = run(["job", "commit", "s3://bucket/t", job.id, "--yes"])
        store.before = None
    said = capsys.readouterr().err
    assert code == exits.INTERRUPTED
    decided = verb == "complete_upload"
    assert ("was not decided" in said) is not decided
    call = "recover" if decided else "abort"
    assert f"`magic-committer job {call} s3://bucket/t/ {job.id}`" in said
