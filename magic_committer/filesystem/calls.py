"""The calls that `Task` and `Writing` have in common: whatever makes files of a task."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, overload

from magic_committer.committers.base import TaskAttempt
from magic_committer.errors import MagicError, OptionError, WrongType
from magic_committer.errors.messages import no_attribute
from magic_committer.filesystem.sink import KEEP_BYTES_MAX, Sink
from magic_committer.hadoop.paths import check_name, name_text, parse_url, unique_name
from magic_committer.options import attributes_of
from magic_committer.stores.base import Attributes
from magic_committer.upload import LocalFile, TaskFile, TextUpload

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from magic_committer.filesystem.job_files import JobFileSystem
    from magic_committer.filesystem.put import PutReport

BinaryMode = Literal["wb", "xb"]
"""The modes of `open` for a file of bytes. ``"xb"`` is the same as ``"wb"``."""
TextMode = Literal["w", "x", "wt", "xt"]
"""The modes of `open` for a file of text. All four are the same."""


class FileCalls:
    """The calls that make files of one task. Before the block of a `write` there is none yet."""

    _of: TaskAttempt | None = None
    _make_sink: Callable[[TaskAttempt], Sink]
    _sink: Sink | None = None

    def _own(self) -> TaskAttempt:
        if self._of is None:
            raise not_started()
        return self._of

    def _note(self, name: str, file: TaskFile) -> None:
        """Show an opened file in the file systems of the task, if there are any."""
        if self._sink is not None:
            self._sink.note(name, file)

    def _files(self) -> Sink:
        """The task, as a place to put files."""
        if self._sink is None:
            attempt = self._own()
            self._sink = self._make_sink(attempt)
        return self._sink

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise no_attribute(self, name)

    @overload
    def open(
        self,
        name: str | PurePath,
        mode: BinaryMode = "wb",
        *,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> TaskFile: ...
    @overload
    def open(
        self,
        name: str | PurePath,
        mode: TextMode,
        *,
        unique: bool = False,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        attributes: Attributes | None = None,
    ) -> TextUpload: ...
    def open(
        self,
        name: str | PurePath,
        mode: str = "wb",
        *,
        unique: bool = False,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        attributes: Attributes | None = None,
    ) -> TaskFile | TextUpload:
        r"""Open a file for writing. It appears as ``<destination>/<name>`` when the block of
        `write` ends normally; of a `Task`, when the job commits and accepts this attempt::

            >>> with mc.write("s3://bucket/table") as job:
            ...     with job.open("dt=2026-11-21/a.csv", "w", newline="") as file:
            ...         _ = file.write("1,2,3\n")

        Not repeatable: a block or an attempt opens a name once.

        Args:
            name: the key, relative to the destination, as text or as a `Path`.
            mode: ``"wb"`` (default) for bytes, ``"w"`` for text.
            unique: True: put the job's UUID into the name, before its first dot. Files of two jobs
                then never have the same name, and the job can find and abort uploads of killed
                tasks. The tasks of one job still need different names. False (default): the name as
                given.
            encoding, errors, newline: for text only, as in Python's ``open``. None (default):
                UTF-8, strict, and the system's line ends.
            attributes: content type, user metadata, storage class and so on for the object; None
                (default): nothing special.

        Returns:
            A file. Close it, or use it with ``with``, before the attempt commits. One thread at a
            time may use it. If an exception ends its ``with`` block, the file is given up. If the
            upload fails, the next call on the file raises; in a forked child it raises
            `WrongProcess`. With ``track="memory"`` a file that ends within its first block is sent
            after its ``close`` has returned: the next `open`, or `commit`, raises its error.

        Raises:
            UploadFailed, JobNotRunning, StoreError: a file that was closed before could not be
                stored; a note names it. Raised once. Nothing was opened.
            TaskFailed: the attempt has ended, or another thread is committing or aborting it, or it
                can never be committed (the close of a file failed, and another handle may know of
                that file), or this is a forked child of its process.
            PathError: the name cannot be used; the message says which rule it breaks.
            ValueError: the mode is not one of these, or ``encoding``, ``errors`` or ``newline`` is
                given for bytes.
            WrongType: ``name`` is no text, or ``attributes`` is a dict.
            MagicError: a block of `write` that has not begun. So do all calls here.
        """
        text = text_options(mode, encoding, errors, newline)
        name = name_text(name)
        stream = self._own().open(name, unique=unique, attributes=attributes_of(attributes))
        self._note(name, stream)
        return stream if text is None else TextUpload(stream, **text)

    def local_file(
        self, name: str | PurePath, *, unique: bool = False, attributes: Attributes | None = None
    ) -> LocalFile:
        """Open a file on local disk, for programs that seek or that want a path (HDF5, SQLite, zip,
        `ndarray.tofile`). It is uploaded when it is closed, and then as a file of `open`. It can be
        read too, and its path is ``file.path``; a program that opens that path to write empties
        the file, and what it puts beside it is not uploaded::

            >>> import sqlite3
            >>> job = mc.start("s3://bucket/table")
            >>> with job.task("7") as task, task.local_file("part-7.db") as file:
            ...     with sqlite3.connect(file.path) as database:
            ...         _ = database.execute("create table t (n)")
            ...     database.close()
            >>> task.result.files
            1

        Not repeatable: an attempt opens a name once.

        Args:
            name, unique, attributes: as for `open`.

        Returns:
            A file of bytes, for ``with``. If an exception ends its block, nothing of it is
            uploaded. Close other programs' handles on its path before it is closed.

        Raises:
            UploadFailed: the disk is full, or `Options.local_bytes_max` is reached; also by the
                file's calls.
            OptionError: `Options.buffer_dir` cannot be used, or this committer has no local files.

            Otherwise as `open`.
        """
        name = name_text(name)
        file = self._own().local_file(name, unique=unique, attributes=attributes_of(attributes))
        self._note(name, file)
        return file

    def directory(self, *, unique: bool = False) -> Path:
        """Give the attempt's local directory, for programs that write files of their own. The
        task's commit uploads every file in it, also in directories below; names that begin with
        ``_`` or ``.`` are skipped. If one file cannot be uploaded, none of them counts::

            >>> job = mc.start("s3://bucket/table", committer="directory")
            >>> with job.task("7") as task:
            ...     _ = (task.directory() / "part-7.csv").write_text("1,2,3")
            >>> task.result.files
            1

        Repeatable: it is the same directory. It is made at the first call; sends nothing.

        Args:
            unique: True: put the job's UUID into the names of these files, before the first dot of
                the last element, as `open` does. One call of an attempt with True is enough. False
                (default): the names as they are.

        Returns:
            The path. It is below `Options.buffer_dir`, can be read by this user only, and goes when
            the attempt ends; after a kill, when the next one is made.

        Raises:
            OptionError: the job's committer has no local directories (magic), or
                `Options.buffer_dir` cannot be used. TaskFailed: as for `open`.
        """
        return self._own().directory(unique=unique)

    def write_bytes(
        self,
        name: str | PurePath,
        data: Buffer,
        *,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> int:
        """Write a file in one call. Returns how many bytes it has. Arguments and errors are those
        of `open`, and ``data``: bytes, or what has a buffer."""
        with self.open(name, unique=unique, attributes=attributes) as file:
            return file.write(data)

    def write_text(
        self,
        name: str | PurePath,
        text: str,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> int:
        """Write a file of text in one call. Returns how many characters it has. Arguments and
        errors are those of `open`."""
        with self.open(
            name, "w", unique=unique, encoding=encoding, errors=errors, newline=newline,
            attributes=attributes,
        ) as file:  # fmt: skip
            return file.write(text)

    def filesystem(
        self,
        *,
        unique: bool = False,
        read_through: bool = False,
        keep_bytes_max: int = KEEP_BYTES_MAX,
    ) -> JobFileSystem:
        r"""Give the task as a file system of fsspec, for libraries that write directories. Its
        writes are files of the task: they appear when the job commits. Sends nothing. Repeatable:
        all file systems of a task show the same files::

            >>> import pyarrow as pa, pyarrow.dataset as ds
            >>> table = pa.table({"day": [1, 2], "n": [10, 20]})
            >>> with mc.write("s3://bucket/table") as job:
            ...     ds.write_dataset(table, "/", format="parquet", partitioning=["day"],
            ...                      filesystem=job.filesystem())
            >>> job.report.files
            2

        Paths are relative to the destination. ``exists``, ``ls``, ``info``, ``find``, ``glob`` and
        ``walk`` show what this task has written; not what programs put into `Task.directory`.
        ``rm`` removes a file from the task. On a file system a closed file can be read, copied and
        renamed before the commit; on S3 if its bytes were kept. The file system belongs to this
        process and does not pickle.

        Args:
            unique: True: put the job's UUID into the name of each file, as in `open`. The file
                system still shows the name as it was given. False (default): the name as given.
            read_through: True: the questions also show what the destination holds, with one or two
                requests each, and its files can be read (on S3 up to 64 MiB each). Nothing there is
                ever deleted. False (default): a writer meets an empty directory.
            keep_bytes_max: bytes of closed files that are kept in memory for reading, 64 MiB by
                default; 0: none. A file of more than an eighth of it is not kept. For S3 only.

        Returns:
            A file system for the argument ``filesystem`` of pandas, pyarrow, dask, DuckDB, zarr…

        Raises:
            OptionError: fsspec is not installed, or ``keep_bytes_max`` is below 0.
            WrongType: ``keep_bytes_max`` is no whole number.
        """
        try:
            from magic_committer.filesystem.job_files import JobFileSystem
        except ImportError as error:
            raise OptionError(
                f"filesystem() needs fsspec, which cannot be imported: {error}",
                hint="pip install 'magic-committer[fsspec]'",
            ) from error
        return JobFileSystem(
            self._files(), unique=unique, read_through=read_through, keep_bytes_max=keep_bytes_max
        )

    def discard(self, name: str | PurePath, *, unique: bool = False) -> None:
        r"""Take a file out of the task, open or closed: its upload is aborted, or what waits on a
        file system is removed, and it never appears. Repeatable after a `StoreError`. Afterwards a
        file of that name may be opened::

            >>> with mc.write("s3://bucket/table") as job:
            ...     for name in ("a.csv", "b.csv"):
            ...         with job.open(name, "w") as file:
            ...             _ = file.write("1,2,3\n")
            ...     job.discard("b.csv")
            >>> job.report.files
            1

        Args:
            name: the file's name, as it was given to `open`.
            unique: as it was given to `open`. False is the default.

        Raises:
            PathError: this handle has opened no file of that name.
            TaskFailed: the file is closed, and other processes may commit the attempt by its name;
                or it is just being closed; or as for `open`. Nothing was done.
            StoreError: it may still be there. Call it again; the commit does not publish it.
        """
        name = name_text(name)
        stored = unique_name(name, self._own().job.uuid) if unique else name
        self._files().discard(name, stored)

    def put_file(
        self,
        path: str | PathLike[str],
        name: str | PurePath | None = None,
        *,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> int:
        """Put a file of this machine into the task. Not repeatable: a task has a name once::

            >>> import pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "model.bin")
            >>> _ = path.write_bytes(b"12345")
            >>> with mc.write("s3://bucket/models") as job:
            ...     job.put_file(path, "v7/model.bin")
            5

        Args:
            path: the file's path. A link is followed.
            name: as for `open`; None (default): the last part of ``path``.
            unique, attributes: as for `open`. On S3 the content type is guessed from the name,
                unless ``attributes`` has one; also by `put_directory`.

        Returns:
            How many bytes the file has.

        Raises:
            OSError: the file cannot be read. Nothing of it is in the task.
            PathError: it is a directory, a pipe or a device, or the name cannot be used.
            UploadFailed: it changed while it was read, or could not be sent.
            WrongType, JobNotRunning, StoreError, TaskFailed: as for `open`.
        """
        from magic_committer.filesystem.put import SourceFile, local_text  # late: few put files

        local = local_text(path)
        name = name_text(name) if name is not None else os.path.basename(local)
        check_name(name)
        attributes = attributes_of(attributes)
        return SourceFile(local, name).put(self._files(), unique=unique, attributes=attributes)

    def put_directory(
        self,
        path: str | PathLike[str],
        name: str | PurePath = "",
        *,
        hidden: bool = False,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> PutReport:
        """Put all files of a directory of this machine into the task, small ones beside each other.
        ``progress`` of the job reports each. Not repeatable: a task has a name once::

            >>> import pathlib, tempfile
            >>> there = pathlib.Path(tempfile.mkdtemp())
            >>> _ = (there / "index.html").write_text("<p>")
            >>> _ = (there / ".cache").write_text("no")
            >>> with mc.write("s3://bucket/site", mode="replace") as job:
            ...     print(job.put_directory(there))
            1 file, 3 bytes; left out: .cache

        Left out are hidden files and directories (their names begin with a dot), and a ``_SUCCESS``
        at the top of the destination, which the job writes itself. Links to files are followed.
        Empty directories are not put.

        Args:
            path: the directory's path.
            name: the directory below the destination; "" (default): the destination itself.
            hidden: True: put hidden files, too. False is the default.
            unique, attributes: as for `open`, for each file.

        Returns:
            How many files and bytes were put, and what was left out.

        Raises:
            PathError: it is no directory, or has no file to put; something in it is no regular
                file, or a link to a directory or to nothing; a name cannot be used; or the
                directory and the destination lie in each other. Nothing was put.
            OSError: something cannot be read. UploadFailed: a file changed while it was read. Files
                that were put before are in the task: let the error leave the block.
            WrongType, JobNotRunning, StoreError, TaskFailed: as for `open`.
        """
        from magic_committer.filesystem import put  # late, as above

        below = name_text(name).strip("/")
        if below:
            check_name(below)
        sink, path = self._files(), put.local_text(path)
        put.refuse_itself(path, sink.home.url)
        files, left_out = put.files_in(path, below, hidden=hidden)
        attributes = attributes_of(attributes)
        return put.put_all(sink, files, left_out, unique=unique, attributes=attributes)

    def copy(
        self,
        source: str,
        name: str | PurePath = "",
        *,
        hidden: bool = False,
        unique: bool = False,
        attributes: Attributes | None = None,
    ) -> PutReport:
        """Copy objects that are on S3 already into the task. The store copies them by itself
        (UploadPartCopy), so no byte comes here; they appear when the job commits. Not repeatable: a
        task has a name once::

            >>> with mc.write("s3://bucket/staging") as job, job.open("a.csv", "w") as file:
            ...     _ = file.write("1,2,3")
            >>> with mc.write("s3://bucket/table") as job:
            ...     print(job.copy("s3://bucket/staging/"))
            1 file, 5 bytes; left out: _SUCCESS

        Properties and tags of the objects are not copied: give ``attributes``. The content type is
        guessed from each name, as by `put_directory`. Objects that a
        customer's key encrypts cannot be copied. The job's ``s3`` reaches both buckets; it needs
        ``s3:GetObject`` and ``s3:ListBucket`` of the source.

        Args:
            source: the URL of a directory, which ends in ``/``, or of one object.
            name: the directory below the destination, or the name of the one object; if that ends
                in ``/``, the directory for it. "" (default): the destination itself, or the
                object's own name.
            hidden: True: also objects with an element that begins with ``_`` or ``.``. False is the
                default. A ``_SUCCESS`` at the top, and what committers keep, are always left out.
            unique, attributes: as for `open`, for each object. Names with another job's token need
                ``unique=True``: its digits stay, as a part of the name.

        Returns:
            How many objects and bytes were copied, and what was left out.

        Raises:
            PathError: there is no object to copy; a name cannot be used; source and destination lie
                in each other; or the destination is a file system. Nothing was copied.
            UploadFailed: an object was changed or deleted since it was listed.
            WrongType, JobNotRunning, StoreError, TaskFailed: as for `open`.
        """
        from magic_committer.filesystem.put import objects_in, put_all  # late, as above

        sink, name = self._files(), name_text(name)
        below = name.strip("/")
        if below:
            check_name(below)
        if name.endswith("/") and not source.endswith("/"):
            below = f"{below}/{source.rpartition('/')[2]}".lstrip("/")
        store = sink.runtime_for(parse_url(source).bucket).store
        found, left_out = objects_in(
            store, source, sink.home.url, below, hidden=hidden, unique=unique
        )
        attributes = attributes_of(attributes)
        return put_all(sink, found, left_out, unique=unique, attributes=attributes)


def not_started() -> MagicError:
    """The error of a call before the block of `write`."""
    return MagicError("the job is not started", hint="Use it as `with write(...) as job:`")


def text_options(
    mode: str, encoding: str | None, errors: str | None, newline: str | None
) -> dict[str, str | None] | None:
    """The arguments of a text file, as the caller gave them; None for a file of bytes."""
    if mode in ("wb", "xb"):
        if encoding is not None or errors is not None or newline is not None:
            raise ValueError("encoding, errors and newline are for text: open it with mode 'w'")
        return None
    if mode in ("w", "x", "wt", "xt"):
        return {"encoding": encoding, "errors": errors, "newline": newline}
    if not isinstance(mode, str):
        raise WrongType(f"a file's mode is text, not {mode!r:.80}", hint="Pass 'wb' or 'w'")
    raise ValueError(f"mode {mode!r}: a file of a job is written once, by 'wb' or 'w'")
