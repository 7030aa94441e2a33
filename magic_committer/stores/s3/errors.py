"""The one place where a failed request becomes our error: the kind of failure, the class, the hint.
Pure. The failure stays as the ``__cause__``, without secrets.

Whichever way a request went, it was refused (`Refused`) or has no answer (`NoAnswer`). The kinds
say which requests may be sent again (`retry`); the tables below say the rest. Stores differ in
codes and agree in status (stores.md), so the status decides if the code is unknown.

**A request counts as sent unless it is proven that it was not** (`Sent.NEVER`): callers take "not
sent" for "took no effect".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from traceback import clear_frames
from typing import Literal

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
from magic_committer.stores.s3.answers import Refused
from magic_committer.stores.s3.http import Cause, Failure, Sent
from magic_committer.stores.s3.redact import redacted

Kind = Literal["throttled", "transient", "skewed", "conflict", "final"]

SERVER_MESSAGE_CHARS_MAX = 300
"""How many characters of the store's own words an error repeats."""

THROTTLED = frozenset((
    "SlowDown", "SlowDownRead", "SlowDownWrite", "RequestLimitExceeded", "Throttling",
    "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
    "TooManyRequests", "TooManyRequestsException", "BandwidthLimitExceeded", "ServiceUnavailable",
    "Busy",
))  # fmt: skip
TRANSIENT = frozenset((
    "InternalError", "InternalServerError", "InternalFailure", "RequestTimeout",
    "RequestTimeoutException", "ServerBusy", "BadGateway", "GatewayTimeout",
))  # fmt: skip
CONFLICT = frozenset(("ConditionalRequestConflict", "OperationAborted"))
DENIED = frozenset((
    "AccessDenied", "AllAccessDisabled", "AccountProblem", "InvalidAccessKeyId",
    "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidSecurity",
    "RequestTimeTooSkewed", "NotSignedUp",
))  # fmt: skip
UNSUPPORTED = frozenset(("NotImplemented", "MethodNotAllowed", "UnsupportedOperation"))
IN_THE_WAY = frozenset((
    "ObjectParentIsFile", "ExistingObjectIsDirectory", "XMinioParentIsObject",
    "XMinioObjectExistsAsDirectory",
))  # fmt: skip
"""From stores whose keys are paths of files: 409 or 400, although no other write is in progress."""


READS = frozenset(("get", "head", "list", "list_parts", "list_uploads", "get_lifecycle"))
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
    "get_lifecycle": "s3:GetLifecycleConfiguration",
    "put_lifecycle": "s3:PutLifecycleConfiguration",
}
"""For each verb: the S3 action that a policy must allow (Service Authorization Reference)."""

_CLASSES: Mapping[int | str | Cause, type[StoreError]] = {
    **dict.fromkeys(DENIED, PermissionDenied),
    "NoSuchBucket": BucketNotFound,
    "InvalidObjectState": InvalidRequest,  # a 403 that no policy can repair
    "QuotaExceeded": InvalidRequest,  # the same
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    412: PreconditionFailed,
    Cause.CREDENTIALS: PermissionDenied,
    Cause.PARAMETER: InvalidRequest,
    Cause.LARGE: InvalidRequest,
    Cause.BODY: InvalidRequest,
}
"""The class of a refusal by its code, or else by its status; of a cause: `Unanswered` if it is not
here."""
_OF_KIND: Mapping[Kind, type[StoreError]] = {
    "conflict": WriteConflict, "transient": Unanswered, "throttled": Unanswered,
}  # fmt: skip
_FINAL = (
    Cause.CERTIFICATE,
    Cause.PROXY_CERTIFICATE,
    Cause.CREDENTIALS,
    Cause.PARAMETER,
    Cause.LARGE,
    Cause.BODY,
)
"""What will be so the next time."""
_CODES_OF_HEAD = {404: "NoSuchKey", 403: "AccessDenied", 412: "PreconditionFailed"}

_NOT_TLS = ("wrong version", "record layer failure", "packet length too long")
"""What OpenSSL's releases say about an answer that is not TLS."""


def kind(error: Failure) -> Kind:
    """Whether the request may be tried again, and how."""
    if error.cause is not None:
        return "final" if error.cause in _FINAL else "transient"
    status, code = error.status, error.code
    if code == "RequestTimeTooSkewed":
        return "skewed"
    if code in THROTTLED or status in (429, 503):
        return "throttled"
    of_server = status >= 500 and status != 501 and code not in UNSUPPORTED
    if code in TRANSIENT or status == 408 or of_server:
        return "transient"
    conflict = (code in CONFLICT or status == 409) and code not in IN_THE_WAY
    return "conflict" if conflict else "final"


