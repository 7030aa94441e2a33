"""Where committers are tried: a store, a file tree, processes that can be stopped at each request
to either of them, and a reader.

A `Process` is an actor of the simulator's scheduler (tests/simulation/scheduler.py), but nothing is
drawn here: the play says who goes on, and a `Cut` says at which request of a leg something happens.
So a schedule has few changes of place, and can be told in a few lines.

Invariants:

* The same legs and cuts give the same requests in the same order.
* A process stands still at each of its requests until it is let on. Code between two requests has
  no effect that others could see.
* After each request that takes effect the reader looks. What it saw is kept, so a property speaks
  of every moment and not of the end alone.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, get_args

from greenlet import getcurrent  # type: ignore[import-untyped]

from magic_committer.commit import probe
from magic_committer.errors import MagicError, StoreError, Unanswered
from magic_committer.hadoop.paths import Destination
from magic_committer.runtime.components import Clock, Runtime
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.upload import BlockSource, local, sender
from tests.simulation.scheduler import (
    Actor,
    ActorClock,
    Killed,
    NeverEndsError,
    Scheduler,
    Strand,
    StrandPool,
)
from tests.tree_bucket import TreeBucket, in_memory, stamped

DEST = Destination.parse("s3://bucket/t")
STEP_SECONDS = 0.01
"""Virtual time that a step takes."""
COPIED_BYTES_MAX = 4096
"""The largest object that is copied: those of a play have some bytes."""
WAIT_SECONDS_MAX = 600.0
"""Virtual time that a leg may take: who waits longer is blocked."""

DEATHS = ("dies before", "dies after")
ERRORS = ("lost reply", "sent twice", "lands late")
STOP = "stops before"
NOTHING = "nothing"
"""The kind of a cut that never strikes: it only marks a leg, whose requests are kept."""

ID_END = f"{0xABCDEF:016x}"
_ID = re.compile(rf"([0-9a-f]{{16}}){ID_END}")

View = Mapping[str, bytes]
"""What a reader finds: names and contents."""
Reader = Callable[["Stage"], View]


@dataclass(frozen=True, slots=True)
class Cut:
    """What happens at the ``nth`` request of a leg.

    ============  ==================================================================================
    dies before   the process dies; the request was never sent
    dies after    the process dies; the request took effect
    stops before  the process stands still, until it is woken or for ever
    lost reply    the request takes effect, its sender is told that there was no answer
    sent twice    it takes effect, its reply is lost, it is sent again: the second answer is told
    lands late    its sender is told that there was no answer; it takes effect when all is over
    ============  ==================================================================================
    """

    kind: str
    nth: int


class Asked(NamedTuple):
    """A request of a leg: what the process was doing, and whether it changes nothing."""

    step: str
    reads: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened, and what a reader found after it.

    Attributes:
        process, step: whose request it was, and what that process was doing: `Process.step`.
        request: what was asked, as words.
        note: what a cut made of it; "" for nothing.
    """

    process: str
    step: str
    request: str
    note: str
    view: View


class Process(Actor):
    """A process of the play.

    Attributes:
        step: what it is doing, in words that properties know: ``"begin"``, ``"write"``, ``"commit
            task"``, ``"abort task"``, ``"commit job"``, ``"abort job"``, ``"recover"``.
        cut: what is to happen to it in this leg. asked: its requests in this leg.
    """

    def __init__(self, name: str, stage: Stage) -> None:
        super().__init__(name, "process")
        self.stage = stage
        self.step = ""
        self.cut: Cut | None = None
        self.asked: list[Asked] = []
        self.stopped = False

    @property
    def runtime(self) -> Runtime:
        return Runtime(
            store=self.stage.store,
            pool=StrandPool(self.stage.scheduler, self),
            clock=ActorClock(self.stage.scheduler, self),
            ids=self.stage.new_id,
        )


@dataclass
class Leg:
    """What a process did without a break.

    Attributes:
        error: what its program raised. ended: it came to its end. late: it would have waited for
            longer than `WAIT_SECONDS_MAX`, or for ever.
    """

    process: Process
    error: MagicError | None = None
    ended: bool = False
    late: bool = False

    @property
    def well(self) -> bool:
        """Whether it ended without an error."""
        return self.ended and self.error is None


class Director(Scheduler):
    """A scheduler that draws nothing: it lets those on that it is told to."""

    def __init__(self) -> None:
        super().__init__(random.Random(0), "told", STEP_SECONDS)

    def let(self, actors: Collection[Actor], until: Callable[[], bool]) -> bool:
        """Let some actors on, in turns, each one's strands in the order in which they gave way.
        Returns False: none of them can go on, or only after `WAIT_SECONDS_MAX`."""
        self._hub = getcurrent()
        order = list(actors)
        end = self.now + WAIT_SECONDS_MAX
        while not until():
            self._wake_sleepers()
            strand = self._first(order)
            if strand is not None:
                self._ready.remove(strand)
                order.append(order.pop(order.index(strand.actor)))
                try:
                    self._step(strand)
                except NeverEndsError:
                    return False
                continue
            due = [time for time, _, sleeper in self._sleeping if sleeper.actor in order]
            if not due or min(due) > end:
                return False
            self.now = max(self.now, min(due))
        return True

    def _first(self, order: list[Actor]) -> Strand | None:
        for actor in order:
            for strand in self._ready:
                if strand.actor is actor:
                    return strand
        return None


