"""What the processes do that are killed, and those that end their jobs; any server."""

from __future__ import annotations

import magic_committer as mc
import magic_committer.stores.s3.client  # imported once, by the server that forks us
from magic_committer.filesystem import put
from magic_committer.stores.base import PART_BYTES_MIN
from magic_committer.upload import stream
from tests.kills.drivers import content, name, write_tasks
from tests.real_servers.server import options

__all__ = ["FILES", "abort", "content", "drive", "name", "promote", "recover", "write_tasks"]

FILES = 300


def drive(url: str, dest: str) -> None:
    """A whole job: start, write, commit."""
    job = mc.start(dest, accept="results", track="memory", s3=options(url))
    job.commit(write_tasks(job, FILES))


def promote(url: str, source: str, dest: str) -> None:
    """Objects that are there already become a job. A part has the least bytes that it may have."""
    stream.COPY_PART_BYTES = PART_BYTES_MIN
    put.COPY_PART_BYTES = PART_BYTES_MIN  # type: ignore[attr-defined]
    with mc.write(dest, s3=options(url)) as job:
        job.copy(source, unique=True)


def recover(url: str, dest: str, job_id: str) -> None:
    """An operator who knows that the driver is dead."""
    mc.recover(dest, job_id, dead_after=0, s3=options(url))


def abort(url: str, dest: str, job_id: str) -> None:
    """An operator who wants it undone, as long as that can be."""
    try:
        mc.abort(dest, job_id, revert=True, s3=options(url))
    except mc.JobNotRunning:
        recover(url, dest, job_id)
