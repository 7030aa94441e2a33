"""What the processes do that are killed, and those that recover."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import magic_committer as mc
import magic_committer.stores.s3.client  # imported once, by the server that forks us
from tests.servers import moto_options

PRELOADED = ["tests.kills.drivers", "tests.kills.test_disk_kills"]
"""What the server that forks processes imports once, whichever test starts it."""

FILES = 200
TASKS = 4


def name(number: int) -> str:
    """A file's name, without the job's token."""
    return f"dt={number % 3}/part-{number:03d}"


def content(number: int) -> bytes:
    """A file's bytes."""
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


def drive(url: str, dest: str) -> None:
    """A whole job: start, write, commit."""
    job = mc.start(dest, accept="results", track="memory", s3=moto_options(url))
    job.commit(write_tasks(job))


def commit(url: str, dest: str, job_id: str) -> None:
    """A driver of a job that is written already."""
    mc.attach(dest, job_id, s3=moto_options(url)).commit(expect=TASKS)


def recover(url: str, dest: str, job_id: str) -> None:
    """An operator who knows that the driver is dead."""
    mc.recover(dest, job_id, dead_after=0, s3=moto_options(url))


def abort(url: str, dest: str, job_id: str) -> None:
    """An operator who wants it undone, as long as that can be."""
    try:
        mc.abort(dest, job_id, revert=True, s3=moto_options(url))
    except mc.JobNotRunning:
        recover(url, dest, job_id)


def cleanup(url: str, dest: str, job_id: str) -> None:
    """A cron job for which everything is old."""
    report = mc.cleanup(
        dest,
        dead_after=0,
        leftover_after=0,
        forget_after=0,
        s3=moto_options(url),
    )
    assert report.errors == ()
