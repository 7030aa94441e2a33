"""`Task.discard`: one file leaves its task, its upload is aborted, or what
waits is removed, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.options import Track
from magic_committer.stores.memory import MemoryStore, Request
from tests.destinations import DISKS, There, opened
from tests.promises.hands import DEST, raising, visible

TRACKS: tuple[Track, ...] = ("memory", "s3")


@dataclass
class Tracked:
    """Starts jobs at a destination, with each track that it has."""

    there: There
    track: Track

    def __call__(self) -> mc.Job:
        return self.there.start(track=self.track)


TRACKED = [*(("s3", track) for track in TRACKS), *((kind, "memory") for kind in DISKS)]


@pytest.fixture(params=TRACKED, ids="-".join)
def tracked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tracked]:
    """Each kind of destination, with each of its tracks."""
    kind, track = request.param
    for there in opened(kind, tmp_path):
        yield Tracked(there, track)


def written(task: mc.Task, *names: str, unique: bool = False) -> None:
    """Write small files."""
    for name in names:
        with task.open(name, unique=unique) as file:
            file.write(name.encode())


def test_a_closed_file_leaves_its_task(tracked: Tracked) -> None:
    """The others are published; of the discarded one no object and no upload is left."""
    job = tracked()
    with job.task(1) as task:
        written(task, "a", "b")
        task.discard("a")
        assert len(tracked.there.left()) <= 1
    assert job.commit([task.result]).files == 1
    assert tracked.there.data() == {"b": b"b"}
    assert tracked.there.left() == []


def test_an_open_file_leaves_its_task(tracked: Tracked) -> None:
    """A file that is still being written is aborted, and the commit does not wait for its close."""
    job = tracked()
    with job.task(1) as task:
        written(task, "b")
        task.open("a").write(b"1")
        task.discard("a")
    job.commit([task.result])
    assert tracked.there.data() == {"b": b"b"}
    assert tracked.there.left() == []


def test_the_name_is_free_afterwards(tracked: Tracked) -> None:
    """A discarded file can be written again, and the second one is published."""
    job = tracked()
    with job.task(1) as task:
        written(task, "a")
        task.discard("a")
        with task.open("a") as file:
            file.write(b"second")
    job.commit([task.result])
    assert tracked.there.data() == {"a": b"second"}
    assert tracked.there.left() == []


def test_a_unique_name_is_discarded_as_it_was_opened(there: There) -> None:
    """With ``unique=True`` the plain name is enough."""
    job = there.start()
    with job.task(1) as task:
        written(task, "a.csv", unique=True)
        task.discard("a.csv", unique=True)
    assert task.result.files == 0
    job.abort()
    assert there.left() == []


def test_an_unknown_name_is_refused(there: There) -> None:
    """The error repeats the name."""
    with there.write() as job, pytest.raises(mc.PathError, match="no file 'x'"):
        job.discard("x")


def test_a_file_that_others_may_commit_stays(s3: MemoryStore) -> None:
    """Another handle of a named attempt may have committed it: its upload is not aborted."""
    job = mc.start(DEST, track="s3")
    task = job.task(1, attempt="a_0")
    written(task, "a")
    with pytest.raises(mc.TaskFailed, match="other processes"):
        task.discard("a")
    result = job.task(1, attempt="a_0").commit()
    job.commit([result])
    assert visible(s3) == {"t/a": b"a"}


def test_a_committed_task_keeps_its_files(there: There) -> None:
    """After the task's commit a driver may have accepted it: nothing is taken out."""
    job = there.start()
    with job.task(1) as task:
        written(task, "a")
    with pytest.raises(mc.TaskFailed, match="committed"):
        task.discard("a")
    job.commit([task.result])
    assert there.data() == {"a": b"a"}


def test_nothing_is_aborted_while_the_pending_may_be_stored(s3: MemoryStore) -> None:
    """If the `.pending` cannot be deleted, the file stays whole, and the task publishes it."""
    job = mc.start(DEST, track="s3")
    with job.task(1) as task:
        written(task, "a")
        s3.before = raising(
            lambda r: r.verb == "delete", mc.PermissionDenied("no", operation="delete")
        )
        with pytest.raises(mc.PermissionDenied):
            task.discard("a")
        s3.before = None
    job.commit([task.result])
    assert visible(s3) == {"t/a": b"a"}


def test_a_failed_abort_is_tried_again_and_the_file_stays_out(s3: MemoryStore) -> None:
    """The upload is not published, though its abort failed; the commit aborts it."""
    job = mc.start(DEST)
    with job.task(1) as task:
        written(task, "a", "b")
        s3.before = raising(
            lambda r: r.verb == "abort_upload", mc.PermissionDenied("no", operation="abort_upload")
        )
        with pytest.raises(mc.PermissionDenied):
            task.discard("a")
        s3.before = None
    job.commit([task.result])
    assert visible(s3) == {"t/b": b"b"}
    assert s3.open_uploads() == ()


def test_no_commit_runs_beside_a_discard(s3: MemoryStore) -> None:
    """A commit that begins while a file is being discarded is refused, and may be made later."""
    job = mc.start(DEST, track="s3")
    task = job.task(1)
    written(task, "a", "b")
    refused: list[mc.TaskFailed] = []

    def commit_now(request: Request) -> None:
        if request.verb == "delete":
            with pytest.raises(mc.TaskFailed, match="discarded") as raised:
                task.commit()
            refused.append(raised.value)

    s3.before = commit_now
    task.discard("a")
    s3.before = None
    assert refused
    job.commit([task.commit()])
    assert visible(s3) == {"t/b": b"b"}
