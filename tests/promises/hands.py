"""What several of these tests do to a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import magic_committer as mc
from magic_committer.errors import Unanswered
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import attempt_of, upload_of

DEST = "s3://bucket/t"


def committed_task(job: mc.Job, task: str, files: Mapping[str, bytes]) -> TaskCommit:
    """One attempt of a task that writes these files and commits."""
    with job.task(task) as attempt:
        for name, body in files.items():
            with attempt.open(name) as f:
                f.write(body)
    return attempt.result


def visible(store: MemoryStore) -> dict[str, bytes]:
    """What a reader sees: all objects but markers and control objects."""
    return {
        key: store.body(key)
        for key in store.keys()
        if not key.endswith("_SUCCESS") and "/__magic" not in key
    }


def control(store: MemoryStore) -> list[str]:
    """Keys of control objects."""
    return [key for key in store.keys() if "/__magic" in key]


class StillClock:
    """Stands still but for sleeps, so that no read of the fence falls due by chance."""

    def __init__(self) -> None:
        self.time = 1_795_000_000.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.time

    def monotonic(self) -> float:
        """The same."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self.time += seconds


_killed: list[Any] = []


def killed(job: mc.Job, task: str, name: str, *, unique: bool = False) -> Any:
    """A file that an attempt was writing when it was killed: its upload is open, and no finalizer
    will ever run. Returns the file, for those who bring it back to life."""
    file = job.task(task).open(name, unique=unique)
    file.write(b"cut")
    upload_of(file)._sender.created()  # its Create was answered: nothing is in flight
    _killed.append(file)
    return file


def stored(task: mc.Task) -> None:
    """Wait until the files that a task has closed are stored: nothing is in flight."""
    attempt_of(task._attempt)._closings.settle()


def bury() -> None:
    """Abort what was killed, at last."""
    while _killed:
        _killed.pop().abort()


class At:
    """Does something at the n-th request that fits, once: before it, or after it took effect."""

    def __init__(
        self,
        store: MemoryStore,
        fits: Callable[[Request], bool],
        deed: Callable[[], Any],
        *,
        after: bool = False,
    ) -> None:
        self._fits = fits
        self._deed = deed
        self.done = False
        if after:
            store.after = lambda request, reply: self._look(request)
        else:
            store.before = lambda request: self._look(request)

    def _look(self, request: Request) -> None:
        if not self.done and self._fits(request):
            self.done = True
            self._deed()


def failing(
    store: MemoryStore, verb: str, key: str, failure: BaseException | type[BaseException]
) -> None:
    """From now on each such request for a key fails, before it takes effect."""

    def fail(request: Request) -> None:
        if (request.verb, request.key) == (verb, key):
            raise failure

    store.before = fail


def unanswered() -> None:
    """The store's answer never came."""
    raise Unanswered("no answer")


def record_put(state: str) -> Callable[[Request], bool]:
    """A PUT of the job record whose content says ``state``; told by its size being a record's and
    by what it leaves: only swaps carry ``If-Match``."""
    return lambda r: (
        r.verb == "put"
        and r.key.endswith("_job.json")
        and (r.if_match is not None) == (state != "running")
    )
