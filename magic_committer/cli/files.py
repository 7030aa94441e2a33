"""Files that others may be reading: replaced as a whole, by a rename."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from magic_committer._runtime import new_id


def replace_file(file: Path, text: str) -> None:
    """Write a file so that readers see the old one or the new one.

    Raises:
        OSError: it could not be written; the old one is as it was.
    """
    beside = file.with_name(f".{file.name}.{new_id()}.tmp")
    try:
        with open(beside, "x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, file)
    except OSError:
        with suppress(OSError):  # the first error is the one to tell
            beside.unlink()
        raise
