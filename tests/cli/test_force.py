"""``job abort --force``: what it asks, what it tells, and that its hints can be pasted. What it
does is held by tests/promises/test_giving_up.py."""

from __future__ import annotations

import re

import pytest

from magic_committer.cli import exits
from magic_committer.errors import PermissionDenied
from tests.cli.conftest import Command, answering, contents, pasted
from tests.promises.hands import DEST, control, failing, visible
from tests.promises.machine import DAY, Machine


def test_a_stuck_job_is_given_up(machine: Machine, command: Command) -> None:
    """A hint leads to a look that changes nothing; with ``--yes`` nothing of the job is left."""
    job = machine.job("committing")
    machine.s3.delete([key for key in control(machine.s3) if "/_plan-" in key])
    assert command("job", "recover", DEST, job.id, "--yes").code != exits.OK
    failed = command("job", "abort", DEST, job.id, "--revert", "--yes")
    before = contents(machine.s3)
    (call,) = (call for call in pasted(failed.err) if "--force" in call)
    looked = command(*call, "--format", "json")
    assert (looked.code, looked.json()["visible"]) == (exits.OK, ["t/1.csv"])
    assert command("job", "abort", DEST, job.id, "--force").code == exits.USAGE
    assert contents(machine.s3) == before
    told = command("job", "abort", DEST, job.id, "--force", "--yes")
    assert told.code == exits.OK
    assert f"Give up job {job.id}" in told.err
    assert re.search(r"state +absent", told.out)
    assert re.search(r"outcome +not known", told.out)
    assert contents(machine.s3) == ({}, ())


@pytest.mark.parametrize("state", ["running", "committing", "completed", "damaged"])
def test_nothing_is_given_up_unless_the_answer_is_yes(
    machine: Machine, command: Command, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The question names what is open, what is visible, and that nobody can finish the job."""
    job = machine.job("committing" if state == "damaged" else state)
    if state == "damaged":
        machine.s3.put_object(f"t/__magic_job-{job.id}/_job.json", b"{")
    machine.later(DAY)
    before = contents(machine.s3)
    asked = answering(monkeypatch, yes=False)
    assert command("job", "abort", DEST, job.id, "--force").code == exits.INTERRUPTED
    (question,) = asked
    found = "unreadable" if state == "damaged" else state
    assert f"Give up job {job.id}, which is {found}?" in question
    assert f"{len(machine.s3.open_uploads())} upload" in question
    assert "nobody can finish or undo the job any more" in question
    told = " ".join(command("job", "abort", "--help").out.split())
    assert "nobody can finish or undo it any more" in told
    assert all(key in question for key in visible(machine.s3))
    assert contents(machine.s3) == before


def test_what_is_left_is_named_and_is_an_exit_code(machine: Machine, command: Command) -> None:
    """An upload that cannot be aborted: its key and id; and what is absent is not found."""
    job = machine.job("running")
    upload = machine.s3.open_uploads("t/2.csv")[0]
    failing(machine.s3, "abort_upload", "t/2.csv", PermissionDenied("not allowed", status=403))
    told = command("job", "abort", DEST, job.id, "--force", "--yes")
    assert told.code == exits.BAD_STATE
    assert f"left open  t/2.csv {upload.upload_id}" in re.sub(" {2,}", "  ", told.out)
    assert command("job", "abort", DEST, "none", "--force", "--yes").code == exits.NOT_FOUND
