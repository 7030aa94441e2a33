"""Where the CPU time of a process with many threads goes: looks at all their stacks, often.

Python's own profilers see one thread, and slow it down. This one asks at each look how much CPU
time each thread has used since the last one, and gives it to the line at which the thread is now: a
thread that waits costs nothing, and what a library does without the interpreter's lock counts where
it was called. A look needs that lock: what a thread did with it may count where it gave it up.
Where the system cannot tell the CPU time of a thread (other than Linux), each look counts as the
time that has passed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from types import FrameType

INTERVAL_SECONDS = 0.002
ROWS = 16
_OURS = ("magic_committer", "benchmarks")


class Sampler:
    """Samples while its ``with`` block runs."""

    def __init__(self) -> None:
        self._used: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._clocks: dict[int, tuple[int, float]] = {}
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
        own = threading.get_ident()
        while not self._end.is_set():
            self._looks += 1
            for thread, frame in sys._current_frames().items():
                used = self._used_by(thread)
                if used and thread != own:
                    place = _place(frame)[0]
                    self._used[f"{place} {frame.f_code.co_name}", _ours(frame)] += used
            time.sleep(INTERVAL_SECONDS)

    def _used_by(self, thread: int) -> float:
        """The CPU seconds that a thread has used since the last look."""
        if sys.platform != "linux":
            return INTERVAL_SECONDS
        if thread not in self._clocks:
            # The thread has just been seen alive; a clock of one that has ended is an error only.
            self._clocks[thread] = (time.pthread_getcpuclockid(thread), 0.0)
            clock = self._clocks[thread][0]
            self._clocks[thread] = (clock, time.clock_gettime(clock))
            return 0.0
        clock, before = self._clocks[thread]
        try:
            now = time.clock_gettime(clock)
        except OSError:
            del self._clocks[thread]  # it has ended, and another one has its number
            return 0.0
        self._clocks[thread] = (clock, now)
        return now - before

    def report(self) -> str:
        """The lines that used the most CPU time, each with the line of ours that called it."""
        used = dict(self._used)
        whole = sum(used.values())
        lines = [f"{self._looks} looks, {whole:.2f} s of CPU time", ""]
        busiest = sorted(used.items(), key=lambda one: one[1], reverse=True)[:ROWS]
        for (where, ours), seconds in busiest:
            caller = f"from {ours}" if ours else ""
            lines.append(f"{100 * seconds / whole:5.1f} %  {where:<44}  {caller}".rstrip())
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
