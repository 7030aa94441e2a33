"""What a committer must offer to be compared: the verbs of Hadoop's `OutputCommitter`, recovery.

A subject holds no state of its own between calls. What it must remember travels as a value, as it
does between a driver and its executors: ``job`` from `begin`, ``attempt`` inside one process, and a
task's ``result``. Every request that it sends must pass the stage's hooks; those of the stage's
store do so by themselves, and those of its tree through `trees.SeenTree`.

A failure is a `MagicError`. The play then does what engines do: see `play`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tests.properties.stage import Process, Stage, View


class Subject(Protocol):
    """One committer.

    Attributes:
        name: its name in the table.
    """

    @property
    def name(self) -> str: ...

    def read(self, stage: Stage) -> View:
        """What a reader of its data finds: names, and contents."""
        ...

    def begin(self, process: Process, name: str, *, replace: bool) -> Any:
        """Start a job.

        Args:
            name: the job's; no other job of the play has it.
            replace: it replaces what the destination holds, by whatever way engines do that with
                this committer. False: it adds to it.

        Returns:
            What all other calls need of the job.
        """
        ...

    def attempt(self, process: Process, job: Any, task: str, number: int) -> Any:
        """Start an attempt of a task. ``number``: counts the attempts of the task from 1."""
        ...

    def write(self, process: Process, attempt: Any, name: str, data: bytes) -> None:
        """Write one file of an attempt, and close it."""
        ...

    def commit_task(self, process: Process, attempt: Any) -> Any:
        """Commit an attempt; what it returns reaches the driver, if the process lives."""
        ...

    def abort_task(self, process: Process, attempt: Any) -> None:
        """Abort an attempt."""
        ...

    def commit_job(self, process: Process, job: Any, results: Sequence[Any]) -> None:
        """Commit the job. Returning says: it is committed.

        Args:
            results: of the attempts that the driver accepted, one for each task.
        """
        ...

    def abort_job(self, process: Process, job: Any) -> None:
        """Abort the job. Returning says: it is aborted."""
        ...

    def recover(self, process: Process, name: str) -> str:
        """End a job whose driver is dead, by another process that knows the destination and the
        job's name.

        Returns:
            What became of it: ``"committed"``, ``"aborted"``, or ``""``: it cannot tell.
        """
        ...
