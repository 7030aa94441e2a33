"""One attempt of a staging job: a local directory, whose files its commit uploads.

The uploads, the pendingset and the fence are those of magic's attempt with ``track="memory"``
(`Attempt`), which nobody but this object uses. So all that is known of its ends holds here: no file
of it is visible before the job's decision, and each end that is no commit aborts its uploads.

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
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from magic_committer._hints import ANOTHER_ATTEMPT
from magic_committer._runtime import Progress, Runtime
from magic_committer.committers.ends import TaskAttempt
from magic_committer.committers.magic.attempt import Attempt
from magic_committer.errors import (
    OptionError,
    PathError,
    TaskFailed,
    UploadFailed,
)
from magic_committer.hadoop.paths import Destination, check_name, is_hidden, unique_name
from magic_committer.options import Options
from magic_committer.protocol.record import TaskCommit
from magic_committer.protocol.rules import Phase
from magic_committer.stores.base import Attributes
from magic_committer.stores.urls import url_of
from magic_committer.upload import FileState, LocalDirectory, LocalFile
from magic_committer.upload.local import refuse_full

logger = logging.getLogger("magic_committer")


class StagingAttempt(TaskAttempt):
    """An attempt in the process that writes it. ``uploads``: the attempt that sends what is
    uploaded."""

    def __init__(self, runtime: Runtime, uploads: Attempt, options: Options) -> None:
        super().__init__(uploads.job, uploads.task, uploads.attempt)
        self.uploads = uploads
        self._runtime = runtime
        self._options = options
        self._dest = Destination.parse(uploads.job.dest)
        self._lock = threading.Lock()
        self._local: LocalDirectory | None = None
        self._unique = False
        self._opened: dict[str, tuple[LocalFile, Attributes]] = {}
        self._uploaded = False

    def __repr__(self) -> str:
        return f"<StagingAttempt of {self.uploads!r}>"

    @property
    def has_files(self) -> bool:
        """Whether it has a local directory in this process."""
        return self._local is not None or self._uploaded

    def was_committed(self, result: TaskCommit) -> None:
        """Note that the attempt was committed with this result."""
        super().was_committed(result)
        self.uploads.was_committed(result)

    # Writing --------------------------------------------------------------------------------------

    def directory(self, *, unique: bool) -> Path:
        """The local directory: see `Task.directory`."""
        self.check_process("writing its files")
        self._turns.check_open()
        self._unique = self._unique or unique
        return self._directory().files

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> LocalFile:
        """Open a local file, which is in the directory when it is closed. Nothing is sent."""
        self.check_process("opening a file")
        check_name(name, uuid=self.job.uuid)
        if unique:
            name = unique_name(name, self.job.uuid)
        key = self._dest.key(name)
        directory = self._directory()
        with self._turns.lock:
            self._turns.check_open()
            self._refuse_twice(name)
            file = LocalFile(
                directory,
                name,
                url_of(self._dest.bucket, key),
                bytes_max=self._options.local_bytes_max,
                on_close=partial(self._move_in, directory, name),
            )
            self._opened[name] = (file, attributes)
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

    def _directory(self) -> LocalDirectory:
        with self._lock:
            if self._local is None:
                self._local = LocalDirectory.make(self._options.buffer_dir)
            return self._local

    def _refuse_twice(self, name: str) -> None:
        opened = self._opened.get(name)
        if opened is not None and opened[0].state not in (FileState.ABORTED, FileState.FAILED):
            raise self._has_already(name)

    def _move_in(self, directory: LocalDirectory, name: str, path: Path) -> None:
        with self._turns.lock:
            self._turns.check_open()
            try:
                directory.move_in(path, name)
            except OSError as error:
                raise UploadFailed(
                    f"{name} cannot be put into the task's directory: {error.strerror}",
                    hint="Another file there has its name, or the name of one of its directories",
                ) from error

    # Its ends -------------------------------------------------------------------------------------

    def _commit(self, driver: bool) -> TaskCommit:
        """Upload all files and save the uploads as one `.pendingset`."""
        if not self._uploaded:
            try:
                self._upload()
            except BaseException as error:
                self._abort_after(error)
                raise
            self._uploaded = True
            self._remove_local()
        try:
            self.result = self.uploads.commit(driver=driver)
            return self.result
        finally:
            self._turns.phase = self.uploads.phase

    def _abort(self) -> None:
        try:
            self.uploads.abort()
        finally:
            self._turns.phase = self.uploads.phase
            if self.uploads.phase is Phase.ABORTED:
                self._remove_local()

    def _remove_local(self) -> None:
        if self._local is not None:
            self._local.remove()

    # The upload -----------------------------------------------------------------------------------

    def _upload(self) -> None:
        self._refuse_lost_files()
        if self._local is None:
            return
        root = self._local.files
        files = self._files(root)
        used = sum(file.size for file in files)
        refuse_full(used, self._options.local_bytes_max, f"attempt {self.attempt!r}")
        tell = self._runtime.progress
        for number, file in enumerate(files):
            tell(Progress("upload", number, len(files), "files"))
            own = self._opened.get(file.name)
            self.uploads.send_file(
                root / file.name,
                file.name,
                unique=self._unique and own is None,
                attributes=own[1] if own is not None else Attributes(),
            )
        self.uploads.settle()
        tell(Progress("upload", len(files), len(files), "files"))
        self._refuse_changed(root, files)
        logger.info(
            "job %s: attempt %s of task %s uploaded %d files of %d bytes",
            self.job.id, self.attempt, self.task, len(files), used,
        )  # fmt: skip

    def _files(self, root: Path) -> list[FoundFile]:
        """What is to be uploaded: what was opened by name, and what else is there."""
        names = {
            name for name, (file, _) in self._opened.items() if file.state is FileState.PENDING
        }
        try:
            found = {file.name: file for file in scan(root)}
        except OSError as error:
            raise TaskFailed(
                f"{root} cannot be read: {error}", job_id=self.job.id, hint=ANOTHER_ATTEMPT
            ) from error
        for name in names - found.keys():
            found[name] = look_at(root, name)
        return [found[name] for name in sorted(found)]

    def _states(self) -> dict[str, FileState]:
        return {name: file.state for name, (file, _) in self._opened.items()}

    def _refuse_changed(self, root: Path, files: Iterable[FoundFile]) -> None:
        for file in files:
            if look_at(root, file.name) != file:
                raise TaskFailed(
                    f"{root / file.name} was changed while the task was committed: what was"
                    " uploaded of it may be a mixture",
                    job_id=self.job.id,
                    hint=f"Let every program end before the commit. {ANOTHER_ATTEMPT}",
                )


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of the local directory. ``changed_ns``: when it was last changed, as the file system
    says."""

    name: str
    size: int
    changed_ns: int


def scan(directory: Path, prefix: str = "") -> Iterator[FoundFile]:
    """The files below a directory, in the order of their names. Hidden ones are not among them."""
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name = prefix + entry.name
        if is_hidden(entry.name):
            continue
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise PathError(
                f"the file {os.fsencode(name)!r} has a name that is not UTF-8: no key can have it",
                hint="Rename it",
            ) from error
        if entry.is_dir(follow_symlinks=False):
            yield from scan(Path(entry.path), f"{name}/")
        else:
            yield _ordinary(Path(entry.path), name, entry.stat(follow_symlinks=False))


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
    return _ordinary(path, name, seen)


def _ordinary(path: Path, name: str, seen: os.stat_result) -> FoundFile:
    if not stat.S_ISREG(seen.st_mode):
        kind = "a link" if stat.S_ISLNK(seen.st_mode) else "no ordinary file"
        raise TaskFailed(
            f"{path} is {kind}, and cannot be uploaded",
            hint="Copy what it leads to; or begin its name with _ or ., which is not uploaded",
        )
    return FoundFile(name, seen.st_size, seen.st_mtime_ns)
