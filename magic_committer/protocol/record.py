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
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, get_args

import orjson
from msgspec import structs

from magic_committer._pool import once
from magic_committer.errors import FormatError, OptionError
from magic_committer.hadoop import json
from magic_committer.hadoop.paths import WAITING_COMMITTERS, Destination, JobPaths
from magic_committer.options import (
    Accept,
    ChecksumOption,
    ConditionalWrites,
    EtagForm,
    Mode,
    Track,
)
from magic_committer.protocol.ledger import StreamBatch, check_checkpoint
from magic_committer.protocol.strict import (
    OwnDocument,
    given_dict,
    plain,
    read_document,
    read_fields,
    refuse_missing,
)
from magic_committer.report import Decider as Decider
from magic_committer.report import JobReport as JobReport
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
    """The states of a record. ``ABSENT`` means that there is no record."""

    ABSENT = "absent"
    RUNNING = "running"
    COMMITTING = "committing"
    COMPLETED = "completed"
    REVERTING = "reverting"
    REVERTED = "reverted"
    ABORTING = "aborting"
    CLOSED = "closed"


TRANSITIONS: Mapping[State, Mapping[State, str]] = {
    State.ABSENT: {State.RUNNING: "setup"},
    State.RUNNING: {
        State.COMMITTING: "decide",
        State.ABORTING: "decide",
        State.ABSENT: "withdraw",
    },
    State.COMMITTING: {State.COMPLETED: "done", State.REVERTING: "revert"},
    State.COMPLETED: {State.ABSENT: "finish", State.CLOSED: "finish"},
    State.REVERTING: {State.REVERTED: "undone"},
    State.REVERTED: {State.CLOSED: "finish"},
    State.ABORTING: {State.ABSENT: "finish", State.CLOSED: "finish"},
    State.CLOSED: {State.ABSENT: "cleanup"},
}
"""All arrows: from, to, name."""

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
"""The outcome that a decided record tells. For ``closed`` it is in `JobRecord.outcome`."""

ENDS = ("committed", "aborted", "reverted")
"""The values of `JobRecord.outcome` in ``closed``. In every other state it is ""."""

PLANNED = frozenset({State.COMMITTING, State.COMPLETED, State.REVERTING, State.REVERTED})
"""States whose record names a plan."""


# The record ---------------------------------------------------------------------------------------


@json.readable
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


@json.readable
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


@json.readable
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
        batch: from ``committing`` on, for a job of a streaming query: what it publishes. Whoever
            completes the job writes it to the query's ledger (`magic_committer.protocol.ledger`).
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
    checkpoint: str = ""
    batch: StreamBatch | None = None
    stays: str = ""

    @classmethod
    def running(cls, **told: Any) -> JobRecord:
        """The first record of a job: ``running``, with ``told`` of the fields."""
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
        terms = document.get("terms")
        if isinstance(terms, dict) and isinstance(terms.get("exclusive"), bool):
            del terms["exclusive"]  # of the first records: true only as long as the driver lived
        record = read_fields(cls, document, source)
        check_checkpoint(record.checkpoint, source, "checkpoint")
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


@json.readable
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
        token. The directory of waiting files is named after the job, whoever wrote into it."""
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


@json.readable
class TaskCommit(OwnDocument, frozen=True):
    """What a committed attempt tells the driver. It is small, pickles, and is JSON by `to_dict`.

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
    between."""
