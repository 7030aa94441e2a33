"""Counters and durations in the shape of Hadoop's ``iostatistics`` (Hadoop 3.3.5 and later).

Five maps, in this order: ``counters``, ``gauges``, ``minimums``, ``maximums``, ``meanstatistics``.
A duration ``k`` is the counter ``k``, ``k.failures``, and ``k.min``, ``k.max``, ``k.mean`` in
milliseconds. The sum of all tasks' statistics is the job's. Safe for many threads.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from magic_committer.runtime.components import Clock

# Hadoop's names (its StoreStatisticNames and CommitterStatisticNames)
FILES_CREATED = "committer_magic_files_created"
BYTES_UPLOADED = "committer_bytes_uploaded"
BYTES_COMMITTED = "committer_bytes_committed"
COMMITS_CREATED = "committer_commits_created"
COMMITS_COMPLETED = "committer_commits_completed"
COMMITS_FAILED = "committer_commits_failed"
COMMITS_ABORTED = "committer_commits_aborted"
TASKS_COMPLETED = "committer_tasks_completed"
JOBS_COMPLETED = "committer_jobs_completed"
PUT_PART = "multipart_upload_part_put"
COMMIT_JOB = "committer_commit_job"
MATERIALIZE_FILE = "committer_materialize_file"

# Our own names, in the style of the stages of Hadoop's manifest committer
TASK_ATTEMPT = "task_stage_attempt"
"""An attempt, from its beginning to its commit."""
CLAIM_BATCH = "job_stage_claim_batch"
LOAD_SETS = "job_stage_load_pendingsets"
CHECK_UPLOADS = "job_stage_check_uploads"
SAVE_PLAN = "job_stage_save_plan"
DECIDE = "job_stage_decide"
DELETE_REPLACED = "job_stage_delete_replaced"


class Statistics:
    """Counters and durations of one attempt or job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, int] = {}
        self._minimums: dict[str, int] = {}
        self._maximums: dict[str, int] = {}
        self._means: dict[str, tuple[int, int]] = {}  # samples and sum

    def add(self, name: str, amount: int = 1) -> None:
        """Raise a counter."""
        with self._lock:
            self._counters[name] = self._counters.get(name, 0) + amount

    @contextmanager
    def timed(self, name: str, clock: Clock) -> Iterator[None]:
        """Count and time a block. An exception also counts under ``name.failures``."""
        began, failed = clock.monotonic(), True
        try:
            yield
            failed = False
        finally:
            self.took(name, clock.monotonic() - began, failed)

    def took(self, name: str, seconds: float, failed: bool) -> None:
        """Note a duration."""
        took = int(seconds * 1000)
        least, most, mean = f"{name}.min", f"{name}.max", f"{name}.mean"
        with self._lock:
            for counter in (name, f"{name}.failures") if failed else (name,):
                self._counters[counter] = self._counters.get(counter, 0) + 1
            self._minimums[least] = min(took, self._minimums.get(least, took))
            self._maximums[most] = max(took, self._maximums.get(most, took))
            samples, total = self._means.get(mean, (0, 0))
            self._means[mean] = samples + 1, total + took

    def merge(self, iostatistics: Mapping[str, Any]) -> None:
        """Add a document of this shape. Missing maps and values of other types are ignored, as in
        Hadoop."""
        with self._lock:
            for section, values, both in (
                ("counters", self._counters, operator.add),
                ("minimums", self._minimums, min),
                ("maximums", self._maximums, max),
            ):
                for name, value in _items(iostatistics, section):
                    if type(value) is int:
                        values[name] = both(values[name], value) if name in values else value
            for name, mean in _items(iostatistics, "meanstatistics"):
                if isinstance(mean, Mapping):
                    told = [mean.get(key) for key in ("samples", "sum")]
                    more = [number if type(number) is int else 0 for number in told]
                    samples, total = self._means.get(name, (0, 0))
                    self._means[name] = samples + more[0], total + more[1]

    def to_dict(self) -> dict[str, Any]:
        """Give the document, with sorted keys."""
        with self._lock:
            return {
                "counters": dict(sorted(self._counters.items())),
                "gauges": {},
                "minimums": dict(sorted(self._minimums.items())),
                "maximums": dict(sorted(self._maximums.items())),
                "meanstatistics": {
                    name: {"samples": samples, "sum": total}
                    for name, (samples, total) in sorted(self._means.items())
                },
            }


def _items(document: Mapping[str, Any], section: str) -> Iterable[tuple[str, Any]]:
    found = document.get(section)
    return found.items() if isinstance(found, Mapping) else ()
