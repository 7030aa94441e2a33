"""How the SDK's clients are made from `S3Options`: endpoint, credentials, time-outs, encryption.

Invariants: the SDK sends each request once (`retry` tries again). It adds no checksum of its own.
No secret of a client reaches a log (`redact`). A client belongs to the process that made it,
because a forked child must not share connections. What does not depend on options is read once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore import UNSIGNED
from botocore import exceptions as sdk
from botocore.config import Config
from botocore.handlers import add_expect_header

from magic_committer.errors import OptionError
from magic_committer.options import S3Options
from magic_committer.stores.s3 import redact, replies, sockets

CUSTOMER_KEY_VARIABLE = "MAGIC_COMMITTER_SSE_CUSTOMER_KEY"
CUSTOMER_KEY_BYTES = 32
CREDENTIALS_ATTEMPTS_MAX = 2
"""How often a service that gives credentials for a role is asked."""
SURROUNDINGS = ("HOME", "REQUESTS_CA_BUNDLE", "BOTO_CONFIG")
"""Variables that clients depend on, beside those that begin with ``AWS_`` and name proxies."""
REGION_DEFAULT = "us-east-1"
"""The region if nothing names one: S3 redirects us to the bucket's region, other stores ignore
it."""


_loaders: dict[Any, Any] = {}
"""What has read the SDK's descriptions of services, 12 MiB in memory, for each path to them. There
is no lock, which a fork could leave locked: setting a default is atomic."""


@dataclass(frozen=True, slots=True, repr=False)
class Clients:
    """The clients of one process: ``patient`` for Complete, ``quick`` for all other verbs. They are
    one and the same where our sockets keep the time (`sockets`)."""

    pid: int
    endpoint: str
    quick: Any
    patient: Any
    credentials: Any


def surroundings() -> frozenset[tuple[str, str]]:
    """What clients are made from in the environment, beside the options."""
    return frozenset(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith("AWS_")
        or name in (*SURROUNDINGS, CUSTOMER_KEY_VARIABLE)
        or name.upper().endswith("_PROXY")
    )


def make_clients(options: S3Options) -> Clients:
    """Make the clients. Asks the environment for credentials, which may take a request or two.

    Raises:
        OptionError: a profile, endpoint, region or bundle of certificates cannot be used.
    """
    redact.know(options.access_key, options.secret_key, options.session_token)
    redact.install()
    try:
        core = replies.session()
        # For the clients that fetch credentials: by default they would wait for a minute, five
        # times.
        core.set_default_client_config(
            Config(
                connect_timeout=options.connect_seconds_max,
                read_timeout=options.read_seconds_max,
                retries={"total_max_attempts": CREDENTIALS_ATTEMPTS_MAX, "mode": "standard"},
            )
        )
        session = boto3.session.Session(
            botocore_session=core,
            aws_access_key_id=options.access_key,
            aws_secret_access_key=options.secret_key,
            aws_session_token=options.session_token,
            profile_name=options.profile,
        )
        own = core.get_component("data_loader")
        loader = _loaders.setdefault(core.get_config_variable("data_path"), own)
        core.register_component("data_loader", loader)
        credentials = None if options.anonymous else session.get_credentials()
        know(credentials)
        patient = quick = _client(session, options, options.read_seconds_max, credentials)
        if not sockets.install(quick):  # its own time-outs hold: Complete needs another client
            patient = _client(session, options, options.complete_seconds_max, credentials)
    except (sdk.BotoCoreError, ValueError) as error:
        redact.redact_error(error)
        raise OptionError(
            f"no client can be made: {error}",
            hint="Check S3Options, the AWS_* variables and the AWS configuration files",
        ) from error
    redact.install()
    _check_authorities(quick)
    endpoint = _without_user(quick.meta.endpoint_url)
    return Clients(os.getpid(), endpoint, quick, patient, credentials)


def _client(session: Any, options: S3Options, read_seconds: float, credentials: Any) -> Any:
    # By default the SDK uses path style if an endpoint is given, otherwise as the profile says.
    style = None if options.path_style is None else "path" if options.path_style else "virtual"
    config = Config(
        signature_version=UNSIGNED if options.anonymous else None,
        connect_timeout=options.connect_seconds_max,
        read_timeout=read_seconds,
        max_pool_connections=options.connections_max,
        retries={"total_max_attempts": 1, "mode": "standard"},
        s3={"addressing_style": style} if style else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
        user_agent_extra=f"magic-committer {options.user_agent}".strip(),
    )
    client = session.client(
        "s3",
        region_name=options.region or session.region_name or REGION_DEFAULT,
        endpoint_url=options.endpoint_url,
        config=config,
    )
    # A body that waits for "100 Continue" costs a round trip for each part, and a second on servers
    # that never send it. Bodies can be sent again, so nothing is lost without it.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    client.meta.events.register("before-sign.s3", lambda **_: know(credentials))
    client.meta.events.register("before-sign.s3.UploadPart", _leave_to_tls)
    return client


def _check_authorities(client: Any) -> None:
    """The SDK would say of each request that some file is not there, and not which."""
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    bundle = getattr(session, "_verify", None)
    if not isinstance(bundle, str) or not client.meta.endpoint_url.startswith("https:"):
        return
    if not os.path.isfile(bundle):
        raise OptionError(
            f"the bundle of certificates {bundle!r} is not a file",
            hint="Check AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE, and ca_bundle in the AWS configuration"
            " file: one of them names it",
        )


def _leave_to_tls(request: Any, **_: Any) -> None:
    """Let a part that has a checksum go over TLS without a SHA-256 of it: TLS protects it on the
    way, and the store checks the checksum. The SDK does so only for checksums that it computes
    itself; this tells it that there is one."""
    found = [name for name in request.headers if name.lower().startswith("x-amz-checksum-")]
    if found:
        checksum = request.context.setdefault("checksum", {})
        checksum.setdefault("request_algorithm", {"in": "header", "name": found[0]})


def know(credentials: Any) -> None:
    """Called before each signature: refreshed credentials are new secrets."""
    if credentials is not None:
        frozen = credentials.get_frozen_credentials()
        redact.know(frozen.access_key, frozen.secret_key, frozen.token)


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


# Encryption ---------------------------------------------------------------------------------------


def customer_key_headers(options: S3Options) -> Mapping[str, str]:
    """The headers that SSE-C needs with each request on an object; empty for every other
    encryption.

    Raises:
        OptionError: SSE-C without a key, or with a wrong one in the environment.
    """
    if options.encryption != "SSE-C":
        return {}
    key = options.sse_customer_key
    if key is None:
        text = os.environ.get(CUSTOMER_KEY_VARIABLE, "")
        redact.know(text)
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != CUSTOMER_KEY_BYTES:
            what = "no key" if not text else "what is not a key of 32 bytes in base64"
            raise OptionError(
                f"encryption='SSE-C' finds {what} in {CUSTOMER_KEY_VARIABLE}",
                hint=f"Set S3Options(sse_customer_key=…) or {CUSTOMER_KEY_VARIABLE}",
            )
    redact.know(key)
    return {
        "SSECustomerAlgorithm": "AES256",
        "SSECustomerKey": base64.b64encode(key).decode(),
        "SSECustomerKeyMD5": base64.b64encode(
            hashlib.md5(key, usedforsecurity=False).digest()
        ).decode(),
    }


def encryption_headers(options: S3Options, customer_key: Mapping[str, str]) -> Mapping[str, str]:
    """The headers for each request that makes an object."""
    if options.encryption is None or options.encryption == "SSE-C":
        return customer_key
    headers: dict[str, str] = {"ServerSideEncryption": options.encryption}
    if options.kms_key_id:
        headers["SSEKMSKeyId"] = options.kms_key_id
    return headers
