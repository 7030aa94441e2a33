"""Signatures over a day and a night: midnight, new secrets, clocks that are wrong."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials

from magic_committer.stores.s3.http import origin_of
from magic_committer.stores.s3.signing import UNSIGNED_PAYLOAD, Signer, stamp

URL = "https://b.s3.eu-north-1.amazonaws.com/a%20key?uploads&prefix=p&a=1&a=0"
HEADERS = (("Content-Type", "a  b"), ("x-amz-meta-z", "1"), ("User-Agent", "not signed"))
EMPTY = hashlib.sha256(b"").hexdigest()


def theirs(moment: datetime, credentials: ReadOnlyCredentials, patch: pytest.MonkeyPatch) -> str:
    """The SDK's own signature."""
    patch.setattr(auth, "get_current_datetime", lambda *_, **__: moment)
    request = AWSRequest("GET", URL, headers=dict(HEADERS))
    request.context["payload_signing_enabled"] = True
    held = Credentials(credentials.access_key, credentials.secret_key, credentials.token)
    auth.S3SigV4Auth(held, "s3", "eu-north-1").add_auth(request)
    return str(request.headers["Authorization"])


def ours(signer: Signer, moment: datetime, credentials: ReadOnlyCredentials) -> str:
    """The signature of ours."""
    return sent(signer, EMPTY, credentials, stamp(moment.timestamp()))["Authorization"]


def sent(signer: Signer, payload: str, credentials: ReadOnlyCredentials, at: str) -> dict[str, str]:
    """The headers of a request that is signed."""
    headers = list(HEADERS)
    host, _, rest = URL.removeprefix("https://").partition("/")
    path, _, query = rest.partition("?")
    query = "&".join(sorted(query.split("&")))
    signer.sign("GET", host, f"/{path}", query, headers, payload, credentials, at)
    return dict(headers)


def test_a_day_and_a_night_of_refreshes_are_signed_as_the_sdk_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over 26 hours with new credentials every 50 minutes, around both midnights to the second, one
    signer with its kept key signs as the SDK does."""
    signer = Signer("eu-north-1")
    begin = datetime(2026, 11, 21, 23, 0, tzinfo=UTC)
    moments = [begin + timedelta(minutes=7 * step) for step in range(26 * 60 // 7)]
    for day in (22, 23):
        midnight = datetime(2026, 11, day, tzinfo=UTC)
        moments += [midnight + timedelta(seconds=s) for s in (-2, -1, 0, 1, 2)]
    now = begin

    def fresh() -> dict[str, str]:
        number = int((now - begin).total_seconds())
        return {
            "access_key": f"AKIA{number:08}",
            "secret_key": f"secret of {number}",
            "token": f"token of {number}",
            "expiry_time": (now + timedelta(minutes=50)).isoformat(),
        }

    held = RefreshableCredentials.create_from_metadata(
        fresh(), fresh, "test", advisory_timeout=300, mandatory_timeout=60
    )
    monkeypatch.setattr(held, "_time_fetcher", lambda: now)
    secrets = set()
    for now in sorted(moments):
        frozen = held.get_frozen_credentials()
        secrets.add(frozen.secret_key)
        assert ours(signer, now, frozen) == theirs(now, frozen, monkeypatch)
    assert len(secrets) > 24


def test_a_clock_that_goes_back_gets_the_right_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is set back over midnight, or forth by days, signs with the key of the
    day that its request names."""
    signer = Signer("eu-north-1")
    key = ReadOnlyCredentials("AKIA", "secret", None)
    for hours in (0, 1, -1, 72, 0, -200, 24):
        moment = datetime(2026, 11, 22, 0, 30, tzinfo=UTC) + timedelta(hours=hours)
        assert ours(signer, moment, key) == theirs(moment, key, monkeypatch)


def test_two_secrets_on_one_day_do_not_share_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that change back and forth are each signed with their own key."""
    signer = Signer("eu-north-1")
    moment = datetime(2026, 11, 22, 12, tzinfo=UTC)
    for secret in ("one", "two", "one", "one", "two"):
        key = ReadOnlyCredentials("AKIA", secret, "t")
        assert ours(signer, moment, key) == theirs(moment, key, monkeypatch)


def test_a_key_that_another_thread_replaces_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """While credentials are replaced some threads still hold the old ones: each signs with its own,
    also if another thread puts its key there between two steps."""
    moment = datetime(2026, 11, 22, 12, tzinfo=UTC)
    old, new = (ReadOnlyCredentials("AKIA", secret, None) for secret in ("old", "new"))
    theirs_is_kept = Signer("eu-north-1")
    ours(theirs_is_kept, moment, new)

    class Replaced(Signer):
        held: Any

        @property
        def _kept(self) -> Any:
            held, self.held = self.held, theirs_is_kept._kept
            return held

        @_kept.setter
        def _kept(self, _: Any) -> None:
            self.held = theirs_is_kept._kept

    signer = Replaced("eu-north-1")
    assert ours(signer, moment, old) == theirs(moment, old, monkeypatch)


def test_a_body_that_is_not_signed_says_so() -> None:
    """The hash's header holds what was signed in the hash's place."""
    key = ReadOnlyCredentials("AKIA", "secret", None)
    named = sent(Signer("r"), UNSIGNED_PAYLOAD, key, "20261122T000000Z")
    assert named["X-Amz-Content-SHA256"] == "UNSIGNED-PAYLOAD"
    assert "X-Amz-Security-Token" not in named
    assert "x-amz-content-sha256" in named["Authorization"]


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://Host", "host"),
        ("https://host:443", "host"),
        ("http://host:443", "host:443"),
        ("http://host:80", "host"),
        ("http://[::1]:9000", "[::1]:9000"),
        ("https://[2001:DB8::1]", "[2001:db8::1]"),
    ],
)
def test_a_host_has_its_port_if_it_is_not_the_schemes(url: str, wanted: str) -> None:
    """``Host`` is signed as it is sent."""
    assert origin_of(url).netloc == wanted
