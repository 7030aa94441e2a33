"""What the processes do that are killed, and those that recover; on any server, to which ``way``
leads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import magic_committer as mc
import magic_committer.stores.s3.client  # imported once, by the server that forks us

PRELOADED = ["tests.kills.drivers", "tests.kills.test_disk_kills", "tests.real_servers.server"]
"""What the server that forks processes imports once, whichever test starts it."""

FILES = 200
TASKS = 4
Way = Callable[[str], mc.S3Options]


def name(number: int) -> str:
    """A file's name, without the job's token."""
    return f"dt={number % 3}/part-{number:03d}"


def content(number: int) -> bytes:
    return f"file {number}\n".encode()


def write_task(job: mc.Job, task: int, files: int) -> mc.TaskCommit:
    """One task: every fourth file."""
    with job.task(task) as attempt:
        for number in range(task, files, TASKS):
            with attempt.open(f"{name(number)}.txt", unique=True) as file:
                file.write(content(number))
    return attempt.result


def write_tasks(job: mc.Job, files: int = FILES) -> list[mc.TaskCommit]:
    """All the job's tasks, beside each other."""
    with ThreadPoolExecutor(TASKS) as threads:
        return list(threads.map(lambda task: write_task(job, task, files), range(TASKS)))


def drive(way: Way, url: str, dest: str, files: str = str(FILES)) -> None:
    job = mc.start(dest, accept="results", track="memory", s3=way(url))
    job.commit(write_tasks(job, int(files)))


def commit(way: Way, url: str, dest: str, job_id: str) -> None:
    """A driver of a job that is written already."""
    mc.attach(dest, job_id, s3=way(url)).commit(expect=TASKS)


def recover(way: Way, url: str, dest: str, job_id: str) -> None:
    """An operator who knows that the driver is dead."""
    mc.recover(dest, job_id, dead_after=0, s3=way(url))


def abort(way: Way, url: str, dest: str, job_id: str) -> None:
    """An operator who wants it undone, as long as that can be."""
    try:
        mc.abort(dest, job_id, revert=True, s3=way(url))
    except mc.JobNotRunning:
        recover(way, url, dest, job_id)


def cleanup(way: Way, url: str, dest: str, job_id: str) -> None:
    """A cron job for which everything is old."""
    s3 = way(url)
    report = mc.cleanup(dest, dead_after=0, leftover_after=0, forget_after=0, s3=s3)
    assert report.errors == ()
