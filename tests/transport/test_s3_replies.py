"""Answers that are not S3's, to every verb: pages, empty bodies, missing headers."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from magic_committer.errors import InvalidRequest, NotFound, Unanswered
from magic_committer.stores.base import ObjectStore
from magic_committer.stores.s3 import S3Store
from magic_committer.stores.s3.answers import Unreadable
from tests.servers import (
    DATE,
    HurriedClock,
    Reply,
    ScriptedServer,
    document,
    error,
    way,
)
from tests.serving import serving
from tests.transport.test_s3_errors import VERBS

pytestmark = pytest.mark.usefixtures("transport")

TRIES = 2
MODIFIED = "Fri, 20 Nov 2026 11:00:00 GMT"
TAGGED = {"ETag": '"e"'}
DATED = {**TAGGED, "Last-Modified": MODIFIED}
LOGIN = "<html><head><title>Log in</title></head><body>Please log in</body></html>"


def twice(url: str) -> S3Store:
    """A store that tries everything twice and waits for nothing."""
    return S3Store("b", way(url, retry_attempts_max=TRIES), clock=HurriedClock())


def delete_batch(store: ObjectStore) -> None:
    """Delete two keys at once; raise what became of the first."""
    failed = store.delete(["k", "l"])
    assert set(failed) in ({"k", "l"}, set())
    if failed:
        raise failed["k"]


ASKED: dict[str, Callable[[ObjectStore], object]] = {**VERBS, "delete": delete_batch}

PAGES = {
    "a login page": Reply(200, LOGIN, {"Content-Type": "text/html"}),
    "a page with an ETag": Reply(200, LOGIN, {**TAGGED, "Content-Type": "text/html"}),
    "a page cut short": Reply(200, LOGIN[:50]),
    "JSON": Reply(200, '{"status": "ok"}', {"Content-Type": "application/json"}),
    "a document of another service": Reply(200, "<Welcome><To>it</To></Welcome>", DATED),
    "a backend that is gone": Reply(404, "default backend - 404", {"Content-Type": "text/plain"}),
    "a 404 page": Reply(404, LOGIN),
    "nothing": Reply(200),
    "a piece": Reply(206, "", DATED),
}
BELIEVED = {
    ("a document of another service", "head"),  # has no document that could be looked at
    ("a document of another service", "get"),  # any object may have these bytes
    ("nothing", "delete_one"),  # all that S3 says
    ("nothing", "abort_upload"),
    ("a backend that is gone", "head"),  # has no document: as S3's own 404
    ("a 404 page", "head"),
}


@pytest.mark.parametrize(
    ("page", "verb"), [(p, v) for p in PAGES for v in ASKED if (p, v) not in BELIEVED]
)
def test_a_page_is_no_answer_to_any_verb(
    store: S3Store, server: ScriptedServer, page: str, verb: str
) -> None:
    """What something else says in the store's place is tried again and then ``Unanswered``."""
    server.said(PAGES[page])
    with pytest.raises(Unanswered) as caught:
        ASKED[verb](store)
    assert caught.value.attempts == len(server.asked) == TRIES
    assert caught.value.sent
    assert "what answered is not the store" in str(caught.value)
    assert caught.value.status == PAGES[page].status


LISTED = "<Key>k</Key><Size>1</Size><LastModified>2026-11-20T11:00:00.000Z</LastModified>"
PART = "<PartNumber>1</PartNumber><Size>1</Size><ETag>e</ETag>"


def without(inside: str, name: str) -> str:
    """A document's entry that lacks one element."""
    before, _, rest = inside.partition(f"<{name}>")
    assert rest
    return before + rest.partition(f"</{name}>")[2]


