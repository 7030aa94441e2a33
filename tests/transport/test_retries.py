"""What is tried again, after which wait, and when it ends: by kind of failure."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from magic_committer import errors
from magic_committer.runtime.threads import Errand, Kind, patient
from magic_committer.stores.base import FileSlice, many_of
from magic_committer.stores.s3 import retry
from magic_committer.stores.s3.retry import FIRST_SECONDS
from tests.promises.hands import until
from tests.servers import HurriedClock, Reply, document, error
from tests.transport.lab import COMPLETED, LOST, PUT, Lab, ask, at_once, complete, way_to

SLOW_DOWN = error(503, "SlowDown")
CONFLICT = error(409, "ConditionalRequestConflict")
SKEWED = error(403, "RequestTimeTooSkewed")
INSIDE = Reply(200, error(200, "InternalError").body)
CREATED = document("InitiateMultipartUpload", "<UploadId>u1</UploadId>")
BRIEF, LONG = (0.05, 0.1), (0.5, 1.0)
"""The first wait, in seconds, drawn from half to whole; it doubles."""


@pytest.mark.parametrize(
    ("verb", "said", "waits"),
    [
        *[("put", [passing, PUT], [BRIEF]) for passing in (
            error(500, "InternalError"), error(502, "BadGateway"), error(400, "RequestTimeout"),
            LOST)],
        ("put", [SLOW_DOWN, error(429, "TooManyRequests"), PUT], [LONG, (1.0, 2.0)]),
        ("put", [SKEWED, PUT], [BRIEF]),  # it slept between signing and sending: it signs anew
        ("put", [error(408, "408"), PUT], [BRIEF]),
        ("put", [error(409, "SomethingElse"), PUT], [BRIEF]),
        ("put if", [CONFLICT, PUT], [BRIEF]),
        ("complete_upload", [error(409, "OperationAborted"), COMPLETED], [BRIEF]),
        ("complete_upload", [INSIDE, COMPLETED], [BRIEF]),  # S3 may fail after its 200
        ("create_upload", [LOST, CREATED], [BRIEF]),  # there may be two: attempts tells
    ],
)  # fmt: skip
def test_what_passes_is_tried_again(
    lab: Lab, verb: str, said: list[Reply], waits: list[tuple[float, float]]
) -> None:
    """Throttled requests wait long, others briefly, each wait twice as long; the result says how
    often it was sent."""
    lab.said(*said)
    assert ask(lab.make(retry_attempts_max=9), verb)[0].attempts == len(lab.asked) == len(said)
    for slept, (low, high) in zip(lab.clock.slept, waits, strict=True):
        assert low <= slept <= high


UNHEARD = [
    SLOW_DOWN, error(500, "InternalError"), INSIDE, LOST, Reply(hung=True),
    Reply(504, "<html>gateway"),
]  # fmt: skip


@pytest.mark.parametrize("reply", UNHEARD)
def test_attempts_end(lab: Lab, reply: Reply) -> None:
    """After ``retry_attempts_max`` sendings there is no answer, never success, and the error says
    how many (the SDK retries nothing itself), and that it may have taken effect; also while a
    refused connection is being handled, which proves nothing of this request."""
    lab.said(reply)
    tries = 2 if reply.hung else 8
    with pytest.raises(errors.Unanswered) as caught:
        try:
            ask(lab.make(url="http://127.0.0.1:9"), "put")
        except errors.Unanswered:
            seconds = 0.1 if reply.hung else 30.0
            store = lab.make(retry_attempts_max=tries, complete_seconds_max=seconds)
            ask(store, "complete_upload")
    told = caught.value
    until(lambda: len(lab.asked) >= tries)  # a server may be slower than a short time-out
    assert len(lab.asked) == told.attempts == len(lab.clock.slept) + 1 == tries
    status = 0 if reply.lost or reply.hung else 500 if reply is INSIDE else reply.status
    codes = {500: "InternalError", 503: "SlowDown"}
    assert (told.sent, told.status, told.code) == (True, status, codes.get(status, ""))
    assert reply is SLOW_DOWN or "may have taken effect" in str(told)


def test_a_wrong_clock_is_told_after_a_second_try(lab: Lab) -> None:
    """The SDK does not correct a clock by the answers' date, and nor do we; when it has been set,
    the same store goes on."""
    lab.said(SKEWED, SKEWED, PUT)
    store = lab.make(retry_attempts_max=9)
    with pytest.raises(errors.PermissionDenied, match="Set this machine's clock") as caught:
        store.put("k", b"x")
    assert (caught.value.code, caught.value.attempts) == ("RequestTimeTooSkewed", 2)
    assert store.put("k", b"x").attempts == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://store.invalid", ""])
def test_a_store_that_never_answered_is_given_up_soon(lab: Lab, caplog: Any, url: str) -> None:
    """Where nobody has ever listened, or somebody hangs up, the address is wrong: some seconds are
    enough, and the first failure is a warning. A decided job is finished all the same."""
    lab.patch.setattr(retry, "_met", set())
    # The sixth wait ends just before the time is over.
    lab.patch.setattr("random.uniform", lambda low, high: 0.786 * high)
    lab.said(LOST)
    store = lab.make(url=url or lab.url, retry_attempts_max=99, decided_seconds_max=30.0)
    caplog.set_level(logging.WARNING, "magic_committer")
    with pytest.raises(errors.Unanswered) as caught:
        store.head("k")
    assert caught.value.attempts > 1
    assert sum(lab.clock.slept) <= FIRST_SECONDS
    (warning,) = [one.getMessage() for one in caplog.records if one.name == "magic_committer"]
    assert "head s3://b/k: attempt 1 failed" in warning
    assert "this store has not answered yet" in warning
    assert not url or f"could not reach {url}" in warning
    lab.clock.slept.clear()
    with patient(Kind.DECIDED), pytest.raises(errors.Unanswered):
        store.put("k", b"x")
    assert sum(lab.clock.slept) > 2 * FIRST_SECONDS


def test_an_address_that_takes_all_of_the_time_has_a_second_try(lab: Lab) -> None:
    """A network may come up while a process starts."""
    lab.patch.setattr(retry, "_met", set())
    lab.patch.setattr(lab.clock, "monotonic", chain([0.0], repeat(FIRST_SECONDS)).__next__)
    with pytest.raises(errors.Unanswered) as caught:
        lab.make(url="http://127.0.0.1:9", retry_attempts_max=99).head("k")
    assert caught.value.attempts == 2


@pytest.mark.parametrize("reply", [error(500, "InternalError"), Reply(hung=True)])
def test_an_error_for_one_key_does_not_keep_the_others_from_being_asked(
    lab: Lab, reply: Reply
) -> None:
    """When the time of a phase is used up, a store that answers is asked once for each; one that is
    silent is not."""
    lab.script(lambda asked: reply if "/bad" in asked.path else PUT)
    seconds = 0.1 if reply.hung else 30.0
    store = lab.make(read_seconds_max=seconds, retry_seconds_max=5.0, retry_attempts_max=99)
    with patient():
        for _ in range(2):
            with pytest.raises(errors.Unanswered) as caught:
                store.put("bad", b"x")
        assert caught.value.attempts == (0 if reply.hung else 1)
        if not reply.hung:
            assert store.put("good", b"x").attempts == 1


@pytest.mark.parametrize("first", [PUT, SLOW_DOWN, error(403, "AccessDenied"), None])
def test_a_store_that_answered_once_or_listens_is_waited_for(
    lab: Lab, caplog: pytest.LogCaptureFixture, first: Any
) -> None:
    """After any answer the store is one, for the whole process. One that is silent may be slow, and
    that is a warning."""
    lab.patch.setattr(retry, "_met", set())
    if first is not None:
        lab.said(first)
        with suppress(errors.StoreError):
            lab.make("a").put("k", b"x")
    lab.said(LOST if first is not None else Reply(hung=True))
    store = lab.make(read_seconds_max=0.1, retry_seconds_max=20.0, retry_attempts_max=99)
    with pytest.raises(errors.Unanswered) as caught:
        store.put("k", b"x")
    assert caught.value.status == 0
    assert sum(lab.clock.slept) > 2 * FIRST_SECONDS
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == (first is None)


def test_nothing_is_sent_again_when_its_errand_has_ended_in_the_wait(lab: Lab) -> None:
    """By itself and among many: what the caller does next comes after it. The error is that of the
    try before."""
    lab.said(error(500, "InternalError"))

    class Ending(HurriedClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            errand.end(60.0)

    store, told = way_to(lab.url, Ending(), retry_attempts_max=9), []
    errand = Errand()
    with errand.here(), pytest.raises(errors.Unanswered) as caught:
        ask(store, "put")
    told.append(caught.value)
    if many_of(store) is not None:
        errand = Errand()
        with errand.here():
            told.append(at_once(store, complete("k"))["k"])
    assert [(one.status, one.attempts) for one in told] == [(500, 1)] * len(told)
    assert len(lab.asked) == len(told)


BIG = bytes(range(256)) * 8192


@pytest.mark.parametrize("failure", [LOST, SLOW_DOWN])
def test_a_body_is_sent_whole_each_time(lab: Lab, tmp_path: Path, failure: Reply) -> None:
    """A part from memory or from a file is sent from its beginning at each attempt. A file that is
    not there is no store's error."""
    (tmp_path / "f").write_bytes(b"before" + BIG + b"after")
    for body in (memoryview(BIG), FileSlice(str(tmp_path / "f"), 6, len(BIG))):
        lab.asked.clear()
        lab.said(failure, PUT)
        assert lab.store.put_part("k", "u", 1, body).size == len(BIG)
        assert [asked.body == BIG for asked in lab.asked] == [True, True]
    with pytest.raises(FileNotFoundError) as caught:
        lab.store.put_part("k", "u", 1, FileSlice("no such file", 0, 1))
    assert not isinstance(caught.value, errors.StoreError)
    assert len(lab.asked) == 2
