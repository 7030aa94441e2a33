"""Explicit-state search: every interleaving of a configuration's processes.

A process cannot be copied, so it is told by the answers that it was given: it does what follows
from them, and from nothing else (`processes`). Two histories are one `_Node` only if they are the
same, or if both have come to the same end: so merging is sound whatever production's code does. A
process is run again from its start where a second answer to a request leads another way; the first
answer goes to the process that waits for it.

A state is (store, requests in flight, faults left, each actor's node), all of them numbers. Every
number pair (store, node) is worked out once. Pauses need no fault: they are interleavings. Faults,
by the simulation's words (tests/simulation/faults.py):

* crash before, crash in flight: an actor stops before its request is sent, or with it in flight,
  which lands at any later time, or never;
* sent twice, late and again: the store's adapter sends a request again, whose sender sees the
  second answer; the first one took effect, or lands later, or never. An error before the effect is
  one that never lands;
* lost reply, late: the same of records, ledgers, `_SUCCESS` and Completes, whose sender sees no
  answer (`_is_asked_after`);
* refused again: the same, but the second one was refused, and its sender sees that: of writes of
  the record, where a configuration asks for it.

Reads are not lost or delayed: their senders ask again, which is a pause, or stop, which is a crash.

**States are searched in the order of turns**: first where each actor, once it goes, goes on to its
end; then where one is left in the middle for another one once, then twice. So the first trace that
is found has the fewest changes of turn; and a search may end after so many: it has then seen every
interleaving that needs no more of them.

Some requests take no turn of their own, for nobody could tell: the parts of an upload, which are
sent with its Create; and a look at an upload that has ended: it never opens again. And who comes in
the end, when all others have ended, does all at once; what is in flight then lands before or after.
"""

from __future__ import annotations

import copy
import gc
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from greenlet import GreenletExit  # type: ignore[import-untyped]

from magic_committer.errors import PermissionDenied, StoreError, Unanswered
from magic_committer.stores.memory import Request
from tests.model import promises
from tests.model.processes import Ended, Port, Program, Tell, Wait, alone, begin
from tests.model.store import GHOST, READS, UPLOAD, Store, World, key_of
from tests.model.trace import Line, Result
from tests.simulation.kinds import kind_of

STATES_MAX = 5_000_000
"""A search stops there: some 5 GB."""
UNANSWERED = Unanswered("no answer")
DENIED = PermissionDenied("the token has expired", status=403, attempts=2)


@dataclass(frozen=True)
class Actor:
    """A process of a configuration. ``uuids``: the jobs that it works for; none: another program.
    ``first_id``: the UUID of the job that it starts. ``answers``: what it was told before the
    search begins. ``after``: it runs when all actors before it have ended or died, and ``after``
    ones in their order; ``hour_later``: and when no request is in flight any more. ``faulty``:
    faults may hit it."""

    name: str
    program: Program
    uuids: tuple[str, ...] = ()
    first_id: str = ""
    answers: tuple[Any, ...] = ()
    after: bool = False
    hour_later: bool = False
    faulty: bool = True


@dataclass(frozen=True)
class Configuration:
    """Actors around a store as it begins. ``faults``: how many there may be. ``forgetful``,
    ``costly``: see `World`. ``denials``: a write of the record may be refused after it was not
    answered. ``promised``: what is promised here beyond what always is."""

    name: str
    actors: tuple[Actor, ...]
    store: Mapping[str, Any] = field(default_factory=dict)
    faults: int = 1
    forgetful: bool = False
    costly: bool = False
    denials: bool = False
    promised: promises.Promised = field(default_factory=promises.Promised)


# Actors as nodes ----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Node:
    """An actor that waits for the answer to its request, or has ended. ``parent``: where it was
    before the last ``answer``; -1: at its start. ``process``: until it is given an answer."""

    actor: int
    request: Any
    parent: int = -1
    answer: Any = None
    result: str | None = None
    process: Any = None
    following: dict[Any, int] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.result is not None


DEAD = 0


