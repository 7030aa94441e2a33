"""`write_dataframe` with ``via=``: Spark's own writer encodes, our tasks upload its files.

To hand rows to Python costs more than the JVM's whole Parquet write, and what Python encodes is
only nearly Spark's file. So Spark writes into a scratch directory that driver and executors share
(`scratch`), with each format, option and type that it has. Then a second Spark job uploads the
files, and our job commits.

Invariants:

* What is uploaded is what Spark's writer committed. A directory that an executor does not share
  loses that executor's files, and Spark tells no error. Therefore the number of files that are
  there, and their bytes, must be what Spark's tasks counted.
* A file is uploaded as it was listed, or not at all: size and time are compared before and after it
  is read (`Staging.read`).
* Files of an attempt that failed are never in the listing: Spark's writer is told to move files
  into place when a task commits and when the job commits (Hadoop's algorithm 1), not before.
* The scratch directory goes when the files are uploaded, or when anything failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heapreplace
from math import ceil
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from magic_committer.errors import MagicError, OptionError, WrongType
from magic_committer.job import Job, Task
from magic_committer.protocol.record import JobReport, TaskCommit
from magic_committer.spark.driver import Order, run_action, write_job
from magic_committer.spark.files import CASE_SENSITIVE
from magic_committer.spark.partitioning import resolve
from magic_committer.spark.scratch import ScratchPlace, StagedFile, Staging, remove_dead
from magic_committer.spark.types import needs
from magic_committer.spark.worker import from_messages, spark_attempt, to_message

FORMATS = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
"""Spark's own formats whose output is files, and nothing but files."""
GROUP_BYTES = 1024**3
"""Bytes that a task uploads at most, unless one file has more: what a failed task does again."""
GROUP_FILES = 500
"""Files that a task uploads at most."""
READ_BYTES = 4 * 1024**2
"""Bytes that are read from a file at a time."""
CHECK_TASKS_MAX = 1000
"""Tasks that look for the directory before the job starts: one for each core, at most these."""
NAMED_WRONG_MAX = 5
"""Executors that an error names."""

OURS = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
"""What the committer of Spark's writer is told, whatever the session says."""
REFUSED = ("path", *OURS)
"""Options that would lead Spark's writer elsewhere."""

_SPARKS_UUID = re.compile(r"(part-\d+-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=[-_.])")


@dataclass(frozen=True)
class Layout:
    """How Spark's writer writes. Checked where it is made.

    Attributes:
        format: one of `FORMATS`, in lower case.
        options: Spark's options for that format.
        partition_by: columns that become directories.
        max_records_per_file: rows after which a task begins another file; None: no limit.
        sort_by: columns by which the rows of each file are sorted.
    """

    format: str
    options: Mapping[str, Any]
    partition_by: tuple[str, ...] = ()
    max_records_per_file: int | None = None
    sort_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise OptionError(
                f"via= does not know the format {self.format!r}; it knows {', '.join(FORMATS)}"
            )
        rows = self.max_records_per_file
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise OptionError(f"max_records_per_file={rows!r} is not a number of rows, 1 or more")
        for name, value in self.options.items():
            if name.lower() in REFUSED:
                raise OptionError(f"the option {name!r} is the library's own when via= is used")
            if not (value is None or isinstance(value, str | bool | int | float)):
                raise OptionError(
                    f"the option {name}={value!r} is neither text, nor a number, nor a bool",
                    hint="With via= the options are those of Spark's own writer",
                )
        hidden = [name for name in self.partition_by if name.startswith(("_", "."))]
        if hidden:
            raise OptionError(
                f"partition_by: {', '.join(hidden)}: readers take directories whose names begin"
                " with _ or . for hidden ones",
                hint="Rename the column: df.withColumnRenamed(...)",
            )


