"""Ray Data: `MagicDatasink`, whose files appear when the write has ended, all of them or none.

::

    ds.write_datasink(MagicDatasink("s3://bucket/table", "parquet", partition_by=["day"]))

The job is started on the driver, each write task of Ray is a task of the job, each try of it an
attempt: an `EngineSink`. What travels to workers is the job and how files are written; no secret,
no progress function. It rests on these facts, read in Ray 2.54.0 and 2.60.0 (``ray/data``);
tests/engines runs it in the Ray that is installed:

* ``Dataset.write_datasink`` calls ``on_write_complete`` and ``on_write_failed`` in the caller's
  thread, on the sink that it was given. An error of ``on_write_complete`` leads to
  ``on_write_failed``, which is called for an `Exception` and not for Ctrl-C, and is followed by
  ``raise``: what ``on_write_failed`` raises would hide the error (``dataset.py``).
* ``on_write_start`` is called once, before the sink is pickled to the tasks: when the first block
  is there, in the executor's thread; and not at all if there is no block (``map_operator.py``,
  ``_notify_first_input``). Rays before 2.54 call it earlier.
* ``write`` is called once for each try of a write task; ``ctx.task_idx`` is the same for all tries
  of a task and no other's. Ray tries a task again when its worker dies or its result is lost,
  without a limit (``remote_fn.py``: ``max_retries`` is -1), and not when it raises.
* The blocks of a write task stay in memory until it ends, whatever ``write`` does: Ray gives it one
  half of an ``itertools.tee`` (``plan_write_op.py``). So to put them into one table costs nothing.
* With ``DataContext.max_errored_blocks`` Ray leaves out a task that failed, and calls the write
  complete. Here each task of such a write is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

from magic_committer.api import start
from magic_committer.committers.base import committer_for
from magic_committer.engines.items import column_names, whole_number
from magic_committer.engines.sink import EngineSink
from magic_committer.errors import IncompleteJob, JobReport, MagicError, OptionError, WrongType
from magic_committer.job import Job, Task
from magic_committer.options import (
    Mode,
    Options,
    S3Options,
    S3Place,
    SparkMode,
    mode_of,
    name_of,
    options_of,
    s3_of,
    shown,
)
from magic_committer.runtime.components import ProgressFunction, no_progress

try:
    import pyarrow
    import pyarrow.dataset
    from ray.data import DataContext, Dataset
    from ray.data.block import BlockAccessor
    from ray.data.datasource import Datasink
except ImportError as _missing:
    raise ImportError(
        "magic_committer.engines.ray needs Ray Data: pip install 'magic-committer[ray]'"
        f" ({_missing})",
        name="ray",
    ) from _missing


logger = logging.getLogger("magic_committer")

FORMATS = {
    "parquet": ("parquet", pyarrow.dataset.ParquetFileFormat),
    "csv": ("csv", pyarrow.dataset.CsvFileFormat),
    "feather": ("arrow", pyarrow.dataset.IpcFileFormat),
}
"""The formats that pyarrow writes, each with the end of its files' names."""
ROWS_PER_GROUP_MAX = 1024 * 1024
"""pyarrow's own default."""

WriteTables = Callable[[Task, Iterable[pyarrow.Table]], object]
"""A user's function: writes the tables of one write task into files of a task of the job."""


