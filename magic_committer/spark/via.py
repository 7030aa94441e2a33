"""`write_dataframe` with ``via=``: Spark's own writer encodes, our tasks upload its files.

What Python encodes is only nearly Spark's file. So Spark writes into a temporary directory that
driver and executors share, ``<via>/magic-<uuid of the job>-…/``, with each format, option and type
that it has. Then a second Spark job uploads the files, and our job commits. Invariants:

* What is uploaded is what Spark's writer committed. A directory that an executor does not share
  loses that executor's files, and Spark raises no error. Therefore the number of files that are
  there, and their bytes, must be what Spark's tasks counted.
* A file is uploaded as it was listed, or not at all: it may not change while it is read, and then
  its size and time are compared.
* Files of an attempt that failed are never in the listing: we have Spark's writer move files
  into place when a task commits and when the job commits (Hadoop's algorithm 1), not before.
* Nobody but the owner of the job's processes can read the directory. It goes when the files are
  uploaded, or when anything failed. What a killed driver leaves is the machine's to clean, and so
  is what an attempt of Spark's writer writes that Spark gave up and that still runs.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from magic_committer.engines.items import AcceptResult, ItemWriter, whole_number
from magic_committer.errors import JobReport, MagicError, OptionError, WrongType
from magic_committer.hadoop.paths import is_hidden
from magic_committer.job import Task
from magic_committer.spark import driver
from magic_committer.spark.driver import Order, logger, needs, run_action, run_rdd, write_job

FORMATS = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
"""Spark's own formats whose output is files, and nothing but files."""
GROUP_BYTES = 1024**3
"""Bytes that a task uploads at most, unless one file has more: what a failed task does again."""
GROUP_FILES = 500
"""Files that a task uploads at most."""
OURS = {"mapreduce.fileoutputcommitter.algorithm.version": "1"}
"""How the committer of Spark's writer works, whatever the session says."""
REFUSED = ("path", *OURS)
"""Options that would lead Spark's writer elsewhere."""

_SPARKS_UUID = re.compile(
    r"(part-\d+-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=[-_.][^/]*$)"  # of the last name
)


class ViaFile(NamedTuple):
    """A file that Spark's writer committed, by its path below the directory."""

    name: str
    size: int
    mtime_ns: int


def write_via(
    df: DataFrame,
    order: Order,
    via: str,
    format: str,
    options: Mapping[str, Any] | None,
    partition_by: Sequence[str],
    sort_by: Sequence[str],
    max_records_per_file: int | None,
) -> JobReport:
    """`write_dataframe` by Spark's own writer. An item of this engine is a group of files."""
    if is_remote():
        raise OptionError(
            "via= needs classic Spark: with Spark Connect the driver and its files are elsewhere",
            hint="Leave via out",
        )
    needs((4, 1), "via=", "Call write_dataframe without it")
    exact = df.sparkSession.conf.get(driver.CASE_SENSITIVE, None) == "true"
    columns = df.columns
    parts = [
        columns[n] for n in driver.resolve(partition_by, columns, exact=exact, what="partition_by")
    ]
    sort = [columns[n] for n in driver.resolve(sort_by, columns, exact=exact, what="sort_by")]
    driver.refuse_hidden(parts)
    if sort:
        quoted = (f"`{name.replace('`', '``')}`" for name in (*parts, *sort))
        df = df.sortWithinPartitions(*quoted)
    writer = df.write.format(driver.format_name(format, FORMATS, "with via=")).mode("errorifexists")
    if parts:
        writer = writer.partitionBy(*parts)
    said = {name: value for name, value in (options or {}).items() if value is not None}
    for name, value in said.items():
        refuse_option(name, value)
    if max_records_per_file is not None:
        rows = whole_number("max_records_per_file", max_records_per_file, "1_000_000")
        writer = writer.option("maxRecordsPerFile", rows)
    writer = writer.options(**said, **OURS)
    folder, context = folder_of(via), df.sparkSession.sparkContext

    def engine(work: ItemWriter, accept: AcceptResult) -> Iterable[str]:
        with scratch(folder, work.job.uuid) as path:
            data = f"{path}/data"
            write = partial(encode, df.sparkSession, writer, f"file://{data}")
            files = listed(data, run_action(context, work.job, write, order.progress))
            groups = [(data, group) for group in balanced(files, context.defaultParallelism)]
            if not groups:
                return ()
            rdd = context.parallelize(groups, len(groups))
            return run_rdd(rdd, order.progress, work, accept)

    return write_job(order, engine, upload_files)


def refuse_option(name: str, value: object) -> None:
    """Refuse an option that would lead Spark's writer elsewhere, or is none of Spark's."""
    if name.lower() in REFUSED:
        raise OptionError(f"the option {name!r} is the library's own when via= is used")
    if not isinstance(value, str | bool | int | float):
        raise OptionError(
            f"the option {name}={value!r} is neither text, nor a number, nor a bool",
            hint="With via= the options are those of Spark's own writer",
        )


