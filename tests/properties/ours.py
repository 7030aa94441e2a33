"""The library's committers, as `magic_committer.start` drives them: the production code.

Magic and staging are one job from the task's commit on, and differ in how files are written. So are
the committers whose tasks' files wait on a file system, the simulator's
(tests/simulation/tree.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec import structs

from magic_committer.committers.magic import MagicCommitter
from magic_committer.committers.manifest import ManifestCommitter, V1Committer, V2Committer
from magic_committer.committers.staging import DirectoryCommitter, PartitionedCommitter
from magic_committer.errors import IncompleteJob
from magic_committer.maintenance.ending import Ending
from magic_committer.options import Accept, Track
from magic_committer.protocol.record import USUAL_TERMS, StartedJob, State
from magic_committer.stores.base import Attributes
from tests.properties.stage import Process, Stage, View, files_read, objects_read
from tests.simulation.operators import ENDED
from tests.simulation.world import OPTIONS


@dataclass(frozen=True)
class Magic:
    """The magic committer. ``track``, ``accept``: the job's terms of these names. ``kind``: the
    committer's class."""

    name: str
    track: Track = "memory"
    accept: Accept = "results"
    kind: ClassVar[Any] = MagicCommitter
    tree: ClassVar[bool] = False

    def read(self, stage: Stage) -> View:
        return objects_read(stage)

    def begin(self, process: Process, name: str, *, replace: bool) -> StartedJob:
        """Start a job of a given id: whoever recovers it knows only that."""
        terms = structs.replace(
            USUAL_TERMS,
            mode=self.kind.mode("replace" if replace else "append"),
            accept=self.accept, track=self.track, checksum="off", committer=self.kind.name,
        )  # fmt: skip
        stage = process.stage
        started: StartedJob = self.kind.setup(
            process.runtime, stage.dest, terms, OPTIONS, stage.blocks, name
        ).job
        return started

    def attempt(self, process: Process, job: StartedJob, task: str, number: int) -> Any:
        return self._committer(process, job).attempt(task)

    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None:
        with attempt.open(name, unique=False, attributes=Attributes()) as stream:
            stream.write(data)

    def commit_task(self, process: Process, attempt: Any) -> Any:
        return attempt.commit()

    def abort_task(self, process: Process, attempt: Any) -> None:
        attempt.abort()

    def commit_job(self, process: Process, job: StartedJob, results: Sequence[Any]) -> None:
        given = results if self.accept == "results" else None
        report = self._committer(process, job).driver().commit(given, [one.task for one in results])
        if report.state not in ENDED:
            raise IncompleteJob(f"the job is {report.state}")

    def abort_job(self, process: Process, job: StartedJob) -> None:
        self._committer(process, job).driver().abort()

    def recover(self, process: Process, name: str) -> str:
        """As `magic-committer job recover`, at once."""
        dest = process.stage.dest
        ending = Ending(process.runtime, dest, name, dead_after=0.0, options=OPTIONS)
        found = ending.recover_now()
        if found.found == State.ABSENT:
            return "aborted"  # a given id leaves a record, so there was no job
        return found.outcome

    def _committer(self, process: Process, job: StartedJob) -> Any:
        return self.kind(process.runtime, job, OPTIONS, process.stage.blocks)


class Directory(Magic):
    """Staging: its files are written below `Task.directory`, and uploaded by the task's commit."""

    kind: ClassVar[Any] = DirectoryCommitter

    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None:
        (attempt.directory(unique=False) / name).write_bytes(data)  # no request


class Partitioned(Directory):
    """The same, with modes by partition. The files of a play are all in the destination's root,
    which is a partition."""

    kind: ClassVar[Any] = PartitionedCommitter


@dataclass(frozen=True)
class Manifest(Magic):
    """Its tasks' files wait on a file system. ``directory``: where in the destination the job's
    files go."""

    directory: str = ""
    kind: ClassVar[Any] = ManifestCommitter
    tree: ClassVar[bool] = True

    def read(self, stage: Stage) -> View:
        return files_read(stage)

    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None:
        place = f"{self.directory}/{name}" if self.directory else name
        super().write(process, attempt, place, data)


class V1(Manifest):
    """Algorithm 1, which has no mode that replaces: Spark deletes before it starts."""

    kind: ClassVar[Any] = V1Committer

    def begin(self, process: Process, name: str, *, replace: bool) -> StartedJob:
        if replace:
            process.stage.store.delete(files_read(process.stage))
        return super().begin(process, name, replace=False)


class V2(V1):
    """Algorithm 2."""

    kind: ClassVar[Any] = V2Committer
