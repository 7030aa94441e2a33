"""The fast way's requests are the SDK's own: URL, headers, body and signature."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore import xform_name

from magic_committer.errors import OptionError
from magic_committer.options import S3Options
from magic_committer.stores.s3 import signing
from magic_committer.stores.s3.config import customer_key_headers, encryption_headers
from magic_committer.stores.s3.fast import Fast
from magic_committer.stores.s3.http import HttpRequest, NoAnswer, origin_of
from magic_committer.stores.s3.requests import OPERATIONS, Call, build
from magic_committer.stores.s3.via_boto3 import ViaBoto3
from tests.servers import HurriedClock
from tests.transport.lab import NOBODY

MOMENT = datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC)
BASE = S3Options(region="eu-north-1", access_key="AKIATHEACCESSKEY", secret_key="the/secret+key")
KMS = "arn:aws:kms:eu-north-1:123456789012:key/a"
DUAL, FIPS = {"AWS_USE_DUALSTACK_ENDPOINT": "true"}, {"AWS_USE_FIPS_ENDPOINT": "true"}
OWN, TLS = "http://10.0.0.1:9000", "https://store.example"


class Way(NamedTuple):
    """A bucket and how it is reached."""

    bucket: str
    options: S3Options
    environment: dict[str, str]


def by(bucket: str = "bucket", url: str | None = None, **more: Any) -> Way:
    """A way with other options than the usual ones; names in capitals are variables."""
    environment = {name: more.pop(name) for name in list(more) if name.isupper()}
    return Way(bucket, replace(BASE, endpoint_url=url, **more), environment)


WAYS = [
    by(),
    # Regions and AWS's endpoints
    *[by(region=region) for region in ("us-east-1", "us-west-2", "cn-north-1", "us-gov-west-1")],
    *[by(region=region, **kind) for region in ("us-east-1", "us-east-2")
      for kind in (DUAL, FIPS, {**FIPS, **DUAL})],
    by(**DUAL), by(path_style=True, **DUAL), by(region="us-gov-west-1", **FIPS),
    by(region="us-east-1", AWS_S3_US_EAST_1_REGIONAL_ENDPOINT="regional"),
    by(region="us-east-1", path_style=False), by(region="us-east-1", path_style=True),
    by(region=None, AWS_REGION="ap-south-1"), by(region=None, AWS_DEFAULT_REGION="sa-east-1"),
    # Names of buckets, and where they stand
    by(path_style=True), by(path_style=False), by("a.b.c"), by("a.b.c", path_style=True),
    by("Bucket_1"), by("0bucket-9", path_style=True), by("b", OWN, path_style=False),
    by("point-abcdefghijklmnopqrstuvwxyz1234-s3alias"), by("a.b", TLS),
    # Other endpoints
    *[by(url=url) for url in (
        OWN, f"{TLS}:9443/a", TLS, f"{TLS}:9443", f"{TLS}:443", "http://store.example:80",
        "http://store.example:443", f"{OWN}/a/path", f"{OWN}/a/path/", f"{OWN}/",
        "http://Store.Example:9000", "http://localhost:4566", "http://[::1]:9000",
        "https://[2001:DB8::1]:9443", "http://[2001:db8::1]",
        "https://bucket.vpce-1a2b3c4d-5e6f.s3.eu-north-1.vpce.amazonaws.com")],
    by(url="http://store.example", path_style=False), by(url=f"{TLS}/below", path_style=False),
    *[by(url=url, path_style=False) for url in (OWN, "http://[::1]:9000")],  # addresses
    by(url=OWN, region="garage"), by(url="https://a.r2.cloudflarestorage.com", region="auto"),
    by(url="https://storage.googleapis.com", region="auto"),
    by(AWS_ENDPOINT_URL=OWN, session_token="t"), by(AWS_ENDPOINT_URL_S3="https://s3.example:1"),
    by(AWS_ENDPOINT_URL=OWN, AWS_IGNORE_CONFIGURED_ENDPOINT_URLS="true"),
    # Who asks
    *[by(url=url, session_token="token/+=" * 20, path_style=style)
      for url in (None, OWN, TLS) for style in (None, True)],
    by(anonymous=True, **NOBODY), by(url=OWN, anonymous=True, **NOBODY),
    by(requester_pays=True), by(url=OWN, requester_pays=True), by(user_agent="etl/1.0 (the table)"),
    *[by(**NOBODY, AWS_ACCESS_KEY_ID="AKIAENVIRONMENT00", AWS_SECRET_ACCESS_KEY="another secret",
         **tokens) for tokens in (
        {"AWS_SESSION_TOKEN": "environment's/token"}, {"AWS_SECURITY_TOKEN": "one"}, {},
        {"AWS_SESSION_TOKEN": "one", "AWS_SECURITY_TOKEN": "other"},
        {"AWS_SESSION_TOKEN": "one", "AWS_SECURITY_TOKEN": ""})],
    by(AWS_LAMBDA_FUNCTION_NAME="f", _X_AMZN_TRACE_ID="Root=1-5"),
    by(AWS_REQUEST_CHECKSUM_CALCULATION="x"),
    # Encryption
    by(encryption="AES256"), by(encryption="aws:kms"), by(encryption="aws:kms", kms_key_id=KMS),
    by(encryption="aws:kms:dsse", kms_key_id=KMS),
    by(url=OWN, encryption="aws:kms", kms_key_id="a key"),
    *[by(url=url, encryption="SSE-C", sse_customer_key=bytes(range(32))) for url in (None, TLS)],
    by(encryption="aws:kms", kms_key_id=KMS, requester_pays=True, session_token="x" * 300),
]  # fmt: skip
KEYS = (
    "plain/key.parquet", "with a space", "two//slashes", "plus+percent%25", "til~de!*'()",
    "dt=2026-11-22/part", "ünïcödé/日本語/🙂", "what?#&;=@:,$", "/leading/slash", "a/../b/./c",
    "..", "./", 'quote"back\\slash<>', "tab\tnew\nline", "a" * 1000,
)  # fmt: skip
KEY, ID = "magic-committer/a b+~%c?d#e&f=g/é", "an id/+~="
WITHOUT_KEY = ("ListMultipartUploads", "ListObjectsV2", "DeleteObjects")
MAKES_OBJECTS = ("PutObject", "CreateMultipartUpload")
TAKES_CUSTOMERS_KEY = (
    "UploadPart", "ListParts", "CompleteMultipartUpload", "GetObject", "HeadObject",
)  # fmt: skip
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
        "CopySourceIfMatch": '"e"',
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


@pytest.mark.parametrize(
    ("way", "works"),
    [(by(url=OWN), True), (by(AWS_IGNORE_CONFIGURED_ENDPOINT_URLS="true"), True), (by(), False)],
)
def test_endpoints_of_a_profile_are_not_asked_for_in_vain(
    way: Way, works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another one is given, or they are ignored, what they say may be wrong, as for the SDK;
    otherwise it is an error of the settings."""
    (tmp_path / "config").write_text("[default]\nservices = missing\n")
    for name, value in {**way.environment, "AWS_CONFIG_FILE": str(tmp_path / "config")}.items():
        monkeypatch.setenv(name, value)
    if works:
        theirs = ViaBoto3(way.bucket, way.options).client.meta.endpoint_url
        assert Fast(way.bucket, way.options, HurriedClock()).endpoint == theirs
    else:
        with pytest.raises(OptionError, match="missing"):
            Fast(way.bucket, way.options, HurriedClock())


