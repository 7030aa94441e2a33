"""How a command is told where to look: several paths, bare names, options before the command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import orjson
import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.cli.app import root
from magic_committer.cli.values import s3_url
from magic_committer.runtime.wiring import register_store, unregister_store
from magic_committer.stores.memory import MemoryStore
from tests.cli import reference
from tests.cli.conftest import Command, forbid, lead
from tests.servers import error, scripted_server

BUCKETS = ("sales", "lake", "logs")


@pytest.fixture
def account() -> Iterator[dict[str, MemoryStore]]:
    """Three buckets, a job and an open upload in each, and nothing else that can be reached."""
    stores = {name: MemoryStore(name) for name in BUCKETS}
    for name, store in stores.items():
        register_store(store, other_buckets="raise")
        store.start_upload("t/a.csv")
        mc.start(f"s3://{name}/t", job_id=f"job-{name}")
    yield stores
    for store in stores.values():
        unregister_store(store)


AS_IT_IS = (
    "s3://mybucket", "s3a://mybucket/t", "/tmp/table", "./table", "~/table", "ab", "secret@bucket",
    "C:/table", "My_Bucket",
)  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mybucket", "s3://mybucket"),
        ("my.bucket-1/table/", "s3://my.bucket-1/table/"),
        *((name, name) for name in AS_IT_IS),
    ],
)
def test_a_bare_name_is_a_bucket(typed: str, meant: str) -> None:
    """Where it could be the name of one; what looks like a local path, or like a secret, is not."""
    assert s3_url(typed) == meant


@pytest.mark.parametrize(
    "words",
    ["job list", "uploads list", "report", "cleanup", "doctor", "uploads abort", "uploads expect"],
)
def test_commands_take_a_bare_name(
    command: Command, account: dict[str, MemoryStore], words: str
) -> None:
    """``lake/t`` is ``s3://lake/t`` wherever a path is taken: same exit code, same output on it."""
    more = ("1",) if words == "uploads expect" else ()
    bare = command(*words.split(), "lake/t", *more, "--dry-run" if "abort" in words else "--quiet")
    assert bare.code == exits.OK, bare.err
    assert re.search(r"s3://lake/t/|t/a\.csv|job-lake|Would abort 0", bare.out)


def test_several_paths_are_one_list(command: Command, account: dict[str, MemoryStore]) -> None:
    """Jobs and uploads of all, each with where it is; a path that is given twice counts once."""
    jobs = command("job", "list", "sales/t", "lake/t", "sales/t", "--json").json()
    assert [row["dest"] for row in jobs["rows"]] == ["s3://sales/t/", "s3://lake/t/"]
    found = command("uploads", "list", "sales/t", "logs/t", "--json").json()
    keys = [(row["bucket"], row["key"]) for row in found["rows"]]
    assert keys == [("sales", "t/a.csv"), ("logs", "t/a.csv")]
    table = command("uploads", "list", "sales/t", "logs/t").out
    assert "  s3://sales/t/a.csv\n" in table
    assert "  s3://logs/t/a.csv\n" in table


@pytest.mark.parametrize("how", ["table", "json", "jsonl", "csv"])
@pytest.mark.parametrize("words", ["uploads list", "job list"])
def test_a_path_that_fails_does_not_stop_the_next(
    command: Command, account: dict[str, MemoryStore], words: str, how: str
) -> None:
    """It is told with its URL, the others are listed, and the exit code is not 0."""
    forbid(account["lake"], "list", "list_uploads")
    told = command(*words.split(), *(f"s3://{name}/t" for name in BUCKETS), "--format", how)
    assert told.code == exits.BAD_STATE
    assert "s3://lake/t/: not allowed" in told.err
    assert "sales" in told.out
    assert "logs" in told.out


def test_common_options_may_stand_before_the_command(
    command: Command, memory_s3: MemoryStore
) -> None:
    """Before the command, before its group's, or after it: the same; the last one holds."""
    mc.start("s3://bucket/t", job_id="j")
    behind = command("job", "list", "bucket/t", "--format", "json").out
    for words in (
        "--json job list bucket/t",
        "--format json job list bucket/t",
        "job --json list bucket/t",
        "--format csv job --json list bucket/t",
        "--json job list --json bucket/t",
    ):
        told = orjson.loads(command(*words.split()).out)
        assert told["rows"][0]["id"] == "j"
        assert told.keys() == orjson.loads(behind).keys()
    assert command("--json", "job", "list", "bucket/t", "--format", "table").out.startswith("kind")
    assert command("--quiet", "job", "list", "bucket/none").err == ""
    assert command("job", "list", "bucket/t", "--json", "--format", "csv").code == exits.USAGE


def test_the_way_to_the_store_may_stand_before_the_command(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--endpoint and --region before the command reach it."""
    lead(monkeypatch, "http://127.0.0.1:1")
    with scripted_server() as server:
        server.said(error(403, "AccessDenied"))
        told = command("--endpoint", server.url, "--region", "eu-west-3", "job", "list", "bucket/t")
    assert told.code == exits.FORBIDDEN
    assert "/eu-west-3/s3/" in server.asked[0].headers["authorization"]


def test_whatever_asks_takes_y() -> None:
    """Every command with --yes has -y too."""
    options = [option.opts for _, one, _ in reference.commands(root) for option in one.params]
    asking = [names for names in options if "--yes" in names]
    assert len(asking) == 7
    assert all("-y" in names for names in asking)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
