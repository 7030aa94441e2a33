"""The other way to the store: boto3 writes and signs the requests.

It serves the verbs that are asked for seldom, and all verbs where the set-up is not plain: S3
Express, access points, SigV4A, plug-ins, other partitions. Its requests leave by our own
connections (`http`) and its answers are read by our own reader (`answers`), through the SDK's
public events ``before-send`` and ``before-parse``. So deadlines, "sent or not", and what counts as
an answer are the same on both ways.

Where our connections cannot serve (a proxy that is reached by TLS or SOCKS; no httptools), the SDK
sends by its own. Then its time-outs hold, those of one ``recv``, and an error of TLS or of a proxy
counts as "perhaps sent".

Invariants: the SDK sends each request once (`retry` tries again), but for a redirect to another
region. It adds no checksum of its own that S3 does not demand. No secret of a client reaches a log
(`redact`). A client belongs to the process that made it.
"""

from __future__ import annotations

import io
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import boto3
from botocore import UNSIGNED, xform_name
from botocore import exceptions as sdk
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.handlers import add_expect_header
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from magic_committer._patience import Errand
from magic_committer._pool import beside
from magic_committer.errors import OptionError
from magic_committer.options import S3Options
from magic_committer.stores.base import FileSlice, PartBody
from magic_committer.stores.s3 import http, redact
from magic_committer.stores.s3.answers import Refused, Reply, read
from magic_committer.stores.s3.config import (
    OPTIONS_HINT,
    PLUGINS,
    REGION_DEFAULT,
    NotPlain,
    core_session,
    frozen_of,
    network_for,
)
from magic_committer.stores.s3.http import (
    Answer,
    Cause,
    Deadline,
    Failure,
    Http,
    HttpRequest,
    NoAnswer,
    Outcome,
    Sent,
    look_at_file,
    origin_of,
)
from magic_committer.stores.s3.requests import OPERATIONS, Call

_NOT_OURS = frozenset(("host", "content-length", "expect"))
"""Headers that our connections write, or do without."""
_OF_THE_STORE = (sdk.HTTPClientError, sdk.ConnectionError, sdk.IncompleteReadError, HTTPError)
_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.TokenRetrievalError,
    sdk.NoAuthTokenError,
    sdk.SSOError,
    sdk.MetadataRetrievalError,
    sdk.ClientError,  # of a service that gives them: the store's would be an answer
    *([sdk.LoginError] if hasattr(sdk, "LoginError") else []),  # newer than our oldest version
)
_CAUSES: tuple[tuple[Any, Cause, Sent], ...] = (
    (_NO_CREDENTIALS, Cause.CREDENTIALS, Sent.NEVER),
    (EOFError, Cause.BODY, Sent.NEVER),
    (sdk.ProxyConnectionError, Cause.PROXY, Sent.PERHAPS),
    (sdk.SSLError, Cause.TLS, Sent.PERHAPS),
    ((sdk.EndpointConnectionError, sdk.ConnectTimeoutError), Cause.CONNECT, Sent.NEVER),
    (sdk.ReadTimeoutError, Cause.TIME, Sent.PERHAPS),
    (_OF_THE_STORE, Cause.BROKEN, Sent.PERHAPS),
    ((sdk.BotoCoreError, ResponseParserError), Cause.PARAMETER, Sent.NEVER),
)
"""What an error of the SDK says, where there was no answer that could be read: the first that
fits."""


class _Turn:
    """One request that the SDK is asked for, and what became of it."""

    def __init__(self, call: Call, deadline: Deadline) -> None:
        self.call = call
        self.deadline = deadline
        self.outcome: Outcome | None = None


class _Made(NamedTuple):
    """The client of one process, with what belongs to it."""

    pid: int
    client: Any
    core: Any
    hooks: _Hooks


