"""What all suites share: the seed. Everything drawn by chance in a test comes from it."""

from __future__ import annotations

import random

import pytest

SEED = 20_130_101
"""The seed where none is given: every run draws the same."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--seed``: another seed for what tests draw by chance."""
    parser.addoption("--seed", type=int, default=SEED, help=f"seed of the tests (default {SEED})")


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run; name it in a failure's message."""
    chosen: int = request.config.getoption("--seed")
    return chosen


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A source of chance of this test's own: the same for the same seed, whatever else runs."""
    return random.Random(f"{seed} {request.node.nodeid}")
