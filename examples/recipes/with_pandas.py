"""pandas: one Parquet file for each day, all of them or none."""

from __future__ import annotations

import pandas as pd

import magic_committer as mc


def export(sales: pd.DataFrame, dest: str) -> mc.JobReport | None:
    """Replace the days that ``sales`` has; the other days of the table stay as
    they are."""
    with mc.write(dest, mode="replace_partitions") as job:
        for day, rows in sales.groupby("day"):
            with job.open(f"day={day}/part-0.parquet", unique=True) as f:
                rows.drop(columns="day").to_parquet(f, index=False)
            with job.open(f"day={day}/part-0.csv", "w", unique=True) as f:
                rows.drop(columns="day").to_csv(f, index=False)
    return job.report