class ViaBoto3:
    """Sends the requests of one bucket by the SDK's client. Safe for many threads, and after a
    fork. ``bucket`` is "" for what is about the account. Raises `OptionError`: no client can be
    made."""

    def __init__(self, bucket: str, options: S3Options, why: str = "") -> None:
        self.why = why
        self.region = ""
        self._bucket = bucket
        self._options = options
        self._made = self._make()
        self.endpoint = _without_user(self.client.meta.endpoint_url)

    @property
    def client(self) -> Any:
        return self._mine().client

    @property
    def has_credentials(self) -> bool:
        """Whether there is something to sign with, or nothing is signed."""
        if self._options.anonymous:
            return True
        return beside(self._mine().core.get_credentials, Errand()) is not None

    def ask(self, call: Call, deadline: Deadline) -> Reply:
        """Ask once. The reply to an operation that is not in `OPERATIONS` is the SDK's, with the
        document as it came under ``Document``. Raises as `fast.Fast.ask`."""
        deadline.errand = Errand()  # within the caller's
        # No lambda: the frame of one keeps what it has closed over, even when it is cleared.
        return beside(partial(self._ask, call, deadline), deadline.errand)

    def moves(self, error: Refused, region: str) -> bool:
        return False  # the SDK has gone there by itself

    def _ask(self, call: Call, deadline: Deadline) -> Reply:
        _, client, _, hooks = self._mine()
        turn = hooks.turns.turn = _Turn(call, deadline)
        try:
            parsed = self._send(client, call)
        except Exception as error:  # whatever it is: the answer tells more
            if turn.outcome is None:
                raise _failure(error) from None
            parsed = None
        finally:
            hooks.turns.turn = None
        answer, turn.outcome = turn.outcome, None
        if isinstance(answer, Failure):
            try:
                raise answer.with_traceback(None)  # the SDK's frames hold the body
            finally:
                del answer  # or it keeps this frame, which keeps it
        assert answer is not None
        if parsed is not None and call.operation not in OPERATIONS:
            return {**parsed, "Document": answer.body}
        if parsed is not None and hasattr(parsed.get("Body"), "read") and not hooks.http:
            answer.body = _all_of(parsed["Body"], call.bytes_max, answer)
        return read(call.operation, answer)

    def _send(self, client: Any, call: Call) -> Any:
        parameters = dict(call.parameters)
        if self._bucket:
            parameters["Bucket"] = self._bucket
        if "CopySource" in parameters:  # the SDK takes a text for one that may name a version
            bucket, _, key = parameters["CopySource"].partition("/")
            parameters["CopySource"] = {"Bucket": bucket, "Key": key}
        if call.operation not in ("PutObject", "UploadPart"):
            return getattr(client, xform_name(call.operation))(**parameters)
        with closing(_opened(call.body)) as body:
            return getattr(client, xform_name(call.operation))(Body=body, **parameters)

    # The client -----------------------------------------------------------------------------------

    def _mine(self) -> _Made:
        if self._made.pid != os.getpid():  # threads that meet here make several, and use any
            self._made = self._make()
        return self._made

    def _make(self) -> _Made:
        options = self._options
        core = core_session(options)
        try:
            session = boto3.session.Session(
                botocore_session=core,
                aws_access_key_id=options.access_key,
                aws_secret_access_key=options.secret_key,
                aws_session_token=options.session_token,
            )
            client = session.client(
                "s3",
                region_name=options.region or session.region_name or REGION_DEFAULT,
                endpoint_url=options.endpoint_url,
                config=self._config(),
            )
        except (sdk.BotoCoreError, ValueError) as error:
            redact.redact_error(error)
            raise OptionError(f"no client can be made: {error}", hint=OPTIONS_HINT) from error
        redact.install()
        http = self._connections(client, core)
        hooks = _Hooks(http)
        events = client.meta.events
        # A body that waits for "100 Continue" costs a round trip for each part, and a second on
        # servers that never send it. Bodies can be sent again, so nothing is lost without it.
        events.unregister("before-call.s3", add_expect_header)
        events.register("before-sign.s3", lambda **_: frozen_of(core))
        events.register("before-sign.s3.UploadPart", _leave_to_tls)
        if http is None:
            events.register("before-parse.s3", hooks.before_parse)
        else:
            events.register_last("before-send.s3", hooks.before_send)
            weakref.finalize(self, http.close).atexit = False  # it has its own end
        return _Made(os.getpid(), client, core, hooks)

    def _config(self) -> Config:
        options = self._options
        # By default the SDK uses path style if an endpoint is given, otherwise as the profile says.
        style = None if options.path_style is None else "path" if options.path_style else "virtual"
        return Config(
            signature_version=UNSIGNED if options.anonymous else None,
            connect_timeout=options.connect_seconds_max,
            # Of the SDK's own connections, which know no verbs: Complete needs the longer one.
            read_timeout=max(options.read_seconds_max, options.complete_seconds_max),
            max_pool_connections=options.connections_max,
            retries={"total_max_attempts": 1, "mode": "standard"},
            s3={"addressing_style": style} if style else None,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            tcp_keepalive=True,
            user_agent_extra=f"magic-committer {options.user_agent}".strip(),
        )

    def _connections(self, client: Any, core: Any) -> Http | None:
        """Our own connections; None: the SDK's, also where a plug-in may have changed them."""
        if not http.available() or os.environ.get(PLUGINS):
            return None
        endpoint = client.meta.endpoint_url
        try:
            network = network_for(self._options, endpoint, core.get_config_variable("ca_bundle"))
        except NotPlain as reason:
            self.why = f"{self.why}, by its own connections: {reason}"
            return None
        return Http(network)


