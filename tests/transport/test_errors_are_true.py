"""Errors say what is true: which class, whether a request was sent, how often, and what to do."""

from __future__ import annotations

import gc
import pickle
import resource
import traceback
import weakref
from pathlib import Path
from typing import Any

import pytest

from magic_committer import errors
from magic_committer.options import S3Options
from magic_committer.stores.base import FileSlice, PutPart, Written, many_of
from magic_committer.stores.s3 import S3Store, retry
from magic_committer.stores.s3.errors import READS
from magic_committer.stores.s3.http import Cause, NoAnswer, Sent
from tests.certificates import Authority
from tests.servers import Reply, document, error
from tests.transport import lab as verbs
from tests.transport.lab import DATED, LOST, TRUNCATED, VERBS, Lab, ask, at_once
from tests.wire import playing, raw_server

NOBODY = "http://127.0.0.1:9"
"""The discard port: nobody listens."""
WITH_USER = NOBODY.replace("//", "//a:hunter2@")

S3S: list[tuple[int, str, str, type[errors.StoreError], str]] = [
    # Status, code and verb; the class, and what its text says.
    (404, "NoSuchKey", "get", errors.NotFound, ""),
    (404, "404", "head", errors.NotFound, "404 NoSuchKey"),  # what GET would have said
    (404, "NoSuchUpload", "complete if", errors.NotFound, ""),
    (404, "NoSuchBucket", "put", errors.BucketNotFound, "there is no bucket 'b'"),
    (403, "NoSuchBucket", "put", errors.BucketNotFound, "there is no bucket 'b'"),
    (404, "transient", "get", errors.NotFound, ""),
    (404, "NoSuchBucket", "get", errors.BucketNotFound, "`aws s3 mb s3://b`"),
    (401, "Unauthorized", "put", errors.PermissionDenied, "s3:PutObject"),
    (400, "ExpiredToken", "get", errors.PermissionDenied, "get new credentials"),
    (403, "SignatureDoesNotMatch", "put", errors.PermissionDenied, "secret key"),
    (403, "RequestTimeTooSkewed", "put", errors.PermissionDenied, "Set this machine's clock"),
    (403, "AccessDenied", "create_upload", errors.PermissionDenied, "tags s3:PutObjectTagging"),
    (403, "AccessDenied", "put_part", errors.PermissionDenied, "s3:GetObject on its source"),
    (412, "PreconditionFailed", "put if", errors.PreconditionFailed, ""),
    (409, "ConditionalRequestConflict", "complete if", errors.WriteConflict, ""),
    (400, "BadDigest", "put", errors.InvalidRequest, ""),
    (400, "400", "put", errors.InvalidRequest, "gave no reason"),
    (403, "QuotaExceeded", "put", errors.InvalidRequest, "quota is used up: no policy mends"),
    (403, "InvalidObjectState", "get", errors.InvalidRequest, "archived"),
    (409, "ObjectParentIsFile", "put", errors.InvalidRequest, "paths of files"),
    (400, "XMinioParentIsObject", "put", errors.InvalidRequest, "paths of files"),
    (501, "NotImplemented", "put", errors.NotSupported, "a condition, a checksum, tags"),
    (405, "MethodNotAllowed", "put", errors.NotSupported, ""),
    (500, "InternalError", "put", errors.Unanswered, "look before you repeat it"),
    (503, "SlowDown", "put", errors.Unanswered, "fewer requests"),
    (504, "504", "put_part", errors.Unanswered, "may be repeated as it is"),
]


