"""Pieces of a decided plan, which other processes complete: Spark's executors, for example.

One process decides, helpers complete, the one that decided looks at every file. Invariants:

* A helper completes uploads of a decided plan, and does nothing else: it moves no record, aborts
  nothing, deletes nothing. So one that runs twice, half or late is harmless: an upload is completed
  once, whoever asks for it (protocol.md, "Completing is repeatable").
* A piece names its sets by their exact versions. They are gone when the job has ended: a helper
  that begins then does nothing.
* **Nobody believes a helper.** What it says is for the log. Who decided looks for each file, and
  completes what it does not see by itself, with a look after each 200: a helper may be completing
  the same upload at that moment.
* A file is seen if the object at its key is what its upload became, by a HEAD (`became`); or if a
  listing shows an object of its size under a key that carries the job's UUID. Nobody else writes
  under such a key, and of all uploads of the job under one key only one is planned. Other keys may
  hold the same bytes since an earlier job: they need the HEAD.
* The listing ends when it has shown `LISTED_PER_FILE_MAX` objects for each file of the plan: in a
  large old destination HEADs are faster. What it has not shown is looked for by HEAD.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from magic_committer._patience import Kind, patient
from magic_committer._runtime import Runtime
from magic_committer.commit.complete import Completed, Completion, to_complete
from magic_committer.commit.load import stored_uploads
from magic_committer.commit.ready import ReadyUpload
from magic_committer.commit.steps import Start, Steps, each
from magic_committer.commit.upload_state import became
from magic_committer.errors import StoreError
from magic_committer.hadoop.paths import Destination, uuid_in_name
from magic_committer.hadoop.statistics import Statistics
from magic_committer.options import FAILING
from magic_committer.protocol.keyset import KeySet
from magic_committer.protocol.plan import PlannedSet
from magic_committer.protocol.record import StartedJob
from magic_committer.stores.base import Head

logger = logging.getLogger("magic_committer")

LISTED_PER_FILE_MAX = 10
"""Objects that are listed for each file of the plan. A page of 1,000 takes as long as a few
HEADs."""
LISTED_MIN = 10_000
"""Objects that are listed in any case: ten pages."""
HELPER_FAILED_RUN_MAX = 64
"""After this many uploads in a row that could not be completed a helper leaves the rest to the
process that decided."""

PlannedFiles = Sequence[tuple[PlannedSet, int]]
"""Sets of a plan, each with the number of its files."""
Distribute = Callable[[PlannedFiles], None]
"""Has a plan's files completed by helpers, and waits for them. It may raise: then the process that
decided completes the rest. After it has returned, or raised, helpers may still be at work."""


@dataclass(frozen=True, slots=True)
class Helpers:
    """Who completes the files of a large job.

    Attributes:
        files_min: from how many files on.
        distribute: gives the work to them.
    """

    files_min: int
    distribute: Distribute


@dataclass(frozen=True, slots=True)
class Slice:
    """Uploads of one set: from number ``first`` up to, not including, ``end``; ``whole``: all of
    them."""

    planned: PlannedSet
    first: int
    end: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """What one helper completes. Plain data."""

    slices: tuple[Slice, ...]

    @property
    def files(self) -> int:
        """The number of its files."""
        return sum(one.end - one.first for one in self.slices)


def cut(sets: PlannedFiles, files_max: int) -> list[Piece]:
    """Cut a plan's files into pieces of at most ``files_max`` files. Every file is in one piece;
    all pieces but the last are full. Pure."""
    pieces: list[Piece] = []
    slices: list[Slice] = []
    room = files_max
    for planned, files in sets:
        first = 0
        while first < files:
            end = min(files, first + room)
            slices.append(Slice(planned, first, end, whole=end - first == files))
            room -= end - first
            first = end
            if not room:
                pieces.append(Piece(tuple(slices)))
                slices, room = [], files_max
    if slices:
        pieces.append(Piece(tuple(slices)))
    return pieces


# A helper -----------------------------------------------------------------------------------------


def complete_piece(runtime: Runtime, job: StartedJob, piece: Piece, *, in_flight: int) -> int:
    """Complete the uploads of a piece, past single failures. Repeatable, also beside another helper
    and after the job's end.

    Args:
        runtime, job: the components and the job, which is decided.
        piece: what to complete.
        in_flight: how many requests at once.

    Returns:
        How many files the store says are completed: for the log.

    Raises:
        StoreError: a set could not be read.
        FormatError: a set is another version than the piece says.
    """
    done = failed_run = 0

    if_none_match, statistics = job.terms.mode in FAILING, Statistics()

    def works() -> Iterator[tuple[ReadyUpload, Start[Completed]]]:
        for upload in _uploads_of(runtime, job, piece):
            if failed_run >= HELPER_FAILED_RUN_MAX:
                return
            yield (
                upload,
                to_complete(
                    runtime, upload, statistics, if_none_match=if_none_match, distrust=False
                ),
            )

    with patient(Kind.DECIDED), closing(each(runtime, works(), in_flight=in_flight)) as completed:
        for _, (completion, _) in completed:
            is_done = completion is Completion.DONE
            done += is_done
            failed_run = 0 if is_done else failed_run + 1
    return done


def _uploads_of(runtime: Runtime, job: StartedJob, piece: Piece) -> Iterator[ReadyUpload]:
    # Whole sets are read side by side. A set that is gone: the job has ended.
    whole = [one.planned for one in piece.slices if one.whole]
    for uploads, _ in stored_uploads(runtime, job, whole, missing_is_fine=True):
        yield from uploads
    for one in piece.slices:
        if not one.whole:
            for uploads, _ in stored_uploads(runtime, job, (one.planned,), missing_is_fine=True):
                yield from uploads[one.first : one.end]


# Who decided looks --------------------------------------------------------------------------------


def not_seen(
    runtime: Runtime,
    job: StartedJob,
    uploads: Iterable[ReadyUpload],
    files: int,
    seen: Callable[[ReadyUpload], None],
    *,
    in_flight: int,
) -> Iterator[ReadyUpload]:
    """Look for the files of a plan that helpers were to complete. Only reads.

    Args:
        runtime, job: the components and the job.
        uploads: all uploads of the plan.
        files: their number.
        seen: called with each upload whose file is there.
        in_flight: how many requests at once.

    Returns:
        The uploads whose file was not seen, or could not be looked for. They may be completed at
        any moment.
    """
    listed = _listed(runtime, job, files)

    def looks() -> Iterator[tuple[ReadyUpload, Start[bool]]]:
        for upload in uploads:
            if _name_and_size(upload.key, upload.length) in listed:
                seen(upload)
            else:
                yield upload, _looking(upload)

    with closing(each(runtime, looks(), in_flight=in_flight)) as looked:
        for upload, is_there in looked:
            if is_there:
                seen(upload)
            else:
                yield upload


def _listed(runtime: Runtime, job: StartedJob, files: int) -> KeySet:
    """The job's own objects in a listing of its destination, by key and size. If the store cannot
    list, there are none."""
    found = KeySet(files)
    left = max(LISTED_MIN, LISTED_PER_FILE_MAX * files)
    try:
        for page in runtime.store.list(Destination.parse(job.dest).prefix):
            for info in page.objects:
                if uuid_in_name(info.key) == job.uuid:
                    found.add(_name_and_size(info.key, info.size))
            left -= len(page.objects)
            if left <= 0 or len(found) >= files:
                break
    except StoreError as error:
        logger.info("job %s: its files are looked for one by one: %s", job.id, error)
    return found


def _name_and_size(key: str, size: int) -> str:
    return f"{key}\0{size}"


def _looking(upload: ReadyUpload) -> Start[bool]:
    def steps() -> Steps[bool]:
        try:
            info = yield Head(upload.key)
        except StoreError:  # not there, or nobody can tell: it is completed again
            return False
        return became(upload, info)

    return lambda aborted: steps()
