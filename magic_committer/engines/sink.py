"""The engine calls us: it begins, runs tasks, completes or fails, each in a process of its choice.

Ray's Datasink and Spark's writers, of batches and of streams, hold an `EngineSink`. Invariants:

* The tasks publish nothing. What the engine accepted is committed, and nothing else.
* The process that commits may take the place of the one that began, which never touches the job
  again (`Job._hand_over`). So the record of a job that ended well is deleted, not left ``closed``.
* A failure never undoes a decision. Engines report one after a commit that raised, with all
  messages: the record says whether the job is decided, and a decided job is left to be finished.
* The tasks give the signs of life, and the process that commits: no other process lives as long as
  the job, and what a notebook keeps keeps no job alive.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from magic_committer.api import attach
from magic_committer.errors import (
    CommitIncomplete,
    JobNotFound,
    JobNotRunning,
    JobReport,
    OutcomeUnknown,
)
from magic_committer.job import Job, Task, give_up
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import TaskCommit

logger = logging.getLogger("magic_committer")


@dataclass(frozen=True)
class EngineSink:
    """One job that an engine writes: plain data, which travels. ``hand`` makes its handle."""

    hand: Callable[[], Job]

    @classmethod
    def begin(cls, job: Job) -> EngineSink:
        """Give a job that was just started away, to the process that will end it."""
        try:
            return cls(job._hand_over())
        except BaseException as error:
            give_up(job, error)
            raise

    def attempt(self, attempt: Callable[[Job], Task], write: Callable[[Task], object]) -> str:
        """Write as one attempt. Give its message to the process that commits: some 300 bytes."""
        with self._living() as job:
            with attempt(job) as task:
                write(task)
            return to_message(task.result)

    def complete(
        self,
        messages: Iterable[str],
        tasks: Iterable[str] | None,
        *,
        batch: StreamBatch | None = None,
        last: Callable[[Job, list[TaskCommit]], list[TaskCommit]] = lambda job, results: [],
    ) -> JobReport:
        """Commit. ``tasks`` are those that there must be, beside those that ``last`` makes here."""
        with self._living() as job:
            results = from_messages(messages)
            more = last(job, results)
            expect = None if tasks is None else [*tasks, *(one.task for one in more)]
            report = job.commit([*results, *more], expect=expect, batch=batch)
            logger.info("%s", report)
            return report

    def failed(self, error: BaseException | None = None) -> None:
        """Abort, unless the job is decided. Repeatable. What the abort has to say becomes a note on
        ``error``, which the engine raises afterwards. None: what fails is raised."""
        job = self.hand()
        if error is not None:
            if not (isinstance(error, CommitIncomplete) and error.job_id == job.id):
                give_up(job, error)
            return
        try:
            job.abort()
        except JobNotRunning as decided:
            if decided.outcome != "committed":
                raise
            logger.warning("The engine gave the write up, but the job is committed: %s", decided)
        except OutcomeUnknown:
            try:  # the process that ended the job has deleted its record
                attach(job.dest, job.id, s3=job._s3)
            except JobNotFound:
                logger.info("job %s has ended before it was aborted", job.id)
            else:
                raise

    @contextmanager
    def _living(self) -> Iterator[Job]:
        job = self.hand()
        end_life = job.keep_alive()
        try:
            yield job
        finally:
            end_life()


def to_message(result: TaskCommit) -> str:
    """What a committed attempt sends to the process that commits."""
    return json.dumps(result.to_dict())


def from_messages(messages: Iterable[str]) -> list[TaskCommit]:
    """Read the messages."""
    return [TaskCommit.from_dict(json.loads(message)) for message in messages]
