"""I2: a pendingset, and the `.pending`s that become one, are those of this attempt of this run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

import magic_committer as mc
from magic_committer.commit.ready import EXTRA_JOB, EXTRA_TASK
from magic_committer.hadoop.formats import PendingSet, decode_pendingset, encode_pendingset
from magic_committer.options import Accept, Track
from magic_committer.protocol.record import JOB_METADATA, TaskCommit
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import attempt_of
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    control,
    half_completed,
    job_of,
    refusing,
    visible,
)


def write(task: mc.Task, name: str) -> None:
    with task.open(name) as file:
        file.write(b"1")


def test_an_attempt_that_was_committed_with_other_files_is_told(s3: MemoryStore) -> None:
    """I2: a second handle of an attempt's name, with another file, is not told that it committed:
    its file is in no pendingset, and is told so when it is closed."""
    job = mc.start(DEST)
    first, second = job.task("1", attempt="a"), job.task("1", attempt="a")
    write(first, "a.csv")
    first.commit()
    with pytest.raises(mc.TaskFailed, match="not part of it"):
        write(second, "b.csv")
    assert [u.key for u in s3.open_uploads()] == ["t/a.csv"]


def test_a_commit_under_a_given_id_leaves_what_another_run_left_in_its_tree(
    s3: MemoryStore,
) -> None:
    """I6: only what is proved to be the attempt's own goes; of a drawn id all."""
    for job, stays in ((mc.start(DEST, job_id="given"), True), (mc.start(DEST), False)):
        task = job.task("1", attempt="a")
        write(task, f"{job.id}.csv")
        (pending,) = [key for key in control(s3) if key.endswith(".pending")]
        zombies = pending.removesuffix(".pending")  # Hadoop's marker, of another run
        s3.put_object(zombies, metadata={JOB_METADATA: "0" * 32})
        task.commit()
        assert pending not in s3.keys()
        assert (zombies in s3.keys()) is stays


def test_a_commit_that_comes_second_with_another_file_is_told(s3: MemoryStore) -> None:
    """I2: a file is closed between another handle's listing and its PUT of the set: neither look
    can see that it is late, and the commit of its own handle says that it is in no set."""
    job = mc.start(DEST)
    first, second = job.task("1", attempt="a"), job.task("1", attempt="a")
    write(first, "a.csv")
    file = second.open("b.csv")
    file.write(b"1")
    closes = At(s3, "put *.pendingset", file.close)
    first.commit()
    assert closes.done
    with pytest.raises(mc.TaskFailed, match="committed before, with other files"):
        second.commit()
    assert job.commit([first.result]).files == 1
    assert visible(s3) == {"t/a.csv": b"1"}


def test_without_conditions_a_commit_after_another_handles_abort_is_refused(
    s3: MemoryStore,
) -> None:
    """I2: where a store knows no conditions nothing claims the set's key: an attempt whose saved
    files are gone is not committed as an empty one."""
    job = mc.start(DEST, options=mc.Options(conditional_writes="off"))
    mine, other = job.task("1", attempt="a"), job.task("1", attempt="a")
    write(mine, "a.csv")
    other.abort()
    with pytest.raises(mc.TaskFailed, match="gone from its tree"):
        mine.commit()
    assert not [key for key in control(s3) if key.endswith(".pendingset")]


def test_a_pending_of_another_run_fails_the_attempt(s3: MemoryStore) -> None:
    """I2: what carries another run's token in the attempt's tree is not committed with it."""
    job = mc.start(DEST, job_id="given")
    task = job.task("1", attempt="a")
    write(task, "a.csv")
    (pending,) = (key for key in control(s3) if key.endswith(".pending"))
    s3.put(pending, s3.body(pending), metadata={"magic-committer-job": "f" * 32})
    with pytest.raises(mc.TaskFailed, match="not of this attempt"):
        mc.attach(DEST, job.id).task("1", attempt="a").commit()


def test_a_file_that_another_handle_has_closed_anew_fails_the_attempt(s3: MemoryStore) -> None:
    """I2: the tree holds another upload under the name of a file that was closed here: what this
    handle remembers of it is not what the job would publish."""
    job = mc.start(DEST)
    task = job.task("1", attempt="a")
    write(task, "a.csv")
    write(mc.attach(DEST, job.id).task("1", attempt="a"), "a.csv")
    with pytest.raises(mc.TaskFailed, match="gone from its tree"):
        task.commit()


