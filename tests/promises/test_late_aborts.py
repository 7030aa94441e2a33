"""Who is late, or cut off in a close, takes nothing of what another has committed."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.commit.fence import PUT_TRIES_MAX
from magic_committer.errors import PermissionDenied, PreconditionFailed, Unanswered, WriteConflict
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.base import UploadInfo, UploadPage
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import memory_store
from tests.concrete import upload_of
from tests.promises.hands import (
    DEST,
    At,
    StillClock,
    believing,
    control,
    dies_at,
    fitting,
    job_of,
    one_file,
    open_ids,
    raises,
    raising,
    record_of,
    record_put,
    refusing,
    remains,
    visible,
    write,
)

PATH = "s3a://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/"
SET, PENDING = "put *.pendingset", "put *.pending"


def twins(s3: MemoryStore, *, landed: bool = True) -> list[str]:
    """Each Create from here on is sent twice below: two uploads, or its twin lands later."""
    made: list[str] = []

    def twice(request: Request, reply: Any) -> Any:
        if request.verb != "create_upload" or isinstance(reply, mc.StoreError):
            return None
        if landed:
            made.append(s3.start_upload(request.key))
        return reply._replace(attempts=2)

    s3.after = twice
    return made


def by_path(name: str = "x.csv") -> Any:
    """A file of the job ``1`` that is written by its path, and not closed."""
    mc.start(DEST, job_id="1", exist_ok=True)
    file = mc.open_magic(PATH + name)
    file.write(b"1")
    return file


def other() -> mc.Task:
    """The attempt of those files, by another handle."""
    return mc.attach(DEST, "1").task("1", attempt="a_0")


def one_closed(s3: MemoryStore, *, unique: bool = True) -> tuple[mc.Job, mc.Task]:
    """A job of results, and its task with one file."""
    job = mc.start(DEST, track="memory", accept="results")
    task = job.task("1")
    upload_of(write(task, unique=unique)).wait()
    s3.after = None
    return job, task


@pytest.mark.parametrize("late", ["memory", "s3", "a file by its path"])
def test_who_is_late_leaves_what_became_visible(s3: MemoryStore, late: Any) -> None:
    """I2: a driver ends the job before the second read of the fence: who is late learns it."""
    taken = believing(s3)
    path = late not in ("memory", "s3")
    job = mc.start(DEST, job_id="1", track="s3" if path else late)
    end: Callable[[], object] = by_path("a.csv").close if path else one_file(job).commit

    def others() -> None:
        if path:
            other().commit()
        mc.attach(DEST, "1").commit()

    with At(s3, PENDING if path else SET, others, after=True):
        told = raises(mc.JobNotRunning, end)
    assert told.outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}
    assert taken == []
    assert path or remains(s3)[2] == ["_job.json"]


def test_the_twin_of_a_retried_create_is_told_from_the_completed_upload(s3: MemoryStore) -> None:
    """I2, I4: it lands after the sweep, a stale listing shows the other, and it alone goes."""
    taken = believing(s3)
    twins(s3, landed=False)
    job = mc.start(DEST, track="memory")
    task = job.task("1")
    upload_of(write(task, unique=True)).wait()
    s3.after = None
    (known,) = s3.open_uploads()

    def commit_and_land() -> None:
        mc.attach(DEST, job.id).commit()
        s3.start_upload(known.key)
        s3.start_upload(known.key + ".bak")

    At(s3, SET, commit_and_land, after=True)
    told = s3.after

    def stale(request: Request, reply: Any) -> Any:
        if told is not None:
            told(request, reply)
        if request.verb == "list_uploads" and isinstance(reply, tuple):
            page, bound = reply
            assert isinstance(page, UploadPage)
            old = UploadInfo(known.key, known.upload_id)
            return replace(page, uploads=(old, *page.uploads)), bound
        return None

    s3.after = stale
    assert not getattr(raises(mc.JobNotRunning, task.commit), "__notes__", [])
    assert list(visible(s3)) == [known.key]
    assert taken == []
    assert remains(s3)[1] == [known.key + ".bak"]


def test_a_twin_that_could_not_be_removed_is_looked_for_again(s3: MemoryStore) -> None:
    """I4, I5: a listing that failed is made again by the next abort."""
    twins(s3)
    job, task = one_closed(s3)
    s3.delete_object(record_of(job))
    with refusing(s3, "list_uploads", Unanswered), pytest.raises(mc.JobNotRunning):
        task.commit()
    assert len(s3.open_uploads()) == 1
    task.abort()
    assert s3.open_uploads() == ()


# Files that are closed too late -------------------------------------------------------------------


@pytest.mark.parametrize("ended", ["committed", "aborted"])
def test_a_file_closed_after_its_attempt_ended_says_so(s3: MemoryStore, ended: str) -> None:
    """I2, I10: nobody will ever publish it: closing it raises, and leaves nothing of it."""
    job = mc.start(DEST, job_id="1")
    by_path("early.csv").close()
    late = by_path("late.csv")
    committed = ended == "committed"
    other().commit() if committed else other().abort()
    raises(mc.TaskFailed, late.close, match="not part of it" if committed else ended)
    assert remains(s3)[1] == ["t/early.csv"] * committed
    assert not [key for key in control(s3) if "late.csv" in key]
    assert job.commit(expect=int(committed)).files == committed
    assert s3.open_uploads() == ()


def test_a_late_close_says_so_where_the_job_ends_between_its_looks(s3: MemoryStore) -> None:
    """I2: the sweep between its two looks takes the set, but not what either order may miss."""
    job = mc.start(DEST, job_id="1", accept="listing")
    late = by_path("late.csv")
    attempt = other()
    write(attempt, "early.csv")
    attempt.commit()

    def is_a_look(request: Request) -> bool:
        saved = any(key.endswith("late.csv.pending") for key in s3.keys())
        return saved and request.verb in ("get", "head")

    with At(s3, is_a_look, job.commit, after=True):
        raises(mc.TaskFailed, late.close, match="not part of it")
    assert remains(s3)[:2] == ({"t/early.csv": b"1"}, [])


def test_a_file_that_the_commit_found_in_time_is_part_of_it(s3: MemoryStore) -> None:
    """I2: committed between its `.pending` and its look, it is published."""
    job = mc.start(DEST, job_id="1")
    file = by_path()
    with At(s3, PENDING, other().commit, after=True):
        file.close()
    assert job.commit().files == 1
    assert visible(s3) == {"t/x.csv": b"1"}


def test_a_task_that_was_pickled_looks_too(s3: MemoryStore) -> None:
    """I2, I10: its copy may commit it: the first handle's files look from then on."""
    task = mc.start(DEST).task("1")
    file = task.open("a.csv")
    file.write(b"1")
    pickle.loads(pickle.dumps(task)).commit()
    raises(mc.TaskFailed, file.close, match="not part of it")
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("spoilt", [False, True], ids=["no answer", "no set"])
def test_a_look_that_fails_leaves_the_file_saved(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture, spoilt: bool
) -> None:
    """I2, I9: whether it was committed cannot be told: it is closed, with a warning."""
    job = mc.start(DEST, job_id="1")
    file = by_path()
    if spoilt:
        key = "t/__magic_job-1/job-1/00/_a_0.pendingset"
        s3.put_object(key, b"{", metadata={JOB_METADATA: job.uuid})
    else:
        s3.before = raising("get *.pendingset", Unanswered)
    with caplog.at_level(logging.WARNING):
        file.close()
    s3.before = None
    assert "could not be read" in caplog.text
    assert [key for key in s3.keys() if key.endswith("x.csv.pending")]
    assert len(s3.open_uploads("t/x.csv")) == 1
    if not spoilt:
        other().commit()
        assert job.commit().files == 1


