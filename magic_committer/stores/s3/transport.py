"""The fast way: the hot verbs, built and signed here and sent by libcurl; the SDK for the rest.

`Transport` has the methods of the SDK's client for the hot verbs, with the same parameters, replies
and errors. So everything above it is the same on both ways: retries, checks, translation.

Invariants:

* Endpoint, region and form of a request are the SDK's (`route`). A verb whose request the SDK
  prepares in a way that is not known here goes by the SDK, and so does a single request with
  parameters that are not plain. `why` says the reason.
* Only a plain success is read here, or a plain "it is not there" (`plain`). Every other answer is
  handed to the SDK's client, as if it had got it: its parsers, its checks, its redirects to another
  region. A redirected request is sent by the SDK, and the routes are learnt anew.
* What is no answer is a `NoAnswer`, which knows whether the request was sent.
* Credentials are asked for before each signature, so that they are refreshed, and hidden.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from botocore.exceptions import ClientError

from magic_committer._runtime import Clock
from magic_committer.stores.base import FileSlice, PartBody
from magic_committer.stores.s3 import plain
from magic_committer.stores.s3.bodies import open_body
from magic_committer.stores.s3.http import Cause, HTTPAnswer, HTTPRequest, NoAnswer
from magic_committer.stores.s3.route import (
    NotPlain,
    NotUnderstood,
    Parameters,
    Prepared,
    Route,
    Sdk,
    document,
    learn,
    sha256_of,
)
from magic_committer.stores.s3.signing import UNSIGNED_PAYLOAD, stamp
from magic_committer.stores.s3.sockets import Deadline, deadline
from magic_committer.stores.s3.values import Reply

T = TypeVar("T")

SECONDS_MAX = 60.0
"""The deadline of a request that has none."""
SPARED_BYTES_MAX = 64 * 1024
"""How many bytes more than were wanted are read of an object, rather than asking again by the
SDK, which reads the length before the bytes."""


class Engine(Protocol):
    """What moves the bytes: `magic_committer.stores.s3.curl.Curl`."""

    def send(self, request: HTTPRequest, deadline: Deadline) -> HTTPAnswer:
        """Send a request at most once. Raises `NoAnswer`."""
        ...

    def send_each(
        self,
        requests: Iterable[tuple[T, HTTPRequest]],
        *,
        in_flight: Callable[[], int],
        deadline: Callable[[], Deadline],
    ) -> Generator[tuple[T, HTTPAnswer | NoAnswer], None, None]:
        """Send many requests, each at most once, and give their outcomes."""
        ...

    def close(self) -> None:
        """End all requests, threads and connections. Repeatable."""
        ...


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A verb that goes by the SDK, and why."""

    why: str


