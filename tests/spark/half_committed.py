"""A data source whose commit is killed after the decision, as by the end of its machine."""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql.types import StructType

from magic_committer.commit.publish import Publication
from magic_committer.spark.source import MagicSource, MagicWriter, Messages


class HalfCommitted(MagicSource):
    """``format("half_committed")``: the writers of ``magic``, with another commit."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "half_committed"

    def writer(self, schema: StructType, overwrite: bool) -> MagicWriter:
        return _killed(super().writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> MagicWriter:
        return _killed(super().streamWriter(schema, overwrite))


class Killed(MagicWriter):
    """Dies once the job is decided, before the first file is completed."""

    def commit(self, messages: Messages, batchId: int | None = None) -> None:
        """Die."""

        def die(*_: Any, **__: Any) -> Any:
            os._exit(9)

        Publication.complete_all = die  # type: ignore[method-assign]
        super().commit(messages, batchId)


def _killed(made: Any) -> Killed:
    assert isinstance(made, MagicWriter)
    return Killed(made.said, made.files, made.sink)
