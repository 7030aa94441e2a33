"""Spark: shards for machine learning, as tar files of the WebDataset format,
with an index.

A shard is a tar file. The files of one sample lie one after the other and share
their name up to its first dot: ``000012.jpg``, ``000012.cls``. The index names
the shards, with the number of samples in each. ``webdataset.WebDataset(urls)``
reads them; `samples` below shows what it does.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, BinaryIO

from pyspark import RDD

import magic_committer as mc
from magic_committer.spark import write_partitions

Sample = tuple[str, Mapping[str, bytes]]
"""The name of a sample, and its files: for each extension the bytes."""
INDEX = "index.json"


def export_shards(data: RDD[Sample], dest: str) -> dict[str, Any]:
    """Replace the data set: a shard for each partition, and then the index of
    all of them."""
    report = write_partitions(data, dest, write_shard, mode="overwrite")
    index = {"shards": [shard for shard in report.returned if shard is not None]}
    with mc.write(dest, mode="append") as out, out.open(INDEX, "w") as file:
        json.dump(index, file)
    return index


def write_shard(task: mc.Task, data: Iterable[Sample]) -> dict[str, Any] | None:
    """Runs in each Spark task. Gives the shard's line of the index; None: there
    are no samples."""
    rest = iter(data)
    first = next(rest, None)
    if first is None:
        return None
    count = 0
    with (
        task.open(f"shard-{int(task.task_id):05d}.tar", unique=True) as file,
        tarfile.open(fileobj=file, mode="w|") as shard,
    ):
        for name, parts in chain([first], rest):
            count += 1
            for extension, body in parts.items():
                entry = tarfile.TarInfo(f"{name}.{extension}")
                entry.size = len(body)
                shard.addfile(entry, io.BytesIO(body))
    return {"url": file.name.rpartition("/")[2], "samples": count}


def samples(shard: BinaryIO) -> Iterator[Sample]:
    """Read a shard as loaders do: files with one name up to the first dot are
    one sample."""
    name, parts = "", dict[str, bytes]()
    with tarfile.open(fileobj=shard, mode="r|") as files:
        for entry in files:
            stem, _, extension = entry.name.partition(".")
            if stem != name and parts:
                yield name, parts
                parts = {}
            body = files.extractfile(entry)
            assert body is not None
            name, parts[extension] = stem, body.read()
    if parts:
        yield name, parts
