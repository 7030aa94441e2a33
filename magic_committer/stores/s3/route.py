"""How the SDK asks S3 for each verb, learnt from one request that it prepares and does not send.

Endpoint, addressing, region, payer, agent and the names of parameters on the wire belong to the
SDK: nothing of them is computed here. `learn` lets the SDK's client prepare a request with odd
parameters, stops it before it is sent, and takes it apart. Then it **builds the same request by
itself and compares**: method, URL, every header, and the signature must be the same, byte by byte.
Only then the route is used. So whatever makes the SDK's requests other than plain ones (S3 Express,
SigV4A, plug-ins, a kind of signature of tomorrow) stays with the SDK, known or not.

Parameters that may be written in two ways (text that is not plain ASCII in a header, an empty
value) are `NotPlain`: the SDK sends that request.
"""

from __future__ import annotations

import hashlib
import io
import ipaddress
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

from botocore import xform_name
from botocore.awsrequest import AWSResponse

from magic_committer.stores.base import FileSlice, PartBody, Pieces
from magic_committer.stores.s3.errors import let_go
from magic_committer.stores.s3.http import HTTPAnswer, HTTPRequest
from magic_committer.stores.s3.signing import (
    ALGORITHM,
    EMPTY_SHA256,
    UNSIGNED_PAYLOAD,
    Credentials,
    Signer,
    SigningScope,
)
from magic_committer.stores.s3.values import CHECKSUM_FIELDS

Reply = Mapping[str, Any]
Parameters = Mapping[str, Any]
Signs = Literal["all", "none", "unchecked"]
Where = Literal["key", "query", "header", "metadata", "document", "body", "bucket"]

_KEY = "magic-committer/a b+~%c?d#e&f=g/é"
"""A key that is quoted in every way."""
_ID = "an id/+~="
PROBES: Mapping[str, Parameters] = {
    "CreateMultipartUpload": {
        "Key": _KEY,
        "ContentType": "text/x",
        "Tagging": "a=b+c",
        "Metadata": {"a-b": "c  d"},
        "ChecksumAlgorithm": "CRC32",
        "ChecksumType": "FULL_OBJECT",
    },
    "UploadPart": {
        "Key": _KEY,
        "UploadId": _ID,
        "PartNumber": 7,
        "ChecksumCRC32": "AAAAAA==",
        "Body": b"x",
    },
    "CompleteMultipartUpload": {
        "Key": _KEY,
        "UploadId": _ID,
        "MultipartUpload": {"Parts": [{"PartNumber": 7, "ETag": '"<&>"', "ChecksumCRC32": "A="}]},
        "MpuObjectSize": 5,
        "IfNoneMatch": "*",
    },
    "AbortMultipartUpload": {"Key": _KEY, "UploadId": _ID},
    "ListParts": {"Key": _KEY, "UploadId": _ID, "PartNumberMarker": 7},
    "ListMultipartUploads": {"Prefix": _KEY, "KeyMarker": _KEY, "UploadIdMarker": _ID},
    "ListObjectsV2": {"Prefix": _KEY, "Delimiter": "/", "ContinuationToken": _ID},
    "PutObject": {"Key": _KEY, "ContentType": "text/x", "IfMatch": '"e"', "Body": b"x"},
    "GetObject": {"Key": _KEY},
    "HeadObject": {"Key": _KEY},
    "DeleteObject": {"Key": _KEY, "VersionId": _ID, "IfMatch": '"e"'},
}
"""For each hot verb, by the SDK's name: what the SDK is asked to prepare."""

_BESIDE = frozenset(
    ("host", "content-length", "amz-sdk-invocation-id", "amz-sdk-request", "x-amzn-trace-id")
)
"""Headers of the SDK's request that are not ours to compare: the framing, and what is unsigned and
another one in each request."""
_TEXT = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_NAME = re.compile(r"[A-Za-z0-9-]+")
_SIGNED_BY = re.compile(rf"{ALGORITHM} Credential=.+/\d{{8}}/([^/]+)/([^/]+)/aws4_request, .+")
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


class NotPlain(Exception):
    """A parameter is not written in one way only: the SDK sends this request."""


