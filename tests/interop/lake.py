"""What anybody sees of the bucket that Hadoop and we write to: S3's own client, none of ours."""

from __future__ import annotations

from tests.outside import Outside
from tests.real_servers.server import options

BUCKET = "lake"


class Lake:
    """The bucket. ``url``: of the server. client: boto3's."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._bucket = Outside(options(url), BUCKET)
        self.client = self._bucket.client

    def keys(self, dest: str) -> list[str]:
        """All keys below a destination, without the markers of directories."""
        names = self._bucket.objects(dest)
        return sorted(f"{dest}/{name}" for name in names if name and not name.endswith("/"))

    def read(self, key: str) -> bytes:
        return self._bucket.body("", key)

    def visible(self, dest: str) -> dict[str, bytes]:
        """Key and content of what a reader of the table finds."""
        strip = len(dest) + 1
        return {k: self.read(k) for k in self.keys(dest) if k[strip] not in "_."}

    def control(self, dest: str) -> list[str]:
        """Keys of control objects, `_SUCCESS` not among them."""
        return [key for key in self.keys(dest) if "/__magic" in key]

    def open_uploads(self, dest: str) -> list[str]:
        """Keys of open uploads below a destination."""
        return sorted(self._bucket.uploads(dest))

    def everything(self, dest: str) -> tuple[dict[str, bytes], list[str]]:
        return {key: self.read(key) for key in self.keys(dest)}, self.open_uploads(dest)
