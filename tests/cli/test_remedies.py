"""What an error says at the command line can be pasted there: the same remedies, as commands."""

from __future__ import annotations

import shlex

import pytest

from magic_committer.cli import exits
from magic_committer.cli.shell import told
from magic_committer.errors import CommitIncomplete, JobTooYoung
from magic_committer.errors.messages import Remedy, as_command, in_python
from magic_committer.options import S3Options
from tests.cli.conftest import Command
from tests.promises.hands import DEST
from tests.promises.machine import Machine
from tests.promises.situations import MANY, SITUATIONS, Situation, contents
from tests.promises.test_remedies import EACH, raised

ASKING = {"abort", "commit", "recover"}
"""Commands of jobs that ask before they act."""


@pytest.mark.parametrize(("situation", "number"), EACH)
def test_each_command_that_an_error_names_does_what_it_says(
    machine: Machine, command: Command, situation: Situation, number: int
) -> None:
    """Each remedy, worded as a command, is taken by the parser with all its words, and the store is
    what the remedy promises. A list of keys that is too long for a line ends in their number."""
    error = raised(situation, machine)
    remedy = error.remedies[number]
    text = as_command(remedy)
    if "keys more" in text:
        assert text.count("--accept") == 20
        assert text.endswith(f" (and {len(MANY) - 20} keys more, see --format json)")
        return
    if remedy.call == "start" or "results" in remedy.options:
        assert text == in_python(remedy)
        return
    before = contents(machine.s3)
    name, *words = shlex.split(text)
    yes = ["--yes"] if words[1] in ASKING else []
    ran = command(*words, *yes)
    assert name == "magic-committer"
    assert ran.code not in (exits.USAGE, exits.FAILED), ran.err
    ends = situation.as_commands or situation.ends
    ends[number](machine.s3, before)


@pytest.mark.parametrize("job_id", ["it's", "--yes"])
def test_an_error_is_told_with_commands_and_the_way_to_the_store(job_id: str) -> None:
    """Quoted for a shell, with the global options; credentials never are. An id that looks like an
    option is last, behind ``--``."""
    remedy = Remedy(
        "recover", "s3://b/my t/", job_id, "if it is dead", options={"accept": ("a b",)}
    )
    error = JobTooYoung("young", hint="Wait", remedies=[remedy])
    way = S3Options(profile="ops", endpoint_url="http://store:9000")
    text = told(error, way)
    head, _, call = text.rstrip("`").partition("`")
    assert head == "young. Wait. If it is dead: "
    first, last = ([], ["--", job_id]) if job_id == "--yes" else ([job_id], [])
    assert shlex.split(call) == [
        "magic-committer", "job", "recover", "s3://b/my t/", *first, "--accept", "a b",
        "--profile", "ops", "--endpoint-url", "http://store:9000", *last,
    ]  # fmt: skip
    assert "secret" not in told(error, S3Options(endpoint_url="http://me:secret@store:9000"))


def test_programs_read_the_remedies_of_an_unfinished_job(
    machine: Machine, command: Command
) -> None:
    """``job.unfinished`` has them as data, each with the command that it stands for."""
    error = raised(SITUATIONS["lost"], machine)
    assert isinstance(error, CommitIncomplete)
    printed = command("job", "recover", DEST, error.job_id, "--yes", "--format", "json").json()
    assert [one["call"] for one in printed["remedies"]] == ["recover", "abort"]
    accept, undo = printed["remedies"]
    assert accept["options"] == {"accept": ["t/2.csv"]}
    assert (undo["dest"], undo["job_id"]) == (f"{DEST}/", error.job_id)
    assert command(*shlex.split(undo["command"])[1:], "--yes").code == exits.OK
