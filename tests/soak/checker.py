"""Reads a bucket from outside, by S3's own client, and says what is not as it should be."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from magic_committer.options import S3Options
from tests.real_servers.server import outside
from tests.soak.jobs import BLOCKS
from tests.soak.plan import Round

TOKEN = re.compile(r"-mcj[0-9a-f]{32}\.txt\Z")


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
        self._bucket = bucket
        self._client = outside(url, s3)

    def look(self, dest: str) -> Found:
        """All that is below a destination, of every kind."""
        found = Found()
        for entry in self._pages("list_objects_v2", "Contents", f"{dest}/"):
            name = entry["Key"].removeprefix(f"{dest}/")
            if name == "_SUCCESS":
                found.marked = True
            elif not name.startswith("__magic"):
                found.files[TOKEN.sub("", name)] = entry["ETag"].strip('"')
            elif not self._is_closed(entry["Key"]):
                found.control.append(entry["Key"])
        found.uploads = self.open_uploads(f"{dest}/")
        return found

    def open_uploads(self, prefix: str) -> list[str]:
        """Keys of the open uploads below a prefix; a page at most, which is enough to tell."""
        reply = self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix)
        return [upload["Key"] for upload in reply.get("Uploads", [])]

    def _is_closed(self, key: str) -> bool:
        if not key.endswith("/_job.json"):
            return False
        body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return bool(json.loads(body)["state"] == "closed")

    def _pages(self, verb: str, what: str, prefix: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator(verb).paginate(Bucket=self._bucket, Prefix=prefix)
        for page in pages:
            yield from page.get(what, [])


def expected(job: Round) -> dict[str, str]:
    """Names and ETags of a committed job's files."""
    return {name: _etag(body) for name, body in job.contents().items()}


def before(job: Round) -> dict[str, str]:
    """Names and ETags of what was there before the job."""
    return {name: hashlib.md5(body).hexdigest() for name, body in job.old.items()}


def _etag(body: bytes) -> str:
    size = BLOCKS.block_bytes
    parts = [body[start : start + size] for start in range(0, len(body), size)] or [b""]
    digests = b"".join(hashlib.md5(part).digest() for part in parts)
    return f"{hashlib.md5(digests).hexdigest()}-{len(parts)}"


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
