"""`Writing`: one job of one task in one process, for ``with write(...)``.

If the block ends normally, the task and the job are committed. If an exception ends it, both are
aborted; `magic_committer.job` has the rules for that. A `OneFile` has such a job of its own.
"""

from __future__ import annotations

import atexit
import bz2
import logging
import lzma
import os
import pickle
import sys
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path, PurePath
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Protocol, overload
from weakref import WeakSet

from magic_committer import _wiring
from magic_committer._patience import cleaning_up, ending
from magic_committer.committers.registry import is_file_tree
from magic_committer.errors import (
    CommitIncomplete,
    FileStillOpen,
    MagicError,
    OptionError,
    UploadFailed,
    WrongProcess,
)
from magic_committer.filesystem import open_writes
from magic_committer.filesystem.calls import FileCalls
from magic_committer.filesystem.sink import Sink
from magic_committer.hadoop.paths import is_s3_url
from magic_committer.job import (
    BinaryMode,
    Job,
    Task,
    TextMode,
    give_up,
    leave_alone,
    may_be_running,
)
from magic_committer.protocol.record import JobReport
from magic_committer.remedy import add_note
from magic_committer.stores.base import Attributes
from magic_committer.upload import FileState, LocalFile, TaskFile, TextUpload

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Writing(FileCalls):
    """What ``with write(...) as job`` gives: one job with one task, in one process.

    It does not pickle. In a forked child opening, writing and closing raise, and the end of the
    ``with`` block neither commits nor aborts.
    """

    def __init__(self, start: Callable[[], Job]) -> None:
        self._start = start
        self._pid = os.getpid()
        self._job: Job | None = None
        self._task: Task | None = None
        self._end_life: Callable[[], None] = _nothing
        self._leave_urls: Callable[[], None] = _nothing

    def __repr__(self) -> str:
        return f"<Writing {self._job!r}>"

    def __reduce__(self) -> NoReturn:
        raise pickle.PicklingError(
            "what magic_committer.write(...) gives writes its files in one process and does not"
            f" travel. {WrongProcess.advice}"
        )

    def __del__(self) -> None:
        self._end_life()  # a block that is entered and then dropped must not stay alive for ever
        self._leave_urls()

    @property
    def job(self) -> Job:
        """The job, to read its id, uuid, dest, state and report. Only inside and after ``with``. It
        takes no tasks and does not pickle; no other process can commit or abort it."""
        if self._job is None:
            raise _not_started()
        return self._job

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def report(self) -> JobReport:
        """What became of the job, also after a failure. MagicError inside ``with``."""
        return self.job.report

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
        r"""Open a file for writing. It appears when the block ends normally::

            >>> with mc.write("s3://bucket/table") as job:
            ...     with job.open("dt=2026-11-21/a.csv", "w", newline="") as file:
            ...         _ = file.write("1,2,3\n")

        Not repeatable: a block opens a name once.

        Args:
            name, mode, unique, encoding, errors, newline, attributes: as for `Task.open`.

        Returns:
            A file, as `Task.open` returns.

        Raises:
            MagicError: the call is outside of ``with``.

            Otherwise as `Task.open`.
        """
        if self._task is None:
            raise _not_started()
        return self._task._open(name, mode, unique, encoding, errors, newline, attributes)

    def local_file(
        self, name: str | PurePath, *, unique: bool = False, attributes: Attributes | None = None
    ) -> LocalFile:
        """Open a file on local disk, for programs that seek or that want a path. It is uploaded
        when it is closed, and appears when the block ends normally::

            >>> with mc.write("s3://bucket/table") as job:
            ...     with job.local_file("a.bin") as file:
            ...         _ = file.write(b"....data")
            ...         _ = file.seek(0)
            ...         _ = file.write(b"size")

        Not repeatable: a block opens a name once.

        Args:
            name, unique, attributes: as for `Task.local_file`.

        Returns:
            A file, as `Task.local_file` returns.

        Raises:
            MagicError: the call is outside of ``with``.

            Otherwise as `Task.local_file`.
        """
        if self._task is None:
            raise _not_started()
        return self._task.local_file(name, unique=unique, attributes=attributes)

    def directory(self, *, unique: bool = False) -> Path:
        """Give the local directory of a job with ``committer="directory"`` or ``"partitioned"``.
        Its files appear when the block ends normally::

            >>> with mc.write("s3://bucket/table", committer="directory") as job:
            ...     _ = (job.directory() / "a.csv").write_text("1,2,3")

        Repeatable: it is the same directory.

        Args:
            unique: as for `Task.directory`.

        Returns:
            The path, as `Task.directory` returns.

        Raises:
            MagicError: the call is outside of ``with``.

            Otherwise as `Task.directory`.
        """
        if self._task is None:
            raise _not_started()
        return self._task.directory(unique=unique)

    def _files(self) -> Sink:
        if self._task is None:
            raise _not_started()
        return self._task._files()

    def _uuid(self) -> str:
        return self.job.uuid

    def __enter__(self) -> Writing:
        if self._job is not None:
            raise MagicError("a job is used once", hint="Call write(...) again")
        self._pid = os.getpid()
        self._job = self._start()
        try:
            self._task = self._job.task("0")
            self._end_life = self._job.keep_alive()
            self._job._keep_at_home()
            _entered.add(self)
            dest = self._job.dest
            if is_s3_url(dest) or is_file_tree(dest):
                self._leave_urls = open_writes.enter(dest, self._files)
        except BaseException as error:  # a signal: the job is there, and nobody leaves the block
            _entered.discard(self)
            self._end_life()
            give_up(self._job, error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pid != os.getpid():
            leave_alone(self.job, self._pid, error)
            return
        if self not in _entered:
            return  # the interpreter's end has left it
        try:
            self._leave_urls()
            self._end(error)
        finally:
            self._end_life()
            _entered.discard(self)

    def _end(self, error: BaseException | None) -> None:
        assert self._task is not None
        if error is not None:
            self._give_up(error)
            return
        try:
            try:
                result = self._task.commit()
            except FileStillOpen as still:
                names = still.message.rpartition("not closed: ")[2]
                raise FileStillOpen(
                    f"the block of write(...) ended with open files: {names}",
                    job_id=self.id,
                    hint="Close each file in the block, best by `with job.open(...) as file`",
                ) from still
            self.job.commit([result])
        except CommitIncomplete:
            raise  # the job is decided: it must never be aborted
        except BaseException as failure:
            self._give_up(failure)
            raise

    def _give_up(self, error: BaseException) -> None:
        if self.job.outcome == "committed" and not isinstance(error, Exception):
            return  # Ctrl-C after the decision: a note says how to finish the job
        try:
            with cleaning_up(error):
                self._undo(error)
        except BaseException as interrupt:  # a second Ctrl-C
            add_note(interrupt, *may_be_running(self.job))
            raise

    def _undo(self, error: BaseException) -> None:
        assert self._task is not None
        if not self._task.committed and self.job.outcome not in ("aborted", "reverted"):
            try:
                self._task.abort()
            except MagicError as failure:
                error.add_note(f"aborting the files of job {self.id!r} failed too: {failure}")
        give_up(self.job, error)


class OneFile(TaskFile):
    """The file of `open`: a job of its own, which a clean ``close`` commits, and which an exception
    aborts. Wrappers and ``finally`` close their file after an exception: a ``close`` while an
    exception passes aborts too, with a warning in the log. A dropped file is given up."""

    def __init__(
        self, writing: Writing, name: str, compressor: Compressor | None, attributes: Attributes
    ) -> None:
        self._over = True  # until the file is there
        self._failure: Exception | None = None
        self._inside = False
        self._compressor = compressor
        self._passing = sys.exception()
        self._writing = writing
        with_it = writing.__enter__()
        try:
            writing._leave_urls()  # a `magic://` URL means a block of the caller's
            self._file = with_it.open(name, attributes=attributes)
        except BaseException as error:
            writing.__exit__(type(error), error, None)
            raise
        self._over = False

    def __repr__(self) -> str:
        return f"<OneFile {self._file!r}>"

    @property
    def pid(self) -> int:
        """The process that opened it."""
        return self._file.pid

    @property
    def name(self) -> str:
        """The URL of the file."""
        return self._file.name

    @property
    def state(self) -> FileState:
        """The file's state."""
        return self._file.state

    @property
    def length(self) -> int:
        """How many bytes it has, compressed."""
        return self._file.length

    @property
    def closed(self) -> bool:
        """Whether the file takes no more bytes. In a forked child always True."""
        return self._over or self.pid != os.getpid()

    def check_process(self) -> None:
        """Raise WrongProcess in a forked child; do nothing elsewhere."""
        self._file.check_process()

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Do nothing: only closing makes anything last."""
        self._check_open()

    def write(self, data: Buffer, /) -> int:
        """Write bytes, compressed. Raises what `UploadStream.write` raises."""
        self._check_open()
        if self._compressor is None:
            return self._file.write(data)
        if self._inside:  # compressed bytes must stay in their order
            self._failure = self._file.two_at_once()
            raise self._failure
        view = memoryview(data).cast("B")
        self._inside = True
        try:
            self._file.write(self._compressor.compress(view))
        except BaseException as error:
            self._failure = UploadFailed(f"writing {self.name} was interrupted: {error!r}")
            raise
        finally:
            self._inside = False
        return len(view)

    def close(self) -> None:
        """Publish the file. Does nothing if it is closed already.

        Raises:
            UploadFailed: the file could not be stored; it is not published. Again at each call.

            Otherwise as `Job.commit`.
        """
        self.check_process()
        if self._over:
            if self._failure is not None:
                raise self._failure
            return
        passing = sys.exception()
        if passing is not None and passing is not self._passing:
            self.__exit__(type(passing), passing, None)
            logging.getLogger("magic_committer").warning(
                "%s was closed while %r passed: it is not published", self.name, passing
            )
            return
        try:
            if self._failure is not None:
                raise self._failure
            if self._compressor is not None:
                self._file.write(self._compressor.flush())
            self._file.close()
        except BaseException as error:
            self._failure = error if isinstance(error, Exception) else None
            self.__exit__(type(error), error, None)
            raise
        self._over = True
        try:
            self._writing.__exit__(None, None, None)
        except Exception as error:
            self._failure = error
            raise

    def abort(self) -> None:
        """Give the file up: nothing of it becomes visible. Repeatable; does nothing after a
        successful ``close``."""
        error = MagicError("the file was given up")
        self.__exit__(MagicError, error, None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        elif not self._over or self.pid != os.getpid():
            self._over = True
            self._writing.__exit__(kind, error, traceback)

    def _check_open(self) -> None:
        self.check_process()
        if self._over:
            raise ValueError(f"I/O operation on closed file {self.name}")

    def __del__(self) -> None:
        # io.IOBase would call close(), which publishes it.
        if self.__dict__.get("_over", True) or self.pid != os.getpid():
            return
        self._over = True
        dropped = GeneratorExit("the file was dropped without close()")
        _wiring.pool.later(partial(self._writing.__exit__, GeneratorExit, dropped, None))
        warnings.warn(f"{self!r} was dropped without close()", ResourceWarning, 2, self)


class Compressor(Protocol):
    """Compresses what is written one after the other."""

    def compress(self, data: memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


def compressor_for(url: str, compression: str | None) -> Compressor | None:
    """What compresses the file of a URL; None: nothing does. The arguments are those of `open`.

    Raises:
        OptionError: the format is unknown, or this Python cannot write it.
    """
    if compression in ("infer", "infer_from_extension"):
        suffix = url[url.rfind(".") :].lower()
        compression = suffix if suffix in _SUFFIXES else None
    if compression is None or compression == "disable":
        return None
    match _SUFFIXES.get(compression, compression):
        case "gzip":
            return zlib.compressobj(9, wbits=31)
        case "bz2":
            return bz2.BZ2Compressor()
        case "xz":
            return lzma.LZMACompressor()
        case "zstd":
            return _zstd(url)
    raise OptionError(
        f"compression={compression!r} is none of 'infer', None, {', '.join(map(repr, _FORMATS))}",
        hint="Write compression='infer' for the format of the name's suffix, None for none",
    )


_SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_FORMATS = tuple(_SUFFIXES.values())


def _zstd(url: str) -> Compressor:
    for module in ("compression.zstd", "backports.zstd"):
        try:
            made: Compressor = import_module(module).ZstdCompressor()
        except ImportError:
            continue
        return made
    raise OptionError(
        f"{url} needs zstd, which Python has from 3.14 on",
        hint="pip install backports.zstd; or pass compression=None to write the bytes as they are",
    )


def _not_started() -> MagicError:
    return MagicError("the job is not started", hint="Use it as `with write(...) as job:`")


def _nothing() -> None:
    """Stands for the end of a life that has not begun."""


_entered: WeakSet[Writing] = WeakSet()


@atexit.register
def _abort_what_is_entered() -> None:
    """Abort the jobs of blocks that nothing leaves any more, for example in a generator. Later,
    while the interpreter is taken apart, nothing can be sent. Runs before the pool's end."""
    for one in tuple(_entered):
        if one._pid != os.getpid():
            continue
        error = GeneratorExit("the interpreter ended inside of its block")
        with ending():
            one.__exit__(GeneratorExit, error, None)
        told = "; ".join(getattr(error, "__notes__", ()))
        logging.getLogger("magic_committer").warning("job %s: %s: %s", one.id, error, told)
