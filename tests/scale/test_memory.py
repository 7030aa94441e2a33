"""A commit's memory does not grow with the job."""

from __future__ import annotations

import tracemalloc

import magic_committer as mc
from magic_committer._wiring import register_store, unregister_store
from magic_committer.protocol.record import TaskCommit
from tests.scale.bucket_process import far_store

MiB = 1024**2
FILES_A_TASK = 30
"""Ten times as many files take a quarter of an hour."""
PEAK_MAX = 8 * MiB
TASK_MAX = 4 * 1024


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
    """3,000 files in 100 tasks are committed in 8 MiB at the peak; each task more, with its 30
    files, takes less than 4 KiB. A file that is held takes half of a KiB."""
    small, large = commit_peak(100), commit_peak(1000)
    assert small <= PEAK_MAX
    assert large - small < 900 * TASK_MAX, f"{small / MiB:.1f} MiB, then {large / MiB:.1f} MiB"
