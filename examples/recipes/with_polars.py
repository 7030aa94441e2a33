"""polars: a lazy query, written in slices that fit into memory, or a file for
each partition."""

from __future__ import annotations

from contextlib import ExitStack

import polars as pl

import magic_committer as mc

ROWS_A_FILE = 1_000_000


def export(
    query: pl.LazyFrame, dest: str, rows_a_file: int = ROWS_A_FILE
) -> mc.JobReport | None:
    """Write the rows of a query, ``rows_a_file`` to a file. If it fails nothing
    is published."""
    with mc.write(dest, mode="append") as job:
        for number, rows in enumerate(query.collect().iter_slices(rows_a_file)):
            with job.open(f"part-{number:05}.parquet", unique=True) as f:
                rows.write_parquet(f)
    return job.report


def partitions(query: pl.LazyFrame, key: str, dest: str) -> mc.JobReport | None:
    """Write a file for each value of a column, in polars' streaming engine."""
    with (
        mc.write(dest, mode="overwrite_partitions") as job,
        ExitStack() as files,
    ):

        def file_of(args: pl.io.partition.FileProviderArgs) -> mc.TaskFile:
            value = args.partition_keys.item(0, key)
            name = f"{key}={value}/part-{args.index_in_partition:05}.parquet"
            # polars leaves it open
            return files.enter_context(job.open(name, unique=True))

        query.sink_parquet(
            pl.PartitionBy("", key=key, file_path_provider=file_of)
        )
    return job.report
