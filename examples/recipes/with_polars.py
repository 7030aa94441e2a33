"""polars: a lazy query, written in slices that fit into memory."""

from __future__ import annotations

import polars as pl

import magic_committer as mc

ROWS_A_FILE = 1_000_000


def export(query: pl.LazyFrame, dest: str, rows_a_file: int = ROWS_A_FILE) -> mc.JobReport | None:
    """Write the rows of a query, ``rows_a_file`` to a file. If it fails nothing is published."""
    with mc.write(dest, mode="append") as job:
        for number, rows in enumerate(query.collect().iter_slices(rows_a_file)):
            with job.open(f"part-{number:05}.parquet", unique=True) as f:
                rows.write_parquet(f)
    return job.report