LACKING: dict[str, tuple[str, Reply]] = {
    "head: ETag": ("head", Reply(headers={"Last-Modified": MODIFIED})),
    "head: Last-Modified": ("head", Reply(headers=TAGGED)),
    "head: a date that is none": ("head", Reply(headers={**TAGGED, "Last-Modified": "today"})),
    "get: ETag": ("get", Reply(body="x", headers={"Last-Modified": MODIFIED})),
    "get: Last-Modified": ("get", Reply(body="x", headers=TAGGED)),
    "get: the end of an error": (
        "get",
        Reply(404, error(404, "NoSuchKey").body[:40], missing=40),
    ),
    "get: the end": ("get", Reply(headers=DATED, missing=1)),
    "put: ETag": ("put", Reply()),
    "put_part: ETag": ("put_part", Reply()),
    "put_part: an empty ETag": ("put_part", Reply(headers={"ETag": " "})),
    "create_upload: id": ("create_upload", document("InitiateMultipartUpload", "<Key>k</Key>")),
    "create_upload: an empty id": (
        "create_upload",
        document("InitiateMultipartUpload", "<UploadId></UploadId>"),
    ),
    "list: the end": ("list", Reply(body="<ListBucketResult><Contents>")),
    **{
        f"list: {name}": (
            "list",
            document("ListObjects", f"<Contents>{without(LISTED, name)}</Contents>"),
        )
        for name in ("Key", "Size", "LastModified")
    },
    "list: a size that is none": (
        "list",
        document("ListObjects", f"<Contents>{LISTED.replace('>1<', '>one<')}</Contents>"),
    ),
    "list: a size below 0": (
        "list",
        document("ListObjects", f"<Contents>{LISTED.replace('>1<', '>-1<')}</Contents>"),
    ),
    "list: a date that is none": (
        "list",
        document("ListObjects", f"<Contents>{LISTED.replace('2026-11', 'lately')}</Contents>"),
    ),
    "list: a key, of keys in URL's spelling": (
        "list",
        document(
            "ListObjects",
            f"<EncodingType>url</EncodingType><Contents>{without(LISTED, 'Key')}</Contents>",
        ),
    ),
    "list: a prefix": ("list", document("ListObjects", "<CommonPrefixes></CommonPrefixes>")),
    **{
        f"list_parts: {name}": (
            "list_parts",
            document("ListParts", f"<Part>{without(PART, name)}</Part>"),
        )
        for name in ("PartNumber", "Size", "ETag")
    },
    "list_uploads: id": (
        "list_uploads",
        document("ListMultipartUploads", "<Upload><Key>k</Key></Upload>"),
    ),
    "list_uploads: key": (
        "list_uploads",
        document("ListMultipartUploads", "<Upload><UploadId>u</UploadId></Upload>"),
    ),
    "delete: whose error": (
        "delete",
        document("Delete", "<Error><Code>InternalError</Code></Error>"),
    ),
    **{
        f"an error inside the 200 of {verb}": (verb, Reply(200, error(200, "InternalError").body))
        for verb in ("delete", "complete_upload", "create_upload", "list", "put")
    },
}


@pytest.mark.parametrize("what", LACKING)
def test_an_answer_that_lacks_something_is_no_answer(
    store: S3Store, server: ScriptedServer, what: str
) -> None:
    """Without a field that the library goes on with an answer is tried again, then ``Unanswered``:
    no verb makes up an empty ETag, a size, a time or a key."""
    verb, reply = LACKING[what]
    server.said(reply)
    with pytest.raises(Unanswered) as caught:
        ASKED[verb](store)
    assert caught.value.attempts == len(server.asked) == TRIES


GOOD = {
    "get": Reply(body="x", headers=DATED),
    "head": Reply(headers=DATED),
    "put": Reply(headers=TAGGED),
    "delete_one": Reply(204),
    "list": document("ListObjects"),
    "create_upload": document("InitiateMultipartUpload", "<UploadId>u</UploadId>"),
    "put_part": Reply(headers=TAGGED),
    "list_parts": document("ListParts"),
    "complete_upload": document("CompleteMultipartUpload"),
    "abort_upload": Reply(204),
    "list_uploads": document("ListMultipartUploads"),
    "delete": document("Delete"),
}


