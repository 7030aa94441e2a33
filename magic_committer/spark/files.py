"""`FrameFiles`: how the rows of a DataFrame become files: which, under which names, of which rows.

Invariants:

* A `FrameFiles` is a value: immutable, and pickled into each task. `FrameFiles.plan` checks all
  that can be checked before a job is started, and encodes an empty file as a trial. It needs no
  session.
* Rows come in record batches, whose columns are told by position. `prepare` changes a DataFrame so
  that the JVM does what only the JVM knows exactly: the text of partition values, rows as CSV or
  JSON; and sorts it, so that a task has one file open at a time.
* Where no plan can be changed (``prepared=False``: a data source), rows of many partitions come
  mixed. At most `OPEN_FILES_MAX` files are then open; the one that was used least recently is
  closed, and its partition gets another file when it comes again.
* A task without rows writes nothing. Names are told by partition, and by number within a directory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType

from magic_committer.engines.items import whole_number
from magic_committer.errors import OptionError, WrongType
from magic_committer.job import Task
from magic_committer.spark.formats import FORMATS, Conf, FileEncoder
from magic_committer.spark.partitioning import CERTAIN, Partitioning, resolve
from magic_committer.spark.types import NEVER, VariantType, is_months

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPEN_FILES_MAX = 8
"""How many files a task has open at a time where rows of many partitions come mixed. Each takes the
memory of an upload and of two row groups."""
FILES_PER_TASK_MAX = 100_000
"""How many files a task may write. More are a mistake in ``partition_by`` or
``max_records_per_file``, and would cost three requests each."""

CASE_SENSITIVE = "spark.sql.caseSensitive"
TIME_ZONE = "spark.sql.session.timeZone"

ENCODED_BY_JVM = frozenset({"csv", "json"})
"""Formats whose rows the JVM encodes: they need a DataFrame that can be prepared."""


@dataclass(frozen=True)
class FrameFiles:
    """How the rows of a DataFrame become files. ``data``, ``parts`` and ``sort`` are places in the
    DataFrame: of the columns that files hold, of the partition columns, and of those that a file is
    sorted by. ``max_records_per_file`` 0: no limit."""

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
        """Plan files, and check all that can be checked: what cannot be written raises
        `OptionError`, `WrongType`, or what pyarrow raises for options that it does not know.
        ``prepared``: batches will come of the DataFrame that `prepare` gives, else in any order."""
        name = format_name(format)
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
        for field in spark_schema:
            if not prepared and is_months(field.dataType):
                raise OptionError(
                    f"column {field.name}: a year-month interval cannot be written here",
                    hint="Call write_dataframe, or cast it to a number of months",
                )
        refuse_partitions([spark_schema[place] for place in parts], len(names), prepared)
        data = [place for place in range(len(names)) if place not in parts]
        kinds = StructType([spark_schema[place] for place in data])
        encoder = FORMATS[name](kinds, options, conf)
        encoder.without_rows()  # a trial: what the format does not have is told now
        places = tuple(range(len(parts))) if prepared else tuple(parts)  # prepared: in front
        zone = conf(TIME_ZONE) or "UTC"
        partitioning = Partitioning(tuple(partition_by), places, zone)  # as the user spells it
        if (rows := max_records_per_file) is None:
            rows = max(0, int(conf("spark.sql.files.maxRecordsPerFile") or 0))
        else:
            whole_number("max_records_per_file", rows, "1_000_000")
        open_files = OPEN_FILES_MAX if parts and not prepared else 1
        return cls(encoder, partitioning, rows, open_files, tuple(data), tuple(parts), tuple(sort))

    def prepare(self, df: DataFrame) -> tuple[DataFrame, FrameFiles]:
        """Give the DataFrame whose batches the tasks get, and the files with what only its session
        knows. No Spark job runs."""
        from pyspark.sql import functions

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
        """Write the file of a DataFrame without rows, where Spark writes one: not where there are
        partition columns."""
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
    """The files of a task that are ``open``, at most so many at a time."""

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


# Checks -------------------------------------------------------------------------------------------


def format_name(format: object, known: Iterable[str] = FORMATS, where: str = "here") -> str:
    """The name of a format, in lower case; `WrongType`, `OptionError`: there is no such format."""
    if not isinstance(format, str):
        raise WrongType(f"format is text, not {type(format).__name__}", hint="Pass 'parquet'")
    if format.lower() not in known:
        raise OptionError(
            f"there is no format {format!r} {where}; there is {', '.join(known)}",
            hint="Or write the files yourself: write_partitions(df.rdd, dest, fn)",
        )
    return format.lower()


def refuse_hidden(names: Iterable[str]) -> None:
    """Refuse partition columns whose directories readers would not see (`OptionError`)."""
    if hidden := [name for name in names if name.startswith(("_", "."))]:
        raise OptionError(
            f"partition_by: {', '.join(hidden)}: readers take directories whose names begin with _"
            " or . for hidden ones",
            hint="Rename the column: df.withColumnRenamed(...)",
        )


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
        why = hint = ""
        if not isinstance(kind, spark_types.AtomicType) or isinstance(kind, (VariantType, *NEVER)):
            why = f"has the type {name}, which no path can tell"
            hint = "Make a column of text or numbers of it"
        elif " collate " in name:
            why = "has a collation: texts that are equal would be different directories"
            hint = "Cast it to STRING COLLATE UTF8_BINARY"
        elif not prepared and not isinstance(kind, CERTAIN):
            why = f"has the type {name}, whose text only the JVM knows"
            hint = "Cast it to string before, or call write_dataframe"
        if why:
            raise OptionError(f"partition_by: the column {field.name!r} {why}", hint=hint)
