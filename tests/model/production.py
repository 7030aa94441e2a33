"""Ties production to the model: is what a production process sent a path of the model's process?

`Recorder` stands between production code and its store and notes each request as its sender sees
it, bodies and answers included. `accepts` walks one of the model's generators along such a trace:
each request that the model yields must be the next of the trace, and the trace's answer, in the
model's words, is what the generator is sent. So the order of requests *and* what follows from each
answer are held against the model. A trace may end early (a crash, or an error that was raised).

What is not held against it, because no promise can depend on it (`is_left_out`): parts of uploads;
the HEAD of the fence that finds it changed, for a GET follows; markers
under the magic path, which nobody reads; a recovery's look how old the job is (`looks`); the proof
of an abort (`Stutters`), for the model's aborts are final; closed records of other jobs, for these
are over. A walk through the directories of a destination is one listing (`_walked`), for the model
has no directories there.
Requests that a pool sends side by side, about
different uploads, pendingsets or partitions, may come in any order (`may_wait`); those about
records, plans and `_SUCCESS` may not. A listing of uploads is sent before the model's next
requests, and may be answered after them, as long as nothing is changed but by aborts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from magic_committer.commit.sets import from_pending, is_tombstone
from magic_committer.errors import (
    NotFound,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.documents import decode_pending, decode_pendingset, decode_success
from magic_committer.hadoop.paths import (
    HIDDEN,
    PENDING_SUFFIX,
    PENDINGSET_SUFFIX,
    Destination,
    JobPaths,
    is_hidden,
    uuid_in_name,
)
from magic_committer.options import BY_PARTITION
from magic_committer.protocol.plan import Plan as StoredPlan
from magic_committer.protocol.record import (
    JOB_METADATA,
    TOKEN_METADATA,
    JobRecord,
    StartedJob,
    State,
    TaskCommit,
)
from magic_committer.stores.base import ObjectInfo, ObjectStore, StoredObject
from tests.model.actors import driver, others, task
from tests.model.actors.job import Job, Steps
from tests.model.search import writes_the_record
from tests.model.store import (
    DENIED,
    NOT_FOUND,
    OK,
    REFUSED,
    SUCCESS,
    UNANSWERED,
    Abort,
    Complete,
    Create,
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
    pages together. ``options`` are its keyword arguments; ``body`` that of a PUT.
    """

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
        return partial(self._send, name, verb) if callable(verb) else verb

    def take(self) -> list[Sent]:
        """What was noted since the last time."""
        taken, self.trace = self.trace, []
        return taken

    def _send(self, name: str, verb: Any, first: Any, *rest: Any, **options: Any) -> Any:
        key, keys = ("", tuple(first)) if name == "delete" else (first, ())
        upload = rest[0] if name.endswith(("_upload", "_part", "_parts")) and rest else ""
        lists = name in ("list", "list_uploads")
        try:
            answer = verb(keys or key, *rest, **options)
            answer = list(answer) if lists else answer
        except StoreError as error:
            answer = error
        body = rest[0] if name == "put" else b""
        self.trace.append(self._read(Sent(name, key, answer, options, upload, keys, body)))
        if isinstance(answer, StoreError):
            raise answer
        return iter(answer) if lists else answer

    def _read(self, sent: Sent) -> Sent:
        """A driver that looks at a set of its own process knows what it holds: for the model it has
        read it."""
        if sent.verb != "head" or not isinstance(sent.answer, ObjectInfo):
            return sent
        if not sent.key.endswith(PENDINGSET_SUFFIX):
            return sent
        held: Any = self._store
        return replace(sent, verb="get", answer=StoredObject(sent.answer, held.body(sent.key)))


# Accepting ----------------------------------------------------------------------------------------

_SIDE_BY_SIDE = ("complete_upload", "abort_upload", "list_parts", "head", "get", "create_upload")
"""Verbs that a pool sends for many uploads or pendingsets at once."""


_CHANGES = ("put", "delete", "delete_one", "complete_upload")


