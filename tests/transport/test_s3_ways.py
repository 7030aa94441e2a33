"""Which way requests go, and what is handed from one way to the other."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magic_committer import _libcurl
from magic_committer.errors import InvalidRequest, NotFound, OptionError, StoreError, Unanswered
from magic_committer.options import S3Options
from magic_committer.stores.base import (
    AbortUpload,
    Ask,
    Checksum,
    CompleteUpload,
    FileSlice,
    FindUpload,
    Head,
    ListParts,
    Part,
    UploadPage,
    Written,
    ask_by_verb,
    batch_of,
    transport_of,
)
from magic_committer.stores.memory import MemoryStore
from magic_committer.stores.s3 import S3Store, signing
from magic_committer.stores.s3.errors import kind, never_sent, translate
from magic_committer.stores.s3.http import Cause, NoAnswer, Sent
from tests.certificates import Authority
from tests.servers import (
    Asked,
    HurriedClock,
    Reply,
    ScriptedServer,
    document,
    error,
    scripted_server,
    way,
)

pytestmark = pytest.mark.skipif(not _libcurl.available(), reason="pycurl is not installed")
PUT = Reply(headers={"ETag": '"e"'})
PART = Part(1, '"p"', 1)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that takes everything."""
    with scripted_server(lambda _: PUT) as running:
        yield running


def make(server: ScriptedServer, **more: Any) -> S3Store:
    """A store on it, by the fast way."""
    options = way(server.url, **{"retry_attempts_max": 1, "transport": "curl", **more})
    return S3Store("b", options, clock=HurriedClock())


def by_sdk(asked: Asked) -> bool:
    """Whether the SDK sent it."""
    return "amz-sdk-invocation-id" in asked.headers


# Which way ----------------------------------------------------------------------------------------


def test_the_fast_way_is_taken_where_it_can_be(server: ScriptedServer) -> None:
    """``auto`` and ``curl`` send by libcurl, ``boto3`` by the SDK; the store says so."""
    for transport, wanted in (
        ("auto", ("curl", "")),
        ("curl", ("curl", "")),
        ("boto3", ("boto3", "transport='boto3'")),
    ):
        store = make(server, transport=transport)
        assert store.transport == wanted
        server.asked.clear()
        store.put("k", b"x")
        assert [by_sdk(asked) for asked in server.asked] == [wanted[0] == "boto3"]


@pytest.mark.parametrize(
    ("bucket", "variables", "options", "why"),
    [
        ("b--usw2-az1--x-s3", {}, {}, "S3 Express"),
        ("b", {"BOTOCORE_EXPERIMENTAL__PLUGINS": "a=b"}, {}, "BOTOCORE_EXPERIMENTAL__PLUGINS"),
        ("b", {"HTTP_PROXY": "https://p:1", "NO_PROXY": "", "no_proxy": ""}, {}, "proxy"),
        ("b", {"AWS_CA_BUNDLE": os.curdir}, {}, "not in a file"),
        ("arn:aws:s3::123456789012:accesspoint/a.mrap", {}, {"endpoint_url": None}, "signature"),
    ],
)
def test_what_is_not_plain_stays_with_the_sdk(
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    bucket: str,
    variables: dict[str, str],
    options: dict[str, Any],
    why: str,
) -> None:
    """Sessions, plug-ins, proxies that were not tried, SigV4A: ``auto`` takes the SDK and says
    why, ``curl`` is an error with a hint."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    wanted = way(server.url, **options)
    took, reason = S3Store(bucket, wanted).transport
    assert took == "boto3"
    assert why in reason
    with pytest.raises(OptionError, match="transport='auto'") as caught:
        S3Store(bucket, replace_transport(wanted))
    assert why in str(caught.value)


def replace_transport(options: S3Options) -> S3Options:
    """The same options, and the fast way is demanded."""
    return replace(options, transport="curl")


def test_without_pycurl_the_sdk_sends(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without pycurl works, and the reason says what to install."""
    monkeypatch.setattr(_libcurl, "pycurl", None)
    store = make(server, transport="auto")
    assert store.put("k", b"x").etag == '"e"'
    assert by_sdk(server.asked[0])
    assert "pip install 'magic-committer[fast]'" in store.transport[1]
    assert batch_of(store) is None


def test_the_doctor_says_which_way_is_in_use(server: ScriptedServer) -> None:
    """In one phrase, with the reason where it is the SDK; nothing of a store that does not say."""
    assert transport_of(make(server)) == "curl"
    assert transport_of(make(server, transport="boto3")) == "boto3 (transport='boto3')"
    assert transport_of(MemoryStore("b")) == ""


