"""The jobs of `with write(...)` and `with start(...)`: the block ends them, nobody else."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import logging
import lzma
import pickle
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.api import OneFile
from magic_committer.errors import NotSupported, Unanswered
from magic_committer.job import give_up
from magic_committer.options import ConditionalWrites
from magic_committer.stores.memory import MemoryStore
from tests.destinations import There
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    control,
    dies_at,
    raises,
    raising,
    refusing,
    remains,
    until,
    visible,
    write,
)


def test_it_takes_no_task(s3: MemoryStore) -> None:
    """`write` would not commit it. What became of the job stays readable, and travels."""
    with mc.write(DEST) as writing:
        write(writing)
        job = writing.job
        assert mc.WrongProcess.advice in str(raises(mc.TaskFailed, job.task, "1"))
        assert (job.id, len(job.uuid), job.dest) == (writing.id, 32, f"{DEST}/")
        assert job.state == "running"
    assert visible(s3) == {"t/a.csv": b"1"}
    assert job.report is writing.report
    assert job.state == "absent"
    assert pickle.loads(pickle.dumps(job)).outcome == "committed"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_second_interruption_names_the_call_to_end_it(s3: MemoryStore, number: int) -> None:
    """Ctrl-C while `write` aborts leaves a note with the call that ends the job."""
    here = threading.current_thread()
    with pytest.raises(KeyboardInterrupt) as caught, mc.write(DEST) as writing:
        write(writing)
        At(s3, lambda _: threading.current_thread() is here, KeyboardInterrupt(), nth=number)
        raise ZeroDivisionError
    s3.before = None
    call = f"magic_committer.abort({writing.job.dest!r}, {writing.id!r})"
    assert any(call in note for note in caught.value.__notes__)
    if any(key.endswith("_job.json") for key in control(s3)):
        eval(call, {"magic_committer": mc})
    assert visible(s3) == {}


def test_what_somebody_else_aborts_is_left_to_them(s3: MemoryStore) -> None:
    """`give_up` sends nothing for a job that it knows to be aborted already."""
    job = mc.start(DEST)
    dies_at(s3, "list_uploads", lambda: mc.abort(DEST, job.id))
    seen = mc.attach(DEST, job.id)
    assert (seen.outcome, seen.state) == ("aborted", "aborting")
    s3.before = raising("*", AssertionError("a request is sent"))
    give_up(seen, ValueError("a worker failed"))


URL = "s3://bucket/t/a.csv"


@pytest.mark.parametrize(
    ("suffix", "read"),
    [
        ("", bytes),
        ("%20", bytes),
        (".gz", gzip.decompress),
        (".bz2", bz2.decompress),
        (".XZ", lzma.decompress),
    ],
)
def test_one_file_appears_at_its_close_compressed_by_its_suffix(
    s3: MemoryStore, suffix: str, read: Callable[[bytes], bytes]
) -> None:
    """Nothing is visible before, and nothing but the file after."""
    with mc.open(URL + suffix, "w", newline="") as file:
        file.write("1\n" * 1000)
        assert visible(s3) == {}
    assert read(visible(s3)[f"t/a.csv{suffix}"]) == b"1\n" * 1000
    assert len(s3.keys()) == 1
    assert not s3.open_uploads()


def test_compression_is_as_it_is_said(s3: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suffix counts with "infer" only. A missing compression is an error."""
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    raises(mc.OptionError, mc.open, f"{URL}.zst", "w", match=r"pip install backports\.zstd")
    assert not s3.requests
    for name, compression in (("a", "gzip"), ("b", ".gz"), ("c.gz", None), ("d.gz", "disable")):
        with mc.open(f"{DEST}/{name}", "wb", compression=compression) as file:
            file.write(b"1")
    seen = visible(s3)
    assert gzip.decompress(seen["t/a"]) == gzip.decompress(seen["t/b"]) == b"1"
    assert seen["t/c.gz"] == seen["t/d.gz"] == b"1"
    raises(mc.OptionError, mc.open, URL, "wb", compression="lz4", match="'lz4' is none of")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_one_file_says_how_much_was_written(s3: MemoryStore, suffix: str) -> None:
    """`tarfile` asks. Before compression, as every compressing file of Python says."""
    with mc.open(f"{URL}{suffix}", "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a"))
        tar.addfile(tarfile.TarInfo("b"))
        assert file.tell() == 2 * tarfile.BLOCKSIZE
    [stored] = visible(s3).values()
    with tarfile.open(fileobj=io.BytesIO(stored)) as tar:
        assert tar.getnames() == ["a", "b"]


