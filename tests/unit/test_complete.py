"""Completing one upload: what each answer of a store comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from magic_committer.commit.requests import by_verbs
from magic_committer.commit.sets import ReadyUpload
from magic_committer.commit.uploads import (
    CONFLICT_PAUSE_SECONDS,
    CONFLICT_TRIES_MAX,
    LOOKS_MAX,
    REFUSED_PAUSE_SECONDS,
    Completion,
    completing,
    same_parts,
)
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.hadoop.statistics import Statistics
from magic_committer.stores.base import Checksum, Part, Written
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock
from tests.unit import one_upload
from tests.unit.one_upload import KEY, TOKEN

ERRORS: dict[str, StoreError] = {
    "400": InvalidRequest("bad part", status=400, code="InvalidPart"),
    "403": PermissionDenied("not allowed", status=403),
    "404": NotFound("no such upload", status=404, code="NoSuchUpload"),
    "409": WriteConflict("conflict", status=409),
    "412": PreconditionFailed("precondition", status=412),
    "no answer": Unanswered("no answer"),
}


class World(one_upload.World):
    """One upload of ours on a store that refuses Complete so, the last way for ever by default.

    Attributes:
        completes: of each Complete, whether it had a condition.
    """

    def __init__(self, *refusals: StoreError, times: int = 99) -> None:
        clock = PatientClock()
        self.completes: list[bool] = []
        self.refusals = [*refusals, *refusals[-1:] * (times - len(refusals))]
        super().__init__(MemoryStore(clock=clock.now, forgetful_complete=True), clock)

    def _before(self, request: Request) -> None:
        super()._before(request)
        if request.verb == "complete_upload":
            self.completes.append(request.if_none_match)
            if self.refusals:
                raise self.refusals.pop(0)

    def done_by_another(self) -> None:
        """Another executor completes it."""
        complete = partial(MemoryStore.complete_upload, self.store, KEY)
        self.quietly(partial(complete, self.upload.upload_id, self.upload.parts))

    def gone(self, *, overwritten: bool = False) -> None:
        """Somebody has aborted it, or completed it and written another object."""
        self.drop()
        if overwritten:
            self.overwrite()

    def run(
        self, *, if_none_match: bool = False, distrust: bool = False
    ) -> tuple[Completion, StoreError | None]:
        work = completing(
            self.runtime, self.upload, Statistics(), if_none_match=if_none_match, distrust=distrust
        )
        return by_verbs(self.runtime, work)


# Refused for good ---------------------------------------------------------------------------------

FINAL = InvalidRequest("must include the checksum for each part", status=400, code="InvalidRequest")
ANOTHER = InvalidRequest("else", status=400, code="BadDigest")
CURABLE: dict[str, StoreError] = {
    "no room": InvalidRequest("quota", status=403, code="QuotaExceeded"),
    "another region": InvalidRequest("region", status=400, code="AuthorizationHeaderMalformed"),
    "a key that is disabled": InvalidRequest("kms", status=400, code="KMS.DisabledException"),
    "no certificate": InvalidRequest("certificate", status=0, sent=False),
    "sent before": InvalidRequest("wrong", status=400, code="InvalidRequest", attempts=2),
}


def refusals() -> Iterator[Any]:
    """Of an open upload: the answers, whether with a condition, what becomes of it, the tries."""
    for answer, error in ERRORS.items():
        if answer != "400":
            for condition in (True, False):  # a conflict with nothing is tried again
                again = condition and answer in ("409", "412")
                tries = CONFLICT_TRIES_MAX if again else 1
                yield pytest.param((error,), condition, False, tries, id=f"{answer}-{condition}")
    for condition in (True, False):
        yield pytest.param((FINAL,), condition, False, 2, id=f"called wrong twice-{condition}")
    for answer, error in (ERRORS | {"another 400": ANOTHER}).items():
        if answer != "400":
            yield pytest.param((FINAL, error), False, False, 2, id=f"of two kinds-{answer}")
    for why, error in CURABLE.items():
        yield pytest.param((error,), False, False, 1, id=why)
    for answer, times in (("409", CONFLICT_TRIES_MAX - 1), ("412", CONFLICT_TRIES_MAX - 1)):
        yield pytest.param((ERRORS[answer],) * times, True, True, times + 1, id=f"{answer} passes")
    yield pytest.param((FINAL,), True, True, 2, id="400 passes")


@pytest.mark.parametrize(("answers", "condition", "passes", "tries"), [*refusals()])
def test_an_open_upload_is_refused_only_if_it_is_called_wrong_twice(
    answers: tuple[StoreError, ...], condition: bool, passes: bool, tries: int
) -> None:
    """The same 400 after a pause, and its parts are there; whatever waiting mends is unfinished."""
    world = World(*answers, times=len(answers) if passes else 99)
    before = world.clock.now()
    told = world.run(if_none_match=condition)
    assert world.completes == [condition] * tries
    if passes:
        assert told == (Completion.DONE, None)
        assert world.store.body(KEY) == b"abc"
        return
    refused = answers == (FINAL,)
    become = Completion.REFUSED if refused else Completion.UNFINISHED
    assert told == (become, answers[-1])
    assert world.store.open_uploads()
    assert not refused or world.clock.now() - before >= REFUSED_PAUSE_SECONDS
    if condition and not refused:  # each pause is twice the one before
        waited = CONFLICT_PAUSE_SECONDS * (2 ** (tries - 1) - 1)
        assert waited <= world.clock.now() - before <= waited + 0.1


@pytest.mark.parametrize("by", ["completed", "aborted"])
def test_a_refused_upload_that_ends_in_the_pause_is_looked_at(by: str) -> None:
    """Refused, completed or aborted by another, refused again: its object or its parts tell."""
    world = World(FINAL)
    sleep = world.clock.sleep

    def paused(seconds: float) -> None:
        sleep(seconds)
        world.done_by_another() if by == "completed" else world.gone()

    world.clock.sleep = paused  # type: ignore[method-assign]
    expected = (Completion.DONE, None) if by == "completed" else (Completion.LOST, FINAL)
    assert world.run() == expected


def checked(world: World, *, strict: bool = False) -> list[tuple[Checksum | None, Checksum | None]]:
    """Of each Complete the first part's checksum and the whole object's. ``strict``: 400 unless
    each part has its checksum (versitygw, AWS)."""
    sent: list[tuple[Checksum | None, Checksum | None]] = []
    complete = world.store.complete_upload

    def noted(key: str, upload_id: str, parts: Sequence[Part], **options: Any) -> Written:
        sent.append((parts[0].checksum, options["checksum"]))
        if strict and parts[0].checksum is None:
            raise FINAL
        return complete(key, upload_id, parts, **options)

    world.store.complete_upload = noted  # type: ignore[method-assign]
    return sent


@pytest.mark.parametrize(("body", "value"), [(b"", "AAAAAA=="), (b"abc", "NSRBwg==")])
def test_the_checksum_of_no_bytes_is_not_sent(body: bytes, value: str) -> None:
    """MinIO answers 400 to that of an empty object; all others the store verifies whole."""
    world, crc = World(), Checksum("CRC32", value)
    world.upload = world.create(body, crc)
    sent = checked(world)
    assert world.run() == (Completion.DONE, None)
    assert sent == [(crc, crc if body else None)]


def test_checksums_that_a_set_has_lost_are_taken_from_the_store() -> None:
    """A set of ``etag_form="strings"`` names none: the second Complete has what the store has."""
    world, crc = World(), Checksum("CRC32", "NSRBwg==")
    whole = world.create(b"abc", crc)
    world.upload = whole._replace(parts=(whole.parts[0]._replace(checksum=None),))
    sent = checked(world, strict=True)
    assert world.run() == (Completion.DONE, None)
    assert sent == [(None, crc), (crc, crc)]
    assert world.store.body(KEY) == b"abc"


@pytest.mark.parametrize("answer", ERRORS)
@pytest.mark.parametrize("if_none_match", [True, False])
@pytest.mark.parametrize("truth", ["completed", "overwritten", "aborted"])
def test_an_upload_that_has_ended_is_what_its_object_tells(
    truth: str, answer: str, if_none_match: bool
) -> None:
    """Done by its token, whatever is said; else unresolved, or lost; maybe still under way."""
    world = World(ERRORS[answer])
    if truth == "completed":
        world.done_by_another()
        assert world.run(if_none_match=if_none_match) == (Completion.DONE, None)
        return
    world.gone(overwritten=truth == "overwritten")
    gone = Completion.UNRESOLVED if truth == "overwritten" else Completion.LOST
    become = Completion.UNFINISHED if answer == "no answer" else gone
    assert world.run() == (become, ERRORS[answer])


@pytest.mark.parametrize("answer", ["403", "404", "409", "412", "400"])
@pytest.mark.parametrize("verb", ["head", "list_parts"])
@pytest.mark.parametrize("if_none_match", [True, False])
def test_what_nobody_can_tell_is_unfinished(answer: str, verb: str, if_none_match: bool) -> None:
    """It may be open, so it is never called lost; the reason is what is to be mended."""
    world = World(ERRORS[answer])
    world.refused[verb] = ERRORS["403"]
    if verb == "head":  # and a listing, which would tell
        world.refused["list"] = ERRORS["403"]
        world.gone()
    completion, error = world.run(if_none_match=if_none_match)
    assert completion is Completion.UNFINISHED
    assert answer != "404" or verb != "head" or error == ERRORS["403"]


@pytest.mark.parametrize("answer", ERRORS)
@pytest.mark.parametrize("if_none_match", [True, False])
@pytest.mark.parametrize("denied", [True, False])
def test_only_a_conditional_complete_conflicts_and_only_with_an_object(
    answer: str, if_none_match: bool, denied: bool
) -> None:
    """A foreign object, ``If-None-Match``, and 409 or 412; also where no parts may be listed."""
    world = World(ERRORS[answer])
    world.store.put_object(KEY, b"theirs")
    if denied:
        world.refused["list_parts"] = ERRORS["403"]
    conflict = if_none_match and answer in ("409", "412")
    refused = answer == "400" and not denied
    completion, error = world.run(if_none_match=if_none_match)
    assert completion is (
        Completion.CONFLICT if conflict
        else Completion.REFUSED if refused
        else Completion.UNFINISHED
    )  # fmt: skip
    if answer in ("409", "412"):
        assert (error, len(world.completes)) == (ERRORS[answer], 1)


# A 200 that is false ------------------------------------------------------------------------------

ETAG = '"0123456789abcdef0123456789abcdef-1"'
WRITTEN = Written(ETAG)


def false(answer: Written = WRITTEN) -> World:
    """One upload on a store that answers Complete so, and does nothing."""
    world = World()
    world.store.complete_upload = lambda *_, **__: answer  # type: ignore[method-assign]
    return world


@pytest.mark.parametrize("look", [1, 2, LOOKS_MAX])
def test_an_object_that_comes_a_little_later_is_waited_for(look: int) -> None:
    """A Complete beside another one is answered before the other has ended: the wait is bounded."""
    world = false()
    world.before("head", look, world.done_by_another)
    assert world.run(distrust=True) == (Completion.DONE, None)
    assert world.sent.count("head") == look


@pytest.mark.parametrize("answer", ["403", "no answer"])
def test_what_cannot_be_looked_at_after_a_200_is_unfinished(answer: str) -> None:
    """The reason is told, and it is asked again later; a refusal is not asked for again now."""
    world = World()
    world.refused["head"] = ERRORS[answer]
    assert world.run(distrust=True) == (Completion.UNFINISHED, ERRORS[answer])
    assert world.sent.count("head") == (2 if answer == "403" else LOOKS_MAX)


@pytest.mark.parametrize(
    ("multipart_etag", "answered", "there", "done"),
    [
        (ETAG, "", ETAG, True),
        (ETAG, ETAG, '"other-1"', False),
        ("", '"by-a-key-1"', '"by-a-key-1"', True),
        (ETAG, '"by-a-key-1"', '"by-a-key-1"', True),
        ("", '"by-a-key-1"', '"other-1"', False),
        ("", "", '"whatever-1"', True),
    ],
)
def test_an_upload_of_hadoops_is_recognised_by_its_etag(
    multipart_etag: str, answered: str, there: str, done: bool
) -> None:
    """By its parts', else by the one that Complete answered, else by whatever is there."""
    world = false(Written(answered))
    world.upload = world.upload._replace(token="", multipart_etag=multipart_etag)
    world.gone(overwritten=True)
    info = replace(world.store.head(KEY), etag=there)
    world.store.after = lambda request, reply: info if request.verb == "head" else None
    expected = Completion.DONE if done else Completion.UNRESOLVED
    assert world.run(distrust=True)[0] is expected


