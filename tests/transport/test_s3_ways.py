"""Which way requests go, and what is handed from one way to the other."""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    OptionError,
    PermissionDenied,
    StoreError,
    Unanswered,
)
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
    many_of,
    transport_of,
)
from magic_committer.stores.memory import MemoryStore
from magic_committer.stores.s3 import S3Store, http, signing
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

PUT = Reply(headers={"ETag": '"e"'})
PART = Part(1, '"p"', 1)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that takes everything."""
    with scripted_server(lambda _: PUT) as running:
        yield running


def make(server: ScriptedServer, **more: Any) -> S3Store:
    """A store on it, by the fast way."""
    options = way(server.url, **{"retry_attempts_max": 1, "transport": "fast", **more})
    return S3Store("b", options, clock=HurriedClock())


def by_sdk(asked: Asked) -> bool:
    """Whether the SDK sent it."""
    return "amz-sdk-invocation-id" in asked.headers


# Which way ----------------------------------------------------------------------------------------


def test_the_fast_way_is_taken_where_it_can_be(server: ScriptedServer) -> None:
    """``auto`` and ``fast`` send by the fast way, ``boto3`` by the SDK; the store says so."""
    for transport, wanted in (
        ("auto", ("fast", "")),
        ("fast", ("fast", "")),
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
        ("b", {"AWS_SIGV4A_SIGNING_REGION_SET": "*"}, {}, "sigv4a_signing_region_set"),
        ("arn:aws:s3::123456789012:accesspoint/a.mrap", {}, {"endpoint_url": None}, "access point"),
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
    why, ``fast`` is an error with a hint."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    wanted = way(server.url, **options)
    took, reason = S3Store(bucket, wanted).transport
    assert took == "boto3"
    assert why in reason
    with pytest.raises(OptionError, match="transport='auto'") as caught:
        S3Store(bucket, replace(wanted, transport="fast"))
    assert why in str(caught.value)


def test_without_httptools_boto3_sends_by_its_own_connections(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine for which there is no httptools works: answers are read by the same checks."""
    monkeypatch.setattr(http, "httptools", None)
    store = make(server, transport="auto")
    assert store.put("k", b"x").etag == '"e"'
    assert by_sdk(server.asked[0])
    assert store.transport == ("boto3", "httptools is not installed")
    assert many_of(store) is None
    headers = {"ETag": '"e"', "Last-Modified": "Fri, 20 Nov 2026 11:00:00 GMT"}
    server.said(Reply(body=b"0123456789", headers=headers))
    assert store.get("k", max_bytes=10).body == b"0123456789"
    for bytes_max in (9, 0):
        with pytest.raises(InvalidRequest) as large:
            store.get("k", max_bytes=bytes_max)
        assert large.value.code == "TooLarge"
    server.said(Reply(body=b"01", headers=headers, missing=5))
    with pytest.raises(Unanswered):
        store.get("k", max_bytes=10)
    server.said(Reply(200, "<html>log in</html>"))
    for ask in (lambda: store.head("k"), lambda: store.put("k", b""), lambda: list(store.list(""))):
        with pytest.raises(Unanswered):
            ask()
    server.said(error(403, "AccessDenied"))
    with pytest.raises(PermissionDenied):
        store.put("k", b"")
    with pytest.raises(Unanswered, match="connection") as gone:
        make(server, transport="auto", endpoint_url="http://127.0.0.1:9").head("k")
    assert not gone.value.sent


def test_the_doctor_says_which_way_is_in_use(server: ScriptedServer) -> None:
    """In one phrase, with the reason where it is the SDK; nothing of a store that does not say."""
    assert transport_of(make(server)) == "fast"
    assert transport_of(make(server, transport="boto3")) == "boto3 (transport='boto3')"
    assert transport_of(MemoryStore("b")) == ""


@pytest.mark.parametrize("metadata", [{"a": "two  spaces"}, {"a": "x"}, {"a": ""}])
@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_metadata_arrives_as_it_was_given(
    server: ScriptedServer, metadata: dict[str, str], transport: str
) -> None:
    """Also empty text, and with spaces."""
    make(server, transport=transport).put("k", b"x", metadata=metadata)
    assert server.asked[0].headers["x-amz-meta-a"] == metadata["a"]


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
    ended = store.put("child", b"x").etag == '"e"' and store.transport[0] == "fast"
    sys.exit(0 if ended else 1)


# Payloads -----------------------------------------------------------------------------------------


CRC = Checksum("CRC32", "AAAAAA==")