@pytest.mark.parametrize(("status", "code", "verb", "cls", "words"), S3S)
@pytest.mark.parametrize("before", [None, LOST, error(503, "SlowDown")])
def test_each_refusal_has_its_class_and_blames_what_is_to_blame(
    lab: Lab, status: int, code: str, verb: str, cls: Any, words: str, before: Reply | None
) -> None:
    """Status and code decide the class (a bucket that is missing is no `NotFound`, which callers
    take for an absent object), and no policy is blamed for a quota. A refusal is final;
    ``attempts`` counts all tries: one before it, that went unheard, may have landed."""
    assert not issubclass(errors.BucketNotFound, errors.NotFound)
    reply = Reply(status) if code == str(status) else error(status, code)
    lab.said(*[reply] if before is None else [before, reply])
    with pytest.raises(cls) as caught:
        ask(lab.store, verb)
    told, text, again = caught.value, str(caught.value), cls is errors.Unanswered
    assert (type(told), told.status, told.sent) == (cls, status, True)
    assert told.__cause__ is not None
    assert isinstance(told, FileNotFoundError) is (status == 404 or cls is errors.BucketNotFound)
    assert words in text
    assert ("policy" in text.replace("no policy mends", "")) is (
        cls is errors.PermissionDenied and code in ("Unauthorized", "AccessDenied")
    )
    twice = before is not None or again or code == "RequestTimeTooSkewed"  # it is signed anew
    assert told.attempts == len(lab.asked) == 1 + twice
    assert ("sent 2 times" in text) is twice


@pytest.mark.parametrize("verb", VERBS)
def test_a_refusal_is_told_whole(lab: Lab, verb: str) -> None:
    """A denial is a PermissionError that names operation, place, status, code, the store's words,
    its request id, and the action that a policy must allow; of a read also that an absent object is
    denied, too. It comes through pickle."""
    lab.said(error(403, "AccessDenied", "the store's words"))
    with pytest.raises(errors.PermissionDenied) as caught:
        ask(lab.store, verb)
    told, action = caught.value, VERBS[verb][0]
    assert (verb in READS) is (verb in verbs.READS)
    assert isinstance(told, PermissionError)
    assert (told.operation, told.status, told.code) == (verb, 403, "AccessDenied")
    assert (told.bucket, told.action, told.attempts, told.sent) == ("b", action, 1, True)
    wanted = [verb, "s3://b/", "403 AccessDenied", action]
    wanted += [] if verb == "head" else ["the store's words", "R1"]
    wanted += ["s3:ListBucket"] if verb in ("get", "head") else []
    assert [words for words in wanted if words not in str(told)] == []
    copy = pickle.loads(pickle.dumps(told))
    assert (type(copy), str(copy), copy.action) == (errors.PermissionDenied, str(told), action)


@pytest.mark.parametrize(
    "reply", [error(403, "AccessDenied"), LOST, Reply(200, "", missing=9)],
    ids=["refused", "lost", "cut"],
)  # fmt: skip
def test_an_error_that_is_kept_shows_its_way_and_keeps_no_body(lab: Lab, reply: Reply) -> None:
    """Without the collector's help: of a part that failed, only the text of its way is left. An
    exception that its caller was handling keeps its variables, for a debugger."""
    lab.said(reply)
    store, bodies = lab.make(), [memoryview(bytes(200_000))]
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
                with pytest.raises(errors.StoreError) as caught:
                    store.put_part("k", "u", 1, bodies.pop())
        assert body() is None
    finally:
        gc.enable()
    shown = "".join(traceback.format_exception(caught.value.__cause__))
    assert ", in ask\n" in shown
    assert ", in put_part\n" in "".join(traceback.format_exception(caught.value))
    (*_, (raised, _)) = traceback.walk_tb(caller.value.__traceback__)
    assert raised.f_locals == {"noted": "of the caller"}


@pytest.mark.parametrize("named", ["boto3", "auto"])
@pytest.mark.parametrize(
    "wrong", [{"profile": "none"}, {"endpoint_url": "not a url"}, {"region": "not a region"}]
)
def test_a_way_that_does_not_exist_is_an_option_error(wrong: dict[str, str], named: Any) -> None:
    """A wrong profile, endpoint or region is found when the store is made."""
    options: dict[str, Any] = {"endpoint_url": NOBODY, "transport": named, **wrong}
    with pytest.raises(errors.OptionError):
        S3Store("b", S3Options(**options))


