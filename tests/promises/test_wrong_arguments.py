"""Plain mistakes in a call: a TypeError that shows what came and says what to pass.

Nothing is sent, nothing is lost: the right call goes on where the wrong one stood.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, committed_task, job_of, visible

MAGIC = "s3://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/x.csv"
start: Any = mc.start
attach: Any = mc.attach
open_magic: Any = mc.open_magic
ENTRIES: dict[str, Callable[..., Any]] = {
    "start": mc.start,
    "write": mc.write,
    "attach": lambda dest, **more: mc.attach(dest, "1", **more),
    "cleanup": mc.cleanup,
    "inspect": mc.inspect,
    "recover": lambda dest, **more: mc.recover(dest, "1", **more),
}
TAKE_OPTIONS = ("start", "write", "attach", "cleanup")


class CloudPath:
    """As of cloudpathlib: its text is right, its file is somewhere else."""

    def __fspath__(self) -> str:
        return "/tmp/cache/x"

    def __str__(self) -> str:
        return DEST


WRONG: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
    *((path, {}, (f"Pass '{DEST}'", type(path).__name__))
      for path in (Path(DEST), PurePosixPath(DEST), CloudPath())),
    *((dest, {}, (f"not {type(dest).__name__}",)) for dest in (None, 5, b"s3://b/t", ["s3://b/t"])),
    (Path("s3://key:hunter2@bucket/t"), {}, ("Path",)),
    (DEST, {"s3": {"region": "eu", "secret_key": "hunter2"}},
     (r"S3Options\(region=…, secret_key=…\)",)),
    (DEST, {"s3": {}}, ("an empty dict",)),
    (DEST, {"regio": "a"}, ("no argument 'regio'",)),
]  # fmt: skip
"""Destination, further arguments, and what each call says to them."""
WRONG_OPTIONS: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
    (DEST, {"options": {"block_bytes": 1}}, (r"options=magic_committer.Options\(block_bytes=…\)",)),
    (DEST, {"options": mc.S3Options()}, ("belongs into s3=",)),
    (DEST, {"s3": mc.Options()}, ("belongs into options=",)),
]


@pytest.mark.parametrize(
    ("entry", "dest", "more", "told"),
    [
        *((entry, *wrong) for entry in ENTRIES for wrong in WRONG),
        *((entry, *wrong) for entry in TAKE_OPTIONS for wrong in WRONG_OPTIONS),
    ],
)
def test_what_is_no_url_and_no_settings_is_told(
    s3: MemoryStore, entry: str, dest: Any, more: dict[str, Any], told: tuple[str, ...]
) -> None:
    """The hint has the call as it was meant; values, and what is before an "@", are not shown."""
    with pytest.raises(TypeError) as raised:
        ENTRIES[entry](dest, **more)
    for words in told:
        assert re.search(words, str(raised.value))
    assert "hunter2" not in str(raised.value)
    assert not s3.requests


UNCLEAR: list[tuple[Any, str]] = [
    ("10", r"expect=\['10'\].*expect=10"),
    (b"1", r"expect=\['1'\]"),
    (True, "expect=True"),
    (1.5, "float: 1.5"),
    ([None], "NoneType: None"),
    ([True], "bool: True"),
    (-1, "expect=-1"),
]


@pytest.mark.parametrize(("expect", "told"), UNCLEAR)
def test_an_unclear_expectation_is_refused(s3: MemoryStore, expect: Any, told: str) -> None:
    """I10: it is an error with the ways to say it; the commit can be made again."""
    job = job_of({"a.csv": b"1"})
    s3.requests.clear()
    with pytest.raises((TypeError, mc.OptionError), match=told):
        job.commit(expect=expect)
    assert not s3.requests
    with pytest.raises(mc.MagicError, match="has no report yet"):
        job.report  # noqa: B018
    assert job.commit(expect=1).files == 1


@pytest.mark.parametrize("expect", [[1], (1,), {"1"}, range(1, 2), ["1", 1], 1])
def test_an_expectation_that_is_clear_is_taken(s3: MemoryStore, expect: Any) -> None:
    """``expect=[1]`` names the task that ``job.task(1)`` made."""
    assert job_of({"a.csv": b"1"}).commit(expect=expect).files == 1


def test_what_is_no_list_of_results_is_told(s3: MemoryStore) -> None:
    """The message has its type; results are taken as they travelled: dicts, by a generator."""
    job = mc.start(DEST)
    results = [committed_task(job, str(n), {f"{n}.csv": b"1"}) for n in range(2)]
    cases: list[tuple[Any, str]] = [
        (results[0], r"not one TaskCommit.*\[result\]"),
        *((wrong, f"not {type(wrong).__name__}") for wrong in ("1", b"1", {"task": "1"}, 1)),
        ([results[0], job.task("2")], r"TaskCommits, not .*task\.result"),
        ([results[0], None], r"TaskCommits, not .*task\.result"),
    ]
    for wrong, told in cases:
        with pytest.raises(TypeError, match=told):
            job.commit(wrong)
    travelled = [result.to_dict() for result in results]
    with pytest.raises(mc.FormatError, match="job_uuid"):
        job.commit([{key: value for key, value in travelled[0].items() if key != "job_uuid"}])
    assert job.commit(one for one in travelled).files == 2


@pytest.mark.parametrize(
    ("call", "told"),
    [
        *((lambda task=task: start(DEST).task(task), type(task).__name__)
          for task in (None, True, 1.0, b"1")),
        (lambda: start(DEST, job_id=1), "job_id='1'"),
        (lambda: attach(DEST, 1), "job_id='1'"),
        (lambda: start(DEST).task("1", attempt=1), "attempt='1'"),
        (lambda: start(DEST, mode=None), "mode is text"),
        (lambda: open_magic(MAGIC, attributes={"content_type": "x"}),
         r"Attributes\(content_type=…\)"),
    ],
)  # fmt: skip
def test_what_is_no_id_is_told(s3: MemoryStore, call: Callable[[], object], told: str) -> None:
    """``job.task(None)`` is no task called "None"; of a number the hint has the text."""
    with pytest.raises(TypeError, match=told):
        call()


def test_bytes_into_text_and_text_into_bytes_lose_nothing(s3: MemoryStore) -> None:
    """The message names file and mode, not the content; what is written before and after stays."""
    with mc.write(DEST) as job:
        make: Any = job.open
        for arguments, told in (
            ((b"a.txt",), "text or a Path, not bytes"),
            (("a.txt", None), "Pass 'wb' or 'w'"),
        ):
            with pytest.raises(TypeError, match=told):
                make(*arguments)
        with pytest.raises(TypeError, match=r"Attributes\(content_type=…\)"):
            make("a.txt", attributes={"content_type": "x"})
        for mode, right, wrong, told, lines in (
            ("w", "a", (b"secret", bytearray(b"secret"), 5, None),
             r"t/a\.txt is a file of text.*'wb'", "takes no bytes"),
            ("wb", b"a", ("secret", 5, None, ["a"]),
             r"t/b\.bin is a file of bytes", r"takes no str.*'w'"),
        ):  # fmt: skip
            with make("a.txt" if mode == "w" else "b.bin", mode) as file:
                file.write(right)
                for value in wrong:
                    with pytest.raises(TypeError, match=told) as raised:
                        file.write(value)
                    assert "secret" not in str(raised.value)
                with pytest.raises(TypeError, match=lines):
                    file.writelines([wrong[0]])
                file.write(right)
    assert visible(s3) == {"t/a.txt": b"aa", "t/b.bin": b"aa"}


WORDS = {
    **{word: word for word in ("append", "fail_partitions", "replace", "replace_partitions")},
    **dict.fromkeys(("fail", "error", "errorifexists", "errorIfExists"), "fail"),
    "overwrite": "replace",
    "overwrite_partitions": "replace_partitions",
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("case", [str, str.upper, str.title])
def test_both_vocabularies_are_understood_in_any_case(
    s3: MemoryStore, word: str, case: Callable[[str], str]
) -> None:
    """The record holds the library's word, whichever was said."""
    assert start(DEST, mode=case(word)).commit(expect=0).mode == WORDS[word]


