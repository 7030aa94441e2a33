"""A store that checks signatures as S3 does, with a clock of its own; and the service that gives it
and its clients their keys. Written after AWS's description, not after our signer or the SDK's."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from datetime import datetime, timedelta
from threading import Lock
from urllib.parse import quote

from tests.servers import Asked, Reply, error

SKEW_MAX = timedelta(minutes=15)
LIFE = timedelta(hours=1)
KEYS_PATH = "/keys"
_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/s3/aws4_request,"
    r" ?SignedHeaders=([\w;-]+), ?Signature=([0-9a-f]{64})"
)


class CheckingStore:
    """The script of a scripted server.

    Attributes:
        now: the store's own time, with a zone.
        issued: when each key was given, by its id.
        used: the key of each request that was let in.
        days: the day that each of their signatures names.
    """

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.issued: dict[str, datetime] = {}
        self.used: list[str] = []
        self.days: list[str] = []
        self._lock = Lock()

    def __call__(self, asked: Asked) -> Reply:
        """Answer a request."""
        with self._lock:
            return self._give_key() if asked.path == KEYS_PATH else self._check(asked)

    def _give_key(self) -> Reply:
        name = f"AKIA{len(self.issued):012}"
        self.issued[name] = self.now
        said = {
            "AccessKeyId": name,
            "SecretAccessKey": _secret(name),
            "Token": f"token/{name}+=",
            "Expiration": (self.now + LIFE).isoformat(),
        }
        return Reply(body=json.dumps(said), headers={"Content-Type": "application/json"})

    def _check(self, asked: Asked) -> Reply:
        found = _SIGNED.fullmatch(asked.headers.get("authorization", ""))
        if found is None:
            return error(403, "AccessDenied")
        name, day, region, names, signature = found.groups()
        moment = asked.headers["x-amz-date"]
        signed_at = datetime.strptime(f"{moment}+0000", "%Y%m%dT%H%M%SZ%z")
        if name not in self.issued or asked.headers.get("x-amz-security-token") != (
            f"token/{name}+="
        ):
            return error(403, "InvalidAccessKeyId")
        if self.now >= self.issued[name] + LIFE:
            return error(400, "ExpiredToken")
        if abs(self.now - signed_at) > SKEW_MAX:
            return error(403, "RequestTimeTooSkewed")
        if day != moment[:8] or signature != _signature(asked, _secret(name), region, names):
            return error(403, "SignatureDoesNotMatch")
        self.used.append(name)
        self.days.append(day)
        return Reply(headers={"ETag": '"e"'})


def _secret(name: str) -> str:
    return f"the secret of {name}/+="


def _signature(asked: Asked, secret: str, region: str, names: str) -> str:
    query = sorted((quote(n, safe="-_.~"), quote(v, safe="-_.~")) for n, v in asked.query.items())
    payload = asked.headers["x-amz-content-sha256"]
    if payload != "UNSIGNED-PAYLOAD":
        payload = hashlib.sha256(asked.body).hexdigest()
    canonical = "\n".join(
        [
            asked.method,
            quote(asked.path, safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in query),
            *[f"{name}:{' '.join(asked.headers[name].split())}" for name in names.split(";")],
            "",
            names,
            payload,
        ]
    )
    moment = asked.headers["x-amz-date"]
    scope = [moment[:8], region, "s3", "aws4_request"]
    said = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for step in (*scope, "\n".join(["AWS4-HMAC-SHA256", moment, "/".join(scope), said])):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return key.hex()
