"""Over days, with keys that are refreshed and a machine that sleeps, requests are let in; and where
keys come from, and that they end, is as the SDK says."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import botocore.auth
import botocore.credentials
import pytest

from magic_committer.errors import MagicError, OptionError
from magic_committer.stores.base import Written, many_of
from magic_committer.stores.s3 import S3Store
from tests.servers import Asked, HurriedClock, Reply, error, scripted_server
from tests.transport.lab import COMPLETED, NOBODY, PUT, Lab, at_once, complete, way_to

MIDNIGHT = datetime(2026, 11, 23, tzinfo=UTC)
MINUTE, LIFE = timedelta(minutes=1), timedelta(hours=1)
SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/[^,]+,.*")


class World(HurriedClock):
    """A clock, which stands until a test sets it; and a store that gives keys for an hour, as a
    container's service does, and lets in who has signed by one, in time. (That signatures are right
    is tested in test_requests_are_the_sdks.)

    Attributes:
        issued: when each key was given, by its id.
        used: the key of each request that was let in, and the day that its signature names.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.moment = MIDNIGHT - 30 * MINUTE
        self.issued: dict[str, datetime] = {}
        self.used: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        signers = (botocore.auth, sys.modules.get("botocore.crt.auth"))  # the latter with awscrt
        for signer in filter(None, signers):
            patch.setattr(signer, "get_current_datetime", self._for_the_sdk)
        refreshed = botocore.credentials.RefreshableCredentials
        refreshed = partial(refreshed, time_fetcher=lambda: self.moment)
        patch.setattr(botocore.credentials, "RefreshableCredentials", refreshed)

    def now(self) -> float:
        return self.moment.timestamp()

    def _for_the_sdk(self, remove_tzinfo: bool = True) -> datetime:
        return self.moment.replace(tzinfo=None) if remove_tzinfo else self.moment

    def answer(self, asked: Asked) -> Reply:
        """Answer a request."""
        with self._lock:
            if asked.path == "/keys":
                name = f"AKIA{len(self.issued):012}"
                self.issued[name] = self.moment
                said = {"AccessKeyId": name, "SecretAccessKey": f"secret of {name}"}
                said |= {"Token": f"{name}/+=", "Expiration": (self.moment + LIFE).isoformat()}
                return Reply(body=json.dumps(said), headers={"Content-Type": "application/json"})
            [(name, day)] = SIGNED.findall(asked.headers["authorization"])
            stamp = asked.headers["x-amz-date"]
            signed_at = datetime.strptime(f"{stamp}+0000", "%Y%m%dT%H%M%SZ%z")
            if asked.headers["x-amz-security-token"] != f"{name}/+=" or stamp[:8] != day:
                return error(403, "InvalidAccessKeyId")
            if self.moment >= self.issued[name] + LIFE:
                return error(400, "ExpiredToken")
            if abs(self.moment - signed_at) > 15 * MINUTE:
                return error(403, "RequestTimeTooSkewed")
            self.used.append((name, day))
            return COMPLETED if asked.method == "POST" else PUT


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """It is half an hour before midnight."""
    return World(monkeypatch)


@pytest.fixture
def store(
    transport: str, world: World, monkeypatch: Any, no_credentials: Path
) -> Iterator[S3Store]:
    """A store with the keys of that service."""
    with scripted_server(lambda asked: world.answer(asked)) as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/keys")
        yield way_to(server.url, world, region="eu-north-1", retry_attempts_max=9, **NOBODY)


def test_a_day_of_refreshes(world: World, store: S3Store) -> None:
    """For 25 hours around two midnights, with keys that are valid for one hour each, every request
    of one store is let in at the first try: small objects, parts, and many at once."""
    asks = [complete(f"k{number}") for number in range(9)] if many_of(store) is not None else []
    rounds = 0
    while world.moment < MIDNIGHT + timedelta(hours=24, minutes=30):
        assert store.put("a b/é", b"x").attempts == 1
        store.put_part("k", "u/+=", 1, memoryview(b"y"))
        told = at_once(store, *asks) if asks else {}
        assert set(told.values()) <= {Written('"e-1"')}
        world.moment += 4 * MINUTE
        rounds += 1
    assert len(world.used) == rounds * (2 + len(asks))
    assert len({key for key, _ in world.used}) == len(world.issued) >= 24
    assert {day for _, day in world.used} == {"20261122", "20261123", "20261124"}


def test_a_machine_that_slept_signs_anew(
    world: World, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that was signed before a machine's sleep of an hour, over midnight, is refused; the
    second try has the time, the day and the key of then, and is let in."""
    store.put("k", b"x")

    with monkeypatch.context() as patch:

        def slept(asked: Asked) -> Reply:
            patch.undo()
            world.moment += 59 * MINUTE
            return world.answer(asked)

        patch.setattr(world, "answer", slept)
        assert store.put("k", b"x").attempts == 2
    assert [day for _, day in world.used] == ["20261122", "20261123"]
    assert len({key for key, _ in world.used}) == 2


@pytest.fixture
def keys(no_credentials: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Variables have keys; the home directory."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT00")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return no_credentials.parent.parent


@pytest.mark.parametrize("named", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"])
def test_a_profile_that_is_nowhere_is_an_error(lab: Lab, keys: Path, named: str) -> None:
    """Also where variables have keys: they may be another account's."""
    lab.patch.setenv(named, "elsewhere")
    with pytest.raises(OptionError, match="elsewhere"):
        lab.make(**NOBODY)


def test_the_configuration_is_found_below_the_home_directory(lab: Lab, keys: Path) -> None:
    """``~`` in a variable is the home directory, as for the SDK."""
    (keys / "mine").write_text("[default]\nregion = eu-west-3\n")
    lab.patch.setenv("AWS_CONFIG_FILE", "~/mine")
    lab.patch.delenv("AWS_REGION")
    lab.make(**NOBODY, region=None).put("k", b"x")
    assert "/eu-west-3/" in lab.asked[-1].headers["authorization"]


@pytest.mark.parametrize(
    "until", ["2020-01-01T00:00:00Z", "someday", "2090-01-01T00:00:00", "9" * 30]
)
def test_keys_that_have_expired_sign_nothing(lab: Lab, keys: Path, until: str) -> None:
    """What `aws configure export-credentials` gives has an end: an error says that it has come."""
    lab.patch.setenv("AWS_CREDENTIAL_EXPIRATION", until)
    with pytest.raises(MagicError, match=r"finds no credentials: .*AWS_ACCESS_KEY_ID|no client"):
        lab.make(**NOBODY).put("k", b"x")
    assert lab.asked == []


def test_a_token_that_is_not_there_is_told(lab: Lab, no_credentials: Path) -> None:
    """A pod without its web identity's file: no raw error of the file system."""
    lab.patch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(no_credentials / "none"))
    lab.patch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/etl")
    with pytest.raises(MagicError, match=r"No such file|no client"):
        lab.make(**NOBODY).put("k", b"x")
    assert lab.asked == []
