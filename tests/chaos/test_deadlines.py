"""A store that does not answer: every request ends in time, and so does a phase of many."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from magic_committer.errors import StoreError, Unanswered
from magic_committer.options import S3Options
from magic_committer.runtime.threads import (
    LATE_TRIES_MAX,
    Errand,
    Future,
    Kind,
    ThreadPool,
    cleaning_up,
    patient,
)
from magic_committer.stores.base import ObjectSlice, Part
from magic_committer.stores.s3 import S3Store
from magic_committer.stores.s3.http import BYTES_PER_SECOND_MIN, Deadline
from tests.certificates import Authority
from tests.chaos.silent import Mood, silent_server
from tests.servers import (
    TRANSPORT,
    Asked,
    HurriedClock,
    Reply,
    ScriptedServer,
    document,
    error,
    scripted_server,
    way,
)
from tests.transport import lab as verbs

BOUND_SECONDS = 1.0
SLACK_SECONDS = 60.0
"""What a loaded machine may take longer. Without deadlines these tests would take minutes, or
would not end."""
FAILING = error(500, "InternalError")
TAKEN = Reply(headers={"ETag": '"e"'})

VERBS: dict[str, Callable[[S3Store], Any]] = {
    **{verb: call for verb, (_, call) in verbs.VERBS.items()},
    "get": lambda s: s.get("k", max_bytes=1_000_000),
    "put_part": lambda s: s.put_part("k", "u", 1, memoryview(bytes(16 * 1024**2))),
}


def hurried(url: str, **more: Any) -> S3Options:
    """The way to a server, with short times."""
    short = {
        "connect_seconds_max": 1.0, "read_seconds_max": 0.4, "complete_seconds_max": 0.4,
        "retry_seconds_max": BOUND_SECONDS, "decided_seconds_max": BOUND_SECONDS,
    }  # fmt: skip
    return way(url, **{**short, **more})


Down = tuple[ScriptedServer, S3Store, HurriedClock]


@contextmanager
def down(reply: Reply = FAILING, **options: Any) -> Iterator[Down]:
    """A server that gives one reply again and again, the store on it, and the clock by which it
    waits. It answers, however busy the machine is."""
    clock = HurriedClock()
    patience = {"read_seconds_max": 30.0, **options}
    with scripted_server(lambda _: reply) as server:
        yield server, S3Store("b", hurried(server.url, **patience), clock=clock), clock


def ended(ask: Callable[[], Any]) -> tuple[float, BaseException | None]:
    """How long a call took, and what it raised."""
    began = time.monotonic()
    try:
        ask()
    except BaseException as failure:
        return time.monotonic() - began, failure
    return time.monotonic() - began, None


def unanswered(ask: Callable[[], Any], *, sent: bool = True) -> float:
    """How long a call took that raises `Unanswered`."""
    took, failure = ended(ask)
    assert isinstance(failure, Unanswered)
    assert failure.sent is sent
    return took


@pytest.fixture(autouse=True, params=["boto3", "fast"])
def transport(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test by both ways."""
    before = TRANSPORT.set(request.param)
    yield
    TRANSPORT.reset(before)


@pytest.mark.parametrize("mood", Mood)
def test_every_verb_ends_in_time(mood: Mood) -> None:
    """Whatever is not said, no verb takes longer than ``retry_seconds_max`` says, all tries and all
    bytes of their replies included, and each says that it may have taken effect."""
    found: dict[str, BaseException | None] = {}
    with silent_server(mood) as server:
        store = S3Store("b", hurried(server.url))

        def measure(verb: str) -> None:
            found[verb] = ended(lambda: VERBS[verb](store))[1]

        threads = [threading.Thread(target=measure, args=(verb,), daemon=True) for verb in VERBS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_SECONDS + SLACK_SECONDS)
    assert set(found) == set(VERBS)
    for verb, failure in found.items():
        if verb == "head" and mood in (Mood.HEAD, Mood.DRIP_BODY):
            assert not isinstance(failure, StoreError)  # the head is all that it asks for
            continue
        assert isinstance(failure, Unanswered), verb
        assert failure.sent


