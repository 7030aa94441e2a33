"""Before the decision: the manifests that tasks left, everything that can be wrong, the plan.

Nothing here changes what readers of the destination see, and nothing decides. The plan is written
while the manifests are read, so the memory of a large job is 26 bytes for each file (`KeySet`) and
the names of its directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import sha256

from magic_committer._runtime import Progress
from magic_committer.commit.check import PROBLEMS_MAX, expected
from magic_committer.commit.prepare import refusal
from magic_committer.committers.manifest.existing import refuse_data, to_be_replaced
from magic_committer.committers.manifest.names import (
    MANIFEST_SUFFIX,
    TreeJobPaths,
    check_path_fits,
)
from magic_committer.committers.manifest.parts import Parts, RealDirectories
from magic_committer.committers.manifest.plan import PlannedFile, PlanWriter, RenamePlan
from magic_committer.committers.manifest.task_manifest import (
    MANIFEST_BYTES_MAX,
    TaskManifest,
    decode_manifest,
)
from magic_committer.errors import FormatError, InvalidRequest, MagicError, NotFound
from magic_committer.file_trees.base import add_parents, parent_of
from magic_committer.hadoop.paths import SUCCESS
from magic_committer.options import BY_PARTITION, FAILING, REPLACING
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.record import StartedJob, TaskCommit

LOADING_MAX = 8
"""How many manifests are read at once."""
LOADING_BYTES_MAX = 4 * 1024**2
"""Bytes of the manifests that are in memory at once; a larger one alone. A file takes some 300."""


@dataclass(slots=True)
class Gathered:
    """What was found in the manifests.

    Attributes:
        tasks: the ids of the tasks, in the order of reading.
        files, bytes: how much they publish.
        names: the names of their files.
        directories: all directories of these names, without the root.
        partitions: the directories that files lie in; "" is the root.
        problems: what is wrong, in words; the first `PROBLEMS_MAX`.
    """

    tasks: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    names: KeySet = field(default_factory=KeySet)
    directories: set[str] = field(default_factory=set)
    partitions: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def add(self, file: PlannedFile) -> None:
        """Count one file."""
        self.files += 1
        self.bytes += file.size
        if not self.names.add(file.name):
            self.problem(f"two files have the name {file.name!r}")
        self.partitions.add(parent_of(file.name))
        add_parents(self.directories, file.name)

    def problem(self, text: str) -> None:
        """Note what is wrong."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)


@dataclass(frozen=True, slots=True)
class _Ref:
    """A manifest to be read; ``result``: what its task said of it, if it said something."""

    path: str
    size: int
    result: TaskCommit | None = None


def gather(
    parts: Parts,
    job: StartedJob,
    wanted: list[TaskCommit] | None,
    each: Callable[[PlannedFile], None],
) -> Gathered:
    """Read the manifests of a commit, and check them and what they name.

    Args:
        parts, job: the components and the job.
        wanted: the results to accept; None: what the tasks left.
        each: takes each file.

    Raises:
        StoreError: a manifest could not be read.
    """
    paths, found = TreeJobPaths(job.uuid), Gathered()
    refs = _listed(parts, paths) if wanted is None else _named(paths, wanted, found)
    outcomes = parts.pool.each(
        lambda ref: _read(parts, job, paths, ref), refs, in_flight=LOADING_MAX,
        weigh=lambda ref: ref.size, weight_max=LOADING_BYTES_MAX,
    )  # fmt: skip
    with closing(outcomes):
        for outcome in outcomes:
            try:
                manifest = outcome.unwrap()
            except FormatError as error:
                found.problem(str(error))
                continue
            found.tasks.append(manifest.task)
            parts.progress(Progress("load", len(found.tasks), None, "tasks"))
            for file in manifest.files:
                planned = PlannedFile(manifest.attempt, file.name, file.size, file.etag)
                if not file.etag:  # Hadoop tells none of a local file
                    source = planned.source(paths)
                    entry = parts.again(lambda source=source: parts.tree.stat(source))  # type: ignore[misc]
                    planned = replace(planned, etag=entry.etag if entry is not None else "")
                found.add(planned)
                each(planned)
    if wanted is not None:
        found.tasks += [result.task for result in wanted if not result.key]
    for directory in sorted(found.directories):
        if directory in found.names:
            found.problem(f"{directory!r} is a file of one task and a directory of another one")
    return found


def _listed(parts: Parts, paths: TreeJobPaths) -> Iterator[_Ref]:
    for entry in parts.tree.list(paths.manifests):
        if entry.kind == "file" and entry.name.endswith(MANIFEST_SUFFIX):
            yield _Ref(entry.path, entry.size)


def _named(paths: TreeJobPaths, wanted: Iterable[TaskCommit], found: Gathered) -> Iterator[_Ref]:
    for result in wanted:
        if not result.key:
            continue
        if result.key not in (paths.result(result.attempt), paths.manifest(result.task)):
            found.problem(f"task {result.task!r}: {result.key} is not where its manifest belongs")
            continue
        yield _Ref(result.key, result.pendingset_bytes, result)


