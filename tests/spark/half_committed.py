"""A data source whose commit is killed after the decision, as by the end of its machine."""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql.types import StructType

from magic_committer.commit.publish import Publication
from magic_committer.spark.source import MagicSource, MagicWriter, Messages


class HalfCommitted(MagicSource):
    """``format("half_committed")``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "half_committed"

    def writer(self, schema: StructType, overwrite: bool) -> MagicWriter:
        """The writer of ``magic``, with another commit."""
        made = super().writer(schema, overwrite)
        assert isinstance(made, MagicWriter)
        return Killed(made.said, made.files, made.sink)

    def streamWriter(self, schema: StructType, overwrite: bool) -> MagicWriter:
        """The stream writer of ``magic``, with another commit."""
        made = super().streamWriter(schema, overwrite)
        assert isinstance(made, MagicWriter)
        return Killed(made.said, made.files, made.sink)


class Killed(MagicWriter):
    """Dies once the job is decided, before the first file is completed."""

    def commit(self, messages: Messages, batchId: int | None = None) -> None:
        """Die."""
        die_when_decided()
        super().commit(messages, batchId)


def die_when_decided() -> None:
    """Kill this process when it begins to complete files."""

    def die(*_: Any, **__: Any) -> Any:
        os._exit(9)

    Publication.complete_all = die  # type: ignore[method-assign]
