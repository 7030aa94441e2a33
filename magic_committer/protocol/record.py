"""What a job is: its record, the states of the record, and the values that travel.

The job record is one object, ``D/__magic_job-<id>/_job.json``, and a state machine::

    (absent) --setup--> running --decide--> committing --done----> completed --finish--> (absent)
                         |   |                   |                                     or closed
                         |   |                   \\--revert--> reverting --undone--> reverted
                         |   \\--decide--> aborting --finish--> (absent) or closed      |
                         \\--withdraw--> (absent), or aborting for a given id           finish
                                                                                       v
                                                                                     closed

Invariants:

* Every arrow is one conditional request. ``setup`` is a PUT ``If-None-Match: *``. Every other arrow
  is a PUT or DELETE ``If-Match`` with the ETag of the state that it leaves. So a job is decided at
  most once, and everyone obeys the stored record, the winner too.
* Every version of the record holds a fresh nonce. There are two reasons. ETags are hashes of bytes:
  without a nonce a state could come back with an ETag that was seen before. And a writer that lost
  the reply to its request recognises its own success by the nonce.
* A job id is used once. ``setup`` draws a UUID for every job. Tokens, unique names and sweeps use
  the UUID; the id only names the directory (counterexamples.md, #4).
* Nothing here holds a secret, a client or a lock: all values are frozen and pickle.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any, SupportsIndex, TypeVar, get_args

import orjson
from msgspec import structs

from magic_committer.errors import Decider, FormatError, OptionError, WrongType
from magic_committer.hadoop import documents
from magic_committer.hadoop.documents import (
    OwnDocument,
    PendingSet,
    given_dict,
    plain,
    read_document,
    read_fields,
    refuse_missing,
)
from magic_committer.hadoop.paths import WAITING_COMMITTERS, Destination, JobPaths, once
from magic_committer.options import (
    Accept,
    ChecksumOption,
    ConditionalWrites,
    EtagForm,
    Mode,
    Track,
    shown,
)
from magic_committer.protocol.ledger import Checkpoint, StreamBatch
from magic_committer.stores.base import ChecksumAlgorithm, same_etag, same_time
from magic_committer.stores.urls import is_tree

# Limits and wire names ----------------------------------------------------------------------------

RECORD_VERSION = 1
RECORD_BYTES_MAX = 64 * 1024
"""A record has some 700 bytes. A larger object is not a record."""

JOB_METADATA = "magic-committer-job"
"""User metadata of every control object: the job's UUID. It distinguishes our litter from a Hadoop
job."""
TASK_METADATA = "magic-committer-task"
ATTEMPT_METADATA = "magic-committer-attempt"
TOKEN_METADATA = "magic-committer-token"
"""User metadata of every upload, and so of the object that the upload becomes: see `token`."""


def token(uuid: str, attempt: str, file_id: str) -> str:
    """The unique mark of one file of one attempt. The token shows whether an object is what an
    upload became. This makes completing repeatable (protocol.md, "Completing is repeatable")."""
    return f"{uuid}.{attempt}.{file_id}"


_COMMITTER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MAGIC = "magic"
"""The committer of a job whose record names none."""

# States -------------------------------------------------------------------------------------------


class State(StrEnum):
    """The states of a record, with what follows from each. Every process obeys it: the driver that
    decided, another driver, a recovery, an abort. What follows is repeatable, and several processes
    may do it at once (protocol.md, "The job record")."""

    ABSENT = "absent"
    """There is no record: only `_SUCCESS` may tell the outcome (I10)."""
    RUNNING = "running"
    """A driver may commit the job, anyone may abort it."""
    COMMITTING = "committing"
    """Complete the plan's uploads, then swap to ``completed``."""
    COMPLETED = "completed"
    """Delete what is replaced, write `_SUCCESS`, sweep; then delete the record or close it."""
    REVERTING = "reverting"
    """Undo the plan's uploads, then swap to ``reverted``."""
    REVERTED = "reverted"
    """Abort what is left; then close the record."""
    ABORTING = "aborting"
    """Abort what is left; then delete the record or close it."""
    CLOSED = "closed"
    """The job has ended: tell its outcome."""


