"""The one place where the SDK's errors become ours: what kind of failure it is, which class, which
hint. The SDK's error stays as the ``__cause__``, without secrets.

The kinds say who may try again (`magic_committer.s3.retry`); the tables below say the rest. Stores
differ in codes and agree in status (stores.md), so the status decides where the code is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.s3.redact import redact_error, redacted

SDK_ERRORS = (sdk.BotoCoreError, sdk.ClientError, ResponseParserError)
"""All that the SDK raises for a request."""

Kind = Literal["throttled", "transient", "skewed", "conflict", "final"]

SERVER_MESSAGE_CHARS_MAX = 300
"""As much of the store's own words as an error repeats."""

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
"""The S3 action that a policy must allow for a verb (Service Authorization Reference)."""

_CODES_OF_HEAD = {404: "NoSuchKey", 403: "AccessDenied", 412: "PreconditionFailed"}

_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.TokenRetrievalError,
    sdk.NoAuthTokenError,
    sdk.SSOError,
    sdk.MetadataRetrievalError,
    *([sdk.LoginError] if hasattr(sdk, "LoginError") else []),  # newer than the oldest we take
)
_NO_ANSWER = (sdk.HTTPClientError, sdk.ConnectionError, sdk.IncompleteReadError)
_CREDENTIALS_HINT = (
    "Give credentials as for every AWS tool (AWS_ACCESS_KEY_ID, AWS_PROFILE, a role), "
    "or S3Options(anonymous=True)"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What there is to know of a failed request."""

    status: int = 0
    code: str = ""
    message: str = ""
    request_id: str = ""


def answer(error: Exception) -> Answer:
    """Read the store's answer out of an SDK's error; status 0 where there was none."""
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
    """Whether, and how, the request may be tried again."""
    if isinstance(error, sdk.SSLError) and "certificate" in str(error).lower():
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
    return "conflict" if found.code in CONFLICT or found.status == 409 else "final"


def translate(
    error: Exception, operation: str, bucket: str, key: str, *, attempts: int = 1
) -> StoreError:
    """Our error for the SDK's. The caller raises it ``from error``.

    Args:
        operation: the port's verb.
        key: the key, or a listing's prefix.
        attempts: how often the request was sent.
    """
    redact_error(error)
    found = answer(error)
    cls = _class(error, found)
    status, code = found.status, found.code
    if code == str(status):  # no document came with it, as with every answer to HEAD
        code = _CODES_OF_HEAD.get(status, "") if operation == "head" else ""
    said = redacted(found.message)[:SERVER_MESSAGE_CHARS_MAX].rstrip(". ")
    parts = [f"{operation} s3://{bucket}/{key} failed"]
    parts.append(f"{status or 'no answer'} {code}".strip() if status or code else "no answer")
    if said and said != code:
        parts.append(said)
    trail = [f"request {found.request_id}"] if found.request_id else []
    trail += [f"sent {attempts} times"] if attempts > 1 else []
    message = ": ".join(parts) + (f" ({', '.join(trail)})" if trail else "")
    built = cls(
        message,
        operation=operation,
        bucket=bucket,
        key=key,
        status=status,
        code=code,
        request_id=found.request_id,
        attempts=attempts,
        hint=_hint(error, cls, operation, code),
    )
    if isinstance(built, PermissionDenied):
        built.action = ACTIONS.get(operation, "")
    return built


def per_key(code: str, message: str, bucket: str, key: str, attempts: int) -> StoreError:
    """The error of one key out of a batch of deletes, which has a code and no status."""
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
    if found.status in (401, 403) or found.code in DENIED:
        return PermissionDenied
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


def _hint(error: Exception, cls: type[StoreError], operation: str, code: str) -> str:
    if isinstance(error, _NO_CREDENTIALS):
        return _CREDENTIALS_HINT
    if isinstance(error, sdk.SSLError):
        return "Check the endpoint's certificate, AWS_CA_BUNDLE and this machine's clock"
    if code in _HINTS:
        return _HINTS[code]
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
    if cls is Unanswered:
        return "It may have taken effect; look before you repeat it, and check endpoint and network"
    if cls is NotSupported:
        return "The store does not have this operation"
    return ""


_HINTS = {
    "NoSuchBucket": "Check the bucket's name, the endpoint and the region",
    "InvalidAccessKeyId": "The access key is not known there: check credentials and endpoint",
    "SignatureDoesNotMatch": "Check the secret key, and that nothing on the way changes requests",
    "ExpiredToken": "The session token has expired: get new credentials",
    "InvalidToken": "The session token is not valid: get new credentials",
    "RequestTimeTooSkewed": "Set this machine's clock: it differs too much from the store's",
    "PermanentRedirect": "The bucket is in another region: set S3Options(region=…)",
    "AuthorizationHeaderMalformed": "The region may be wrong: set S3Options(region=…)",
    "SlowDown": "The store asks for fewer requests: lower commit_threads, or try again later",
}
