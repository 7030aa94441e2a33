"""The magic committer: files are multipart uploads that the job completes (protocol.md).

An `Attempt` is one attempt of a task; `commit.driver` commits the job. `open_plain` writes a file
into the tree of a job that Hadoop's own committer commits.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from magic_committer.commit.fence import AtKey, names
from magic_committer.commit.probe import refuse_long_element
from magic_committer.commit.requests import AtOnce
from magic_committer.commit.sets import ReadyUpload, etag_of, to_pending
from magic_committer.committers.base import Committer
from magic_committer.committers.ends import Doing, TaskAttempt, Turns
from magic_committer.committers.saved import RetriedCreates, SavedFiles, remove_all
from magic_committer.errors import MagicError, OptionError, TaskFailed
from magic_committer.hadoop import statistics
from magic_committer.hadoop.documents import Pending, encode_pending, new_pending
from magic_committer.hadoop.paths import PENDING_SUFFIX, MagicPath, java_uri
from magic_committer.options import Options, Track, refuse_lost_checksums
from magic_committer.protocol.record import (
    TOKEN_METADATA,
    Found,
    Phase,
    StartedJob,
    TaskCommit,
    token,
)
from magic_committer.runtime.components import Runtime
from magic_committer.runtime.threads import Future, Handed, patient, renewed_in_children
from magic_committer.stores.base import (
    Ask,
    Attributes,
    CreatedUpload,
    Many,
    Steps,
    by_verbs,
    many_of,
)
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

# Files that are still being sent ------------------------------------------------------------------
#
# A file that ends within its first block needs two requests, Create and its part. Waiting for them
# at each `close` would make a task of 1,000 such files wait for 2,000 answers, one after the other.
#
# Only for ``track="memory"``: there nobody but this handle can commit the attempt, and its commit
# waits for all files (`settle`). A closed file of any other attempt may be committed by a process
# that only knows the attempt's name: its `close` returns when its `.pending` is stored.
#
# One thread sends all of them at once, where the store can do that
# (`magic_committer.stores.base.Many`): threads that wait for one answer each cost twice the
# processor. Where a verb takes less time than a change of threads, the caller sends them itself.
# Larger files, and those of other stores, have a thread of the pool each.
#
# Invariants:
#
# * A commit begins by waiting for every file that is here, and no file comes here while it runs
#   (`ends`). So what it stores holds every file that was closed.
# * The error of a file is raised once: by the next `open` or by the commit, whichever comes first.
# * At most `FILES_MAX` files are here, with at most half of the process's memory for blocks;
#   `close` waits for the oldest otherwise.


FILES_MAX = 128
"""Files of one attempt that are sent at once."""
SMALL_BYTES_MAX = 1024**2
"""Bytes of a file that is sent by the thread of all small files. While that thread hashes a file,
the others wait."""
LOOK_SECONDS = 0.01
"""After so long without an answer that thread looks for new files."""

_Work = tuple[Steps, Handed[None]]
"""A work that is being done, of a small file or the fence's; and what waits for its end."""


