"""I4, I6: a Create that was sent twice may have made two uploads: the twin goes, and no other."""

from __future__ import annotations

from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import Unanswered
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import upload_of
from tests.promises.hands import DEST, committed_task, control, raising, visible


class Twins:
    """Each Create from here on is sent twice below: it makes two uploads, and tells of one."""

    def __init__(self, s3: MemoryStore) -> None:
        self.made: list[str] = []
        self._s3 = s3
        s3.after = self._twice

    def _twice(self, request: Request, reply: Any) -> Any:
        if request.verb != "create_upload" or isinstance(reply, mc.StoreError):
            return None
        self.made.append(self._s3.start_upload(request.key))
        return reply._replace(attempts=2)


def open_ids(s3: MemoryStore) -> set[str]:
    """The ids of all open uploads."""
    return {upload.upload_id for upload in s3.open_uploads()}


def one_closed(*, unique: bool = True) -> tuple[mc.Job, mc.Task]:
    """A job, and its task with one closed file."""
    job = mc.start(DEST, track="memory", accept="results")
    task = job.task("1")
    with task.open("a.csv", unique=unique) as file:
        file.write(b"1")
    upload_of(file).wait()
    return job, task


def late_file(s3: MemoryStore, *, unique: bool) -> tuple[mc.Task, str]:
    """A task with one closed file, whose job has ended since; and the file's key."""
    job, task = one_closed(unique=unique)
    (key,) = {upload.key for upload in s3.open_uploads()}
    s3.after = None
    mc.abort(DEST, job.id)
    return task, key


@pytest.mark.parametrize(
    ("unique", "suffix", "goes"), [(True, "", True), (True, ".gz", False), (False, "", False)]
)
def test_of_the_uploads_at_a_late_attempts_key_only_its_twin_goes(
    s3: MemoryStore, unique: bool, suffix: str, goes: bool
) -> None:
    """I4, I6: a late attempt aborts the upload whose id it never heard; those of longer keys, and
    of a name without the job's UUID, may be anybody's."""
    Twins(s3)
    task, key = late_file(s3, unique=unique)
    landed = s3.start_upload(key + suffix)  # after the sweep
    with pytest.raises(mc.JobNotRunning):
        task.commit()
    assert (landed in open_ids(s3)) is not goes


def test_a_late_twin_leaves_the_upload_that_the_plan_names(s3: MemoryStore) -> None:
    """I2: two attempts of a task write one key, the job is decided with the first: the second one,
    late, aborts its own upload and not the planned one."""
    job = mc.start(DEST, accept="results")
    with job.task("1") as first, first.open("a.csv", unique=True) as file:
        file.write(b"1")
    second = job.task("1")
    Twins(s3)
    with second.open("a.csv", unique=True) as file:
        file.write(b"2")
    s3.after = None
    s3.before = raising(lambda r: r.verb == "complete_upload", mc.StoreError("not now"))
    with pytest.raises(mc.CommitIncomplete):
        job.commit([first.result])
    s3.before = None
    with pytest.raises(mc.JobNotRunning):
        second.commit()
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert list(visible(s3).values()) == [b"1"]


def test_what_names_an_upload_that_could_not_be_aborted_stays(s3: MemoryStore) -> None:
    """I4: an attempt is aborted by another process, and the store does not answer: the `.pending`
    stays, for it names the upload; the next abort takes both."""
    job = mc.start(DEST)
    with job.task("1", attempt="a").open("a.csv") as file:
        file.write(b"1")

    s3.before = raising(lambda r: r.verb == "abort_upload", Unanswered("not now"))
    with pytest.raises(Unanswered):
        job.task("1", attempt="a").abort()
    s3.before = None
    assert any(key.endswith("a.csv.pending") for key in control(s3))
    job.task("1", attempt="a").abort()
    assert open_ids(s3) == set()
    assert not any(key.endswith(".pending") for key in control(s3))


def test_files_that_another_attempt_wrote_are_not_aborted(s3: MemoryStore) -> None:
    """I6: aborting one attempt leaves the uploads of another attempt of the same task."""
    job = mc.start(DEST)
    result = committed_task(job, "1", {"a.csv": b"1"})
    with job.task("1", attempt="b").open("b.csv") as file:
        file.write(b"2")
    job.task("1", attempt="b").abort()
    assert job.commit([result]).files == 1
    assert visible(s3) == {"t/a.csv": b"1"}


def test_an_attempt_of_a_running_job_leaves_the_twin_to_the_jobs_end(s3: MemoryStore) -> None:
    """I6: while the job runs its plan may name the twin: the abort of the attempt succeeds, and the
    abort of the job takes the twin."""
    twins = Twins(s3)
    job, task = one_closed()
    s3.after = None
    task.abort()
    assert open_ids(s3) == set(twins.made)
    job.abort()
    assert open_ids(s3) == set()


def test_the_twin_of_a_late_file_goes_when_the_file_is_aborted(s3: MemoryStore) -> None:
    """I4: a file that is given up in a job that has ended looks for its twin by itself: perhaps
    nobody ends its task."""
    job = mc.start(DEST)
    Twins(s3)
    file = job.task("1").open("a.csv", unique=True)
    file.write(b"1")
    upload_of(file)._sender.created()  # its Create was answered
    s3.after = None
    (key,) = {upload.key for upload in s3.open_uploads()}
    mc.abort(DEST, job.id)
    s3.start_upload(key)  # the twin lands after the sweep
    file.abort()
    assert open_ids(s3) == set()
