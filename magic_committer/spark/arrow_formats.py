"""Arrow IPC files ("Feather V2"), encoded by pyarrow.

Invariants:

* An option is honoured or refused before the job starts.
* Types of Spark that Arrow's readers do not know are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType

from magic_committer.errors import OptionError
from magic_committer.spark.row_groups import ROW_GROUP_BYTES, GroupedBody, file_without_rows
from magic_committer.spark.types import Refusals, VariantType, file_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ARROW_CODECS = {"none": None, "uncompressed": None, "lz4": "lz4", "zstd": "zstd"}
"""The codecs of Arrow IPC files."""


@dataclass(frozen=True)
class ArrowFiles:
    """How to write Arrow IPC files of one schema.

    Attributes:
        schema: the Arrow schema.
        codec: ``"lz4"``, ``"zstd"`` or None.
        row_group_bytes: bytes of Arrow data that are written at a time.
    """

    schema: Any
    codec: str | None
    row_group_bytes: int = ROW_GROUP_BYTES

    @property
    def extension(self) -> str:
        """What the files' names end with."""
        return ".arrow"

    def begin(self, file: Any) -> GroupedBody:
        """Begin a file; ``file`` stays open."""
        return GroupedBody(self, file)

    def without_rows(self) -> bytes:
        """Give the bytes of a file that holds only the schema."""
        return file_without_rows(self)

    def columns(self, given: Sequence[Column], names: Sequence[str]) -> list[Column]:
        """The columns as they are."""
        return list(given)

    def bound(self, df: DataFrame) -> ArrowFiles:
        """Itself: no session is needed."""
        return self

    def writer(self, sink: Any, first: Any) -> Any:
        """Begin a file."""
        from pyarrow import ipc

        options = ipc.IpcWriteOptions(compression=self.codec)
        return ipc.new_file(sink, self.schema, options=options)

    def write_table(self, writer: Any, table: Any) -> None:
        """Write record batches, as Spark made them."""
        writer.write_table(table)


ARROW_REFUSALS: Refusals = {
    VariantType: "Write Parquet, or to_json of it",
    spark_types.YearMonthIntervalType: "Cast it to a number of months",
    spark_types.UserDefinedType: "Write Parquet",
}
"""What Arrow files do not keep: their readers know nothing of Spark."""


def arrow_files(
    schema: StructType, options: Mapping[str, Any], conf: Callable[[str], str | None]
) -> ArrowFiles:
    """Plan the Arrow IPC files of a schema.

    Args:
        schema: the columns of the files.
        options: ``compression``: none (default), lz4 or zstd.
        conf: not read.

    Raises:
        OptionError: a type cannot be kept, or there is no such option or codec.
    """
    for name in options:
        if name.lower() != "compression":
            raise OptionError(
                f"the arrow writer has no option {name!r}", hint="There is compression"
            )
    codec = next((str(value) for value in options.values() if value is not None), "none").lower()
    if codec not in ARROW_CODECS:
        raise OptionError(
            f"Arrow files cannot be compressed by {codec!r}",
            hint=f"There are {', '.join(ARROW_CODECS)}",
        )
    return ArrowFiles(file_schema(schema, ARROW_REFUSALS), ARROW_CODECS[codec])
