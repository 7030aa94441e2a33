"""The one place where the SDK's errors become ours: the kind of failure, the class, the hint. The
SDK's error stays as the ``__cause__``, without secrets.

The kinds say which requests may be sent again (`retry`); the tables below say the rest. Stores
differ in codes and agree in status (stores.md), so the status decides if the code is unknown.

**A request counts as sent unless it is proven that it was not** (`never_sent`): callers take "not
sent" for "took no effect".
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from traceback import walk_tb
from types import FrameType
from typing import Literal
from urllib.parse import urlsplit

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError
from urllib3.util.ssl_match_hostname import CertificateError

from magic_committer.errors import (
    BucketNotFound,
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.stores.s3.http import Cause, NoAnswer, Sent
from magic_committer.stores.s3.redact import redact_error, redacted
from magic_committer.stores.s3.replies import Unreadable

SDK_ERRORS = (sdk.BotoCoreError, sdk.ClientError, ResponseParserError, HTTPError, NoAnswer)
"""All that the SDK raises for a request. Also the errors of its HTTP library: if the connection
breaks inside the error document of a GET, the SDK lets such an error through. And what the fast way
raises in its place."""

Kind = Literal["throttled", "transient", "skewed", "conflict", "final"]

SERVER_MESSAGE_CHARS_MAX = 300
"""How many characters of the store's own words an error repeats."""

THROTTLED = frozenset(
    (
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequests",
        "TooManyRequestsException",
        "BandwidthLimitExceeded",
        "ServiceUnavailable",
        "Busy",
    )
)
TRANSIENT = frozenset(
    (
        "InternalError",
        "InternalServerError",
        "InternalFailure",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServerBusy",
        "BadGateway",
        "GatewayTimeout",
    )
)
CONFLICT = frozenset(("ConditionalRequestConflict", "OperationAborted"))
DENIED = frozenset(
    (
        "AccessDenied",
        "AllAccessDisabled",
        "AccountProblem",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "InvalidSecurity",
        "RequestTimeTooSkewed",
        "NotSignedUp",
    )
)
UNSUPPORTED = frozenset(("NotImplemented", "MethodNotAllowed", "UnsupportedOperation"))
IN_THE_WAY = frozenset(
    (
        "ObjectParentIsFile",
        "ExistingObjectIsDirectory",
        "XMinioParentIsObject",
        "XMinioObjectExistsAsDirectory",
    )
)
"""From stores whose keys are paths of files: 409 or 400, although no other write is in progress."""
REFUSED = frozenset(("InvalidObjectState", "QuotaExceeded"))
"""A 403 that no policy can repair."""

READS = frozenset(
    ("get", "head", "list", "list_parts", "list_uploads", "get_lifecycle", "list_buckets")
)
"""Verbs that change nothing, with or without an answer."""
HARMLESS_AGAIN = frozenset(("put_part", "abort_upload", "put_lifecycle"))
"""Verbs that write, and may be repeated without a look."""

ACTIONS = {
    "get": "s3:GetObject",
    "head": "s3:GetObject",
    "put": "s3:PutObject",
    "delete": "s3:DeleteObject",
    "delete_one": "s3:DeleteObject",
    "list": "s3:ListBucket",
    "create_upload": "s3:PutObject",
    "put_part": "s3:PutObject",
    "list_parts": "s3:ListMultipartUploadParts",
    "complete_upload": "s3:PutObject",
    "abort_upload": "s3:AbortMultipartUpload",
    "list_uploads": "s3:ListBucketMultipartUploads",
    "list_buckets": "s3:ListAllMyBuckets",
    "get_lifecycle": "s3:GetLifecycleConfiguration",
    "put_lifecycle": "s3:PutLifecycleConfiguration",
}
"""For each verb: the S3 action that a policy must allow (Service Authorization Reference)."""

_CODES_OF_HEAD = {404: "NoSuchKey", 403: "AccessDenied", 412: "PreconditionFailed"}

