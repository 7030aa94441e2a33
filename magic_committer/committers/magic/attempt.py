"""One attempt of one task: its files, its commit, its abort.

Invariants:

* An attempt makes nothing visible: it creates uploads, stores parts, and saves what is needed to
  complete them. Only the driver publishes (I9: a Spark task cannot tell the end of its input from a
  cut).
* A committed attempt has one `.pendingset`, named for the attempt and written once
  (``If-None-Match: *``). From then on only the fence's second read undoes it.
* Every end that is not a commit aborts all uploads of the attempt that this process knows. If other
  handles may share the attempt, the key of its `.pendingset` is claimed first (`pendingset`).
* An upload that may have become its object is looked at before it is aborted: on some stores the
  abort of a completed upload deletes the object (docs/stores.md).
* ``track="memory"``: the data for completing stays in this process until commit; 3 requests for a
  small file, of which two are sent beside the caller (`closings`). ``track="s3"``: each close saves
  a `.pending`, so that any process can commit the attempt by its name; 4 requests.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from magic_committer._hints import ANOTHER_ATTEMPT
from magic_committer._patience import patient
from magic_committer._runtime import Runtime
from magic_committer.commit import ready
from magic_committer.commit.fence import Fence
from magic_committer.commit.pendingset import AttemptSet, StoredSet, names, refused
from magic_committer.commit.probe import refuse_long_element
from magic_committer.committers.ends import TaskAttempt
from magic_committer.committers.magic.abort import RetriedCreates, remove_all, settle_undo
from magic_committer.committers.magic.closings import Closings
from magic_committer.committers.magic.local_files import LocalFiles
from magic_committer.committers.magic.saved import SavedFiles
from magic_committer.committers.magic.tree import AttemptTree
from magic_committer.errors import (
    MagicError,
    OptionError,
    StoreError,
    TaskFailed,
)
from magic_committer.hadoop import statistics
from magic_committer.hadoop.formats import Pending
from magic_committer.hadoop.paths import (
    PENDING_SUFFIX,
    Destination,
    JobPaths,
    check_name,
    unique_name,
)
from magic_committer.hadoop.statistics import Statistics
from magic_committer.options import Options
from magic_committer.protocol.record import TOKEN_METADATA, OwnCommit, StartedJob, TaskCommit, token
from magic_committer.protocol.rules import Found, Phase
from magic_committer.stores.base import Attributes, CreatedUpload
from magic_committer.upload import (
    BlockSource,
    FileState,
    FinishedUpload,
    LocalFile,
    PendingFile,
    UploadStream,
    pending_of,
)

logger = logging.getLogger("magic_committer")


@dataclass(slots=True)
class _File:
    name: str
    stream: UploadStream | PendingFile
    pending: Pending | None = None
    discarded: bool = False
    """Nobody commits it any more; its upload may still be open."""

    def let_go(self) -> None:
        """Keep of the stream what is asked of a file that is pending: a job may have very many."""
        if isinstance(self.stream, UploadStream):
            self.stream = pending_of(self.stream)


class Attempt(TaskAttempt):
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
        """``shared``: its files may be closed here and committed by others: each close reads the
        fence again after its `.pending` (protocol.md, "The fence")."""
        super().__init__(job, task, attempt)
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
        self._saved = SavedFiles(runtime, job, self._set, self._fence, attempt, shared=shared)
        self._in_memory = job.terms.track == "memory"
        self._files: dict[str, _File] = {}
        self._local = LocalFiles(options)
        self._closings = Closings(runtime, self._turns, options.buffer_bytes_max // 2)
        self._retried_creates = RetriedCreates(runtime, job, self._fence)
        self.statistics = Statistics()
        self._stop_clock = self.statistics.begin(statistics.TASK_ATTEMPT, runtime.clock)

    def __repr__(self) -> str:
        return (
            f"<Attempt {self.attempt!r} of task {self.task!r}, job {self.job.id!r},"
            f" {self.phase.value}, {len(self._files)} files>"
        )

    @property
    def has_files(self) -> bool:
        """Whether a file was opened in this process."""
        return bool(self._files)

    def share(self) -> None:
        """Let other processes commit the attempt from now on: its files then look whether one
        has."""
        self._saved.share()
        if self._turns.discarding:  # which may have looked before: both look after they have shown
            raise self._turns.busy("changed: a file is discarded")

    # Writing --------------------------------------------------------------------------------------

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> UploadStream:
        """Open a file that becomes ``D/<name>`` when the job commits. The failure of a file that
        was closed before is raised here once, with a note that names it, and nothing is opened."""
        self.check_process("opening a file")
        self._closings.tell_failure()
        if self._saved.dead is not None:
            raise self._saved.dead
        check_name(name, uuid=self.job.uuid)
        if unique:
            name = unique_name(name, self.job.uuid)
        pending_key = self._paths.pending(self.attempt, name)  # refuses a name that is too long
        mark = token(self.job.uuid, self.attempt, self._runtime.ids()[:16])
        key = self._dest.key(name)
        saved = key if self._in_memory else pending_key
        refuse_long_element(self._runtime, saved, self._paths.directory)
        with self._turns.lock:
            self._turns.check_open()
            self._refuse_twice(name)
            stream = UploadStream(
                self._runtime,
                key,
                attributes=replace(
                    attributes, metadata={**attributes.metadata, TOKEN_METADATA: mark}
                ),
                options=self._options,
                blocks=self._blocks,
                on_answer=lambda created: self._answered(key, created),
                before_block=self._fence.check_if_due,
                on_close=lambda finished: self._closed(name, pending_key, mark, finished),
                on_abort=self._retried_creates.abort_if_late,
                abort_told=None if self._in_memory else partial(self._saved.abort, key, mark),
                beside=self._closings if self._in_memory else None,
                statistics=self.statistics,
            )
            file = self._files[name] = _File(name, stream)
            stream.when_pending(file.let_go)
        self.statistics.add(statistics.FILES_CREATED)
        return stream

    def local_file(self, name: str, *, unique: bool, attributes: Attributes) -> LocalFile:
        """Open a local file, which is uploaded when it is closed. Arguments and errors as
        `open`."""
        return self._local.open(self.open(name, unique=unique, attributes=attributes), name)

    def directory(self, *, unique: bool) -> Path:
        """There is none: see `Task.directory`."""
        del unique
        raise OptionError(
            "a task of committer='magic' has no local directory",
            hint="Start the job with committer='directory'; or open one file:"
            " task.local_file(name)",
        )

    def send_file(
        self, path: Path, name: str, *, unique: bool, attributes: Attributes
    ) -> UploadStream:
        """Upload a local file, as `open` and a write of all its bytes. A file of up to
        `TAKEN_BESIDE_BYTES_MAX` is sent beside the caller: `settle` waits for it."""
        with self.open(name, unique=unique, attributes=attributes) as stream:
            stream.take_file(str(path), beside=True)
        return stream

    def settle(self) -> None:
        """Wait for the files that were closed and are still being sent."""
        self._closings.settle()
        self._closings.tell_failure()

    def _refuse_twice(self, name: str) -> None:
        file = self._files.get(name)
        if file is not None and file.stream.state not in (FileState.ABORTED, FileState.FAILED):
            raise self._has_already(name)

    def _answered(self, key: str, created: CreatedUpload) -> None:
        self._fence.created()
        if created.attempts > 1:
            self._retried_creates.add(key)

    def _closed(self, name: str, pending_key: str, mark: str, finished: FinishedUpload) -> None:
        """All parts of a file are stored: save what completes it."""
        stream = self._files[name].stream
        awaited = isinstance(stream, UploadStream) and stream.ends_beside
        self._turns.check_open(awaited=awaited)
        self._fence.check_if_due()
        if self._saved.shared and self.job.given_id:
            self._fence.check_if_old()
        pending = ready.to_pending(
            self.job,
            self.attempt,
            bucket=self._dest.bucket,
            uri=self._paths.uri(pending_key.removesuffix(PENDING_SUFFIX)),
            key=finished.key,
            upload_id=finished.upload_id,
            parts=finished.parts,
            length=finished.length,
            checksum=finished.checksum,
            token=mark,
            created_ms=int(self._runtime.clock.now() * 1000),
        )
        try:
            if not self._in_memory:
                self._save(pending_key, pending)
            with self._turns.lock:
                self._turns.check_open(awaited=awaited)
                self._files[name].pending = pending
        except BaseException as error:
            self._saved.give_up(pending, error)
            raise
        self.statistics.add(statistics.COMMITS_CREATED)

    def _save(self, pending_key: str, pending: Pending) -> None:
        self._saved.send(pending)
        try:
            self._tree.save(pending_key, pending)
        except StoreError as error:
            if refused(error):
                self._saved.is_free(pending)
            raise
        late = self._saved.late(pending) if self._saved.shared else None
        if late is not None:
            self._saved.is_free(pending)
            self._tree.delete([pending_key])
            raise late

    def streams(self) -> dict[str, UploadStream | PendingFile]:
        """The files that were opened here, by their names; also those that ended badly."""
        with self._turns.lock:
            return {file.name: file.stream for file in self._files.values()}

    @property
    def waiting(self) -> None:
        """See `TaskAttempt.waiting`: the files are uploads."""
        return None

    def discard(self, name: str) -> None:
        """Take a file out of the attempt, open or closed, and abort its upload. Repeatable after a
        StoreError. Afterwards the name is free. After a StoreError the file is out of the attempt,
        or not: call it again."""
        self.check_process("discarding a file")
        with patient(), self._turns.discard():
            file = self._files.get(name)
            if file is None:
                raise self._has_no(name)
            self._discard(file)

    def _discard(self, file: _File) -> None:
        """Take it out, then remove its upload: nobody may commit an upload that is gone."""
        stream = file.stream
        if isinstance(stream, UploadStream):
            stream.stop()
            stream.abort()  # does nothing to a closed file
        if file.pending is not None:
            self._take_out(file, file.pending)
            failures: list[BaseException] = []
            # This handle alone could commit the file, and has not: it has not become an object.
            count = remove_all(
                self._runtime, [file.pending], failures, look_first=False, in_flight=1
            )
            if failures:
                raise failures[0]
            self.statistics.add(statistics.COMMITS_ABORTED, count)
        with self._turns.lock:
            if self._files.get(file.name) is file:
                del self._files[file.name]

    def _take_out(self, file: _File, pending: Pending) -> None:
        if file.discarded:
            return
        if not self._in_memory:
            if self._saved.shared:
                raise TaskFailed(
                    f"attempt {self.attempt!r} may be committed by other processes, with the closed"
                    f" file {file.name!r}: it cannot be taken out",
                    job_id=self.job.id,
                    hint="Abort the attempt, and run the task again; or write the file under"
                    " another name",
                )
            self._tree.take_out(self._paths.pending(self.attempt, file.name))
            self._saved.is_free(pending)
        file.discarded = True

    # Commit ---------------------------------------------------------------------------------------

    def _commit(self, driver: bool) -> TaskCommit:
        result = TaskCommit(self.job.uuid, self.task, self.attempt)
        stored = self._store(driver)
        if stored is not None:
            result = replace(
                result,
                key=self._set.key,
                etag=stored.etag,
                pendingset_bytes=stored.size,
                files=len(stored.pendings),
                bytes=sum(pending.length for pending in stored.pendings),
            )
        self._committed(result)
        if driver and stored is not None:
            return OwnCommit(**result.to_dict(), body=stored.body)
        return result

    def _store(self, driver: bool) -> StoredSet | None:
        """Store the pendingset, read the fence, delete the tree. None: there is nothing to
        store."""
        first = self.phase is Phase.OPEN
        try:
            self._fence.cover_when_answered(len(self._files), self._closings.ask)
            self._closings.settle()
            self._closings.tell_failure()
            self._refuse_lost_files()  # looks first: a closed file stays closed
            for file in [file for file in self._files.values() if file.discarded]:
                self._discard(file)  # the call that discarded it has failed
            own = self._closed_well()
            pendings, stored = self._gather(own)
            if not pendings and self._in_memory and self.job.terms.accept == "results":
                return None
            if stored is None:
                self._stop_clock(False)
                body = self._set.encode(pendings, self.statistics)
                self._fence.check()
                self._turns.phase = Phase.SENT
                stored = self._set.put(pendings, body)
        except BaseException as error:
            if first and self._set.refused:
                self._turns.phase = Phase.OPEN
            self._abort_after(error)
            raise
        late = self._fence.must_undo() if not driver else None
        if late is not None:
            self._abort_after(late)
            raise late
        if not self._in_memory:
            self._tree.remove()
        self._local.remove()
        return stored

    def _gather(self, own: list[Pending]) -> tuple[list[Pending], StoredSet | None]:
        """Give all files of the attempt; or the stored set, if another handle has committed the
        attempt before. A file that was closed here is never left out."""
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
            hint=ANOTHER_ATTEMPT,
        )

    def _closed_well(self) -> list[Pending]:
        """The files that count. A file that was aborted while it was closed may have its pending,
        and does not."""
        return [
            file.pending
            for file in self._files.values()
            if file.pending is not None
            and file.stream.state is FileState.PENDING
            and not file.discarded
        ]

    def _states(self) -> dict[str, FileState]:
        return {name: file.stream.state for name, file in self._files.items()}

    # Abort ----------------------------------------------------------------------------------------

    def _abort(self) -> None:
        failures: list[BaseException] = []
        there, unaccepted = settle_undo(
            self.job, self._set, self._fence, self.phase, failures, sole=self._in_memory
        )
        self._turns.phase = Phase.ABORTED
        streams = [file.stream for file in list(self._files.values())]
        written = [stream for stream in streams if isinstance(stream, UploadStream)]
        for stream in written:
            stream.stop()  # all of them, before the first is waited for
        for stream in written:
            self._trying(failures, stream.abort)
        self._local.remove()
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
        self.statistics.add(statistics.COMMITS_ABORTED, count)
        if not failures:  # otherwise they still name what is to be aborted
            if there.found is Found.SET:
                self._set.take_back()
            if not self._in_memory:
                self._trying(failures, self._tree.remove)
        self._trying(failures, self._retried_creates.abort_if_late)
        if failures:
            raise failures[0]

    @staticmethod
    def _trying(failures: list[BaseException], step: Any) -> None:
        try:
            step()
        except MagicError as error:
            failures.append(error)
