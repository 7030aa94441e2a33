"""A bucket as S3's own client sees it: nothing of the library is between a judge and the store."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from magic_committer.options import S3Options
from tests.servers import outside

TOKEN = re.compile(r"-mcj[0-9a-f]{32}(\.txt)?\Z")
"""What a job puts into the name of a file that is to be unique; with the suffix of these tests."""


def etag(body: bytes, block_bytes: int = 2**40) -> str:
    """The ETag of a file that was written in parts of so many bytes."""
    parts = [body[at : at + block_bytes] for at in range(0, len(body), block_bytes)] or [b""]
    digests = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"


def words(counts: Mapping[str, int]) -> str:
    """What was counted, for people."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


class Found(NamedTuple):
    """What lies below a destination: names without the job's token, and ETags; names of control
    objects; keys of open uploads; whether `_SUCCESS` is there."""

    files: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    control: tuple[str, ...] = ()
    uploads: tuple[str, ...] = ()
    marked: bool = False

    @property
    def left(self) -> tuple[str, ...]:
        """What is neither data nor its marker."""
        return self.control + self.uploads


class Outside:
    """One bucket.

    Attributes:
        client: S3's own.
    """

    def __init__(self, s3: S3Options, bucket: str) -> None:
        self.client = outside(s3)
        self._bucket = bucket

    def objects(self, dest: str = "") -> dict[str, str]:
        """Names below a destination and ETags of all objects there."""
        prefix = f"{dest}/" if dest else ""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix
        )
        return {
            one["Key"].removeprefix(prefix): one["ETag"].strip('"')
            for page in pages
            for one in page.get("Contents", ())
        }

    def files(self, dest: str = "") -> dict[str, str]:
        """Names, without the job's token, and ETags of what readers see."""
        return {
            TOKEN.sub("", name): etag
            for name, etag in self.objects(dest).items()
            if not name.startswith(("_", "."))
        }

    def uploads(self, dest: str = "") -> list[str]:
        """Keys of the open uploads below a destination; a page at most, which is enough to tell."""
        prefix = f"{dest}/" if dest else ""
        listed = self.client.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix)
        return [upload["Key"] for upload in listed.get("Uploads", ())]

    def control(self, dest: str = "", *, closed: bool = False) -> list[str]:
        """Names of the committer's objects, but for a query's ledger; with ``closed`` also those of
        closed records."""
        return [
            name
            for name in self.objects(dest)
            if name.startswith("__magic") and not name.startswith("__magic_stream/")
            if closed or not self._is_closed(dest, name)
        ]

    def left(self, dest: str = "", *, closed: bool = False) -> list[str]:
        """What `control` names, and the keys of open uploads."""
        return self.control(dest, closed=closed) + self.uploads(dest)

    def look(self, dest: str, *, closed: bool = False) -> Found:
        """All that is below a destination, of every kind; closed records as of `control`."""
        control, uploads = self.control(dest, closed=closed), self.uploads(dest)
        marked = "_SUCCESS" in self.objects(dest)
        return Found(self.files(dest), tuple(control), tuple(uploads), marked)

    def body(self, dest: str, name: str) -> bytes:
        key = f"{dest}/{name}" if dest else name
        found: bytes = self.client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return found

    def empty(self, dest: str = "") -> None:
        """Delete all that is below a destination."""
        for name in self.objects(dest):
            self.client.delete_object(Bucket=self._bucket, Key=f"{dest}/{name}" if dest else name)

    def _is_closed(self, dest: str, name: str) -> bool:
        record = name.endswith("/_job.json")
        return record and json.loads(self.body(dest, name))["state"] == "closed"
