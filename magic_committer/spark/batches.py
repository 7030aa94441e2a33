"""`foreach_batch`: micro-batches by `write_dataframe`, each exactly once.

Spark runs a batch again when it is not sure that it was written. Invariants:

* Whether a batch is published is decided by the ledger of its query, at the destination
  (`magic_committer.StreamBatch`), and not by Spark's checkpoint. The look before the work only
  spares the work.
* A batch is named by its query's id, which stays the same as long as the checkpoint location does.
* A killed driver aborts nothing. So the first batch after each start of a query, of either face,
  aborts what earlier runs of the query have left running (`end_earlier_runs`), also those of
  another driver that ran it in between. Of one driver, no two batches of a query run at once: it
  hits no live run but another driver's, which fails then, and is right to. Later batches do not
  look: a driver that was paused and wakes would abort the one that took its place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from pyspark.sql import DataFrame

from magic_committer._arguments import s3_of
from magic_committer._runtime import ProgressFunction, no_progress
from magic_committer.commit.batches import tell_passed_over
from magic_committer.errors import OptionError
from magic_committer.maintenance.api import abort_stream, read_stream
from magic_committer.options import Options, S3Options, S3Place
from magic_committer.protocol.ledger import StreamBatch, hash_of
from magic_committer.spark.driver import QUERY_PROPERTY, Order, checkpoint_of, local_property
from magic_committer.spark.files import format_name
from magic_committer.spark.write import write_dataframe

logger = logging.getLogger("magic_committer")

LOOKED_MAX = 1000
"""Runs of queries that a process remembers to have looked for earlier ones."""
_LOOKED: set[tuple[str, str, str]] = set()
"""Destination, checkpoint and run of queries whose earlier runs this process has ended."""

RUN_PROPERTY = "spark.jobGroup.id"
"""The same for the id of the run, another one after each start: Spark cancels a query's jobs by
it."""


def foreach_batch(
    dest: str,
    format: str = "parquet",
    *,
    query: str | None = None,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    max_records_per_file: int | None = None,
    writer_options: Mapping[str, Any] | None = None,
    committer: str | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    mark_success: bool = True,
    **place: Unpack[S3Place],
) -> Callable[[DataFrame, int], None]:
    """Give a function for ``foreachBatch`` that appends each micro-batch exactly once::

        write = foreach_batch("s3://bucket/table", partition_by=["day"])
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", where).start()

    A batch that Spark runs again is not written again, also where Spark has lost its checkpoint's
    last entry, or where two drivers run the same query. The rows of a batch must not depend on the
    run: so it is with Spark's sources that can be replayed.

    Call it inside a function of your own to do more with a batch::

        def write(df, number):
            append(df.dropDuplicates(["id"]), number)

    Call it once for each batch: a second DataFrame of the same batch, for the same destination,
    would be passed over as published already. Take ``df1.unionByName(df2)``, or a function with a
    ``query`` name of its own.

    Repeatable: each call gives another function, with the same promise.

    Args:
        dest: ``s3://bucket/prefix``, ``file:///directory``, or another destination of `start`.
        format, partition_by, sort_by, max_records_per_file, writer_options: as for
            `write_dataframe`.
        query: the name under which batches are counted at the destination, ``[A-Za-z0-9._=-]``, 128
            characters at most. None (default): the id that Spark gives to the query, the same as
            long as the checkpoint location is the same. With Spark Connect a name is needed. A name
            belongs to one checkpoint location: a batch of another one, or of a copy, whose number
            is published already ends in `BatchUnsettled` (Spark Connect does not say where the
            checkpoint is: there it is passed over).
        committer, s3, options, mark_success, progress, place: as for `write_dataframe`.

    Returns:
        A function of a DataFrame and the batch's number. It raises what `write_dataframe` raises,
        and `BatchUnsettled` if an earlier run of the query cannot be ended now, or another
        checkpoint has published the batch: the query then fails; its message says what to do.

    Raises:
        WrongType, PathError, OptionError: an argument cannot be used.
    """
    # A trial: what is wrong is told now, and not by a query that fails later.
    s3 = s3_of(s3, place)
    Order(dest, "append", mark_success, s3, options, progress, committer=committer)
    StreamBatch(query if query is not None else "any", 0)
    format_name(format)
    append = partial(
        write_dataframe, dest=dest, format=format, mode="append", partition_by=partition_by,
        sort_by=sort_by, max_records_per_file=max_records_per_file, writer_options=writer_options,
        committer=committer, s3=s3, options=options, progress=progress, mark_success=mark_success,
    )  # fmt: skip

    def write(df: DataFrame, number: int) -> None:
        batch = StreamBatch(query if query is not None else _query_of(df), number)
        seen = read_stream(dest, batch.query, s3=s3)
        checkpoint = checkpoint_of(df, batch)
        done = seen.done if seen is not None else None
        # Of another checkpoint: the commit refuses it, and says what to do.
        is_ours = seen is not None and seen.checkpoint in ("", hash_of(checkpoint))
        if done is not None and done >= number and is_ours:
            tell_passed_over(batch, done)
            return
        run = local_property(df, RUN_PROPERTY)
        end_earlier_runs(dest, checkpoint, s3, options, run=run)
        logger.info("batch %s of query %s: %s", number, batch.query, append(df, batch=batch))

    return write


def end_earlier_runs(
    dest: str, checkpoint: str, s3: S3Options | None, options: Options | None, *, run: str = ""
) -> None:
    """Abort the jobs that earlier runs of a query have left running, once in this process for each
    ``run``. "": nobody tells which run it is, or this process has only one."""
    looked = (dest, checkpoint, run)
    if looked in _LOOKED:
        return
    abort_stream(dest, checkpoint, s3=s3, options=options)
    if len(_LOOKED) >= LOOKED_MAX:
        _LOOKED.clear()
    _LOOKED.add(looked)


def _query_of(df: DataFrame) -> str:
    """The id of the query that calls a function of foreachBatch in this thread."""
    if query := local_property(df, QUERY_PROPERTY):
        return query
    raise OptionError(
        "Spark does not say here which query runs this batch",
        hint="Name it: foreach_batch(dest, query='clicks'); one name for each checkpoint location",
    )
