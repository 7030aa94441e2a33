"""Many requests at once are the verbs' own: asked, retried, told and read alike."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest

from magic_committer.errors import NotFound, StoreError, Unanswered
from magic_committer.stores import base
from magic_committer.stores.s3 import S3Store
from magic_committer.stores.s3.many import Window
from tests.promises.hands import until
from tests.servers import Asked, Reply, document, error
from tests.transport.lab import (
    COMPLETED,
    DATED,
    LOST,
    TRUNCATED,
    Lab,
    at_once,
    complete,
    upload_rows,
)

pytestmark = pytest.mark.parametrize("transport", ["fast"], indirect=True)

ABORT, PARTS = base.AbortUpload("k", "u"), base.ListParts("k", "u")


def by_verb(store: S3Store, asked: base.Ask) -> Any:
    """What the verb is answered; or its error."""
    try:
        return base.ask_by_verb(store, asked)
    except StoreError as told:
        return told


def shown(told: Any) -> Any:
    """A result; or the class and the fields of an error."""
    if not isinstance(told, StoreError):
        return told
    return type(told), told.key, told.status, told.code, told.sent, told.attempts


PART_ROW = (
    '<Part><PartNumber>2</PartNumber><ETag>"e"</ETag><Size>7</Size>'
    "<ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part>"
)
ANY = [
    error(403, "AccessDenied"), error(503, "SlowDown"), error(500, "InternalError"), LOST,
    Reply(200, "<html>log in</html>"), Reply(404, "no backend"), Reply(hung=True),
]  # fmt: skip
ASKED: list[tuple[base.Ask, list[Reply]]] = [
    (complete("k", length=1, if_none_match=True)[1], [
        COMPLETED, error(404, "NoSuchUpload"), error(412, "PreconditionFailed"),
        error(409, "ConditionalRequestConflict"), Reply(200, error(200, "InternalError").body)]),
    (ABORT, [Reply(204), error(404, "NoSuchUpload")]),
    (PARTS, [document("ListParts", PART_ROW), document("ListParts"), error(404, "NoSuchUpload"),
             Reply(404, str(error(404, "NoSuchUpload").body)[:-9], missing=9)]),
    (base.Head("k"), [Reply(headers={**DATED, "X-Amz-Meta-A": "b"}), Reply(404), Reply(400)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "reply"), [(asked, one) for asked, replies in ASKED for one in [*replies, *ANY]]
)
def test_many_are_asked_and_told_as_the_verbs_are(lab: Lab, asked: base.Ask, reply: Reply) -> None:
    """By the fast way and by boto3: the requests are the same, and so is what comes of each answer;
    an error is a value."""
    lab.said(reply)
    seconds = 0.3 if reply.hung else 30.0
    make = partial(lab.make, read_seconds_max=seconds, complete_seconds_max=seconds)
    store, other = make(), make(transport="boto3")
    told = [at_once(store, ("k", asked))["k"], by_verb(store, asked), by_verb(other, asked)]
    assert shown(told[0]) == shown(told[1]) == shown(told[2])
    until(lambda: len(lab.asked) >= 3)  # a server may be slower than a short time-out
    kept = ("if-none-match", "x-amz-mp-object-size", "x-amz-content-sha256")
    sent = [
        (one.method, one.path, one.query, one.body, [one.headers.get(name) for name in kept])
        for one in lab.asked
        if one.path != "/b" or one.query  # after a 400 the SDK asks where the bucket is
    ]
    third = len(sent) // 3
    assert sent[:third] == sent[third : 2 * third] == sent[2 * third :]
    assert third == 1 + (isinstance(asked, base.Head) and reply.status == 403)  # it is listed then


MORE = f"{TRUNCATED}<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>u8</NextUploadIdMarker>"


@pytest.mark.parametrize(
    ("rows", "more", "found"),
    [
        ([("k", "u")], "", True), ([("k", "u2"), ("k", "u")], "", True), ([], "", False),
        ([("k", "u2")], "", False), ([("k2", "u")], "", False),
        ([("a", "u"), ("z", "u")], "", False), ([("k", "u2"), ("k", "u")], MORE, True),
        ([("k", "u2"), ("k2", "u")], MORE, False),
    ],
)  # fmt: skip
def test_an_upload_is_found_by_one_listing(lab: Lab, rows: Any, more: str, found: bool) -> None:
    """Whether it is shown, and since when it is open: one of many and the verb, by the fast way and
    by boto3, tell the same, with one request."""
    lab.said(document("ListMultipartUploads", upload_rows(*rows) + more))
    store, asked = lab.make(), base.FindUpload("k", "u")
    told = [at_once(store, ("k", asked))["k"]]
    told += [by_verb(one, asked) for one in (store, lab.make(transport="boto3"))]
    for page in told:
        assert isinstance(page, base.UploadPage)
        assert [(one.key, one.upload_id) for one in page.uploads] == [("k", "u")] * found
        assert [one.initiated for one in page.uploads] == [1_795_341_600.0] * found
    assert [asked.query["prefix"] for asked in lab.asked] == ["k"] * 3
    assert "key-marker" not in lab.asked[0].query


def test_what_is_on_several_pages_is_asked_for_to_its_end(lab: Lab) -> None:
    """A page of parts is not all of them, and an upload may stand behind a page of its key's."""
    more = f"{TRUNCATED}<NextPartNumberMarker>2</NextPartNumberMarker>"
    last = PART_ROW.replace(">2<", ">3<")
    lab.said(*[document("ListParts", rows) for rows in (PART_ROW + more, last)] * 2)
    store = lab.make()
    for told in (at_once(store, ("k", PARTS))["k"], by_verb(store, PARTS)):
        assert [part.number for part in told] == [2, 3]
    first, rest = upload_rows(*[("k", f"a{n}") for n in range(3)]) + MORE, upload_rows(("k", "u"))
    lab.said(*[document("ListMultipartUploads", rows) for rows in (first, rest)])
    page = at_once(store, ("k", base.FindUpload("k", "u")))["k"]
    assert [one.upload_id for one in page.uploads] == ["u"]


