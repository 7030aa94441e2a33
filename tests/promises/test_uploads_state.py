"""I2, I3, I4, I10: what a store says of uploads, and what leftovers name, is read one way."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any, get_args

import pytest
from msgspec import structs

import magic_committer as mc
from magic_committer.commit import sweep
from magic_committer.commit.sets import EXTRA_ABORTED
from magic_committer.commit.sweep import TASKS_NAMED_MAX
from magic_committer.errors import (
    InvalidRequest,
    NotSupported,
    PreconditionFailed,
    Unanswered,
    WriteConflict,
)
from magic_committer.errors.messages import NAMED_MAX
from magic_committer.hadoop.documents import decode_pendingset, encode_pendingset, new_pendingset
from magic_committer.hadoop.manifests import EXTRA_ATTEMPT, EXTRA_JOB, EXTRA_TASK
from magic_committer.hadoop.paths import unique_name
from magic_committer.options import Accept, Mode
from magic_committer.protocol.record import ATTEMPT_METADATA, JOB_METADATA, TASK_METADATA
from magic_committer.stores.memory import MemoryStore, Request
from tests.costly import costly_store
from tests.hadoops import leave_job
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    control,
    deaf,
    decided,
    dies_at,
    job_of,
    killed,
    open_ids,
    raises,
    raising,
    refusing,
    remains,
    visible,
    write,
)
from tests.promises.machine import YOUNG, Machine, matching

DENIED = mc.PermissionDenied("s3:… is not allowed", status=403)
ALL = {"t/a.csv": b"1", "t/b.csv": b"22"}


@pytest.mark.parametrize("error", [DENIED, InvalidRequest("a key is needed", status=400)])
def test_an_upload_nobody_may_see_is_not_called_gone(s3: MemoryStore, error: mc.StoreError) -> None:
    """I10: after the decision its file is unfinished; nobody is told to accept what is there."""
    job = decided(s3, job_id="j")
    s3.before = raising("complete_upload|list_parts", error)
    for step in (lambda: mc.attach(DEST, "j").commit(), lambda: mc.recover(DEST, "j")):
        raised = raises(mc.CommitIncomplete, step)
        assert raised.unresolved == ()
        assert sorted(raised.unfinished) == ["t/a.csv", "t/b.csv"]
        assert "accept" not in raised.hint
    s3.before = raising("complete_upload|list_parts|list_uploads", error)
    with pytest.raises(mc.CommitIncomplete):  # the operator's word is for what is gone
        mc.recover(DEST, "j", accept=["t/a.csv", "t/b.csv"])
    s3.before = None
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert remains(s3)[:2] == (ALL, [])


@pytest.mark.parametrize("verb", ["list_parts", "head"])
def test_an_upload_that_cannot_be_told_is_not_missing(s3: MemoryStore, verb: str) -> None:
    """I10: inspect says that it may not be looked at; nobody calls it unresolved."""
    decided(s3, job_id="j")
    for upload in s3.open_uploads() if verb == "head" else ():
        s3.drop_upload(upload.upload_id)  # whether it was completed only its object tells
    unlisted = raising("list_uploads", NotSupported("no such listing", status=501))
    # Else a listing of the key tells.
    denied = raising("head|list *.csv" if verb == "head" else "list_parts *.csv", DENIED)
    s3.before = lambda request: (unlisted(request), denied(request))
    (found,) = mc.inspect(DEST)
    assert (found.missing, found.missing_keys, found.visible) == (0, (), 0)
    assert "of 2 files nobody can tell" in found.problem
    assert mc.recover(DEST, "j", dry_run=True).unresolved == ()


def test_a_store_that_does_not_answer_is_no_finding(s3: MemoryStore) -> None:
    """I10: inspect tells that the uploads cannot be looked at, and counts none as missing."""
    decided(s3, job_id="j")
    for upload in s3.open_uploads():
        s3.drop_upload(upload.upload_id)
    s3.before = raising("list_parts *.csv", Unanswered("no answer"))
    (found,) = mc.inspect(DEST)
    assert (found.visible, found.missing, found.problem) == (None, None, "no answer")


@pytest.fixture
def blind(s3: MemoryStore) -> MemoryStore:
    """A store whose listing of uploads shows none, as it may: it is a hint."""

    def shows_none(request: Request, reply: Any) -> Any:
        if request.verb != "list_uploads" or isinstance(reply, mc.StoreError):
            return None
        page, bound = reply
        return replace(page, uploads=()), bound

    s3.after = shows_none
    return s3


@pytest.mark.parametrize("verb", ["list_parts", "list_uploads"])
@pytest.mark.parametrize("error", [DENIED, Unanswered("no answer")])
def test_a_check_that_is_not_made_decides_nothing(
    blind: MemoryStore, error: mc.StoreError, verb: str
) -> None:
    """I10: the error is raised, the job runs on, and the same call commits it later."""
    job = job_of({"a.csv": b"1"}, job_id="j")
    blind.before = raising(verb, error)
    if verb == "list_parts" or isinstance(error, Unanswered):
        raises(type(error), job.commit)
        assert job.state == "running"
    blind.before = None
    assert job.commit().outcome == "committed"
    assert visible(blind) == {"t/a.csv": b"1"}


CONFLICT = WriteConflict("conflict", status=409)
FAILED = PreconditionFailed("precondition failed", status=412)


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("error", [CONFLICT, FAILED])
def test_a_conflict_with_nothing_is_none(s3: MemoryStore, mode: Mode, error: mc.StoreError) -> None:
    """I2: a 409 with nothing at the key is passed over; one that stays undoes nothing."""
    if mode in ("fail", "fail_partitions"):  # the others send no condition
        first = job_of({"dt=1/a.csv": b"1"}, mode=mode)
        with At(s3, "complete_upload", error):
            assert first.commit().outcome == "committed"
    job = mc.start(f"{DEST}2", job_id="j", mode=mode)
    committed_task(job, "1", {"a.csv": b"1", "b.csv": b"22"})
    s3.before = raising("complete_upload *b.csv", error)
    for _ in range(2):
        raised = raises(mc.CommitIncomplete, mc.attach(f"{DEST}2", "j").commit)
        assert (raised.unfinished, raised.unresolved) == (("t2/b.csv",), ())
        assert "t2/a.csv" in s3.keys()
        assert mc.attach(f"{DEST}2", "j").state == "committing"
    s3.before = None
    assert mc.recover(f"{DEST}2", "j").outcome == "committed"
    assert {"t2/a.csv", "t2/b.csv"} <= set(s3.keys())


def complete(s3: MemoryStore, key: str) -> None:
    """A driver that wakes up completes a file."""
    (upload,) = s3.open_uploads(key)
    s3.complete_upload(key, upload.upload_id, s3.list_parts(key, upload.upload_id))


def test_a_revert_is_not_told_while_an_upload_can_be_completed(s3: MemoryStore) -> None:
    """I3: aborts that do not take leave it `reverting`; what is completed meanwhile is deleted."""
    deaf(s3)
    job = decided(s3, job_id="j")
    raised = raises(mc.AbortIncomplete, mc.abort, DEST, job.id, revert=True, match="still open")
    assert "magic_committer.recover(" in raised.hint
    assert mc.attach(DEST, job.id).state == "reverting"
    complete(s3, "t/a.csv")
    deaf(s3, 1)
    with At(s3, "list_parts t/b.csv", lambda: complete(s3, "t/b.csv")):
        assert mc.abort(DEST, job.id).outcome == "reverted"
    assert remains(s3)[:2] == ({}, [])


REVERT_FAILS = {
    "abort": "abort_upload",
    "proof": "list_parts|list_uploads",
    "head": "head *.csv",
    "delete": "delete_one *.csv",
    "pendingset": "get *.pendingset",
    "plan": "get */_plan-*",
}


@pytest.mark.parametrize("error", [DENIED, Unanswered("no answer"), CONFLICT])
@pytest.mark.parametrize("what", REVERT_FAILS)
def test_what_fails_in_a_revert_is_done_again(
    machine: Machine, what: str, error: mc.StoreError
) -> None:
    """I3, I10: whatever failed, it is AbortIncomplete, never reverted or committed."""
    job, s3 = machine.job("committing"), machine.s3
    with refusing(s3, REVERT_FAILS[what], error), pytest.raises(mc.AbortIncomplete) as raised:
        mc.abort(DEST, job.id, revert=True)
    assert "is committed" not in str(raised.value)
    assert mc.attach(DEST, job.id).state == "reverting"
    assert mc.abort(DEST, job.id).outcome == "reverted"
    assert remains(s3)[:2] == ({}, [])


@pytest.mark.parametrize("error", [DENIED, Unanswered("no answer")])
@pytest.mark.parametrize("verb", ["put", "get"])
def test_a_record_that_fails_is_told(machine: Machine, verb: str, error: mc.StoreError) -> None:
    """I10: it cannot be written, nor read after that: AbortIncomplete, no error of the store."""
    job, s3 = machine.job("reverting"), machine.s3
    undone: list[str] = []

    def hook(request: Request) -> None:
        undone.extend([request.key] if request.verb in ("abort_upload", "delete_one") else [])
        if undone and request.verb in ("put", verb) and request.key.endswith("_job.json"):
            raise error

    s3.before = hook
    raises(mc.AbortIncomplete, mc.abort, DEST, job.id)
    s3.before = None
    assert undone
    assert mc.abort(DEST, job.id).outcome == "reverted"


@pytest.mark.parametrize("times", [1, 99])
def test_cleanup_believes_an_abort_when_the_parts_are_gone(machine: Machine, times: int) -> None:
    """I4: it aborts an orphan again; one that stays open is told, and not counted as aborted."""
    s3 = machine.s3
    deaf(s3, times)
    s3.start_upload(f"t/{unique_name('x.csv', 'f' * 32)}")
    machine.later(5 * YOUNG)
    report = mc.cleanup(DEST)
    if times == 1:
        assert (report.uploads_aborted, report.uploads_left, report.errors) == (1, 0, ())
        assert s3.open_uploads() == ()
    else:
        assert (report.uploads_aborted, report.uploads_left, report.did) == (0, 1, ())
        assert "still open" in report.errors[0]


def test_litter_that_names_an_upload_stays_until_the_upload_is_gone(machine: Machine) -> None:
    """I4: cleanup deletes a leftover pendingset only once what it names is proved gone."""
    s3 = machine.s3
    deaf(s3)
    job_of({"users-name.csv": b"1"}, track="memory", accept="results")
    (upload,) = s3.open_uploads()
    s3.delete_object(*matching(s3, "*_job.json"))
    machine.later(5 * YOUNG)
    report = mc.cleanup(DEST)
    assert (report.objects_deleted, report.uploads_aborted) == (0, 0)
    assert upload.upload_id in report.errors[0]
    assert len(control(s3)) == 1
    deaf(s3, 0)
    report = mc.cleanup(DEST)
    assert (report.objects_deleted, report.uploads_aborted, report.errors) == (1, 1, ())
    assert (s3.open_uploads(), control(s3)) == ((), [])


def test_a_lagging_listing_is_not_aborted_once_more() -> None:
    """I6: aborted, proved gone, and shown again: its key may be another's by now."""
    with costly_store() as s3:
        job = mc.start(DEST)
        s3.requests.clear()  # the proof of the store
        file = killed(job, "1", "cut.csv", unique=True)
        (upload,) = s3.open_uploads()
        s3.done[upload.upload_id] = upload
        s3.lags = True
        report = job.abort()
        assert (report.outcome, report.warnings) == ("aborted", ())
        assert s3.requests["abort_upload"] == 1
        file.abort()


