"""What goes over the wire, and what comes back, where a contract cannot see it."""

from __future__ import annotations

import base64
import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer import checksum as checksums
from magic_committer.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    OptionError,
    PermissionDenied,
)
from magic_committer.options import S3Options
from magic_committer.stores.base import Attributes, Part, UploadInfo
from magic_committer.stores.s3 import S3Store, client, connect
from magic_committer.stores.s3.client import STORES_MAX
from tests.servers import (
    DATE_SECONDS,
    TRANSPORT,
    Asked,
    HurriedClock,
    Reply,
    ScriptedServer,
    document,
    error,
    moto_server,
    scripted_server,
    way,
)

pytestmark = pytest.mark.usefixtures("transport")

MODIFIED = {"Last-Modified": "Fri, 20 Nov 2026 11:00:00 GMT", "ETag": '"e"'}
PUT = Reply(headers={"ETag": '"e"'})
KEY = bytes(range(32))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that takes every write and says what it is asked in the simplest way."""

    def script(asked: Asked) -> Reply:
        if asked.method == "POST" and "uploads" in asked.query:
            return document("InitiateMultipartUpload", "<UploadId>u1</UploadId>")
        if asked.method == "POST":
            return document("CompleteMultipartUpload", '<ETag>"e-1"</ETag>')
        if "uploadId" in asked.query and asked.method == "GET":
            return document("ListParts", "<IsTruncated>false</IsTruncated>")
        if "list-type" in asked.query:
            return document("ListObjects")
        return Reply(headers=MODIFIED)

    with scripted_server(script) as running:
        yield running


def make(server: ScriptedServer, **more: Any) -> S3Store:
    """A store on a scripted server, which asks once."""
    options = way(server.url, **{"retry_attempts_max": 1, **more})
    return S3Store("b", options, clock=HurriedClock())


def every_verb_on_a_key(store: S3Store) -> None:
    """One request of each verb that names a data object."""
    store.put("k", b"x")
    store.get("k", max_bytes=1)
    store.head("k")
    upload_id = store.create_upload("k", attributes=Attributes()).upload_id
    store.put_part("k", upload_id, 1, memoryview(b"x"))
    store.list_parts("k", upload_id)
    store.complete_upload("k", upload_id, [Part(1, '"e"', 1)])


# Headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("etag", ['"quoted"', "unquoted"])
def test_if_match_is_sent_as_given(server: ScriptedServer, etag: str) -> None:
    """The condition goes out letter by letter: RGW understands only the unquoted form."""
    store = make(server)
    store.put("k", b"x", if_match=etag)
    store.delete_one("k", if_match=etag)
    assert [asked.headers["if-match"] for asked in server.asked] == [etag, etag]


def test_if_none_match_is_a_star(server: ScriptedServer) -> None:
    """PUT and Complete send ``If-None-Match: *`` when asked to, else no condition at all."""
    store = make(server)
    store.put("k", b"x", if_none_match=True)
    store.complete_upload("k", "u", [Part(1, '"e"', 1)], if_none_match=True)
    store.put("k", b"x")
    assert [asked.headers.get("if-none-match") for asked in server.asked] == ["*", "*", None]


def test_etags_come_back_as_they_were_sent(server: ScriptedServer) -> None:
    """Quoted stays quoted and bare stays bare."""
    store = make(server)
    for etag in ('"quoted"', "bare"):
        server.said(Reply(headers={**MODIFIED, "ETag": etag}))
        assert store.head("k").etag == store.put("k", b"").etag == etag


def test_a_complete_without_an_etag_is_no_error(server: ScriptedServer) -> None:
    """Ceph RGW leaves the ETag out of Complete's reply: it is empty then."""
    server.said(document("CompleteMultipartUpload", "<Key>k</Key>"))
    assert make(server).complete_upload("k", "u", [Part(1, '"e"', 1)]).etag == ""


def test_seen_at_is_the_replys_date(server: ScriptedServer) -> None:
    """Ages come from the reply alone: its Date and its Last-Modified."""
    info = make(server).head("k")
    assert (info.seen_at, info.last_modified) == (DATE_SECONDS, DATE_SECONDS - 3600)


def test_without_a_date_the_machines_clock_counts(server: ScriptedServer) -> None:
    """A reply without Date, or with nonsense there, is seen at this machine's time."""
    store = make(server)
    for date in ("", "nonsense"):
        server.said(Reply(headers={**MODIFIED, "Date": date}))
        assert store.head("k").seen_at > DATE_SECONDS - 10**9
        assert store.head("k").seen_at != DATE_SECONDS


