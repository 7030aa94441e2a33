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

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from magic_committer._hints import ANOTHER_ATTEMPT
from magic_committer._patience import patient
from magic_committer._runtime import Runtime
from magic_committer.commit import ready
from magic_committer.commit.pendingset import StoredSet, names
from magic_committer.commit.probe import refuse_long_element
from magic_committer.committers.ends import TaskAttempt
from magic_committer.committers.magic.abort import RetriedCreates, remove_all, settle_undo
from magic_committer.committers.magic.closings import Closings
from magic_committer.committers.magic.saved import SavedFiles
from magic_committer.errors import MagicError, OptionError, TaskFailed
from magic_committer.hadoop import statistics
from magic_committer.hadoop.formats import Pending
from magic_committer.hadoop.paths import PENDING_SUFFIX, Destination
from magic_committer.options import Options
from magic_committer.protocol.record import TOKEN_METADATA, StartedJob, TaskCommit, token
from magic_committer.protocol.rules import Found, Phase
from magic_committer.stores.base import Attributes, CreatedUpload
from magic_committer.upload import (
    BlockSource,
    FileState,
    FinishedUpload,
    LocalFile,
    PendingFile,
    TaskFile,
    UploadStream,
    pending_of,
)


@dataclass(slots=True)
class _File:
    name: str
    stream: UploadStream | PendingFile
    pending: Pending | None = None
    discarded: bool = False
    """Nobody commits it any more; its upload may still be open."""

    @property
    def state(self) -> FileState:
        return self.stream.state

    def let_go(self) -> None:
        """Keep of the stream what is asked of a file that is pending: a job may have very many."""
        if isinstance(self.stream, UploadStream):
            self.stream = pending_of(self.stream)