def _read(parts: Parts, job: StartedJob, paths: TreeJobPaths, ref: _Ref) -> TaskManifest:
    try:
        data = parts.again(lambda: parts.tree.read(ref.path, MANIFEST_BYTES_MAX))
    except NotFound as error:
        raise FormatError(ref.path, "", "is gone: its task had saved it there") from error
    told = ref.result
    if told is not None and sha256(data).hexdigest() != told.etag:
        raise FormatError(ref.path, "", "is not the manifest that its task saved")
    manifest = decode_manifest(data, parts.tree.url, paths.tasks, ref.path)
    if manifest.uuid not in (job.uuid, ""):  # Hadoop's say none: the directory tells
        raise FormatError(ref.path, "extraData", f"is of job {manifest.uuid!r}")
    if told is None:
        if ref.path != paths.manifest(manifest.task):
            raise FormatError(ref.path, "taskID", f"is {manifest.task!r}: another file's name")
        return manifest
    said = (told.task, told.attempt, told.files, told.bytes)
    holds = (manifest.task, manifest.attempt, len(manifest.files), manifest.bytes)
    if said != holds:
        raise FormatError(ref.path, "", f"holds {holds}, its task said {said}")
    return manifest


def check_files(parts: Parts, paths: TreeJobPaths, plan: RenamePlan, found: Gathered) -> None:
    """Look at each file that is to be published, and at its place: it must be what its task
    committed, and no directory may be in its way. Adds to ``found.problems``."""
    tasks = parts.again(lambda: parts.tree.stat(paths.tasks))
    device = tasks.device if tasks is not None else ""
    there = {d for d in ("", *found.directories) if _is_there(parts, d, device, found)}
    real = RealDirectories(parts)

    def look(file: PlannedFile) -> str:
        source = file.source(paths)
        try:
            real.check(source)
        except InvalidRequest as error:
            return error.message
        entry = parts.again(lambda: parts.tree.stat(source))
        if entry is None:
            return f"{source} is gone"
        if entry.kind != "file" or (entry.size, entry.etag) != (file.size, file.etag):
            return f"{source} was changed after its task had committed it"
        if parent_of(file.name) in there:
            target = parts.again(lambda: parts.tree.stat(file.name))
            if target is not None and target.kind != "file":
                return f"{file.name!r} is a {target.kind} at the destination: no file can go there"
        return ""

    for done, problem in enumerate(parts.each(look, plan.files()), 1):
        if done % 1000 == 0:
            parts.progress(Progress("check", done, found.files, "files"))
        if problem:
            found.problem(problem)


def _is_there(parts: Parts, directory: str, device: str, found: Gathered) -> bool:
    entry = parts.again(lambda: parts.tree.stat(directory))
    if entry is not None and entry.kind != "directory":
        found.problem(
            f"{directory!r} is a {entry.kind} at the destination, and has to be a directory"
        )
    elif entry is not None and entry.device != device:
        found.problem(f"{directory!r} is another file system: no file can be renamed into it")
    return entry is not None


def write_plan(
    parts: Parts,
    job: StartedJob,
    wanted: list[TaskCommit] | None,
    expect: int | Iterable[str] | None,
) -> tuple[RenamePlan, Gathered]:
    """Make the plan that is to be decided.

    Raises:
        IncompleteJob: the tasks are not the expected ones. Nothing was decided.
        CommitRefused: something is wrong with what the tasks left.
        DestinationExists: modes ``fail``: there is data.
        ConflictingJob: modes ``replace``: another job is publishing.
        PathError: the path of a file that is to be replaced is too long to be moved away.
        StoreError: a check could not be made.
    """
    paths, mode = TreeJobPaths(job.uuid), job.terms.mode
    with PlanWriter(parts, paths) as writer:
        try:
            found = gather(parts, job, wanted, writer.publish)
            if not found.problems:
                expected(job, found.tasks, expect, by_results=wanted is not None)
                check_files(parts, paths, writer.sofar(), found)
            if found.problems:
                raise refusal(job, found.problems)
            partitions = sorted(found.partitions) if mode in BY_PARTITION else None
            if mode in FAILING:
                refuse_data(parts, job, partitions)
            if mode in REPLACING:
                for entry in to_be_replaced(parts, job, partitions):
                    if entry.path not in found.names:
                        check_path_fits(entry.path, parts.tree.promises.path_bytes_max)
                        writer.delete(entry.path, entry.size, entry.etag)
            if mode == "replace" and not job.terms.mark_success:
                marker = parts.again(lambda: parts.tree.stat(SUCCESS))
                if marker is not None:
                    writer.delete(SUCCESS, marker.size, marker.etag)
            plan = writer.end(len(found.tasks))
        except BaseException:
            drop_plan(parts, writer.path)
            raise
    return plan, found


def drop_plan(parts: Parts, path: str) -> None:
    """Delete a plan that nobody has decided. If that fails, the sweep does it."""
    try:
        parts.tree.remove(path)
    except MagicError:
        return
