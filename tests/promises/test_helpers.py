"""Helpers complete the files of a large job: what they do, and what nobody believes them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import pytest

import magic_committer as mc
from magic_committer.commit import pieces
from magic_committer.commit.pieces import Distribute, Piece, PlannedFiles, cut
from magic_committer.protocol.plan import PlannedSet
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import DEST, At, control, failing, visible

DISTRIBUTED = mc.Options(distribute_files_min=1)


class Crash(BaseException):
    """The driver is gone."""


def started(options: mc.Options = DISTRIBUTED, mode: mc.Mode = "append") -> mc.Job:
    """A job of which a driver gets the results."""
    return mc.start(DEST, accept="results", track="memory", options=options, mode=mode)


def written(
    job: mc.Job, *, unique: bool = True, tasks: int = 2, files: int = 3
) -> list[TaskCommit]:
    """Tasks that have written files."""
    results = []
    for number in range(tasks):
        with job.task(number) as task:
            for name in range(files):
                with task.open(f"{number}-{name}.csv", "w", unique=unique) as file:
                    file.write(f"{number} {name}")
        results.append(task.result)
    return results


BODIES = sorted(f"{number} {name}".encode() for number in range(2) for name in range(3))


def help_by(job: mc.Job, files_max: int = 2, times: int = 1) -> Distribute:
    """Helpers that complete every piece, as often as ``times`` says; each has its own copy of the
    job, which has travelled."""

    def distribute(sets: PlannedFiles) -> None:
        for piece in cut(sets, files_max) * times:
            helped(job, piece)

    return distribute


def helped(job: mc.Job, piece: Piece) -> int:
    """What a helper in another process does."""
    copy: mc.Job = pickle.loads(pickle.dumps(job))
    return copy._complete_piece(pickle.loads(pickle.dumps(piece)))


def nobody(sets: PlannedFiles) -> None:
    """Helpers that say that they have done it, and have not."""


@pytest.fixture
def sent(s3: MemoryStore) -> list[Request]:
    """All requests that the store has answered."""
    requests: list[Request] = []
    s3.after = lambda request, reply: requests.append(request)
    return requests


def completes(sent: Iterable[Request]) -> int:
    """How many Completes there are among requests."""
    return sum(request.verb == "complete_upload" for request in sent)


def looks(sent: Iterable[Request]) -> int:
    """How many HEADs of data."""
    return sum(request.verb == "head" and request.key.endswith(".csv") for request in sent)


def test_helpers_complete_and_the_driver_looks_by_listing(
    s3: MemoryStore, sent: list[Request]
) -> None:
    """Every file is completed by a helper, once; the driver sees all of them in one listing."""
    job = started()
    results = written(job)
    asked: list[int] = []

    def distribute(sets: PlannedFiles) -> None:
        help_by(job)(sets)
        asked.append(completes(sent))
        sent.clear()

    report = job._commit(results, 2, distribute=distribute)
    assert asked == [6]
    assert (completes(sent), looks(sent)) == (0, 0)
    assert (report.outcome, report.files, report.warnings) == ("committed", 6, ())
    assert sorted(visible(s3).values()) == BODIES
    assert control(s3) == []
    assert not s3.open_uploads()


def test_helpers_are_not_believed(s3: MemoryStore) -> None:
    """I2: helpers that say that all is done, and have done nothing, lose no file."""
    job = started()
    report = job._commit(written(job), 2, distribute=nobody)
    assert report.outcome == "committed"
    assert sorted(visible(s3).values()) == BODIES
    assert not s3.open_uploads()


def test_what_half_a_helper_leaves_the_driver_completes(
    s3: MemoryStore, sent: list[Request]
) -> None:
    """I2: helpers that complete some files and then fail leave the rest to the driver, and the
    report says so."""
    job = started()
    results = written(job)

    def distribute(sets: PlannedFiles) -> None:
        helped(job, cut(sets, 4)[0])
        sent.clear()
        raise RuntimeError("no executors left")

    report = job._commit(results, 2, distribute=distribute)
    assert completes(sent) == 2
    assert sorted(visible(s3).values()) == BODIES
    [warning] = report.warnings
    assert "RuntimeError: no executors left" in warning
    assert report.outcome == "committed"


def test_the_same_bytes_of_an_earlier_job_are_not_taken_for_ours(s3: MemoryStore) -> None:
    """I4: where names do not carry the job's UUID, an object of the same name, size and bytes may
    be older than the job: the driver looks who wrote it, and completes its own upload."""
    first = started()
    first.commit(written(first, unique=False))
    again = started()
    report = again._commit(written(again, unique=False), 2, distribute=nobody)
    assert report.outcome == "committed"
    assert not s3.open_uploads()
    tokens = {s3.head(key).metadata["magic-committer-token"] for key in visible(s3)}  # type: ignore[index]
    assert all(token.startswith(f"{again.uuid}.") for token in tokens)


def test_the_driver_sees_plain_names_by_a_head_each(s3: MemoryStore, sent: list[Request]) -> None:
    """Names without the job's UUID cost the driver one HEAD each, and no second Complete."""
    job = started()
    results = written(job, unique=False)

    def distribute(sets: PlannedFiles) -> None:
        help_by(job)(sets)
        sent.clear()

    job._commit(results, 2, distribute=distribute)
    assert (completes(sent), looks(sent)) == (0, 6)


