"""The fast way to the store: requests by the table, signed here, sent over our own connections.

Invariants:

* A request goes where the set-up says (`config`). If the store says that the bucket is in another
  region, it is sent once more, there, and all later ones go there: the first has done nothing.
* Credentials are asked for before each signature, so that they are refreshed.
"""

from __future__ import annotations

import platform
import sys

from magic_committer import __version__
from magic_committer.options import S3Options
from magic_committer.runtime.components import Clock
from magic_committer.stores.s3.answers import Refused
from magic_committer.stores.s3.config import NotPlain, PlainSettings, network_for
from magic_committer.stores.s3.http import (
    Answer,
    Cause,
    Deadline,
    Http,
    HttpRequest,
    NoAnswer,
    Waits,
)
from magic_committer.stores.s3.requests import (
    CHECKSUM_FIELDS,
    BucketPlace,
    Call,
    build,
    sha256_of,
)
from magic_committer.stores.s3.signing import UNSIGNED_PAYLOAD, sign, stamp

_MOVED = frozenset((301, 307, 400))
"""Statuses with which S3 may say where a bucket is (S3 API, "Redirecting requests")."""
_CHECKSUMS = frozenset(CHECKSUM_FIELDS.values())


class Fast(PlainSettings):
    """Sends the requests of one bucket. Safe for many threads, and after a fork. Raises as
    `PlainSettings`."""

    def __init__(self, bucket: str, options: S3Options, clock: Clock) -> None:
        super().__init__(bucket, options)
        self.http = Http(network_for(options, self.endpoint, self.ca_bundle))
        self._clock = clock
        self._there = self.place(self.region)
        self._agent = (
            f"magic-committer/{__version__} python/{platform.python_version()} {sys.platform}"
            f" {options.user_agent}".strip()
        )

    @property
    def has_credentials(self) -> bool:
        """Whether there is something to sign with, or nothing is signed."""
        try:
            return self.credentials is None or self.credentials() is not None
        except NoAnswer as error:
            return error.cause is not Cause.CREDENTIALS

    def ask(self, call: Call, deadline: Deadline, over: Http | None = None) -> Waits[Answer]:
        """Send a request once. Raises `Failure`. ``over``: other connections than of threads."""
        return (over or self.http).exchange(self.request(call), deadline)

    def request(self, call: Call) -> HttpRequest:
        """Write and sign a request. Raises `NoAnswer`: it cannot be."""
        place = self._there
        made = build(call, place)
        made.headers.append(("User-Agent", self._agent))
        if self.credentials is not None:
            payload = sha256_of(made.body) if self._signs(call, place) else UNSIGNED_PAYLOAD
            moment = stamp(int(self._clock.now()))
            sign(made, payload, self.credentials(), place.region, moment)
        return made

    def moves(self, error: Refused, region: str) -> bool:
        """Whether a refusal says that the bucket is not in the region that the request was sent to:
        all requests go to another one from now on."""
        if error.status not in _MOVED or error.region in ("", region):
            return False
        if error.region != self.region:  # else another request has moved us
            try:
                self._there = self.place(error.region)
            except NotPlain:  # nobody here knows that region's endpoint: the refusal stands
                return False
            self.region = error.region
        return True

    def _signs(self, call: Call, place: BucketPlace) -> bool:
        """Whether the signature covers the body. Small bodies always: it costs microseconds. Parts
        over plain HTTP, where nothing else shows that they were changed on the way; over TLS those
        without a checksum, which the store would check. What the SDK's configuration says comes
        first."""
        if self.signs_bodies is not None:
            return self.signs_bodies
        if call.operation != "UploadPart":
            return True
        return place.origin.scheme != "https" or _CHECKSUMS.isdisjoint(call.parameters)