TRANSITIONS: Mapping[State, Collection[State]] = {
    State.ABSENT: (State.RUNNING,),
    State.RUNNING: (State.COMMITTING, State.ABORTING, State.ABSENT),
    State.COMMITTING: (State.COMPLETED, State.REVERTING),
    State.COMPLETED: (State.ABSENT, State.CLOSED),
    State.REVERTING: (State.REVERTED,),
    State.REVERTED: (State.CLOSED,),
    State.ABORTING: (State.ABSENT, State.CLOSED),
    State.CLOSED: (State.ABSENT,),
}
"""All arrows: from, to. The module's head has their names."""

HANDS_OFF = frozenset({State.RUNNING, State.COMMITTING, State.REVERTING})
"""In these states an attempt whose pendingset is stored leaves the set alone: a driver may have
accepted it, or a revert needs to read it (counterexamples.md, #17b)."""

OUTCOMES: Mapping[State, str] = {
    State.COMMITTING: "committed",
    State.COMPLETED: "committed",
    State.REVERTING: "reverted",
    State.REVERTED: "reverted",
    State.ABORTING: "aborted",
}
"""The outcome in a decided record. For ``closed`` it is in `JobRecord.outcome`."""

ENDS = ("committed", "aborted", "reverted")
"""The values of `JobRecord.outcome` in ``closed``. In every other state it is ""."""

COMMITTED = frozenset({State.COMMITTING, State.COMPLETED})
"""States of a job that is decided to commit, and is to be finished."""

PLANNED = frozenset({State.COMMITTING, State.COMPLETED, State.REVERTING, State.REVERTED})
"""States whose record names a plan."""


# The record ---------------------------------------------------------------------------------------


@documents.readable
class Terms(OwnDocument, frozen=True):
    """What a job was started with. The record fixes it; it is the same for everyone who
    attaches. ``committer``: the name of the protocol that makes its files visible."""

    mode: Mode
    accept: Accept
    track: Track
    mark_success: bool
    checksum: ChecksumOption
    etag_form: EtagForm
    conditional_writes: ConditionalWrites
    committer: str = MAGIC

    def __post_init__(self) -> None:
        if not _COMMITTER.fullmatch(self.committer):
            raise OptionError(f"committer={self.committer!r:.80} is no name of a committer")
        if not isinstance(self.mark_success, bool):
            raise OptionError(f"mark_success is True or False, not {self.mark_success!r}")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise OptionError(f"{name}={getattr(self, name)!r} is none of {', '.join(allowed)}")

    def differing(self, other: Terms) -> list[tuple[str, Any, Any]]:
        """The terms in which two jobs differ: each with this value and the other one."""
        names = self.__struct_fields__
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in names)
        return [pair for pair in pairs if pair[1] != pair[2]]


CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": get_args(Mode),
    "accept": get_args(Accept),
    "track": get_args(Track),
    "checksum": (*get_args(ChecksumAlgorithm), "auto", "off"),
    "etag_form": get_args(EtagForm),
    "conditional_writes": get_args(ConditionalWrites),
}
"""The allowed values of a job's terms."""

USUAL_TERMS = Terms("append", "listing", "s3", True, "auto", "objects", "on")
"""Those of a job of which nothing is known."""


@documents.readable
class ObjectRef(OwnDocument, frozen=True):
    """One exact version of an object. ``etag``: "" means that there was no object. ``modified``:
    Last-Modified, in seconds by the store's clock; 0.0 means: not known. Objects with the same
    bytes have the same ETag (for example all empty `_SUCCESS` objects). The time distinguishes
    them, except for writes within one second."""

    key: str
    etag: str
    modified: float = 0.0

    def is_same(self, etag: str, modified: float) -> bool:
        """Whether an object with that ETag and Last-Modified is this version. Pure."""
        return same_etag(self.etag, etag) and (
            not self.modified or same_time(self.modified, modified)
        )


