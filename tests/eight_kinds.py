"""Open uploads of eight kinds under one bucket, and the truth about each: for tests of ``uploads``.

| kind | what tells |
|---|---|
| live | half by the UUID in its name, half named by a `.pendingset`; the job changed lately |
| dead | the same, of a job of which nothing changes any more |
| hadoop | named by a `.pendingset` of 3.4's layout or a `.pending` of 3.3's, without a token |
| foreign | nothing, in a directory where no job of ours is |
| twin | two uploads of one key: one is named by what a job without a record left, one by nothing |
| neighbour | an orphan under ``table2/``, which ``table/`` must not mean |
| ageless | an orphan, of which the store tells no Initiated |
| ssec | an orphan, created with a customer's key |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import magic_committer as mc
from magic_committer.commit.sets import ReadyUpload, to_pending
from magic_committer.hadoop.documents import (
    Pending,
    UploadEtag,
    encode_pending,
    encode_pendingset,
    new_pending,
    new_pendingset,
)
from magic_committer.hadoop.paths import Destination, JobPaths, java_uri, unique_name
from magic_committer.protocol.record import JOB_METADATA, USUAL_TERMS, StartedJob, token
from magic_committer.stores.base import Attributes, ObjectPage, ObjectStore, Part, UploadPage

GONE = "0" * 32
"""The UUID of a job that has no record."""
OTHERS_GONE = "1" * 32
LIVE, DEAD, DONE = "live-job", "dead-job", "gone-job"
PART = Part(1, '"900150983cd24fb0d6963f7d28e17f72"', 3)

SHARES = {
    "live": 10, "dead": 6, "hadoop": 10, "foreign": 52, "twin": 8, "neighbour": 6, "ageless": 4,
    "ssec": 4,
}  # fmt: skip
"""Per cent of all."""

CLASSES = {
    "live": {"live": 1.0}, "dead": {"over": 1.0}, "hadoop": {"hadoop": 1.0},
    "foreign": {"foreign": 1.0}, "twin": {"orphan": 0.5, "foreign": 0.5},
    "ageless": {"orphan": 1.0}, "ssec": {"orphan": 1.0},
}  # fmt: skip
"""What they are, under ``table/``."""

Name = tuple[str, str]
"""Key and id."""


@dataclass(slots=True)
class Made:
    """The uploads that were made: by kind, and of the twins those that a job of ours left."""

    by_kind: dict[str, list[Name]] = field(default_factory=dict)
    ours: list[Name] = field(default_factory=list)

    def classes(self) -> dict[str, int]:
        """How many there are of each class under ``table/``."""
        counts: dict[str, int] = {}
        for kind, shares in CLASSES.items():
            for name, share in shares.items():
                counts[name] = counts.get(name, 0) + int(len(self.by_kind[kind]) * share)
        return counts

    def of(self, *kinds: str) -> set[Name]:
        return {name for kind in kinds for name in self.by_kind[kind]}

    def all(self) -> set[Name]:
        return self.of(*self.by_kind)


@dataclass
class Maker:
    """Makes them.

    Attributes:
        s3: for the jobs, which are started by the public call.
        customers: the same store, for uploads with a customer's key.
        threads: requests at once; 0: none beside the caller's.
    """

    store: ObjectStore
    s3: mc.S3Options | None = None
    customers: ObjectStore | None = None
    threads: int = 16

    def make(self, total: int) -> Made:
        """Make ``total`` uploads, in shares that divide by 2."""
        made = Made()
        counts = {kind: total * share // 200 * 2 for kind, share in SHARES.items()}
        counts["foreign"] += total - sum(counts.values())
        live, dead = (self._start(job_id) for job_id in (LIVE, DEAD))
        for kind, job in (("live", live), ("dead", dead)):
            made.by_kind[kind] = self._of_job(job, counts[kind])
        made.by_kind["hadoop"] = self._of_hadoop(counts["hadoop"])
        plain = (f"other/{n % 7}/x{n}.bin" for n in range(counts["foreign"]))
        made.by_kind["foreign"] = self._open(plain)
        self._twins(made, counts["twin"])
        folders = {"neighbour": "table2", "ageless": "table/ageless", "ssec": "table/ssec"}
        for kind, folder in folders.items():
            keys = (f"{folder}/{unique_name(f'{n}.csv', GONE)}" for n in range(counts[kind]))
            made.by_kind[kind] = self._open(keys, below="", with_key=kind == "ssec")
        return made

    def _start(self, job_id: str) -> StartedJob:
        dest = f"s3://{self.store.bucket}/table/jobs/{job_id}"
        job = mc.start(dest, job_id=job_id, s3=self.s3)
        return StartedJob(job_id, job.uuid, f"{dest}/", USUAL_TERMS, True, "", False)

    def _open(
        self, keys: Iterable[str], *, below: str = "table/", with_key: bool = False
    ) -> list[Name]:
        at = (self.customers if with_key else None) or self.store

        def one(key: str) -> Name:
            return key, at.create_upload(key, attributes=Attributes()).upload_id

        full = [f"{below}{key}" for key in keys]
        if not self.threads:
            return [one(key) for key in full]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(one, full))

    def _of_job(self, job: StartedJob, count: int) -> list[Name]:
        names = [f"jobs/{job.id}/p={n % 3}/{n}.csv" for n in range(count)]
        by_name = self._open(unique_name(name, job.uuid) for name in names[: count // 2])
        by_id = self._open(names[count // 2 :])
        self._put_set(job, by_id)
        return by_name + by_id

    def _put_set(self, job: StartedJob, uploads: Iterable[Name]) -> None:
        pendings = [
            to_pending(
                job, "t", ReadyUpload(key, upload_id, token(job.uuid, "t", str(n)), "", (PART,), 3),
                bucket=self.store.bucket, uri=java_uri(self.store.bucket, key), created_ms=0,
            )
            for n, (key, upload_id) in enumerate(uploads)
        ]  # fmt: skip
        at, owner = job.paths.pendingset("t"), {JOB_METADATA: job.uuid}
        self.store.put(at, _encoded(job.id, pendings), metadata=owner)

    def _of_hadoop(self, count: int) -> list[Name]:
        names = self._open(f"hadoop/{n}.orc" for n in range(count))
        few = count - 10
        pendings = [self._hadoops(name) for name in names]
        task = "table/hadoop/__magic_job-job_1/job-job_1/00/task_0.pendingset"
        self.store.put(task, _encoded("job_1", pendings[:few]))
        for n, pending in enumerate(pendings[few:]):
            key = f"table/hadoop/__magic/job-job_2/00/tasks/a/__base/{n}.orc.pending"
            self.store.put(key, encode_pending(pending))
        return names

    def _hadoops(self, name: Name) -> Pending:
        return new_pending(
            uri=java_uri(self.store.bucket, name[0]), upload_id=name[1],
            bucket=self.store.bucket, destination_key=name[0],
            created_ms=0, etags=(UploadEtag(PART.etag, None, None),), length=3, extra_data={},
            job_id="job_1", task_id="t",
        )  # fmt: skip

    def _twins(self, made: Made, count: int) -> None:
        keys = [f"twins/{n}.csv" for n in range(count // 2)]
        made.ours = self._open(keys)
        made.by_kind["twin"] = made.ours + self._open(keys)
        dest = f"s3://{self.store.bucket}/table/twins/"
        gone = StartedJob(DONE, OTHERS_GONE, dest, USUAL_TERMS, True, "", False)
        self._put_set(gone, made.ours)


def _encoded(job_id: str, pendings: Iterable[Pending]) -> bytes:
    commits = list(pendings)
    return encode_pendingset(
        new_pendingset(job_id=job_id, commits=commits, extra_data={}, iostatistics={})
    )


class Told:
    """What a store tells, changed: a mixin before its class. Of ``table/ageless/`` it tells no
    Initiated; and the dead job's directory is two days old."""

    def list(self, prefix: str, **how: Any) -> Iterator[ObjectPage]:
        old = Destination("bucket", f"table/jobs/{DEAD}/")
        directory = JobPaths(old, DEAD).directory
        for page in super().list(prefix, **how):  # type: ignore[misc]
            objects = (
                replace(one, last_modified=one.last_modified - 2 * 86_400)
                if one.key.startswith(directory)
                else one
                for one in page.objects
            )
            yield replace(page, objects=tuple(objects))

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        for page in super().list_uploads(prefix):  # type: ignore[misc]
            uploads = (
                replace(one, initiated=None) if one.key.startswith("table/ageless/") else one
                for one in page.uploads
            )
            yield replace(page, uploads=tuple(uploads))