def accepts(kind: str, trace: Sequence[Sent], job: StartedJob, **known: Any) -> bool:
    """Whether a production process's requests are a path of the model's; see `refusal`."""
    return not refusal(kind, trace, job, **known)


def refusal(kind: str, trace: Sequence[Sent], job: StartedJob, **known: Any) -> str:
    """Why a trace is no path of the model's actor; "" if it is. ``kind``: ``setup``, ``attempt``
    (track="memory"), ``commit``, ``abort``, ``recovery`` or ``operator`` (an abort with revert); of
    attempts with track="s3" ``close`` (one file), ``commit attempt`` and ``abort attempt``.
    ``known``: of attempts: ``name``; of the last two also ``of_task`` and ``closed``, the trace by
    which this handle closed its files; of ``commit``: ``results``, its `TaskCommit`s (None: it
    lists)."""
    trace = _walked(trace, job)
    stutters = Stutters(trace, job)
    if stutters.problem:
        return stutters.problem
    translator = _Translator(job, trace)
    steps = [step for step in trace if not stutters.has(step) and not translator.is_left_out(step)]
    if kind in ("recovery", "operator"):
        steps = steps[translator.looks(steps) :]
    model, first = translator.program(kind, **known), kind == "commit"
    try:
        request = next(model)
        while steps:
            step = _next(steps, translator, request)
            given_up = first or all(one.verb not in _CHANGES for one in steps)
            first = False
            if step is None and isinstance(request, ListUploads) and given_up:
                request = model.send(())  # by who did not need it, or was killed
                continue
            if step is None:
                return f"the model sends {request}, production sent {steps[0]}"
            before, request = request, model.send(translator.answer(request, step, steps))
            if translator.lists_data(before) and not translator.lists_data(request):
                # It has seen enough: other listings were under way.
                while steps and steps[0].verb == "list" and translator.is_of_data(steps[0].key):
                    steps.pop(0)
    except StopIteration as end:
        return f"the model has ended ({end.value}), production sent {steps[0]}" if steps else ""
    return ""


def _next(steps: list[Sent], translator: _Translator, request: Any) -> Sent | None:
    """The step that is the model's request: the first, or one that was sent beside it."""
    for index, step in enumerate(steps):
        if translator.is_same(request, step):
            return steps.pop(index)
        if isinstance(request, ListUploads) and step.verb not in _CHANGES:
            continue  # a listing of uploads goes beside what reads, and aborts
        if not translator.may_wait(step, request):
            return None
    return None


def _walked(trace: Sequence[Sent], job: StartedJob) -> list[Sent]:
    """The trace with each walk through the destination's directories as one listing."""
    dest = Destination.parse(job.dest)
    if job.terms.mode in BY_PARTITION:
        return list(trace)
    walked: list[Sent] = []
    for step in trace:
        last = walked[-1] if walked else None
        below = step.key.startswith(dest.prefix) and step.key != dest.prefix
        below = below and not step.key.startswith(dest.jobs_prefix) and step.verb == "list"
        walks = last is not None and last.verb == "list" and last.key == dest.prefix
        if last is not None and walks and below and not isinstance(step.answer, StoreError):
            walked[-1] = replace(last, answer=[*last.answer, *step.answer])
        else:
            walked.append(step)
    return walked


