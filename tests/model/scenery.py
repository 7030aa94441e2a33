"""Stores to begin with, and actors that most configurations have."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

from tests.model.actors.driver import commit
from tests.model.actors.job import Accepted, Job
from tests.model.actors.others import cleanup, recovery
from tests.model.search import Actor, Program
from tests.model.store import GHOST, UPLOAD, Data, File, Object, PendingSet

Entries = dict[str, Any]


def objects(entries: Mapping[str, Hashable]) -> Entries:
    """Objects that were there before anybody began."""
    return {key: Object(body, 0, "before") for key, body in entries.items()}


def started(job: Job) -> Entries:
    return {**objects({job.record: job.first}), f"{GHOST}fate {job.uuid}": ("running",)}


def task_done(
    job: Job, name: str = "a0", task: str = "t", file: str = "x", content: str = "whole"
) -> tuple[Entries, tuple[str, PendingSet]]:
    """An attempt that is committed; and its message."""
    key = job.key(file)
    upload = f"{key}#{name}"
    data = Data(job.uuid, name, content, upload)
    body = PendingSet(job.uuid, task, name, (File(key, upload, data.token),))
    entries = objects({job.set(name): body, UPLOAD + upload: data})
    return entries, (job.set(name), body)


def file_closed(job: Job, name: str = "a0", file: str = "x") -> tuple[Entries, File]:
    """An attempt that is not committed, its only file closed and saved."""
    key = job.key(file)
    upload = f"{key}#{name}"
    data = Data(job.uuid, name, "whole", upload)
    closed = File(key, upload, data.token)
    pending = PendingSet(job.uuid, "", name, (closed,))
    return objects({f"{job.tree}{name}/{file}.pending": pending, UPLOAD + upload: data}), closed


def tasks_done(job: Job, files: tuple[str, ...] = ("x",)) -> tuple[Entries, Accepted]:
    """A running job with one committed task for each file."""
    entries = started(job)
    accepted: Accepted = ()
    for number, file in enumerate(files):
        more, message = task_done(job, f"a{number}", f"t{number}", file)
        entries |= more
        accepted = (*accepted, message)
    return entries, accepted


def actor(name: str, job: Job, program: Program, **options: Any) -> Actor:
    return Actor(name, program, (job.uuid,), **options)


def in_the_end(*jobs: Job) -> tuple[Actor, ...]:
    """A recovery of each job when everybody has ended, and a cleanup an hour later."""
    recoveries = tuple(
        actor(f"end {job.id}", job, partial(recovery, job, "end"), after=True, faulty=False)
        for job in jobs
    )
    cleanups = tuple(
        actor(f"clean {job.id}", job, partial(cleanup, job), after=True, hour_later=True,
              faulty=False)
        for job in jobs
    )  # fmt: skip
    return recoveries + cleanups


def committer(name: str, job: Job, accepted: Accepted, **options: Any) -> Actor:
    """A driver whose tasks are done."""
    return actor(name, job, partial(commit, job, name, accepted), **options)
