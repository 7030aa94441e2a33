"""Ties production to the model: is what a production process sent a path of the model's process?

`Recorder` stands between production code and its store and notes each request as its sender sees
it, bodies and answers included. `accepts` walks one of the model's generators along such a trace:
each request that the model yields must be the next of the trace, and the trace's answer, in the
model's words, is what the generator is sent. So the order of requests *and* what follows from each
answer are held against the model. A trace may end early (a crash, or an error that was raised).

What is not held against it, because no order of requests depends on it (`_is_left_out`): parts of
uploads; the proof of the store; the HEAD of the fence that finds it changed, for a GET follows; a
recovery's look how old the job is (`looks`). Requests that a pool sends side by side, about
different uploads or pendingsets, may come in any order (`may_wait`); those about the record, plans
and `_SUCCESS` may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magic_committer.commit.plan import Plan as StoredPlan
from magic_committer.commit.ready import from_pending
from magic_committer.errors import (
    NotFound,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.formats import decode_pending, decode_pendingset, decode_success
from magic_committer.job import (
    JOB_METADATA,
    TOKEN_METADATA,
    JobRecord,
    StartedJob,
    TaskCommit,
)
from magic_committer.paths import PENDINGSET_SUFFIX, Destination, JobPaths, uuid_in_name
from magic_committer.store import ObjectStore
from tests.model.actors import driver, others, task
from tests.model.actors.job import Job, Steps
from tests.model.store import (
    NOT_FOUND,
    OK,
    REFUSED,
    SUCCESS,
    UNANSWERED,
    Abort,
    Complete,
    Create,
    Data,
    Delete,
    File,
    Found,
    Get,
    List,
    ListParts,
    ListUploads,
    Marker,
    PendingSet,
    Plan,
    Put,
    Record,
    is_data,
)


@dataclass(frozen=True)
class Sent:
    """A request of the port and its answer: a value, or the error that was raised. Of a listing all
    pages together. ``options`` are its keyword arguments; ``body`` that of a PUT."""

    verb: str
    key: str
    answer: Any
    options: Mapping[str, Any]
    upload_id: str = ""
    keys: tuple[str, ...] = ()
    body: bytes = b""


class Recorder:
    """An `ObjectStore` that notes what is asked of it in ``trace``, and passes it on."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.trace: list[Sent] = []

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not callable(verb):
            return verb
        return lambda *args, **options: self._send(name, verb, args, options)

    def take(self) -> list[Sent]:
        """What was noted since the last time."""
        taken, self.trace = self.trace, []
        return taken

    def _send(self, name: str, verb: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if name == "delete":
            args = (tuple(args[0]),)
        try:
            answer = verb(*args, **options)
            if name in ("list", "list_uploads"):
                answer = list(answer)
        except StoreError as error:
            self._note(name, args, options, error)
            raise
        self._note(name, args, options, answer)
        return iter(answer) if name in ("list", "list_uploads") else answer

    def _note(self, name: str, args: tuple[Any, ...], options: dict[str, Any], answer: Any) -> None:
        uploads = ("put_part", "list_parts", "complete_upload", "abort_upload")
        self.trace.append(
            Sent(
                name,
                "" if name == "delete" else args[0],
                answer,
                options,
                args[1] if name in uploads else "",
                args[0] if name == "delete" else (),
                args[1] if name == "put" else b"",
            )
        )


NOT_YET = frozenset({"look first"})
"""Rules of the model that production does not keep: its traces are held against a model without."""

EXTRA_ABORTED = "magic-committer.aborted"
"""Marks a pendingset as the tombstone of an attempt."""

# Accepting ----------------------------------------------------------------------------------------

_SIDE_BY_SIDE = ("complete_upload", "abort_upload", "list_parts", "head", "get", "create_upload")
"""Verbs that a pool sends for many uploads or pendingsets at once."""


def accepts(kind: str, trace: Sequence[Sent], job: StartedJob, **known: Any) -> bool:
    """Whether a production process's requests are a path of the model's; see `refusal`."""
    return not refusal(kind, trace, job, **known)


def refusal(kind: str, trace: Sequence[Sent], job: StartedJob, **known: Any) -> str:
    """Why a trace is no path of the model's actor; "" if it is.

    Args:
        kind: ``setup``, ``attempt`` (track="memory"), ``commit``, ``abort``, ``recovery`` or
            ``operator`` (an abort with revert).
        known: of ``attempt``: ``name``; of ``commit``: ``results``, its `TaskCommit`s (None: it
            lists).
    """
    translator = _Translator(job, trace)
    steps = [step for step in trace if not translator.is_left_out(step)]
    if kind in ("recovery", "operator"):
        steps = steps[translator.looks(steps) :]
    model = translator.program(kind, **known)
    try:
        request = next(model)
        while steps:
            step = _next(steps, translator, request)
            if step is None:
                return f"the model sends {request}, production sent {steps[0]}"
            request = model.send(translator.answer(request, step, steps))
    except StopIteration as end:
        return f"the model has ended ({end.value}), production sent {steps[0]}" if steps else ""
    return ""


def _next(steps: list[Sent], translator: _Translator, request: Any) -> Sent | None:
    """The step that is the model's request: the first, or one that was sent beside it."""
    for index, step in enumerate(steps):
        if translator.is_same(request, step):
            return steps.pop(index)
        if not translator.may_wait(step, request):
            return None
    return None


class _Translator:
    """One production process's trace in the model's words."""

    def __init__(self, job: StartedJob, trace: Sequence[Sent]) -> None:
        self._job = job
        self._trace = trace
        self._dest = Destination.parse(job.dest)
        self._paths = JobPaths(self._dest, job.id)
        terms = job.terms
        self.model = Job(
            id=job.id,
            uuid=job.uuid,
            mode=terms.mode,
            accept=terms.accept,
            given=job.given_id,
            named=False,
            marks=terms.mark_success,
            without=NOT_YET,
        )
        self._own: dict[str, Record] = {}  # by production's nonce
        self._seen: dict[str, str] = {}  # ETags by key, while nothing else was sent about the key
        self._written: set[bytes] = set()  # records whose PUT took effect
        self._own_plan = next(
            (s.key for s in trace if s.verb == "put" and self._is_plan(s.key)), ""
        )
        self._by_etag: dict[str, Any] = {}  # bodies of plans and pendingsets
        read = [s for s in trace if s.verb == "get" and not isinstance(s.answer, StoreError)]
        for wanted in (PendingSet, Plan):  # a plan names pendingsets
            for step in read:
                body = self._body(step.key, step.answer.body)
                if isinstance(body, wanted):
                    self._by_etag[step.answer.info.etag] = body

    def program(
        self, kind: str, *, name: str = "", results: Iterable[TaskCommit] | None = None
    ) -> Steps:
        """The model's generator of a kind of process."""
        removes = self._job.undisturbed and not self._job.given_id
        match kind:
            case "setup":
                return driver.setup(self.model, "me")
            case "attempt":
                files = tuple(self.key(s.key) for s in self._trace if s.verb == "create_upload")
                return task.attempt(self.model, name, files=files, tells=False)
            case "commit":
                accepted = tuple(
                    (self.key(one.key), self._by_etag.get(one.etag, _unread(one)))
                    for one in sorted(results or (), key=lambda one: one.task)
                    if one.key
                )
                return driver.commit(self.model, "me", accepted, may_remove=removes)
            case "abort":
                return driver.abort(self.model, "me", may_remove=removes)
            case "recovery":
                return others.recovery(self.model, "me")
            case "operator":
                return others.operator(self.model, "me")
        raise ValueError(f"no actor {kind!r}")

    # Requests -------------------------------------------------------------------------------------

    def key(self, key: str) -> str:
        """A key in the model's words."""
        if key == self._paths.record:
            return self.model.record
        if self._is_plan(key):
            return self.model.plan("me" if key == self._own_plan else key)
        attempt = self._paths.attempt_of_pendingset(key)
        if attempt is not None:
            return self.model.set(attempt)
        if key.startswith(self._paths.directory):
            return self.model.tree + key.removeprefix(self._paths.directory)
        if key == self._dest.success_key:
            return SUCCESS
        name = self._dest.relative(key)
        uuid = uuid_in_name(name)
        return f"{name}-{uuid}" if uuid else name

    def is_left_out(self, step: Sent) -> bool:
        """Whether a request is none of the model's."""
        answered = not isinstance(step.answer, StoreError)
        if step.verb == "put_part":
            return True
        if step.verb == "put" and step.key == self._paths.record:
            again = step.body in self._written and isinstance(step.answer, PreconditionFailed)
            if answered:
                self._written.add(step.body)
            return again  # the proof of the store: what was written once is sent again
        if step.verb != "head" or not answered:
            self._seen.pop(step.key, None)
            return False
        if step.key == self._paths.record:
            return bool(step.answer.etag != self._job.fence_etag)
        # A second look at the same version, before it is deleted, tells nothing new.
        again = bool(self._seen.get(step.key) == step.answer.etag)
        self._seen[step.key] = step.answer.etag
        return again

    def may_wait(self, step: Sent, request: Any) -> bool:
        """Whether a step may have been sent beside the model's request, which comes later in the
        trace: of a revert, the deletes too."""
        key = self.key(step.key) if step.key else ""
        if not (is_data(key) or key.startswith(self.model.sets)):
            return False
        undoing = isinstance(request, Abort | Get | Delete)
        return step.verb in _SIDE_BY_SIDE or (step.verb == "delete_one" and undoing)

    def looks(self, steps: Sequence[Sent]) -> int:
        """How many requests come before the read of the record that a recovery acts upon: it looks
        how old the job is, and passes it on to a committer that reads for itself."""
        last = 0
        for index, step in enumerate(steps):
            if step.verb == "get" and step.key == self._paths.record:
                last = index
            elif step.verb != "list" or step.key != self._paths.directory:
                break
        return last

    def is_same(self, request: Any, step: Sent) -> bool:
        """Whether a step is the model's request."""
        match request:
            case Get(key):
                return step.verb in ("get", "head") and self.key(step.key) == key
            case Put(key, _, if_match, if_none_match):
                return (
                    step.verb == "put"
                    and self.key(step.key) == key
                    and (step.options.get("if_match") is not None) == (if_match is not None)
                    and bool(step.options.get("if_none_match")) == if_none_match
                )
            case Delete(keys, if_match):
                gone = step.keys if step.verb == "delete" else (step.key,)
                return (
                    step.verb in ("delete", "delete_one")
                    and {self.key(key) for key in gone} == set(keys)
                    and (step.options.get("if_match") is not None) == (if_match is not None)
                )
            case List(prefix):
                return step.verb == "list" and self._prefix(step.key) == prefix
            case ListUploads(prefix):
                sent = "" if step.key == self._dest.prefix else self.key(step.key)
                return step.verb == "list_uploads" and sent == prefix
            case Create(key, _):
                return step.verb == "create_upload" and self.key(step.key) == key
            case Complete(key, upload, if_none_match):
                same = bool(step.options.get("if_none_match")) == if_none_match
                return same and self._is_of_upload(step, "complete_upload", key, upload)
            case Abort(key, upload):
                return self._is_of_upload(step, "abort_upload", key, upload)
            case ListParts(key, upload):
                return self._is_of_upload(step, "list_parts", key, upload)
        return False

    def _is_of_upload(self, step: Sent, verb: str, key: str, upload: str) -> bool:
        return step.verb == verb and step.upload_id == upload and self.key(step.key) == key

    def _prefix(self, prefix: str) -> str:
        if prefix == self._paths.directory:
            return self.model.directory
        if prefix == self._paths.job_attempt:
            return self.model.sets
        return "_" if prefix == self._dest.jobs_prefix else self._dest.relative(prefix)

    def _is_plan(self, key: str) -> bool:
        return key.startswith(f"{self._paths.directory}plan-")

    # Answers --------------------------------------------------------------------------------------

    def answer(self, request: Any, step: Sent, later: Sequence[Sent]) -> Any:
        """A step's answer in the model's words."""
        answer = step.answer
        if isinstance(request, Put) and isinstance(request.body, Record):
            self._own[JobRecord.decode(step.body, step.key).nonce] = request.body
        if isinstance(answer, Unanswered):
            again = any(self.is_same(request, other) for other in later)
            if isinstance(request, Delete | Abort) and not again:
                return OK  # production notes the failure and leaves the rest to the sweep
            return UNANSWERED
        if isinstance(answer, NotFound):
            return OK if step.verb == "abort_upload" else NOT_FOUND
        if isinstance(answer, PreconditionFailed | WriteConflict):
            return REFUSED
        if isinstance(answer, StoreError):
            raise AssertionError(f"the model's store never answers {answer!r}")
        match request:
            case Create():
                return answer.upload_id
            case Get():
                return Found(*self._found(step))
            case List():
                return tuple(self._listed(step))
            case ListUploads():
                return tuple((self.key(u.key), u.upload_id) for p in answer for u in p.uploads)
        return OK

    def _found(self, step: Sent) -> tuple[Any, int]:
        if step.verb == "get":
            body = self._body(step.key, step.answer.body)
            return body, int(step.answer.info.last_modified)
        info = step.answer
        metadata = info.metadata or {}
        if step.key == self._paths.record:
            return self.model.first, int(info.last_modified)
        if self._paths.attempt_of_pendingset(step.key) is not None or self._is_plan(step.key):
            return PendingSet(metadata.get(JOB_METADATA, ""), "", "", ()), 0
        uuid, _, rest = metadata.get(TOKEN_METADATA, "").partition(".")
        return Data(uuid, rest.partition(".")[0], info.etag), int(info.last_modified)

    def _listed(self, step: Sent) -> Iterator[tuple[str, Any]]:
        infos = [info for page in step.answer for info in page.objects]
        if step.key == self._paths.job_attempt:
            # The model takes the last of a task, production the newest: the same, in this order.
            infos = [info for info in infos if info.key.endswith(PENDINGSET_SUFFIX)]
            infos.sort(key=lambda info: (info.last_modified, info.key))
        for info in infos:
            yield self.key(info.key), info.etag
        for page in step.answer:
            for prefix in page.prefixes:
                yield f"_{prefix.removeprefix(self._dest.jobs_prefix)}job.json", ""

    def _body(self, key: str, body: bytes) -> Any:
        if key == self._dest.success_key:
            found = decode_success(body, key).diagnostics or {}
            completed = int(float(found.get("magic-committer.completed", 0)))
            nonce = found.get("magic-committer.nonce", "")
            return Marker(found.get("magic-committer.job", ""), completed, nonce)
        if key == self._paths.record:
            return self._record(JobRecord.decode(body, key))
        if self._is_plan(key):
            plan = StoredPlan.decode(body, key)
            sets = tuple(
                (self.model.set(one.attempt), self._by_etag.get(one.etag, one.etag))
                for one in plan.sets
            )
            return Plan(plan.uuid, plan.nonce, sets)
        if key.endswith(PENDINGSET_SUFFIX):
            stored = decode_pendingset(body, key)
            extra = stored.extra_data or {}
            task, attempt = (extra.get(f"magic-committer.{n}", "") for n in ("task", "attempt"))
            uuid = extra.get("magic-committer.job", "")
            files = tuple(self._file(pending) for pending in stored.commits)
            return PendingSet(uuid, task, attempt, files, extra.get(EXTRA_ABORTED) == "true")
        pending = decode_pending(body, key)
        return PendingSet(self._job.uuid, "", "", (self._file(pending),))

    def _file(self, pending: Any) -> File:
        upload = from_pending(pending, "")
        uuid, attempt, _ = upload.token.split(".")
        return File(self.key(upload.key), upload.upload_id, (uuid, attempt))

    def _record(self, record: JobRecord) -> Record:
        if record.nonce in self._own:
            return self._own[record.nonce]
        if record.uuid == self._job.uuid and record.state == "running":
            return self.model.first
        plan = None
        if record.plan is not None:
            plan = self.key(record.plan.key), self._by_etag.get(record.plan.etag, "")
        mode, outcome = record.terms.mode, record.outcome
        return Record(record.uuid, str(record.state), record.nonce, mode, plan, None, outcome)


def _unread(one: TaskCommit) -> PendingSet:
    return PendingSet(one.job_uuid, one.task, one.attempt, ())
