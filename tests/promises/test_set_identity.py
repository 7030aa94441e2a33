"""I2: a pendingset, and the `.pending`s that become one, are those of this attempt of this run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

import magic_committer as mc
from magic_committer.commit.sets import EXTRA_JOB, EXTRA_TASK
from magic_committer.protocol.record import JOB_METADATA, TaskCommit
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import attempt_of
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    fitting,
    half_completed,
    job_of,
    raises,
    refusing,
    visible,
)
from tests.promises.machine import matching

OTHER = "0" * 32
"""The UUID of another run."""
A, B = {"t/a.csv": b"1"}, {"t/b.csv": b"2"}


def write(task: mc.Task, name: str) -> None:
    with task.open(name) as file:
        file.write(b"1")


def two_handles(job: mc.Job) -> tuple[mc.Task, mc.Task]:
    return job.task("1", attempt="a"), job.task("1", attempt="a")


def test_an_attempt_that_was_committed_with_other_files_is_told(s3: MemoryStore) -> None:
    """I2: a second handle's file is in no pendingset, and is told so when it is closed."""
    first, second = two_handles(mc.start(DEST))
    write(first, "a.csv")
    first.commit()
    raises(mc.TaskFailed, write, second, "b.csv", match="not part of it")
    assert [u.key for u in s3.open_uploads()] == ["t/a.csv"]


def test_a_commit_under_a_given_id_leaves_anothers_tree(s3: MemoryStore) -> None:
    """I6: only what is proved to be the attempt's own goes; of a drawn id all."""
    for job, stays in ((mc.start(DEST, job_id="given"), True), (mc.start(DEST), False)):
        task = job.task("1", attempt="a")
        write(task, f"{job.id}.csv")
        (pending,) = matching(s3, "*.pending")
        zombies = pending.removesuffix(".pending")  # Hadoop's marker, of another run
        s3.put_object(zombies, metadata={JOB_METADATA: OTHER})
        task.commit()
        assert pending not in s3.keys()
        assert (zombies in s3.keys()) is stays


def test_a_commit_that_comes_second_with_another_file_is_told(s3: MemoryStore) -> None:
    """I2: a file is closed between another handle's listing and its PUT of the set."""
    job = mc.start(DEST)
    first, second = two_handles(job)
    write(first, "a.csv")
    file = second.open("b.csv")
    file.write(b"1")
    with At(s3, "put *.pendingset", file.close):
        first.commit()
    raises(mc.TaskFailed, second.commit, match="committed before, with other files")
    assert job.commit([first.result]).files == 1
    assert visible(s3) == A


@pytest.mark.parametrize("how", ["aborted", "closed anew"])
def test_an_attempt_whose_closed_files_are_gone_is_not_committed(s3: MemoryStore, how: str) -> None:
    """I2: another handle has aborted it, without conditions, or closed another file of the name."""
    options = mc.Options(conditional_writes="off" if how == "aborted" else "on")
    mine, other = two_handles(mc.start(DEST, options=options))
    write(mine, "a.csv")
    other.abort() if how == "aborted" else write(other, "a.csv")
    raises(mc.TaskFailed, mine.commit, match="gone from its tree")
    assert how == "closed anew" or not matching(s3, "*.pendingset")


@pytest.mark.parametrize("what", ["another run's", "another attempt's", "unreadable"])
def test_a_pending_that_is_not_the_attempts_fails_it(s3: MemoryStore, what: str) -> None:
    """I2: it is not committed with a file of another token, nor without one that cannot be read."""
    job = mc.start(DEST, job_id="given")
    for attempt in "ab":
        write(job.task("1", attempt=attempt), f"{attempt}.csv")
    mine, theirs = matching(s3, "*.pending")
    metadata = s3.attributes(mine).metadata
    if what == "another run's":
        s3.put_object(mine, s3.body(mine), metadata={JOB_METADATA: "f" * 32})
    elif what == "another attempt's":
        moved = theirs.replace("/tasks/b/", "/tasks/a/")
        s3.put_object(moved, s3.body(theirs), metadata=metadata)
    else:
        s3.put_object(mine, b"{", metadata=metadata)
    told = r"a\.csv\.pending" if what == "unreadable" else "not of this attempt"
    raises(mc.TaskFailed, mc.attach(DEST, job.id).task("1", attempt="a").commit, match=told)


@pytest.mark.parametrize("options", [mc.Options(), mc.Options(etag_form="strings", checksum="off")])
def test_what_a_handle_has_saved_it_need_not_read(s3: MemoryStore, options: mc.Options) -> None:
    """The listing shows the ETag of its own PUT: it remembers what another handle reads."""
    job = mc.start(DEST, options=options)
    mine, other = two_handles(job)
    write(mine, "a.csv")
    s3.requests.clear()
    remembered = attempt_of(mine._attempt)._saved.pendings()
    assert s3.requests["get"] == 0
    read = attempt_of(other._attempt)._saved.pendings()
    known, found = ([replace(p, etags=tuple(p.parts)) for p in one] for one in (remembered, read))
    assert known == found
    assert s3.requests["get"] == 1


def test_a_set_of_another_run_is_not_this_attempts(s3: MemoryStore) -> None:
    """I2: where another run's set lies under its name, an attempt is not called committed."""
    task = mc.start(DEST, job_id="given").task("1", attempt="a")
    write(task, "a.csv")

    def another_was_faster(request: Request) -> None:
        if fitting("put *.pendingset")(request):
            s3.before = None
            request.effect()
            s3.put(request.key, s3.body(request.key), metadata={JOB_METADATA: "f" * 32})

    s3.before = another_was_faster
    raises(mc.MagicError, task.commit)
    assert task.committed is False