class MagicDatasink(Datasink):  # type: ignore[misc]  # Ray has no types here
    r"""A destination of ``Dataset.write_datasink``: all files of the write appear, or none::

        import ray
        from magic_committer.engines.ray import MagicDatasink

        sink = MagicDatasink("s3://bucket/table", partition_by=["day"], mode="overwrite_partitions")
        ray.data.read_parquet("s3://bucket/raw").write_datasink(sink)
        print(sink.report)

    Use a sink for one write. Ctrl-C in the driver does not reach a sink: call `write_datasink`, or
    end the job by its id. After a ``kill -9`` of the driver nothing is visible, or all of it once
    `recover` has been called with the job's id; `cleanup` does that too. Credentials in ``s3`` do
    not travel: on the workers the environment, a profile or a role supplies them. Empty blocks make
    no file; a dataset without rows publishes none, and with ``mode="replace"`` empties the
    destination.

    Attributes:
        job: the job, from the start of the write on; None before.
        report: what became of the job; None before its end.
    """

    def __init__(
        self,
        dest: str,
        format: str = "parquet",
        *,
        write: WriteTables | None = None,
        partition_by: Sequence[str] = (),
        of_format: Mapping[str, Any] | None = None,
        rows_per_file_min: int | None = None,
        rows_per_file_max: int | None = None,
        job_id: str | None = None,
        mode: Mode | SparkMode = "append",
        committer: str | None = None,
        mark_success: bool = True,
        s3: S3Options | None = None,
        options: Options | None = None,
        progress: ProgressFunction = no_progress,
        **place: Unpack[S3Place],
    ) -> None:
        """Check the arguments. Sends nothing. Repeatable: each call makes another sink.

        Args:
            dest: ``s3://bucket/prefix``; or ``file:///directory``, which all nodes share.
            format: ``"parquet"`` (default), ``"csv"`` or ``"feather"``, as pyarrow writes them.
            write: a function that writes the files itself, in place of ``format``. It gets a `Task`
                and the tables of one write task (pyarrow's), and opens files by
                ``task.open(name, unique=True)``, no name in two tasks: put ``task.task_id`` into
                it. None (default): files of ``format``.
            partition_by: columns whose values become directories, ``day=2026-11-21/``. They are not
                in the files. None by default.
            of_format: options of the format, as of ``make_write_options`` of its pyarrow format:
                ``{"compression": "zstd"}``. None (default): pyarrow's defaults.
            rows_per_file_min: rows that Ray collects at least for a task. None (default): any.
            rows_per_file_max: the largest number of rows of a file. None (default): no limit.
            job_id, mode, committer, mark_success, s3, options, place: as for `start`.
            progress: as for `start`; called on the driver, during the commit.

        Raises:
            WrongType, PathError, OptionError: an argument cannot be used.
        """
        super().__init__()
        committer_for(dest, committer).destination(dest)
        mode_of(mode)
        if write is None:
            write = TableFiles(format, partition_by, of_format, rows_per_file_max)
        elif not callable(write):
            hint = "Pass write=my_function"
            raise WrongType(f"write is a function, not {shown(write)}", hint=hint)
        elif format != "parquet" or any((partition_by, of_format, rows_per_file_max)):
            raise OptionError(
                "format, partition_by, of_format and rows_per_file_max are not for a function of"
                " yours",
                hint="Leave them out: the function given as write makes the files",
            )
        if rows_per_file_min is not None:
            whole_number("rows_per_file_min", rows_per_file_min, "1_000_000")
        self._files, self._rows_min = write, rows_per_file_min
        self._begin: Callable[[], Job] | None = partial(
            start, dest, mode=mode, committer=committer, accept="results", track="memory",
            job_id=name_of("job_id", job_id), mark_success=mark_success, s3=s3_of(s3, place),
            options=options_of(options), progress=progress,
        )  # fmt: skip
        self._interrupted: BaseException | None = None
        self.job: Job | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Secrets and the driver's functions do not travel.
        return {**self.__dict__, "_begin": None, "_interrupted": None}

    @property
    def report(self) -> JobReport | None:
        """What became of the job; None before its end."""
        return None if self.job is None else self.job._report

    @property
    def min_rows_per_write(self) -> int | None:
        """For Ray: how many rows it collects for a write task."""
        return self._rows_min

    def on_write_start(self, schema: object = None) -> None:
        """Start the job. Ray calls it on the driver, before any task."""
        if self.job is not None or self._begin is None:
            raise MagicError(
                "a MagicDatasink is used for one write",
                hint="Make another: ds.write_datasink(MagicDatasink(...))",
            )
        _refuse_leaving_out()
        self.job = self._begin()
        if self._interrupted is not None:  # meanwhile: Ray calls this in a thread of its own
            self.on_write_failed(self._interrupted)
            raise MagicError("the write was interrupted when its job had just been started")
        logger.info("Ray Data writes to %s as job %s", self.job.dest, self.job.id)

    def write(self, blocks: Iterable[Any], ctx: Any) -> str:
        """Write the blocks of a task, as one attempt. Ray calls it on a worker, for each try."""
        _refuse_leaving_out()  # the dataset's own context, which the driver may not have seen
        tables = (BlockAccessor.for_block(one).to_arrow() for one in blocks)
        return self._sink().attempt(
            lambda job: job.task(ctx.task_idx), lambda task: self._files(task, tables)
        )

    def on_write_complete(self, write_result: Any) -> None:
        """Commit. Ray calls it on the driver, when each task has a result."""
        messages, tasks = write_result.write_returns, None
        if self.job is None:
            self.on_write_start()
            tasks = ()
        elif not messages:
            raise IncompleteJob(
                "Ray ran write tasks, and gave the result of none",
                job_id=self.job.id,
                hint="Leave DataContext.max_errored_blocks at 0",
            )
        self._sink().complete(messages, tasks)

    def on_write_failed(self, error: BaseException) -> None:
        """Abort the job, unless it is decided. Ray calls it on the driver, and raises ``error``
        afterwards. Repeatable."""
        if not isinstance(error, Exception):
            self._interrupted = error  # before the look: the job may be starting at this moment
        if self.job is not None and self._begin is not None:
            self._sink().failed(error)

    def _sink(self) -> EngineSink:
        job = self.job
        assert job is not None
        return EngineSink(lambda: job)  # on the driver the handle that was started


