"""Answers are read strictly: pages, empty bodies, missing and cut values are no answers of S3.

Both ways read their answers by `magic_committer.stores.s3.answers.read`, which is pure: most rules
are held there, and what both ways make of it by a few answers of a server.
"""

from __future__ import annotations

import pickle
import random
from typing import Any
from xml.etree import ElementTree

import pytest

from magic_committer.errors import Unanswered
from magic_committer.stores.s3 import answers
from magic_committer.stores.s3.answers import Refused, read
from magic_committer.stores.s3.errors import kind
from magic_committer.stores.s3.http import Answer, Cause, Failure, NoAnswer, Sent
from magic_committer.stores.s3.requests import OPERATIONS
from tests.servers import DATE, DATE_SECONDS, Reply, document, error
from tests.transport.lab import COMPLETED, DATED, LISTED, MODIFIED, READS, VERBS, Lab, ask, fine

TAGGED = {"ETag": '"e"'}
LOGIN = "<html><head><title>Log in</title></head><body>Please log in</body></html>"


def told(operation: str, reply: Reply, **more: Any) -> Any:
    """What is read of an answer; or the error."""
    body = reply.body.encode() if isinstance(reply.body, str) else reply.body
    headers = {"Date": DATE, "Content-Length": str(len(body)), **reply.headers}
    named = {name.lower(): value for name, value in headers.items() if value}
    held = b"" if operation == "HeadObject" else body
    try:
        return read(operation, Answer(reply.status, named, held, **more))
    except Failure as failure:
        return failure


def cause(outcome: Any) -> Cause | None:
    """Why an answer is none; None: it is one."""
    return outcome.cause if isinstance(outcome, NoAnswer) else None