class _Hooks:
    """What the SDK's client calls. It does not know of `ViaBoto3`, which would otherwise be in a
    circle with the client, and keep its connections until the collector comes."""

    def __init__(self, http: Http | None) -> None:
        self.turns = threading.local()  # ``turn``: what this thread has asked for
        self.http = http  # None: the SDK's connections

    def before_send(self, request: AWSPreparedRequest, **_: Any) -> Any:
        """Send the SDK's request. What it gets back is the answer."""
        turn: _Turn | None = getattr(self.turns, "turn", None)
        if turn is None or self.http is None:
            return None
        try:
            turn.outcome = answer = self.http.send(_as_ours(request, turn.call), turn.deadline)
        except Failure as error:
            turn.outcome = error
            raise error.with_traceback(None) from None
        return AWSResponse(request.url, answer.status, dict(answer.headers), _Raw(answer.body))

    def before_parse(self, response_dict: Mapping[str, Any], **_: Any) -> None:
        """Keep the answer that came by the SDK's own connections."""
        turn: _Turn | None = getattr(self.turns, "turn", None)
        if turn is None:
            return
        body = response_dict["body"]
        headers = {name.lower(): value for name, value in response_dict["headers"].items()}
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        turn.outcome = Answer(
            int(response_dict["status_code"]),
            headers,
            body if isinstance(body, bytes) else b"",
            until_close="content-length" not in headers
            and not chunked
            and turn.call.operation != "HeadObject"
            and response_dict["status_code"] != 204,
        )


def _as_ours(request: AWSPreparedRequest, call: Call) -> HttpRequest:
    scheme, _, rest = request.url.partition("://")
    netloc, slash, target = rest.partition("/")
    if call.operation in ("PutObject", "UploadPart"):
        body = call.body
    else:
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
    return HttpRequest(
        request.method,
        origin_of(f"{scheme}://{netloc}"),
        f"{slash or '/'}{target}",
        [
            (name, value.decode() if isinstance(value, bytes) else str(value))
            for name, value in request.headers.items()
            if name.lower() not in _NOT_OURS
        ],
        body,
        call.bytes_max,
    )


class _Raw(io.BytesIO):
    """The bytes of an answer, as the SDK reads them from its HTTP library."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self.read()


def _all_of(stream: Any, bytes_max: int, answer: Answer) -> bytes:
    """Read an object that came by the SDK's own connections."""
    length = int(answer.headers.get("content-length", 0))
    try:
        held: bytes = b"" if length > bytes_max else stream.read(None if length else bytes_max + 1)
    except _OF_THE_STORE as error:
        raise NoAnswer(Cause.BROKEN, Sent.ANSWERED, str(error)) from None
    finally:
        stream.close()
    if (length := max(length, len(held))) > bytes_max:
        answer.excess = f"it has {length} bytes, over {bytes_max}"
    return held


def _leave_to_tls(request: Any, **_: Any) -> None:
    """Let a part that has a checksum go over TLS without a SHA-256 of it: TLS protects it on the
    way, and the store checks the checksum. The SDK does so only for checksums that it computes
    itself; this says that there is one."""
    found = [name for name in request.headers if name.lower().startswith("x-amz-checksum-")]
    if found:
        checksum = request.context.setdefault("checksum", {})
        checksum.setdefault("request_algorithm", {"in": "header", "name": found[0]})


def _without_user(url: str) -> str:
    scheme, slashes, rest = url.rpartition("://")
    netloc, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{netloc.rpartition('@')[2]}{slash}{path}".rstrip("/")


# Bodies -------------------------------------------------------------------------------------------


def _opened(body: bytes | PartBody) -> Any:
    """A body as a file, which the SDK can hash and send. It is not copied."""
    if isinstance(body, FileSlice):
        from s3transfer.utils import ReadFileChunk  # late: it is seldom needed

        look_at_file(body)
        return ReadFileChunk.from_filename(body.path, body.offset, body.length)
    return _Memory(memoryview(body))


class _Memory(io.RawIOBase):
    """Reads memory as a file. awscrt reads what it signs by ``readinto``."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        piece = self._view[self._at : self._at + len(buffer)]
        memoryview(buffer).cast("B")[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = min(max(base + offset, 0), len(self._view))
        return self._at

    def tell(self) -> int:
        return self._at


# Failures -----------------------------------------------------------------------------------------


def _failure(error: Exception) -> Exception:
    """What an error of the SDK means; itself, if it is none."""
    found = [(cause, sent) for cls, cause, sent in _CAUSES if isinstance(error, cls)]
    if not found:
        return error
    (cause, sent), kwargs = found[0], getattr(error, "kwargs", {})
    where = _without_user(str(kwargs.get("proxy_url") or kwargs.get("endpoint_url") or ""))
    why = str(error if sent is Sent.NEVER and not where else kwargs.get("error") or error)
    if cause is Cause.TLS and "certificate verify failed" in why.lower():
        cause, sent = Cause.CERTIFICATE, Sent.NEVER
    return NoAnswer(cause, sent, why, "/".join(where.split("/")[:3]))
