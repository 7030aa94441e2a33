"""The blocks ``with write(...)`` that are open in this process: what ``magic://`` URLs mean.

A process has one table, because a library's threads do not inherit a context of the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakMethod

from magic_committer.errors import OptionError
from magic_committer.filesystem.homes import name_below, roots_of
from magic_committer.filesystem.sink import Sink
from magic_committer.hadoop.paths import shown


@dataclass(frozen=True, slots=True, eq=False)
class _OpenWrite:
    pid: int
    dest: str
    roots: tuple[str, ...]
    sink: WeakMethod[Callable[[], Sink]]


_open: list[_OpenWrite] = []
"""Items are only appended and removed. Both are atomic, so that there is no lock that a fork could
leave locked."""


def enter(dest: str, sink: Callable[[], Sink]) -> Callable[[], None]:
    """Note that a block is open. ``sink``: a method that gives its task, as a place to put files.
    Called when a URL is used. The table does not keep its object: a block that is dropped must end.
    Gives a function to call when it ends. Repeatable."""
    entry = _OpenWrite(os.getpid(), dest, roots_of(dest), WeakMethod(sink))
    _open.append(entry)

    # At the end of the interpreter a finalizer may call it, when this module's names are gone.
    def leave(still_open: list[_OpenWrite] = _open) -> None:
        if entry in still_open:
            still_open.remove(entry)

    return leave


def sink_of(path: str) -> Sink:
    """The one open block whose destination holds a place: the deepest, if several do. Raises
    OptionError: there is none, or there are two of the same destination; or the block's job has no
    files that are written as they come."""
    fitting = [
        (one, sink)
        for one in tuple(_open)
        if one.pid == os.getpid()
        and name_below(one.roots, path) is not None
        and (sink := one.sink()) is not None
    ]
    if not fitting:
        raise OptionError(
            f"{shown(f'magic://{path}')} is below the destination of no"
            " `with magic_committer.write(...)` that is open in this process",
            hint="Use the URL inside the block of the job that writes there; in a task, pass"
            " filesystem=task.filesystem()",
        )
    deepest = max(one.roots[0].count("/") for one, _ in fitting)
    chosen = [(one, sink) for one, sink in fitting if one.roots[0].count("/") == deepest]
    if len(chosen) > 1:
        raise OptionError(
            f"{len(chosen)} open blocks of this process write to {chosen[0][0].dest}: the URL does"
            " not say which is meant",
            hint="Pass filesystem=job.filesystem()",
        )
    return chosen[0][1]()
