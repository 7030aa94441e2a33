"""What the values of Hadoop's files may be, as types: `formats` says which field has which.

A comment in a pattern is what an error says. What no pattern says is checked here.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from msgspec import Meta, Raw

from magic_committer.hadoop.json import INT64_MAX, INT64_MIN, Invalid
from magic_committer.stores.base import KEY_BYTES_MAX
from magic_committer.stores.urls import is_tree

EMPTY_STATISTICS = Raw(
    b'{"counters":{},"gauges":{},"minimums":{},"maximums":{},"meanstatistics":{}}'
)
"""Those of a commit in a set: the set has them. They are not looked at, as nothing depends on
them."""
CHECKSUM_BYTES = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32}

_PLAIN = r"(?#it is empty, or has a control character)\A[^\x00-\x1f\x7f-\x9f]+\Z"
# What java.net.URI accepts in a path: a raw blank fails in Hadoop.
_URI_TEXT = r'[^\x00-\x20\x7f-\x9f\s"<>\[\]\\^`{|}%]*+'

Int64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Length = Annotated[int, Meta(ge=0, le=INT64_MAX)]
UploadId = Annotated[str, Meta(pattern=_PLAIN, max_length=4096)]
"""Far more than any store uses (AWS: some 130)."""
Text = Annotated[str, Meta(min_length=1)]
Bucket = Annotated[str, Meta(pattern=_PLAIN)]
"""Its name, or the URL of a directory."""
Key = Annotated[
    str,
    Meta(pattern=r"(?#it is empty, begins with '/', or has a control character)\A(?!/)" + _PLAIN),
]
Uri = Annotated[
    str,
    Meta(
        pattern="(?#no URI that Java could read)"
        rf"\A(?!\Z){_URI_TEXT}(?:%[0-9A-Fa-f]{{2}}{_URI_TEXT})*+\Z"
    ),
]
Etag = Annotated[str, Meta(pattern=r'(?#no ETag)\A("?)[!#-~]+\1\Z')]
"""Of a part, with or without quotes."""


def check_key(value: str) -> None:
    """Refuse a key that no store takes."""
    if len(value.encode()) > KEY_BYTES_MAX:
        raise Invalid(
            "destinationKey", f"has {len(value.encode())} bytes, S3 takes {KEY_BYTES_MAX}"
        )


def check_bucket(value: str) -> None:
    """Refuse the name of a bucket with a slash."""
    if "/" in value and not is_tree(value):
        raise Invalid("bucket", f"is {value!r:.64}: it has a '/'")


def check_checksum(algorithm: str | None, value: str | None) -> None:
    """A part's checksum: base64, with the size of the algorithm; None without an algorithm."""
    if (value is None) != (algorithm is None):
        raise Invalid("checksum", "and its algorithm go together")
    if value is None:
        return
    try:
        size = len(binascii.a2b_base64(value.encode("ascii"), strict_mode=True))
    except ValueError:
        raise Invalid("checksum", "is not base64") from None
    if size != CHECKSUM_BYTES.get(str(algorithm), size):
        raise Invalid("checksum", f"has {size} bytes, which is no {algorithm}")


def metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Counters that nothing depends on. For a fraction, the whole part, as Hadoop reads it."""
    return {name: int(v) if isinstance(v, float) else v for name, v in values.items()}


def diagnostics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Texts; for a number or true, its JSON, as Hadoop reads it."""
    scalar = (bool, int, float)
    return {k: orjson.dumps(v).decode() if isinstance(v, scalar) else v for k, v in values.items()}