@pytest.mark.parametrize(("conditions", "gets"), [("on", 1), ("off", 2)])
def test_a_file_by_path_costs_two_heads_and_a_get_more(
    s3: MemoryStore, conditions: Any, gets: int
) -> None:
    """docs/performance.md: the fence, that its attempt is open, that the id has no later job; that
    its name is free, where no condition says so."""
    mc.start(DEST, job_id="1", options=mc.Options(conditional_writes=conditions))
    for name in ("x.csv", "y.csv"):
        file = mc.open_magic(PATH + name)
        s3.requests.clear()
        file.close()
        assert (s3.requests["head"], s3.requests["get"], s3.requests["put"]) == (2, gets, 1)


# After a claim ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", ["read", "lost"])
def test_an_aborter_that_slept_through_its_job_takes_nothing(s3: MemoryStore, fence: str) -> None:
    """I2: its claim succeeds after the job's end, and still the file stays visible."""
    taken = believing(s3)
    job = mc.start(DEST)
    task = one_file(job, attempt="a")
    attempt = mc.attach(DEST, job.id).task("1", attempt="a")

    def others() -> None:
        attempt.commit()
        mc.attach(DEST, job.id).commit()
        if fence == "lost":
            s3.before = raising("* *_job.json", Unanswered)

    at = At(s3, SET, others)
    if fence == "lost":
        raises(Unanswered, task.abort)
        s3.before = None
    task.abort()
    assert at.done
    assert taken == []
    assert remains(s3) == ({"t/a.csv": b"1"}, [], ["_job.json"])


