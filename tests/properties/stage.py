"""Where committers are tried: a world of the simulator in which nothing is drawn.

The play says which process goes on, and a `Cut` at which request of a leg something happens. So a
schedule has few changes of place, and can be told in a few lines. What happens there is a fault of
the simulator's (tests/simulation/faults.py); one kind is of the plays alone: to stop.

* The same legs and cuts give the same requests in the same order.
* After each request that takes effect the reader looks. What it saw is kept, so a property speaks
  of every moment and not of the end alone.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from magic_committer.errors import MagicError, StoreError
from magic_committer.runtime.components import Runtime
from magic_committer.stores.memory import Request
from tests.simulation.faults import Fault, Injector
from tests.simulation.kinds import kind_of
from tests.simulation.scheduler import Actor, Strand
from tests.simulation.world import DEST, World, knows_all

STEP_SECONDS = 0.01
"""Virtual time that a step takes."""
COPIED_BYTES_MAX = 4096
"""The largest object that is copied: those of a play have some bytes."""
WAIT_SECONDS_MAX = 600.0
"""Virtual time that a leg may take: who waits longer is blocked."""

DEATHS = ("crash before", "crash after")
ERRORS = ("lost reply", "sent twice", "late")
STOP = "stops before"
"""The process stands still, until it is woken or for ever."""
NOTHING = "nothing"
"""The kind of a cut that never strikes: it only marks a leg, whose requests are kept."""

_ID = re.compile(rf"([0-9a-f]{{16}}){0xABCDEF:016x}")

View = Mapping[str, bytes]
"""What a reader finds: names and contents."""


class Cut(NamedTuple):
    """What happens at the ``nth`` request of a leg."""

    kind: str
    nth: int


class Asked(NamedTuple):
    """A request of a leg: what the process was doing, and whether it changes nothing."""

    step: str
    reads: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened, and what a reader found after it. ``process``, ``step``: whose
    request it was, and what that process was doing. ``request``: what was asked. ``note``: the cut
    that struck it, "" for none."""

    process: str
    step: str
    request: str
    note: str
    view: View


class Process(Actor):
    """A process of the play. ``step``: what it is doing, in words of the properties: ``"write"``,
    ``"commit task"``, ``"abort job"`` … ``cut``: what is to happen to it in this leg. ``asked``:
    its requests in it."""

    def __init__(self, name: str, stage: Stage) -> None:
        super().__init__(name, "process")
        self.stage = stage
        self.step = ""
        self.cut: Cut | None = None
        self.asked: list[Asked] = []
        self.stopped = False

    @property
    def runtime(self) -> Runtime:
        return self.stage.runtime(self)


@dataclass
class Leg:
    """What a process did without a break. ``error``: what its program raised. ``ended``: it came to
    its end; where it has not, nor stopped or died, it would have waited for too long."""

    process: Process
    error: MagicError | None = None
    ended: bool = False

    @property
    def over(self) -> bool:
        process = self.process
        return process.dead or process.stopped or (self.ended and not process.strands)


class _Never(random.Random):
    """Whatever may be drawn is not."""

    def random(self) -> float:
        return 0.999