@pytest.mark.parametrize("verb", ASKED)
def test_after_a_page_the_stores_own_answer_counts(
    store: S3Store, server: ScriptedServer, verb: str
) -> None:
    """A page that came once, while a load balancer changed its backend, costs one try."""
    server.said(Reply(200, LOGIN), GOOD[verb])
    ASKED[verb](store)
    assert len(server.asked) == 2


@pytest.mark.parametrize("verb", sorted({"put", "create_upload", "complete_upload"}))
def test_a_write_with_an_unreadable_answer_may_have_taken_effect(
    store: S3Store, server: ScriptedServer, verb: str
) -> None:
    """Who is told of it looks before he does it again."""
    server.said(Reply(200, LOGIN))
    with pytest.raises(Unanswered, match="may have taken effect; look before you repeat it"):
        ASKED[verb](store)


def test_the_message_shows_how_the_page_begins(store: S3Store, server: ScriptedServer) -> None:
    """An operator sees what answered: its first words, and no more than a line of them."""
    server.said(Reply(200, LOGIN + "x" * 10_000))
    with pytest.raises(Unanswered) as caught:
        next(store.list("p"))
    assert "not the ListBucketResult of S3, but '<html><head><title>Log in" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_404_of_s3_is_still_an_answer(store: S3Store, server: ScriptedServer) -> None:
    """With S3's error document, or to HEAD, which has none, 404 is a fact, told at once."""
    server.said(error(404, "NoSuchUpload"))
    with pytest.raises(NotFound):
        store.list_parts("k", "u")
    server.said(Reply(404))
    with pytest.raises(NotFound):
        store.head("k")
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "before",
    [
        '<?xml version="1.0" encoding="UTF-8"?>\n',
        "\ufeff",
        '<?xml version="1.0"?>\n\n   \n',  # S3 keeps a long Complete alive with spaces
    ],
)
def test_what_stands_before_a_root_does_not_matter(
    store: S3Store, server: ScriptedServer, before: str
) -> None:
    """Declarations, spaces and namespaces do not make S3's document another one."""
    server.said(
        Reply(
            body=f'{before}<ListPartsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Part>{PART}</Part></ListPartsResult>"
        )
    )
    assert [part.number for part in store.list_parts("k", "u")] == [1]


def test_a_response_is_as_good_as_a_result(store: S3Store, server: ScriptedServer) -> None:
    """Some servers end the root's name with "Response" (moto's ``ListPartsResponse``)."""
    server.said(Reply(body=f"<ListPartsResponse><Part>{PART}</Part></ListPartsResponse>"))
    assert [part.number for part in store.list_parts("k", "u")] == [1]


def test_an_unreadable_answer_travels() -> None:
    """The cause of our error comes through pickle, as the error does."""
    copy = pickle.loads(pickle.dumps(Unreadable(200, "why")))
    assert (type(copy), copy.status, str(copy)) == (Unreadable, 200, "why")


# Header names and dates ---------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["head", "get"])
def test_names_of_metadata_are_in_lower_case(
    store: S3Store, server: ScriptedServer, verb: str
) -> None:
    """Header names have no case: a Go server or proxy that spells ``Magic-Committer-Job`` is read
    as one that spells it as we did."""
    spelled = {"X-Amz-Meta-Magic-Committer-Job": "Value", "x-amz-meta-OTHER": "1"}
    server.said(Reply(body="x", headers={**DATED, **spelled}))
    info = store.head("k") if verb == "head" else store.get("k", max_bytes=1).info
    assert info.metadata == {"magic-committer-job": "Value", "other": "1"}


def test_times_without_a_zone_are_utc(store: S3Store, server: ScriptedServer) -> None:
    """A listing's time that names no zone is S3's, and not this machine's."""
    entry = f"<Contents>{LISTED.replace('000Z', '000')}</Contents>"
    zoned = f"<Contents>{LISTED}</Contents>"
    server.said(document("ListObjects", entry + zoned))
    (page,) = store.list("k")
    assert len({info.last_modified for info in page.objects}) == 1


