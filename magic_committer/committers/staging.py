"""The staging committers: a task writes ordinary files to local disk, and uploads them when it
commits.

From the task's commit on it is the same job as magic's: its uploads wait for the job's decision,
with one record, one fence, one commit and one recovery (`committers.base`). The two differ in
what a mode is about:

===============  ====================  ======================================================
                 ``"directory"``       ``"partitioned"``
===============  ====================  ======================================================
``append``       ``append``            ``append``
``fail``         ``fail``              ``fail_partitions``: only if no written partition has data
``replace``      ``replace``           ``replace_partitions``: the data of written partitions
===============  ====================  ======================================================

Files directly in the destination are a partition of their own, the table's root. What is replaced
is planned before the decision, and deleted after every new file is visible.

An attempt is a local directory, whose files its commit uploads: magic's attempt with
``track="memory"``, whose uploads its commit opens. So all that is known of its ends holds here: no
file of it is visible before the job's decision, and each end that is no commit aborts its uploads.

Invariants:

* Nothing is sent before the task's commit. That sends every file or none: if one cannot be sent,
  all uploads of the attempt are aborted, and the attempt can never be committed.
* A file that is in the directory when the commit begins is uploaded, unless it is hidden: an
  element of its name begins with ``_`` or ``.``, as Hadoop's committers do. A file that the task
  opened by name is uploaded whatever its name is.
* Nothing that could be data is left out silently. What is no ordinary file (a link, a pipe), and a
  name that is no text, is an error.
  A file that changes while it is uploaded ends the attempt: half of each state may have been sent.
* A file of `open` or `local_file` is in the directory only when it was closed well; an open one
  ends the commit, as in every job.
* The local files go when the uploads are stored, or when the attempt is aborted; after a kill, see
  `LocalDirectory`.
* One call at a time commits, as in magic (`ends`).
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

from magic_committer.committers.base import Committer
from magic_committer.committers.magic import Attempt
from magic_committer.errors import OptionError, PathError, TaskFailed, UploadFailed
from magic_committer.errors.messages import ANOTHER_ATTEMPT
from magic_committer.hadoop.paths import is_hidden
from magic_committer.options import BY_PARTITION, Mode, Track
from magic_committer.protocol.record import TaskCommit
from magic_committer.runtime.components import Progress
from magic_committer.stores.base import Attributes
from magic_committer.stores.urls import url_of
from magic_committer.upload import FileState, LocalFile, TaskFile
from magic_committer.upload.local import refuse_full

logger = logging.getLogger("magic_committer")


class StagingAttempt(Attempt):
    """An attempt in the process that writes it. Its uploads are opened by its commit."""

    opened_by_commit = True

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._unique = False
        self._written: dict[str, LocalFile] = {}
        self._attributes: dict[str, Attributes] = {}
        self._uploaded = False

    @property
    def has_files(self) -> bool:
        """Whether it has a local directory in this process."""
        return self._local is not None or self._uploaded

    # Writing --------------------------------------------------------------------------------------

    def directory(self, *, unique: bool) -> Path:
        """The local directory: see `Task.directory`."""
        self.check_process("writing its files")
        with self._turns.lock:
            self._turns.check_open()
            self._unique = self._unique or unique
            return self._local_directory().files

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> LocalFile:
        """Open a local file, which is in the directory when it is closed. Nothing is sent."""
        self.check_process("opening a file")
        name = self._name(name, unique)
        url = url_of(self._dest.bucket, self._dest.key(name))
        with self._turns.lock:
            self._turns.check_open()
            self._refuse_twice(self._written, name)
            file = self._local_file(name, url, on_close=partial(self._move_in, name))
            self._written[name], self._attributes[name] = file, attributes
        file.take_back = self._take_back
        return file

    local_file = open
    """A file of a staging job is a local one."""

    def streams(self) -> NoReturn:
        """Not to be called: nothing is sent before the commit. Raises `OptionError`."""
        raise self._writes_locally()

    @property
    def waiting(self) -> NoReturn:
        """Not to be asked for: see `streams`. Raises `OptionError`."""
        raise self._writes_locally()

    def _name_of(self, file: TaskFile) -> str | None:
        return next((name for name, one in self._written.items() if one is file), None)

    def _drop_closed(self, name: str) -> None:
        with self._turns.lock:
            self._turns.check_open()
            (self._local_directory().files / name).unlink(missing_ok=True)
            self._written[name].take_out()

    def discard(self, name: str) -> NoReturn:
        """Not to be called: a local file is removed by its path. Raises `OptionError`."""
        raise self._writes_locally()

    def _writes_locally(self) -> OptionError:
        return OptionError(
            f"job {self.job.id!r} has committer={self.job.terms.committer!r}: its tasks write local"
            " files, and have no filesystem(), discard() or put_...()",
            hint="Write, copy, rename and remove files in task.directory(); or start the job with"
            " committer='magic'",
        )

    def _move_in(self, name: str, path: Path) -> None:
        with self._turns.lock:
            self._turns.check_open()
            try:
                self._local_directory().move_in(path, name)
            except OSError as error:
                raise UploadFailed(
                    f"{name} cannot be put into the task's directory: {error.strerror}",
                    hint="Another file there has its name, or the name of one of its directories",
                ) from error

    # Its commit -----------------------------------------------------------------------------------

    def _save_set(self) -> TaskCommit:
        """See `TaskAttempt._save_set`: all files are uploaded before."""
        if not self._uploaded:
            self._upload()
            self._uploaded = True
            self._remove_local()
        return super()._save_set()

    def _upload(self) -> None:
        self._refuse_lost_files(self._written)
        if self._local is None:
            return
        root = self._local.files
        files = self._found(root)
        used = sum(file.size for file in files)
        refuse_full(used, self._options.local_bytes_max, f"attempt {self.attempt!r}")
        tell = self._runtime.progress
        for number, file in enumerate(files):
            tell(Progress("upload", number, len(files), "files"))
            unique = self._unique and file.name not in self._written
            attributes = self._attributes.get(file.name, Attributes())
            with self._open_upload(file.name, unique, attributes) as stream:
                stream.take_file(str(root / file.name), beside=True)
        self._closings.settle()
        self._closings.tell_failure()
        tell(Progress("upload", len(files), len(files), "files"))
        for file in files:
            if look_at(root, file.name) != file:
                raise TaskFailed(
                    f"{root / file.name} was changed while the task was committed: what was"
                    " uploaded of it may be a mixture",
                    job_id=self.job.id,
                    hint=f"Let every program end before the commit. {ANOTHER_ATTEMPT}",
                )
        logger.info(
            "job %s: attempt %s of task %s uploaded %d files of %d bytes",
            self.job.id, self.attempt, self.task, len(files), used,
        )  # fmt: skip

    def _found(self, root: Path) -> list[FoundFile]:
        """What is to be uploaded: what was opened by name, and what else is there."""
        try:
            names = set(scan(root))
        except OSError as error:
            raise TaskFailed(
                f"{root} cannot be read: {error}", job_id=self.job.id, hint=ANOTHER_ATTEMPT
            ) from error
        names.update(n for n, file in self._written.items() if file.state is FileState.PENDING)
        return [look_at(root, name) for name in sorted(names)]


class FoundFile(NamedTuple):
    """A file of the local directory. ``changed_ns``: when it was last changed, as the file system
    says."""

    name: str
    size: int
    changed_ns: int


def scan(directory: Path, prefix: str = "") -> Iterator[str]:
    """The names of what is below a directory and is none. Hidden ones are not among them."""
    with os.scandir(directory) as found:
        for entry in found:
            name = prefix + entry.name
            if is_hidden(entry.name):
                continue
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise PathError(
                    f"the file {os.fsencode(name)!r} has a name that is not UTF-8: no key can have"
                    " it",
                    hint="Rename it",
                ) from error
            if entry.is_dir(follow_symlinks=False):
                yield from scan(Path(entry.path), f"{name}/")
            else:
                yield name


def look_at(root: Path, name: str) -> FoundFile:
    """One file of the directory."""
    path = root / name
    try:
        seen = path.lstat()
    except OSError as error:
        raise TaskFailed(
            f"{path} was a file of the task, and cannot be found: {error.strerror}",
            hint="Leave the files that task.open(...) gave in task.directory(); or give one up"
            " with file.abort() before it is closed",
        ) from error
    if not stat.S_ISREG(seen.st_mode):
        kind = "a link" if stat.S_ISLNK(seen.st_mode) else "no ordinary file"
        raise TaskFailed(
            f"{path} is {kind}, and cannot be uploaded",
            hint="Copy what it leads to; or begin its name with _ or ., which is not uploaded",
        )
    return FoundFile(name, seen.st_size, seen.st_mtime_ns)


class StagingCommitter(Committer[StagingAttempt]):
    """One started job in one process, whose attempts have a local directory. Its base; jobs are of
    one of the two classes below."""

    attempts = StagingAttempt
    tracks: ClassVar[tuple[Track, ...]] = ("memory",)


class DirectoryCommitter(StagingCommitter):
    """Modes are about the whole destination."""

    name: ClassVar[str] = "directory"

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """See `Committer.mode`: those that are not about partitions."""
        if mode in BY_PARTITION:
            raise OptionError(
                f"committer='directory' has no mode {mode!r}",
                hint="Pass committer='partitioned'",
            )
        return mode


class PartitionedCommitter(StagingCommitter):
    """Modes are about the partitions that the job writes."""

    name: ClassVar[str] = "partitioned"

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """See `Committer.mode`: ``fail`` and ``replace`` are meant for each partition."""
        by_partition: dict[Mode, Mode] = {
            "fail": "fail_partitions",
            "replace": "replace_partitions",
        }
        return by_partition.get(mode, mode)
