"""What is there before a schedule begins: litter of a job that is over, and a job of Hadoop's.

The former job was aborted; a process of it that was killed late left a plan, files that are saved,
and uploads: one that a pendingset names, one that a `.pending` names, one that only its own name
tells of. Cleanup takes all that, and nothing of Hadoop's, which carries no token of ours.
"""

from __future__ import annotations

from msgspec import structs

from magic_committer.commit.sets import ReadyUpload, to_pending
from magic_committer.hadoop.documents import (
    Pending,
    encode_pending,
    encode_pendingset,
    new_pendingset,
)
from magic_committer.hadoop.paths import JobPaths, unique_name
from magic_committer.protocol.record import JOB_METADATA, USUAL_TERMS, StartedJob
from magic_committer.stores.base import Part
from magic_committer.stores.memory_bucket import md5
from tests.simulation.scheduler import EPOCH
from tests.simulation.truth import HadoopTruth, JobTruth, UploadTruth
from tests.simulation.world import DEST, World

AGE_SECONDS = 36_000.0
ATTEMPT = "a"
HADOOP = "hadoop"
"""The id of Hadoop's job."""


def leave_litter(world: World) -> None:
    """Put it there, hours ago."""
    world.scheduler.now = EPOCH - AGE_SECONDS
    _former_job(world)
    world.scheduler.now = EPOCH


def hadoop_job(world: World) -> str:
    """A job of Hadoop's, perhaps a live one: a pendingset, the upload that it names, and another
    upload that a task has under way. Returns its id."""
    truth, store = world.watch.truth, world.store
    paths = JobPaths(DEST, HADOOP)
    uploads = {}
    for name in ("hadoop.csv", "hadoop-late.csv"):
        key, body = f"{DEST.prefix}{name}", f"Hadoop writes {name}".encode()
        upload_id = store.start_upload(key)
        part = store._bucket.put_part(world.own_key(key), upload_id, 1, body, md5(body), None)
        truth.note_upload(upload_id, key, None)
        truth.hadoop[upload_id] = HadoopTruth(HADOOP, key, body)
        uploads[name] = key, upload_id, part
    job = StartedJob(HADOOP, "", world.dest.url, USUAL_TERMS, False, "", False)
    pending = _pending(world, job, *uploads["hadoop.csv"])
    world.foreign_put(paths.pendingset(ATTEMPT), _pendingset(job, pending))
    return HADOOP


def _former_job(world: World) -> None:
    truth, uuid = world.watch.truth, world.new_id()
    job = StartedJob(uuid, uuid, world.dest.url, USUAL_TERMS, False, "", False)
    paths = JobPaths(DEST, uuid)
    truth.jobs[uuid] = JobTruth(
        uuid, uuid, paths.directory, structs.asdict(job.terms), given=False, state="absent",
        decision="aborted", decided_step=-1,
    )  # fmt: skip

    def put(key: str, body: bytes) -> None:
        world.store.put_object(key, body, metadata={JOB_METADATA: uuid})
        truth.note_object(key, None, job=uuid)
        if key.endswith((".pending", ".pendingset")):
            truth.note_named(key)

    def upload(name: str) -> tuple[str, str, Part]:
        key = DEST.key(name)
        upload_id = world.store.start_upload(key)
        truth.uploads[upload_id] = UploadTruth(key, uuid, None, 0)
        truth.open.add(upload_id)
        return key, upload_id, Part(1, '"0"', 3)

    upload(unique_name("former.csv", uuid))
    put(paths.plan("0" * 32), b"{}")
    put(paths.pendingset(ATTEMPT), _pendingset(job, _pending(world, job, *upload("former-0.csv"))))
    saved = paths.pending("b", "former-1.csv")
    put(saved.removesuffix(".pending"), b"")
    put(saved, encode_pending(_pending(world, job, *upload("former-1.csv"))))


def _pending(world: World, job: StartedJob, key: str, upload_id: str, part: Part) -> Pending:
    own = world.own_key(key)
    mark = f"{job.uuid}.{ATTEMPT}.{upload_id}" if job.uuid else ""
    upload = ReadyUpload(own, upload_id, mark, "", (part,), part.size)
    bucket, uri = world.dest.bucket, job.paths.uri(own)
    return to_pending(job, ATTEMPT, upload, bucket=bucket, uri=uri, created_ms=0)


def _pendingset(job: StartedJob, pending: Pending) -> bytes:
    return encode_pendingset(
        new_pendingset(job_id=job.id, commits=(pending,), extra_data={}, iostatistics={})
    )
