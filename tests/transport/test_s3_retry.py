"""Retries by kind of failure, against a server that answers as the test says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from magic_committer._patience import Kind, patient
from magic_committer.errors import (
    BucketNotFound,
    InvalidRequest,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.stores.base import Attributes, FileSlice, Part
from magic_committer.stores.s3 import S3Store, retry
from magic_committer.stores.s3.retry import (
    FIRST_SECONDS,
    THROTTLED_SECONDS,
    TRANSIENT_SECONDS,
)
from tests.servers import (
    HurriedClock,
    Reply,
    ScriptedServer,
    document,
    error,
    scripted_server,
    way,
)

pytestmark = pytest.mark.usefixtures("transport")

PUT = Reply(headers={"ETag": '"e"'})
CREATED = document("InitiateMultipartUpload", "<UploadId>u1</UploadId>")
COMPLETED = document("CompleteMultipartUpload", '<ETag>"e-1"</ETag>')
SLOW_DOWN = error(503, "SlowDown")
LOST = Reply(lost=True)
PARTS = [Part(1, '"p"', 1)]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that answers as the test says."""
    with scripted_server() as running:
        yield running


@pytest.fixture
def clock() -> HurriedClock:
    """Nobody waits."""
    return HurriedClock()


@pytest.fixture
def store(server: ScriptedServer, clock: HurriedClock) -> S3Store:
    """A store on that server."""
    return S3Store("b", way(server.url), clock=clock)


def test_throttling_waits_long_and_longer(
    store: S3Store, server: ScriptedServer, clock: HurriedClock
) -> None:
    """SlowDown is tried again after a second, then two: each drawn between half and whole."""
    server.said(SLOW_DOWN, error(429, "TooManyRequests"), PUT)
    assert store.put("k", b"x").attempts == 3
    first, second = clock.slept
    assert THROTTLED_SECONDS / 2 <= first <= THROTTLED_SECONDS
    assert THROTTLED_SECONDS <= second <= 2 * THROTTLED_SECONDS


@pytest.mark.parametrize(
    "failure",
    [error(500, "InternalError"), error(502, "BadGateway"), error(400, "RequestTimeout"), LOST],
)
def test_passing_failures_wait_briefly(
    store: S3Store, server: ScriptedServer, clock: HurriedClock, failure: Reply
) -> None:
    """5xx, RequestTimeout and broken connections are tried again after a tenth of a second."""
    server.said(failure, PUT)
    assert store.put("k", b"x").attempts == 2
    (slept,) = clock.slept
    assert TRANSIENT_SECONDS / 2 <= slept <= TRANSIENT_SECONDS


@pytest.mark.parametrize(
    ("failure", "cls"),
    [
        (error(400, "InvalidPart"), InvalidRequest),
        (error(403, "AccessDenied"), PermissionDenied),
        (error(404, "NoSuchBucket"), BucketNotFound),
        (error(412, "PreconditionFailed"), PreconditionFailed),
    ],
)
def test_final_answers_are_final(
    store: S3Store, server: ScriptedServer, failure: Reply, cls: type[StoreError]
) -> None:
    """What the store refuses is sent once."""
    server.said(failure, PUT)
    with pytest.raises(cls) as caught:
        store.put("k", b"x")
    assert caught.value.attempts == len(server.asked) == 1


def test_attempts_end(server: ScriptedServer, clock: HurriedClock) -> None:
    """After ``retry_attempts_max`` sendings there is no answer, and the error says how many."""
    store = S3Store("b", way(server.url, retry_attempts_max=3), clock=clock)
    server.said(error(500, "InternalError"))
    with pytest.raises(Unanswered) as caught:
        store.put("k", b"x")
    assert caught.value.attempts == len(server.asked) == 3
    assert (caught.value.status, caught.value.code) == (500, "InternalError")


def test_time_ends(server: ScriptedServer, clock: HurriedClock) -> None:
    """No attempt starts later than ``retry_seconds_max`` after the first."""
    store = S3Store("b", way(server.url, retry_seconds_max=4.0, retry_attempts_max=99), clock=clock)
    server.said(SLOW_DOWN)
    with pytest.raises(Unanswered):
        store.put("k", b"x")
    assert len(server.asked) > 1
    assert sum(clock.slept) <= 4.0


def test_silence_is_no_answer(server: ScriptedServer, clock: HurriedClock) -> None:
    """A server that says nothing is given up after the time-out; status 0 tells that."""
    store = S3Store("b", way(server.url, read_seconds_max=0.1, retry_attempts_max=2), clock=clock)
    server.said(Reply(hung=True))
    with pytest.raises(Unanswered) as caught:
        store.head("k")
    assert (caught.value.status, caught.value.attempts) == (0, 2)


