"""S3's requests: for each operation its method, and where each parameter stands. Pure.

The names are S3's own, as its API reference and the SDK have them. `build` writes what the SDK
would send, header for header and byte for byte; the tests compare each operation with the SDK,
through all kinds of endpoints (``tests/transport/test_requests_are_the_sdks.py``). Text that can be
written in two ways, or not at all, is a failure (`Cause.PARAMETER`): it is never sent.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args
from urllib.parse import quote

from magic_committer.runtime.threads import Errand
from magic_committer.stores.base import ChecksumAlgorithm, FileSlice, PartBody
from magic_committer.stores.s3.http import DOCUMENT_BYTES_MAX, HttpRequest, Origin, unwritten
from magic_committer.stores.s3.signing import EMPTY_SHA256

Parameters = Mapping[str, Any]

CHECKSUM_FIELDS: Mapping[ChecksumAlgorithm, str] = {
    name: f"Checksum{name}" for name in get_args(ChecksumAlgorithm)
}

OPERATIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "CreateMultipartUpload": ("POST", ("uploads",)),
    "UploadPart": ("PUT", ()),
    "UploadPartCopy": ("PUT", ()),
    "CompleteMultipartUpload": ("POST", ()),
    "AbortMultipartUpload": ("DELETE", ()),
    "ListParts": ("GET", ()),
    "ListMultipartUploads": ("GET", ("uploads",)),
    "ListObjectsV2": ("GET", ("list-type=2", "encoding-type=url")),
    "PutObject": ("PUT", ()),
    "GetObject": ("GET", ()),
    "HeadObject": ("HEAD", ()),
    "DeleteObject": ("DELETE", ()),
    "DeleteObjects": ("POST", ("delete",)),
}
"""For each operation its HTTP method, and what its query always has."""

_QUERY = {
    "UploadId": "uploadId",
    "PartNumber": "partNumber",
    "PartNumberMarker": "part-number-marker",
    "Prefix": "prefix",
    "Delimiter": "delimiter",
    "KeyMarker": "key-marker",
    "UploadIdMarker": "upload-id-marker",
    "ContinuationToken": "continuation-token",
    "StartAfter": "start-after",
    "VersionId": "versionId",
}
_HEADERS = {
    "ACL": "x-amz-acl",
    "CacheControl": "Cache-Control",
    "ChecksumAlgorithm": "x-amz-checksum-algorithm",
    "ChecksumType": "x-amz-checksum-type",
    "ContentDisposition": "Content-Disposition",
    "ContentEncoding": "Content-Encoding",
    "ContentMD5": "Content-MD5",
    "ContentType": "Content-Type",
    "CopySourceIfMatch": "x-amz-copy-source-if-match",
    "CopySourceRange": "x-amz-copy-source-range",
    "IfMatch": "If-Match",
    "IfNoneMatch": "If-None-Match",
    "MpuObjectSize": "x-amz-mp-object-size",
    "RequestPayer": "x-amz-request-payer",
    "SSECustomerAlgorithm": "x-amz-server-side-encryption-customer-algorithm",
    "SSECustomerKey": "x-amz-server-side-encryption-customer-key",
    "SSECustomerKeyMD5": "x-amz-server-side-encryption-customer-key-MD5",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "StorageClass": "x-amz-storage-class",
    "Tagging": "x-amz-tagging",
    **{name: f"x-amz-checksum-{kind.lower()}" for kind, name in CHECKSUM_FIELDS.items()},
}
_METADATA = "x-amz-meta-"
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_UNQUOTED = re.compile(r"[A-Za-z0-9._~-]*")
_UNQUOTED_PATH = re.compile(r"[A-Za-z0-9._~/-]*")
_TEXT = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN_IN_XML = re.compile(r"[ -%'-;=?-~]*")
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class BucketPlace(NamedTuple):
    """Where a bucket is: its server, what comes before the key, and the region that signs."""

    origin: Origin
    path: str
    region: str


@dataclass(slots=True)
class Call:
    """One request to the store."""

    verb: str  # the port's
    operation: str  # S3's name of it
    key: str  # or the prefix of a listing; "" if there is none, or many
    parameters: Parameters  # without the bucket
    body: bytes | PartBody = b""
    bytes_max: int = DOCUMENT_BYTES_MAX  # how long a successful answer may be
    conflict_final: bool = False  # a 409 is an answer (a conditional Complete, S3 API)
    once: bool = False  # it is sent once
    errand: Errand | None = None  # it ends with this one; None: with the present one


def build(call: Call, place: BucketPlace) -> HttpRequest:
    """Write the request of an operation, unsigned. Raises `NoAnswer`: a parameter cannot be
    written, or is none of the operation's."""
    operation, parameters, body = call.operation, call.parameters, call.body
    method, always = OPERATIONS[operation]
    path = ""
    query = [*always]
    headers: list[tuple[str, str]] = []
    for name, value in parameters.items():
        if name in _QUERY:
            query.append(f"{_QUERY[name]}={_quoted(name, value, '')}")
        elif name in _HEADERS:
            headers.append((_HEADERS[name], _plain(name, value)))
        elif name == "Key":
            if not value:
                raise unwritten("an object's key has at least one character")
            path = _quoted(name, value, "/")
        elif name == "CopySource":
            headers.append(("x-amz-copy-source", _quoted(name, value, "/")))
        elif name == "Metadata":
            headers += _metadata(value)
        elif name == "MultipartUpload":
            body = complete_document(value["Parts"])
        elif name == "Delete":
            body = delete_document(value)
            crc = zlib.crc32(body).to_bytes(4, "big")
            headers.append(("x-amz-sdk-checksum-algorithm", "CRC32"))
            headers.append(("x-amz-checksum-crc32", base64.b64encode(crc).decode()))
        else:
            raise unwritten(f"{operation} has no parameter {name}")
    query.sort()  # as the signature wants them
    target = f"{place.path}/{path}" if path else place.path or "/"
    if query:
        target = f"{target}?{'&'.join(query)}"
    return HttpRequest(method, place.origin, target, headers, body, call.bytes_max)