class NotUnderstood(Exception):
    """The SDK prepares this request in a way that is not known here. The text says what it is."""


@dataclass(frozen=True, slots=True)
class WirePlace:
    """Where a parameter of the SDK stands in the request, and its name there."""

    where: Where
    name: str


@dataclass(frozen=True, slots=True)
class Route:
    """How to ask for one verb in one bucket. Pure.

    Attributes:
        verb: the SDK's name of the verb.
        method: the HTTP method.
        base: the URL up to the key, or all of it up to the query.
        first, last: what the query begins and ends with.
        headers: what every request has.
        places: where each parameter stands.
        signer: signs; None: requests are not signed.
        signs: which bodies the signature covers: all, none, or those without a checksum of their
            own.
    """

    verb: str
    method: str
    base: str
    first: tuple[str, ...]
    last: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    places: Mapping[str, WirePlace]
    signer: Signer | None
    signs: Signs

    def signs_body(self, parameters: Parameters) -> bool:
        """Whether the signature of the request with these parameters covers its body."""
        if self.signs == "unchecked":
            return not any(name in parameters for name in CHECKSUM_FIELDS.values())
        return self.signs == "all"

    def request(
        self,
        parameters: Parameters,
        body: bytes | PartBody,
        *,
        payload: str,
        credentials: Credentials | None,
        moment: str,
    ) -> HTTPRequest:
        """The request for these parameters.

        Args:
            parameters: as the SDK's client takes them.
            body: what is sent.
            payload: the body's hash, or that it is not signed.
            credentials: what signs; None: nothing does.
            moment: the time of the signature.

        Raises:
            NotPlain: the SDK must send it.
        """
        url, headers = self.unsigned(parameters)
        if self.signer is not None and credentials is not None:
            headers = self.signer.headers(self.method, url, headers, payload, credentials, moment)
        return HTTPRequest(self.method, url, headers, body)

    def unsigned(self, parameters: Parameters) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The URL and the headers, before they are signed."""
        key = ""
        query = [*self.first]
        headers = [*self.headers]
        for name, value in parameters.items():
            place = self.places.get(name)
            if place is None:
                raise NotPlain(name)
            if place.where == "query":
                query.append(f"{place.name}={_quoted(_text(value), '')}")
            elif place.where == "header":
                headers.append((place.name, _plain(_text(value))))
            elif place.where == "key":
                key = _quoted(_text(value), "/")
            elif place.where == "metadata":
                headers += _metadata(place.name, value)
        query += self.last
        url = f"{self.base}{key}?{'&'.join(query)}" if query else f"{self.base}{key}"
        return url, tuple(headers)


def document(parts: Sequence[Parameters]) -> bytes:
    """The body of Complete.

    Raises:
        NotPlain: a value is not plain text.
    """
    rows = [
        "".join([f"<{name}>{escape(_plain(_text(value)))}</{name}>" for name, value in one.items()])
        for one in parts
    ]
    inside = "".join([f"<Part>{row}</Part>" for row in rows])
    root = "CompleteMultipartUpload"
    return f'<{root} xmlns="{_NAMESPACE}">{inside}</{root}>'.encode()


def sha256_of(body: bytes | PartBody) -> str:
    """The SHA-256 of a body in hex. Reads a file's slice."""
    if isinstance(body, FileSlice):
        digest, left = hashlib.sha256(), body.length
        with open(body.path, "rb") as file:
            file.seek(body.offset)
            while left and (piece := file.read(min(left, 1024**2))):
                digest.update(piece)
                left -= len(piece)
        return digest.hexdigest()
    views = Pieces.of(body).since(0)
    if not views:
        return EMPTY_SHA256
    digest = hashlib.sha256()
    for view in views:
        digest.update(view)
    return digest.hexdigest()


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise NotPlain(repr(value))
    return value


def _plain(value: str) -> str:
    if not _TEXT.fullmatch(value):
        raise NotPlain(value)
    return value


def _quoted(value: str, beside: str) -> str:
    try:
        return quote(value, safe=f"-._~{beside}")
    except UnicodeEncodeError as error:  # half a character: the SDK says what is wrong
        raise NotPlain(value) from error


