"""Reads the plain case of S3's answers, as the SDK would read it, at a tenth of its cost.

`reply` gives what the SDK's client would give for a success, as far as the library looks at it, or
None: this answer is not plain (an error, a date in another spelling, an element twice). Then the
SDK reads it. So there is no answer that is read in two ways.

Of errors only two are read here, by `missing`: 404 to HEAD, and 404 ``NoSuchUpload`` to ListParts.
They are what is hoped for where something was removed, so there are as many of them as uploads.

The checks of `replies` hold for both: `look_at` before, `look_after` behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from xml.etree import ElementTree

from botocore.compat import unquote_str
from botocore.exceptions import ClientError

from magic_committer.stores.s3 import replies
from magic_committer.stores.s3.http import HTTPAnswer
from magic_committer.stores.s3.values import CHECKSUM_FIELDS, Reply

METADATA = "x-amz-meta-"
_HEADERS: Mapping[str, str] = {
    "etag": "ETag",
    "x-amz-version-id": "VersionId",
    **{f"x-amz-checksum-{name.lower()}": field for name, field in CHECKSUM_FIELDS.items()},
}
"""Headers whose text is the value, and the SDK's names for them."""
_DATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z][a-z] \d{4} \d\d:\d\d:\d\d GMT"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z")
_NUMBER = re.compile(r"[0-9]{1,18}")
_CONTENTS = frozenset(("Key", "Size", "ETag", "LastModified"))
_UPLOAD = frozenset(("Key", "UploadId", "Initiated", "StorageClass", "Owner", "Initiator"))
_PART = frozenset(("PartNumber", "Size", "ETag", *CHECKSUM_FIELDS.values()))
_ERROR = frozenset(("Code", "Message"))
NO_UPLOAD = "NoSuchUpload"
"""The code of a 404 that is about an upload (S3 API, "Error responses")."""
_TOP = frozenset(
    (
        "IsTruncated",
        "EncodingType",
        "NextContinuationToken",
        "NextKeyMarker",
        "NextUploadIdMarker",
        "NextPartNumberMarker",
        "UploadId",
        "ETag",
    )
)


class _Unusual(Exception):
    """The SDK reads this answer."""


def reply(verb: str, answer: HTTPAnswer) -> Reply | None:
    """Read an answer; None if it is not plain.

    Args:
        verb: the SDK's name of a verb: one of `READERS`.
        answer: the answer.

    Raises:
        Unreadable: the answer is not S3's.
    """
    status = answer.status
    if status not in (200, 204):
        return None
    body = answer.body
    replies.look_at(verb, status, answer.headers, b"" if verb == "GetObject" else body)
    try:
        parsed = READERS[verb](answer)
    except (_Unusual, ElementTree.ParseError):
        return None
    replies.look_after(verb, status, parsed)
    parsed["ResponseMetadata"] = {"HTTPStatusCode": status, "HTTPHeaders": answer.headers}
    return parsed


def missing(verb: str, answer: HTTPAnswer) -> ClientError | None:
    """Read a 404 that says plainly that there is no such object or upload, as the SDK would tell
    it. None: it is another answer, or it is not plain.

    Args:
        verb: the SDK's name of the verb.
        answer: the answer.

    Raises:
        Unreadable: the answer is not S3's.
    """
    if answer.status != 404:
        return None
    replies.look_at(verb, 404, answer.headers, answer.body)
    if not answer.body:  # no answer to HEAD has a document
        return _not_found(verb, answer, "404", "Not Found")
    if verb != "ListParts":
        return None
    try:
        root = _parsed(answer)
        found = _texts(root, _ERROR)
    except (_Unusual, ElementTree.ParseError):
        return None
    if root.tag != "Error" or found.get("Code") != NO_UPLOAD:
        return None
    return _not_found(verb, answer, NO_UPLOAD, found.get("Message", ""))


def _not_found(verb: str, answer: HTTPAnswer, code: str, message: str) -> ClientError:
    headers = answer.headers
    request_id = headers.get("x-amzn-requestid") or headers.get("x-amz-request-id", "")
    meta = {"HTTPStatusCode": 404, "RequestId": request_id}  # all that is read of it
    reply = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": meta}
    return ClientError(reply, verb)


