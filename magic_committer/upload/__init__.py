"""Bytes become blocks, blocks become parts, in parallel; what stays is a pending upload.

Theory. A file of a task is a multipart upload on the final key. Create is sent when the file is
opened and awaited when the first block is full. Blocks fill one after the other; each is handed to
the pool and sent beside the writer as a part, its checksum computed there. `UploadStream.close`
waits for all parts and tells ``on_close``, which records the pending. Completing the upload, which
is what makes the object visible, is never done here.

A file ends in exactly one of three ways (``sender.MOVES`` is the table)::

    open --close--> closing --all parts stored, on_close returned--> pending
      |                |
      |                \\--Create, a part, before_block, on_close or the disk failed--> failed
      |\\-------------------------------------------------------------------------------/
      \\--abort(), with left by exception, dropped, interpreter exit--> aborted

Invariants:

* Only ``pending`` has told ``on_close``, once, after every byte was stored. Python calls
  ``close()`` on a file that is dropped, and when ``with`` is left by exception; here both abort.
  (Foreign wrappers, such as ``zipfile``, close on exception: the pending they leave is their
  attempt's to publish or not.)
* ``failed`` and ``aborted`` have aborted the upload, or logged that they could not. A failure
  shows at the next call and at `close`; it is never forgotten.
* Memory of a stream is at most ``part size * (parts_in_flight + 2)``: the parts in flight, the
  block that fills, and what that holds twice while it grows. From 8 MiB blocks that is 40 MiB for
  the first 1,000 parts. All streams of a process share ``buffer_bytes_max``; what goes beyond it,
  and every part above 64 MiB, waits on disk.
* Waiting is by ``Future.result`` and nothing else; no lock is held over I/O.
* A forked child touches nothing of its parent's files: writing, closing and aborting them raises
  there, and finalizers do nothing.

``ledger`` decides sizes and keeps the books (pure), ``blocks`` holds bytes, ``sender`` speaks to
pool and store, ``stream`` is the file.
"""

from magic_committer.upload.blocks import Block, BlockSource
from magic_committer.upload.ledger import FinishedUpload, PartLedger, capacity, part_bytes
from magic_committer.upload.sender import FileState
from magic_committer.upload.stream import TextUpload, UploadStream

__all__ = [
    "Block",
    "BlockSource",
    "FileState",
    "FinishedUpload",
    "PartLedger",
    "TextUpload",
    "UploadStream",
    "capacity",
    "part_bytes",
]
