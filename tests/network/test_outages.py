"""A job whose store goes away for a while, or for good: waited out, or ended in time and truly."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.options import S3Options
from tests.network.conftest import BUCKET
from tests.servers import way
from tests.silent import Mood, MoodyProxy

DEST = f"s3://{BUCKET}/t/"
SLACK_SECONDS = 25.0
"""What a loaded machine may take longer. Without bounds these tests would take minutes."""


def hurried(proxy: MoodyProxy, **more: Any) -> S3Options:
    """The way to the proxy, for a store whose Completes are not waited for long; for what comes
    before them there is time on a busy machine, too."""
    short: dict[str, Any] = {
        "read_seconds_max": 2.0,
        "complete_seconds_max": 0.5,
        "retry_seconds_max": 3.0,
    }
    return way(proxy.url, **{**short, **more})


def write(s3: S3Options, files: int) -> mc.JobReport:
    """A job of so many files."""
    with mc.write(DEST, s3=s3) as job:
        for number in range(files):
            with job.open(f"{number}.csv", "w") as file:
                file.write("1\n")
    return job.report


def complete(method: str, path: str, query: str) -> bool:
    return method == "POST" and query.startswith("uploadId")


def comes_back(proxy: MoodyProxy, seconds: float) -> None:
    """Let it answer again so long after it has fallen silent."""

    def wait() -> None:
        assert proxy.fell_silent.wait(60)
        time.sleep(seconds)
        proxy.chosen = lambda *_: False
        proxy.silent = False

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.parametrize("mood", [None, Mood.SILENT])
def test_a_decided_job_outlasts_an_outage(proxy: MoodyProxy, mood: Mood | None) -> None:
    """A server that goes away in mid-commit, for longer than any other request would be tried, and
    comes back: the commit goes well, by itself."""
    proxy.chosen, proxy.mood = complete, mood
    comes_back(proxy, 2.5)
    report = write(hurried(proxy, decided_seconds_max=60.0), 40)
    assert (report.outcome, report.files) == ("committed", 40)
    assert proxy.swallowed


def test_a_decided_job_ends_in_time(proxy: MoodyProxy) -> None:
    """A store that is gone for good costs ``decided_seconds_max`` for all 100 files together; then
    it is `CommitIncomplete`, and the job can be finished when the store is back."""
    proxy.chosen, proxy.mood = complete, Mood.SILENT
    s3 = hurried(proxy, decided_seconds_max=2.0)
    with pytest.raises(mc.CommitIncomplete) as caught:
        write(s3, 100)
    assert "magic_committer.recover(" in caught.value.hint
    began = time.monotonic()
    with pytest.raises(mc.MagicError):
        mc.recover(DEST, caught.value.job_id, s3=s3)
    assert time.monotonic() - began < 2.0 + SLACK_SECONDS
    proxy.chosen, proxy.silent = lambda *_: False, False
    assert mc.recover(DEST, caught.value.job_id, s3=s3).outcome == "committed"


def test_completes_alone_that_are_swallowed_end_in_time(proxy: MoodyProxy) -> None:
    """A store that answers everything but Complete: 100 files cost the time of one."""
    proxy.chosen, proxy.only_chosen = complete, True
    s3 = hurried(proxy, decided_seconds_max=2.0)
    began = time.monotonic()
    with pytest.raises(mc.CommitIncomplete):
        write(s3, 100)
    assert time.monotonic() - began < 2.0 + SLACK_SECONDS  # one by one, with 32 threads: 6 s more


@pytest.mark.parametrize("verb", ["uploads", "uploadId"])
def test_a_job_that_is_not_decided_ends_in_time(proxy: MoodyProxy, verb: str) -> None:
    """A store that falls silent at a Create, or at the first part: the file fails, and all that is
    cleaned up after it ends in time; the error says how to end the job."""
    proxy.chosen = lambda method, path, query: verb in query and method in ("POST", "PUT")
    began = time.monotonic()
    with pytest.raises(mc.MagicError) as caught:
        write(hurried(proxy, read_seconds_max=0.5, retry_seconds_max=1.0), 20)
    assert time.monotonic() - began < 1.0 + SLACK_SECONDS
    assert any("magic_committer.abort(" in note for note in caught.value.__notes__)


def test_setup_ends_in_time(proxy: MoodyProxy) -> None:
    """A silent store at ``start``: the answer is that nothing can be told, in the time of one
    request."""
    proxy.chosen = lambda *_: True
    began = time.monotonic()
    with pytest.raises(mc.OutcomeUnknown):
        mc.start(DEST, s3=hurried(proxy))
    assert time.monotonic() - began < 1.0 + SLACK_SECONDS