PAGES = {
    "a login page": Reply(200, LOGIN, {"Content-Type": "text/html"}),
    "a page with an ETag": Reply(200, LOGIN, {**TAGGED, "Content-Type": "text/html"}),
    "a page cut short": Reply(200, LOGIN[:50]),
    "JSON": Reply(200, '{"status": "ok"}', {"Content-Type": "application/json"}),
    "a list in JSON": Reply(200, '["ok"]'),
    "a document of another service": Reply(200, "<Welcome><To>it</To></Welcome>", DATED),
    "a backend that is gone": Reply(404, "default backend - 404", {"Content-Type": "text/plain"}),
    "a 404 page": Reply(404, LOGIN),
    "nothing": Reply(200),
    "a piece": Reply(206, "", DATED),
}
BELIEVED = {
    ("a document of another service", "HeadObject"),  # has no document that could be looked at
    ("a document of another service", "GetObject"),  # any object may have these bytes
    ("nothing", "DeleteObject"),  # all that S3 says
    ("nothing", "AbortMultipartUpload"),
    ("a backend that is gone", "HeadObject"),  # has no document: as S3's own 404
    ("a 404 page", "HeadObject"),
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_no_answer_to_any_operation(page: str) -> None:
    """What something else says in the store's place cannot be read, whatever was asked."""
    for operation in OPERATIONS:
        failure = told(operation, PAGES[page])
        if (page, operation) in BELIEVED:
            assert cause(failure) is None, operation
        else:
            assert cause(failure) is Cause.UNREADABLE, operation
            assert (failure.status, kind(failure)) == (PAGES[page].status, "transient")


@pytest.mark.parametrize("verb", VERBS)
def test_a_page_costs_a_try_and_is_then_no_answer(lab: Lab, verb: str) -> None:
    """A page that comes once, while a balancer changes its backend, costs a try. If it stays, the
    error shows how it begins, in a line; a write may have taken effect."""
    pages = [Reply(200, LOGIN + "x" * 9_000)]
    lab.script(lambda asked: pages.pop() if pages else fine(asked))
    ask(lab.store, verb)
    assert len(lab.asked) == 2
    lab.said(Reply(200, LOGIN + "x" * 9_000))
    with pytest.raises(Unanswered) as caught:
        ask(lab.store, verb)
    assert (caught.value.attempts, caught.value.status, caught.value.sent) == (2, 200, True)
    text = str(caught.value)
    assert "What answered is not the store" in text
    assert verb in ("head", "get") or "but '<html><head><title>Log in" in text
    assert len(text) < 500
    assert ("Nothing was changed" in text) is (verb in READS)


PART = "<PartNumber>1</PartNumber><Size>1</Size><ETag>e</ETag>"
UPLOAD = "<Key>k</Key><UploadId>u</UploadId>"


def without(inside: str, name: str) -> str:
    """A document's entry that lacks one element."""
    before, _, rest = inside.partition(f"<{name}>")
    assert rest
    return before + rest.partition(f"</{name}>")[2]


def contents(inside: str, beside: str = "") -> Reply:
    """A listing of one object."""
    return document("ListObjects", f"{beside}<Contents>{inside}</Contents>")


LACKING: list[tuple[str, Reply]] = [
    *[("HeadObject", Reply(headers={**DATED, "Content-Length": text})) for text in ("", "three")],
    *[("HeadObject", Reply(headers={**TAGGED, "Last-Modified": text}))
      for text in ("", "today", "today GMT", *[MODIFIED[:at] for at in range(15, 29)])],
    *[(one, Reply(headers={**DATED, "ETag": etag}))
      for one in ("HeadObject", "GetObject", "PutObject", "UploadPart")
      for etag in ("", '"', '"5d41402abc4b', 'W/"5d')],
    ("GetObject", Reply(body="x", headers=TAGGED)),
    ("UploadPartCopy", document("CopyPart")),
    *[("CreateMultipartUpload", document("InitiateMultipartUpload", inside))
      for inside in ("<Key>k</Key>", "<UploadId></UploadId>", "<UploadId>u</UploadId>" * 2)],
    ("ListObjectsV2", Reply(body="<ListBucketResult><Contents>")),
    *[("ListObjectsV2", contents(without(LISTED, name)))
      for name in ("Key", "Size", "LastModified")],
    *[("ListObjectsV2", contents(LISTED.replace(*words)))
      for words in ((">1<", ">one<"), (">1<", ">-1<"), ("2026-11", "lately"))],
    ("ListObjectsV2", contents(without(LISTED, "Key"), "<EncodingType>url</EncodingType>")),
    ("ListObjectsV2", document("ListObjects", "<CommonPrefixes></CommonPrefixes>")),
    *[("ListParts", document("ListParts", f"<Part>{without(PART, name)}</Part>"))
      for name in ("PartNumber", "Size", "ETag")],
    ("ListParts", Reply(200, f"<ListPartsResult><Part>{PART}")),
    *[("ListMultipartUploads",
       document("ListMultipartUploads", f"<Upload>{without(UPLOAD, name)}</Upload>"))
      for name in ("Key", "UploadId")],
    ("DeleteObjects", document("Delete", "<Error><Code>InternalError</Code></Error>")),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "reply"), LACKING)
def test_an_answer_that_lacks_something_is_no_answer(operation: str, reply: Reply) -> None:
    """Without a field that the library goes on with, or with a cut one, an answer cannot be read:
    no ETag, size, time or key is made up."""
    assert cause(told(operation, reply)) is Cause.UNREADABLE


CLOSES = {**DATED, "Connection": "close"}
ENDS, LONG = {"until_close": True}, {"excess": "it is long"}


@pytest.mark.parametrize(
    ("operation", "headers", "how", "why"),
    [
        ("PutObject", CLOSES, ENDS, None), ("PutObject", DATED, ENDS, Cause.UNREADABLE),
        ("GetObject", CLOSES, ENDS, Cause.UNREADABLE), ("ListParts", {}, ENDS, Cause.UNREADABLE),
        ("GetObject", DATED, LONG, Cause.LARGE), ("GetObject", TAGGED, LONG, Cause.UNREADABLE),
        ("ListParts", {}, LONG, Cause.LARGE),
    ],
)  # fmt: skip
def test_an_answer_must_say_where_it_ends(operation: str, headers: Any, how: Any, why: Any) -> None:
    """A body that ends where the connection does is whole only if that was announced, an object
    never; one that was not read is an error of its own, if the head is that of an object."""
    assert cause(told(operation, Reply(headers=headers), **how)) is why