@pytest.mark.parametrize("case", ["the parts tell", "an object is there", "nothing is there"])
def test_a_listing_that_lags_behind_risks_no_object_of_a_completed_job(case: str) -> None:
    """I2: driver dead in the sweep, plan gone: only the parts tell; without them none is risked."""
    with costly_store() as s3:
        job = mc.start(DEST)
        s3.requests.clear()  # the proof of the store
        with job.task("1") as task:
            write(task, unique=True)
        dies_at(s3, "put t/_SUCCESS", job.commit)
        s3.delete_object(*matching(s3, "*/_plan-*"))
        s3.lags = True
        if case != "the parts tell":
            s3.delete_object(*matching(s3, "*set"))
            s3.before = raising("list_parts", DENIED)
        if case == "nothing is there":
            s3.delete_object(*visible(s3))
        report = mc.recover(DEST, job.id).report
        assert report is not None
        if case == "nothing is there":
            assert s3.requests["abort_upload"] > 0
            return
        if case == "the parts tell":
            assert (report.outcome, report.state) == ("committed", "closed")
            assert (report.left_open, report.warnings) == ((), ())
            assert remains(s3)[2] == ["_job.json"]
        else:
            assert (report.state, len(report.left_open)) == ("completed", 1)
            assert "is unknown" in report.warnings[0]
            s3.before = None
            assert mc.recover(DEST, job.id).state == "closed"
        assert s3.requests["abort_upload"] == 0
        assert list(visible(s3).values()) == [b"1"]


