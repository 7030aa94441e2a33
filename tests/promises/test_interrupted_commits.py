"""What Ctrl-C in a commit leaves as a note is true: of a job that another process has decided, no
call says that it was not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import magic_committer as mc
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import memory_store
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    Nth,
    StillClock,
    crash,
    job_of,
    record_put,
    visible,
)

UNDECIDED = "was not decided when its commit was interrupted"


def stop() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def decided(store: MemoryStore) -> mc.Job:
    """A job whose driver died once it was decided."""
    job = job_of({"a.csv": b"1", "b.csv": b"2"})
    At(store, record_put("committing"), crash, after=True)
    with pytest.raises(Crash):
        mc.attach(DEST, job.id).commit()
    store.before = store.after = None
    return mc.attach(DEST, job.id)


def refused(store: MemoryStore) -> mc.Job:
    """A job whose commit refuses: an upload of it is gone."""
    job = job_of({"a.csv": b"1", "b.csv": b"2"})
    first = store.open_uploads()[0]
    store.abort_upload(first.key, first.upload_id)
    return mc.attach(DEST, job.id)


def interrupted_at_each_request(make: Callable[[MemoryStore], mc.Job]) -> list[tuple[str, str]]:
    """The notes of a commit that is interrupted before each of its requests in turn, and what the
    record says then."""
    found = []
    for number in range(1, 60):
        with memory_store(clock=StillClock()) as store:
            job = make(store)
            At(store, Nth(number), stop)
            try:
                job.commit()
            except KeyboardInterrupt as error:
                store.before = None
                notes = " ".join(getattr(error, "__notes__", ()))
                assert notes, number
                states = [seen.state for seen in mc.inspect(DEST)]
                found.append((notes, states[0] if states else "absent"))
                if UNDECIDED in notes:
                    assert not visible(store), number
            except mc.MagicError:
                break
            else:
                break
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
