"""The end of a classic job. `TreeJobCommit` ends it, once everything is at its place.

v1 merges while its record says *running*, then decides: the plan of that decision has nothing left
to rename. So a process that reads the record afterwards marks, sweeps and closes, as for every job
of renames. Before that, nothing but the driver's commit goes on with a merge.

Invariants:

* Everything is checked, then `00/0` is renamed to `00/merge`, then files are merged from there. An
  attempt that commits later is told so (`attempt`).
* A merge uses its sources up. Whoever merges again, or at once, takes what is left. That a source
  is gone is no error: nobody can tell a file that was merged from one that was removed.
* Nothing is taken back. An abort that finds `00/merge` says so in its report.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from magic_committer.commit.check import expected
from magic_committer.commit.outcome import end
from magic_committer.commit.prepare import Prospect, refusal
from magic_committer.committers.classic.names import (
    MARK_SUFFIX,
    STAYS,
    ClassicPaths,
    committed_name,
    old_name,
    task_of,
)
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.existing import refuse_data
from magic_committer.committers.manifest.gather import drop_plan
from magic_committer.committers.manifest.job_commit import TreeJobCommit
from magic_committer.committers.manifest.names import TEMPORARY
from magic_committer.committers.manifest.parts import TRIES_MAX, Parts
from magic_committer.committers.manifest.plan import PlanWriter, RenamePlan
from magic_committer.errors import (
    FormatError,
    JobNotRunning,
    NotFound,
    OptionError,
    PreconditionFailed,
    StoreError,
    Unanswered,
)
from magic_committer.file_trees.base import (
    CONTROL_BYTES_MAX,
    TreeEntry,
    make_directories,
    parent_of,
    walk,
)
from magic_committer.hadoop.paths import SUCCESS
from magic_committer.options import FAILING
from magic_committer.protocol.record import JobReport, State, TaskCommit
from magic_committer.protocol.strict import Reader, read_document
from magic_committer.remedy import Remedy

logger = logging.getLogger("magic_committer")


@dataclass(frozen=True, slots=True)
class Committed:
    """An attempt that has committed.

    Attributes:
        task: the task's id; of a listing in a job of results, the attempt's name.
        name: what its directory or mark is named after; "" if it has no files.
        files, bytes: how much it publishes.
    """

    task: str
    name: str
    files: int
    bytes: int


class ClassicJobCommit(TreeJobCommit, ABC):
    """What the ends of v1 and v2 share."""

    @property
    def classic(self) -> ClassicPaths:
        """The job's paths."""
        return ClassicPaths(self.job.uuid)

    def look(self, expect: int | Iterable[str] | None = None) -> Prospect:
        """What `commit` without results would take now. Only reads."""
        found = list(self._left())
        return Prospect(
            tuple(one.task for one in found),
            sum(one.files for one in found),
            sum(one.bytes for one in found),
            (),
        )

    def abort(self, *, revert: bool = False) -> JobReport:
        """As `TreeJobCommit.abort`, but nothing that is visible is taken back: a decided job raises
        `JobNotRunning` with ``revert`` too."""
        return super().abort(revert=False)

    @abstractmethod
    def _left(self) -> Iterator[Committed]:
        """What tasks have left, in order."""

    @abstractmethod
    def _key(self, name: str) -> str:
        """Where a result says that its attempt was committed."""

    def _publish_tasks(self, found: list[Committed]) -> None:
        """Make visible what is not yet. Repeatable."""

    def _prepare(
        self, wanted: list[TaskCommit] | None, expect: int | Iterable[str] | None
    ) -> tuple[RenamePlan, Collection[str]]:
        found = list(self._left()) if wanted is None else [self._of(one) for one in wanted]
        expected(self.job, [one.task for one in found], expect, by_results=wanted is not None)
        self._publish_tasks(found)
        with PlanWriter(self.parts, self.paths) as writer:
            try:
                writer.count(sum(one.files for one in found), sum(one.bytes for one in found))
                return writer.end(len(found)), ()
            except BaseException:
                drop_plan(self.parts, writer.path)
                raise

    def _of(self, result: TaskCommit) -> Committed:
        name = committed_name(
            result.task, result.attempt, by_results=self.job.terms.accept == "results"
        )
        if result.key not in ("", self._key(name)):
            raise OptionError(
                f"the result of task {result.task!r} names {result.key!r}, where no attempt of job"
                f" {self.job.id!r} is committed",
                hint="Pass what task.commit() returned, as it is",
            )
        return Committed(result.task, name if result.key else "", result.files, result.bytes)

    def _undecided(self) -> tuple[str, Remedy]:
        return (
            f"job {self.job.id!r} was not decided when its commit was interrupted: some of its"
            " files may be visible",
            end(self.job.dest, self.job.id, "commit it again, which goes on; or end it"),
        )

    def _obey(self, seen: records.SeenVersion | None) -> JobReport:
        try:
            return super()._obey(seen)
        except JobNotRunning as error:
            if error.outcome == "aborted":
                error.advice = STAYS
            raise

    def _abandon(self, seen: records.SeenVersion, *, may_remove: bool) -> JobReport:
        stays = self._stays() if seen.record.state is State.ABORTING else ""
        report = super()._abandon(seen, may_remove=may_remove)
        if not stays:
            return report
        logger.warning("job %s: %s", self.job.id, stays)
        return replace(report, warnings=(*report.warnings, stays))

    def _stays(self) -> str:
        """What to say of files that an aborted job leaves visible; "": it leaves none. What tasks
        have written is taken away first, so that nobody begins to publish after the look."""
        tree, paths, who = self.parts.tree, self.classic, self.job.terms.committer
        try:
            try:
                tree.rename(paths.app_attempt, paths.taken(self.parts.ids()))
            except (NotFound, Unanswered):
                if _is_there(self.parts, paths.app_attempt):
                    raise
            if not _is_there(self.parts, paths.merging):
                return ""
        except StoreError as error:  # the job is aborted all the same
            return (
                f"whether committer={who!r} had begun to make files of the job visible cannot be"
                f" told ({error.message}): what is visible stays"
            )
        return f"committer={who!r} had begun to make files of the job visible: they stay"


