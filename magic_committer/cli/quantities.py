"""Durations: as they are typed, and as people read them; ages, sizes and counts are the
library's. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from magic_committer._quantities import bytes_words, counted
from magic_committer.errors import OptionError

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:min|[smhdw]))+")
_STEP = re.compile(r"(\d+(?:\.\d+)?)(min|[smhdw])")


def parse_duration(text: str) -> float:
    """Seconds of ``36h``, ``1d12h``, ``90m``, ``1.5h`` or ``0``; sums are allowed, signs are not.

    Raises:
        OptionError: it is no duration; a number without a unit, other than 0, is none.
    """
    words = text.strip().lower().replace(" ", "")
    if words == "0":
        return 0.0
    if not _DURATION.fullmatch(words):
        raise OptionError(f"{text!r} is no duration: write 36h, 90m, 45s, 2d or 1d12h")
    return sum(float(number) * _UNITS[unit] for number, unit in _STEP.findall(words))


def pending_words(tasks: int, files: int, size: int) -> str:
    """``"3 files of 2 tasks, 1.5 MiB"``."""
    return f"{counted(files, 'file')} of {counted(tasks, 'task')}, {bytes_words(size)}"


def time_words(epoch: float) -> str:
    """``"2026-11-21 12:30:00Z"``; "" for 0, which stands for "not known"."""
    try:
        return f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%d %H:%M:%SZ}" if epoch else ""
    except (OverflowError, OSError, ValueError):
        return f"{epoch} s after 1970, which is no date"


def batch_words(number: int | None) -> str:
    """The number of a micro-batch; "" for a job of no streaming query."""
    return "" if number is None else f"{number}"
