"""One multipart upload in progress: its Create, its parts in flight, its abort, and its last exit.

It is separate from the file object that drives it, so that it can outlive a dropped file: the
upload of such a file must still be aborted, and the finalizer of the file may not do I/O. Nothing
here refers to that file or to its owner's callbacks (except ``on_answer``, until Create is
answered).

Invariants:

* A function in the pool never waits for another one: code that hands over a part already has the
  answer to Create, and the end of a small file is one work (`end_beside`).
* A failure in a pool's thread is noted in `PartSender` and raised in the caller's thread.
* An abort is sent only when nothing of the upload is in flight from here, because parts in flight
  outlive an abort (S3 API). After Ctrl-C, and at exit, what is in flight is broken off after a
  grace time.
* Every sender is in ``_unsettled`` from before its Create is handed to the pool until its upload is
  pending or aborted. At the end of the interpreter the remaining ones are aborted in the main
  thread. It waits for what is in flight as long as its patience lasts (`threads.ending`), and
  hears Ctrl-C.
* A forked child sends, aborts and publishes nothing of its parent's uploads.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from traceback import clear_frames
from typing import Any, TypeVar

from magic_committer.errors import NotFound, PreconditionFailed, Unanswered, UploadFailed
from magic_committer.errors.messages import SOURCE_CHANGED
from magic_committer.hadoop.statistics import BYTES_UPLOADED, PUT_PART, Statistics
from magic_committer.options import Options
from magic_committer.runtime.components import Runtime, SystemClock
from magic_committer.runtime.threads import (
    GRACE_SECONDS,
    LEAVE_SECONDS,
    LOOK_SECONDS,
    Errand,
    Future,
    ending,
    hurried,
)
from magic_committer.stores.base import (
    Ask,
    Attributes,
    Checksum,
    CreatedUpload,
    CreateUpload,
    Part,
    PutPart,
    Steps,
    by_verbs,
)
from magic_committer.stores.urls import url_of
from magic_committer.upload.blocks import ObjectBlock, PartSource
from magic_committer.upload.file import FileState

PARTS_UPLOADED = "stream_write_block_uploads"
"""Hadoop's name (StreamStatisticNames) for the count of stored parts."""

FAST_PART_SECONDS = 0.012
"""A part that is stored faster than this came as fast as bytes are copied: two in flight hide each
other's answers, and a third would only take memory, and the writer's core."""
FAST_PARTS_IN_FLIGHT = 2

EXIT_SECONDS = 10.0
"""Seconds that the end of the interpreter waits for what is in flight of all open files. After that
it is broken off, and the uploads are aborted as long as the store answers."""

R = TypeVar("R")

_log = logging.getLogger("magic_committer")

MOVES: dict[FileState, frozenset[FileState]] = {
    FileState.OPEN: frozenset({FileState.CLOSING, FileState.FAILED, FileState.ABORTED}),
    FileState.CLOSING: frozenset({FileState.PENDING, FileState.FAILED, FileState.ABORTED}),
    FileState.PENDING: frozenset(),
    FileState.FAILED: frozenset(),
    FileState.ABORTED: frozenset(),
}
"""From which state to which. The last three are ends, and only ``PENDING`` leads to publication."""


