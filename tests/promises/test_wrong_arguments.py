"""Plain mistakes in a call: a TypeError that shows what came and says what to pass.

Nothing is sent, nothing is lost: the right call goes on where the wrong one stood.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.options import Mode
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, committed_task, job_of, visible

MAGIC = "s3://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/x.csv"
ENTRIES: dict[str, Callable[..., Any]] = {
    "start": mc.start,
    "write": mc.write,
    "attach": lambda dest, **more: mc.attach(dest, "1", **more),
    "inspect": mc.inspect,
    "recover": lambda dest, **more: mc.recover(dest, "1", **more),
    "cleanup": mc.cleanup,
}


class CloudPath:
    """As of cloudpathlib: its text is right, its file is somewhere else."""

    def __fspath__(self) -> str:
        return "/tmp/cache/x"

    def __str__(self) -> str:
        return DEST


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("path", [Path(DEST), PurePosixPath(DEST), CloudPath()])
def test_a_path_for_a_destination_is_told_the_text_to_pass(
    s3: MemoryStore, entry: str, path: Any
) -> None:
    """A `Path` makes ``s3:/`` of ``s3://``: the hint has the URL as it was meant."""
    with pytest.raises(TypeError, match=f"Pass '{DEST}'") as raised:
        ENTRIES[entry](path)
    assert type(path).__name__ in str(raised.value)
    assert not s3.requests


@pytest.mark.parametrize("dest", [None, 5, b"s3://bucket/t", ["s3://bucket/t"]])
def test_a_destination_of_another_type_is_told(s3: MemoryStore, dest: Any) -> None:
    """It is a TypeError that names the type."""
    with pytest.raises(TypeError, match=f"not {type(dest).__name__}"):
        mc.start(dest)


def test_a_path_with_credentials_is_not_shown(s3: MemoryStore) -> None:
    """What stands before an "@" may be a secret."""
    with pytest.raises(TypeError) as raised:
        mc.start(Path("s3://key:hunter2@bucket/t"))  # type: ignore[arg-type]
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_dict_for_s3_is_told_without_its_values(s3: MemoryStore, entry: str) -> None:
    """The hint is the call with the same names; the values, which may be secrets, are not shown."""
    with pytest.raises(TypeError, match=r"S3Options\(region=…, secret_key=…\)") as raised:
        ENTRIES[entry](DEST, s3={"region": "eu", "secret_key": "hunter2"})
    assert "hunter2" not in str(raised.value)
    with pytest.raises(TypeError, match="an empty dict"):
        ENTRIES[entry](DEST, s3={})
    assert not s3.requests


@pytest.mark.parametrize("entry", ["start", "write", "attach", "cleanup"])
def test_a_dict_for_options_is_told(s3: MemoryStore, entry: str) -> None:
    """And options in the other's place are told where they belong."""
    with pytest.raises(TypeError, match=r"options=magic_committer.Options\(block_bytes=…\)"):
        ENTRIES[entry](DEST, options={"block_bytes": 1})
    with pytest.raises(TypeError, match="belongs into s3="):
        ENTRIES[entry](DEST, options=mc.S3Options())
    with pytest.raises(TypeError, match="belongs into options="):
        ENTRIES[entry](DEST, s3=mc.Options())
    assert not s3.requests


@pytest.mark.parametrize(
    ("expect", "told"),
    [
        ("10", r"expect=\['10'\].*expect=10"),
        ("seven", r"expect=\['seven'\]"),
        (b"1", r"expect=\['1'\]"),
        (True, "expect=True"),
        (1.5, "float: 1.5"),
        ([None], "NoneType: None"),
        ([True], "bool: True"),
    ],
)
def test_an_expectation_that_is_not_clear_is_refused(
    s3: MemoryStore, expect: Any, told: str
) -> None:
    """I10: it is a TypeError with the ways to say it; the commit can be made again."""
    job = job_of({"a.csv": b"1"})
    s3.requests.clear()
    with pytest.raises(TypeError, match=told):
        job.commit(expect=expect)
    assert not s3.requests
    with pytest.raises(mc.MagicError, match="has no report yet"):
        job.report  # noqa: B018
    assert job.commit(expect=1).files == 1