def test_each_gets_its_own_answer_and_its_own_tries(lab: Lab) -> None:
    """Answers in any order reach who asked: one failure is not another's. Some answers are failures
    that pass: those are tried again while the others go on, and each says how often it was sent."""
    passing = [error(503, "SlowDown"), LOST, Reply(200, "<html/>")] * 7
    failed: set[str] = set()

    def script(asked: Asked) -> Reply:
        if passing and asked.path not in failed:
            failed.add(asked.path)
            return passing.pop()
        gone = asked.path.endswith("7")
        etag = document("CompleteMultipartUpload", f"<ETag>{asked.path}</ETag>")
        return error(404, "NoSuchUpload") if gone else etag

    lab.script(script)
    keys = [f"k{number}" for number in range(60)]
    told = at_once(lab.make(retry_attempts_max=5), *map(complete, keys), in_flight=16)
    assert sorted(told) == sorted(keys)
    for key in keys:
        assert told[key].attempts == 1 + (f"/b/{key}" in failed)
        if key.endswith("7"):
            assert isinstance(told[key], NotFound)
        else:
            assert told[key].etag == f"/b/{key}"
    assert len(lab.asked) == 60 + len(failed) == 81


def test_who_leaves_early_waits_for_what_is_in_flight(lab: Lab) -> None:
    """Nothing is given up, and nothing new is begun."""
    lab.said(COMPLETED)
    many, left = base.many_of(lab.make()), iter([complete(f"k{n}") for n in range(50)])
    assert many is not None
    told = many.ask_each(lambda: next(left, None), in_flight=8)
    next(told)
    told.close()
    sent, rest = len(lab.asked), len(list(left))
    assert sent + rest == 50
    assert sent <= 16


def test_abort_once_is_sent_once(lab: Lab) -> None:
    """What follows from a look is not sent again on an old one."""
    lab.said(error(503, "SlowDown"))
    store, once = lab.make(retry_attempts_max=5), base.AbortUpload("k", "u", once=True)
    for told in (at_once(store, ("k", once))["k"], by_verb(store, once)):
        assert isinstance(told, Unanswered)
    assert len(lab.asked) == 2


def test_what_is_not_begun_holds_nothing(lab: Lab) -> None:
    """No descriptor: neither a selector nor a connection."""
    many = base.many_of(lab.make())
    assert many is not None
    before = len(os.listdir("/dev/fd"))
    left = iter([complete("k")])
    told = [many.ask_each(lambda: next(left, None), in_flight=8) for _ in range(5)]
    assert len(os.listdir("/dev/fd")) <= before  # fewer: the server has closed one meanwhile
    assert [len(list(one)) for one in told] == [1, 0, 0, 0, 0]


def test_only_what_succeeded_lets_the_window_grow(lab: Lab) -> None:
    """Not an error inside a 200, nor a page."""
    seen: list[int] = []
    lab.patch.setattr(Window, "answered", lambda _, status: seen.append(status))
    lab.said(Reply(200, error(200, "SlowDown").body), Reply(200, "<html/>"), COMPLETED)
    at_once(lab.make(retry_attempts_max=5), complete("k"))
    assert seen == [500, 0, 200]


NO, OK = 503, 200


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize(
    ("most", "told", "sizes"),
    [
        (8, [OK] * 100, [8] * 100),  # the caller's number is the first and the largest
        (8, [NO], [4]),
        (8, [429], [4]),
        (8, [NO] * 9, [4] * 8 + [2]),  # what was under way then is no second reason
        (4, [NO] + [OK] * 20, [2, 2, 3, 3, 3] + [4] * 16),  # a whole window of successes: one more
        (8, [NO] * 8 + [OK] * 3 + [NO] + [OK] * 2, [4] * 8 + [4, 4, 4, 2, 2, 3]),  # from anew
        (2, [NO] * 50, [1] * 50),
        (1, [NO], [1]),
        *[(8, [one] * 20, [8] * 20) for one in (404, 500, 0)],
    ],
)  # fmt: skip
def test_a_window_is_halved_once_for_a_burst_and_grows_by_one(
    most: int, told: list[int], sizes: list[int]
) -> None:
    """Only an answer that asks for fewer requests halves it, never below one; as many successes as
    it holds let it grow."""
    window, seen = Window(most), []
    for one in told:
        window.answered(one)
        seen.append(window.size)
    assert seen == sizes
