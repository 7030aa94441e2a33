"""Start here. `write`: one process. `open`: one file. `start` and `attach`: many processes.
`open_magic`: a file by its magic path.

::

    with mc.write("s3://bucket/table") as job:            # no exception: commit; else: abort
        with job.open("year=2026/part-0.csv", "w") as f:
            f.write("1,2,3\\n")

    job = mc.start("s3://bucket/table")                   # many processes
    with job.task("7") as task:                           # in any process, as often as needed
        with task.open("part-7.csv", "w") as f: ...
    report = job.commit([task.result])                    # in one process
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
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, Unpack, get_args, overload
from urllib.parse import unquote
from weakref import WeakSet

from magic_committer.commit.setup import find_job
from magic_committer.committers.base import TaskAttempt, committer_for
from magic_committer.committers.magic import open_plain
from magic_committer.errors import (
    CommitIncomplete,
    JobNotFound,
    JobNotRunning,
    JobReport,
    MagicError,
    OptionError,
    PathError,
    TaskFailed,
    WrongProcess,
    WrongType,
)
from magic_committer.errors.messages import Remedy
from magic_committer.filesystem.calls import (
    BinaryMode,
    FileCalls,
    TextMode,
    not_started,
    text_options,
)
from magic_committer.filesystem.sink import enter
from magic_committer.hadoop.paths import (
    Destination,
    MagicPath,
    check_name,
    parse_magic_path,
    parse_url,
)
from magic_committer.job import Job, give_up, leave_alone
from magic_committer.options import (
    Accept,
    Mode,
    Options,
    S3Options,
    S3Place,
    SparkMode,
    Track,
    attributes_of,
    mode_of,
    name_of,
    options_of,
    s3_of,
)
from magic_committer.protocol.ledger import checkpoint_of
from magic_committer.protocol.record import State, Terms
from magic_committer.runtime import wiring
from magic_committer.runtime.components import ProgressFunction, no_progress
from magic_committer.runtime.threads import cleaning_up, ending
from magic_committer.stores.base import Attributes
from magic_committer.stores.urls import is_tree_url, tree_url
from magic_committer.upload import FileState, PlainFile, TaskFile, TextUpload, UploadStream
from magic_committer.upload.file import Buffer, flat, nothing

# One job of one task in one process ---------------------------------------------------------------
#
# `Writing`: one job of one task in one process, for ``with write(...)``.
#
# If the block ends normally, the task and the job are committed. If an exception ends it, both are
# aborted; `magic_committer.job` has the rules for that. A `OneFile` has such a job of its own.


class Writing(FileCalls):
    """What ``with write(...) as job`` gives: one job with one task, in one process.

    It does not pickle. In a forked child opening, writing and closing raise, and the end of the
    ``with`` block neither commits nor aborts.
    """

    def __init__(self, start: Callable[[], Job]) -> None:
        self._start = start
        self._pid = os.getpid()
        self._job: Job | None = None
        self._inside = False  # `_entered` forgets what is in a cycle before anything is finalized
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
        accepts no tasks and does not pickle; no other process can commit or abort it."""
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
            self._inside = True
            _entered.add(self)
            self._leave_urls = enter(self._job.dest, self._files)
        except BaseException as error:  # a signal: the job is there, and nobody leaves the block
            self._inside = False
            self._end_life()
            give_up(self._job, error)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._pid != os.getpid():
            leave_alone(self.job, self._pid, error)
            return
        if not self._inside:
            return  # the interpreter's end has left it
        try:
            self._leave_urls()
            self._end(error)
        finally:
            self._end_life()
            self._inside = False

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
    exception passes aborts too, with a warning in the log. A dropped file is given up, also in a
    wrapper of `io`."""

    def __init__(
        self, writing: Writing, name: str, compressor: Compressor | None, attributes: Attributes
    ) -> None:
        self._compressor = compressor
        self._half = self._wrapper_dropped = False
        self._plain_bytes = 0  # before their compression
        self._passing = sys.exception()
        self._writing = writing
        try:
            writing.__enter__()
            writing._leave_urls()  # a `magic://` URL means a block of the caller's
            self._file = writing.open(name, attributes=attributes)
            super().__init__(self._file.name)  # from here on the finalizer gives it up
        except BaseException as error:
            writing.__exit__(type(error), error, None)
            raise

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
        self._plain_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        """How many bytes were written, before any compression. ValueError if it is closed."""
        written = self._file.tell()
        return written if self._compressor is None else self._plain_bytes

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
        dropped, self._wrapper_dropped = self._wrapper_dropped, False
        if not self._is_open() or dropped:
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

    def _dealloc_warn(self, wrapper: object) -> None:
        """Hear that a wrapper of `io` is dropped: the close that it sends next ends nothing."""
        self._wrapper_dropped = True

    def abort(self) -> None:
        """Give the file up: nothing of it becomes visible. Repeatable; does nothing after a
        successful ``close``."""
        self.check_process()
        self.__exit__(MagicError, MagicError("the file was given up"), None)

    def ends_well(self) -> None:
        self._passing = sys.exception()  # it does not pass through this block

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.ends_well()
            self.close()
        elif self._state is FileState.OPEN:
            self._state = FileState.ABORTED
            self._writing.__exit__(kind, error, traceback)

    def __del__(self) -> None:
        if self.__dict__.get("_state") is FileState.OPEN and self.pid == os.getpid():
            dropped = GeneratorExit("the file was dropped without close()")
            wiring.pool.later(partial(self._writing.__exit__, GeneratorExit, dropped, None))
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
        if not one._inside or one._pid != os.getpid():
            continue
        error = GeneratorExit("the interpreter ended inside of its block")
        with ending():
            one.__exit__(GeneratorExit, error, None)
        told = "; ".join(getattr(error, "__notes__", ()))
        logging.getLogger("magic_committer").warning("job %s: %s: %s", one.id, error, told)


# The calls ----------------------------------------------------------------------------------------


def start(
    dest: str,
    *,
    mode: Mode | SparkMode = "append",
    committer: str | None = None,
    accept: Accept = "listing",
    track: Track | None = None,
    job_id: str | None = None,
    exist_ok: bool = False,
    mark_success: bool = True,
    checkpoint: str | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> Job:
    """Start a job whose tasks run in many processes::

        >>> with mc.start("s3://bucket/table", mode="overwrite") as job:
        ...     with job.task(1) as task, task.open("a.csv", "w") as file:
        ...         _ = file.write("1,2,3")
        ...     report = job.commit([task.result])
        >>> report.outcome, report.files
        ('committed', 1)

    A scheduler may retry the call that starts a job. Give it an id: the retry gets the same job::

        >>> first = mc.start("s3://bucket/table", job_id="2026-11-21", exist_ok=True)
        >>> again = mc.start("s3://bucket/table", job_id="2026-11-21", exist_ok=True)
        >>> again.uuid == first.uuid
        True

    Without ``job_id`` each call starts another job. With ``job_id`` a second call raises
    `JobExists`; with ``exist_ok=True`` too it is repeatable with the same terms: ``mode``,
    ``committer``, ``accept``, ``track``, ``mark_success``, and of ``options``
    ``checksum``, ``etag_form``, ``conditional_writes``. Of two calls at once one starts the job.
    With a ``checkpoint``, and a mode that excludes other jobs, crashed runs of the same query are
    settled first.

    After an error nothing of the job becomes visible, unless the job was there before this call, or
    another call with ``exist_ok`` has taken it. If this call had begun the job, it aborts the job,
    and a given id cannot be used again. It can be only if no record was written (JobExists, most
    StoreErrors, OutcomeUnknown).

    Args:
        dest: ``s3://bucket/prefix`` (``s3a://`` and ``s3n://`` mean the same); or ``file:///path``,
            a directory of this machine, or of a network file system that is mounted.
        mode: what happens to present data: ``"append"`` (default): it stays; ``"fail"``: raise;
            ``"replace"``: it goes; ``"fail_partitions"``, ``"replace_partitions"``: the same for
            the partitions that the job writes. Spark's words (``"overwrite"``) and any case do too.
        committer: the protocol that makes the files visible, by its name, in any case
            (docs/committers.md). None (default): ``"magic"`` on S3 and ``"manifest"`` for
            ``file:///``.
        accept: ``"listing"`` (default): `Job.commit` without results accepts what the tasks left
            on the store. ``"results"``: it accepts only the results that you pass; for engines that
            can cut a task short.
        track: where an attempt keeps what its commit needs. ``"s3"``: on the store; any process may
            commit it. ``"memory"``: in the task's handle, which alone can commit it, with the
            fewest requests. None (default): as the committer does; ``"s3"`` with magic.
        job_id: the job's name and the name of its directory: ``[A-Za-z0-9._=-]``, of a length that
            docs/limits.md says. An id can be used once. None (default): a random id.
        exist_ok: True: take the job of that ``job_id`` if it runs and was started with the same
            terms. If the call that started it aborts it, it is aborted for both. False (default):
            raise `JobExists`.
        mark_success: True (default): write `_SUCCESS` after the commit. False: do not.
        checkpoint: the location of a streaming query's checkpoint, or other text that only this
            query has; the record holds its hash. The job then commits with ``batch`` only, and
            `abort_stream` finds it. None (default): the job belongs to no query.
        s3: the connection to the store; None (default): as the environment says.
        place: instead of ``s3``: ``endpoint_url``, ``region``, ``profile``.
        options: sizes, numbers and formats; None (default): the defaults of `Options`.
        progress: a function that long steps call, from threads of this process. Default: none.

    Returns:
        The running job. At the end of a ``with`` block a job that is not committed is aborted.

    Raises:
        WrongType: ``dest`` is a `Path`, ``s3`` is a dict, and so on. Nothing was sent.
        PathError, OptionError: an argument cannot be used. Nothing was sent.
        JobExists: the id was used before. With ``exist_ok``: its job has other terms, or it left
            objects without a record.
        JobNotRunning: with ``exist_ok``: the job of that id is decided; the error's ``outcome``
            says how.
        DestinationExists: the mode is ``fail`` or ``fail_partitions``, and there is data.
        ConflictingJob: a live job excludes this one, or this one excludes a live job.
        ConditionsNotSupported: the store ignores or refuses a condition that the job needs.
        OutcomeUnknown: the store gave no clear answer. With ``exist_ok`` call it again.
        StoreError: the store refused a request, or cannot be reached.
        FormatError: with ``exist_ok``: the job's record cannot be read.
    """
    options, s3 = options_of(options), s3_of(s3, place)
    job_id = name_of("job_id", job_id)
    if exist_ok and job_id is None:
        raise OptionError(
            "exist_ok=True needs a job_id: without one each call draws another",
            hint="Give what the retry gives too: job_id='2026-11-21'",
        )
    kind = committer_for(dest, committer)
    parsed = Destination.parse(kind.destination(dest))
    if track in get_args(Track) and track not in kind.tracks:
        there = ", ".join(map(repr, kind.tracks))
        raise OptionError(
            f"committer={kind.name!r} has no track={track!r}, only {there}", hint="Leave track out"
        )
    terms = Terms(
        mode=kind.mode(mode_of(mode)),
        accept=accept,
        track=kind.tracks[0] if track is None else track,
        mark_success=mark_success,
        checksum=options.checksum,
        etag_form=options.etag_form,
        conditional_writes=options.conditional_writes,
        committer=kind.name,
    )
    query, held = checkpoint_of(checkpoint), wiring.Held()
    runtime = wiring.runtime_for(parsed.bucket, s3, progress, held)
    started = kind.setup(
        runtime, parsed, terms, options, wiring.blocks, job_id, said_mode=mode, join=exist_ok,
        checkpoint=query,
    )  # fmt: skip
    return Job(started.job, options, s3, progress=progress, starter=True, held=held)


def attach(
    dest: str,
    job_id: str,
    *,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> Job:
    """Give a handle on a job that another process started. Sends one GET and creates nothing.
    Repeatable::

        >>> _ = mc.start("s3://bucket/table", job_id="nightly")
        >>> mc.attach("s3://bucket/table", "nightly").state == "running"
        True

    A running job accepts tasks and can be committed. A decided job has a `Job.state` and a
    `Job.outcome`; `Job.commit` or `Job.abort` finishes what was decided.

    Args:
        dest: the destination that the job was started with.
        job_id: the id that the job was started with, or its `Job.id`.
        s3, place, progress: as for `start`.
        options: as for `start`; the job's record has precedence.

    Returns:
        The job. ``with`` does not take it: leaving the block would abort what other processes do.

    Raises:
        JobNotFound: the job has no record. It has committed, was aborted, or never existed.
        FormatError: the record cannot be read, or a newer version wrote it.
        WrongType, PathError, OptionError: as for `start`.
        StoreError: the store did not answer the question.
    """
    options, s3 = options_of(options), s3_of(s3, place)
    parsed, job_id = Destination.parse(dest), name_of("job_id", job_id) or ""
    held: wiring.Held = {}
    runtime = wiring.runtime_for(parsed.bucket, s3, progress, held)
    job, state, outcome = find_job(runtime, parsed, job_id)
    return Job(job, options, s3, state=state, outcome=outcome, progress=progress, held=held)


def write(
    dest: str,
    *,
    mode: Mode | SparkMode = "append",
    committer: str | None = None,
    mark_success: bool = True,
    s3: S3Options | None = None,
    options: Options | None = None,
    progress: ProgressFunction = no_progress,
    **place: Unpack[S3Place],
) -> Writing:
    r"""Write files from one process: all of them appear, or none::

        >>> with mc.write("s3://bucket/table") as job:
        ...     with job.open("a.csv", "w") as file:
        ...         _ = file.write("1,2,3\n")
        >>> print(job.report)
        job ... committed in s3://bucket/table/: 1 file of 1 task, 6 bytes, ... s

    The job starts when ``with`` is entered. If the block ends normally, the job commits. If an
    exception leaves the block, the job aborts; if this abort fails, a note on the exception says
    so. Repeatable: each call is another job. Use each result for one ``with``.

    Args:
        dest: ``s3://bucket/prefix``, or the URL of a directory: ``file:///path``.
        mode: what happens to present data: ``"append"`` (default), ``"fail"``, ``"replace"``,
            ``"fail_partitions"``, ``"replace_partitions"``; Spark's words do too (`start`).
        committer: the protocol, by its name; None (default): the best for the destination.
        mark_success: True (default): write `_SUCCESS` after the commit.
        s3: the connection to the store; None (default): as the environment says.
        place: instead of ``s3``: ``endpoint_url``, ``region``, ``profile``.
        options: sizes, numbers and formats; None (default): the defaults of `Options`.
        progress: a function that long steps call, from threads of this process. Default: none.

    Returns:
        A `Writing`, for ``with``.

    Raises:
        WrongType, PathError, OptionError: as for `start`, at once.

        Otherwise ``with`` raises: at its start what `start` raises, at its end what `Job.commit`
        raises.
    """
    kind = committer_for(dest, committer)
    kind.destination(dest)
    kind.mode(mode_of(mode))
    options, s3 = options_of(options), s3_of(s3, place)
    return Writing(
        lambda: start(
            dest, mode=mode, committer=kind.name, accept="results", track="memory",
            mark_success=mark_success, s3=s3, options=options, progress=progress,
        )
    )  # fmt: skip


@overload
def open(
    url: str,
    mode: Literal["wb"],
    *,
    compression: str | None = "infer",
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    **place: Unpack[S3Place],
) -> TaskFile: ...
@overload
def open(
    url: str,
    mode: Literal["w", "wt"],
    *,
    compression: str | None = "infer",
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    **place: Unpack[S3Place],
) -> TextUpload: ...
def open(
    url: str,
    mode: str,
    *,
    compression: str | None = "infer",
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    **place: Unpack[S3Place],
) -> TaskFile | TextUpload:
    r"""Write one file: all of it appears at a clean ``close``, and nothing after an exception.
    It replaces ``smart_open.open`` for writing::

        >>> with mc.open("s3://bucket/exports/a.csv.gz", "w") as file:
        ...     _ = file.write("1,2,3\n")

    A file that is there is replaced at the ``close``. Repeatable: each call is a job of its own
    (`write` has many files in one job, with fewer requests).

    Args:
        url: ``s3://bucket/path/name``; or ``file:///path/name``, with ``%20`` for a blank.
        mode: ``"w"`` for text, ``"wb"`` for bytes. It has no default.
        compression: ``"infer"`` (default): by the suffix ``.gz``, ``.bz2``, ``.xz`` or ``.zst``.
            Or ``"gzip"``, ``"bz2"``, ``"xz"``, ``"zstd"``; None: the bytes as they are.
        encoding, errors, newline, attributes: as for `Task.open`.
        s3, place, options: as for `start`.

    Returns:
        A file, for ``with``. Without it, a ``close`` while an exception is handled, in ``finally``
        or in ``except``, publishes nothing, with a warning in the log; so does dropping the file.

    Raises:
        ValueError: the mode reads, appends or creates only: use smart_open, s3fs or `write`.
        OptionError: the compression is unknown, or not installed.

        Otherwise as `start`; the file's ``close`` raises what `Job.commit` raises.
    """
    if isinstance(mode, str) and mode not in ("w", "wt", "wb"):
        raise ValueError(
            f"mode {mode!r}: magic_committer.open writes a new file, by 'w' or 'wb'. To read, use"
            f" smart_open.open({url!r}) or s3fs"
        )
    text = text_options(mode, encoding, errors, newline)
    tree = is_tree_url(url)
    (tree_url if tree else parse_url)(url)
    parent, _, name = url.rpartition("/")
    name = unquote(name) if tree else name
    check_name(name)
    file = OneFile(
        write(f"{parent}/", mark_success=False, s3=s3, options=options, **place),
        name,
        compressor_for(url, compression),
        attributes_of(attributes),
    )
    return file if text is None else TextUpload(file, **text)


@overload
def open_magic(
    path: str,
    mode: BinaryMode = "wb",
    *,
    fence: bool = True,
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    **place: Unpack[S3Place],
) -> UploadStream: ...
@overload
def open_magic(
    path: str,
    mode: TextMode,
    *,
    fence: bool = True,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    **place: Unpack[S3Place],
) -> TextUpload: ...
def open_magic(
    path: str,
    mode: str = "wb",
    *,
    fence: bool = True,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    attributes: Attributes | None = None,
    s3: S3Options | None = None,
    options: Options | None = None,
    **place: Unpack[S3Place],
) -> UploadStream | TextUpload:
    """Open a file by its magic path. The path names a job that runs::

        >>> job = mc.start("s3://bucket/t", job_id="1")
        >>> path = "s3a://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/x.csv"
        >>> with mc.open_magic(path, "w") as file:
        ...     _ = file.write("1,2,3")

    Any process that knows the names can commit the task's attempt::

        >>> mc.attach("s3://bucket/t", "1").task("a", attempt="a_0").commit().files
        1

    Not repeatable: an attempt opens a name once.

    Args:
        path: ``<dest>/__magic_job-<id>/job-<id>/00/tasks/<attempt>/__base/<name>``.
        mode, encoding, errors, newline, attributes: as for `Task.open`.
        fence: True (default): the file belongs to a running job of this library. False: write a
            plain upload on any legal magic path, as Hadoop's tasks do. No job of this library is
            needed; Hadoop's committer commits the upload, with S3A's guarantees only.
        s3, place, options: as for `start`.

    Returns:
        A file for bytes or for text, as `Task.open` returns.

    Raises:
        TaskFailed: raised by the file's ``close``: before it the attempt was committed or aborted,
            or another file of the name was closed. The file will not be published.
        JobNotRunning: no job of that id runs. The hint says which call starts it.
        PathError: the path is not a magic path of a job, or writing there would lose data.
        OptionError: the job has ``track="memory"``: processes cannot share its attempts.
        ValueError: as for `Task.open`.
        WrongType, StoreError: as for `attach`.
    """
    options, s3 = options_of(options), s3_of(s3, place)
    text = text_options(mode, encoding, errors, newline)
    parsed = parse_magic_path(path)
    attributes = attributes_of(attributes)
    if fence:
        stream = _by_path(path, parsed, options, s3).open(
            parsed.name, unique=False, attributes=attributes
        )
        assert isinstance(stream, UploadStream)  # track="s3": the job is magic's
    else:
        runtime = wiring.runtime_for(parsed.dest.bucket, s3, no_progress)
        stream = open_plain(runtime, parsed, options, wiring.blocks, attributes)
    return stream if text is None else TextUpload(stream, **text)


def _by_path(path: str, parsed: MagicPath, options: Options, s3: S3Options) -> TaskAttempt:
    """The attempt of a running job that a magic path names."""
    if parsed.layout != "job" or parsed.job_id is None or parsed.attempt is None:
        raise PathError(
            f"{path} does not name a job and an attempt",
            hint="Write .../__magic_job-<id>/job-<id>/00/tasks/<attempt>/__base/<name>, or pass"
            " fence=False for the older Hadoop shapes",
        )
    try:
        job = attach(parsed.dest.url, parsed.job_id, s3=s3, options=options)
    except JobNotFound as error:
        raise JobNotRunning(
            f"there is no job {parsed.job_id!r} under {parsed.dest.url}",
            job_id=parsed.job_id,
            state=State.ABSENT,
            remedies=(Remedy("start", parsed.dest.url, parsed.job_id, "start it first"),),
        ) from error
    if job.track == "memory":
        raise OptionError(
            f"job {job.id!r} was started with track='memory': its files are opened by its tasks",
            hint="Start the job with track='s3' to open files by path",
        )
    return job._attempt_by_path(parsed.attempt)
