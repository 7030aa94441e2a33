"""An attempt's tree: the markers and `.pending`s that ``track="s3"`` saves under the magic path.

With it any process that knows the attempt's name can commit or abort the attempt. It is Hadoop's
tree (3.4): a zero-byte marker at the magic path with the final length in its metadata, and
``<path>.pending`` beside it; the marker is written first. All objects carry the job's UUID, so that
the tree of another run can be distinguished.
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
from magic_committer.errors import FormatError, NotFound, StoreError, TaskFailed
from magic_committer.hadoop.formats import (
    PENDING_BYTES_MAX,
    Pending,
    decode_pending,
    encode_pending,
)
from magic_committer.hadoop.paths import PENDING_SUFFIX, JobPaths
from magic_committer.protocol.record import JOB_METADATA, StartedJob
from magic_committer.stores.base import objects

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
        self._sizes: dict[str, int] = {}
        self._metadata = metadata

    def mark(self, marker_key: str, pending: Pending) -> None:
        """Store the marker of a closed file. It does not count before `save`."""
        length = {MARKER_LENGTH_METADATA: str(pending.length)}
        self._runtime.store.put(marker_key, b"", metadata={**self._metadata, **length})

    def save(self, marker_key: str, pending: Pending) -> None:
        """Store the `.pending` of a closed file: from now on every process that commits the attempt
        commits the file. This may be so even if the request got no answer."""
        self._runtime.store.put(
            marker_key + PENDING_SUFFIX,
            encode_pending(pending, self._job.terms.etag_form),
            metadata=self._metadata,
            content_type="application/json",
        )

    def pendings(self) -> list[Pending]:
        """All files of the attempt. One GET each.

        Raises:
            TaskFailed: a `.pending` cannot be read, or is not this attempt's.
        """
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
        self.delete([*self._own, *self._stray_markers()] if self._job.given_id else self._listed)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete control objects. What stays is swept with the job."""
        doomed = list(keys)
        failed = self._runtime.store.delete(doomed) if doomed else {}
        for key, error in failed.items():
            logger.warning("job %s: %s could not be deleted: %s", self._job.id, key, error)

    def _pending_keys(self) -> list[str]:
        directory = self._paths.attempt_directory(self._attempt)
        self._sizes = {i.key: i.size for i in objects(self._runtime.store, directory)}
        self._listed = list(self._sizes)
        self._own = []
        return [key for key in self._listed if key.endswith(PENDING_SUFFIX)]

    def _stray_markers(self) -> list[str]:
        """Markers of ours without a `.pending` of ours: the file was not saved, or a cleanup took
        its `.pending` and could not look at the marker. One HEAD each."""
        own = set(self._own)
        doubtful = [k for k in self._listed if k not in own and not k.endswith(PENDING_SUFFIX)]
        with closing(self._each(self._is_ours, doubtful)) as outcomes:
            return [outcome.item for outcome in outcomes if outcome.unwrap()]

    def _is_ours(self, key: str) -> bool:
        try:
            metadata = self._runtime.store.head(key).metadata or {}
        except NotFound:
            return False
        except StoreError as error:
            logger.warning("job %s: whether %s is its own is not known: %s",
                           self._job.id, key, error)  # fmt: skip
            return False
        return metadata.get(JOB_METADATA) == self._job.uuid

    def _load(self, key: str) -> Pending:
        try:
            bytes_max = min(PENDING_BYTES_MAX, set_bytes_max(self._sizes[key]))
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
        self._own += [key, key.removesuffix(PENDING_SUFFIX)]
        return replace(pending, filename=self._paths.uri(key))

    def _each(
        self, function: Callable[[str], R], keys: Iterable[str]
    ) -> Generator[Outcome[str, R], None, None]:
        return self._runtime.pool.each(
            function,
            keys,
            in_flight=self._in_flight,
            weigh=self._sizes.__getitem__,
            weight_max=LOADING_BYTES_MAX,
        )
