"""Whoever is late aborts nothing that became visible, on stores that believe such an abort too; and
a file that is closed too late says so."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.commit.pendingset import PUT_TRIES_MAX
from magic_committer.errors import PermissionDenied, Unanswered
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.base import CreatedUpload, UploadInfo, UploadPage
from magic_committer.stores.memory import MemoryStore, Request
from tests.concrete import upload_of
from tests.promises.hands import (
    DEST,
    At,
    control,
    one_file,
    raising,
    refusing,
    visible,
)
from tests.promises.machine import left

PATH = "s3a://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/"


class Believing:
    """A store on which the abort of a completed upload takes the object away, as some do."""

    def __init__(self, s3: MemoryStore) -> None:
        self.s3 = s3
        self.taken: list[str] = []

    def look(self, request: Request) -> None:
        if request.verb != "abort_upload":
            return
        still_open = {upload.upload_id for upload in self.s3.open_uploads()}
        if request.upload_id not in still_open and request.key in self.s3.keys():
            self.taken.append(request.key)
            self.s3.delete_object(request.key)

    def at(self, fits: Callable[[Request], bool], deed: Callable[[], Any], *, after: bool) -> At:
        at = At(self.s3, fits, deed, after=after)
        inner = self.s3.before

        def both(request: Request) -> None:
            if inner is not None:
                inner(request)
            self.look(request)

        self.s3.before = both
        return at


def put_of(suffix: str) -> Callable[[Request], bool]:
    """A PUT of a control object of that kind."""
    return lambda request: request.verb == "put" and request.key.endswith(suffix)


@pytest.mark.parametrize("late", ["memory", "s3", "a file by its path"])
def test_who_is_late_leaves_what_became_visible(s3: MemoryStore, late: Any) -> None:
    """I2: between a task's pendingset, or a file's `.pending`, and the second read of the fence a
    driver lists, commits and sweeps: who is late learns it, and the file stays visible."""
    store = Believing(s3)
    by_path = late not in ("memory", "s3")
    job = mc.start(DEST, job_id="1", track="s3" if by_path else late)
    if by_path:
        file = mc.open_magic(PATH + "a.csv")
        file.write(b"1")
        end: Callable[[], object] = file.close
    else:
        end = one_file(job).commit

    def others() -> None:
        if by_path:
            mc.attach(DEST, "1").task("1", attempt="a_0").commit()
        mc.attach(DEST, "1").commit()

    at = store.at(put_of(".pending" if by_path else ".pendingset"), others, after=True)
    with pytest.raises(mc.JobNotRunning) as told:
        end()
    assert at.done
    assert told.value.outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}
    assert store.taken == []
    assert by_path or left(s3) == ["_job.json"]


def sent_twice(request: Request, reply: object) -> object:
    """A hook: each Create says that it was sent twice."""
    if request.verb == "create_upload" and isinstance(reply, CreatedUpload):
        return CreatedUpload(reply.upload_id, attempts=2)
    return None


def test_the_twin_of_a_retried_create_is_told_from_the_completed_upload(s3: MemoryStore) -> None:
    """I2, I4: a Create was sent twice, the lost upload lands after the job has committed and swept,
    and the listing is stale: it still shows the completed one. The late task aborts the lost one,
    and nothing else: not the completed one, and none whose key only begins the same."""
    store = Believing(s3)
    job = mc.start(DEST, track="memory")
    task = job.task("1")
    s3.after = sent_twice
    f = task.open("a.csv", unique=True)
    f.write(b"1")
    upload_of(f)._sender.created()
    s3.after = None
    f.close()
    (known,) = s3.open_uploads()

    def commit_and_land() -> None:
        mc.attach(DEST, job.id).commit()
        s3.start_upload(known.key)
        s3.start_upload(known.key + ".bak")

    store.at(put_of(".pendingset"), commit_and_land, after=True)
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
    with pytest.raises(mc.JobNotRunning) as told_late:
        task.commit()
    assert not getattr(told_late.value, "__notes__", [])
    assert list(visible(s3)) == [known.key]
    assert store.taken == []
    assert [upload.key for upload in s3.open_uploads()] == [known.key + ".bak"]


def test_a_twin_that_could_not_be_removed_is_looked_for_again(s3: MemoryStore) -> None:
    """I4, I5: a listing that failed is made again by the next abort."""
    job = mc.start(DEST, track="memory")
    task = job.task("1")
    s3.after = sent_twice
    with task.open("a.csv", unique=True) as f:
        f.write(b"1")
    upload_of(f).wait()
    s3.after = None
    (known,) = s3.open_uploads()
    s3.start_upload(known.key)
    s3.delete_object(next(key for key in control(s3) if key.endswith("_job.json")))
    with refusing(s3, "list_uploads", Unanswered("no answer")), pytest.raises(mc.JobNotRunning):
        task.commit()
    assert len(s3.open_uploads()) == 1
    task.abort()
    assert s3.open_uploads() == ()


# Files that are closed too late -------------------------------------------------------------------


@pytest.mark.parametrize("ended", ["committed", "aborted"])
def test_a_file_closed_after_its_attempt_ended_says_so(s3: MemoryStore, ended: str) -> None:
    """I2, I10: nobody will ever publish it: closing it raises, and leaves nothing of it."""
    job = mc.start(DEST, job_id="1")
    early, late = mc.open_magic(PATH + "early.csv"), mc.open_magic(PATH + "late.csv")
    early.close()
    late.write(b"1")
    attempt = mc.attach(DEST, "1").task("1", attempt="a_0")
    if ended == "committed":
        attempt.commit()
    else:
        attempt.abort()
    with pytest.raises(mc.TaskFailed, match="not part of it" if ended == "committed" else ended):
        late.close()
    assert [u.key for u in s3.open_uploads()] == (["t/early.csv"] if ended == "committed" else [])
    assert not [key for key in control(s3) if "late.csv" in key]
    report = job.commit(expect=int(ended == "committed"))
    assert report.files == (ended == "committed")
    assert s3.open_uploads() == ()


def test_a_file_closed_too_late_says_so_where_the_job_ends_between_its_two_looks(
    s3: MemoryStore,
) -> None:
    """I2: its attempt was committed before, and the job ends, sweep and all, after the first of
    the two looks: the sweep takes the pendingset away, but not what either order may miss."""
    job = mc.start(DEST, job_id="1", accept="listing")
    late = mc.open_magic(PATH + "late.csv")
    late.write(b"1")
    other = mc.attach(DEST, "1").task("1", attempt="a_0")
    with other.open("early.csv") as f:
        f.write(b"1")
    other.commit()

    def is_a_look(request: Request) -> bool:
        saved = any(key.endswith("late.csv.pending") for key in s3.keys())
        return saved and request.verb in ("get", "head")

    ends = At(s3, is_a_look, job.commit, after=True)
    with pytest.raises(mc.TaskFailed, match="not part of it"):
        late.close()
    assert ends.done
    assert visible(s3) == {"t/early.csv": b"1"}
    assert s3.open_uploads() == ()


def test_a_file_that_the_commit_found_in_time_is_part_of_it(s3: MemoryStore) -> None:
    """I2: the attempt is committed between the file's `.pending` and its look: the set names the
    file, closing it is well, and it is published."""
    job = mc.start(DEST, job_id="1")
    f = mc.open_magic(PATH + "x.csv")
    f.write(b"1")
    other = mc.attach(DEST, "1").task("1", attempt="a_0")
    at = At(s3, put_of(".pending"), other.commit, after=True)
    f.close()
    assert at.done
    assert job.commit().files == 1
    assert visible(s3) == {"t/x.csv": b"1"}


def test_a_task_that_was_pickled_looks_too(s3: MemoryStore) -> None:
    """I2, I10: its copy may commit it: the first handle's files look from then on."""

    job = mc.start(DEST)
    task = job.task("1")
    f = task.open("a.csv")
    f.write(b"1")
    copy = pickle.loads(pickle.dumps(task))
    copy.commit()
    with pytest.raises(mc.TaskFailed, match="not part of it"):
        f.close()
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("spoilt", [False, True], ids=["no answer", "no set"])
def test_a_look_that_fails_leaves_the_file_saved(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture, spoilt: bool
) -> None:
    """I2, I9: whether the attempt is committed already cannot be told: what is stored with its
    `.pending` is closed, with a warning, for whoever commits the attempt or ends the job."""
    job = mc.start(DEST, job_id="1")
    f = mc.open_magic(PATH + "x.csv")
    f.write(b"1")
    if spoilt:
        key = "t/__magic_job-1/job-1/00/_a_0.pendingset"
        s3.put_object(key, b"{", metadata={JOB_METADATA: job.uuid})
    else:
        s3.before = raising("get *.pendingset", Unanswered)
    with caplog.at_level(logging.WARNING):
        f.close()
    s3.before = None
    assert "could not be read" in caplog.text
    assert [one for one in s3.keys() if one.endswith("x.csv.pending")]
    assert len(s3.open_uploads("t/x.csv")) == 1
    if not spoilt:
        mc.attach(DEST, "1").task("1", attempt="a_0").commit()
        assert job.commit().files == 1


