"""What the processes do that are killed, and those that end their jobs; any server."""

from __future__ import annotations

import magic_committer as mc
import magic_committer.stores.s3.client  # imported once, by the server that forks us
from tests.kills.drivers import content, name, write_tasks
from tests.real_servers.server import options

__all__ = ["FILES", "abort", "content", "drive", "name", "recover", "write_tasks"]

FILES = 300


def drive(url: str, dest: str) -> None:
    """A whole job: start, write, commit."""
    job = mc.start(dest, accept="results", track="memory", s3=options(url))
    job.commit(write_tasks(job, FILES))


def recover(url: str, dest: str, job_id: str) -> None:
    """An operator who knows that the driver is dead."""
    mc.recover(dest, job_id, dead_after=0, s3=options(url))


def abort(url: str, dest: str, job_id: str) -> None:
    """An operator who wants it undone, as long as that can be."""
    try:
        mc.abort(dest, job_id, revert=True, s3=options(url))
    except mc.JobNotRunning:
        recover(url, dest, job_id)
