"""How a bucket is reached: endpoint, region, credentials, certificates, proxy, encryption.

Everything is configured as for every AWS tool. Where the environment's variables are all there is,
they are read here, and the SDK is not even imported; where there are configuration files, a profile
or a role, the SDK's own chain finds it (`botocore.session`). Either way the set-up is plain, or it
is `NotPlain`, with the reason: then boto3 sends the requests (`via_boto3`).

Plain is what the table of endpoints below writes as the SDK does; the tests compare each set-up
with it. Nothing else is guessed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import os
import re
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from magic_committer.errors import OptionError
from magic_committer.options import S3Options
from magic_committer.runtime.threads import Errand, beside
from magic_committer.stores.s3 import redact
from magic_committer.stores.s3.http import Cause, Network, NoAnswer, Sent, origin_of
from magic_committer.stores.s3.requests import BucketPlace
from magic_committer.stores.s3.signing import Credentials

CUSTOMER_KEY_VARIABLE = "MAGIC_COMMITTER_SSE_CUSTOMER_KEY"
CUSTOMER_KEY_BYTES = 32
CREDENTIALS_ATTEMPTS_MAX = 2
"""How often we ask a service that gives credentials for a role."""
PLUGINS = "BOTOCORE_EXPERIMENTAL__PLUGINS"
SURROUNDINGS = ("HOME", "REQUESTS_CA_BUNDLE", "BOTO_CONFIG", CUSTOMER_KEY_VARIABLE, PLUGINS)
"""Variables that a set-up depends on, beside those that begin with ``AWS_`` and name proxies."""
REGION_DEFAULT = "us-east-1"
"""The region if nothing names one: S3 redirects us to the bucket's region, other stores ignore
it."""

_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
_VARIABLES = {
    "region": "AWS_DEFAULT_REGION",
    "ca_bundle": "AWS_CA_BUNDLE",
    "use_fips_endpoint": "AWS_USE_FIPS_ENDPOINT",
    "use_dualstack_endpoint": "AWS_USE_DUALSTACK_ENDPOINT",
    "ignore_configured_endpoint_urls": "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "sigv4a_signing_region_set": "AWS_SIGV4A_SIGNING_REGION_SET",
    "auth_scheme_preference": "AWS_AUTH_SCHEME_PREFERENCE",
}
"""For each setting of the SDK its variable."""
_REGION = re.compile(r"(?:us|us-gov|eu|ap|sa|ca|me|af|il|mx|cn)-[a-z]+-\d+")
"""Regions whose endpoints are written here. Other partitions have other names of hosts."""
_ANY_REGION = re.compile(r"(?![0-9]+$)(?!-)[a-zA-Z0-9-]{1,63}(?<!-)")
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_LABELS = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""Names of buckets that can stand in a host name: for certificates, and without them."""


class NotPlain(Exception):
    """The requests go by boto3. The text says why."""


_loaders: dict[Any, Any] = {}
"""What has read the SDK's descriptions of services, 12 MiB in memory, for each path to them. There
is no lock, which a fork could leave locked: setting a default is atomic."""


def surroundings() -> frozenset[tuple[str, str]]:
    """What a set-up comes from in the environment, beside the options."""
    return frozenset(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith("AWS_") or name in SURROUNDINGS or name.upper().endswith("_PROXY")
    )