def test_a_conflict_that_was_sent_again_is_looked_after() -> None:
    """409 first, then 200: that Complete was sent more than once, too."""
    world = World(ERRORS["409"], times=1)
    assert world.run(if_none_match=True) == (Completion.DONE, None)
    assert world.store.requests["head"] == 2  # by the first answer, and after the second


# Parts that the store has lost --------------------------------------------------------------------


def without_parts(world: World) -> None:
    """MinIO, after a client hung up in Complete: the upload is open, its parts are gone."""
    world.store.after = lambda request, reply: ((), None) if request.verb == "list_parts" else None


@pytest.mark.parametrize(
    ("answer", "overwritten", "become"),
    [
        ("400", False, Completion.LOST),
        ("400", True, Completion.UNRESOLVED),
        ("no answer", False, Completion.UNFINISHED),
    ],
)
def test_an_open_upload_without_its_parts_is_lost(
    answer: str, overwritten: bool, become: Completion
) -> None:
    """Not unfinished for ever; but a Complete without an answer may be what has the parts."""
    world = World(ERRORS[answer])
    without_parts(world)
    if overwritten:
        world.store.put_object(KEY, b"theirs")
    assert world.run() == (become, ERRORS[answer])


def test_parts_that_are_gone_because_another_completes_it_just_now_are_waited_for() -> None:
    """Between taking the parts away and showing the object a store shows neither."""
    world = World(ERRORS["400"])
    without_parts(world)

    def ends() -> None:
        world.refusals = []
        world.done_by_another()

    world.before("head", 3, ends)
    assert world.run() == (Completion.DONE, None)