class Closings:
    """What one attempt has closed and not yet stored. Safe for the threads that close its files.
    ``may_close`` raises if the attempt accepts no more files. ``bytes_max``: bytes of memory that
    the blocks of these files may hold."""

    def __init__(
        self, runtime: Runtime, turns: Turns, may_close: Callable[[], None], bytes_max: int
    ) -> None:
        self._runtime = runtime
        self._begin()
        renewed_in_children(self, Closings._begin)
        self._turns = turns
        self._may_close = may_close
        self._bytes_max = bytes_max
        self._under_way: dict[UploadStream, int] = {}  # with the bytes of its block
        self._ended: deque[UploadStream] = deque()  # not yet forgotten
        self._failed: deque[UploadStream] = deque()

    def enter(self, stream: UploadStream) -> None:
        """Wait for room, and note a file that is about to be sent."""
        self._forget_ended()  # a library may open all its files before it closes the first
        held = stream.bytes_held
        while self._under_way and not self._has_room(held):
            self._wait_for_oldest()
        with self._turns.lock:
            self._may_close()
            self._under_way[stream] = held

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[_Work] = deque()
        self._sends = False  # a thread does, or will

    def send(self, stream: UploadStream, steps: Steps) -> Future[object]:
        """Begin to send a file."""
        many = many_of(self._runtime.store) if stream.length <= SMALL_BYTES_MAX else None
        return self._begin_work(self._noted(stream, steps), many)

    def ask(self, steps: Steps) -> Future[object]:
        """Begin another work, beside those of the files."""
        return self._begin_work(steps, many_of(self._runtime.store))

    def _begin_work(self, steps: Steps, many: Many | None) -> Future[object]:
        store, pool = self._runtime.store, self._runtime.pool
        if many is None and not getattr(store, "quick", False):
            return pool.submit(partial(by_verbs, store, steps))
        end: Handed[None] = Handed()
        if many is None:
            by_verbs(store, steps)
            end.set_result(None)
            return end
        self._new.append((steps, end))
        with self._lock:
            begins, self._sends = not self._sends, True
        if begins:
            pool.submit(partial(self._send_all, many))
        return end

    def _noted(self, stream: UploadStream, steps: Steps) -> Steps:
        try:
            yield from steps
        finally:
            self._ended.append(stream)

    def _send_all(self, many: Many) -> None:
        """Send what is there and what comes, until there is nothing. In one thread at a time."""
        going: set[Handed[None]] = set()

        def new() -> tuple[Handed[None], Generator[Ask, Any, None]] | None:
            if not self._new:
                return None
            steps, end = self._new.popleft()
            going.add(end)
            return end, _ending(end, steps)

        clock = self._runtime.clock
        try:
            while self._has_more():
                for end, _ in AtOnce(clock, many, new, FILES_MAX, LOOK_SECONDS).run():
                    going.discard(end)
        except BaseException as error:  # none of the store's: those are answers
            with self._lock:
                self._sends = False
                going.update(end for _, end in self._new)
                self._new.clear()
            for end in going:
                if not end.done():
                    end.set_exception(error)
            raise

    def _has_more(self) -> bool:
        with self._lock:
            self._sends = bool(self._new)
            return self._sends

    def settle(self) -> None:
        """Wait for all files."""
        while self._under_way:
            self._wait_for_oldest()
        self._forget_ended()

    def _forget_ended(self) -> None:
        with suppress(IndexError):  # another thread has taken the last one
            while self._ended:
                self._forget(self._ended.popleft())

    def tell_failure(self) -> None:
        """Raise the error of a file that has failed, if no call has raised it before. A note names
        the file."""
        self._forget_ended()
        while self._failed:
            try:
                stream = self._failed.popleft()
            except IndexError:  # another thread has taken it
                return
            try:
                stream.tell_failure()
            except Exception as error:
                error.add_note(f"it ended {stream.name}, which was closed before")
                raise

    def _has_room(self, held: int) -> bool:
        used = list(self._under_way.values())
        return len(used) < FILES_MAX and sum(used) + held <= self._bytes_max

    def _wait_for_oldest(self) -> None:
        """Wait for one file, and forget it when it has ended. If the wait is interrupted, it stays
        here."""
        with self._turns.lock:
            oldest = next(iter(self._under_way), None)
        if oldest is not None:  # otherwise another thread has waited for the last one
            oldest.wait()
            self._forget(oldest)

    def _forget(self, stream: UploadStream) -> None:
        with self._turns.lock:
            if self._under_way.pop(stream, None) is None:  # it was forgotten before
                return
            if stream.state is FileState.FAILED:
                self._failed.append(stream)


def _ending(end: Handed[None], steps: Steps) -> Generator[Ask, Any, None]:
    """Do a work, and say at once how it has ended."""
    try:
        yield from steps
    except GeneratorExit:  # `_send_all` says why nobody goes on with it
        raise
    except BaseException as error:
        end.set_exception(error)
    else:
        end.set_result(None)


