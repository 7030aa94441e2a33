"""`Task.discard`: one file leaves its task, its upload is aborted, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.options import Track
from magic_committer.stores.memory import MemoryStore
from tests.destinations import DISKS, There, opened
from tests.promises.hands import DEST, At, raises, refusing, visible, write

TRACKS: tuple[Track, ...] = ("memory", "s3")


@dataclass
class Tracked:
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


def written(task: mc.Task, *names: str) -> None:
    for name in names:
        write(task, name, name.encode())


@pytest.mark.parametrize("what", ["a closed file", "an open one", "a name that is used again"])
def test_a_file_leaves_its_task(tracked: Tracked, what: str) -> None:
    """Of the discarded one nothing is left, no commit waits for its close, and its name is free."""
    job = tracked()
    with job.task(1) as task:
        written(task, "b")
        if what == "an open one":
            task.open("a").write(b"1")
        else:
            written(task, "a")
        task.discard("a")
        assert len(tracked.there.left()) <= 1
        if "again" in what:
            write(task, "a", b"second")
    job.commit([task.result])
    again = {"a": b"second"} if "again" in what else {}
    assert tracked.there.data() == {"b": b"b", **again}
    assert tracked.there.left() == []


def test_a_unique_name_is_discarded_as_it_was_opened(there: There) -> None:
    """With ``unique=True`` the plain name is enough. An unknown one is refused, by its name."""
    job = there.start()
    with job.task(1) as task:
        write(task, "a.csv", unique=True)
        task.discard("a.csv", unique=True)
        raises(mc.PathError, task.discard, "x", match="no file 'x'")
    assert task.result.files == 0
    job.abort()
    assert there.left() == []


def test_a_file_that_others_may_commit_stays(s3: MemoryStore) -> None:
    """Another handle of the attempt, or a driver once it is committed, may have accepted it."""
    job = mc.start(DEST, track="s3")
    task = job.task(1, attempt="a_0")
    written(task, "a")
    raises(mc.TaskFailed, task.discard, "a", match="other processes")
    other = job.task(1, attempt="a_0")
    result = other.commit()
    raises(mc.TaskFailed, other.discard, "a", match="committed")
    job.commit([result])
    assert visible(s3) == {"t/a": b"a"}


@pytest.mark.parametrize(("fails", "published"), [("delete", "ab"), ("abort_upload", "b")])
def test_a_discard_that_fails_halves_no_file(s3: MemoryStore, fails: str, published: str) -> None:
    """While the `.pending` may be stored nothing is aborted; the commit tries an abort again."""
    job = mc.start(DEST, track="s3")
    with job.task(1) as task:
        written(task, "a", "b")
        with refusing(s3, fails, mc.PermissionDenied), pytest.raises(mc.PermissionDenied):
            task.discard("a")
    job.commit([task.result])
    assert visible(s3) == {f"t/{name}": name.encode() for name in published}
    assert s3.open_uploads() == ()


def test_no_commit_runs_beside_a_discard(s3: MemoryStore) -> None:
    """A commit that begins while a file is being discarded is refused, and may be made later."""
    job = mc.start(DEST, track="s3")
    task = job.task(1)
    written(task, "a", "b")

    def commit_now() -> None:
        raises(mc.TaskFailed, task.commit, match="discarded")

    with At(s3, "delete", commit_now):
        task.discard("a")
    job.commit([task.commit()])
    assert visible(s3) == {"t/b": b"b"}
