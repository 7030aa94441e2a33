"""Reads a bucket from outside, by S3's own client, and says what is not as it should be."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field

from magic_committer.options import S3Options
from tests.outside import Outside, etag
from tests.real_servers.server import options
from tests.soak.jobs import BLOCKS
from tests.soak.plan import Round


@dataclass
class Found:
    """What lies below a destination.

    Attributes:
        files: names without the job's token, and ETags.
        control: keys of control objects that are no closed record.
        uploads: keys of open uploads.
    """

    files: dict[str, str] = field(default_factory=dict)
    control: list[str] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)
    marked: bool = False


class Checker:
    """An eye on one bucket."""

    def __init__(self, url: str, bucket: str, s3: S3Options | None = None) -> None:
        self._bucket = Outside(s3 or options(url), bucket)

    def look(self, dest: str) -> Found:
        """All that is below a destination, of every kind."""
        bucket = self._bucket
        marked = "_SUCCESS" in bucket.objects(dest)
        return Found(bucket.files(dest), bucket.control(dest), bucket.uploads(dest), marked)


def expected(job: Round) -> dict[str, str]:
    """Names and ETags of a committed job's files."""
    return {name: etag(body, BLOCKS.block_bytes) for name, body in job.contents().items()}


def before(job: Round) -> dict[str, str]:
    """Names and ETags of what was there before the job."""
    return {name: hashlib.md5(body).hexdigest() for name, body in job.old.items()}


def lies(told: str, found: Found, job: Round, lost: Collection[str] = ()) -> str:
    """What is not as it was told; "" if all is true. Pure.

    Args:
        told: the job's outcome at the end; "" if nobody was told one: then all or nothing is true;
            ``unresolved``: committed, but for the files in ``lost``.
    """
    new, old = expected(job), before(job)
    none = found.files == old and not found.marked
    whole = found.files == new and found.marked
    if told == "unresolved":
        missing = {name for name in new if found.files.get(name) != new[name]}
        return (
            "" if missing <= set(lost) else f"missing, and not told as lost: {missing - set(lost)}"
        )
    true = {"committed": whole, "": whole or none}.get(told, none)
    if true:
        return ""
    gone = len(new.keys() - found.files.keys())
    return (
        f"told {told or 'nothing'!r}: of {len(new)} new files {gone} are missing, of {len(old)}"
        f" old ones {len(old.keys() - found.files.keys())}; _SUCCESS: {found.marked}"
    )