class _Nodes(list[_Node]):
    """All nodes of a search; number 0 is the dead actor's."""

    def __init__(self, port: Port, actors: tuple[Actor, ...]) -> None:
        super().__init__((_Node(-1, None, result="crashed"),))
        self._port = port
        self._actors = actors
        self._ends: dict[tuple[int, str], int] = {}

    def close(self) -> None:
        """End all processes."""
        for node in self:
            if node.process is not None:
                node.process.throw(GreenletExit)
                node.process = None

    def begun(self, actor: int) -> tuple[Any, Any]:
        """A process at its start, and its request."""
        one = self._actors[actor]
        process, request = begin(self._port, one.name, one.program, one.first_id)
        for answer in one.answers:
            request = process.switch(answer)
        return process, request

    def first(self, actor: int) -> int:
        return self._enter(actor, -1, None, *self.begun(actor))

    def after(self, number: int, answer: Any) -> int:
        """The node that an answer leads to."""
        node = self[number]
        key = _told(answer)
        found = node.following.get(key)
        if found is None:
            process, node.process = node.process, None
            if process is None:
                process, request = self.begun(node.actor)
                for earlier in self._history(node):
                    request = process.switch(earlier)
                assert request == node.request, "a process did not do again what it had done"
            request = process.switch(answer)
            found = node.following[key] = self._enter(node.actor, number, answer, process, request)
        return found

    def _history(self, node: _Node) -> list[Any]:
        """The answers that led to a node."""
        answers: list[Any] = []
        while node.parent >= 0:
            answers.append(node.answer)
            node = self[node.parent]
        return answers[::-1]

    def _enter(self, actor: int, parent: int, answer: Any, process: Any, request: Any) -> int:
        if isinstance(request, Ended):
            return self.end_of(actor, request.result)
        self.append(_Node(actor, request, parent, answer, process=process))
        return len(self) - 1

    def end_of(self, actor: int, result: str) -> int:
        """The node of an actor that has ended so."""
        known = self._ends.setdefault((actor, result), len(self))
        if known == len(self):
            self.append(_Node(actor, None, result=result))
        return known


def _told(answer: Any) -> Any:
    """By which two answers are told apart."""
    if isinstance(answer, StoreError):
        return type(answer), answer.attempts, answer.code
    return repr(answer)


# The search ---------------------------------------------------------------------------------------

STEP, LOST, LATE, CRASH, KILLED, LANDS, DENIED_LOST, DENIED_LATE, AGAIN, AGAIN_LATE = range(10)
WHAT = (
    "", "lost reply", "late", "crash before", "crash in flight", "lands late", "refused again",
    "late, refused again", "sent twice", "late and again",
)  # fmt: skip
SEEN = {LOST: UNANSWERED, LATE: UNANSWERED, DENIED_LOST: DENIED, DENIED_LATE: DENIED}
"""What its sender sees of a request."""
ANYBODY = -1
"""Who may go without a change of turn, by their bits."""

State = tuple[int, ...]
"""Store, flight, faults left, then a node for each actor."""
Move = tuple[int, State, str, int]
"""Its number, the state after it, what it breaks, and who goes on without a change of turn."""
Steps = tuple[int, int, list[tuple[Any, Any]], str]
"""The store and the node after some requests; these with their answers; and what is broken."""