def test_a_large_destination_is_not_listed_to_its_end(
    s3: MemoryStore, sent: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among many objects of others the listing is given up, and the files are found one by one."""
    monkeypatch.setattr(pieces, "LISTED_MIN", 1)
    monkeypatch.setattr(pieces, "LISTED_PER_FILE_MAX", 1)
    for number in range(1500):
        s3.put(f"t/-{number:04d}.old", b"")
    job = started()
    results = written(job)

    def distribute(sets: PlannedFiles) -> None:
        help_by(job)(sets)
        sent.clear()

    assert job._commit(results, 2, distribute=distribute).outcome == "committed"
    assert sum((r.verb, r.key) == ("list", "t/") for r in sent) == 1
    assert (completes(sent), looks(sent)) == (0, 6)


@pytest.mark.parametrize("times", [2, 3])
def test_helpers_may_run_twice(s3: MemoryStore, times: int) -> None:
    """I2: twins of every helper change nothing."""
    job = started()
    report = job._commit(written(job), 2, distribute=help_by(job, times=times))
    assert (report.outcome, report.warnings) == ("committed", ())
    assert sorted(visible(s3).values()) == BODIES


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_helper_that_wakes_after_the_jobs_end_does_nothing(
    s3: MemoryStore, sent: list[Request], mode: mc.Mode
) -> None:
    """I6: a late helper finds no pendingset: it sends no Complete, and what others have written
    since stays."""
    job = started(mode=mode)
    late: list[Piece] = []
    job._commit(written(job), 2, distribute=lambda sets: late.extend(cut(sets, 4)))
    for key in visible(s3):
        s3.put(key, b"theirs")
    sent.clear()
    assert [helped(job, piece) for piece in late] == [0, 0]
    assert completes(sent) == 0
    assert set(visible(s3).values()) == {b"theirs"}


def test_a_helper_that_has_read_its_piece_completes_nothing_after_an_abort(s3: MemoryStore) -> None:
    """I3: a helper that is paused before its Completes, while an operator undoes the job, makes
    nothing visible."""
    job = started()
    results = written(job)

    def distribute(sets: PlannedFiles) -> None:
        [piece] = cut(sets, 10)
        At(s3, lambda r: r.verb == "complete_upload", lambda: revert(job))
        helped(job, piece)
        raise Crash

    def revert(job: mc.Job) -> None:
        mc.abort(DEST, job.id, revert=True)

    with pytest.raises(Crash):
        job._commit(results, 2, distribute=distribute)
    assert visible(s3) == {}
    assert not s3.open_uploads()


def test_a_driver_that_dies_while_helpers_work_is_recovered(s3: MemoryStore) -> None:
    """I5: the job is decided before a helper is asked: whoever recovers it finishes it, alone."""
    job = started()
    results = written(job)

    def distribute(sets: PlannedFiles) -> None:
        helped(job, cut(sets, 4)[0])
        raise Crash

    with pytest.raises(Crash):
        job._commit(results, 2, distribute=distribute)
    assert mc.attach(DEST, job.id).commit().outcome == "committed"
    assert sorted(visible(s3).values()) == BODIES
    assert not s3.open_uploads()


def test_a_second_try_of_the_driver_does_without_helpers(s3: MemoryStore) -> None:
    """After `CommitIncomplete` the driver finishes its job by the stored plan, and asks nobody."""
    job = started()
    results = written(job)
    asked: list[int] = []

    def distribute(sets: PlannedFiles) -> None:
        asked.append(len(sets))
        failing(s3, "put", f"t/__magic_job-{job.id}/_job.json", mc.StoreError("down"))

    with pytest.raises(mc.CommitIncomplete):
        job._commit(results, 2, distribute=distribute)
    s3.before = None
    assert job._commit(results, 2, distribute=distribute).outcome == "committed"
    assert asked == [2]


@pytest.mark.parametrize(("files_min", "asks"), [(6, True), (7, False), (None, False)])
def test_only_large_jobs_have_helpers(s3: MemoryStore, files_min: int | None, asks: bool) -> None:
    """`Options.distribute_files_min` says from how many files on; None: never."""
    job = started(mc.Options(distribute_files_min=files_min))
    asked: list[int] = []
    job._commit(
        written(job), 2, distribute=lambda sets: asked.append(sum(files for _, files in sets))
    )
    assert asked == ([6] if asks else [])
    assert sorted(visible(s3).values()) == BODIES


def test_helpers_of_a_job_of_mode_fail_overwrite_nothing(s3: MemoryStore) -> None:
    """I2: a helper completes under the job's own condition: where a foreign object is, it stays,
    and the driver takes the job back."""
    job = started(mode="fail")
    results = written(job, unique=False)

    def distribute(sets: PlannedFiles) -> None:
        s3.put("t/0-0.csv", b"theirs")
        help_by(job)(sets)

    with pytest.raises(mc.DestinationExists):
        job._commit(results, 2, distribute=distribute)
    assert visible(s3) == {"t/0-0.csv": b"theirs"}


@pytest.fixture
def sets() -> PlannedFiles:
    """Sets of a plan, some of them empty, some large."""
    return [(PlannedSet(f"{n}.pendingset", "e", str(n), "a"), n * n % 23) for n in range(12)]


@pytest.mark.parametrize("files_max", [1, 2, 5, 22, 23, 1000])
def test_every_file_is_in_one_piece(sets: PlannedFiles, files_max: int) -> None:
    """`cut` loses no file, gives none twice, and makes no piece too large or empty."""
    made = cut(sets, files_max)
    assert [
        (one.planned, number)
        for piece in made
        for one in piece.slices
        for number in range(one.first, one.end)
    ] == [(planned, number) for planned, files in sets for number in range(files)]
    assert all(0 < piece.files <= files_max for piece in made)
    assert all(piece.files == files_max for piece in made[:-1])
    told = dict(sets)
    for piece in made:
        for one in piece.slices:
            assert one.whole == (one.end - one.first == told[one.planned])