class Stutters:
    """Requests of a trace that the model does not send, for no promise can depend on them.

    * ListParts behind each abort, and HEAD of its key if it was looked at before: they prove what
      the model's abort is by itself, and change nothing but a count. That they are there is held
      against production, here.
    * Reads of other jobs' records by who has closed its own: it looks for old closed ones.

    Attributes:
        problem: an abort without a proof; "" if there is none.
    """

    def __init__(self, trace: Sequence[Sent], job: StartedJob) -> None:
        self._ids: set[int] = set()
        self.problem = ""
        self._dest = Destination.parse(job.dest)
        self._own = JobPaths(self._dest, job.id).record
        self._tidies = self._has_closed = False
        for index, step in enumerate(trace):
            if step.verb == "abort_upload" and not isinstance(step.answer, Unanswered):
                self._prove(trace, index)
            else:
                self._tidy(step)

    def has(self, step: Sent) -> bool:
        """Whether a step is one of them."""
        return id(step) in self._ids

    def _prove(self, trace: Sequence[Sent], index: int) -> None:
        aborted = trace[index]
        behind = trace[index + 1 :]
        proof = next((s for s in behind if s.upload_id == aborted.upload_id), None)
        if proof is None:  # it was killed before that; others may have been under way
            if any(step.verb not in _SIDE_BY_SIDE for step in behind):
                self.problem = f"production did not prove {aborted}"
            return
        if proof.verb != "list_parts" or not isinstance(proof.answer, NotFound):
            self.problem = f"production took for a proof of {aborted}: {proof}"
            return
        self._ids.add(id(proof))
        if self._was_recognised(trace[:index], aborted):
            behind = behind[behind.index(proof) + 1 :]
            about = (s for s in behind if s.key == aborted.key and s.verb == "head")
            if (ended := next(about, None)) is not None:
                self._ids.add(id(ended))

    def _was_recognised(self, ahead: Sequence[Sent], aborted: Sent) -> bool:
        """Whether an upload was looked at before its abort, its object too."""
        looked = False
        for step in reversed(ahead):
            if step.verb == "put" and step.key == self._own:
                return False  # that look was for something else
            if step.verb == "list_parts" and step.upload_id == aborted.upload_id:
                looked = True
            elif looked and step.key == aborted.key:
                return step.verb == "head"
        return False

    def _tidy(self, step: Sent) -> None:
        if step.verb == "put" and step.key == self._own and not isinstance(step.answer, StoreError):
            self._has_closed = JobRecord.decode(step.body, step.key).state is State.CLOSED
        listed = step.verb == "list" and step.key == self._dest.jobs_prefix
        if listed:
            self._tidies = self._has_closed and "start_after" in step.options
        other = step.verb == "get" and step.key.endswith("/_job.json") and step.key != self._own
        if self._tidies and (listed or other):
            self._ids.add(id(step))


@dataclass(frozen=True)
class _Version:
    """An object of data as a store shows it; of two looks the same if the ETag is."""

    etag: str
    token: tuple[str, str] = field(default=("", ""), compare=False)


