"""What anybody sees of the bucket that Hadoop and we write to: S3's own client, none of ours."""

from __future__ import annotations

from typing import Any

from tests.real_servers import versitygw
from tests.servers import outside

BUCKET = "lake"


class Lake:
    """The bucket. ``url``: of the server. client: boto3's."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = outside(versitygw.options(url))

    def keys(self, dest: str) -> list[str]:
        """All keys below a destination, without the markers of directories."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix=f"{dest}/"
        )
        keys = (one["Key"] for page in pages for one in page.get("Contents", ()))
        return sorted(key for key in keys if not key.endswith("/"))

    def read(self, key: str) -> bytes:
        body: bytes = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return body

    def visible(self, dest: str) -> dict[str, bytes]:
        """Key and content of what a reader of the table finds."""
        strip = len(dest) + 1
        return {k: self.read(k) for k in self.keys(dest) if k[strip] not in "_."}

    def control(self, dest: str) -> list[str]:
        """Keys of control objects, `_SUCCESS` not among them."""
        return [key for key in self.keys(dest) if "/__magic" in key]

    def open_uploads(self, dest: str) -> list[str]:
        """Keys of open uploads below a destination."""
        found = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{dest}/")
        return sorted(one["Key"] for one in found.get("Uploads", ()))

    def everything(self, dest: str) -> tuple[dict[str, bytes], list[str]]:
        return {key: self.read(key) for key in self.keys(dest)}, self.open_uploads(dest)