@pytest.mark.parametrize("mood", [Mood.DRIP, Mood.DRIP_BODY, Mood.DEAF])
def test_tls_keeps_the_deadline_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mood: Mood
) -> None:
    """An encrypted reply of a byte every 0.3 s ends as a plain one, and so does a part that nobody
    reads."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    with silent_server(mood, authority.server("127.0.0.1")) as server:
        store = S3Store("b", hurried(server.url))
        took = unanswered(lambda: VERBS["put_part"](store))
        assert server.taken > 0
    assert took < BOUND_SECONDS + SLACK_SECONDS


def test_what_moves_is_not_cut_off() -> None:
    """Bytes earn time: a transfer over the slowest line that is thought of outlives the time-out
    for the whole, and one that is slower does not. What was fast and then stops is given up after
    the time-out of one step."""
    fast, slow = Deadline(0.5, 0.5), Deadline(0.5, 0.5)
    for deadline, moved in ((fast, BYTES_PER_SECOND_MIN), (slow, BYTES_PER_SECOND_MIN // 1000)):
        deadline.receives()
        deadline.moved(moved)
    time.sleep(0.6)
    fast.moved(BYTES_PER_SECOND_MIN)
    slow.moved(1)
    assert fast.left > 0
    assert slow.left < 0
    stops = Deadline(50.0, 100.0)
    stops.moved(100 * BYTES_PER_SECOND_MIN)
    assert 0 < stops.left <= 50.0


def test_the_answer_has_its_time_however_long_the_body_took() -> None:
    """The time for the answer begins when the request is sent."""
    deadline = Deadline(10.0, 100.0)
    deadline._phase_ends -= 9.9
    deadline._silence_ends -= 9.9
    assert deadline.left < 1
    deadline.receives()
    assert deadline.left > 9


# Retries end by time ------------------------------------------------------------------------------


def test_an_outage_of_seconds_is_waited_out() -> None:
    """A server that restarts for 50 s, in its own time, is found again by a request with default
    options: retries end by time and not by number."""
    times = ("read_seconds_max", "retry_seconds_max")
    with down(TAKEN, **{name: getattr(S3Options(), name) for name in times}) as (server, store, at):
        store.put("k", b"x")  # a store that has never answered has less
        back = at.monotonic() + 50
        server.script = lambda _: Reply(lost=True) if at.monotonic() < back else TAKEN
        assert store.put("k", b"x").attempts > 8
    assert max(at.slept[:3]) < max(at.slept)


def test_a_decided_job_waits_longest() -> None:
    """A request of a decided job is tried for ``decided_seconds_max``, any other for
    ``retry_seconds_max``, cleaning up for a quarter."""
    bounds = {Kind.CLEANING: (5, 10), Kind.USUAL: (25, 40), Kind.DECIDED: (140, 160)}
    for kind, (least, most) in bounds.items():
        waits = down(retry_seconds_max=40.0, decided_seconds_max=160.0)
        with waits as (_, store, clock), patient(kind), pytest.raises(Unanswered):
            store.head("k")
        assert least < sum(clock.slept) <= most


def test_a_complete_may_take_longer_than_any_other_request() -> None:
    """S3 may work on a Complete for minutes, and copies a part in a while: one that is answered
    after ``read_seconds_max`` is sent once, any other request again."""
    with scripted_server() as server:

        def slowly(asked: Asked) -> Reply:
            time.sleep(1.0)
            if "x-amz-copy-source" in asked.headers:
                return document("CopyPart", '<ETag>"e"</ETag>')
            return document("CompleteMultipartUpload") if asked.method == "POST" else Reply()

        server.script = slowly
        patient_options = {"complete_seconds_max": 20.0, "retry_seconds_max": 20.0}
        store = S3Store("b", hurried(server.url, read_seconds_max=0.3, **patient_options))
        assert store.complete_upload("k", "u", [Part(1, '"p"', 1)]).attempts == 1
        store.put_part("k", "u", 1, ObjectSlice("o", "k", '"e"', 0, 9, 9))
        assert len(server.asked) == 2
        twice = S3Store("b", hurried(server.url, read_seconds_max=0.3, retry_attempts_max=2))
        with pytest.raises(Unanswered) as caught:
            twice.head("k")
        assert caught.value.attempts == 2


# Phases -------------------------------------------------------------------------------------------


def test_a_phase_ends_as_a_whole() -> None:
    """A thousand requests to a store that is down cost the time of one: those that come after it
    are not sent, and say so, but for a few that are tried once."""
    with down(retry_seconds_max=5.0) as (server, store, clock), patient():
        for number in range(1000):
            unanswered(lambda: store.head("k"), sent=number <= LATE_TRIES_MAX)
        assert len(server.asked) < 20 + LATE_TRIES_MAX
    assert sum(clock.slept) <= 5.0


def test_an_answer_begins_the_time_anew() -> None:
    """A phase is not cut short while the store answers, however long it takes."""
    with down(retry_seconds_max=5.0) as (server, store, clock), patient():
        for _ in range(5):
            server.said(*[FAILING] * 4, TAKEN)
            store.put("k", b"x")
            clock.slept.append(4.0)  # other work
    assert sum(clock.slept) > 20


def test_a_verb_that_is_silent_ends_though_others_answer() -> None:
    """A store that answers HEAD and swallows DELETE: the phase gives up deleting, not looking."""
    there = Reply(headers={"Last-Modified": "Fri, 20 Nov 2026 11:00:00 GMT", "ETag": '"e"'})
    with down(retry_seconds_max=5.0) as (server, store, clock), patient():
        server.script = lambda asked: there if asked.method == "HEAD" else FAILING
        for _ in range(50):
            with pytest.raises(Unanswered):
                store.delete_one("k")
            store.head("k")
    assert sum(clock.slept) <= 5.0


def test_a_refusal_is_an_answer() -> None:
    """404 and 403 tell that the store is there."""
    with down(error(403, "AccessDenied")) as (_, store, clock), patient():
        for _ in range(3):
            failure = ended(lambda: store.head("k"))[1]
            assert isinstance(failure, StoreError)
            assert failure.status == 403
            clock.slept.append(2.0)


def test_the_outer_phase_holds() -> None:
    """An inner phase neither renews the time of the outer one, nor lengthens that of somebody who
    hurries; only a decision does the first."""
    with down(decided_seconds_max=20.0) as (_, store, clock):
        with patient():
            for _ in range(3):
                with patient(), pytest.raises(Unanswered):
                    store.head("k")
            assert sum(clock.slept) <= BOUND_SECONDS
            with patient(Kind.DECIDED), pytest.raises(Unanswered):
                store.head("k")
            assert sum(clock.slept) > 10
        clock.slept.clear()
        with cleaning_up(KeyboardInterrupt()), patient(Kind.DECIDED), pytest.raises(Unanswered):
            store.head("k")
        assert sum(clock.slept) < BOUND_SECONDS


def test_threads_share_the_phase_of_their_caller() -> None:
    """What the pool runs is of its caller's phase."""
    with silent_server(Mood.SILENT) as server:
        store = S3Store("b", hurried(server.url))
        pool = ThreadPool(4)
        began = time.monotonic()
        with patient():
            outcomes = list(pool.each(lambda _: store.head("k"), range(400), in_flight=4))
        took = time.monotonic() - began
        pool.close()
    assert all(isinstance(outcome.error, Unanswered) for outcome in outcomes)
    assert took < BOUND_SECONDS + SLACK_SECONDS  # 100 times that, one by one


# Errands ------------------------------------------------------------------------------------------


def in_time(future: Future[Any]) -> Any:
    """Its result, if it ends soon."""
    assert future.wait(SLACK_SECONDS)
    return future.result()


def test_the_end_of_an_errand_ends_its_requests() -> None:
    """What is under way ends soon after, unanswered; nothing new is sent."""
    with silent_server(Mood.SILENT) as server:
        store = S3Store("b", hurried(server.url, read_seconds_max=60.0, retry_seconds_max=60.0))
        pool, errand = ThreadPool(2), Errand()
        with errand.here():
            future = pool.submit(lambda: store.head("k"))
        while not server.taken:
            time.sleep(0.01)
        errand.end(0.1)
        unanswered(lambda: in_time(future))
        taken = server.taken
        with errand.here():
            late = pool.submit(lambda: store.head("k"))
        unanswered(lambda: in_time(late), sent=False)
        assert server.taken == taken
        pool.close()