def nobody_there(error: Failure) -> bool:
    """Whether it looks as if no store listens: no connection, or one that was closed without a
    byte. Not so for a store that is silent."""
    if error.cause in (None, Cause.FULL, Cause.TIME):
        return False
    closed = error.cause is Cause.BROKEN and error.sent is Sent.PERHAPS
    return closed or _unreached(error) != ""


def not_tls(error: Failure) -> bool:
    """Whether what listens does not speak TLS, where TLS was wanted."""
    said = str(error).lower().replace("_", " ")
    return error.cause is Cause.TLS and any(words in said for words in _NOT_TLS)


def reason(error: Failure) -> str:
    """Why a try failed, in a phrase without secrets."""
    if error.cause is None:
        return f"{error.status} {error.code}"
    return ": ".join(_said(error, error.status, ""))


# Translation --------------------------------------------------------------------------------------


def translate(
    error: Failure, operation: str, bucket: str, key: str, *, attempts: int = 1, sent: bool = True
) -> StoreError:
    """Our error for a failure, which is its cause. ``operation`` is the port's verb; ``sent``:
    whether one of the tries may have reached the store."""
    cls, status, code, request_id = _class(error), error.status, error.code, error.request_id
    if code == str(status):  # it came without a document, like every answer to HEAD
        code = _CODES_OF_HEAD.get(status, "") if operation == "head" else ""
    where = f" s3://{bucket}/{key}" if bucket else ""  # of the account: no bucket
    parts = [f"{operation}{where} failed", *_said(error, status, code)]
    if cls is BucketNotFound:
        parts.insert(0, f"there is no bucket {bucket!r}")
    trail = [f"request {request_id}"] if request_id else []
    trail += [f"{'sent' if sent else 'tried'} {attempts} times"] if attempts > 1 else []
    message = ": ".join(parts) + (f" ({', '.join(trail)})" if trail else "")
    # A store may have repeated a header in its answer.
    error.args = tuple(redacted(arg) if isinstance(arg, str) else arg for arg in error.args)
    error.why = redacted(error.why)
    built = cls(
        message,
        operation=operation,
        bucket=bucket,
        key=key,
        status=status,
        code=code,
        request_id=request_id,
        attempts=attempts,
        sent=sent,
        hint=_hint(error, cls, operation, code, status, sent).replace("{bucket}", bucket),
    )
    if isinstance(built, PermissionDenied):
        built.action = ACTIONS.get(operation, "")
    clear_frames(error.__traceback__)  # they hold the request and its body
    built.__cause__ = error
    if error.__suppress_context__:
        error.__context__ = None
    return built


def _said(error: Failure, status: int, code: str) -> Iterator[str]:
    """What the message says about the answer, or why there was none."""
    if unreached := _unreached(error):
        yield redacted(f"could not reach {unreached}: {error}")
        return
    never = error.sent is Sent.NEVER
    yield "not sent" if never else f"{status or 'no answer'} {code}".strip()
    said = redacted(error.why)[:SERVER_MESSAGE_CHARS_MAX].rstrip(". ")
    if said and said != code:
        yield said


def _unreached(error: Failure) -> str:
    """What there was no way to, so that it is certain that nothing was sent; "": nothing."""
    return error.where if error.sent is Sent.NEVER else ""


def per_key(code: str, message: str, bucket: str, key: str, attempts: int) -> StoreError:
    """The error of one key in a batch of deletes. It has a code and no status."""
    status = {"AccessDenied": 403, "InternalError": 500, "SlowDown": 503, "NotImplemented": 501}
    error = Refused(status.get(code, 400), code, message)
    return translate(error, "delete", bucket, key, attempts=attempts)


def _class(error: Failure) -> type[StoreError]:
    if error.cause is not None:
        return _CLASSES.get(error.cause, Unanswered)
    told = _CLASSES.get(error.code) or _CLASSES.get(error.status) or _OF_KIND.get(kind(error))
    unsupported = error.code in UNSUPPORTED or error.status in (405, 501)
    usual = NotSupported if unsupported else InvalidRequest
    return told or usual


