"""The job of `with write(...)` is its process's: nobody else can take its tasks or end it."""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import TaskFailed, WrongProcess
from magic_committer.job import give_up
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import upload_of
from tests.promises.hands import DEST, control, visible


def said_in_a_child(step: Callable[[], Any]) -> str:
    """The error that ``step`` raises in a forked child, as text; "" if it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            step()
        except BaseException as error:
            said = "".join(traceback.format_exception_only(error))
        os.write(writing, said.encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


def test_it_takes_no_task(s3: MemoryStore) -> None:
    """A task whose files `write` would not commit is refused, and the right call is named."""
    with mc.write(DEST) as writing:
        with writing.open("a.csv") as f:
            f.write(b"1")
        with pytest.raises(TaskFailed) as caught:
            writing.job.task("1")
        assert WrongProcess.advice in str(caught.value)
    assert visible(s3) == {"t/a.csv": b"1"}


def test_it_does_not_pickle(s3: MemoryStore) -> None:
    """A worker cannot get the job of `write`, and the right call is named."""
    with mc.write(DEST) as writing, pytest.raises(pickle.PicklingError) as caught:
        pickle.dumps(writing.job)
    assert "magic_committer.start(dest)" in str(caught.value)


@pytest.mark.parametrize(
    "step",
    [
        lambda job: job.task("1"),
        lambda job: job.commit([], expect=0),
        lambda job: job.abort(),
    ],
    ids=["task", "commit", "abort"],
)
def test_a_forked_child_cannot_use_it(s3: MemoryStore, step: Callable[[mc.Job], Any]) -> None:
    """In a forked child the job of `write` sends nothing, and the right call is named."""
    with mc.write(DEST) as writing:
        with writing.open("a.csv") as f:
            f.write(b"1")
        upload_of(f).wait()
        s3.before = _refuse
        said = said_in_a_child(lambda: step(writing.job))
        s3.before = None
    assert "TaskFailed" in said
    assert "magic_committer.start(dest)" in said
    assert visible(s3) == {"t/a.csv": b"1"}


def _refuse(request: Request) -> None:
    raise AssertionError(f"sent: {request}")


def test_it_is_read_in_and_after_with(s3: MemoryStore) -> None:
    """Names, state and report of the job stay readable."""
    with mc.write(DEST) as writing:
        job = writing.job
        assert (job.id, len(job.uuid), job.dest) == (writing.id, 32, f"{DEST}/")
        assert (job.state, job.report) == ("running", None)
    assert job.report is writing.report is not None
    assert job.state == "absent"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_second_interruption_names_the_call_that_ends_the_job(
    s3: MemoryStore, number: int
) -> None:
    """Ctrl-C while `write` aborts leaves a note with the call that ends the job."""
    here = threading.current_thread()
    seen = 0

    def before(request: Request) -> None:
        nonlocal seen
        if threading.current_thread() is here:
            seen += 1
            if seen == number:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught, mc.write(DEST) as writing:
        with writing.open("a.csv") as f:
            f.write(b"1")
        s3.before = before
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

    def cut(request: Request) -> None:
        if request.verb == "list_uploads":
            raise KeyboardInterrupt

    s3.before = cut
    with pytest.raises(KeyboardInterrupt):
        mc.abort(DEST, job.id)
    s3.before = None
    seen = mc.attach(DEST, job.id)
    assert (seen.outcome, seen.state) == ("aborted", "aborting")
    s3.before = _refuse
    give_up(seen, ValueError("a worker failed"))


def test_it_pickles_once_it_has_ended(s3: MemoryStore) -> None:
    """What became of it may travel."""
    with mc.write(DEST) as writing, writing.open("a.csv") as file:
        file.write(b"1")
    assert pickle.loads(pickle.dumps(writing.job)).outcome == "committed"
