"""What is said before any command is loaded: the formats' names, and notes. It imports little, for
``--help`` needs it."""

from __future__ import annotations

import sys
from typing import Literal, get_args

Format = Literal["table", "json", "jsonl", "csv", "prometheus"]
FORMATS: tuple[str, ...] = tuple(how for how in get_args(Format) if how != "prometheus")
"""What every command prints; ``prometheus`` is for `cleanup`."""


def clean(text: object) -> str:
    """Text that does nothing to a terminal: control and format characters are escaped."""
    told = str(text)
    if told.isprintable():  # nearly always
        return told
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in told)


def note(line: str) -> None:
    """A line for people beside the results: to stderr, in every format."""
    sys.stderr.write(f"{clean(line)}\n")
    sys.stderr.flush()
