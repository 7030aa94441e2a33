"""The fast way's requests are the SDK's own: URL, headers and signature, at a frozen time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore import xform_name

from magic_committer._runtime import SystemClock
from magic_committer.options import S3Options
from magic_committer.stores.s3.config import (
    NotPlain,
    customer_key_headers,
    encryption_headers,
    plain_setup,
)
from magic_committer.stores.s3.fast import Fast
from magic_committer.stores.s3.http import BadParameter, origin_of
from magic_committer.stores.s3.requests import OPERATIONS, Call, build
from magic_committer.stores.s3.via_boto3 import ViaBoto3

MOMENT = datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC)
BASE = S3Options(region="eu-north-1", access_key="AKIATHEACCESSKEY", secret_key="the/secret+key")
KMS = "arn:aws:kms:eu-north-1:123456789012:key/a"
POINT = "arn:aws:s3:eu-north-1:123456789012:accesspoint/point"


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
    "FIPS in us-east-1": by(region="us-east-1", environment={"AWS_USE_FIPS_ENDPOINT": "true"}),
    "FIPS and dual-stack in us-east-1": by(
        region="us-east-1",
        environment={"AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
    ),
    "dual-stack in us-east-1": by(
        region="us-east-1", environment={"AWS_USE_DUALSTACK_ENDPOINT": "true"}
    ),
    "us-east-1's own endpoint": by(
        region="us-east-1", environment={"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "regional"}
    ),
    "us-east-1, virtual style": by(region="us-east-1", path_style=False),
    "us-east-1, path style": by(region="us-east-1", path_style=True),
    "no configured endpoint": by(
        environment={
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
        }
    ),
    "FIPS for the government": by(
        region="us-gov-west-1", environment={"AWS_USE_FIPS_ENDPOINT": "true"}
    ),
    "a name in upper case": by("Bucket_1"),
    "a short name": by("b", endpoint_url="http://127.0.0.1:9000", path_style=False),
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
    "everything": by(
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
WITHOUT_KEY = ("ListMultipartUploads", "ListObjectsV2", "DeleteObjects")
TAKES_CUSTOMERS_KEY = (
    "UploadPart",
    "ListParts",
    "CompleteMultipartUpload",
    "GetObject",
    "HeadObject",
)


KEY, ID = "magic-committer/a b+~%c?d#e&f=g/é", "an id/+~="
PROBES: dict[str, dict[str, Any]] = {
    "CreateMultipartUpload": {
        "ContentType": "text/x", "ContentEncoding": "gzip", "ContentDisposition": "a; b=c",
        "CacheControl": "no-cache", "StorageClass": "STANDARD_IA", "ACL": "private",
        "Tagging": "a=b+c", "Metadata": {"a-b": "c  d", "e": ""}, "ChecksumAlgorithm": "CRC32",
        "ChecksumType": "FULL_OBJECT",
    },
    "UploadPart": {
        "UploadId": ID, "PartNumber": 7, "ChecksumCRC32C": "AAAAAA==", "Body": b"x",
    },
    "UploadPartCopy": {
        "UploadId": ID, "PartNumber": 7, "CopySource": f"b/{KEY}", "CopySourceRange": "bytes=0-1",
    },
    "CompleteMultipartUpload": {
        "UploadId": ID, "MpuObjectSize": 5, "IfNoneMatch": "*", "ChecksumCRC64NVME": "A=",
        "MultipartUpload": {
            "Parts": [{"PartNumber": 7, "ETag": '"<&>"', "ChecksumCRC32": "A="}]
        },
    },
    "AbortMultipartUpload": {"UploadId": ID},
    "ListParts": {"UploadId": ID, "PartNumberMarker": 7},
    "ListMultipartUploads": {"Prefix": KEY, "KeyMarker": KEY, "UploadIdMarker": ID},
    "ListObjectsV2": {"Prefix": KEY, "Delimiter": "/", "ContinuationToken": ID, "StartAfter": KEY},
    "PutObject": {"ContentType": "text/x", "IfMatch": '"e"', "IfNoneMatch": "*", "Body": b"x"},
    "GetObject": {},
    "HeadObject": {},
    "DeleteObject": {"VersionId": ID, "IfMatch": '"e"'},
    "DeleteObjects": {"Delete": {"Objects": [{"Key": KEY}, {"Key": "<&>\r\n"}], "Quiet": True}},
}  # fmt: skip
"""For each operation: parameters of every kind that it takes."""


class Stop(Exception):
    """The SDK has prepared its request."""


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's clock stands, and its own signer is used."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: MOMENT)
    for name in ("v4", "s3v4"):
        monkeypatch.setitem(botocore.auth.AUTH_TYPE_MAPS, name, botocore.auth.S3SigV4Auth)


class Clock(SystemClock):
    """Stands."""

    def now(self) -> float:
        return MOMENT.timestamp()


def prepared(client: Any, operation: str, wanted: dict[str, Any]) -> Any:
    """What the SDK would send."""
    held: list[Any] = []

    def stop(request: Any, **_: Any) -> None:
        held.append(request)
        raise Stop

    client.meta.events.register_first("before-send.s3", stop, "stop")
    with pytest.raises(Stop):
        getattr(client, xform_name(operation))(**wanted)
    client.meta.events.unregister("before-send.s3", stop, "stop")
    return held[0]


def seen(headers: Any) -> dict[str, str]:
    """The headers of a request that matter: not the agent, whose name is another one."""
    text = {n.lower(): v.decode() if isinstance(v, bytes) else str(v) for n, v in headers}
    beside = ("host", "content-length", "x-amzn-trace-id", "user-agent", "expect")
    return {n: v for n, v in text.items() if n not in beside and not n.startswith("amz-sdk")}


def in_order(url: str) -> tuple[str, list[str]]:
    """A URL whose query has no order: S3 signs it sorted. Names of hosts have no case."""
    parts = urlsplit(url)
    origin = origin_of(f"{parts.scheme}://{parts.netloc}").url
    return f"{origin}{parts.path or '/'}", sorted(parts.query.split("&"))


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("name", WAYS)
def test_every_request_is_the_sdks_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every way and operation, and odd keys: method, URL, headers, body and signature are what
    the SDK would send; and so is what is not signed."""
    way = WAYS[name]
    for variable, value in way.environment:
        monkeypatch.setenv(variable, value)
    theirs = ViaBoto3(way.bucket, way.options).client
    ours = Fast(plain_setup(way.bucket, way.options), Clock())
    if "aws-global" not in theirs.meta.endpoint_url:  # no request goes there
        assert ours.endpoint == theirs.meta.endpoint_url.rstrip("/")
    payer = {"RequestPayer": "requester"} if way.options.requester_pays else {}
    customers = customer_key_headers(way.options)
    row = list(WAYS).index(name)
    for column, (operation, probe) in enumerate(PROBES.items()):
        more: dict[str, Any] = {}
        if operation in ("PutObject", "CreateMultipartUpload"):
            more = dict(encryption_headers(way.options, customers))
        elif operation in TAKES_CUSTOMERS_KEY:
            more = dict(customers)
        # The first way meets every key; the others take turns.
        keys = KEYS if row == 0 else (KEYS[(row + column) % len(KEYS)], KEYS[row % len(KEYS)])
        for key in keys:
            named = {"Key": key} if operation not in WITHOUT_KEY else {}
            wanted = {**named, **payer, **probe, **more}
            request = prepared(theirs, operation, {"Bucket": way.bucket, **wanted})
            body = wanted.pop("Body", b"")
            made = ours.request(Call("", operation, key, wanted, body))
            url = f"{made.origin.url}{made.target}"
            assert made.method == request.method
            assert in_order(url) == in_order(request.url)
            assert seen(made.headers) == seen(request.headers.items())
            assert ("authorization" in seen(made.headers)) is not way.options.anonymous
            sent = request.body if isinstance(request.body, bytes) else body
            assert made.body == (sent or b"")


