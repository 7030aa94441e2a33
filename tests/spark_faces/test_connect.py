"""Spark Connect: what works there, and on which side the store is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.connected import BATCH_ROWS, BATCHES, QUERY
from tests.spark.lake import Lake

pytest.importorskip("grpc", reason="pip install 'pyspark[connect]'")
pytest.importorskip("grpc_status", reason="pip install 'pyspark[connect]'")

SESSION_SECONDS = 400.0


Said = tuple[Lake, Mapping[str, Any], Callable[[str], list[int]]]


@pytest.fixture(scope="module")
def told(environment: str) -> Said:
    """A destination, what one client says that wrote by each face, and the rows of a name."""
    lake = Lake(environment, "connect")
    answer = subprocess.run(
        [sys.executable, "-m", "tests.spark.connected", lake.dest],
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True,
        env={key: value for key, value in os.environ.items() if key != "SPARK_REMOTE"},
        timeout=SESSION_SECONDS,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-4000:]
    said = json.loads(answer.stdout.splitlines()[-1])
    return lake, said, lambda name: Lake(environment, f"connect/{name}").ids()


def test_both_faces_write_by_connect(told: Said) -> None:
    """And the message of a mistake comes through the server with its hint."""
    _, said, rows = told
    assert said["client"].startswith("pyspark.sql.connect")
    assert (said["call"], said["format"], said["registered"]) == ("committed", "saved", "saved")
    for name in ("call", "format", "registered"):
        assert rows(name) == list(range(6))
    assert "Did you mean 'partition_by'?" in said["refused"]


def test_the_call_commits_in_the_client_and_the_format_on_the_server(told: Said) -> None:
    """A client that does not reach the store writes by the server's environment, or not at all."""
    _, said, rows = told
    assert "127.0.0.1:9" in said["call, client without a store"]
    assert said["format, client without a store"] == "saved"
    assert (rows("nowhere"), rows("server")) == ([], list(range(6)))


def test_a_stream_is_committed_on_the_server(told: Said) -> None:
    """Each batch once; `foreach_batch` needs a name, for Spark does not say which query runs."""
    _, said, rows = told
    for face in ("stream", "batches"):
        assert (said[face], said[f"{face} again"]) == ("written", "written")
        assert rows(face) == list(range(BATCHES * BATCH_ROWS))
    assert "Name it: foreach_batch(dest, query='clicks')" in said["nameless"]
    assert rows("nameless") == []


def test_nothing_is_left_open(told: Said) -> None:
    """No upload and no control object of any of these jobs, but for the ledgers of the streams."""
    lake, said, _ = told
    assert lake.open_uploads() == []
    control = [key for key in lake.keys() if "__magic" in key]
    assert all("/__magic_stream/" in key for key in control)
    assert f"batches/__magic_stream/_{QUERY}.json" in control
    assert len(control) == 2, said
