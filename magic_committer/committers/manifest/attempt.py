"""One attempt of a task in a job of renames: files in a directory of its own, then one manifest.

Invariants:

* Nobody but this object uses the attempt: its name is drawn, or its engine vouches for it
  (``track="memory"``). Its files are below ``00/tasks/<attempt>/``, where no reader of the
  destination looks.
* The commit names every file that was closed well, and what else is in `directory`, with size and
  etag, in one manifest that appears whole. Before it does, the files last through a power cut, and
  the job was seen running.
* A manifest whose write got no clear answer may be there: the attempt is ``SENT`` from then on, and
  keeps its files, unless the job's record says that nobody can accept them any more.
* A file that was given up is gone before the manifest is written: v1 publishes whatever is in the
  directory, and with `directory` every attempt does.
* If the job has ended, its directory is gone, and whatever the attempt writes fails.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, ClassVar, NoReturn, Self

from magic_committer._hints import ANOTHER_ATTEMPT, CLOSE_FIRST
from magic_committer._patience import cleaning_up, patient
from magic_committer._quantities import name_some
from magic_committer.commit.outcome import ended, outcome_of
from magic_committer.committers.magic.turns import Turns
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.files import TreeFile
from magic_committer.committers.manifest.names import (
    TreeJobPaths,
    check_path_fits,
    check_tree_name,
    is_hidden_name,
)
from magic_committer.committers.manifest.parts import Parts
from magic_committer.committers.manifest.task_manifest import (
    MANIFEST_BYTES_MAX,
    ManifestFile,
    TaskManifest,
    encode_manifest,
)
from magic_committer.errors import (
    FileStillOpen,
    JobNotRunning,
    MagicError,
    NotFound,
    OptionError,
    PathError,
    PreconditionFailed,
    StoreError,
    TaskFailed,
    WrongProcess,
)
from magic_committer.file_trees.base import (
    FileTree,
    TreeEntry,
    add_parents,
    make_directories,
    parent_of,
    remove_tree,
    walk,
)
from magic_committer.file_trees.local import LocalTree
from magic_committer.file_trees.renaming import rename_once
from magic_committer.hadoop.paths import unique_name
from magic_committer.options import Options
from magic_committer.protocol.record import HANDS_OFF, StartedJob, State, TaskCommit
from magic_committer.protocol.rules import Phase
from magic_committer.stores.base import Attributes
from magic_committer.upload import FileState, LocalDirectory, LocalFile

logger = logging.getLogger("magic_committer")

COPY_BYTES = 1024**2
"""Bytes of a local file that are copied at once."""


class TreeAttempt:
    """An attempt in the process that writes it.

    Args:
        parts: the components.
        job: its job.
        options: where local files are, and how many bytes they may have.
        task, attempt: the task's id and the attempt's name.
    """

    paths_class: ClassVar[type[TreeJobPaths]] = TreeJobPaths

    def __init__(
        self, parts: Parts, job: StartedJob, options: Options, task: str, attempt: str
    ) -> None:
        self.job = job
        self.task = task
        self.attempt = attempt
        self.result: TaskCommit | None = None
        self._parts = parts
        self._options = options
        self._paths = self.paths_class(job.uuid)
        self._root = self._paths.attempt(attempt)
        self._pid = os.getpid()
        self._turns = Turns(job.id, attempt)
        self._opened: dict[str, TreeFile | LocalFile] = {}
        self._made: set[str] = set()
        self._local: LocalDirectory | None = None
        self._given = self._unique = False
        self._left_out: list[str] = []
        self._left: set[str] = set()
        """Names whose files were given up, and may still be there."""
        self._torn = ""
        """Why nobody can tell any more what the attempt has; "": nothing."""
        self._manifest: bytes | None = None
        self._files: tuple[ManifestFile, ...] = ()
        self._spare = self._paths.spare(parts.ids())

    def __repr__(self) -> str:
        return f"<TreeAttempt {self.attempt!r} of task {self.task!r} {self.phase.value}>"

    @property
    def phase(self) -> Phase:
        """How far the attempt is, as this handle knows."""
        return self._turns.phase

    @property
    def has_files(self) -> bool:
        """Whether it has files, so that no other handle can commit it."""
        return bool(self._opened) or self._given

    def was_committed(self, result: TaskCommit) -> None:
        """Note that the attempt was committed by another handle, with that result."""
        self.result = result
        self._turns.phase = Phase.COMMITTED

    def share(self) -> NoReturn:
        """Not to be called: ``track`` is never ``"s3"``."""
        raise TaskFailed(
            f"attempt {self.attempt!r} stays in its process: its job has track='memory'",
            job_id=self.job.id,
        )

    # Writing --------------------------------------------------------------------------------------

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> TreeFile:
        """Open a file for writing: see `Task.open`.

        Raises:
            PathError: the name cannot be used, or the attempt already has it.
            OptionError: ``attributes`` says something that a file cannot have.
            TaskFailed: the attempt has ended, or belongs to another process.
            JobNotRunning: the job has ended.
            StoreError: the file cannot be made.
        """
        self._check_process("opening a file")
        name = self._name(name, unique, attributes)
        with self._turns.lock:
            self._turns.check_open()
            self._refuse_twice(name)
            file = self._tree_file(name)
            self._opened[name] = file
        return file

    def local_file(self, name: str, *, unique: bool, attributes: Attributes) -> LocalFile:
        """Open a file that seeks, on local disk: see `Task.local_file`. When it is closed it is
        copied to its place."""
        self._check_process("opening a file")
        name = self._name(name, unique, attributes)
        with self._turns.lock:
            self._turns.check_open()
            self._refuse_twice(name)
            if self._local is None:
                self._local = LocalDirectory.make(self._options.buffer_dir)
            file = LocalFile(
                self._local,
                name,
                f"{self._parts.tree.url}{name}",
                bytes_max=self._options.local_bytes_max,
                on_close=partial(self._take_in, name),
            )
            self._opened[name] = file
        return file

    def directory(self, *, unique: bool) -> Path:
        """The attempt's directory, if it is one of this machine: see `Task.directory`.

        Raises:
            OptionError: the destination is no local directory.
            TaskFailed, JobNotRunning, StoreError: as for `open`.
        """
        self._check_process("writing its files")
        tree = self._parts.tree
        if not isinstance(tree, LocalTree):
            raise OptionError(
                f"{tree.url} is not on a disk of this machine: its tasks have no directory()",
                hint="Use task.local_file(name), or task.open(name)",
            )
        self._turns.check_open()
        self._make_directories(self._root)
        self._given, self._unique = True, self._unique or unique
        return Path(tree.at(self._root))

    # What a writer asks of its files before the commit --------------------------------------------

    def streams(self) -> dict[str, TreeFile | LocalFile]:
        """The files that were opened here, by their names; also those that ended badly."""
        with self._turns.lock:
            return dict(self._opened)

    @property
    def waiting(self) -> Self:
        """See `WaitingFiles`: the attempt's own."""
        return self

    @property
    def tree(self) -> FileTree:
        """The destination."""
        return self._parts.tree

    def reader(self, name: str) -> BinaryIO:
        """See `WaitingFiles.reader`."""
        return self._parts.again(lambda: self._parts.tree.reader(f"{self._root}/{name}"))

    def discard(self, name: str) -> None:
        """Take a file out of the attempt, open or closed, and remove it. Repeatable after a
        StoreError. Afterwards the name is free.

        Raises:
            PathError: the attempt has no such file here.
            TaskFailed: the file is being closed. Or the attempt has ended, is just being ended, or
                belongs to another process. Nothing was done.
            StoreError: it may still be there. The commit removes it, and does not publish it.
        """
        self._check_process("discarding a file")
        with patient(), self._turns.discard():
            with self._turns.lock:
                file = self._own(name)
                opened = file.state is FileState.OPEN and isinstance(file, TreeFile)
                if opened or file.state is FileState.PENDING:
                    self._left.add(name)
                file.take_out()
            if name in self._left:
                self._parts.again(partial(self._drop, name))
            with self._turns.lock:
                if self._opened.get(name) is file:
                    del self._opened[name]

    def rename(self, name: str, new: str, *, unique: bool) -> str:
        """See `WaitingFiles.rename`.

        Raises:
            PathError: there is no such closed file, or the new name cannot be used.
            TaskFailed: as for `discard`.
            StoreError: it may have both names, or either: the attempt cannot commit any more.
        """
        self._check_process("renaming a file")
        new = self._name(new, unique, Attributes())
        source, target = f"{self._root}/{name}", f"{self._root}/{new}"
        with patient(), self._turns.discard(), self._turns.lock:
            file = self._own(name)
            if file.state is not FileState.PENDING:
                raise PathError(
                    f"attempt {self.attempt!r}: {name!r} is {file.state}: it cannot be renamed",
                    hint="Close it first",
                )
            if new == name:
                return new
            self._refuse_twice(new)
            self._make_directories(parent_of(target))
            seen = self._look_at(name)
            before, self._torn = self._torn, f"{name!r} could not be renamed to {new!r}"
            try:
                self._parts.again(
                    lambda: rename_once(
                        self._parts.tree, source, target, seen.size, seen.etag, replace=False
                    )
                )
            except PreconditionFailed as error:
                self._torn = before
                raise self._has_already(new) from error
            self._torn = before
            del self._opened[name]
            self._opened[new] = file
            file.renamed(f"{self._parts.tree.url}{new}")
        return new

    def _own(self, name: str) -> TreeFile | LocalFile:
        """A file of this handle that nobody is just closing."""
        file = self._opened.get(name)
        if file is None:
            raise PathError(
                f"attempt {self.attempt!r} has no file {name!r} here",
                hint="Give the name as it was opened; with unique=True if it was opened so",
            )
        if file.state is FileState.CLOSING:
            raise TaskFailed(
                f"attempt {self.attempt!r}: {name!r} is being closed by another thread",
                job_id=self.job.id,
                hint="Call it again when close() has returned",
            )
        return file

    def _drop(self, name: str) -> None:
        """Remove what was written of a file that is not to be published. Repeatable. What cannot be
        removed is removed by the commit, or the commit fails."""
        self._left.add(name)
        self._parts.tree.remove(f"{self._root}/{name}")
        self._left.discard(name)

    def _tree_file(self, name: str) -> TreeFile:
        path = f"{self._root}/{name}"
        self._make_directories(parent_of(path))
        if name in self._left:
            self._parts.again(partial(self._drop, name))
        return TreeFile(
            self._new_file(path),
            f"{self._parts.tree.url}{name}",
            drop=partial(self._drop, name),
            may_close=partial(self._turns.check_open, awaited=True),
        )

    def _has_already(self, name: str) -> PathError:
        return PathError(
            f"attempt {self.attempt!r} has a file {name!r} already",
            hint="Give each file of a job a name of its own",
        )

    def _name(self, name: str, unique: bool, attributes: Attributes) -> str:
        if attributes != Attributes():
            raise OptionError(
                f"{self._parts.tree.url} holds files, which have no attributes:"
                f" {attributes!r:.120}",
                hint="Leave attributes out",
            )
        check_tree_name(name, uuid=self.job.uuid)
        name = unique_name(name, self.job.uuid) if unique else name
        self._check_fits(name)
        return name

    def _check_fits(self, name: str) -> None:
        longer = max(self.attempt, self.task, key=len)
        check_path_fits(name, self._parts.tree.promises.path_bytes_max, longer)

    def _refuse_twice(self, name: str) -> None:
        opened = self._opened.get(name)
        if opened is not None and opened.state not in (FileState.ABORTED, FileState.FAILED):
            raise self._has_already(name)

    def _make_directories(self, directory: str) -> None:
        if directory in self._made:
            return
        try:
            make_directories(self._parts.tree, directory, below=self._paths.job_attempt)
        except NotFound as error:
            raise self._ended(error) from error
        except PreconditionFailed as error:
            raise PathError(
                f"attempt {self.attempt!r}: {directory[len(self._root) + 1 :]!r} is a file already",
                hint="A name cannot be a file and a directory",
            ) from error
        self._made.add(directory)

    def _new_file(self, path: str) -> BinaryIO:
        try:
            return self._parts.tree.open(path)
        except NotFound as error:
            raise self._ended(error) from error
        except PreconditionFailed as error:
            raise self._has_already(path[len(self._root) + 1 :]) from error

    def _take_in(self, name: str, local: Path) -> None:
        """Copy a complete local file to its place."""
        with self._turns.lock:
            self._turns.check_open(awaited=True)
            file = self._tree_file(name)
        with file, local.open("rb") as source:
            while data := source.read(COPY_BYTES):
                file.write(data)
        with suppress(OSError):  # the directory goes with the attempt
            local.unlink()

    def _ended(self, why: NotFound) -> MagicError:
        """The error for a directory that is gone: the job's record says why."""
        try:
            seen = records.read(self._parts, self._paths)
        except StoreError:
            return why
        if seen is not None and seen.record.state is State.RUNNING:
            return TaskFailed(
                f"attempt {self.attempt!r}: its directory was removed: {why.message}",
                job_id=self.job.id,
                hint=ANOTHER_ATTEMPT,
            )
        return self._late(seen)

    def _late(self, seen: records.SeenVersion | None) -> JobNotRunning:
        """The error of this attempt, whose job does not run any more."""
        return late(self.job, seen)

    # Its ends -------------------------------------------------------------------------------------

    def commit(self) -> TaskCommit:
        """Save the attempt's manifest, so that the job can accept its files. Repeatable.

        Raises:
            FileStillOpen: a file was not closed. The attempt is aborted.
            TaskFailed: a file failed, is gone or is no ordinary file. The attempt is aborted. Also
                if it was aborted before, another thread is ending it, or it belongs to another
                process: then nothing was done.
            PathError: a file in `directory` has a name that cannot be used. The attempt is aborted.
            JobNotRunning: the job has ended.
            StoreError: the manifest could not be saved. Call it again, or `abort`.
        """
        if self.result is not None:
            return self.result
        self._check_process("committing it")
        with patient(), self._turns.commit():
            if self._manifest is None:
                try:
                    self._files = self._gather()
                    self._make_last()
                except BaseException as error:
                    self._abort_after(error)
                    raise
            self.result = self._save()
            self._turns.phase = Phase.COMMITTED
        many, self._files, self._manifest = len(self._files), (), None  # nobody needs them any more
        self._remove_local()
        logger.info(
            "job %s: attempt %s of task %s committed %d files",
            self.job.id, self.attempt, self.task, many,
        )  # fmt: skip
        return self.result

    def abort(self) -> None:
        """Remove the attempt's files. Repeatable; a missing attempt is no error.

        Raises:
            TaskFailed: the attempt is committed or may be, or belongs to another process. Nothing
                was done.
            StoreError: not everything could be removed. It goes with the job.
        """
        self._check_process("aborting it")
        with patient(), self._turns.abort():
            self._abort()

    def _abort(self) -> None:
        if self.phase in (Phase.SENT, Phase.COMMITTED):
            seen = records.read(self._parts, self._paths)
            if seen is not None and seen.record.state in HANDS_OFF:
                raise TaskFailed(
                    f"attempt {self.attempt!r} is committed, or may be: the job may have accepted"
                    " it",
                    job_id=self.job.id,
                    hint="Leave it out of job.commit(...), or abort the job",
                )
        self._turns.phase = Phase.ABORTED
        for file in self._opened.values():
            if file.state is FileState.OPEN:
                file.abort()
        self._remove_local()
        remove_tree(self._parts.tree, self._root)

    def _abort_after(self, error: BaseException) -> None:
        try:
            with cleaning_up(error):
                self._abort()
        except MagicError as failure:
            error.add_note(f"aborting attempt {self.attempt!r} failed too: {failure}")

    def _remove_local(self) -> None:
        if self._local is not None:
            self._local.remove()

    def _check_process(self, doing: str) -> None:
        if self._pid != os.getpid():
            raise TaskFailed(
                f"attempt {self.attempt!r} belongs to process {self._pid}, this is process"
                f" {os.getpid()}: {doing} is possible there only",
                job_id=self.job.id,
                hint=WrongProcess.advice,
            )

    # What is committed ----------------------------------------------------------------------------

    def _gather(self) -> tuple[ManifestFile, ...]:
        """What is to be published: what was opened by name, and what else is in the directory."""
        if self._torn:
            raise TaskFailed(
                f"attempt {self.attempt!r}: {self._torn}: nobody can tell which names it has",
                job_id=self.job.id,
                hint=ANOTHER_ATTEMPT,
            )
        still_open = [n for n, f in self._opened.items() if f.state is FileState.OPEN]
        if still_open:
            raise FileStillOpen(
                f"not closed: {name_some(still_open)} (of attempt {self.attempt!r})",
                job_id=self.job.id,
                hint=CLOSE_FIRST,
            )
        lost = [n for n, f in self._opened.items() if f.state is FileState.FAILED]
        if lost:
            raise TaskFailed(
                f"attempt {self.attempt!r}: these files failed: {name_some(lost)}",
                job_id=self.job.id,
                hint=ANOTHER_ATTEMPT,
            )
        for name in sorted(self._left):
            self._parts.again(partial(self._drop, name))
        names = {n for n, f in self._opened.items() if f.state is FileState.PENDING}
        if self._given:
            names |= self._found_in_directory(names)
        return tuple(self._look_at(name) for name in sorted(names))

    def _found_in_directory(self, opened: set[str]) -> set[str]:
        tree, found = self._parts.tree, set[str]()
        entries = [e for e in walk(tree, self._root) if e.kind != "directory"]
        self._left_out.clear()
        for entry in entries:
            name = entry.path[len(self._root) + 1 :]
            if name in opened:
                continue
            if is_hidden_name(name):
                self._left_out.append(entry.path)
                continue
            _refuse_no_file(self.job, entry)
            check_tree_name(name, uuid=self.job.uuid)
            if self._unique:
                own = unique_name(name, self.job.uuid)
                tree.rename(entry.path, f"{self._root}/{own}", replace=False)
                name = own
            self._check_fits(name)
            found.add(name)
        return found

    def _look_at(self, name: str) -> ManifestFile:
        path = f"{self._root}/{name}"
        entry = self._parts.again(lambda: self._parts.tree.stat(path))
        if entry is None:
            seen = records.read(self._parts, self._paths)
            if seen is None or seen.record.state is not State.RUNNING:
                raise self._late(seen)
            raise TaskFailed(
                f"{path} was a file of the task, and is gone",
                job_id=self.job.id,
                hint="Leave the files that task.open(...) gave in task.directory(); or give one up"
                " with file.abort() before it is closed",
            )
        _refuse_no_file(self.job, entry)
        return ManifestFile(name, entry.size, entry.etag)

    def _make_last(self) -> None:
        tree, paths = self._parts.tree, [f"{self._root}/{file.name}" for file in self._files]
        directories = sorted(self._directories_of(paths))
        try:
            self._parts.again(lambda: tree.sync(paths, directories))
        except NotFound as error:
            raise self._ended(error) from error

    def _directories_of(self, paths: list[str]) -> set[str]:
        """The directories whose entries must last."""
        directories = {self._paths.tasks}
        for path in paths:
            add_parents(directories, path)
        return directories

    # Its manifest ---------------------------------------------------------------------------------

    def _save(self) -> TaskCommit:
        seen = records.read(self._parts, self._paths)
        if seen is None or seen.record.state is not State.RUNNING:
            raise self._late(seen)
        files = self._files
        by_results = self.job.terms.accept == "results"
        if by_results and not files:
            return TaskCommit(self.job.uuid, self.task, self.attempt)
        if self._manifest is None:
            manifest = TaskManifest(self.job.id, self.job.uuid, self.task, self.attempt, files)
            self._manifest = encode_manifest(manifest, self._parts.tree.url, self._root)
        data = self._manifest
        if len(data) > MANIFEST_BYTES_MAX:
            raise TaskFailed(
                f"attempt {self.attempt!r}: its manifest has {len(data)} bytes, more than"
                f" {MANIFEST_BYTES_MAX}",
                job_id=self.job.id,
                hint="Write fewer files in each task",
            )
        self._turns.phase = Phase.SENT
        path = self._paths.result(self.attempt) if by_results else self._paths.manifest(self.task)
        try:
            self._create(path if by_results else self._spare, data)
            if not by_results:
                self._put_in_place(path)
        except NotFound as error:
            raise self._ended(error) from error
        return TaskCommit(
            job_uuid=self.job.uuid,
            task=self.task,
            attempt=self.attempt,
            key=path,
            etag=sha256(data).hexdigest(),
            pendingset_bytes=len(data),
            files=len(files),
            bytes=sum(file.size for file in files),
        )

    def _create(self, path: str, data: bytes) -> None:
        """Create a file that nobody else creates. Repeatable with the same bytes."""

        def create() -> None:
            try:
                self._parts.tree.create(path, data)
            except PreconditionFailed:
                if self._parts.tree.read(path, MANIFEST_BYTES_MAX) != data:
                    raise

        self._parts.again(create)

    def _put_in_place(self, path: str) -> None:
        """Rename the spare manifest over the one of an earlier attempt of the task. Repeatable. Its
        source is used up by our own rename only."""
        tree = self._parts.tree

        def rename() -> None:
            try:
                tree.rename(self._spare, path)
            except NotFound:
                if tree.stat(self._paths.manifests) is None or tree.stat(path) is None:
                    raise

        self._parts.again(rename)
        self._parts.again(lambda: tree.sync([], [self._paths.manifests]))


def _refuse_no_file(job: StartedJob, entry: TreeEntry) -> None:
    if entry.kind != "file":
        raise TaskFailed(
            f"{entry.path} is no ordinary file, and cannot be published",
            job_id=job.id,
            hint="Copy what it leads to; or begin its name with _ or ., which is not published",
        )


def late(job: StartedJob, seen: records.SeenVersion | None) -> JobNotRunning:
    """The error of an attempt whose job does not run any more."""
    if seen is None:
        late = ended(job.dest, job.id, State.ABSENT, "", ", this attempt is too late")
        late.advice = (
            f"It has ended; or this machine does not share {job.dest} with the one that started it"
        )
        return late
    return ended(
        job.dest, job.id, seen.record.state, outcome_of(seen.record), ", this attempt is too late"
    )