# Bodies whose end the length does not tell --------------------------------------------------------


@contextmanager
def speaker(said: bytes) -> Iterator[str]:
    """A server that says the same bytes to whoever connects, and hangs up."""

    def speak(connection: socket.socket, *_: object) -> None:
        connection.recv(65_536)
        connection.sendall(said)

    with serving(speak) as listening:
        yield listening.url


HEAD = (
    f'HTTP/1.1 200 OK\r\nDate: {DATE}\r\nETag: "e"\r\nLast-Modified: {MODIFIED}\r\n'
    "Connection: close\r\n"
).encode()
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("verb", ["get", "list_parts", "complete_upload"])
def test_an_error_that_was_cut_is_no_answer(verb: str) -> None:
    """Where the connection breaks within an error's document, the error is not believed; the SDK
    lets the HTTP library's own error through then, for GET."""
    begun = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n<Err"
    with speaker(begun) as url, pytest.raises(Unanswered) as caught:
        VERBS[verb](twice(url))
    assert caught.value.attempts == TRIES


def test_an_object_in_chunks_is_read_to_its_end() -> None:
    """A proxy may send an object in chunks, without its length: the bytes are counted."""
    with speaker(CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") as url:
        stored = twice(url).get("k", max_bytes=5)
        assert (stored.body, stored.info.size) == (b"abcde", 5)
        with pytest.raises(InvalidRequest) as caught:
            twice(url).get("k", max_bytes=4)
        assert caught.value.code == "TooLarge"


WHOLE = HEAD.replace(b"Connection: close\r\n", b"")


@pytest.mark.parametrize("verb", ["head", "put", "put_part"])
@pytest.mark.parametrize(
    "said",
    [
        WHOLE.replace(b'"e"', b'"5d41402abc4b2a76b9719d911017c592"').partition(b"2a76")[0],
        WHOLE.partition(b'"e"')[0] + b'"',
        WHOLE,
        b"Content-Length: 0\r\n".join(WHOLE.partition(b"ETag")[::2]).partition(b'e"')[0],
    ],
)
def test_a_head_that_was_cut_is_never_believed(verb: str, said: bytes) -> None:
    """The HTTP library takes what came before the end for the whole head: half an ETag is asked for
    again, instead of being written down for a part."""
    with speaker(said) as url, pytest.raises(Unanswered):
        VERBS[verb](twice(url))


@pytest.mark.parametrize("kept", range(15, 29))
def test_a_date_that_was_cut_is_no_date(kept: int) -> None:
    """A HEAD that ends within its Last-Modified does not make the object older."""
    before, name, _ = WHOLE.partition(b"Last-Modified: ")
    said = before + b"Content-Length: 1\r\n" + name + MODIFIED.encode()[:kept]
    with speaker(said) as url, pytest.raises(Unanswered):
        twice(url).head("k")


@pytest.mark.parametrize(
    "said",
    [
        CHUNKED + b"3\r\nabc\r\n",
        CHUNKED + b"9\r\nabc",
        HEAD + b"\r\nabc",
        HEAD + b"Content-Length: 9\r\n\r\nabc",
        HEAD + b"Content-Length: -3\r\n\r\nabc",
        HEAD + b"Content-Length: three\r\n\r\nabc",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"",
    ],
)
def test_an_object_that_was_cut_is_never_given(said: bytes) -> None:
    """What ends before it says, or does not say where it ends, is no object; nor is what is no
    HTTP."""
    with speaker(said) as url, pytest.raises(Unanswered):
        twice(url).get("k", max_bytes=10)
    with speaker(said.replace(b"\r\n\r\nabc", b"\r\n\r\n")) as url:
        if b"Content-Length: 9" not in said and b"Chunked" not in said and b"ETag" in said:
            with pytest.raises(Unanswered):
                twice(url).head("k")
