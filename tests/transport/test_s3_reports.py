"""A job's report says what sent its requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import magic_committer as mc
from magic_committer.cli.main import run
from magic_committer.stores.base import transport_of
from magic_committer.stores.memory import MemoryStore
from magic_committer.stores.s3 import http
from magic_committer.stores.unconditional import unconditional
from tests.servers import moto_options, moto_server

SAYS = {"fast": "fast", "boto3": "boto3 (transport='boto3')"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """moto's server, with an empty bucket."""
    with moto_server("bucket") as running:
        yield running


def test_a_report_says_what_sent_the_requests(transport: str, url: str) -> None:
    """Of a commit, an abort, a failure and a job without conditional writes alike."""
    s3, said = moto_options(url), SAYS[transport]
    job = mc.start(f"s3://bucket/{transport}-one", s3=s3)
    with job.task(0) as task, task.open("a") as file:
        file.write(b"x")
    report = job.commit([task.result])
    assert (report.outcome, report.transport) == ("committed", said)
    assert report.to_dict()["transport"] == said
    assert mc.start(f"s3://bucket/{transport}-two", s3=s3).abort().transport == said
    failing = mc.start(f"s3://bucket/{transport}-three", s3=s3)
    with pytest.raises(mc.JobError):
        failing.commit([])
    assert failing.report is not None
    assert (failing.report.error != "", failing.report.transport) == (True, said)
    off = mc.Options(conditional_writes="off")
    assert mc.start(f"s3://bucket/{transport}-four", s3=s3, options=off).abort().transport == said


def test_a_report_says_why_it_was_not_the_fast_way(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ``auto`` took boto3, the reason is in the report."""
    monkeypatch.setattr(http, "httptools", None)
    report = mc.start(
        "s3://bucket/slow", s3=replace(moto_options(url), user_agent="slow", transport="auto")
    ).abort()
    assert report.transport == "boto3 (httptools is not installed)"


def test_the_command_says_it(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``job abort`` has a line for people about what sent the requests."""
    s3 = moto_options(url)
    job = mc.start("s3://bucket/command", s3=s3)
    for name, value in (
        ("AWS_ACCESS_KEY_ID", s3.access_key),
        ("AWS_SECRET_ACCESS_KEY", s3.secret_key),
        ("AWS_ENDPOINT_URL", url),
        ("AWS_REGION", s3.region),
    ):
        monkeypatch.setenv(name, str(value))
    code = run(["job", "abort", job.dest, job.id, "--yes"])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "requests by fast" in " ".join(told.split())


def test_a_store_in_memory_says_nothing() -> None:
    """It has no transport."""
    stores = (MemoryStore("b"), unconditional(MemoryStore("b")))
    assert [transport_of(store) for store in stores] == ["", ""]
