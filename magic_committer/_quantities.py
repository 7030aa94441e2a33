"""Ages, sizes, counts and lists of names as people read them: one wording for the library and its
commands. Pure."""

from __future__ import annotations

from collections.abc import Sequence

# Limits -----------------------------------------------------------------------------------------

KEYS_NAMED_MAX = 20
"""How many keys a message names before it says "and N more"."""

_SIZES = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
_AGES = (("d", 86_400), ("h", 3600), ("min", 60))


def age_words(seconds: float | None) -> str:
    """``"90 min"``, ``"2.5 h"``, ``"24 h"``; "?" where a store does not tell.

    A unit is used from two of it on: a limit of one day reads as ``"24 h"``, as it is typed.
    """
    if seconds is None:
        return "?"
    for unit, size in _AGES:
        if seconds >= 2 * size:
            number = seconds / size
            said = f"{number:.1f}" if number < 10 else f"{number:.0f}"
            return f"{said.removesuffix('.0')} {unit}"
    return f"{seconds:.0f} s"


def duration(seconds: float) -> str:
    """So many seconds, as commands take them: ``"90m"``, ``"24h"``, ``"7d"``, ``"1.5s"``."""
    for unit, size, least in (("d", 86_400, 2), ("h", 3600, 1), ("m", 60, 1)):
        if seconds >= least * size and not seconds % size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s" if seconds else "0"


def bytes_words(size: int | None) -> str:
    """``"12.5 MiB"``; "?" where it is not known."""
    if size is None:
        return "?"
    for unit, of in _SIZES:
        if size >= of:
            return f"{size / of:.1f} {unit}"
    return f"{size} B"


def counted(number: int, thing: str) -> str:
    """``"1 file"``, ``"2 files"``, for a thing whose plural takes an s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def counted_are(number: int, thing: str) -> str:
    """``"1 file is"``, ``"2 files are"``."""
    return f"{counted(number, thing)} {'is' if number == 1 else 'are'}"


def name_some(names: Sequence[str], limit: int = KEYS_NAMED_MAX) -> str:
    """Join up to ``limit`` names for a message, and say how many more there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def pending_words(tasks: int, files: int, size: int) -> str:
    """``"3 files of 2 tasks, 1.5 MiB"``."""
    return f"{counted(files, 'file')} of {counted(tasks, 'task')}, {bytes_words(size)}"
