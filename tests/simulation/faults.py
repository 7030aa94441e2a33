"""What goes wrong at a request, and the store's hooks that make it so.

Each request is a turn of the scheduler. Then a fault may strike it:

=================  =================================================================================
error before       no effect; the sender gets `Unanswered`
slow down          the same, with S3's 503 SlowDown
refused            no effect; the sender gets 403; one time in three also for its next requests of
                   that verb
lost reply         the effect, then `Unanswered`
late               `Unanswered` at once; the effect later, or never: at most 15 minutes later, for
                   which a signature of Signature V4 is good
sent twice         the effect, its reply lost; the adapter sends it again, and its answer says
                   ``attempts=2``: a Create makes two uploads, a conditional PUT meets itself
late and again     sent again as above, but the first one lands later than the second, or never
crash before       the actor dies, the request was never sent
crash after        the actor dies after the effect
crash in flight    the actor dies, the request lands later, or never
conflict           409 of a write, no effect: another write of the key was under way
condition          412 of a conditional write, no effect, whether its condition held or not
bad request        400, no effect
refused again      the first try takes effect, or lands later; the second is refused: 403, and
                   ``attempts=2``
refused after      the effect; then a gateway's 403 in the place of the store's answer
some keys fail     a batch delete answers for some of its keys with an error each
false success      the server is killed inside a Complete (versitygw): the upload is neither open
                   nor completed, and every Complete of it is answered with 200 from then on, until
                   an operator repairs the server, at the end. The first sender hears nothing, or
                   its second try's 200. In half of the schedules the jobs know that the store
                   answers so. In the others nothing is stuck by a Complete of who did not decide
                   while he lives who did: he believes such a store (protocol.md, "What is not
                   promised")
stale listing      a listing of uploads does not show some that are open, or shows some that are not
pause              the actor stands still for hours: no late request of anybody's is left then
clock jump         the actor's wall clock jumps by hours
=================  =================================================================================
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from magic_committer.errors import (
    InvalidRequest,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.stores.base import UploadInfo, UploadPage, Written
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.stores.memory_bucket import OpenUpload
from tests.simulation.kinds import KINDS, RARE, WRITES, kind_of
from tests.simulation.promises import Watch
from tests.simulation.scheduler import Actor, Killed, Scheduler, Strand

FAULTS = (
    "error before", "slow down", "refused", "lost reply", "late", "sent twice", "late and again",
    "crash before", "crash after", "crash in flight", "pause", "clock jump",
    "conflict", "condition", "bad request", "refused again", "refused after", "some keys fail",
    "stale listing", "false success",
)  # fmt: skip
HARMLESS = ("pause", "clock jump", "sent twice", "stale listing")
"""Faults that excuse no litter: a paused process, a wrong clock, a retry that was answered; what a
listing did not show is excused by itself."""

UNHEARD = (
    "lost reply", "late", "sent twice", "late and again", "refused again", "refused after",
    "crash after",
)  # fmt: skip
"""Faults after which a request has, or may have, taken effect, and its sender does not know."""

CONDITIONAL = (
    "create record", "swap record", "put pendingset", "put _SUCCESS", "put ledger",
    "complete_upload",
)  # fmt: skip
"""Kinds that a store may answer with 412 though nobody else is there: an own earlier try was."""
CONFLICTING = (
    *(kind for kind in KINDS if kind.startswith(("put ", "delete_one "))),
    "create record", "swap record", "complete_upload",
)  # fmt: skip
ONLY_FOR: dict[str, tuple[str, ...]] = {
    "conflict": CONFLICTING, "condition": CONDITIONAL, "refused again": WRITES,
    "refused after": ("swap record",), "some keys fail": ("delete",),
    "stale listing": ("list_uploads",), "false success": ("complete_upload",),
}  # fmt: skip
"""Faults that make sense for some kinds only: a read is no write conflict, takes no effect late and
has no condition; only a batch has keys; of listings only that of uploads may lie (`store`). What
was done and is refused is looked at where it decides. All others may strike any kind."""

NOT_ON_TREES = frozenset(("some keys fail", "false success", "stale listing", "late and again"))
"""What no directory does: a batch of deletes is one call for each file, a rename is true, a listing
shows what is there, and the store itself asks for nothing again."""

REFUSED_MORE_MAX = 4
"""Requests of its verb that are refused after a first one."""

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
    sent: int


@dataclass(slots=True)
class Call:
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
        self.left_out = frozenset[str]()
        self.struck: list[tuple[str, str]] = []
        self.requests = 0
        self.by_kind: Counter[str] = Counter()
        self.calls: deque[Call] = deque(maxlen=CALLS_KEPT)
        self._hash = hashlib.blake2b(digest_size=16)
        self._scheduler = scheduler
        self._watch = watch
        self._chance = chance
        self.abort_costs = False
        """An abort of a completed upload takes its object with it, as on some stores."""
        self.lies_known = False
        """The probe has found that the store answers 200 falsely."""
        self._stuck: dict[str, OpenUpload] = {}
        self._late: list[Late] = []
        self._fates: dict[Strand, str] = {}
        self._refused: Counter[tuple[str, str]] = Counter()
        self._spared: dict[Strand, dict[str, Any]] = {}
        store.before, store.after = self.before, self.after
        scheduler.on_step = self.land

    @property
    def trace(self) -> str:
        """A hash of every call and its answer, in order."""
        return self._hash.hexdigest()

    def note(self, actor: str, kind: str, key: str, note: str = "") -> None:
        self._hash.update(f"{actor} {kind} {key} {note}\n".encode())
        self.calls.append(Call(self._scheduler.steps, actor, kind, key, note))

    # The hooks ------------------------------------------------------------------------------------

    def before(self, request: Request) -> None:
        strand = self._scheduler.current
        assert strand is not None, f"a request outside of the schedule: {request}"
        actor = strand.actor
        if actor.dead:
            raise Killed
        kind = kind_of(request)
        self._wait(actor, kind)
        self.requests += 1
        self.by_kind[kind] += 1
        self.note(actor.name, kind, request.key or " ".join(request.keys))
        strand.sent = self._scheduler.steps
        if kind == "put plan":
            self._watch.truth.note_plan_sent(request.key, actor)
        if self._refused[actor.name, request.verb]:
            self._refused[actor.name, request.verb] -= 1
            self._answer(answer_of("refused", request), request, strand)
        fault = self._due(request, kind)
        if fault is not None:
            self.struck.append((kind, fault.kind))
            self._strike(fault.kind, request, strand)

    def _wait(self, actor: Actor, kind: str) -> None:
        """Others go first: how many depends on how slow the process is."""
        for signal in actor.awaited.pop(kind, ()):
            self._scheduler.notify(signal)
        seconds = actor.holds.pop(kind, 0.0) if actor.holds else 0.0
        if actor.latency:
            seconds += actor.latency * self._chance.random()
        if seconds:
            self._scheduler.sleep(seconds)
        else:
            self._scheduler.turn()

    def calm(self) -> None:
        """No fault strikes any more, and what is stuck in the server is brought back, if its job is
        still being completed: else nobody would look for it."""
        self.faults = []
        truth = self._watch.truth
        jobs = [job for job in truth.jobs.values() if job.state == "committing"]
        for upload_id, upload in self._stuck.items():
            if any(upload_id in job.accepted for job in jobs):
                truth.store._bucket.uploads[upload.upload_id] = upload
                truth.open.add(upload_id)
        self._stuck.clear()
        self._refused.clear()

    def after(self, request: Request, answer: Any) -> Any:
        strand = self._scheduler.current
        assert strand is not None
        if isinstance(answer, StoreError):
            word = type(answer).__name__
            self._hash.update(word.encode())
            self.calls[-1].note += f" -> {word}"
        fate = self._fates.pop(strand, "") if self._fates else ""
        if fate == "some keys fail":
            answer = self._put_back(request, answer, strand)
        self._judge(request, answer, strand.actor, strand.sent)
        if fate == "some keys fail":
            return answer
        if fate == "stale listing" and not isinstance(answer, StoreError):
            return self._stale(request, answer)
        if fate == "crash after":
            self._scheduler.kill(strand.actor)
            raise Killed
        if fate == "refused after":
            raise answer_of("refused", request)
        if fate == "lost reply":
            raise _unanswered(request, "its reply is lost")
        if request.verb == "complete_upload" and request.upload_id in self._stuck:
            return Written('"as-if-1"', attempts=2 if fate == "false success" else 1)
        if fate == "again":
            return _sent_twice(answer)
        return None

    def _judge(self, request: Request, answer: Any, actor: Actor, sent: int) -> None:
        self._watch.effect(request, answer, actor, sent)
        answered = request.verb == "abort_upload" and not isinstance(answer, StoreError)
        if self.abort_costs and answered:
            self._watch.abort_took(request.upload_id, request.key)

    def _answer(self, error: StoreError, request: Request, strand: Strand) -> None:
        """A fault's answer, in the store's place."""
        self.calls[-1].note += f" -> {type(error).__name__}"
        self._watch.injected(request, error, strand.actor)
        raise error

    # Faults ---------------------------------------------------------------------------------------

    def _due(self, request: Request, kind: str) -> Fault | None:
        for fault in self.faults:
            if fault.kind in self.left_out or not may_strike(fault.kind, kind):
                continue
            if fault.target not in ("", kind):
                continue
            count = self.by_kind[kind] if fault.target else self.requests
            if count == fault.nth or (count > fault.nth and not fault.target):
                self.faults.remove(fault)
                return fault
        return None

    def _strike(self, fault: str, request: Request, strand: Strand) -> None:
        actor = strand.actor
        self.calls[-1].note = f"[{fault}]"
        actor.hurt = actor.hurt or fault not in HARMLESS
        actor.sent_twice = actor.sent_twice or fault == "sent twice"
        if fault in UNHEARD:
            self._watch.unheard.add(strand.sent)
        if fault == "error before":
            raise _unanswered(request, "the connection broke")
        if fault == "refused" and self._chance.random() < 0.3:
            more = 1 + int(self._chance.random() * REFUSED_MORE_MAX)
            self._refused[actor.name, request.verb] = more
        if fault in ANSWERS:
            self._answer(answer_of(fault, request), request, strand)
        if fault == "refused again":
            if self._chance.random() < 0.4:
                self._carry_out(request, actor, strand.sent)
            else:
                self._send_late(request, strand)
            self._scheduler.sleep(0.1)
            raise answer_of("refused", request, attempts=2)
        if fault in ("lost reply", "refused after", "crash after", "stale listing"):
            self._fates[strand] = fault
        elif fault == "some keys fail":
            objects = self._watch.truth.store._bucket.objects
            kept = [key for key in request.keys if self._chance.random() < 0.5]
            self._spared[strand] = {key: objects[key] for key in kept if key in objects}
            self._fates[strand] = fault
        elif fault == "false success":
            if not self.lies_known and self._decider_lives_beside(request.upload_id, actor):
                raise _unanswered(request, "the connection broke")
            self._stick(request)
            if self._chance.random() < 0.5:
                raise _unanswered(request, "the server was killed")
            self._fates[strand] = fault
        elif fault == "late":
            self._send_late(request, strand)
            raise _unanswered(request, "no answer in time")
        elif fault in ("sent twice", "late and again"):
            if fault == "sent twice":
                self._carry_out(request, actor, strand.sent)
            else:
                self._send_late(request, strand)
            self._scheduler.sleep(0.1)
            self._fates[strand] = "again"
        elif fault.startswith("crash"):
            if fault == "crash in flight":
                self._send_late(request, strand)
            self._scheduler.kill(actor)
            raise Killed
        elif fault == "pause":
            actor.paused_until = self._scheduler.now + PAUSE_SECONDS * (1 + self._chance.random())
            self._scheduler.turn()
        else:
            actor.skew += self._chance.choice((-90_000.0, -7_000.0, 7_000.0, 90_000.0))

    def _decider_lives_beside(self, upload_id: str, actor: Actor) -> bool:
        """Whether another process decided the job of an upload, and has not ended."""
        waiting = self._scheduler.waiting
        return any(
            job.decided_by != actor.name and job.decided_by in waiting
            for job in self._watch.truth.jobs.values()
            if upload_id in job.accepted
        )

    def _stick(self, request: Request) -> None:
        """The upload is in the server, and nobody sees it."""
        truth = self._watch.truth
        upload = truth.store._bucket.uploads.pop(request.upload_id, None)
        if upload is not None:
            truth.open.discard(request.upload_id)
            self._stuck[request.upload_id] = upload

    def _put_back(self, request: Request, answer: Any, strand: Strand) -> Any:
        """Some objects of a batch that was deleted, in this very step, were not."""
        spared = self._spared.pop(strand)
        if isinstance(answer, StoreError):
            return answer
        self._watch.truth.store._bucket.objects.update(spared)
        return {**answer, **{key: answer_of("slow down", request) for key in spared}}

    def _stale(self, request: Request, answer: Any) -> Any:
        """A page of uploads that leaves some out, or shows some that have ended."""
        page, bound = answer
        truth, chance = self._watch.truth, self._chance
        if chance.random() < 0.5:
            left_out = {u.upload_id for u in page.uploads if chance.random() < 0.7}
            truth.hidden |= left_out
            uploads = [u for u in page.uploads if u.upload_id not in left_out]
        else:
            ended = [
                UploadInfo(upload.key, upload_id, initiated=float(int(upload.time)))
                for upload_id, upload in truth.uploads.items()
                if upload_id not in truth.open and upload.key.startswith(request.key)
            ]
            uploads = [*page.uploads, *ended]
        uploads.sort(key=lambda u: (u.key, u.initiated or 0.0))
        return UploadPage(tuple(uploads), page.seen_at), bound

    def _send_late(self, request: Request, strand: Strand) -> None:
        if self._chance.random() < NEVER:
            return
        now = self._scheduler
        due = now.steps + 1 + int(self._chance.random() ** 3 * LATE_STEPS_MAX)
        expires = now.now + SIGNATURE_SECONDS
        self._late.append(Late(request, strand.actor, due, expires, strand.sent))

    def _carry_out(self, request: Request, actor: Actor, sent: int) -> None:
        try:
            answer = request.effect()
        except StoreError as error:
            answer = error
        self._judge(request, answer, actor, sent)

    def land(self) -> bool:
        """Let late requests land that are due. Where nobody is left to act, all are."""
        if not self._late:
            return False
        idle = not self._scheduler.busy
        steps, now = self._scheduler.steps, self._scheduler.now
        self._late = [late for late in self._late if late.expires >= now]
        due = [late for late in self._late if idle or late.due_step <= steps]
        for late in due:
            self._late.remove(late)
            self.note(late.actor.name, kind_of(late.request), late.request.key, "[lands late]")
            self._carry_out(late.request, late.actor, late.sent)
        return bool(due)


TARGETS = (*KINDS, *RARE, *RARE, *RARE, *RARE)


FAULTS_MAX = 3
LEADS_TO = {
    "list_parts": (("error before", "refused", "refused", "bad request"), "complete_upload"),
    "head data": (("lost reply", "conflict", "refused"), "complete_upload"),
    "get plan": (("crash after",), "swap record"),
}
"""Requests that hardly occur unless something else went wrong before: faults and kind."""


def may_strike(fault: str, kind: str) -> bool:
    """Whether a fault makes sense for a kind of request."""
    return kind in ONLY_FOR.get(fault, (kind,))


FAULTS_OF = {kind: tuple(f for f in FAULTS if may_strike(f, kind)) for kind in KINDS}
CELLS = tuple((kind, fault) for kind, faults in FAULTS_OF.items() for fault in faults)
"""The table request × fault: every cell that makes sense is to be struck."""


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
    faults.append(Fault(chance.choice(FAULTS_OF[target]), target, nth))
    if target in LEADS_TO and len(faults) < FAULTS_MAX:
        faults.append(leading_to(target, chance))


def leading_to(target: str, chance: random.Random) -> Fault:
    """A fault after which a request of a rare kind is sent."""
    before, kind = LEADS_TO[target]
    return Fault(chance.choice(before), kind, 1 + (kind == "swap record"))


ANSWERS: dict[str, tuple[type[StoreError], str, int, str]] = {
    "slow down": (Unanswered, "slow down", 503, "SlowDown"),
    "refused": (PermissionDenied, "refused", 403, "AccessDenied"),
    "conflict": (WriteConflict, "another write is under way", 409, "ConditionalRequestConflict"),
    "condition": (PreconditionFailed, "a condition did not hold", 412, "PreconditionFailed"),
    "bad request": (InvalidRequest, "bad request", 400, "InvalidRequest"),
}
"""Faults that are an answer, without effect."""


def answer_of(fault: str, request: Request, attempts: int = 1) -> StoreError:
    """What the store answers to a request that such a fault strikes."""
    kind, words, status, code = ANSWERS[fault]
    return kind(
        f"{request.verb} {request.key}: {words}", operation=request.verb, key=request.key,
        status=status, code=code, attempts=attempts,
    )  # fmt: skip


def _unanswered(request: Request, why: str) -> Unanswered:
    words = f"{request.verb} {request.key}: {why}"
    return Unanswered(words, operation=request.verb, key=request.key, status=0, code="")


def _sent_twice(answer: Any) -> Any:
    if isinstance(answer, StoreError):
        answer.attempts = 2
        return None
    return answer._replace(attempts=2) if hasattr(answer, "attempts") else None
