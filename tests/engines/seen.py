"""What others see of a bucket; and a worker that is killed once."""

from __future__ import annotations

import io
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq

PATIENCE_SECONDS = 500.0
"""For what another process does, on however busy a machine: no test is of speed."""


@dataclass(frozen=True)
class Bucket:
    """The bucket ``bucket``, by S3's own client."""

    client: Any

    def keys(self, prefix: str) -> list[str]:
        """All keys below a prefix."""
        found = self.client.list_objects_v2(Bucket="bucket", Prefix=f"{prefix}/")
        return sorted(one["Key"] for one in found.get("Contents", []))

    def data(self, prefix: str) -> list[str]:
        """The names that readers see, without the UUID of the job."""
        names = [key.removeprefix(f"{prefix}/") for key in self.keys(prefix)]
        shown = [name for name in names if not name.startswith(("_", "."))]
        return sorted(re.sub(r"-mcj[0-9a-f]{32}", "", name) for name in shown)

    def open_uploads(self, prefix: str) -> list[str]:
        """The keys of open uploads."""
        return self.open_beginning(f"{prefix}/")

    def open_beginning(self, start: str) -> list[str]:
        """The keys of open uploads that begin so."""
        found = self.client.list_multipart_uploads(Bucket="bucket", Prefix=start)
        return [one["Key"] for one in found.get("Uploads", [])]

    def left(self, prefix: str) -> list[str]:
        """What a write that failed may not leave: data, and open uploads."""
        return [*self.data(prefix), *self.open_uploads(prefix)]

    def column(self, prefix: str, column: str) -> list[Any]:
        """A column of all Parquet files, sorted."""
        found: list[Any] = []
        for key in self.keys(prefix):
            if key.endswith(".parquet"):
                body = self.client.get_object(Bucket="bucket", Key=key)["Body"].read()
                found += pq.read_table(io.BytesIO(body))[column].to_pylist()
        return sorted(found)


def until_open(start: str) -> None:
    """Wait until the store knows an open upload whose key begins so: Create is sent beside the
    writer. In any process, by its environment."""
    bucket = Bucket(boto3.client("s3"))
    end = time.monotonic() + PATIENCE_SECONDS
    while not bucket.open_beginning(start):
        assert time.monotonic() < end, f"no upload is open that begins with {start}"
        time.sleep(0.05)


def die() -> None:
    """Kill this process by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_once(mark: str) -> None:
    """Kill this process by SIGKILL, the first time. ``mark`` is a file that is not there yet."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return
    die()
