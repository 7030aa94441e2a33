"""Spark Connect: what works there, and on which side the store is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.connected import BATCH_ROWS, BATCHES, QUERY
from tests.spark.lake import Lake

pytest.importorskip("grpc", reason="pip install 'pyspark[connect]'")
pytest.importorskip("grpc_status", reason="pip install 'pyspark[connect]'")

SESSION_SECONDS = 400.0


@pytest.fixture(scope="module")
def told(environment: str) -> tuple[Lake, Mapping[str, Any]]:
    """A destination, and what one client says that wrote by each face."""
    lake = Lake(environment, "connect")
    settings = {key: value for key, value in os.environ.items() if key != "SPARK_REMOTE"}
    answer = subprocess.run(
        [sys.executable, "-m", "tests.spark.connected", lake.dest],
        cwd=Path(__file__).resolve().parents[2],
        env=settings,
        capture_output=True,
        text=True,
        timeout=SESSION_SECONDS,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    return lake, json.loads(answer.stdout.splitlines()[-1])


def rows(lake: Lake, name: str) -> list[int]:
    """The rows below a destination."""
    return Lake(lake.endpoint, f"{lake.name}/{name}").ids()


def test_both_faces_write_by_connect(told: tuple[Lake, Mapping[str, Any]]) -> None:
    """`write_dataframe` and ``format("magic")``, found by itself and registered."""
    lake, said = told
    assert said["client"].startswith("pyspark.sql.connect")
    assert (said["call"], said["format"], said["registered"]) == ("committed", "saved", "saved")
    for name in ("call", "format", "registered"):
        assert rows(lake, name) == list(range(6))


def test_mistakes_are_told_by_connect_too(told: tuple[Lake, Mapping[str, Any]]) -> None:
    """The message and its hint come through the server."""
    assert "Did you mean 'partition_by'?" in told[1]["refused"]


def test_write_dataframe_commits_in_the_client(told: tuple[Lake, Mapping[str, Any]]) -> None:
    """A client that does not reach the store cannot start the job: its environment counts."""
    lake, said = told
    assert "127.0.0.1:9" in said["call, client without a store"]
    assert rows(lake, "nowhere") == []


def test_format_magic_commits_on_the_server(told: tuple[Lake, Mapping[str, Any]]) -> None:
    """A client that does not reach the store writes by the server's environment."""
    lake, said = told
    assert said["format, client without a store"] == "saved"
    assert rows(lake, "server") == list(range(6))


@pytest.mark.parametrize("face", ["stream", "batches"])
def test_a_stream_is_committed_on_the_server(
    told: tuple[Lake, Mapping[str, Any]], face: str
) -> None:
    """``writeStream.format("magic")`` and `foreach_batch` write each batch once, one that Spark has
    forgotten too. The client does not reach the store: both ask it on the server."""
    lake, said = told
    assert (said[face], said[f"{face} again"]) == ("written", "written")
    assert rows(lake, face) == list(range(BATCHES * BATCH_ROWS))


def test_foreach_batch_needs_a_name_by_connect(told: tuple[Lake, Mapping[str, Any]]) -> None:
    """Spark does not say there which query runs: the query fails with what to write."""
    lake, said = told
    assert "Name it: foreach_batch(dest, query='clicks')" in said["nameless"]
    assert rows(lake, "nameless") == []


def test_nothing_is_left_open(told: tuple[Lake, Mapping[str, Any]]) -> None:
    """No upload and no control object of any of these jobs, but for the ledgers of the streams."""
    lake, said = told
    assert lake.open_uploads() == []
    control = [key for key in lake.keys() if "__magic" in key]
    assert [key for key in control if "/__magic_stream/" not in key] == []
    assert f"batches/__magic_stream/_{QUERY}.json" in control
    assert len(control) == 2, said
