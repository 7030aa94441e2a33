"""Which files the rows of a DataFrame become, under which names. Invariants:

* A `FrameFiles` is a value: immutable, and pickled into each task. `FrameFiles.plan` checks all
  that can be checked before a job is started, and encodes an empty file as a trial. It needs no
  session.
* Rows come in record batches, whose columns are known by position. `prepare` changes a DataFrame so
  that the JVM does what only the JVM knows exactly: the text of partition values, rows as CSV or
  JSON; and sorts it, so that a task has one file open at a time.
* Where no plan can be changed (``prepared=False``: a data source), rows of many partitions come
  mixed, and `value_text` makes the text of the types of which Java's is certain; others are refused
  before the job. At most `OPEN_FILES_MAX` files are then open; the one that was used least recently
  is closed, and its partition gets another file when it comes again.
* A task without rows writes nothing. Names differ by partition, and by number within a directory.
* A partition's path is Spark's own, letter for letter: Spark escapes some ASCII characters and no
  others. Null and the empty text are one partition. So a table that Spark began can be continued
  here, and the other way round.
* Each row goes to exactly one partition, and rows of a partition keep their order. They hold no
  memory of others: those of a rare partition may wait until a task's end.
"""

from __future__ import annotations

import datetime
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import numpy
from pyspark.sql import DataFrame, functions
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType

from magic_committer.engines.items import whole_number
from magic_committer.errors import OptionError
from magic_committer.job import Task
from magic_committer.spark.driver import CASE_SENSITIVE, format_name, refuse_hidden, resolve
from magic_committer.spark.formats import FORMATS, Conf, FileEncoder
from magic_committer.spark.types import NEVER, VariantType, is_months

OPEN_FILES_MAX = 8
"""Files that a task has open at a time where rows of many partitions come mixed. Each has the
memory of an upload and of two row groups."""
FILES_PER_TASK_MAX = 100_000
"""More files of a task are a mistake in ``partition_by`` or ``max_records_per_file``."""

TIME_ZONE = "spark.sql.session.timeZone"

ENCODED_BY_JVM = frozenset({"csv", "json"})
"""Formats whose rows the JVM encodes: they need a DataFrame that can be prepared."""


DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The value in the path of null and of the empty text."""
ESCAPED = frozenset([*map(chr, range(1, 0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"])
"""What Spark escapes in a partition's path: ``ExternalCatalogUtils.charToEscape``."""

CERTAIN = (
    spark_types.StringType,
    spark_types.BooleanType,
    spark_types.IntegralType,
    spark_types.DecimalType,
    spark_types.DateType,
    spark_types.TimestampType,
    spark_types.TimestampNTZType,
)
"""Types of which `value_text` knows Java's text."""


