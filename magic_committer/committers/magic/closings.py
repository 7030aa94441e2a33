"""The small files of an attempt that were closed and are still being sent, beside the caller.

A file that ends within its first block needs two requests, Create and its part. Waiting for them at
each `close` would make a task of 1,000 such files wait for 2,000 answers, one after the other.

Only for ``track="memory"``: there nobody but this handle can commit the attempt, and its commit
waits for all files (`settle`). A closed file of any other attempt may be committed by a process
that only knows the attempt's name: its `close` returns when its `.pending` is stored.

One thread sends all of them at once, where the store can do that
(`magic_committer.stores.base.Many`): threads that wait for one answer each cost twice the
processor. Where a verb takes less time than a change of threads, the caller sends them itself.
Larger files, and those of other stores, have a thread of the pool each.

Invariants:

* A commit begins by waiting for every file that is here, and no file comes here while it runs
  (`ends`). So what it stores holds every file that was closed.
* A file that failed is told once: by the next `open` or by the commit, whichever comes first.
* At most `FILES_MAX` files are here, with at most half of the process's memory for blocks; `close`
  waits for the oldest otherwise.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from magic_committer._pool import Future, Handed, renewed_in_children
from magic_committer._runtime import Runtime
from magic_committer.committers.ends import Turns
from magic_committer.errors import StoreError
from magic_committer.stores.base import Answer, Ask, Many, Steps, by_verbs, many_of
from magic_committer.upload import FileState, UploadStream

FILES_MAX = 128
"""Files of one attempt that are sent at once."""
SMALL_BYTES_MAX = 1024**2
"""Bytes of a file that is sent by the thread of all small files. While that thread hashes a file,
the others wait."""
LOOK_SECONDS = 0.01
"""After so long without an answer that thread looks for new files."""

_Work = tuple[Steps, Handed[None]]
"""A work that is being done, of a small file or the fence's; and what waits for its end."""


class Closings:
    """What one attempt has closed and not yet stored. Safe for the threads that close its files.
    ``may_close`` raises if the attempt takes no more files. ``bytes_max``: bytes of memory that the
    blocks of these files may hold."""

    def __init__(
        self, runtime: Runtime, turns: Turns, may_close: Callable[[], None], bytes_max: int
    ) -> None:
        self._runtime = runtime
        self._begin()
        renewed_in_children(self, Closings._begin)
        self._turns = turns
        self._may_close = may_close
        self._bytes_max = bytes_max
        self._under_way: dict[UploadStream, int] = {}  # with the bytes of its block
        self._ended: deque[UploadStream] = deque()  # not yet forgotten
        self._failed: deque[UploadStream] = deque()

    def enter(self, stream: UploadStream) -> None:
        """Wait for room, and note a file that is about to be sent."""
        self._forget_ended()  # a library may open all its files before it closes the first
        held = stream.bytes_held
        while self._under_way and not self._has_room(held):
            self._wait_for_oldest()
        with self._turns.lock:
            self._may_close()
            self._under_way[stream] = held

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[_Work] = deque()
        self._sends = False  # a thread does, or will

    def send(self, stream: UploadStream, steps: Steps) -> Future[object]:
        """Begin to send a file."""
        many = many_of(self._runtime.store) if stream.length <= SMALL_BYTES_MAX else None
        return self._begin_work(self._noted(stream, steps), many)

    def ask(self, steps: Steps) -> Future[object]:
        """Begin another work, beside those of the files."""
        return self._begin_work(steps, many_of(self._runtime.store))

    def _begin_work(self, steps: Steps, many: Many | None) -> Future[object]:
        store, pool = self._runtime.store, self._runtime.pool
        if many is None and not getattr(store, "quick", False):
            return pool.submit(partial(by_verbs, store, steps))
        end: Handed[None] = Handed()
        if many is None:
            by_verbs(store, steps)
            end.set_result(None)
            return end
        self._new.append((steps, end))
        with self._lock:
            begins, self._sends = not self._sends, True
        if begins:
            pool.submit(partial(self._send_all, many))
        return end

    def _noted(self, stream: UploadStream, steps: Steps) -> Steps:
        try:
            yield from steps
        finally:
            self._ended.append(stream)

    def _send_all(self, many: Many) -> None:
        """Send what is there and what comes, until there is nothing. In one thread at a time."""
        going: set[_Work] = set()
        ready: deque[tuple[_Work, Ask]] = deque()

        def go_on(work: _Work, answer: Answer | None) -> None:
            steps, end = work
            try:
                ask = steps.throw(answer) if isinstance(answer, StoreError) else steps.send(answer)
                ready.append((work, ask))
            except StopIteration:
                going.discard(work)
                end.set_result(None)
            except BaseException as error:
                going.discard(work)
                end.set_exception(error)

        def next_ask() -> tuple[_Work, Ask] | None:
            while not ready and self._new:
                going.add(work := self._new.popleft())
                go_on(work, None)
            return ready.popleft() if ready else None

        try:
            while self._has_more():
                for work, answer in many.ask_each(
                    next_ask, in_flight=FILES_MAX, look_seconds=LOOK_SECONDS
                ):
                    go_on(work, answer)
        except BaseException as error:  # none of the store's: those are answers
            with self._lock:
                self._sends = False
                going.update(self._new)
                self._new.clear()
            for _, end in going:
                end.set_exception(error)
            raise

    def _has_more(self) -> bool:
        with self._lock:
            self._sends = bool(self._new)
            return self._sends

    def settle(self) -> None:
        """Wait for all files."""
        while self._under_way:
            self._wait_for_oldest()
        self._forget_ended()

    def _forget_ended(self) -> None:
        while (stream := _taken_from(self._ended)) is not None:
            self._forget(stream)

    def tell_failure(self) -> None:
        """Raise the error of a file that has failed, if no call has raised it before. A note names
        the file."""
        self._forget_ended()
        while (stream := _taken_from(self._failed)) is not None:
            try:
                stream.tell_failure()
            except Exception as error:
                error.add_note(f"it ended {stream.name}, which was closed before")
                raise

    def _has_room(self, held: int) -> bool:
        used = list(self._under_way.values())
        return len(used) < FILES_MAX and sum(used) + held <= self._bytes_max

    def _wait_for_oldest(self) -> None:
        """Wait for one file, and forget it when it has ended. If the wait is interrupted, it stays
        here."""
        with self._turns.lock:
            oldest = next(iter(self._under_way), None)
        if oldest is not None:  # otherwise another thread has waited for the last one
            oldest.wait()
            self._forget(oldest)

    def _forget(self, stream: UploadStream) -> None:
        with self._turns.lock:
            if self._under_way.pop(stream, None) is None:  # it was forgotten before
                return
            if stream.state is FileState.FAILED:
                self._failed.append(stream)


def _taken_from(waiting: deque[UploadStream]) -> UploadStream | None:
    """Take the first. Another thread may take it meanwhile."""
    try:
        return waiting.popleft()
    except IndexError:
        return None