@dataclass
class Stage:
    """A store, a file tree, processes and a reader. ``reader``: what a reader of this committer's
    data finds."""

    reader: Reader
    scheduler: Director = field(default_factory=Director)
    moments: list[Moment] = field(default_factory=list)
    struck: list[Moment] = field(default_factory=list)
    """Where cuts struck."""
    marked: list[list[Asked]] = field(default_factory=list)
    """The requests of each leg that has a cut."""

    def __post_init__(self) -> None:
        self._drawn = 0
        self._ends = ExitStack()
        self.blocks = BlockSource()
        self.view: View = {}
        self._numbers: dict[Strand, int] = {}
        self._late: list[tuple[Process, str, Callable[[], object]]] = []
        self.use(MemoryStore(clock=lambda: self.scheduler.now, ids=self.new_id))

    def use(self, store: MemoryStore) -> None:
        """Play on another store, which is empty."""
        self.store = store
        store.before, store.after = self._before, self._after
        probe._known.clear()  # what a process has learnt of its store
        kept = {want: probe._Finding(True) for want in get_args(probe.Want)}
        probe._known[self.store.identity] = kept
        kept["uploads_by_prefix"] = probe._Finding(True)

    @property
    def process(self) -> Process:
        strand = self.scheduler.current
        assert strand is not None
        assert isinstance(strand.actor, Process)
        return strand.actor

    def new_id(self) -> str:
        """The next id: 32 hexadecimal digits."""
        self._drawn += 1
        return f"{self._drawn:016x}{ID_END}"

    @property
    def clock(self) -> Clock:
        """The virtual time."""
        return ActorClock(self.scheduler, Actor("clock", "clock"))

    def new_directory(self) -> Path:
        """A directory of this machine, which goes with the stage. Its files have its time."""
        self._ends.enter_context(stamped(lambda: self.scheduler.now))
        return Path(self._ends.enter_context(TemporaryDirectory(dir=in_memory()))) / "t"

    def close(self) -> None:
        """End what is left of this stage in the process that plays it."""
        self._ends.close()
        self.store.before = self.store.after = None
        sender._unsettled.clear()
        local._remove_what_is_left()  # as the end of a process does

    # Legs -----------------------------------------------------------------------------------------

    def go(self, process: Process, program: Callable[[], object], cut: Cut | None = None) -> Leg:
        """Let a process run a program, alone, until it ends, dies or stops."""
        leg = self.start(process, program, cut)
        self.side_by_side(leg)
        return leg

    def start(self, process: Process, program: Callable[[], object], cut: Cut | None = None) -> Leg:
        """Start a leg; it runs with `go_on` or `side_by_side`."""
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

    def go_on(self, leg: Leg) -> None:
        """Let a leg on until it ends, dies or stops."""
        self.side_by_side(leg)

    def side_by_side(self, *legs: Leg) -> None:
        """Let some legs on, a request of each in turn, until all have ended, died or stopped."""
        for leg in legs:
            leg.process.stopped = False
        going = [leg.process for leg in legs]
        while not all(self._over(leg) for leg in legs):
            alive = [p for p in going if not p.dead and not p.stopped]
            if not self.scheduler.let(alive, partial(self._changed, alive, legs)):
                for leg in legs:
                    leg.late = not self._over(leg)
                break
        if self.scheduler.crashes:
            actor, error = self.scheduler.crashes[0]
            raise AssertionError(f"{actor}: a program of the play raised {error!r}") from error

    def _over(self, leg: Leg) -> bool:
        process = leg.process
        return process.dead or process.stopped or (leg.ended and not process.strands)

    def _changed(self, alive: list[Process], legs: Collection[Leg]) -> bool:
        return any(p.dead or p.stopped for p in alive) or all(self._over(leg) for leg in legs)

    def land(self) -> None:
        """Let requests take effect that were given up: see `Cut`."""
        while self._late:
            process, words, effect = self._late.pop(0)
            self._carry_out(effect)
            self.look(process.name, "late", words, "lands late")

    # Requests, of whatever store ------------------------------------------------------------------

    def before(self, words: str, effect: Callable[[], object], *, reads: bool) -> None:
        """A request is to be sent: the process gives way, and what is to happen to it happens.
        ``words``: the request. ``effect``: carries it out, and may be called more than once.
        ``reads``: it changes nothing that anybody could see."""
        strand = self.scheduler.current
        assert strand is not None, f"a request outside of the play: {words}"
        process = self.process
        if process.dead:
            raise Killed
        process.asked.append(Asked(process.step, reads))
        number = self._numbers[strand] = len(process.asked)
        cut = process.cut
        strikes = cut is not None and cut.nth == number
        if cut is not None and strikes and cut.kind == STOP:
            process.stopped = True
            self._strike(process, words, cut.kind)
        self.scheduler.turn()
        if cut is None or not strikes:
            return
        if cut.kind == "dies before":
            self._strike(process, words, cut.kind)
            self.scheduler.kill(process)
            raise Killed
        if cut.kind == "sent twice":
            self._carry_out(effect)
        elif cut.kind == "lands late":
            self._strike(process, words, cut.kind)
            self._late.append((process, words, effect))
            raise _unanswered(words)

    def after(self, words: str) -> None:
        """A request took effect, or was refused."""
        strand = self.scheduler.current
        assert strand is not None
        process = self.process
        cut, number = process.cut, self._numbers.pop(strand)
        note = ""
        if cut is not None and cut.nth == number and cut.kind in (*DEATHS, *ERRORS):
            note = cut.kind
        if process.asked[number - 1].reads:
            self.moments.append(Moment(process.name, process.step, words, note, self.view))
        else:
            self.look(process.name, process.step, words, note)
        if note:
            self.struck.append(self.moments[-1])
        if note == "dies after":
            self.scheduler.kill(process)
            raise Killed
        if note == "lost reply":
            raise _unanswered(words)

    def look(self, process: str, step: str, words: str, note: str = "") -> None:
        """Note what happened, and what a reader finds now."""
        seen = self.reader(self)
        if seen != self.view:
            self.view = seen
        self.moments.append(Moment(process, step, words, note, self.view))

    def _strike(self, process: Process, words: str, note: str) -> None:
        moment = Moment(process.name, process.step, words, note, self.view)
        self.moments.append(moment)
        self.struck.append(moment)

    def _carry_out(self, effect: Callable[[], object]) -> None:
        try:
            effect()
        except StoreError:
            return  # a refused request has no effect, and its answer goes to nobody

    def another_program_writes(self, name: str, body: bytes) -> None:
        """A file of another program."""
        prefix = "" if isinstance(self.store, TreeBucket) else DEST.prefix
        self.store.put_object(f"{prefix}{name}", body)

    # Beside the port ------------------------------------------------------------------------------

    def copy(self, source: str, target: str) -> None:
        """S3's CopyObject, which the library's port does not have: one request. Raises `NotFound`:
        there is no object at the source."""
        bucket = self.store._bucket

        def effect() -> None:
            body = bucket.get(source, COPIED_BYTES_MAX).body
            attributes = bucket.objects[source].attributes
            bucket.put(target, body, attributes)

        self.store._send(Request("copy", target, keys=(source,), effect=effect), effect)

    # The hooks of the store in memory -------------------------------------------------------------

    def _before(self, request: Request) -> None:
        self.before(words_of(request), request.effect, reads=request.verb in READS)

    def _after(self, request: Request, answer: Any) -> Any:
        refused = f" -> {type(answer).__name__}" if isinstance(answer, StoreError) else ""
        self.after(words_of(request) + refused)
        return None