NO_UPLOAD = str(error(404, "NoSuchUpload").body)
READ = [
    document("ListParts", f"<Part>{PART}</Part>"),
    Reply(body=f'<ListPartsResult xmlns="http://s3/"><Part>{PART}</Part></ListPartsResult>'),
    Reply(body=f"<ListPartsResponse><Part>{PART}</Part></ListPartsResponse>"),  # moto
    *[Reply(body=f"{before}<ListPartsResult><Part>{PART}</Part></ListPartsResult>")
      for before in ('<?xml version="1.0" encoding="UTF-8"?>\n', "\ufeff",
                     '<?xml version="1.0"?>\n\n   \n')],  # S3 keeps a long Complete alive so
    document("ListParts", f"<NextPartNumberMarker></NextPartNumberMarker><Part>{PART}</Part>"),
]  # fmt: skip


@pytest.mark.parametrize("reply", READ)
def test_what_stands_around_a_document_does_not_matter(reply: Reply) -> None:
    """Declarations, spaces, namespaces, and another end of the root's name."""
    wanted = [{"PartNumber": 1, "Size": 1, "ETag": "e"}]
    assert told("ListParts", reply)["Part"] == wanted


IN_KEYS = {
    "&#x1;": "\x01", "&#x0001F;": "\x1f", "&#11;": "\v", "\0\x0e": "\0\x0e", "\ufffe": "\ufffe",
    "&#65535;": "\uffff", "\x01%25 +": "\x01%25 +", "\x01&#37;&#x26;lt;&lt;": "\x01%&lt;<",
    "\x01é🙂&#128578;&#x1F642;": "\x01é🙂🙂🙂",
}  # fmt: skip


@pytest.mark.parametrize("written", IN_KEYS)
def test_a_key_with_characters_that_xml_does_not_hold_is_read(written: str) -> None:
    """As S3 writes it, by numbers, or as it is: the key of one upload makes no listing unreadable,
    nor an error that names it. What is cut or has no such character stays none."""
    inside = f"<Upload>{UPLOAD.replace('>k<', f'>a{written}b<')}</Upload>"
    listed = told("ListMultipartUploads", document("ListMultipartUploads", inside))
    assert listed["Upload"] == [{"Key": f"a{IN_KEYS[written]}b", "UploadId": "u"}]
    gone = Reply(404, NO_UPLOAD.replace("</Error>", f"<Key>{written}</Key></Error>"))
    assert told("ListParts", gone).code == "NoSuchUpload"
    for bad in ("&#xD800;", "&#1114112;", f"&#{'9' * 5000};", "&nbsp;", "<", "<\1/>", "</Key>"):
        inside = f"<Upload>{UPLOAD.replace('>k<', f'>{written}{bad}<')}</Upload>"
        failure = told("ListMultipartUploads", document("ListMultipartUploads", inside))
        assert cause(failure) is Cause.UNREADABLE, bad


def test_what_is_read_without_a_parser_is_what_a_parser_reads() -> None:
    """However a document is cut, doubled or mixed up: the same names and texts, or the parser reads
    it."""
    draw, quick = random.Random(1), 0
    for number in range(5_000):
        body = draw.choice([COMPLETED, error(404, "NoSuchUpload"), READ[-2]]).body
        assert isinstance(body, str)
        for _ in range(number % 4):
            at, end = sorted(draw.choices(range(len(body)), k=2))
            pieces = [body[at:end], "", "<", ">", "&amp;", "&#34;", "]]>", "\0", "é", "<a/>"]
            piece = draw.choice([*pieces, "&quot;"])
            body = body[:at] + piece + body[at if len(piece) > 5 else end :]
        if answers._FLAT.fullmatch(body.encode()) is not None:
            quick += 1
            parsed, root = ElementTree.fromstring(body.strip()), answers._root(body.encode())
            assert root is not None
            assert answers._name(parsed) == root.tag
            said = [(answers._name(one), one.text or "") for one in parsed]
            assert said == [(one.tag, one.text) for one in root]
    assert quick > 500


