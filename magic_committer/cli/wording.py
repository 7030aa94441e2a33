"""What the command line says of an error: the library's message, and its remedies as commands that
can be pasted, with the same way to the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magic_committer.errors import MagicError
from magic_committer.options import S3Options
from magic_committer.remedy import Remedy, as_command, sentence


def way_of(s3: S3Options) -> tuple[str, ...]:
    """The global options that lead to the same store. An endpoint that holds credentials is left
    out."""
    endpoint = None if "@" in (s3.endpoint_url or "") else s3.endpoint_url
    way = (("--profile", s3.profile), ("--region", s3.region), ("--endpoint-url", endpoint))
    return tuple(word for name, value in way if value for word in (name, value))


def commands(s3: S3Options) -> Callable[[Remedy], str]:
    """How a remedy is written: as a command, in backticks."""
    way = way_of(s3)
    return lambda remedy: f"`{as_command(remedy, way)}`"


def told(error: MagicError, s3: S3Options) -> str:
    """An error in a line: ``str(error)``, with commands for calls."""
    hint = sentence(error.advice, error.remedies, commands(s3))
    return f"{error.message}. {hint}" if hint else error.message


def remedies_of(error: MagicError, s3: S3Options) -> list[dict[str, Any]]:
    """An error's remedies as JSON values, each with the command."""
    way = way_of(s3)
    return [{**one.to_dict(), "command": as_command(one, way)} for one in error.remedies]
