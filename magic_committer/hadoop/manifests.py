"""The report of a committed attempt: Hadoop's TaskManifest, read and written. Pure.

The form is that of Hadoop 3.3.5 and later (``TaskManifest/1``): sources and destinations are URIs,
percent-encoded as Java does it. What this library adds stands in ``extraData`` (Hadoop keeps and
ignores it): the job's UUID, and the name of the library.

A reader trusts nothing: a source must lie in the directory of the attempt, a destination below the
job's, and both must end alike. So a forged manifest can move no file that the attempt has not
written (docs/security.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import quote, unquote

from msgspec import Raw, Struct

from magic_committer.errors import PathError
from magic_committer.hadoop import documents
from magic_committer.hadoop.documents import (
    Invalid,
    Length,
    Pending,
    PendingSet,
    Text,
    UploadEtag,
    decode_pendingset,
)
from magic_committer.hadoop.paths import (
    MANIFEST_SUFFIX,
    TEMPORARY,
    check_id,
    check_name,
    is_plain_name,
    waiting_id,
)
from magic_committer.stores.urls import is_tree, url_of

ManifestType = Literal[
    "org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.TaskManifest/1"
]
MANIFEST_BYTES_MAX = 256 * 1024**2
"""Bytes of a manifest: one million files with long names."""
EXTRA_JOB = "magic-committer.job"
EXTRA_TASK = "magic-committer.task"
EXTRA_ATTEMPT = "magic-committer.attempt"

_SAFE = "/!$&'()*+,;=:@-._~"
"""What Java's URI leaves as it is in a path; it leaves non-ASCII letters too, and we encode them:
both read the same."""
_HADOOPS = {
    "extra_data": "extraData",
    "job_id": "jobId",
    "job_attempt_number": "jobAttemptNumber",
    "task": "taskID",
    "attempt": "taskAttemptID",
    "directory": "taskAttemptDir",
}


class ManifestFile(NamedTuple):
    """A file to be published: its name relative to the attempt's directory, and to the destination;
    its bytes; and its ETag, "" if the file system has none."""

    name: str
    size: int
    etag: str = ""


@dataclass(frozen=True, slots=True)
class TaskManifest:
    """What one attempt publishes.

    Attributes:
        job_id: the job's id; Hadoop's own is the MapReduce job's.
        uuid: the job's UUID; "" if Hadoop wrote it.
        statistics: the task's counters.
    """

    job_id: str
    uuid: str
    task: str
    attempt: str
    files: tuple[ManifestFile, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)


class _MovedFile(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a file is, where it goes, its bytes and its ETag."""

    s: Text
    d: Text
    z: Length
    e: str | None = ""


@documents.readable
class _ManifestFields(Struct, frozen=True, kw_only=True, rename=_HADOOPS):
    """A manifest as it is written. ``directories`` are those that its files need, as a rule: a
    rename makes them anyhow."""

    extra_data: dict[str, Any] | None = None
    type: ManifestType
    version: Literal[1]
    job_id: Text
    job_attempt_number: int = 0
    task: Text
    attempt: Text
    directory: str | None = None
    files: list[_MovedFile] | None = None
    directories: list[Raw] | None = None
    iostatistics: dict[str, Any] | None = None


def encode_manifest(manifest: TaskManifest, root: str, attempt_directory: str) -> bytes:
    """Write a manifest as Hadoop's committer reads it. ``root``: the destination's URL, with a
    ``/`` at its end. Raises FormatError: it would not be read."""
    base, home = uri_of(root, attempt_directory), _bare(root)
    files = []
    for file in manifest.files:
        path = quote(file.name, safe=_SAFE)
        files.append(_MovedFile(f"{base}/{path}", f"{home}{path}", file.size, file.etag))
    document = _ManifestFields(
        extra_data={
            EXTRA_JOB: manifest.uuid, EXTRA_TASK: manifest.task, EXTRA_ATTEMPT: manifest.attempt,
        },
        type=get_args(ManifestType)[0],
        version=1,
        job_id=manifest.job_id,
        task=manifest.task,
        attempt=manifest.attempt,
        directory=base,
        files=files,
        directories=[],
        iostatistics=dict(manifest.statistics),
    )  # fmt: skip
    with documents.naming("its manifest"):
        return documents.serialise(document, MANIFEST_BYTES_MAX, sealed=False)


