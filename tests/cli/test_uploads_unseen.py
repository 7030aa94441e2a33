"""``uploads`` and ``cleanup`` on a store that does not show what is open: no false all-clear."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import magic_committer as mc
from magic_committer._wiring import register_store, unregister_store
from magic_committer.cli import exits
from magic_committer.commit import probe
from magic_committer.errors import InvalidRequest
from magic_committer.stores.memory import Request
from magic_committer.testing import PatientClock
from tests.cli.conftest import Command, forbid
from tests.unit.test_probe import Server

T = "s3://bucket/t"
COMMANDS = (("expect", T, "0"), ("list", T), ("abort", T, "--yes"))


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that lists uploads in the way of the test's parameter."""
    store = Server(listing=request.param)
    register_store(store, PatientClock())
    yield store
    unregister_store(store)


def lists(way: str) -> pytest.MarkDecorator:
    """Run the test on a server that lists so."""
    return pytest.mark.parametrize("server", [way], indirect=True)


@lists("keys")
@pytest.mark.parametrize("command_line", COMMANDS)
def test_what_cannot_be_seen_is_told(
    command: Command, server: Server, command_line: tuple[str, ...]
) -> None:
    """1,500 uploads are open and none is listed: each command says why, and its exit code is 46.
    What it tried with is gone."""
    for number in range(1500):
        server.start_upload(f"t/{number}.csv")
    ran = command("uploads", *command_line)
    assert ran.code == exits.BAD_STATE
    assert "that cannot be seen: the store does not list an upload by a part of its key" in ran.err
    assert len(server.open_uploads()) == 1500
    assert server.keys() == ()


@lists("")
@pytest.mark.parametrize("command_line", [*COMMANDS, ("expect", "s3://bucket", "0")])
def test_an_empty_listing_is_believed_where_the_store_shows_uploads(
    command: Command, server: Server, command_line: tuple[str, ...]
) -> None:
    """All clear, and the uploads that it was tried with are gone."""
    server.start_upload("elsewhere")
    if command_line[1] != T:
        server.drop_upload(server.open_uploads()[0].upload_id)
    assert command("uploads", *command_line).code == exits.OK
    assert server.requests["create_upload"] == 2
    assert len(server.open_uploads()) == (command_line[1] == T)


@lists("")
@pytest.mark.parametrize(
    "command_line", [("expect", T, "1"), ("expect", T, "0", "--job", "j"), ("list", T)]
)
def test_a_listing_that_shows_uploads_proves_itself(
    command: Command, server: Server, command_line: tuple[str, ...]
) -> None:
    """Nothing is asked: what is shown was found by a part of its key."""
    server.start_upload("t/a.csv")
    assert command("uploads", *command_line).code == exits.OK
    assert server.requests["create_upload"] == 0


@lists("keys")
def test_an_upload_of_exactly_that_key_proves_nothing(command: Command, server: Server) -> None:
    """Every store lists a whole key: that of a directory, too."""
    server.start_upload("t/")
    ran = command("uploads", "expect", T, "1")
    assert (ran.code, "cannot be seen" in ran.err) == (exits.BAD_STATE, True)


@lists("")
def test_a_listing_of_the_whole_bucket_proves_nothing(command: Command, server: Server) -> None:
    """Without a prefix MinIO shows what its process remembers, so it is asked all the same."""
    server.start_upload("a.csv")
    assert command("uploads", "expect", "s3://bucket", "1").code == exits.OK
    assert server.requests["create_upload"] == 2


@lists("all")
def test_a_store_that_lists_too_much_hides_nothing(command: Command, server: Server) -> None:
    """What does not belong there is left out by ourselves."""
    assert command("uploads", "list", T).code == exits.OK


@lists("")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        *((("uploads", *one), exits.FORBIDDEN) for one in COMMANDS),
        (("cleanup", T), exits.BAD_STATE),
    ],
)
def test_who_may_not_ask_is_told_what_is_needed(
    command: Command, server: Server, words: tuple[str, ...], code: int
) -> None:
    """Nothing is listed, and it cannot be told whether that means anything: no all-clear; a cleanup
    does the rest."""
    forbid(server, "create_upload", words="s3:PutObject is not allowed")
    ran = command(*words)
    assert ran.code == code
    assert "whether the store shows all open uploads under s3://bucket/t/ cannot be told" in ran.err
    assert "s3:PutObject" in ran.err