class PlainSettings:
    """The settings of AWS's tools for a bucket that is reached without boto3: the environment's,
    where it is all there is; else the SDK's. Raises `NotPlain`: how to reach the bucket is not
    known here; `OptionError`: the settings cannot be used, by boto3 neither.

    Attributes:
        endpoint: the store's URL, without the bucket.
        region: where the bucket is, as far as is known.
        signs_bodies, ca_bundle: the SDK's ``payload_signing_enabled`` and ``ca_bundle``; None: it
            says nothing.
        credentials: what gives them; None: nothing is signed.
    """

    def __init__(self, bucket: str, options: S3Options) -> None:
        if options.transport == "boto3":
            raise NotPlain("transport='boto3'")
        if os.environ.get(PLUGINS):
            raise NotPlain(f"{PLUGINS} is set")
        if is_express(bucket):
            raise NotPlain("an S3 Express bucket has sessions")
        if not _BUCKET.fullmatch(bucket) or bucket.endswith("--op-s3"):
            raise NotPlain("an access point, or no bucket's name")
        self._bucket = bucket
        session, said = _settings(options)
        for name in ("sigv4a_signing_region_set", "auth_scheme_preference"):
            if said[name]:
                raise NotPlain(f"the SDK's configuration has {name}")
        s3 = said["s3"] or {}
        if _truth(s3.get("use_accelerate_endpoint")):
            raise NotPlain("the endpoint is S3's accelerated one")
        self.region = options.region or said["region"] or REGION_DEFAULT
        if not _ANY_REGION.fullmatch(self.region):
            raise NotPlain("the region is the SDK's matter")
        self._style = s3.get("addressing_style")
        if options.path_style is not None:
            self._style = "path" if options.path_style else "virtual"
        ignored = _truth(said["ignore_configured_endpoint_urls"])
        self._url = options.endpoint_url or ("" if ignored else said["endpoint_url"]) or ""
        fips, dualstack = (_truth(said[f"use_{name}_endpoint"]) for name in ("fips", "dualstack"))
        if self._url and (fips or dualstack):
            raise NotPlain("FIPS and dual-stack have endpoints of their own")
        legacy = s3.get("us_east_1_regional_endpoint") != "regional"
        self._aws = partial(_aws_endpoint, fips=fips, dualstack=dualstack, legacy=legacy)
        if self._url:
            _look_at_url(self._url)
        self.endpoint = self._url.rstrip("/") or self._aws(self.region)
        asked = s3.get("payload_signing_enabled")
        self.signs_bodies = None if asked is None else _truth(asked)
        self.ca_bundle = said["ca_bundle"]
        self.credentials = None if options.anonymous else _credentials(options, session)

    def place(self, region: str) -> BucketPlace:
        """Where the bucket is, if it is in that region, by the SDK's rules for addressing. Raises
        `NotPlain`: nobody here knows."""
        bucket, style = self._bucket, self._style or ("path" if self._url else "auto")
        parts = urlsplit(self._url or self._aws(region))
        path, hostable = parts.path.rstrip("/"), _LABEL if parts.scheme == "https" else _LABELS
        origin = origin_of(f"{parts.scheme}://{parts.netloc}")
        with suppress(ValueError):
            ipaddress.ip_address(origin.host)
            style = "path"  # an address has no names below it
        if style == "path" or not hostable.fullmatch(bucket):
            return BucketPlace(origin, f"{path}/{bucket}", region)
        return BucketPlace(origin_of(f"{parts.scheme}://{bucket}.{parts.netloc}"), path, region)


