"""How a remedy is worded, in Python and as a command; and how several make one line."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from magic_committer.commit.outcome import incomplete
from magic_committer.errors import Decider, JobReport, MagicError
from magic_committer.errors.messages import Remedy, add_note, as_command, in_python, reword_notes
from magic_committer.options import Mode
from magic_committer.protocol.record import USUAL_TERMS, StartedJob

D = "s3://b/t/"


def of(call: Any, job: str = "1", **options: object) -> Remedy:
    return Remedy(call, D, job, options=options)


WORDINGS: list[tuple[Remedy, str, str]] = [
    (of("recover", dead_after=0),
     "recover(…, '1', dead_after=0)", "job recover … 1 --dead-after 0"),
    (of("recover", accept=("t/a b", "t/c"), leave_visible=True),
     "recover(…, '1', accept=['t/a b', 't/c'], leave_visible=True)", ""),
    (of("abort", revert=True), "abort(…, '1', revert=True)", "job abort … 1 --revert"),
    (of("commit", expect=0), "attach(…, '1').commit(expect=0)", "job commit … 1 --expect 0"),
    (of("commit", results=(), expect=0), "attach(…, '1').commit(results=[], expect=0)", ""),
    (of("force_abort", dead_after=5400.0, dry_run=True),
     "force_abort(…, '1', dead_after=5400, dry_run=True)",
     "job abort … 1 --force --dead-after 90m --dry-run"),
    (of("abort", adopt=True, dead_after=0, leave_visible=True),
     "adopt(…, '1', dead_after=0); abort(…, '1', leave_visible=True)",
     "job abort … 1 --adopt --dead-after 0 --force"),
    (of("adopt"), "adopt(…, '1')", "job commit … 1 --adopt"),
    (of("show"), "attach(…, '1').state", "job show … 1"),
    (of("inspect", ""), "inspect(…)", "job list …"),
    (of("cleanup", ""), "cleanup(…)", "cleanup …"),
    (of("doctor", ""), "doctor(…)", "doctor …"),
    (of("recover", adopt=True),
     "adopt(…, '1'); recover(…, '1', dead_after=0)", "job recover … 1 --adopt"),
    (of("start"), "start(…, job_id='1')", ""),
]  # fmt: skip
"""A remedy, its call and its command, with the destination left out; "": there is no command."""


@pytest.mark.parametrize(("remedy", "python", "command"), WORDINGS)
def test_a_remedy_has_a_wording_in_each(remedy: Remedy, python: str, command: str) -> None:
    """A Python call and a command; where a language has no such call, the other's."""
    calls = "; ".join(f"magic_committer.{call}" for call in python.split("; "))
    in_words = calls.replace("…", repr(D))
    shell = f"magic-committer {command.replace('…', D)}" if command else in_words
    assert (in_python(remedy), as_command(remedy)) == (in_words, shell)


def test_many_keys_are_named_by_the_errors_attribute() -> None:
    """A list too long for a line is worded by the attribute that holds it, a short one in full."""
    keys = tuple(f"k{number}" for number in range(21))
    many, few = (replace(of("recover", accept=k), keys_in="outstanding") for k in (keys, keys[:20]))
    assert in_python(many).endswith("accept=error.outstanding)")
    assert "'k19'" in in_python(few)


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


@pytest.mark.parametrize("which", ["unfinished", "unresolved"])
@pytest.mark.parametrize(
    ("mode", "adopted", "lost"),
    [
        ("append", "", " (what it has overwritten does not come back)"),
        ("replace", "", " (what it has overwritten does not come back, nor does the old _SUCCESS)"),
        ("replace_partitions", "", " (what it has overwritten does not come back)"),
        ("fail", "", ""),
        ("append", "uuid",
         " (what it has overwritten does not come back, its own files are lost for good)"),
    ],
)  # fmt: skip
def test_an_offer_to_undo_says_what_is_lost(
    mode: Mode, adopted: str, lost: str, which: str
) -> None:
    """An operator who pastes the call knows before what it costs."""
    terms = structs.replace(USUAL_TERMS, mode=mode)
    job = StartedJob("j", "0" * 32, "s3://bucket/t/", terms, False, "", False, adopted)
    told = str(incomplete(job, "1 file is left", MagicError("500"), **{which: ("t/a.csv",)}))
    assert f"undo the job{lost}: magic_committer.abort(" in told


def report(**changes: Any) -> JobReport:
    """A report of a committed job, of which there is nothing more to tell."""
    values: dict[str, Any] = {
        "job_id": "nightly", "uuid": "0" * 32, "dest": D, "mode": "replace", "tasks": 0, "files": 0,
        "bytes": 0, "seconds": 0.0, "outcome": "committed", "state": "absent",
    }  # fmt: skip
    return JobReport(**values | changes)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"tasks": 2, "files": 3, "bytes": 1_234_567, "seconds": 1.44},
         "job nightly committed in …: 3 files of 2 tasks, 1,234,567 bytes, 1.4 s"),
        ({"tasks": 1, "files": 1, "bytes": 1},
         "job nightly committed in …: 1 file of 1 task, 1 byte"),
        ({"decider": Decider("recovery", "h1", 7), "state": "closed"},
         "job nightly committed by recovery on h1 in …"),
        ({"outcome": "aborted", "state": "closed", "error": "ValueError: boom\n  twice"},
         "job nightly aborted in …; ValueError: boom twice"),
        ({"outcome": "", "state": "running", "error": "IncompleteJob: one is missing"},
         "job nightly in …: not decided (its record: running); IncompleteJob: one is missing"),
        ({"state": "committing", "error": "CommitIncomplete: 2 files"},
         "job nightly committed in …; CommitIncomplete: 2 files; not finished (its record:"
         " committing)"),
        ({"left_open": ("k u",), "warnings": ("first", "second")},
         "job nightly committed in …; 1 upload left open; 2 warnings: first"),
        ({"outcome": "", "job_id": "", "skipped": True},
         "nothing was written to …: it holds data"),
    ],
)  # fmt: skip
def test_a_report_is_one_line_for_people(changes: dict[str, Any], line: str) -> None:
    """Each outcome has its words; numbers are exact; nothing breaks the line."""
    assert str(report(**changes)) == line.replace("…", D)


def test_a_report_is_json_too() -> None:
    """``to_dict`` has every field, as JSON has it."""
    values = json.loads(json.dumps(report(decider=Decider("driver", "h", 1)).to_dict()))
    assert values["decider"] == {"role": "driver", "host": "h", "pid": 1}
    assert values.keys() == set(JobReport.__dataclass_fields__)
