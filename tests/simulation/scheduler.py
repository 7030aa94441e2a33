"""Many processes on one thread: greenlets that change places at every store request, by a seed.

An `Actor` is a process: it dies as a whole, is paused as a whole, and has a clock of its own. Its
strands (its main function, and what its pool runs) are greenlets. A strand gives up its turn at
each store request, when it sleeps and when it waits for a future; who goes on is drawn. Python code
between two turns is one step: nobody else can see inside it, so interleaving requests interleaves
all there is.

Invariants:

* The same seed gives the same order of steps: nothing is drawn but from the generator handed in,
  and no real clock, thread or identity plays a part.
* A killed actor does nothing more. Its strands are unwound by `Killed`, a BaseException; whatever
  they try on the way out (``finally``, ``except BaseException``) raises it again and has no effect.
* Virtual time moves a little with each step, and jumps to the next sleeper when all sleep.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from magic_committer.runtime.threads import Outcome

T = TypeVar("T")
R = TypeVar("R")

EPOCH = 1_795_000_000.0
"""When every schedule begins, in seconds since 1970."""
STEPS_MAX = 20_000
"""A schedule that has not ended by then never will."""


class Killed(BaseException):
    """Unwinds the strands of an actor that was killed. Nobody catches it for good."""


class NeverEndsError(AssertionError):
    """All strands wait for each other, or the steps do not end."""


class Actor:
    """One process of the simulated world.

    Attributes:
        job: UUID of the job that it works for, "" if none: whose upload it creates.
        started: UUIDs of the jobs whose records it has created. An adoption starts, and takes back,
            one to try the store: its last request may land when the actor works for another job.
        hurt: a fault struck it that excuses litter. sent_twice: a request of it took effect twice.
        serves_all: an operator, who works on whatever job it finds. reads_only: it said so.
        dead_seconds: from which age it takes a running job for dead.
        skew: its wall clock minus the true time, in seconds.
        reverts: it undoes what is decided, on an operator's word.
        latency: seconds, at most, that each of its requests takes; 0: one step.
        holds: what its next request of a kind takes beside that.
        awaited: who waits for its next request of a kind.
    """

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.job = ""
        self.started: set[str] = set()
        self.dead = False
        self.hurt = False
        self.sent_twice = False
        self.serves_all = False
        self.reads_only = False
        self.dead_seconds = 0.0
        self.skew = 0.0
        self.reverts = False
        self.latency = 0.0
        self.holds: dict[str, float] = {}
        self.awaited: dict[str, list[Signal]] = {}
        self.paused_until = 0.0
        self.priority = 0.0
        self.strands: list[Strand] = []
        self.ended = Signal()

    def __repr__(self) -> str:
        return self.name


class Strand:
    """One line of execution in an actor."""

    __slots__ = ("actor", "greenlet", "sent")

    greenlet: greenlet
    sent: int
    """The step at which its last request was sent."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.sent = 0


class Signal:
    """Something that strands wait for. Once set it stays set."""

    def __init__(self) -> None:
        self.is_set = False
        self.waiters: list[Strand] = []


