"""``job abort --force``: what it asks, what it tells, and that its hints can be pasted."""

from __future__ import annotations

import re
import shlex

import click
import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.errors import PermissionDenied
from magic_committer.stores.memory import MemoryStore
from tests.cli.conftest import Command
from tests.promises.hands import DEST, control, failing, visible
from tests.promises.machine import DAY, Machine


def without_plan(machine: Machine) -> mc.Job:
    """A committing job that nobody can finish or undo."""
    job = machine.job("committing")
    for key in control(machine.s3):
        if "/_plan-" in key:
            machine.s3.delete_object(key)
    return job


def everything(s3: MemoryStore) -> tuple[object, ...]:
    """All there is."""
    return {key: s3.body(key) for key in s3.keys()}, s3.open_uploads()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A terminal where "no" is typed; the questions that were asked."""
    asked: list[str] = []

    def confirm(question: str, **_: object) -> None:
        asked.append(question)
        raise click.Abort

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    return asked


def test_a_stuck_job_is_given_up(machine: Machine, command: Command) -> None:
    """Neither recover nor abort ends it; ``--force --yes`` does: nothing of it is left, and what
    was done is told."""
    job = without_plan(machine)
    assert command("job", "recover", DEST, job.id, "--yes").code != exits.OK
    assert command("job", "abort", DEST, job.id, "--revert", "--yes").code != exits.OK
    told = command("job", "abort", DEST, job.id, "--force", "--yes")
    assert told.code == exits.OK
    assert re.search(r"state +absent", told.out)
    assert re.search(r"outcome +not known", told.out)
    assert machine.s3.keys() == ()
    assert not machine.s3.open_uploads()


def test_the_error_of_a_job_that_cannot_be_undone_names_the_way_out(
    machine: Machine, command: Command
) -> None:
    """What the hint says can be pasted, and changes nothing yet: it is a look."""
    job = without_plan(machine)
    failed = command("job", "abort", DEST, job.id, "--revert", "--yes")
    before = everything(machine.s3)
    calls = [shlex.split(call)[1:] for call in re.findall("`(.*?)`", failed.err)]
    (call,) = (call for call in calls if "--force" in call)
    looked = command(*call, "--format", "json")
    assert looked.code == exits.OK
    assert looked.json()["visible"] == ["t/1.csv"]
    assert everything(machine.s3) == before


def test_a_record_that_is_too_large_is_given_up(machine: Machine, command: Command) -> None:
    """What is no record by its size alone is no obstacle."""
    job = machine.job("running")
    machine.s3.put_object(f"t/__magic_job-{job.id}/_job.json", b" " * 100_000)
    machine.later(DAY)
    assert command("job", "abort", DEST, job.id, "--force", "--yes").code == exits.OK
    assert not control(machine.s3)


@pytest.mark.parametrize("state", ["running", "committing", "completed", "damaged"])
def test_nothing_is_given_up_unless_the_answer_is_yes(
    machine: Machine, command: Command, answers: list[str], state: str
) -> None:
    """The question names what is open, what is visible, and that nobody can finish the job after
    it; "no" changes nothing."""
    job = machine.job("committing" if state == "damaged" else state)
    if state == "damaged":
        machine.s3.put_object(f"t/__magic_job-{job.id}/_job.json", b"{")
    machine.later(DAY)
    before = everything(machine.s3)
    assert command("job", "abort", DEST, job.id, "--force").code == exits.INTERRUPTED
    (question,) = answers
    found = "unreadable" if state == "damaged" else state
    assert f"Give up job {job.id}, which is {found}?" in question
    assert f"{len(machine.s3.open_uploads())} upload" in question
    assert "nobody can finish or undo the job any more" in question
    assert all(key in question for key in visible(machine.s3))
    assert everything(machine.s3) == before


def test_there_must_be_somebody_to_ask(machine: Machine, command: Command) -> None:
    """Without a terminal and without ``--yes`` nothing happens."""
    job = without_plan(machine)
    before = everything(machine.s3)
    assert command("job", "abort", DEST, job.id, "--force").code == exits.USAGE
    assert everything(machine.s3) == before


def test_with_yes_the_question_is_told(machine: Machine, command: Command) -> None:
    """A log of cron says what was given up, also before it was."""
    job = without_plan(machine)
    told = command("job", "abort", DEST, job.id, "--force", "--yes")
    assert f"Give up job {job.id}" in told.err


def test_what_is_left_is_named_and_is_an_exit_code(machine: Machine, command: Command) -> None:
    """An upload that cannot be aborted: its key and id are told, and a script notices."""
    job = machine.job("running")
    upload = machine.s3.open_uploads("t/2.csv")[0]

    failing(machine.s3, "abort_upload", "t/2.csv", PermissionDenied("not allowed", status=403))
    told = command("job", "abort", DEST, job.id, "--force", "--yes")
    assert told.code == exits.BAD_STATE
    assert f"left open  t/2.csv {upload.upload_id}" in re.sub(" {2,}", "  ", told.out)


def test_a_young_job_that_does_not_tell_takes_a_word_that_can_be_pasted(
    machine: Machine, command: Command
) -> None:
    """The record cannot be read, and something changed lately: refused; the hint gives it up."""
    job = machine.job("running")
    machine.s3.put_object(f"t/__magic_job-{job.id}/_job.json", b"{")
    young = command("job", "abort", DEST, job.id, "--force", "--yes")
    assert young.code == exits.BAD_STATE
    (call,) = re.findall("`(.*?)`", young.err)
    assert command(*shlex.split(call)[1:], "--yes").code == exits.OK
    assert not control(machine.s3)


def test_a_job_that_is_not_there_is_not_found(machine: Machine, command: Command) -> None:
    """With the ids that there are."""
    job = machine.job("running")
    told = command("job", "abort", DEST, "none", "--force", "--yes")
    assert told.code == exits.NOT_FOUND
    assert job.id in told.err


def test_a_closed_job_has_nothing_to_give_up(machine: Machine, command: Command) -> None:
    """Nothing is asked, and nothing changes."""
    job = machine.job("closed", job_id="mine")
    before = everything(machine.s3)
    assert command("job", "abort", DEST, job.id, "--force").code == exits.OK
    assert everything(machine.s3) == before
