"""Running commands as a user does, in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from magic_committer.cli.main import run
from magic_committer.testing import memory_s3
from tests.in_memory import buried, clock, fresh, kind, machine, s3

__all__ = ["buried", "clock", "fresh", "kind", "machine", "memory_s3", "s3"]


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Its stdout, as JSON."""
        return orjson.loads(self.out)


Command = Callable[..., Ran]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``magic-committer`` with the given arguments."""

    def ran(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return ran
