"""Local directories of attempts, and their files, for programs that seek or that want a path:
``<buffer_dir>/magic-committer-<user>/attempt-…/``.

::

    attempt-x.lock   locked by the process that made the directory, as long as it lives
    attempt-x/files/ the attempt's files, as programs see them
    attempt-x/open/  files that are being written, each in a directory of its own: what a program
                     puts beside one (a journal, a temporary file) is no file of the attempt

Invariants:

* Nobody but the user can read it: it holds the user's data. A directory of that name that belongs
  to somebody else, or that others may enter, is refused.
* A directory goes when its attempt has ended, or when its process ends. After a kill the system
  unlocks its lock file; the next process that makes a directory there gets the lock and removes
  it (`LocalDirectory.make`). No clock and no process number decide that.
* A lock file is created, then locked, then compared with what its name leads to: a process that
  cleans up may have removed it in between. Only who holds its lock removes a directory.
* A forked child shares its parent's lock (so nobody removes the directory under it), and removes
  nothing itself.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from magic_committer.errors import OptionError, UploadFailed
from magic_committer.errors.messages import of_disk
from magic_committer.runtime.threads import cleaning_up, pass_on
from magic_committer.upload.file import Buffer, FileState, PlainFile, flat, nothing

logger = logging.getLogger("magic_committer")

LOCK_SUFFIX = ".lock"
FILES, OPEN = "files", "open"
TRIES_MAX = 10
"""How often a directory is made anew whose lock file a clean-up has removed."""

_swept: set[tuple[int, str]] = set()
"""Processes and places that this process has cleaned: once each."""
_here: set[LocalDirectory] = set()
"""Directories of this process that have not ended."""


class LocalDirectory:
    """The local directory of one attempt.

    Attributes:
        path: where it is.
        files: the directory of its files, in `path`.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.files = path / FILES
        self._lock = lock
        self._pid = os.getpid()
        self._opened = 0

    @classmethod
    def make(cls, buffer_dir: str | None) -> LocalDirectory:
        """Make a directory. The first one of a process removes what killed processes left. Raises
        OptionError: it cannot be made there, or this system has no `flock` (Windows)."""
        if fcntl is None:
            raise OptionError(
                "local files of a task need flock, which this system does not have",
                hint="Write with task.open(name), or on Linux or macOS",
            )
        place = Path(buffer_dir or tempfile.gettempdir()) / f"magic-committer-{os.geteuid()}"
        try:
            _make_private(place)
            if (os.getpid(), str(place)) not in _swept:
                _swept.add((os.getpid(), str(place)))
                remove_dead(place)
            made = cls(*_create_locked(place))
            made.path.mkdir(0o700)
            made.files.mkdir(0o700)
        except OSError as error:
            raise OptionError(
                f"{place}: a local directory cannot be made there: {error.strerror}",
                hint="Pass options=magic_committer.Options(buffer_dir=...), a directory with room"
                " that this process may write to",
            ) from error
        _here.add(made)
        return made

    def place_for(self, name: str) -> Path:
        """A path for a file that is being written, with the last element of ``name``, in a
        directory of its own: programs may put files of theirs beside it."""
        self._opened += 1
        directory = self.path / OPEN / str(self._opened)
        directory.mkdir(0o700, parents=True)
        return directory / (name.rpartition("/")[2])

    def move_in(self, path: Path, name: str) -> None:
        """Move a file that was written into the attempt's files. Raises OSError: it cannot be moved
        there, or a directory or another file is there."""
        target = self.files / name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)  # in place of a rename, which would overwrite another file
        path.unlink()

    def bytes_used(self) -> int:
        """Bytes of all files in it. Files that vanish meanwhile count nothing."""
        used = 0
        for directory, _, names in os.walk(self.path):
            for name in names:
                with suppress(FileNotFoundError):
                    used += os.lstat(os.path.join(directory, name)).st_size
        return used

    def remove(self) -> None:
        """Remove it with all that is in it. Repeatable. A failure is logged: the next process that
        makes a directory there removes the rest."""
        if self._pid != os.getpid() or self not in _here:
            return
        if _gone(self.path, shutil.rmtree):
            _here.discard(self)
            _gone(self.path.with_name(self.path.name + LOCK_SUFFIX), os.unlink)
            os.close(self._lock)