def test_the_table_is_large_enough() -> None:
    """At least sixty ways are compared, each with every operation and every odd key."""
    assert len(WAYS) >= 60
    assert set(PROBES) == set(OPERATIONS)
    assert len(KEYS) >= 15


@pytest.mark.parametrize(
    ("bucket", "options", "why"),
    [
        ("bucket--usw2-az1--x-s3", BASE, "S3 Express"),
        (POINT, BASE, "an access point"),
        ("arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap", BASE, "an access point"),
        ("point-op-01ac5d28a6a--op-s3", BASE, "an access point"),
        ("bucket", replace(BASE, region="us-iso-east-1"), "us-iso-east-1"),
        ("bucket", replace(BASE, region="eusc-de-east-1"), "eusc-de-east-1"),
        ("bucket", replace(BASE, endpoint_url="http://user:word@h"), "has a user"),
        ("bucket", replace(BASE, endpoint_url="http://h?a=b"), "URL"),
        ("bucket", replace(BASE, transport="boto3"), "transport='boto3'"),
    ],
)
def test_what_is_not_plain_is_left_to_boto3(bucket: str, options: S3Options, why: str) -> None:
    """What has other endpoints or signatures is not guessed."""
    with pytest.raises(NotPlain, match=why):
        plain_setup(bucket, options)


@pytest.mark.parametrize(
    "parameters",
    [
        {"Key": ""},
        {"Key": "half a \ud800 character"},
        {"Key": "k", "ContentType": " padded"},
        {"Key": "k", "ContentType": "ünïcode"},
        {"Key": "k", "ContentType": "two\nlines"},
        {"Key": "k", "Metadata": {"a": "é"}},
        {"Key": "k", "Metadata": {"a b": "c"}},
        {"Key": "k", "Metadata": {"a": "1", "A": "2"}},
        {"Key": "k", "IfMatch": None},
        {"Key": "k", "NoSuchParameter": "1"},
        {"MultipartUpload": {"Parts": [{"ETag": "a\x00b"}]}},
        {"Delete": {"Objects": [{"Key": "a\x08b"}]}},
    ],
)
def test_what_cannot_be_written_is_not_sent(parameters: dict[str, Any]) -> None:
    """A padded value, text that is not ASCII in a header, what XML cannot hold, a parameter that is
    not known: no request is built."""
    with pytest.raises(BadParameter):
        build("PutObject", parameters)
