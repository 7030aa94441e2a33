"""How a remedy is worded, in Python and as a command; and how several make one line."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from msgspec import structs

from magic_committer.commit.outcome import incomplete
from magic_committer.errors import MagicError
from magic_committer.options import Mode
from magic_committer.protocol.record import USUAL_TERMS, StartedJob
from magic_committer.remedy import DEAD_AFTER, Remedy, add_note, as_command, in_python, reword_notes
from magic_committer.report import Decider, JobReport

D = "s3://b/t/"
WORDINGS = [
    (
        Remedy("recover", D, "1", options={DEAD_AFTER: 0}),
        f"magic_committer.recover('s3://b/t/', '1', {DEAD_AFTER}=0)",
        "magic-committer job recover s3://b/t/ 1 --dead-after 0",
    ),
    (
        Remedy("recover", D, "1", options={"accept": ("t/a b", "t/c"), "leave_visible": True}),
        "magic_committer.recover('s3://b/t/', '1', accept=['t/a b', 't/c'], leave_visible=True)",
        "magic_committer.recover('s3://b/t/', '1', accept=['t/a b', 't/c'], leave_visible=True)",
    ),
    (
        Remedy("abort", D, "1", options={"revert": True}),
        "magic_committer.abort('s3://b/t/', '1', revert=True)",
        "magic-committer job abort s3://b/t/ 1 --revert",
    ),
    (
        Remedy("commit", D, "1", options={"expect": 0}),
        "magic_committer.attach('s3://b/t/', '1').commit(expect=0)",
        "magic-committer job commit s3://b/t/ 1 --expect 0",
    ),
    (
        Remedy("commit", D, "1", options={"results": (), "expect": 0}),
        "magic_committer.attach('s3://b/t/', '1').commit(results=[], expect=0)",
        "magic_committer.attach('s3://b/t/', '1').commit(results=[], expect=0)",
    ),
    (
        Remedy("force_abort", D, "1", options={DEAD_AFTER: 5400.0, "dry_run": True}),
        f"magic_committer.force_abort('s3://b/t/', '1', {DEAD_AFTER}=5400, dry_run=True)",
        "magic-committer job abort s3://b/t/ 1 --force --dead-after 90m --dry-run",
    ),
    (
        Remedy("abort", D, "1", options={"adopt": True, DEAD_AFTER: 0, "leave_visible": True}),
        f"magic_committer.adopt('s3://b/t/', '1', {DEAD_AFTER}=0);"
        " magic_committer.abort('s3://b/t/', '1', leave_visible=True)",
        "magic-committer job abort s3://b/t/ 1 --adopt --dead-after 0 --force",
    ),
    (
        Remedy("adopt", D, "1"),
        "magic_committer.adopt('s3://b/t/', '1')",
        "magic-committer job commit s3://b/t/ 1 --adopt",
    ),
    (
        Remedy("show", D, "1"),
        "magic_committer.attach('s3://b/t/', '1').state",
        "magic-committer job show s3://b/t/ 1",
    ),
    (
        Remedy("inspect", D),
        "magic_committer.inspect('s3://b/t/')",
        "magic-committer job list s3://b/t/",
    ),
    (
        Remedy("cleanup", D),
        "magic_committer.cleanup('s3://b/t/')",
        "magic-committer cleanup s3://b/t/",
    ),
    (
        Remedy("start", D, "1"),
        "magic_committer.start('s3://b/t/', job_id='1')",
        "magic_committer.start('s3://b/t/', job_id='1')",
    ),
    (Remedy("doctor", D), "magic-committer doctor s3://b/t/", "magic-committer doctor s3://b/t/"),
]


@pytest.mark.parametrize(("remedy", "python", "command"), WORDINGS)
def test_a_remedy_has_one_wording_in_each_language(
    remedy: Remedy, python: str, command: str
) -> None:
    """A Python call and a command; where a language has no such call, the other's."""
    assert (in_python(remedy), as_command(remedy)) == (python, command)


def test_the_way_to_the_store_ends_a_command() -> None:
    """Global options come last, quoted like the rest."""
    told = as_command(Remedy("inspect", D), ("--profile", "my ops"))
    assert shlex.split(told)[-2:] == ["--profile", "my ops"]


def test_many_keys_are_named_by_the_errors_attribute() -> None:
    """A list too long for a line is worded by the attribute that holds it, a short one in full."""
    keys = tuple(f"k{number}" for number in range(21))
    many = Remedy("recover", D, "1", options={"accept": keys}, keys_in="outstanding")
    assert in_python(many).endswith("accept=error.outstanding)")
    few = Remedy("recover", D, "1", options={"accept": keys[:20]}, keys_in="outstanding")
    assert "'k19'" in in_python(few)


def test_remedies_make_one_line_with_an_or_between_them() -> None:
    """Advice, then each remedy by what it is for: nobody takes two of them for two steps."""
    error = MagicError(
        "it failed",
        hint="Never abort it",
        remedies=[
            Remedy("recover", D, "1", "finish it"),
            Remedy("abort", D, "1", "undo it"),
            Remedy("show", D, "1", "if you do not know, look"),
        ],
    )
    assert str(error) == (
        "it failed. Never abort it. Finish it: magic_committer.recover('s3://b/t/', '1');"
        " or undo it: magic_committer.abort('s3://b/t/', '1');"
        " or, if you do not know, look: magic_committer.attach('s3://b/t/', '1').state"
    )


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (MagicError("it failed"), ""),
        (MagicError("it failed", hint="Wait"), "Wait"),
        (MagicError("it failed", remedies=[Remedy("inspect", D, why="ask")]), "Ask: "),
    ],
)
def test_an_error_may_have_advice_or_remedies_or_neither(error: MagicError, hint: str) -> None:
    """What is not there leaves no stop and no blank behind."""
    assert error.hint.startswith(hint)
    assert str(error) == (f"it failed. {error.hint}" if hint else "it failed")


