"""Running commands as a user does, in this process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import orjson
import pytest

from magic_committer.cli.main import run
from magic_committer.errors import PermissionDenied
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import memory_s3
from tests.cli.shop import shop
from tests.in_memory import buried, clock, fresh, kind, machine, s3
from tests.promises.hands import raising
from tests.promises.situations import contents
from tools.moto_server import CREDENTIALS

__all__ = ["buried", "clock", "contents", "fresh", "kind", "machine", "memory_s3", "s3", "shop"]


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return orjson.loads(self.out)


Command = Callable[..., Ran]


def pasted(told: str) -> list[list[str]]:
    """The arguments of each command that a text has in backticks."""
    calls = [shlex.split(call) for call in re.findall("`(.*?)`", told)]
    return [words[1:] for words in calls if words[0] == "magic-committer"]


def forbid(store: MemoryStore, *verbs: str, below: str = "", words: str = "not allowed") -> None:
    """Refuse these verbs from now on, for keys below a prefix; with words that are told."""
    store.before = raising(
        lambda r: r.verb in verbs and r.key.startswith(below), PermissionDenied(words, status=403)
    )


def answering(monkeypatch: pytest.MonkeyPatch, *, yes: bool) -> list[str]:
    """Let a user at a terminal answer each question so; the questions."""
    asked: list[str] = []

    def confirm(question: str, **_: object) -> None:
        asked.append(question)
        if not yes:
            raise click.Abort

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    return asked


def lead(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Let the environment lead to a server."""
    for variable, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(variable, value)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``magic-committer`` with the given arguments."""

    def ran(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return ran
