"""Local files of an attempt that are uploaded when they are closed: `Task.local_file`.

The upload is opened with the local file, so that the attempt refuses a name that it has, and a
commit finds what is not closed. While the local file is open nothing is sent of it, with
``track="s3"`` but its Create.

Invariants:

* What is uploaded is the file as it is when it is closed: its parts are read from disk, each as
  often as it is sent, and a file that changes meanwhile fails (`FileBlock`).
* The local file goes when it is uploaded; the directory goes when the attempt ends.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from magic_committer.options import Options
from magic_committer.upload import LocalDirectory, LocalFile, UploadStream


class LocalFiles:
    """The local files of one attempt. Its directory is made when the first one is opened."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._directory: LocalDirectory | None = None

    @property
    def directory(self) -> LocalDirectory:
        """The attempt's local directory."""
        with self._lock:
            if self._directory is None:
                self._directory = LocalDirectory.make(self._options.buffer_dir)
            return self._directory

    def open(self, stream: UploadStream, name: str) -> LocalFile:
        """Open the local file of an upload. If that fails, the upload is given up."""

        def send(path: Path) -> None:
            stream.take_file(str(path))
            stream.close()
            with suppress(OSError):  # the directory goes with the attempt
                path.unlink()

        try:
            return LocalFile(
                self.directory,
                name,
                stream.name,
                bytes_max=self._options.local_bytes_max,
                on_close=send,
                on_abort=stream.abort,
            )
        except BaseException:
            stream.abort()
            raise

    def remove(self) -> None:
        """Remove the directory with all that is in it. Repeatable."""
        with self._lock:
            directory, self._directory = self._directory, None
        if directory is not None:
            directory.remove()