GONE = [
    error(404, "NoSuchUpload"),
    Reply(404, f'<?xml version="1.0" encoding="UTF-8"?>\n{NO_UPLOAD.replace("><", ">  <")}\n'),
    Reply(404, f"<ErrorResponse>{NO_UPLOAD}</ErrorResponse>"),
]
NOT_GONE = [
    error(403, "AccessDenied"), Reply(403), Reply(404), Reply(404, "<html>no backend</html>"),
    error(404, "NoSuchBucket"), error(404, "NoSuchKey"), error(404, "NoSuchUploadPart"),
    Reply(200, NO_UPLOAD), error(409, "NoSuchUpload"), Reply(404, NO_UPLOAD[:-9]),
    Reply(404, NO_UPLOAD[:25]), Reply(404, "<Error><Message>NoSuchUpload</Message></Error>"),
    Reply(404, f"<Error><Code/>{NO_UPLOAD}</Error>"),
    Reply(404, '<!DOCTYPE Error [<!ENTITY a "NoSuchUpload">]><Error><Code>&a;</Code></Error>'),
    Reply(404, f"<!-- 1 -->{NO_UPLOAD}"), Reply(403, "<R><Error>text</Error></R>"),
    Reply(404, NO_UPLOAD.replace("<Code>", "<Code>NoSuchBucket</Code><Code>")),
    error(503, "SlowDown"), error(400, "InvalidRequest"),
]  # fmt: skip


@pytest.mark.parametrize("reply", [*GONE, *NOT_GONE])
def test_only_an_exact_answer_says_that_something_is_not_there(reply: Reply) -> None:
    """By "there is no upload" jobs are decided: S3's own document with 404 and that one code."""
    failure = told("ListParts", reply)
    assert isinstance(failure, Failure)
    said = (failure.status, getattr(failure, "code", ""))
    assert (said == (404, "NoSuchUpload")) is (reply in GONE)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_error_inside_a_200_is_an_error_of_the_store(operation: str) -> None:
    """It counts as a 500, but for what has no document, and an object with these bytes."""
    reply = Reply(200, error(200, "InternalError").body, DATED)
    failure = told(operation, reply)
    if operation in ("GetObject", "HeadObject"):
        assert isinstance(failure, dict)
    else:
        assert (failure.status, failure.code, kind(failure)) == (500, "InternalError", "transient")


def test_a_rare_answer_that_the_sdk_did_not_read_is_no_success() -> None:
    """A page, or an error document, where a lifecycle was asked for."""
    operation = "GetBucketLifecycleConfiguration"
    assert cause(told(operation, PAGES["a login page"])) is Cause.UNREADABLE
    failure = told(operation, Reply(200, error(200, "InternalError").body))
    assert (failure.status, failure.code) == (500, "InternalError")


def test_what_may_be_missing_is_not_made_up() -> None:
    """A time that names no zone is S3's, and not this machine's; Complete may lack its ETag (Ceph
    RGW)."""
    for one in (LISTED, LISTED.replace("000Z", "000")):
        (entry,) = told("ListObjectsV2", contents(one))["Contents"]
        assert entry["LastModified"] == DATE_SECONDS - 3600
    assert "ETag" not in told("CompleteMultipartUpload", document("CompleteMultipartUpload"))


def test_failures_travel() -> None:
    """The causes of our errors come through pickle, as the errors do."""
    strange = NoAnswer(Cause.UNREADABLE, Sent.ANSWERED, "why", "http://h", 200)
    for failure in (strange, Refused(409, "Code", "why", "R1", "eu-west-3")):
        copy = pickle.loads(pickle.dumps(failure))
        assert (type(copy), vars(copy), str(copy)) == (type(failure), vars(failure), str(failure))
