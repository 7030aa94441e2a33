"""The recipe for Spark of the documentation (examples/recipes/with_spark.py) runs."""

from __future__ import annotations

import gc
import json
import re
from io import BytesIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import ml_shards
from examples.recipes import with_spark
from tests.spark.lake import Lake


def test_the_recipes_replace_and_add(spark: SparkSession, lake: Lake) -> None:
    """`export` leaves the rows of its last run; `export_lines` adds a file a partition."""
    for rows in (range(5), range(3)):
        frame = spark.createDataFrame([(n,) for n in rows], "n int").repartition(2)
        with_spark.export(frame, lake.dest)
    assert sorted(n for table in lake.tables() for n in table["n"].to_pylist()) == [0, 1, 2]
    lines = Lake(lake.endpoint, f"{lake.name}-lines")
    report = with_spark.export_lines(frame, lines.dest)
    added = list(lines.data().values())
    assert report.files == len(added) == 2
    found = [json.loads(line)["n"] for body in added for line in body.splitlines()]
    assert sorted(found) == [0, 1, 2]
    assert lake.open_uploads() == []


def test_the_readmes_block_runs(spark: SparkSession, lake: Lake) -> None:
    """Its two lines, with the table of this test in place of theirs."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(from magic_committer.spark .*?)^```", text, re.M | re.S)
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "day string, n int")
    exec(block.replace("s3://bucket/table", lake.dest), {"df": frame})
    assert {name.split("/")[0] for name in lake.data()} == {"day=a", "day=b"}


def picture(number: int) -> ml_shards.Sample:
    """A sample of two files."""
    return f"{number:06d}", {"bin": bytes([number]) * 700, "cls": str(number % 3).encode()}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # webdataset leaves the last shard open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_shards_are_read_back(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """The example, run twice, the second time with 10 samples: the index names exactly the shards
    that are there, with the samples of each; a reader of the format finds every sample, once; and
    so does the library webdataset."""
    for count in (30, 10):
        rows = spark.sparkContext.parallelize(range(count), 3).map(picture)
        told = ml_shards.export_shards(rows, lake.dest)
    wanted = [picture(number) for number in range(10)]
    data = lake.data()
    index = json.loads(data.pop(ml_shards.INDEX))
    assert index == told
    assert sorted(data) == sorted(shard["url"] for shard in index["shards"])
    found = []
    for shard in index["shards"]:
        samples = list(ml_shards.samples(BytesIO(data[shard["url"]])))
        assert len(samples) == shard["samples"]
        found += samples
    assert found == wanted
    webdataset = pytest.importorskip("webdataset")
    where = lake.copied(tmp_path / "shards")
    urls = [f"{where}/{shard['url']}" for shard in index["shards"]]
    read = webdataset.WebDataset(urls, shardshuffle=False)
    assert [(one["__key__"], one["bin"], one["cls"]) for one in read] == [
        (name, parts["bin"], parts["cls"]) for name, parts in wanted
    ]
    del read
    gc.collect()  # what it leaves open is closed here, and not in another test