class Scheduler:
    """Runs strands until all have ended.

    Args:
        chance: draws who is next.
        policy: ``"random"``: anybody; ``"sticky"``: mostly whoever ran last; ``"priority"``: the
            actor of highest priority, which changes now and then: deep orders of few changes.
        step_seconds: virtual time that a step takes.
    """

    def __init__(self, chance: random.Random, policy: str, step_seconds: float) -> None:
        self.chance = chance
        self.policy = policy
        self.step_seconds = step_seconds
        self.now = EPOCH
        self.steps = 0
        self.current: Strand | None = None
        self.crashes: list[tuple[Actor, BaseException]] = []
        self.on_step: Callable[[], bool] | None = None
        self._hub = getcurrent()
        self._ready: list[Strand] = []
        self._sleeping: list[tuple[float, int, Strand]] = []
        self._sleeps = 0
        self._condemned: list[Actor] = []
        self._hopeful: list[Signal] = []
        self.waiting: Counter[str] = Counter()
        """Strands that have not ended, by actor."""

    # For everybody --------------------------------------------------------------------------------

    def spawn(self, actor: Actor, function: Callable[[], object]) -> None:
        """Start a strand of an actor. It runs when it is drawn."""
        if actor.dead:
            raise Killed
        strand = Strand(actor)
        strand.greenlet = greenlet(lambda: self._run(strand, function), self._hub)
        actor.strands.append(strand)
        self.waiting[actor.name] += 1
        self._ready.append(strand)

    def run(self) -> None:
        """Let the strands run until all have ended and nothing is pending. Raises `NeverEndsError`:
        they wait for each other."""
        self._hub = getcurrent()
        while True:
            self._wake_sleepers()
            if self._ready:
                self._step(self._pick())
            elif self._sleeping:
                self.now = max(self.now, self._sleeping[0][0])
            elif (self.on_step is None or not self.on_step()) and not self._give_up_waiting():
                break
        if self.waiting:
            raise NeverEndsError(f"these wait for ever: {self.waiting}")

    def run_until(
        self, over: Callable[[], bool], pick: Callable[[list[Strand]], Strand | None],
        seconds: float,
    ) -> None:  # fmt: skip
        """Draw nothing: let those strands on that ``pick`` gives of the ready ones, until that is
        so, or it gives none for so many seconds."""
        self._hub = getcurrent()
        end = self.now + seconds
        while not over():
            self._wake_sleepers()
            strand = pick(self._ready)
            if strand is not None:
                self._ready.remove(strand)
                self._step(strand)
            elif self._sleeping and self._sleeping[0][0] <= end:
                self.now = max(self.now, self._sleeping[0][0])
            else:
                return

    def await_if_possible(self, signal: Signal) -> None:
        """Go on when the signal is set; or when nobody is left who could set it."""
        self._hopeful.append(signal)
        self.wait(signal)

    def _give_up_waiting(self) -> bool:
        hopeful, self._hopeful = self._hopeful, []
        waited = [signal for signal in hopeful if signal.waiters]
        for signal in waited:
            self.notify(signal)
        return bool(waited)

    @property
    def busy(self) -> bool:
        return bool(self._ready or self._sleeping)

    def kill(self, actor: Actor) -> None:
        """Kill an actor; it does nothing more once the calling strand has given up its turn."""
        actor.dead = True
        self._condemned.append(actor)
        if self.current is None:
            self._bury_the_dead()

    # From within strands --------------------------------------------------------------------------

    def turn(self) -> None:
        """Let others go first."""
        strand = self._own()
        self._ready.append(strand)
        self._park(strand)

    def sleep(self, seconds: float) -> None:
        strand = self._own()
        self._sleep_until(strand, self.now + seconds)
        self._park(strand)

    def wait(self, signal: Signal) -> None:
        """Go on when the signal is set."""
        while not signal.is_set:
            self.hear(signal)

    def hear(self, bell: Signal) -> None:
        """Go on when the bell rings next."""
        strand = self._own()
        bell.waiters.append(strand)
        self._park(strand)

    def notify(self, signal: Signal, *, stays: bool = True) -> None:
        """Set a signal; or only wake those who wait now."""
        signal.is_set = stays
        waiters, signal.waiters = signal.waiters, []
        self._ready += [strand for strand in waiters if not strand.actor.dead]

    # The hub --------------------------------------------------------------------------------------

    def _own(self) -> Strand:
        strand = self.current
        assert strand is not None, "only strands give up turns"
        if strand.actor.dead:
            raise Killed
        return strand

    def _park(self, strand: Strand) -> None:
        self._hub.switch()
        if strand.actor.dead:
            raise Killed

    def _run(self, strand: Strand, function: Callable[[], object]) -> None:
        try:
            function()
        except Killed:
            pass  # as its process: what it had done by then is judged on the store
        except BaseException as error:
            self.crashes.append((strand.actor, error))
        finally:
            self._forget(strand)

    def _forget(self, strand: Strand) -> None:
        actor = strand.actor
        actor.strands.remove(strand)
        self.waiting[actor.name] -= 1
        if not actor.strands:
            del self.waiting[actor.name]
            self.notify(actor.ended)

    def _pick(self) -> Strand:
        ready = self._ready
        if len(ready) == 1:
            return ready.pop()
        chance = self.chance
        if self.policy == "priority":
            if chance.random() < 0.04:
                ready[int(chance.random() * len(ready))].actor.priority = chance.random()
            index = max(range(len(ready)), key=lambda i: (ready[i].actor.priority, -i))
        elif self.policy == "sticky" and chance.random() < 0.8:
            index = len(ready) - 1
        else:
            index = int(chance.random() * len(ready))
        return ready.pop(index)

    def _step(self, strand: Strand) -> None:
        actor = strand.actor
        if actor.dead:
            return
        if actor.paused_until > self.now:
            self._sleep_until(strand, actor.paused_until)
            return
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise NeverEndsError(f"no end after {STEPS_MAX} steps")
        self.now += self.step_seconds
        self.current = strand
        strand.greenlet.switch()
        self.current = None
        if self._condemned:
            self._bury_the_dead()
        if self.on_step is not None:
            self.on_step()

    def _bury_the_dead(self) -> None:
        while self._condemned:
            self._bury(self._condemned.pop())

    def _bury(self, actor: Actor) -> None:
        self._ready = [strand for strand in self._ready if strand.actor is not actor]
        self._sleeping = [entry for entry in self._sleeping if entry[2].actor is not actor]
        heapq.heapify(self._sleeping)
        before = self.current
        for strand in tuple(actor.strands):
            self.current = strand
            if not strand.greenlet:  # it never ran
                self._forget(strand)
            else:
                strand.greenlet.throw(Killed)
        self.current = before

    def _sleep_until(self, strand: Strand, time: float) -> None:
        self._sleeps += 1
        heapq.heappush(self._sleeping, (time, self._sleeps, strand))

    def _wake_sleepers(self) -> None:
        while self._sleeping and self._sleeping[0][0] <= self.now:
            self._ready.append(heapq.heappop(self._sleeping)[2])