@pytest.mark.parametrize("expect", [[1], (1,), {"1"}, range(1, 2), ["1", 1], 1])
def test_an_expectation_that_is_clear_is_taken(s3: MemoryStore, expect: Any) -> None:
    """``expect=[1]`` names the task that ``job.task(1)`` made."""
    job = mc.start(DEST)
    with job.task(1) as task, task.open("a.csv", "w") as file:
        file.write("1")
    assert job.commit([task.result], expect=expect).files == 1


def test_a_negative_number_of_tasks_is_refused(s3: MemoryStore) -> None:
    """There is no job that it could be right for."""
    with pytest.raises(mc.OptionError, match="expect=-1"):
        mc.start(DEST).commit(expect=-1)


def test_what_is_no_list_of_results_is_told(s3: MemoryStore) -> None:
    """One result (a loop over them would publish the first and lose the others), something else, a
    list with a task in it: the message has its type, and the right call publishes all."""
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
    assert job.commit(results).files == 2


def test_a_result_is_taken_as_it_travelled(s3: MemoryStore) -> None:
    """As a dict, also by a generator; one that is damaged is refused."""
    job = mc.start(DEST)
    result = committed_task(job, "1", {"a.csv": b"1"}).to_dict()
    with pytest.raises(mc.FormatError, match="job_uuid"):
        job.commit([{key: value for key, value in result.items() if key != "job_uuid"}])
    assert job.commit(one for one in [result]).files == 1


@pytest.mark.parametrize("task", [None, True, 1.0, b"1"])
def test_a_task_of_no_id_is_refused(s3: MemoryStore, task: Any) -> None:
    """``job.task(None)`` is no task called "None"."""
    with pytest.raises(TypeError, match=type(task).__name__):
        mc.start(DEST).task(task)


def test_a_job_id_or_attempt_that_is_a_number_is_told_the_text(s3: MemoryStore) -> None:
    """The hint has it as text."""
    with pytest.raises(TypeError, match="job_id='1'"):
        mc.start(DEST, job_id=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="job_id='1'"):
        mc.attach(DEST, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="attempt='1'"):
        mc.start(DEST).task("1", attempt=1)  # type: ignore[arg-type]


def test_bytes_into_text_and_text_into_bytes_lose_nothing(s3: MemoryStore) -> None:
    """The message names file and mode, not the content; what is written before and after stays."""
    with mc.write(DEST) as job:
        with job.open("a.txt", "w") as text:
            text.write("a")
            for wrong in (b"secret", bytearray(b"secret"), 5, None):
                with pytest.raises(TypeError, match=r"t/a\.txt is a file of text.*'wb'") as raised:
                    text.write(wrong)  # type: ignore[arg-type]
                assert "secret" not in str(raised.value)
            with pytest.raises(TypeError, match="takes no bytes"):
                text.writelines([b"secret"])  # type: ignore[list-item]
            text.write("b")
        with job.open("b.bin") as binary:
            binary.write(b"a")
            for value in ("secret", 5, None, ["a"]):
                with pytest.raises(TypeError, match=r"t/b\.bin is a file of bytes") as raised:
                    binary.write(value)  # type: ignore[arg-type]
                assert "secret" not in str(raised.value)
            with pytest.raises(TypeError, match=r"takes no str.*'w'"):
                binary.writelines(["secret"])  # type: ignore[list-item]
            binary.write(b"b")
    assert visible(s3) == {"t/a.txt": b"ab", "t/b.bin": b"ab"}


