"""Whose a pendingset is: one that lies in a job's directory and says nowhere whose it is is never
passed over in silence, for it may be the job's own (I2); one that says that it is another run's
always is."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
import pytest

import magic_committer as mc
from magic_committer.commit.ready import EXTRA_JOB, EXTRA_TASK
from magic_committer.options import Accept, Track
from magic_committer.protocol.record import JOB_METADATA, TaskCommit
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, committed_task, job_of, visible

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
    """A job with two committed tasks; the second one's result."""
    job = job_of({"a.csv": b"1"}, job_id="1", accept=accept, track=track)
    return job, committed_task(job, "2", {"b.csv": b"2"})


@pytest.mark.parametrize("track", ["memory", "s3"])
def test_a_set_that_lost_its_metadata_is_known_by_its_body(s3: MemoryStore, track: Track) -> None:
    """It names the job as well: all is published."""
    job, result = two_tasks(track=track)
    rewritten(s3, result, metadata={})
    assert job.commit().files == 2
    assert visible(s3) == {"t/a.csv": b"1", "t/b.csv": b"2"}


def test_metadata_of_another_spelling_is_no_reason_to_publish_a_part(s3: MemoryStore) -> None:
    """A proxy writes ``Magic-Committer-Job``: without the body nothing of that task would be
    published, and nobody would be told."""
    job, result = two_tasks()
    rewritten(s3, result, metadata={"Magic-Committer-Job": job.uuid})
    assert job.commit().files == 2


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_set_of_nobody_stops_the_commit(s3: MemoryStore, unreadable: bool) -> None:
    """Neither published nor passed over: it is named, nothing is decided; once it is gone the rest
    is committed."""
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


@pytest.mark.parametrize("named", ["in metadata", "in the body", "in both"])
def test_a_zombies_set_is_passed_over(s3: MemoryStore, named: str) -> None:
    """A run under the same given id wrote it: by its UUID it is that run's, wherever it stands."""
    job, result = two_tasks()
    metadata = {} if named == "in the body" else {JOB_METADATA: OTHER}
    rewritten(s3, result, metadata=metadata, uuid="" if named == "in metadata" else OTHER)
    assert job.commit().files == 1
    assert visible(s3) == {"t/a.csv": b"1"}


def test_a_set_of_another_job_is_passed_over_by_its_body(s3: MemoryStore) -> None:
    """A set of another id that lies in the job's directory and has lost its metadata is not the
    job's, and is no reason to refuse the job."""
    job, result = two_tasks()
    document = orjson.loads(s3.body(result.key))
    del document["contentSha256"]
    document["jobId"] = document["commits"][0]["jobId"] = "another"
    document["extraData"][EXTRA_JOB] = OTHER
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