def _credentials(options: S3Options, session: Any) -> Callable[[], Credentials]:
    """What gives credentials: the options, the SDK's session if there is one, or variables."""
    given = os.environ
    if options.access_key is not None:
        key = Credentials(options.access_key, options.secret_key or "", options.session_token)
    elif session is not None:
        return _asking(session)
    else:
        token = given.get("AWS_SECURITY_TOKEN") or given.get("AWS_SESSION_TOKEN") or None
        key = Credentials(given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"], token)
    redact.know(*key)
    return lambda: key


def _settings(options: S3Options) -> tuple[Any, dict[str, Any]]:
    """The SDK's session, and what it says; None, where the environment's variables are all there
    is, and what they say."""
    given = os.environ.get
    keys = given("AWS_ACCESS_KEY_ID") and given("AWS_SECRET_ACCESS_KEY")
    files = [os.path.expanduser(given(name, usual)) for name, usual in _FILES.items()]
    if (
        not (keys or options.anonymous or options.access_key is not None)
        or (options.profile or given("AWS_PROFILE") or given("AWS_DEFAULT_PROFILE"))
        or given("AWS_CREDENTIAL_EXPIRATION")
        or any(map(os.path.exists, files))
    ):
        session = core_session(options)
        return session, _of_session(session, options)
    found: dict[str, Any] = {name: given(variable) for name, variable in _VARIABLES.items()}
    found["s3"] = {"us_east_1_regional_endpoint": given("AWS_S3_US_EAST_1_REGIONAL_ENDPOINT")}
    found["endpoint_url"] = given("AWS_ENDPOINT_URL_S3") or given("AWS_ENDPOINT_URL")
    return None, found


def _of_session(session: Any, options: S3Options) -> dict[str, Any]:
    from botocore.configprovider import ConfiguredEndpointProvider  # late: it loads the SDK
    from botocore.exceptions import BotoCoreError

    found = {name: session.get_config_variable(name) for name in (*_VARIABLES, "s3")}
    found["endpoint_url"] = None
    if options.endpoint_url or _truth(found["ignore_configured_endpoint_urls"]):
        return found  # what is not asked for may be wrong
    provider = ConfiguredEndpointProvider(
        full_config=session.full_config,
        scoped_config=session.get_scoped_config(),
        client_name="s3",
    )
    try:
        found["endpoint_url"] = provider.provide()
    except BotoCoreError as error:
        raise no_client(error) from None
    return found


def _asking(session: Any) -> Callable[[], Credentials]:
    """What asks the SDK for credentials. The main thread only waits where they are fetched."""
    found: Any = None

    def ask() -> Credentials:
        nonlocal found
        if found is not None and not getattr(found, "refresh_needed", bool)():
            return credentials_of(session)
        key = beside(partial(credentials_of, session), Errand())
        found = session.get_credentials()
        return key

    return ask


def credentials_of(session: Any) -> Credentials:
    """The SDK's credentials, as they are now, hidden from now on: refreshed ones are new secrets.
    Raises `NoAnswer`: it finds none, or the service that gives them does not answer."""
    from botocore import exceptions as sdk  # late: the session has loaded it

    try:
        found = session.get_credentials()
        frozen = None if found is None else found.get_frozen_credentials()
    except (sdk.HTTPClientError, sdk.ConnectionError) as error:
        where = "the service that gives credentials"
        raise NoAnswer(Cause.CONNECT, Sent.NEVER, str(error), where) from None
    except (sdk.BotoCoreError, sdk.ClientError) as error:
        raise NoAnswer(Cause.CREDENTIALS, Sent.NEVER, str(error)) from None
    except Exception as error:  # of keys that have expired, a time that is none, a file that is not
        why = f"the SDK finds no credentials: {type(error).__name__}: {error}"
        raise NoAnswer(Cause.CREDENTIALS, Sent.NEVER, why) from None
    if frozen is None:
        raise NoAnswer(Cause.CREDENTIALS, Sent.NEVER, "Unable to locate credentials")
    key = Credentials(frozen.access_key, frozen.secret_key, frozen.token)
    redact.know(*key)
    return key


def core_session(options: S3Options) -> Any:
    """A session of the SDK's core. It fetches credentials when they are needed. Raises
    `OptionError`: the profile or a configuration file cannot be used."""
    import botocore.session  # late: it takes a while
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    redact.know(options.access_key, options.secret_key, options.session_token)
    redact.install()
    try:
        session = botocore.session.Session(profile=options.profile)
        # For the clients that fetch credentials: by default they would wait for a minute, five
        # times.
        session.set_default_client_config(
            Config(
                connect_timeout=options.connect_seconds_max,
                read_timeout=options.read_seconds_max,
                retries={"total_max_attempts": CREDENTIALS_ATTEMPTS_MAX, "mode": "standard"},
            )
        )
        session.get_scoped_config()
        own = session.get_component("data_loader")
        loader = _loaders.setdefault(session.get_config_variable("data_path"), own)
        session.register_component("data_loader", loader)
    except (BotoCoreError, ValueError) as error:
        raise no_client(error) from None
    return session


def no_client(error: Exception) -> OptionError:
    """What the SDK has refused, without secrets."""
    said = redact.redacted(str(error))
    hint = "Check S3Options, the AWS_* variables and the AWS configuration files"
    return OptionError(f"no client can be made: {said}", hint=hint)


def _truth(value: object) -> bool:
    return value is True or str(value).lower() == "true"


# Endpoints ----------------------------------------------------------------------------------------


def _aws_endpoint(region: str, fips: bool, dualstack: bool, legacy: bool) -> str:
    """AWS's endpoint of a region (AWS General Reference, "Amazon S3 endpoints")."""
    if not _REGION.fullmatch(region):
        raise NotPlain(f"the endpoints of {region!r} are the SDK's matter")
    if fips and region.startswith("cn-"):
        raise NotPlain("China has no FIPS endpoints")
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    service = f"s3{'-fips' if fips else ''}{'.dualstack' if dualstack else ''}"
    if region == "us-east-1" and legacy and service == "s3":
        return f"https://s3.{suffix}"
    return f"https://{service}.{region}.{suffix}"


def _look_at_url(url: str) -> None:
    """Raise `NotPlain` if an endpoint's URL is none that is understood here."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or not url.isascii() or " " in url:
        raise NotPlain("the endpoint's URL is the SDK's matter")
    if "@" in parts.netloc:
        raise NotPlain("the endpoint's URL has a user")


# Networks -----------------------------------------------------------------------------------------


def is_express(bucket: str) -> bool:
    """Whether a name is of a directory bucket of S3 Express, or of its access point. Pure."""
    return bucket.endswith(("--x-s3", "--xa-s3"))


def network_for(options: S3Options, endpoint: str, ca_bundle: str | None) -> Network:
    """How to connect to an endpoint, by the SDK's rules for certificates and proxies. Raises
    `OptionError`: the bundle of certificates is not there, or the proxy's URL cannot be read."""
    proxy = _proxy(endpoint)
    try:
        origin_of(proxy)
    except ValueError:  # it says what it took for the port, which may be of a password
        raise OptionError(
            "the proxy's URL cannot be read",
            hint="Check HTTP_PROXY and HTTPS_PROXY: http://user:password@host:port, where %2F"
            " stands for a / in the password, %23 for a #, %3F for a ?",
        ) from None
    context, bundle = None, ""
    if endpoint.startswith("https:") or proxy.startswith("https:"):
        bundle = ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or _usual_bundle()
        try:
            if not os.path.isfile(bundle):
                raise FileNotFoundError("it is no file")
            context = _context(bundle, os.stat(bundle).st_mtime)
        except OSError as error:  # also of TLS: it holds no certificate
            raise OptionError(
                f"the bundle of certificates {bundle!r} cannot be used: {error}",
                hint="Check AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE, and ca_bundle in the AWS"
                " configuration file: one of them names it",
            ) from None
    return Network(options.connect_seconds_max, options.connections_max, context, bundle, proxy)


def _usual_bundle() -> str:
    """The authorities that the SDK trusts: certifi's where it has a bundle, otherwise its own.
    Distributions ship certifi without one."""
    for package in ("certifi", "botocore"):
        found = find_spec(package)
        file = os.path.join(os.path.dirname((found and found.origin) or ""), "cacert.pem")
        if os.path.isfile(file):
            return file
    raise OptionError("neither certifi nor botocore has a bundle of certificates")


@lru_cache(maxsize=8)
def _context(bundle: str, modified: float) -> ssl.SSLContext:
    """The context of encrypted connections. A bundle that was ``modified`` is read again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    context.load_verify_locations(cafile=bundle)
    return context


def _proxy(url: str) -> str:
    """The proxy for a URL, by the environment; "": none."""
    if sys.platform != "darwin" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""
    from botocore.httpsession import ProxyConfiguration  # late: it loads the SDK
    from botocore.utils import get_environ_proxies

    return ProxyConfiguration(get_environ_proxies(url)).proxy_url_for(url) or ""


# Encryption ---------------------------------------------------------------------------------------


def customer_key_headers(options: S3Options) -> Mapping[str, str]:
    """The parameters that SSE-C needs with each request on an object; empty for every other
    encryption. Raises `OptionError`: there is no key, or a wrong one in the environment."""
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
    md5 = hashlib.md5(key, usedforsecurity=False).digest()
    return {
        "SSECustomerAlgorithm": "AES256",
        "SSECustomerKey": base64.b64encode(key).decode(),
        "SSECustomerKeyMD5": base64.b64encode(md5).decode(),
    }


def encryption_headers(options: S3Options, customer_key: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters of each request that makes an object."""
    if options.encryption is None or options.encryption == "SSE-C":
        return customer_key
    named = {"SSEKMSKeyId": options.kms_key_id} if options.kms_key_id else {}
    return {"ServerSideEncryption": options.encryption, **named}
