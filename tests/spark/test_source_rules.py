"""``format("magic")`` without a Spark: its options, and each rule of its writer; pickles go where
Spark goes to another process."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

import magic_committer as mc
from magic_committer.errors import Unanswered
from magic_committer.job import Job, Task
from magic_committer.spark import source
from magic_committer.spark.files import Partitioning
from magic_committer.spark.source import (
    MagicSource,
    MagicWriter,
    SourceOptions,
    WrittenPartition,
    read_options,
)
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, control, refusing, visible

SCHEMA = StructType([StructField("n", LongType()), StructField("s", StringType())])


def read(given: Mapping[str, str], overwrite: bool = False) -> SourceOptions:
    """Read options, beside a path."""
    return read_options({"path": DEST, **given}, overwrite)


@pytest.mark.parametrize("key", ["partition_by", "partitionBy", "PARTITIONBY", "partitionby"])
@pytest.mark.parametrize("format", ["format", "fileFormat", "file_format"])
def test_text_becomes_the_type_of_the_field(key: str, format: str) -> None:
    """Numbers, flags, seconds, tags and lists are read; case and underscores do not count."""
    said = read(
        {
            key: '["a,b"]', format: "parquet", "max_records_per_file": "10",
            "mark_success": "False", "timeZone": "UTC", "compression": "zstd",
            "PARQUET.block.SIZE": "1000000", "s3.endpoint_url": "http://x:1",
            "s3.pathStyle": "true", "s3.retry_seconds_max": "5", "s3.tags": '{"team": "data"}',
            "s3.transport": "boto3", "options.block_bytes": "16777216",
            "options.buffer_bytes_max": "0",
        }
    )  # fmt: skip
    assert (said.max_records_per_file, said.mark_success) == (10, False)
    assert read({"max_records_per_file": "0"}).max_records_per_file is None
    assert (said.partition_by, said.time_zone) == (("a,b",), "UTC")
    assert read({key: "a, b"}).partition_by == ("a", "b")
    assert said.file_format == "parquet"
    assert said.of_format == {"compression": "zstd", "parquet.block.size": "1000000"}
    assert said.s3 == mc.S3Options(
        endpoint_url="http://x:1", path_style=True, retry_seconds_max=5.0,
        tags=(("team", "data"),), transport="boto3",
    )  # fmt: skip
    assert said.options == mc.Options(block_bytes=16 * 1024**2, buffer_bytes_max=0)
    with pytest.raises(mc.OptionError, match="twice"):
        read({format: "arrow", "FORMAT" if format != "format" else "fileformat": "csv"})
    with pytest.raises(mc.OptionError, match=r"has no path.*\.save\('s3://.*INSERT INTO t WITH"):
        read_options({}, False)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"partitionby_": "a", "partition_by": "a"}, "twice, in two spellings"),
        ({"partition": "a"}, r"does not know the option 'partition'.*There are path, fileFormat"),
        ({"compresion": "zstd"}, "Did you mean 'compression'"),
        ({"access_key": "hunter2"}, "is a secret.*AWS_PROFILE"),
        ({"s3.secretKey": "hunter2"}, r"'s3\.secretKey' is a secret"),
        ({"s3.sse_customer_key": "hunter2"}, "MAGIC_COMMITTER_SSE_CUSTOMER_KEY"),
        ({"s3.endpoint_url": "https://me:hunter2@x"}, "is a secret"),
        ({"s3.endpoint": "x"}, r"There are s3\.endpoint_url"),
        ({"options.blocks": "1"}, r"There are options\.block_bytes"),
        ({"s3.sekretkey": "hunter2"}, r"'s3\.sekretkey'\. There are s3\.endpoint_url"),
        ({"options.block_bytes": "8M"}, r"'options\.block_bytes': '8M' is not a whole number"),
        ({"options.block_bytes": "1"}, "block_bytes=1 is not between"),
        ({"s3.retry_seconds_max": "soon"}, "is not a number"),
        ({"s3.tags": "team=data"}, "is not names and texts as JSON"),
        ({"s3.tags": "[1]"}, "is not names and texts"),
        ({"mark_success": "yes"}, "'yes' is not true or false"),
        ({"partition_by": "a,,b"}, "names of columns"),
        ({"partition_by": "[1]"}, "is not names of columns"),
        ({"partition_by": "[a]"}, "as JSON, .*b"),
        ({"sort_by": "a"}, r"Sort before: df\.sortWithinPartitions"),
        ({"if_exists": "overwrit"}, "Did you mean 'overwrite'"),
        ({"checkpointlocation": "s3a://b/c"}, "does not know the option 'checkpointlocation'"),
    ],
)
def test_a_wrong_option_is_told_with_what_there_is(given: dict[str, str], told: str) -> None:
    """What cannot be used is named with its value; secrets are never shown."""
    with pytest.raises(mc.OptionError, match=told) as raised:
        read(given)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("overwrite", "if_exists", "mode"),
    [
        (False, None, "append"),
        (True, None, "overwrite"),
        *((False, mode, mode) for mode in ("error", "ignore", "append")),
        *((True, mode, mode) for mode in ("overwrite_partitions", "Overwrite")),
    ],
)
def test_the_mode_is_sparks_unless_the_option_says_it_more_exactly(
    overwrite: bool, if_exists: str | None, mode: str
) -> None:
    """``if_exists`` says what Spark's save mode cannot say to a data source."""
    assert read({"if_exists": if_exists} if if_exists else {}, overwrite).mode == mode