def test_a_file_opened_wrongly_is_told_and_the_attempt_goes_on(s3: MemoryStore) -> None:
    """Bytes for a name, a dict for attributes, no mode: each says what to pass."""
    with mc.write(DEST) as job:
        with pytest.raises(TypeError, match="text or a Path, not bytes"):
            job.open(b"a.csv")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=r"Attributes\(content_type=…\)"):
            job.open("a.csv", attributes={"content_type": "x"})  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="Pass 'wb' or 'w'"):
            job.open("a.csv", None)  # type: ignore[call-overload]
        with job.open("a.csv", "w") as file:
            file.write("1")
    assert visible(s3) == {"t/a.csv": b"1"}
    with pytest.raises(TypeError, match=r"Attributes\(content_type=…\)"):
        mc.open_magic(MAGIC, attributes={"content_type": "x"})  # type: ignore[call-overload]


WORDS: dict[str, Mode] = {
    "append": "append",
    "fail": "fail",
    "fail_partitions": "fail_partitions",
    "replace": "replace",
    "replace_partitions": "replace_partitions",
    "error": "fail",
    "errorifexists": "fail",
    "errorIfExists": "fail",
    "overwrite": "replace",
    "overwrite_partitions": "replace_partitions",
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("case", [str, str.upper, str.title])
def test_both_vocabularies_are_understood_in_any_case(
    s3: MemoryStore, word: str, case: Callable[[str], str]
) -> None:
    """The record holds the library's word, whichever was said."""
    job = mc.start(DEST, mode=case(word))  # type: ignore[arg-type]
    assert job.commit(expect=0).mode == WORDS[word]


@pytest.mark.parametrize(
    ("word", "nearest"), [("overwrit", "overwrite"), ("Replac", "replace"), ("apend", "append")]
)
def test_a_mode_that_is_none_is_told_the_nearest(s3: MemoryStore, word: str, nearest: str) -> None:
    """A misspelt word costs no request."""
    for begin in (mc.start, mc.write):
        with pytest.raises(mc.OptionError, match=f"Did you mean '{nearest}'"):
            begin(DEST, mode=word)  # type: ignore[arg-type]
    assert not s3.requests


@pytest.mark.parametrize("word", ["ignore", "IGNORE"])
def test_ignore_is_for_spark_and_the_error_says_what_to_do(s3: MemoryStore, word: Any) -> None:
    """A job that is started cannot skip what its caller does next."""
    with pytest.raises(mc.OptionError, match=r"mode='error'.*DestinationExists"):
        mc.start(DEST, mode=word)
    with pytest.raises(TypeError, match="mode is text"):
        mc.start(DEST, mode=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "replace"),
    [("fail", "replace"), ("error", "overwrite"), ("ErrorIfExists", "overwrite")],
)
@pytest.mark.parametrize("late", [False, True])
def test_hints_speak_in_the_callers_words(
    s3: MemoryStore, word: Any, replace: str, late: bool
) -> None:
    """Data is in the way, at the start or at a copy's commit: the words are never the others'."""
    job = mc.start(DEST, mode=word) if late else None
    s3.put_object("t/a.csv", b"theirs")
    with pytest.raises(mc.DestinationExists) as raised:
        if job is not None:
            mc.Job.from_dict(job.to_dict()).commit(expect=0)
        else:
            mc.start(DEST, mode=word)
    assert f"mode {word!r}" in str(raised.value)
    assert f"'append' or {replace!r}" in raised.value.hint


def test_where_the_store_is_may_be_said_without_s3options(s3: MemoryStore) -> None:
    """``endpoint_url``, ``region`` and ``profile`` in place of ``s3``; others cost no request."""
    job = mc.start(DEST, job_id="1", endpoint_url="http://h:1", region="a", profile="p")
    assert job._s3 == mc.S3Options(endpoint_url="http://h:1", region="a", profile="p")
    assert mc.attach(DEST, "1", region="b")._s3.region == "b"
    assert mc.inspect(DEST, region="a")[0].id == "1"
    s3.requests.clear()
    for call in ENTRIES.values():
        with pytest.raises(TypeError, match="no argument 'regio'"):
            call(DEST, regio="a")
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
def test_text_has_the_mark_that_its_encoding_has(
    s3: MemoryStore, encoding: str, tmp_path: Path
) -> None:
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