def remove_dead(place: Path) -> None:
    """Remove the directories that killed processes left in a place. A failure is logged."""
    for lock in sorted(place.glob(f"*{LOCK_SUFFIX}")):
        with _locked(lock) as mine:
            if not mine:
                continue
            path = lock.with_name(lock.name.removesuffix(LOCK_SUFFIX))
            if _gone(path, shutil.rmtree):
                _gone(lock, os.unlink)
                logger.warning("%s: removed, its process was killed", path)


@atexit.register
def _remove_what_is_left() -> None:
    for one in tuple(_here):
        one.remove()


def _make_private(place: Path) -> None:
    """Make a directory that nobody else can enter, or see that it is one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(0o700)
    seen = place.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise OptionError(
            f"{place} is no directory that this user alone can enter",
            hint=f"Remove it, or run: chmod 700 {place}",
        )


def _create_locked(place: Path) -> tuple[Path, int]:
    """Create a lock file with a new name and lock it. Gives the path of its directory, which is not
    made yet, and the lock's descriptor."""
    for _ in range(TRIES_MAX):
        lock, name = tempfile.mkstemp(suffix=LOCK_SUFFIX, prefix="attempt-", dir=place)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _leads_to(Path(name), lock):
                return Path(name.removesuffix(LOCK_SUFFIX)), lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    raise OSError(None, f"{TRIES_MAX} lock files were removed while they were locked", str(place))


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Try to lock a lock file that is there. Gives whether it is locked by us now."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # another process has removed it
        yield False
        return
    mine = False
    try:
        with suppress(OSError):  # its process lives
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = _leads_to(path, lock)
        yield mine
    finally:
        os.close(lock)