@pytest.mark.parametrize("row", range(len(WAYS)))
def test_every_request_is_the_sdks_own(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every way and operation, and odd keys: method, URL, headers, body and signature are what
    the SDK would send at the same time; and so is what is not signed."""
    assert set(PROBES) == set(OPERATIONS)
    moment = MOMENT + timedelta(days=row % 3, hours=row)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: moment)
    for name in ("v4", "s3v4"):  # where awscrt is installed, the SDK would sign with that
        monkeypatch.setitem(botocore.auth.AUTH_TYPE_MAPS, name, botocore.auth.S3SigV4Auth)
    bucket, options, environment = WAYS[row]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    clock = HurriedClock()
    monkeypatch.setattr(clock, "now", moment.timestamp)
    theirs = ViaBoto3(bucket, options).client
    ours = Fast(bucket, options, clock)
    if "aws-global" not in theirs.meta.endpoint_url:  # no request goes there
        assert ours.endpoint == theirs.meta.endpoint_url.rstrip("/")
    payer = {"RequestPayer": "requester"} if options.requester_pays else {}
    customers = customer_key_headers(options)
    encryption = encryption_headers(options, customers)
    for column, (operation, probe) in enumerate(PROBES.items()):
        more = encryption if operation in MAKES_OBJECTS else {}
        more = customers if operation in TAKES_CUSTOMERS_KEY else more
        # The first way meets every key; the others take turns.
        keys = KEYS if row == 0 else (KEYS[(row + column) % len(KEYS)], KEYS[row % len(KEYS)])
        for key in keys:
            named = {"Key": key} if operation not in WITHOUT_KEY else {}
            wanted = {**named, **payer, **probe, **more}
            request = prepared(theirs, operation, {"Bucket": bucket, **wanted})
            body = wanted.pop("Body", b"")
            made = ours.request(Call("", operation, key, wanted, body))
            assert made.method == request.method
            assert in_order(f"{made.origin.url}{made.target}") == in_order(request.url)
            assert seen(made.headers) == seen(request.headers.items())
            assert ("authorization" in seen(made.headers)) is not options.anonymous
            sent = request.body if isinstance(request.body, bytes) else body
            assert made.body == (sent or b"")


@pytest.mark.parametrize(
    "parameters",
    [
        {"Key": ""}, {"Key": "half a \ud800 character"}, {"ContentType": " padded"},
        {"ContentType": "ünïcode"}, {"ContentType": "two\nlines"}, {"Metadata": {"a": "é"}},
        {"Metadata": {"a b": "c"}}, {"Metadata": {"a": "1", "A": "2"}}, {"IfMatch": None},
        {"NoSuchParameter": "1"}, {"MultipartUpload": {"Parts": [{"ETag": "a\x00b"}]}},
        {"Delete": {"Objects": [{"Key": "a\x08b"}]}},
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_not_sent(parameters: dict[str, Any]) -> None:
    """A padded value, text that is not ASCII in a header, what XML cannot hold, a parameter that is
    not known: no request is built."""
    with pytest.raises(NoAnswer):
        build(Call("put", "PutObject", "k", parameters), Fast("b", BASE, HurriedClock())._there)


def signed(moment: datetime, secret: str) -> list[tuple[str, str]]:
    """The headers of a request that was signed."""
    made = HttpRequest("GET", origin_of(TLS), "/b/k", [("x-amz-meta-z", "1")])
    keys = signing.Credentials("AKIA", secret, f"token of {secret}")
    moment_said = signing.stamp(int(moment.timestamp()))
    signing.sign(made, signing.EMPTY_SHA256, keys, "eu-north-1", moment_said)
    return made.headers


def test_a_kept_key_is_that_of_the_day_and_of_the_secret() -> None:
    """A kept key signs as a new one does (which is the SDK's, as above) to the second around
    midnights, with secrets that change every hour or back and forth, and on a clock that is set
    back or forth by days."""
    midnight = datetime(2026, 11, 23, tzinfo=UTC)
    rows = [(3600.0 * hour, f"secret {hour}") for hour in range(-2, 26)]
    rows += [(86400.0 * day + second, "one") for day in (0, 1) for second in (-2, -1, 0, 1, 2)]
    rows += [(60.0, secret) for secret in ("one", "two", "one", "one", "two")]
    rows += [(3600.0 * hours, "one") for hours in (0, 1, -1, 72, 0, -200, 24)]
    asked = [(midnight + timedelta(seconds=seconds), secret) for seconds, secret in rows]
    kept = [signed(*one) for one in asked]
    for one, headers in zip(asked, kept, strict=True):
        signing._key.cache_clear()
        assert signed(*one) == headers, one
