"""Streams whose drivers are killed with -9: each row is there once.

``python -m tests.stream_kills`` is the same for hundreds of kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly import most
from tests.stream_kills.runner import kills, wrong_rows
from tests.striker import kind_of

KILLS = most(20, 4)
LIVES = 3


def test_rows_are_there_once_though_drivers_are_killed(tmp_path: Path, seed: int) -> None:
    """Whole drivers, and their Python workers, are killed at drawn requests of streams by both
    faces; entries of Spark's commit log are lost. Each row is there once, and nothing is left."""
    tally = kills(seed, KILLS, tmp_path, lives=LIVES)
    print(*tally.lines(), sep="\n")
    assert tally.kills.total() >= KILLS
    assert {name.partition(" ")[0] for name in tally.kills} == {"driver", "workers"}
    assert tally.streams >= 2
    assert tally.batches >= KILLS


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], ""),
        ([0, 1, 1, 2, 3, 4, 5, 6, 7], "there twice: [1]"),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], "never given: [8]"),
        ([0, 1, 2, 3, 5, 6, 7], "missing: [4]"),
    ],
)
def test_the_judge_sees_what_is_wrong(found: list[int], wrong: str) -> None:
    """A row that is there twice, that nobody gave, or that is missing."""
    assert wrong_rows(found, 2, all_there=True) == wrong
    assert wrong_rows(found, 2) == ("" if wrong.startswith("missing") else wrong)


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("PUT", "/b/t/__magic_stream/_q.json", "PUT ledger"),
        ("GET", "/b/t/__magic_job-1/_job.json", "GET record"),
        ("PUT", "/b/t/__magic_job-1/_plan-5f.json", "PUT plan"),
        ("POST", "/b/t/part-0.parquet?uploads", "Create"),
        ("PUT", "/b/t/part-0.parquet?partNumber=1&uploadId=u", "UploadPart"),
        ("POST", "/b/t/part-0.parquet?uploadId=u", "Complete"),
        ("DELETE", "/b/t/part-0.parquet?uploadId=u", "Abort"),
        ("GET", "/b?list-type=2&prefix=t/", "List"),
        ("PUT", "/b/t/_SUCCESS", "PUT marker"),
    ],
)
def test_requests_are_told_apart(method: str, target: str, kind: str) -> None:
    """A blow falls where it was drawn: the verbs of S3, and the library's own objects."""
    assert kind_of(method, target) == kind
