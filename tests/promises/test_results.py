"""I2, I9: what a driver accepts is exactly what its tasks told it, and nothing like it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.errors import Unanswered
from magic_committer.options import Mode
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, At, committed_task, control, visible


def test_a_result_of_another_job_is_refused(s3: MemoryStore) -> None:
    """I2: the result of a task of another job raises, and the job goes on."""
    job, other = mc.start(DEST, accept="results"), mc.start(DEST, accept="results")
    mine = committed_task(job, "1", {"a.csv": b"1"})
    theirs = committed_task(other, "2", {"b.csv": b"2"})
    with pytest.raises(mc.OptionError, match="of another job"):
        job.commit([mine, theirs])
    assert job.commit([mine]).files == 1


@pytest.mark.parametrize("field", ["files", "bytes"])
def test_a_result_that_tells_of_other_files_refuses_the_job(s3: MemoryStore, field: str) -> None:
    """I2: files and bytes of a result are held against its pendingset."""
    job = mc.start(DEST, accept="results")
    result = committed_task(job, "1", {"a.csv": b"1"})
    told: dict[str, Any] = {field: 7}
    wrong = replace(result, **told)
    with pytest.raises(mc.CommitRefused, match="its task said"):
        job.commit([wrong])
    assert visible(s3) == {}


def test_a_result_whose_set_lies_elsewhere_refuses_the_job(s3: MemoryStore) -> None:
    """I2: a result's key is where its attempt's pendingset belongs, and nowhere else."""
    job = mc.start(DEST, accept="results")
    result = committed_task(job, "1", {"a.csv": b"1"})
    copied = f"{result.key}.pendingset"
    stored = s3.get(result.key, max_bytes=10**6)
    s3.put(copied, stored.body, metadata=stored.info.metadata)
    with pytest.raises(mc.CommitRefused, match="not where its pendingset belongs"):
        job.commit([replace(result, key=copied)])
    assert visible(s3) == {}


def test_a_check_that_another_driver_made_fail_tells_of_its_commit(s3: MemoryStore) -> None:
    """I10: another driver commits between our look at the record and our checks: its uploads are
    not open any more, and we say "committed", as it did."""
    job = mc.start(DEST)
    result = committed_task(job, "1", {"a.csv": b"1"})
    rival = mc.attach(DEST, job.id)
    at = At(s3, lambda r: r.verb == "list_uploads", lambda: rival.commit([result]))
    assert job.commit([result]).outcome == "committed"
    assert at.done
    assert visible(s3) == {"t/a.csv": b"1"}


def test_the_plan_of_a_swap_that_an_executor_moved_on_stays(s3: MemoryStore) -> None:
    """I5: our swap won, its reply was lost, and another executes our plan: it is not deleted."""
    job = mc.start(DEST)
    committed_task(job, "1", {"a.csv": b"1"})
    rival = mc.attach(DEST, job.id)
    plans: list[str] = []

    def rival_completes() -> None:
        crash = At(s3, lambda r: (r.verb, r.key) == ("put", "t/_SUCCESS"), _stop)
        with pytest.raises(_Stopped):
            rival.commit()
        assert crash.done
        plans.extend(key for key in control(s3) if "plan-" in key)
        raise Unanswered("the reply of our swap")

    def swap_to_committing(request: object) -> bool:
        return _is_decision(s3, job)

    At(s3, swap_to_committing, rival_completes, after=True)
    assert job.commit().outcome == "committed"
    assert len(plans) == 1
    assert visible(s3) == {"t/a.csv": b"1"}
    assert "t/_SUCCESS" in s3.keys()


class _Stopped(BaseException):
    """The process is gone."""


def _stop() -> None:
    raise _Stopped


def _is_decision(s3: MemoryStore, job: mc.Job) -> bool:
    return b'"committing"' in s3.body(f"t/__magic_job-{job.id}/job.json")


@pytest.mark.parametrize("mode", ["replace", "replace_partitions"])
def test_a_replace_that_writes_the_same_bytes_again_keeps_them(s3: MemoryStore, mode: Mode) -> None:
    """I7: a file that the job rewrites with the same bytes has the ETag of the old one; it is
    rewritten, so it is not deleted."""
    for _ in range(2):
        with mc.write(DEST, mode=mode) as job, job.open("a.csv", unique=False) as f:
            f.write(b"1")
    assert visible(s3) == {"t/a.csv": b"1"}