def _hint(
    error: Failure, cls: type[StoreError], operation: str, code: str, status: int, sent: bool
) -> str:
    if not sent:
        effect = "Nothing was sent, so nothing took effect"
    elif operation in READS:
        effect = "Nothing was changed: try again later"
    elif operation in HARMLESS_AGAIN:
        effect = "It may have taken effect; it may be repeated as it is"
    else:
        effect = "It may have taken effect; look before you repeat it"
    if error.cause is not None:
        if cls is Unanswered:
            return f"{effect}. {_HINTS.get(error.cause, _CONNECTION_HINT)}"
        return _HINTS.get(error.cause, "")
    if (told := _HINTS.get(code or status)) is not None:
        return told
    if cls is PermissionDenied:
        action = ACTIONS.get(operation, "the action")
        return f"Allow {action} on it in the policy{_DENIED_ALSO.get(operation, '')}"
    if cls is Unanswered:
        return f"{effect}; check endpoint and network"
    return _HINTS[501] if cls is NotSupported else ""


_ABSENT_ALSO = "; without s3:ListBucket an object that is not there answers 403 as well"
_DENIED_ALSO = {
    "get": _ABSENT_ALSO,
    "head": _ABSENT_ALSO,
    "put_part": "; a copy needs s3:GetObject on its source as well, with KMS kms:Decrypt",
    "create_upload": "; an ACL needs s3:PutObjectAcl, tags s3:PutObjectTagging,"
    " KMS kms:GenerateDataKey and kms:Decrypt",
}
_TLS_HINT = (
    "Check the endpoint's scheme (http or https) and certificate, AWS_CA_BUNDLE and this machine's "
    "clock"
)
_CONNECTION_HINT = (
    "Check the endpoint (S3Options(endpoint_url=…), AWS_ENDPOINT_URL, the region) and the "
    "network from this machine"
)
_MOVED_HINT = "The bucket is in another region: set S3Options(region=…)"
_HINTS: Mapping[Cause | str | int, str] = {
    Cause.CREDENTIALS: "Give credentials as for every AWS tool (AWS_ACCESS_KEY_ID, AWS_PROFILE, a"
    " role), or S3Options(anonymous=True)",
    Cause.FULL: "This process has as many files and connections open as it may: raise `ulimit -n`,"
    " close files, or lower S3Options(connections_max=…)",
    Cause.PROXY: "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
    Cause.TLS: _TLS_HINT,
    Cause.CERTIFICATE: _TLS_HINT,
    Cause.PROXY_CERTIFICATE: "The proxy itself is reached by TLS: put its authority, beside the"
    " store's, into one file, and name that file by AWS_CA_BUNDLE; or reach the proxy by http://"
    " (HTTP_PROXY, HTTPS_PROXY)",
    Cause.UNREADABLE: "What answered is not the store: check the endpoint, and proxies and load"
    " balancers on the way",
    "NoSuchBucket": "Check the bucket's name, the endpoint and the region; "
    "`aws s3 mb s3://{bucket}` makes one",
    "InvalidAccessKeyId": "The access key is not known there: check credentials and endpoint",
    "SignatureDoesNotMatch": "Check the secret key, and that nothing on the way changes requests",
    "ExpiredToken": "The session token has expired: get new credentials",
    "InvalidToken": "The session token is not valid: get new credentials",
    "RequestTimeTooSkewed": "Set this machine's clock: it differs too much from the store's",
    "PermanentRedirect": _MOVED_HINT,
    "AuthorizationHeaderMalformed": "The region may be wrong: set S3Options(region=…)",
    "SlowDown": "The store asks for fewer requests: lower commit_threads, or try again later",
    "InvalidObjectState": "The object is archived: restore it first (`aws s3api restore-object`)",
    "QuotaExceeded": "The store's quota is used up: no policy mends that, make room or raise it",
    **dict.fromkeys(
        IN_THE_WAY,
        "This store keeps keys as paths of files: a key cannot continue another after a slash",
    ),
    301: _MOVED_HINT,
    501: "The store does not have this operation, or does not take what was sent with it (a"
    " condition, a checksum, tags)",
    400: "The store gave no reason: the credentials may have expired, or the region may be wrong",
    407: "The proxy wants a user and a password: HTTP_PROXY=http://user:password@host:port; or name"
    " the store in NO_PROXY",
}
"""By cause, by code, or by status of answers without a document, like every answer to HEAD."""
