"""What the processes do that are killed, and those that end their jobs; any server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import magic_committer as mc
import magic_committer.s3.client  # imported once, by the server that forks us
from tests.real_servers.server import options

FILES = 300
TASKS = 4


def name(number: int) -> str:
    """A file's name, without the job's token."""
    return f"dt={number % 3}/part-{number:03d}"


def content(number: int) -> bytes:
    """A file's bytes."""
    return f"file {number}\n".encode()


def write_tasks(job: mc.Job, files: int = FILES) -> list[mc.TaskCommit]:
    """All the job's tasks, beside each other; each has every fourth file."""

    def write(task: int) -> mc.TaskCommit:
        with job.task(task) as attempt:
            for number in range(task, files, TASKS):
                with attempt.open(f"{name(number)}.txt", unique=True) as file:
                    file.write(content(number))
        return attempt.result

    with ThreadPoolExecutor(TASKS) as threads:
        return list(threads.map(write, range(TASKS)))


def drive(url: str, dest: str) -> None:
    """A whole job: start, write, commit."""
    job = mc.start(dest, accept="results", track="memory", s3=options(url))
    job.commit(write_tasks(job))


def recover(url: str, dest: str, job_id: str) -> None:
    """An operator who knows that the driver is dead."""
    mc.recover(dest, job_id, older_than=0, s3=options(url))


def abort(url: str, dest: str, job_id: str) -> None:
    """An operator who wants it undone, as long as that can be."""
    try:
        mc.abort(dest, job_id, revert=True, s3=options(url))
    except mc.JobNotRunning:
        recover(url, dest, job_id)