def _leads_to(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _gone(path: Path, remove: Callable[[Path], object]) -> bool:
    try:
        remove(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        logger.warning("%s could not be removed: %s", path, error)
        return False
    return True


def refuse_full(used: int, bytes_max: int | None, what: str) -> None:
    """Refuse more than the quota. Raises UploadFailed: they are more."""
    if bytes_max is not None and used > bytes_max:
        raise UploadFailed(
            f"{what}: its local files have {used} bytes, more than local_bytes_max={bytes_max}",
            hint="Write less in one task, or raise the limit:"
            f" options=magic_committer.Options(local_bytes_max={2 * used})",
        )


class LocalFile(PlainFile):
    """A local file that becomes a file of its attempt when it is closed: it is complete then. It
    can be read, written and cut in any order. One thread at a time may use it.

    It is no `os.PathLike`: numpy, pyarrow and gzip would open its path anew, and so lose what was
    written before.

    Attributes:
        path: where it is on this machine, as long as it is open, for programs that want a path.
    """

    path: Path

    def __init__(
        self,
        directory: LocalDirectory,
        relative: str,
        name: str,
        *,
        bytes_max: int | None,
        on_close: Callable[[Path], None],
        on_abort: Callable[[], None] = nothing,
    ) -> None:
        """``relative``: its name below the destination; ``name``: its URL. ``on_close`` accepts the
        complete local file: if it raises, the file has failed. ``on_abort`` gives up what belongs
        to the file elsewhere. Raises UploadFailed: the local file cannot be made."""
        super().__init__(name)
        self._directory = directory
        self._bytes_max = bytes_max
        self._on_close = on_close
        self._on_abort = on_abort
        self._length = 0
        self._written = False
        self._state = FileState.FAILED  # until the local file is there
        try:
            self.path = directory.place_for(relative)
            self._file = io.FileIO(self.path, "x+")  # unbuffered: a forked child flushes nothing
        except OSError as error:
            pass_on(error)
            told = f"{name} cannot be written to local disk: {error}"
            raise UploadFailed(told, hint=of_disk(error)) from error
        self._state = FileState.OPEN

    def __repr__(self) -> str:
        return f"<LocalFile {self.name} {self.state} in {self.path}>"

    def _check_open(self) -> io.FileIO:
        self.check_process()
        if self._state is not FileState.OPEN:
            raise ValueError(f"I/O operation on closed file {self.name}")
        return self._file

    @property
    def length(self) -> int:
        """How many bytes it has now, or had when it was closed."""
        if self._state is FileState.OPEN and self.pid == os.getpid():
            with suppress(FileNotFoundError):  # a program is about to put another one there
                self._length = self.path.stat().st_size
        return self._length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The descriptor of the local file."""
        return self._check_open().fileno()

    def read(self, size: int | None = -1, /) -> bytes:
        return self._check_open().read(-1 if size is None else size) or b""

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readinto(self, buffer: Buffer, /) -> int:
        return self._check_open().readinto(buffer) or 0

    readinto1 = readinto

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._check_open().readline(-1 if size is None else size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place in the file. Repeatable with ``os.SEEK_SET`` and ``os.SEEK_END``; with
        ``os.SEEK_CUR`` each call goes further.

        Args:
            offset: bytes; may lie behind the end: what is between is zeros once something follows.
            whence: ``os.SEEK_SET`` (default): from the start; ``os.SEEK_CUR``: from here;
                ``os.SEEK_END``: from the end.

        Returns:
            The new place, in bytes from the start.

        Raises:
            ValueError: the file is closed. WrongProcess: this is a forked child.
            OSError: the place lies before the start.
        """
        return self._check_open().seek(offset, whence)

    def tell(self) -> int:
        return self._check_open().tell()

    def truncate(self, size: int | None = None, /) -> int:
        return self._check_open().truncate(size)

    def flush(self) -> None:
        self._check_open().flush()

    def write(self, data: Buffer, /) -> int:
        """Write bytes at the present place.

        Raises:
            UploadFailed: the disk is full, or the attempt's quota is used up. The file has failed.
            ValueError: the file is closed. WrongType: it is no buffer of bytes.
        """
        file, view, written = self._check_open(), flat(data, self.name), 0
        self._written = True
        try:
            while written < len(view):
                written += file.write(view[written:])
            if self._bytes_max is not None:
                refuse_full(file.tell(), self._bytes_max, self.name)
        except UploadFailed as error:
            raise self._fail(error)  # noqa: B904 (it is the same error)
        except OSError as error:
            pass_on(error)
            told = f"{self.name} could not be kept on local disk: {error}"
            raise self._fail(UploadFailed(told, hint=of_disk(error))) from error
        return written

    def close(self) -> None:
        """Close the local file and hand it over. Does nothing if the file is closed already.

        Raises:
            UploadFailed: the local file is gone or too large, or the disk is full, or another file
                was put in its place after a `write`; again at each close of a failed file.
            WrongProcess: this is a forked child of the process that opened the file.

            What ``on_close`` raises.
        """
        if not self._is_open():
            return
        try:
            try:
                self._length = self.length
                self._state = FileState.CLOSING
                if self._written and not _leads_to(self.path, self._file.fileno()):
                    raise UploadFailed(
                        f"{self.name}: what was written to it is lost, for its path"
                        f" {self.path} leads to another file now",
                        hint="Write by file.write(...), or by file.path, but not by both",
                    )
                self._file.close()
                used = self._directory.bytes_used()
            except OSError as error:
                pass_on(error)
                told = f"{self.name} could not be kept on local disk: {error}"
                raise UploadFailed(told) from error
            refuse_full(used, self._bytes_max, self.name)
            self._on_close(self.path)
        except BaseException as error:
            self._fail(error)
            raise
        self._state = FileState.PENDING

    def _give_up(self) -> None:
        self._drop()
        self._on_abort()

    def take_out(self) -> None:
        """Give the file up, also a closed one."""
        self._state = FileState.ABORTED
        self._drop()

    def _fail(self, error: BaseException) -> BaseException:
        self._failed(error)
        self._drop()
        try:
            with cleaning_up(error):
                self._on_abort()
        except Exception as failed:
            error.add_note(f"{self.name} could not be given up: {failed}")
        return error

    def _drop(self) -> None:
        with suppress(OSError):  # it is given up, whatever its disk says
            self._file.close()
        with suppress(OSError):  # else it leaves with the attempt's directory
            self.path.unlink()
