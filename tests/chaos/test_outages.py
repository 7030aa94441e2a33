"""A job whose store goes away for a while, or for good: waited out, or ended in time and truly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.options import S3Options
from tests.chaos.conftest import BUCKET
from tests.chaos.proxy import Silence, of_kind
from tests.chaos.silent import Mood
from tests.servers import way

DEST = f"s3://{BUCKET}/t/"
SLACK_SECONDS = 60.0
"""What a loaded machine may take longer. Without bounds these tests would take minutes."""


def hurried(silence: Silence, **more: Any) -> S3Options:
    """The way to a store whose Completes are not waited for long; for what comes before them there
    is time on a busy machine, too."""
    short = {"read_seconds_max": 2.0, "complete_seconds_max": 0.5, "retry_seconds_max": 3.0}
    return way(silence.url, **{**short, **more})


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What is done takes hardly longer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds + SLACK_SECONDS


def write(s3: S3Options, files: int) -> mc.JobReport:
    """A job of so many files."""
    with mc.write(DEST, s3=s3) as job:
        for number in range(files):
            with job.open(f"{number}.csv", "w") as file:
                file.write("1\n")
    return job.report


def heal(silence: Silence) -> None:
    """It answers again."""
    silence.chosen, silence.silent = lambda _: False, False


@pytest.mark.parametrize("mood", [None, Mood.SILENT])
def test_a_decided_job_outlasts_an_outage(silence: Silence, mood: Mood | None) -> None:
    """A server that goes away in mid-commit, for longer than any other request would be tried, and
    comes back: the commit goes well, by itself."""
    silence.chosen, silence.mood = of_kind("Complete"), mood

    def come_back() -> None:
        assert silence.fell_silent.wait(60)
        time.sleep(2.5)
        heal(silence)

    threading.Thread(target=come_back, daemon=True).start()
    patient = {"complete_seconds_max": 5.0, "decided_seconds_max": 60.0}
    report = write(hurried(silence, **patient), 40)
    assert (report.outcome, report.files) == ("committed", 40)
    assert silence.swallowed


def test_a_decided_job_ends_in_time(silence: Silence) -> None:
    """A store that is gone for good costs ``decided_seconds_max`` for all 100 files together; then
    it is `CommitIncomplete`, and the job can be finished when the store is back."""
    silence.chosen = of_kind("Complete")
    s3 = hurried(silence, decided_seconds_max=2.0)
    with pytest.raises(mc.CommitIncomplete) as caught:
        write(s3, 100)
    assert "magic_committer.recover(" in caught.value.hint
    with within(2.0), pytest.raises(mc.MagicError):
        mc.recover(DEST, caught.value.job_id, s3=s3)
    heal(silence)
    assert mc.recover(DEST, caught.value.job_id, s3=way(silence.url)).outcome == "committed"


@pytest.mark.parametrize("kind", ["Create", "UploadPart"])
def test_a_job_that_is_not_decided_ends_in_time(silence: Silence, kind: str) -> None:
    """A store that falls silent at a Create, or at the first part: the file fails, and all that is
    cleaned up after it ends in time; the error says how to end the job."""
    silence.chosen = of_kind(kind)
    with within(3.0), pytest.raises(mc.MagicError) as caught:
        write(hurried(silence), 20)
    assert any("magic_committer.abort(" in note for note in caught.value.__notes__)