class V1JobCommit(ClassicJobCommit):
    """The end of a job whose tasks have left their directories."""

    def _left(self) -> Iterator[Committed]:
        paths = self.classic
        if not _is_there(self.parts, paths.merging):
            found = list(self._listed(paths.app_attempt, paths.writing))
            if not _is_there(self.parts, paths.merging):
                yield from found
                return  # else another driver has taken them while they were listed
        yield from self._listed(paths.merging, paths.merging_old)

    def _listed(self, where: str, old: str) -> Iterator[Committed]:
        tree = self.parts.tree
        replaced = {old_name(e.name): e.path for e in tree.list(old) if e.kind == "directory"}
        there = {e.name: e.path for e in tree.list(where) if e.kind == "directory"}
        for name, path in sorted({**replaced, **there}.items()):
            if task_of(name):
                files = [e.size for e in walk(tree, path) if e.kind == "file"]
                yield Committed(task_of(name), name, len(files), sum(files))

    def _key(self, name: str) -> str:
        return self.classic.committed(name)

    def _publish_tasks(self, found: list[Committed]) -> None:
        """Merge the directories of these tasks into the destination."""
        tree, paths = self.parts.tree, self.classic
        names = [one.name for one in found if one.name]
        if not _is_there(self.parts, paths.merging):
            lost = [n for n in names if not self._is_committed(n)]
            if lost and not _is_there(self.parts, paths.merging):
                raise refusal(self.job, [f"{paths.committed(name)} is gone" for name in lost])
            if self.job.terms.mode in FAILING:
                refuse_data(self.parts, self.job, None)
            self._begin_merge()
        lost = [name for name in names if not self._put_back(name)]
        if lost:  # a directory that was merged stays, empty, until the job is swept
            raise refusal(self.job, [f"{paths.merged(name)} is gone" for name in lost])
        touched: set[str] = set()
        for name in names:
            merge(self.parts, paths.merged(name), "", touched)
        self.parts.again(lambda: tree.sync([], sorted(touched)))

    def _is_committed(self, name: str) -> bool:
        paths = self.classic
        return _is_there(self.parts, paths.committed(name)) or bool(self._old(paths.writing, name))

    def _old(self, where: str, name: str) -> list[str]:
        return [e.path for e in self.parts.tree.list(where) if old_name(e.name) == name]

    def _put_back(self, name: str) -> bool:
        """See that a committed directory is in the merge. The merge may have come, or a process
        may have died, between the two renames of an attempt that was to take its place: then it
        goes back. Repeatable."""
        tree, paths = self.parts.tree, self.classic
        if _is_there(self.parts, paths.merged(name)):
            return True
        for path in self._old(paths.merging_old, name):
            with suppress(NotFound, PreconditionFailed, Unanswered):  # another driver was first
                tree.rename(path, paths.merged(name))
            if _is_there(self.parts, paths.merged(name)):
                return True
        return _is_there(self.parts, paths.merged(name))

    def _begin_merge(self) -> None:
        """Take the directories of all tasks, so that nobody adds one any more. Repeatable."""
        tree, paths = self.parts.tree, self.classic
        for number in range(TRIES_MAX):
            self.parts.again(
                lambda: make_directories(tree, paths.app_attempt, below=paths.job_attempt)
            )
            try:
                tree.rename(paths.app_attempt, paths.merging)
                return
            except StoreError as error:
                last = error
                if _is_there(self.parts, paths.merging):
                    return  # our answer was lost, or another driver was first
                self.parts.pause(number)
        raise last