NO_MODES = {
    "overwrit": "Did you mean 'overwrite'",
    "Replac": "Did you mean 'replace'",
    "apend": "Did you mean 'append'",
    "IGNORE": r"mode='error'.*DestinationExists",
}


@pytest.mark.parametrize("begin", [mc.start, mc.write])
@pytest.mark.parametrize("word", NO_MODES)
def test_a_mode_that_is_none_is_told_the_nearest(s3: MemoryStore, begin: Any, word: str) -> None:
    """A misspelt word costs no request; "ignore" is Spark's: no job skips what comes next."""
    with pytest.raises(mc.OptionError, match=NO_MODES[word]):
        begin(DEST, mode=word)
    assert not s3.requests


@pytest.mark.parametrize(
    ("word", "replace"),
    [("fail", "replace"), ("error", "overwrite"), ("ErrorIfExists", "overwrite")],
)
@pytest.mark.parametrize("late", [False, True])
def test_hints_are_in_the_callers_words(
    s3: MemoryStore, word: Any, replace: str, late: bool
) -> None:
    """Data is in the way, at the start or at a copy's commit: the words are never the others'."""
    job = mc.start(DEST, mode=word) if late else None
    s3.put_object("t/a.csv", b"theirs")
    with pytest.raises(mc.DestinationExists) as raised:
        mc.Job.from_dict(job.to_dict()).commit(expect=0) if job else mc.start(DEST, mode=word)
    assert f"mode {word!r}" in str(raised.value)
    assert f"'append' or {replace!r}" in raised.value.hint