def test_a_file_by_path_costs_two_heads_and_one_get_more(s3: MemoryStore) -> None:
    """docs/performance.md: the fence, and whether its attempt is committed already. Where the
    job's id was given: also that the id has no later job."""
    mc.start(DEST, job_id="1")
    counts = []
    for name in ("x.csv", "y.csv"):
        f = mc.open_magic(PATH + name)
        s3.requests.clear()
        f.close()
        counts.append((s3.requests["head"], s3.requests["get"], s3.requests["put"]))
    assert counts == [(2, 1, 1)] * 2
    mc.abort(DEST, "1")


# After a claim ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", ["read", "lost"])
def test_an_aborter_that_slept_through_its_job_takes_nothing(s3: MemoryStore, fence: str) -> None:
    """I2: paused before its claim, while another handle commits the attempt and a driver the job,
    sweep and all: the key is free again, the claim succeeds, and still the file stays visible; so
    too if the fence cannot be read then."""
    store = Believing(s3)
    job = mc.start(DEST)
    task = one_file(job, attempt="a")
    other = mc.attach(DEST, job.id).task("1", attempt="a")

    def others() -> None:
        hook, s3.before = s3.before, None
        other.commit()
        mc.attach(DEST, job.id).commit()
        s3.before = hook

    at = store.at(put_of(".pendingset"), others, after=False)
    hook = s3.before
    assert hook is not None

    def lose(request: Request) -> None:
        hook(request)
        if at.done and fence == "lost" and request.key.endswith("_job.json"):
            raise Unanswered("no answer")

    s3.before = lose
    if fence == "lost":
        with pytest.raises(Unanswered):
            task.abort()
        s3.before = store.look
    task.abort()
    assert at.done
    assert visible(s3) == {"t/a.csv": b"1"}
    assert store.taken == []
    assert [key.rsplit("/", 1)[-1] for key in control(s3)] == ["_job.json"]