# One attempt --------------------------------------------------------------------------------------
#
# Invariants:
#
# * An attempt makes nothing visible: it creates uploads, stores parts, and saves what is needed to
#   complete them. Only the driver publishes (I9: a Spark task cannot tell the end of its input from
#   a cut).
# * A committed attempt has one `.pendingset`, named for the attempt and written once
#   (``If-None-Match: *``). From then on only the fence's second read undoes it.
# * Every end that is not a commit aborts all uploads of the attempt that this process knows. If
#   other handles may share the attempt, the key of its `.pendingset` is claimed first
#   (`fence`).
# * An upload that may have become its object is looked at before it is aborted: on some stores the
#   abort of a completed upload deletes the object (docs/stores.md).
# * ``track="memory"``: the data for completing stays in this process until commit; 3 requests for a
#   small file, of which two are sent beside the caller (`Closings`). ``track="s3"``: each close
#   saves a `.pending`, so that any process can commit the attempt by its name; 4 requests.


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
        """Keep of the stream what a pending file needs: a job may have very many."""
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
        if options.checksum != job.terms.checksum:
            options = replace(options, checksum=job.terms.checksum)
        super().__init__(runtime, job, options, task, attempt)
        self._dest = self._paths.dest
        self._blocks = blocks
        self._saved = SavedFiles(runtime, job, self._set, shared=shared)
        self._in_memory = job.terms.track == "memory"
        may_close = partial(self._turns.check_open, awaited=self.opened_by_commit)
        self._closings = Closings(runtime, self._turns, may_close, options.buffer_bytes_max // 2)
        self._retried_creates = RetriedCreates(runtime, job, self._fence)

    def share(self) -> None:
        """Let other processes commit the attempt from now on: its files then look whether one
        has."""
        for name in self._cut:
            raise self._cut_short(name)
        self._saved.share()
        # A call that discards may have looked before: both look after they have shown themselves.
        self._turns.refuse(Doing.DISCARD)

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
        mark = token(self.job.uuid, self.attempt, self._runtime.ids()[:16])
        key = self._dest.key(name)
        saved = key if self._in_memory else self._paths.pending(self.attempt, name)
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
                on_close=lambda finished: self._closed(name, saved, mark, finished),
                on_abort=self._retried_creates.abort_if_late,
                abort_told=None if self._in_memory else partial(self._saved.abort, key, mark),
                beside=self._closings if self._in_memory else None,
                statistics=self.statistics,
            )
            stream.take_back = self._take_back
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
            with suppress(OSError):  # the attempt's end removes the directory
                path.unlink()

        try:
            file = self._local_file(name, stream.name, on_close=send, on_abort=stream.abort)
        except BaseException:
            stream.abort()
            raise
        file.take_back = lambda _: self._take_back(stream)
        return file

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

    def _closed(self, name: str, saved: str, mark: str, finished: FinishedUpload) -> None:
        """All parts of a file are stored: save what completes it."""
        stream = self._files[name].stream
        beside = isinstance(stream, UploadStream) and stream.ends_beside
        awaited = beside or self.opened_by_commit
        self._turns.check_open(awaited=awaited)
        self._fence.check_if_due()
        if self._saved.shared and self.job.given_id:
            self._fence.check_if_old()
        upload = ReadyUpload(
            finished.key, finished.upload_id, mark, "", finished.parts, finished.length,
            finished.checksum,
        )  # fmt: skip
        pending = to_pending(
            self.job,
            self.attempt,
            upload,
            bucket=self._dest.bucket,
            uri=self._paths.uri(f"{self._paths.base(self.attempt)}{name}"),
            created_ms=int(self._runtime.clock.now() * 1000),
        )
        try:
            if not self._in_memory:
                self._saved.save(saved, pending)
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
        with patient(), self._turns.take(Doing.DISCARD):
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
            self._remove(file.pending)
        with self._turns.lock:
            self._cut.discard(file.name)
            if self._files.get(file.name) is file:
                del self._files[file.name]

    def _remove(self, pending: Pending) -> None:
        """Abort the upload of a file that nobody can commit, so that it has not become an
        object."""
        failures: list[BaseException] = []
        count = remove_all(self._runtime, [pending], failures, look_first=False)
        if failures:
            raise failures[0]
        self.statistics.add(statistics.COMMITS_ABORTED, count)

    def _name_of(self, file: TaskFile) -> str | None:
        assert isinstance(file, UploadStream)
        for name, one in self._files.items():
            if one.pending is not None and one.pending.upload_id == file.upload_id:
                return name
        return None

    def _drop_closed(self, name: str) -> None:
        pending = self._files[name].pending
        if pending is None or not self._saved.shared:
            self.discard(name)
            return
        # Others may commit it: nobody may commit the attempt from now on.
        error = self._cut_short(name)
        self._saved.give_up(pending, error)
        if self._saved.dead is None:
            raise error
        self._saved.take_out(self._paths.pending(self.attempt, name), pending)
        self._remove(pending)

    def _take_out(self, file: _File, pending: Pending) -> None:
        if file.discarded:
            return
        if not self._in_memory:
            if self._saved.shared:
                raise self._set.failed(
                    f" may be committed by other processes, with the closed"
                    f" file {file.name!r}: it cannot be taken out",
                    "Abort the attempt, and run the task again; or write the file under"
                    " another name",
                )
            self._saved.take_out(self._paths.pending(self.attempt, file.name), pending)
        file.discarded = True

    # Its ends -------------------------------------------------------------------------------------

    def _save_set(self) -> TaskCommit:
        """See `TaskAttempt._save_set`: the `.pendingset`."""
        self._fence.cover_when_answered(len(self._files), self._closings.ask)
        self._closings.settle()
        self._closings.tell_failure()
        if self._saved.dead is not None:
            raise self._saved.dead
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
            self._stop_clock()
            content, body = self._set.encode(pendings, self.statistics)
            self._fence.check()
            self._turns.phase = Phase.SENT
            stored = self._set.put(content, body)
        data_bytes = sum(pending.length for pending in stored.pendings)
        return self._result(stored.etag, stored.size, len(stored.pendings), data_bytes)

    def _gather(self, own: list[Pending]) -> tuple[list[Pending], AtKey | None]:
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
        raise failure or self._set.failed(
            ": files that were closed are gone from its tree: another process aborted it"
        )

    def _tidy(self) -> None:
        if not self._in_memory:
            self._saved.remove()
        self._remove_local()

    def _abort(self) -> None:
        failures: list[BaseException] = []
        there, unaccepted = self._set.settle_undo(self.phase, failures, sole=self._in_memory)
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
        pendings += there.pendings
        if not self._in_memory:
            trying(lambda: pendings.extend(self._saved.known_uploads(failures)))
        count = remove_all(self._runtime, pendings, failures, look_first=not unaccepted)
        self.statistics.add(statistics.COMMITS_ABORTED, count)
        if not failures:  # otherwise they still name what is to be aborted
            if there.found is Found.SET:
                self._set.take_back()
            if not self._in_memory:
                trying(self._saved.remove)
        trying(self._retried_creates.abort_if_late)
        if failures:
            raise failures[0]