class Attempt(TaskAttempt):
    """An attempt in the process that writes it. Its files may be written from many threads."""

    _files: dict[str, _File]
    opened_by_commit: ClassVar[bool] = False
    """Whether its uploads are opened by its commit alone, which is under way then."""

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
        super().__init__(runtime, job, replace(options, checksum=job.terms.checksum), task, attempt)
        self._dest = Destination.parse(job.dest)
        self._blocks = blocks
        self._saved = SavedFiles(
            runtime, job, self._set, self._fence, shared=shared, in_flight=options.commit_threads
        )
        self._in_memory = job.terms.track == "memory"
        may_close = partial(self._turns.check_open, awaited=self.opened_by_commit)
        self._closings = Closings(runtime, self._turns, may_close, options.buffer_bytes_max // 2)
        self._retried_creates = RetriedCreates(runtime, job, self._fence)

    def share(self) -> None:
        """Let other processes commit the attempt from now on: its files then look whether one
        has."""
        self._saved.share()
        if self._turns.discarding:  # which may have looked before: both look after they have shown
            raise self._turns.busy("changed: a file is discarded")

    # Writing --------------------------------------------------------------------------------------

    def open(self, name: str, *, unique: bool, attributes: Attributes) -> TaskFile:
        """Open a file that becomes ``D/<name>`` when the job commits. The failure of a file that
        was closed before is raised here once, with a note that names it, and nothing is opened."""
        return self._open_upload(name, unique, attributes)

    def _open_upload(self, name: str, unique: bool, attributes: Attributes) -> UploadStream:
        self.check_process("opening a file")
        self._closings.tell_failure()
        if self._saved.dead is not None:
            raise self._saved.dead
        name = self._name(name, unique)
        pending_key = self._paths.pending(self.attempt, name)  # refuses a name that is too long
        mark = token(self.job.uuid, self.attempt, self._runtime.ids()[:16])
        key = self._dest.key(name)
        saved = key if self._in_memory else pending_key
        refuse_long_element(self._runtime, saved, self._paths.directory)
        with self._turns.lock:
            self._turns.check_open(awaited=self.opened_by_commit)
            self._refuse_twice(self._files, name)
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
        """Open a local file, which is uploaded as it is when it is closed: its parts are read from
        disk, each as often as it is sent. Its upload is opened with it, so that the name is taken,
        and a commit finds what is not closed."""
        stream = self._open_upload(name, unique, attributes)

        def send(path: Path) -> None:
            stream.take_file(str(path))
            stream.close()
            with suppress(OSError):  # the directory goes with the attempt
                path.unlink()

        try:
            return self._local_file(name, stream.name, on_close=send, on_abort=stream.abort)
        except BaseException:
            stream.abort()
            raise

    def directory(self, *, unique: bool) -> Path:
        """There is none: see `Task.directory`."""
        raise OptionError(
            "a task of committer='magic' has no local directory",
            hint="Start the job with committer='directory'; or open one file:"
            " task.local_file(name)",
        )

    def _answered(self, key: str, created: CreatedUpload) -> None:
        self._fence.created()
        if created.attempts > 1:
            self._retried_creates.add(key)

    def _closed(self, name: str, pending_key: str, mark: str, finished: FinishedUpload) -> None:
        """All parts of a file are stored: save what completes it."""
        stream = self._files[name].stream
        beside = isinstance(stream, UploadStream) and stream.ends_beside
        awaited = beside or self.opened_by_commit
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
                self._saved.save(pending_key, pending)
            with self._turns.lock:
                self._turns.check_open(awaited=awaited)
                self._files[name].pending = pending
        except BaseException as error:
            self._saved.give_up(pending, error)
            raise
        self.statistics.add(statistics.COMMITS_CREATED)

    def streams(self) -> dict[str, UploadStream | PendingFile]:
        """The files that were opened here, by their names; also those that ended badly."""
        with self._turns.lock:
            return {name: file.stream for name, file in self._files.items()}

    def discard(self, name: str) -> None:
        """Take a file out of the attempt, open or closed, and abort its upload. After a StoreError
        the file is out of the attempt, or not: call it again."""
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
            count = self._remove_uploads([file.pending], failures, look_first=False)
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
            self._saved.take_out(self._paths.pending(self.attempt, file.name), pending)
        file.discarded = True

    def _remove_uploads(
        self, pendings: list[Pending], failures: list[BaseException], *, look_first: bool
    ) -> int:
        in_flight = self._options.commit_threads
        return remove_all(
            self._runtime, pendings, failures, look_first=look_first, in_flight=in_flight
        )

    # Its ends -------------------------------------------------------------------------------------

    def _save_set(self) -> TaskCommit:
        """See `TaskAttempt._save_set`: the `.pendingset`."""
        self._fence.cover_when_answered(len(self._files), self._closings.ask)
        self._closings.settle()
        self._closings.tell_failure()
        self._refuse_lost_files(self._files)  # looks first: a closed file stays closed
        for file in [file for file in self._files.values() if file.discarded]:
            self._discard(file)  # the call that discarded it has failed
        # A file that was aborted while it was closed may have its pending, and does not count.
        closed_well = [
            file.pending
            for file in self._files.values()
            if file.pending is not None and file.state is FileState.PENDING and not file.discarded
        ]
        pendings, stored = self._gather(closed_well)
        if not pendings and self._in_memory and self.job.terms.accept == "results":
            return TaskCommit(self.job.uuid, self.task, self.attempt)
        if stored is None:
            self._stop_clock(False)
            body, own = self._set.encode(pendings, self.statistics)
            self._fence.check()
            self._turns.phase = Phase.SENT
            stored = self._set.put(pendings, body, own)
        data_bytes = sum(pending.length for pending in stored.pendings)
        return self._result(stored.etag, stored.size, len(stored.pendings), data_bytes)

    def _gather(self, own: list[Pending]) -> tuple[list[Pending], StoredSet | None]:
        """Give all files of the attempt; or the stored set, if another handle has committed the
        attempt before. A file that was closed here is never left out."""
        if self._in_memory:
            return own, None
        failure: TaskFailed | None = None
        try:
            pendings = self._saved.pendings()
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

    def _tidy(self) -> None:
        if not self._in_memory:
            self._saved.remove()
        self._remove_local()

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

        def trying(step: Callable[[], object]) -> None:
            try:
                step()
            except MagicError as error:
                failures.append(error)

        for stream in written:
            trying(stream.abort)
        self._remove_local()
        pendings = [f.pending for f in self._files.values() if f.pending is not None]
        if there.stored is not None:
            pendings += there.stored.pendings
        if not self._in_memory:
            trying(lambda: pendings.extend(self._saved.known_uploads(failures)))
        count = self._remove_uploads(pendings, failures, look_first=not unaccepted)
        self.statistics.add(statistics.COMMITS_ABORTED, count)
        if not failures:  # otherwise they still name what is to be aborted
            if there.found is Found.SET:
                self._set.take_back()
            if not self._in_memory:
                trying(self._saved.remove)
        trying(self._retried_creates.abort_if_late)
        if failures:
            raise failures[0]
