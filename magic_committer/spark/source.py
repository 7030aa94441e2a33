"""``format("magic")``: what `write_dataframe` and `foreach_batch` do, in Spark's own spelling.

::

    df.write.format("magic").mode("append").save("s3://bucket/table")
    stream.writeStream.format("magic").option("checkpointLocation", where).start("s3://bucket/t")

Spark runs a data source in processes of its own, each with a fresh copy of the writer: a planner
that calls `MagicSource.writer`, the tasks, a process that commits, and another one that aborts.
Invariants, beside those of `EngineSink`, and of streams those of `driver`:

* The planner starts the job last: if `writer` raises, Spark calls no ``abort``.
* A message that is missing is a partition that is missing.
* For a micro-batch Spark makes a second writer, in the process that commits, out of a pickled
  source. That one starts nothing (`MagicSource.is_planner`): it learns the job, and the query's id,
  from the tasks' messages. If no task sent one, there is nothing to commit, and the abort finds the
  job by the checkpoint location, of which the job's record holds a hash.

Spark gives a data source a dict of text, with its keys in lower case, and whether the save mode was
"overwrite". So everything that `write_dataframe` accepts as an argument is an option here:

* An option that nobody knows is an error that lists the known ones: a misspelt ``partition_by``
  would otherwise write a table without partitions.
* Upper and lower case and underscores do not count: ``partitionBy``, ``partition_by``.
* A secret is refused: Spark shows options in its plans, in its UI and in its event log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_args, get_type_hints
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType, TimestampType

from magic_committer.engines.sink import EngineSink
from magic_committer.errors import DestinationExists, MagicError, OptionError
from magic_committer.maintenance.api import abort_stream
from magic_committer.options import REPLACING, SECRET_FIELDS, Options, S3Options, mode_of
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.runtime.components import no_progress
from magic_committer.spark import driver
from magic_committer.spark.driver import Order, SaveMode, logger, needs, spark_attempt
from magic_committer.spark.files import TIME_ZONE, FrameFiles
from magic_committer.spark.formats import OPTIONS, meant
from magic_committer.spark.write import schema_task

_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)
"""The writers of streams of Spark 4.0 accept rows only."""
Messages = Sequence[datasource.WriterCommitMessage | None]


class MagicSource(datasource.DataSource):
    """The data source ``magic``. Spark makes it; users write ``format("magic")``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.is_planner = True

    def __getstate__(self) -> dict[str, Any]:
        # Spark makes the source in the planner, and pickles it to the process that commits.
        return {**self.__dict__, "is_planner": False}

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "magic"

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceArrowWriter:
        """Check the options, start the job. Called once for each write, in the planner."""
        said = read_options(self.options, overwrite)
        files = planned(said, schema)
        skips = said.ignores and said.finds_data()
        return MagicWriter(said, files, None if skips else EngineSink.begin(said.start()))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """The same for a micro-batch; called again in the process that commits."""
        needs((4, 1), 'writeStream.format("magic")', "Call foreach_batch")
        said = read_options(self.options, overwrite, streams=True)
        files = planned(said, schema)
        if not said.checkpoint:
            raise OptionError(
                "the stream has no checkpointLocation: a batch that is run again would be another",
                hint='Write .option("checkpointLocation", "s3a://bucket/checkpoints/query"), one'
                " for each query",
            )
        if not self.is_planner:
            return MagicWriter(said, files, None)
        driver.end_earlier_runs(said.dest, said.checkpoint, said.s3, said.options)
        return MagicWriter(said, files, EngineSink.begin(said.start()))

    def schema(self) -> StructType:
        """Refuse: Spark asks for a schema when it reads."""
        raise OptionError(
            'format("magic") only writes',
            hint="Read the files as what they are: spark.read.parquet('s3a://bucket/table'). In SQL"
            " name the columns: CREATE TABLE t (id BIGINT) USING magic",
        )

    def reader(self, schema: StructType) -> Any:
        """Refuse: the files are plain files of their format."""
        return self.schema()


@dataclass(frozen=True)
class WrittenPartition(datasource.WriterCommitMessage):
    """What a task sends to the process that commits; of a stream also its query and its job."""

    text: str = ""
    query: str = ""
    sink: EngineSink | None = None


