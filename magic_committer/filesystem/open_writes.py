"""The blocks ``with write(...)`` that are open in this process: what ``magic://`` URLs mean.

A process has one table, because a library's threads do not inherit a context of the caller.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from magic_committer.errors import OptionError
from magic_committer.filesystem.sink import Sink
from magic_committer.hadoop.paths import Location, shown

_lock = threading.Lock()
_open: list[tuple[int, Sink]] = []


def enter(sink: Sink) -> Callable[[], None]:
    """Note that a block is open.

    Returns:
        A function to call when it ends. Repeatable.
    """
    entry = (os.getpid(), sink)
    with _lock:
        _open.append(entry)

    def leave() -> None:
        with _lock:
            _open[:] = [one for one in _open if one is not entry]

    return leave


def sink_of(place: Location) -> Sink:
    """The one open block whose destination holds a place: the deepest, if several do.

    Raises:
        OptionError: there is none, or there are two of the same destination.
    """
    key = f"{place.key.rstrip('/')}/"
    with _lock:
        fitting = [
            sink
            for pid, sink in _open
            if pid == os.getpid()
            and sink.dest.bucket == place.bucket
            and key.startswith(sink.dest.prefix)
        ]
    if not fitting:
        where = shown(f"magic://{place.bucket}/{place.key}")
        raise OptionError(
            f"{where} is below the destination of no `with magic_committer.write(...)` that is open"
            " in this process",
            hint="Use the URL inside the block of the job that writes there; in a task, pass"
            " filesystem=task.filesystem()",
        )
    deepest = max(len(sink.dest.prefix) for sink in fitting)
    chosen = [sink for sink in fitting if len(sink.dest.prefix) == deepest]
    if len(chosen) > 1:
        raise OptionError(
            f"{len(chosen)} open blocks of this process write to {chosen[0].dest.url}: the URL does"
            " not say which is meant",
            hint="Pass filesystem=job.filesystem()",
        )
    return chosen[0]
