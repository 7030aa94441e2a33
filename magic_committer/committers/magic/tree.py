"""An attempt's tree: the `.pending`s that ``track="s3"`` saves under the magic path.

With it any process that knows the attempt's name can commit or abort the attempt. It is Hadoop's
tree (3.4) without its zero-byte markers: a committer reads only ``<path>.pending``, and a marker is
one more PUT for each file. (Hadoop's tools ask the marker how long a file of a running JVM is. A
file that is opened by path has one: `by_path`.) All objects carry the job's UUID, so that the tree
of another run can be distinguished.

**What this handle has saved it does not read again**: if the listing shows a `.pending` with the
ETag that the store gave for our PUT, it is the one that we know. Any other one is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from magic_committer._hints import ANOTHER_ATTEMPT, OWN_NAME
from magic_committer._pool import Outcome
from magic_committer._runtime import Runtime
from magic_committer.commit import ready
from magic_committer.commit.load import LOADING_BYTES_MAX, set_bytes_max
from magic_committer.errors import FormatError, NotFound, TaskFailed
from magic_committer.hadoop.formats import (
    PENDING_BYTES_MAX,
    Pending,
    decode_pending,
    encode_pending,
)
from magic_committer.hadoop.paths import PENDING_SUFFIX, JobPaths
from magic_committer.protocol.record import JOB_METADATA, StartedJob
from magic_committer.stores.base import ObjectInfo, objects, same_etag

logger = logging.getLogger("magic_committer")

MARKER_LENGTH_METADATA = "x-hadoop-s3a-magic-data-length"
"""Hadoop's name: the length of the final object, on the zero-byte marker under the magic path
(3.1+)."""

R = TypeVar("R")


class AttemptTree:
    """What one attempt saves on the store before it is committed."""

    def __init__(
        self,
        runtime: Runtime,
        job: StartedJob,
        paths: JobPaths,
        attempt: str,
        metadata: Mapping[str, str],
        in_flight: int,
    ) -> None:
        self._runtime = runtime
        self._job = job
        self._paths = paths
        self._attempt = attempt
        self._in_flight = in_flight
        self._listed: list[str] = []
        self._own: list[str] = []
        self._found: dict[str, ObjectInfo] = {}
        self._metadata = metadata
        self._saved: dict[str, tuple[str, Pending]] = {}
        """What this handle has stored, with the store's ETag for it."""

    def save(self, key: str, pending: Pending) -> None:
        """Store the `.pending` of a closed file under this key: from now on every process that
        commits the attempt commits the file. This may be so even if the request got no answer."""
        body = encode_pending(pending, self._job.terms.etag_form)
        written = self._runtime.store.put(
            key, body, metadata=self._metadata, content_type="application/json"
        )
        self._saved[key] = written.etag, pending

    def pendings(self) -> list[Pending]:
        """All files of the attempt. One GET for each that another handle has saved."""
        with closing(self._each(self._load, self._pending_keys())) as outcomes:
            return [outcome.unwrap() for outcome in outcomes]

    def known_uploads(self, failures: list[BaseException]) -> list[Pending]:
        """The uploads that the tree names. An unreadable `.pending` is noted, unless it is gone:
        then another process is aborting the attempt too."""
        known: list[Pending] = []
        with closing(self._each(self._load, self._pending_keys())) as outcomes:
            for outcome in outcomes:
                if outcome.error is None:
                    known.append(outcome.unwrap())
                elif not isinstance(outcome.error.__cause__, NotFound):
                    failures.append(outcome.error)
        return known

    def remove(self) -> None:
        """Delete the tree as `pendings` or `known_uploads` found it. The directory of a given job
        id may hold a zombie of another run: there, only objects that are proved to be ours are
        deleted."""
        self.delete(self._own if self._job.given_id else self._listed)

    def take_out(self, key: str) -> None:
        """Delete the `.pending` of a closed file: from now on nobody commits the file.
        Repeatable."""
        failed = self._runtime.store.delete([key])
        if failed:
            raise failed[key]
        self._saved.pop(key, None)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete control objects. What stays is swept with the job."""
        doomed = list(keys)
        failed = self._runtime.store.delete(doomed) if doomed else {}
        for key, error in failed.items():
            logger.warning("job %s: %s could not be deleted: %s", self._job.id, key, error)

    def _pending_keys(self) -> list[str]:
        directory = self._paths.attempt_directory(self._attempt)
        self._found = {info.key: info for info in objects(self._runtime.store, directory)}
        self._listed = list(self._found)
        self._own = []
        return [key for key in self._listed if key.endswith(PENDING_SUFFIX)]

    def _load(self, key: str) -> Pending:
        saved = self._saved.get(key)
        if saved is not None and same_etag(saved[0], self._found[key].etag):
            return self._ours(key, saved[1])
        try:
            bytes_max = min(PENDING_BYTES_MAX, set_bytes_max(self._found[key].size))
            stored = self._runtime.store.get(key, max_bytes=bytes_max)
            pending = decode_pending(stored.body, key)
            upload = ready.from_pending(pending, key)
        except (FormatError, NotFound) as error:
            raise TaskFailed(
                f"attempt {self._attempt!r}: {error.message}",
                job_id=self._job.id,
                hint=ANOTHER_ATTEMPT,
            ) from error
        if (stored.info.metadata or {}).get(JOB_METADATA) != self._job.uuid or not (
            upload.token.startswith(f"{self._job.uuid}.{self._attempt}.")
        ):
            raise TaskFailed(
                f"attempt {self._attempt!r}: {key} is not of this attempt of job {self._job.id!r}",
                job_id=self._job.id,
                hint=OWN_NAME,
            )
        return self._ours(key, pending)

    def _ours(self, key: str, pending: Pending) -> Pending:
        self._own.append(key)
        return replace(pending, filename=self._paths.uri(key))

    def _each(
        self, function: Callable[[str], R], keys: Iterable[str]
    ) -> Generator[Outcome[str, R], None, None]:
        return self._runtime.pool.each(
            function,
            keys,
            in_flight=self._in_flight,
            weigh=lambda key: self._found[key].size,
            weight_max=LOADING_BYTES_MAX,
        )