@pytest.mark.parametrize("options", [mc.Options(), mc.Options(etag_form="strings", checksum="off")])
def test_what_a_handle_has_saved_it_need_not_read(s3: MemoryStore, options: mc.Options) -> None:
    """The listing shows the ETag of its own PUT: it remembers what another handle reads."""
    job = mc.start(DEST, options=options)
    mine, other = job.task("1", attempt="a"), mc.attach(DEST, job.id).task("1", attempt="a")
    write(mine, "a.csv")
    s3.requests.clear()
    remembered = attempt_of(mine._attempt)._saved.pendings()
    assert s3.requests["get"] == 0
    read = attempt_of(other._attempt)._saved.pendings()
    known, found = ([replace(p, etags=tuple(p.parts)) for p in one] for one in (remembered, read))
    assert known == found
    assert s3.requests["get"] == 1


def test_a_pending_of_another_attempt_fails_the_attempt(s3: MemoryStore) -> None:
    """I2: an upload whose token names another attempt is not committed with this one."""
    job = mc.start(DEST)
    one, other = job.task("1", attempt="a"), job.task("1", attempt="b")
    write(one, "a.csv")
    write(other, "b.csv")
    (theirs,) = (key for key in control(s3) if key.endswith("b.csv.pending"))
    stored = s3.get(theirs, max_bytes=10**6)
    moved = theirs.replace("/tasks/b/", "/tasks/a/")
    assert moved != theirs
    s3.put(moved, stored.body, metadata=stored.info.metadata)
    with pytest.raises(mc.TaskFailed, match="not of this attempt"):
        one.commit()


def test_a_set_of_another_run_is_not_this_attempts(s3: MemoryStore) -> None:
    """I2: where another run's set lies under its name, an attempt is not called committed."""
    job = mc.start(DEST, job_id="given")
    task = job.task("1", attempt="a")
    write(task, "a.csv")
    kept: list[tuple[str, bytes]] = []

    def another_was_faster(request: Request) -> None:
        if request.verb == "put" and request.key.endswith(".pendingset") and not kept:
            kept.append((request.key, b""))
            request.effect()
            s3.put(request.key, s3.body(request.key), metadata={"magic-committer-job": "f" * 32})

    s3.before = another_was_faster
    with pytest.raises(mc.MagicError):
        task.commit()
    assert task.committed is False


def test_a_decided_replace_excludes_the_next_one(s3: MemoryStore) -> None:
    """I6: as one that runs does."""
    first = half_completed(s3, mode="replace")
    with pytest.raises(mc.ConflictingJob, match=first.id):
        mc.start(DEST, mode="replace")


def rewrite(s3: MemoryStore, key: str, pendingset: PendingSet) -> None:
    metadata = s3.head(key).metadata
    s3.put(key, encode_pendingset(pendingset, "objects", source=key), metadata=metadata)


@pytest.mark.parametrize(("field", "told"), [("bucket", "bucket"), ("job_id", "jobId")])
def test_a_set_that_names_another_bucket_or_job_refuses_the_job(
    s3: MemoryStore, field: str, told: str
) -> None:
    """I2, I6: an upload id of another bucket is never completed in this one, and a pendingset in
    our directory that says that it is another job's is not ours."""
    job = mc.start(DEST)
    result = committed_task(job, "1", {"a.csv": b"1"})
    committed_task(job, "2", {"b.csv": b"2"})
    stored = decode_pendingset(s3.body(result.key), result.key)
    other: dict[str, Any] = {field: "other"}
    changed = replace(stored, commits=(replace(stored.commits[0], **other),))
    rewrite(s3, result.key, replace(changed, job_id="other") if field == "job_id" else changed)
    with pytest.raises(mc.CommitRefused, match=told):
        job.commit()
    assert visible(s3) == {}


def test_a_plan_of_another_version_is_not_executed(s3: MemoryStore) -> None:
    """I2: the record names the plan and its ETag: one with other bytes is nobody's decision."""
    job = job_of({"a.csv": b"1"})
    with refusing(s3, "complete_upload", mc.StoreError), pytest.raises(mc.CommitIncomplete):
        job.commit()
    (plan,) = (key for key in control(s3) if "/_plan-" in key)
    s3.put(plan, s3.body(plan) + b" ", metadata=s3.head(plan).metadata)
    with pytest.raises(mc.CommitIncomplete, match="not the version"):
        mc.recover(DEST, job.id)
    assert visible(s3) == {}


def test_a_set_that_says_nothing_of_itself_is_known_by_its_metadata(s3: MemoryStore) -> None:
    """I2: job, task and attempt stand in the object's metadata too."""
    job = mc.start(DEST)
    result = committed_task(job, "1", {"a.csv": b"1"})
    stored = decode_pendingset(s3.body(result.key), result.key)
    rewrite(s3, result.key, replace(stored, extra_data={}))
    assert job.commit(expect=["1"]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}


OTHER = "0" * 32