def complete_document(parts: Sequence[Parameters]) -> bytes:
    """The body of Complete."""
    rows = [
        "".join([f"<{name}>{_escaped(name, value)}</{name}>" for name, value in part.items()])
        for part in parts
    ]
    inside = "".join([f"<Part>{row}</Part>" for row in rows])
    root = "CompleteMultipartUpload"
    return f'<{root} xmlns="{_NAMESPACE}">{inside}</{root}>'.encode()


def delete_document(wanted: Parameters) -> bytes:
    """The body of DeleteObjects."""
    rows = "".join(
        [f"<Object><Key>{_escaped('Key', one['Key'])}</Key></Object>" for one in wanted["Objects"]]
    )
    return f'<Delete xmlns="{_NAMESPACE}">{rows}<Quiet>true</Quiet></Delete>'.encode()


def sha256_of(body: bytes | PartBody) -> str:
    """The SHA-256 of a body in hex. Reads a file's slice."""
    if not isinstance(body, FileSlice):
        return hashlib.sha256(body).hexdigest() if len(body) else EMPTY_SHA256
    digest = hashlib.sha256()
    for piece in body.pieces():
        digest.update(piece)
    return digest.hexdigest()


def _text(name: str, value: object) -> str:
    if isinstance(value, int):
        return str(value)
    raise unwritten(f"{name} is text, not {value!r}")


def _plain(name: str, value: object) -> str:
    text = value if isinstance(value, str) else _text(name, value)
    if not _TEXT.fullmatch(text):
        raise unwritten(
            f"{name} is {text!r}: a header holds printable ASCII characters without spaces around"
        )
    return text


def _quoted(name: str, value: object, beside: str) -> str:
    text = value if isinstance(value, str) else _text(name, value)
    if (_UNQUOTED_PATH if beside else _UNQUOTED).fullmatch(text):
        return text
    try:
        return quote(text, safe=f"-._~{beside}")
    except UnicodeEncodeError as error:
        raise unwritten(f"{text!r} is no text: {error.reason}") from None


def _escaped(name: str, value: object) -> str:
    text = value if isinstance(value, str) else _text(name, value)
    if _PLAIN_IN_XML.fullmatch(text):
        return text
    if _NOT_IN_XML.search(text):
        raise unwritten(f"{name} is {text!r}: XML cannot hold one of its characters")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#xD;").replace("\n", "&#xA;")


def _metadata(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if len({name.lower() for name in values}) < len(values):
        raise unwritten("two names of metadata differ in case only")
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise unwritten(f"{name!r} is no name of metadata")
        yield f"{_METADATA}{name}", _plain(f"metadata {name!r}", value) if value else ""
