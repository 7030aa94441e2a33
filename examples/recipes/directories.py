"""Libraries that write directories, and programs that write local files: four
ways."""

import sqlite3
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

import magic_committer as mc


def partitions(table: pa.Table, dest: str) -> mc.JobReport | None:
    """A library that writes a directory itself: it gets the job as a file
    system."""
    with mc.write(dest, mode="overwrite_partitions") as job:
        ds.write_dataset(
            table,
            "/",  # the destination
            format="parquet",
            partitioning=["day"],
            partitioning_flavor="hive",
            existing_data_behavior="overwrite_or_ignore",
            filesystem=job.filesystem(unique=True),
        )
    return job.report


def database(rows: list[tuple[str, int]], dest: str) -> mc.JobReport | None:
    """A library that seeks, or wants a path: a local file, uploaded when it is
    closed."""
    with mc.write(dest) as job, job.local_file("sales.db", unique=True) as file:
        connection = sqlite3.connect(file.path)
        with connection:
            connection.execute("create table sales (day text, amount int)")
            connection.executemany("insert into sales values (?, ?)", rows)
        connection.close()  # before the file is uploaded
    return job.report


def program(command: list[str], dest: str) -> mc.JobReport | None:
    """Another program: it writes into a local directory, whose files are
    uploaded at its end."""
    with mc.write(dest, committer="directory") as job:
        subprocess.run(command, cwd=job.directory(unique=True), check=True)
    return job.report


def publish(directory: Path, dest: str) -> mc.JobReport | None:
    """A directory that is there already."""
    with mc.write(dest, mode="overwrite") as job:
        # Hidden files are left out, and named.
        print(job.put_directory(directory))
    return job.report
