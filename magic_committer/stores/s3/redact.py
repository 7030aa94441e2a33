"""Keeps secrets out of logs and error texts, also out of the SDK's own.

botocore logs whole requests at DEBUG: canonical requests with the session token, parameters with
the customer key, replies of credential services. A filter on the loggers of the SDK and its HTTP
library removes every secret that `know` has ever received, and everything that matches the patterns
below.

A filter on a logger does not see the records of its children, so each logger gets it. `install` is
called before a client is made, because credentials are requested then, and again after it, for
modules that the SDK has imported meanwhile.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import urllib.parse

HIDDEN = "[hidden]"

SECRET_CHARS_MIN = 8
"""Shorter "secrets" are placeholders of test set-ups. Hiding them would garble every line."""

_LIBRARIES = ("boto3", "botocore", "s3transfer", "urllib3")

_PATTERNS = (
    re.compile(r"(?i)(x-amz-(?:security-token|s3session-token)['\"]?[:=]\s*)(b?['\"]?[^\s'\",&]+)"),
    re.compile(r"(?i)(x-amz-server-side-encryption-customer-key(?:-md5)?['\"]?[:=]\s*)(b?['\"]?[^\s'\",]+)"),
    re.compile(r"(?i)(\bCredential=)([^/\s]+)"),
    re.compile(r"(?i)(\bSignature=)([^\s&'\",;<]+)"),  # anyone who has a presigned URL may use it
    re.compile(r"(://[^/\s:@'\"]*:)([^/\s@'\"]+)(?=@)"),  # the password of an endpoint or a proxy
    re.compile(r"(?i)(<(?:AccessKeyId|SecretAccessKey|SessionToken)>)([^<]+)"),
    re.compile(r"(?i)(['\"](?:aws_?)?(?:AccessKey(?:Id)?|SecretAccessKey|SessionToken|Token)['\"]\s*:\s*b?['\"])([^'\"]+)"),
)  # fmt: skip
_MARKS = ("token", "customer-key", "credential=", "signature=", "://", "accesskey")
"""No pattern matches a text that has none of these, whatever its case: most texts have none."""
FORMS_MAX = 1000
"""Of secrets that are kept: at least this many, the last ones, and at most twice as many. A
service whose every job has keys of its own would else keep them all, and ask each text for each."""
_known: list[set[str]] = [set(), set()]
"""The last ones, and those before them. There is no lock, which a fork could leave locked: adding
and copying are atomic."""


def know(*secrets: str | bytes | None) -> None:
    """Remove these from every text from now on, in all forms in which they are sent. Who uses a
    secret passes it again."""
    last = _known[0]
    for secret in secrets:
        if secret and secret not in last:
            last.update(form for form in _forms(secret) if len(form) >= SECRET_CHARS_MIN)
    if len(last) > FORMS_MAX:
        _known[:] = [set(), last]


def _forms(secret: str | bytes) -> list[str]:
    if isinstance(secret, str):
        return [secret, urllib.parse.quote(secret, safe="")]
    key = base64.b64encode(secret).decode()
    md5 = base64.b64encode(hashlib.md5(secret, usedforsecurity=False).digest()).decode()
    return [key, md5, secret.hex(), repr(secret)[2:-1], secret.decode("latin-1")]


def redacted(text: str) -> str:
    """The text without secrets."""
    # The longest first: one secret may be a part of another.
    for secret in sorted(set().union(*_known), key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, HIDDEN)
    folded = text.casefold()
    if not any(mark in folded for mark in _MARKS):
        return text
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = redacted(text)
        if clean != text:
            record.msg, record.args = clean, ()
        if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text = redacted(text)
            record.exc_info = None
        return True


_filter = _Filter()


def install() -> None:
    """Put the filter on every present logger of the SDK. Repeatable."""
    for name in [*_LIBRARIES, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in _LIBRARIES:
            logger = logging.getLogger(name)
            if _filter not in logger.filters:
                logger.addFilter(_filter)