@pytest.mark.parametrize("names_it", [".pending", ".pendingset"])
def test_what_names_an_upload_that_stays_stays_too(s3: MemoryStore, names_it: str) -> None:
    """I4: an abort goes on behind a failure; the next one takes what is left."""
    job = mc.start(DEST)
    task = job.task("1", attempt="a")
    for name in ("a.csv", "b.csv"):
        write(task, name)
    attempt = mc.attach(DEST, job.id).task("1", attempt="a")
    if names_it == ".pendingset":
        task.commit()
        s3.delete_object(record_of(job))
    with refusing(s3, "abort_upload t/a.csv", Unanswered), pytest.raises(Unanswered):
        attempt.abort()
    assert remains(s3)[1] == ["t/a.csv"]
    assert any(key.endswith(names_it) for key in control(s3))
    attempt.abort()
    assert s3.open_uploads() == ()
    assert not any(key.endswith(names_it) for key in control(s3))


# A `.pending` without an answer -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "landed", "then"),
    [
        pytest.param(Unanswered("no answer"), True, "committed", id="unanswered"),
        pytest.param(PermissionDenied("old", attempts=2), True, "committed", id="second try"),
        pytest.param(KeyboardInterrupt(), True, "committed", id="interrupted"),
        pytest.param(Unanswered("no answer"), True, "claimed", id="claimed, landed"),
        pytest.param(Unanswered("no answer"), False, "claimed", id="claimed"),
        pytest.param(Unanswered("no answer"), True, "unknown", id="unknown"),
    ],
)
def test_a_file_whose_pending_was_not_answered_is_published_or_given_up(
    s3: MemoryStore, error: BaseException, landed: bool, then: str
) -> None:
    """I2, I4, I9: it is published if another has committed it, else aborted, or left to the job."""
    job = mc.start(DEST, job_id="1")
    file = by_path()
    file._sender.created()
    lost = raising(PENDING, error)
    if then == "unknown":
        s3.before = raising(SET, Unanswered)
    else:
        At(s3, SET, other().commit if then == "committed" else lambda: None)
    claims = s3.before
    assert claims is not None
    if landed:
        s3.after = lost
    else:
        s3.before = lambda request: (lost(request), claims(request))
    raises(type(error), file.close)
    s3.before = s3.after = None
    assert len(s3.open_uploads()) == (then != "claimed")
    if then == "claimed":
        raises(mc.TaskFailed, other().commit, match="aborted")
    if then == "unknown":
        job.abort()
    else:
        assert job.commit(expect=int(then == "committed")).outcome == "committed"
    assert remains(s3) == ({"t/x.csv": b"1"} if then == "committed" else {}, [], ["_job.json"])


