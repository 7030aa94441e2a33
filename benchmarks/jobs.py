"""Jobs of this library, as they are measured: whole ones, and such whose tasks are done already, on
S3 and on a disk.

A job of 100,000 files takes minutes to write. Its uploads are opened on the server by one request
(`/-/seed`), and its tasks run on a store that hands these out: what they leave is what tasks leave.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import magic_committer as mc
from benchmarks.child import Spec, Step, Told
from benchmarks.writers import BUCKET, Ours, ask
from magic_committer.stores.base import CreatedUpload, Part
from magic_committer.stores.s3.client import S3Store

FILES_A_TASK = 100
CONTENT = b"x" * 1000


def whole_job(spec: Spec) -> None:
    """4 tasks of 20 files, one after the other."""
    ours = Ours(spec["options"])
    track = spec["options"]["track"]
    accept: Any = "results" if track == "memory" else "listing"
    with mc.start(f"s3://{BUCKET}/table", track=track, accept=accept, **ours.terms) as job:
        results = []
        for number in range(4):
            with job.task(number) as task:
                for n in range(20):
                    with task.open(f"part-{number}-{n}.bin") as file:
                        file.write(CONTENT)
            results.append(task.result)
        job.commit(results)


def seeded_job(spec: Spec) -> Step:
    """A job whose tasks are done; the step commits it."""
    ours = Ours(spec["options"])
    ask(spec["control"], "latency?ms=0")
    job = mc.start(f"s3://{BUCKET}/table", track="memory", accept="results", **ours.terms)
    names = [f"p={n % 16}/part-{n:06d}.bin" for n in range(spec["amount"])]
    results = []
    with seeded_uploads(spec, [f"table/{name}" for name in names]):
        for number, first in enumerate(range(0, len(names), FILES_A_TASK)):
            with job.task(number) as task:
                for name in names[first : first + FILES_A_TASK]:
                    with task.open(name) as file:
                        file.write(CONTENT)
            results.append(task.result)
    ask(spec["control"], f"latency?ms={spec['latency_ms']}")

    def step() -> None:
        report = job.commit(results)
        if report.files != spec["amount"] or report.warnings:
            raise AssertionError(f"{spec['amount']} files were to be committed: {report!r}")

    return step


@contextmanager
def seeded_uploads(spec: Spec, keys: list[str]) -> Iterator[None]:
    """Open uploads of these keys, each with a part in it, on the server of ``spec["control"]``.
    Inside, a Create gives such an upload, and its part is not sent; all other uploads are as
    ever."""
    seeded = ask(spec["control"], f"seed?size={len(CONTENT)}", "\n".join(keys).encode())
    waiting = dict(zip(keys, seeded["ids"], strict=True))
    handed_out = set(seeded["ids"])
    real_create, real_put = S3Store.create_upload, S3Store.put_part

    def create(store: S3Store, key: str, **more: Any) -> CreatedUpload:
        if key in waiting:
            return CreatedUpload(waiting.pop(key))
        return real_create(store, key, **more)

    def put(store: S3Store, key: str, upload: str, number: int, body: Any, **more: Any) -> Part:
        if upload in handed_out:
            return Part(number, seeded["etag"], len(CONTENT), more.get("checksum"))
        return real_put(store, key, upload, number, body, **more)

    with mock.patch.multiple(S3Store, create_upload=create, put_part=put, many=lambda _: None):
        yield
    if waiting:
        raise AssertionError(f"{len(waiting)} seeded uploads were not taken")


# On a disk ----------------------------------------------------------------------------------------

TASKS, DIRECTORIES = 10, 100


def write(directory: Path, task: int, names: list[str]) -> None:
    """Write a task's files into its directory."""
    for number in range(DIRECTORIES):
        (directory / f"task={task}" / f"p={number}").mkdir(parents=True)
    for name in names:
        (directory / name).write_bytes(b"1,2,3\n")


def published(spec: Spec, root: Path) -> Step:
    """Tasks that wrote small files into a hundred directories each; the step is what follows: the
    tasks' commits and the job's, or one `shutil.move` for each file, and the directories."""
    contender, each = spec["options"]["committer"], spec["amount"] // TASKS
    names = [
        [f"task={task}/p={number % DIRECTORIES}/part-{number}.csv" for number in range(each)]
        for task in range(TASKS)
    ]
    if contender == "shutil.move":
        for number, those in enumerate(names):
            write(root / "source", number, those)
        return lambda: _move(root / "source", root / "table")
    job = mc.start((root / "table").as_uri(), committer=contender, accept="results", track="memory")
    tasks = [job.task(task) for task in range(TASKS)]
    for number, (task, those) in enumerate(zip(tasks, names, strict=True)):
        if contender != "magic":
            write(task.directory(), number, those)
            continue
        for name in those:
            task.write_bytes(name, b"1,2,3\n")

    return lambda: {"files": job.commit([task.commit() for task in tasks]).files}


def _move(source: Path, target: Path) -> Told:
    moved = 0
    for directory, _, names in os.walk(source):
        place = target / os.path.relpath(directory, source)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.move(os.path.join(directory, name), place / name)
            moved += 1
    return {"files": moved}
