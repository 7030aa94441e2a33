"""A commit's memory does not grow with the job."""

from __future__ import annotations

import tracemalloc

import magic_committer as mc
from magic_committer._wiring import register_store, unregister_store
from magic_committer.protocol.record import TaskCommit
from tests.scale.bucket_process import far_store

MiB = 1024**2
FILES_A_TASK = 30
"""With 100 it is the same, and takes eight minutes."""
PEAK_MAX = 64 * MiB


def commit_peak(tasks: int) -> int:
    """Peak of what Python allocates while a job of 30 files a task is committed, in bytes. The
    store lives in another process; the job is started and its tasks run before."""
    with far_store() as store:
        register_store(store)  # verbs by __getattr__
        try:
            job = mc.start("s3://bucket/t", track="memory", accept="results")
            results = [_task(job, number) for number in range(tasks)]
            tracemalloc.start()
            try:
                report = job.commit(results)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
                assert report.files == tasks * FILES_A_TASK
        finally:
            unregister_store(store)


def _task(job: mc.Job, number: int) -> TaskCommit:
    with job.task(number) as task:
        for n in range(FILES_A_TASK):
            with task.open(f"part-{number:05d}-{n:03d}.csv") as f:
                f.write(b"1")
    return task.result


def test_ten_times_the_files_take_hardly_more_memory() -> None:
    """3,000 files in 100 tasks are committed in 64 MiB at the peak, 30,000 in 1,000 tasks in less
    than 1.5 times what those took."""
    small, large = commit_peak(100), commit_peak(1000)
    assert small <= PEAK_MAX
    assert large < 1.5 * small, f"{small / MiB:.1f} MiB, then {large / MiB:.1f} MiB"