# Heads --------------------------------------------------------------------------------------------


def _bare(answer: HTTPAnswer) -> dict[str, Any]:
    if answer.body:
        raise _Unusual
    headers = answer.headers
    return {field: headers[name] for name, field in _HEADERS.items() if name in headers}


def _object(answer: HTTPAnswer) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    for name, value in answer.headers.items():
        if name in _HEADERS:
            parsed[_HEADERS[name]] = value
        elif name == "content-length":
            parsed["ContentLength"] = _number(value)
        elif name == "last-modified":
            if not _DATE.fullmatch(value):
                raise _Unusual
            parsed["LastModified"] = _dated(value)
        elif name.startswith(METADATA):
            metadata[name.removeprefix(METADATA)] = value
    parsed["Metadata"] = metadata
    return parsed


def _dated(value: str) -> datetime:
    try:
        return parsedate_to_datetime(value)
    except ValueError:  # the 31st of February: the SDK says what it thinks of it
        raise _Unusual from None


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise _Unusual
    return int(text)


# Documents ----------------------------------------------------------------------------------------


def _children(element: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
    """The elements below one, with their names without namespace."""
    for one in element:
        yield one.tag.rpartition("}")[2], one


def _parsed(answer: HTTPAnswer) -> ElementTree.Element:
    parser = ElementTree.XMLParser(encoding="utf-8")  # as the SDK: whatever the document says
    parser.feed(answer.body)
    root: ElementTree.Element = parser.close()
    return root


def _root(answer: HTTPAnswer) -> ElementTree.Element:
    root = _parsed(answer)
    if root.tag.rpartition("}")[2] == "Error":
        raise _Unusual
    return root


def _texts(element: ElementTree.Element, names: frozenset[str]) -> dict[str, Any]:
    """The texts of those elements below one that have these names."""
    found: dict[str, Any] = {}
    for name, one in _children(element):
        if name in names:
            if name in found or len(one):
                raise _Unusual
            found[name] = one.text or ""
    return found


def _document(answer: HTTPAnswer) -> dict[str, Any]:
    """The answer to Create or Complete."""
    parsed = _texts(_root(answer), _TOP)
    version = answer.headers.get("x-amz-version-id")
    return parsed if version is None else {**parsed, "VersionId": version}


def _uploads(answer: HTTPAnswer) -> dict[str, Any]:
    root, listed = _without_entries(answer)
    if listed is not None:
        return {**_top(root), "Uploads": listed}
    listed = []
    for name, one in _children(root):
        if name == "Upload":
            listed.append(_upload(one))
    return {**_top(root), "Uploads": listed} if listed else _top(root)


def _without_entries(
    answer: HTTPAnswer,
) -> tuple[ElementTree.Element, list[dict[str, Any]] | None]:
    """The document of a listing of uploads. If its entries are all written as `_ENTRY` says: the
    document with one empty entry in their place, and the entries. Reading 1,000 entries as XML
    takes four times as long."""
    try:
        text = answer.body.decode()
    except UnicodeDecodeError:
        return _root(answer), None
    begin, end = text.find("<Upload>"), text.rfind("</Upload>") + len("</Upload>")
    # In a comment or the like it would be no entry.
    if begin < 0 or "<!" in text or "<?" in text[2:]:
        return _root(answer), None
    listed: list[dict[str, Any]] = []
    at, match = begin, _ENTRY.match
    while at < end:
        found = match(text, at)
        if found is None:
            return _root(answer), None
        listed.append(_entry(found))
        at = found.end()
    one = f"<Upload>{_IN_THEIR_PLACE}</Upload>"
    root = _root(replace(answer, body=f"{text[:begin]}{one}{text[end:]}".encode()))
    found_at = [child.text for name, child in _children(root) if name == "Upload"]
    if found_at != [_IN_THEIR_PLACE]:  # they are inside another element, or not alone
        return _root(answer), None
    return root, listed


def _entry(found: re.Match[str]) -> dict[str, Any]:
    key, upload_id, initiator, initiator_name, owner, owner_name, kind, began = found.groups()
    entry: dict[str, Any] = {"Key": key, "UploadId": upload_id}
    if initiator is not None:
        entry["Initiator"] = {"ID": initiator, "DisplayName": initiator_name}
    if owner is not None:
        entry["Owner"] = {"ID": owner, "DisplayName": owner_name}
    if kind is not None:
        entry["StorageClass"] = kind
    if began is not None:
        entry["Initiated"] = _time(began)
    return entry


_IN_THEIR_PLACE = "the entries"
_CHARACTERS = r"([^<>&\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]+)"
"""Text that XML shows as it is."""
_WHO = f"<ID>{_CHARACTERS}</ID><DisplayName>{_CHARACTERS}</DisplayName>"
_ENTRY = re.compile(
    f"<Upload><Key>{_CHARACTERS}</Key><UploadId>{_CHARACTERS}</UploadId>"
    f"(?:<Initiator>{_WHO}</Initiator>)?(?:<Owner>{_WHO}</Owner>)?"
    f"(?:<StorageClass>{_CHARACTERS}</StorageClass>)?(?:<Initiated>{_CHARACTERS}</Initiated>)?"
    "</Upload>"
)
"""An entry of a listing of uploads, as S3 and MinIO write it."""


def _upload(element: ElementTree.Element) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in _children(element):
        if name not in _UPLOAD:
            continue
        if name in found:
            raise _Unusual
        if name in ("Owner", "Initiator"):
            found[name] = _texts(one, _PERSON)
        else:
            found[name] = _time(one.text or "") if name == "Initiated" else one.text or ""
    return found


_PERSON = frozenset(("ID", "DisplayName"))


def _parts(answer: HTTPAnswer) -> dict[str, Any]:
    root = _root(answer)
    listed = []
    for name, one in _children(root):
        if name == "Part":
            found = _texts(one, _PART)
            for field in ("PartNumber", "Size"):
                if field in found:
                    found[field] = _number(found[field])
            listed.append(found)
    parsed = _top(root)
    if "NextPartNumberMarker" in parsed:
        parsed["NextPartNumberMarker"] = _number(parsed["NextPartNumberMarker"])
    return {**parsed, "Parts": listed} if listed else parsed


def _objects(answer: HTTPAnswer) -> dict[str, Any]:
    root = _root(answer)
    contents, prefixes = [], []
    for name, one in _children(root):
        if name == "Contents":
            found = _texts(one, _CONTENTS)
            if "Size" in found:
                found["Size"] = _number(found["Size"])
            if "LastModified" in found:
                found["LastModified"] = _time(found["LastModified"])
            contents.append(found)
        elif name == "CommonPrefixes":
            prefixes.append(_texts(one, frozenset(("Prefix",))))
    parsed = _top(root)
    if parsed.get("EncodingType") == "url":
        # An entry without its key is refused by `look_after`, here as where the SDK reads it.
        for entries, name in ((contents, "Key"), (prefixes, "Prefix")):
            for found in entries:
                if name in found:
                    found[name] = unquote_str(found[name])
    return {**parsed, "Contents": contents, "CommonPrefixes": prefixes}


def _top(root: ElementTree.Element) -> dict[str, Any]:
    parsed = _texts(root, _TOP)
    parsed["IsTruncated"] = parsed.get("IsTruncated") == "true"
    return parsed


def _time(text: str) -> datetime:
    if not _TIME.fullmatch(text):
        raise _Unusual
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _Unusual from None


READERS: Mapping[str, Callable[[HTTPAnswer], dict[str, Any]]] = {
    "CreateMultipartUpload": _document,
    "UploadPart": _bare,
    "CompleteMultipartUpload": _document,
    "AbortMultipartUpload": _bare,
    "ListParts": _parts,
    "ListMultipartUploads": _uploads,
    "ListObjectsV2": _objects,
    "PutObject": _bare,
    "GetObject": _object,
    "HeadObject": _object,
    "DeleteObject": _bare,
}
"""For each hot verb what reads the plain case of its success."""