# Stored parts -------------------------------------------------------------------------------------

CRC = Checksum("CRC32", "AAAAAA==")
OURS = Part(1, '"aaa"', 3, CRC)
BARE = OURS._replace(checksum=None)


def theirs(**changes: Any) -> Part:
    """Another stored part, of another ETag."""
    return OURS._replace(**{"etag": '"bbb"', **changes})


@pytest.mark.parametrize(
    ("ours", "stored", "same"),
    [
        (OURS, theirs(), True),
        (OURS, theirs(checksum=None), False),
        (OURS, theirs(checksum=Checksum("CRC32", "BBBBBB==")), False),
        (OURS, theirs(checksum=Checksum("CRC32C", CRC.value)), False),
        (OURS, theirs(size=4), False),
        (OURS, theirs(number=2), False),
        (BARE, Part(1, '"bbb"', 3, CRC), False),
        (BARE, Part(1, '"bbb"', 3, None), False),
        (BARE, Part(1, "", 3, None), False),
        (BARE._replace(etag='"bbb"'), Part(1, "bbb", 3, None), True),
        (BARE, OURS, True),
        (OURS, OURS, False),
    ],
)
def test_a_stored_part_is_ours_by_its_bytes_only(ours: Part, stored: Part, same: bool) -> None:
    """Number, size, and ETag or checksum: a size alone proves no bytes, nor do other parts."""
    upload = ReadyUpload(KEY, "id", TOKEN, "", (ours,), 3)
    taken = ours._replace(etag=stored.etag, checksum=ours.checksum or stored.checksum)
    assert same_parts(upload, (stored,)) == ((taken,) if same else None)
    second = theirs(number=2, checksum=Checksum("CRC32", "BBBBBB=="))
    two = upload._replace(parts=(ours, OURS._replace(number=2)))
    assert same_parts(upload, ()) is None
    assert same_parts(upload, (stored, second)) is None
    assert same_parts(two, (stored,)) is None
    assert same_parts(two, (stored, second)) is None