class _Cuts(Injector):
    """Strikes where the process's cut says so."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.store, stage.scheduler, stage.watch, stage.chance)
        self._stage = stage
        stage.scheduler.on_step = None  # what is late lands when all is over

    def _due(self, request: Request, kind: str) -> Fault | None:
        process = self._stage.process
        process.asked.append(Asked(process.step, _reads(request)))
        cut = process.cut
        if cut is None or cut.nth != len(process.asked):
            return None
        self._stage.note(process, request, cut.kind)
        if cut.kind != STOP:
            return Fault(cut.kind, "", cut.nth)
        process.stopped = True
        self._scheduler.turn()
        return None

    def _judge(self, request: Request, answer: Any, actor: Actor, sent: int) -> None:
        assert isinstance(actor, Process)
        self._stage.note(actor, request, looks=not _reads(request), answer=answer)

    def land(self) -> bool:
        for late in self._late:
            self._carry_out(late.request, late.actor, late.sent)
        self._late.clear()
        return False


def _reads(request: Request) -> bool:
    return request.verb.startswith(("get", "head", "list"))


class Stage(World):
    """A store or a directory, processes and a reader. ``reader``: what a reader of this committer's
    data finds. ``struck``: where cuts struck. ``marked``: the requests of each leg that has a cut.
    """

    def __init__(self, reader: Callable[[Any], View], tree: bool) -> None:
        super().__init__(_Never(), tree)
        self._reader = reader
        self.scheduler.step_seconds = STEP_SECONDS
        knows_all(self.store.identity)
        self.injector = _Cuts(self)
        self.moments: list[Moment] = []
        self.struck: list[Moment] = []
        self.marked: list[list[Asked]] = []
        self.view: View = {}

    @property
    def process(self) -> Process:
        assert isinstance(self.actor, Process)
        return self.actor

    def note(
        self, process: Process, request: Request, cut: str = "", *, looks: bool = False,
        answer: Any = None,
    ) -> None:  # fmt: skip
        """Note a request, and what a reader finds then."""
        if looks and (seen := self._reader(self)) != self.view:
            self.view = seen
        words = f"{kind_of(request)} {request.key or ' '.join(request.keys)}"
        if isinstance(answer, StoreError):
            words += f" -> {type(answer).__name__}"
        self.moments.append(Moment(process.name, process.step, words, cut, self.view))
        if cut:
            self.struck.append(self.moments[-1])

    def old_data(self, files: View) -> None:
        """What the destination holds before anybody begins."""
        for name, body in files.items():
            self.store.put_object(f"{DEST.prefix}{name}", body)
        self.view = self._reader(self)
        self.moments.append(Moment("", "", "the destination holds old data", "", self.view))

    def copy(self, source: str, target: str) -> None:
        """S3's CopyObject, which the library's port does not have: one request. Raises `NotFound`:
        there is no object at the source."""
        bucket = self.store._bucket

        def effect() -> None:
            body = bucket.get(source, COPIED_BYTES_MAX).body
            attributes = bucket.objects[source].attributes
            bucket.put(target, body, attributes)

        self.store._send(Request("copy", target, keys=(source,), effect=effect), effect)

    # Legs -----------------------------------------------------------------------------------------

    def go(self, process: Process, program: Callable[[], object], cut: Cut | None = None) -> Leg:
        """Let a process run a program, alone, until it ends, dies or stops."""
        leg = self.leg(process, program, cut)
        self.go_on(leg)
        return leg

    def leg(self, process: Process, program: Callable[[], object], cut: Cut | None = None) -> Leg:
        """A leg; it runs with `go_on`."""
        process.cut, process.asked = cut, []
        if cut is not None:
            self.marked.append(process.asked)
        leg = Leg(process)

        def run() -> None:
            try:
                program()
            except MagicError as error:
                leg.error = error
            leg.ended = True

        self.scheduler.spawn(process, run)
        return leg

    def go_on(self, *legs: Leg) -> None:
        """Let some legs on, a request of each in turn, until all have ended, died or stopped."""
        for leg in legs:
            leg.process.stopped = False
        order = [leg.process for leg in legs]
        self.scheduler.run_until(
            lambda: all(leg.over for leg in legs), partial(_next, order), WAIT_SECONDS_MAX
        )
        for actor, error in self.scheduler.crashes:
            raise AssertionError(f"{actor}: a program of the play raised {error!r}") from error


def _next(order: list[Process], ready: list[Strand]) -> Strand | None:
    """The one whose turn it is, of processes in turns: its strand that has waited longest."""
    for process in (one for one in order if not one.stopped):
        for strand in ready:
            if strand.actor is process:
                order.append(order.pop(order.index(process)))
                return strand
    return None


# Readers ------------------------------------------------------------------------------------------


def objects_read(stage: Stage) -> View:
    """What every reader of a bucket finds below the destination."""
    cut, objects = len(DEST.prefix), stage.store._bucket.objects.items()
    return {
        key[cut:]: b"".join(stored.pieces)
        for key, stored in objects
        if key.startswith(DEST.prefix) and is_shown(key[cut:])
    }


def files_read(stage: Stage) -> View:
    """What every reader of a directory finds."""
    found, root = {}, str(getattr(stage.store, "root", ""))
    for above, directories, names in os.walk(root):
        directories[:] = filter(is_shown, directories)
        for name in filter(is_shown, names):
            path = f"{above}/{name}"
            found[path[len(root) + 1 :]] = Path(path).read_bytes()
    return found


def is_shown(name: str) -> bool:
    """Whether readers of tables take a file of this name: none of its path elements begins with
    ``_`` or ``.``."""
    return name[:1] not in "_." and "/_" not in name and "/." not in name


def for_people(words: str) -> str:
    """Words with each id that the stage has drawn as its number."""
    return _ID.sub(lambda found: str(int(found[1], 16)), words)