def test_data_objects_have_attributes_and_control_objects_do_not(server: ScriptedServer) -> None:
    """Storage class, ACL and tags go with Create, the caller's first; PUT has none."""
    store = make(
        server, storage_class="STANDARD_IA", acl="private", tags=(("team", "a b"), ("x", "1"))
    )
    attributes = Attributes(
        metadata={"token": "t"}, content_type="text/csv", storage_class="GLACIER", tags={"x": "2"}
    )
    store.create_upload("k", attributes=attributes)
    store.put("k", b"x", content_type="application/json")
    create, put = (asked.headers for asked in server.asked)
    assert create["x-amz-storage-class"] == "GLACIER"
    assert create["x-amz-acl"] == "private"
    assert create["x-amz-tagging"] == "team=a+b&x=2"
    assert create["x-amz-meta-token"] == "t"
    assert create["content-type"] == "text/csv"
    assert put["content-type"] == "application/json"
    assert {name for name in put if "storage" in name or "acl" in name or "tag" in name} == set()


def test_checksums_are_ours_alone(server: ScriptedServer) -> None:
    """The SDK adds no checksum of its own; ours go with each part, with Create and Complete."""
    store = make(server)
    store.put("k", b"x")
    store.put_part("k", "u", 1, memoryview(b"x"))
    crc = checksums.of("CRC32", b"x")
    store.create_upload("k", attributes=Attributes(), checksum="CRC32")
    part = store.put_part("k", "u1", 1, memoryview(b"x"), checksum=crc)
    store.complete_upload("k", "u1", [part], length=1, checksum=crc)
    plain, bare, create, sent, complete = (asked.headers for asked in server.asked)
    for headers in (plain, bare):
        assert [name for name in headers if "checksum" in name or "trailer" in name] == []
    assert create["x-amz-checksum-algorithm"] == "CRC32"
    assert create["x-amz-checksum-type"] == complete["x-amz-checksum-type"] == "FULL_OBJECT"
    assert sent["x-amz-checksum-crc32"] == complete["x-amz-checksum-crc32"] == crc.value
    assert complete["x-amz-mp-object-size"] == "1"
    assert f"<ChecksumCRC32>{crc.value}</ChecksumCRC32>".encode() in server.asked[-1].body


def test_customer_keys_go_with_every_request_on_an_object(server: ScriptedServer) -> None:
    """SSE-C: each verb sends the key and its MD5 (S3 API)."""
    every_verb_on_a_key(make(server, encryption="SSE-C", sse_customer_key=KEY))
    md5 = base64.b64encode(hashlib.md5(KEY).digest()).decode()
    prefix = "x-amz-server-side-encryption-customer-"
    for asked in server.asked:
        assert asked.headers[f"{prefix}algorithm"] == "AES256"
        assert asked.headers[f"{prefix}key"] == base64.b64encode(KEY).decode()
        assert asked.headers[f"{prefix}key-md5"] == md5
    assert len(server.asked) == 7