@dataclass
class MagicWriter(datasource.DataSourceArrowWriter, _StreamWriter):  # type: ignore[misc]
    """The writer of one job, of a batch or of a stream's micro-batch: plain data, pickled to the
    tasks and to the commit. There is no ``sink`` where the mode is "ignore" and there is data, nor
    in the process that commits a micro-batch: there messages name the job."""

    said: SourceOptions
    files: FrameFiles
    sink: EngineSink | None

    def write(self, iterator: Iterator[Any]) -> WrittenPartition:
        """Write one partition's files as pending uploads. Called in a task, for each attempt."""
        if self.sink is None:
            return WrittenPartition()
        query = ""
        if self.said.checkpoint is not None:
            context = TaskContext.get()
            query = (context and context.getLocalProperty(driver.QUERY_PROPERTY)) or ""
            if not query:
                raise MagicError(f"this task is not a stream's: it has no {driver.QUERY_PROPERTY}")
        text = self.sink.attempt(spark_attempt, partial(self.files.write, batches=iterator))
        return WrittenPartition(text, query, self.sink if query else None)

    def commit(self, messages: Messages, batchId: int | None = None) -> None:
        """Make all files visible; those of a micro-batch unless this or a later one has been
        published."""
        sent = [message for message in messages if isinstance(message, WrittenPartition)]
        texts = [message.text for message in sent]
        tasks = map(str, range(len(messages)))
        if batchId is not None:
            if not sent or sent[0].sink is None:
                told = f"no task has sent its result: batch {batchId} cannot be committed"
                raise MagicError(told)
            sent[0].sink.complete(texts, tasks, batch=StreamBatch(sent[0].query, batchId))
        elif self.sink is not None:
            try:
                self.sink.complete(texts, tasks, last=partial(schema_task, self.files))
            except DestinationExists:
                if not self.said.ignores:  # else: the data came after our first look
                    raise
                logger.info("mode 'ignore': there is data by now, nothing is written")

    def abort(self, messages: Messages, batchId: int | None = None) -> None:
        """Make sure that nothing of the job becomes visible, unless it is decided."""
        sent = [message.sink for message in messages if isinstance(message, WrittenPartition)]
        for sink in (self.sink, *sent):
            if sink is not None:
                sink.failed()
                return
        said = self.said
        if said.checkpoint is not None:
            abort_stream(said.dest, said.checkpoint, s3=said.s3, options=said.options)


def planned(said: SourceOptions, schema: StructType) -> FrameFiles:
    """Plan the files. A data source sees nothing of Spark's configuration: a partition column that
    is an instant needs a time zone that Python knows."""
    named = {name.lower() for name in said.partition_by}
    zone = said.time_zone
    for field in schema:
        if field.name.lower() not in named or not isinstance(field.dataType, TimestampType):
            continue
        why = (
            "Spark does not tell a data source the session's time zone, in which its text would be"
        )
        hint = 'Say it: .option("timeZone", spark.conf.get("spark.sql.session.timeZone"))'
        if zone:
            why = f"Python does not know the time zone {zone!r:.80}"
            hint = "Name a region like 'Europe/Berlin', or an offset like 'Etc/GMT-8' (that is"
            hint += " UTC+8). Or call write_dataframe, or partition by a column of text"
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            told = f"partition_by: {field.name!r} is a timestamp, and {why}"
            raise OptionError(told, hint=hint) from None
    return FrameFiles.plan(
        schema, said.file_format, said.of_format or {}, partition_by=said.partition_by,
        max_records_per_file=said.max_records_per_file, conf={TIME_ZONE: zone or None}.get,
        prepared=False,
    )  # fmt: skip


# Options ------------------------------------------------------------------------------------------

CHECKPOINT = "checkpointLocation"
"""What Spark itself adds to the options of a stream."""
OWN = {
    **dict.fromkeys(("path", "fileFormat", "if_exists", "partition_by", "time_zone"), str),
    "max_records_per_file": int,
    "mark_success": bool,
    "committer": str,
}
"""The options that are not of a format, nor of a field, with their types."""
BY_FIELD = {"s3.": S3Options, "options.": Options}
"""What options are named by: ``s3.endpoint_url``, ``options.block_bytes``."""


@dataclass(frozen=True)
class SourceOptions(Order):
    """What a user of ``format("magic")`` asked for. ``time_zone`` is that of the text of a
    partition's timestamp, "" if it is not said; ``of_format`` is what is left, for the format."""

    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    max_records_per_file: int | None = None
    time_zone: str = ""
    of_format: Mapping[str, str] | None = None