class StrandFuture:
    """What a strand of a pool will return."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ended = Signal()
        self.value: Any = None
        self._error: BaseException | None = None

    def run(self, function: Callable[[], Any]) -> None:
        try:
            self.value = function()
        except Killed:
            raise
        except BaseException as error:
            self._error = error
        self._scheduler.notify(self._ended)

    def done(self) -> bool:
        return self._ended.is_set

    def wait(self, seconds: float) -> bool:
        """Wait for it, as long as it takes: no strand interrupts another."""
        self._scheduler.wait(self._ended)
        return True

    def result(self) -> Any:
        self._scheduler.wait(self._ended)
        if self._error is not None:
            raise self._error
        return self.value

    def exception(self) -> BaseException | None:
        return self._error


class StrandPool:
    """`Pool` by strands of one actor."""

    def __init__(self, scheduler: Scheduler, actor: Actor) -> None:
        self._scheduler = scheduler
        self._actor = actor

    def submit(self, function: Callable[[], Any], errand: object = None) -> StrandFuture:
        future = StrandFuture(self._scheduler)
        self._scheduler.spawn(self._actor, lambda: future.run(function))
        return future

    def each(
        self, function: Callable[[T], R], items: Iterable[T], *, in_flight: int,
        weigh: Callable[[T], int] | None = None, weight_max: int = 0,
    ) -> Generator[Outcome[T, R], None, None]:  # fmt: skip
        """As `Pool.each`; weights are not heeded, items here are small."""
        scheduler, actor = self._scheduler, self._actor
        finished: deque[Outcome[T, R]] = deque()
        bell = Signal()
        flying = 0

        def one(item: T) -> None:
            future = StrandFuture(scheduler)
            future.run(lambda: function(item))
            finished.append(Outcome(item, result=future.value, error=future.exception()))
            scheduler.notify(bell, stays=False)

        def next_finished() -> Outcome[T, R]:
            while not finished:
                scheduler.hear(bell)
            return finished.popleft()

        source = iter(items)
        try:
            while True:
                for item in islice(source, max(1, in_flight) - flying):
                    flying += 1
                    scheduler.spawn(actor, partial(one, item))
                if not flying:
                    return
                outcome = next_finished()
                flying -= 1
                yield outcome
        finally:
            while flying and not actor.dead:
                next_finished()
                flying -= 1

    def later(self, function: Callable[[], object]) -> None:
        """Run it in a strand, if the process lives."""
        if not self._actor.dead and self._scheduler.current is not None:
            self.submit(function)


class ActorClock:
    """`components.Clock` of an actor: the true time, and a wall clock that may lie."""

    def __init__(self, scheduler: Scheduler, actor: Actor) -> None:
        self._scheduler = scheduler
        self._actor = actor

    def now(self) -> float:
        return self._scheduler.now + self._actor.skew

    def monotonic(self) -> float:
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)
