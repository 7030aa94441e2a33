"""The count of kills, told when all is over."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.spread import hand_over, handed_over

KILLS = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[KILLS] = Counter()


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> Counter[str]:
    """How many processes were killed, by the state of their job then."""
    return request.config.stash[KILLS]


def pytest_sessionfinish(session: pytest.Session) -> None:
    kills = session.config.stash[KILLS]
    hand_over(session, "kills", kills)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    config: pytest.Config = node.config
    config.stash[KILLS].update(handed_over(node, "kills"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    kills = terminalreporter.config.stash[KILLS]
    told = ", ".join(f"{state} {count}" for state, count in sorted(kills.items()))
    if kills:
        terminalreporter.write_line(f"kill -9: {kills.total()} in all: {told}")
