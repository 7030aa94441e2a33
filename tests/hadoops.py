"""Jobs as real Hadoop leaves them when its JVM dies: golden files, with uploads to go with them.

What a release wrote (tests/golden) is put on a store with other ids, ETags and places, and the same
form: pretty or compact, etags as strings or objects, quoted or not, in that release's layout.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import Attributes, Part
from magic_committer.stores.memory import MemoryStore

GOLDEN = Path(__file__).parent / "golden"
RELEASES = ("3.3.4", "3.3.6", "3.4.1", "3.5.0")
OLD_LAYOUT = ("3.3.4", "3.3.6")
GOLDEN_ID = "7c1d0000-aaaa-4bbb-8ccc-000000000001"
PART_BYTES = 5 * 1024**2


@dataclass
class HadoopJob:
    """A job that lies on a store.

    Attributes:
        files: key and content of each file of its committed tasks.
        uploads: the upload of each. parts: and its parts.
    """

    id: str
    directory: str
    files: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, str] = field(default_factory=dict)
    parts: dict[str, list[Part]] = field(default_factory=dict)
    sets: list[str] = field(default_factory=list)


def leave_job(
    store: MemoryStore,
    release: str,
    case: str = "magic",
    *,
    job_id: str = "hadoops",
    app_attempt: str = "00",
    dest: str = "t/",
    unfinished: bool = False,
    content: bytes = b"",
) -> HadoopJob:
    """Put a job on a store: all its tasks are committed, its job commit has not begun.

    Args:
        unfinished: its second task is not committed: its tree is there, its pendingset is not.
        content: goes into the content of each file, so that jobs differ.
    """
    folder = GOLDEN / release / case
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    golden_dest = f"g/p{release}-{case}/"

    def moved(key: str) -> str:
        key = key.replace(golden_dest, dest).replace(GOLDEN_ID, job_id)
        return key.replace(f"job-{job_id}/00/", f"job-{job_id}/{app_attempt}/")

    older = release in OLD_LAYOUT
    directory = f"{dest}__magic/job-{job_id}/" if older else f"{dest}__magic_job-{job_id}/"
    job = HadoopJob(job_id, directory)
    if directory.replace(job_id, GOLDEN_ID).replace(dest, golden_dest) in index["keys_ever_put"]:
        store.put_object(directory)  # the directory marker, which Hadoop never deletes
    known: dict[str, tuple[str, dict[str, str]]] = {}
    for name, file in sorted(index["files"].items()):
        kind, key = file["kind"], moved(file["key"])
        second = "_m_000001" in key
        if kind == "pending" and not (unfinished and second):
            continue  # the tree of a committed attempt is deleted
        if kind not in ("pending", "pendingset") or (
            kind == "pendingset" and unfinished and second
        ):
            continue
        text = moved((folder / name).read_text(encoding="utf-8")).replace("//bkt/", "//bucket/")
        text = re.sub(r'("bucket" ?: ?)"bkt"', r'\1"bucket"', text)
        document = json.loads(text)
        for commit in document.get("commits", [document]):
            if commit["uploadId"] not in known:
                known[commit["uploadId"]] = _upload(store, job, commit, content)
            upload_id, etags = known[commit["uploadId"]]
            text = text.replace(commit["uploadId"], upload_id)
            for golden, etag in etags.items():
                text = text.replace(golden, etag)
        store.put_object(key, text.encode())
        if kind == "pending":
            store.put_object(
                key.removesuffix(".pending"),
                metadata={"x-hadoop-s3a-magic-data-length": str(document["length"])},
            )
            for uncommitted in (job.files, job.uploads):
                uncommitted.pop(document["destinationKey"])
        else:
            job.sets.append(key)
    return job


def leave_marker(store: MemoryStore, job: HadoopJob, release: str, **changes: Any) -> bytes:
    """Put a job's `_SUCCESS` on a store, as its committer writes it when all is visible."""
    text = (GOLDEN / release / "magic" / "_SUCCESS.json").read_text(encoding="utf-8")
    document = json.loads(text.replace(GOLDEN_ID, job.id).replace(f"g/p{release}-magic/", "t/"))
    body = json.dumps(document | changes).encode()
    store.put_object("t/_SUCCESS", body)
    return body


def complete(store: MemoryStore, job: HadoopJob, many: int | None = None) -> list[str]:
    """Complete the first uploads of a job, as its JVM did before it died; their keys."""
    keys = sorted(job.uploads)[:many]
    for key in keys:
        store.complete_upload(key, job.uploads[key], job.parts[key])
    return keys


def _upload(
    store: MemoryStore, job: HadoopJob, commit: dict[str, Any], content: bytes
) -> tuple[str, dict[str, str]]:
    """An open upload with the parts that a commit names: its id, and what became of each etag and
    checksum. Equal etags are of equal parts, before and after."""
    key, length = commit["destinationKey"], commit["length"]
    golden = [e if isinstance(e, dict) else {"etag": e} for e in commit["etags"]]
    algorithm: Any = golden[0].get("checksumAlgorithm")
    created = store.create_upload(key, attributes=Attributes(), checksum=algorithm)
    bodies, parts, written = [], [], {}
    for number, part in enumerate(golden, 1):
        size = PART_BYTES if number < len(golden) else length - PART_BYTES * (len(golden) - 1)
        etag = part["etag"].strip('"')
        bodies.append(((content + etag.encode()) * (size // 32 + 1))[:size])
        checksum = checksums.of(algorithm, bodies[-1]) if algorithm else None
        stored = store.put_part(
            key, created.upload_id, number, memoryview(bodies[-1]), checksum=checksum
        )
        parts.append(stored)
        written[etag] = stored.etag.strip('"')
        if checksum is not None:
            written[part["checksum"]] = checksum.value
    job.files[key], job.uploads[key], job.parts[key] = b"".join(bodies), created.upload_id, parts
    return created.upload_id, written
