"""The half that runs in a Spark task: one attempt, and its message to the driver.

A worker is killed by SIGKILL or just stops: it runs no ``finally``, no signal handler, no
``atexit``. Correctness therefore needs nothing from this module after an attempt: the leftovers of
an attempt are invisible, and the driver's sweep finds them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark import TaskContext

from magic_committer.errors import MagicError
from magic_committer.job import Job, Task
from magic_committer.protocol.record import TaskCommit


def spark_attempt(job: Job) -> Task:
    """The attempt that this process runs. Its task is the partition. Its name is one that Spark
    gives only once: stage, partition and attempt number repeat when a stage runs again;
    ``taskAttemptId`` does not."""
    context = TaskContext.get()
    if context is None:
        raise MagicError("this is not a Spark task")
    return job._sole_task(str(context.partitionId()), f"t{context.taskAttemptId()}")


def to_message(task: Task) -> str:
    """What a committed attempt sends to the driver: some 300 bytes, whatever it wrote."""
    return json.dumps(task.result.to_dict())


def from_messages(messages: Sequence[str]) -> list[TaskCommit]:
    """Read the messages, on the driver."""
    return [TaskCommit.from_dict(json.loads(message)) for message in messages]
