"""Dask: each partition of a collection is a task of one job, whatever scheduler computes it::

    report = to_parquet(frame, "s3://bucket/table", partition_on=["day"], mode="overwrite")

Dask is an engine of `items`: one delayed call for each partition. It rests on these facts, read in
Dask and distributed 2026.8.0; tests/engines runs it in the Dask that is installed:

* ``dask.compute`` gives one result for each call, however often it ran it. A call of
  ``delayed(f, pure=False)`` has a key of its own: two are never taken for one (``delayed.py``).
* distributed runs what was in flight on a dead worker again, elsewhere, and also what was done
  there if its result is needed and lost. If more workers die below a call than
  ``distributed.scheduler.allowed-failures`` (3), it raises ``KilledWorker`` (``scheduler.py``). A
  call that raises is tried again only if ``retries`` was given.
* A worker that dies and cannot be started again in time is lost for good (``nanny.py``). Without
  any worker a call waits for ever, unless ``distributed.scheduler.no-workers-timeout`` is set.
* The schedulers of this machine try nothing again, and raise the first error at once; threads that
  run then go on to the end of their call (``local.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack, cast

from magic_committer.api import start
from magic_committer.engines import items
from magic_committer.engines.items import AcceptResult, ItemWriter, Returned, RunReport
from magic_committer.errors import IncompleteJob, JobReport, OptionError, WrongType
from magic_committer.job import Task
from magic_committer.options import Mode, Options, S3Options, S3Place, SparkMode, shown
from magic_committer.runtime.components import ProgressFunction, no_progress

try:
    import dask
except ImportError as _missing:
    raise ImportError(
        "magic_committer.engines.dask needs Dask: pip install 'magic-committer[dask]'"
        f" ({_missing})",
        name="dask",
    ) from _missing


def write_delayed(
    parts: Iterable[object],
    dest: str,
    fn: Callable[[Task, Any], Returned],
    *,
    compute: Mapping[str, Any] | None = None,
    job_id: str | None = None,
    mode: Mode | SparkMode = "append",
    committer: str | None = None,
    mark_success: bool = True,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> RunReport[Returned]:
    """Call a function for each part of a collection, each as a task of one job, and commit: the
    files of all parts appear, or none::

        def write_text(task, lines):
            with task.open(f"part-{task.task_id}.txt", "w", unique=True) as file:
                return file.write("\\n".join(lines))

        bag = dask.bag.read_text("s3://bucket/raw/*.txt").map(str.upper)
        report = write_delayed(bag.to_delayed(), "s3://bucket/text", write_text)

    Dask computes, by whatever scheduler is chosen: threads, processes, a cluster. Credentials in
    ``s3`` do not travel; on workers the environment, a profile or a role supplies them. Repeatable:
    each call is another job. After a ``kill -9`` of this process nothing is visible; `recover` and
    `cleanup` end the job.

    Args:
        parts: delayed values, as of ``frame.to_delayed()``, ``bag.to_delayed()`` and
            ``array.to_delayed().ravel()``; plain values too. Each is one task.
        dest: as for `start`. A directory of a disk (``file:///…``) must be there for all workers.
        fn: gets a `Task` and the value of a part, and opens files with ``task.open(name)``, no name
            in two parts; ``task.task_id`` is the part's number, from 0 on. With ``unique=True`` the
            job can find and abort what a killed worker left. What ``fn`` returns is in the report,
            64 MiB in all, pickled.
        compute: arguments of ``dask.compute``: ``{"scheduler": "processes"}``; on a cluster
            ``{"retries": 3}``: how often a call that raised is tried again. None (default): none.
        job_id, mode, committer, mark_success, s3, options, progress, place: as for `start`.

    Returns:
        What became of the job, with what ``fn`` returned for each part, in their order. Its
        ``tries`` is 0: Dask does not tell.

    Raises:
        WrongType, IncompleteJob: an argument cannot be used, ``fn`` is a generator or a coroutine,
            or there is no part. Nothing was started.
        TaskFailed: what ``fn`` returned is too large, or cannot be pickled. The job is aborted.
        CommitIncomplete: as `Job.commit`. Its ``report`` holds what ``fn`` returned.

        What Dask raises if a call finally fails, the error of ``fn`` itself in most cases. The job
        is aborted.

        Otherwise as `start` and `Job.commit`.
    """
    items.refuse_lazy_function(fn, "write_delayed()")
    # To go through a collection itself would give the names of a frame's columns.
    collection = dask.is_dask_collection(parts)
    if collection or isinstance(parts, str | bytes) or not isinstance(parts, Iterable):
        raise WrongType(
            f"parts is a list of delayed values, not {shown(parts)}",
            hint="Pass collection.to_delayed()",
        )
    given = list(parts)
    if not given:
        raise IncompleteJob(
            "there is no part to write: a job without tasks would publish nothing, or empty what it"
            " replaces",
            hint="Check the collection; if that is right, do not call write_delayed()",
        )
    job = start(
        dest, mode=mode, committer=committer, accept="results", track="memory", job_id=job_id,
        mark_success=mark_success, s3=s3, options=options, progress=progress, **place,
    )  # fmt: skip

    def engine(work: ItemWriter, accept: AcceptResult) -> int:
        call = dask.delayed(work, pure=False)
        calls = (call(number, part) for number, part in enumerate(given))
        for number, one in enumerate(dask.compute(*calls, **dict(compute or {}))):
            accept(number, one)
        return len(given)

    done = items.commit_items(engine, ItemWriter(job, fn, "write_delayed()"))
    return cast(RunReport[Returned], done)


def to_parquet(
    frame: Any,
    dest: str,
    *,
    partition_on: Sequence[str] = (),
    write_index: bool = False,
    of_format: Mapping[str, Any] | None = None,
    compute: Mapping[str, Any] | None = None,
    job_id: str | None = None,
    mode: Mode | SparkMode = "append",
    committer: str | None = None,
    mark_success: bool = True,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> JobReport:
    """Write a data frame of Dask as Parquet, a task for each partition: all files appear, or none::

        report = to_parquet(frame, "s3://bucket/table", partition_on=["day"], mode="overwrite")

    On a cluster the workers write, and one that is killed is replaced by Dask. Partitions without
    rows make no file. Otherwise as `write_delayed`. Repeatable: each call is another job.

    Args:
        frame: a data frame of Dask, of pandas partitions.
        dest: as for `start`.
        partition_on: columns whose values become directories, ``day=2026-11-21/``. They are not in
            the files. None by default.
        write_index: True: the index is a column of the files. False is the default.
        of_format: other arguments of pandas' ``to_parquet``, as ``{"compression": "zstd"}``. Give a
            ``schema`` (pyarrow's) if a column of Python objects may be empty in a partition: its
            type is not known there. None (default): none.
        compute: as for `write_delayed`.
        job_id, mode, committer, mark_success, s3, options, progress, place: as for `start`.

    Returns:
        What became of the job.

    Raises:
        WrongType, OptionError: ``frame`` is no data frame of Dask; ``partition_on`` is a text;
            ``of_format`` has what this function decides; or the frame has no such column, or no
            other. Nothing was started.

        Otherwise as `write_delayed`.
    """
    of_dask = hasattr(frame, "to_delayed") and hasattr(frame, "npartitions")
    if not of_dask or getattr(frame, "ndim", 0) != 2:  # a series has one, a bag none
        raise WrongType(
            f"frame is a data frame of Dask, not {type(frame).__name__}",
            hint="Make one: dask.dataframe.from_pandas(frame, npartitions=8)",
        )
    parts = items.column_names("partition_on", partition_on)
    there = list(frame.columns)
    if missing := [name for name in parts if name not in there]:
        raise OptionError(f"partition_on: the frame has no column {missing[0]!r:.80}")
    if not (write_index or set(there) - set(parts)):
        raise OptionError(
            "the files would have no columns, and no rows: partition_on has all of the frame's",
            hint="Leave a column out of partition_on, or write the index: write_index=True",
        )
    decided = {"path", "engine", "index", "partition_cols", "filesystem", "basename_template"}
    if taken := sorted(decided.intersection(of_format or {})):
        raise OptionError(
            f"of_format: {taken[0]!r} is decided by to_parquet itself",
            hint="Leave it out; or write the files yourself: write_delayed(...)",
        )
    how = {**(of_format or {}), "engine": "pyarrow", "index": bool(write_index)}
    return write_delayed(
        frame.to_delayed(), dest, partial(_write_part, partition_on=parts, how=how),
        compute=compute, job_id=job_id, mode=mode, committer=committer, mark_success=mark_success,
        s3=s3, options=options, progress=progress, **place,
    )  # fmt: skip


def _write_part(task: Task, part: Any, *, partition_on: list[Any], how: dict[str, Any]) -> None:
    if not len(part):
        return
    name = f"part-{int(task.task_id):05d}"
    if partition_on:
        files = task.filesystem(unique=True, keep_bytes_max=0)
        names = f"{name}-{{i}}.parquet"
        part.to_parquet(
            "/", partition_cols=partition_on, filesystem=files, basename_template=names, **how
        )
    else:
        with task.open(f"{name}.parquet", unique=True) as file:
            part.to_parquet(file, **how)
