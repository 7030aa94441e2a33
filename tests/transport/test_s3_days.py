"""A day and more of one store, by both ways, on clocks that stand: keys that are refreshed every
hour, midnight in a stream of requests, and clocks that are wrong."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.auth
import botocore.credentials
import pytest

from magic_committer.errors import PermissionDenied
from magic_committer.options import S3Options
from magic_committer.stores.base import CompleteUpload, Part, Written, many_of
from magic_committer.stores.s3 import S3Store
from tests.servers import (
    TRANSPORT,
    Asked,
    HurriedClock,
    Reply,
    ScriptedServer,
    document,
    scripted_server,
)
from tests.transport.verifier import KEYS_PATH, CheckingStore

MIDNIGHT = datetime(2026, 11, 23, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
pytestmark = pytest.mark.usefixtures("transport")


class MachineClock(HurriedClock):
    """The clock of the machine that sends. It stands until a test sets it, for us and for the
    SDK."""

    def __init__(self, patch: pytest.MonkeyPatch, moment: datetime) -> None:
        super().__init__()
        self.moment = moment
        signers = (botocore.auth, sys.modules.get("botocore.crt.auth"))  # the latter with awscrt
        for signer in filter(None, signers):
            patch.setattr(signer, "get_current_datetime", self._for_the_sdk)
        kept = botocore.credentials.RefreshableCredentials
        here = self

        class Refreshable(kept):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **more: Any) -> None:
                super().__init__(*args, **{**more, "time_fetcher": lambda: here.moment})

        patch.setattr(botocore.credentials, "RefreshableCredentials", Refreshable)

    def now(self) -> float:
        return self.moment.timestamp()

    def _for_the_sdk(self, remove_tzinfo: bool = True) -> datetime:
        return self.moment.replace(tzinfo=None) if remove_tzinfo else self.moment


@pytest.fixture
def checking() -> CheckingStore:
    """A store that checks signatures; its clock stands at midnight."""
    return CheckingStore(MIDNIGHT)


@pytest.fixture
def server(
    checking: CheckingStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Iterator[ScriptedServer]:
    """Its server, which gives keys, too, as a container's service does; nothing else has any."""
    with scripted_server(checking) as running:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "nothing"))
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{running.url}{KEYS_PATH}")
        yield running


def make(server: ScriptedServer, clock: MachineClock, **more: Any) -> S3Store:
    """A store there, with the keys of that service, by the transport of the test."""
    options = S3Options(
        endpoint_url=server.url, region="eu-north-1", transport=TRANSPORT.get(), **more
    )
    return S3Store("b", options, clock=clock)


