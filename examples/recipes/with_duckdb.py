"""DuckDB: COPY … PARTITION_BY writes a directory, through the job as a file
system."""

from __future__ import annotations

import duckdb

import magic_committer as mc


def export(
    connection: duckdb.DuckDBPyConnection, query: str, dest: str
) -> mc.JobReport | None:
    """Write the rows of a query, a directory for each day; days that are there
    are replaced."""
    with mc.write(dest, mode="overwrite_partitions") as job:
        # The scheme magic://
        connection.register_filesystem(job.filesystem(unique=True))
        try:
            connection.execute(
                f"copy ({query}) to 'magic://{dest.partition('://')[2]}'"
                " (format parquet, partition_by (day), overwrite_or_ignore)"
            )
        finally:
            connection.unregister_filesystem("magic")
    return job.report