def folder_of(via: object) -> str:
    """The directory that a ``via`` names, which must be there."""
    if not isinstance(via, str):
        url = f"file://{via.absolute()}" if isinstance(via, Path) else "file:///scratch"
        raise WrongType(f"via is a URL, not {via!r}", hint=f"Pass via={url!r}")
    if not via.startswith("file:///") or via.strip("/") == "file:":
        raise OptionError(
            f"via={via!r} is no directory that Spark's writer and our tasks can share",
            hint="Pass an absolute URL like 'file:///scratch', a directory that driver and"
            " executors share",
        )
    path = os.path.normpath(via.removeprefix("file://"))
    if not os.path.isdir(path):
        raise OptionError(
            f"via={via!r}: there is no such directory on the driver",
            hint="Make it, on a file system that driver and executors share",
        )
    return path


@contextmanager
def scratch(folder: str, uuid: str) -> Iterator[str]:
    """A directory of a job, which goes at the end. A failure to remove it is logged."""
    try:
        path = tempfile.mkdtemp(prefix=f"magic-{uuid}-", dir=folder)
    except OSError as error:
        raise OptionError(
            f"via='file://{folder}': a directory cannot be made there: {error}",
            hint="The driver and Spark's tasks need to write there, as one user",
        ) from error
    try:
        yield path
    finally:
        for _ in range(3):  # a JVM task that Spark gave up may write meanwhile
            shutil.rmtree(path, ignore_errors=True)
        if os.path.exists(path):
            logger.warning("the scratch directory %s could not be removed: remove it", path)


def encode(session: Any, writer: Any, url: str) -> tuple[int, int]:
    """Run Spark's own writer, on the driver. Give how many files and bytes its tasks counted."""
    silent = MagicError(
        f"Spark {session.version} does not say how many files its writer wrote",
        hint="via= is tested with Spark 4.3 and its own spark.sql.sources.useV1SourceList. Leave"
        " via out",
    )
    # What `writer.save(url)` does. But that forgets the plan, which has the counts.
    try:
        command = writer._jwrite.saveCommand(session._jvm.scala.Some(url))
        state = session._jsparkSession.sessionState()
        execution = state.executePlan(command, getattr(state, "executePlan$default$2")())
        execution.assertCommandExecuted()
        plan = execution.commandExecuted().commandPhysicalPlan()
    except Py4JError as error:
        if not isinstance(error, Py4JJavaError) and "does not exist" in str(error):
            raise silent from error
        raise
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
        if plan.getClass().getSimpleName() == "ResultQueryStageExec":  # after a shuffle
            plan = plan.plan()
    counts = plan.metrics()
    if not (counts.contains("numFiles") and counts.contains("numOutputBytes")):
        raise silent
    return int(counts.apply("numFiles").value()), int(counts.apply("numOutputBytes").value())


def listed(data: str, counted: tuple[int, int]) -> list[ViaFile]:
    """List what Spark's writer committed, without what is hidden. Refuse what is not what Spark's
    tasks ``counted``: files, bytes."""
    files = []
    for path in sorted(Path(data).rglob("*")):
        name = str(path.relative_to(data))
        if path.is_file() and not is_hidden(name):
            seen = path.stat()
            files.append(ViaFile(name, seen.st_size, seen.st_mtime_ns))
    there = (len(files), sum(file.size for file in files))
    if there != counted:
        raise MagicError(
            f"Spark's tasks wrote {counted[0]} files of {counted[1]} bytes, but {data} holds"
            f" {there[0]} files of {there[1]} bytes",
            hint="Each executor must share the directory with the driver: pass another via, or"
            " leave it out",
        )
    return files


def balanced(files: Sequence[ViaFile], tasks_min: int) -> list[list[ViaFile]]:
    """Deal files, the largest first, to ``tasks_min`` tasks or more: none is without a file."""
    total = sum(file.size for file in files)
    wanted = max(tasks_min, ceil(total / GROUP_BYTES), ceil(len(files) / GROUP_FILES))
    tasks = min(wanted, len(files))
    falling = sorted(files, key=lambda one: (-one.size, one.name))
    return [falling[number::tasks] for number in range(tasks)]


def upload_files(task: Task, groups: Iterable[tuple[str, list[ViaFile]]]) -> None:
    """Upload groups of files, each as it was listed; what changes meanwhile `put_file` refuses."""
    for data, group in groups:
        for file in group:
            path = f"{data}/{file.name}"
            refuse_another(path, file)
            task.put_file(path, final_name(file.name, task._job.uuid), unique=True)
            refuse_another(path, file)


def refuse_another(path: str, file: ViaFile) -> None:
    """Refuse what is not the file that was listed."""
    try:
        seen = os.stat(path)
        if (seen.st_size, seen.st_mtime_ns) == (file.size, file.mtime_ns):
            return
        found = f"{seen.st_size} bytes, changed at {seen.st_mtime_ns} ns"
    except OSError as error:
        found = f"{socket.gethostname()} sees none ({error})"
    raise MagicError(
        f"{path} is not what Spark's writer left: {found}, planned were {file.size} bytes,"
        f" changed at {file.mtime_ns} ns",
        hint="Driver and executors must share the directory, as one user, and nobody else may"
        " write into it: pass another via",
    )


def final_name(name: str, uuid: str) -> str:
    """The name at the destination: the job's token replaces the UUID that Spark draws for
    a write. (A name without one gets the token when it is opened.)"""
    return _SPARKS_UUID.sub(rf"\g<1>mcj{uuid}", name, count=1)
