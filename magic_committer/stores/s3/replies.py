"""Checks that an answer comes from S3, before anything is read from it.

Between a program and its store there are proxies, login pages, and load balancers whose backend is
gone. They answer instead of the store: a page with status 200, a 404 in plain text, an empty body.
The SDK accepts such an answer as far as it can and leaves out what is not there: it gives an object
without an ETag, a listing without entries, "deleted". If the library believed it, each of these
would be a lie.

So the parsers of the SDK are wrapped (`session`). An answer that is not S3's raises `Unreadable`.
The request is tried again and ends in `Unanswered`: **a write whose answer cannot be read may have
taken effect.**

* A document must have the root that S3 gives for that verb. Otherwise a page that happens to be XML
  would be an empty listing.
* The values that the library needs must be there: ETag, upload id, size, time.
* 404 counts only with S3's error document, or for HEAD, which has none. A load balancer without a
  backend answers 404 too, and "not there" is a fact by which a job is decided.
* A success without a document of its own (PUT, DELETE, Abort) must not carry a page.
* The HTTP library takes a head that was cut for a whole one. So an answer must say where it ends,
  an ETag that begins with a quote must end with one, and a date must have its zone.
* If the SDK fails while it reads an answer (a size that is no number, a wrong date), the answer
  cannot be read. It is no error of this program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import botocore.session
from botocore.parsers import ResponseParserError, ResponseParserFactory

BEGINNING_BYTES_MAX = 80
"""How many bytes of a strange answer an error shows."""

_ROOTS: Mapping[str, str] = {
    "ListObjectsV2": "ListBucket",
    "ListParts": "ListParts",
    "ListMultipartUploads": "ListMultipartUploads",
    "CreateMultipartUpload": "InitiateMultipartUpload",
    "CompleteMultipartUpload": "CompleteMultipartUpload",
    "DeleteObjects": "Delete",
}
"""The SDK's name of a verb, and the root of its answer: with "Result" (S3 API), or with "Response"
(moto, and servers that follow S3's older SOAP)."""

_BARE = frozenset(("PutObject", "UploadPart", "DeleteObject", "AbortMultipartUpload"))
"""Answers without a document."""

_HEADED: Mapping[str, tuple[str, ...]] = {
    "GetObject": ("ETag", "LastModified"),
    "HeadObject": ("ETag", "LastModified", "ContentLength"),
    "PutObject": ("ETag",),
    "UploadPart": ("ETag",),
    "CreateMultipartUpload": ("UploadId",),
}
"""What must be in an answer. Complete's answer may lack its ETag (Ceph RGW): HEAD has it."""

_ENTRIES: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "ListObjectsV2": (
        ("Contents", ("Key", "Size", "LastModified")),
        ("CommonPrefixes", ("Prefix",)),
    ),
    "ListParts": (("Parts", ("PartNumber", "Size", "ETag")),),
    "ListMultipartUploads": (("Uploads", ("Key", "UploadId")),),
    "DeleteObjects": (("Errors", ("Key",)),),
}
"""What must be in each entry of an answer's lists."""

_OURS = frozenset((*_ROOTS, *_BARE, *_HEADED))
_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?<(?:[\w.-]+:)?([\w.-]+)")
_ZONE = re.compile(r"(?:GMT|UTC|Z|[+-]\d\d:?\d\d)$")
_PARTIAL = 206
"""We never ask for a range: the whole object was requested, and a piece came."""


class Unreadable(ResponseParserError):  # type: ignore[misc]  # botocore ships no types
    """The answer is not from S3, or it answers another request.

    Attributes:
        status: its HTTP status.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return (Unreadable, (self.status, str(self)))


def session() -> botocore.session.Session:
    """A session of the SDK whose clients check each answer before they believe it."""
    made = botocore.session.get_session()
    made.register_component("response_parser_factory", _Parsers())
    for verb in _OURS:
        # With this name it comes before the SDK's own handler, which makes a 500 of an unreadable
        # 200.
        made.register(f"before-parse.*.{verb}", _look_before)
    return made


class _Parsers(ResponseParserFactory):  # type: ignore[misc]
    def create_parser(self, protocol_name: str) -> _Careful:
        return _Careful(super().create_parser(protocol_name))


class _Careful:
    """A parser of the SDK whose results are checked."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def parse(self, response: Mapping[str, Any], shape: Any) -> Any:
        """Parse as the SDK's ``parse``.

        Raises:
            Unreadable: the answer is not S3's.
        """
        status = int(response["status_code"])
        with _closing(response["body"]):
            try:
                parsed = self._parser.parse(response, shape)
            except Exception as error:  # of any kind: only the answer can be the reason
                why = f"the answer cannot be read ({type(error).__name__}: {error})"
                raise Unreadable(status, why) from error
            told = parsed.get("Error", {}) if status >= 300 else {}
            code = told.get("Code", "") if isinstance(told, Mapping) else None
            if not isinstance(code, str):  # an element twice, or with others inside, or text alone
                raise Unreadable(status, f"the error cannot be read: {told!r}")
            if shape is not None and status < 300:
                look_after(shape.name.removesuffix("Output"), status, parsed)
            return parsed


