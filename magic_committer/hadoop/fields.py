"""What each field of Hadoop's files may hold; `formats` combines these rules.

Each function takes a document and a field's name. It gives the value or raises `Invalid`.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import Any

import orjson

from magic_committer.hadoop import json
from magic_committer.hadoop.json import Invalid, Reader
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


def version(wanted: int) -> Reader:
    """The file's version; a missing one is accepted, as in Hadoop."""

    def read(document: Mapping[str, Any], name: str) -> None:
        if name in document and json.integer(document, name) != wanted:
            raise Invalid(name, f"is {document[name]}, known is {wanted}")

    return read


def success_name(document: Mapping[str, Any], name: str) -> None:
    """The format of a `_SUCCESS`; a missing name is accepted, as from Hadoop 3.3.5 on."""
    if name in document and json.text(document, name) != SUCCESS_NAME:
        raise Invalid(name, f"is {document[name]!r}, not {SUCCESS_NAME!r}")


def _plain(document: Mapping[str, Any], name: str) -> str:
    value = json.text(document, name)
    if not value:
        raise Invalid(name, "is empty")
    if found := _CONTROL.search(value):
        raise Invalid(name, f"has the control character {found[0]!r}")
    return value


def upload_id(document: Mapping[str, Any], name: str) -> str:
    """An upload's id."""
    value = _plain(document, name)
    if len(value) > UPLOAD_ID_CHARS_MAX:
        raise Invalid(name, f"has {len(value)} characters, at most {UPLOAD_ID_CHARS_MAX} are read")
    return value


def bucket(document: Mapping[str, Any], name: str) -> str:
    """A bucket's name, or the URL of a directory."""
    value = _plain(document, name)
    if "/" in value and not is_tree(value):
        raise Invalid(name, "has a '/'")
    return value


def key(document: Mapping[str, Any], name: str) -> str:
    """An object's key."""
    value = _plain(document, name)
    if value.startswith("/"):
        raise Invalid(name, "begins with '/'")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(name, "has half of a character (a lone surrogate)") from None
    if size > KEY_BYTES_MAX:
        raise Invalid(name, f"has {size} bytes, S3 takes {KEY_BYTES_MAX}")
    return value


def uri(document: Mapping[str, Any], name: str) -> str:
    """A URI, as far as its path matters."""
    value = _plain(document, name)
    if not JAVA_URI.match(value):
        raise Invalid(name, "is no URI that Java could read")
    return value


def length(document: Mapping[str, Any], name: str) -> int:
    """Bytes of an object."""
    return json.integer(document, name, low=0)


def moment(document: Mapping[str, Any], name: str) -> int:
    """Milliseconds since the epoch; 0 if nobody noted them."""
    return json.integer(document, name, 0)


def note(document: Mapping[str, Any], name: str) -> str:
    """A text that nothing depends on."""
    return json.text(document, name, "")


def success_flag(document: Mapping[str, Any], name: str) -> bool:
    """True, unless the file says otherwise."""
    return json.boolean(document, name, True)


def statistics(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Statistics. They are not checked, because nothing depends on them."""
    value = json.mapping(document, name)
    # The five empty maps of each commit of a set are one value in memory.
    same = value == EMPTY_STATISTICS and tuple(value) == tuple(EMPTY_STATISTICS)
    return EMPTY_STATISTICS if same else value


def metrics(document: Mapping[str, Any], name: str) -> dict[str, int]:
    """Counters that nothing depends on. For a fraction, the whole part, as Hadoop reads it."""
    values = json.mapping(document, name)
    whole = {k: int(v) if isinstance(v, float) else v for k, v in values.items()}
    return json.integers({name: whole}, name)


def diagnostics(document: Mapping[str, Any], name: str) -> dict[str, str]:
    """Texts; for a number or true, its JSON, as Hadoop reads it."""
    values = json.mapping(document, name)
    scalar = (bool, int, float)
    told = {k: orjson.dumps(v).decode() if isinstance(v, scalar) else v for k, v in values.items()}
    return json.texts({name: told}, name)


def filenames(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of strings."""
    values = json.array(document, name, [])
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise Invalid(f"{name}[{index}]", "is not a string")
    return tuple(values)


def part_etag(document: Mapping[str, Any], name: str) -> str:
    """A part's ETag, with or without quotes."""
    value = json.text(document, name)
    if not ETAG.match(value):
        raise Invalid(name, f"is no ETag: {value[:64]!r}")
    return value


def checksum(document: Mapping[str, Any], name: str) -> str | None:
    """A part's checksum: base64, with the size of the algorithm; None without an algorithm."""
    value = json.nullable_text(document, name)
    algorithm = document.get("checksumAlgorithm")
    if (value is None) != (algorithm is None):
        raise Invalid(name, "and its algorithm go together")
    if value is None:
        return None
    try:
        size = len(binascii.a2b_base64(value.encode("ascii"), strict_mode=True))
    except ValueError:
        raise Invalid(name, "is not base64") from None
    if size != CHECKSUM_BYTES.get(str(algorithm), size):
        raise Invalid(name, f"has {size} bytes, which is no {algorithm}")
    return value
