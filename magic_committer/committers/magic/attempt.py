"""One attempt of one task: its files, its commit, its abort.

Invariants:

* Nothing that an attempt does makes anything visible: it creates uploads, stores parts, and saves
  what is needed to complete them. Publication belongs to the driver (I9: a Spark task cannot tell
  the end of its input from a cut).
* An attempt that is committed has one `.pendingset`, named for the attempt, written once
  (``If-None-Match: *``). From then on it is undone only by the fence's second read.
* Every way out that is not a commit aborts all its uploads, as far as this process knows them; an
  attempt that other handles may share only after the key of its `.pendingset` was claimed
  (`pendingset`).
* An upload that may have become its object is looked at before it is aborted: on some stores the
  abort of a completed upload takes the object away (docs/stores.md).
* ``track="memory"``: what is needed to complete stays in this process until commit; 3 requests
  for a small file. ``track="s3"``: each close saves a marker and a `.pending`, so that any process
  can commit the attempt by its name.
* An attempt belongs to the process that made it. In a forked child opening, committing and aborting
  raise and send nothing: the child's copy would report success for files that nobody publishes.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from magic_committer import stats
from magic_committer.commit import ready
from magic_committer.commit.upload_state import UploadName, UploadRemover
from magic_committer.committers.magic.fence import Fence
from magic_committer.committers.magic.pendingset import (
    AttemptSet,
    Found,
    Phase,
    StoredSet,
    may_undo,
    names,
    refused,
)
from magic_committer.committers.magic.tree import AttemptTree
from magic_committer.committers.magic.undo import (
    RetriedCreates,
    late_in,
    remove_all,
    remove_one,
    rule_out,
    settle,
)
from magic_committer.errors import (
    FileStillOpen,
    FormatError,
    MagicError,
    PathError,
    StoreError,
    TaskFailed,
    WrongProcess,
    name_some,
)
from magic_committer.formats import Pending
from magic_committer.job import TOKEN_METADATA, StartedJob, TaskCommit, token
from magic_committer.options import Options
from magic_committer.paths import (
    PENDING_SUFFIX,
    Destination,
    JobPaths,
    check_id,
    check_name,
    unique_name,
)
from magic_committer.runtime import Runtime
from magic_committer.stats import Statistics
from magic_committer.store import Attributes, CreatedUpload
from magic_committer.upload import BlockSource, FinishedUpload, UploadStream
from magic_committer.upload import State as FileState

logger = logging.getLogger("magic_committer")


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
        self._pid = os.getpid()
        self._runtime = runtime
        self._options = replace(options, checksum=job.terms.checksum)
        self._dest = Destination.parse(job.dest)
        self._paths = JobPaths(self._dest, job.id)
        self._set = AttemptSet(runtime, job, self._paths, task, attempt)
        self._tree = AttemptTree(
            runtime, job, self._paths, attempt, self._set.metadata, options.commit_threads
        )
        self._fence = Fence(runtime, job, self._paths)
        self._blocks = blocks
        self._shared = shared
        self._in_memory = job.terms.track == "memory"
        self._lock = threading.RLock()  # a pool without threads answers a Create inside `open`
        self._files: dict[str, _File] = {}
        self._kept: set[str] = set()  # ids of uploads that the job's end must judge
        self._retried_creates = RetriedCreates(runtime, job, self._fence)
        self.statistics = Statistics()
        self._stop_clock = self.statistics.begin(stats.TASK_ATTEMPT, runtime.clock)
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

    @property
    def ours(self) -> bool:
        """Whether this process made it: not so in a forked child."""
        return self._pid == os.getpid()

    def check_process(self, doing: str) -> None:
        """TaskFailed in a forked child, nothing elsewhere. ``doing``: what is refused."""
        if not self.ours:
            raise TaskFailed(
                f"attempt {self.attempt!r} of task {self.task!r} belongs to process {self._pid},"
                f" this is process {os.getpid()}: {doing} here would do nothing for the job",
                job_id=self.job.id,
                hint=WrongProcess.hint,
            )

    def share(self) -> None:
        """Other processes may commit it from now on: its files look whether one has."""
        self._shared = True

    # Writing --------------------------------------------------------------------------------------

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> UploadStream:
        """Open a file that becomes ``D/<name>`` when the job commits.

        Args:
            name: relative to the destination. unique: put the job's UUID into it, before the first
                dot, so that uploads of killed attempts can be told as ours.

        Raises:
            PathError: the name cannot be used, or the attempt has it already.
            TaskFailed: the attempt has ended, or belongs to another process.
        """
        self.check_process("opening a file")
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
                on_abort=self._retried_creates.abort_if_late,
                abort_told=None
                if self._in_memory
                else partial(_abort_told, self._runtime, key, mark, self._kept),
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
                hint="Give each file of a job a name of its own",
            )

    def _answered(self, key: str, created: CreatedUpload) -> None:
        self._fence.created()
        if created.attempts > 1:
            self._retried_creates.add(key)

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
            self._tree.mark(marker_key, pending)
            try:
                self._tree.save(marker_key, pending)
            except BaseException as error:
                if not refused(error):
                    self._give_up(pending, error)
                raise
            self.statistics.add(stats.MARKER_PUT)
            if self._shared:
                self._undo_if_late(marker_key, pending_key)
                self._undo_if_too_late(marker_key, pending_key, pending)
        with self._lock:
            self._files[name].pending = pending
        self.statistics.add(stats.COMMITS_CREATED)

    def _give_up(self, pending: Pending, error: BaseException) -> None:
        """The `.pending` of a file may be stored all the same, so another handle may commit the
        attempt with it. Its upload is aborted only where that is ruled out."""
        self._kept.add(pending.upload_id)
        try:
            if rule_out(self.job, self._set, self._fence, pending):
                self._kept.discard(pending.upload_id)
                return
        except (StoreError, FormatError) as failure:
            error.add_note(f"whether its attempt is committed is not known either: {failure}")
        error.add_note(f"the upload {pending.upload_id} is left to the end of the job")

    def _undo_if_late(self, marker_key: str, pending_key: str) -> None:
        """Nobody may read the fence again for this file. Where it cannot be read the file stays as
        it is, saved: whoever commits the attempt reads it, and the job's sweep finds the file."""
        try:
            late = self._fence.must_undo()
        except StoreError as error:
            logger.warning("job %s: the fence could not be read: %s", self.job.id, error)
            return
        if late is not None:
            self._tree.delete([marker_key, pending_key])
            raise late

    def _undo_if_too_late(self, marker_key: str, pending_key: str, pending: Pending) -> None:
        """The attempt may have been committed, or aborted, by another handle before this file was
        saved: then nobody will ever publish it. What that handle listed before, and has not stored
        yet, the job's sweep reports. Where the store cannot be asked the file stays, saved."""
        try:
            there = self._set.read()
        except (StoreError, FormatError) as error:
            logger.warning(
                "job %s: whether attempt %s is committed already could not be read: %s",
                self.job.id, self.attempt, error,
            )  # fmt: skip
            return
        if there.found is Found.CLAIMED:
            failure = self._set.was_aborted()
        elif there.stored is not None and not names([pending]) <= names(there.stored.pendings):
            failure = TaskFailed(
                f"attempt {self.attempt!r} was committed before {pending.destination_key!r} was"
                " closed: the file is not part of it, and is never published",
                job_id=self.job.id,
                hint="Close every file of an attempt before the attempt is committed; write this"
                " file again as another attempt, of a task of its own",
            )
        else:
            return
        self._tree.delete([marker_key, pending_key])
        raise failure

    # Commit ---------------------------------------------------------------------------------------

    def commit(self) -> TaskCommit:
        """Save the attempt's uploads as one `.pendingset`. Repeatable.

        Raises:
            FileStillOpen: a file was not closed. The attempt is aborted.
            TaskFailed: a file failed, or a `.pending` cannot be read. The attempt is aborted.
                Or it was aborted before; or it belongs to another process, and nothing was sent.
            JobNotRunning: the job takes no more work. The attempt is aborted.
            StoreError: the store failed. The attempt is aborted, unless its pendingset may be
                stored: then it is left for the job.
        """
        if self.result is not None:
            return self.result
        self.check_process("committing it")
        if self.phase is Phase.ABORTED:
            raise TaskFailed(
                f"attempt {self.attempt!r} is aborted, it cannot be committed",
                job_id=self.job.id,
            )
        result = TaskCommit(self.job.uuid, self.task, self.attempt)
        stored = self._store()
        if stored is not None:
            result = replace(
                result,
                key=self._set.key,
                etag=stored.etag,
                pendingset_bytes=stored.size,
                files=len(stored.pendings),
                bytes=sum(pending.length for pending in stored.pendings),
            )
        self.phase = Phase.COMMITTED
        self.result = result
        logger.info(
            "job %s: attempt %s of task %s committed, %d files, %d bytes",
            self.job.id, self.attempt, self.task, result.files, result.bytes,
        )  # fmt: skip
        return result

    def _store(self) -> StoredSet | None:
        """Store the pendingset, read the fence, delete the tree. None: nothing is to be stored."""
        own = [f.pending for f in self._files.values() if f.pending is not None]
        first = self.phase is Phase.OPEN
        try:
            self._refuse_lost_files()
            pendings, stored = self._gather(own)
            if not pendings and self._in_memory and self.job.terms.accept == "results":
                return None
            if stored is None:
                self._stop_clock(False)
                body = self._set.encode(pendings, self.statistics)
                self._fence.check()
                self.phase = Phase.SENT
                stored = self._set.put(pendings, body)
        except BaseException as error:
            if first and self._set.refused:
                self.phase = Phase.OPEN
            self._abort_after(error)
            raise
        late = self._fence.must_undo()
        if late is not None:
            self._abort_after(late)
            raise late
        if not self._in_memory:
            self._tree.remove()
        return stored

    def _gather(self, own: list[Pending]) -> tuple[list[Pending], StoredSet | None]:
        """All the attempt's files; or the set that holds them, where another handle has committed
        the attempt before. A file that was closed here is never left out."""
        if self._in_memory:
            return own, None
        failure: TaskFailed | None = None
        try:
            pendings = self._tree.pendings()
            if names(own) <= names(pendings):
                return pendings, None
        except TaskFailed as error:
            failure = error
        stored = self._set.earlier(own)
        if stored is not None:
            return list(stored.pendings), stored
        raise failure or TaskFailed(
            f"attempt {self.attempt!r}: files that were closed are gone from its tree: another"
            " process aborted it",
            job_id=self.job.id,
            hint="Run the task again as another attempt",
        )

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

    # Abort ----------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Abort the attempt's uploads and delete what it saved. Repeatable; a missing attempt
        aborts well. Nobody can commit the attempt afterwards, under any handle.

        Raises:
            TaskFailed: it is committed, or may be: only the job can undo it (`may_undo`). Or it
                belongs to another process. Nothing was undone.
            StoreError, FormatError: the first of the failures; everything that may be tried was
                tried, the job's sweep goes on.
        """
        self.check_process("aborting it")
        failures: list[BaseException] = []
        there, unaccepted = settle(
            self.job, self._set, self._fence, self.phase, failures, sole=self._in_memory
        )
        if not self._may_undo(there.found):
            self._fence.must_undo()
        if not self._may_undo(there.found):
            raise TaskFailed(
                f"attempt {self.attempt!r} is committed, or may be",
                job_id=self.job.id,
                hint="Leave it out of job.commit(...), or abort the job",
            )
        self.phase = Phase.ABORTED
        for file in list(self._files.values()):
            self._trying(failures, file.stream.abort)
        pendings = [f.pending for f in self._files.values() if f.pending is not None]
        if there.stored is not None:
            pendings += there.stored.pendings
        if not self._in_memory:
            self._trying(failures, lambda: pendings.extend(self._tree.known_uploads(failures)))
        count = remove_all(
            self._runtime,
            pendings,
            failures,
            look_first=not unaccepted,
            in_flight=self._options.commit_threads,
        )
        self.statistics.add(stats.COMMITS_ABORTED, count)
        if not failures:  # else they still name what is to be aborted
            if there.found is Found.SET:
                self._set.take_back()
            if not self._in_memory:
                self._trying(failures, self._tree.remove)
        self._trying(failures, self._retried_creates.abort_if_late)
        if failures:
            raise failures[0]

    def _may_undo(self, found: Found) -> bool:
        return may_undo(
            self.phase,
            sole=self._in_memory,
            accept=self.job.terms.accept,
            found=found,
            late=late_in(self._fence),
        )

    def _abort_after(self, error: BaseException) -> None:
        """Abort because of ``error``; the abort's own failure becomes a note on it."""
        try:
            self.abort()
        except MagicError as failure:
            error.add_note(f"aborting attempt {self.attempt!r} failed too: {failure}")

    @staticmethod
    def _trying(failures: list[BaseException], step: Any) -> None:
        try:
            step()
        except MagicError as error:
            failures.append(error)


def _with_token(attributes: Attributes, mark: str) -> Attributes:
    return replace(attributes, metadata={**attributes.metadata, TOKEN_METADATA: mark})


def _abort_told(runtime: Runtime, key: str, mark: str, kept: set[str], upload_id: str) -> None:
    """Abort an upload whose `.pending` may be stored: another handle may have committed it."""
    if upload_id in kept:
        return
    remove_one(runtime, UploadRemover(runtime), UploadName(key, upload_id, mark))