# The committer ------------------------------------------------------------------------------------


class MagicCommitter(Committer[Attempt]):
    """One started job in one process, whose attempts send their files while they are written."""

    name: ClassVar[str] = "magic"
    attempts = Attempt
    tracks: ClassVar[tuple[Track, ...]] = ("s3", "memory")


# A file by its magic path -------------------------------------------------------------------------
#
# In plain Hadoop shape: no record, no token, no fence. S3A's guarantees, no more.
# For programs that write into the tree of a job that Hadoop's own committer commits. The upload is
# started on the final key, and its close saves a marker and a `.pending` as S3A's stream does. The
# process that commits that job completes the upload.


logger = logging.getLogger("magic_committer")

MARKER_LENGTH_METADATA = "x-hadoop-s3a-magic-data-length"
"""Hadoop's name: the length of the final object, on the zero-byte marker under the magic path
(3.1+)."""


def open_plain(
    runtime: Runtime,
    path: MagicPath,
    options: Options,
    blocks: BlockSource,
    attributes: Attributes,
) -> UploadStream:
    """Open a magic path of any legal form. Closing the file saves a `.pending` in Hadoop's
    shape."""
    refuse_lost_checksums(options.etag_form, options.checksum, hadoop_commits=True)
    refuse_long_element(runtime, path.key + PENDING_SUFFIX, "")
    logger.warning(
        "%s is written without a fence: it has S3A's guarantees, and is for Hadoop's committer",
        path.key,
    )
    bucket = runtime.store.bucket

    def closed(finished: FinishedUpload) -> None:
        pending = new_pending(
            uri=java_uri(bucket, path.key),
            upload_id=finished.upload_id,
            bucket=bucket,
            destination_key=finished.key,
            created_ms=int(runtime.clock.now() * 1000),
            etags=tuple(map(etag_of, finished.parts)),
            length=finished.length,
            extra_data={},
        )
        length = {MARKER_LENGTH_METADATA: str(finished.length)}
        runtime.store.put(path.key, b"", metadata=length)
        runtime.store.put(path.key + PENDING_SUFFIX, encode_pending(pending, options.etag_form))

    return UploadStream(
        runtime,
        path.final_key,
        attributes=attributes,
        options=options,
        blocks=blocks,
        on_close=closed,
    )
