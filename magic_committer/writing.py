"""`Writing`: one job of one task in one process, for ``with write(...)``.

If the block ends normally, the task and the job are committed. If an exception ends it, both are
aborted; `magic_committer.job` has the rules for that. A `OneFile` has such a job of its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol
from weakref import WeakSet

from magic_committer import _wiring
from magic_committer._patience import cleaning_up, ending
from magic_committer.committers.base import TaskAttempt
from magic_committer.errors import (
    CommitIncomplete,
    JobNotRunning,
    MagicError,
    OptionError,
    TaskFailed,
    WrongProcess,
    WrongType,
)
from magic_committer.filesystem.calls import FileCalls, not_started
from magic_committer.filesystem.sink import enter
from magic_committer.job import Job, give_up, leave_alone
from magic_committer.protocol.record import JobReport
from magic_committer.stores.base import Attributes
from magic_committer.upload import FileState, PlainFile
from magic_committer.upload.file import Buffer, nothing
from magic_committer.upload.stream import flat


class Writing(FileCalls):
    """What ``with write(...) as job`` gives: one job with one task, in one process.

    It does not pickle. In a forked child opening, writing and closing raise, and the end of the
    ``with`` block neither commits nor aborts.
    """

    def __init__(self, start: Callable[[], Job]) -> None:
        self._start = start
        self._pid = os.getpid()
        self._job: Job | None = None
        self._end_life: Callable[[], None] = nothing
        self._leave_urls: Callable[[], None] = nothing

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
            raise not_started()
        return self._job

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def report(self) -> JobReport:
        """What became of the job, also after a failure. MagicError inside ``with``."""
        return self.job.report

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            raise WrongType(
                "write(...) is used by `with`, not by `async with`",
                hint="Run the block in a thread, as docs/recipes/asyncio.md does",
            )

        __aexit__ = __aenter__

    def __enter__(self) -> Writing:
        if self._job is not None:
            raise MagicError("a job is used once", hint="Call write(...) again")
        self._pid = os.getpid()
        self._job = self._start()
        try:
            self._of, self._make_sink = self._job.task("0")._own(), self._job._sink
            self._end_life = self._job.keep_alive()
            self._job._at_home = True
            _entered.add(self)
            self._leave_urls = enter(self._job.dest, self._files)
        except BaseException as error:  # a signal: the job is there, and nobody leaves the block
            _entered.discard(self)
            self._end_life()
            give_up(self._job, error)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
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
        if error is not None:
            give_up(self.job, error, self._undo)
            return
        try:
            self.job.commit([self._own().commit(driver=True)])
        except CommitIncomplete:
            raise  # the job is decided: it must never be aborted
        except BaseException as failure:
            give_up(self.job, failure, self._undo)
            raise

    def _undo(self, error: BaseException) -> None:
        """Abort the attempt, before its job is."""
        if self.job.outcome not in ("aborted", "reverted") or isinstance(error, JobNotRunning):
            try:
                self._abort_task(self._own())
            except MagicError as failure:
                error.add_note(f"aborting the files of job {self.id!r} failed too: {failure}")

    def _abort_task(self, task: TaskAttempt) -> None:
        """Abort the attempt, unless the job may have accepted it. A second time, if the first one
        fails: nobody else looks what it has stored since the job ended."""
        of_job = (TaskFailed,) if task.result is not None else ()
        try:
            with suppress(*of_job):
                task.abort()
        except BaseException as failure:
            with cleaning_up(failure), suppress(*of_job):
                task.abort()
            if not isinstance(failure, MagicError):
                raise


class OneFile(PlainFile):
    """The file of `open`: a job of its own, which a clean ``close`` commits, and which an exception
    aborts. Wrappers and ``finally`` close their file after an exception: a ``close`` while an
    exception passes aborts too, with a warning in the log. A dropped file is given up."""

    def __init__(
        self, writing: Writing, name: str, compressor: Compressor | None, attributes: Attributes
    ) -> None:
        self._compressor = compressor
        self._half = False
        self._passing = sys.exception()
        self._writing = writing.__enter__()
        try:
            writing._leave_urls()  # a `magic://` URL means a block of the caller's
            self._file = writing.open(name, attributes=attributes)
        except BaseException as error:
            writing.__exit__(type(error), error, None)
            raise
        super().__init__(self._file.name)

    def __repr__(self) -> str:
        return f"<OneFile {self._file!r}>"

    @property
    def length(self) -> int:
        return self._file.length  # compressed

    def write(self, data: Buffer, /) -> int:
        """Write bytes, compressed. Raises what `UploadStream.write` raises."""
        if self._compressor is None:
            return self._file.write(data)
        view = flat(data, self.name)
        self._begin_half()
        self._file.write(self._compressor.compress(view))
        self._half = False
        return len(view)

    def _begin_half(self) -> None:
        """Begin what an exception or another thread must not come between: the compressor has
        bytes that the file does not have."""
        self._file.flush()  # raises what a write raises
        if self._half:
            raise self._file.two_at_once()
        self._half = True

    def close(self) -> None:
        """Publish the file. Does nothing if it is closed already. Raises UploadFailed, again at
        each call: the file could not be stored, and is not published. Otherwise as `Job.commit`."""
        if not self._is_open():
            return
        passing = sys.exception()
        if passing is not None and passing is not self._passing:
            self.__exit__(type(passing), passing, None)
            told = "%s was closed while %r passed: it is not published"
            logging.getLogger("magic_committer").warning(told, self.name, passing)
            return
        try:
            if self._compressor is not None:
                self._begin_half()
                self._file.write(self._compressor.flush())
            self._file.close()
            self._writing.__exit__(None, None, None)
        except BaseException as error:
            self._failed(error, "closing")
            self._writing.__exit__(type(error), error, None)  # nothing, if it is what has raised
            raise
        self._state = FileState.PENDING

    def abort(self) -> None:
        """Give the file up: nothing of it becomes visible. Repeatable; does nothing after a
        successful ``close``."""
        self.check_process()
        self.__exit__(MagicError, MagicError("the file was given up"), None)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
        elif self._state is FileState.OPEN:
            self._state = FileState.ABORTED
            self._writing.__exit__(kind, error, traceback)

    def __del__(self) -> None:
        if self.__dict__.get("_state") is FileState.OPEN and self.pid == os.getpid():
            dropped = GeneratorExit("the file was dropped without close()")
            _wiring.pool.later(partial(self._writing.__exit__, GeneratorExit, dropped, None))
        super().__del__()


class Compressor(Protocol):
    """Compresses what is written one after the other."""

    def compress(self, data: memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


def compressor_for(url: str, compression: str | None) -> Compressor | None:
    """What compresses the file of a URL; None: nothing does. The arguments are those of `open`."""
    if compression in ("infer", "infer_from_extension"):  # smart_open's word, as those below
        suffix = url[url.rfind(".") :].lower()
        compression = suffix if suffix in _SUFFIXES else None
    if compression is None or compression == "disable":
        return None
    compression = _SUFFIXES.get(compression, compression)
    if compression not in _COMPRESSORS:
        raise OptionError(
            f"compression={compression!r} is none of 'infer', None, {', '.join(_COMPRESSORS)}",
            hint="Write compression='infer' for the format of the name's suffix, None for none",
        )
    return _COMPRESSORS[compression]()


def _zstd() -> Compressor:
    for module in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            made: Compressor = import_module(module).ZstdCompressor()
            return made
    raise OptionError(
        "this Python has no zstd, which comes with 3.14",
        hint="pip install backports.zstd; or pass compression=None to write the bytes as they are",
    )


_SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_COMPRESSORS: dict[str, Callable[[], Compressor]] = {
    "gzip": lambda: zlib.compressobj(9, wbits=31),
    "bz2": lambda: import_module("bz2").BZ2Compressor(),  # late, and a Python may lack them
    "xz": lambda: import_module("lzma").LZMACompressor(),
    "zstd": _zstd,
}


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
