"""``uploads``, ``cleanup``, ``report`` on a store that does not show all: no false all-clear."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.commit import probe
from magic_committer.errors import InvalidRequest
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.memory import Request
from magic_committer.testing import PatientClock
from tests.cli.conftest import Command, forbid
from tests.unit.test_probe import Server

T = "s3://bucket/t"
COMMANDS = (f"uploads expect {T} 0", f"uploads list {T}", f"uploads abort {T} --yes")
CLEANUPS = (f"cleanup {T}", f"cleanup {T} --dry-run")
UNSEEN = (
    "uploads may be open under s3://bucket/t/ that cannot be seen: the store does not list an"
    " upload by a part of its key. Only a lifecycle rule removes them (`magic-committer lifecycle"
    " ensure s3://bucket/t/ --days 7 --profile p`)"
)
OF_A_DEAD_JOB = f"t/a.csv-mcj{'5' * 32}"


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that lists uploads in the way of the test's parameter."""
    store = Server(listing=getattr(request, "param", ""))
    register_store(store, PatientClock())
    yield store
    unregister_store(store)


def cases(listing: str, open_: str, code: int, tried: int | None, *commands: str) -> Iterator[Any]:
    """Rows of the table: how the server lists, which upload is open, exit code, uploads tried."""
    for words in commands:
        name = f"{listing or 'prefix'}, {open_.partition('-')[0] or 'nothing'}, {words}"
        yield pytest.param(listing, open_, code, tried, words, id=name)


@pytest.mark.parametrize(
    ("server", "open_", "code", "tried", "words"),
    [
        # what cannot be seen is told, also by who finds nothing; of a whole key every store tells
        *cases("keys", OF_A_DEAD_JOB, exits.BAD_STATE, 2, *COMMANDS, *CLEANUPS),
        *cases("keys", "t/", exits.BAD_STATE, 2, f"uploads expect {T} 1"),
        # an empty listing is believed where the store shows uploads
        *cases("", "elsewhere", exits.OK, 2, *COMMANDS, CLEANUPS[0]),
        *cases("", "", exits.OK, 2, "uploads expect s3://bucket 0"),
        # one that shows uploads proves itself, unless it is of the whole bucket: without a prefix
        # MinIO shows what its process remembers
        *cases("", "t/a.csv", exits.OK, 0, f"uploads expect {T} 1", f"uploads list {T}"),
        *cases("", "t/a.csv", exits.OK, 0, f"uploads expect {T} 0 --job j", CLEANUPS[0]),
        *cases("", "a.csv", exits.OK, 2, "uploads expect s3://bucket 1"),
        # a store that lists too much hides nothing
        *cases("all", "", exits.OK, None, f"uploads list {T}"),
        # one that lists none is told of once, and nothing is tried
        *cases("none", "", exits.BAD_STATE, 0, CLEANUPS[0]),
    ],
    indirect=["server"],
)
def test_no_all_clear_of_what_cannot_be_seen(
    command: Command, server: Server, open_: str, code: int, tried: int | None, words: str
) -> None:
    """What cannot be seen is told in the same words, and what it was tried with is gone."""
    if open_:
        server.start_upload(open_)
    ran = command("--profile", "p", *words.split())
    assert ran.code == code
    assert (UNSEEN in ran.err) == (server.listing == "keys")
    assert server.listing != "none" or ran.err.count("uploads") == 1
    assert tried is None or server.requests["create_upload"] == tried
    assert [upload.key for upload in server.open_uploads()] == [open_] * bool(open_)
    assert server.keys() == ()


@pytest.mark.parametrize(
    ("server", "before", "why"),
    [
        ("keys", f"report {T}", "the store was not asked whether it lists"),
        ("keys", f"uploads list {T}", "the store does not list an upload by a part of its key"),
        ("", f"uploads list {T}", ""),
        ("none", f"report {T}", "Open uploads cannot be listed"),
    ],
    indirect=["server"],
)
def test_a_report_gives_no_all_clear_and_sends_nothing_to_find_out(
    command: Command, server: Server, before: str, why: str
) -> None:
    """What is not listed is not called closed; not to have asked is no failure."""
    command(*before.split())
    asked = server.requests["create_upload"]
    ran = command("report", T)
    assert ran.code == (exits.BAD_STATE if server.listing == "none" else exits.OK)
    assert why in ran.out
    assert (f"magic-committer uploads list {T}/" in ran.out) == ("not asked" in why)
    assert (f"magic-committer lifecycle ensure {T}/" in ran.out) == (server.listing == "keys")
    assert ("at least 0" in ran.out) == (server.listing == "keys")
    assert ("No upload is open" in ran.out) == (not why)
    assert server.requests["create_upload"] == asked


