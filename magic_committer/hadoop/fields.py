"""What the values of Hadoop's files may be; `formats` says which field has which rule.

Each function checks a value of the right type. It gives the value as it is kept, or raises
`Invalid`.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from magic_committer.hadoop.json import INT64_MAX, INT64_MIN, Invalid
from magic_committer.stores.base import KEY_BYTES_MAX
from magic_committer.stores.urls import is_tree

SUCCESS_NAME = "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"
UPLOAD_ID_CHARS_MAX = 4096
"""Far more than any store uses (AWS: some 130)."""

EMPTY_STATISTICS: Mapping[str, Any] = {
    "counters": {},
    "gauges": {},
    "minimums": {},
    "maximums": {},
    "meanstatistics": {},
}

CHECKSUM_BYTES = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
ETAG = re.compile(r'("?)[!#-~]+\1\Z')
# What java.net.URI accepts in a path: a raw blank fails in Hadoop.
_URI_TEXT = r'[^\x00-\x20\x7f-\x9f\s"<>\[\]\\^`{|}%]*+'
JAVA_URI = re.compile(rf"(?!\Z){_URI_TEXT}(?:%[0-9A-Fa-f]{{2}}{_URI_TEXT})*+\Z")


def one_of_a_kind(wanted: int | str) -> Callable[[Any], None]:
    """The file's version, or the name of its format."""

    def read(value: Any) -> None:
        if value != wanted:
            raise Invalid("", f"is {value!r}, known is {wanted!r}")

    return read


def int64(value: int) -> int:
    """A whole number of 64 bits."""
    if not INT64_MIN <= value <= INT64_MAX:
        raise Invalid("", f"is {value}, not between {INT64_MIN} and {INT64_MAX}")
    return value


def length(value: int) -> int:
    """Bytes of an object."""
    if value < 0:
        raise Invalid("", f"is {value}, not between 0 and {INT64_MAX}")
    return int64(value)


def _plain(value: str) -> str:
    if not value:
        raise Invalid("", "is empty")
    if found := _CONTROL.search(value):
        raise Invalid("", f"has the control character {found[0]!r}")
    return value


def upload_id(value: str) -> str:
    """An upload's id."""
    if len(value) > UPLOAD_ID_CHARS_MAX:
        raise Invalid("", f"has {len(value)} characters, at most {UPLOAD_ID_CHARS_MAX} are read")
    return _plain(value)


def bucket(value: str) -> str:
    """A bucket's name, or the URL of a directory."""
    if "/" in _plain(value) and not is_tree(value):
        raise Invalid("", "has a '/'")
    return value


def key(value: str) -> str:
    """An object's key."""
    if _plain(value).startswith("/"):
        raise Invalid("", "begins with '/'")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid("", "has half of a character (a lone surrogate)") from None
    if size > KEY_BYTES_MAX:
        raise Invalid("", f"has {size} bytes, S3 takes {KEY_BYTES_MAX}")
    return value


def uri(value: str) -> str:
    """A URI, as far as its path matters."""
    if not JAVA_URI.match(_plain(value)):
        raise Invalid("", "is no URI that Java could read")
    return value


def statistics(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Statistics. They are not checked, because nothing depends on them."""
    # The five empty maps of each commit of a set are one value in memory.
    same = value == EMPTY_STATISTICS and tuple(value) == tuple(EMPTY_STATISTICS)
    return EMPTY_STATISTICS if same else value


def texts(values: Mapping[str, Any]) -> Mapping[str, str]:
    """Texts by name."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise Invalid(name, "is not a string")
    return values


def metrics(values: Mapping[str, Any]) -> dict[str, int]:
    """Counters that nothing depends on. For a fraction, the whole part, as Hadoop reads it."""
    whole = {name: int(v) if isinstance(v, float) else v for name, v in values.items()}
    for name, value in whole.items():
        if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
            raise Invalid(name, "is not a whole number of 64 bits")
    return whole


def diagnostics(values: Mapping[str, Any]) -> Mapping[str, str]:
    """Texts; for a number or true, its JSON, as Hadoop reads it."""
    scalar = (bool, int, float)
    return texts(
        {k: orjson.dumps(v).decode() if isinstance(v, scalar) else v for k, v in values.items()}
    )


def filenames(values: list[Any]) -> tuple[str, ...]:
    """A list of strings."""
    return tuple(texts({f"[{index}]": value for index, value in enumerate(values)}).values())


def part_etag(value: str) -> str:
    """A part's ETag, with or without quotes."""
    if not ETAG.match(value):
        raise Invalid("", f"is no ETag: {value[:64]!r}")
    return value


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
