"""``put``: a directory of this machine, published all or nothing from a shell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.errors import PermissionDenied
from magic_committer.filesystem import put
from magic_committer.hadoop.paths import unique_name
from magic_committer.stores.memory import MemoryStore
from tests.cli.conftest import Command, answering
from tests.destinations import InBucket, There, opened
from tests.promises.hands import refusing, visible

DEST = "s3://bucket/site"


SHOWN = ("a.html", "b/c.html", "b/d.html")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files in two directories, and a hidden one."""
    for name in (*SHOWN, ".git"):
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "site"


@pytest.fixture(params=["s3", "manifest"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[There]:
    """Where it is put: S3, or a local disk."""
    yield from opened(request.param, tmp_path)


def test_a_directory_is_published(there: There, command: Command, source: Path) -> None:
    """Programs and people are told what was published, and what was left out."""
    told = command("put", source, there.url, "--yes", "--json")
    assert told.code == exits.OK
    report = told.json()
    assert (report["type"], report["outcome"], report["files"]) == ("put", "committed", 3)
    assert report["left_out"] == [".git"]
    assert there.data() == {name: name.encode() for name in SHOWN}
    assert "_SUCCESS" in there.names()
    told = command("put", source, there.url, "-y")
    assert "outcome   committed" in told.out
    assert "left out  .git" in told.out


def test_options_reach_the_job(there: There, command: Command, source: Path) -> None:
    """``--hidden``, ``--unique`` and ``--no-success`` do what they say."""
    options = ("--hidden", "--unique", "--no-success", "--json")
    uuid = command("put", source, there.url, "--yes", *options).json()["uuid"]
    assert set(there.names()) == {unique_name(name, uuid) for name in (*SHOWN, ".git")}


def test_content_types_are_guessed_or_as_it_is_said(
    s3: MemoryStore, command: Command, source: Path
) -> None:
    """A browser shows a page that was put; a type of the caller's takes the guess's place."""
    for given, seen in (((), "text/html"), (("--content-type", "text/plain"), "text/plain")):
        assert command("put", source, DEST, "--yes", *given).code == exits.OK
        assert s3.attributes("site/b/c.html").content_type == seen
        assert command("promote", DEST, "s3://bucket/copy", "--yes", *given).code == exits.OK
        assert s3.attributes("copy/b/c.html").content_type == seen


@pytest.mark.parametrize(
    ("mode", "over", "deleted"),
    [("append", 1, 0), ("replace", 1, 2), ("overwrite", 1, 2), ("replace_partitions", 1, 1)],
)
def test_a_dry_run_says_what_a_run_does(
    there: There, command: Command, source: Path, mode: str, over: int, deleted: int
) -> None:
    """It counts what is written over and what is deleted, changes nothing, and is right."""
    for key in ("a.html", "b/old", "z/old", "_SUCCESS", "_x/y"):
        there.put(key, b"old")
    before = {key: there.read(key) for key in there.names()}
    told = command("put", source, there.url, "--mode", mode, "--dry-run", "--json").json()
    assert (told["over"], told["deleted"], told["refused"]) == (over, deleted, "")
    assert {key: there.read(key) for key in there.names()} == before
    assert command("put", source, there.url, "--mode", mode, "--yes").code == exits.OK
    kept = [key for key in before if key in there.names()]
    changed = [key for key in kept if there.read(key) != b"old"]
    assert (len(changed) - 1, len(before) - len(kept)) == (over, deleted)  # and _SUCCESS


def test_hidden_files_that_are_written_over_are_counted(
    there: There, command: Command, source: Path
) -> None:
    """They are no data, but they are written over all the same."""
    there.put(".git", b"old")
    for how, over in ((("--mode", "replace"), 1), (("--unique",), 0)):
        told = command("put", source, there.url, "--hidden", *how, "--dry-run", "--json")
        assert told.json()["over"] == over


@pytest.mark.parametrize("mode", ["fail", "error", "fail_partitions"])
def test_a_mode_that_refuses_does_not_ask(
    there: There, command: Command, source: Path, mode: str
) -> None:
    """It runs without a terminal; the second time there is data, as a dry run says, too."""
    way = ("put", source, there.url, "--mode", mode)
    assert command(*way).code == exits.OK
    told = command(*way, "--dry-run")
    assert (told.code, "Refuse to put 3 files" in told.out) == (exits.BAD_STATE, True)
    before = there.names()
    told = command(*way)
    assert (told.code, there.names()) == (exits.BAD_STATE, before)
    assert "holds data" in told.err
    assert there.left() == []


@pytest.mark.parametrize("mode", ["append", "replace", "replace_partitions", "apend"])
def test_a_mode_that_takes_away_asks(
    there: There, command: Command, source: Path, mode: str
) -> None:
    """Where nobody can be asked it refuses; of one that is none the nearest word is told."""
    told = command("put", source, there.url, "--mode", mode)
    assert told.code == exits.USAGE
    assert ("'append'" if mode == "apend" else "--yes") in told.err
    assert there.names() == there.left() == []


@pytest.mark.parametrize(("answer", "code"), [("y", exits.OK), ("n", exits.INTERRUPTED)])
def test_the_question_has_exact_numbers(
    there: There, command: Command, source: Path, monkeypatch: pytest.MonkeyPatch,
    answer: str, code: int,
) -> None:  # fmt: skip
    """A yes goes on, anything else leaves all as it was."""
    there.put("a.html", b"old")
    there.put("old", b"old")
    asked = answering(monkeypatch, yes=answer == "y")
    assert command("put", source, there.url, "--mode", "replace").code == code
    kind = "object" if isinstance(there, InBucket) else "file"
    assert asked == [
        f"Put 3 files, 22 B into {there.url}/, write over 1 {kind} there and delete 1 other {kind}?"
    ]
    assert ("old" in there.names()) == (answer == "n")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("nowhere", "is no directory"), ("a.html", "is no directory"),
        ("empty", "has no file to put"), ("", "is no regular file"),
    ],
)  # fmt: skip
def test_what_cannot_be_put_is_refused_before_anything_is_sent(
    there: There, command: Command, source: Path, bad: str, says: str
) -> None:
    """A wrong path is an error, not an empty table."""
    with pytest.raises(OSError, match="File name too long"):  # it may be one
        put.files_in("x" * 300)
    os.mkfifo(source / "z")
    (source / "empty").mkdir()
    told = command("put", source / bad, there.url, "--mode", "replace", "--yes")
    assert (told.code, says in told.err) == (exits.USAGE, True)
    assert there.names() == there.left() == []