def test_a_decided_replace_excludes_the_next_one(s3: MemoryStore) -> None:
    """I6: as one that runs does."""
    first = half_completed(s3, mode="replace")
    raises(mc.ConflictingJob, mc.start, DEST, mode="replace", match=first.id)


def test_a_plan_of_another_version_is_not_executed(s3: MemoryStore) -> None:
    """I2: the record names the plan and its ETag: one with other bytes is nobody's decision."""
    job = job_of({"a.csv": b"1"})
    with refusing(s3, "complete_upload", mc.StoreError), pytest.raises(mc.CommitIncomplete):
        job.commit()
    (plan,) = matching(s3, "*/_plan-*")
    s3.put(plan, s3.body(plan) + b" ", metadata=s3.head(plan).metadata)
    raises(mc.CommitIncomplete, mc.recover, DEST, job.id, match="not the version")
    assert visible(s3) == {}


def change(document: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Change fields, also of what lies in them; None: without it."""
    for name, value in changes.items():
        if value is None:
            del document[name]
        elif isinstance(value, Mapping):
            inner = document[name]
            change(inner[0] if isinstance(inner, list) else inner, value)
        else:
            document[name] = value


def rewritten(
    s3: MemoryStore, result: TaskCommit, metadata: Mapping[str, str] | None, **changes: Any
) -> None:
    """Store a set once more, as Hadoop writes it, with changed fields or other metadata."""
    document = orjson.loads(s3.body(result.key))
    change(document, {"contentSha256": None, **changes})
    kept = s3.attributes(result.key).metadata if metadata is None else metadata
    s3.put_object(result.key, orjson.dumps(document), metadata=kept)


def two_tasks() -> tuple[mc.Job, TaskCommit]:
    """A job of two tasks, and the result of the second."""
    job = job_of({"a.csv": b"1"}, job_id="1", accept="listing", track="memory")
    return job, committed_task(job, "2", {"b.csv": b"2"})


NO_JOB = {"extraData": {EXTRA_JOB: None}}
OF_OTHER = {"extraData": {EXTRA_JOB: OTHER}}
ANOTHER_ID = {"jobId": "another", "commits": {"jobId": "another"}}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"commits": {"bucket": "other"}}, "bucket", id="another bucket"),
        pytest.param(ANOTHER_ID, "jobId", id="another job"),
        pytest.param({"extraData": {EXTRA_TASK: None}}, "no task or no attempt", id="no task"),
        pytest.param(OF_OTHER, "the object's metadata says", id="two names"),
    ],
)
def test_a_set_of_ours_that_says_something_else_refuses_the_job(
    s3: MemoryStore, changes: dict[str, Any], told: str
) -> None:
    """I2, I6: another bucket, or another job; and which task's it is is not guessed."""
    job, result = two_tasks()
    rewritten(s3, result, {JOB_METADATA: job.uuid}, **changes)
    raises(mc.CommitRefused, job.commit, match=told)
    assert visible(s3) == {}


@pytest.mark.parametrize("how", ["by its metadata", "by its body", "spelt otherwise by a proxy"])
def test_a_set_is_known_by_its_metadata_or_by_its_body(s3: MemoryStore, how: str) -> None:
    """I2: job, task and attempt stand in both: else its task would not be published, untold."""
    job, result = two_tasks()
    if how == "by its metadata":
        rewritten(s3, result, None, extraData=None)
    else:
        rewritten(s3, result, {} if how == "by its body" else {"Magic-Committer-Job": job.uuid})
    assert job.commit().files == 2
    assert visible(s3) == A | B


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_set_of_nobody_stops_the_commit(s3: MemoryStore, unreadable: bool) -> None:
    """It is named, also to who looks before, and nothing is decided; without it the rest is."""
    job, result = two_tasks()
    rewritten(s3, result, {}, **NO_JOB)
    prospect = job._committer().driver().look()
    assert [result.key in problem for problem in prospect.problems] == [True]
    if unreadable:
        s3.put_object(result.key, b"{")
    caught = raises(mc.IncompleteJob, job.commit, match="say nowhere whose they are")
    assert result.key in str(caught)
    assert (job.state, visible(s3)) == ("running", {})
    s3.delete_object(result.key)
    assert job.commit().files == 1


@pytest.mark.parametrize(
    ("metadata", "changes"),
    [
        pytest.param({JOB_METADATA: OTHER}, NO_JOB, id="in metadata"),
        pytest.param({}, OF_OTHER, id="in the body"),
        pytest.param({JOB_METADATA: OTHER}, OF_OTHER, id="in both"),
        pytest.param({}, OF_OTHER | ANOTHER_ID, id="with another id"),
    ],
)
def test_a_zombies_set_is_passed_over(
    s3: MemoryStore, metadata: dict[str, str], changes: dict[str, Any]
) -> None:
    """By its UUID it is another run's, wherever that stands, and no reason to refuse the job."""
    job, result = two_tasks()
    rewritten(s3, result, metadata, **changes)
    assert job.commit().files == 1
    assert visible(s3) == A


def test_a_job_of_results_needs_no_metadata_of_a_set(s3: MemoryStore) -> None:
    """Its driver was told which sets are its own; others in the directory do not concern it."""
    job = mc.start(DEST, job_id="1", accept="results", track="memory")
    result = committed_task(job, "1", {"a.csv": b"1"})
    rewritten(s3, committed_task(job, "2", {"b.csv": b"2"}), {}, **NO_JOB)
    s3.put_object(result.key, s3.body(result.key), metadata={})
    assert job.commit([result]).files == 1