# cleanup ------------------------------------------------------------------------------------------

UNSEEN = (
    "uploads may be open under s3://bucket/t/ that cannot be seen: the store does not list an"
    " upload by a part of its key. Only a lifecycle rule takes them"
)


@lists("keys")
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_cleanup_that_cannot_see_says_so(
    command: Command, server: Server, dry: tuple[str, ...]
) -> None:
    """A task of a dead job died before it named its upload: the cleanup does not find it, tells in
    the words of `uploads` that there may be such, and exits with 46."""
    server.start_upload("t/a.csv-mcj" + "5" * 32)
    ran = command("cleanup", T, *dry)
    assert ran.code == exits.BAD_STATE
    assert UNSEEN in ran.err
    assert UNSEEN in command("uploads", "expect", T, "0").err
    assert len(server.open_uploads()) == 1
    assert server.keys() == ()


@lists("keys")
def test_a_store_is_asked_once_for_all_destinations(command: Command, server: Server) -> None:
    """Each of many destinations is told of; only the first is tried."""
    ran = command("cleanup", T, "s3://bucket/u", "s3://bucket/v")
    assert ran.code == exits.BAD_STATE
    for name in "tuv":
        assert UNSEEN.replace("/t/", f"/{name}/") in ran.err
    assert server.requests["create_upload"] == 2


@lists("")
def test_a_cleanup_believes_a_listing_where_the_store_shows_uploads(
    command: Command, server: Server
) -> None:
    """All clear of an empty one, and what it was tried with is gone; another program's upload below
    the path proves that the store lists by prefix: nothing is tried."""
    assert command("cleanup", T).code == exits.OK
    assert server.requests["create_upload"] == 2
    assert server.open_uploads() == ()
    probe._known.pop(server.identity)
    server.start_upload("t/a.csv")
    assert command("cleanup", T).code == exits.OK
    assert server.requests["create_upload"] == 2


@lists("none")
def test_a_store_without_a_listing_is_told_of_once(command: Command, server: Server) -> None:
    """What nothing names stays open: one line, and nothing is tried."""
    ran = command("cleanup", T)
    assert ran.code == exits.BAD_STATE
    assert ran.err.count("uploads") == 1
    assert server.requests["create_upload"] == 0


AWS = "https://s3.eu-central-1.amazonaws.com/bucket"
OTHERS = (
    "https://s3.example.org/bucket",
    "https://s3.amazonaws.com.example.org/bucket",
    "https://s3.eu-central-1.amazonaws.com/bucket--euc1-az1--x-s3",
    "https://s3.eu-central-1.amazonaws.com/point--euc1-az1--xa-s3",
    "http://127.0.0.1:9000/s3.amazonaws.com",
)


@lists("")
@pytest.mark.parametrize("identity", [AWS, "https://s3.amazonaws.com/bucket", *OTHERS])
def test_aws_is_believed_without_a_question(
    server: Server, identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS S3 lists by prefix, so a cleanup by somebody who may only read creates nothing there; any
    other store is asked."""
    monkeypatch.setattr(server, "_identity", identity)
    monkeypatch.setattr(probe, "_known", {})
    asked: list[str] = []
    server.before = lambda request: asked.append(request.verb)
    assert mc.cleanup(T, dry_run=True).errors == ()
    assert ("create_upload" in asked) is (identity in OTHERS)


def taken(server: Server) -> None:
    """An operator's ``uploads abort --foreign`` takes all uploads that are open just then."""
    for upload in server.open_uploads():
        server.drop_upload(upload.upload_id)


def odd(server: Server) -> None:
    """The listing gets an answer that it gets once."""
    raise InvalidRequest("odd", operation="list_uploads", bucket=server.bucket, status=400)


@lists("")
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


@lists("")
def test_a_question_that_may_not_clean_up_names_what_it_left(server: Server) -> None:
    """The role may create uploads and not abort them: they cost money, so they are named."""
    forbid(server, "abort_upload")
    (error,) = mc.cleanup(T, dry_run=True).errors
    left = [upload.key for upload in server.open_uploads()]
    assert len(left) == 2
    assert all(key in error for key in left)
