"""Where the time of a process with many threads goes: looks at all their stacks, often.

Python's own profilers see one thread, and slow it down. This one sees what each thread was doing
when it looked; a thread that waits for another one, or for work, is left out. A thread that waits
for its socket is not: that is where a client of a slow server would stand. A line that holds the
interpreter's lock is seen somewhat too often, as we need it to look.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from types import FrameType

INTERVAL_SECONDS = 0.002
ROWS = 25
_OURS = ("magic_committer", "benchmarks")

IDLE = frozenset(
    {
        ("threading.py", "wait"),
        ("threading.py", "_wait_for_tstate_lock"),
        ("_base.py", "result"),
        ("thread.py", "_worker"),
        ("pool.py", "_drain"),
        ("pool.py", "_tick"),
        ("sampling.py", "_look_often"),
    }
)
"""File and function at the top of the stack of a thread that has nothing to do."""


class Sampler:
    """Samples while its ``with`` block runs."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._looks = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_often, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look_often(self) -> None:
        while not self._end.is_set():
            self._looks += 1
            for frame in sys._current_frames().values():
                place = _place(frame)
                if (place[0].partition(":")[0], frame.f_code.co_name) not in IDLE:
                    self._counts[f"{place[0]} {frame.f_code.co_name}", _ours(frame)] += 1
            time.sleep(INTERVAL_SECONDS)

    def report(self) -> str:
        """The lines at which threads were seen, the busiest first, each with the line of ours that
        called it. 100 %: one thread all the time."""
        looks = max(1, self._looks)
        lines = [f"{self._looks} looks; 100 % is one thread all the time", ""]
        lines += [
            f"{100 * count / looks:6.1f} %  {where:<44}  {'from ' + ours if ours else ''}".rstrip()
            for (where, ours), count in self._counts.most_common(ROWS)
        ]
        return "\n".join(lines) + "\n"


def _place(frame: FrameType) -> tuple[str, str]:
    name = frame.f_code.co_filename
    return f"{name.rpartition('/')[2]}:{frame.f_lineno}", name


def _ours(frame: FrameType | None) -> str:
    """The innermost line of ours above ``frame``."""
    while frame is not None:
        place, name = _place(frame)
        if any(f"/{package}/" in name for package in _OURS):
            return f"{place} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""