@contextmanager
def _closing(body: Any) -> Iterator[None]:
    """Close the body of an object that nobody will read: it holds a connection."""
    try:
        yield
    except Unreadable:
        if hasattr(body, "close"):
            body.close()
        raise


def _look_before(operation_model: Any, response_dict: Mapping[str, Any], **_: Any) -> None:
    body = response_dict["body"]
    with _closing(body):
        look_at(
            operation_model.name,
            int(response_dict["status_code"]),
            response_dict["headers"],
            body if isinstance(body, bytes) else b"",
        )


def look_at(verb: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Look at an answer before it is read.

    Args:
        verb: the SDK's name of the verb.
        status, headers, body: the answer; names of headers are found in lower case. The body of an
            object is not looked at: b"".

    Raises:
        Unreadable: the answer is not S3's.
    """
    root = _root(body)
    whole = root == "Error" and body.rstrip().endswith(b"Error>")
    if status == 404 and verb != "HeadObject" and not whole:
        raise Unreadable(status, f"a 404 without S3's error document, {_shown(body)}")
    if status >= 300 or root == "Error":
        return  # the SDK reads it
    if status == _PARTIAL:
        raise Unreadable(status, "a part of an object came where the whole was asked for")
    if verb in _ROOTS and root not in (f"{_ROOTS[verb]}Result", f"{_ROOTS[verb]}Response"):
        raise Unreadable(status, f"not the {_ROOTS[verb]}Result of S3, {_shown(body)}")
    if verb in _BARE and body.lstrip()[:1] in (b"<", b"{", b"["):
        raise Unreadable(status, f"a page where S3 says nothing, {_shown(body)}")
    if status == 200:
        _look_at_head(verb, status, headers)


def _look_at_head(verb: str, status: int, headers: Mapping[str, str]) -> None:
    # The HTTP library ends a body by one of these, and says so if the body was cut.
    ends = "content-length" in headers
    ends = ends or "chunked" in headers.get("transfer-encoding", "").lower()
    closes = verb != "GetObject" and headers.get("connection", "").lower() == "close"
    if not ends and not closes:
        raise Unreadable(status, "nothing says where the answer ends")
    etag = headers.get("etag", "").removeprefix("W/")
    if etag.startswith('"') and (len(etag) == 1 or not etag.endswith('"')):
        raise Unreadable(status, f"the ETag {etag!r} was cut")
    modified = headers.get("last-modified", "")
    if modified and not _ZONE.search(modified):
        raise Unreadable(status, f"the date {modified!r} was cut")


def look_after(verb: str, status: int, parsed: Mapping[str, Any]) -> None:
    """Look at a success that was read. Raises as `look_at`."""
    for field in _HEADED.get(verb, ()):
        _demand(status, parsed, field, "the answer")
    for entries, fields in _ENTRIES.get(verb, ()):
        for one in parsed.get(entries, ()):
            for field in fields:
                _demand(status, one, field, f"an entry of {entries}")
    length = parsed.get("ContentLength", 0)
    if isinstance(length, int) and length < 0:
        raise Unreadable(status, f"Content-Length is {length}")


def _demand(status: int, parsed: Mapping[str, Any], field: str, where: str) -> None:
    value = parsed.get(field)
    if value is None or value == "":
        raise Unreadable(status, f"{where} has no {field}")
    if isinstance(value, int) and value < 0:
        raise Unreadable(status, f"{where} has {field} {value}")


def _root(body: bytes) -> str:
    found = _ROOT.match(body)
    return found[1].decode() if found else ""


def _shown(body: bytes) -> str:
    if not body.strip():
        return "but nothing"
    return f"but {body.strip()[:BEGINNING_BYTES_MAX].decode('utf-8', 'replace')!r}"