class Search:
    """Of one configuration. ``turns``: how often an actor may be left in the middle; None: as often
    as there are ways."""

    def __init__(
        self, configuration: Configuration, faults: int | None = None, turns: int | None = None
    ) -> None:
        self._config = configuration
        self._actors = configuration.actors
        self._faults = configuration.faults if faults is None else faults
        self._turns = turns
        self._port = Port(part_bytes_min=1)
        self._world = World(
            self._port, forgetful=configuration.forgetful, costly=configuration.costly
        )
        self.nodes = _Nodes(self._port, self._actors)
        self._stores: list[Store] = []
        self._store_numbers: dict[Any, int] = {}
        self._flights: list[tuple[int, ...]] = []
        self._flight_numbers: dict[tuple[int, ...], int] = {}
        self._steps: dict[tuple[int, int], Steps] = {}
        self._known: dict[tuple[int, int, bool], tuple[int, Any, str]] = {}
        self._quiet: dict[tuple[int, ...], str] = {}

    def run(self, states_max: int = STATES_MAX) -> Result:
        """Search until a promise is broken or every state has been seen; or so many states, or so
        many turns: then the result says which were searched to the end."""
        collects = gc.isenabled()
        gc.disable()  # millions of tuples, and no cycle among them
        try:
            with alone(self._port):
                return self._run(states_max)
        finally:
            self.nodes.close()
            if collects:
                gc.enable()

    def reached(self) -> set[str]:
        """What was met: kinds of requests, and each actor with what it was told."""
        told = {f"{self._actors[n.actor].name} {n.result}" for n in self.nodes if n.result}
        return told | {kind_of(n.request) for n in self.nodes if isinstance(n.request, Request)}

    def _run(self, states_max: int) -> Result:
        self._first = tuple(self.nodes.first(n) for n in range(len(self._actors)))
        first: State = (
            self._store(self._config.store), self._flight(()), self._faults, *self._first,
        )  # fmt: skip
        everybody = (1 << len(self._actors) + 1) - 1  # who is in flight counts as one
        numbers, order = {first: 0}, [first]
        gone = [0]  # who has gone on from each state
        parents, moves = array("l", [-1]), array("l", [-1])
        turns, level = 0, [(0, everybody)]

        def result(broken: str = "", turns: int = 0, *, whole: bool = True) -> Result:
            trace = self._trace(order, parents, moves, number, move) if broken else ()
            return Result(len(order), len(self.nodes), turns, broken, trace, whole)

        while level:
            for number, who in level:  # it grows while it is gone through
                who &= ~gone[number]
                gone[number] |= who
                for move, following, broken, next_ones in self._moves(order[number], who):
                    found = numbers.get(following)
                    if found is None and not broken:
                        broken = self._broken_when_quiet(following)
                    if broken:
                        return result(broken, turns)
                    if found is None:
                        if len(order) >= states_max:
                            return result("", turns - 1, whole=False)
                        found = numbers[following] = len(order)
                        order.append(following)
                        gone.append(0)
                        parents.append(number)
                        moves.append(move)
                    if next_ones & ~gone[found]:
                        level.append((found, next_ones))
            level = [(n, everybody) for n, done in enumerate(gone) if everybody & ~done]
            if turns == self._turns:
                break
            turns += 1
        if not self._quiet:
            raise RuntimeError(f"{self._config.name}: it never comes to an end")
        return result("", turns - (not level), whole=not level)

    # Moves ----------------------------------------------------------------------------------------

    def _moves(self, state: State, who: int) -> Iterator[Move]:
        """The moves of these actors."""
        store, flight, faults, *places = state
        all_ended = True
        for n, number in enumerate(places):
            node, actor = self.nodes[number], self._actors[n]
            if node.ended:
                continue
            if actor.after and not all_ended:
                break
            all_ended = False
            if who >> n & 1:
                found = self._next(store, number, places)
                if found is not None:
                    kept = self._flight(()) if actor.hour_later else flight
                    moved = (found[0], kept, faults, *places[:n], found[1], *places[n + 1 :])
                    yield STEP * 64 + n, moved, found[3], self._who(n, found[1])
                if faults and actor.faulty:
                    yield from self._faulty(state, n, number)
            if actor.after:
                break  # one after the other; only what is in flight moves beside it
        if who >> len(places) & 1:
            for index, number in enumerate(self._flights[flight]):
                after, _, broken = self._executed(store, number, late=True)
                rest = self._flights[flight]
                left = self._flight(rest[:index] + rest[index + 1 :])
                yield LANDS * 64 + index, (after, left, *state[2:]), broken, ANYBODY

    def _who(self, n: int, number: int) -> int:
        node = self.nodes[number]
        return ANYBODY if node.ended or isinstance(node.request, Wait) else 1 << n

    def _next(self, store: int, number: int, places: list[int]) -> Steps | None:
        """What an actor does next; None: it waits."""
        node = self.nodes[number]
        if isinstance(node.request, Wait):
            answer = self._awaited(store, node.request, places)
            if answer is Ellipsis:
                return None
            return store, self.nodes.after(number, answer), [(node.request, answer)], ""
        found = self._steps.get((store, number))
        if found is None:
            one = self._alone if self._actors[node.actor].after else self._step
            found = self._steps[store, number] = one(store, number)
        return found

    def _step(self, store: int, number: int) -> Steps:
        """A node's request, and what goes with it."""
        done: list[tuple[Any, Any]] = []
        while True:
            request = self.nodes[number].request
            store, answer, broken = self._executed(store, number)
            done.append((request, answer))
            number = self.nodes.after(number, answer)
            broken = broken or self._ended(store, number)
            if broken or not self._goes_with_it(store, self.nodes[number].request):
                return store, number, done, broken

    def _goes_with_it(self, store: int, request: Any) -> bool:
        """Whether a request takes no turn of its own."""
        if request is None or request.verb != "list_parts":
            return request is not None and request.verb == "put_part"
        return UPLOAD + request.upload_id not in self._stores[store]

    def _alone(self, store: int, number: int) -> Steps:
        """All requests of an actor, to its end. None of its nodes is kept but that."""
        n = self.nodes[number].actor
        actor, held, broken = self._actors[n], self._stores[store], ""
        process, request = self.nodes.begun(n)
        done: list[tuple[Any, Any]] = []
        while not isinstance(request, Ended) and not broken:
            before = held
            held, answer = self._world.execute(before, request, actor.name)
            done.append((request, answer))
            if held is not before:
                broken = promises.of_step(self._config.promised, before, held, actor.uuids)
            request = process.switch(answer)
        end = self._store(held)
        following = self.nodes.end_of(n, request.result if isinstance(request, Ended) else "")
        return end, following, done, broken or self._ended(end, following)

    def _faulty(self, state: State, n: int, number: int) -> Iterator[Move]:
        store, flight, faults, *places = state
        before, behind = places[:n], places[n + 1 :]
        request = self.nodes[number].request
        yield CRASH * 64 + n, (store, flight, faults - 1, *before, DEAD, *behind), "", ANYBODY
        if request.verb in READS or isinstance(request, Tell | Wait):
            return
        after, _, broken = self._executed(store, number)
        flown = self._flight((*self._flights[flight], number))
        yield KILLED * 64 + n, (store, flown, faults - 1, *before, DEAD, *behind), "", ANYBODY
        ways: list[tuple[int, int, int, Any, str]] = [
            (LOST, after, flight, UNANSWERED, broken), (LATE, store, flown, UNANSWERED, ""),
        ]  # fmt: skip
        if not _is_asked_after(request):
            ways = []
            for kind, first, flying in ((AGAIN, after, flight), (AGAIN_LATE, store, flown)):
                second, answer, broken = self._executed(first, number)
                ways.append((kind, second, flying, _of_second(answer), broken))
        elif self._config.denials and request.key.endswith("/_job.json"):
            ways += [(DENIED_LOST, after, flight, DENIED, broken)]
            ways += [(DENIED_LATE, store, flown, DENIED, "")]
        for kind, there, flying, answer, broken in ways:
            following = self.nodes.after(number, answer)
            moved = (there, flying, faults - 1, *before, following, *behind)
            broken = broken or self._ended(there, following)
            yield kind * 64 + n, moved, broken, self._who(n, following)

    def _executed(self, store: int, number: int, *, late: bool = False) -> tuple[int, Any, str]:
        """The store after a node's request, its answer, and what it breaks."""
        found = self._known.get((store, number, late))
        if found is None:
            node = self.nodes[number]
            before, actor, broken = self._stores[store], self._actors[node.actor], ""
            if isinstance(node.request, Tell):
                after, answer = tell(before, node.request), None
            else:
                after, answer = self._world.execute(before, node.request, actor.name, late=late)
                if after is not before:
                    broken = promises.of_step(self._config.promised, before, after, actor.uuids)
            found = store if after is before else self._store(after), answer, broken
            self._known[store, number, late] = found
        return found

    def _awaited(self, store: int, wait: Wait, places: list[int]) -> Any:
        """The answer to a `Wait`; Ellipsis while there is none."""
        held = self._stores[store]
        for name in wait.names:
            if (message := f"{GHOST}message {name}") in held:
                return held[message]
        senders = zip(self._actors, places, strict=True)
        waits = any(a.name in wait.senders and not self.nodes[at].ended for a, at in senders)
        return Ellipsis if waits else None

    def _ended(self, store: int, number: int) -> str:
        """What an actor's last word broke, if this was its last step."""
        node = self.nodes[number]
        if node.result is None:
            return ""
        uuids = self._actors[node.actor].uuids
        return promises.of_result(self._config.promised, self._stores[store], node.result, uuids)

    def _broken_when_quiet(self, state: State) -> str:
        """What is broken where all actors have ended (those of an hour later may still have to
        begin), also while a request may still land."""
        store, _, _, *places = state
        cleaned = False
        for actor, number, first in zip(self._actors, places, self._first, strict=True):
            if not self.nodes[number].ended and not (actor.hour_later and number == first):
                return ""
            cleaned = actor.hour_later and number != first
        found = self._quiet.get((store, *places))
        if found is None:
            actors = zip(self._actors, places, strict=True)
            results = {actor.name: self.nodes[number].result for actor, number in actors}
            found = promises.when_quiet(
                self._config.promised, self._stores[store], results, cleaned
            )
            self._quiet[store, *places] = found
        return found

    # Numbers --------------------------------------------------------------------------------------

    def _store(self, store: Store) -> int:
        number = self._store_numbers.setdefault(key_of(store), len(self._stores))
        if number == len(self._stores):
            self._stores.append(store)
        return number

    def _flight(self, nodes: tuple[int, ...]) -> int:
        key = tuple(sorted(nodes))
        number = self._flight_numbers.setdefault(key, len(self._flights))
        if number == len(self._flights):
            self._flights.append(key)
        return number

    # The trace ------------------------------------------------------------------------------------

    def _trace(
        self, order: list[State], parents: array[int], moves: array[int], last: int, move: int
    ) -> tuple[Line, ...]:
        lines = self._lines(order[last], move)
        while last:
            last, move = parents[last], moves[last]
            lines = self._lines(order[last], move) + lines
        return tuple(lines)

    def _lines(self, state: State, move: int) -> list[Line]:
        kind, n = divmod(move, 64)
        store, flight, _, *places = state
        number = self._flights[flight][n] if kind == LANDS else places[n]
        node = self.nodes[number]
        name = self._actors[node.actor].name
        if kind == STEP:
            found = self._next(store, number, places)
            return [Line(name, "", *one) for one in found[2]] if found else []
        answer = self._executed(store, number)[1] if kind == LANDS else SEEN.get(kind)
        return [Line(name, WHAT[kind], node.request, answer)]


def tell(store: Store, message: Tell) -> Store:
    return {**store, f"{GHOST}message {message.name}": message.body}


def _is_asked_after(request: Any) -> bool:
    """Whether a process that gets no answer, also to what the store's adapter has sent again, is
    made to find out what has become of its request."""
    last = request.key.rpartition("/")[2]
    ours = last in ("_job.json", "_SUCCESS") or "/__magic_stream/" in request.key
    return request.verb == "complete_upload" or (request.verb == "put" and ours)


def _of_second(answer: Any) -> Any:
    """The answer to a request that was sent twice."""
    if isinstance(answer, StoreError):
        answer = copy.copy(answer)
        answer.attempts = 2
        return answer
    return answer._replace(attempts=2) if hasattr(answer, "attempts") else answer
