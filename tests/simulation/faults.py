"""What goes wrong at a request, and the store's hooks that make it so.

Each request is a turn of the scheduler. Then a fault may strike it:

=================  =================================================================================
error before       no effect; the sender gets `Unanswered`
slow down          the same, with S3's 503 SlowDown
refused            no effect; the sender gets 403
lost reply         the effect, then `Unanswered`
late               `Unanswered` at once; the effect later, or never: at most 15 minutes later, for
                   which a signature of Signature V4 is good
sent twice         the effect, its reply lost; the adapter sends it again, and its answer says
                   ``attempts=2``: a Create makes two uploads, a conditional PUT meets itself
late and again     sent again as above, but the first one lands later than the second, or never
crash before       the actor dies, the request was never sent
crash after        the actor dies after the effect
crash in flight    the actor dies, the request lands later, or never
pause              the actor stands still for hours: no late request of anybody's is left then
clock jump         the actor's wall clock jumps by hours
=================  =================================================================================
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from magic_committer.errors import PermissionDenied, StoreError, Unanswered
from magic_committer.memory import MemoryStore, Request
from tests.simulation.kinds import KINDS, RARE, kind_of
from tests.simulation.promises import Watch
from tests.simulation.scheduler import Actor, Killed, Scheduler, Strand

FAULTS = (
    "error before", "slow down", "refused", "lost reply", "late", "sent twice", "late and again",
    "crash before", "crash after", "crash in flight", "pause", "clock jump",
)  # fmt: skip
HARMLESS = ("pause", "clock jump", "sent twice")
"""Faults that excuse no litter: a paused process, a wrong clock, a retry that was answered."""

SIGNATURE_SECONDS = 900.0
"""Signature V4: a request is executed within 15 minutes of its signing, or not at all."""
PAUSE_SECONDS = 7200.0
LATE_STEPS_MAX = 300
NEVER = 0.2
"""The part of late requests that never land."""
CALLS_KEPT = 30


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is to strike: at the ``nth`` request of a kind, or of any (``""``)."""

    kind: str
    target: str
    nth: int

    def __str__(self) -> str:
        return f"{self.kind} at request {self.nth} of {self.target or 'all'}"


@dataclass(slots=True)
class Late:
    """A request under way whose sender has given up, or died."""

    request: Request
    actor: Actor
    due_step: int
    expires: float


@dataclass(slots=True)
class Call:
    """One line of the trace."""

    step: int
    actor: str
    kind: str
    key: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.step:>5}  {self.actor:<14} {self.kind:<18} {self.key}  {self.note}"


