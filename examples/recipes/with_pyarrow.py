"""pyarrow: a stream of record batches, as Parquet, without holding it in
memory."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

import magic_committer as mc


def export(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], dest: str
) -> mc.JobReport | None:
    """Write the batches to one file. If the source fails in the middle nothing
    is published."""
    with mc.write(dest, mode="fail") as job:
        with (
            job.open("events.parquet") as f,
            pq.ParquetWriter(f, schema) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
    return job.report
