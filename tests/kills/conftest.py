"""The count of kills, told when all is over."""

from __future__ import annotations

from collections import Counter

import pytest

KILLS = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Start at none."""
    config.stash[KILLS] = Counter()


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> Counter[str]:
    """How many processes were killed, by the state of their job then."""
    return request.config.stash[KILLS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One closing line."""
    kills = terminalreporter.config.stash[KILLS]
    told = ", ".join(f"{state} {count}" for state, count in sorted(kills.items()))
    if kills:
        terminalreporter.write_line(f"kill -9: {kills.total()} in all: {told}")