def test_where_the_store_is_may_be_said_without_s3options(s3: MemoryStore) -> None:
    """``endpoint_url``, ``region`` and ``profile`` in place of ``s3``; both cost no request."""
    job = mc.start(DEST, job_id="1", endpoint_url="http://h:1", region="a", profile="p")
    assert job._s3 == mc.S3Options(endpoint_url="http://h:1", region="a", profile="p")
    assert mc.attach(DEST, "1", region="b")._s3.region == "b"
    assert mc.inspect(DEST, region="a")[0].id == "1"
    s3.requests.clear()
    for call in ENTRIES.values():
        with pytest.raises(mc.OptionError, match="s3= and region="):
            call(DEST, region="a", s3=mc.S3Options())
    assert not s3.requests


def test_one_call_writes_a_file(s3: MemoryStore) -> None:
    """``write_bytes`` and ``write_text``, with a `Path` for a name, in a block and in a task."""
    with mc.write(DEST) as job:
        assert job.write_bytes(Path("dt=1/a.bin"), b"12") == 2
        with job.open(Path("dt=1/b.csv"), "w") as file:
            file.write("1")
        job.discard(Path("dt=1/b.csv"))
    started = mc.start(DEST)
    with started.task(1) as task:
        assert task.write_text("c.txt", "ä\n", encoding="utf-16", newline="\r\n") == 2
    started.commit([task.result])
    assert visible(s3).keys() == {"t/dt=1/a.bin", "t/c.txt"}
    assert visible(s3)["t/c.txt"].decode("utf-16") == "ä\r\n"


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-32", "UTF16", "utf-16-le", "utf-8-sig", "utf-8"]
)
def test_text_has_the_mark_of_its_encoding(s3: MemoryStore, encoding: str, tmp_path: Path) -> None:
    """Once, as Python's own ``open`` writes it; an empty file has none."""
    with mc.write(DEST) as job:
        for name, texts in (("a", ["1", "2\n"]), ("empty", [])):
            with (
                job.open(name, "w", encoding=encoding) as file,
                open(tmp_path / name, "w", encoding=encoding) as plain,
            ):
                for text in texts:
                    assert file.write(text) == plain.write(text)
    for name in ("a", "empty"):
        assert visible(s3)[f"t/{name}"] == (tmp_path / name).read_bytes()
