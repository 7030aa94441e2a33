"""Errors say what is true: whether a request was sent, how often, and what may have come of it."""

from __future__ import annotations

import ipaddress
import os
import resource
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore import exceptions as sdk
from cryptography import x509  # comes with moto
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from magic_committer.errors import (
    BucketNotFound,
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
)
from magic_committer.options import S3Options
from magic_committer.stores.base import Part
from magic_committer.stores.s3 import S3Store, retry, via_boto3
from magic_committer.stores.s3.answers import Refused
from magic_committer.stores.s3.answers import Reply as Reply_
from magic_committer.stores.s3.errors import READS, kind, never_sent, translate
from magic_committer.stores.s3.http import Cause, NoAnswer, Sent
from magic_committer.stores.s3.requests import Call
from magic_committer.stores.s3.retry import ask
from tests.servers import (
    TRANSPORT,
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

TRIES = 3
"""Of the store of these tests."""
LOST = Reply(lost=True)
REFUSED_CONNECTION = "http://127.0.0.1:9"
"""The discard port: nobody listens."""


def once(url: str) -> S3Options:
    """The way to a server that is asked once."""
    return way(url, retry_attempts_max=1)


# Sent or not --------------------------------------------------------------------------------------


def of_refused(server: ScriptedServer, patch: pytest.MonkeyPatch) -> str:
    """Nobody listens there."""
    return REFUSED_CONNECTION


def of_unknown_name(server: ScriptedServer, patch: pytest.MonkeyPatch) -> str:
    """A name that no resolver knows (RFC 6761)."""
    return "http://store.invalid"


def of_wrong_scheme(server: ScriptedServer, patch: pytest.MonkeyPatch) -> str:
    """TLS to a server that speaks none."""
    return server.url.replace("http:", "https:")


def of_dead_proxy(server: ScriptedServer, patch: pytest.MonkeyPatch) -> str:
    """A proxy where nobody listens, for plain HTTP."""
    for name in ("http_proxy", "HTTP_PROXY"):
        patch.setenv(name, REFUSED_CONNECTION)
    for name in ("no_proxy", "NO_PROXY"):
        patch.setenv(name, "")
    return server.url


def of_dead_tunnel(server: ScriptedServer, patch: pytest.MonkeyPatch) -> str:
    """The same for a tunnel."""
    of_dead_proxy(server, patch)
    for name in ("https_proxy", "HTTPS_PROXY"):
        patch.setenv(name, REFUSED_CONNECTION)
    return "https://store.invalid"


Place = Callable[[ScriptedServer, pytest.MonkeyPatch], str]
NOWHERE: dict[Place, tuple[str, str]] = {
    of_refused: ("could not reach http://127.0.0.1:9: connection refused", "endpoint_url"),
    of_unknown_name: ("could not reach http://store.invalid: ", "endpoint_url"),
    of_wrong_scheme: ("could not reach https://127.0.0.1:", "scheme"),
    of_dead_proxy: ("could not reach http://127.0.0.1:9: connection refused", "NO_PROXY"),
    of_dead_tunnel: ("could not reach http://127.0.0.1:9: connection refused", "NO_PROXY"),
}


@pytest.mark.parametrize("place", NOWHERE)
def test_without_a_connection_nothing_was_sent(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """Without a connection ``sent`` is False; the text says where, why and what to check. Of a
    store that never answered, the wrong scheme is tried once: it never heals."""
    monkeypatch.setattr(retry, "_met", set())
    said, check = NOWHERE[place]
    tries = 1 if place is of_wrong_scheme else 2
    options = way(place(server, monkeypatch), retry_attempts_max=2)
    with pytest.raises(Unanswered) as caught:
        S3Store("b", options, clock=HurriedClock()).put("k", b"x")
    assert (caught.value.sent, caught.value.attempts) == (False, tries)
    text = str(caught.value)
    assert said in text
    assert check in text
    assert ("(tried 2 times)" in text) is (tries == 2)
    assert "Nothing was sent, so nothing took effect" in text
    assert "may have taken effect" not in text
    assert server.asked == []


def test_a_store_that_answered_by_tls_is_waited_for(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If something else answers at a known store's place, the store may come back."""
    url = of_wrong_scheme(server, monkeypatch)
    monkeypatch.setattr(retry, "_met", {url})
    with pytest.raises(Unanswered, match="tried 2 times"):
        S3Store("b", way(url, retry_attempts_max=2), clock=HurriedClock()).put("k", b"x")


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)  # the lowest that is free
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_without_descriptors_sent_nothing(server: ScriptedServer) -> None:
    """A full table of descriptors is no bare `OSError`: the text says what to raise or lower. The
    store works when there is room again."""
    server.said(Reply(headers={"ETag": '"e"'}))
    store = S3Store("b", way(server.url, retry_attempts_max=2), clock=HurriedClock())
    with no_descriptors(), pytest.raises(Unanswered, match="too many open files") as caught:
        store.put("k", b"x")
    assert (caught.value.sent, caught.value.attempts) == (False, 2)
    assert "ulimit -n" in str(caught.value)
    assert "endpoint_url" not in str(caught.value)
    assert server.asked == []
    store.put("k", b"x")


@contextmanager
def tls_server(folder: Path) -> Iterator[tuple[str, str]]:
    """A server behind TLS that closes every connection after its request; its URL, and the file of
    its certificate, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, secret)
    )

    def serve(connection: ssl.SSLSocket, *_: object) -> None:
        connection.recv(65_536)  # and not a word

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with serving(serve, context=context) as listening:
        yield listening.url, str(folder / "cert.pem")


def test_tls_that_was_not_agreed_on_sent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that is not trusted: final, not sent. The same connection, trusted and then
    broken: it counts as sent."""
    with tls_server(tmp_path) as (url, certificate):
        with pytest.raises(Unanswered, match=r"certificate verify failed.*AWS_CA_BUNDLE") as caught:
            S3Store("b", way(url, retry_attempts_max=3), clock=HurriedClock()).put("k", b"x")
        assert (caught.value.sent, caught.value.attempts) == (False, 1)
        monkeypatch.setenv("AWS_CA_BUNDLE", certificate)
        with pytest.raises(Unanswered, match="may have taken effect") as caught:
            S3Store("b", once(url), clock=HurriedClock()).put("k", b"x")
        assert caught.value.sent


def test_no_credentials_sent_nothing(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without credentials, or with what the SDK refuses, the text says "not sent", not "no
    answer"."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, f"{tmp_path}/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    nobody = S3Store(
        "b", S3Options(endpoint_url=server.url, transport=TRANSPORT.get()), clock=HurriedClock()
    )
    with pytest.raises(PermissionDenied, match="failed: not sent: ") as denied:
        nobody.put("k", b"x")
    with pytest.raises(InvalidRequest, match="failed: not sent: ") as refused:
        S3Store("b", once(server.url)).put("k", b"", metadata={"n": "é"})
    assert (denied.value.sent, refused.value.sent, server.asked) == (False, False, [])


@pytest.mark.parametrize(
    "reply", [LOST, Reply(hung=True), error(500, "InternalError"), Reply(504, "<html>gateway")]
)
def test_what_was_sent_and_not_answered_may_have_taken_effect(
    server: ScriptedServer, reply: Reply
) -> None:
    """A connection that broke, a time-out, a 5xx: ``sent`` stays True."""
    server.said(reply)
    options = way(server.url, retry_attempts_max=2, read_seconds_max=0.1)
    with pytest.raises(Unanswered, match="may have taken effect") as caught:
        S3Store("b", options, clock=HurriedClock()).put("k", b"x")
    assert caught.value.sent
    assert len(server.asked) == 2


REFUSED = NoAnswer(Cause.CONNECT, Sent.NEVER, "refused", where="http://h")
BROKEN = NoAnswer(Cause.BROKEN, Sent.PERHAPS, "broken", where="http://h")


@pytest.mark.parametrize(
    ("failures", "sent"),
    [
        ([REFUSED, REFUSED], False),
        ([BROKEN, REFUSED], True),
        ([REFUSED, BROKEN], True),
        ([BROKEN, BROKEN], True),
    ],
)
def test_one_try_that_was_sent_is_enough(failures: list[Exception], sent: bool) -> None:
    """``sent`` is False only if *every* try was never sent: the last one alone tells nothing."""
    waiting = list(failures)

    class Failing:
        endpoint, region = "http://h", ""

        def moves(self, *_: object) -> bool:
            return False

        def ask(self, *_: object) -> Reply_:
            raise waiting.pop(0)

    options, clock = S3Options(retry_attempts_max=2), HurriedClock()
    with pytest.raises(Unanswered) as caught:
        ask(options, clock, Failing(), "b", Call("put", "PutObject", "k", {}))
    told = caught.value
    assert (told.sent, told.attempts) == (sent, 2)
    assert ("may have taken effect" in str(told)) is sent


def test_an_error_around_another_proves_nothing(server: ScriptedServer) -> None:
    """A request that breaks while a refused connection is being handled was sent all the same."""
    server.said(LOST)
    with pytest.raises(StoreError) as caught:
        try:
            S3Store("b", once(REFUSED_CONNECTION)).put("k", b"x")
        except Unanswered:
            S3Store("b", once(server.url)).put("k", b"x")
    assert caught.value.sent
    assert len(server.asked) == 1


def test_what_nobody_can_place_counts_as_sent() -> None:
    """Errors of the SDK's own connections prove nothing by their class alone, but for a connection
    that was refused, and a certificate, which comes before any request; and no user is shown."""
    for unplaced, sent in (
        (sdk.SSLError(endpoint_url="https://h", error="bad record"), True),
        (sdk.SSLError(endpoint_url="https://h", error="certificate verify failed"), False),
        (sdk.ProxyConnectionError(proxy_url="http://h", error=OSError("reset")), True),
        (sdk.ReadTimeoutError(endpoint_url="http://h"), True),
        (sdk.HTTPClientError(error="?"), True),
        (sdk.EndpointConnectionError(endpoint_url="http://a:hunter2@h:1/b", error="no"), False),
    ):
        failure = via_boto3._failure(unplaced)
        assert isinstance(failure, NoAnswer)
        assert never_sent(failure) is not sent
        assert "hunter2" not in failure.where


# Attempts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [LOST, error(500, "InternalError"), error(503, "SlowDown")])
@pytest.mark.parametrize(
    ("last", "cls"),
    [
        (error(400, "InvalidPart"), InvalidRequest),
        (error(403, "AccessDenied"), PermissionDenied),
        (error(404, "NoSuchBucket"), BucketNotFound),
        (error(404, "NoSuchUpload"), NotFound),
        (error(412, "PreconditionFailed"), PreconditionFailed),
        (error(501, "NotImplemented"), NotSupported),
        (error(500, "InternalError"), Unanswered),
    ],
)
def test_a_refusal_after_silence_tells_that_there_was_a_try_before(
    store: S3Store, server: ScriptedServer, first: Reply, last: Reply, cls: type[StoreError]
) -> None:
    """``attempts`` counts all tries, whatever the last answer: an earlier one may have landed."""
    server.said(first, last)
    with pytest.raises(cls) as caught:
        store.complete_upload("k", "u", [Part(1, "e", 1)], if_none_match=True)
    assert caught.value.attempts == len(server.asked) == (3 if cls is Unanswered else 2)
    assert caught.value.sent
    assert f"sent {len(server.asked)} times" in str(caught.value)


def test_errors_of_the_adapters_own_count_too(store: S3Store, server: ScriptedServer) -> None:
    """Of a body that is too large, and of a listing that cannot go on, ``attempts`` is right."""
    headers = {"ETag": '"e"', "Last-Modified": "Fri, 20 Nov 2026 11:00:00 GMT"}
    server.said(LOST, Reply(body=b"0123456789", headers=headers))
    with pytest.raises(InvalidRequest) as large:
        store.get("k", max_bytes=5)
    endless = "<IsTruncated>true</IsTruncated>"
    server.said(LOST, document("ListObjects", endless))
    with pytest.raises(NotSupported) as listing:
        list(store.list("p"))
    server.said(LOST, document("ListMultipartUploads", endless))
    with pytest.raises(NotSupported) as uploads:
        list(store.list_uploads("p"))
    server.said(LOST, document("ListParts", endless))
    with pytest.raises(NotSupported) as parts:
        store.list_parts("k", "u")
    tries = [one.value.attempts for one in (large, listing, uploads, parts)]
    assert tries == [2, 2, 2, 2]


def test_a_key_of_a_batch_tells_how_often_the_batch_was_sent(
    store: S3Store, server: ScriptedServer
) -> None:
    """Errors inside a batch of deletes carry the batch's ``attempts``."""
    inside = "<Error><Key>a</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    server.said(LOST, document("Delete", inside))
    assert store.delete(["a", "b"])["a"].attempts == 2


# Words by verb and by code ------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_only_what_writes_may_have_taken_effect(
    store: S3Store, server: ScriptedServer, verb: str
) -> None:
    """No answer to a read: nothing was changed. To a write: it may have taken effect."""
    server.said(LOST)
    with pytest.raises(Unanswered) as caught:
        VERBS[verb](store)
    reads = verb in {"get", "head", "list", "list_parts", "list_uploads"}
    assert reads is (verb in READS)
    assert ("may have taken effect" in str(caught.value)) is not reads
    assert ("Nothing was changed" in str(caught.value)) is reads


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "head"])
def test_a_missing_bucket_is_no_missing_key(
    store: S3Store, server: ScriptedServer, verb: str
) -> None:
    """NoSuchBucket is asked once and is no `NotFound`, which callers take for an absent object; the
    text names the bucket and how to make one."""
    server.said(error(404, "NoSuchBucket"))
    with pytest.raises(BucketNotFound) as caught:
        VERBS[verb](store)
    assert not isinstance(caught.value, NotFound)
    assert isinstance(caught.value, FileNotFoundError)
    assert (caught.value.code, caught.value.attempts) == ("NoSuchBucket", 1)
    assert "there is no bucket 'b'" in str(caught.value)
    assert "`aws s3 mb s3://b`" in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "cls", "words"),
    [
        (error(403, "QuotaExceeded"), InvalidRequest, "quota is used up"),
        (error(403, "InvalidObjectState"), InvalidRequest, "archived"),
        (error(409, "ObjectParentIsFile"), InvalidRequest, "paths of files"),
        (error(400, "XMinioParentIsObject"), InvalidRequest, "paths of files"),
        (Reply(400), InvalidRequest, "gave no reason"),
        (error(501, "NotImplemented"), NotSupported, "a condition, a checksum, tags"),
    ],
)
def test_a_refusal_blames_what_is_to_blame(
    store: S3Store, server: ScriptedServer, reply: Reply, cls: type[StoreError], words: str
) -> None:
    """A used-up quota is no missing permission, a file in the way no other write under way, and
    an answer without a document is not a riddle; each is asked once."""
    server.said(reply)
    with pytest.raises(cls, match=words) as caught:
        store.put("k", b"x")
    assert "policy" not in str(caught.value).replace("no policy mends", "")
    assert len(server.asked) == 1


def test_a_redirect_without_a_document_names_the_region() -> None:
    """301 to HEAD has no code: the hint is that of PermanentRedirect all the same."""
    told = translate(Refused(301, "301", ""), "head", "b", "k")
    assert "another region" in str(told)


def test_a_file_in_the_way_is_not_waited_for() -> None:
    """409 because a key continues another is final; 409 of another write is tried again."""

    def refused(code: str) -> Refused:
        return Refused(409, code, "")

    assert kind(refused("ObjectParentIsFile")) == "final"
    assert kind(refused("OperationAborted")) == "conflict"
    assert kind(refused("SomethingElse")) == "conflict"