def words_of(request: Request) -> str:
    """A request in words: S3's name of it, and the key below the destination."""
    verb = VERBS.get(request.verb, request.verb)
    if request.verb == "copy":
        return f"{verb} {request.keys[0]} to {request.key}".replace(DEST.prefix, "")
    keys = (request.key,) if request.key else request.keys
    return f"{verb} {', '.join(key.removeprefix(DEST.prefix) or '/' for key in keys)}"


VERBS = {
    "get": "GET", "head": "HEAD", "put": "PUT", "delete": "DELETE", "delete_one": "DELETE",
    "list": "LIST", "create_upload": "Create", "put_part": "UploadPart",
    "list_parts": "ListParts", "complete_upload": "Complete", "abort_upload": "Abort",
    "list_uploads": "ListUploads", "copy": "COPY",
}  # fmt: skip


READS = ("get", "head", "list", "list_parts", "list_uploads")


def _unanswered(words: str) -> Unanswered:
    return Unanswered(f"{words}: no answer", operation=words.partition(" ")[0], key="", status=0)


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
    root = str(getattr(stage.store, "root", ""))
    paths = [f"{above}/{name}" for above, _, names in os.walk(root) for name in names]
    shown = {path[len(root) + 1 :]: path for path in paths}
    return {name: Path(path).read_bytes() for name, path in shown.items() if is_shown(name)}


def for_people(words: str) -> str:
    """Words with each id that the stage has drawn as its number."""
    return _ID.sub(lambda found: str(int(found[1], 16)), words)


def is_shown(name: str) -> bool:
    """Whether readers of tables take a file of this name: none of its path elements begins with
    ``_`` or ``.``."""
    return name[:1] not in "_." and "/_" not in name and "/." not in name
