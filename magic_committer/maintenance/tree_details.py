"""Jobs of renames in detail, and where they lie: what the command line shows beyond `trees`.
Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from magic_committer._runtime import Progress
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.names import (
    TEMPORARY,
    TreeJobPaths,
    is_hidden_name,
    uuid_of,
)
from magic_committer.committers.manifest.parts import Parts
from magic_committer.committers.manifest.plan import PlannedFile, load_plan
from magic_committer.committers.manifest.publish import is_it
from magic_committer.errors import FormatError, NotFound
from magic_committer.maintenance.job_details import ShownFile, ShownJob
from magic_committer.maintenance.trees import inspect_tree_job, manifests
from magic_committer.protocol.record import State

WAITING = "waiting"
"""The fate of a file that is not at its place yet. The others are those of uploads."""


# One job ------------------------------------------------------------------------------------------


def show_tree_job(parts: Parts, job_id: str, dead_after: float, files_max: int) -> ShownJob | None:
    """Look at one job, as `job_details.show_job` does. None if there is none with that id.

    Raises:
        PathError: the id cannot be used.
        StoreError: the file system did not answer.
    """
    found = inspect_tree_job(parts, job_id, dead_after)
    if found is None:
        return None
    if found.kind != "ours":
        return ShownJob(found, "", ())
    seen = records.read_by_id(parts, job_id)
    if seen is None:
        return ShownJob(found, "", ())
    paths, plan = seen.paths, seen.record.plan
    if plan is None or seen.record.state is State.CLOSED:
        files: Iterable[tuple[PlannedFile, str]] = _left(parts, paths)
        return ShownJob(found, "", _shown(parts, paths, islice(files, files_max)))
    with suppress(NotFound, FormatError):  # swept; or told as the job's problem
        first = list(islice(load_plan(parts.tree, plan).files(), files_max))
        tasks = _tasks_of(parts, paths, {file.attempt for file in first})
        files = [(file, tasks.get(file.attempt, "")) for file in first]
        return ShownJob(found, plan.key, _shown(parts, paths, files))
    return ShownJob(found, plan.key, ())


def _shown(
    parts: Parts, paths: TreeJobPaths, files: Iterable[tuple[PlannedFile, str]]
) -> tuple[ShownFile, ...]:
    return tuple(
        ShownFile(file.name, file.size, task, "", _fate(parts, paths, file)) for file, task in files
    )


def _fate(parts: Parts, paths: TreeJobPaths, file: PlannedFile) -> str:
    if is_it(parts.tree.stat(file.source(paths)), file):
        return WAITING
    return "visible" if is_it(parts.tree.stat(file.name), file) else "missing"


def _left(parts: Parts, paths: TreeJobPaths) -> Iterator[tuple[PlannedFile, str]]:
    for manifest in manifests(parts, paths):
        for file in manifest.files:
            planned = PlannedFile(manifest.attempt, file.name, file.size, file.etag)
            yield planned, manifest.task


def _tasks_of(parts: Parts, paths: TreeJobPaths, attempts: set[str]) -> dict[str, str]:
    """The tasks of attempts, as far as their manifests are there."""
    found: dict[str, str] = {}
    for manifest in manifests(parts, paths):
        if attempts <= found.keys():
            break
        if manifest.attempt in attempts:
            found[manifest.attempt] = manifest.task
    return found


def tree_job_ids(parts: Parts) -> Iterator[str]:
    """The ids of all jobs that have a directory under a destination, by which they are found."""
    for paths in list(records.every_job(parts)):
        seen = None
        with suppress(FormatError):
            seen = records.read(parts, paths)
        yield records.id_of(parts, seen.record) if seen is not None else paths.uuid


# Below a directory --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreesBelow:
    """The destinations at a directory and below it that have jobs.

    Attributes:
        found: their paths, relative to it; "" is itself.
        entries: how many files and directories were listed.
        stopped_at: a directory that was not looked at, because the listing met its limit; "": all
            was looked at.
    """

    found: tuple[str, ...]
    entries: int
    stopped_at: str


def trees_below(parts: Parts, entries_max: int) -> TreesBelow:
    """List all directories of data below a directory, and tell those that have jobs. Links are not
    followed. Repeatable.

    Args:
        parts: the components of the directory.
        entries_max: no further directory is listed after so many files and directories.

    Raises:
        StoreError: a directory could not be listed.
    """
    found: list[str] = []
    entries, waiting = 0, [""]
    while waiting:
        directory = waiting.pop()
        if entries >= entries_max:
            return TreesBelow(tuple(sorted(found)), entries, directory or "/")
        below = []
        for entry in parts.tree.list(directory):
            entries += 1
            if entry.kind != "directory":
                continue
            if entry.name == TEMPORARY:
                if any(uuid_of(one.name) is not None for one in parts.tree.list(entry.path)):
                    found.append(directory)
            elif not is_hidden_name(entry.name):
                below.append(entry.path)
        waiting += sorted(below, reverse=True)
        parts.progress(Progress("list", entries, None, "files"))
    return TreesBelow(tuple(sorted(found)), entries, "")


def tree_has_deeper(parts: Parts) -> bool:
    """Whether a destination has directories of data below it, in which a look at itself sees no
    job.

    Raises:
        StoreError: it could not be listed.
    """
    return any(
        entry.kind == "directory" and not is_hidden_name(entry.name)
        for entry in parts.tree.list("")
    )