class Injector:
    """Sits in the hooks of a `MemoryStore`: turns, faults, the trace, and the counts."""

    def __init__(
        self, store: MemoryStore, scheduler: Scheduler, watch: Watch, chance: random.Random
    ) -> None:
        self.faults: list[Fault] = []
        self.struck: list[tuple[str, str]] = []
        self.requests = 0
        self.by_kind: Counter[str] = Counter()
        self.calls: deque[Call] = deque(maxlen=CALLS_KEPT)
        self._hash = hashlib.blake2b(digest_size=16)
        self._scheduler = scheduler
        self._watch = watch
        self._chance = chance
        self._late: list[Late] = []
        self._fates: dict[Strand, str] = {}
        store.before, store.after = self.before, self.after
        scheduler.on_step = self.land

    @property
    def trace(self) -> str:
        """A hash of every call and its answer, in order."""
        return self._hash.hexdigest()

    def note(self, actor: str, kind: str, key: str, note: str = "") -> None:
        """A line in the trace."""
        self._hash.update(f"{actor} {kind} {key} {note}\n".encode())
        self.calls.append(Call(self._scheduler.steps, actor, kind, key, note))

    # The hooks ------------------------------------------------------------------------------------

    def before(self, request: Request) -> None:
        """A request is to be sent."""
        strand = self._scheduler.current
        assert strand is not None, f"a request outside of the schedule: {request}"
        actor = strand.actor
        if actor.dead:
            raise Killed
        self._scheduler.turn()
        self.requests += 1
        kind = kind_of(request)
        self.by_kind[kind] += 1
        self.note(actor.name, kind, request.key or " ".join(request.keys))
        if self.faults:
            fault = self._due(kind)
            if fault is not None:
                self.struck.append((kind, fault.kind))
                self._strike(fault.kind, request, strand)

    def after(self, request: Request, answer: Any) -> Any:
        """A request took effect, or was refused."""
        strand = self._scheduler.current
        assert strand is not None
        self._note_answer(answer)
        self._watch.effect(request, answer, strand.actor)
        fate = self._fates.pop(strand, "") if self._fates else ""
        if fate == "crash after":
            self._scheduler.kill(strand.actor)
            raise Killed
        if fate == "lost reply":
            raise _unanswered(request, "its reply is lost")
        if fate == "again":
            return _sent_twice(answer)
        return None

    def _note_answer(self, answer: Any) -> None:
        if isinstance(answer, StoreError):
            word = type(answer).__name__
            self._hash.update(word.encode())
            self.calls[-1].note += f" -> {word}"

    # Faults ---------------------------------------------------------------------------------------

    def _due(self, kind: str) -> Fault | None:
        for fault in self.faults:
            count = self.by_kind[kind] if fault.target == kind else self.requests
            if fault.target in ("", kind) and count == fault.nth:
                self.faults.remove(fault)
                return fault
        return None

    def _strike(self, fault: str, request: Request, strand: Strand) -> None:
        actor = strand.actor
        self.calls[-1].note = f"[{fault}]"
        actor.hurt = actor.hurt or fault not in HARMLESS
        actor.sent_twice = actor.sent_twice or fault == "sent twice"
        if fault == "error before":
            raise _unanswered(request, "the connection broke")
        if fault == "slow down":
            raise _unanswered(request, "slow down", status=503, code="SlowDown")
        if fault == "refused":
            raise PermissionDenied(
                f"{request.verb} {request.key}: refused", operation=request.verb, key=request.key,
                status=403, code="AccessDenied",
            )  # fmt: skip
        if fault in ("lost reply", "crash after"):
            self._fates[strand] = fault
        elif fault == "late":
            self._send_late(request, actor)
            raise _unanswered(request, "no answer in time")
        elif fault == "sent twice":
            self._carry_out(request, actor)
            self._scheduler.sleep(0.1)
            self._fates[strand] = "again"
        elif fault == "late and again":
            self._send_late(request, actor)
            self._scheduler.sleep(0.1)
            self._fates[strand] = "again"
        elif fault in ("crash before", "crash in flight"):
            if fault == "crash in flight":
                self._send_late(request, actor)
            self._scheduler.kill(actor)
            raise Killed
        elif fault == "pause":
            actor.paused_until = self._scheduler.now + PAUSE_SECONDS * (1 + self._chance.random())
            self._scheduler.turn()
        else:
            actor.skew += self._chance.choice((-90_000.0, -7_000.0, 7_000.0, 90_000.0))

    def _send_late(self, request: Request, actor: Actor) -> None:
        if self._chance.random() < NEVER:
            return
        now = self._scheduler
        due = now.steps + 1 + int(self._chance.random() ** 3 * LATE_STEPS_MAX)
        self._late.append(Late(request, actor, due, now.now + SIGNATURE_SECONDS))

    def _carry_out(self, request: Request, actor: Actor) -> None:
        try:
            answer = request.effect()
        except StoreError as error:
            answer = error
        self._watch.effect(request, answer, actor)

    def land(self) -> bool:
        """Let late requests land that are due. Where nobody is left to act, all are."""
        if not self._late:
            return False
        idle = not self._scheduler.busy
        steps, now = self._scheduler.steps, self._scheduler.now
        landed = False
        for late in tuple(self._late):
            if late.expires < now:
                self._late.remove(late)
            elif idle or late.due_step <= steps:
                self._late.remove(late)
                self.note(late.actor.name, kind_of(late.request), late.request.key, "[lands late]")
                self._carry_out(late.request, late.actor)
                landed = True
        return landed


TARGETS = (*KINDS, *RARE, *RARE, *RARE, *RARE)
FAULTS_MAX = 3
LEADS_TO = {
    "list_parts": ("error before", "complete_upload"),
    "head data": ("lost reply", "complete_upload"),
    "get plan": ("crash after", "swap record"),
}
"""Requests that hardly occur unless something else went wrong before: fault and kind."""


def draw_faults(chance: random.Random, expected: Sequence[str] = ()) -> list[Fault]:
    """One to three faults. The first strikes early enough to strike in every schedule; the others
    go for a kind of request, one of those that few schedules send but this one is ``expected`` to.
    """
    faults = [Fault(chance.choice(FAULTS), "", 1 + int(chance.random() * 26))]
    if expected:
        _go_for(faults, chance, chance.choice(expected), 1)
    for _ in range(int(chance.random() * 3)):
        target = TARGETS[int(chance.random() * len(TARGETS))]
        _go_for(faults, chance, target, 1 + int(chance.random() ** 2 * 4))
    return faults[:FAULTS_MAX]


def _go_for(faults: list[Fault], chance: random.Random, target: str, nth: int) -> None:
    faults.append(Fault(chance.choice(FAULTS), target, nth))
    if target in LEADS_TO and len(faults) < FAULTS_MAX:
        before, kind = LEADS_TO[target]
        faults.append(Fault(before, kind, 1 + (kind == "swap record")))


def _unanswered(request: Request, why: str, *, status: int = 0, code: str = "") -> Unanswered:
    return Unanswered(
        f"{request.verb} {request.key}: {why}", operation=request.verb, key=request.key,
        status=status, code=code,
    )  # fmt: skip


def _sent_twice(answer: Any) -> Any:
    if isinstance(answer, StoreError):
        answer.attempts = 2
        return None
    return replace(answer, attempts=2) if hasattr(answer, "attempts") else None