def test_a_file_that_cannot_be_read_is_refused_before_anything_is_sent(
    there: There, command: Command, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `inspect`: a sentence, and the code for what is not allowed."""
    monkeypatch.setattr("os.access", lambda path, _: "d.html" not in path)
    told = command("put", source, there.url, "--yes")
    assert told.code == exits.FORBIDDEN
    assert re.search("site cannot be read: .*Permission denied: '.*/d.html'", told.err)
    assert there.names() == there.left() == []


@pytest.mark.parametrize(
    ("name", "says"), [("", "lie in each other"), ("_temporary/x", "where committers work")]
)
def test_what_a_disk_cannot_take_is_refused_before_a_job_is_started(
    command: Command, source: Path, tmp_path: Path, name: str, says: str
) -> None:
    """A directory that is put into itself; a name that a job's end would delete."""
    table = (tmp_path if name else source) / "t"
    if name:
        (source / name).parent.mkdir()
        (source / name).touch()
    told = command("put", source, table.as_uri(), "--yes")
    assert (told.code, says in told.err) == (exits.USAGE, True)
    assert not table.exists()


@pytest.mark.parametrize("verb", ["create_upload", "put_part", "put"])
def test_a_refusal_half_way_leaves_nothing(
    s3: MemoryStore, command: Command, source: Path, verb: str
) -> None:
    """The third such request is refused: nothing is visible and nothing is open."""
    number = count(1)
    with refusing(s3, lambda r: r.verb == verb and next(number) == 3, PermissionDenied("no")):
        told = command("put", source, DEST, "--yes")
    assert told.code == exits.FORBIDDEN, told
    assert (visible(s3), s3.open_uploads()) == ({}, ())


def test_a_directory_that_changes_after_the_count_is_not_published(
    there: There, command: Command, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked about is what is put, or nothing is."""
    import_module("magic_committer.cli.put")  # loaded late: the count keeps the function itself
    really = put.files_in

    def grown(*args: Any, **more: Any) -> object:
        (source / "new").write_text("x")
        return really(*args, **more)

    monkeypatch.setattr("magic_committer.filesystem.put.files_in", grown)
    told = command("put", source, there.url, "--yes")
    assert told.code == exits.FAILED
    assert "changed while it was put" in told.err
    assert (there.data(), there.left()) == ({}, [])


def test_a_commit_that_is_not_finished_tells_programs(
    s3: MemoryStore, command: Command, source: Path
) -> None:
    """A decided job whose files cannot all be completed: the keys and the remedy, as JSON."""
    with refusing(s3, "complete_upload site/b/d.html", PermissionDenied):
        told = command("put", source, DEST, "--yes", "--json")
    assert told.code == exits.BAD_STATE, told
    document = told.json()
    assert document["type"] == "job.unfinished"
    assert mc.recover(DEST, document["job_id"], dead_after=0).outcome == "committed"
    assert len(visible(s3)) == 3


def test_promote_publishes_what_lies_elsewhere(memory_s3: MemoryStore, command: Command) -> None:
    """The source stays; a prefix that is mistyped is an error."""
    for name in ("staging/a.csv", "staging/_SUCCESS", "t/old.csv"):
        memory_s3.put_object(name, name.encode())
    way = ("promote", "s3://bucket/staging", "s3://bucket/t", "--mode", "replace")
    told = command(*way, "--dry-run").out
    assert "Put 1 file, 13 B into s3://bucket/t/, delete 1 other object\n" in told
    assert command(*way).code == exits.USAGE
    report = command(*way, "--yes", "--json").json()
    assert (report["outcome"], report["left_out"]) == ("committed", ["_SUCCESS"])
    assert visible(memory_s3) == {"t/a.csv": b"staging/a.csv", "staging/a.csv": b"staging/a.csv"}
    wrong = command("promote", "s3://bucket/stag", *way[2:], "--yes")
    assert wrong.code == exits.USAGE
    assert "s3://bucket/stag/ has no object to copy" in wrong.err