def layout_of(
    df: DataFrame,
    format: str,
    options: Mapping[str, Any] | None,
    partition_by: Sequence[str],
    sort_by: Sequence[str],
    max_records_per_file: int | None,
) -> Layout:
    """Check the arguments of `write_dataframe` that say how files are written.

    Raises:
        WrongType, OptionError: one of them cannot be used. Nothing was started.
    """
    if not isinstance(format, str):
        raise WrongType(f"format is a text, not {format!r}", hint="Pass format='parquet'")
    exact = df.sparkSession.conf.get(CASE_SENSITIVE, None) == "true"

    def named(names: Sequence[str], what: str) -> tuple[str, ...]:
        return tuple(df.columns[n] for n in resolve(names, df.columns, exact=exact, what=what))

    return Layout(
        format.lower(),
        dict(options or {}),
        named(partition_by, "partition_by"),
        max_records_per_file,
        named(sort_by, "sort_by"),
    )


@dataclass(frozen=True)
class Counted:
    """What Spark's tasks counted while they wrote.

    Attributes:
        files, bytes: of the tasks that Spark accepted.
    """

    files: int
    bytes: int


def write_staged(df: DataFrame, order: Order, via: str, layout: Layout) -> JobReport:
    """Write a DataFrame by Spark's own writer and a scratch directory.

    Raises:
        WrongType, OptionError: ``via`` cannot be used. Nothing was started.
        MagicError: the directory does not hold what Spark wrote. The job is aborted.

        What Spark raises. The job is aborted. Otherwise as `write_job`.
    """
    place = ScratchPlace.parse(via)
    if is_remote():
        raise OptionError(
            "via= needs classic Spark: with Spark Connect the driver and its files are elsewhere",
            hint="Leave via out",
        )
    needs((4, 1), "via=", "Call write_dataframe without it")
    place.check()

    def run_tasks(job: Job) -> tuple[list[TaskCommit], Iterable[str]]:
        scratch = Staging.make(place, job.uuid, job.dest)
        end_life = scratch.keep_alive()
        try:
            remove_dead(scratch)
            messages = _encode_and_upload(df, job, scratch, layout)
        finally:
            end_life()
            scratch.remove()
        return from_messages(messages), [str(number) for number in range(len(messages))]

    return write_job(order, run_tasks)


def _encode_and_upload(df: DataFrame, job: Job, scratch: Staging, layout: Layout) -> list[str]:
    context = df.sparkSession.sparkContext
    tag = f"magic-committer-{job.uuid}"
    if not context._jsc.sc().isLocal():
        _refuse_unshared(context, scratch, tag)
    written = run_action(context, tag, partial(encode, df, scratch.data_url, layout))
    files = scratch.staged()
    refuse_other_than(written, files, scratch)
    groups = balanced(files, context.defaultParallelism)
    if not groups:
        return []
    tasks = context.parallelize(groups, len(groups)).mapPartitions(StagedUpload(job, scratch))
    return list(run_action(context, tag, tasks.collect))


def _refuse_unshared(context: Any, scratch: Staging, tag: str) -> None:
    """See that executors see the directory. Not each executor need answer, and more may come: the
    tasks that upload look again, and what Spark counted must be there."""
    count = max(1, min(context.defaultParallelism, CHECK_TASKS_MAX))
    looks = context.parallelize(range(count), count).mapPartitions(SeesScratch(scratch))
    wrong = sorted(set(run_action(context, tag, looks.collect)))
    if wrong:
        more = f" and {len(wrong) - NAMED_WRONG_MAX} more" if len(wrong) > NAMED_WRONG_MAX else ""
        raise OptionError(
            f"via={scratch.place.url!r}: executors do not see the driver's directory:"
            f" {'; '.join(wrong[:NAMED_WRONG_MAX])}{more}",
            hint="Pass a directory that driver and executors share, as the same user; or leave via"
            " out",
        )


@dataclass(frozen=True)
class SeesScratch:
    """Runs in a Spark task: tells what is wrong with the directory there, or nothing."""

    scratch: Staging

    def __call__(self, rows: Iterable[int]) -> list[str]:
        wrong = self.scratch.wrong_here()
        return [wrong] if wrong else []


