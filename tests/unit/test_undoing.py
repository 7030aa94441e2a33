"""What an error says that offers to undo a decided job: what is lost by it."""

from __future__ import annotations

import pytest

from magic_committer.commit.outcome import incomplete
from magic_committer.errors import MagicError
from magic_committer.options import Mode
from magic_committer.protocol.record import StartedJob, Terms

KEYS = ("t/a.csv",)


def told(mode: Mode, *, adopted: str, which: str) -> str:
    """The error of a job of which a file is not published."""
    job = StartedJob("j", "0" * 32, "s3://bucket/t/", Terms(mode=mode), False, "", False, adopted)
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