def opened(store: ObjectStore) -> set[Name]:
    return {(one.key, one.upload_id) for page in store.list_uploads("") for one in page.uploads}


Command = Callable[..., Any]


def check_listing(command: Command, made: Made, *how: str) -> None:
    """``uploads list`` tells each upload once, of its true class."""
    listed = command("uploads", "list", "s3://bucket/table", "--format", "json", *how)
    assert listed.code == 0, listed.err
    told = listed.json()
    rows = {(row["key"], row["upload_id"]): row for row in told["rows"]}
    assert set(rows) == made.all() - made.of("neighbour")
    assert len(rows) == len(told["rows"]) == told["summary"]["uploads"]
    counts = {name: one["uploads"] for name, one in told["summary"]["by_class"].items()}
    assert counts == made.classes()
    for kind, classes in CLASSES.items():
        if kind != "twin":
            assert {rows[name]["class"] for name in made.of(kind)} == set(classes), kind
    assert {name for name in made.of("twin") if rows[name]["class"] == "orphan"} == set(made.ours)
    assert {rows[name]["age"] for name in made.of("ageless")} == {None}


def check_cleaning(
    command: Command, store: ObjectStore, made: Made, *, older_than: tuple[str, ...] = ()
) -> None:
    """``uploads abort`` takes the dead job's uploads and the orphans, nothing else; those without
    an age only where every age will do."""
    path = "s3://bucket/table"
    going = made.of("dead", "ssec") | set(made.ours)
    if older_than:
        going |= made.of("ageless")
    before = opened(store)
    quick = ("--dry-run", "--no-sizes", "--format", "jsonl")
    dry = command("uploads", "abort", path, *older_than, *quick)
    assert dry.code == 0, dry.err
    assert dry.out.count('"action":"would abort"') == len(going)
    assert opened(store) == before == made.all()
    ran = command("uploads", "abort", path, *older_than, "--yes", "--format", "json")
    assert ran.code == 0, ran.err + ran.out[-2000:]
    assert opened(store) == made.all() - going
    told = ran.json()
    assert told["summary"]["actions"] == {"aborted": len(going)}
    assert {(row["key"], row["upload_id"]) for row in told["rows"]} == going
