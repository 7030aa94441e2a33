"""What is typed, read: paths, durations, modes; and times, as people read them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from magic_committer.cli.app import F, options
from magic_committer.errors import OptionError, PathError
from magic_committer.errors.messages import duration
from magic_committer.hadoop.paths import Destination
from magic_committer.options import mode_of
from magic_committer.stores.urls import is_tree_url

_BARE = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?\Z", re.DOTALL)
"""A bucket's name as S3 accepts it for new buckets, with or without a path."""
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_STEP = re.compile(r"(\d+(?:\.\d+)?)(min|[smhdw])")
_DURATION = re.compile(rf"(?:{_STEP.pattern})+")


def s3_url(text: str) -> str:
    """A path as people type it: ``mybucket`` and ``mybucket/table`` are ``s3://mybucket/table``.
    What could be no bucket is left as it is, for the error to show."""
    return f"s3://{text}" if _BARE.match(text) else text


def _on_s3(text: str) -> Destination:
    if is_tree_url(text):
        raise PathError(
            f"{text} is a directory of files: this command is about what only S3 has",
            hint="The commands `job`, `put` and `cleanup` take it",
        )
    return Destination.parse(s3_url(text))


def parse_duration(text: str) -> float:
    """Seconds of ``36h``, ``1d12h``, ``90m``, ``1.5h`` or ``0``; sums are allowed, signs are not,
    nor a number without a unit."""
    words = text.strip().lower().replace(" ", "")
    if words == "0":
        return 0.0
    if not _DURATION.fullmatch(words):
        raise OptionError(f"{text!r} is no duration: write 36h, 90m, 45s, 2d or 1d12h")
    return sum(float(number) * _UNITS[unit] for number, unit in _STEP.findall(words))


def _header(text: str) -> str:
    if not text.strip() or text != text.strip() or not (text.isascii() and text.isprintable()):
        raise OptionError(f"{text!r} is no content type: write text/csv, say")
    return text


def time_words(epoch: float) -> str:
    """``"2026-11-21 12:30:00Z"``; "" for 0, which stands for "not known"."""
    try:
        return f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%d %H:%M:%SZ}" if epoch else ""
    except (OverflowError, OSError, ValueError):
        return f"{epoch} s after 1970, which is no date"


def _read_by(name: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the type of an argument that one of our own functions reads."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except (OptionError, PathError) as error:
            raise click.BadParameter(str(error)) from error

    convert.__name__ = name
    return convert


DIRECTORY = _read_by("s3 path", _on_s3)
"""``s3://bucket/path``, ``s3a://…`` or ``bucket/path``: a directory; ``dataset1`` never means
``dataset10``."""
PLACE = _read_by("path", lambda text: Destination.parse(s3_url(text)))
"""The same, or ``file:///path``: where jobs may be."""
MODE = _read_by("mode", lambda text: text if mode_of(text) else "")
"""A word for a mode, this library's or Spark's, as it was given."""
HEADER = _read_by("type", _header)
"""The value of a header."""
DURATION = _read_by("duration", parse_duration)
"""Seconds, of ``36h``, ``2d``, ``90m``."""


def age_option(names: str, seconds: float | None, help: str) -> Callable[[F], F]:
    """Return an option that accepts an age, with its default in seconds; None: it has none."""
    default = None if seconds is None else duration(seconds)
    return click.option(
        *names.split(), type=DURATION, metavar="AGE", default=default,
        show_default=default is not None, help=help,
    )  # fmt: skip


dry_run = options(
    click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
)
"""The options of what asks before it acts."""