def test_an_ended_attempt_is_undone_by_a_handle_that_wrote_nothing(s3: MemoryStore) -> None:
    """I4: the set that a killed process left after its job had ended names the uploads: whoever
    aborts the attempt removes them before the set goes."""
    job = mc.start(DEST)
    task = one_file(job, attempt="a")
    other = mc.attach(DEST, job.id).task("1", attempt="a")
    task.commit()
    s3.delete_object(next(key for key in control(s3) if key.endswith("_job.json")))
    with refusing(s3, "abort_upload", Unanswered("no answer")), pytest.raises(Unanswered):
        other.abort()
    assert len(control(s3)) == 1  # it still names what could not be aborted
    other.abort()
    assert s3.open_uploads() == ()
    assert s3.keys() == ()


# A `.pending` without an answer -------------------------------------------------------------------


def closed_without_an_answer(
    s3: MemoryStore,
    others: Callable[[], Any],
    *,
    landed: bool,
    claim: bool = True,
    error: BaseException | None = None,
) -> None:
    """A file is closed by path, and its `.pending` is not answered, or ``error`` comes; then others
    act. ``claim``: the store takes the tombstone."""
    error = error or Unanswered("no answer")
    f = mc.open_magic(PATH + "x.csv")
    f.write(b"1")
    f._sender.created()
    acted = False

    def lose(request: Request) -> None:
        nonlocal acted
        if put_of(".pending")(request):
            if landed:
                request.effect()
            raise error
        if put_of(".pendingset")(request) and not acted:
            acted = True
            hook, s3.before = s3.before, None
            others()
            s3.before = hook
        if put_of(".pendingset")(request) and not claim:
            raise Unanswered("no answer")

    s3.before = lose
    with pytest.raises(type(error)):
        f.close()
    s3.before = None
    assert acted