def _raises(wrap: Callable[[Any], Any]) -> None:
    with wrap(mc.open(URL, "wb")) as file:
        file.write(b"half of it")
        raise KeyError


def _closes_finally(wrap: Callable[[Any], Any]) -> None:
    file = wrap(mc.open(URL, "wb"))
    try:
        file.write(b"half of it")
        raise KeyError
    finally:
        file.close()


@pytest.mark.parametrize("fails", [_raises, _closes_finally])
@pytest.mark.parametrize("wrap", [lambda file: file, io.BufferedWriter], ids=["itself", "wrapper"])
def test_one_file_is_not_published_by_an_exception(
    s3: MemoryStore, fails: Callable[[Any], None], wrap: Callable[[Any], Any]
) -> None:
    """Nor by a wrapper or a ``finally``; in the handler of an older exception it is."""
    try:
        raise KeyError
    except KeyError:
        with mc.open(URL, "wb") as file:
            file.write(b"old")
    raises(KeyError, fails, wrap)
    assert s3.keys() == ("t/a.csv",)
    assert remains(s3)[:2] == ({"t/a.csv": b"old"}, [])


def test_a_with_that_ends_well_publishes_also_in_a_handler(s3: MemoryStore) -> None:
    """A generator and an `ExitStack` may end it while an exception is handled that is another's."""

    def sink(name: str, mode: Any, line: Any) -> Iterator[None]:
        with mc.open(f"{DEST}/{name}", mode) as file:
            file.write(line)
            yield

    sinks = [sink("a", "w", "1"), sink("b", "wb", b"2")]
    for one in sinks:
        next(one)
    try:
        raise KeyError
    except KeyError:
        assert [next(one, None) for one in sinks] == [None, None]
    assert visible(s3) == {"t/a": b"1", "t/b": b"2"}


def _in_a_block() -> Iterator[None]:
    with mc.write(DEST) as job:
        write(job)
        yield


def _one_file(wrap: Callable[[Any], Any] = lambda file: file) -> Any:
    file = wrap(mc.open(URL, "wb"))
    file.write(b"1")
    return file


def _wrapped() -> Any:
    return _one_file(io.BufferedWriter)


def _text_in_a_wrapper() -> Any:
    text = io.TextIOWrapper(io.BufferedWriter(mc.open(URL, "wb")))
    text.write("1")
    return text


@pytest.mark.parametrize("cycle", [False, True])
@pytest.mark.parametrize("make", [_one_file, _wrapped, _text_in_a_wrapper, _in_a_block])
@pytest.mark.filterwarnings("ignore:.*was dropped:ResourceWarning")
def test_what_is_dropped_is_given_up(s3: MemoryStore, make: Callable[[], Any], cycle: bool) -> None:
    """Its job is aborted, and the record goes; also where only the collector finds it. A wrapper
    that is dropped does not end a file that its caller has."""
    with mc.open(f"{DEST}/kept.csv", "wb") as file:
        io.TextIOWrapper(file).write("1")
        file.write(b"2")
    assert visible(s3) == {"t/kept.csv": b"12"}
    s3.delete_object("t/kept.csv")
    held: list[Any] = [make()]
    if make is _in_a_block:
        next(held[0])
    if cycle:
        held.append(held)
    assert control(s3) != []
    del held
    gc.collect()
    until(lambda: remains(s3) == ({}, [], []))