def hashes(asked: Iterable[Asked]) -> list[str]:
    """For each request: what its signature says of the body, in a word."""
    words = {signing.UNSIGNED_PAYLOAD: "unsigned"}
    return [words.get(one.headers["x-amz-content-sha256"], "signed") for one in asked]


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_over_tls_both_ways_hash_the_same_bodies(
    transport: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Over TLS a part is hashed only if it has no checksum; by boto3 and by the fast way alike."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.pem)
    with scripted_server(lambda _: PUT, context=authority.server("127.0.0.1")) as server:
        store = make(server, transport=transport)
        store.put_part("k", "u", 1, memoryview(b"x" * 300_000), checksum=CRC)
        store.put_part("k", "u", 1, memoryview(b"x" * 300_000))
    assert hashes(server.asked) == ["unsigned", "signed"]


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_over_plain_http_every_body_is_hashed(transport: str, server: ScriptedServer) -> None:
    """Nothing else would show that a part was changed on the way; by both ways."""
    store = make(server, transport=transport)
    store.put_part("k", "u", 1, memoryview(b"x"), checksum=CRC)
    store.put_part("k", "u", 1, memoryview(b"x"))
    store.put("k", b"x")
    assert hashes(server.asked) == ["signed"] * 3
    assert server.asked[1].headers["x-amz-content-sha256"] == hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize("transport", ["boto3", "fast"])
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


@pytest.mark.parametrize("transport", ["boto3", "fast"])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_bucket_in_another_region_is_found(
    server: ScriptedServer, transport: str, at_once: bool
) -> None:
    """An answer that names another region: the request is sent again, signed for that one, as if it
    had been sent once; and the next one at once."""

    def script(asked: Asked) -> Reply:
        if "/eu-west-3/" in asked.headers["authorization"]:
            return PUT
        wrong = error(400, "AuthorizationHeaderMalformed")
        body = str(wrong.body).replace("<Code>", "<Region>eu-west-3</Region><Code>")
        return Reply(400, body, {"x-amz-bucket-region": "eu-west-3"})

    server.script = script
    store = make(server, transport=transport)
    count = 1
    if at_once and transport == "fast":
        count = 4  # each was sent before the first of them knew
        told = ask(store, *[(name, AbortUpload(name, "u")) for name in "abcd"])
        assert told == dict.fromkeys("abcd", Written(""))
    else:
        assert store.put("k", b"x").attempts == 1
    store.put("k", b"x")
    regions = [asked.headers["authorization"].split("/")[2] for asked in server.asked]
    assert sorted(regions, reverse=True) == ["us-east-1"] * count + ["eu-west-3"] * (count + 1)
    assert regions[-1] == "eu-west-3"


# Many at once -------------------------------------------------------------------------------------


def complete(key: str, **more: Any) -> tuple[str, Ask]:
    """A question under its key."""
    return key, CompleteUpload(key, "u", (PART,), **more)


def ask(store: S3Store, *asks: tuple[str, Ask], at_once: int = 4) -> dict[str, Any]:
    """What each was answered."""
    many, left = many_of(store), iter(asks)
    assert many is not None
    return dict(many.ask_each(lambda: next(left, None), in_flight=at_once))


def test_many_are_asked_as_the_verbs_ask(server: ScriptedServer) -> None:
    """The requests are those of the verbs."""
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
def test_many_are_told_what_the_verb_would_tell(server: ScriptedServer, reply: Reply) -> None:
    """Every other answer than success is the verb's own error, as a value."""
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
        "ListParts", "<NextPartNumberMarker></NextPartNumberMarker>" + PARTS), True),
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
def test_what_there_is_is_read_in_one_way(server: ScriptedServer, name: str) -> None:
    """The parts of an upload, an object, and that there is none: one of many and the verb, by the
    fast way and by boto3, tell the same; only an exact answer says that something is not there."""
    verb, reply, plain = ANSWERS[name]
    server.said(reply)
    store = make(server)
    told = [ask(store, ("k", LOOKS[verb]))["k"]]
    # A refused HEAD is followed by a listing of the key.
    assert len(server.asked) == (2 if name == "not allowed, to HEAD" else 1)
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