def decode_manifest(data: bytes, root: str, tasks: str, source: str) -> TaskManifest:
    """Read a manifest of this library or of Hadoop. ``tasks``: the directory of the job's attempts,
    relative to the destination. Raises FormatError: it is no manifest, or it names a file outside
    of its attempt or destination."""
    with documents.naming(source):
        document = documents.parse(data, _ManifestFields, MANIFEST_BYTES_MAX)
        documents.check_map(document.extra_data, "extraData")
        documents.check_map(document.iostatistics, "iostatistics")
        attempt = document.attempt
        _checked("taskAttemptID", check_id, "attempt", attempt)
        prefix = f"{tasks}/{attempt}/"
        base, home = uri_of(root, prefix), _bare(root)
        files = tuple(
            _file(entry, number, root, prefix, base, home)
            for number, entry in enumerate(document.files or ())
        )
    uuid = (document.extra_data or {}).get(EXTRA_JOB, "")
    return TaskManifest(
        document.job_id,
        uuid if isinstance(uuid, str) else "",
        document.task,
        attempt,
        files,
        document.iostatistics or {},
    )


def uri_of(root: str, path: str) -> str:
    """A path as Hadoop's manifests name it."""
    return f"{_bare(root)}{quote(path, safe=_SAFE)}"


def path_of(root: str, uri: str, field: str) -> str:
    """The path, relative to the destination, that a URI of a manifest names."""
    plain, home = _plain(uri), _plain_root(root)
    below = plain[len(home) :]
    if not plain.startswith(home) or not below:
        raise Invalid(field, f"{uri!r} is not below {root!r}")
    return below


def _bare(root: str) -> str:
    """``file:/data/t/`` for ``file:///data/t/``: the form that Hadoop gives destinations."""
    return "file:/" + root.removeprefix("file:///") if root.startswith("file:///") else root


def _plain(uri: str) -> str:
    """A URI in one form: Hadoop writes ``file:/x`` and ``file:///x`` for the same."""
    text = unquote(uri)
    if text.startswith("file:"):
        return "file:/" + text.removeprefix("file:").lstrip("/")
    return text


_plain_root = lru_cache(maxsize=64)(_plain)


def _checked(field: str, check: Callable[..., object], *values: str) -> None:
    try:
        check(*values)
    except PathError as error:
        raise Invalid(field, error.message) from error


def _file(
    entry: _MovedFile, number: int, root: str, prefix: str, base: str, home: str
) -> ManifestFile:
    name = entry.d[len(home) :] if entry.d.startswith(home) else ""
    if not is_plain_name(name) or entry.s != f"{base}{name}":  # most are so: nothing is encoded
        field = f"files[{number}]"
        name = path_of(root, entry.d, f"{field}.d")
        written = path_of(root, entry.s, f"{field}.s")
        if written != prefix + name:
            raise Invalid(field, f"moves {written!r} to {name!r}: it is not the attempt's own file")
        _checked(field, check_file_name, name)
    return ManifestFile(name, entry.z, entry.e or "")


def check_file_name(name: str, *, uuid: str = "") -> None:
    """Check the name of a file that waits in a job's directory: `check_name`, and that it does not
    lie in the directory where committers work."""
    check_name(name, uuid=uuid)
    if name.partition("/")[0] == TEMPORARY:
        raise PathError(
            f"{name!r} lies in {TEMPORARY}, where committers work",
            hint="What lies in there is deleted when a job ends: choose another name",
        )


def decode_set(data: bytes, key: str, bucket: str) -> PendingSet:
    """Read what an attempt has committed: a `.pendingset`; or a manifest as the set of uploads that
    it is, of each file, whose id names its path and its ETag (`paths.waiting_id`)."""
    if not (key.endswith(MANIFEST_SUFFIX) and is_tree(bucket)):
        return decode_pendingset(data, key)
    attempts, _, _ = key.rpartition("/manifests/")
    manifest = decode_manifest(data, f"{bucket}/", f"{attempts}/tasks", key)
    home = f"{attempts}/tasks/{manifest.attempt}"
    extra = {EXTRA_TASK: manifest.task, EXTRA_ATTEMPT: manifest.attempt}
    if manifest.uuid:  # Hadoop's names no job
        extra[EXTRA_JOB] = manifest.uuid
    return PendingSet(
        job_id="",
        commits=tuple(
            Pending(
                uri=url_of(bucket, file.name),
                upload_id=waiting_id(f"{home}/{file.name}", file.etag),
                bucket=bucket,
                destination_key=file.name,
                etags=(UploadEtag(file.etag),),
                length=file.size,
                job_id="",
                task_id=manifest.attempt,
            )
            for file in manifest.files
        ),
        extra_data=extra,
        iostatistics=dict(manifest.statistics),
    )