@pytest.mark.parametrize("line", range(1, 11))
@pytest.mark.filterwarnings("ignore:.*was dropped:ResourceWarning")
def test_an_interruption_while_one_file_is_opened_leaves_nothing(
    s3: MemoryStore, line: int
) -> None:
    """Whichever line of its own it hits."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code is not OneFile.__init__.__code__:
            return None
        lines += event == "line"
        if lines == line:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        raises(KeyboardInterrupt, mc.open, URL, "wb")
    finally:
        sys.settrace(before)
    gc.collect()
    until(lambda: remains(s3) == ({}, [], []))


@pytest.mark.parametrize("mode", ["r", "rb", "a", "x", "r+"])
def test_modes_that_do_not_write_a_new_file_name_who_has_them(s3: MemoryStore, mode: str) -> None:
    """And a call without a mode overwrites nothing."""
    with pytest.raises(ValueError, match=r"smart_open\.open\('s3://bucket/t/a\.csv'\) or s3fs"):
        mc.open(URL, mode)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="mode"):
        mc.open(URL)  # type: ignore[call-overload]
    assert not s3.requests


def test_a_close_that_fails_never_counts_as_published(s3: MemoryStore) -> None:
    """Each further ``close`` raises the same."""
    file = mc.open(URL, "wb")
    file.write(b"1")
    denied = mc.PermissionDenied("you may not", code="AccessDenied", status=403)
    with refusing(s3, "*", denied):
        for _ in range(2):
            raises(mc.UploadFailed, file.close, match="you may not")
    assert visible(s3) == {}


def test_one_file_replaces_what_is_there_at_its_close(there: There) -> None:
    """On each kind of destination; a reader finds the old file until then, in one piece."""
    there.put("a.txt", b"old")
    with mc.open(f"{there.url}/a.txt", "w", encoding="latin-1") as file:
        file.write("ä")
        assert there.read("a.txt") == b"old"
    assert there.data() == {"a.txt": b"\xe4"}
    assert not there.left()


def test_one_file_on_a_disk_has_the_name_that_its_url_encodes(tmp_path: Path) -> None:
    """As `pathlib.Path.as_uri` writes it; what a URL ends at is refused."""
    path = tmp_path / "my dir" / "a #%2F?.txt"
    with mc.open(path.as_uri(), "w") as file:
        file.write("1")
    assert path.read_text() == "1"
    raises(mc.PathError, mc.open, f"{tmp_path.as_uri()}/a?b", "w", match="percent-encoded")


def test_a_cut_write_publishes_no_file(s3: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may leave bytes in the compressor that the file does not have."""

    def cut(data: object) -> None:
        raise KeyboardInterrupt

    file = mc.open(f"{URL}.gz", "wb")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(file._file, "write", cut)  # type: ignore[attr-defined]
        file.write(b"1")
    for call in (lambda: file.write(b"2"), file.close, file.close):
        raises(mc.UploadFailed, call, match="what it has interrupted")
    assert s3.keys() == ()


def cut(file: Any, size: int) -> None:
    """An exception ends a file's block, and a wrapper inside it has closed the file."""
    with suppress(KeyError), file, io.TextIOWrapper(file) as text:
        text.write("x" * size)
        raise KeyError


@pytest.mark.parametrize("size", [1, 9_000_000])
@pytest.mark.parametrize("call", ["open", "local_file", "filesystem"])
def test_a_file_that_its_wrapper_closed_is_given_up_all_the_same(
    there: There, call: str, size: int
) -> None:
    """It may be cut short. The block goes on without it, and its file systems do not show it."""

    def opened(name: str, unique: bool) -> Any:
        if call == "filesystem":
            return job.filesystem(unique=unique).open(name, "wb")
        return getattr(job, call)(name, unique=unique)

    with there.write() as job:
        write(job, "good")
        for unique in (True, False):
            cut(opened("cut", unique), size)
            assert job.filesystem().ls("", detail=False) == ["good"]
    assert there.data() == {"good": b"1"}
    assert there.left() == []


@pytest.mark.parametrize("size", [1, 9_000_000])
def test_another_file_that_has_its_name_by_now_is_not_given_up(there: There, size: int) -> None:
    """Nor is it asked for twice, where two blocks of one file end."""
    with there.write() as job:
        with suppress(KeyError), job.open("x") as file:
            file.write(b"1" * size)
            file.close()
            job.discard("x")
            write(job, "x", b"2" * size)
            raise KeyError
        with suppress(KeyError), job.open("y") as file, file:
            cut(file, size)
            write(job, "y", b"3" * size)
            raise KeyError
    assert there.data() == {"x": b"2" * size, "y": b"3" * size}


@pytest.mark.parametrize(
    "terms", [{"track": "s3"}, {"track": "memory"}, {"committer": "directory"}]
)
def test_it_is_given_up_by_each_kind_of_task(s3: MemoryStore, terms: dict[str, Any]) -> None:
    """What was stored for other processes goes, and so does what waits on local disk."""
    job = mc.start(DEST, **terms)
    with job.task("1") as task:
        write(task, "good")
        cut(task.open("cut"), 1)
    assert job.commit([task.result]).files == 1
    assert remains(s3)[:2] == ({"t/good": b"1"}, [])


