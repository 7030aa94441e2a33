"""The translation of errors: which class, code, action and hint; and per-key errors of deletes."""

from __future__ import annotations

import gc
import pickle
import traceback
import weakref
from collections.abc import Callable

import pytest

from magic_committer.errors import (
    BucketNotFound,
    InvalidRequest,
    NotFound,
    NotSupported,
    OptionError,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    Unanswered,
    WriteConflict,
)
from magic_committer.options import S3Options
from magic_committer.stores.base import Attributes, ObjectStore, Part
from magic_committer.stores.s3 import S3Store
from magic_committer.stores.s3.errors import kind, translate
from magic_committer.stores.s3.http import Cause, NoAnswer, Sent
from tests.servers import TRANSPORT, HurriedClock, Reply, ScriptedServer, error

pytestmark = pytest.mark.usefixtures("transport")

VERBS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("k", max_bytes=1),
    "head": lambda store: store.head("k"),
    "put": lambda store: store.put("k", b""),
    "delete_one": lambda store: store.delete_one("k"),
    "list": lambda store: next(store.list("k")),
    "create_upload": lambda store: store.create_upload("k", attributes=Attributes()),
    "put_part": lambda store: store.put_part("k", "u", 1, memoryview(b"")),
    "list_parts": lambda store: store.list_parts("k", "u"),
    "complete_upload": lambda store: store.complete_upload("k", "u", [Part(1, "e", 1)]),
    "abort_upload": lambda store: store.abort_upload("k", "u"),
    "list_uploads": lambda store: next(store.list_uploads("k")),
}
ACTIONS = {
    "get": "s3:GetObject",
    "head": "s3:GetObject",
    "put": "s3:PutObject",
    "delete_one": "s3:DeleteObject",
    "list": "s3:ListBucket",
    "create_upload": "s3:PutObject",
    "put_part": "s3:PutObject",
    "list_parts": "s3:ListMultipartUploadParts",
    "complete_upload": "s3:PutObject",
    "abort_upload": "s3:AbortMultipartUpload",
    "list_uploads": "s3:ListBucketMultipartUploads",
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_denial_names_the_action(store: S3Store, server: ScriptedServer, verb: str) -> None:
    """403 on any verb is a PermissionError that names the S3 action a policy must allow."""
    server.said(error(403, "AccessDenied"))
    with pytest.raises(PermissionDenied) as caught:
        VERBS[verb](store)
    assert isinstance(caught.value, PermissionError)
    assert caught.value.action == ACTIONS[verb]
    assert ACTIONS[verb] in str(caught.value)
    assert (caught.value.operation, caught.value.status, caught.value.code) == (
        verb,
        403,
        "AccessDenied",
    )


@pytest.mark.parametrize("verb", ["get", "head"])
def test_a_denied_read_may_be_an_absent_object(
    store: S3Store, server: ScriptedServer, verb: str
) -> None:
    """Without s3:ListBucket an absent object answers 403: the hint says so."""
    server.said(error(403, "AccessDenied"))
    with pytest.raises(PermissionDenied, match="s3:ListBucket"):
        VERBS[verb](store)


@pytest.mark.parametrize("verb", VERBS)
def test_a_message_says_it_all(store: S3Store, server: ScriptedServer, verb: str) -> None:
    """The text names operation, place, status, code, the store's words and its request id."""
    server.said(error(400, "InvalidArgument", "the store's words"))
    with pytest.raises(InvalidRequest) as caught:
        VERBS[verb](store)
    text = str(caught.value)
    wanted = [verb, "s3://b/k", "400"]
    wanted += [] if verb == "head" else ["InvalidArgument", "the store's words", "R1"]
    assert [word for word in wanted if word not in text] == []


@pytest.mark.parametrize(
    ("reply", "cls"),
    [
        (error(404, "NoSuchKey"), NotFound),
        (error(404, "NoSuchUpload"), NotFound),
        (error(401, "Unauthorized"), PermissionDenied),
        (error(400, "ExpiredToken"), PermissionDenied),
        (error(403, "SignatureDoesNotMatch"), PermissionDenied),
        (error(412, "PreconditionFailed"), PreconditionFailed),
        (error(409, "ConditionalRequestConflict"), WriteConflict),
        (error(400, "BadDigest"), InvalidRequest),
        (error(400, "EntityTooSmall"), InvalidRequest),
        (error(501, "NotImplemented"), NotSupported),
        (error(405, "MethodNotAllowed"), NotSupported),
        (error(500, "InternalError"), Unanswered),
        (error(503, "SlowDown"), Unanswered),
        (Reply(504, "<html>gateway</html>"), Unanswered),
    ],
)
def test_each_kind_of_answer_has_its_class(
    store: S3Store, server: ScriptedServer, reply: Reply, cls: type[StoreError]
) -> None:
    """Status and code decide the class; the failure stays as the cause."""
    server.said(reply)
    with pytest.raises(StoreError) as caught:
        store.complete_upload("k", "u", [Part(1, "e", 1)], if_none_match=True)
    assert type(caught.value) is cls
    assert caught.value.status == reply.status
    assert caught.value.__cause__ is not None


REFUSAL, LOST, GARBLED = error(403, "AccessDenied"), Reply(lost=True), Reply(200, "", missing=9)


@pytest.mark.parametrize("reply", [REFUSAL, LOST, GARBLED], ids=["refused", "lost", "cut"])
def test_an_error_that_is_kept_shows_its_way_and_keeps_no_body(
    store: S3Store, server: ScriptedServer, reply: Reply
) -> None:
    """Without the collector's help: of a part that failed, only the text of its way is left. An
    exception that its caller was handling keeps its variables, for a debugger."""
    server.said(reply)
    bodies = [memoryview(bytes(200_000))]
    body = weakref.ref(bodies[0])

    def fail() -> None:
        noted = "of the caller"
        raise ValueError(noted)

    gc.disable()
    try:
        with pytest.raises(ValueError, match="of the caller") as caller:
            try:
                fail()
            finally:
                with pytest.raises(StoreError) as caught:
                    store.put_part("k", "u", 1, bodies.pop())
        assert body() is None
    finally:
        gc.enable()
    shown = "".join(traceback.format_exception(caught.value.__cause__))
    assert ", in ask\n" in shown
    assert ", in put_part\n" in "".join(traceback.format_exception(caught.value))
    (*_, (raised, _)) = traceback.walk_tb(caller.value.__traceback__)
    assert raised.f_locals == {"noted": "of the caller"}


def test_a_wrong_certificate_is_final() -> None:
    """A certificate does not get better by trying again; other failures of TLS may."""
    wrong = NoAnswer(Cause.CERTIFICATE, Sent.NEVER, "certificate verify failed", where="https://h")
    assert kind(wrong) == "final"
    assert kind(NoAnswer(Cause.TLS, Sent.NEVER, "unexpected eof")) == "transient"
    assert "AWS_CA_BUNDLE" in str(translate(wrong, "head", "b", "k"))


def test_head_has_codes_though_it_has_no_body(store: S3Store, server: ScriptedServer) -> None:
    """404 to HEAD is NoSuchKey: what GET would have said."""
    server.said(Reply(404))
    with pytest.raises(NotFound) as caught:
        store.head("k")
    assert caught.value.code == "NoSuchKey"


def test_errors_travel(store: S3Store, server: ScriptedServer) -> None:
    """An error comes through pickle with class, text and fields."""
    server.said(error(403, "AccessDenied"))
    with pytest.raises(PermissionDenied) as caught:
        store.put("k", b"")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is PermissionDenied
    assert (str(copy), copy.action, copy.code) == (
        str(caught.value),
        "s3:PutObject",
        "AccessDenied",
    )


def test_no_credentials_say_what_to_do(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Without credentials nothing is sent, and the hint names the ways to give them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, f"{tmp_path}/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = S3Store(
        "b", S3Options(endpoint_url=server.url, transport=TRANSPORT.get()), clock=HurriedClock()
    )
    with pytest.raises(PermissionDenied, match="AWS_ACCESS_KEY_ID") as caught:
        store.head("k")
    assert caught.value.status == 0
    assert server.asked == []


@pytest.mark.parametrize(
    "options",
    [
        S3Options(profile="a profile that is not there"),
        S3Options(endpoint_url="not a url"),
        S3Options(region="not a region", endpoint_url="http://127.0.0.1:1"),
    ],
)
def test_a_way_that_does_not_exist_is_an_option_error(options: S3Options) -> None:
    """A wrong profile, endpoint or region is found when the store is made."""
    with pytest.raises(OptionError):
        S3Store("b", options)


def test_what_cannot_be_written_is_invalid(store: S3Store, server: ScriptedServer) -> None:
    """Parameters that no way sends are InvalidRequest, status 0, nothing sent."""
    with pytest.raises(InvalidRequest) as caught:
        store.put("k", b"", metadata={"n": "é"})
    assert caught.value.status == 0
    assert server.asked == []


# Deletes ------------------------------------------------------------------------------------------


def test_a_batch_tells_errors_key_by_key(store: S3Store, server: ScriptedServer) -> None:
    """Keys that the store did not delete come back with errors of their own; absent ones do not."""
    server.said(
        Reply(
            body="<DeleteResult>"
            "<Error><Key>a</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
            "<Error><Key>b</Key><Code>InternalError</Code><Message>oops</Message></Error>"
            "<Error><Key>c</Key><Code>NoSuchKey</Code><Message>gone</Message></Error>"
            "</DeleteResult>"
        )
    )
    failed = store.delete(["a", "b", "c", "d"])
    assert {key: type(one) for key, one in failed.items()} == {
        "a": PermissionDenied,
        "b": Unanswered,
    }
    assert failed["a"].key == "a"
    assert isinstance(failed["a"], PermissionDenied)
    assert failed["a"].action == "s3:DeleteObject"


@pytest.mark.parametrize("refusal", [error(501, "NotImplemented"), error(400, "BadDigest")])
def test_a_store_without_batches_gets_single_deletes(
    store: S3Store, server: ScriptedServer, refusal: Reply
) -> None:
    """Where the batch call is refused, each key is deleted by itself, with its own error."""
    server.script = lambda asked: (
        refusal
        if asked.method == "POST"
        else error(403, "AccessDenied")
        if asked.path.endswith("/b")
        else Reply(204)
    )
    failed = store.delete(["a", "b", "c"])
    assert list(failed) == ["b"]
    assert [asked.path for asked in server.asked if asked.method == "DELETE"] == [
        "/b/a",
        "/b/b",
        "/b/c",
    ]


def test_a_denied_batch_is_an_error_of_each_key(store: S3Store, server: ScriptedServer) -> None:
    """A batch that fails as a whole is told for each of its keys; the next one is tried."""
    server.said(error(403, "AccessDenied"), Reply(body="<DeleteResult/>"))
    failed = store.delete(f"{number:04}" for number in range(1001))
    assert sorted(failed) == [f"{number:04}" for number in range(1000)]
    assert len(server.asked) == 2


@pytest.mark.parametrize("verb", ["delete_one", "abort_upload"])
def test_what_is_gone_need_not_go(store: S3Store, server: ScriptedServer, verb: str) -> None:
    """404 to a delete or an abort is done; a bucket that is not there is an error."""
    server.said(error(404, "NoSuchKey" if verb == "delete_one" else "NoSuchUpload"))
    VERBS[verb](store)
    server.said(error(404, "NoSuchBucket"))
    with pytest.raises(BucketNotFound, match="bucket's name"):
        VERBS[verb](store)