def write_datasink(
    ds: Dataset,
    sink: MagicDatasink,
    *,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> JobReport:
    """Write a dataset as ``ds.write_datasink(sink)`` does, and say what became of the job; Ctrl-C
    aborts it, too::

        from magic_committer.engines.ray import MagicDatasink, write_datasink

        print(write_datasink(ray.data.range(1000), MagicDatasink("s3://bucket/table")))

    Repeatable: each call with another sink, as another job.

    Args:
        ds: a dataset of Ray Data.
        sink: where it goes.
        concurrency: the largest number of write tasks at once. None (default): Ray decides.
        ray_remote_args: for Ray's write tasks, as of ``ray.remote``. None (default): Ray's own: a
            task whose worker is killed is tried again for ever; ``{"max_retries": 3}`` ends that.

    Returns:
        What became of the job.

    Raises:
        WrongType: ``sink`` is no `MagicDatasink`. Nothing was started.
        CommitIncomplete: as `Job.commit`.

        What Ray raises if a task finally fails, and what `start` and `Job.commit` raise. The job is
        aborted.
    """
    if not isinstance(sink, MagicDatasink):
        raise WrongType(
            f"sink is a MagicDatasink, not {shown(sink)}",
            hint="Pass MagicDatasink('s3://bucket/table')",
        )
    try:
        ds.write_datasink(sink, concurrency=concurrency, ray_remote_args=ray_remote_args)
    except BaseException as error:
        sink.on_write_failed(error)
        raise
    assert sink.report is not None
    return sink.report


@dataclass
class TableFiles:
    """What writes the tables of a write task by ``pyarrow.dataset``."""

    format: str
    partition_by: Sequence[str]
    of_format: Mapping[str, Any] | None
    rows_max: int | None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise OptionError(
                f"there is no format {self.format!r:.80} here; there is {', '.join(FORMATS)}",
                hint="Or write the files yourself: MagicDatasink(dest, write=fn)",
            )
        self.partition_by = [str(one) for one in column_names("partition_by", self.partition_by)]
        if self.rows_max is not None:
            whole_number("rows_per_file_max", self.rows_max, "1_000_000")
        try:
            self._options()
        except TypeError as error:
            raise OptionError(
                f"of_format of {self.format!r}: {error}",
                hint="Pass what make_write_options of pyarrow's file format accepts",
            ) from error

    def _options(self) -> Any:
        return FORMATS[self.format][1]().make_write_options(**dict(self.of_format or {}))

    def __call__(self, task: Task, tables: Iterable[pyarrow.Table]) -> None:
        whole = [table for table in tables if table.num_rows]
        if not whole:
            return
        # Blocks differ in their order of columns, and a column of one may hold nulls only.
        table = pyarrow.concat_tables(whole, promote_options="permissive")
        if set(table.column_names) <= set(self.partition_by):
            raise OptionError(
                f"partition_by has all columns, {', '.join(table.column_names)}: the files would"
                " have none, and no rows",
                hint="Leave a column out of partition_by",
            )
        options, rows = self._options(), self.rows_max or 0
        pyarrow.dataset.write_dataset(
            table,
            "/",
            filesystem=task.filesystem(unique=True, keep_bytes_max=0),
            format=options.format,
            file_options=options,
            basename_template=f"part-{int(task.task_id):05d}-{{i}}.{FORMATS[self.format][0]}",
            partitioning=self.partition_by or None,
            partitioning_flavor="hive" if self.partition_by else None,
            existing_data_behavior="overwrite_or_ignore",
            max_rows_per_file=rows,
            max_rows_per_group=min(rows or ROWS_PER_GROUP_MAX, ROWS_PER_GROUP_MAX),
        )


def _refuse_leaving_out() -> None:
    if DataContext.get_current().max_errored_blocks:
        raise OptionError(
            "DataContext.max_errored_blocks lets Ray leave out a write task that failed, and the"
            " files of a job are all or nothing",
            hint="Set it to 0, and leave bad rows out in a function of your own: ds.flat_map(...)",
        )