@pytest.mark.parametrize(
    ("overwrite", "if_exists"),
    [(False, "overwrite"), (False, "overwrite_partitions"), (True, "error"), (True, "ignore")],
)
def test_a_save_mode_and_an_option_that_contradict_each_other_are_refused(
    overwrite: bool, if_exists: str
) -> None:
    """Nobody's data is deleted by a job that says "append" too."""
    with pytest.raises(mc.OptionError, match=r"contradict each other.*Write \.mode\("):
        read({"if_exists": if_exists}, overwrite)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Partitions that are written next, as Spark's tasks would name them."""
    partitions: list[str] = []

    def attempt(job: Job) -> Task:
        partition = partitions.pop(0)
        return job._sole_task(partition, f"t{partition}")

    monkeypatch.setattr(source, "spark_attempt", attempt)
    return partitions


def made(schema: StructType = SCHEMA, **options: str) -> MagicWriter:
    """The writer, as the planner makes it."""
    writer = MagicSource({"path": DEST, **options}).writer(schema, False)
    assert isinstance(writer, MagicWriter)
    return writer


def elsewhere(writer: MagicWriter) -> MagicWriter:
    """The writer in another process of Spark's, to which no key of the environment travels."""
    pickled = pickle.dumps(writer)
    assert b"secret_key" not in pickled
    copy: MagicWriter = pickle.loads(pickled)
    return copy


def run(writer: MagicWriter, attempts: list[str], rows: Sequence[int]) -> list[WrittenPartition]:
    """Run one task for each number of rows, each with a writer of its own."""
    messages = []
    for number, count in enumerate(rows):
        attempts.append(str(number))
        batch = pyarrow.record_batch({"n": list(range(count)), "s": ["x"] * count})
        messages.append(elsewhere(writer).write(iter([batch])))
    return [pickle.loads(pickle.dumps(message)) for message in messages]


def data(store: MemoryStore) -> list[int]:
    """The rows of each file, by name."""
    return [parquet(body).num_rows for _, body in sorted(visible(store).items())]


def parquet(body: bytes) -> Any:
    return pyarrow.parquet.read_table(pyarrow.BufferReader(body))


def test_a_job_that_commits_leaves_no_record(s3: MemoryStore, attempts: list[str]) -> None:
    """Another process commits; without rows there is a file with the schema."""
    writer = made()
    messages = run(writer, attempts, [2, 0, 3])
    assert visible(s3) == {}
    elsewhere(writer).commit(messages)
    assert (data(s3), control(s3)) == ([2, 3], [])
    writer = made()
    elsewhere(writer).commit(run(writer, attempts, [0]))
    (body,) = (b for b in visible(s3).values() if not parquet(b).num_rows)
    assert parquet(body).column_names == ["n", "s"]


def test_a_job_that_is_aborted_leaves_nothing(s3: MemoryStore, attempts: list[str]) -> None:
    """Also where one task had no accepted result."""
    writer = made()
    messages = run(writer, attempts, [2, 3])
    for _ in range(2):
        elsewhere(writer).abort([messages[0], None])
        assert (s3.keys(), s3.open_uploads()) == ((), ())


