"""Ray: an executor of a few lines, and its workers run the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any

import ray

import magic_committer as mc


class RayExecutor(Executor):
    """Ray's tasks, as `concurrent.futures` knows them. `run` tries again, so
    Ray does not."""

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        call = ray.remote(max_retries=0)(lambda: fn(*args, **kwargs))
        future: Future[Any] = call.remote().future()
        return future


def write_part(task: mc.Task, number: int) -> int:
    """Runs in a worker of Ray."""
    with task.open(f"part-{number}.csv", "w", unique=True) as file:
        return file.write(f"{number}\n")


def export(numbers: Iterable[int], dest: str) -> mc.RunReport[int]:
    """Write all parts, or none."""
    return mc.run(dest, write_part, numbers, executor=RayExecutor())
