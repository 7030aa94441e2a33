"""A query's ledger is read strictly, and tells what a run of a batch does next."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from magic_committer.errors import FormatError, OptionError, PathError, WrongType
from magic_committer.protocol.ledger import (
    LEDGER_BYTES_MAX,
    Claim,
    Ledger,
    Move,
    StreamBatch,
    hash_of,
    next_move,
)
from magic_committer.protocol.record import State, may_take_claim
from tests.promises.hands import raises

ONE, TWO = "1" * 32, "2" * 32
NEW = Ledger("q", "n", None, "", None)
CLAIMED = Ledger("q", "n", 6, ONE, Claim("two", TWO, 7))
WITH_CHECKPOINT = Ledger("q", "n", 6, ONE, Claim("two", TWO, 7, hash_of("here")), hash_of("there"))


def changed(**fields: Any) -> bytes:
    """The ledger `CLAIMED` as JSON, with other fields; ``...`` takes a field away."""
    document = {**json.loads(CLAIMED.encode()), **fields}
    return json.dumps({k: v for k, v in document.items() if v is not ...}).encode()


@pytest.mark.parametrize(
    "ledger",
    [NEW, Ledger("q", "n", 0, ONE, None), structs.replace(NEW, claim=Claim("j", ONE, 0)),
     CLAIMED, CLAIMED.published(7, "m"), WITH_CHECKPOINT, WITH_CHECKPOINT.published(7, "m")],
)  # fmt: skip
def test_a_ledger_is_read_as_it_was_written(ledger: Ledger) -> None:
    """Each kind of ledger comes back equal."""
    assert Ledger.decode(ledger.encode(), "s") == ledger


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"version": 2}, "version"),
        ({"query": 1}, "query"),
        ({"more": 1}, "more"),
        ({"done": ...}, "done"),
        ({"claim": ...}, "claim"),
        ({"done": -1}, "done"),
        ({"done": 2**63}, "done"),
        ({"done": True}, "done"),
        ({"done": 6.0}, "done"),
        ({"done_by": ""}, "done_by"),
        ({"done": None}, "done_by"),
        ({"done_by": "somebody"}, "done_by"),
        ({"claim": {"job": "../x", "uuid": TWO, "batch": 7}}, "claim.job"),
        ({"claim": {"job": "j", "uuid": "u", "batch": 7}}, "claim.uuid"),
        ({"claim": {"job": "j", "uuid": TWO, "batch": -7}}, "claim.batch"),
        ({"claim": {"job": "j", "uuid": TWO}}, "claim.batch"),
        ({"claim": {"job": "j", "uuid": TWO, "batch": 7, "more": 1}}, "claim.more"),
        ({"claim": {"job": "j", "uuid": TWO, "batch": 7, "checkpoint": "c"}}, "claim.checkpoint"),
        ({"checkpoint": "s3://bucket/checkpoint"}, "checkpoint"),
        ({"checkpoint": hash_of("c"), "done": None, "done_by": ""}, "checkpoint"),
    ],
)
def test_a_forged_ledger_is_refused(fields: dict[str, Any], field: str) -> None:
    """The error names the field."""
    caught = raises(FormatError, Ledger.decode, changed(**fields), "t/__magic_stream/_q.json")
    assert caught.field == field


def test_a_large_ledger_is_refused() -> None:
    """A reader takes no more bytes than a ledger has."""
    with pytest.raises(FormatError, match="more than 16384"):
        Ledger.decode(changed(query="q" * LEDGER_BYTES_MAX), "s")


@pytest.mark.parametrize(
    ("ledger", "number", "move"),
    [
        (None, 0, Move.CLAIM),
        (NEW, 0, Move.CLAIM),
        (Ledger("q", "n", 6, ONE, None), 7, Move.CLAIM),
        (Ledger("q", "n", 6, ONE, None), 6, Move.SKIP),
        (Ledger("q", "n", 6, ONE, None), 5, Move.SKIP),
        (CLAIMED, 6, Move.SKIP),
        (CLAIMED, 7, Move.DECIDE),
        (CLAIMED, 8, Move.CLAIM),
        (Ledger("q", "n", 6, ONE, Claim("one", ONE, 7)), 7, Move.SETTLE),
        (Ledger("q", "n", 6, ONE, Claim("one", ONE, 7)), 8, Move.SETTLE),
    ],
)
def test_the_ledger_tells_the_next_move(ledger: Ledger | None, number: int, move: Move) -> None:
    """What job 2 does that wants to publish a batch."""
    assert next_move(ledger, number, TWO) is move


def test_a_claim_is_taken_only_from_a_job_that_publishes_nothing_any_more() -> None:
    """Of all states of the claimant's record."""
    taken = {state for state in State if may_take_claim(state)}
    assert taken == {State.ABORTING, State.REVERTED, State.CLOSED, State.ABSENT}


def test_what_is_published_was_claimed() -> None:
    """A claim becomes what is done, by the claimant; without a claim nothing is."""
    done = CLAIMED.published(7, "m")
    assert (done.done, done.done_by, done.claim, done.nonce) == (7, TWO, None, "m")
    raises(ValueError, done.published, 8, "o", match="nobody has claimed")


@pytest.mark.parametrize(
    ("error", "batches"),
    [
        (PathError, [("", 0), ("a/b", 0), ("..", 0), ("q" * 129, 0)]),
        (WrongType, [(7, 7), ("q", "7"), ("q", True)]),
        (OptionError, [("q", -1), ("q", 2**63)]),
    ],
)
def test_a_batch_is_checked_when_it_is_made(error: type, batches: list[tuple[Any, Any]]) -> None:
    """A query's id becomes a part of a key; a number has 63 bits."""
    for query, number in batches:
        raises(error, StreamBatch, query, number)