def test_other_verbs_are_the_sdks(server: ScriptedServer) -> None:
    """What is asked seldom is asked by the SDK, over the same options."""
    server.said(document("Delete"))
    assert make(server).delete(["k"]) == {}
    assert by_sdk(server.asked[0])


@pytest.mark.parametrize("metadata", [{"a": "two  spaces"}, {"a": "x"}])
def test_odd_text_is_signed_as_the_sdk_signs_it(
    server: ScriptedServer, metadata: dict[str, str]
) -> None:
    """Metadata arrives as it was given."""
    make(server).put("k", b"x", metadata=metadata)
    assert server.asked[0].headers["x-amz-meta-a"] == metadata["a"]


def test_an_empty_value_is_sent_by_the_sdk(server: ScriptedServer) -> None:
    """A header without a value is written by the SDK alone."""
    make(server).put("k", b"x", metadata={"a": ""})
    assert by_sdk(server.asked[0])
    assert server.asked[0].headers["x-amz-meta-a"] == ""


def test_a_forked_child_has_its_own_way(server: ScriptedServer) -> None:
    """A store that was used before a fork works in the child, by the child's own connections."""
    store = make(server)
    store.put("before", b"x")
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_put_and_leave, args=(store,))
    child.start()
    child.join(30)
    store.put("after", b"x")
    assert child.exitcode == 0
    assert [asked.path for asked in server.asked] == ["/b/before", "/b/child", "/b/after"]


def _put_and_leave(store: S3Store) -> None:
    ended = store.put("child", b"x").etag == '"e"' and store.transport[0] == "curl"
    sys.exit(0 if ended else 1)


# Payloads -----------------------------------------------------------------------------------------


CRC = Checksum("CRC32", "AAAAAA==")


def hashes(asked: Iterable[Asked]) -> list[str]:
    """For each request: what its signature says of the body, in a word."""
    words = {signing.UNSIGNED_PAYLOAD: "unsigned"}
    return [words.get(one.headers["x-amz-content-sha256"], "signed") for one in asked]


def test_parts_with_a_checksum_are_not_hashed_on_this_machines_own_interface(
    server: ScriptedServer,
) -> None:
    """A part to loopback has no SHA-256 if the store can check it by its checksum; one without a
    checksum, and a small object, have one."""
    store = make(server)
    store.put_part("k", "u", 1, memoryview(b"x"), checksum=CRC)
    store.put_part("k", "u", 1, memoryview(b"x"))
    store.put("k", b"x")
    assert hashes(server.asked) == ["unsigned", "signed", "signed"]
    assert server.asked[1].headers["x-amz-content-sha256"] == hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize("transport", ["boto3", "curl"])
