"""What all suites share: the seed, of which everything comes that is drawn by chance in a test; how
much of tests with many parameters is run; and why tests were not run."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from contextlib import suppress

import pytest

from tests.nightly import NIGHTLY

SEED = 20_130_101
"""The seed where none is given: every run draws the same."""

with suppress(ImportError):  # environments of tools/apart.py do without
    from hypothesis import HealthCheck, settings

    # By default an example that takes 0.2 s fails its test, and each run draws others.
    settings.register_profile(
        "calm", deadline=None, derandomize=not NIGHTLY, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("calm")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--seed``: another seed for what tests draw by chance. ``--share``: a part of each test's
    parameters."""
    parser.addoption("--seed", type=int, default=SEED, help=f"seed of the tests (default {SEED})")
    parser.addoption("--share", type=float, default=1.0, help="of each test's parameters")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a share of each test's parameters, the same in every run: one of them at least."""
    share: float = config.getoption("--share")
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {
        item
        for of_one in cases.values()
        for item in sorted(of_one, key=_place)[: math.ceil(share * len(of_one))]
    }
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were skipped: what a machine lacks is told."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"not run: {count}: {reason}")


def _place(item: pytest.Item) -> bytes:
    """In the draw of a test's parameters."""
    return hashlib.blake2b(item.nodeid.encode()).digest()


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run; name it in a failure's message."""
    chosen: int = request.config.getoption("--seed")
    return chosen


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A source of chance of this test's own: the same for the same seed, whatever else runs."""
    return random.Random(f"{seed} {request.node.nodeid}")
