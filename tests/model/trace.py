"""What a search found, for people: a trace line by line, and how requests and answers are shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from magic_committer.errors import StoreError, Unanswered
from magic_committer.stores.base import StoredObject
from tests.model.processes import Tell, Wait
from tests.model.store import DEST


@dataclass(frozen=True)
class Line:
    """One step of a trace. ``what`` is "" for an ordinary one."""

    actor: str
    what: str
    request: Any
    answer: Any

    def __str__(self) -> str:
        what = f" [{self.what}]" if self.what else ""
        return f"{self.actor + ':':<10} {_asked(self.request)}{what} -> {_answered(self.answer)}"


@dataclass(frozen=True)
class Result:
    """What a search found: a violation with a trace of the fewest turns, or none. ``nodes``: of
    processes; ``turns``: how often an actor was left in the middle, at most; ``whole``: there is
    nothing with more. ``violation``: the promise by name, and how it was broken; "" if none was."""

    states: int
    nodes: int
    turns: int
    violation: str
    trace: tuple[Line, ...] = ()
    whole: bool = True

    @property
    def promise(self) -> str:
        return self.violation.partition(":")[0]

    def __str__(self) -> str:
        lines = "".join(f"\n  {number:>2} {line}" for number, line in enumerate(self.trace, 1))
        how = "" if self.violation else "all " if self.whole else "to "
        counts = f"{self.states:,} states, {self.nodes:,} nodes, {how}{self.turns} turns"
        return f"{_short(self.violation) or 'no violation'} ({counts}){lines}"


def _short(text: str) -> str:
    """A key or a body without what says nothing: the destination, and long ids."""
    text = text.removeprefix(DEST.prefix)
    return re.sub(r"([0-9a-f])\1{31}|([0-9a-f]{8})0+([0-9a-f]+)(?![0-9a-f])", _name, text)


def _name(match: re.Match[str]) -> str:
    job, who, number = match.groups()
    return f"j{job}" if job else f"{who[:3]}.{number}"


def _asked(request: Any) -> str:
    if isinstance(request, Tell | Wait):
        return f"{request.verb} {request.name if isinstance(request, Tell) else request.names}"
    keys = ", ".join(map(_short, request.keys or (request.key,)))
    of = f" {request.upload_id.rpartition('/')[2]}" if request.upload_id else ""
    condition = " if-match" if request.if_match else " if-none-match" * request.if_none_match
    return f"{request.verb} {keys}{_short(of)}{condition}"


def _answered(answer: Any) -> str:
    if answer is None:
        return "ok"
    if isinstance(answer, Unanswered):
        return "no answer"
    if isinstance(answer, StoreError):
        return f"{type(answer).__name__} {answer.code}".strip()
    if isinstance(answer, StoredObject):
        state = re.search(rb'"state": ?"(\w+)"', answer.body)
        return f"<{state[1].decode() if state else 'found'}>"
    if isinstance(answer, tuple) and hasattr(answer[0], "objects"):
        shown = (*(one.key for one in answer[0].objects), *answer[0].prefixes)
        return f"[{', '.join(map(_short, shown))}]"
    if isinstance(answer, tuple) and hasattr(answer[0], "uploads"):
        return f"[{', '.join(_short(one.upload_id) for one in answer[0].uploads)}]"
    return "ok" if not hasattr(answer, "upload_id") else _short(answer.upload_id)