def read_options(
    given: Mapping[str, str], overwrite: bool, *, streams: bool = False
) -> SourceOptions:
    """Read the options of a write, with keys in any case. `OptionError`: the path is missing, an
    option is unknown, given twice, or has a value that cannot be used."""
    named = {_plain(key): value for key, value in given.items()}.get("fileformat", "parquet")
    of_format = OPTIONS.get(named.lower(), ("compression",))
    kinds = {**OWN, **dict.fromkeys(of_format, str), **({CHECKPOINT: str} if streams else {})}
    for prefix, fields in BY_FIELD.items():
        kinds |= {prefix + name: kind for name, kind in get_type_hints(fields).items()}
    known = {_plain(name): name for name in kinds}
    read: dict[str, Any] = {}
    for key, text in given.items():
        name = known.get(_plain(key), "")
        field = name.rpartition(".")[2]
        if not name:
            raise _unknown(key, kinds)
        if field in SECRET_FIELDS or (field == "endpoint_url" and "@" in text):
            raise _secret(key)
        if name in read:
            told = f"option {key!r} is given twice, in two spellings"
            raise OptionError(told, hint="Leave one out")
        read[name] = _value(name, kinds[name], text)

    def fields_of(prefix: str) -> dict[str, Any]:
        names = [name for name in read if name.startswith(prefix)]
        return {name.removeprefix(prefix): read.pop(name) for name in names}

    if not read.get("path"):
        raise OptionError(
            'format("magic") has no path: it does not know where to write',
            hint="Write .start('s3://bucket/table')"
            if streams
            else "Write .save('s3://bucket/table'); in SQL: INSERT INTO t WITH"
            " (path='s3://bucket/table') SELECT ... (Spark passes no options of CREATE TABLE on)",
        )
    return SourceOptions(
        dest=read.pop("path"),
        mode=cast(SaveMode, _mode(read.pop("if_exists", None), overwrite, streams)),
        mark_success=read.pop("mark_success", True),
        s3=S3Options(**fields_of("s3.")),
        options=Options(**fields_of("options.")),
        progress=no_progress,
        checkpoint=read.pop(CHECKPOINT, None) or None,
        of_format={name: read.pop(name) for name in of_format if name in read},
        file_format=read.pop("fileFormat", "parquet"),
        **read,
    )


def _plain(key: str) -> str:
    """A key without what does not count; ``format`` and ``fileFormat`` are the same."""
    plain = key.lower().replace("_", "")
    return "fileformat" if plain == "format" else plain


def _mode(if_exists: str | None, overwrite: bool, streams: bool) -> str:
    """The mode, of Spark's save mode and of our option, which may say it more exactly."""
    said, other = ("overwrite", "append") if overwrite else ("append", "overwrite")
    if if_exists is None:
        return said
    if streams:
        raise OptionError(
            "if_exists is not for streams: each batch comes where the earlier ones are",
            hint='Leave it out: a stream appends; .outputMode("complete") replaces',
        )
    if (mode_of(if_exists, ignore=True) in REPLACING) == overwrite:
        return if_exists
    raise OptionError(
        f'.mode("{said}") and if_exists={if_exists!r} contradict each other: only overwriting'
        " replaces what is there",
        hint=f'Write .mode("{other}"), or leave if_exists out',
    )


def _unknown(key: str, names: Iterable[str]) -> OptionError:
    plain = _plain(key)
    if plain in map(_plain, SECRET_FIELDS):
        return _secret(key)
    if plain == "sortby":
        hint = "Sort before: df.sortWithinPartitions(...)"
        return OptionError('format("magic") cannot sort', hint=hint)
    prefix = next((one for one in BY_FIELD if plain.startswith(one)), "")
    more = ""
    if not prefix:
        names = [name for name in names if not name.startswith(tuple(BY_FIELD))]
        more = "; s3.<field of S3Options>, such as s3.endpoint_url; options.<field of Options>,"
        more += " such as options.block_bytes"
    near = {_plain(name): name for name in names if name.startswith(prefix)}
    near = {to: one for to, one in near.items() if one.removeprefix(prefix) not in SECRET_FIELDS}
    return OptionError(
        f'format("magic") does not know the option {key!r}',
        hint=f"{meant(plain, near)}There are {', '.join(near.values())}{more}",
    )


def _secret(key: str) -> OptionError:
    return OptionError(
        f"option {key!r} is a secret: Spark would show it in its plans and in its event log",
        hint="Leave it out: the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, ...) or an instance"
        " role supplies keys, on the driver's machine and on the executors;"
        " MAGIC_COMMITTER_SSE_CUSTOMER_KEY the key for SSE-C",
    )


def _columns(text: str) -> tuple[str, ...]:
    """``"a, b"``; as JSON for names that hold a comma: ``'["a,b"]'``."""
    is_json = text.lstrip().startswith("[")
    names = json.loads(text) if is_json else [part.strip() for part in text.split(",")]
    if not all(isinstance(one, str) and (one or is_json) for one in names):
        raise ValueError
    return tuple(names)


def _tags(text: str) -> tuple[tuple[str, str], ...]:
    read = json.loads(text)
    if not (isinstance(read, dict) and all(isinstance(one, str) for one in read.values())):
        raise ValueError
    return tuple(read.items())


READERS: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    "tags": (_tags, 'names and texts as JSON; write {"team": "data"}'),
    "partition_by": (_columns, 'names of columns; write a,b or, as JSON, ["a", "b"]'),
    "max_records_per_file": (lambda text: max(0, int(text)) or None, "a whole number"),
    bool: (lambda text: {"true": True, "false": False}[text.strip().lower()], "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
}
"""What reads a field, by its name or its type, and what it wants. Other fields are text."""


def _value(name: str, kind: Any, text: str) -> Any:
    for one in (name.rpartition(".")[2], *get_args(kind), kind):
        if one in READERS:
            read, wanted = READERS[one]
            try:
                return read(text)
            except (ValueError, LookupError):
                raise OptionError(f"option {name!r}: {text!r:.80} is not {wanted}") from None
    return text