def test_many_uploads_that_stay_are_named_in_part_and_counted(s3: MemoryStore) -> None:
    """I4: a hundred are named, the rest is a number; record and sets stay for the next sweep."""
    deaf(s3)
    job = job_of({"users-name.csv": b"1"})
    for number in range(NAMED_MAX + 7):
        s3.start_upload(f"t/{number}-mcj{job.uuid}.csv")
    report = job.abort()
    assert (report.state, len(report.left_open)) == ("aborting", NAMED_MAX)
    assert len(report.warnings) == NAMED_MAX + 1
    assert report.warnings[-1] == "8 more uploads could not be aborted"
    assert any("still open" in warning for warning in report.warnings)
    assert matching(s3, "*.pendingset")
    deaf(s3, 1)
    report = mc.attach(DEST, job.id).abort()
    assert (report.outcome, report.warnings, report.left_open) == ("aborted", (), ())
    assert s3.open_uploads() == ()


def leave_set(
    s3: MemoryStore, job: mc.Job, result: mc.TaskCommit, uuid: str, **changes: Any
) -> None:
    """Put a changed copy of a pendingset beside it."""
    pendingset = decode_pendingset(s3.body(result.key), result.key)
    changed = structs.replace(
        pendingset, commits=(structs.replace(pendingset.commits[0], **changes),)
    )
    key = result.key.replace(".pendingset", "-copy.pendingset")
    s3.put(key, encode_pendingset(changed, "objects", source=key), metadata={JOB_METADATA: uuid})


