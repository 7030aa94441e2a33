"""The tools for users' own tests: the guard over other buckets, the hooks, and their page."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import magic_committer as mc
from magic_committer.options import S3Options
from magic_committer.runtime import wiring
from magic_committer.runtime.components import no_progress
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.base import Attributes, ObjectStore, Part
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.stores.s3 import S3Store
from magic_committer.testing import memory_store
from tests.promises.hands import raises

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
"""The page's files, by the name in their first line."""


def store_for(bucket: str) -> ObjectStore:
    """What a job would use for that bucket."""
    return wiring.runtime_for(bucket, S3Options(region="us-east-1"), no_progress).store


def raised_for(bucket: str) -> str:
    """What is said of that bucket; "": there is a store for it."""
    try:
        store_for(bucket)
    except mc.OptionError as error:
        return str(error)
    return ""


def test_another_bucket_never_leaves_the_process() -> None:
    """Every way to it raises, in any thread; an inner store of the same bucket hides the outer."""
    with memory_store() as s3:
        for ask in (
            lambda: mc.start("s3://production/t"),
            lambda: mc.attach("s3://production/t", "1"),
            lambda: mc.cleanup("s3://production/t"),
            lambda: mc.inspect("s3://production/t"),
            lambda: mc.write("s3://production/t").__enter__(),
            lambda: mc.open_magic("s3://production/t/__magic_job-1/job-1/00/tasks/a/__base/f"),
            lambda: wiring.bucket_settings("production", S3Options()),
        ):
            raises(mc.OptionError, ask, match=r"'production' is not in memory, only 'bucket'")
        with closing(ThreadPool(1)) as pool:
            assert pool.submit(lambda: raised_for("production")).result()
            assert pool.submit(lambda: store_for("bucket")).result() is s3
        with memory_store() as inner:
            assert store_for("bucket") is inner
        assert store_for("bucket") is s3
        assert raised_for("production")
    assert isinstance(store_for("production"), S3Store)
    assert isinstance(store_for("bucket"), S3Store)


def test_what_to_do_with_other_buckets_is_one_of_two_words() -> None:
    """Another word registers nothing."""
    words: Any = "never"
    raises(mc.OptionError, memory_store(other_buckets=words).__enter__, match="'never' is none of")
    assert isinstance(store_for("bucket"), S3Store)


def test_other_buckets_can_be_allowed() -> None:
    """``other_buckets="allow"``: they are the real ones; unless another open store forbids it."""
    with memory_store(other_buckets="allow") as s3:
        assert store_for("bucket") is s3
        assert isinstance(store_for("production"), S3Store)
        with memory_store("second") as second:
            assert (store_for("bucket"), store_for("second")) == (s3, second)
            assert "only 'bucket', 'second'" in raised_for("production")
        assert isinstance(store_for("production"), S3Store)


def test_a_store_of_ones_own_blocks_no_other_bucket() -> None:
    """`register_store` alone leaves others as they are; beside a memory store it is known."""
    mine = MemoryStore("mine")
    wiring.register_store(mine)
    try:
        assert isinstance(store_for("production"), S3Store)
        with memory_store() as s3:
            assert (store_for("mine"), store_for("bucket")) == (mine, s3)
            assert raised_for("production")
        wiring.unregister_store(s3)  # again: nothing to undo
        assert store_for("mine") is mine
    finally:
        wiring.unregister_store(mine)
    assert isinstance(store_for("mine"), S3Store)


def test_the_fields_of_a_request_are_a_promise() -> None:
    """Users' hooks read these names: none goes; the reference shows each of them."""
    names = [one.name for one in fields(Request)]
    promised = "verb key upload_id part if_match if_none_match keys size effect"
    assert names[:9] == promised.split()
    assert re.findall(r"^ {8}(\w+): ", Request.__doc__ or "", re.MULTILINE) == names


def test_hooks_see_every_verb_by_its_name() -> None:
    """Each verb of the port passes both hooks once, under its own name, with what it was given."""
    seen: list[Request] = []
    heard: list[str] = []
    with memory_store() as s3:
        s3.before = seen.append
        s3.after = lambda request, reply: heard.append(request.verb)
        etag = s3.put("k", b"123", if_none_match=True).etag
        s3.put("k", b"4567", if_match=etag)
        s3.get("k", max_bytes=9)
        s3.head("k")
        list(s3.list("k"))
        upload = s3.create_upload("k", attributes=Attributes()).upload_id
        part = s3.put_part("k", upload, 1, memoryview(b"12"))
        s3.list_parts("k", upload)
        list(s3.list_uploads("k"))
        s3.complete_upload("k", upload, [Part(1, part.etag, 2)])
        s3.abort_upload("k", upload)
        s3.delete_one("k", if_match=s3.head("k").etag)
        s3.delete(["a", "b"])
    assert heard == [request.verb for request in seen]
    told = re.search(r" verb: (.*?) key: ", Request.__doc__ or "", re.DOTALL)
    assert told is not None
    assert set(heard) == set(re.findall(r"``(\w+)``", told[1]))
    put, swap = seen[:2]
    assert (put.key, put.size, put.if_none_match, put.if_match) == ("k", 3, True, None)
    assert (swap.key, swap.size, swap.if_none_match, swap.if_match) == ("k", 4, False, etag)
    by_verb = {one.verb: one for one in seen}
    assert (by_verb["put_part"].part, by_verb["put_part"].size) == (1, 2)
    of_uploads = ("put_part", "list_parts", "complete_upload", "abort_upload")
    assert {by_verb[verb].upload_id for verb in of_uploads} == {upload}
    assert by_verb["delete"].keys == ("a", "b")
    assert by_verb["delete_one"].if_match


def test_an_effect_may_come_late_again_or_never() -> None:
    """`Request.effect` does what the request does, calls no hook and counts nothing."""
    kept: list[Request] = []

    def keep(request: Request) -> None:
        kept.append(request)
        raise mc.StoreError("kept")

    with memory_store() as s3:
        s3.before = keep
        raises(mc.StoreError, s3.put, "k", b"1", if_none_match=True)
        assert s3.keys() == ()
        assert kept[0].effect().etag
        assert s3.keys() == ("k",)
        raises(mc.StoreError, kept[0].effect, match="412")
        assert (len(kept), dict(s3.requests)) == (1, {"put": 1})


def test_what_after_returns_takes_the_replys_place() -> None:
    """A reply may be changed, or turned into an error; None leaves it."""
    with memory_store() as s3:
        s3.after = lambda request, reply: None
        assert s3.put("k", b"1").etag
        s3.after = lambda request, reply: mc.StoreError("refused")
        raises(mc.StoreError, s3.put, "k", b"2", match="refused")
        assert s3.body("k") == b"2"


def test_every_block_of_the_page_runs(tmp_path: Path) -> None:
    """The blocks of docs/testing.md are a project whose tests pass, one for each shown."""
    assert len(BLOCKS) == PAGE.count("```python") == 6
    for name, code in BLOCKS.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    shown = len(re.findall(r"^def test_", PAGE, re.MULTILINE))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{shown} passed" in ran.stdout