def test_a_remedy_is_data_for_programs() -> None:
    """Plain JSON values, the keys as a list."""
    remedy = Remedy("recover", D, "1", "take them", {"accept": ("a", "b")}, "unresolved")
    assert remedy.to_dict() == {
        "call": "recover",
        "dest": D,
        "job_id": "1",
        "why": "take them",
        "options": {"accept": ["a", "b"]},
    }


def test_notes_with_a_remedy_are_worded_anew_and_others_stay() -> None:
    """A command line tells Ctrl-C's remedies as commands; foreign notes are left as they are."""
    error = KeyboardInterrupt()
    error.add_note("somebody else's")
    add_note(error, "it was interrupted", Remedy("recover", D, "1", "finish it"))
    add_note(error, "more", Remedy("abort", D, "2", "end it"))
    reword_notes(error, as_command)
    assert error.__notes__ == [
        "somebody else's",
        "it was interrupted. Finish it: magic-committer job recover s3://b/t/ 1",
        "more. End it: magic-committer job abort s3://b/t/ 2",
    ]


KEYS = ("t/a.csv",)


def told(mode: Mode, *, adopted: str, which: str) -> str:
    """The error of a job of which a file is not published."""
    terms = structs.replace(USUAL_TERMS, mode=mode)
    job = StartedJob("j", "0" * 32, "s3://bucket/t/", terms, False, "", False, adopted)
    return str(incomplete(job, "1 file is left", MagicError("500"), **{which: KEYS}))


@pytest.mark.parametrize("which", ["unfinished", "unresolved"])
@pytest.mark.parametrize(
    ("mode", "adopted", "lost"),
    [
        ("append", "", "undo the job (what it has overwritten does not come back): "),
        (
            "replace",
            "",
            "undo the job (what it has overwritten does not come back, nor does the old"
            " _SUCCESS): ",
        ),
        (
            "replace_partitions",
            "",
            "undo the job (what it has overwritten does not come back): ",
        ),
        ("fail", "", "undo the job: "),
        (
            "append",
            "uuid",
            "undo the job (what it has overwritten does not come back, its own files are lost for"
            " good): ",
        ),
    ],
)
def test_an_offer_to_undo_says_what_is_lost(
    mode: Mode, adopted: str, lost: str, which: str
) -> None:
    """An operator who pastes the call knows before what it costs."""
    assert f"{lost}magic_committer.abort(" in told(mode, adopted=adopted, which=which)


DONE = JobReport(
    job_id="nightly",
    uuid="0" * 32,
    dest="s3://b/t/",
    mode="replace",
    outcome="committed",
    state="absent",
    tasks=2,
    files=3,
    bytes=1_234_567,
    seconds=1.44,
)
BARE = replace(DONE, tasks=0, files=0, bytes=0, seconds=0.0)


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            DONE,
            "job nightly committed in s3://b/t/: 3 files of 2 tasks, 1,234,567 bytes, 1.4 s",
        ),
        (
            replace(DONE, tasks=1, files=1, bytes=1, seconds=0.0),
            "job nightly committed in s3://b/t/: 1 file of 1 task, 1 byte",
        ),
        (
            replace(BARE, decider=Decider("recovery", "h1", 7), state="closed"),
            "job nightly committed by recovery on h1 in s3://b/t/",
        ),
        (
            replace(BARE, outcome="aborted", state="closed", error="ValueError: boom\n  twice"),
            "job nightly aborted in s3://b/t/; ValueError: boom twice",
        ),
        (
            replace(BARE, outcome="", state="running", error="IncompleteJob: one is missing"),
            "job nightly in s3://b/t/: not decided (its record: running); IncompleteJob: one is"
            " missing",
        ),
        (
            replace(BARE, state="committing", error="CommitIncomplete: 2 files"),
            "job nightly committed in s3://b/t/; CommitIncomplete: 2 files; not finished (its"
            " record: committing)",
        ),
        (
            replace(BARE, left_open=("k u",), warnings=("first", "second")),
            "job nightly committed in s3://b/t/; 1 upload left open; 2 warnings: first",
        ),
        (
            replace(BARE, outcome="", job_id="", skipped=True),
            "nothing was written to s3://b/t/: it holds data",
        ),
    ],
)
def test_a_report_is_one_line_for_people(report: JobReport, line: str) -> None:
    """Each outcome has its words; numbers are exact; nothing breaks the line."""
    assert str(report) == line


def test_a_report_is_json_too() -> None:
    """``to_dict`` has every field, as JSON has it."""
    values = json.loads(json.dumps(replace(DONE, decider=Decider("driver", "h", 1)).to_dict()))
    assert values["decider"] == {"role": "driver", "host": "h", "pid": 1}
    assert values.keys() == set(JobReport.__dataclass_fields__)