@pytest.mark.parametrize(
    "error",
    [Unanswered("no answer"), PermissionDenied("expired", attempts=2), KeyboardInterrupt()],
    ids=["unanswered", "refused at the second try", "interrupted"],
)
def test_a_file_whose_pending_was_committed_keeps_its_upload(
    s3: MemoryStore, error: BaseException
) -> None:
    """I2: the `.pending` had landed, another handle commits the attempt with it, and a driver
    decides: the process that could not close the file keeps its hands off."""
    job = mc.start(DEST, job_id="1")
    other = mc.attach(DEST, "1").task("1", attempt="a_0")
    closed_without_an_answer(s3, other.commit, landed=True, error=error)
    assert len(s3.open_uploads()) == 1
    assert job.commit(expect=["1"]).files == 1
    assert visible(s3) == {"t/x.csv": b"1"}


@pytest.mark.parametrize("landed", [False, True])
def test_a_file_whose_pending_is_in_doubt_takes_its_attempt_with_it(
    s3: MemoryStore, landed: bool
) -> None:
    """I2, I9: nobody had committed the attempt: its key is claimed, then the upload is aborted; a
    commit that comes later is refused, and publishes no part of the attempt."""
    job = mc.start(DEST, job_id="1")
    other = mc.attach(DEST, "1").task("1", attempt="a_0")
    closed_without_an_answer(s3, lambda: None, landed=landed)
    assert s3.open_uploads() == ()
    with pytest.raises(mc.TaskFailed, match="aborted"):
        other.commit()
    assert job.commit(expect=0).files == 0
    assert [key.rsplit("/", 1)[-1] for key in control(s3)] == ["_job.json"]


def test_a_file_of_which_nothing_is_known_is_left_to_the_job(s3: MemoryStore) -> None:
    """I2, I4: neither the `.pending` nor the claim is answered: the upload stays, whoever commits
    the attempt commits the file, or the job's end takes it."""
    job = mc.start(DEST, job_id="1")
    closed_without_an_answer(s3, lambda: None, landed=True, claim=False)
    assert len(s3.open_uploads()) == 1
    job.abort()
    assert s3.open_uploads() == ()


def test_a_pending_that_was_refused_at_once_is_no_doubt(s3: MemoryStore) -> None:
    """I4: it did not land: the upload is aborted, and the attempt goes on without the file."""
    job = mc.start(DEST, job_id="1")
    f = mc.open_magic(PATH + "x.csv")
    with refusing(s3, put_of(".pending"), PermissionDenied), pytest.raises(PermissionDenied):
        f.close()
    assert s3.open_uploads() == ()
    with mc.open_magic(PATH + "x.csv") as f:
        f.write(b"2")
    mc.attach(DEST, "1").task("1", attempt="a_0").commit()
    assert job.commit().files == 1


def test_an_attempt_whose_result_nobody_has_leaves_no_tombstone(s3: MemoryStore) -> None:
    """I4: nobody else can commit it: its commit, which gets no answer, undoes it by a look at its
    set, and claims nothing."""
    job = mc.start(DEST, track="memory", accept="results")
    task = job.task("1")
    with task.open("a.csv") as f:
        f.write(b"1")
    puts = 0

    def before(request: Request) -> None:
        nonlocal puts
        if request.verb == "put" and request.key.endswith(".pendingset"):
            puts += 1
            if puts <= PUT_TRIES_MAX:
                raise Unanswered("no answer")

    s3.before = before
    with pytest.raises(mc.StoreError):
        task.commit()
    s3.before = None
    assert puts == PUT_TRIES_MAX
    assert s3.open_uploads() == ()
    assert s3.keys() == (f"t/__magic_job-{job.id}/_job.json",)


def test_an_upload_that_cannot_be_aborted_keeps_no_other_open(s3: MemoryStore) -> None:
    """I4: the abort of an attempt goes on behind a failure, and raises it at its end."""
    task = mc.start(DEST).task("1")
    for name in ("a.csv", "b.csv"):
        task.open(name).write(b"1")
    with refusing(s3, "abort_upload t/a.csv", PermissionDenied), pytest.raises(PermissionDenied):
        task.abort()
    assert [upload.key for upload in s3.open_uploads()] == ["t/a.csv"]
    task.abort()
    assert s3.open_uploads() == ()