@dataclass(frozen=True)
class FrameFiles:
    """How the rows of a DataFrame become files. ``data``, ``parts`` and ``sort`` are places of its
    columns: of those that files hold, of the partition columns, of those that a file is sorted by.
    ``max_records_per_file`` 0: no limit."""

    encoder: FileEncoder
    partitioning: Partitioning
    max_records_per_file: int
    open_files_max: int
    data: tuple[int, ...]
    parts: tuple[int, ...]
    sort: tuple[int, ...]

    @classmethod
    def plan(
        cls,
        spark_schema: StructType,
        format: str,
        options: Mapping[str, Any],
        *,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        max_records_per_file: int | None = None,
        conf: Conf,
        prepared: bool = True,
    ) -> FrameFiles:
        """Plan files. What cannot be written raises `OptionError`, `WrongType`, or pyarrow's error.
        ``prepared``: batches will come of the DataFrame that `prepare` gives."""
        name = format_name(format, FORMATS)
        names = spark_schema.names
        exact = conf(CASE_SENSITIVE) == "true"
        if not names:
            raise OptionError("the DataFrame has no columns")
        folded = Counter(name if exact else name.casefold() for name in names)
        if twice := [one for one in names if folded[one if exact else one.casefold()] > 1]:
            raise OptionError(
                f"the DataFrame has two columns of one name: {', '.join(sorted({*twice}))}",
                hint=f"Rename one. {CASE_SENSITIVE} says whether upper and lower case differ",
            )
        parts = resolve(partition_by, names, exact=exact, what="partition_by")
        sort = resolve(sort_by, names, exact=exact, what="sort_by")
        if not prepared and name in ENCODED_BY_JVM:
            raise OptionError(
                f"format {name!r} is encoded by the JVM, which a data source cannot ask for",
                hint=f"Call write_dataframe(df, dest, {name!r})",
            )
        months = [field.name for field in spark_schema if is_months(field.dataType)]
        if months and not prepared:
            raise OptionError(
                f"column {months[0]}: a year-month interval cannot be written here",
                hint="Call write_dataframe, or cast it to a number of months",
            )
        refuse_partitions([spark_schema[place] for place in parts], len(names), prepared)
        data = [place for place in range(len(names)) if place not in parts]
        kinds = StructType([spark_schema[place] for place in data])
        encoder = FORMATS[name](kinds, options, conf)
        encoder.without_rows()  # a trial: what the format does not have is refused now
        places = tuple(range(len(parts))) if prepared else tuple(parts)  # prepared: in front
        # The names as the user spells them.
        partitioning = Partitioning(tuple(partition_by), places, conf(TIME_ZONE) or "UTC")
        if (rows := max_records_per_file) is None:
            rows = max(0, int(conf("spark.sql.files.maxRecordsPerFile") or 0))
        else:
            whole_number("max_records_per_file", rows, "1_000_000")
        open_files = OPEN_FILES_MAX if parts and not prepared else 1
        return cls(encoder, partitioning, rows, open_files, tuple(data), tuple(parts), tuple(sort))

    def prepare(self, df: DataFrame) -> tuple[DataFrame, FrameFiles]:
        """Give the DataFrame whose batches the tasks get, and the files with what only its session
        knows. No Spark job runs."""
        # By number: mapInArrow looks columns up by name, and reads a dot in a name as a path.
        names = df.columns
        numbered = df.toDF(*(f"c{number}" for number in range(len(names))))
        texts = [f"p{place}" for place in self.parts]
        for place, text in zip(self.parts, texts, strict=True):
            as_text = functions.col(f"c{place}").cast("string")
            numbered = numbered.withColumn(text, functions.nullif(as_text, functions.lit("")))
        order = [*texts, *(f"c{place}" for place in self.sort)]
        if order:
            numbered = numbered.sortWithinPartitions(*order)
        columns = [f"c{place}" for place in self.data]
        encoder, made = self.encoder.prepare(df, columns, [names[place] for place in self.data])
        # Each column that is named here costs calls to the JVM, so only where one changes.
        if texts or not all(isinstance(one, str) for one in made):
            renamed = (
                one if isinstance(one, str) else one.alias(f"d{n}") for n, one in enumerate(made)
            )
            numbered = numbered.select(*texts, *renamed)
        return numbered, replace(self, encoder=encoder)

    def write(self, task: Task, batches: Iterable[Any]) -> None:
        """Write the record batches of a task into its files. After an error no file of the task is
        complete."""
        files = _OpenFiles(self, task)
        try:
            for batch in batches:
                if batch.num_rows:
                    for directory, rows in self.partitioning.split(batch):
                        files.add(directory, rows)
            while files.open:
                files.close(next(iter(files.open)))
        except BaseException as error:
            while files.open:
                files.open.popitem()[1].end.__exit__(type(error), error, error.__traceback__)
            raise

    def write_empty(self, task: Task) -> None:
        """Write the file of a DataFrame without rows; none where there are partition columns."""
        if not self.parts:
            with task.open(f"part-00000{self.encoder.extension}", unique=True) as file:
                file.write(self.encoder.without_rows())


@dataclass
class _Open:
    """A file that is being written: what adds rows to it, and what ends it."""

    add: Callable[[Any], None]
    end: ExitStack
    rows: int = 0


class _OpenFiles:
    """The files of a task that are ``open``, at most ``open_files_max`` at a time."""

    def __init__(self, files: FrameFiles, task: Task) -> None:
        self._files = files
        self._task = task
        self.open: OrderedDict[str, _Open] = OrderedDict()
        self._begun: Counter[str] = Counter()
        self._written = 0

    def add(self, directory: str, rows: Any) -> None:
        """Write rows into the file of a directory that is open, or into a new one."""
        most = self._files.max_records_per_file
        while rows.num_rows:
            one = self.open.get(directory) or self._begin(directory)
            self.open.move_to_end(directory)
            taken = rows.slice(0, most - one.rows if most else rows.num_rows)
            one.add(taken)
            one.rows += taken.num_rows
            rows = rows.slice(taken.num_rows)
            if one.rows == most:
                self.close(directory)

    def _begin(self, directory: str) -> _Open:
        if len(self.open) >= self._files.open_files_max:
            self.close(next(iter(self.open)))
        if self._written >= FILES_PER_TASK_MAX:
            raise OptionError(
                f"a task would write more than {FILES_PER_TASK_MAX} files",
                hint="Partition by columns of fewer values, or let more rows go into a file",
            )
        number = self._begun[directory]
        counter = f".c{number:03d}" if number else ""
        encoder = self._files.encoder
        name = f"part-{int(self._task.task_id):05d}{counter}{encoder.extension}"
        end = ExitStack()
        file = end.enter_context(self._task.open(directory + name, unique=True))
        self.open[directory] = one = _Open(end.enter_context(encoder.begin(file)), end)
        self._begun[directory] += 1
        self._written += 1
        return one

    def close(self, directory: str) -> None:
        """End the file of a directory."""
        self.open.pop(directory).end.close()