@pytest.mark.parametrize(
    ("words", "code"),
    [*((one, exits.FORBIDDEN) for one in COMMANDS), (CLEANUPS[0], exits.BAD_STATE)],
)
def test_who_may_not_ask_is_told_what_is_needed(
    command: Command, server: Server, words: str, code: int
) -> None:
    """Whether the empty listing means anything cannot be told: no all-clear."""
    forbid(server, "create_upload", words="s3:PutObject is not allowed")
    ran = command(*words.split())
    assert ran.code == code
    assert "whether the store shows all open uploads under s3://bucket/t/ is unknown" in ran.err
    assert "s3:PutObject" in ran.err


@pytest.mark.parametrize("server", ["keys"], indirect=True)
def test_a_store_is_asked_once_for_all_destinations(command: Command, server: Server) -> None:
    """Each of many destinations is told of; only the first is tried."""
    ran = command("cleanup", T, "s3://bucket/u", "s3://bucket/v", "--profile", "p")
    assert ran.code == exits.BAD_STATE
    for name in "tuv":
        assert UNSEEN.replace("/t/", f"/{name}/") in ran.err
    (error,) = mc.cleanup(T).errors
    assert "(magic_committer.lifecycle('s3://bucket/t/', days=7))" in error
    assert server.requests["create_upload"] == 2


AWS = "https://s3.eu-central-1.amazonaws.com/bucket"
OTHERS = (
    "https://s3.example.org/bucket",
    "https://s3.amazonaws.com.example.org/bucket",
    "https://s3.eu-central-1.amazonaws.com/bucket--euc1-az1--x-s3",
    "https://s3.eu-central-1.amazonaws.com/point--euc1-az1--xa-s3",
    "http://127.0.0.1:9000/s3.amazonaws.com",
)


@pytest.mark.parametrize("identity", [AWS, "https://s3.amazonaws.com/bucket", *OTHERS])
def test_aws_is_believed_without_a_question(
    server: Server, identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS S3 lists by prefix, so a cleanup by somebody who may only read creates nothing there."""
    monkeypatch.setattr(server, "_identity", identity)
    monkeypatch.setattr(probe, "_known", {})
    assert mc.cleanup(T, dry_run=True).errors == ()
    assert (server.requests["create_upload"] > 0) is (identity in OTHERS)


def taken(server: Server) -> None:
    """An operator's ``uploads abort --foreign`` takes all uploads that are open just then."""
    for upload in server.open_uploads():
        server.drop_upload(upload.upload_id)


def odd(server: Server) -> None:
    """The listing gets an answer that it gets once."""
    raise InvalidRequest("odd", operation="list_uploads", bucket=server.bucket, status=400)


@pytest.mark.parametrize("accident", [taken, odd])
def test_an_accident_of_the_question_is_not_remembered(
    server: Server, accident: Callable[[Server], None]
) -> None:
    """The cleanup that it befell gives no all-clear; the next one asks again, and does."""
    asked: list[str] = []

    def once(request: Request) -> None:
        asked.append(request.verb)
        if request.verb == "list_uploads" and asked.count("put_part") == 2:
            server.before = None
            accident(server)

    server.before = once
    assert mc.cleanup(T).errors != ()
    assert mc.cleanup(T).errors == ()


def test_a_question_that_may_not_clean_up_names_what_it_left(server: Server) -> None:
    """The role may create uploads and not abort them: they cost money, so they are named."""
    forbid(server, "abort_upload")
    (error,) = mc.cleanup(T, dry_run=True).errors
    left = [upload.key for upload in server.open_uploads()]
    assert len(left) == 2
    assert all(key in error for key in left)