class Twins:
    """Each Create from here on is sent twice below: it makes two uploads, and tells of one."""

    def __init__(self, s3: MemoryStore) -> None:
        self.made: list[str] = []
        self._s3 = s3
        s3.after = self._twice

    def _twice(self, request: Request, reply: Any) -> Any:
        if request.verb != "create_upload" or isinstance(reply, mc.StoreError):
            return None
        self.made.append(self._s3.start_upload(request.key))
        return reply._replace(attempts=2)


def open_ids(s3: MemoryStore) -> set[str]:
    return {upload.upload_id for upload in s3.open_uploads()}


def one_closed(*, unique: bool = True) -> tuple[mc.Job, mc.Task]:
    job = mc.start(DEST, track="memory", accept="results")
    task = job.task("1")
    with task.open("a.csv", unique=unique) as file:
        file.write(b"1")
    upload_of(file).wait()
    return job, task


def late_file(s3: MemoryStore, *, unique: bool) -> tuple[mc.Task, str]:
    job, task = one_closed(unique=unique)
    (key,) = {upload.key for upload in s3.open_uploads()}
    s3.after = None
    mc.abort(DEST, job.id)
    return task, key


@pytest.mark.parametrize(
    ("unique", "suffix", "goes"), [(True, "", True), (True, ".gz", False), (False, "", False)]
)
def test_of_the_uploads_at_a_late_attempts_key_only_its_twin_goes(
    s3: MemoryStore, unique: bool, suffix: str, goes: bool
) -> None:
    """I4, I6: a late attempt aborts the upload whose id it never heard; those of longer keys, and
    of a name without the job's UUID, may be anybody's."""
    Twins(s3)
    task, key = late_file(s3, unique=unique)
    landed = s3.start_upload(key + suffix)  # after the sweep
    with pytest.raises(mc.JobNotRunning):
        task.commit()
    assert (landed in open_ids(s3)) is not goes


def test_a_late_twin_leaves_the_upload_that_the_plan_names(s3: MemoryStore) -> None:
    """I2: two attempts of a task write one key, the job is decided with the first: the second one,
    late, aborts its own upload and not the planned one."""
    job = mc.start(DEST, accept="results")
    with job.task("1") as first, first.open("a.csv", unique=True) as file:
        file.write(b"1")
    second = job.task("1")
    Twins(s3)
    with second.open("a.csv", unique=True) as file:
        file.write(b"2")
    s3.after = None
    with refusing(s3, "complete_upload", mc.StoreError), pytest.raises(mc.CommitIncomplete):
        job.commit([first.result])
    with pytest.raises(mc.JobNotRunning):
        second.commit()
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert list(visible(s3).values()) == [b"1"]


def test_what_names_an_upload_that_could_not_be_aborted_stays(s3: MemoryStore) -> None:
    """I4: an attempt is aborted by another process, and the store does not answer: the `.pending`
    stays, for it names the upload; the next abort takes both."""
    job = mc.start(DEST)
    with job.task("1", attempt="a").open("a.csv") as file:
        file.write(b"1")

    with refusing(s3, "abort_upload", Unanswered("not now")), pytest.raises(Unanswered):
        job.task("1", attempt="a").abort()
    assert any(key.endswith("a.csv.pending") for key in control(s3))
    job.task("1", attempt="a").abort()
    assert open_ids(s3) == set()
    assert not any(key.endswith(".pending") for key in control(s3))


def test_an_attempt_of_a_running_job_leaves_the_twin_to_the_jobs_end(s3: MemoryStore) -> None:
    """I6: while the job runs its plan may name the twin: the abort of the attempt succeeds, and the
    abort of the job takes the twin."""
    twins = Twins(s3)
    job, task = one_closed()
    s3.after = None
    task.abort()
    assert open_ids(s3) == set(twins.made)
    job.abort()
    assert open_ids(s3) == set()


def test_the_twin_of_a_late_file_goes_when_the_file_is_aborted(s3: MemoryStore) -> None:
    """I4: given up in a job that has ended, it looks for itself: perhaps nobody ends its task."""
    job = mc.start(DEST)
    Twins(s3)
    file = job.task("1").open("a.csv", unique=True)
    file.write(b"1")
    upload_of(file)._sender.created()  # its Create was answered
    s3.after = None
    (key,) = {upload.key for upload in s3.open_uploads()}
    mc.abort(DEST, job.id)
    s3.start_upload(key)  # the twin lands after the sweep
    file.abort()
    assert open_ids(s3) == set()