class PartSender:
    """Sends one file's upload through the pool. Driven by one thread at a time.

    Attributes:
        url: the URL of the final object, for people.
        pid: the process that opened the file.
        failure: what of it is known to have failed, and its error; `check` raises it.
        stopped: somebody is aborting it: what runs in the pool goes no further, and leaves the rest
            to who does.
    """

    def __init__(
        self,
        runtime: Runtime,
        key: str,
        attributes: Attributes,
        options: Options,
        on_answer: Callable[[CreatedUpload], None],
        abort_told: Callable[[str], None] | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        self.key = key
        self.url = url_of(runtime.store.bucket, key)
        self.state = FileState.OPEN
        self.told = False  # others may know the upload: `abort_told` aborts it
        self._abort_told = abort_told
        self._runtime = runtime
        self._checksum = options.checksum_algorithm
        self._has_its_choice = options.checksum == "auto"
        self._statistics = statistics if statistics is not None else Statistics()
        self.pid = os.getpid()
        self._parts_in_flight = options.parts_in_flight
        self._part_seconds = FAST_PART_SECONDS  # how long the last part took
        self._created: CreatedUpload | None = None
        self.failure: tuple[str, Exception] | None = None
        self.stopped = False
        self._attributes = attributes
        self._creating = False
        self._halted = False
        self._leave_at: float | None = None  # of many that were stopped together
        self._on_answer: Callable[[CreatedUpload], None] = on_answer
        self._create: Future[None] | None = None
        self._end: Future[object] | None = None
        self._flying: deque[Future[tuple[Part, Checksum | None] | None]] = deque()
        self._errand = Errand()

    def begin(self) -> None:
        """Hand Create to the pool, if that was not done. Does not wait."""
        if self._create is None:
            with self._handing_over():
                self._create = self._submit(self.creating())

    def end_beside(self, send: Callable[[Steps], Future[object]], steps: Steps) -> None:
        """Hand the whole rest of the file over, as one work that uses `creating` and `sending`.
        Before it has ended, nobody but `abort` may be called from elsewhere."""
        with self._handing_over(), self._errand.here():
            self._end = send(steps)

    @contextmanager
    def _handing_over(self) -> Iterator[None]:
        """Hand the first work of the file to the pool. After an error the pool took nothing; or it
        did, and a signal handler has raised before it could say so: then nobody waits for it, and
        the first to see the other aborts the upload."""
        _unsettled.add(self)
        try:
            yield
        except BaseException:
            self.stopped = True
            _unsettled.discard(self)
            if self._created is not None:
                self.abort_here()
            raise

    @property
    def begun(self) -> bool:
        """Whether anything of it was handed to the pool."""
        return self._create is not None or self._end is not None

    def await_end(self) -> None:
        """Wait for the work of `end_beside`."""
        if self._end is not None:
            self._end.result()

    @property
    def in_flight(self) -> int:
        """Parts handed to the pool and not yet collected."""
        return len(self._flying)

    @property
    def in_flight_max(self) -> int:
        """How many parts may be in flight now."""
        if self._part_seconds < FAST_PART_SECONDS:
            return min(FAST_PARTS_IN_FLIGHT, self._parts_in_flight)
        return self._parts_in_flight

    def move(self, to: FileState) -> None:
        """Change to state ``to``. Raises ValueError if `MOVES` does not allow it."""
        if to not in MOVES[self.state]:
            raise ValueError(f"{self.url} is {self.state}: it cannot become {to}")
        self.state = to

    def fail(self, what: str, error: Exception) -> None:
        """Note that this has failed, unless something has before: `check` raises it."""
        if self.failure is None:
            self.failure = (what, error)

    def check(self) -> None:
        """Raise UploadFailed if the Create, a part or a write is known to have failed."""
        if self.failure is not None:
            what, error = self.failure
            raise UploadFailed(f"{what} of {self.url} failed: {error}") from error

    def created(self) -> CreatedUpload:
        """Send Create, if that was not done, wait for the answer and give it."""
        if not self._creating:
            self.begin()
        if self._create is not None:
            self._create.result()
        self.check()
        assert self._created is not None
        return self._created

    def send(self, number: int, block: PartSource) -> None:
        """Hand a part to the pool, which releases the block when it is done."""
        upload_id = self.created().upload_id
        self._flying.append(self._submit(self.sending(number, block, upload_id)))

    def _submit(self, steps: Generator[Ask, Any, R]) -> Future[R]:
        runtime = self._runtime
        return runtime.pool.submit(lambda: by_verbs(runtime.store, steps), self._errand)

    def collect(self, *, in_flight_max: int) -> list[tuple[Part, Checksum | None]]:
        """Give the oldest stored parts, each with the checksum that was sent. Waits until at most
        ``in_flight_max`` parts are in flight."""
        collected = []
        while self._flying and (self.in_flight > in_flight_max or self._flying[0].done()):
            answer = self._flying[0].result()
            self._flying.popleft()
            if answer is None:
                break
            collected.append(answer)
        self.check()
        return collected

    def finish(self) -> None:
        """Note that the file is pending: from now on the upload belongs to its attempt."""
        self.move(FileState.PENDING)
        _unsettled.discard(self)

    def abort(self) -> None:
        """Wait for what is in flight, then abort the upload. Repeatable, also after an error. After
        Ctrl-C what is in flight is broken off if it is not answered at once. Raises StoreError: the
        store did not accept the abort. It was logged."""
        if self not in _unsettled:
            return
        self.halt()
        if self in _unsettled:  # or its own end in the pool has aborted it
            self.abort_here()

    def halt(self) -> None:
        """Let nothing more of it be sent, and wait for what is in flight, as `abort` does."""
        self.stop()
        if self._halted:
            return
        if hurried():
            self._break_off(GRACE_SECONDS)
        else:
            self._await_all()
        self._halted = True

    def _await_all(self, until: float | None = None) -> None:
        while self._flying:
            self._wait(self._flying[0], until)
            self._flying.popleft()
        self._wait(self._create, until)
        self._wait(self._end, until)

    def _wait(self, future: Future[object] | None, until: float | None) -> None:
        """Wait until the future has ended, well or not, or for the time. The function itself notes
        its error. Raises BaseException: the wait was interrupted. The next call continues it."""
        if future is None:
            return
        while not future.wait(
            LOOK_SECONDS if until is None else max(0.0, until - self._runtime.clock.monotonic())
        ):
            if until is not None:
                return
        error = future.exception()
        if error is not None:
            _log.warning("what was in flight ended by %r", error)

    def stop(self) -> None:
        """Let nothing more of it be sent. Does not wait; `abort` must follow. After Ctrl-C what is
        in flight ends within `GRACE_SECONDS`."""
        self.stopped = True
        if hurried() and self._leave_at is None:
            self._errand.end(GRACE_SECONDS)
            self._leave_at = self._runtime.clock.monotonic() + GRACE_SECONDS + LEAVE_SECONDS

    def _break_off(self, seconds: float) -> None:
        """Break off what is in flight, after this many seconds and a little more."""
        self._errand.end(seconds)
        ends = self._runtime.clock.monotonic() + seconds + LEAVE_SECONDS
        self._await_all(ends if self._leave_at is None else min(ends, self._leave_at))
        unheard = self.failure is None or isinstance(self.failure[1], Unanswered)
        if self._created is None and self._creating and unheard:
            _log.warning("the Create of %s was not answered: it may leave an upload", self.url)

    def abort_at_exit(self, seconds: float) -> None:
        """Abort at the end of the interpreter. Errors are logged."""
        if self.pid != os.getpid() or self.state is FileState.PENDING:  # just after `finish`
            return
        if self.state in (FileState.OPEN, FileState.CLOSING):
            _log.warning("%s was %s when the interpreter ended: aborted", self.url, self.state)
            self.state = FileState.ABORTED
        self.stopped = True
        self._break_off(seconds)
        with suppress(Exception):  # logged at its origin; there is nobody left to raise it to
            self.abort_here()

    def copies(self) -> None:
        """Hear, before the Create, that the store copies all parts: then it has a checksum only if
        the options name one. No byte is seen here, and MinIO copies none into an upload that has
        one."""
        if self._has_its_choice and not self.begun:
            self._checksum = None

    def creating(self) -> Steps:
        """Create the upload; a failure is noted (`check`)."""
        self._creating = True
        on_answer, self._on_answer = self._on_answer, _forget
        try:
            self._created = yield CreateUpload(
                self.key, self._attributes, self._checksum, self._errand
            )
            if self.stopped and not self.begun:
                self.abort_here()  # see `_handing_over`
            on_answer(self._created)
        except Exception as error:
            self.fail("the Create", error)

    def sending(
        self, number: int, block: PartSource, upload_id: str
    ) -> Generator[Ask, Any, tuple[Part, Checksum | None] | None]:
        """Send a part and release the block. Gives None if it failed, which is noted (`check`), or
        the file is `stopped`."""
        try:
            # A frame of its own for the views of the block: none is left when it is released.
            return None if self.stopped else (yield from self._put_body(number, block, upload_id))
        except Exception as error:
            clear_frames(error.__traceback__)  # it is kept, and they hold the body
            if isinstance(block, ObjectBlock) and isinstance(error, NotFound | PreconditionFailed):
                error.advice = SOURCE_CHANGED if error.code != "NoSuchUpload" else error.advice
            self.fail(f"part {number}{block.of if isinstance(block, ObjectBlock) else ''}", error)
            return None
        finally:
            block.release()

    def _put_body(
        self, number: int, block: PartSource, upload_id: str
    ) -> Generator[Ask, Any, tuple[Part, Checksum | None]]:
        checksum = block.checksum(self._checksum) if self._checksum else None
        clock = self._runtime.clock
        began = clock.monotonic()
        with self._statistics.timed(PUT_PART, clock):
            part: Part = yield PutPart(
                self.key, upload_id, number, block.body(), checksum, self._errand
            )
        self._part_seconds = clock.monotonic() - began
        if isinstance(block, ObjectBlock):
            block.check(part)
            checksum = part.checksum if self._checksum else None  # the store's own
        self._statistics.add(BYTES_UPLOADED, part.size)
        self._statistics.add(PARTS_UPLOADED)
        return part, checksum

    def abort_here(self) -> None:
        """`abort`, by who knows that nothing else is in flight."""
        if self._created is not None:
            upload_id = self._created.upload_id
            try:
                if self.told and self._abort_told is not None:
                    self._abort_told(upload_id)
                else:
                    self._runtime.store.abort_upload(self.key, upload_id)
            except Exception as error:
                _log.warning("upload %s of %s could not be aborted: %s", upload_id, self.url, error)
                raise
        _unsettled.discard(self)


_unsettled: set[PartSender] = set()


@atexit.register
def _abort_what_is_open() -> None:
    with ending():
        seconds = GRACE_SECONDS if hurried() else EXIT_SECONDS
        ends = SystemClock().monotonic() + seconds
        open_ones = tuple(_unsettled)
        for sender in open_ones:
            sender.stopped = True  # all of them, before the first is waited for
        for sender in open_ones:
            sender.abort_at_exit(max(0.0, ends - SystemClock().monotonic()))


def _forget(created: CreatedUpload) -> None:
    """Stands for ``on_answer`` once that was called: nothing is kept of its owner."""
