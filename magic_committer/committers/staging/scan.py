"""What is in an attempt's local directory: the files that are to be uploaded.

Invariants:

* A hidden file is skipped: an element of its name begins with ``_`` or ``.``, as Hadoop's
  committers do. A file that the task opened by name is uploaded whatever its name is.
* Nothing that could be data is left out silently. What is no ordinary file (a link, a pipe), and a
  name that is no text, is an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from magic_committer.errors import PathError, TaskFailed
from magic_committer.hadoop.paths import is_hidden


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of the local directory. ``changed_ns``: when it was last changed, as the file system
    says."""

    name: str
    size: int
    changed_ns: int


def scan(directory: Path, prefix: str = "") -> Iterator[FoundFile]:
    """The files below a directory, in the order of their names. Hidden ones are not among them."""
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name = prefix + entry.name
        if is_hidden(entry.name):
            continue
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise PathError(
                f"the file {os.fsencode(name)!r} has a name that is not UTF-8: no key can have it",
                hint="Rename it",
            ) from error
        if entry.is_dir(follow_symlinks=False):
            yield from scan(Path(entry.path), f"{name}/")
        else:
            yield _ordinary(Path(entry.path), name, entry.stat(follow_symlinks=False))


def look_at(root: Path, name: str) -> FoundFile:
    """One file of the directory."""
    path = root / name
    try:
        seen = path.lstat()
    except OSError as error:
        raise TaskFailed(
            f"{path} was a file of the task, and cannot be found: {error.strerror}",
            hint="Leave the files that task.open(...) gave in task.directory(); or give one up"
            " with file.abort() before it is closed",
        ) from error
    return _ordinary(path, name, seen)


def _ordinary(path: Path, name: str, seen: os.stat_result) -> FoundFile:
    if not stat.S_ISREG(seen.st_mode):
        kind = "a link" if stat.S_ISLNK(seen.st_mode) else "no ordinary file"
        raise TaskFailed(
            f"{path} is {kind}, and cannot be uploaded",
            hint="Copy what it leads to; or begin its name with _ or ., which is not uploaded",
        )
    return FoundFile(name, seen.st_size, seen.st_mtime_ns)
