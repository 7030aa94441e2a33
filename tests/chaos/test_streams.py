"""Streams whose drivers are killed with -9: each row is there once.

``python -m tests.chaos streams`` is the same for hundreds of kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.streams import kills, wrong_rows
from tests.nightly import most

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