@pytest.mark.parametrize("outside", [True, False], ids=["a key outside", "of another run"])
def test_a_leftover_that_is_not_the_jobs_names_nothing(s3: MemoryStore, outside: bool) -> None:
    """I6: an upload outside the destination stays, and is told; another run's set stays, too."""
    job = mc.start(DEST, job_id=None if outside else "given")
    result = committed_task(job, "1", {"a.csv": b"1"})
    key = "elsewhere/b.csv" if outside else "t/b.csv"
    theirs = s3.start_upload(key)
    uuid = job.uuid if outside else "f" * 32
    leave_set(s3, job, result, uuid, destination_key=key, upload_id=theirs)
    report = job.abort()
    assert open_ids(s3) == {theirs}
    if outside:
        assert "lies outside the destination" in report.warnings[0]
    else:
        assert len(matching(s3, "*-copy.pendingset")) == 1


def test_a_leftover_pending_of_a_committed_file_costs_no_object(s3: MemoryStore) -> None:
    """I2: it names an upload of the plan: there are stores where an abort takes the object."""
    job = mc.start(DEST)
    sent: list[str] = []
    s3.after = lambda request, _: sent.append(request.verb)
    s3.before = raising(lambda r: any(key.endswith(".pending") for key in r.keys), Unanswered)
    committed_task(job, "1", {"a.csv": b"1"})
    assert matching(s3, "*.pending")
    s3.before = None
    job.commit()
    assert not matching(s3, "*.pending")
    assert "abort_upload" not in sent
    assert visible(s3) == {"t/a.csv": b"1"}


def test_the_plan_goes_before_the_sets_that_it_names(s3: MemoryStore) -> None:
    """I5: while a plan is there all its pendingsets are: the plan is deleted first."""
    job = job_of({"a.csv": b"1"})
    gone: list[str] = []
    s3.before = lambda request: gone.extend(request.keys)
    job.commit()
    kinds = ["plan" if "/_plan-" in key else "set" for key in gone if not key.endswith(".pending")]
    assert kinds[0] == "plan"
    assert "set" in kinds


