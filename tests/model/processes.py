"""Production's own code as processes that the search runs one request at a time.

A process is a greenlet that runs a program: a function of a `Runtime` that makes the library's own
calls. Its store hands each request to the hub, the search, and waits for the answer. Everything
else that a process could learn from is given: its clock moves only as it sleeps, its ids are
counted from its name, its pool does each work at once. So **what a process does follows from the
answers that it was given**, and from nothing else: a history of answers is what a process knows.
"""

from __future__ import annotations

import copy
import itertools
import logging
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, get_args
from unittest.mock import patch

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]

from magic_committer.commit import conflict, probe
from magic_committer.errors import StoreError
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import Handed, Outcome
from magic_committer.stores.memory import MemoryStore, Request
from tests.model.store import BEGAN

Program = Callable[[Runtime], str]
"""Makes calls, and returns what it was told."""


class Tell(NamedTuple):
    """No request of S3: a message between processes (a task's result to its driver)."""

    name: str
    body: Any
    verb: str = "tell"


class Wait(NamedTuple):
    """No request of S3: wait for one of these messages. Answered with the first; None once all the
    actors that might send one have ended."""

    names: tuple[str, ...]
    senders: tuple[str, ...]
    verb: str = "wait"


class Ended(NamedTuple):
    """What a program returned."""

    result: str


class _Process(greenlet):  # type: ignore[misc]
    gone = False


def ask(sent: Any) -> Any:
    """Give a request to the search, from within a process, and wait for its answer."""
    process = getcurrent()
    if getattr(process, "gone", True):
        raise GreenletExit  # what it does as it is unwound has no effect
    try:
        answer = process.parent.switch(sent)
    except GreenletExit:
        process.gone = True
        raise
    if isinstance(answer, StoreError):
        raise copy.copy(answer)  # who catches it may add notes
    return answer


class Port(MemoryStore):
    """The store of all processes of a search. It holds what the search lets it hold."""

    def _send(self, request: Request, effect: Callable[[], Any]) -> Any:
        object.__setattr__(request, "effect", effect)  # made for this call; nobody has a copy
        return ask(request)


class _Clock:
    """It moves as its process sleeps."""

    def __init__(self) -> None:
        self._now = BEGAN

    def now(self) -> float:
        return self._now

    monotonic = now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


class _Pool:
    """It does each work at once: requests that threads would send side by side come in order."""

    def submit(self, function: Callable[[], Any], errand: object = None) -> Handed[Any]:
        done: Handed[Any] = Handed()
        done.run(function)
        return done

    def later(self, function: Callable[[], object]) -> None:
        if not getattr(getcurrent(), "gone", True):
            function()

    def each(
        self, function: Callable[[Any], Any], items: Iterable[Any], *, in_flight: int,
        weigh: Any = None, weight_max: int = 0,
    ) -> Generator[Outcome[Any, Any], None, None]:  # fmt: skip
        for item in items:
            done = self.submit(partial(function, item))
            yield Outcome(item, result=done.value, error=done.error)


def begin(port: Port, name: str, program: Program, first_id: str = "") -> tuple[_Process, Any]:
    """A process, and the request that it waits for. ``first_id``: the first that it draws: of a job
    that it starts."""
    counted = (f"{zlib.crc32(name.encode()):08x}{n:024x}" for n in itertools.count(1))
    ids: Iterator[str] = itertools.chain((first_id,) if first_id else (), counted)
    runtime = Runtime(store=port, pool=_Pool(), clock=_Clock(), ids=ids.__next__)
    process = _Process(lambda: Ended(program(runtime)))
    return process, process.switch()


@contextmanager
def alone(port: Port) -> Iterator[None]:
    """Let processes know all of the store that they would prove otherwise, and try only as often as
    it takes: each further try is one more chance, none is another decision."""
    wants = (*get_args(probe.Want), "uploads_by_prefix")
    off = logging.root.manager.disable
    logging.disable()
    known: Any = {want: probe._Finding(True) for want in wants}
    with (
        patch.dict(probe._known, {port.identity: known}),
        patch.object(conflict, "YIELD_LOOKS_MAX", 2),
    ):
        try:
            yield
        finally:
            logging.disable(off)