_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.TokenRetrievalError,
    sdk.NoAuthTokenError,
    sdk.SSOError,
    sdk.MetadataRetrievalError,
    *([sdk.LoginError] if hasattr(sdk, "LoginError") else []),  # newer than our oldest version
)
_NO_ANSWER = (
    sdk.HTTPClientError,
    sdk.ConnectionError,
    sdk.IncompleteReadError,
    HTTPError,
    NoAnswer,
)
_NO_CONNECTION = (sdk.EndpointConnectionError, sdk.ConnectTimeoutError)
_NEVER_SENT = (*_NO_CREDENTIALS, *_NO_CONNECTION, sdk.ParamValidationError)
_CONNECTING = ("urllib3.connection", "connect")
"""The module and function of the HTTP library that opens a connection, with TLS."""
_NOT_TLS = ("wrong version", "record layer failure", "packet length too long")
"""What OpenSSL's releases say about an answer that is not TLS."""
_CREDENTIALS_HINT = (
    "Give credentials as for every AWS tool (AWS_ACCESS_KEY_ID, AWS_PROFILE, a role), "
    "or S3Options(anonymous=True)"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known about a failed request."""

    status: int = 0
    code: str = ""
    message: str = ""
    request_id: str = ""


def answer(error: Exception) -> Answer:
    """Read the store's answer from an SDK's error. Status 0 if there was none."""
    if isinstance(error, Unreadable):
        return Answer(error.status, message=str(error))
    if not isinstance(error, sdk.ClientError):
        return Answer(message=str(error))
    reply = error.response.get("Error", {})
    meta = error.response.get("ResponseMetadata", {})
    return Answer(
        status=int(meta.get("HTTPStatusCode", 0)),
        code=str(reply.get("Code", "")),
        message=str(reply.get("Message", "")),
        request_id=str(meta.get("RequestId", "")),
    )


def kind(error: Exception) -> Kind:
    """Whether the request may be tried again, and how."""
    if _of_certificate(error):
        return "final"
    if isinstance(error, _NO_ANSWER):
        return "transient"
    if isinstance(error, ResponseParserError):  # from something between the store and us
        return "transient"
    if not isinstance(error, sdk.ClientError):
        return "final"
    found = answer(error)
    if found.code == "RequestTimeTooSkewed":
        return "skewed"
    if found.code in THROTTLED or found.status in (429, 503):
        return "throttled"
    if found.code in TRANSIENT or found.status == 408:
        return "transient"
    if found.status >= 500 and found.status != 501 and found.code not in UNSUPPORTED:
        return "transient"
    if found.code in IN_THE_WAY:
        return "final"
    return "conflict" if found.code in CONFLICT or found.status == 409 else "final"


# Sent or not --------------------------------------------------------------------------------------


def never_sent(error: Exception) -> bool:
    """Whether it is certain that this try did not reach the store: there was no connection to send
    it on, or this machine refused it. False if that is not certain."""
    if isinstance(error, NoAnswer):
        return error.sent is Sent.NEVER
    if isinstance(error, _NEVER_SENT):
        return True
    # These two may come before or after the request was sent: the place where they were raised
    # tells.
    return isinstance(error, sdk.SSLError | sdk.ProxyConnectionError) and _while_connecting(error)


def nobody_there(error: Exception) -> bool:
    """Whether it looks as if no store listens: no connection, or one that was closed without a
    byte. Not so for a store that is silent."""
    if isinstance(error, NoAnswer) and error.cause is Cause.BROKEN:
        return error.sent is not Sent.ANSWERED
    return isinstance(error, sdk.ConnectionClosedError) or (
        _no_connection(error) and not _no_descriptors(error)
    )


def not_tls(error: Exception) -> bool:
    """Whether what listens does not speak TLS, where TLS was wanted."""
    said = str(error).lower().replace("_", " ")
    return _of_tls(error) and any(words in said for words in _NOT_TLS)


def _no_descriptors(error: Exception) -> bool:
    """Whether this process, or this machine, has no file descriptor left."""
    inner = getattr(error, "kwargs", {}).get("error")
    return any(
        isinstance(one, OSError) and one.errno in (errno.EMFILE, errno.ENFILE)
        for one in (*_origins(error), *_origins(inner))
    )


def _while_connecting(error: sdk.BotoCoreError) -> bool:
    return any(
        (frame.f_globals.get("__name__"), frame.f_code.co_name) == _CONNECTING
        for one in _origins(error.kwargs.get("error"))
        for frame, _ in walk_tb(one.__traceback__)
    )


def let_go(error: BaseException, *, before: BaseException | None) -> None:
    """Empty the frames that a failed request has left. The SDK, its HTTP library and the retries
    keep an error in a variable of a frame that the error keeps: such a circle, with all callers and
    the bodies that they send, would wait for the collector. What a traceback shows stays.

    Args:
        error: the SDK's error.
        before: what was being handled when the request began: it is the caller's.
    """
    for one in _origins(error, around=True, before=before):
        for frame, _ in walk_tb(one.__traceback__):
            found: FrameType | None = frame
            try:
                while found is not None:  # those that returned it, too: no traceback has them
                    found.clear()
                    found = found.f_back
            except RuntimeError:  # it runs still, and so do its callers
                continue


def _origins(
    error: object, *, around: bool = False, before: BaseException | None = None
) -> Iterator[BaseException]:
    """An error of the SDK or of its HTTP library, and the errors that it was made from.

    Args:
        error: the error.
        around: also errors that were just being handled. They give good words but prove nothing:
            one of them may belong to another request.
        before: not this one, nor what lies behind it.
    """
    waiting, seen = [error], {id(before)}
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [getattr(one, "original_error", None), *one.args, one.__cause__]
        waiting += [getattr(one, "kwargs", {}).get("error")]
        waiting += [one.__context__] if around else []


def _where(error: Exception) -> str:
    """The endpoint or proxy that a connection error names, without user and path."""
    if isinstance(error, NoAnswer):
        return error.where
    kwargs = getattr(error, "kwargs", {})
    parts = urlsplit(str(kwargs.get("proxy_url") or kwargs.get("endpoint_url") or ""))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _why(error: Exception) -> str:
    """Why there was no connection: in the system's words, otherwise in the HTTP library's."""
    inner = getattr(error, "kwargs", {}).get("error")
    if _of_certificate(error):
        said = str(inner or error)
        known = "certificate verify failed"  # the HTTP library's words, but not for a wrong name
        return said if known in said else f"{known}: {said}"
    for one in _origins(inner, around=True):
        if isinstance(one, TimeoutError):
            return "no connection in time"
        if isinstance(one, OSError) and one.strerror:
            return one.strerror[0].lower() + one.strerror[1:]
    return str(inner or error)


# Translation --------------------------------------------------------------------------------------


def translate(
    error: Exception,
    operation: str,
    bucket: str,
    key: str,
    *,
    attempts: int = 1,
    sent: bool = True,
) -> StoreError:
    """Our error for the SDK's. The caller raises it ``from error``.

    Args:
        error: the SDK's error.
        operation: the port's verb.
        bucket: the bucket's name.
        key: the key, or the prefix of a listing.
        attempts: how often the request was tried.
        sent: whether one of the tries may have reached the store.
    """
    found = answer(error)
    cls = _class(error, found)
    status, code = found.status, found.code
    if code == str(status):  # it came without a document, like every answer to HEAD
        code = _CODES_OF_HEAD.get(status, "") if operation == "head" else ""
    where = f" s3://{bucket}/{key}" if bucket else ""  # of the account: no bucket
    parts = [f"{operation}{where} failed", *_said(error, found, code)]
    if cls is BucketNotFound:
        parts.insert(0, f"there is no bucket {bucket!r}")
    trail = [f"request {found.request_id}"] if found.request_id else []
    trail += [f"{'sent' if sent else 'tried'} {attempts} times"] if attempts > 1 else []
    message = ": ".join(parts) + (f" ({', '.join(trail)})" if trail else "")
    redact_error(error)
    built = cls(
        message,
        operation=operation,
        bucket=bucket,
        key=key,
        status=status,
        code=code,
        request_id=found.request_id,
        attempts=attempts,
        sent=sent,
        hint=_hint(error, cls, operation, code, status, sent).replace("{bucket}", bucket),
    )
    if isinstance(built, PermissionDenied):
        built.action = ACTIONS.get(operation, "")
    return built


def reason(error: Exception) -> str:
    """Why a try failed, in a phrase without secrets."""
    found = answer(error)
    return f"{found.status} {found.code}" if found.status else ": ".join(_said(error, found, ""))


def _said(error: Exception, found: Answer, code: str) -> Iterator[str]:
    """What the message says about the answer, or why there was none."""
    if _no_connection(error):
        yield redacted(f"could not reach {_where(error)}: {_why(error)}")
        return
    if found.status or code:
        yield f"{found.status or 'no answer'} {code}".strip()
    else:
        yield "not sent" if never_sent(error) else "no answer"
    said = redacted(found.message)[:SERVER_MESSAGE_CHARS_MAX].rstrip(". ")
    if said and said != code:
        yield said


def _no_connection(error: Exception) -> bool:
    return isinstance(error, _NO_ANSWER) and never_sent(error)


def per_key(code: str, message: str, bucket: str, key: str, attempts: int) -> StoreError:
    """The error of one key in a batch of deletes. It has a code and no status."""
    status = {"AccessDenied": 403, "InternalError": 500, "SlowDown": 503, "NotImplemented": 501}
    reply: dict[str, object] = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status.get(code, 400)},
    }
    error = sdk.ClientError(reply, "DeleteObjects")
    return translate(error, "delete", bucket, key, attempts=attempts)


def _class(error: Exception, found: Answer) -> type[StoreError]:
    if isinstance(error, _NO_CREDENTIALS):
        return PermissionDenied
    if isinstance(error, _NO_ANSWER):
        return Unanswered
    if not isinstance(error, sdk.ClientError):
        return Unanswered if kind(error) == "transient" else InvalidRequest
    if found.code in REFUSED:
        return InvalidRequest
    if found.status in (401, 403) or found.code in DENIED:
        return PermissionDenied
    if found.code == "NoSuchBucket":
        return BucketNotFound
    if found.status == 404:
        return NotFound
    if found.status == 412:
        return PreconditionFailed
    again = kind(error)
    if again == "conflict":
        return WriteConflict
    if again in ("transient", "throttled"):
        return Unanswered
    if found.code in UNSUPPORTED or found.status in (405, 501):
        return NotSupported
    return InvalidRequest


def _hint(
    error: Exception, cls: type[StoreError], operation: str, code: str, status: int, sent: bool
) -> str:
    if isinstance(error, _NO_CREDENTIALS):
        return _CREDENTIALS_HINT
    if _no_connection(error):
        checks = _connection_hint(error)
        effect = _after_silence(operation) if sent else "Nothing was sent, so nothing took effect"
        return f"{effect}. {checks}"
    if _of_tls(error):
        return _TLS_HINT
    if code in _HINTS:
        return _HINTS[code]
    if not code and status in _HINTS_OF_STATUS:
        return _HINTS_OF_STATUS[status]
    if cls is PermissionDenied:
        hint = f"Allow {ACTIONS.get(operation, 'the action')} on it in the policy"
        if operation in ("get", "head"):
            hint += "; without s3:ListBucket an object that is not there answers 403 as well"
        if operation == "create_upload":
            hint += (
                "; an ACL needs s3:PutObjectAcl, tags s3:PutObjectTagging, "
                "KMS kms:GenerateDataKey and kms:Decrypt"
            )
        return hint
    if isinstance(error, Unreadable):
        return f"{_after_silence(operation)}; {_UNREADABLE_HINT}"
    if cls is Unanswered:
        return f"{_after_silence(operation)}; check endpoint and network"
    if cls is NotSupported:
        return (
            "The store does not have this operation, or does not take what was sent with it "
            "(a condition, a checksum, tags)"
        )
    return ""


def _connection_hint(error: Exception) -> str:
    if _no_descriptors(error):
        return _DESCRIPTORS_HINT
    if isinstance(error, sdk.ProxyConnectionError) or _cause(error) is Cause.PROXY:
        return "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
    if _of_tls(error):
        return _TLS_HINT
    return (
        "Check the endpoint (S3Options(endpoint_url=…), AWS_ENDPOINT_URL, the region) and the "
        "network from this machine"
    )


def _cause(error: Exception) -> Cause | None:
    return error.cause if isinstance(error, NoAnswer) else None


def _of_tls(error: Exception) -> bool:
    return isinstance(error, sdk.SSLError) or _cause(error) in (Cause.TLS, Cause.CERTIFICATE)


def _of_certificate(error: Exception) -> bool:
    """Whether the store's certificate is not trusted, or is for another name."""
    if isinstance(error, sdk.SSLError):
        return "certificate" in str(error).lower() or any(
            isinstance(one, CertificateError) for one in _origins(error.kwargs.get("error"))
        )
    return _cause(error) is Cause.CERTIFICATE


def _after_silence(operation: str) -> str:
    if operation in READS:
        return "Nothing was changed: try again later"
    if operation in HARMLESS_AGAIN:
        return "It may have taken effect; it may be repeated as it is"
    return "It may have taken effect; look before you repeat it"


_DESCRIPTORS_HINT = (
    "This process has as many files and connections open as it may: raise `ulimit -n`, close files,"
    " or lower S3Options(connections_max=…)"
)
_UNREADABLE_HINT = (
    "what answered is not the store: check the endpoint, and proxies and load balancers on the way"
)
_TLS_HINT = (
    "Check the endpoint's scheme (http or https) and certificate, AWS_CA_BUNDLE and this machine's "
    "clock"
)
_HINTS = {
    "NoSuchBucket": "Check the bucket's name, the endpoint and the region; "
    "`aws s3 mb s3://{bucket}` makes one",
    "InvalidAccessKeyId": "The access key is not known there: check credentials and endpoint",
    "SignatureDoesNotMatch": "Check the secret key, and that nothing on the way changes requests",
    "ExpiredToken": "The session token has expired: get new credentials",
    "InvalidToken": "The session token is not valid: get new credentials",
    "RequestTimeTooSkewed": "Set this machine's clock: it differs too much from the store's",
    "PermanentRedirect": "The bucket is in another region: set S3Options(region=…)",
    "AuthorizationHeaderMalformed": "The region may be wrong: set S3Options(region=…)",
    "SlowDown": "The store asks for fewer requests: lower commit_threads, or try again later",
    "InvalidObjectState": "The object is archived: restore it first (`aws s3api restore-object`)",
    "QuotaExceeded": "The store's quota is used up: no policy mends that, make room or raise it",
    **dict.fromkeys(
        IN_THE_WAY,
        "This store keeps keys as paths of files: a key cannot continue another after a slash",
    ),
}
_HINTS_OF_STATUS = {
    301: _HINTS["PermanentRedirect"],
    400: "The store gave no reason: the credentials may have expired, or the region may be wrong",
    407: "The proxy wants a user and a password: HTTP_PROXY=http://user:password@host:port; or name"
    " the store in NO_PROXY",
}
"""For answers without a document, like every answer to HEAD."""
