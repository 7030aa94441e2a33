"""What a suite counts for its closing lines, where its tests run in two processes.

pytest-xdist writes the summary in a process that runs no test. Each that does hands over what it
counted when it ends (``pytest_sessionfinish``), and the other takes it (``pytest_testnodedown``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


def hand_over(session: pytest.Session, name: str, counted: Mapping[str, Any]) -> None:
    """Send what this process counted. Does nothing where it writes the summary itself.

    Args:
        counted: of strings and numbers only: it goes through a pipe.
    """
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[name] = dict(counted)


def handed_over(node: Any, name: str) -> dict[str, Any]:
    """What a process that has ended counted; nothing if it was killed."""
    counted: dict[str, Any] = getattr(node, "workeroutput", {}).get(name, {})
    return counted