class Transport:
    """The hot verbs of one bucket. Safe for many threads; belongs to the process that made it.

    Args:
        sdk: the SDK's client.
        fixed: the parameters that each request has: the bucket, and the payer if it is another.
        credentials: the SDK's object that gives them; None: requests are not signed.
        know: is told of all credentials before they are used, so that they are hidden.
        engine: moves the bytes.
        clock: this machine's.
        proxy: the proxy's URL; "": none.
    """

    def __init__(
        self,
        sdk: Sdk,
        fixed: Parameters,
        credentials: Any,
        know: Callable[[Any], None],
        engine: Engine,
        clock: Clock,
        proxy: str = "",
    ) -> None:
        self._sdk = sdk
        self._fixed = fixed
        self._credentials = credentials
        self._know = know
        self.engine = engine
        self._clock = clock
        self._proxy = proxy
        self._lock = threading.Lock()
        self._routes: Mapping[str, Route | _Unknown] = {}

    # The SDK's client's verbs ---------------------------------------------------------------------

    def create_multipart_upload(self, **parameters: Any) -> Reply:
        return self._ask("CreateMultipartUpload", parameters)

    def upload_part(self, body: PartBody, **parameters: Any) -> Reply:
        return self._ask("UploadPart", parameters, body)

    def complete_multipart_upload(self, **parameters: Any) -> Reply:
        return self._ask("CompleteMultipartUpload", parameters)

    def abort_multipart_upload(self, **parameters: Any) -> Reply:
        return self._ask("AbortMultipartUpload", parameters)

    def list_parts(self, **parameters: Any) -> Reply:
        return self._ask("ListParts", parameters)

    def list_multipart_uploads(self, **parameters: Any) -> Reply:
        return self._ask("ListMultipartUploads", parameters)

    def list_objects_v2(self, **parameters: Any) -> Reply:
        return self._ask("ListObjectsV2", parameters)

    def put_object(self, *, Body: bytes, **parameters: Any) -> Reply:
        return self._ask("PutObject", parameters, Body)

    def head_object(self, **parameters: Any) -> Reply:
        return self._ask("HeadObject", parameters)

    def delete_object(self, **parameters: Any) -> Reply:
        return self._ask("DeleteObject", parameters)

    def get_object(self, max_bytes: int, **parameters: Any) -> Reply:
        """``Body`` is in memory; of an object with more bytes it is the SDK's."""
        try:
            spared = max_bytes + SPARED_BYTES_MAX
            return self._ask("GetObject", parameters, answer_bytes_max=spared)
        except NoAnswer as error:
            if error.cause is not Cause.LIMIT:
                raise
            return self._by_sdk("GetObject", parameters, b"")

    def __getattr__(self, name: str) -> Any:
        """All other verbs are the SDK's."""
        return getattr(self._sdk.client, name)

    # One request ----------------------------------------------------------------------------------

    def why(self, verb: str = "HeadObject") -> str:
        """Why a verb goes by the SDK; "" if it does not."""
        found = self._route(verb)
        return found.why if isinstance(found, _Unknown) else ""

    def request(
        self, verb: str, parameters: Parameters, body: bytes | PartBody = b""
    ) -> HTTPRequest | None:
        """The signed request, ready to be sent; None if the SDK must send it.

        Raises:
            botocore.exceptions.BotoCoreError: there are no credentials, for example.
        """
        route = self._route(verb)
        if isinstance(route, _Unknown):
            return None
        try:
            if "MultipartUpload" in parameters:
                body = document(parameters["MultipartUpload"]["Parts"])
            signed = route.signer is not None
            hashed = signed and route.signs_body(parameters)
            return route.request(
                parameters,
                body,
                payload=sha256_of(body) if hashed else UNSIGNED_PAYLOAD,
                credentials=self._frozen() if signed else None,
                moment=stamp(self._clock.now()),
            )
        except NotPlain:
            return None

    def read(
        self,
        verb: str,
        parameters: Parameters,
        request: HTTPRequest,
        answer: HTTPAnswer,
        *,
        sends_again: bool = True,
    ) -> Reply:
        """What the SDK's client would say to that answer. Raises its errors.

        Args:
            verb, parameters, request, answer: what was asked, and what came.
            sends_again: the SDK may send the request to another region. False: a redirect is an
                error.
        """
        parsed = plain.reply(verb, answer)
        if parsed is not None:
            return parsed
        error = plain.missing(verb, answer)
        if error is not None:
            raise error
        opened, parameters = _for_sdk(verb, parameters, request.body)
        reading = self._sdk.reading(answer, request.url, sends_again=sends_again)
        with closing(opened), reading as turn:
            try:
                return self._sdk.call(verb, parameters)
            except Prepared:
                raise _redirected(verb, answer.status) from None
            finally:
                if turn.went_on:  # the SDK has learnt where the bucket is
                    self._forget()

    def _ask(
        self,
        verb: str,
        parameters: Parameters,
        body: bytes | PartBody = b"",
        *,
        answer_bytes_max: int | None = None,
    ) -> Reply:
        request = self.request(verb, parameters, body)
        if request is None:
            return self._by_sdk(verb, parameters, body)
        if answer_bytes_max is not None:
            request.answer_bytes_max = answer_bytes_max
        try:
            answer = self.engine.send(request, deadline() or Deadline(SECONDS_MAX, SECONDS_MAX))
        except NoAnswer as error:
            self.place(error, request)
            raise
        except RuntimeError:  # no thread can be started: the interpreter ends
            return self._by_sdk(verb, parameters, body)
        reply = self.read(verb, parameters, request, answer)
        if verb == "GetObject" and "Body" not in reply:
            return {**reply, "Body": io.BytesIO(answer.body)}
        return reply

    def place(self, error: NoAnswer, request: HTTPRequest) -> None:
        """Say in an error where there was no answer."""
        if self._proxy and error.cause is Cause.CONNECT:  # we connect to nothing else
            error.cause = Cause.PROXY
        error.where = origin(self._proxy if error.cause is Cause.PROXY else request.url)

    def _by_sdk(self, verb: str, parameters: Parameters, body: bytes | PartBody) -> Reply:
        opened, parameters = _for_sdk(verb, parameters, body)
        with closing(opened):
            return self._sdk.call(verb, parameters)

    # Routes ---------------------------------------------------------------------------------------

    def _route(self, verb: str) -> Route | _Unknown:
        found = self._routes.get(verb)
        if found is not None:
            return found
        with self._lock:
            found = self._learn(verb)
            self._routes = {**self._routes, verb: found}
        return found

    def _learn(self, verb: str) -> Route | _Unknown:
        # Twice: new credentials may come between the SDK's request and ours.
        for last in (False, True):
            self._know(self._credentials)
            try:
                return learn(self._sdk, verb, self._fixed, self._credentials)
            except NotUnderstood as error:
                if last:
                    return _Unknown(str(error))
        raise AssertionError("unreachable")

    def _forget(self) -> None:
        with self._lock:
            self._routes = {}

    def _frozen(self) -> Any:
        self._know(self._credentials)
        return self._credentials.get_frozen_credentials()


def _redirected(verb: str, status: int) -> ClientError:
    """The error of a request that the SDK would send to another region."""
    said = {"Code": "PermanentRedirect", "Message": "the bucket is in another region"}
    reply = {"Error": said, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(reply, verb)


def origin(url: str) -> str:
    """Scheme, host and port of a URL, without its user."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


def _for_sdk(verb: str, parameters: Parameters, body: bytes | PartBody) -> tuple[Any, Parameters]:
    """The parameters with the body as the SDK takes it; and what is to be closed afterwards."""
    if verb not in ("UploadPart", "PutObject"):
        return io.BytesIO(), parameters
    opened = body if isinstance(body, bytes) else open_body(body)
    closes = (
        opened if isinstance(body, FileSlice) and not isinstance(opened, bytes) else io.BytesIO()
    )
    return closes, {**parameters, "Body": opened}
