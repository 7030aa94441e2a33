"""What a process does that is killed while it promotes: objects that are there become a job."""

from __future__ import annotations

import magic_committer as mc
from magic_committer.filesystem import put
from magic_committer.stores.base import PART_BYTES_MIN
from magic_committer.upload import stream
from tests.kills.drivers import Way


def promote(way: Way, url: str, source: str, dest: str) -> None:
    """A part has the least bytes that it may have."""
    stream.COPY_PART_BYTES = PART_BYTES_MIN
    put.COPY_PART_BYTES = PART_BYTES_MIN  # type: ignore[attr-defined]
    with mc.write(dest, s3=way(url)) as job:
        job.copy(source, unique=True)
