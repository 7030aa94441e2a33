"""One attempt of a task in a classic job: written as in every job of renames, ended by v1 or v2.

Invariants:

* v1: what an attempt commits appears in the job whole, by one rename of its directory. It then
  looks whether the job's merge has begun without it: so no task is told that it has committed, and
  is left out. Both use the rename of `00/0`: it was before the attempt's rename, and the attempt
  sees it; or it is after, and takes the attempt's directory along.
* v2: each file is renamed to its place. Every rename may be done again by the same handle. Nothing
  is taken back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import orjson

from magic_committer.committers.classic.names import STAYS, ClassicPaths, committed_name
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.attempt import TreeAttempt
from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.committers.manifest.parts import TRIES_MAX
from magic_committer.committers.manifest.task_manifest import ManifestFile
from magic_committer.errors import (
    JobNotRunning,
    MagicError,
    NotFound,
    StoreError,
    TaskFailed,
    Unanswered,
)
from magic_committer.file_trees.base import add_parents, make_directories, parent_of
from magic_committer.file_trees.renaming import rename_once
from magic_committer.protocol.record import State, TaskCommit
from magic_committer.protocol.rules import Phase


class ClassicAttempt(TreeAttempt, ABC):
    """What the attempts of v1 and v2 share."""

    paths_class: ClassVar[type[TreeJobPaths]] = ClassicPaths
    _paths: ClassicPaths

    @property
    def _by_results(self) -> bool:
        return self.job.terms.accept == "results"

    @property
    def _committed_name(self) -> str:
        return committed_name(self.task, self.attempt, by_results=self._by_results)

    def _save(self) -> TaskCommit:
        """Commit the attempt's files. Repeatable by this handle."""
        seen = records.read(self._parts, self._paths)
        if seen is None or seen.record.state is not State.RUNNING:
            raise self._late(seen)
        if self._by_results and not self._files:
            return TaskCommit(self.job.uuid, self.task, self.attempt)
        key = self._move()
        return TaskCommit(
            job_uuid=self.job.uuid,
            task=self.task,
            attempt=self.attempt,
            key=key,
            files=len(self._files),
            bytes=sum(file.size for file in self._files),
        )

    def _late(self, seen: records.SeenVersion | None) -> JobNotRunning:
        error = super()._late(seen)
        if error.outcome == "aborted":
            error.advice = STAYS
        return error

    @abstractmethod
    def _move(self) -> str:
        """Move the attempt's files, and give where that can be seen."""

    def _begin(self) -> None:
        """From here on the attempt may be committed, and its files are not looked at again."""
        self._turns.phase = Phase.SENT
        self._manifest = b""  # not None: `commit` has gathered the files

    def _directories_of(self, paths: list[str]) -> set[str]:
        """Also those above: they are renamed with what is in them."""
        above = parent_of(self._root)
        directories = {above}
        for path in paths:
            add_parents(directories, path)
        return directories - {above}


class V1Attempt(ClassicAttempt):
    """An attempt whose commit renames its directory."""

    def _move(self) -> str:
        paths = self._paths
        target = paths.committed(self._committed_name)
        if self.phase is not Phase.SENT:
            self._remove_left_out()
            self._make_directories(self._root)
            self._begin()
        try:
            self._rename(target)
            if self._is_there(paths.merging) and self._is_there(target):
                raise self._too_late()
            self._sync_above(target)
        except NotFound as error:
            raise self._ended(error) from error
        return target

    def _remove_left_out(self) -> None:
        """Remove hidden files, and directories of nothing else: the rest is published as it is."""
        for path in self._left_out:
            self._parts.tree.remove(path)
            directory = parent_of(path)
            while directory != self._root and self._parts.tree.remove_directory(directory):
                directory = parent_of(directory)

    def _rename(self, target: str) -> None:
        """Rename the attempt's directory, over the one of an earlier attempt of the task."""
        tree = self._parts.tree
        for number in range(TRIES_MAX):
            if not self._is_there(self._root):
                if self._is_there(target) or self._is_there(self._merged):
                    return  # it was renamed before
                raise NotFound(f"{self._root} is gone", operation="rename", key=self._root)
            try:
                if self._is_there(target):
                    tree.rename(target, self._old())
                tree.rename(self._root, target)
                return
            except (NotFound, Unanswered) as error:
                last: StoreError = error
                self._parts.pause(number)
            except StoreError as error:
                if not self._is_there(target):
                    raise
                last = error  # another attempt of the task has just committed
        raise last

    def _old(self) -> str:
        return self._paths.old(self._committed_name, self._parts.ids())

    def _sync_above(self, target: str) -> None:
        """Make the rename last. Where the merge has taken the directory along, it does that."""
        tree, above = self._parts.tree, parent_of(target)
        try:
            self._parts.again(lambda: tree.sync([], [above]))
        except NotFound:
            if not self._is_there(self._merged):
                raise

    @property
    def _merged(self) -> str:
        return self._paths.merged(self._committed_name)

    def _is_there(self, path: str) -> bool:
        return self._parts.again(lambda: self._parts.tree.stat(path)) is not None

    def _ended(self, why: NotFound) -> MagicError:
        try:
            if self._is_there(self._paths.merging):
                return self._too_late()
        except StoreError:
            return why
        return super()._ended(why)

    def _too_late(self) -> TaskFailed:
        return TaskFailed(
            f"attempt {self.attempt!r} of task {self.task!r}: the commit of job {self.job.id!r} had"
            " begun without it: it is not in the job",
            job_id=self.job.id,
            hint="Commit all tasks before the job; write what is missing in another job",
        )


class V2Attempt(ClassicAttempt):
    """An attempt whose commit renames its files to their places."""

    def _move(self) -> str:
        tree, paths, key = self._parts.tree, self._paths, self._paths.mark(self._committed_name)
        try:
            self._parts.again(lambda: tree.make_directory(paths.merging))
            self._begin()
            self._publish()
            self._say(key)
        except NotFound as error:
            raise self._ended(error) from error
        return key

    def _publish(self) -> None:
        tree, directories = self._parts.tree, set[str]()
        for file in self._files:
            add_parents(directories, file.name)
        for directory in sorted(directories):
            self._parts.again(lambda path=directory: make_directories(tree, path))  # type: ignore[misc]

        def one(file: ManifestFile) -> None:
            source = f"{self._root}/{file.name}"
            self._parts.again(lambda: rename_once(tree, source, file.name, file.size, file.etag))

        for _ in self._parts.each(one, self._files):
            pass
        self._parts.again(lambda: tree.sync([], ["", *sorted(directories)]))

    def _say(self, key: str) -> None:
        """Leave what the task has published, over what an earlier attempt of it left."""
        size = sum(file.size for file in self._files)
        mark = {"version": 1, "task": self.task, "files": len(self._files), "bytes": size}
        self._create(self._spare, orjson.dumps(mark))
        self._put_in_place(key)
