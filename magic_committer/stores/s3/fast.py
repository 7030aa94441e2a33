"""The fast way to the store: requests by the table, signed here, sent over our own connections.

Invariants:

* A request goes where the set-up says (`config`). If the store says that the bucket is in another
  region, it is sent once more, there, and all later ones go there: the first has done nothing.
* Credentials are asked for before each signature, so that they are refreshed.
"""

from __future__ import annotations

from magic_committer._runtime import Clock
from magic_committer.stores.s3.answers import Refused
from magic_committer.stores.s3.config import NotPlain, Setup
from magic_committer.stores.s3.http import (
    Answer,
    Cause,
    Deadline,
    Exchange,
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
from magic_committer.stores.s3.signing import UNSIGNED_PAYLOAD, Signer, stamp

_MOVED = frozenset((301, 307, 400))
"""Statuses with which S3 may say where a bucket is (S3 API, "Redirecting requests")."""
_CHECKSUMS = frozenset(CHECKSUM_FIELDS.values())


class Fast:
    """Sends the requests of one bucket. Safe for many threads, and after a fork."""

    def __init__(self, setup: Setup, clock: Clock) -> None:
        self.endpoint = setup.endpoint
        self.http = Http(setup.network)
        self._setup = setup
        self._clock = clock
        self._credentials = setup.credentials
        self._go_to(setup.place)

    def _go_to(self, place: BucketPlace) -> None:
        self.region = place.region
        self._where = (place, Signer(place.region))

    @property
    def has_credentials(self) -> bool:
        """Whether there is something to sign with, or nothing is signed."""
        try:
            return self._credentials is None or self._credentials() is not None
        except NoAnswer as error:
            return error.cause is not Cause.CREDENTIALS

    def ask(
        self, call: Call, deadline: Deadline, exchange: Exchange | None = None
    ) -> Waits[Answer]:
        """Send a request once. Raises `Failure`. ``exchange``: over other connections than those of
        threads."""
        return (exchange or self.http.exchange)(self.request(call), deadline)

    def request(self, call: Call) -> HttpRequest:
        """Write and sign a request. Raises `NoAnswer`: it cannot be."""
        place, signer = self._where
        made = build(call, place)
        made.headers.append(("User-Agent", self._setup.agent))
        if self._credentials is not None:
            payload = sha256_of(made.body) if self._signs(call, place) else UNSIGNED_PAYLOAD
            signer.sign(made, payload, self._credentials(), stamp(int(self._clock.now())))
        return made

    def moves(self, error: Refused, region: str) -> bool:
        """Whether a refusal says that the bucket is not in the region that the request was sent to:
        all requests go to another one from now on."""
        if error.status not in _MOVED or error.region in ("", region):
            return False
        if error.region != self.region:  # else another request has moved us
            try:
                self._go_to(self._setup.moved(error.region))
            except NotPlain:  # nobody here knows that region's endpoint: the refusal stands
                return False
        return True

    def _signs(self, call: Call, place: BucketPlace) -> bool:
        """Whether the signature covers the body. Small bodies always: it costs microseconds. Parts
        over plain HTTP, where nothing else shows that they were changed on the way; over TLS those
        without a checksum, which the store would check. What the SDK's configuration says comes
        first."""
        if self._setup.signs_bodies is not None:
            return self._setup.signs_bodies
        if call.operation != "UploadPart":
            return True
        return place.origin.scheme != "https" or _CHECKSUMS.isdisjoint(call.parameters)
