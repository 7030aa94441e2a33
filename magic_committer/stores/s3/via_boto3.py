"""The other way to the store: boto3 writes and signs the requests.

It serves the verbs that are asked for seldom, and all verbs where the set-up is not plain: S3
Express, access points, SigV4A, plug-ins, other partitions. Its requests leave by our own
connections (`http`) and its answers are read by our own reader (`answers`), through the SDK's
public event ``before-send``. So deadlines, "sent or not", and what counts as an answer are the same
on both ways.

Invariants: the SDK sends each request once (`retry` tries again), but for a redirect to another
region. It adds no checksum of its own that S3 does not demand. No secret of a client reaches a log
(`redact`). A client belongs to the process that made it.
"""

from __future__ import annotations

import io
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import boto3
from botocore import UNSIGNED, xform_name
from botocore import exceptions as sdk
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.handlers import add_expect_header
from botocore.parsers import ResponseParserError

from magic_committer.options import S3Options
from magic_committer.runtime.threads import Errand, beside
from magic_committer.stores.base import FileSlice, PartBody
from magic_committer.stores.s3 import redact
from magic_committer.stores.s3.answers import Refused
from magic_committer.stores.s3.config import (
    REGION_DEFAULT,
    core_session,
    credentials_of,
    network_for,
    no_client,
)
from magic_committer.stores.s3.http import (
    Answer,
    Cause,
    Deadline,
    Failure,
    Http,
    HttpRequest,
    NoAnswer,
    Sent,
    Waits,
    look_at_file,
    origin_of,
    unwritten,
    waited,
)
from magic_committer.stores.s3.requests import OPERATIONS, Call

MISREAD = (ValueError, TypeError, ArithmeticError, AttributeError, OSError)
"""What the SDK raises for credentials, times and files that it cannot read, beside its own."""
_NOT_OURS = frozenset(("host", "content-length", "expect"))
"""Headers that our connections write, or do without."""


@dataclass
class _Turn:
    """One request that the SDK sends, and what became of it."""

    call: Call
    deadline: Deadline
    outcome: Answer | Failure | None = None


_turns = threading.local()
"""``now``: what this thread has asked for."""


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
        """The client of this process."""
        if self._made[0] != os.getpid():  # threads that meet here make several, and use any
            self._made = self._make()
        return self._made[1]

    @property
    def has_credentials(self) -> bool:
        """Whether there is something to sign with, or nothing is signed."""
        if self._options.anonymous:
            return True
        return beside(self._made[2].get_credentials, Errand()) is not None

    def ask(self, call: Call, deadline: Deadline, _: Http | None = None) -> Waits[Answer]:
        """Ask once. Raises as `fast.Fast.ask`."""
        yield from ()  # the SDK waits for its answer in this call
        deadline.errand = Errand()  # within the caller's
        # No lambda: the frame of one keeps what it has closed over, even when it is cleared.
        return beside(partial(self._ask, call, deadline), deadline.errand)

    def moves(self, error: Refused, region: str) -> bool:
        return False  # the SDK has gone there by itself

    def _ask(self, call: Call, deadline: Deadline) -> Answer:
        turn = _turns.now = _Turn(call, deadline)
        try:
            parsed = self._send(call)
            if isinstance(turn.outcome, Answer) and call.operation not in OPERATIONS:
                turn.outcome.parsed = parsed
        except Failure as error:
            turn.outcome = error
        except Exception as error:  # whatever it is: an answer says more
            if turn.outcome is None:
                turn.outcome = _unsent(error)
        finally:
            _turns.now = None
        answer, turn.outcome = turn.outcome, None
        if isinstance(answer, Failure):
            try:
                raise answer.with_traceback(None) from None  # the SDK's frames hold the body
            finally:
                del answer  # or it keeps this frame, which keeps it
        assert answer is not None
        return answer

    def _send(self, call: Call) -> Any:
        operation = getattr(self.client, xform_name(call.operation))
        parameters = dict(call.parameters)
        if self._bucket:
            parameters["Bucket"] = self._bucket
        if "CopySource" in parameters:  # to the SDK a text may name a version
            bucket, _, key = parameters["CopySource"].partition("/")
            parameters["CopySource"] = {"Bucket": bucket, "Key": key}
        if call.operation not in ("PutObject", "UploadPart"):
            return operation(**parameters)
        with closing(_opened(call.body)) as body:
            return operation(Body=body, **parameters)

    # The client -----------------------------------------------------------------------------------

    def _make(self) -> tuple[int, Any, Any]:
        """The process, its client, and the SDK's session that it is of."""
        options = self._options
        core = core_session(options)
        # By default the SDK uses path style if an endpoint is given, otherwise as the profile says.
        style = None if options.path_style is None else "path" if options.path_style else "virtual"
        config = Config(
            signature_version=UNSIGNED if options.anonymous else None,
            retries={"total_max_attempts": 1, "mode": "standard"},
            s3={"addressing_style": style} if style else None,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            user_agent_extra=f"magic-committer {options.user_agent}".strip(),
        )
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
                config=config,
            )
        except (sdk.BotoCoreError, *MISREAD) as error:
            raise no_client(error) from None
        redact.install()
        bundle = core.get_config_variable("ca_bundle")
        http = Http(network_for(options, client.meta.endpoint_url, bundle))
        events = client.meta.events
        # A body that waits for "100 Continue" costs a round trip for each part, and a second on
        # servers that never send it. Bodies can be sent again, so nothing is lost without it.
        events.unregister("before-call.s3", add_expect_header)
        if not options.anonymous:
            events.register("before-sign.s3", lambda **_: credentials_of(core))
        events.register("before-sign.s3.UploadPart", _leave_to_tls)
        # No method: in a circle with the client, this object would keep its connections until the
        # collector comes.
        events.register_last("before-send.s3", partial(_before_send, http))
        weakref.finalize(self, http.close).atexit = False  # it has its own end
        return os.getpid(), client, core


def _before_send(http: Http, request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
    """Send the SDK's request. What it gets back is the answer."""
    turn: _Turn | None = getattr(_turns, "now", None)
    if turn is None:
        return None
    call = turn.call
    scheme, _, rest = request.url.partition("://")
    netloc, slash, target = rest.partition("/")
    body = request.body or b""
    if hasattr(body, "read"):  # as `_opened`; the request of a session for S3 Express has none
        body = call.body
    headers = [
        (name, value.decode() if isinstance(value, bytes) else str(value))
        for name, value in request.headers.items()
        if name.lower() not in _NOT_OURS
    ]
    origin, target = origin_of(f"{scheme}://{netloc}"), f"{slash or '/'}{target}"
    body = body.encode() if isinstance(body, str) else body
    ours = HttpRequest(request.method, origin, target, headers, body, call.bytes_max)
    turn.outcome = answer = waited(http.exchange(ours, turn.deadline))
    return AWSResponse(request.url, answer.status, dict(answer.headers), _Raw(answer.body))


class _Raw(io.BytesIO):
    """The bytes of an answer, as the SDK reads them from its HTTP library."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self.read()


def _unsent(error: Exception) -> NoAnswer:
    """Why the SDK has not even sent a request. Raises what is no error of the SDK or of a body."""
    if isinstance(error, EOFError):
        return NoAnswer(Cause.BODY, Sent.NEVER, str(error))
    if isinstance(error, sdk.BotoCoreError | ResponseParserError):
        return unwritten(str(error))
    raise error


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
