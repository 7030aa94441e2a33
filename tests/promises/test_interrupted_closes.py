"""A close that is interrupted after its `.pending` was stored harms no commit of another handle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import memory_store
from tests.promises.hands import (
    DEST,
    At,
    StillClock,
    dies_at,
    fitting,
    job_of,
    raises,
    raising,
    record_put,
    visible,
)


def begun(name: str = "x") -> Any:
    """A file of the job ``j``, which is written by its path and not closed."""
    mc.start(DEST, job_id="j", exist_ok=True)
    file = mc.open_magic(f"{DEST}/__magic_job-j/job-j/00/tasks/a_0/__base/{name}.csv")
    file.write(name.encode())
    return file


def other_commits() -> mc.TaskCommit:
    """Another process commits the attempt by its name."""
    return mc.attach(DEST, "j").task("a", attempt="a_0").commit()


def interrupted(s3: MemoryStore, file: Any, verbs: str, *deeds: Callable[[], Any]) -> str:
    """The file is closed, and does them, one each, before this thread's first such requests for the
    record or the set after its `.pending` was stored. The notes of its interruption."""
    hit: list[str] = []
    here = threading.current_thread()
    looks = fitting(f"{verbs} *_job.json"), fitting(f"{verbs} *.pendingset")

    def before(request: Request) -> None:
        met = any(fits(request) for fits in looks) and threading.current_thread() is here
        if met and len(hit) < len(deeds):
            hit.append(request.key)
            s3.before = None
            try:
                deeds[len(hit) - 1]()
            finally:
                s3.before = before

    At(s3, "put *.pending", lambda: setattr(s3, "before", before), after=True)
    caught = raises(KeyboardInterrupt, file.close)
    s3.before = s3.after = None
    assert hit
    return " ".join(getattr(caught, "__notes__", ()))


LEFT = "left to the end of the job"


def stop() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def commits_and_cuts() -> None:
    """Another process commits the attempt, and Ctrl-C comes."""
    other_commits()
    raise KeyboardInterrupt


@pytest.mark.parametrize("verbs", ["head", "get", "head|get"])
@pytest.mark.parametrize("again", [False, True])
def test_a_cut_close_leaves_what_is_committed(s3: MemoryStore, verbs: str, again: bool) -> None:
    """Also if a second Ctrl-C comes while it asks who has committed its file."""
    notes = interrupted(s3, begun(), verbs, commits_and_cuts, *[stop] * again)
    assert again or LEFT in notes
    assert mc.attach(DEST, "j").commit().files == 1
    assert visible(s3) == {"t/x.csv": b"x"}


@pytest.mark.parametrize("verb", ["head", "get"])
def test_a_cut_close_keeps_others_from_what_it_aborts(s3: MemoryStore, verb: str) -> None:
    """Where nobody has committed the file its upload is aborted, and nobody can commit it later."""
    interrupted(s3, begun(), verb, stop)
    assert s3.open_uploads() == ()
    raises(mc.TaskFailed, other_commits, match="was aborted")


def test_an_interrupted_close_aborts_a_file_that_a_commit_has_left_out(s3: MemoryStore) -> None:
    """A set that another handle stored without the file does not keep the file's upload."""
    file = begun()
    begun("w").close()

    def commits() -> None:
        other_commits()
        s3.before = raising("get|head", KeyboardInterrupt, times=1)  # the first of its looks

    At(s3, "put *x.csv.pending", commits)
    raises(KeyboardInterrupt, file.close)
    s3.before = None
    assert [upload.key for upload in s3.open_uploads()] == ["t/w.csv"]
    mc.attach(DEST, "j").commit()
    assert visible(s3) == {"t/w.csv": b"w"}


def test_an_unreadable_record_does_not_undo_a_close(s3: MemoryStore) -> None:
    """A fence that cannot be understood after the `.pending` leaves the file saved."""
    file = begun()
    garbled = raising("head *_job.json", mc.FormatError("t/_job.json", "", "half written"))
    with At(s3, "put *.pending", lambda: setattr(s3, "before", garbled), after=True):
        file.close()
    s3.before = None
    other_commits()
    assert mc.attach(DEST, "j").commit().files == 1


def test_a_cut_as_a_close_returns_leaves_what_another_committed(
    s3: MemoryStore,
) -> None:
    """A close that is cut off after all its requests asks who has committed its file."""
    file = begun()
    on_close = file._on_close

    def cut(finished: Any) -> None:
        on_close(finished)
        other_commits()
        raise KeyboardInterrupt

    file._on_close = cut
    raises(KeyboardInterrupt, file.close)
    assert len(s3.open_uploads()) == 1
    assert mc.attach(DEST, "j").commit().files == 1


def test_an_object_of_another_run_at_the_sets_key_proves_nothing(s3: MemoryStore) -> None:
    """Where the set's key is another run's the upload of a cut close is left to the job's end."""

    def deed() -> None:
        key = "t/__magic_job-j/job-j/00/_a_0.pendingset"
        s3.put(key, b"{}", metadata={JOB_METADATA: "0" * 32})
        raise KeyboardInterrupt

    assert LEFT in interrupted(s3, begun(), "head", deed)
    assert [upload.key for upload in s3.open_uploads()] == ["t/x.csv"]


UNDECIDED = "was not decided when its commit was interrupted"


def decided(store: MemoryStore) -> mc.Job:
    """A job whose driver died once it was decided."""
    job = job_of({"a.csv": b"1", "b.csv": b"2"})
    dies_at(store, record_put("committing"), mc.attach(DEST, job.id).commit, after=True)
    return job


def refused(store: MemoryStore) -> mc.Job:
    """A job whose commit refuses: an upload of it is gone."""
    job = job_of({"a.csv": b"1", "b.csv": b"2"})
    first = store.open_uploads()[0]
    store.abort_upload(first.key, first.upload_id)
    return job


def interrupted_at_each_request(make: Callable[[MemoryStore], mc.Job]) -> list[tuple[str, str]]:
    """The notes of a commit that is interrupted before each of its requests, and its state."""
    found = []
    for number in range(1, 60):
        with memory_store(clock=StillClock()) as store:
            job = mc.attach(DEST, make(store).id)
            At(store, "*", stop, nth=number)
            try:
                job.commit()
            except KeyboardInterrupt as error:
                store.before = None
                notes = " ".join(getattr(error, "__notes__", ()))
                assert notes, number
                states = [seen.state for seen in mc.inspect(DEST)]
                found.append((notes, states[0] if states else "absent"))
                assert UNDECIDED not in notes or not visible(store), number
                continue
            except mc.MagicError:
                pass
            return found
    return found


def test_of_a_decided_job_no_interrupted_commit_says_that_it_is_not() -> None:
    """Another process has decided it. The call had not read that yet, or it had."""
    found = interrupted_at_each_request(decided)
    assert len(found) >= 6
    assert not [notes for notes, _ in found if UNDECIDED in notes]


def test_of_a_job_that_is_being_aborted_no_interrupted_commit_says_commit_it_again() -> None:
    """Its commit had refused it, and was sweeping."""
    found = interrupted_at_each_request(refused)
    told = [notes for notes, state in found if state == "aborting"]
    assert told
    assert not [notes for notes in told if UNDECIDED in notes]
