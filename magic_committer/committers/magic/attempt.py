"""One attempt of one task: its files, its commit, its abort.

Invariants:

* Nothing that an attempt does makes anything visible: it creates uploads, stores parts, and saves
  what is needed to complete them. Publication belongs to the driver (I9: a Spark task cannot tell
  the end of its input from a cut).
* An attempt that is committed has one `.pendingset`, named for the attempt, written once
  (``If-None-Match: *``). From then on it is undone only by the fence's second read.
* Every way out that is not a commit aborts all its uploads, as far as this process knows them.
* ``track="memory"``: what is needed to complete stays in this process until commit; 3 requests
  for a small file. ``track="s3"``: each close saves a marker and a `.pending`, so that any process
  can commit the attempt by its name.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from magic_committer import stats
from magic_committer.commit import ready
from magic_committer.committers.magic.fence import Fence
from magic_committer.committers.magic.tree import AttemptTree
from magic_committer.errors import (
    FileStillOpen,
    MagicError,
    PathError,
    PreconditionFailed,
    StoreError,
    TaskFailed,
    Unanswered,
    WriteConflict,
    name_some,
)
from magic_committer.formats import (
    PENDINGSET_BYTES_MAX,
    Pending,
    decode_pendingset,
    encode_pendingset,
    new_pendingset,
)
from magic_committer.job import (
    JOB_METADATA,
    TOKEN_METADATA,
    StartedJob,
    State,
    TaskCommit,
    token,
)
from magic_committer.options import Options
from magic_committer.paths import (
    PENDING_SUFFIX,
    Destination,
    JobPaths,
    check_id,
    check_name,
    unique_name,
    uuid_in_name,
)
from magic_committer.runtime import Runtime
from magic_committer.stats import Statistics
from magic_committer.store import Attributes, CreatedUpload
from magic_committer.upload import BlockSource, FinishedUpload, UploadStream
from magic_committer.upload import State as FileState

logger = logging.getLogger("magic_committer")


class Phase(Enum):
    """What an attempt is. The ways: open → sent → committed, and open or sent → aborted."""

    OPEN = "open"
    SENT = "sent"
    """Its pendingset is, or may be, or may still be stored: a driver may have accepted it."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class _File:
    name: str
    stream: UploadStream
    pending: Pending | None = None


