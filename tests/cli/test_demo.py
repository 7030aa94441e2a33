"""`demo`: the tour tells the truth, with moto's server and without, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import orjson
import pytest

from magic_committer import _wiring
from magic_committer.cli import exits
from tests.cli.conftest import Command

END_SECONDS_MAX = 300.0


def test_the_tour_ends_with_a_clean_path(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory: four uploads and one dead job are seen, the cleanup takes three of them and the
    job, the other program's stays; no store, file or variable is left."""
    monkeypatch.chdir(tmp_path)
    environment = dict(os.environ)
    ran = command("demo", "--in-memory", "--format", "jsonl")
    assert (ran.code, ran.err) == (exits.OK, "")
    lines = [orjson.loads(line) for line in ran.out.splitlines()]
    ends = [number for number, line in enumerate(lines) if line["type"] == "uploads.summary"]
    assert Counter(line["type"] for line in lines[: ends[0]]) == {"upload": 4}
    jobs = [line for line in lines if line["type"] == "job"]
    assert [line["state"] for line in jobs] == ["running"]
    (cleaned,) = (line for line in lines if line["type"] == "cleanup")
    assert (cleaned["jobs_recovered"], cleaned["uploads_aborted"]) == (1, 1)
    (left,) = (line for line in lines[ends[0] : ends[1]] if line["type"] == "upload")
    assert left["key"] == "flights/by-another-program.csv"
    assert _wiring._registered == []
    assert dict(os.environ) == environment
    assert list(tmp_path.iterdir()) == []


def test_the_tour_says_what_is_seen(command: Command) -> None:
    """For people each step has a title and a sentence, and each command stands above its output as
    it is typed."""
    told = command("demo", "--in-memory").out
    assert re.findall(r"^(\d)\. ", told, re.MULTILINE) == list("123456")
    assert "Before its commit 0 files were visible, after it 3" in told
    assert re.findall(r"^\$ magic-committer (.*)$", told, re.MULTILINE) == [
        "uploads list s3://demo/flights --dead-after 0s",
        "job list s3://demo/flights --dead-after 0s",
        "cleanup s3://demo/flights --dead-after 0s --leftover-after 0s",
        "uploads list s3://demo/flights",
    ]
    assert "1 job recovered, 1 orphan aborted" in told
    assert "Of the other program 1 upload is open, as before; of ours 0; 3 files" in told


def test_without_moto_it_works_in_memory(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where moto is not installed the tour is the same; --keep, which needs it, says how to get
    it."""
    monkeypatch.setitem(sys.modules, "moto.server", None)
    ran = command("demo")
    assert (ran.code, ran.err) == (exits.OK, "")
    assert "in this process" in ran.out
    ran = command("demo", "--keep")
    assert (ran.code, ran.out) == (exits.BAD_ARGUMENT, "")
    assert "magic-committer[demo]" in ran.err
    assert command("demo", "--keep", "--in-memory").code == exits.USAGE


def test_with_moto_a_process_is_killed_and_the_server_may_stay(tmp_path: Path) -> None:
    """With moto's server the tour kills a real process and reaches no other store, whatever is
    configured; with --keep the server answers until Ctrl-C, and then is gone."""
    told: list[str] = []
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL_S3": "http://192.0.2.1:9",
        "AWS_PROFILE": "production",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "magic_committer.cli", "demo", "--keep"],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            told.append(line.rstrip("\n"))
            if line.startswith("export AWS_SECRET_ACCESS_KEY="):
                break
        text = "\n".join(told)
        (url,) = re.findall(r"^export AWS_ENDPOINT_URL=(http://127\.0\.0\.1:\d+)$", text, re.M)
        with urllib.request.urlopen(f"{url}/demo?list-type=2", timeout=END_SECONDS_MAX) as reply:
            assert reply.read().count(b"<Key>flights/2013-") == 3
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=END_SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == exits.OK, errors
    (victim,) = re.findall(r"kill -9 (\d+)", text)
    assert not Path("/proc", victim).exists()
    assert "1 job recovered, 1 orphan aborted" in text
    assert "Of the other program 1 upload is open, as before; of ours 0; 3 files" in text
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)
    assert list(tmp_path.iterdir()) == []
