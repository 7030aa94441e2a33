"""I4, I6: what the sweep reads from leftovers: whose they are, and what they name."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from msgspec.structs import replace

import magic_committer as mc
from magic_committer.commit import sweep
from magic_committer.commit.sets import EXTRA_ABORTED, EXTRA_ATTEMPT, EXTRA_JOB, EXTRA_TASK
from magic_committer.commit.sweep import TASKS_NAMED_MAX
from magic_committer.errors import NotFound, PermissionDenied, StoreError, Unanswered
from magic_committer.hadoop.documents import decode_pendingset, encode_pendingset, new_pendingset
from magic_committer.options import Accept
from magic_committer.protocol.record import ATTEMPT_METADATA, JOB_METADATA, TASK_METADATA
from magic_committer.stores.memory import MemoryStore, Request
from tests.costly import costly_store
from tests.hadoops import leave_job
from tests.promises.hands import (
    DEST,
    committed_task,
    control,
    dies_at,
    job_of,
    killed,
    raising,
    refusing,
    visible,
)
from tests.promises.machine import matching


def leave_set(
    s3: MemoryStore, job: mc.Job, result: mc.TaskCommit, uuid: str, **changes: Any
) -> None:
    """Put a changed copy of a pendingset beside it."""
    pendingset = decode_pendingset(s3.body(result.key), result.key)
    changed = replace(pendingset, commits=(replace(pendingset.commits[0], **changes),))
    key = result.key.replace(".pendingset", "-copy.pendingset")
    s3.put(key, encode_pendingset(changed, "objects", source=key), metadata={JOB_METADATA: uuid})


def open_ids(s3: MemoryStore) -> list[str]:
    return [upload.upload_id for upload in s3.open_uploads()]


def test_a_leftover_that_names_a_key_outside_names_nothing(s3: MemoryStore) -> None:
    """I6: a set of ours names an upload outside the destination: that stays, and is told."""
    job = mc.start(DEST)
    result = committed_task(job, "1", {"a.csv": b"1"})
    outside = s3.start_upload("elsewhere/b.csv")
    leave_set(s3, job, result, job.uuid, destination_key="elsewhere/b.csv", upload_id=outside)
    report = job.abort()
    assert open_ids(s3) == [outside]
    assert "lies outside the destination" in report.warnings[0]


def test_a_leftover_of_another_run_names_nothing(s3: MemoryStore) -> None:
    """I6: what another run of a given id left is not ours: it stays, with what it names."""
    job = mc.start(DEST, job_id="given")
    result = committed_task(job, "1", {"a.csv": b"1"})
    theirs = s3.start_upload("t/b.csv")
    leave_set(s3, job, result, "f" * 32, destination_key="t/b.csv", upload_id=theirs)
    job.abort()
    assert open_ids(s3) == [theirs]
    assert len(matching(s3, "*-copy.pendingset")) == 1


def test_a_leftover_pending_of_a_committed_file_costs_no_object(s3: MemoryStore) -> None:
    """I2: it names an upload of the plan: there are stores where an abort takes the object."""
    job = mc.start(DEST)
    sent: list[str] = []
    s3.after = lambda request, _: sent.append(request.verb)
    s3.before = raising(lambda r: any(key.endswith(".pending") for key in r.keys), Unanswered)
    committed_task(job, "1", {"a.csv": b"1"})
    assert matching(s3, "*.pending")
    job.commit()
    assert "abort_upload" not in sent
    assert visible(s3) == {"t/a.csv": b"1"}


def test_the_plan_goes_before_the_sets_that_it_names(s3: MemoryStore) -> None:
    """I5: while a plan is there all its pendingsets are: the plan is deleted first."""
    job = job_of({"a.csv": b"1"})
    gone: list[str] = []
    s3.before = lambda request: gone.extend(request.keys)
    job.commit()
    kinds = ["plan" if "/_plan-" in key else "set" for key in gone if not key.endswith(".pending")]
    assert kinds[0] == "plan"
    assert "set" in kinds


def test_as_many_uploads_as_a_report_names_are_told_of_no_more(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each upload that is left is named in a warning, and none is said to be left beside them."""
    monkeypatch.setattr(sweep, "NAMED_MAX", 2)
    job = job_of({"a.csv": b"a", "b.csv": b"b"})

    with refusing(s3, "abort_upload", PermissionDenied):
        warnings = job.abort().warnings
    told = [("t/a.csv" in one, "t/b.csv" in one) for one in warnings]
    assert told == [(True, False), (False, True)]


def test_an_abort_of_a_running_job_looks_for_no_object(s3: MemoryStore) -> None:
    """Nobody can have completed its uploads: they are proved gone, and nothing more is asked."""
    job = job_of({"a.csv": b"a"})
    looked: list[str] = []
    s3.before = lambda r: looked.append(r.key) if r.verb == "head" else None
    job.abort()
    s3.before = None
    assert "t/a.csv" not in looked
    assert s3.open_uploads() == ()


def test_an_upload_of_the_plan_that_is_listed_still_hides_no_other() -> None:
    """I4: a lagging listing shows what was completed, and behind it what is to be aborted."""
    with costly_store() as s3:
        job = job_of({"a.csv": b"a"})
        killed(job, "2", "z.csv", unique=True)
        s3.lags = True
        job.commit()
        assert s3.open_uploads() == ()
        assert visible(s3) == {"t/a.csv": b"a"}


UPLOADS = 40
FAILURES: dict[str, StoreError] = {
    "no answer": Unanswered("no answer"),
    "slow down": Unanswered("slow down", status=503, code="SlowDown"),
    "no bucket": NotFound("no such bucket", status=404, code="NoSuchBucket"),
    "an empty 404": NotFound("not found", status=404),
    "forbidden": PermissionDenied("not allowed", status=403, code="AccessDenied"),
}


def killed_tasks(s3: MemoryStore) -> mc.Job:
    """A job whose tasks were killed: only their names tell of their uploads."""
    job = mc.start(DEST)
    for number in range(UPLOADS):
        s3.start_upload(f"t/p={number % 4}/{number:02}-mcj{job.uuid}.csv")
    return job


@pytest.mark.parametrize("verb", ["abort_upload", "list_parts"])
@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_once_is_done_again(s3: MemoryStore, verb: str, failure: str) -> None:
    """Each upload is proved gone behind its last abort, and the report has nothing to warn of."""
    job = killed_tasks(s3)
    told: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    failed: set[str] = set()

    def fail(request: Request) -> None:
        third = request.key.split("-")[0][-1] in "0369"
        if request.verb == verb and third and request.key not in failed:
            failed.add(request.key)
            raise FAILURES[failure]

    def note(request: Request, answer: object) -> None:
        if request.verb in ("abort_upload", "list_parts"):
            told[request.key].append((request.verb, getattr(answer, "code", "")))

    s3.before, s3.after = fail, note
    report = job.abort()
    s3.before = s3.after = None
    assert (report.warnings, s3.open_uploads()) == ((), ())
    assert not control(s3)
    assert len(failed) == 16
    assert len(told) == UPLOADS
    for requests in told.values():
        assert requests[-2:] == [("abort_upload", ""), ("list_parts", "NoSuchUpload")]


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
