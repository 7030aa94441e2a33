"""Single lines of the library that could be taken away, or turned round, without any test failing:
found by `tests/mutants`, and each has a test now that fails."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, At, committed_task, failing, visible


class Killed(BaseException):
    """The process is gone."""


def killed_at(s3: MemoryStore, verb: str, key: str, job: mc.Job) -> None:
    """The driver of a job is killed while it commits, before such a request."""
    failing(s3, verb, key, Killed)
    with pytest.raises(Killed):
        job.commit()
    s3.before = None


# Beside other jobs --------------------------------------------------------------------------------


def test_an_append_that_is_listed_first_hides_no_other_job(s3: MemoryStore) -> None:
    """I6: a running append excludes nobody, and the look at the other jobs goes on behind it."""
    mc.start(DEST, job_id="a")
    mc.start(DEST, job_id="b", mode="replace")
    with pytest.raises(mc.ConflictingJob, match="job 'b'"):
        mc.start(DEST, job_id="c", mode="replace")


def test_old_data_that_another_deletes_just_then_stops_no_replace(s3: MemoryStore) -> None:
    """I7: an object that a decided append is about to rewrite goes between the listing and the look
    whose it is: it is nobody's, and the replace commits."""
    s3.put_object("t/a.csv", b"old")
    append = mc.start(DEST)
    committed_task(append, "1", {"a.csv": b"a"})
    killed_at(s3, "complete_upload", "t/a.csv", append)
    replace = mc.start(DEST, mode="replace")
    committed_task(replace, "1", {"r.csv": b"r"})
    at = At(
        s3,
        lambda r: (r.verb, r.key) == ("head", "t/a.csv"),
        lambda: s3.delete_object("t/a.csv"),
    )
    assert replace.commit().outcome == "committed"
    assert at.done
    assert visible(s3) == {"t/r.csv": b"r"}


def test_what_a_decided_append_publishes_is_no_reason_to_list_again(s3: MemoryStore) -> None:
    """The second listing of a replace shows a file that a live, decided append has just made
    visible: whose it is is known, and two listings are enough."""
    append = mc.start(DEST)
    committed_task(append, "1", {"a.csv": b"a"})
    killed_at(s3, "complete_upload", "t/a.csv", append)
    replace = mc.start(DEST, mode="replace")
    committed_task(replace, "1", {"r.csv": b"r"})
    listings = 0

    def goes_on() -> None:
        failing(s3, "put", "t/_SUCCESS", Killed)
        with pytest.raises(Killed):
            mc.recover(DEST, append.id)
        s3.before = None

    def before(request: Request) -> None:
        nonlocal listings
        listings += (request.verb, request.key) == ("list", "t/")
        if listings == 2 and "t/a.csv" not in s3.keys():
            goes_on()
            s3.before = before

    s3.before = before
    assert replace.commit().outcome == "committed"
    s3.before = None
    assert listings == 2
    assert set(visible(s3)) == {"t/a.csv", "t/r.csv"}