def test_parts_of_other_bytes_and_the_same_size_are_never_completed() -> None:
    """InvalidPart, and what is stored has our size and no checksum: refused for good."""
    world = World()
    world.store.put_part(KEY, world.upload.upload_id, 1, memoryview(b"xyz"))
    assert world.run()[0] is Completion.REFUSED
    assert world.store.keys() == ()


@pytest.mark.parametrize("overwritten", [False, True])
def test_a_false_200_says_what_is_there(overwritten: bool) -> None:
    """Nothing, or another object: who repairs the server must know which."""
    world = false()
    world.gone(overwritten=overwritten)
    become, error = world.run(distrust=True)
    assert become is (Completion.UNRESOLVED if overwritten else Completion.LOST)
    there = "another object" if overwritten else "nothing"
    assert f"with success, but {there} is there" in str(error)


@pytest.mark.parametrize("by", ["another", "the server"])
def test_the_last_look_after_a_false_200_is_believed(by: str) -> None:
    """Completed at last it is done; open without its parts nobody completes it any more."""
    world = false()
    if by == "another":
        world.before("head", LOOKS_MAX + 1, world.done_by_another)
        assert world.run(distrust=True) == (Completion.DONE, None)
    else:
        without_parts(world)
        assert world.run(distrust=True)[0] is Completion.LOST