def encode(df: DataFrame, url: str, layout: Layout) -> Counted:
    """Run Spark's own writer, on the driver, and tell what its tasks counted.

    Raises:
        What Spark raises.
        MagicError: Spark does not tell what it wrote.
    """
    if layout.sort_by:
        names = (*layout.partition_by, *layout.sort_by)
        df = df.sortWithinPartitions(*(f"`{name.replace('`', '``')}`" for name in names))
    writer = df.write.format(layout.format).mode("errorifexists")
    if layout.partition_by:
        writer = writer.partitionBy(*layout.partition_by)
    if layout.max_records_per_file is not None:
        writer = writer.option("maxRecordsPerFile", layout.max_records_per_file)
    for name, value in {**layout.options, **OURS}.items():
        if value is not None:
            writer = writer.option(name, value)
    # What `writer.save(url)` does. But that forgets the plan, which has the counts.
    session: Any = df.sparkSession
    try:
        command = writer._jwrite.saveCommand(session._jvm.scala.Some(url))
        state = session._jsparkSession.sessionState()
        execution = state.executePlan(command, getattr(state, "executePlan$default$2")())
        execution.assertCommandExecuted()
        plan = execution.commandExecuted().commandPhysicalPlan()
    except Py4JError as error:
        if not isinstance(error, Py4JJavaError) and "does not exist" in str(error):
            raise _silent(session.version) from error
        raise
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    counts = plan.metrics()
    if not (counts.contains("numFiles") and counts.contains("numOutputBytes")):
        raise _silent(session.version)
    return Counted(*(int(counts.apply(name).value()) for name in ("numFiles", "numOutputBytes")))


def _silent(version: str) -> MagicError:
    return MagicError(
        f"Spark {version} does not tell how many files its writer wrote",
        hint="via= is tested with Spark 4.3 and its own spark.sql.sources.useV1SourceList. Leave"
        " via out",
    )


def refuse_other_than(written: Counted, files: Sequence[StagedFile], scratch: Staging) -> None:
    """Compare what Spark's tasks counted with what is there.

    Raises:
        MagicError: they differ.
    """
    there = Counted(len(files), sum(file.size for file in files))
    if there != written:
        raise MagicError(
            f"Spark's tasks wrote {written.files} files of {written.bytes} bytes, but"
            f" {scratch.data_url} holds {there.files} files of {there.bytes} bytes",
            hint="Each executor must share the directory: pass another via, or leave it out",
        )


def final_name(name: str, uuid: str) -> str:
    """The name that a file gets at the destination: the job's token takes the place of the UUID
    that Spark draws for a write. (A name without one gets the token when it is opened.) Pure."""
    directory, slash, last = name.rpartition("/")
    own = _SPARKS_UUID.sub(rf"\g<1>mcj{uuid}", last, count=1)
    return f"{directory}{slash}{own}"


def balanced(files: Sequence[StagedFile], tasks_min: int) -> list[list[StagedFile]]:
    """Share files among tasks so that each has about as many bytes: the largest first, each to the
    task that has least. Pure.

    Args:
        files: what is to be uploaded.
        tasks_min: so many tasks at least, if there are as many files.
    """
    total = sum(file.size for file in files)
    wanted = max(tasks_min, ceil(total / GROUP_BYTES), ceil(len(files) / GROUP_FILES))
    groups: list[list[StagedFile]] = [[] for _ in range(min(wanted, len(files)))]
    # By bytes, then by files: many empty files are shared, too.
    loads = [(0, 0, number) for number in range(len(groups))]
    heapify(loads)
    for file in sorted(files, key=lambda one: (-one.size, one.name)):
        size, count, number = loads[0]
        groups[number].append(file)
        heapreplace(loads, (size + file.size, count + 1, number))
    return groups


@dataclass(frozen=True)
class StagedUpload:
    """Runs in a Spark task: uploads a group of files. It is a class, so that only its two fields
    travel to the task."""

    job: Job
    scratch: Staging

    def __call__(self, groups: Iterable[list[StagedFile]]) -> list[str]:
        task = spark_attempt(self.job)
        with task:
            wrong = self.scratch.wrong_here()
            if wrong:
                raise OptionError(
                    f"this executor does not see {self.scratch.path}: {wrong}",
                    hint="Pass a via that driver and executors share",
                )
            for group in groups:
                for file in group:
                    self._upload(task, file)
        return [to_message(task)]

    def _upload(self, task: Task, file: StagedFile) -> None:
        with task.open(final_name(file.name, self.job.uuid), unique=True) as upload:
            self.scratch.read(file, upload.write, READ_BYTES)
