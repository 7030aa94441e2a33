"""I2, I10: what a task saved, and a committed job does not publish, is told."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.commit.ready import EXTRA_ABORTED, EXTRA_ATTEMPT, EXTRA_JOB, EXTRA_TASK
from magic_committer.commit.sweep import TASKS_NAMED_MAX
from magic_committer.hadoop.formats import encode_pendingset, new_pendingset
from magic_committer.options import Accept
from magic_committer.protocol.record import ATTEMPT_METADATA, JOB_METADATA, TASK_METADATA
from magic_committer.stores.memory import MemoryStore
from tests.hadoops import leave_job
from tests.promises.hands import DEST, committed_task, control, dies_at, job_of, killed, visible
from tests.promises.machine import matching


def saved(job: mc.Job, task: str, *names: str) -> mc.Task:
    """An attempt that closed its files and was never committed."""
    attempt = job.task(task)
    for name in names:
        with attempt.open(name) as f:
            f.write(b"1")
    return attempt


@pytest.mark.parametrize("accept", ["results", "listing"])
def test_a_forgotten_task_commit_is_told(s3: MemoryStore, accept: Accept) -> None:
    """The task is named, with its number of files and what to do; all are swept."""
    job = mc.start(DEST, track="s3", accept=accept)
    done = committed_task(job, "1", {"a.csv": b"1"})
    saved(job, "2", "b.csv", "c.csv", "d.csv")
    report = job.commit([done] if accept == "results" else None)
    (warning,) = report.warnings
    assert warning.startswith("task '2' saved 3 files and was never committed: call task.commit()")
    assert visible(s3) == {"t/a.csv": b"1"}
    assert (s3.open_uploads(), control(s3)) == ((), [])


def test_many_forgotten_tasks_are_told_in_few_lines(s3: MemoryStore) -> None:
    """The first are named, the others are counted."""
    job = mc.start(DEST, track="s3")
    committed_task(job, "done", {"a.csv": b"1"})
    for number in range(TASKS_NAMED_MAX + 5):
        saved(job, f"{number:02d}", f"{number}.csv")
    warnings = job.commit().warnings
    assert len(warnings) == TASKS_NAMED_MAX + 1
    assert "saved 1 file " in warnings[0]
    assert warnings[-1].startswith("5 more tasks, each: saved 5 files in all")


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_killed_attempt_of_a_committed_task_is_not_told(s3: MemoryStore, end: str) -> None:
    """Another attempt published what the task had to write; of an aborted job nothing was to be."""
    job = mc.start(DEST, track="s3")
    saved(job, "1", "a.csv", "b.csv")
    if end == "commit":
        committed_task(job, "1", {"a.csv": b"1"})
    killed(job, "2", "cut.csv", unique=True)
    assert (job.commit() if end == "commit" else job.abort()).warnings == ()


@pytest.mark.parametrize("how", ["driver", "another"])
def test_the_tree_of_an_accepted_attempt_that_stayed_is_not_told(s3: MemoryStore, how: str) -> None:
    """Its set names the files: that the `.pending`s could not be deleted loses nothing."""
    job = mc.start(DEST, job_id="j", track="s3", mark_success=False)
    dies_at(s3, "delete", lambda: committed_task(job, "1", {"a.csv": b"1", "b.csv": b"2"}))
    assert matching(s3, "*.pending")
    if how == "another":
        dies_at(s3, "list *__magic_job-j/", mc.attach(DEST, "j").commit)
    report = job.commit() if how == "driver" else mc.recover(DEST, "j").report
    assert report is not None
    assert report.warnings == ()
    assert len(visible(s3)) == 2


def test_what_an_adopted_job_of_hadoop_left_is_not_told(s3: MemoryStore) -> None:
    """Its uncommitted tasks are not ours to judge: their `.pending`s carry no token."""
    hadoops = leave_job(s3, "3.5.0", unfinished=True)
    mc.adopt(DEST, hadoops.id, dead_after=0)
    report = mc.attach(DEST, hadoops.id).commit()
    assert report.warnings == ()
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("recovered", [False, True])
def test_a_file_saved_after_its_attempts_commit_is_told(s3: MemoryStore, recovered: bool) -> None:
    """The accepted set does not name it; also by who finishes a job that another completed."""
    job = mc.start(DEST, job_id="j", track="s3")
    attempt = saved(job, "1", "a.csv", "late.csv")
    (late,) = matching(s3, "*late.csv*.pending")
    body, metadata = s3.body(late), s3.attributes(late).metadata
    s3.delete_object(late)
    # As another process, which never opened the late file, commits the attempt.
    mc.attach(DEST, "j").task("1", attempt=attempt.attempt_id).commit()
    s3.put_object(late, body, metadata=metadata)
    if recovered:
        dies_at(s3, "put t/_SUCCESS", job.commit)
        report = mc.recover(DEST, "j").report
        assert report is not None
    else:
        report = job.commit()
    (warning,) = report.warnings
    assert warning.startswith("task '1' closed 1 file after its attempt was committed")
    assert visible(s3) == {"t/a.csv": b"1"}
    assert s3.open_uploads() == ()


def tombstone(s3: MemoryStore, job: mc.Job, task: str, attempt: str) -> None:
    extra = {EXTRA_JOB: job.uuid, EXTRA_TASK: task, EXTRA_ATTEMPT: attempt, EXTRA_ABORTED: "true"}
    key = f"t/__magic_job-{job.id}/job-{job.id}/00/_{attempt}.pendingset"
    one = new_pendingset(job_id=job.id, commits=[], extra_data=extra, iostatistics={})
    metadata = {JOB_METADATA: job.uuid, TASK_METADATA: task, ATTEMPT_METADATA: attempt}
    s3.put_object(key, encode_pendingset(one, "objects", source=key), metadata=metadata)


def test_an_aborted_attempt_is_not_told(s3: MemoryStore) -> None:
    """Its tombstone says that it was on purpose: both are swept without a word."""
    job = mc.start(DEST, track="s3", accept="results")
    done = committed_task(job, "1", {"a.csv": b"1"})
    attempt = saved(job, "2", "b.csv")
    tombstone(s3, job, "2", attempt.attempt_id)
    assert job.commit([done]).warnings == ()
    assert (s3.open_uploads(), control(s3)) == ((), [])


def test_a_tombstone_is_no_committed_task_for_inspect(s3: MemoryStore) -> None:
    """It counts as an object of the directory, and as nothing else."""
    job = job_of({"a.csv": b"1"}, job_id="j", track="s3")
    (found,) = mc.inspect(DEST)
    tombstone(s3, job, "2", "other")
    (with_it,) = mc.inspect(DEST)
    assert (with_it.tasks, with_it.files, with_it.problem) == (1, 1, "")
    assert with_it.objects == found.objects + 1
