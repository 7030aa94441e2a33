"""I6: ``exclusive`` takes every upload under the destination, unless somebody else lives there."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import magic_committer as mc
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, At, committed_task, visible


class Stopped(BaseException):
    """The process is gone."""


def exclusive(s3: MemoryStore) -> mc.Job:
    """A job that says that nobody else writes there, ready to commit."""
    job = mc.start(DEST, exclusive=True)
    committed_task(job, "1", {"mine.csv": b"1"})
    return job


def sweeping(s3: MemoryStore, job: mc.Job) -> Callable[[Request], bool]:
    """The listing of uploads by the sweep of a job."""

    def fits(request: Request) -> bool:
        record = json.loads(s3.body(f"t/__magic_job-{job.id}/_job.json"))
        return request.verb == "list_uploads" and record["state"] == "completed"

    return fits


def test_a_job_that_is_set_up_during_the_sweep_keeps_its_uploads(s3: MemoryStore) -> None:
    """I6: a job is set up right before the uploads are listed: its record is read after them, so
    its uploads are seen to be a live job's."""
    job = exclusive(s3)
    others: list[tuple[mc.Job, mc.TaskCommit]] = []

    def another_starts() -> None:
        other = mc.start(DEST)
        others.append((other, committed_task(other, "1", {"theirs.csv": b"2"})))

    at = At(s3, sweeping(s3, job), another_starts)
    report = job.commit()
    assert at.done
    assert "not swept exclusively" in report.warnings[0]
    ((other, result),) = others
    other.commit([result])
    assert set(visible(s3)) == {"t/mine.csv", "t/theirs.csv"}


def test_exclusive_yields_to_a_job_that_is_decided(s3: MemoryStore) -> None:
    """I6: a job that is committing has uploads that its record names: they are left."""
    other = mc.start(DEST)
    committed_task(other, "1", {"theirs.csv": b"2"})

    def dies() -> None:
        raise Stopped

    At(s3, lambda r: r.verb == "complete_upload", dies)
    with pytest.raises(Stopped):
        other.commit()
    s3.before = None
    exclusive(s3).commit()
    assert mc.recover(DEST, other.id).outcome == "committed"
    assert set(visible(s3)) == {"t/mine.csv", "t/theirs.csv"}


def test_exclusive_yields_where_a_record_cannot_be_read(s3: MemoryStore) -> None:
    """I6: a record of a newer version may be a live job's: every other upload is left."""
    s3.put_object("t/__magic_job-newer/_job.json", b'{"version": 99}')
    theirs = s3.start_upload("t/theirs.csv")
    report = exclusive(s3).commit()
    assert "not swept exclusively" in report.warnings[0]
    assert [upload.upload_id for upload in s3.open_uploads()] == [theirs]
