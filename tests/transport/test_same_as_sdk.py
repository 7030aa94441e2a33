"""The fast way's requests are the SDK's own: URL, headers and signature, at a frozen time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import botocore.auth
import pytest

from magic_committer.options import S3Options
from magic_committer.stores.s3.route import (
    PROBES,
    NotPlain,
    NotUnderstood,
    Sdk,
    document,
    learn,
)
from magic_committer.stores.s3.sdk import customer_key_headers, encryption_headers, make_clients

MOMENT = datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC)
STAMP = "20261122T235959Z"
BASE = S3Options(region="eu-north-1", access_key="AKIATHEACCESSKEY", secret_key="the/secret+key")
KMS = "arn:aws:kms:eu-north-1:123456789012:key/a"
POINT = "arn:aws:s3:eu-north-1:123456789012:accesspoint/point"
OUTPOST = "arn:aws:s3-outposts:eu-north-1:123456789012:outpost/op-01ac5d28a6a232904/accesspoint/p"


@dataclass(frozen=True)
class Way:
    """A bucket and how it is reached."""

    options: S3Options = BASE
    bucket: str = "bucket"
    environment: tuple[tuple[str, str], ...] = ()


def by(bucket: str = "bucket", environment: dict[str, str] | None = None, **options: Any) -> Way:
    """A way with other options than the usual ones."""
    return Way(replace(BASE, **options), bucket, tuple((environment or {}).items()))


WAYS: dict[str, Way] = {
    "plain": Way(),
    "us-east-1": by(region="us-east-1"),
    "us-west-2": by(region="us-west-2"),
    "china": by(region="cn-north-1"),
    "government": by(region="us-gov-west-1"),
    "path style": by(path_style=True),
    "virtual style": by(path_style=False),
    "a name with dots": by("a.b.c"),
    "a name with dots, path style": by("a.b.c", path_style=True),
    "session token": by(session_token="token/+=" * 20),
    "session token, path style": by(session_token="t=", path_style=True),
    "requester pays": by(requester_pays=True),
    "SSE-S3": by(encryption="AES256"),
    "SSE-KMS": by(encryption="aws:kms", kms_key_id=KMS),
    "SSE-KMS, the bucket's key": by(encryption="aws:kms"),
    "DSSE-KMS": by(encryption="aws:kms:dsse", kms_key_id=KMS),
    "SSE-C": by(encryption="SSE-C", sse_customer_key=bytes(range(32))),
    "anonymous": by(anonymous=True, access_key=None, secret_key=None),
    "anonymous, own endpoint": by(
        anonymous=True, access_key=None, secret_key=None, endpoint_url="http://127.0.0.1:9000"
    ),
    "dual-stack": by(environment={"AWS_USE_DUALSTACK_ENDPOINT": "true"}),
    "dual-stack, path style": by(
        path_style=True, environment={"AWS_USE_DUALSTACK_ENDPOINT": "true"}
    ),
    "FIPS": by(region="us-east-2", environment={"AWS_USE_FIPS_ENDPOINT": "true"}),
    "FIPS and dual-stack": by(
        region="us-east-2",
        environment={"AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
    ),
    "access point": by(POINT),
    "access point, session token": by(POINT, session_token="t" * 40),
    "access point, dual-stack": by(POINT, environment={"AWS_USE_DUALSTACK_ENDPOINT": "true"}),
    "access point alias": by("point-abcdefghijklmnopqrstuvwxyz1234-s3alias"),
    "own endpoint": by(endpoint_url="http://127.0.0.1:9000"),
    "own endpoint, TLS and path": by(endpoint_url="https://store.example:9443/a"),
    "own endpoint, TLS, token": by(endpoint_url="https://store.example", session_token="t/+"),
    "own endpoint, SSE-C": by(
        endpoint_url="https://store.example", encryption="SSE-C", sse_customer_key=bytes(32)
    ),
    "own endpoint, TLS": by(endpoint_url="https://store.example"),
    "own endpoint, TLS and port": by(endpoint_url="https://store.example:9443"),
    "own endpoint, the scheme's port": by(endpoint_url="https://store.example:443"),
    "own endpoint, HTTP's port": by(endpoint_url="http://store.example:80"),
    "own endpoint, a path": by(endpoint_url="http://store.example:9000/a/path"),
    "own endpoint, a path with a slash": by(endpoint_url="http://store.example:9000/a/path/"),
    "own endpoint, a slash": by(endpoint_url="http://store.example:9000/"),
    "own endpoint, virtual style": by(endpoint_url="http://store.example", path_style=False),
    "own endpoint, virtual and path": by(
        endpoint_url="https://store.example/below", path_style=False
    ),
    "own endpoint, upper case": by(endpoint_url="http://Store.Example:9000"),
    "own endpoint, dots": by("a.b", endpoint_url="https://store.example"),
    "own endpoint, token": by(endpoint_url="http://10.0.0.1", session_token="a/b+c=="),
    "own endpoint, no such region": by(endpoint_url="http://10.0.0.1:9000", region="garage"),
    "own endpoint, payer": by(endpoint_url="http://10.0.0.1:9000", requester_pays=True),
    "localhost": by(endpoint_url="http://localhost:4566"),
    "IPv6": by(endpoint_url="http://[::1]:9000"),
    "IPv6, TLS": by(endpoint_url="https://[2001:db8::1]:9443"),
    "IPv6, no port": by(endpoint_url="http://[2001:db8::1]"),
    "endpoint of the environment": by(
        environment={"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}, session_token="t"
    ),
    "endpoint of S3 in the environment": by(
        environment={"AWS_ENDPOINT_URL_S3": "https://s3.example:1"}
    ),
    "Cloudflare R2": by(endpoint_url="https://a.r2.cloudflarestorage.com", region="auto"),
    "Google": by(endpoint_url="https://storage.googleapis.com", region="auto"),
    "a VPC's endpoint": by(
        endpoint_url="https://bucket.vpce-1a2b3c4d-5e6f.s3.eu-north-1.vpce.amazonaws.com"
    ),
    "an agent": by(user_agent="etl/1.0 (the table)"),
    "credentials of the environment": by(
        access_key=None,
        secret_key=None,
        environment={
            "AWS_ACCESS_KEY_ID": "AKIAENVIRONMENT00",
            "AWS_SECRET_ACCESS_KEY": "another secret",
            "AWS_SESSION_TOKEN": "environment's/token",
        },
    ),
    "region of the environment": by(region=None, environment={"AWS_REGION": "ap-south-1"}),
    "region's default of the environment": by(
        region=None, environment={"AWS_DEFAULT_REGION": "sa-east-1"}
    ),
    "a function of Lambda": by(
        environment={"AWS_LAMBDA_FUNCTION_NAME": "f", "_X_AMZN_TRACE_ID": "Root=1-5"}
    ),
    "checksums when supported": by(environment={"AWS_REQUEST_CHECKSUM_CALCULATION": "x"}),
    "an odd bucket": by("0bucket-9", path_style=True),
    "SSE-KMS, own endpoint": by(
        endpoint_url="http://10.0.0.1:9000", encryption="aws:kms", kms_key_id="a key"
    ),
    "SSE-C, access point": by(POINT, encryption="SSE-C", sse_customer_key=bytes(32)),
    "everything": by(
        POINT,
        encryption="aws:kms",
        kms_key_id=KMS,
        requester_pays=True,
        session_token="x" * 300,
        user_agent="all",
    ),
}
KEYS = (
    "plain/key.parquet",
    "with a space",
    "two//slashes",
    "plus+percent%25",
    "til~de!*'()",
    "dt=2026-11-22/part",
    "ünïcödé/日本語/🙂",
    "what?#&;=@:,$",
    "/leading/slash",
    "a/../b/./c",
    "..",
    "./",
    'quote"back\\slash<>',
    "tab\tnew\nline",
    "a" * 1000,
)
TAKES_CUSTOMERS_KEY = (
    "UploadPart",
    "ListParts",
    "CompleteMultipartUpload",
    "GetObject",
    "HeadObject",
)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's clock stands, and its own signer is used."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: MOMENT)
    for name in ("v4", "s3v4"):
        monkeypatch.setitem(botocore.auth.AUTH_TYPE_MAPS, name, botocore.auth.S3SigV4Auth)


def seen(headers: Any) -> dict[str, str]:
    """The headers of the SDK's request that matter."""
    text = {n.lower(): v.decode() if isinstance(v, bytes) else str(v) for n, v in headers.items()}
    beside = ("host", "content-length", "x-amzn-trace-id")
    return {n: v for n, v in text.items() if n not in beside and not n.startswith("amz-sdk")}


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("name", WAYS)
def test_every_request_is_the_sdks_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every way and verb, and odd keys: method, URL, headers and signature are what the SDK
    would send."""
    way = WAYS[name]
    for variable, value in way.environment:
        monkeypatch.setenv(variable, value)
    made = make_clients(way.options)
    sdk = Sdk(made.quick)
    fixed = {"Bucket": way.bucket}
    fixed |= {"RequestPayer": "requester"} if way.options.requester_pays else {}
    customers = customer_key_headers(way.options)
    row = list(WAYS).index(name)
    for column, (verb, probe) in enumerate(PROBES.items()):
        route = learn(sdk, verb, fixed, made.credentials)
        body = probe.get("Body", b"")
        more: dict[str, Any] = {}
        if verb in ("PutObject", "CreateMultipartUpload"):
            more = dict(encryption_headers(way.options, customers))
        elif verb in TAKES_CUSTOMERS_KEY:
            more = dict(customers)
        # The first way meets every key; the others take turns.
        for key in KEYS if row == 0 else {KEYS[(row + column) % len(KEYS)], KEYS[row % len(KEYS)]}:
            keyed = "Prefix" if "Prefix" in probe else "Key"
            wanted = {**fixed, **probe, **more, keyed: key}
            theirs = sdk.prepare(verb, wanted)
            headers = seen(theirs.headers)
            if "MultipartUpload" in wanted:
                body = document(wanted["MultipartUpload"]["Parts"])
            given = {n: v for n, v in wanted.items() if n != "Body"}
            ours = route.request(
                given,
                body,
                payload=headers.get("x-amz-content-sha256", ""),
                credentials=made.credentials and made.credentials.get_frozen_credentials(),
                moment=STAMP,
            )
            assert (ours.method, ours.url) == (theirs.method, theirs.url)
            assert {n.lower(): v for n, v in ours.headers} == headers
            assert "authorization" in headers or way.options.anonymous
            hashed = hashlib.sha256(body).hexdigest()
            assert headers.get("x-amz-content-sha256", hashed) in (hashed, "UNSIGNED-PAYLOAD")


def test_the_table_is_large_enough() -> None:
    """At least sixty ways are compared, each with every hot verb and every odd key."""
    assert len(WAYS) >= 60
    assert len(PROBES) == 11
    assert len(KEYS) >= 15


def add_a_header(request: Any, **_: Any) -> None:
    """Before it is signed."""
    request.headers.add_header("X-Mine", "1")


def sign_otherwise(request: Any, **_: Any) -> None:
    """After it was signed."""
    signed = request.headers["Authorization"]
    request.headers.replace_header("Authorization", f"{signed[:-8]}00000000")


@pytest.mark.parametrize(
    ("event", "change"),
    [("before-sign.s3", add_a_header), ("request-created.s3", sign_otherwise)],
)
def test_a_request_that_differs_is_not_ours_to_send(event: str, change: Any) -> None:
    """A client that adds a header, or signs in another way, has no route: the SDK sends its
    requests."""
    made = make_clients(BASE)
    made.quick.meta.events.register_last(event, change)
    with pytest.raises(NotUnderstood, match="headers"):
        learn(Sdk(made.quick), "HeadObject", {"Bucket": "b"}, made.credentials)


@pytest.mark.parametrize(
    "bucket",
    [
        "arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap",
        OUTPOST,
        "arn:aws:s3-object-lambda:eu-north-1:123456789012:accesspoint/lambda",
    ],
)
def test_other_signatures_stay_with_the_sdk(bucket: str) -> None:
    """SigV4A (multi-region access points, Outposts) is not signed here; Object Lambda has another
    service's name, which is learnt, or no route."""
    made = make_clients(BASE)
    try:
        route = learn(Sdk(made.quick), "GetObject", {"Bucket": bucket}, made.credentials)
    except NotUnderstood:
        return
    assert route.signer is not None
    assert "s3-object-lambda" in repr(route.signer)


@pytest.mark.parametrize(
    "parameters",
    [
        {"Key": ""},
        {"Key": "half a \ud800 character"},
        {"Key": "k", "ContentType": " padded"},
        {"Key": "k", "ContentType": "ünïcode"},
        {"Key": "k", "ContentType": "two\nlines"},
        {"Key": "k", "Metadata": {"a": ""}},
        {"Key": "k", "Metadata": {"a": "é"}},
        {"Key": "k", "Metadata": {"a b": "c"}},
        {"Key": "k", "Metadata": {"a": "1", "A": "2"}},
        {"Key": "k", "IfMatch": None},
        {"Key": "k", "NoSuchParameter": "1"},
        {"Key": "k", "Expires": datetime(2026, 1, 1, tzinfo=UTC)},
    ],
)
def test_what_could_be_written_in_two_ways_is_left_to_the_sdk(parameters: dict[str, Any]) -> None:
    """An empty value, a padded one, text that is not ASCII, a parameter that is not known: no
    request is built."""
    made = make_clients(BASE)
    route = learn(Sdk(made.quick), "PutObject", {"Bucket": "b"}, made.credentials)
    with pytest.raises(NotPlain):
        route.unsigned(parameters)