@pytest.mark.parametrize("error", [PermissionDenied, WriteConflict])
def test_a_pending_that_was_refused_at_once_is_no_doubt(
    s3: MemoryStore, error: type[mc.StoreError]
) -> None:
    """I4: it did not land: the upload is aborted, and the attempt goes on without the file."""
    job = mc.start(DEST, job_id="1")
    with refusing(s3, PENDING, error), pytest.raises(error):
        by_path().close()
    assert s3.open_uploads() == ()
    by_path().close()
    other().commit()
    assert job.commit().files == 1


@pytest.mark.parametrize("others", [False, True])
def test_a_pending_whose_second_try_meets_an_object_is_published(
    s3: MemoryStore, others: bool
) -> None:
    """I2: it meets the first try's; or, where that one was committed and tidied, another file's."""
    job = mc.start(DEST, job_id="1")
    file = by_path()

    def second_try() -> None:
        if others:
            other().commit()
            s3.put_object(PATH.removeprefix("s3a://bucket/") + "x.csv.pending", b"another")
        raise PreconditionFailed("there is an object", attempts=2)

    with At(s3, PENDING, second_try, after=True):
        if others:
            raises(mc.TaskFailed, file.close, match="another handle has closed")
        else:
            file.close()
    other().commit()
    assert job.commit(expect=1).files == 1
    assert visible(s3) == {"t/x.csv": b"1"}


@pytest.mark.parametrize("may_read", [True, False])
def test_an_attempt_whose_result_nobody_has_leaves_no_tombstone(
    s3: MemoryStore, may_read: bool
) -> None:
    """I4: nobody else can commit it: its commit, without an answer, claims nothing, and what is at
    its key does not matter."""
    job, task = one_closed(s3)
    s3.requests.clear()
    sets = SET if may_read else "* *.pendingset"
    with refusing(s3, sets, Unanswered), pytest.raises(Unanswered):
        task.commit()
    assert s3.requests["put"] == PUT_TRIES_MAX
    assert s3.open_uploads() == ()
    assert s3.keys() == (record_of(job),)


# The twin of a Create -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unique", "suffix", "goes"), [(True, "", True), (True, ".gz", False), (False, "", False)]
)
def test_of_the_uploads_at_a_late_attempts_key_only_its_twin_goes(
    s3: MemoryStore, unique: bool, suffix: str, goes: bool
) -> None:
    """I4, I6: those of longer keys, or of a name without the UUID, may be anybody's."""
    twins(s3)
    job, task = one_closed(s3, unique=unique)
    (key,) = set(remains(s3)[1])
    mc.abort(DEST, job.id)
    landed = s3.start_upload(key + suffix)  # after the sweep
    raises(mc.JobNotRunning, task.commit)
    assert (landed in open_ids(s3)) is not goes


def test_a_late_twin_leaves_the_upload_that_the_plan_names(s3: MemoryStore) -> None:
    """I2: the late attempt aborts its own upload and not the planned one."""
    job = mc.start(DEST, accept="results")
    with job.task("1") as first:
        write(first, unique=True)
    second = job.task("1")
    twins(s3)
    write(second, body=b"2", unique=True)
    s3.after = None
    with refusing(s3, "complete_upload", mc.StoreError), pytest.raises(mc.CommitIncomplete):
        job.commit([first.result])
    raises(mc.JobNotRunning, second.commit)
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert list(visible(s3).values()) == [b"1"]


def test_an_attempt_of_a_running_job_leaves_the_twin_to_the_jobs_end(s3: MemoryStore) -> None:
    """I6: while the job runs its plan may name the twin."""
    made = twins(s3)
    job, task = one_closed(s3)
    task.abort()
    assert open_ids(s3) == set(made)
    job.abort()
    assert open_ids(s3) == set()


def test_the_twin_of_a_late_file_goes_when_the_file_is_aborted(s3: MemoryStore) -> None:
    """I4: given up in a job that has ended, it looks for itself: perhaps nobody ends its task."""
    job = mc.start(DEST)
    twins(s3)
    file = job.task("1").open("a.csv", unique=True)
    file.write(b"1")
    upload_of(file)._sender.created()  # its Create was answered
    s3.after = None
    (key,) = set(remains(s3)[1])
    mc.abort(DEST, job.id)
    s3.start_upload(key)  # the twin lands after the sweep
    file.abort()
    assert open_ids(s3) == set()