def refuse_partitions(
    fields: Sequence[spark_types.StructField], columns: int, prepared: bool
) -> None:
    """Refuse partition columns that no path can tell (`OptionError`)."""
    if fields and len(fields) == columns:
        raise OptionError(
            "partition_by names all columns: no column would be left for the files",
            hint="Leave one out",
        )
    refuse_hidden(field.name for field in fields)
    for field in fields:
        kind = field.dataType
        name = kind.simpleString()
        if not isinstance(kind, spark_types.AtomicType) or isinstance(kind, (VariantType, *NEVER)):
            why = f"has the type {name}, which no path can tell"
            hint = "Make a column of text or numbers of it"
        elif " collate " in name:
            why = "has a collation: texts that are equal would be different directories"
            hint = "Cast it to STRING COLLATE UTF8_BINARY"
        elif not prepared and not isinstance(kind, CERTAIN):
            why = f"has the type {name}, whose text only the JVM knows"
            hint = "Cast it to string before, or call write_dataframe"
        else:
            continue
        raise OptionError(f"partition_by: the column {field.name!r} {why}", hint=hint)


# Partitions ---------------------------------------------------------------------------------------


def path_element(column: str, text: str | None) -> str:
    """The directory of one column and value, escaped as Spark does: ``day=2026-11-21``."""

    def escape(text: str) -> str:
        return "".join(f"%{ord(one):02X}" if one in ESCAPED else one for one in text)

    return f"{escape(column)}={escape(text) if text else DEFAULT_PARTITION}"


def value_text(value: Any, zone: str) -> str | None:
    """The text that Spark's cast to string gives for a value of one of the `CERTAIN` types, as
    pyarrow gives it; an instant's in the session's time zone."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        text = str(value.isoformat(sep=" "))
        return text.rstrip("0") if value.microsecond else text
    if isinstance(value, datetime.date):
        return str(value.isoformat())
    return format(value, "f") if isinstance(value, Decimal) else str(value)


@dataclass(frozen=True)
class Partitioning:
    """The partition columns of a job, in the order of the path, and their places in the batches
    that a task gets. ``zone`` is the time zone of instants."""

    columns: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    zone: str = "UTC"

    def split(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """Split a record batch: the directory of each partition in it (``"a=1/b=2/"``; ``""`` where
        there are no partition columns), and its rows, without the partition columns. A directory
        comes once, and the rows keep their order."""
        if not self.columns:
            yield "", batch
            return
        codes = numpy.zeros(batch.num_rows, dtype=numpy.int64)
        parts = []
        for column, place in zip(self.columns, self.places, strict=True):
            elements, numbers = self._elements(column, batch.column(place))
            parts.append((elements, numbers))
            # Numbered anew after each column: the product of many would outgrow 64 bits.
            codes = numpy.unique(codes * len(elements) + numbers, return_inverse=True)[1]
        rows = batch.select([n for n in range(batch.num_columns) if n not in self.places])
        starts = numpy.flatnonzero(numpy.diff(codes, prepend=-1))
        order = numpy.arange(batch.num_rows)
        mixed = len(starts) > len(numpy.unique(codes))
        if mixed:  # a partition comes again
            order = numpy.argsort(codes, kind="stable")
            starts = numpy.flatnonzero(numpy.diff(codes[order], prepend=-1))
        for start, end in pairwise([*starts.tolist(), batch.num_rows]):
            path = "/".join(elements[numbers[order[start]]] for elements, numbers in parts)
            # A slice keeps the whole batch in memory, as long as its few rows wait.
            copied = mixed or (end - start) * 2 < batch.num_rows
            mine = rows.take(order[start:end]) if copied else rows.slice(start, end - start)
            yield f"{path}/", mine

    def _elements(self, column: str, values: Any) -> tuple[list[str], Any]:
        """The distinct path elements of a column, and for each row the number of its own. Null and
        the empty text are one element; so are two instants of one wall clock."""
        encoded = values.dictionary_encode(null_encoding="encode")
        known: dict[str, int] = {}
        numbers = [
            known.setdefault(path_element(column, value_text(value, self.zone)), len(known))
            for value in encoded.dictionary.to_pylist()
        ]
        rows = encoded.indices.to_numpy(zero_copy_only=False)
        return list(known), numpy.array(numbers, dtype=numpy.int64)[rows]
