"""Bytes become blocks, and blocks become parts, in parallel. What remains is a pending upload.

Theory. A file of a task is a multipart upload on the final key. Create is sent when the file is
opened, and its answer is awaited when the first block is full. Blocks fill one after the other.
Each is handed to the pool, which computes its checksum and sends it as a part while the writer goes
on. `UploadStream.close` waits for all parts and calls ``on_close``, which records the pending.
Completing the upload makes the object visible; it is never done here.

If the owner allows it (``beside``), Create is sent when the first block is half full. A file that
ends before has sent nothing: `close` hands Create, part and ``on_close`` to the pool as one
function, and returns. The file is ``closing`` until that function has ended; an abort stops the
function first, waits for it, and only then looks at the state.

A file ends in exactly one of three ways (``sender.MOVES`` is the table)::

    open --close--> closing --all parts stored, on_close returned--> pending
      |                |
      |                \\--Create, a part, before_block, on_close or the disk failed--> failed
      |\\-------------------------------------------------------------------------------/
      \\--abort(), with left by exception, dropped, interpreter exit--> aborted

Invariants:

* ``on_close`` is called only for ``pending``, once, after every byte was stored. Python calls
  ``close()`` on a file that is dropped, and when an exception leaves ``with``; here both abort.
  (A wrapper inside the block, such as ``zipfile``, closes the file as the exception passes: then
  the end of the block removes the pending from its attempt again.)
* For ``failed`` and ``aborted`` the upload is aborted, or the log says that it could not be. A
  failure shows at the next call and at `close`; it is never forgotten.
* Memory of a stream is at most ``part size * (parts_in_flight + 2)``: the parts in flight, the
  block that fills, and the bytes that this block holds twice while it grows. With 8 MiB blocks that
  is 40 MiB for the first 1,000 parts. All streams of a process share ``buffer_bytes_max``. Bytes
  beyond it, and every part above 64 MiB, wait on disk. Memory of sent blocks is used again by the
  next ones, and given back when no file is open.
* Waiting is by ``Future.wait`` and nothing else; no lock is held over I/O.
* A forked child touches nothing of its parent's files: writing, closing and aborting them raises in
  the child, and finalizers do nothing.

``blocks`` holds bytes, ``sender`` talks to pool and store, ``stream`` is the file, and keeps the
books of its parts.
"""

from magic_committer.upload.blocks import Block, BlockSource
from magic_committer.upload.file import FileState, PendingFile, PlainFile, TaskFile, TextUpload
from magic_committer.upload.local import LocalDirectory, LocalFile
from magic_committer.upload.stream import (
    COPY_PART_BYTES,
    FinishedUpload,
    PartLedger,
    UploadStream,
    capacity,
    part_bytes,
    pending_of,
)

__all__ = [
    "COPY_PART_BYTES",
    "Block",
    "BlockSource",
    "FileState",
    "FinishedUpload",
    "LocalDirectory",
    "LocalFile",
    "PartLedger",
    "PendingFile",
    "PlainFile",
    "TaskFile",
    "TextUpload",
    "UploadStream",
    "capacity",
    "part_bytes",
    "pending_of",
]