class _Translator:
    """One production process's trace in the model's words."""

    def __init__(self, job: StartedJob, trace: Sequence[Sent]) -> None:
        self._job = job
        self._trace = trace
        self._dest = Destination.parse(job.dest)
        self._paths = JobPaths(self._dest, job.id)
        terms = job.terms
        self.model = Job(
            id=job.id, uuid=job.uuid, mode=terms.mode, accept=terms.accept, given=job.given_id,
            named=False, marks=terms.mark_success,
        )  # fmt: skip
        self._own: dict[str, Record] = {}  # by production's nonce
        plans = [s.key for s in trace if s.verb == "put" and self._is_plan(s.key)]
        plans = list(dict.fromkeys(plans))
        announces = terms.mode in BY_PARTITION
        self._own_announcement = plans[0] if plans and announces else ""
        self._own_plan = next(iter(plans[announces:]), "")
        self._by_etag: dict[str, Any] = {}  # bodies of plans and pendingsets
        read = [s for s in trace if s.verb == "get" and not isinstance(s.answer, StoreError)]
        for wanted in (Marker, PendingSet, Plan):  # a plan names pendingsets
            for step in read:
                body = self._body(step.key, step.answer.body)
                if isinstance(body, wanted):
                    self._by_etag[step.answer.info.etag] = body

    def program(
        self, kind: str, *, name: str = "", of_task: str = "", closed: Sequence[Sent] = (),
        results: Iterable[TaskCommit] | None = None,
    ) -> Steps:  # fmt: skip
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
            case "close":
                (file,) = (self.key(s.key) for s in self._trace if s.verb == "create_upload")
                return task.closer(self.model, name, file)
            case "commit attempt":
                return task.committing(self.model, name, of_task, self._own_files(closed))
            case "abort attempt":
                return task.aborting(self.model, name, of_task, self._own_files(closed))
        raise ValueError(f"no actor {kind!r}")

    # Requests -------------------------------------------------------------------------------------

    def _own_files(self, closed: Sequence[Sent]) -> tuple[File, ...]:
        """The files that were saved in a trace."""
        saved = (s for s in closed if s.verb == "put" and s.key.endswith(PENDING_SUFFIX))
        return tuple(self._file(decode_pending(step.body, step.key)) for step in saved)

    def key(self, key: str) -> str:
        """A key, or a prefix, in the model's words."""
        if key.startswith(self._dest.jobs_prefix) and key != self._dest.jobs_prefix:
            return self._control_key(key)
        if key == self._dest.success_key:
            return SUCCESS
        if not self._dest.contains(key):
            return ""
        name = self._dest.relative(key)
        uuid = uuid_in_name(name)
        return f"{name}-{uuid}" if uuid else name

    def _control_key(self, key: str) -> str:
        job_id = key.removeprefix(self._dest.jobs_prefix).partition("/")[0]
        paths, model = JobPaths(self._dest, job_id), replace(self.model, id=job_id)
        if key == paths.record:
            return model.record
        if key == self._own_plan:
            return model.plan("me")
        if key == self._own_announcement:
            return model.plan("me-announced")
        if key.startswith(f"{paths.directory}_plan-"):
            return f"{model.directory}{key.removeprefix(paths.directory)}"
        attempt = _attempt_of_set(paths, key)
        if attempt is not None:
            return model.set(attempt)
        if key.startswith(paths.task_attempts):
            name, _, rest = key.removeprefix(paths.task_attempts).partition("/")
            base, _, file = rest.partition("/")
            if not base:
                return f"{model.tree}{name}/"
            file = self.key(f"{self._dest.prefix}{file.removesuffix(PENDING_SUFFIX)}")
            return f"{model.tree}{name}/{file}.pending"
        uuid = uuid_in_name(key)  # of what the proof of the store has left
        return model.directory + key.removeprefix(paths.directory) + (f"-{uuid}" if uuid else "")

    def is_of_data(self, key: str) -> bool:
        """Whether a key, or a prefix, is of data."""
        return not key.startswith(self._dest.jobs_prefix)

    @staticmethod
    def lists_data(request: Any) -> bool:
        """Whether a request of the model's is a listing of data."""
        return isinstance(request, List) and not request.prefix.startswith("_")

    def _is_magic_marker(self, key: str) -> bool:
        """Whether it is the zero-byte object under a magic path: nobody reads it."""
        return key.startswith(self._paths.task_attempts) and not key.endswith(PENDING_SUFFIX)

    def is_left_out(self, step: Sent) -> bool:
        """Whether a request is none of the model's."""
        answered = not isinstance(step.answer, StoreError)
        if step.verb == "put_part":
            return True
        if step.verb in ("put", "head") and self._is_magic_marker(step.key):
            return True
        if step.verb == "head" and answered and step.key == self._paths.record:
            return bool(step.answer.etag != self._job.fence_etag)
        return False

    def may_wait(self, step: Sent, request: Any) -> bool:
        """Whether a step may have been sent beside the model's request, which comes later in the
        trace: of a revert, the deletes too."""
        key = self.key(step.key)
        if step.verb == "list":
            return self.lists_data(request) and self.is_of_data(step.key)
        if (
            step.verb == "head"
            and isinstance(request, Get)
            and key.startswith(self.model.directory)
        ):
            return key != self.model.record  # under a given id: whose each control object is
        beside = ("/sets/", "/tree/")
        if not ((key and is_data(key)) or any(name in key for name in beside)):
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
                gone = tuple(key for key in gone if not self._is_magic_marker(key))
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
        if prefix.startswith(self._dest.jobs_prefix):
            return self._control_key(prefix) if prefix != self._dest.jobs_prefix else "_"
        return prefix.removeprefix(self._dest.prefix)

    def _is_plan(self, key: str) -> bool:
        directory, _, name = key.rpartition("/")
        return name.startswith("_plan-") and directory.startswith(self._dest.jobs_prefix)

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
        if isinstance(answer, StoreError) and answer.attempts > 1 and writes_the_record(request):
            return DENIED
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
        if step.key == self._dest.success_key:
            return self._by_etag.get(info.etag), int(info.last_modified)
        if step.key.startswith(self._dest.jobs_prefix):
            return PendingSet(metadata.get(JOB_METADATA, ""), "", "", ()), 0
        uuid, _, rest = metadata.get(TOKEN_METADATA, "").partition(".")
        token = uuid, rest.partition(".")[0]
        return _Version(info.etag, token), int(info.last_modified)

    def _listed(self, step: Sent) -> Iterator[tuple[str, Any]]:
        infos = [info for page in step.answer for info in page.objects]
        if step.key == self._paths.job_attempt:
            # The model takes the last of a task, production the newest: the same, in this order.
            infos = [info for info in infos if info.key.endswith(PENDINGSET_SUFFIX)]
            infos.sort(key=lambda info: (info.last_modified, info.key))
        data = self.is_of_data(step.key)
        for info in infos:
            if self._is_magic_marker(info.key) or (data and not self._is_data(info)):
                continue
            yield self.key(info.key), _Version(info.etag)
        if step.key == self._dest.jobs_prefix:
            for page in step.answer:
                for prefix in page.prefixes:
                    yield self._control_key(f"{prefix}_job.json"), ""

    def _is_data(self, info: Any) -> bool:
        if not self._dest.contains(info.key) or is_hidden(self._dest.relative(info.key)):
            return False
        return info.size > 0 or not info.key.endswith("/")

    def _body(self, key: str, body: bytes) -> Any:
        if key == self._dest.success_key:
            if not body:
                return Marker("", 0, "")
            found = decode_success(body, key).diagnostics or {}
            completed = int(float(found.get("magic-committer.completed", 0)))
            nonce = found.get("magic-committer.nonce", "")
            return Marker(found.get("magic-committer.job", ""), completed, nonce)
        if key.endswith("/_job.json"):
            return self._record(JobRecord.decode(body, key))
        if self._is_plan(key):
            plan = StoredPlan.decode(body, key)
            whose = JobPaths(self._dest, plan.job_id)
            sets = tuple(
                (self.key(whose.tree + one.name), self._by_etag.get(one.etag, one.etag))
                for one in plan.sets
            )
            deletes = tuple((self.key(ref.key), _Version(ref.etag)) for ref in plan.deletes)
            marker = self._by_etag.get(plan.marker.etag, "unread") if plan.marker else None
            return Plan(plan.uuid, plan.nonce, sets, deletes, marker, plan.partitions)
        if key.endswith(PENDINGSET_SUFFIX):
            stored = decode_pendingset(body, key)
            extra = stored.extra_data or {}
            task, attempt = (extra.get(f"magic-committer.{n}", "") for n in ("task", "attempt"))
            uuid = extra.get("magic-committer.job", "")
            files = tuple(self._file(pending) for pending in stored.commits)
            return PendingSet(uuid, task, attempt, files, is_tombstone(extra))
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
        marker = self._by_etag.get(record.marker.etag) if record.marker else None
        mode, outcome = record.terms.mode, record.outcome
        return Record(record.uuid, str(record.state), record.nonce, mode, plan, marker, outcome)


def _unread(one: TaskCommit) -> PendingSet:
    return PendingSet(one.job_uuid, one.task, one.attempt, ())


def _attempt_of_set(paths: JobPaths, key: str) -> str | None:
    """The attempt whose pendingset a key names; None for every other key."""
    name = key.removeprefix(paths.job_attempt)
    attempt = name.removesuffix(PENDINGSET_SUFFIX).removeprefix(HIDDEN)
    whole = f"{paths.job_attempt}{HIDDEN}{attempt}{PENDINGSET_SUFFIX}"
    return attempt if key == whole and "/" not in attempt else None