@documents.readable
class JobRecord(OwnDocument, frozen=True):
    """The content of ``_job.json``.

    Attributes:
        id: the job's id. It names the job's directory.
        given_id: whether the caller chose the id.
        uuid: 32 hex digits, drawn by ``setup``.
        nonce: fresh in every version.
        started: the time by the starter's clock, for people. Ages go by the store's clock.
        decider: the process that decided; None before the decision.
        plan: from ``committing`` on; None for an aborted job.
        marker: the `_SUCCESS` that was there when the job completed; only in ``completed``.
        outcome: ``committed``, ``aborted`` or ``reverted``; only in ``closed``.
        adopted: for an adopted Hadoop job: the place of its pendingsets (`JobPaths.adopted`).
        checkpoint: for a job of a streaming query: the hash of the query's checkpoint; else "".
        batch: from ``committing`` on, for a job of a streaming query: what it publishes. Completing
            the job writes it to the query's ledger (`magic_committer.protocol.ledger`).
        stays: for a job that is aborted though files of it are visible: that they stay, in a
            sentence; "": none. It is for people.
    """

    id: str
    uuid: str
    state: State
    nonce: str
    terms: Terms
    given_id: bool
    started: float
    decider: Decider | None
    plan: ObjectRef | None
    marker: ObjectRef | None
    outcome: str
    adopted: str = ""
    checkpoint: Checkpoint = ""
    batch: StreamBatch | None = None
    stays: str = ""

    @classmethod
    def running(cls, **told: Any) -> JobRecord:
        """The first record of a job: ``running``, with the fields ``told``."""
        undecided: Any = {"decider": None, "plan": None, "marker": None, "outcome": ""}
        return cls(state=State.RUNNING, **undecided, **told)

    def paths(self, dest: Destination) -> JobPaths:
        """The keys of the job's control objects."""
        return _job_paths(dest, self.id, self.adopted, self.terms.committer, self.uuid)

    def step(self, state: State, nonce: str, **changes: Any) -> JobRecord:
        """The record after an arrow of `TRANSITIONS`. Raises ValueError: there is no such arrow.
        Nothing was changed."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"a job does not go from {self.state} to {state}")
        return structs.replace(self, state=state, nonce=nonce, **changes)

    def encode(self) -> bytes:
        """Give the bytes of ``_job.json``: compact JSON."""
        return orjson.dumps({"version": RECORD_VERSION, **plain(self)})

    @classmethod
    def decode(cls, data: bytes, source: str) -> JobRecord:
        """Read ``_job.json``. Raises FormatError: the object is not a record, or a newer version of
        the library wrote it."""
        document = read_document(data, source, RECORD_BYTES_MAX, RECORD_VERSION)
        record = read_fields(cls, document, source)
        if record.batch is not None and record.state is State.RUNNING:
            raise FormatError(source, "batch", "is named, and the job is not decided")
        if record.state in PLANNED and record.plan is None:
            raise FormatError(source, "plan", f"is missing: a job that is {record.state} has one")
        ends = ENDS if record.state is State.CLOSED else ("",)
        if record.outcome not in ends:
            raise FormatError(source, "outcome", f"is {record.outcome!r}, none of {ends}")
        return record


@lru_cache(maxsize=1024)  # a job asks for its own again and again
def _job_paths(
    at: Destination | str, job_id: str, adopted: str, committer: str, uuid: str
) -> JobPaths:
    dest = Destination.parse(at) if isinstance(at, str) else at
    waits = committer in WAITING_COMMITTERS and is_tree(dest.bucket)
    return JobPaths(dest, job_id, adopted, uuid if waits else "")


# Values that travel -------------------------------------------------------------------------------


@documents.readable
class StartedJob(OwnDocument, frozen=True, dict=True, omit_defaults=False):
    """A started job as its processes know it: plain data.

    Attributes:
        dest: the destination's URL, ``s3://bucket/prefix/``.
        fence_etag: the ETag of the record that ``setup`` wrote. An attempt is late if its HEAD
            shows another ETag. "" if the job does not run.
        undisturbed: this process wrote the record, in one try. Only such a process may delete the
            record in ``finish``; all others leave it ``closed`` (counterexamples.md, #10, #21).
        adopted: as in `JobRecord`.
        said_mode: the mode in the words of the caller of `start` ("overwrite"), for hints; "" if
            not known. Nothing is decided by it.
    """

    id: str
    uuid: str
    dest: str
    terms: Terms
    given_id: bool
    fence_etag: str
    undisturbed: bool
    adopted: str = ""
    said_mode: str = ""

    @once
    def paths(self) -> JobPaths:
        """The keys of the job's control objects."""
        return _job_paths(self.dest, self.id, self.adopted, self.terms.committer, self.uuid)

    @once
    def waits(self) -> str:
        """The job's UUID, if its tasks' files wait at the destination; else ""."""
        return "" if self.adopted else self.paths.waits

    def owns(self, metadata: Mapping[str, str] | None) -> bool:
        """Whether a control object in the job's directories belongs to the job, by its metadata.
        Objects of Hadoop's tasks have no token; objects of a zombie of another run have that run's
        token. The directory of waiting files is named after the job, so all in it is the job's."""
        uuid = (metadata or {}).get(JOB_METADATA, "")
        hadoops = bool(self.adopted) or bool(self.waits)
        return uuid == self.uuid or (not uuid and hadoops)

    @classmethod
    def attached(cls, record: JobRecord, dest: str, etag: str) -> StartedJob:
        """The job for a process that found the job's record on the store, with this ETag."""
        return cls(
            id=record.id,
            uuid=record.uuid,
            dest=dest,
            terms=record.terms,
            given_id=record.given_id,
            fence_etag=etag if record.state is State.RUNNING else "",
            undisturbed=False,
            adopted=record.adopted,
        )


@documents.readable
class TaskCommit(OwnDocument, frozen=True):
    """A committed attempt's result for the driver. It is small, pickles, and is JSON by `to_dict`.

    A task without files in a job with ``accept="results"`` made no request: its ``key`` is "".

    Attributes:
        job_uuid: the UUID of its job.
        task: the task's id.
        attempt: the attempt's name.
        key, etag: key and ETag of the attempt's `.pendingset`.
        pendingset_bytes: the size of the `.pendingset`, in bytes.
        files: how many files the attempt wrote.
        bytes: how many bytes the files have.
    """

    job_uuid: str
    task: str
    attempt: str
    key: str = ""
    etag: str = ""
    pendingset_bytes: int = 0
    files: int = 0
    bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON values, for schedulers that pass JSON. Repeatable."""
        return structs.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TaskCommit:
        """Make a result from what `to_dict` gave. Repeatable.

        Args:
            values: the dict, also after a way through JSON.

        Returns:
            The result, equal to the one that was described.

        Raises:
            WrongType: ``values`` is not a dict, for example JSON text.
            FormatError: a field is missing, unknown, or of the wrong type.
        """
        given = given_dict(values, "TaskCommit")
        refuse_missing(TaskCommit, given, "TaskCommit")
        return read_fields(TaskCommit, given, "TaskCommit")


class OwnCommit(TaskCommit, frozen=True):
    """A result that stays in the process that got it and commits the job next: nothing comes
    between. ``own``: the set, if this process has stored it."""

    own: PendingSet | None = None


# The rules that decide ----------------------------------------------------------------------------
#
# Pure. Every process that reads a record obeys it.


def may_take_claim(state: State) -> bool:
    """Whether the next run of a streaming query may take the ledger's claim from a job: nothing of
    that job will be published. Pure. ``state``: of the claimant's record, read *after* the ledger;
    `State.ABSENT`: there is none. A job that has committed has changed the ledger before its record
    was closed, so the swap of the ledger fails then."""
    return state in (State.ABORTING, State.REVERTED, State.CLOSED, State.ABSENT)


class Phase(Enum):
    """How far an attempt is. The ways: open → sent → committed, and open or sent → aborted."""

    OPEN = "open"
    SENT = "sent"
    """Its pendingset is stored, may be stored, or may still be stored by a late request."""
    COMMITTED = "committed"
    ABORTED = "aborted"


class Found(Enum):
    """What a look finds at the key of an attempt's pendingset."""

    NOTHING = "nothing"
    """Nothing. A set may still come."""
    SET = "set"
    """The attempt's set."""
    CLAIMED = "claimed"
    """A tombstone: no set was there, and none can come any more."""
    FOREIGN = "foreign"
    """An object of another run under the same job id."""


def may_undo(phase: Phase, *, sole: bool, accept: Accept, found: Found, late: State | None) -> bool:
    """Whether an attempt may be undone: its uploads aborted, its pendingset deleted. Pure.
    ``sole``: no other handle uses the attempt's name. ``late``: the state by which the fence called
    the attempt late; None if it did not."""
    if late is not None and late not in HANDS_OFF:
        return True  # everything that was accepted is completed or undone by now
    if phase is Phase.COMMITTED:
        return False
    if found is Found.CLAIMED:
        return True  # nobody has committed it, and nobody can
    if accept == "results" and (sole or found is Found.NOTHING):
        return True  # nobody ever got a result of it
    return phase is not Phase.SENT and found is Found.NOTHING


@dataclass(frozen=True, slots=True)
class Marker:
    """A `_SUCCESS` as it is stored. Every empty one has the same ETag. ``uuid``: its job's, "" if
    another program wrote it. ``completed``: when its job completed, and ``modified``: its
    Last-Modified, both in seconds by the store's clock."""

    etag: str
    uuid: str
    completed: float
    modified: float


def may_replace_marker(marker: Marker, named: ObjectRef | None, completed: float) -> bool:
    """Whether a job's `_SUCCESS` may replace another one. Pure. ``named``: the one that the job's
    record names: it was there when the job completed, so the job is the later one."""
    if named is not None and named.is_same(marker.etag, marker.modified):
        return True
    return marker.completed < completed


T = TypeVar("T")


# What callers pass, checked -----------------------------------------------------------------------


def task_id_of(task: str | int) -> str:
    """The id of a task, given as text or as a number."""
    if isinstance(task, str):
        return task
    if isinstance(task, SupportsIndex) and not isinstance(task, bool):
        return str(task.__index__())
    raise WrongType(
        f"a task's id is text or a whole number, not {shown(task)}", hint="Write job.task('7')"
    )


def expected_of(expect: int | Iterable[str | int] | None) -> int | frozenset[str] | None:
    """The number of tasks that there must be, or their ids; None if that does not matter. Raises
    WrongType: text, which may mean a number or an id; or neither a number nor ids. Raises
    OptionError: a number below 0."""
    if expect is None:
        return None
    if isinstance(expect, bool | str | bytes):
        hint = "Pass how many there must be, expect=1, or which: expect=['7']"
        if not isinstance(expect, bool):
            text = expect.decode(errors="replace") if isinstance(expect, bytes) else expect
            hint = f"Pass expect=[{text!r}] for one task of that id"
            if text.isdecimal():
                hint += f", or expect={int(text)} for that many tasks"
        told = f"expect={expect!r} is neither a number of tasks nor a list of their ids"
        raise WrongType(told, hint=hint)
    if isinstance(expect, SupportsIndex):
        number = expect.__index__()
        if number < 0:
            raise OptionError(f"expect={number}: there are 0 tasks or more")
        return number
    if isinstance(expect, Iterable):
        return frozenset(map(task_id_of, expect))
    raise WrongType(
        f"expect is a number of tasks or a list of their ids, not {shown(expect)}",
        hint="Pass expect=len(results), or expect=['7', '8']",
    )


def results_of(results: Iterable[T] | None) -> Iterable[T] | None:
    """The results to accept, as an iterable; None if none were given."""
    if results is None:
        return None
    if isinstance(results, TaskCommit):
        raise WrongType(
            f"commit accepts a list of results, not one TaskCommit (of task {results.task!r})",
            hint="Pass [result] if the job has this one task only; else gather all of them, and"
            " commit once",
        )
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise WrongType(
            f"commit accepts a list of results, not {shown(results)}", hint="Pass [task.result]"
        )
    return results


def result_of(result: object) -> TaskCommit:
    """The result of a task, also as its ``to_dict`` gave it."""
    if isinstance(result, TaskCommit):
        return result
    if isinstance(result, Mapping):
        return TaskCommit.from_dict(result)
    raise WrongType(
        f"commit accepts TaskCommits, not {shown(result)}", hint="Pass task.result for each task"
    )