class Attempt:
    """An attempt in the process that writes it. Its files may be written from many threads."""

    def __init__(
        self,
        runtime: Runtime,
        job: StartedJob,
        options: Options,
        task: str,
        attempt: str,
        *,
        blocks: BlockSource,
        shared: bool = False,
    ) -> None:
        """
        Args:
            blocks: the process's memory for blocks.
            shared: its files may be closed here and committed by others: each close reads the fence
                again after its `.pending` (protocol.md, "The fence").
        """
        self.task = check_id("task id", task)
        self.attempt = check_id("attempt", attempt)
        self.job = job
        self.phase = Phase.OPEN
        self._runtime = runtime
        self._options = replace(options, checksum=job.terms.checksum)
        self._dest = Destination.parse(job.dest)
        self._paths = JobPaths(self._dest, job.id)
        self._tree = AttemptTree(runtime, job, self._paths, task, attempt, options.commit_threads)
        self._fence = Fence(runtime, job, self._paths)
        self._blocks = blocks
        self._shared = shared
        self._in_memory = job.terms.track == "memory"
        self._lock = threading.RLock()  # a pool without threads answers a Create inside `open`
        self._files: dict[str, _File] = {}
        self._retried_creates: list[str] = []
        self.statistics = Statistics()
        self.result: TaskCommit | None = None

    def __repr__(self) -> str:
        return (
            f"<Attempt {self.attempt!r} of task {self.task!r}, job {self.job.id!r},"
            f" {self.phase.value}, {len(self._files)} files>"
        )

    @property
    def has_files(self) -> bool:
        """Whether a file was opened in this process."""
        return bool(self._files)

    # Writing --------------------------------------------------------------------------------------

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> UploadStream:
        """Open a file that becomes ``D/<name>`` when the job commits.

        Args:
            name: relative to the destination. unique: put the job's UUID into it, before the first
                dot, so that uploads of killed attempts can be told as ours.

        Raises:
            PathError: the name cannot be used, or the attempt has it already.
            TaskFailed: the attempt has ended.
        """
        if self.phase is not Phase.OPEN:
            raise TaskFailed(
                f"attempt {self.attempt!r} is {self.phase.value}, it takes no more files",
                job_id=self.job.id,
                hint="Start another attempt: job.task(...)",
            )
        check_name(name, uuid=self.job.uuid)
        if unique:
            name = unique_name(name, self.job.uuid)
        pending_key = self._paths.pending(self.attempt, name)  # refuses what is too long
        mark = token(self.job.uuid, self.attempt, self._runtime.ids()[:16])
        key = self._dest.key(name)
        with self._lock:
            self._refuse_twice(name)
            stream = UploadStream(
                self._runtime,
                key,
                attributes=_with_token(attributes, mark),
                options=self._options,
                blocks=self._blocks,
                on_answer=lambda created: self._answered(key, created),
                before_block=self._fence.check_if_due,
                on_close=lambda finished: self._closed(name, pending_key, mark, finished),
                on_abort=self._abort_retried_creates,
                statistics=self.statistics,
            )
            self._files[name] = _File(name, stream)
        self.statistics.add(stats.FILES_CREATED)
        return stream

    def _refuse_twice(self, name: str) -> None:
        file = self._files.get(name)
        if file is not None and file.stream.state not in (FileState.ABORTED, FileState.FAILED):
            raise PathError(
                f"attempt {self.attempt!r} has a file {name!r} already",
                hint="Give each file of a job a name of its own, or open it with unique=True",
            )

    def _answered(self, key: str, created: CreatedUpload) -> None:
        self._fence.created()
        if created.attempts > 1:
            with self._lock:
                self._retried_creates.append(key)

    def _closed(self, name: str, pending_key: str, mark: str, finished: FinishedUpload) -> None:
        """All parts of a file are stored: save what completes it."""
        self._fence.check_if_due()
        marker_key = pending_key.removesuffix(PENDING_SUFFIX)
        pending = ready.to_pending(
            self.job,
            self.attempt,
            bucket=self._dest.bucket,
            uri=self._paths.uri(marker_key),
            key=finished.key,
            upload_id=finished.upload_id,
            parts=finished.parts,
            length=finished.length,
            checksum=finished.checksum,
            token=mark,
            created_ms=int(self._runtime.clock.now() * 1000),
        )
        if not self._in_memory:
            self._tree.save(marker_key, pending)
            self.statistics.add(stats.MARKER_PUT)
            if self._shared:
                late = self._fence.check_after_pendingset()
                if late is not None:
                    self._tree.delete([marker_key, pending_key])
                    raise late
        with self._lock:
            self._files[name].pending = pending
        self.statistics.add(stats.COMMITS_CREATED)

    # Commit ---------------------------------------------------------------------------------------

    def commit(self) -> TaskCommit:
        """Save the attempt's uploads as one `.pendingset`. Repeatable.

        Raises:
            FileStillOpen: a file was not closed. The attempt is aborted.
            TaskFailed: a file failed, or a `.pending` cannot be read. The attempt is aborted.
            JobNotRunning: the job takes no more work. The attempt is aborted.
            StoreError: the store failed. Before the pendingset was sent the attempt is aborted;
                afterwards it is left for the job to sweep.
        """
        if self.result is not None:
            return self.result
        if self.phase is Phase.ABORTED:
            raise TaskFailed(
                f"attempt {self.attempt!r} is aborted, it cannot be committed",
                job_id=self.job.id,
            )
        try:
            self._refuse_lost_files()
            pendings = self._pendings()
            body = self._pendingset(pendings)
            self._fence.check()
        except BaseException as error:
            self._abort_after(error)
            raise
        if not pendings and self._in_memory and self.job.terms.accept == "results":
            result = TaskCommit(self.job.uuid, self.task, self.attempt)
        else:
            result = self._save(pendings, body)
        self.phase = Phase.COMMITTED
        self.result = result
        logger.info(
            "job %s: attempt %s of task %s committed, %d files, %d bytes",
            self.job.id, self.attempt, self.task, result.files, result.bytes,
        )  # fmt: skip
        return result

    def _refuse_lost_files(self) -> None:
        unfinished = (FileState.OPEN, FileState.CLOSING)
        still_open = [f.name for f in self._files.values() if f.stream.state in unfinished]
        if still_open:
            raise FileStillOpen(
                f"attempt {self.attempt!r}: not closed: {name_some(still_open)}",
                job_id=self.job.id,
                hint="Close each file, best by `with task.open(...) as f`",
            )
        lost = [f.name for f in self._files.values() if f.stream.state is FileState.FAILED]
        if lost:
            raise TaskFailed(
                f"attempt {self.attempt!r}: these files failed: {name_some(lost)}",
                job_id=self.job.id,
                hint="Run the task again as another attempt",
            )

    def _pendings(self) -> list[Pending]:
        if not self._in_memory:
            return self._tree.pendings()
        return [f.pending for f in self._files.values() if f.pending is not None]

    def _pendingset(self, pendings: list[Pending]) -> bytes:
        extra = {
            ready.EXTRA_JOB: self.job.uuid,
            ready.EXTRA_TASK: self.task,
            ready.EXTRA_ATTEMPT: self.attempt,
        }
        pendingset = new_pendingset(
            job_id=self.job.id,
            commits=pendings,
            extra_data=extra,
            iostatistics=self.statistics.to_dict(),
        )
        return encode_pendingset(
            pendingset, self.job.terms.etag_form, source=self._paths.pendingset(self.attempt)
        )

    def _save(self, pendings: list[Pending], body: bytes) -> TaskCommit:
        key = self._paths.pendingset(self.attempt)
        self.phase = Phase.SENT
        try:
            etag = self._runtime.store.put(
                key,
                body,
                metadata=self._tree.metadata,
                content_type="application/json",
                if_none_match=True,
            ).etag
        except (PreconditionFailed, WriteConflict) as error:
            pendings, etag, body = self._stored_before(key, pendings, error)
        except StoreError as error:
            if not isinstance(error, Unanswered) and error.attempts == 1:
                self.phase = Phase.OPEN  # refused at once: it is not there, and will not be
            if self.phase is Phase.OPEN or self._nobody_accepts:
                self._abort_after(error)
            raise
        late = self._fence.check_after_pendingset()
        if late is not None:
            self._abort_after(late)
            raise late
        if not self._in_memory:
            self._tree.remove()
        return TaskCommit(
            job_uuid=self.job.uuid,
            task=self.task,
            attempt=self.attempt,
            key=key,
            etag=etag,
            pendingset_bytes=len(body),
            files=len(pendings),
            bytes=sum(pending.length for pending in pendings),
        )

    def _stored_before(
        self, key: str, pendings: list[Pending], why: StoreError
    ) -> tuple[list[Pending], str, bytes]:
        """The attempt has a pendingset: our own retried PUT, or an earlier commit of the attempt
        that was cut short before its tree was deleted. Any other is a second attempt of one
        name."""
        stored = self._runtime.store.get(key, max_bytes=PENDINGSET_BYTES_MAX)
        before = list(decode_pendingset(stored.body, key).commits)
        known = {(p.destination_key, p.upload_id) for p in before}
        if (stored.info.metadata or {}).get(JOB_METADATA) == self.job.uuid and all(
            (p.destination_key, p.upload_id) in known for p in pendings
        ):
            return before, stored.info.etag, stored.body
        error = TaskFailed(
            f"attempt {self.attempt!r} was committed before, with other files",
            job_id=self.job.id,
            hint="Give each attempt of a task a name of its own",
        )
        mine = {(p.destination_key, p.upload_id) for p in pendings}
        error.add_note(f"{len(mine - known)} uploads are left for the job to sweep")
        raise error from why

    # Abort ----------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Abort the attempt's uploads and delete what it saved. Repeatable; a missing attempt
        aborts well.

        Raises:
            TaskFailed: it is committed, or may be: only the job can undo it.
            StoreError: the first of the failures; everything was tried, the job's sweep goes on.
        """
        if self.phase is Phase.COMMITTED or (
            self.phase is Phase.SENT
            and not self._nobody_accepts
            and self._fence.check_after_pendingset() is None
        ):
            raise TaskFailed(
                f"attempt {self.attempt!r} is committed, or may be",
                job_id=self.job.id,
                hint="Leave it out of job.commit(...), or abort the job",
            )
        failures: list[BaseException] = []
        if self.phase is Phase.SENT:
            pendingset = self._paths.pendingset(self.attempt)
            self._trying(failures, lambda: self._tree.delete([pendingset]))
        self.phase = Phase.ABORTED
        for file in list(self._files.values()):
            self._trying(failures, file.stream.abort)
        doomed = {
            (f.pending.destination_key, f.pending.upload_id)
            for f in self._files.values()
            if f.pending is not None
        }
        if not self._in_memory:
            self._trying(failures, lambda: doomed.update(self._tree.known_uploads(failures)))
        with closing(
            self._each(lambda u: self._runtime.store.abort_upload(*u), sorted(doomed))
        ) as outcomes:
            failures += [o.error for o in outcomes if o.error is not None]
        if not self._in_memory and not failures:  # else the tree still names what is to be aborted
            self._trying(failures, self._tree.remove)
        self._trying(failures, self._abort_retried_creates)
        self.statistics.add(stats.COMMITS_ABORTED, len(doomed))
        if failures:
            raise failures[0]

    @property
    def _nobody_accepts(self) -> bool:
        """Whether an attempt without a result cannot be accepted, whatever lies on the store."""
        return self.job.terms.accept == "results" and self.result is None

    def _abort_after(self, error: BaseException) -> None:
        """Abort because of ``error``; the abort's own failure becomes a note on it."""
        try:
            self.abort()
        except MagicError as failure:
            error.add_note(f"aborting attempt {self.attempt!r} failed too: {failure}")

    def _abort_retried_creates(self) -> None:
        """Fenced after a Create that was sent twice: there may be two uploads, one id lost. The key
        is listed, if its name says that it is ours (counterexamples.md, #18). Not while the job
        commits: then one of them may be planned."""
        late = self._fence.late
        if late is None or late.state == State.COMMITTING:
            return
        with self._lock:
            keys, self._retried_creates = self._retried_creates, []
        for key in keys:
            if uuid_in_name(key) != self.job.uuid:
                continue
            for page in self._runtime.store.list_uploads(key):
                for upload in page.uploads:
                    if upload.key == key:
                        self._runtime.store.abort_upload(key, upload.upload_id)

    @staticmethod
    def _trying(failures: list[BaseException], step: Any) -> None:
        try:
            step()
        except MagicError as error:
            failures.append(error)

    def _each(self, function: Any, items: Any) -> Any:
        in_flight = self._options.commit_threads
        return self._runtime.pool.each(function, items, in_flight=in_flight)


def _with_token(attributes: Attributes, mark: str) -> Attributes:
    return replace(attributes, metadata={**attributes.metadata, TOKEN_METADATA: mark})
