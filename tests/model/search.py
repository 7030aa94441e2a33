"""Explicit-state search: every interleaving of a configuration's actors, breadth first.

An actor is a generator that yields requests and is sent replies. A generator cannot be copied, so
an actor's state is told by where it stands and what it knows: for each of its frames, position and
locals (`position`). Two histories of replies that lead to the same are one `_Node`, and a generator
is replayed from a history once for each node and reply, not once for each state. It follows that
an actor keeps everything it knows in hashable locals, and loops only over a tuple that is one of
its locals and has no element twice (a loop's place lies on Python's stack, where nobody sees it);
`check_merging` holds the actors to that.

A state is (store, requests in flight, faults left, each actor's node), all of them numbers. Every
number pair (store, node) is worked out once. Pauses need no fault: they are interleavings. Faults:

* crash: an actor stops before its request is sent, or with it in flight;
* lost reply: the request took effect, its sender sees no answer;
* late: the sender sees no answer, the request lands at any later time, or never. An error before
  the effect is one that never lands;
* denied: as "lost reply" and "late", but the store's adapter has sent it again and was refused, so
  that the sender sees the refusal: of writes of the record, where a configuration asks for it.

Reads are not lost or delayed: their senders ask again, which is a pause, or stop, which is a crash.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.model import promises
from tests.model.store import (
    DENIED,
    GHOST,
    NOT_OF_S3,
    READS,
    UNANSWERED,
    Put,
    Record,
    Store,
    Wait,
    execute,
)
from tests.model.trace import Line, Result

Program = Callable[[], Generator[Any, Any, Any]]

STATES_MAX = 5_000_000
"""A search that grows beyond is a mistake in its configuration."""


@dataclass(frozen=True)
class Actor:
    """A process of a configuration.

    Attributes:
        program: makes its generator, always the same.
        uuids: the jobs that it works for; none: another program.
        after: it runs when all actors before it have ended or died (``after`` ones in their order).
        hour_later: and when no request is in flight any more.
        faulty: faults may hit it.
    """

    name: str
    program: Program
    uuids: tuple[str, ...] = ()
    after: bool = False
    hour_later: bool = False
    faulty: bool = True


@dataclass(frozen=True)
class Configuration:
    """Actors around one store.

    Attributes:
        store: how it begins.
        faults: how many there may be.
        forgetful, costly: see `execute`.
        denials: a write of the record may be refused after it was not answered.
        promised: what is promised here beyond what always is; see `promises`.
    """

    name: str
    actors: tuple[Actor, ...]
    store: Mapping[str, Any] = field(default_factory=dict)
    faults: int = 1
    forgetful: bool = False
    costly: bool = False
    denials: bool = False
    promised: promises.Promised = field(default_factory=promises.Promised)


# Actors as nodes ----------------------------------------------------------------------------------


def position(generator: Any) -> tuple[Any, ...]:
    """Where a generator stands and what it knows, frame by frame."""
    frames: list[Any] = []
    while generator is not None:
        frame = generator.gi_frame
        frames.append((frame.f_code.co_name, frame.f_lasti, tuple(frame.f_locals.items())))
        generator = generator.gi_yieldfrom
    return tuple(frames)


@dataclass(slots=True, eq=False)
class _Node:
    """An actor that waits for the reply to its request, or has ended."""

    actor: int
    request: Any
    result: Any
    ended: bool
    history: tuple[Any, ...]
    key: tuple[Any, ...]
    following: dict[Any, int] = field(default_factory=dict)
    merged: list[tuple[Any, ...]] = field(default_factory=list)


DEAD = 0


class _Nodes:
    """All nodes of a search; number 0 is the dead actor's."""

    def __init__(self, actors: tuple[Actor, ...]) -> None:
        self._actors = actors
        self.nodes: list[_Node] = [_Node(-1, None, "crashed", True, (), ())]
        self._known: dict[Any, int] = {}

    def first(self, actor: int) -> int:
        return self._reach(actor, ())

    def after(self, number: int, reply: Any) -> int:
        """The node that a reply leads to."""
        node = self.nodes[number]
        found = node.following.get(reply)
        if found is None:
            found = self._reach(node.actor, (*node.history, reply))
            node.following[reply] = found
        return found

    def _reach(self, actor: int, history: tuple[Any, ...]) -> int:
        request, result, ended, key = self.replay(actor, history)
        known = self._known.get((actor, key))
        if known is not None:
            self.nodes[known].merged.append(history)
            return known
        self.nodes.append(_Node(actor, request, result, ended, history, key))
        self._known[actor, key] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def replay(
        self, actor: int, history: tuple[Any, ...]
    ) -> tuple[Any, Any, bool, tuple[Any, ...]]:
        """Request, result, whether it has ended, and `position` after a history of replies."""
        generator = self._actors[actor].program()
        try:
            request = next(generator)
            for reply in history:
                request = generator.send(reply)
        except StopIteration as end:
            return None, end.value, True, ("ended", end.value)
        return request, None, False, position(generator)