def interrupted(s3: MemoryStore, file: Any, verbs: str, *deeds: Callable[[], Any]) -> str:
    """Close a file; do these at its first looks after its `.pending`. The interruption's notes."""
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
    other().commit()
    raise KeyboardInterrupt


@pytest.mark.parametrize("verbs", ["head", "get", "head|get"])
@pytest.mark.parametrize("again", [False, True])
def test_a_cut_close_leaves_what_is_committed(s3: MemoryStore, verbs: str, again: bool) -> None:
    """Also if a second Ctrl-C comes while it asks who has committed its file."""
    notes = interrupted(s3, by_path(), verbs, commits_and_cuts, *[stop] * again)
    assert again or LEFT in notes
    assert mc.attach(DEST, "1").commit().files == 1
    assert visible(s3) == {"t/x.csv": b"1"}


@pytest.mark.parametrize("verb", ["head", "get"])
def test_a_cut_close_keeps_others_from_what_it_aborts(s3: MemoryStore, verb: str) -> None:
    """Where nobody has committed the file its upload is aborted, and nobody can commit it later."""
    interrupted(s3, by_path(), verb, stop)
    assert s3.open_uploads() == ()
    raises(mc.TaskFailed, other().commit, match="was aborted")


def test_an_interrupted_close_aborts_a_file_that_a_commit_has_left_out(s3: MemoryStore) -> None:
    """A set that another handle stored without the file does not keep the file's upload."""
    file = by_path()
    by_path("w.csv").close()

    def commits() -> None:
        other().commit()
        s3.before = raising("get|head", KeyboardInterrupt, times=1)  # the first of its looks

    At(s3, "put *x.csv.pending", commits)
    raises(KeyboardInterrupt, file.close)
    s3.before = None
    assert [upload.key for upload in s3.open_uploads()] == ["t/w.csv"]
    mc.attach(DEST, "1").commit()
    assert visible(s3) == {"t/w.csv": b"1"}


def test_an_unreadable_record_does_not_undo_a_close(s3: MemoryStore) -> None:
    """A fence that cannot be understood after the `.pending` leaves the file saved."""
    file = by_path()
    garbled = raising("head *_job.json", mc.FormatError("t/_job.json", "", "half written"))
    with At(s3, "put *.pending", lambda: setattr(s3, "before", garbled), after=True):
        file.close()
    s3.before = None
    other().commit()
    assert mc.attach(DEST, "1").commit().files == 1


def test_a_cut_as_a_close_returns_leaves_what_another_committed(s3: MemoryStore) -> None:
    """A close that is cut off after all its requests asks who has committed its file."""
    file = by_path()
    on_close = file._on_close

    def cut(finished: Any) -> None:
        on_close(finished)
        other().commit()
        raise KeyboardInterrupt

    file._on_close = cut
    raises(KeyboardInterrupt, file.close)
    assert len(s3.open_uploads()) == 1
    assert mc.attach(DEST, "1").commit().files == 1


def test_an_object_of_another_run_at_the_sets_key_proves_nothing(s3: MemoryStore) -> None:
    """Where the set's key is another run's the upload of a cut close is left to the job's end."""

    def deed() -> None:
        key = "t/__magic_job-1/job-1/00/_a_0.pendingset"
        s3.put(key, b"{}", metadata={JOB_METADATA: "0" * 32})
        raise KeyboardInterrupt

    assert LEFT in interrupted(s3, by_path(), "head", deed)
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
    for number in count(1):
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
    raise AssertionError


@pytest.mark.parametrize(
    ("make", "state"), [(decided, ""), (refused, "aborting")], ids=["decided", "refused"]
)
def test_no_interrupted_commit_says_that_a_decided_job_is_not(
    make: Callable[[MemoryStore], mc.Job], state: str
) -> None:
    """Another process has decided it, read already or not; or its own commit is sweeping it."""
    found = interrupted_at_each_request(make)
    told = [notes for notes, seen in found if seen == state or not state]
    assert len(told) >= (1 if state else 6)
    assert not [notes for notes in told if UNDECIDED in notes]