@pytest.mark.parametrize("committer", ["magic", "directory"])
def test_where_it_cannot_be_taken_out_its_attempt_cannot_commit(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch, committer: str
) -> None:
    """A note on the exception says so."""
    job = mc.start(DEST, committer=committer)
    task = job.task("1")
    file = task.open("cut")

    def refuse(*_: object, **__: object) -> None:
        raise mc.PermissionDenied("you may not", status=403)

    with monkeypatch.context() as patch, pytest.raises(KeyError) as raised, file:
        file.write(b"1")
        file.close()
        patch.setattr(Path, "unlink", refuse)
        s3.before = raising("delete", mc.PermissionDenied)
        raise KeyError
    s3.before = None
    assert "could not be aborted" in raised.value.__notes__[0]
    raises((mc.TaskFailed, pickle.PicklingError), pickle.dumps, task)
    raises(mc.TaskFailed, task.commit, match="an exception has cut 'cut'")
    job.abort()
    assert remains(s3) == ({}, [], [])


@pytest.mark.parametrize("conditions", ["on", "off"])
def test_where_others_may_commit_it_nobody_can_any_more(
    s3: MemoryStore, conditions: ConditionalWrites
) -> None:
    """A file by path, which is stored at its close. Without conditions they commit without it."""
    job = mc.start(DEST, job_id="1", options=mc.Options(conditional_writes=conditions))
    cut(mc.open_magic(f"{DEST}/__magic_job-1/job-1/00/tasks/a/__base/cut"), 1)
    assert s3.open_uploads() == ()
    attempt = mc.attach(DEST, "1").task("a", attempt="a")
    if conditions == "on":
        raises(mc.TaskFailed, attempt.commit, match="aborted")
    else:
        assert attempt.commit().files == 0
    job.commit(expect=int(conditions == "off"))
    assert visible(s3) == {}


A = {"a.csv": b"1"}
SEEN = {"t/a.csv": b"1"}


