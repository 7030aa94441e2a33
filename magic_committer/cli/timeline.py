"""The last job under a destination, as its `_SUCCESS` tells: counts, durations, and when was what.

Ours tells when its tasks and each stage of its commit began and ended. Hadoop's tells durations
only; of its commit it is known that it ended when the marker was written. A marker is a file that
anybody may have written: its numbers are shown, never trusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from magic_committer._runtime import Runtime
from magic_committer.commit.success_marker import DIAGNOSTIC_STARTED, DIAGNOSTIC_UUID
from magic_committer.errors import FormatError, InvalidRequest, NotFound
from magic_committer.hadoop import statistics
from magic_committer.hadoop.formats import SUCCESS_BYTES_MAX, SuccessData, decode_success
from magic_committer.hadoop.paths import Destination

DURATIONS_MAX = 12
"""Durations that are told, those with the largest sums."""
NUMBER_MAX = 253_402_300_799_999
"""A number that is larger is nonsense: it is the end of the year 9999 in milliseconds."""

MarkerKind = Literal["ours", "hadoop", "empty", "unreadable"]
"""Whose marker it is; ``empty`` is that of the classic file committer, which tells nothing."""

STAGES: Mapping[str, str] = {
    statistics.LOAD_SETS: "Load the pendingsets",
    statistics.CHECK_UPLOADS: "Check the uploads",
    statistics.SAVE_PLAN: "Save the plan",
    statistics.DECIDE: "Decide",
    statistics.MATERIALIZE_FILE: "Complete the files",
    statistics.DELETE_REPLACED: "Delete what is replaced",
}
"""The stages of our commit, in their order."""

WORDS: Mapping[str, str] = {
    **STAGES,
    statistics.TASK_ATTEMPT: "Task attempt",
    statistics.COMMIT_JOB: "Commit of the job",
    statistics.MATERIALIZE_FILE: "Complete one file",
    statistics.MARKER_PUT: "Write a file's marker",
    "object_multipart_initiated": "Start an upload",
    statistics.PUT_PART: "Upload a part",
    "object_put_request": "Write an object",
    "object_list_request": "List objects",
    "committer_load_single_pending_file": "Load a pending file",
    "committer_stage_file_upload": "Upload a staged file",
    "action_executor_acquired": "Wait for a thread",
    "op_load_all_manifests": "Load all manifests",
    "op_load_manifest": "Load a manifest",
    "commit_file_rename": "Rename a file",
    "job_stage_setup": "Set the job up",
    "job_stage_load_manifests": "Load manifests (stage)",
    "job_stage_create_target_dirs": "Create directories",
    "job_stage_rename_files": "Rename files (stage)",
    "task_stage_commit": "Commit of a task",
    "task_stage_scan_directory": "Scan a task's directory",
    "task_stage_save_manifest": "Save a task's manifest",
    "task_stage_setup": "Set a task up",
}
"""Durations in words; others keep their names."""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took from ``started`` to ``ended``: seconds since the epoch."""

    name: str
    started: float
    ended: float

    @property
    def seconds(self) -> float:
        """Its length; clocks of several machines may make it negative, which is told as 0."""
        return max(0.0, self.ended - self.started)


@dataclass(frozen=True, slots=True)
class Duration:
    """What was done ``times`` times: milliseconds. ``longest`` is None where it is not told."""

    key: str
    name: str
    times: int
    failures: int
    total: int
    longest: int | None


@dataclass(frozen=True, slots=True)
class LastJob:
    """What a `_SUCCESS` tells.

    Attributes:
        written, started: seconds since the epoch; None where it is not told.
        tasks, files, bytes: None where it is not told.
        job_spans: the job's parts. commit_spans: the stages of its commit.
        durations: those with the largest sums.
        filenames: the first keys that it names, with a leading "/".
        problem: why the marker cannot be read.
    """

    kind: MarkerKind
    job_id: str = ""
    committer: str = ""
    hostname: str = ""
    success: bool = True
    written: float | None = None
    started: float | None = None
    tasks: int | None = None
    files: int | None = None
    bytes: int | None = None
    job_spans: tuple[Span, ...] = ()
    commit_spans: tuple[Span, ...] = ()
    durations: tuple[Duration, ...] = ()
    filenames: tuple[str, ...] = ()
    problem: str = ""


def last_job(runtime: Runtime, dest: Destination) -> LastJob | None:
    """Read the destination's `_SUCCESS`; None if there is none. One GET.

    Raises:
        StoreError: the store failed.
    """
    try:
        stored = runtime.store.get(dest.success_key, max_bytes=SUCCESS_BYTES_MAX)
    except NotFound:
        return None
    except InvalidRequest as error:
        if error.code != "TooLarge":
            raise
        return LastJob("unreadable", problem=str(error))
    return told_by(stored.body, dest.success_key, stored.info.last_modified)


