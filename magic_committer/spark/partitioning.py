"""Hive-style partition directories: which columns, which rows, which path. Pure.

Invariants:

* A path is Spark's own, letter for letter: Spark escapes some ASCII characters and no others. Null
  and the empty text are one partition, `DEFAULT_PARTITION`. So a table that Spark began can be
  continued here, and the other way round.
* The text of a value is the JVM's cast to string: the plan of `write_dataframe` has it made there.
  Where no plan can be changed (a data source), `value_text` makes it for the types of which Java's
  text is certain; a column of another type is refused before the job.
* Each row goes to exactly one partition, and rows of a partition keep their order.
* Rows of one partition hold no memory of the others: those of a rare one may wait until a task's
  end.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import types as spark_types

from magic_committer.errors import OptionError, WrongType

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The value in the path of rows whose partition column is null or an empty text."""
ESCAPED = frozenset([*(chr(code) for code in range(1, 0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"])
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


def resolve(names: Sequence[str], columns: Sequence[str], *, exact: bool, what: str) -> list[int]:
    """The positions of the columns that the user named by an argument, ``what``. ``exact``: whether
    upper and lower case differ (``spark.sql.caseSensitive``)."""
    if isinstance(names, str):
        raise WrongType(f"{what} is a list of column names", hint=f"Pass {what}=[{names!r}]")
    fold: Callable[[str], str] = str if exact else str.casefold
    places = {fold(column): number for number, column in enumerate(columns)}
    found: list[int] = []
    for name in names:
        if not isinstance(name, str):
            raise WrongType(f"{what} is a list of column names, not of {type(name).__name__}")
        place = places.get(fold(name))
        if place is None:
            raise OptionError(
                f"{what}: there is no column {name!r}", hint=f"There are {', '.join(columns)}"
            )
        if place in found:
            raise OptionError(f"{what} names the column {columns[place]!r} twice")
        found.append(place)
    return found


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
        import numpy

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
        import numpy

        encoded = values.dictionary_encode(null_encoding="encode")
        known: dict[str, int] = {}
        numbers = [
            known.setdefault(path_element(column, value_text(value, self.zone)), len(known))
            for value in encoded.dictionary.to_pylist()
        ]
        rows = encoded.indices.to_numpy(zero_copy_only=False)
        return list(known), numpy.array(numbers, dtype=numpy.int64)[rows]