@pytest.mark.parametrize("error", [None, ValueError("later")])
def test_a_block_that_commits_is_left_alone(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    """I2: also by an exception, which gets no note; nothing is sent, and nothing is warned of."""
    with caplog.at_level(logging.WARNING), suppress(ValueError), mc.start(DEST) as job:
        report = job.commit([committed_task(job, "1", A)])
        s3.requests.clear()
        if error is not None:
            raise error
    assert (job.report, s3.requests.total(), visible(s3)) == (report, 0, SEEN)
    assert (caplog.text, hasattr(error, "__notes__")) == ("", False)


@pytest.mark.parametrize("on_purpose", [False, True])
def test_a_block_without_a_commit_aborts(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture, on_purpose: bool
) -> None:
    """I3: nothing stays open, nothing is raised, and the log warns, unless it was on purpose."""
    with caplog.at_level(logging.WARNING), mc.start(DEST) as job:
        committed_task(job, "1", A)
        if on_purpose:
            job.abort()
    assert (job.outcome, visible(s3), control(s3), s3.open_uploads()) == ("aborted", {}, [], ())
    assert ("left without a commit" in caplog.text) is not on_purpose
    assert on_purpose is not bool(caplog.text)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_aborts_and_goes_on(s3: MemoryStore, error: type[BaseException]) -> None:
    """I3: the caller gets the exception, the job is aborted, its report says why."""
    with pytest.raises(error) as raised, mc.start(DEST) as job:
        committed_task(job, "1", A)
        raise error("boom")
    assert (job.outcome, visible(s3), s3.open_uploads()) == ("aborted", {}, ())
    assert job.report.error == f"{error.__name__}: boom"
    assert len(getattr(raised.value, "__notes__", [])) == (0 if error is ValueError else 1)


NO_COMPLETES = raising("complete_upload", Unanswered("no answer"))
SILENT = raising(lambda _: True, Unanswered("no answer"))


@pytest.mark.parametrize("caught", [False, True])
def test_a_commit_that_is_incomplete_is_never_aborted(
    s3: MemoryStore, caught: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: after `CommitIncomplete` no abort is tried, whether the block sees the error or not."""
    aborts: list[mc.Job] = []
    monkeypatch.setattr(mc.Job, "abort", aborts.append)
    with suppress(mc.CommitIncomplete), mc.start(DEST) as job:
        result = committed_task(job, "1", A)
        s3.before = NO_COMPLETES
        raised = raises(mc.CommitIncomplete, job.commit, [result])
        if not caught:
            raise raised
    assert (job.outcome, aborts) == ("committed", [])
    s3.before = None
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert visible(s3) == SEEN


def test_the_incomplete_commit_of_another_job_aborts_this_one(s3: MemoryStore) -> None:
    """I3: the exception of a job inside the block says nothing of the block's own."""
    with pytest.raises(mc.CommitIncomplete), mc.start(DEST) as job:
        other = mc.start(DEST)
        result = committed_task(other, "1", A)
        s3.before = NO_COMPLETES
        other.commit([result])
    assert (job.outcome, mc.attach(DEST, other.id).outcome) == ("aborted", "committed")


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("outcome", ["committed", "aborted"])
def test_a_job_that_another_process_ended_stays_so(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture, outcome: str, raises: bool
) -> None:
    """I2, I5, I10: nothing is raised or warned of; an exception gets a note if it is committed."""
    boom = ValueError("boom")
    with caplog.at_level(logging.WARNING), suppress(ValueError), mc.start(DEST, job_id="1") as job:
        committed_task(job, "1", A)
        mc.attach(DEST, "1").commit() if outcome == "committed" else mc.abort(DEST, "1")
        if raises:
            raise boom
    assert (job.outcome, job.state) == (outcome, "closed")
    assert visible(s3) == (SEEN if outcome == "committed" else {})
    if outcome == "committed":
        assert (job.report.error, caplog.text) == ("ValueError: boom" if raises else "", "")
        assert ["committed all the same" in note for note in getattr(boom, "__notes__", [])] == (
            [True] * raises
        )


def test_a_job_of_which_nothing_is_left_to_tell_is_unknown(s3: MemoryStore) -> None:
    """I10: its record is gone, no marker tells: leaving normally says that it cannot be told."""
    with pytest.raises(mc.OutcomeUnknown), mc.start(DEST, mark_success=False) as job:
        s3.delete_object(f"t/__magic_job-{job.id}/_job.json")
    assert job.outcome == ""


@pytest.mark.parametrize("boom", [False, True])
def test_an_abort_that_fails_is_raised_where_nothing_else_is(s3: MemoryStore, boom: bool) -> None:
    """I10: nobody is told "aborted"; the caller's exception goes on, and says how it is ended."""
    expected = ValueError if boom else (mc.OutcomeUnknown, mc.StoreError)
    with pytest.raises(expected) as raised, mc.start(DEST, job_id="1") as job:
        s3.before = SILENT
        if boom:
            raise ValueError("boom")
    s3.before = None
    assert (job.outcome, mc.attach(DEST, "1").state) == ("", "running")
    notes = " ".join(getattr(raised.value, "__notes__", []))
    assert not boom or "magic_committer.abort('s3://bucket/t/', '1')" in notes


@pytest.mark.parametrize("other", ["attached", "pickled", "by JSON", "of write"])
def test_a_handle_that_did_not_start_the_job_has_no_block(s3: MemoryStore, other: str) -> None:
    """A worker's ``with job:`` does not abort what others do, nor does ``with write(...).job``."""
    with mc.write(DEST) as writing:
        job = mc.start(DEST)
        ways: dict[str, Callable[[], mc.Job]] = {
            "attached": lambda: mc.attach(DEST, job.id),
            "pickled": lambda: pickle.loads(pickle.dumps(job)),
            "by JSON": lambda: mc.Job.from_dict(job.to_dict()),
            "of write": lambda: writing.job,
        }
        handle = ways[other]()
        raises(mc.MagicError, handle.__enter__, match="has not started")
        assert (handle.state, job.state) == ("running", "running")


def test_a_block_is_entered_once(s3: MemoryStore) -> None:
    """A second ``with`` of one handle is refused, inside the first and after it."""
    with mc.start(DEST) as job:
        raises(mc.MagicError, job.__enter__, match="once")
        job.commit(expect=0)
    raises(mc.MagicError, job.__enter__, match="once")


def test_a_refused_start_leaves_no_live_job(s3: MemoryStore) -> None:
    """I4: the record cannot be deleted conditionally: it is closed, and shuts nobody out."""
    s3.put_object("t/old.csv", b"old")
    s3.before = raising(lambda r: r.verb == "delete_one" and r.if_match is not None, NotSupported)
    raises(mc.DestinationExists, mc.start, DEST, mode="fail")
    assert [found.state for found in mc.inspect(DEST)] == ["closed"]
