"""What the tests of this folder look at, and what their tasks wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pyarrow
import pyarrow.parquet
from pyspark import TaskContext
from pyspark.sql import SparkSession

from magic_committer.options import Options
from tools import java

BUCKET = "lake"
PATIENCE_SECONDS = 300.0
HALF_A_BLOCK = "\n" * (Options().block_bytes // 2)
"""What a task writes so that the file's upload is created before it is closed: a small file sends
nothing before its close."""
LOOK_SECONDS = 0.02


class Place:
    """A destination of one test: what anybody finds there. ``dest``: its URL."""

    dest: str

    def keys(self) -> list[str]:
        """All keys under the destination, control objects too, relative to it."""
        raise NotImplementedError

    def read(self, key: str) -> bytes:
        """One object's bytes."""
        raise NotImplementedError

    def put(self, key: str) -> None:
        """Another program writes an empty file."""
        raise NotImplementedError

    def open_uploads(self) -> list[str]:
        """Keys of the uploads under the destination that are neither completed nor aborted."""
        return []

    def shows_uploads(self, count: int) -> list[str]:
        """`open_uploads`, as soon as there are so many: a Create is sent beside the writer."""
        return []

    def data(self) -> dict[str, bytes]:
        """Name and bytes of what a reader finds."""
        return {key: self.read(key) for key in self.keys() if not key.startswith(("_", "."))}

    def hidden(self) -> list[str]:
        """The keys that a reader passes over: the marker, and control objects."""
        return [key for key in self.keys() if key.startswith(("_", "."))]

    def tables(self) -> list[pyarrow.Table]:
        """All Parquet files, in the order of their names, one table each."""
        return [pyarrow.parquet.read_table(BytesIO(body)) for body in self.data().values()]

    def ids(self) -> list[int]:
        """What a reader of Parquet finds in column ``id``."""
        return sorted(number for table in self.tables() for number in table["id"].to_pylist())

    def copied(self, where: Path) -> str:
        """The path of a new directory, to which the files are copied."""
        where.mkdir()
        for name, body in self.data().items():
            (where / name).write_bytes(body)
        return str(where)

    def is_untouched(self) -> bool:
        """Whether there is nothing at all: no data, no control object, no upload."""
        return self.keys() == [] and self.open_uploads() == []

    def becomes_untouched(self) -> bool:
        """As `is_untouched`, when the last tasks have ended: they may outlive their job, and clean
        up after themselves when they learn of its end. No data may be seen on the way."""

        def settled() -> bool:
            assert self.data() == {}
            return self.is_untouched()

        until(settled)
        return True


@dataclass(frozen=True)
class Lake(Place):
    """On S3, by a client of the server which is not the library's."""

    endpoint: str
    name: str

    @property
    def dest(self) -> str:  # type: ignore[override]
        return f"s3://{BUCKET}/{self.name}"

    @property
    def client(self) -> Any:
        return _client(self.endpoint)

    def keys(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=BUCKET, Prefix=f"{self.name}/").search("Contents[].Key")
        return sorted(key.removeprefix(f"{self.name}/") for key in found if key)

    def read(self, key: str) -> bytes:
        found = self.client.get_object(Bucket=BUCKET, Key=f"{self.name}/{key}")
        body: bytes = found["Body"].read()
        return body

    def put(self, key: str) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"{self.name}/{key}", Body=b"")

    def open_uploads(self) -> list[str]:
        found = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{self.name}/")
        return sorted(one["Key"].removeprefix(f"{self.name}/") for one in found.get("Uploads", ()))

    def shows_uploads(self, count: int) -> list[str]:
        until(lambda: len(self.open_uploads()) >= count)
        return self.open_uploads()


@dataclass(frozen=True)
class Disk(Place):
    """On a local disk, which has no uploads."""

    root: Path

    @property
    def dest(self) -> str:  # type: ignore[override]
        return self.root.as_uri()

    def keys(self) -> list[str]:
        found = (path for path in self.root.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.root)) for path in found)

    def read(self, key: str) -> bytes:
        return (self.root / key).read_bytes()

    def put(self, key: str) -> None:
        (self.root / key).parent.mkdir(parents=True, exist_ok=True)
        (self.root / key).touch()


@cache
def _client(endpoint: str) -> Any:
    """One client for all looks: to make one costs more than a look."""
    return boto3.client("s3", endpoint_url=endpoint)


@dataclass(frozen=True)
class Gate:
    """Where tasks and the test wait for each other, and leave notes for it: a directory, so that it
    travels, and that the notes of a killed process last."""

    directory: str

    def wait(self, name: str) -> None:
        """Wait until `open` was called with that name, by anyone."""
        until(lambda: Path(self.directory, f"{name}.open").exists())

    def open(self, name: str) -> None:
        """Let everyone pass who waits there, and who comes."""
        Path(self.directory, f"{name}.open").touch()

    def first(self, name: str) -> bool:
        """Whether nobody has asked this before. With speculation that need not be attempt 0: its
        twin may be faster."""
        try:
            Path(self.directory, f"{name}.first").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def note(self, name: str, text: object = "") -> None:
        """Add a line to the notes of that name."""
        with Path(self.directory, f"{name}.notes").open("a") as file:
            file.write(f"{text}\n")

    def notes(self, name: str, count: int = 0) -> list[str]:
        """The lines noted, in their order, once there are ``count`` of them."""
        path = Path(self.directory, f"{name}.notes")
        until(lambda: count == 0 or (path.exists() and path.read_text().count("\n") >= count))
        return path.read_text().splitlines() if path.exists() else []


def attempt_number() -> int:
    """Spark's number of the attempt that runs here: 0 for the first of a run of its stage."""
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


SOON = " ".join(option for option in java.SMALL if not option.startswith("-Xmx"))
SETTINGS = {
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.extraJavaOptions": SOON,
    "spark.executor.extraJavaOptions": SOON,
}  # fmt: skip
"""Of sessions on this machine, without a page for people. Their JVMs live for minutes, in which the
second compiler takes twice as much as all else."""


def builder(master: str) -> Any:
    """What builds a session on this machine."""
    made: Any = SparkSession.builder
    return made.master(master).config(map=SETTINGS)


def until(holds: Callable[[], bool]) -> None:
    """Look until something holds; a TimeoutError if it never does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_SECONDS} s")
        time.sleep(LOOK_SECONDS)