def told_by(body: bytes, source: str, last_modified: float) -> LastJob:
    """What the bytes of a marker tell. Pure."""
    if not body:
        return LastJob("empty", written=last_modified)
    try:
        marker = decode_success(body, source)
    except FormatError as error:
        return LastJob("unreadable", written=last_modified, problem=str(error))
    numbers = _Numbers(marker)
    ours = DIAGNOSTIC_UUID in (marker.diagnostics or {})
    written = _sane(marker.timestamp)
    at = written / 1000 if written else last_modified
    started = numbers.time(DIAGNOSTIC_STARTED)
    return LastJob(
        kind="ours" if ours else "hadoop",
        job_id=marker.job_id or "",
        committer=(marker.committer or "").rpartition(".")[2],
        hostname=marker.hostname or "",
        success=marker.success,
        written=at,
        started=started,
        tasks=numbers.count("magic-committer.tasks", statistics.TASKS_COMPLETED),
        files=numbers.count(
            "magic-committer.files", statistics.COMMITS_COMPLETED, "committer_files_committed"
        ),
        bytes=numbers.count("magic-committer.bytes", statistics.BYTES_COMMITTED),
        job_spans=tuple(_job_spans(numbers, started, at)),
        commit_spans=tuple(
            Span(name, *found) for key, name in STAGES.items() if (found := numbers.span(key))
        ),
        durations=tuple(numbers.durations()[:DURATIONS_MAX]),
        filenames=tuple(marker.filenames or ()),
    )


def _job_spans(numbers: _Numbers, started: float | None, written: float) -> Iterator[Span]:
    if started:
        yield Span("Job", started, written)
    for name, key in (("Tasks", statistics.TASK_ATTEMPT), ("Uploads", statistics.PUT_PART)):
        if found := numbers.span(key):
            yield Span(name, *found)
    commit = numbers.minimum(f"{statistics.COMMIT_JOB}{statistics.STARTED}")
    if commit is not None:
        yield Span("Commit", commit / 1000, written)
    else:
        took = numbers.maximum(f"{statistics.COMMIT_JOB}.max")
        if took:
            yield Span("Commit", written - took / 1000, written)


class _Numbers:
    """The numbers of a marker, of whatever types they are there."""

    def __init__(self, marker: SuccessData) -> None:
        self._diagnostics = marker.diagnostics or {}
        document = marker.iostatistics or {}
        self._counters = _map(document, "counters")
        self._minimums = _map(document, "minimums")
        self._maximums = _map(document, "maximums")
        self._means = _map(document, "meanstatistics")

    def minimum(self, name: str) -> int | None:
        return _sane(self._minimums.get(name))

    def maximum(self, name: str) -> int | None:
        return _sane(self._maximums.get(name))

    def time(self, name: str) -> float | None:
        """A time among the diagnostics, which are strings."""
        try:
            number = float(self._diagnostics.get(name, ""))
        except (ValueError, TypeError):
            return None
        return number if 0 < number <= NUMBER_MAX / 1000 else None

    def count(self, name: str, *counters: str) -> int | None:
        """Of the diagnostics, else of the first counter that was raised."""
        told = self._diagnostics.get(name)
        if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) < 20:
            return _sane(int(told))
        return next((n for c in counters if (n := _sane(self._counters.get(c)))), None)

    def span(self, name: str) -> tuple[float, float] | None:
        started = self.minimum(f"{name}{statistics.STARTED}")
        ended = self.maximum(f"{name}{statistics.ENDED}")
        return None if started is None or ended is None else (started / 1000, ended / 1000)

    def durations(self) -> list[Duration]:
        """All that was done at least once, the largest sum first."""
        found = []
        for mean, value in self._means.items():
            key = mean.removesuffix(".mean")
            if key == mean or key.endswith(".failures") or not isinstance(value, Mapping):
                continue
            times, total = _sane(value.get("samples")), _sane(value.get("sum"))
            if times and total is not None:
                failures = _sane(self._counters.get(f"{key}.failures")) or 0
                longest = self.maximum(f"{key}.max")
                name = WORDS.get(key, key)
                found.append(Duration(key, name, times, failures, total, longest))
        return sorted(found, key=lambda one: (-one.total, one.key))


def _map(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _sane(value: object) -> int | None:
    """A count; Hadoop's -1 stands for "none"."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_MAX:
        return value
    return None