# The search ---------------------------------------------------------------------------------------

STEP, LOST, LATE, CRASH, KILLED, LANDS, DENIED_LOST, DENIED_LATE = range(8)
WHAT = (
    "", "reply lost", "late", "crash", "killed, its request in flight", "lands",
    "reply lost, then refused", "late, then refused",
)  # fmt: skip

State = tuple[int, ...]
"""Store, flight, faults left, then a node for each actor."""


class Search:
    def __init__(self, configuration: Configuration, faults: int | None = None) -> None:
        self._config = configuration
        self._actors = configuration.actors
        self._faults = configuration.faults if faults is None else faults
        self.nodes = _Nodes(self._actors)
        self._stores: list[Store] = []
        self._store_numbers: dict[Any, int] = {}
        self._flights: list[tuple[int, ...]] = []
        self._flight_numbers: dict[tuple[int, ...], int] = {}
        self._steps: dict[tuple[int, int], tuple[int, int, Any, str]] = {}
        self._landings: dict[tuple[int, int], tuple[int, str]] = {}
        self._ends: dict[tuple[int, int], str] = {}
        self._quiet: dict[tuple[int, ...], str] = {}
        self._first = tuple(self.nodes.first(n) for n in range(len(self._actors)))

    def run(self, states_max: int = STATES_MAX) -> Result:
        """Search until a promise is broken or every state has been seen."""
        collects = gc.isenabled()
        gc.disable()  # millions of tuples, and no cycle among them
        try:
            return self._run(states_max)
        finally:
            if collects:
                gc.enable()

    def _run(self, states_max: int) -> Result:
        first: State = (
            self._store(self._config.store), self._flight(()), self._faults, *self._first,
        )  # fmt: skip
        numbers: dict[State, int] = {first: 0}
        order = [first]
        parents, moves = array("l", [-1]), array("l", [-1])
        for number, state in enumerate(order):  # it grows while it is gone through
            for move, following, violation in self._successors(state):
                if violation:
                    trace = self._trace(order, parents, moves, number, move)
                    return Result(len(order), violation, trace)
                if following in numbers:
                    continue
                if len(order) >= states_max:
                    raise RuntimeError(f"{self._config.name}: over {states_max:,} states")
                numbers[following] = len(order)
                order.append(following)
                parents.append(number)
                moves.append(move)
                broken = self._broken_when_quiet(following)
                if broken:
                    trace = self._trace(order, parents, moves, number, move)
                    return Result(len(order), broken, trace)
        if not self._quiet:
            raise RuntimeError(f"{self._config.name}: it never comes to an end")
        return Result(len(order), "")

    def check_merging(self) -> int:
        """Hold every history that was merged into a node against it: the same replies must lead to
        the same positions. Returns how many were."""
        checked = 0
        for node in self.nodes.nodes:
            for history in node.merged:
                for reply, following in node.following.items():
                    reached = self.nodes.replay(node.actor, (*history, reply))
                    assert reached[3] == self.nodes.nodes[following].key, (history, reply)
                    checked += 1
        return checked

    # Moves ----------------------------------------------------------------------------------------

    def _successors(self, state: State) -> Iterator[tuple[int, State, str]]:
        store, flight, faults, *places = state
        nodes = self.nodes.nodes
        all_ended = True
        for n, number in enumerate(places):
            node = nodes[number]
            if node.ended:
                continue
            actor = self._actors[n]
            if actor.after and not all_ended:
                break
            all_ended = False
            kept = self._flight(()) if actor.hour_later else flight
            if isinstance(node.request, Wait):
                reply = self._awaited(store, node.request, places)
                if reply is not Ellipsis:
                    yield STEP * 64 + n, _at(state, n, self.nodes.after(number, reply)), ""
            else:
                found = self._steps.get((store, number)) or self._step(store, number)
                moved = (found[0], kept, faults, *places[:n], found[1], *places[n + 1 :])
                yield STEP * 64 + n, moved, found[3]
            if faults and actor.faulty:
                yield from self._faulty(state, n, number)
            if actor.after:
                return  # one after the other; only what is in flight moves beside it
        for index, number in enumerate(self._flights[flight]):
            after, violation = self._landing(store, number)
            rest = self._flights[flight]
            left = self._flight(rest[:index] + rest[index + 1 :])
            yield LANDS * 64 + index, (after, left, *state[2:]), violation

    def _faulty(self, state: State, n: int, number: int) -> Iterator[tuple[int, State, str]]:
        store, flight, faults, *places = state
        request = self.nodes.nodes[number].request
        before, behind = places[:n], places[n + 1 :]
        yield CRASH * 64 + n, (store, flight, faults - 1, *before, DEAD, *behind), ""
        if isinstance(request, (*READS, *NOT_OF_S3)):
            return
        after, _, _, violation = self._step(store, number)
        unaware = self.nodes.after(number, UNANSWERED)
        yield LOST * 64 + n, (after, flight, faults - 1, *before, unaware, *behind), violation
        flown = self._flight((*self._flights[flight], number))
        yield LATE * 64 + n, (store, flown, faults - 1, *before, unaware, *behind), ""
        yield KILLED * 64 + n, (store, flown, faults - 1, *before, DEAD, *behind), ""
        if not (self._config.denials and writes_the_record(request)):
            return
        denied = self.nodes.after(number, DENIED)
        ended = self._ended(after, denied) or violation
        yield DENIED_LOST * 64 + n, (after, flight, faults - 1, *before, denied, *behind), ended
        ended = self._ended(store, denied)
        yield DENIED_LATE * 64 + n, (store, flown, faults - 1, *before, denied, *behind), ended

    def _step(self, store: int, number: int) -> tuple[int, int, Any, str]:
        """The store, the node, the reply and the broken promise after a node's request."""
        found = self._steps.get((store, number))
        if found is None:
            after, reply, violation = self._executed(store, number, late=False)
            following = self.nodes.after(number, reply)
            violation = violation or self._ended(after, following)
            found = self._steps[store, number] = after, following, reply, violation
        return found

    def _ended(self, store: int, number: int) -> str:
        """What an actor's last word broke, if this was its last step."""
        node = self.nodes.nodes[number]
        if not node.ended:
            return ""
        uuids = self._actors[node.actor].uuids
        return promises.of_result(self._config.promised, self._stores[store], node.result, uuids)

    def _landing(self, store: int, number: int) -> tuple[int, str]:
        found = self._landings.get((store, number))
        if found is None:
            after, _, violation = self._executed(store, number, late=True)
            found = self._landings[store, number] = after, violation
        return found

    def _executed(self, store: int, number: int, *, late: bool) -> tuple[int, Any, str]:
        node = self.nodes.nodes[number]
        before = self._stores[store]
        actor = self._actors[node.actor]
        after, reply = execute(
            before, node.request, actor.name, late=late, forgetful=self._config.forgetful,
            costly=self._config.costly,
        )  # fmt: skip
        violation = ""
        if after is not before:
            violation = promises.of_step(
                self._config.promised, before, after, node.request, actor.uuids
            )
        return (store if after is before else self._store(after)), reply, violation

    def _awaited(self, store: int, wait: Wait, places: list[int]) -> Any:
        """The reply to a `Wait`; Ellipsis while there is none."""
        held = self._stores[store]
        for name in wait.names:
            if (message := f"{GHOST}message {name}") in held:
                return name, held[message]
        waiting = any(
            actor.name in wait.senders and not self.nodes.nodes[place].ended
            for actor, place in zip(self._actors, places, strict=True)
        )
        return Ellipsis if waiting else None

    def _broken_when_quiet(self, state: State) -> str:
        """What is broken where all actors have ended (those of an hour later may still have to
        begin), also while a request may still land."""
        nodes = self.nodes.nodes
        cleaned = True
        places = state[3:]
        for n, number in enumerate(places):
            if not nodes[number].ended:
                if not self._actors[n].hour_later or number != self._first[n]:
                    return ""
                cleaned = False
        key = (state[0], *places)
        found = self._quiet.get(key)
        if found is None:
            results = {
                actor.name: nodes[number].result
                for actor, number in zip(self._actors, places, strict=True)
            }
            cleaned = cleaned and any(actor.hour_later for actor in self._actors)
            found = promises.when_quiet(
                self._config.promised, self._stores[state[0]], results, cleaned
            )
            self._quiet[key] = found
        return found

    # Numbers --------------------------------------------------------------------------------------

    def _store(self, store: Store) -> int:
        key = tuple(sorted(store.items(), key=lambda item: item[0]))
        number = self._store_numbers.get(key)
        if number is None:
            number = self._store_numbers[key] = len(self._stores)
            self._stores.append(store)
        return number

    def _flight(self, nodes: tuple[int, ...]) -> int:
        key = tuple(sorted(nodes))
        number = self._flight_numbers.get(key)
        if number is None:
            number = self._flight_numbers[key] = len(self._flights)
            self._flights.append(key)
        return number

    # The trace ------------------------------------------------------------------------------------

    def _trace(
        self, order: list[State], parents: array[int], moves: array[int], last: int, move: int
    ) -> tuple[Line, ...]:
        lines = [self._line(order[last], move)]
        while last:
            parent = parents[last]
            lines.append(self._line(order[parent], moves[last]))
            last = parent
        return tuple(reversed(lines))

    def _line(self, state: State, move: int) -> Line:
        kind, n = divmod(move, 64)
        store, flight = state[0], state[1]
        if kind == LANDS:
            node = self.nodes.nodes[self._flights[flight][n]]
            landed = execute(
                self._stores[store], node.request, "", forgetful=self._config.forgetful,
                costly=self._config.costly,
            )  # fmt: skip
            return Line(self._actors[node.actor].name, WHAT[kind], node.request, landed[1])
        number = state[3 + n]
        request = self.nodes.nodes[number].request
        reply: Any = UNANSWERED
        if kind == CRASH:
            reply = None
        elif kind in (DENIED_LOST, DENIED_LATE):
            reply = DENIED
        elif kind == STEP and isinstance(request, Wait):
            reply = self._awaited(store, request, list(state[3:]))
        elif kind == STEP:
            reply = self._step(store, number)[2]
        return Line(self._actors[n].name, WHAT[kind], request, reply)


def writes_the_record(request: Any) -> bool:
    """Whether a request is a PUT of the record."""
    return isinstance(request, Put) and isinstance(request.body, Record)


def _at(state: State, n: int, number: int) -> State:
    return (*state[: 3 + n], number, *state[4 + n :])