def test_an_abort_after_a_decided_commit_leaves_the_job_to_be_finished(
    s3: MemoryStore, attempts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Spark aborts with all messages when the commit raises: what is decided stays decided."""
    writer = made()
    messages = run(writer, attempts, [2, 3])
    with refusing(s3, "complete_upload", Unanswered), pytest.raises(mc.CommitIncomplete) as raised:
        elsewhere(writer).commit(messages)
    with caplog.at_level(logging.WARNING, "magic_committer"):
        elsewhere(writer).abort(messages)
    assert "the job is committed" in caplog.text
    assert len(s3.open_uploads()) == 2
    assert mc.recover(DEST, raised.value.job_id).outcome == "committed"
    assert data(s3) == [2, 3]


def test_a_result_that_is_missing_is_not_committed(s3: MemoryStore, attempts: list[str]) -> None:
    """The commit takes one result of each partition, and of no partition two."""
    writer = made()
    messages = run(writer, attempts, [2, 3])
    with pytest.raises(mc.OptionError):
        elsewhere(writer).commit([messages[0], messages[0]])
    with pytest.raises(mc.IncompleteJob, match="1"):
        elsewhere(writer).commit([messages[0], None])
    assert visible(s3) == {}
    elsewhere(writer).abort(messages)
    assert (s3.keys(), s3.open_uploads()) == ((), ())


def test_an_abort_that_is_not_answered_is_told(s3: MemoryStore, attempts: list[str]) -> None:
    """Where the store does not say what became of the job, nobody is told that it has ended."""
    writer = made()
    with refusing(s3, "put *_job.json", Unanswered), pytest.raises(mc.MagicError):
        elsewhere(writer).abort([None])
    elsewhere(writer).abort([None])
    assert s3.keys() == ()


@pytest.mark.parametrize(("if_exists", "raises"), [("ignore", False), ("error", True)])
def test_data_that_comes_meanwhile_is_an_error_or_ignored(
    s3: MemoryStore, attempts: list[str], if_exists: str, raises: bool
) -> None:
    """What came stays alone; where there was data before, `ignore` starts nothing."""
    for before in (False, True)[: 1 if raises else 2]:
        writer = made(if_exists=if_exists)
        messages = run(writer, attempts, [2])
        s3.put_object("t/old.csv", b"old")
        with pytest.raises(mc.DestinationExists) if raises else nullcontext():
            elsewhere(writer).commit(messages)
        if raises or before:  # as Spark does
            elsewhere(writer).abort(messages)
        assert visible(s3) == {"t/old.csv": b"old"}
        assert s3.open_uploads() == ()


def test_nothing_is_started_where_something_is_refused(s3: MemoryStore) -> None:
    """Spark calls no abort when the planner raises: the job starts last."""
    for name, value in (("fileformat", "xlsx"), ("if_exists", "never"), ("compression", "no such")):
        with pytest.raises(Exception, match=value):
            MagicSource({"path": DEST, name: value}).writer(SCHEMA, False)
    s3.put_object("t/old.csv", b"old")
    with pytest.raises(mc.DestinationExists):
        made(if_exists="error")
    assert s3.keys() == ("t/old.csv",)


@pytest.mark.parametrize("rare", [[0, 5_000], [9_999]], ids=["mixed", "in order"])
def test_rows_of_a_rare_partition_keep_no_others_in_memory(rare: list[int]) -> None:
    """Its rows wait for a full row group until the task ends: slices would keep every batch."""
    before, waiting = pyarrow.total_allocated_bytes(), []
    for _ in range(50):
        # Of pyarrow's own memory, as what comes from Spark.
        of = pyarrow.array([int(row in rare) for row in range(10_000)])
        rows = pyarrow.record_batch({"n": pyarrow.array(range(10_000)), "p": of})
        split = dict(Partitioning(("p",), (1,)).split(rows))
        assert split["p=1/"].column(0).to_pylist() == rare
        waiting.append(split["p=1/"])
        del of, rows, split
    assert pyarrow.total_allocated_bytes() - before < 50 * 10_000 * 8 / 10


AT = StructType([*SCHEMA, StructField("at", TimestampType())])


def test_a_timestamp_in_the_path_needs_a_time_zone(s3: MemoryStore) -> None:
    """Spark does not tell a data source the session's."""
    with pytest.raises(mc.OptionError, match="time zone"):
        made(AT, partitionby="AT")
    made(AT, partitionby="AT", timezone="UTC")


@pytest.mark.parametrize("zone", ["+08:00", "Europe/Nowhere", "../UTC", "a\0b", "x" * 300])
def test_a_time_zone_that_python_does_not_know_starts_nothing(s3: MemoryStore, zone: str) -> None:
    """The JVM knows more of them. Each task would fail."""
    with pytest.raises(mc.OptionError, match="Etc/GMT-8"):
        made(AT, timezone=zone, partitionby="at")
    assert s3.keys() == ()
    made(AT, timezone=zone, partitionby="s")


def test_reading_says_how_to_read(s3: MemoryStore) -> None:
    """The files are plain files of their format."""
    for refused in (MagicSource({}).schema, lambda: MagicSource({}).reader(SCHEMA)):
        with pytest.raises(mc.OptionError, match=r"only writes.*spark\.read\.parquet"):
            refused()


def test_spark_finds_the_format_by_itself_and_is_never_hurt_by_it() -> None:
    """Spark imports the module for every data source: where ours cannot be, nothing is raised."""
    finds = "import pyspark_magic; print(getattr(pyspark_magic, 'DefaultSource', 'nothing'))"
    hidden = "import sys; sys.modules['pyspark.sql.datasource'] = None; "
    for program, told in ((hidden + finds, "nothing"), (finds, "MagicSource")):
        answer = subprocess.run(
            [sys.executable, "-c", program], cwd=Path(__file__).resolve().parents[2], check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        assert told in answer.stdout