def _metadata(prefix: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if len({name.lower() for name in values}) < len(values):
        raise NotPlain("two names of metadata differ in case only")
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise NotPlain(name)
        yield f"{prefix}{name}", _plain(_text(value))


# The SDK ------------------------------------------------------------------------------------------


class Prepared(Exception):
    """Carries the request out of the SDK."""

    def __init__(self, request: Any) -> None:
        super().__init__("prepared, and not sent")
        self.request = request


@dataclass(slots=True)
class Turn:
    """What the SDK's client is to do in this thread with the next request.

    Attributes:
        answer: take this for its answer; None: send it, or stop.
        stops: do not send it.
        went_on: whether it has sent a request, or would have.
    """

    answer: Any = None
    stops: bool = False
    went_on: bool = False


class Sdk:
    """A client of the SDK that can be told, thread by thread, to stop before it sends, or to read
    an answer that came in another way. Everybody else's requests are as they were.

    Args:
        client: a client for S3 that has sent nothing yet.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self._turns = threading.local()
        client.meta.events.register_first("before-send.s3", self._before_send)

    def _before_send(self, request: Any, **_: Any) -> Any:
        turn: Turn | None = getattr(self._turns, "turn", None)
        if turn is None:
            return None
        answer, turn.answer = turn.answer, None
        if answer is not None:
            return answer
        turn.went_on = True
        if turn.stops:
            raise Prepared(request)
        return None

    @contextmanager
    def _turn(self, turn: Turn) -> Iterator[Turn]:
        self._turns.turn = turn
        try:
            yield turn
        finally:
            self._turns.turn = None

    def prepare(self, verb: str, parameters: Parameters) -> Any:
        """The request that the SDK would send. Raises what the SDK raises, for example where there
        are no credentials."""
        try:
            with self._turn(Turn(stops=True)):
                self.call(verb, parameters)
        except Prepared as prepared:
            let_go(prepared, before=prepared.__context__)
            return prepared.request
        raise NotUnderstood("it was answered without being sent")

    @contextmanager
    def reading(self, answer: HTTPAnswer, url: str, *, sends_again: bool) -> Iterator[Turn]:
        """The next request of this thread's is not sent: the SDK takes ``answer`` for its answer.
        If it then goes on to another region, the turn says so; without ``sends_again`` it stops
        there with `Prepared`."""
        given = AWSResponse(url, answer.status, dict(answer.headers), _Raw(answer.body))
        with self._turn(Turn(answer=given, stops=not sends_again)) as turn:
            yield turn

    def call(self, verb: str, parameters: Parameters) -> Reply:
        """Ask by the SDK. Raises what it raises."""
        reply: Reply = getattr(self.client, xform_name(verb))(**parameters)
        return reply


class _Raw(io.BytesIO):
    """The bytes of an answer, as the SDK reads them from its HTTP library."""

    def stream(self) -> Iterator[bytes]:
        yield self.read()


# Learning -----------------------------------------------------------------------------------------


def learn(sdk: Sdk, verb: str, parameters: Parameters, credentials: Any) -> Route:
    """How the SDK asks for a verb. Nothing is sent.

    Args:
        sdk: the SDK's client.
        verb: one of `PROBES`.
        parameters: those that each request has: the bucket, the payer.
        credentials: the SDK's object that gives credentials; None: nothing is signed.

    Raises:
        NotUnderstood: the SDK asks in another way than is known here.
        botocore.exceptions.BotoCoreError: the SDK cannot ask, for example without credentials.
    """
    model = sdk.client.meta.service_model.operation_model(verb)
    places = {
        name: place
        for name, shape in model.input_shape.members.items()
        if (place := _place(name, shape)) is not None
    }
    body = PROBES[verb].get("Body", b"")
    wanted = {name: value for name, value in PROBES[verb].items() if name != "Body"}
    if "MultipartUpload" in wanted:
        body = document(wanted["MultipartUpload"]["Parts"])
    prepared = sdk.prepare(verb, {**parameters, **PROBES[verb]})
    sent = {name: _decoded(value) for name, value in prepared.headers.items()}
    low = {name.lower(): value for name, value in sent.items()}
    url, _, query = prepared.url.partition("?")
    blank = Route(verb, prepared.method, "", (), (), (), places, None, "none")
    _, _, asked = blank.unsigned(wanted)[0].partition("?")
    first, last = _around(query, asked)
    scope = _scope(low.get("authorization"))
    route = Route(
        verb,
        prepared.method,
        _base(url, wanted.get("Key")),
        first,
        last,
        tuple((name, value) for name, value in sent.items() if name.lower() == "user-agent"),
        places,
        Signer(scope) if scope is not None else None,
        _signs(sdk.client, verb, url),
    )
    ours = route.request(
        {**parameters, **wanted},
        body,
        payload=_payload(low, body) if scope is not None else "",
        credentials=credentials.get_frozen_credentials() if scope and credentials else None,
        moment=low.get("x-amz-date", ""),
    )
    _compare(prepared.method, prepared.url, low, ours)
    return route


def _place(name: str, shape: Any) -> WirePlace | None:
    """Where a parameter stands, by the SDK's model. None: in no place that is known here."""
    if name == "Bucket":
        return WirePlace("bucket", name)
    if name == "MultipartUpload":
        return WirePlace("document", name)
    where = shape.serialization.get("location")
    wire = shape.serialization.get("name", name)
    if where == "uri" and name == "Key":
        return WirePlace("key", wire)
    if where == "querystring":
        return WirePlace("query", wire)
    if where == "header" and shape.type_name in ("string", "integer", "long"):
        return WirePlace("header", wire)
    if where == "headers" and name == "Metadata":
        return WirePlace("metadata", wire)
    return None


def _base(url: str, key: str | None) -> str:
    quoted = _quoted(key, "/") if key else ""
    if not url.endswith(quoted):
        raise NotUnderstood("the key is quoted in another way")
    return url.removesuffix(quoted) if quoted else url


def _around(query: str, asked: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the SDK adds to a query before and behind what was asked for."""
    pairs, ours = [[one for one in text.split("&") if one] for text in (query, asked)]
    at = pairs.index(ours[0]) if ours and ours[0] in pairs else len(pairs)
    if pairs[at : at + len(ours)] != ours:
        raise NotUnderstood("the query has another order")
    return tuple(pairs[:at]), tuple(pairs[at + len(ours) :])


def _scope(authorization: str | None) -> SigningScope | None:
    if authorization is None:
        return None
    found = _SIGNED_BY.fullmatch(authorization)
    if found is None:
        raise NotUnderstood(f"the signature is not {ALGORITHM}")
    return SigningScope(found[1], found[2])


def _payload(headers: Mapping[str, str], body: bytes) -> str:
    said = headers.get("x-amz-content-sha256", EMPTY_SHA256)
    if said not in (sha256_of(body), UNSIGNED_PAYLOAD):
        raise NotUnderstood("the body is signed in another way")
    return said


def _signs(client: Any, verb: str, url: str) -> Signs:
    """Which bodies of a verb the signature covers.

    Small bodies always: it costs microseconds. Parts over plain HTTP, where nothing else tells that
    they were changed on the way; over TLS, and on this machine's own interface, those that have no
    checksum, which the store would check. The SDK's ``payload_signing_enabled`` comes first.
    """
    asked = (client.meta.config.s3 or {}).get("payload_signing_enabled")
    if asked is not None:
        return "all" if asked else "none"
    protected = url.startswith("https:") or _on_this_machine(url)
    return "unchecked" if verb == "UploadPart" and protected else "all"


def _on_this_machine(url: str) -> bool:
    name = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _compare(method: str, url: str, headers: Mapping[str, str], ours: HTTPRequest) -> None:
    if (method, url) != (ours.method, ours.url):
        raise NotUnderstood("the URL is another one")
    mine = {name.lower(): value for name, value in ours.headers}
    theirs = {name: value for name, value in headers.items() if name not in _BESIDE}
    if names := sorted(mine.keys() ^ theirs.keys()):
        raise NotUnderstood(f"other headers: {', '.join(names)}")
    if names := sorted(name for name in mine if mine[name] != theirs[name]):
        raise NotUnderstood(f"other values in the headers: {', '.join(names)}")


def _decoded(value: str | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
