"""The Python of the guide, docs/spark.md, runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import Lake

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
BLOCKS = re.findall(r"(?<!-->\n)```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
"""Those that stand there alone: the program of a file is a recipe, and has tests of its own."""
TITLES = [re.sub(r"\W+", " ", block.strip().splitlines()[-1])[:40].strip() for block in BLOCKS]


@pytest.fixture
def names(spark: SparkSession, lake: Lake, tmp_path: Path) -> dict[str, Any]:
    """What the guide's reader has already."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "rows.json").write_text('{"id": 1, "dt": "a"}\n{"id": 2, "dt": "b"}\n')
    frame = spark.range(10).selectExpr("id", "string(id % 2) AS day", "string(id % 3) AS dt")
    return {
        "spark": spark,
        "df": frame,
        "rdd": frame.rdd,
        "stream": spark.readStream.schema("id LONG, dt STRING").json(str(tmp_path / "source")),
        "checkpoint": str(tmp_path / "checkpoint"),
    }


@pytest.mark.parametrize("block", BLOCKS, ids=TITLES)
def test_a_block_of_the_guide_runs(
    block: str, names: dict[str, Any], lake: Lake, tmp_path: Path
) -> None:
    """It runs in a directory that is empty, and writes files, or starts Spark."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = block
    for place, here in (
        ("s3://bucket", lake.dest.rstrip("/")),
        ("s3a://bucket/checkpoints", (tmp_path / "checkpoints").as_uri()),
        ("file:///mnt/scratch", scratch.as_uri()),
        ("file:///data/table", (tmp_path / "table").as_uri()),
    ):
        code = code.replace(place, here)
    exec(compile(code, str(GUIDE), "exec"), names)
    if (query := names.get("query")) is not None:
        query.processAllAvailable()
        query.stop()
    on_disk = [file for file in tmp_path.glob("table/**/*.parquet") if "_temp" not in str(file)]
    assert on_disk if "file:///data/table" in block else lake.data() or "session(" in block
    assert list(scratch.iterdir()) == []
    assert len(BLOCKS) >= 6