def test_nobody_there_is_no_answer(clock: HurriedClock) -> None:
    """A refused connection is no answer, and the hint names the endpoint."""
    with scripted_server() as server:
        gone = way(server.url, retry_attempts_max=2)
    with pytest.raises(Unanswered, match="endpoint") as caught:
        S3Store("b", gone, clock=clock).head("k")
    assert caught.value.status == 0


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store has answered yet in this process."""
    monkeypatch.setattr(retry, "_met", set())


@pytest.mark.usefixtures("strange")
@pytest.mark.parametrize("where", ["refused", "unknown name", "hangs up"])
def test_a_store_that_never_answered_is_given_up_soon(
    server: ScriptedServer, clock: HurriedClock, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """Where nobody has ever listened the address is wrong: some seconds are enough, and the second
    try is a warning."""
    server.said(LOST)
    url = {"refused": "http://127.0.0.1:9", "unknown name": "http://store.invalid"}
    store = S3Store("b", way(url.get(where, server.url)), clock=clock)
    with caplog.at_level(logging.WARNING, "magic_committer"), pytest.raises(Unanswered) as caught:
        store.head("k")
    assert caught.value.attempts > 1
    assert sum(clock.slept) <= FIRST_SECONDS
    (warning,) = [one.getMessage() for one in caplog.records if one.name == "magic_committer"]
    assert "head s3://b/k: attempt 1 failed" in warning
    assert "this store has not answered yet" in warning
    assert where == "hangs up" or f"could not reach {url[where]}" in warning


@pytest.mark.usefixtures("strange")
@pytest.mark.parametrize("first", [PUT, SLOW_DOWN, error(403, "AccessDenied")])
def test_a_store_that_answered_once_is_waited_for(
    server: ScriptedServer, clock: HurriedClock, first: Reply
) -> None:
    """After any answer the store is one, and gets its time. That holds for the whole process, for
    whoever asks that endpoint."""
    server.said(first)
    with suppress(StoreError):
        S3Store("a", way(server.url, retry_attempts_max=1), clock=clock).put("k", b"x")
    server.said(LOST)
    with pytest.raises(Unanswered):
        S3Store("b", way(server.url, retry_seconds_max=30.0), clock=clock).put("k", b"x")
    assert sum(clock.slept) > 2 * FIRST_SECONDS


@pytest.mark.usefixtures("strange")
def test_a_decided_job_waits_for_a_store_that_never_answered(clock: HurriedClock) -> None:
    """It is finished, even if this process has not met the store."""
    store = S3Store("b", way("http://127.0.0.1:9", decided_seconds_max=30.0), clock=clock)
    with patient(Kind.DECIDED), pytest.raises(Unanswered):
        store.put("k", b"x")
    assert sum(clock.slept) > 2 * FIRST_SECONDS


@pytest.mark.usefixtures("strange")
def test_a_silent_store_is_waited_for(server: ScriptedServer, clock: HurriedClock) -> None:
    """Somebody listens, who may be slow at first."""
    server.said(Reply(hung=True))
    options = way(server.url, read_seconds_max=0.1, retry_seconds_max=20.0)
    with pytest.raises(Unanswered):
        S3Store("b", options, clock=clock).head("k")
    assert sum(clock.slept) > 2 * FIRST_SECONDS


def test_an_answer_that_cannot_be_read_is_no_answer(
    server: ScriptedServer, clock: HurriedClock
) -> None:
    """What a proxy says instead of the store is tried again, then given up."""
    store = S3Store("b", way(server.url, retry_attempts_max=2), clock=clock)
    server.said(Reply(200, "<html>not <closed"))
    with pytest.raises(Unanswered) as caught:
        next(store.list("p"))
    assert caught.value.attempts == 2


def test_a_lost_reply_of_a_conditional_put_meets_itself(
    store: S3Store, server: ScriptedServer
) -> None:
    """PUT ``If-None-Match`` that took effect unheard is 412 at the retry, told by attempts."""
    server.said(LOST, error(412, "PreconditionFailed"))
    with pytest.raises(PreconditionFailed) as caught:
        store.put("k", b"x", if_none_match=True)
    assert caught.value.attempts == 2


def test_a_retried_create_says_so(store: S3Store, server: ScriptedServer) -> None:
    """After a lost reply of Create there may be two uploads: attempts tells."""
    server.said(LOST, CREATED)
    created = store.create_upload("k", attributes=Attributes())
    assert (created.upload_id, created.attempts) == ("u1", 2)


def test_a_conflict_of_a_put_is_tried_again(store: S3Store, server: ScriptedServer) -> None:
    """409 on a conditional PUT: send again (S3 API)."""
    server.said(error(409, "ConditionalRequestConflict"), PUT)
    assert store.put("k", b"x", if_none_match=True).attempts == 2


def test_a_conflict_of_a_conditional_complete_is_final(
    store: S3Store, server: ScriptedServer
) -> None:
    """409 on a conditional Complete: the parts would have to be sent again (S3 API)."""
    server.said(error(409, "ConditionalRequestConflict"), COMPLETED)
    with pytest.raises(WriteConflict):
        store.complete_upload("k", "u", PARTS, if_none_match=True)
    assert len(server.asked) == 1


def test_a_conflict_of_a_plain_complete_is_tried_again(
    store: S3Store, server: ScriptedServer
) -> None:
    """Without a condition Complete may be repeated."""
    server.said(error(409, "OperationAborted"), COMPLETED)
    assert store.complete_upload("k", "u", PARTS).attempts == 2


def test_an_error_inside_a_200_is_an_error(store: S3Store, server: ScriptedServer) -> None:
    """Complete may answer 200 and then fail in the body: it is tried again (S3 API)."""
    inside = Reply(200, error(200, "InternalError").body)
    server.said(inside, COMPLETED)
    written = store.complete_upload("k", "u", PARTS)
    assert (written.etag, written.attempts) == ('"e-1"', 2)


def test_an_error_inside_every_200_is_no_answer(
    server: ScriptedServer, clock: HurriedClock
) -> None:
    """Where it stays so, it is Unanswered, never success."""
    store = S3Store("b", way(server.url, retry_attempts_max=2), clock=clock)
    server.said(Reply(200, error(200, "InternalError").body))
    with pytest.raises(Unanswered) as caught:
        store.complete_upload("k", "u", PARTS)
    assert caught.value.code == "InternalError"


def test_a_skewed_request_is_signed_anew_once(store: S3Store, server: ScriptedServer) -> None:
    """A machine that slept between signing and sending gets one more try; then the clock is
    wrong, and the hint says so."""
    server.said(error(403, "RequestTimeTooSkewed"), PUT)
    assert store.put("k", b"x").attempts == 2
    server.said(error(403, "RequestTimeTooSkewed"))
    with pytest.raises(PermissionDenied, match="clock") as caught:
        store.put("k", b"x")
    assert caught.value.attempts == 2


BIG = bytes(range(256)) * 8192


@pytest.mark.parametrize("failure", [LOST, SLOW_DOWN])
def test_a_body_is_sent_whole_each_time(
    store: S3Store, server: ScriptedServer, tmp_path: Path, failure: Reply
) -> None:
    """A part from memory or from a file is sent from its beginning at each attempt."""
    (tmp_path / "f").write_bytes(b"before" + BIG + b"after")
    for body in (memoryview(BIG), FileSlice(str(tmp_path / "f"), 6, len(BIG))):
        server.asked.clear()
        server.said(failure, PUT)
        part = store.put_part("k", "u", 1, body)
        assert part.size == len(BIG)
        assert [asked.body == BIG for asked in server.asked] == [True, True]


def test_a_read_cut_short_is_tried_again(store: S3Store, server: ScriptedServer) -> None:
    """A GET whose body ends early is read again, not handed out."""
    headers = {"ETag": '"e"', "Last-Modified": "Fri, 20 Nov 2026 11:00:00 GMT"}
    server.said(
        Reply(body=b"01234", headers=headers, missing=5), Reply(body=b"0123456789", headers=headers)
    )
    assert store.get("k", max_bytes=100).body == b"0123456789"
    assert len(server.asked) == 2


def test_other_exceptions_pass_through_at_once(store: S3Store, server: ScriptedServer) -> None:
    """What is not the store's answer, a missing local file, is no store's error."""
    with pytest.raises(FileNotFoundError) as caught:
        store.put_part("k", "u", 1, FileSlice("no such file", 0, 1))
    assert not isinstance(caught.value, StoreError)
    assert server.asked == []


def test_each_attempt_is_one_request_of_the_sdk(
    server: ScriptedServer, clock: HurriedClock
) -> None:
    """The SDK retries nothing itself: as many requests as waits, and one."""
    store = S3Store("b", way(server.url, retry_attempts_max=8), clock=clock)
    server.said(SLOW_DOWN)
    with pytest.raises(Unanswered) as caught:
        store.head("k")
    assert len(server.asked) == caught.value.attempts == len(clock.slept) + 1 == 8
