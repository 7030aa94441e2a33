"""What a search found, for people: a trace line by line, and how requests and replies are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.model.store import NOT_OF_S3, REQUESTS, Found


@dataclass(frozen=True)
class Line:
    """One step of a trace. ``what`` is "" for an ordinary one."""

    actor: str
    what: str
    request: Any
    reply: Any

    def __str__(self) -> str:
        what = f" [{self.what}]" if self.what else ""
        return f"{self.actor + ':':<10} {shown(self.request)}{what} -> {shown(self.reply)}"


@dataclass(frozen=True)
class Result:
    """What a search found: a violation with a shortest trace, or none. ``violation``: the promise
    by name, and how it was broken; "" if none was. ``requests``: of the trace, messages between
    processes left out."""

    states: int
    violation: str
    trace: tuple[Line, ...] = ()

    @property
    def promise(self) -> str:
        return self.violation.partition(":")[0]

    @property
    def requests(self) -> int:
        """Requests of the trace that were sent to the store."""
        return sum(
            not isinstance(line.request, NOT_OF_S3) and line.what not in ("crash", "lands")
            for line in self.trace
        )

    def __str__(self) -> str:
        lines = "".join(f"\n  {number:>2} {line}" for number, line in enumerate(self.trace, 1))
        return f"{self.violation or 'no violation'} ({self.states:,} states){lines}"


def shown(value: Any) -> str:
    """A request or a reply for people: a body in it is told by its kind, state and nonce."""
    if isinstance(value, REQUESTS):
        defaults = value._field_defaults
        parts = [
            f"{name}={_brief(one)}" if name in defaults else _brief(one)
            for name, one in zip(value._fields, value, strict=True)
            if name not in defaults or one != defaults[name]
        ]
        return f"{type(value).__name__}({', '.join(parts)})"
    return _brief(value)


def _brief(value: Any) -> str:
    if isinstance(value, Found):
        return _brief(value.body)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = ("state", "nonce", "uuid", "attempt", "content", "done", "claim")
        told = [str(got) for name in names if (got := getattr(value, name, ""))]
        return f"<{' '.join([type(value).__name__, *told])}>"
    if isinstance(value, tuple):
        if value and all(isinstance(one, tuple) and not hasattr(one, "_fields") for one in value):
            return "[" + ", ".join(str(one[0]) for one in value) + "]"
        return "[" + ", ".join(map(_brief, value)) + "]"
    return str(getattr(value, "value", value))
