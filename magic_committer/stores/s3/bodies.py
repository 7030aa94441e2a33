"""Bodies of parts in a form that the SDK accepts: files that can be read again, without copies."""

from __future__ import annotations

import io
import os
from typing import BinaryIO, cast

from s3transfer.utils import ReadFileChunk

from magic_committer.stores.base import FileSlice, PartBody, Pieces

COPY_BYTES_MAX = 64 * 1024
"""Smaller bodies are copied: as bytes they are sent in one packet with their headers."""
READ_BYTES_MIN = 1024**2
"""The HTTP library asks for 16 KiB at a time. Larger pieces of memory save calls."""


def open_body(body: PartBody) -> bytes | BinaryIO:
    """Open the body at its beginning. The caller closes it if it has ``close``.

    Raises:
        EOFError: the file ends before the slice does.
    """
    if isinstance(body, FileSlice):
        held = os.path.getsize(body.path) - body.offset
        if held < body.length:
            raise EOFError(f"the file holds {max(held, 0)} of the slice's {body.length} bytes")
        return cast(BinaryIO, ReadFileChunk.from_filename(body.path, body.offset, body.length))
    pieces = Pieces.of(body)
    if pieces.nbytes <= COPY_BYTES_MAX:
        return b"".join(pieces.since(0))
    return cast(BinaryIO, MemoryReader(pieces))


class MemoryReader:
    """Reads pieces of memory as a file. It gives views of them and never copies.

    ``read`` may give more than it was asked for; the HTTP library sends that on as it is.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._at = 0

    def __len__(self) -> int:
        return self._pieces.nbytes

    def read(self, size: int = -1) -> memoryview:
        views = self._pieces.since(self._at)
        if not views:
            return memoryview(b"")
        if size < 0:
            piece = views[0] if len(views) == 1 else memoryview(b"".join(views))
        else:
            piece = views[0][: max(size, READ_BYTES_MIN)]
        self._at += piece.nbytes
        return piece

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fill ``buffer`` with as many bytes as there are. awscrt reads what it signs in this
        way."""
        views = self._pieces.since(self._at)
        piece = views[0][: len(buffer)] if views else memoryview(b"")
        memoryview(buffer).cast("B")[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self)}[whence]
        self._at = min(max(base + offset, 0), len(self))
        return self._at

    def tell(self) -> int:
        return self._at
