"""Listings of uploads: what is read quickly is what XML says."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from magic_committer.stores.s3 import plain
from magic_committer.stores.s3.http import HTTPAnswer

WHO = "<ID>{0}</ID><DisplayName>{0} the {1}</DisplayName>"
FIRST = (
    "<Upload><Key>t/ü=1/part 1.bin</Key><UploadId>a.b_c-d</UploadId>"
    f"<Initiator>{WHO.format('arn:1', 'user')}</Initiator>"
    f"<Owner>{WHO.format('75aa', 'owner')}</Owner>"
    "<StorageClass>STANDARD</StorageClass><Initiated>2026-11-10T20:48:33.000Z</Initiated></Upload>"
)
BARE = "<Upload><Key>t/2.bin</Key><UploadId>e</UploadId></Upload>"
TOP = "<Bucket>b</Bucket><NextKeyMarker>k</NextKeyMarker><IsTruncated>true</IsTruncated>"
ENTRIES: dict[str, tuple[str, bool]] = {
    # The document inside its root, and whether its entries are read without XML.
    "as S3 writes it": (TOP + FIRST + BARE, True),
    "entries first": (FIRST + BARE + TOP, True),
    "one entry": (TOP + BARE, True),
    "no entry": (TOP, False),
    "a key with a quoted character": (TOP + FIRST + BARE.replace("t/2", "a&amp;b"), False),
    "a key with a bracket": (TOP + BARE.replace("t/2", "a>b"), False),
    "a key with the end of a section": (TOP + BARE.replace("t/2", "a]]>b"), False),
    "a key with a control character": (TOP + BARE.replace("t/2", "a\x01b"), False),
    "a key with a line break": (TOP + BARE.replace("t/2", "a\r\nb"), False),
    "a key with a character that XML has not": (TOP + BARE.replace("t/2", "a\uffffb"), False),
    "an empty key": (TOP + BARE.replace("t/2.bin", ""), False),
    "no key": (TOP + BARE.replace("<Key>t/2.bin</Key>", ""), False),
    "two keys": (TOP + BARE.replace("<Key>", "<Key>t/1</Key><Key>"), False),
    "another order": (
        TOP + BARE.replace("<Key>t/2.bin</Key>", "").replace("</Up", "<Key>k</Key></Up"),
        False,
    ),
    "one more element": (TOP + BARE.replace("</Upload>", "<New>1</New></Upload>"), False),
    "an attribute": (TOP + FIRST + BARE.replace("<Upload>", '<Upload a="b">'), False),
    "something between": (TOP + FIRST + "<Other/>" + BARE, False),
    "spaces between": (TOP + FIRST + "\n  " + BARE, False),
    "an entry in a comment": (f"{TOP}<!--{FIRST}-->{BARE}", False),
    "all entries in a comment": (f"{TOP}<!--{FIRST}{BARE}-->", False),
    "an entry in a section": (f"{TOP}<Key><![CDATA[{BARE}]]></Key>", False),
    "an entry in an instruction": (f"{TOP}<?x {BARE}?>", False),
    "entries inside another element": (f"{TOP}<Old>{FIRST}{BARE}</Old>", False),
    "entries inside an entry": (f"{TOP}<Upload>{FIRST}</Upload>", False),
    "an entry inside another, beside one": (f"{TOP}<Upload><Other>{FIRST}</Other></Upload>", False),
    "an entry elsewhere, and one of another name": (
        f'{TOP}<n:Upload xmlns:n="n">{BARE[8:-9]}</n:Upload><Foo>{BARE}</Foo>',
        False,
    ),
    "an entry elsewhere, and one that is empty": (f"{TOP}<Foo>{BARE}</Foo><Upload a='1'/>", False),
    "the words that stand in their place": (f"{TOP}<Foo>{BARE}</Foo>the entries", False),
    "a strange time": (TOP + FIRST.replace("2026-11-10T", "lately, "), False),
    "a day that is none": (TOP + FIRST.replace("2026-11-10", "2026-11-31"), False),
    "an entry that was cut": (TOP + FIRST + BARE[:-12], False),
    "an entry that does not begin": (TOP + BARE[8:], False),
    "a name that is not closed": (TOP + FIRST.replace("</ID>", "</Id>"), False),
}


def answered(inside: str) -> HTTPAnswer:
    """A listing."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListMultipartUploadsResult'
        f' xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inside}</ListMultipartUploadsResult>'
    )
    return HTTPAnswer(200, {"content-length": "1"}, body.encode())


def read(answer: HTTPAnswer) -> Any:
    """What is read, or the kind of error."""
    try:
        return plain._uploads(answer)
    except (plain._Unusual, ElementTree.ParseError) as error:
        return type(error)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_listing_is_read_as_xml_however_it_is_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that are written as S3 writes them are read without XML, and give what XML gives; all
    others, and what only looks like an entry, are read as XML."""
    inside, quickly = ENTRIES[name]
    answer = answered(inside)
    told = read(answer)
    try:
        _, listed = plain._without_entries(answer)
    except (plain._Unusual, ElementTree.ParseError):
        listed = None
    assert (listed is not None) == quickly
    monkeypatch.setattr(plain, "_without_entries", lambda answer: (plain._root(answer), None))
    assert told == read(answer)


def test_a_listing_of_another_alphabet_is_left_to_xml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no UTF-8, and a mark at the beginning, change nothing."""
    whole = answered(TOP + FIRST)
    marked = HTTPAnswer(200, whole.headers, b"\xef\xbb\xbf" + whole.body)
    assert read(marked) == read(whole)
    broken = HTTPAnswer(200, whole.headers, whole.body.replace(b"part", b"p\xe4rt"))
    told = read(broken)
    monkeypatch.setattr(plain, "_without_entries", lambda answer: (plain._root(answer), None))
    assert told == read(broken)
    assert told is ElementTree.ParseError


def test_an_error_is_no_listing() -> None:
    """A document that is an error is left to the SDK, whatever is inside."""
    whole = answered(TOP + FIRST)
    body = whole.body.replace(b"ListMultipartUploadsResult", b"Error")
    assert read(HTTPAnswer(200, whole.headers, body)) is plain._Unusual