class V2JobCommit(ClassicJobCommit):
    """The end of a job whose tasks have published their files."""

    def _left(self) -> Iterator[Committed]:
        tree = self.parts.tree
        marks = [e.path for e in tree.list(self.classic.manifests) if e.name.endswith(MARK_SUFFIX)]
        for path in sorted(marks):
            data = self.parts.again(lambda path=path: tree.read(path, CONTROL_BYTES_MAX))  # type: ignore[misc]
            reader = Reader(read_document(data, path, CONTROL_BYTES_MAX), path)
            if reader.take("version", int) != 1:
                raise FormatError(path, "version", "is not 1")
            name = path.rpartition("/")[2].removesuffix(MARK_SUFFIX)
            yield Committed(
                reader.take("task", str), name, reader.take("files", int), reader.take("bytes", int)
            )

    def _key(self, name: str) -> str:
        return self.classic.mark(name)


def merge(parts: Parts, source: str, target: str, touched: set[str]) -> None:
    """Move everything in a directory into another one, over what is there: a whole directory where
    the other has none of its name. Repeatable, and several processes may do it at once.

    Args:
        parts: the components.
        source, target: the directories. ``target`` exists.
        touched: takes the directories that something was moved into.

    Raises:
        PreconditionFailed, InvalidRequest: a file is where a directory is needed, or the other way
            round. Some files are moved.
        StoreError: the file system failed. The same.
    """
    for entry in list(parts.tree.list(source)):
        place = f"{target}/{entry.name}" if target else entry.name
        if place in (TEMPORARY, SUCCESS):
            continue  # an empty directory that a task has made: no file may have that name
        touched.add(target)
        if entry.kind != "directory":
            _move(parts, entry, place)
            continue
        if _is_there(parts, place) or not _move_directory(parts, entry, place):
            parts.again(lambda place=place: make_directories(parts.tree, place))  # type: ignore[misc]
            merge(parts, entry.path, place, touched)


def _move(parts: Parts, entry: TreeEntry, place: str) -> None:
    """Rename a file to its place, unless another process has."""
    for number in range(TRIES_MAX):
        try:
            parts.tree.rename(entry.path, place)
            return
        except NotFound as error:
            last: StoreError = error
            if not _is_there(parts, entry.path):
                return
            make_directories(parts.tree, parent_of(place))  # somebody removed an empty one
        except Unanswered as error:
            last = error
            parts.pause(number)
    raise last


def _move_directory(parts: Parts, entry: TreeEntry, place: str) -> bool:
    """Rename a directory to its place. False: there is one now, and the files are to be moved."""
    try:
        parts.tree.rename(entry.path, place)
    except StoreError:
        if _is_there(parts, place):
            return False  # perhaps by our own success: nothing is left to be moved then
        if _is_there(parts, entry.path):
            raise
    return True


def _is_there(parts: Parts, path: str) -> bool:
    return parts.again(lambda: parts.tree.stat(path)) is not None