def test_the_customer_key_may_come_from_the_environment(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was sent the options without the key finds it in its environment."""
    name = "MAGIC_COMMITTER_SSE_CUSTOMER_KEY"
    monkeypatch.setenv(name, base64.b64encode(KEY).decode())
    make(server, encryption="SSE-C").head("k")
    sent = server.asked[0].headers["x-amz-server-side-encryption-customer-key"]
    assert base64.b64decode(sent) == KEY
    for wrong in ("", "not base64!", base64.b64encode(b"short").decode()):
        monkeypatch.setenv(name, wrong)
        with pytest.raises(OptionError, match=name):
            make(server, encryption="SSE-C")


@pytest.mark.parametrize(
    ("encryption", "key_id"),
    [("AES256", None), ("aws:kms", "key-1"), ("aws:kms", None), ("aws:kms:dsse", "key-1")],
)
def test_server_side_encryption_goes_with_what_makes_objects(
    server: ScriptedServer, encryption: str, key_id: str | None
) -> None:
    """SSE-S3 and KMS are named at PUT and Create, and nowhere else (S3 API)."""
    every_verb_on_a_key(make(server, encryption=encryption, kms_key_id=key_id))
    named = [a for a in server.asked if "x-amz-server-side-encryption" in a.headers]
    assert [(a.method, "uploads" in a.query) for a in named] == [("PUT", False), ("POST", True)]
    assert {a.headers["x-amz-server-side-encryption"] for a in named} == {encryption}
    sent = {a.headers.get("x-amz-server-side-encryption-aws-kms-key-id") for a in named}
    assert sent == {key_id}


def test_the_payer_says_so_in_each_request(server: ScriptedServer) -> None:
    """``requester_pays`` goes with every request."""
    store = make(server, requester_pays=True)
    every_verb_on_a_key(store)
    list(store.list("p"))
    store.delete_one("k")
    store.abort_upload("k", "u")
    assert {asked.headers.get("x-amz-request-payer") for asked in server.asked} == {"requester"}


def test_anonymous_requests_are_not_signed(server: ScriptedServer) -> None:
    """``anonymous`` sends no signature, whatever the environment holds."""
    make(server, anonymous=True, access_key=None, secret_key=None).head("k")
    make(server).head("k")
    assert ["authorization" in asked.headers for asked in server.asked] == [False, True]


def test_an_endpoint_gets_path_style_and_a_region(server: ScriptedServer) -> None:
    """Where an endpoint is given the bucket is in the path; without a region it is us-east-1."""
    make(server).head("k")
    assert server.asked[0].path == "/b/k"
    assert "/us-east-1/s3/" in server.asked[0].headers["authorization"]
    make(server, region="eu-north-1").head("k")
    assert "/eu-north-1/s3/" in server.asked[1].headers["authorization"]


def test_bodies_do_not_wait_for_a_continue(server: ScriptedServer) -> None:
    """No part costs a round trip more than it needs: no ``Expect`` header."""
    make(server).put_part("k", "u", 1, memoryview(bytes(1024**2)))
    assert "expect" not in server.asked[0].headers


# Listings ------------------------------------------------------------------------------------


def _uploads(*entries: tuple[str, str], following: tuple[str, str] | None = None) -> Reply:
    rows = "".join(
        f"<Upload><Key>{key}</Key><UploadId>{upload_id}</UploadId></Upload>"
        for key, upload_id in entries
    )
    more = (
        f"<IsTruncated>true</IsTruncated><NextKeyMarker>{following[0]}</NextKeyMarker>"
        f"<NextUploadIdMarker>{following[1]}</NextUploadIdMarker>"
        if following
        else "<IsTruncated>false</IsTruncated>"
    )
    return document("ListMultipartUploads", f"{more}{rows}")


def _pager(
    held: list[tuple[str, str]], *, both_markers: bool, inclusive: bool, size: int = 3
) -> Callable[[Asked], Reply]:
    """A server's listing of uploads with small pages."""

    def script(asked: Asked) -> Reply:
        key, upload_id = asked.query.get("key-marker", ""), asked.query.get("upload-id-marker", "")
        if key and upload_id and not both_markers:
            return error(400, "InvalidArgument")
        if upload_id:
            rest = [one for one in held if one > (key, upload_id)]
        else:
            rest = [one for one in held if one[0] > key or (inclusive and one[0] == key)]
        page = rest[:size]
        return _uploads(*page, following=page[-1] if len(rest) > size else None)

    return script


HELD = [
    (key, number)
    for key, count in zip("abcde", (1, 2, 1, 2, 1), strict=True)
    for number in "123"[:count]
]


@pytest.mark.parametrize("both_markers", [True, False])
@pytest.mark.parametrize("inclusive", [True, False])
def test_uploads_are_paged_on_every_kind_of_store(
    server: ScriptedServer, both_markers: bool, inclusive: bool
) -> None:
    """All uploads are listed once, in order, also where both markers together are refused
    (versitygw) and where the key marker is inclusive (RGW)."""
    server.script = _pager(HELD, both_markers=both_markers, inclusive=inclusive)
    pages = list(make(server).list_uploads(""))
    assert [(one.key, one.upload_id) for page in pages for one in page.uploads] == HELD
    assert {page.seen_at for page in pages} == {DATE_SECONDS}
    refused = sum(len(asked.query) > 3 for asked in server.asked)
    assert both_markers or refused == 1


def test_the_way_round_is_taken_after_a_refusal_only(server: ScriptedServer) -> None:
    """A first page that is refused is refused; the way round needs a page before."""
    server.said(error(400, "InvalidArgument"))
    with pytest.raises(InvalidRequest):
        list(make(server).list_uploads("p"))
    assert len(server.asked) == 1


def test_a_page_of_one_key_does_not_hold_up_the_rest(server: ScriptedServer) -> None:
    """Where a key has more uploads than a page on such a store, the listing goes on behind it:
    a sweep that aborts and lists again finds the others."""
    held = [("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("b", "1"), ("c", "1")]
    server.script = _pager(held, both_markers=False, inclusive=False)
    pages = make(server).list_uploads("")
    listed = [(one.key, one.upload_id) for page in pages for one in page.uploads]
    assert listed == [one for one in held if one != ("a", "4")]


def test_an_upload_without_initiated_is_listed(server: ScriptedServer) -> None:
    """``Initiated`` may be missing (SeaweedFS); owner and initiator too."""
    server.said(_uploads(("k", "1")))
    (page,) = make(server).list_uploads("")
    assert page.uploads == (UploadInfo("k", "1"),)


def test_what_lies_outside_the_prefix_is_never_given(server: ScriptedServer) -> None:
    """A store that ignores the prefix (nanio) does not make us touch other keys."""
    store = make(server)
    server.said(_uploads(("other", "1"), ("p/k", "2")))
    (page,) = store.list_uploads("p/")
    assert [one.key for one in page.uploads] == ["p/k"]
    entry = (
        "<Contents><Key>{}</Key><Size>1</Size>"
        "<LastModified>2026-11-20T11:00:00.000Z</LastModified></Contents>"
    )
    prefixes = "".join(
        f"<CommonPrefixes><Prefix>{p}</Prefix></CommonPrefixes>" for p in ("o/", "p/d/")
    )
    both = entry.format("other") + entry.format("p/k")
    server.said(document("ListObjects", both + prefixes))
    (objects,) = store.list("p/", delimiter="/")
    assert [one.key for one in objects.objects] == ["p/k"]
    assert objects.prefixes == ("p/d/",)


@pytest.mark.parametrize("verb", ["ListObjects", "ListMultipartUploads", "ListParts"])
def test_more_without_a_place_is_an_error(server: ScriptedServer, verb: str) -> None:
    """A listing that says "more" and not where is never taken for the end."""
    store = make(server)
    server.said(document(verb, "<IsTruncated>true</IsTruncated>"))
    ask: Callable[[], object] = {
        "ListObjects": lambda: list(store.list("p")),
        "ListMultipartUploads": lambda: list(store.list_uploads("p")),
        "ListParts": lambda: store.list_parts("k", "u"),
    }[verb]
    with pytest.raises(NotSupported):
        ask()


# Stores and processes ------------------------------------------------------------------------


def test_connect_gives_one_store_for_one_way() -> None:
    """The same bucket and options share a store and its connections; others do not."""
    options = S3Options(endpoint_url="http://127.0.0.1:1", anonymous=True)
    assert connect("b", options) is connect("b", options)
    assert connect("b", options) is not connect("c", options)


def test_stores_that_nobody_uses_are_closed(server: ScriptedServer) -> None:
    """Each has other keys. The descriptors of those that were wanted last stay open, no others."""
    counts = []
    for number in range(3 * STORES_MAX):
        connect("b", way(server.url, access_key=f"key-{number}")).put("k", b"x")
        if number >= STORES_MAX:
            counts.append(len(os.listdir("/proc/self/fd")))
    # Servers and threads may end a moment later: the least of some looks is compared.
    assert min(counts[-8:]) <= min(counts[:8])
    assert len(client._connected) == STORES_MAX


def test_a_store_that_a_job_has_stays_open(server: ScriptedServer) -> None:
    """However many others are wanted meanwhile: it works, and who wants it gets the same."""
    store = connect("mine", way(server.url))
    store.put("k", b"x")
    once = connect("once", way(server.url)).once()
    for number in range(2 * STORES_MAX):
        connect("b", way(server.url, access_key=f"key-{number}"))
    assert connect("mine", way(server.url)) is store
    store.put("k", b"x")
    once.put("k", b"x")


def test_threads_may_want_more_stores_than_are_kept(server: ScriptedServer) -> None:
    """None is closed under a thread that uses it."""

    def use(thread: int) -> None:
        for number in range(STORES_MAX):
            key = f"key-{(thread * 5 + number) % (2 * STORES_MAX)}"
            connect("b", way(server.url, access_key=key, retry_attempts_max=1)).put("k", b"x")

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(use, range(6))) == [None] * 6


@pytest.fixture
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing on this machine gives credentials; the file where they would be."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return tmp_path / ".aws" / "credentials"


def test_credentials_that_come_later_are_found(
    server: ScriptedServer, no_credentials: Path
) -> None:
    """A look-up that found none is not kept: a notebook's next cell finds what the user has written
    meanwhile. So is a change of a variable."""
    wanted = S3Options(endpoint_url=server.url, transport=TRANSPORT.get())
    with pytest.raises(PermissionDenied, match="credentials"):
        connect("b", wanted).put("k", b"x")
    no_credentials.parent.mkdir()
    no_credentials.write_text("[default]\naws_access_key_id = one\naws_secret_access_key = s\n")
    connect("b", wanted).put("k", b"x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "two")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        connect("b", wanted).put("k", b"x")
    connect("b", wanted).put("k", b"x")
    keys = [asked.headers["authorization"].partition("=")[2] for asked in server.asked]
    assert [key.partition("/")[0] for key in keys] == ["one", "two", "one"]


def test_the_endpoint_is_that_of_the_environment_now(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed variable holds from the next job on; a store that is in use keeps its endpoint."""
    wanted = way(server.url, endpoint_url=None)
    with scripted_server(server.script) as other:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, other.url)
            before = connect("b", wanted)
            monkeypatch.setenv(name, server.url)
            connect("b", wanted).put("k", b"x")
            before.put("k", b"x")
        assert len(other.asked) == 2
    assert len(server.asked) == 2


def test_an_open_job_keeps_what_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that takes other credentials and another endpoint for a while, by the environment,
    does not take them from its open jobs."""
    with moto_server("bucket") as url:
        began = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        for name, value in began.items():
            monkeypatch.setenv(name, value)
        options = S3Options(region="us-east-1", transport=TRANSPORT.get())
        job = mc.start("s3://bucket/t", s3=options)
        attached = mc.attach("s3://bucket/t", job.id, s3=options)
        for name in began:
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        task = attached.task("1")
        with task.open("a", "w") as file:
            file.write("x")
        task.commit()
        assert job.commit(expect=1).outcome == "committed"


def test_the_identity_names_endpoint_and_bucket(server: ScriptedServer) -> None:
    """The identity is endpoint and bucket, without what a URL may carry of secrets."""
    assert make(server).identity == f"{server.url}/b"
    with_user = server.url.replace("http://", "http://user:password@")
    # A URL with a user stays with the SDK (`test_s3_ways`).
    store = make(server, endpoint_url=with_user, transport="auto")
    assert store.identity == f"{server.url}/b"


def _put_in_child(store: S3Store) -> None:
    store.put("child", b"x")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12: threads, fork
def test_a_store_works_after_a_fork(server: ScriptedServer) -> None:
    """A forked child makes connections of its own, and leaves the parent's alone."""
    store = make(server)
    store.put("before", b"x")
    child = multiprocessing.get_context("fork").Process(target=_put_in_child, args=(store,))
    child.start()
    child.join(30)
    store.put("after", b"x")
    assert child.exitcode == 0
    assert [asked.path for asked in server.asked] == ["/b/before", "/b/child", "/b/after"]


# What is not there --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["get", "head"])
@pytest.mark.parametrize("found", ["", "k", "k-longer", "denied"])
def test_a_refusal_of_what_a_listing_does_not_show_means_that_nothing_is_there(
    server: ScriptedServer, verb: str, found: str
) -> None:
    """AWS answers 403 for a missing key to who may not list by that very request: a listing of the
    key tells. If it shows the key, that is looked at once more; a refusal then, or of the listing,
    stands."""
    store = make(server)
    entry = (
        f"<Contents><Key>{found}</Key><Size>1</Size>"
        "<LastModified>2026-11-20T11:00:00.000Z</LastModified></Contents>"
    )
    listing = document("ListObjects", entry if found else "")
    refused = error(403, "AccessDenied")
    server.said(refused, refused if found == "denied" else listing, *[refused] * (found == "k"))
    is_there = found in ("k", "denied")
    with pytest.raises(PermissionDenied if is_there else NotFound) as told:
        store.get("k", max_bytes=1) if verb == "get" else store.head("k")
    assert (told.value.status, told.value.operation) == (403, verb)
    assert len(server.asked) == 2 + (found == "k")
    assert server.asked[1].query["prefix"] == "k"


def test_what_comes_between_a_refusal_and_its_listing_is_found(server: ScriptedServer) -> None:
    """Two jobs end at once under such a policy: the second finds the marker of the first."""
    store = make(server)
    entry = (
        "<Contents><Key>k</Key><Size>1</Size>"
        "<LastModified>2026-11-20T11:00:00.000Z</LastModified></Contents>"
    )
    there = Reply(
        headers={"ETag": '"e"', "Last-Modified": "Fri, 20 Nov 2026 11:00:00 GMT"}, body=b"x"
    )
    server.said(error(403, "AccessDenied"), document("ListObjects", entry), there)
    assert store.get("k", max_bytes=1).body == b"x"