def rewritten(
    s3: MemoryStore,
    result: TaskCommit,
    *,
    metadata: Mapping[str, str] | None = None,
    uuid: str | None = None,
) -> None:
    """Store a set once more: with other metadata, naming another job; "" is none."""
    document = orjson.loads(s3.body(result.key))
    document.pop("contentSha256", None)  # as Hadoop writes it
    if uuid is not None:
        del document["extraData"][EXTRA_JOB]
        if uuid:
            document["extraData"][EXTRA_JOB] = uuid
    kept = s3.attributes(result.key).metadata if metadata is None else metadata
    s3.put_object(result.key, orjson.dumps(document), metadata=kept)


def two_tasks(accept: Accept = "listing", track: Track = "memory") -> tuple[mc.Job, TaskCommit]:
    job = job_of({"a.csv": b"1"}, job_id="1", accept=accept, track=track)
    return job, committed_task(job, "2", {"b.csv": b"2"})


@pytest.mark.parametrize("spelt", [False, True], ids=["lost", "spelt otherwise by a proxy"])
@pytest.mark.parametrize("track", ["memory", "s3"])
def test_a_set_that_lost_its_metadata_is_known_by_its_body(
    s3: MemoryStore, track: Track, spelt: bool
) -> None:
    """It names the job as well: else nothing of that task would be published, and nobody told."""
    job, result = two_tasks(track=track)
    rewritten(s3, result, metadata={"Magic-Committer-Job": job.uuid} if spelt else {})
    assert job.commit().files == 2
    assert visible(s3) == {"t/a.csv": b"1", "t/b.csv": b"2"}


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_set_of_nobody_stops_the_commit(s3: MemoryStore, unreadable: bool) -> None:
    """It is named, and nothing is decided; without it the rest is committed."""
    job, result = two_tasks()
    if unreadable:
        s3.put_object(result.key, b"{")
    else:
        rewritten(s3, result, metadata={}, uuid="")
    with pytest.raises(mc.IncompleteJob, match="say nowhere whose they are") as caught:
        job.commit()
    assert result.key in str(caught.value)
    assert (job.state, visible(s3)) == ("running", {})
    s3.delete_object(result.key)
    assert job.commit().files == 1


@pytest.mark.parametrize("named", ["in metadata", "in the body", "in both", "with another id"])
def test_a_zombies_set_is_passed_over(s3: MemoryStore, named: str) -> None:
    """A run under the same given id wrote it, or another job whose set has lost its metadata: by
    its UUID it is that run's, wherever it stands, and no reason to refuse the job."""
    job, result = two_tasks()
    metadata = {} if named in ("in the body", "with another id") else {JOB_METADATA: OTHER}
    rewritten(s3, result, metadata=metadata, uuid="" if named == "in metadata" else OTHER)
    if named == "with another id":
        document = orjson.loads(s3.body(result.key))
        document["jobId"] = document["commits"][0]["jobId"] = "another"
        s3.put_object(result.key, orjson.dumps(document))
    assert job.commit().files == 1
    assert visible(s3) == {"t/a.csv": b"1"}


def test_a_set_of_ours_that_names_no_task_is_refused(s3: MemoryStore) -> None:
    """I2: which task it is an attempt of is not guessed: nothing is published."""
    job, result = two_tasks()
    document = orjson.loads(s3.body(result.key))
    del document["contentSha256"], document["extraData"][EXTRA_TASK]
    s3.put_object(result.key, orjson.dumps(document), metadata={JOB_METADATA: job.uuid})
    with pytest.raises(mc.CommitRefused, match="no task or no attempt"):
        job.commit()
    assert visible(s3) == {}


def test_a_set_of_two_names_is_no_set_of_a_task(s3: MemoryStore) -> None:
    """The object says that it is ours, its body names another job: the commit is refused, where it
    used to be passed over in silence."""
    job, result = two_tasks()
    rewritten(s3, result, uuid=OTHER)
    with pytest.raises(mc.CommitRefused, match="the object's metadata says"):
        job.commit()
    assert visible(s3) == {}


def test_a_job_of_results_needs_no_metadata_of_a_set(s3: MemoryStore) -> None:
    """Its driver was told which sets are its own; others in the directory do not concern it."""
    job = mc.start(DEST, job_id="1", accept="results", track="memory")
    result = committed_task(job, "1", {"a.csv": b"1"})
    stray = committed_task(job, "2", {"b.csv": b"2"})
    rewritten(s3, stray, metadata={}, uuid="")
    body = s3.body(result.key)
    s3.put_object(result.key, body, metadata={})
    assert job.commit([result]).files == 1


def test_a_look_at_a_commit_tells_of_a_set_of_nobody(s3: MemoryStore) -> None:
    """Who looks first sees what will stop the commit."""
    job, result = two_tasks()
    rewritten(s3, result, metadata={}, uuid="")
    prospect = job._committer().driver().look()
    assert [result.key in problem for problem in prospect.problems] == [True]
