"""Signature Version 4, with the day's key kept. Pure, but for what it remembers.

The key that signs comes from the secret, the day, the region and the service, by four HMACs. It is
the same all day, so it is kept. Everything else is computed for each request, as AWS describes it
("Create a signed AWS API request").

The tests compare each signature with the SDK's own.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from magic_committer.stores.s3.http import HttpRequest

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
"""What stands for the hash of a body that is not signed."""
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
DATE, SHA256, TOKEN = "X-Amz-Date", "X-Amz-Content-SHA256", "X-Amz-Security-Token"

_NOT_SIGNED = frozenset(("expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"))
"""Headers, in lower case, that proxies change, or that do not belong to the request (as the
SDK)."""


class Credentials(NamedTuple):
    """What signs: an access key."""

    access_key: str
    secret_key: str
    token: str | None


def sign(
    request: HttpRequest, payload: str, credentials: Credentials, region: str, moment: str
) -> None:
    """Add date, hash, token and signature to the headers of a request; no name may come twice. Its
    target is quoted, and the names of its query are in order. ``payload`` is the body's SHA-256 in
    hex, or `UNSIGNED_PAYLOAD`; ``moment`` is of `stamp`."""
    headers = request.headers
    path, _, query = request.target.partition("?")
    headers.append((DATE, moment))
    headers.append((SHA256, payload))
    if credentials.token:
        headers.append((TOKEN, credentials.token))
    signed = [("host", request.origin.netloc)]
    for name, value in headers:
        low = name.lower()
        if low not in _NOT_SIGNED:
            signed.append((low, " ".join(value.split()) if "  " in value else value))
    signed.sort()
    names = ";".join([name for name, _ in signed])
    lines = "\n".join([f"{name}:{value}" for name, value in signed])
    asked = "&".join([one if "=" in one else f"{one}=" for one in query.split("&") if one])
    day = moment[:8]
    scope = f"{day}/{region}/s3/aws4_request"
    whole = f"{request.method}\n{path}\n{asked}\n{lines}\n\n{names}\n{payload}"
    digest = hashlib.sha256(whole.encode()).hexdigest()
    begun, end = _key(credentials.secret_key, day, region)
    mac, end = begun.copy(), end.copy()
    mac.update(f"{ALGORITHM}\n{moment}\n{scope}\n{digest}".encode())
    end.update(mac.digest())
    said = f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names},"
    headers.append(("Authorization", f"{said} Signature={end.hexdigest()}"))


@lru_cache(maxsize=16)
def _key(secret: str, day: str, region: str) -> tuple[Any, Any]:
    """The day's key, to be copied, as the two hashes of RFC 2104 that have begun with it.
    ``hmac.digest`` gives up the interpreter's lock for each text, and another thread then gets it,
    once for each request; a copy of ``hmac.HMAC`` costs four times as much."""
    key = f"AWS4{secret}".encode()
    for step in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    padded = key.ljust(hashlib.sha256().block_size, b"\0")
    inner, outer = (hashlib.sha256(bytes([one ^ pad for one in padded])) for pad in (0x36, 0x5C))
    return inner, outer


@lru_cache(maxsize=4)
def stamp(seconds: int) -> str:
    """A time, in seconds since the epoch, as a signature names it: ``20261122T190152Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")
