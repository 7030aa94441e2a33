"""The judge notices each kind of lie and loss: a checker that cannot fail proves nothing.
`python -m tests.chaos soak` runs the jobs."""

from __future__ import annotations

import hashlib
from itertools import islice

import pytest

import magic_committer as mc
from tests.chaos.conftest import BUCKET
from tests.chaos.jobs import Round, Way, run
from tests.chaos.judge import Operator, lies
from tests.outside import Found, Outside

JOB = Round(1, "replace", 5, 7)
WHOLE = Found(files=JOB.expected(), marked=True)
NONE = Found(files={"dt=0/old.csv": hashlib.md5(JOB.old["dt=0/old.csv"]).hexdigest()})
PART = Found(files=dict(islice(JOB.expected().items(), 3)), marked=True)
OTHER = Found(files={**JOB.expected(), next(iter(JOB.expected())): "0" * 32}, marked=True)


@pytest.mark.parametrize("found", [WHOLE, NONE, PART, OTHER, WHOLE._replace(marked=False)])
@pytest.mark.parametrize(
    "told", ["committed", "aborted", "reverted", "not started", "", "going on"]
)
def test_what_was_told_is_held_against_what_is_there(told: str, found: Found) -> None:
    """Committed means all files, byte for byte, and the marker; everything else none, and the old
    ones; nothing told: one of the two. While it goes on no strange file is there."""
    true = {"committed": (WHOLE,), "": (WHOLE, NONE)}.get(told, (NONE,))
    assert (lies(told, found, JOB) == "") == (
        found != OTHER if told == "going on" else found in true
    )


def test_only_what_was_named_may_be_lost() -> None:
    """Of an unresolved job the files that are missing are those that the library named."""
    missing = JOB.expected().keys() - PART.files.keys()
    assert lies("unresolved", PART, JOB, missing) == ""
    assert "not told as lost" in lies("unresolved", PART, JOB, list(missing)[1:])


def test_the_checker_sees_files_and_leaks_and_the_operator_ends_them(url: str) -> None:
    """From outside: a committed job's files, parts and empty ones too; an open upload and a record
    that is not closed, until somebody has ended the job."""
    s3, bucket, job = Way(url).s3(), Outside(Way(url).s3(), BUCKET), Round(2, files=80)
    assert run(Way(url), BUCKET, job).outcome == "committed"
    assert bucket.look(job.dest) == Found(files=job.expected(), marked=True)
    file = mc.start(f"s3://{BUCKET}/left", s3=s3).task(0).open("open", unique=True)
    file.write(b"1" * (9 * 2**20))
    assert bucket.look("left").control[0].endswith("/_job.json")
    assert bucket.uploads("left")
    assert Operator(BUCKET, s3).end(Round(3, named="left")) == ("aborted", ())
    file.abort()
    assert bucket.look("left") == Found()
