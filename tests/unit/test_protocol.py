"""The protocol's pure parts: records, a query's ledger, sets of names, and which attempt counts."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from msgspec import structs

from magic_committer.commit.sets import LoadedSet, choose_attempts
from magic_committer.errors import FormatError, OptionError, PathError, WrongType
from magic_committer.protocol import plan
from magic_committer.protocol.ledger import (
    LEDGER_BYTES_MAX,
    Claim,
    Ledger,
    StreamBatch,
    hash_of,
)
from magic_committer.protocol.plan import KeySet
from magic_committer.protocol.record import USUAL_TERMS, JobRecord, State, may_take_claim
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
        ({"done_by": f"{TWO}\n"}, "done_by"),
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


RECORD = JobRecord.running(
    id="j", uuid=ONE, nonce="n", terms=USUAL_TERMS, given_id=True, started=1.0
)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"version": 2}, "version"),
        ({"state": "walking"}, "state"),
        ({"state": "committing"}, "plan"),
        ({"state": "completed"}, "plan"),
        ({"state": "reverting"}, "plan"),
        ({"state": "closed"}, "outcome"),
        ({"state": "closed", "outcome": "lost"}, "outcome"),
        ({"outcome": "committed"}, "outcome"),
        ({"batch": {"query": "q", "number": 7}}, "batch"),
        ({"terms": ...}, "terms"),
        ({"more": 1}, "more"),
    ],
)
def test_a_forged_record_is_refused(fields: dict[str, Any], field: str) -> None:
    """Whatever contradicts its state is refused, too; the error names the field."""
    document = {**json.loads(RECORD.encode()), **fields}
    data = json.dumps({k: v for k, v in document.items() if v is not ...}).encode()
    assert raises(FormatError, JobRecord.decode, data, "_job.json").field == field
    assert JobRecord.decode(RECORD.encode(), "_job.json") == RECORD


def test_a_forged_value_is_shown_harmless_and_cut() -> None:
    """What would turn a terminal's text round is escaped; what is left out is marked."""
    for forged, told in (
        ("\u202ex", r"is \"\\u202ex\","),
        ("x" * 99, 'is "xxx'),
        ("x" * 99, "x…,"),
    ):
        raises(FormatError, Ledger.decode, changed(done_by=forged), "s", match=told)


def test_a_large_ledger_is_refused() -> None:
    """A reader takes no more bytes than a ledger has."""
    with pytest.raises(FormatError, match="more than 16384"):
        Ledger.decode(changed(query="q" * LEDGER_BYTES_MAX), "s")


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


def test_what_was_added_is_in_it_and_nothing_else() -> None:
    """Membership, through several growths of the table."""
    names = KeySet()
    keys = [f"t/{number}.csv\0id" for number in range(5000)]
    assert all(names.add(key) for key in keys)
    assert all(key in names for key in keys)
    assert not any(f"{key}x" in names for key in keys)
    assert len(names) == 5000


def test_the_second_upload_of_a_key_is_told() -> None:
    """Two uploads of one key are two names, and the second says so; other keys say nothing."""
    names = KeySet(by_key=True)
    told = [names.add_upload(*one) for one in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "2"))]
    assert (told, len(names)) == ([True, True, False, False], 3)
    assert "a\x001" in names
    assert "a\x003" not in names
    assert "a" not in names
    assert names.tick("a", "1")
    assert names.ticked("a\x001")
    assert not names.ticked("a\x002")


def test_many_uploads_of_one_key_are_found_at_once() -> None:
    """A program that leaks all its uploads at one key makes no look longer."""
    looks = 0

    class Counted(list[int]):
        def __getitem__(self, at: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().__getitem__(at)

    names, uploads = KeySet(), [f"t/latest\0{number}" for number in range(5000)]
    assert all(names.add(upload) for upload in uploads)
    names._high = Counted(names._high)  # type: ignore[assignment]
    assert all(names.tick(upload) for upload in uploads)
    assert looks < 20 * len(uploads)


def test_ticking_tells_what_is_in_the_set() -> None:
    """True for a key of the set, each time, and False for another; each is ticked off once."""
    names = KeySet(2)
    names.add("a")
    names.add("b")
    assert names.tick("a")
    assert names.tick("a")
    assert not names.tick("c")
    assert names.unticked == 1
    assert names.ticked("a")
    assert not names.ticked("b")
    assert not names.ticked("c")


def test_two_keys_are_one_by_both_words_of_their_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of keys that fall into one slot each word of the hash tells: none is taken for another."""
    far, farther = 2**40, 2**41  # beyond what chooses the slot
    hashes = {
        "a": (1, 2), "other high": (1 + far, 2), "other low": (1, 2 + far),
        "absent high": (1 + farther, 2), "absent low": (1, 2 + farther),
    }  # fmt: skip
    monkeypatch.setattr(plan, "_hash", lambda key, upload_id="": hashes[key])
    names = KeySet()
    for key in ("a", "other high", "other low"):
        assert names.add(key)
    assert [key for key in hashes if key in names] == ["a", "other high", "other low"]
    assert names.tick("other low")
    assert not names.ticked("a")


UUID = "0" * 32


def loaded(task: str, key: str, last_modified: float, uuid: str = UUID) -> LoadedSet:
    return LoadedSet(
        key=key, etag='"0"', task=task, attempt=key, uuid=uuid,
        last_modified=last_modified, files=0, bytes=0, offset=0, packed_bytes=0,
    )  # fmt: skip


def chosen(*sets: LoadedSet) -> list[str]:
    return [one.key for one in choose_attempts(sets, UUID)]


def test_the_newest_attempt_of_a_task_is_chosen() -> None:
    """Whatever the attempts are called; a tie is broken by the key, not by the listing."""
    assert chosen(loaded("1", "a", 20.0), loaded("1", "b", 10.0)) == ["a"]
    assert chosen(loaded("1", "a", 10.0), loaded("1", "b", 20.0)) == ["b"]
    assert chosen(loaded("1", "a", 10.0), loaded("1", "b", 10.0)) == ["b"]
    assert chosen(loaded("1", "b", 10.0), loaded("1", "a", 10.0)) == ["b"]


def test_another_runs_attempts_never_count() -> None:
    """A newer set of another UUID is passed over, and so is a task that has no other."""
    newer = loaded("1", "z", 99.0, uuid="1" * 32)
    assert chosen(loaded("1", "a", 10.0), newer, loaded("2", "y", 1.0, uuid="")) == ["a"]


def test_the_choice_does_not_depend_on_the_order(chance: random.Random) -> None:
    """Any driver that lists the same sets makes the same choice, in the order of the tasks."""
    sets = [
        loaded(str(chance.randrange(4)), f"k{number}", float(chance.randrange(3)))
        for number in range(20)
    ]
    first = chosen(*sets)
    for _ in range(20):
        chance.shuffle(sets)
        assert chosen(*sets) == first
    assert [one.task for one in choose_attempts(sets, UUID)] == sorted({one.task for one in sets})
