"""S3's answers: what they say, and whether they are S3's at all. Pure.

Between a program and its store there are proxies, login pages, and load balancers whose backend is
gone. They answer instead of the store: a page with status 200, a 404 in plain text, an empty body.
If the library believed it, each of these would be a lie: an object without an ETag, a listing
without entries, "deleted". So an answer that is not S3's is none (`Cause.UNREADABLE`). The
request is tried again and ends in `Unanswered`: **a write whose answer cannot be read may have
taken effect.**

* A document must have the root that S3 gives for that operation. Otherwise a page that happens to
  be XML would be an empty listing.
* The values that the library needs must be there, once: ETag, upload id, size, time.
* 404 counts only with S3's error document, or for HEAD, which has none. A load balancer without a
  backend answers 404 too, and "not there" is a fact by which a job is decided.
* A success without a document of its own (PUT, DELETE, Abort) must not carry a page.
* An answer must say where it ends, an ETag that begins with a quote must end with one, and a date
  must have its zone.
* An error document with status 200 counts as a 500, as in the SDK (S3 API, Complete).

A key may have characters that XML does not hold, and S3 writes them all the same: such a document
is read. Otherwise anybody's upload would stop all listings of its prefix. We list no uploads
with ``encoding-type=url``: Ceph RGW then encodes keys and does not say so.

Both ways to the store read their answers here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from magic_committer.stores.s3.http import Answer, Cause, Failure, NoAnswer, Sent
from magic_committer.stores.s3.requests import CHECKSUM_FIELDS

Reply = dict[str, Any]
"""What an answer says, by S3's names: texts, numbers, times in seconds, lists of entries; and
``SeenAt``, its date, or None."""

SHOWN_BYTES_MAX = 80
"""How many bytes of a strange answer an error shows."""
METADATA = "x-amz-meta-"
_PARTIAL = 206
"""We never ask for a range: the whole object was requested, and a piece came."""


@dataclass(eq=False)
class Refused(Failure):
    """The store has answered with an error."""

    cause, sent, where = None, Sent.ANSWERED, ""
    status: int
    code: str  # the status, where the answer has no document
    why: str
    request_id: str = ""
    region: str = ""  # that it names


class _Strange(Exception):
    """What came is not from S3, or it answers another request."""


class _Document(NamedTuple):
    """What a success says."""

    root: str  # of its document, without ``Result`` or ``Response``; "": its head says it all
    needs: tuple[str, ...] = ()  # what must be there
    more: tuple[str, ...] = ()  # what else is read of a document
    lists: Mapping[str, tuple[str, ...]] = {}  # what may be there often, and must have of its own


_PAGE = (
    "IsTruncated", "EncodingType", "NextContinuationToken", "NextKeyMarker", "NextUploadIdMarker",
    "NextPartNumberMarker",
)  # fmt: skip
_ANSWERS: Mapping[str, _Document] = {
    "CreateMultipartUpload": _Document("InitiateMultipartUpload", ("UploadId",)),
    # Complete's answer may lack its ETag (Ceph RGW): HEAD has it.
    "CompleteMultipartUpload": _Document("CompleteMultipartUpload", (), ("ETag",)),
    "UploadPartCopy": _Document("CopyPart", ("ETag",), tuple(CHECKSUM_FIELDS.values())),
    "ListParts": _Document("ListParts", (), _PAGE, {"Part": ("PartNumber", "Size", "ETag")}),
    "ListMultipartUploads": _Document(
        "ListMultipartUploads", (), _PAGE, {"Upload": ("Key", "UploadId")}
    ),
    "ListObjectsV2": _Document(
        "ListBucket",
        (),
        _PAGE,
        {"Contents": ("Key", "Size", "LastModified"), "CommonPrefixes": ("Prefix",)},
    ),
    "DeleteObjects": _Document("Delete", (), (), {"Error": ("Key",)}),
    "PutObject": _Document("", ("ETag",)),
    "UploadPart": _Document("", ("ETag",)),
    "DeleteObject": _Document(""),
    "AbortMultipartUpload": _Document(""),
    "HeadObject": _Document("", ("ETag", "LastModified", "ContentLength")),
    "GetObject": _Document("", ("ETag", "LastModified")),
}
_HEADS: Mapping[str, str] = {
    "etag": "ETag",
    "x-amz-version-id": "VersionId",
    **{f"x-amz-checksum-{kind.lower()}": name for kind, name in CHECKSUM_FIELDS.items()},
}
"""Headers whose text is the value."""
_NUMBERS = frozenset(("Size", "PartNumber", "NextPartNumberMarker"))
_TIMES = frozenset(("LastModified", "Initiated"))
_PEOPLE = frozenset(("Owner", "Initiator"))
_PHRASES = {one.value: one.phrase for one in HTTPStatus}
_BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?<[\w.-]")
_FLAT = re.compile(
    rb"""\s*(?:<\?xml version=(["'])1\.0\1(?: encoding=(["'])(?i:utf-8)\2)? ?\?>[ \t\r\n]*)?"""
    rb"""<([A-Za-z]\w*)(?:[ ]xmlns="[ !#-%'-;=?-~]*")?>((?:[ \t\r\n]*"""
    rb"""<([A-Za-z]\w*)>(?:[ -%'-;=?-~]++|&quot;|&#34;)*+</\5>)++)[ \t\r\n]*</\3>\s*"""
)
_PAIR = re.compile(r"<(\w+)>([^<]*)</")
"""A document of texts alone, in plain ASCII but for the quotes of ETags, as the answers to Create
and Complete are. It is read without a parser, which takes thrice the time."""
_NOT_XML = re.compile(
    rb"&#(?:x([0-9a-fA-F]+)|([0-9]+));|[\0-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]"
)
"""What XML does not hold, as it is or by its number."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_ZONE = re.compile(r"(?:GMT|UTC|Z|[+-]\d\d:?\d\d)$")


def read(operation: str, answer: Answer) -> Reply:
    """Read the answer to an operation; of a rare one the SDK has, and its ``Document`` is beside.
    Raises `Refused`: the store's error; `NoAnswer`: it is not S3's (`Cause.UNREADABLE`), or it is,
    and its body was not read (`Cause.LARGE`)."""
    if answer.parsed is not None:
        return {**answer.parsed, "Document": answer.body}
    try:
        if answer.excess and answer.status != 200:
            raise _Strange(f"the answer has {answer.excess}")
        if answer.status >= 300:
            raise _refusal(operation, answer)
        if answer.status == _PARTIAL:
            raise _Strange("a part of an object came where the whole was asked for")
        wanted = _ANSWERS.get(operation, _Document(""))  # a rare one's, which the SDK did not read
        reply = _read_document(wanted, answer) if wanted.root else _read_head(operation, answer)
        _demand(reply, wanted.needs)
    except _Strange as error:
        raise NoAnswer(Cause.UNREADABLE, Sent.ANSWERED, str(error), status=answer.status) from None
    if answer.excess:
        why = f"it has {answer.excess}"
        raise NoAnswer(Cause.LARGE, Sent.ANSWERED, why, status=answer.status)
    try:
        reply["SeenAt"] = _seconds(answer.headers["date"])  # HTTP demands it
    except (KeyError, ValueError):
        reply["SeenAt"] = None
    return reply


# Heads --------------------------------------------------------------------------------------------


def _read_head(operation: str, answer: Answer) -> Reply:
    headers = answer.headers
    if operation != "GetObject" and answer.body.lstrip()[:1] in (b"<", b"{", b"["):
        if operation != "HeadObject" and _name(_root(answer.body)) == "Error":
            raise _refusal(operation, answer)
        raise _Strange(f"a page where S3 says nothing, {_shown(answer.body)}")
    _look_at_end(operation, answer)
    reply: Reply = {field: headers[name] for name, field in _HEADS.items() if name in headers}
    etag = headers.get("etag", "").removeprefix("W/")
    if etag.startswith('"') and (len(etag) == 1 or not etag.endswith('"')):
        raise _Strange(f"the ETag {etag!r} was cut")
    if operation == "GetObject":
        reply["Body"] = answer.body
    if operation in ("GetObject", "HeadObject"):
        modified = headers.get("last-modified", "")
        if modified and not _ZONE.search(modified):
            raise _Strange(f"the date {modified!r} was cut")
        if modified:
            reply["LastModified"] = _converted("LastModified", modified)
        if "content-length" in headers:
            reply["ContentLength"] = _converted("Size", headers["content-length"])
        reply["Metadata"] = {
            name[len(METADATA) :]: value
            for name, value in headers.items()
            if name.startswith(METADATA)
        }
    return reply


def _look_at_end(operation: str, answer: Answer) -> None:
    if answer.until_close:
        closes = "close" in answer.headers.get("connection", "").lower()
        if operation == "GetObject" or not closes:
            raise _Strange("nothing says where the answer ends")


# Documents ----------------------------------------------------------------------------------------


def _read_document(wanted: _Document, answer: Answer) -> Reply:
    _look_at_end(wanted.root, answer)
    if answer.excess:
        return dict.fromkeys(wanted.needs, answer.excess)
    root = _root(answer.body)
    name = _name(root)
    if name == "Error":
        raise _refusal(wanted.root, answer)
    if root is None or name not in (f"{wanted.root}Result", f"{wanted.root}Response"):
        raise _Strange(f"not the {wanted.root}Result of S3, {_shown(answer.body)}")
    version = answer.headers.get("x-amz-version-id")
    reply: Reply = {} if version is None else {"VersionId": version}
    for one in root:
        name = one.tag.rpartition("}")[2]  # as `_name`, which costs a call
        needs = wanted.lists.get(name)
        if needs is not None:
            entry: Reply = {}
            for value in one:
                _put(entry, _name(value), value)
            _demand(entry, needs, name)
            reply.setdefault(name, []).append(entry)
        elif name in wanted.needs or name in wanted.more:
            _put(reply, name, one)
    reply["IsTruncated"] = reply.get("IsTruncated") == "true"
    if reply.get("EncodingType") == "url":
        for entries, name in (("Contents", "Key"), ("CommonPrefixes", "Prefix")):
            for entry in reply.get(entries, ()):
                entry[name] = unquote_plus(entry[name])
    return reply


def _put(reply: Reply, name: str, element: ElementTree.Element) -> None:
    if name in reply and name != "ChecksumAlgorithm":  # S3 documents that one as a list
        raise _Strange(f"the answer has {name} twice")
    if name in _PEOPLE:
        reply[name] = {_name(one): one.text or "" for one in element}
    else:
        reply[name] = _converted(name, element.text or "")


def _converted(name: str, text: str) -> Any:
    """The value of a text: a number, a time, or the text itself."""
    if name in _NUMBERS:
        if _NUMBER.fullmatch(text):
            return int(text)
        if name == "NextPartNumberMarker" and not text:
            return 0
    elif name in _TIMES:
        try:
            return _seconds(text)
        except ValueError:
            pass
    else:
        return text
    raise _Strange(f"the answer's {name} is {text!r}")


@lru_cache(maxsize=4096)
def _seconds(text: str) -> float:
    """A time in seconds since the epoch. One without a zone is UTC, as all times of S3 are. Raises
    `ValueError`: it is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = parsedate_to_datetime(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _demand(reply: Mapping[str, Any], needs: tuple[str, ...], entry: str = "") -> None:
    for name in needs:
        if reply.get(name) in (None, ""):
            raise _Strange(f"{f'an entry of {entry}' if entry else 'the answer'} has no {name}")


# Errors -------------------------------------------------------------------------------------------


def _refusal(operation: str, answer: Answer) -> Refused:
    """The error that an answer is."""
    status, body, headers = answer.status, answer.body, answer.headers
    told: dict[str, str] = {}
    root = _root(body)
    if root is not None and _name(root) == "ErrorResponse":
        root = next((one for one in root if _name(one) == "Error"), None)
    if root is not None and _name(root) == "Error":
        for one in root:
            name = _name(one)
            if name in ("Code", "Message") and (name in told or len(one)):
                raise _Strange(f"the error cannot be read: {_shown(body)}")
            told[name] = one.text or ""
    elif status == 404 and operation != "HeadObject":
        raise _Strange(f"a 404 without S3's error document, {_shown(body)}")
    else:
        told = {"Code": str(status), "Message": _PHRASES.get(status, "")}
    request_id = headers.get("x-amz-request-id") or headers.get("x-amzn-requestid")
    return Refused(
        500 if status < 300 else status,
        told.get("Code", ""),
        told.get("Message", ""),
        request_id or told.get("RequestId", ""),
        headers.get("x-amz-bucket-region") or told.get("Region", ""),
    )


def _root(body: bytes) -> ElementTree.Element | None:
    """A document's root; None: it cannot be read, or may define what its texts mean, which S3's
    never does."""
    if (flat := _FLAT.fullmatch(body)) is not None:
        made = ElementTree.Element(flat[3].decode())
        texts = flat[4].decode().replace("&quot;", '"').replace("&#34;", '"')
        for name, text in _PAIR.findall(texts):
            ElementTree.SubElement(made, name).text = text
        return made
    if not _BEGINNING.match(body):
        return None
    with suppress(ElementTree.ParseError):
        return _parsed(body)
    with suppress(ElementTree.ParseError, ValueError, OverflowError):
        sign = next(c for c in map(chr, range(0xE000, 0xF900)) if c.encode() not in body)
        root = _parsed(_NOT_XML.sub(partial(_escaped, sign), body))
        for one in root.iter():
            if sign in (text := one.text or ""):
                one.text = re.sub(f"{sign}(.+?);", lambda found: chr(int(found[1])), text)
        return root
    return None


def _parsed(body: bytes) -> ElementTree.Element:
    parser = ElementTree.XMLParser(encoding="utf-8")  # as the SDK: whatever the document says
    parser.feed(body.strip())
    root: ElementTree.Element = parser.close()
    return root


def _escaped(sign: str, found: re.Match[bytes]) -> bytes:
    """A character of an answer by its number, behind a sign. Raises `ValueError`: there is no such
    character."""
    in_hex, in_tens = found.groups()
    number = int(in_hex or in_tens, 16 if in_hex else 10) if in_hex or in_tens else None
    letter = found[0].decode() if number is None else chr(number)
    letter.encode()
    return f"{sign}{ord(letter)};".encode()


def _name(element: ElementTree.Element | None) -> str:
    """An element's name without its namespace."""
    return "" if element is None else element.tag.rpartition("}")[2]


def _shown(body: bytes) -> str:
    if not body.strip():
        return "but nothing"
    return f"but {body.strip()[:SHOWN_BYTES_MAX].decode('utf-8', 'replace')!r}"