def test_over_tls_both_ways_hash_the_same_bodies(
    transport: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Over TLS a part is hashed only if it has no checksum; by boto3 and by libcurl alike."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    with scripted_server(lambda _: PUT, context=authority.server("127.0.0.1")) as server:
        store = make(server, transport=transport)
        store.put_part("k", "u", 1, memoryview(b"x" * 300_000), checksum=CRC)
        store.put_part("k", "u", 1, memoryview(b"x" * 300_000))
    assert hashes(server.asked) == ["unsigned", "signed"]


@pytest.mark.parametrize("transport", ["boto3", "curl"])
def test_over_plain_http_to_another_machine_parts_are_hashed(
    transport: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over plain HTTP a part is hashed, with and without a checksum, by both ways."""
    monkeypatch.setenv("HTTP_PROXY", server.url)  # stands for the way to that machine
    store = make(server, transport=transport, endpoint_url="http://store.invalid")
    store.put_part("k", "u", 1, memoryview(b"x"), checksum=CRC)
    store.put_part("k", "u", 1, memoryview(b"x"))
    assert hashes(server.asked) == ["signed", "signed"]


@pytest.mark.parametrize("transport", ["boto3", "curl"])
def test_who_wants_unsigned_payloads_gets_them(
    transport: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``payload_signing_enabled = false`` of the AWS configuration file holds for every body, with
    and without TLS, by both ways."""
    (tmp_path / "config").write_text("[default]\ns3 =\n    payload_signing_enabled = false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    authority = Authority(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    with scripted_server(lambda _: PUT, context=authority.server("127.0.0.1")) as encrypted:
        for one in (server, encrypted):
            store = make(one, transport=transport)
            store.put_part("k", "u", 1, memoryview(b"x"))
            store.put("k", b"x")
            assert hashes(one.asked) == ["unsigned", "unsigned"]


def test_who_wants_signed_payloads_gets_them(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The SDK's ``payload_signing_enabled`` holds for parts too, from memory and from a file."""
    (tmp_path / "config").write_text("[default]\ns3 =\n    payload_signing_enabled = true\n")
    (tmp_path / "body").write_bytes(b"..body..")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    store = make(server)
    store.put_part("k", "u", 1, memoryview(b"body"))
    store.put_part("k", "u", 1, FileSlice(str(tmp_path / "body"), 2, 4))
    wanted = hashlib.sha256(b"body").hexdigest()
    assert {asked.headers["x-amz-content-sha256"] for asked in server.asked} == {wanted}
    assert {asked.body for asked in server.asked} == {b"body"}


# Redirects ----------------------------------------------------------------------------------------


def test_a_redirect_is_followed_by_the_sdk_and_the_route_learnt_anew(
    server: ScriptedServer,
) -> None:
    """An answer that names another region is the SDK's to follow; the next request is signed for
    that region at once, by the fast way."""

    def script(asked: Asked) -> Reply:
        if "/eu-west-3/" in asked.headers["authorization"]:
            return PUT
        wrong = error(400, "AuthorizationHeaderMalformed")
        body = str(wrong.body).replace("<Code>", "<Region>eu-west-3</Region><Code>")
        return Reply(400, body, {"x-amz-bucket-region": "eu-west-3"})

    server.script = script
    store = make(server)
    assert store.put("k", b"x").attempts == 1
    store.put("k", b"x")
    regions = [asked.headers["authorization"].split("/")[2] for asked in server.asked]
    assert regions == ["us-east-1", "eu-west-3", "eu-west-3"]
    assert [by_sdk(asked) for asked in server.asked] == [False, True, False]
    assert [asked.body for asked in server.asked] == [b"x"] * 3


# Batches ------------------------------------------------------------------------------------------


def complete(key: str, **more: Any) -> tuple[str, Ask]:
    """A question under its key."""
    return key, CompleteUpload(key, "u", (PART,), **more)


def ask(store: S3Store, *asks: tuple[str, Ask], at_once: int = 4) -> dict[str, Any]:
    """What each was answered."""
    batch = batch_of(store)
    assert batch is not None
    return dict(batch.ask_each(asks, in_flight=lambda: at_once))


def test_a_batch_asks_as_the_verbs_do(server: ScriptedServer) -> None:
    """The requests of a batch are those of the verbs, each sent once."""
    server.script = lambda asked: (
        Reply(204)
        if asked.method == "DELETE"
        else document("CompleteMultipartUpload", '<ETag>"e-1"</ETag>')
    )
    store = make(server)
    told = ask(store, complete("a", length=1, if_none_match=True), ("b", AbortUpload("b", "u")))
    assert told == {"a": Written('"e-1"'), "b": Written("")}
    first = sorted(server.asked, key=lambda asked: asked.path)
    server.asked.clear()
    store.complete_upload("a", "u", [PART], length=1, if_none_match=True)
    store.abort_upload("b", "u")
    kept = ("if-none-match", "x-amz-mp-object-size", "x-amz-content-sha256")
    for one, other in zip(first, server.asked, strict=True):
        assert (one.method, one.path, one.query, one.body) == (
            other.method,
            other.path,
            other.query,
            other.body,
        )
        assert [one.headers.get(name) for name in kept] == [other.headers.get(n) for n in kept]


@pytest.mark.parametrize(
    "reply",
    [
        error(404, "NoSuchUpload"),
        error(412, "PreconditionFailed"),
        error(409, "ConditionalRequestConflict"),
        error(403, "AccessDenied"),
        error(503, "SlowDown"),
        error(500, "InternalError"),
        Reply(200, error(200, "InternalError").body),
        Reply(200, "<html>log in</html>"),
        Reply(200),
        Reply(404, "no backend"),
        Reply(lost=True),
        Reply(hung=True),
    ],
)
def test_a_batch_tells_what_the_verb_would_tell(server: ScriptedServer, reply: Reply) -> None:
    """Every other answer than success is the verb's own error, as a value, after one sending."""
    server.said(reply)
    store = make(server, complete_seconds_max=0.3, retry_seconds_max=3.0)
    told = ask(store, complete("k"))["k"]
    assert len(server.asked) == 1
    with pytest.raises(StoreError) as caught:
        store.complete_upload("k", "u", [PART], if_none_match=True)
    assert type(told) is type(caught.value)
    assert (told.status, told.code, told.sent) == (
        caught.value.status,
        caught.value.code,
        caught.value.sent,
    )
    assert told.attempts == 1
    assert told.key == "k"


PARTS = (
    "<Part><PartNumber>2</PartNumber><LastModified>2026-11-22T10:00:00.000Z</LastModified>"
    '<ETag>"e"</ETag><Size>7</Size><ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part>'
)
SHOWN = {"ETag": '"e"', "Last-Modified": "Fri, 20 Nov 2026 11:00:00 GMT", "X-Amz-Meta-A": "b"}
LOOKS: dict[str, Ask] = {"list_parts": ListParts("k", "u"), "head": Head("k")}
NO_UPLOAD = error(404, "NoSuchUpload").body
assert isinstance(NO_UPLOAD, str)
PRETTY = f'<?xml version="1.0" encoding="UTF-8"?>\n{NO_UPLOAD.replace("><", ">  <")}\n'
ANSWERS: dict[str, tuple[str, Reply, bool]] = {
    # What was asked, the answer, and whether it says plainly what there is.
    "parts": ("list_parts", document("ListParts", PARTS), True),
    "parts, in S3's namespace": (
        "list_parts",
        Reply(body=f'<ListPartsResult xmlns="http://s3/">{PARTS * 2}</ListPartsResult>'),
        True,
    ),
    "no parts yet": ("list_parts", document("ListParts"), True),
    "an object": ("head", Reply(headers=SHOWN), True),
    "no upload": ("list_parts", error(404, "NoSuchUpload"), True),
    "no upload, in many lines": ("list_parts", Reply(404, PRETTY), True),
    "no object": ("head", Reply(404), True),
    "not allowed": ("list_parts", error(403, "AccessDenied"), False),
    "not allowed, an empty answer": ("list_parts", Reply(403), False),
    "not allowed, to HEAD": ("head", Reply(403), False),
    "a customer's key": ("list_parts", error(400, "InvalidRequest"), False),
    "a customer's key, to HEAD": ("head", Reply(400), False),
    "an empty 404": ("list_parts", Reply(404), False),
    "a page of a proxy": ("list_parts", Reply(404, "<html>no backend</html>"), False),
    "no bucket": ("list_parts", error(404, "NoSuchBucket"), False),
    "no key": ("list_parts", error(404, "NoSuchKey"), False),
    "no upload, and no error": ("list_parts", Reply(200, NO_UPLOAD), False),
    "no upload, and a conflict": ("list_parts", error(409, "NoSuchUpload"), False),
    "a document that was cut": ("list_parts", Reply(404, NO_UPLOAD[:-9]), False),
    "a code that was cut": ("list_parts", Reply(404, NO_UPLOAD[:25]), False),
    "a body that was cut": ("list_parts", Reply(404, NO_UPLOAD[:-9], missing=9), False),
    "nobody's error": ("list_parts", Reply(404, "<Error><Message>NoSuchUpload</Message></Error>"),
                       False),
    "a code inside": ("list_parts", Reply(404, f"<Error><Code/>{NO_UPLOAD}</Error>"), False),
    "an entity for a code": ("list_parts", Reply(404, '<!DOCTYPE Error [<!ENTITY a "NoSuchUpload">'
        "]><Error><Code>&a;</Code></Error>"), False),
    "a comment before the error": ("list_parts", Reply(404, f"<!-- 1 -->{NO_UPLOAD}"), False),
    "an error that is text": ("list_parts", Reply(403, "<R><Error>text</Error></R>"), False),
    "an empty marker of parts": ("list_parts", document(
        "ListParts", "<NextPartNumberMarker></NextPartNumberMarker>" + PARTS), False),
    "two codes": ("list_parts", Reply(404, NO_UPLOAD.replace(
        "<Code>", "<Code>NoSuchBucket</Code><Code>")), False),
    "a longer code": ("list_parts", error(404, "NoSuchUploadPart"), False),
    "parts that were cut": ("list_parts", Reply(200, f"<ListPartsResult>{PARTS[:40]}"), False),
    "a page in place of parts": ("list_parts", Reply(200, "<html>log in</html>"), False),
    "an empty success": ("list_parts", Reply(200), False),
    "too busy": ("list_parts", error(503, "SlowDown"), False),
    "lost": ("list_parts", Reply(lost=True), False),
    "HEAD, lost": ("head", Reply(lost=True), False),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_what_there_is_is_read_as_the_sdk_reads_it(server: ScriptedServer, name: str) -> None:
    """The parts of an upload, an object, and that there is none: batch and verb, by libcurl and by
    the SDK, tell the same; only an exact answer says that an upload or an object is not there."""
    verb, reply, plain = ANSWERS[name]
    server.said(reply)
    store = make(server)
    told = [ask(store, ("k", LOOKS[verb]))["k"]]
    assert len(server.asked) == 1
    for other in (store, make(server, transport="boto3")):
        try:
            told.append(ask_by_verb(other, LOOKS[verb]))
        except StoreError as failure:
            told.append(failure)
    if not isinstance(told[0], StoreError):
        assert plain
        assert told[0] == told[1] == told[2]
        return
    wanted = "NoSuchUpload" if verb == "list_parts" else "NoSuchKey"
    gone = isinstance(told[0], NotFound) and (told[0].status, told[0].code) == (404, wanted)
    assert gone == plain
    assert len({(type(one), one.sent) for one in told}) == 1
    if plain:
        assert len({(str(one), one.status, one.code, one.request_id) for one in told}) == 1


def test_parts_on_several_pages_are_asked_for_by_the_verb(server: ScriptedServer) -> None:
    """A batch gives all parts or an error that says that nothing is known: a page is not all."""
    more = "<IsTruncated>true</IsTruncated><NextPartNumberMarker>2</NextPartNumberMarker>"
    last = PARTS.replace("<PartNumber>2", "<PartNumber>3")
    server.script = lambda asked: document(
        "ListParts", last if "part-number-marker" in asked.query else PARTS + more
    )
    store = make(server)
    told = ask(store, ("k", ListParts("k", "u")))["k"]
    assert isinstance(told, Unanswered)
    assert [part.number for part in store.list_parts("k", "u")] == [2, 3]
    assert not any(by_sdk(asked) for asked in server.asked)


LISTED = (
    "<Upload><Key>{key}</Key><UploadId>{id}</UploadId>"
    "<Initiated>2026-11-22T10:00:00.000Z</Initiated></Upload>"
)
MORE = (
    "<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>"
    "<NextUploadIdMarker>u8</NextUploadIdMarker>"
)


@pytest.mark.parametrize(
    ("shown", "more", "found"),
    [
        ([("k", "u")], "", True),
        ([("k", "u2"), ("k", "u")], "", True),
        ([], "", False),
        ([("k", "u2")], "", False),
        ([("k2", "u")], "", False),
        ([("k", "u2"), ("k", "u")], MORE, True),
        ([("k", "u2"), ("k2", "u")], MORE, False),
        ([("a", "u"), ("z", "u")], "", False),
    ],
)
def test_an_upload_is_found_by_a_batch_as_by_the_verb(
    server: ScriptedServer, shown: list[tuple[str, str]], more: str, found: bool
) -> None:
    """Whether a listing of its key shows an upload, and since when it is open: batch and verb, by
    libcurl and by the SDK, tell the same, with one request."""
    server.said(
        document(
            "ListMultipartUploads",
            "".join(LISTED.format(key=key, id=one) for key, one in shown) + more,
        )
    )
    store, asked = make(server), FindUpload("k", "u")
    told = [ask(store, ("k", asked))["k"]]
    assert server.asked[0].query == {"uploads": "", "prefix": "k"} | {
        name: text for name, text in server.asked[0].query.items() if name == "encoding-type"
    }
    told += [ask_by_verb(other, asked) for other in (store, make(server, transport="boto3"))]
    for page in told:
        assert isinstance(page, UploadPage)
        assert [(one.key, one.upload_id) for one in page.uploads] == [("k", "u")] * found
        assert [one.initiated for one in page.uploads] == [1_795_341_600.0] * found
    assert len(server.asked) == 3


def test_an_upload_behind_a_page_is_looked_for_by_the_verb(server: ScriptedServer) -> None:
    """A key has more uploads than a page shows: a batch says that nothing is known, and the verb
    finds the upload on the next page."""
    first = "".join(LISTED.format(key="k", id=f"a{number}") for number in range(3))
    server.script = lambda asked: document(
        "ListMultipartUploads",
        LISTED.format(key="k", id="u") if "key-marker" in asked.query else first + MORE,
    )
    store, asked = make(server), FindUpload("k", "u")
    told = ask(store, ("k", asked))["k"]
    assert isinstance(told, Unanswered)
    assert not told.sent
    page = ask_by_verb(store, asked)
    assert isinstance(page, UploadPage)
    assert [one.upload_id for one in page.uploads] == ["u"]


def test_a_batch_follows_no_redirect(server: ScriptedServer) -> None:
    """A redirect is an error of a batch, which sends nothing twice; the next request goes to the
    region that the SDK has learnt by then."""
    elsewhere = replace(error(301, "PermanentRedirect"), headers={"x-amz-bucket-region": "eu-3"})
    server.said(elsewhere)
    store = make(server)
    told = ask(store, complete("k"))["k"]
    assert isinstance(told, InvalidRequest)
    assert (told.status, told.code, told.sent) == (301, "PermanentRedirect", True)
    assert len(server.asked) == 1
    server.said(document("CompleteMultipartUpload"))
    assert ask(store, complete("k")) == {"k": Written("")}
    assert "/eu-3/s3/" in server.asked[1].headers["authorization"]


def test_a_batch_gives_each_its_own_answer(server: ScriptedServer) -> None:
    """Answers in any order reach who asked; one failure is not another's."""
    server.script = lambda asked: (
        error(404, "NoSuchUpload")
        if asked.path.endswith("7")
        else document("CompleteMultipartUpload", f"<ETag>{asked.path}</ETag>")
    )
    keys = [f"k{number}" for number in range(60)]
    told = ask(make(server), *(complete(key) for key in keys), at_once=16)
    for key in keys:
        if key.endswith("7"):
            assert isinstance(told[key], NotFound)
        else:
            assert told[key].etag == f"/b/{key}"
    assert sorted(told) == sorted(keys)
    assert len(server.asked) == 60


def test_what_a_batch_cannot_send_was_not_sent(server: ScriptedServer) -> None:
    """A request that only the SDK can write is told as not sent; the others go on."""
    server.said(document("CompleteMultipartUpload"))
    told = ask(make(server), ("", CompleteUpload("", "u", (PART,))), complete("k"))
    assert isinstance(told[""], Unanswered)
    assert (told[""].sent, told["k"]) == (False, Written(""))
    assert len(server.asked) == 1


# Errors -------------------------------------------------------------------------------------------

SAYS = {
    Cause.CONNECT: ("could not reach http://h:1: why", "endpoint_url"),
    Cause.PROXY: ("could not reach http://h:1: why", "NO_PROXY"),
    Cause.TLS: ("could not reach http://h:1: why", "scheme"),
    Cause.CERTIFICATE: ("certificate verify failed: why", "AWS_CA_BUNDLE"),
    Cause.TIME: ("could not reach http://h:1: why", "endpoint"),
    Cause.BROKEN: ("could not reach http://h:1: why", "endpoint"),
    Cause.LIMIT: ("could not reach http://h:1: why", "endpoint"),
}


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("sent", Sent)
def test_every_failure_says_whether_it_was_sent(cause: Cause, sent: Sent) -> None:
    """What the engine knows reaches the caller: ``sent`` is False for `Sent.NEVER` alone, and the
    text says what to check; only a certificate is final."""
    failure = NoAnswer(cause, sent, "why")
    failure.where = "http://h:1"
    told = translate(failure, "put", "b", "k", sent=not never_sent(failure))
    assert isinstance(told, Unanswered)
    assert told.sent is (sent is not Sent.NEVER)
    assert kind(failure) == ("final" if cause is Cause.CERTIFICATE else "transient")
    said, check = SAYS[cause]
    if sent is Sent.NEVER:
        assert said in str(told)
        assert check in str(told)
        assert "Nothing was sent" in str(told)
    else:
        assert "no answer: why" in str(told)
        assert "Nothing was sent" not in str(told)


def test_a_large_object_is_refused_by_its_length(server: ScriptedServer) -> None:
    """Of an object that is far too large the size is told, and the bytes are not read."""
    headers = {"ETag": '"e"', "Last-Modified": "Fri, 20 Nov 2026 11:00:00 GMT"}
    server.said(Reply(body=b"x" * 3_000_000, headers=headers))
    with pytest.raises(InvalidRequest, match="3000000 bytes") as caught:
        make(server).get("k", max_bytes=10)
    assert caught.value.code == "TooLarge"
