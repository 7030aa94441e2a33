"""The ledger of a streaming query: which micro-batch is published, and who may publish the next.

A query is run again after a crash, and may run twice at once. Each run of a micro-batch is a job of
its own. One object for each query, ``D/__magic_stream/_<query>.json``, makes sure that only one of
these jobs publishes the batch::

    {done: 6} --claim(job J, batch 7)--> {done: 6, claim: J} --publish(7)--> {done: 7}
                                             |
                                             \\--claim(job K, batch 7): J is settled first

Invariants:

* Every arrow is one conditional PUT, and every version holds a fresh nonce, as in the job record.
* **The job's record exists before the job claims; the job is decided after it has claimed.** To
  look at the ledger and then to decide is not enough: a driver that is paused in between would
  publish the batch a second time (counterexamples.md, #2).
* **A job that may still publish keeps its claim** (`may_take_claim`). Such a job is
  settled first, as a recovery does it: finished if it is decided, otherwise aborted. If it cannot
  be settled, the next run stops.
* **A committed job writes ``done`` before its record is finished**, in every process: driver,
  recovery, cleanup, the next run. So the record names query and batch from its decision on. A claim
  of a job whose record is closed or gone was not published, or ``done`` says so.
* A published batch is passed over only for the checkpoint that published it. A copied checkpoint
  has the same query id, and other rows. A claim holds its job's checkpoint, and ``done`` keeps it.

Pure: requests are in `magic_committer.commit.stream`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from enum import Enum
from hashlib import sha256
from typing import Annotated

import orjson
from msgspec import Meta, field
from msgspec.structs import replace

from magic_committer.errors import FormatError, OptionError, PathError, WrongType
from magic_committer.hadoop import documents
from magic_committer.hadoop.documents import (
    INT64_MAX,
    OwnDocument,
    plain,
    read_document,
    read_fields,
)
from magic_committer.hadoop.paths import check_id
from magic_committer.options import shown

LEDGER_VERSION = 1
LEDGER_BYTES_MAX = 16 * 1024
"""A ledger has some 400 bytes. A larger object is not a ledger."""
BATCH_MAX = INT64_MAX
"""The greatest number of a batch: Spark counts in 64 bits."""

Uuid = Annotated[str, Meta(pattern=r"(?#no UUID of a job)\A[0-9a-f]{32}\Z")]
Number = Annotated[int, Meta(ge=0, le=BATCH_MAX)]
Checkpoint = Annotated[str, Meta(pattern=r"(?#no hash of one)\A(?:[0-9a-f]{64})?\Z")]
"""The hash of a checkpoint's location (`hash_of`); "" if none is named."""


@documents.readable
class StreamBatch(OwnDocument, frozen=True):
    """One micro-batch of a streaming query::

        >>> mc.StreamBatch("7bd2f0b6-9e0c-4a6e-8d4c-0a3f4f7f6f10", 7).number
        7

    Attributes:
        query: the query's id, the same in every run of the query, in the form of a job's id
            (`magic_committer.start`). Spark's query ids fit.
        number: the batch's number, from 0 on. Later batches have greater numbers; numbers may be
            left out.

    Raises:
        WrongType: the query is not text, or the number is not a whole number.
        PathError: the query's id cannot be used.
        OptionError: the number is below 0, or has more than 64 bits.
    """

    query: str
    number: int

    def __post_init__(self) -> None:
        if not isinstance(self.query, str):
            raise WrongType(
                f"a query's id is text, not {self.query!r:.80}",
                hint=f"Pass StreamBatch({str(self.query)!r:.130}, ...)",
            )
        if isinstance(self.number, bool) or not isinstance(self.number, int):
            raise WrongType(
                f"a batch's number is a whole number, not {self.number!r:.80}",
                hint="Pass StreamBatch(query, 7)",
            )
        check_id("query id", self.query)
        if not 0 <= self.number <= BATCH_MAX:
            raise OptionError(f"a batch's number is from 0 to {BATCH_MAX}, not {self.number}")

    def __str__(self) -> str:
        return f"batch {self.number} of query {self.query}"


def hash_of(checkpoint: str) -> str:
    """What a record holds of a checkpoint's location: 64 hexadecimal digits. The location itself
    may tell more than every reader of the destination should know. Pure."""
    same = re.sub(r"\bs3[an]://", "s3://", checkpoint).rstrip("/")  # however it is spelled
    return sha256(same.encode()).hexdigest()


@documents.readable
class Claim(OwnDocument, frozen=True):
    """Who may publish the next batch. ``checkpoint``: as in `JobRecord`."""

    job_id: str = field(name="job")
    uuid: Uuid
    number: Number = field(name="batch")
    checkpoint: Checkpoint = ""