Place = tuple[str, dict[str, str], str, str]
NOWHERE: dict[str, Place] = {
    # The endpoint, the proxies; what the text says, and what to check.
    "refused": (NOBODY, {}, f"{NOBODY}: connection refused", "endpoint_url"),
    "unknown name": ("http://store.invalid", {}, "http://store.invalid: ", "endpoint_url"),
    "wrong scheme": ("https:{}", {}, "https://127.0.0.1:", "scheme"),
    "dead proxy": ("http:{}", {"http_proxy": WITH_USER}, f"{NOBODY}: connection", "NO_PROXY"),
    "dead tunnel": (
        "https://store.invalid", {"https_proxy": WITH_USER}, f"{NOBODY}: connection", "NO_PROXY",
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", NOWHERE)
def test_without_a_connection_nothing_was_sent(lab: Lab, place: str) -> None:
    """``sent`` is False; the text says where, why and what to check. Of a store that never
    answered, the wrong scheme is tried once: it never heals."""
    url, proxies, said, check = NOWHERE[place]
    for name, value in {"no_proxy": "", "NO_PROXY": "", **proxies}.items():
        lab.patch.setenv(name, value)
    url = url.format(lab.url.partition(":")[2])
    store = lab.make(url=url, retry_attempts_max=2)
    for met in (False, True):
        lab.patch.setattr(retry, "_met", {url} if met else set())
        with pytest.raises(errors.Unanswered) as caught:
            ask(store, "put")
        tries = 1 if place == "wrong scheme" and not met else 2
        text = str(caught.value)
        assert (caught.value.sent, caught.value.attempts) == (False, tries)
        assert ("(tried 2 times)" in text) is (tries == 2)
        assert "hunter2" not in text
        wanted = [f"could not reach {said}", check, "Nothing was sent, so nothing took effect"]
        assert [words for words in wanted if words not in text] == []
    assert lab.asked == []


def test_a_process_without_descriptors_sent_nothing(lab: Lab) -> None:
    """A full table of descriptors is no bare `OSError`: the text says what to raise or lower. The
    store works when there is room again."""
    store = lab.make(retry_attempts_max=2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # whatever a thread closes meanwhile
    try:
        with pytest.raises(errors.Unanswered, match="too many open files") as caught:
            ask(store, "put")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (caught.value.sent, caught.value.attempts, lab.asked) == (False, 2, [])
    assert "ulimit -n" in str(caught.value)
    assert "endpoint_url" not in str(caught.value)
    ask(store, "put")


def test_a_trusted_connection_that_breaks_may_have_sent(lab: Lab, trusted: Authority) -> None:
    """As soon as TLS is agreed on, a request counts as sent."""
    with raw_server(playing("head"), trusted.server("127.0.0.1")) as mute:
        with pytest.raises(errors.Unanswered, match="may have taken effect") as caught:
            ask(lab.make(url=mute.url), "put")
        assert caught.value.sent


def test_what_cannot_be_signed_or_written_was_not_sent(lab: Lab, no_credentials: object) -> None:
    """Without credentials, or with what no way sends, the text says "not sent", not "no answer";
    the hint names the ways to give credentials."""
    said = r"failed: not sent: .*AWS_ACCESS_KEY_ID"
    with pytest.raises(errors.PermissionDenied, match=said) as denied:
        ask(lab.make(access_key=None, secret_key=None), "put")
    with pytest.raises(errors.InvalidRequest, match="failed: not sent: ") as refused:
        lab.make().put("k", b"", metadata={"n": "é"})
    for told in (denied.value, refused.value):
        assert (told.sent, told.status) == (False, 0)
    assert lab.asked == []


def test_a_part_whose_file_is_cut_is_refused(lab: Lab, tmp_path: Path) -> None:
    """Before it is sent, by itself and among many, of which the others go on."""
    (tmp_path / "f").write_bytes(b"12")
    lab.said(verbs.COMPLETED)
    body = FileSlice(str(tmp_path / "f"), 0, 9)
    with pytest.raises(errors.InvalidRequest, match="the file") as alone:
        lab.store.put_part("k", "u", 1, body)
    told: list[Any] = [alone.value]
    if many_of(lab.store) is not None:
        parts = ((number, PutPart("k", "u", number, body)) for number in (1, 2))
        answers = at_once(lab.store, *parts, verbs.complete("whole"))
        assert isinstance(answers.pop("whole"), Written)
        told += answers.values()
    assert {(type(one), one.code) for one in told} == {(errors.InvalidRequest, "IncompleteBody")}
    assert [asked.method for asked in lab.asked] == ["POST"] * (len(told) == 3)


@pytest.mark.parametrize("tries", [(False, False), (True, False), (False, True), (True, True)])
def test_one_try_that_was_sent_is_enough(lab: Lab, tries: tuple[bool, ...]) -> None:
    """``sent`` is False only if *every* try was never sent: the last one alone tells nothing."""
    never, broken = (Cause.CONNECT, Sent.NEVER), (Cause.BROKEN, Sent.PERHAPS)
    waiting = [NoAnswer(*(broken if sent else never), "why", "http://h") for sent in tries]

    def ask_once(*_: object) -> Any:
        raise waiting.pop(0)

    store = lab.make(retry_attempts_max=2)
    lab.patch.setattr(store._way, "ask", ask_once)
    with pytest.raises(errors.Unanswered) as caught:
        ask(store, "put")
    assert (caught.value.sent, caught.value.attempts) == (any(tries), 2)
    assert ("may have taken effect" in str(caught.value)) is any(tries)


NO = "<Error><Key>{}</Key><Code>{}</Code><Message>no</Message></Error>".format
COUNTED: list[tuple[str, Reply, type[errors.StoreError]]] = [
    ("get", Reply(body=b"0123456789", headers=DATED), errors.InvalidRequest),
    ("list", document("ListObjects", TRUNCATED), errors.NotSupported),
    ("list_uploads", document("ListMultipartUploads", TRUNCATED), errors.NotSupported),
    ("list_parts", document("ListParts", TRUNCATED), errors.NotSupported),
    ("delete", document("Delete", NO("k", "AccessDenied") + NO("l", "X")), errors.PermissionDenied),
]


@pytest.mark.parametrize(("verb", "reply", "cls"), COUNTED)
def test_errors_of_the_adapters_own_count_tries_too(
    lab: Lab, verb: str, reply: Reply, cls: type[errors.StoreError]
) -> None:
    """Of a body that is too large, a listing that says "more" and not where, which is never its
    end, and a key of a batch, ``attempts`` is right."""
    lab.said(LOST, reply)
    with pytest.raises(cls) as caught:
        ask(lab.store, verb)
    assert caught.value.attempts == 2


def test_a_batch_tells_errors_key_by_key(lab: Lab) -> None:
    """Keys that the store did not delete come back with errors of their own; absent ones do not. A
    batch that fails as a whole is told for each of its keys, and the next one is tried."""
    rows = zip("abc", ("AccessDenied", "InternalError", "NoSuchKey"), strict=True)
    lab.said(document("Delete", "".join(NO(*row) for row in rows)))
    failed = lab.store.delete("abcd")
    assert {key: (type(one), one.key) for key, one in failed.items()} == {
        "a": (errors.PermissionDenied, "a"),
        "b": (errors.Unanswered, "b"),
    }
    lab.asked.clear()
    lab.said(error(403, "AccessDenied"), document("Delete"))
    keys = [f"{number:04}" for number in range(1001)]
    assert sorted(lab.store.delete(keys)) == keys[:1000]
    assert len(lab.asked) == 2


@pytest.mark.parametrize("refusal", [error(501, "NotImplemented"), error(400, "BadDigest")])
def test_a_store_without_batches_gets_single_deletes(lab: Lab, refusal: Reply) -> None:
    """Where the batch call is refused, each key is deleted by itself, with its own error."""
    single = {"/b/a": Reply(204), "/b/b": error(403, "AccessDenied"), "/b/c": Reply(204)}
    lab.script(lambda asked: refusal if asked.method == "POST" else single[asked.path])
    assert list(lab.store.delete("abc")) == ["b"]
    assert [asked.path for asked in lab.asked if asked.method == "DELETE"] == list(single)


@pytest.mark.parametrize("verb", ["delete_one", "abort_upload"])
def test_what_is_gone_need_not_go(lab: Lab, verb: str) -> None:
    """404 to a delete or an abort is done; a bucket that is not there is an error."""
    lab.said(error(404, "NoSuchKey" if verb == "delete_one" else "NoSuchUpload"))
    ask(lab.store, verb)
    lab.said(error(404, "NoSuchBucket"))
    with pytest.raises(errors.BucketNotFound, match="bucket's name"):
        ask(lab.store, verb)
