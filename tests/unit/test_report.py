"""``str(report)`` is one line that says what became of a job."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from magic_committer.report import Decider, JobReport

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