def test_as_many_uploads_as_a_report_names_are_told_of_no_more(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each upload that is left is named in a warning, and none is said to be left beside them."""
    monkeypatch.setattr(sweep, "NAMED_MAX", 2)
    job = job_of({"a.csv": b"a", "b.csv": b"b"})

    with refusing(s3, "abort_upload", mc.PermissionDenied):
        warnings = job.abort().warnings
    told = [("t/a.csv" in one, "t/b.csv" in one) for one in warnings]
    assert told == [(True, False), (False, True)]


def test_an_abort_of_a_running_job_looks_for_no_object(s3: MemoryStore) -> None:
    """Nobody can have completed its uploads: they are proved gone, and nothing more is asked."""
    job = job_of({"a.csv": b"a"})
    looked: list[str] = []
    s3.before = lambda r: looked.append(r.key) if r.verb == "head" else None
    job.abort()
    s3.before = None
    assert "t/a.csv" not in looked
    assert s3.open_uploads() == ()


def test_an_upload_of_the_plan_that_is_listed_still_hides_no_other() -> None:
    """I2, I4: a lagging listing shows what was completed, and behind it what is to be aborted."""
    with costly_store() as s3:
        job = mc.start(DEST)
        committed_task(job, "1", {f"a-mcj{job.uuid}.csv": b"a"})
        killed(job, "2", "z.csv", unique=True)
        s3.requests.clear()
        s3.lags = True
        job.commit()
        assert s3.open_uploads() == ()
        assert s3.requests["abort_upload"] == 1
        assert list(visible(s3).values()) == [b"a"]


UPLOADS = 40
FAILURES: dict[str, mc.StoreError] = {
    "no answer": Unanswered("no answer"),
    "slow down": Unanswered("slow down", status=503, code="SlowDown"),
    "no bucket": mc.NotFound("no such bucket", status=404, code="NoSuchBucket"),
    "an empty 404": mc.NotFound("not found", status=404),
    "forbidden": mc.PermissionDenied("not allowed", status=403, code="AccessDenied"),
}


def killed_tasks(s3: MemoryStore) -> mc.Job:
    """A job whose tasks were killed: only their names tell of their uploads."""
    job = mc.start(DEST)
    for number in range(UPLOADS):
        s3.start_upload(f"t/p={number % 4}/{number:02}-mcj{job.uuid}.csv")
    return job


@pytest.mark.parametrize("verb", ["abort_upload", "list_parts"])
@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_once_is_done_again(s3: MemoryStore, verb: str, failure: str) -> None:
    """Each upload is proved gone behind its last abort, and the report has nothing to warn of."""
    job = killed_tasks(s3)
    told: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    failed: set[str] = set()

    def fail(request: Request) -> None:
        third = request.key.split("-")[0][-1] in "0369"
        if request.verb == verb and third and request.key not in failed:
            failed.add(request.key)
            raise FAILURES[failure]

    def note(request: Request, answer: object) -> None:
        if request.verb in ("abort_upload", "list_parts"):
            told[request.key].append((request.verb, getattr(answer, "code", "")))

    s3.before, s3.after = fail, note
    report = job.abort()
    s3.before = s3.after = None
    assert (report.warnings, s3.open_uploads()) == ((), ())
    assert not control(s3)
    assert len(failed) == 16
    assert len(told) == UPLOADS
    for requests in told.values():
        assert requests[-2:] == [("abort_upload", ""), ("list_parts", "NoSuchUpload")]


def saved(job: mc.Job, task: str, *names: str) -> mc.Task:
    """An attempt that closed its files and was never committed."""
    attempt = job.task(task)
    for name in names:
        write(attempt, name)
    return attempt


@pytest.mark.parametrize("accept", ["results", "listing"])
def test_a_forgotten_task_commit_is_told(s3: MemoryStore, accept: Accept) -> None:
    """The task is named, with its number of files and what to do; all are swept."""
    job = mc.start(DEST, track="s3", accept=accept)
    done = committed_task(job, "1", {"a.csv": b"1"})
    saved(job, "2", "b.csv", "c.csv", "d.csv")
    report = job.commit([done] if accept == "results" else None)
    (warning,) = report.warnings
    assert warning.startswith("task '2' saved 3 files and was never committed: call task.commit()")
    assert visible(s3) == {"t/a.csv": b"1"}
    assert (s3.open_uploads(), control(s3)) == ((), [])


def test_many_forgotten_tasks_are_told_in_few_lines(s3: MemoryStore) -> None:
    """The first are named, the others are counted."""
    job = mc.start(DEST, track="s3")
    committed_task(job, "done", {"a.csv": b"1"})
    for number in range(TASKS_NAMED_MAX + 5):
        saved(job, f"{number:02d}", f"{number}.csv")
    warnings = job.commit().warnings
    assert len(warnings) == TASKS_NAMED_MAX + 1
    assert "saved 1 file " in warnings[0]
    assert warnings[-1].startswith("5 more tasks, each: saved 5 files in all")


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_killed_attempt_of_a_committed_task_is_not_told(s3: MemoryStore, end: str) -> None:
    """Another attempt published what the task had to write; of an aborted job nothing was to be."""
    job = mc.start(DEST, track="s3")
    saved(job, "1", "a.csv", "b.csv")
    if end == "commit":
        committed_task(job, "1", {"a.csv": b"1"})
    killed(job, "2", "cut.csv", unique=True)
    assert (job.commit() if end == "commit" else job.abort()).warnings == ()


@pytest.mark.parametrize("how", ["driver", "another"])
def test_the_tree_of_an_accepted_attempt_that_stayed_is_not_told(s3: MemoryStore, how: str) -> None:
    """Its set names the files: that the `.pending`s could not be deleted loses nothing."""
    job = mc.start(DEST, job_id="j", track="s3", mark_success=False)
    dies_at(s3, "delete", lambda: committed_task(job, "1", {"a.csv": b"1", "b.csv": b"2"}))
    assert matching(s3, "*.pending")
    if how == "another":
        dies_at(s3, "list *__magic_job-j/", mc.attach(DEST, "j").commit)
    report = job.commit() if how == "driver" else mc.recover(DEST, "j").report
    assert report is not None
    assert report.warnings == ()
    assert len(visible(s3)) == 2


def test_what_an_adopted_job_of_hadoop_left_is_not_told(s3: MemoryStore) -> None:
    """Its uncommitted tasks are not ours to judge: their `.pending`s carry no token."""
    hadoops = leave_job(s3, "3.5.0", unfinished=True)
    mc.adopt(DEST, hadoops.id, dead_after=0)
    assert mc.attach(DEST, hadoops.id).commit().warnings == ()
    assert s3.open_uploads() == ()


@pytest.mark.parametrize("recovered", [False, True])
def test_a_file_saved_after_its_attempts_commit_is_told(s3: MemoryStore, recovered: bool) -> None:
    """The accepted set does not name it; also by who finishes a job that another completed."""
    job = mc.start(DEST, job_id="j", track="s3")
    attempt = saved(job, "1", "a.csv", "late.csv")
    (late,) = matching(s3, "*late.csv*.pending")
    body, metadata = s3.body(late), s3.attributes(late).metadata
    s3.delete_object(late)
    # As another process, which never opened the late file, commits the attempt.
    mc.attach(DEST, "j").task("1", attempt=attempt.attempt_id).commit()
    s3.put_object(late, body, metadata=metadata)
    if recovered:
        dies_at(s3, "put t/_SUCCESS", job.commit)
        report = mc.recover(DEST, "j").report
        assert report is not None
    else:
        report = job.commit()
    (warning,) = report.warnings
    assert warning.startswith("task '1' closed 1 file after its attempt was committed")
    assert remains(s3)[:2] == ({"t/a.csv": b"1"}, [])


def tombstone(s3: MemoryStore, job: mc.Job, task: str, attempt: str) -> None:
    extra = {EXTRA_JOB: job.uuid, EXTRA_TASK: task, EXTRA_ATTEMPT: attempt, EXTRA_ABORTED: "true"}
    key = f"t/__magic_job-{job.id}/job-{job.id}/00/_{attempt}.pendingset"
    one = new_pendingset(job_id=job.id, commits=[], extra_data=extra, iostatistics={})
    metadata = {JOB_METADATA: job.uuid, TASK_METADATA: task, ATTEMPT_METADATA: attempt}
    s3.put_object(key, encode_pendingset(one, "objects", source=key), metadata=metadata)


def test_an_aborted_attempt_is_not_told(s3: MemoryStore) -> None:
    """Its tombstone says that it was on purpose: both are swept without a word."""
    job = mc.start(DEST, track="s3", accept="results")
    done = committed_task(job, "1", {"a.csv": b"1"})
    attempt = saved(job, "2", "b.csv")
    tombstone(s3, job, "2", attempt.attempt_id)
    assert job.commit([done]).warnings == ()
    assert (s3.open_uploads(), control(s3)) == ((), [])


def test_a_tombstone_is_no_committed_task_for_inspect(s3: MemoryStore) -> None:
    """It counts as an object of the directory, and as nothing else."""
    job = job_of({"a.csv": b"1"}, job_id="j", track="s3")
    (found,) = mc.inspect(DEST)
    tombstone(s3, job, "2", "other")
    (with_it,) = mc.inspect(DEST)
    assert (with_it.tasks, with_it.files, with_it.problem) == (1, 1, "")
    assert with_it.objects == found.objects + 1
