"""Files that are made of groups of rows: gather Spark's batches, encode a group beside the task.

Invariants:

* A group holds `ROW_GROUP_BYTES` of Arrow data, not one of Spark's batches of 10,000 rows. A thread
  of the pool encodes it while the task takes Spark's next batches.
* One group of a file is encoded at a time: at most two are in memory, and one thread at a time uses
  the file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any, Generic, Protocol, TypeVar

from magic_committer import _wiring
from magic_committer._pool import Future, result_of

T = TypeVar("T")

ROW_GROUP_BYTES = 32 * 1024**2
"""Bytes of Arrow data that a task gathers before it writes a row group, unless an option of the
format says another number."""


class GroupEncoder(Protocol):
    """How groups of rows become a file: an immutable value."""

    @property
    def schema(self) -> Any:
        """The Arrow schema of the file."""

    @property
    def row_group_bytes(self) -> int:
        """Bytes of Arrow data in a group."""

    def writer(self, sink: Any, first: Any) -> Any:
        """Begin a file, of which the first table is given; None: there are no rows. What is given
        back is closed in the end."""

    def write_table(self, writer: Any, table: Any) -> None:
        """Write a group."""


class GroupedBody:
    """The rows of one file, as they come."""

    def __init__(self, encoder: GroupEncoder, file: Any) -> None:
        self._encoder = encoder
        self._file = file
        self._writer: Any = None
        self._group: list[Any] = []
        self._gathered = 0
        self._encoding = OneAhead(self._write_group)

    def add(self, batch: Any) -> None:
        """Take rows. A group that is full is encoded beside the caller."""
        self._group.append(batch)
        self._gathered += batch.nbytes
        if self._gathered >= self._encoder.row_group_bytes:
            self._send()

    def end(self) -> None:
        """Write what is left, and the footer. The file stays open."""
        if self._group:
            self._send()
        self._encoding.wait()
        self._begun(None).close()

    def give_up(self, why: BaseException) -> None:
        """Leave the file as it is. Nothing uses it any more."""
        self._encoding.leave(why)
        if self._writer is not None:
            try:
                self._writer.close()  # else it would write its footer whenever it is collected
            except Exception as failed:
                why.add_note(f"the file could not be closed: {failed}")

    def _send(self) -> None:
        group, self._group, self._gathered = self._group, [], 0
        self._encoding.put(group)

    def _begun(self, first: Any) -> Any:
        import pyarrow

        if self._writer is None:
            sink = pyarrow.PythonFile(self._file, mode="w")
            self._writer = self._encoder.writer(sink, first)
        return self._writer

    def _write_group(self, group: list[Any]) -> None:
        import pyarrow

        schema = self._encoder.schema
        table = pyarrow.Table.from_batches(group).rename_columns(schema.names).cast(schema)
        group.clear()  # so that its memory is freed where the cast made other arrays
        self._encoder.write_table(self._begun(table), table)


def file_without_rows(encoder: GroupEncoder) -> bytes:
    """Give the bytes of a file that holds only the schema."""
    file = BytesIO()
    GroupedBody(encoder, file).end()
    return file.getvalue()


class OneAhead(Generic[T]):
    """Uses items in a thread of the pool, in order and one at a time, while its caller gets the
    next item."""

    def __init__(self, use: Callable[[T], None]) -> None:
        self._use = use
        self._running: Future[None] | None = None

    def put(self, item: T) -> None:
        """Begin to use an item, as soon as the item before is done with.

        Raises:
            What the use of the item before raised. This one is not used.
        """
        self.wait()
        self._running = _wiring.pool.submit(partial(self._use, item))

    def wait(self) -> None:
        """Wait until nothing is in use. Raises what the use raised, once."""
        running = self._running
        if running is not None:
            try:
                result_of(running)
            finally:
                if running.done():  # not so after Ctrl-C
                    self._running = None

    def leave(self, why: BaseException) -> None:
        """Wait until nothing is in use, because of an error. What the use raised becomes a note of
        it."""
        try:
            self.wait()
        except Exception as failed:
            why.add_note(f"what was under way failed too: {failed}")
