"""Which way a store's requests go: by libcurl, or by the SDK. The reason is one phrase."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from botocore.httpsession import URLLib3Session, get_cert_path

from magic_committer import _libcurl
from magic_committer._runtime import Clock
from magic_committer.errors import OptionError
from magic_committer.options import S3Options
from magic_committer.stores.base import FileSlice, PartBody
from magic_committer.stores.s3.bodies import open_body
from magic_committer.stores.s3.errors import SDK_ERRORS
from magic_committer.stores.s3.route import Parameters, Sdk
from magic_committer.stores.s3.sdk import Clients, know, make_clients
from magic_committer.stores.s3.transport import Engine, Transport
from magic_committer.stores.s3.values import Reply

PLUGINS_VARIABLE = "BOTOCORE_EXPERIMENTAL__PLUGINS"


class _Stays(Exception):
    """The requests stay with the SDK. The text says why."""


@dataclass(slots=True, weakref_slot=True)
class Ways:
    """The ways of one process to one bucket.

    Attributes:
        clients: the SDK's.
        fast: the fast way; None: there is none.
        why: why there is no fast way; "" if there is one.
    """

    clients: Clients
    fast: Transport | None = None
    why: str = field(default="")

    @property
    def hot(self) -> Any:
        """For the hot verbs but Complete, GET and parts."""
        return self.clients.quick if self.fast is None else self.fast

    @property
    def patient(self) -> Any:
        """For Complete."""
        return self.clients.patient if self.fast is None else self.fast


def whole_object(ways: Ways, bytes_max: int, parameters: Parameters) -> Reply:
    """GET. Of an object with more bytes, ``Body`` is not read yet."""
    if ways.fast is not None:
        return ways.fast.get_object(bytes_max, **parameters)
    reply: Reply = ways.clients.quick.get_object(**parameters)
    return reply


def send_part(ways: Ways, body: PartBody, parameters: Parameters) -> Reply:
    """Send a part.

    Raises:
        EOFError: the file ends before the slice does.
    """
    if ways.fast is not None:
        return ways.fast.upload_part(body, **parameters)
    opened = open_body(body)
    try:
        reply: Reply = ways.clients.quick.upload_part(Body=opened, **parameters)
        return reply
    finally:
        if isinstance(body, FileSlice) and not isinstance(opened, bytes):
            opened.close()


def make_ways(bucket: str, options: S3Options, fixed: Parameters, clock: Clock) -> Ways:
    """Make the SDK's clients, and the fast way if the options and the environment allow it.

    Raises:
        OptionError: the SDK's clients cannot be made; or ``transport="curl"``, and there is no fast
            way.
    """
    clients = make_clients(options)
    try:
        fast = _fast(bucket, options, {"Bucket": bucket, **fixed}, clients, clock)
    except _Stays as reason:
        if options.transport == "curl":
            raise OptionError(
                f"transport='curl' cannot be used: {reason}",
                hint="Use transport='auto', which takes the SDK where libcurl cannot be used",
            ) from None
        return Ways(clients, why=str(reason))
    return Ways(clients, fast)


def _fast(
    bucket: str, options: S3Options, fixed: Parameters, clients: Clients, clock: Clock
) -> Transport:
    if options.transport == "boto3":
        raise _Stays("transport='boto3'")
    if not _libcurl.available():
        raise _Stays(_libcurl.why_not())
    if os.environ.get(PLUGINS_VARIABLE):
        raise _Stays(f"{PLUGINS_VARIABLE} is set")
    if bucket.endswith("--x-s3"):
        raise _Stays("an S3 Express bucket has sessions")
    if "@" in clients.quick.meta.endpoint_url:
        raise _Stays("the endpoint's URL has a user")
    engine, proxy = _engine(options, clients)
    made = Transport(Sdk(clients.quick), fixed, clients.credentials, know, engine, clock, proxy)
    if options.transport == "curl" and (why := _why_not(made)):
        raise _Stays(why)
    return made


def _why_not(made: Transport) -> str:
    """Why requests go by the SDK all the same; "" if they do not, or if nobody knows yet."""
    try:
        return made.why()
    except SDK_ERRORS:  # no credentials: the first request says so
        return ""


def _engine(options: S3Options, clients: Clients) -> tuple[Engine, str]:
    """What moves the bytes, with the SDK's own settings; and the proxy's URL, or ""."""
    from magic_committer.stores.s3.curl import CurlSettings
    from magic_committer.stores.s3.curl_threads import Curl

    endpoint = getattr(clients.quick, "_endpoint", None)
    session: Any = getattr(endpoint, "http_session", None)
    if type(session) is not URLLib3Session or clients.patient is not clients.quick:
        raise _Stays("this release of botocore is not known")
    proxies = session._proxy_config
    beside = {name for name, value in (proxies.settings or {}).items() if value is not None}
    if beside:
        raise _Stays(f"the SDK's configuration has {', '.join(sorted(beside))}")
    proxy = proxies.proxy_url_for(clients.quick.meta.endpoint_url) or ""
    if proxy and not proxy.startswith("http://"):
        raise _Stays("the proxy is not reached by plain HTTP")
    verify = session._verify
    authorities = get_cert_path(verify) if verify else None
    if authorities is not None and not os.path.isfile(authorities):
        raise _Stays("the certificates' authorities are not in a file")
    certificate, key = session._cert_file, session._key_file
    settings = CurlSettings(
        connect_seconds_max=options.connect_seconds_max,
        connections_max=options.connections_max,
        ca_file=authorities,
        verify=bool(verify),
        client_cert=(certificate, key or certificate) if certificate else None,
        proxy=proxy or None,
        keepalive=True,
    )
    return Curl(settings), proxy
