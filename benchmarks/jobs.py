"""Jobs of this library, as they are measured: whole ones, and such whose tasks are done already.

A job of 100,000 files takes minutes to write. Its uploads are opened on the server by one request
(`/-/seed`), and its tasks run on a store that hands these out: what they leave is what tasks leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import magic_committer as mc
from benchmarks.child import Spec, Step, Told
from benchmarks.writers import BUCKET, Ours, ask
from magic_committer.stores.base import CreatedUpload, Part
from magic_committer.stores.s3.client import S3Store

FILES_A_TASK = 100
CONTENT = b"x" * 1000


def whole_job(spec: Spec) -> Told:
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
    return {}


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

    def step() -> Told:
        report = job.commit(results)
        if report.files != spec["amount"] or report.warnings:
            raise AssertionError(f"{spec['amount']} files were to be committed: {report!r}")
        return {}

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