@documents.readable
class Ledger(OwnDocument, frozen=True):
    """The content of a ledger. ``nonce`` is fresh in every version. ``done``: the last published
    batch, None if there is none; ``done_by``: the UUID of the job that published it; and
    ``checkpoint``: that job's, as in `JobRecord`; "": not known."""

    query: str
    nonce: str
    done: Number | None
    done_by: Annotated[str, Meta(pattern=r"(?#no UUID of a job)\A(?:[0-9a-f]{32})?\Z")]
    claim: Claim | None
    checkpoint: Checkpoint = ""

    def covers(self, number: int) -> bool:
        """Whether a batch, or a later one, is published."""
        return self.done is not None and self.done >= number

    def is_of_another(self, checkpoint: str | None) -> bool:
        """Whether the last batch was published from another checkpoint. False if either is not
        known."""
        return bool(checkpoint) and self.checkpoint not in ("", checkpoint)

    def claimed(self, claim: Claim, nonce: str) -> Ledger:
        """The ledger after an arrow ``claim``."""
        return replace(self, claim=claim, nonce=nonce)

    def published(self, number: int, nonce: str) -> Ledger:
        """The ledger after an arrow ``publish``: the claimant has published a batch. Raises
        ValueError: nobody has claimed a batch."""
        if self.claim is None:
            raise ValueError("a batch that nobody has claimed is not published")
        uuid, checkpoint = self.claim.uuid, self.claim.checkpoint
        return Ledger(self.query, nonce, number, uuid, None, checkpoint)

    def encode(self) -> bytes:
        """Give the bytes of the ledger's object: JSON, for people too."""
        document = {"version": LEDGER_VERSION, **plain(self)}
        return orjson.dumps(document, option=orjson.OPT_INDENT_2)

    @classmethod
    def decode(cls, data: bytes, source: str) -> Ledger:
        """Read a ledger. Raises FormatError: the object is not a ledger, or a newer version of the
        library wrote it."""
        document = read_document(data, source, LEDGER_BYTES_MAX, LEDGER_VERSION)
        ledger = read_fields(cls, document, source)
        if (ledger.done is None) != (not ledger.done_by):
            raise FormatError(source, "done_by", f"is {ledger.done_by!r}, and done {ledger.done}")
        if ledger.done is None and ledger.checkpoint:
            raise FormatError(source, "checkpoint", "is named, and no batch is done")
        if ledger.claim is not None:  # it will be settled: its id must lead to a job's directory
            try:
                check_id("job id", ledger.claim.job_id)
            except PathError as error:
                raise FormatError(source, "claim.job", error.message) from error
        return ledger


class Move(Enum):
    """What a run of a batch does next, by the ledger."""

    SKIP = "skip"
    """The batch is published: abort this run."""
    DECIDE = "decide"
    """This run has claimed the batch: it may decide."""
    CLAIM = "claim"
    """Nobody is in the way: claim the batch."""
    SETTLE = "settle"
    """Another job has claimed a batch: settle it, then claim, if the ledger is still the same."""


def next_move(ledger: Ledger, number: int, uuid: str) -> Move:
    """What a job does that wants to publish a batch. Pure."""
    if ledger.covers(number):
        return Move.SKIP
    if ledger.claim is None:
        return Move.CLAIM
    if ledger.claim.uuid != uuid:
        return Move.SETTLE
    return Move.DECIDE if ledger.claim.number == number else Move.CLAIM


# What callers pass, checked -----------------------------------------------------------------------


def batch_of(batch: object) -> StreamBatch:
    """The micro-batch to commit."""
    if isinstance(batch, StreamBatch):
        return batch
    number = batch if isinstance(batch, int) and not isinstance(batch, bool) else 7
    raise WrongType(
        f"batch is a magic_committer.StreamBatch, not {shown(batch)}",
        hint=f"Pass batch=magic_committer.StreamBatch(query, {number}), with the id of the query",
    )


def checkpoint_of(checkpoint: str | None) -> str:
    """What a record holds of a streaming query's checkpoint; "" if the caller gave none."""
    if checkpoint is None:
        return ""
    with suppress(UnicodeEncodeError):  # a half of a character
        if isinstance(checkpoint, str) and checkpoint:
            return hash_of(checkpoint)
    raise WrongType(
        f"checkpoint is the text that names a query's checkpoint, not {shown(checkpoint)}",
        hint="Pass checkpoint='s3://bucket/checkpoint', the same in every run of the query",
    )
