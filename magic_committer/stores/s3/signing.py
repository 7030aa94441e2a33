"""Signature Version 4, with the day's key kept. Pure, but for what it remembers.

The key that signs comes from the secret, the day, the region and the service, by four HMACs. It is
the same all day, so it is kept: until midnight UTC, or until the secret changes. Everything else is
computed for each request, as AWS describes it ("Create a signed AWS API request").

The tests compare each signature with the SDK's own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
"""What stands for the hash of a body that is not signed."""
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
DATE, SHA256, TOKEN = "X-Amz-Date", "X-Amz-Content-SHA256", "X-Amz-Security-Token"

_NOT_SIGNED = frozenset(("expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"))
"""Headers, in lower case, that proxies change, or that do not belong to the request (as the
SDK)."""
_PORTS = {"http": 80, "https": 443}


class Credentials(Protocol):
    """What signs: an access key as the SDK's ``get_frozen_credentials`` gives it."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class SigningScope:
    """For which region and service a signature is valid, e.g. ``("eu-north-1", "s3")``."""

    region: str
    service: str


class Signer:
    """Signs requests. Safe for many threads: what it keeps is replaced as a whole.

    Args:
        scope: the region and the service.
    """

    def __init__(self, scope: SigningScope) -> None:
        self._scope = scope
        self._kept: tuple[str, str, hmac.HMAC] | None = None

    def __repr__(self) -> str:
        return f"<Signer for {self._scope.region}/{self._scope.service}>"

    def headers(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[str, str]],
        payload: str,
        credentials: Credentials,
        moment: str,
    ) -> tuple[tuple[str, str], ...]:
        """The headers of a request, and those that sign it.

        Args:
            method: the HTTP method.
            url: the whole URL, quoted, as it will be sent.
            headers: the request's headers, without ``Host`` and without those of a signature. No
                name may come twice.
            payload: the body's SHA-256 in hex, or `UNSIGNED_PAYLOAD`.
            credentials: what signs.
            moment: the time, as `stamp` writes it.

        Returns:
            ``headers`` with date, hash, token and signature; ``Host`` is signed and not among them.
        """
        sent = [*headers, (DATE, moment), (SHA256, payload)]
        if credentials.token:
            sent.append((TOKEN, credentials.token))
        scheme, _, rest = url.partition("://")
        place, _, query = rest.partition("?")
        netloc, slash, path = place.partition("/")
        signed = [(name.lower(), " ".join(value.split())) for name, value in sent]
        signed = [one for one in signed if one[0] not in _NOT_SIGNED]
        signed.append(("host", host(scheme, netloc)))
        signed.sort()
        names = ";".join([name for name, _ in signed])
        request = "\n".join(
            (
                method,
                slash + path,
                _canonical(query),
                *[f"{name}:{value}" for name, value in signed],
                "",
                names,
                payload,
            )
        )
        day = moment[:8]
        scope = f"{day}/{self._scope.region}/{self._scope.service}/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"{ALGORITHM}\n{moment}\n{scope}\n{digest}"
        mac = self._key(credentials.secret_key, day).copy()
        mac.update(text.encode())
        sent.append(
            (
                "Authorization",
                f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names},"
                f" Signature={mac.hexdigest()}",
            )
        )
        return tuple(sent)

    def _key(self, secret: str, day: str) -> hmac.HMAC:
        """The day's key, to be copied. Kept as a hash that has begun: ``hmac.digest`` gives up the
        interpreter's lock for each text, and in a batch another thread then takes it, once for each
        request."""
        kept = self._kept  # read once: another thread may replace it
        if kept is None or kept[0] != secret or kept[1] != day:
            key = f"AWS4{secret}".encode()
            for step in (day, self._scope.region, self._scope.service, "aws4_request"):
                key = hmac.digest(key, step.encode(), "sha256")
            kept = self._kept = (secret, day, hmac.new(key, digestmod="sha256"))
        return kept[2]


def stamp(seconds: float) -> str:
    """A time, in seconds since the epoch, as a signature names it: ``20261122T190152Z``."""
    return _stamp(int(seconds))


@lru_cache(maxsize=4)
def _stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")


@lru_cache(maxsize=256)
def host(scheme: str, netloc: str) -> str:
    """The ``Host`` header for a URL: the port is named if it is not the scheme's own."""
    parts = urlsplit(f"{scheme}://{netloc}")
    name = parts.hostname or ""
    name = f"[{name}]" if ":" in name else name
    port = parts.port
    return name if port is None or port == _PORTS.get(scheme) else f"{name}:{port}"


def _canonical(query: str) -> str:
    """A query in the order of its names; each has a ``=``."""
    if not query:
        return ""
    pairs = [pair.partition("=") for pair in query.split("&")]
    return "&".join([f"{name}={value}" for name, _, value in sorted(pairs)])