def test_a_day_of_refreshes(
    checking: CheckingStore, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 25 hours around two midnights, with keys that are valid for one hour each, every request
    of one store is let in at the first try: small objects, parts, heads."""
    clock = MachineClock(monkeypatch, MIDNIGHT - 30 * MINUTE)
    store = make(server, clock)
    while clock.moment < MIDNIGHT + timedelta(hours=24, minutes=30):
        checking.now = clock.moment
        assert store.put("a b/é", b"x").attempts == 1
        store.put_part("k", "u/+=", 1, memoryview(b"y"))
        clock.moment += 4 * MINUTE
    requests = len(server.asked) - len(checking.issued)
    assert len(checking.used) == requests
    assert len(set(checking.used)) == len(checking.issued) >= 24
    assert set(checking.days) == {"20261122", "20261123", "20261124"}


def test_midnight_in_a_stream_of_requests(
    checking: CheckingStore, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While eight threads send, the machine's clock passes midnight, second by second: each request
    is signed for the day that it names, and let in at the first try."""
    clock = MachineClock(monkeypatch, MIDNIGHT - timedelta(seconds=3))
    store = make(server, clock)
    store.put("first", b"x")
    told = threading.Semaphore(0)

    def send(number: int) -> int:
        try:
            return store.put(f"k{number}", b"x").attempts
        finally:
            told.release()

    with ThreadPoolExecutor(8) as threads:
        sent = [threads.submit(send, number) for number in range(160)]
        for _ in range(6):  # from 23:59:57 to 00:00:03
            for _ in range(20):
                told.acquire()
            clock.moment += timedelta(seconds=1)
        assert {one.result() for one in sent} == {1}
    assert set(checking.days) == {"20261122", "20261123"}
    assert len(checking.used) == 161


def test_midnight_among_many_at_once(
    checking: CheckingStore,
    server: ScriptedServer,
    transport: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Completes that are sent many at once are signed for the day, too, and with new keys."""
    if transport == "boto3":
        pytest.skip("boto3 sends each request in a thread")
    clock = MachineClock(monkeypatch, MIDNIGHT - 60 * MINUTE)
    checking.now = clock.moment
    completed = document("CompleteMultipartUpload", '<ETag>"e-1"</ETag>')

    def script(asked: Asked) -> Reply:
        answer = checking(asked)
        # A request that waits for 75 others is not too old yet.
        clock.moment = checking.now = clock.moment + timedelta(
            seconds=12
        )  # one that waits for 75 others is not too old yet
        done = asked.method == "POST" and answer.status == 200
        return completed if done else answer

    server.script = script
    many = many_of(make(server, clock))
    assert many is not None
    asks = iter([(n, CompleteUpload(f"k{n}", "u", (Part(1, '"p"', 1),))) for n in range(750)])
    told = dict(many.ask_each(lambda: next(asks, None), in_flight=4))
    assert set(told.values()) == {Written('"e-1"')}
    assert len(checking.issued) >= 3
    assert checking.days[0] == "20261122"
    assert checking.days[-1] == "20261123"


@pytest.mark.parametrize("minutes", [-14, 14])
def test_a_clock_that_is_a_little_wrong_is_no_matter(
    minutes: int,
    checking: CheckingStore,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine whose clock is 14 minutes behind the store's, or before it, names another day than
    the store around midnight; its requests are let in."""
    clock = MachineClock(monkeypatch, MIDNIGHT)
    store = make(server, clock)
    for step in range(-20, 21, 5):
        checking.now = MIDNIGHT + step * MINUTE
        clock.moment = checking.now + minutes * MINUTE
        assert store.put("k", b"x").attempts == 1
    assert set(checking.days) == {"20261122", "20261123"}


@pytest.mark.parametrize("minutes", [-20, 20, -24 * 60])
def test_a_clock_that_is_wrong_is_told(
    minutes: int,
    checking: CheckingStore,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The SDK does not correct a clock by the answers' date, and nor do we: after a second try the
    error names the clock; when it has been set, the same store goes on."""
    clock = MachineClock(monkeypatch, MIDNIGHT + minutes * MINUTE)
    store = make(server, clock)
    with pytest.raises(PermissionDenied, match="Set this machine's clock") as caught:
        store.put("k", b"x")
    assert (caught.value.code, caught.value.attempts) == ("RequestTimeTooSkewed", 2)
    clock.moment = MIDNIGHT
    assert store.put("k", b"x").attempts == 1


def test_a_machine_that_slept_signs_anew(
    checking: CheckingStore, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that was signed before a machine's sleep of an hour, over midnight, is refused; the
    second try has the time, the day and the key of then, and is let in."""
    clock = MachineClock(monkeypatch, MIDNIGHT - 30 * MINUTE)
    checking.now = clock.moment
    store = make(server, clock)
    store.put("k", b"x")

    def slept(asked: Asked) -> Reply:
        server.script = checking
        clock.moment = checking.now = MIDNIGHT + 29 * MINUTE
        return checking(asked)

    server.script = slept
    assert store.put("k", b"x").attempts == 2
    assert checking.days == ["20261122", "20261123"]
    assert len(set(checking.used)) == 2
