"""Over days, with keys that are refreshed and clocks that are wrong, requests are let in."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.auth
import botocore.credentials
import pytest

from magic_committer.stores.base import Written, many_of
from magic_committer.stores.s3 import S3Store
from tests.servers import Asked, HurriedClock, Reply, ScriptedServer, error, scripted_server
from tests.transport.lab import COMPLETED, PUT, at_once, complete, way_to

MIDNIGHT = datetime(2026, 11, 23, tzinfo=UTC)
MINUTE, LIFE = timedelta(minutes=1), timedelta(hours=1)
SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/[^,]+,.*")
pytestmark = pytest.mark.usefixtures("transport")


class World(HurriedClock):
    """The clock of the machine that sends, for us and for the SDK; and a store with a clock of its
    own that checks keys and times (test_requests_are_the_sdks: signatures), and gives keys. Both
    clocks stand until a test sets them.

    Attributes:
        now_there: the store's time. now_here: the machine's.
        issued: when each key was given, by its id.
        used, days: the key of each request that was let in, and the day that its signature names.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now_there = self.now_here = MIDNIGHT
        self.issued: dict[str, datetime] = {}
        self.used: list[str] = []
        self.days: list[str] = []
        self._lock = threading.Lock()
        self.server: ScriptedServer
        signers = (botocore.auth, sys.modules.get("botocore.crt.auth"))  # the latter with awscrt
        for signer in filter(None, signers):
            patch.setattr(signer, "get_current_datetime", self._for_the_sdk)
        kept, here = botocore.credentials.RefreshableCredentials, self

        class Refreshable(kept):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **more: Any) -> None:
                super().__init__(*args, **{**more, "time_fetcher": lambda: here.now_here})

        patch.setattr(botocore.credentials, "RefreshableCredentials", Refreshable)

    def now(self) -> float:
        return self.now_here.timestamp()

    def store(self) -> S3Store:
        """A store with the keys of that service."""
        own: dict[str, Any] = {"access_key": None, "secret_key": None, "retry_attempts_max": 9}
        return way_to(self.server.url, self, region="eu-north-1", **own)

    def both(self, moment: datetime) -> None:
        """Set both clocks to a moment."""
        self.now_there = self.now_here = moment

    def _for_the_sdk(self, remove_tzinfo: bool = True) -> datetime:
        return self.now_here.replace(tzinfo=None) if remove_tzinfo else self.now_here

    def __call__(self, asked: Asked) -> Reply:
        """Answer a request."""
        with self._lock:
            return self._give_key() if asked.path == "/keys" else self._check(asked)

    def _give_key(self) -> Reply:
        name = f"AKIA{len(self.issued):012}"
        self.issued[name] = self.now_there
        said = {"AccessKeyId": name, "SecretAccessKey": f"secret of {name}", "Token": f"{name}/+="}
        said["Expiration"] = (self.now_there + LIFE).isoformat()
        return Reply(body=json.dumps(said), headers={"Content-Type": "application/json"})

    def _check(self, asked: Asked) -> Reply:
        found = SIGNED.fullmatch(asked.headers.get("authorization", ""))
        if found is None:
            return error(403, "AccessDenied")
        name, day = found.groups()
        moment = asked.headers["x-amz-date"]
        signed_at = datetime.strptime(f"{moment}+0000", "%Y%m%dT%H%M%SZ%z")
        if name not in self.issued or asked.headers.get("x-amz-security-token") != f"{name}/+=":
            return error(403, "InvalidAccessKeyId")
        if self.now_there >= self.issued[name] + LIFE:
            return error(400, "ExpiredToken")
        if abs(self.now_there - signed_at) > 15 * MINUTE:
            return error(403, "RequestTimeTooSkewed")
        if day != moment[:8]:
            return error(403, "SignatureDoesNotMatch")
        self.used.append(name)
        self.days.append(day)
        return COMPLETED if asked.method == "POST" else PUT


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, no_credentials: Path) -> Iterator[World]:
    """Clocks that stand at midnight; the server gives keys, too, as a container's service does."""
    made = World(monkeypatch)
    with scripted_server(made) as made.server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{made.server.url}/keys")
        yield made


def test_a_day_of_refreshes(world: World) -> None:
    """For 25 hours around two midnights, with keys that are valid for one hour each, every request
    of one store is let in at the first try: small objects, parts, and many at once."""
    world.both(MIDNIGHT - 30 * MINUTE)
    store = world.store()
    while world.now_here < MIDNIGHT + timedelta(hours=24, minutes=30):
        assert store.put("a b/é", b"x").attempts == 1
        store.put_part("k", "u/+=", 1, memoryview(b"y"))
        if many_of(store) is not None:
            told = at_once(store, *[complete(f"k{number}") for number in range(9)])
            assert set(told.values()) == {Written('"e-1"')}
        world.both(world.now_here + 4 * MINUTE)
    assert len(world.used) == len(world.server.asked) - len(world.issued)
    assert len(set(world.used)) == len(world.issued) >= 24
    assert set(world.days) == {"20261122", "20261123", "20261124"}


def test_a_machine_that_slept_signs_anew(world: World) -> None:
    """A request that was signed before a machine's sleep of an hour, over midnight, is refused; the
    second try has the time, the day and the key of then, and is let in."""
    world.both(MIDNIGHT - 30 * MINUTE)
    store = world.store()
    store.put("k", b"x")

    def slept(asked: Asked) -> Reply:
        world.server.script = world
        world.both(MIDNIGHT + 29 * MINUTE)
        return world(asked)

    world.server.script = slept
    assert store.put("k", b"x").attempts == 2
    assert world.days == ["20261122", "20261123"]
    assert len(set(world.used)) == 2
