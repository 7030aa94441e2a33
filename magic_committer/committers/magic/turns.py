"""Turns: the commit and the aborts of one handle, called from several threads.

Invariants:

* While one thread commits, no other thread opens, closes, commits or aborts anything of the
  attempt; its call raises. What commit finds at its beginning is what it stores. (It first waits
  for the files that were closed before, and are still being sent: `closings`.)
* While a thread aborts, no thread commits. Several aborts may run at the same time: each does no
  more than another one.
* While a thread discards a file, no thread commits: the commit would store what is being removed.
  Other files are opened and closed meanwhile.
* A signal handler counts as another thread: it may run between any two steps of a call here. So
  each call first shows itself and then looks for others: if there are two, at least one sees the
  other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from magic_committer._hints import ANOTHER_ATTEMPT, CLOSE_FIRST
from magic_committer.errors import TaskFailed
from magic_committer.protocol.rules import Phase


class Turns:
    """The phase of one handle's attempt, and the calls that may change it. ``phase`` is changed
    only in a turn; ``lock`` is held for steps between which no turn may begin."""

    def __init__(self, job_id: str, attempt: str) -> None:
        self.phase = Phase.OPEN
        self.lock = threading.RLock()
        self._job_id = job_id
        self._attempt = attempt
        self._committing: object | None = None
        self._aborting: set[object] = set()
        self._discarding: set[object] = set()

    @property
    def discarding(self) -> bool:
        """Whether a call discards a file now."""
        return bool(self._discarding)

    @contextmanager
    def commit(self) -> Iterator[None]:
        """The only turn of a commit."""
        me = object()
        try:
            with self.lock:
                if self._committing is not None:
                    raise self.busy("committed")
                self._committing = me
                if self._aborting:
                    raise self.busy("aborted")
                if self._discarding:
                    raise self.busy("changed: a file is discarded")
                if self.phase is Phase.ABORTED:
                    raise TaskFailed(
                        f"attempt {self._attempt!r} is aborted, it cannot be committed",
                        job_id=self._job_id,
                        hint=ANOTHER_ATTEMPT,
                    )
            yield
        finally:
            if self._committing is me:
                self._committing = None

    @contextmanager
    def abort(self) -> Iterator[None]:
        """A turn of an abort."""
        me = object()
        try:
            with self.lock:
                self._aborting.add(me)
                if self._committing is not None:
                    raise self.busy("committed")
            yield
        finally:
            self._aborting.discard(me)

    @contextmanager
    def discard(self) -> Iterator[None]:
        """A turn of a call that takes a file out of the attempt."""
        me = object()
        try:
            with self.lock:
                self._discarding.add(me)
                self.check_open()
            yield
        finally:
            self._discarding.discard(me)

    def check_open(self, *, awaited: bool = False) -> None:
        """Raise TaskFailed unless the attempt takes files: it is open, and nobody is ending it.
        ``awaited``: for a file that was closed before any commit began: a commit that runs now is
        waiting for it."""
        with self.lock:
            if self.phase is not Phase.OPEN:
                what = self.phase.value
            elif self._committing is not None and not awaited:
                what = "being committed"
            elif self._aborting:
                what = "being aborted"
            else:
                return
        raise TaskFailed(
            f"attempt {self._attempt!r} is {what}, it takes no more files",
            job_id=self._job_id,
            hint=CLOSE_FIRST,
        )

    def busy(self, doing: str) -> TaskFailed:
        """The error of a call that may not run beside another one, which is ``doing`` that."""
        return TaskFailed(
            f"attempt {self._attempt!r} is being {doing}, by another thread or by what a signal"
            " handler has interrupted: nothing was done",
            job_id=self._job_id,
            hint="Wait until that call has returned. An attempt that it has committed is undone by"
            " job.abort(), or left out of job.commit(...)",
        )
