"""Committers that complete multipart uploads when the job commits: the production code.

Magic and staging are one job from the task's commit on, and differ in how files are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from magic_committer.committers.magic import MagicCommitter
from magic_committer.committers.staging import DirectoryCommitter, PartitionedCommitter
from magic_committer.errors import IncompleteJob
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.ending import recover_job
from magic_committer.options import Accept, Options, Track
from magic_committer.protocol.record import StartedJob, State, Terms
from magic_committer.stores.base import Attributes
from tests.concrete import Uploading, Writing
from tests.properties.stage import DEST, Process, Stage, View, objects_read

OPTIONS = Options(commit_threads=4, checksum="off")
ENDED = (State.ABSENT, State.CLOSED)


@dataclass(frozen=True)
class Magic:
    """The magic committer, as `magic_committer.start` drives it.

    Attributes:
        track, accept: the job's terms of these names.
        kind: the committer's class.
    """

    name: str
    track: Track = "memory"
    accept: Accept = "results"
    kind: ClassVar[type[Uploading]] = MagicCommitter

    def read(self, stage: Stage) -> View:
        """What any reader finds."""
        return objects_read(stage)

    def set_up(self, stage: Stage) -> None:
        """Before anything is there."""

    def dest(self, stage: Stage) -> Destination:
        """Where the job's files go."""
        return DEST

    def begin(self, process: Process, name: str, *, replace: bool) -> StartedJob:
        """Start a job of a given id: whoever recovers it knows only that."""
        terms = Terms(
            mode=self.kind.mode("replace" if replace else "append"),
            accept=self.accept,
            track=self.track,
            checksum="off",
            committer=self.kind.name,
        )
        blocks = process.stage.blocks
        dest = self.dest(process.stage)
        return self.kind.setup(process.runtime, dest, terms, OPTIONS, blocks, name).job

    def attempt(self, process: Process, job: StartedJob, task: str, number: int) -> Writing:
        """An attempt of a drawn name."""
        return self._committer(process, job).attempt(task)

    def write(self, process: Process, attempt: Writing, name: str, data: bytes) -> None:
        """One file."""
        with attempt.open(name, unique=False, attributes=Attributes()) as stream:
            stream.write(data)

    def commit_task(self, process: Process, attempt: Writing) -> Any:
        """Store the pendingset."""
        return attempt.commit()

    def abort_task(self, process: Process, attempt: Writing) -> None:
        """Abort the uploads."""
        attempt.abort()

    def commit_job(self, process: Process, job: StartedJob, results: Sequence[Any]) -> None:
        """Complete the uploads."""
        given = results if self.accept == "results" else None
        report = self._committer(process, job).commit_job(given, [one.task for one in results])
        if report.state not in ENDED:
            raise IncompleteJob(f"the job is {report.state}")

    def abort_job(self, process: Process, job: StartedJob) -> None:
        """Abort all that the job holds."""
        self._committer(process, job).abort_job()

    def recover(self, process: Process, name: str) -> str:
        """As `magic-committer job recover`, at once."""
        found = recover_job(
            process.runtime, self.dest(process.stage), name, dead_after=0.0, options=OPTIONS
        )
        if found.found == State.ABSENT:
            return "aborted"  # a given id leaves a record, so there was no job
        return found.outcome

    def _committer(self, process: Process, job: StartedJob) -> Uploading:
        return self.kind(process.runtime, job, OPTIONS, process.stage.blocks)


class Directory(Magic):
    """Staging: its files are written below `Task.directory`, and uploaded by the task's commit."""

    kind: ClassVar[type[Uploading]] = DirectoryCommitter

    def write(self, process: Process, attempt: Writing, name: str, data: bytes) -> None:
        """An ordinary file: no request."""
        (attempt.directory(unique=False) / name).write_bytes(data)


class Partitioned(Directory):
    """The same, with modes by partition. The files of a play are all in the destination's root,
    which is a partition."""

    kind: ClassVar[type[Uploading]] = PartitionedCommitter
