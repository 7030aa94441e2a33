"""The tests' own servers: what is left when they end, and what of their mistakes is told."""

from __future__ import annotations

import urllib.request

import pytest

from tests.servers import Reply, scripted_server


def test_a_servers_own_mistake_fails_its_test(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that raises is no lost connection: its traceback is printed, and the end fails."""

    def script(_: object) -> Reply:
        raise LookupError("no such answer")

    with (
        pytest.raises(AssertionError, match="no such answer"),
        scripted_server(script) as server,
        pytest.raises(OSError, match="closed connection"),
    ):
        urllib.request.urlopen(server.url, timeout=300)
    assert "LookupError: no such answer" in capsys.readouterr().err