def test_parts_on_several_pages_are_all_asked_for(server: ScriptedServer) -> None:
    """A page is not all."""
    more = "<IsTruncated>true</IsTruncated><NextPartNumberMarker>2</NextPartNumberMarker>"
    last = PARTS.replace("<PartNumber>2", "<PartNumber>3")
    server.script = lambda asked: document(
        "ListParts", last if "part-number-marker" in asked.query else PARTS + more
    )
    told = ask(make(server), ("k", ListParts("k", "u")))["k"]
    assert [part.number for part in told] == [2, 3]


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
def test_an_upload_is_found_among_many_as_by_the_verb(
    server: ScriptedServer, shown: list[tuple[str, str]], more: str, found: bool
) -> None:
    """Whether a listing of its key shows an upload, and since when it is open: batch and verb, by
    the fast way and by boto3, tell the same, with one request."""
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


def test_an_upload_behind_a_page_is_found(server: ScriptedServer) -> None:
    """A key has more uploads than a page shows: the next one is asked for."""
    first = "".join(LISTED.format(key="k", id=f"a{number}") for number in range(3))
    server.script = lambda asked: document(
        "ListMultipartUploads",
        LISTED.format(key="k", id="u") if "key-marker" in asked.query else first + MORE,
    )
    page = ask(make(server), ("k", FindUpload("k", "u")))["k"]
    assert [one.upload_id for one in page.uploads] == ["u"]


def test_each_is_tried_again_while_the_others_go_on(server: ScriptedServer) -> None:
    """Every third answer is a failure that passes: all are completed, each says how often it was
    sent, and who is throttled is sent less at once."""
    failed: set[str] = set()

    def script(asked: Asked) -> Reply:
        if asked.path not in failed and len(failed) < 20:
            failed.add(asked.path)
            passing = (error(503, "SlowDown"), Reply(lost=True), Reply(200, "<html/>"))
            return passing[len(failed) % 3]
        return document("CompleteMultipartUpload")

    server.script = script
    told = ask(make(server, retry_attempts_max=5), *(complete(f"k{n}") for n in range(60)))
    assert sorted(told) == sorted(f"k{n}" for n in range(60))
    assert {one.attempts for one in told.values()} == {1, 2}
    assert sum(one.attempts for one in told.values()) == len(server.asked) == 80


def test_who_leaves_early_waits_for_what_is_in_flight(server: ScriptedServer) -> None:
    """Nothing is given up, and nothing new is begun."""
    server.said(document("CompleteMultipartUpload"))
    many, left = many_of(make(server)), iter([complete(f"k{n}") for n in range(50)])
    assert many is not None
    answers = many.ask_each(lambda: next(left, None), in_flight=8)
    next(answers)
    answers.close()
    sent, rest = len(server.asked), len(list(left))
    assert sent + rest == 50
    assert sent <= 16


def test_abort_once_is_sent_once(server: ScriptedServer) -> None:
    """What follows from a look is not sent again on an old one."""
    server.said(error(503, "SlowDown"))
    store = make(server, retry_attempts_max=5)
    told = ask(store, ("k", AbortUpload("k", "u", once=True)))["k"]
    assert (type(told), len(server.asked)) == (Unanswered, 1)
    with pytest.raises(Unanswered):
        ask_by_verb(store, AbortUpload("k", "u", once=True))
    assert len(server.asked) == 2


def test_each_gets_its_own_answer(server: ScriptedServer) -> None:
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


def test_what_cannot_be_written_is_not_sent(server: ScriptedServer) -> None:
    """It is an error of its own; the others go on."""
    server.said(document("CompleteMultipartUpload"))
    told = ask(make(server), ("", CompleteUpload("", "u", (PART,))), complete("k"))
    assert isinstance(told[""], InvalidRequest)
    assert (told[""].sent, told["k"]) == (False, Written(""))
    assert len(server.asked) == 1


# Errors -------------------------------------------------------------------------------------------

SAYS = {
    Cause.CONNECT: ("could not reach http://h:1: why", "endpoint_url"),
    Cause.PROXY: ("could not reach http://h:1: why", "NO_PROXY"),
    Cause.TLS: ("could not reach http://h:1: why", "scheme"),
    Cause.CERTIFICATE: ("could not reach http://h:1: why", "AWS_CA_BUNDLE"),
    Cause.FULL: ("could not reach http://h:1: why", "ulimit -n"),
    Cause.TIME: ("could not reach http://h:1: why", "endpoint"),
    Cause.BROKEN: ("could not reach http://h:1: why", "endpoint"),
    Cause.LIMIT: ("could not reach http://h:1: why", "endpoint"),
}


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("sent", Sent)
def test_every_failure_says_whether_it_was_sent(cause: Cause, sent: Sent) -> None:
    """What the engine knows reaches the caller: ``sent`` is False for `Sent.NEVER` alone, and the
    text says what to check; only a certificate is final."""
    failure = NoAnswer(cause, sent, "why", where="http://h:1")
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
