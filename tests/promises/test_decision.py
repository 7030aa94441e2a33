"""I2, I5, I10: a job is decided once, finished by anyone, and nobody is told an untruth."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

import magic_committer as mc
from magic_committer.commit.outcome import UNREAD_AGAIN
from magic_committer.errors import InvalidRequest, PreconditionFailed, Unanswered, WriteConflict
from magic_committer.options import Accept, Mode
from magic_committer.protocol.record import Marker, TaskCommit, may_replace_marker
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import (
    DEST,
    At,
    Fits,
    Nth,
    committed_task,
    control,
    decided,
    dies_at,
    failing,
    fitting,
    half_completed,
    job_of,
    killed,
    noted,
    raises,
    raising,
    record_of,
    record_put,
    refusing,
    remains,
    visible,
)
from tests.promises.machine import matching


def test_the_handle_that_saw_the_end_says_which_it_was(s3: MemoryStore) -> None:
    """I5, I10: a second commit returns the first report; the other end is refused."""
    committed, aborted = job_of({"a.csv": b"1"}), mc.start(DEST)
    first = committed.commit()
    aborted.abort()
    s3.requests.clear()
    assert committed.commit() is first
    assert aborted.abort().outcome == "aborted"
    assert not s3.requests
    for call, outcome in ((aborted.commit, "aborted"), (committed.abort, "committed")):
        assert raises(mc.JobNotRunning, call).outcome == outcome


def test_without_record_and_marker_the_outcome_is_unknown(s3: MemoryStore) -> None:
    """I10: an absent record is "unknown", never "aborted"."""
    job = mc.start(DEST, mark_success=False)
    twin = mc.attach(DEST, job.id)
    committed_task(job, "1", {"a.csv": b"1"})
    job.commit()
    raises(mc.OutcomeUnknown, twin.commit)
    raises(mc.OutcomeUnknown, twin.abort)
    raises(mc.JobNotFound, mc.attach, DEST, job.id)


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_decision_without_an_answer_is_one(s3: MemoryStore, verb: str, landed: bool) -> None:
    """I5, I10: one that took effect is recognised, else it is sent again, and lands no more."""
    job = job_of({"a.csv": b"1"})
    swaps: list[Request] = []

    def lose_the_first(request: Request, *_: object) -> None:
        if record_put("decided")(request) and not swaps:
            swaps.append(request)
            raise Unanswered("it may still land")

    setattr(s3, "after" if landed else "before", lose_the_first)
    report = job.commit() if verb == "commit" else job.abort()
    assert report.outcome == ("committed" if verb == "commit" else "aborted")
    raises((PreconditionFailed, mc.NotFound), swaps[0].effect)
    assert remains(s3) == ({"t/a.csv": b"1"} if verb == "commit" else {}, [], [])


@pytest.mark.parametrize("rival", ["commit", "abort"])
def test_the_record_decides_between_two_drivers(s3: MemoryStore, rival: str) -> None:
    """I2, I3, I5: the loser of the swap deletes its plan, executes the winner's, and says so."""
    job = job_of({"a.csv": b"1"})
    At(s3, "put *_plan-*", getattr(mc.attach(DEST, job.id), rival), after=True)
    if rival == "commit":
        assert job.commit().outcome == "committed"
    else:
        assert raises(mc.JobNotRunning, job.commit).outcome == "aborted"
    # closed, by the rival
    assert remains(s3) == ({"t/a.csv": b"1"} if rival == "commit" else {}, [], ["_job.json"])


@pytest.mark.parametrize("accept", ["listing", "results"])
def test_an_upload_that_is_gone_refuses_the_whole_job(s3: MemoryStore, accept: Accept) -> None:
    """I1: every upload is looked at before the decision; a lost one aborts the job."""
    job = mc.start(DEST, accept=accept)
    result = committed_task(job, "1", {"a.csv": b"1", "b.csv": b"2"})
    s3.drop_upload(s3.open_uploads()[0].upload_id)
    with pytest.raises(mc.CommitRefused, match=r"a\.csv") as raised:
        job.commit([result] if accept == "results" else None)
    assert len(raised.value.problems) == 1
    assert (s3.keys(), s3.open_uploads()) == ((), ())
    assert (job.report.outcome, "CommitRefused" in job.report.error) == ("aborted", True)
    assert job.abort().outcome == "aborted"


def test_one_destination_twice_in_a_job_is_refused(s3: MemoryStore) -> None:
    """I2: two tasks that write one name would make the result a matter of chance."""
    job = job_of({"a.csv": b"1"}, {"a.csv": b"2"})
    raises(mc.CommitRefused, job.commit, match="2 files of the job have this destination")
    assert remains(s3) == ({}, [], [])


def test_an_encrypted_part_that_changed_its_etag_still_completes(s3: MemoryStore) -> None:
    """I5: a late retry may change it (SSE-KMS): number, size and checksum tell the same part."""
    job = job_of({"a.csv": b"12345"})
    upload = s3.open_uploads()[0]
    parts = s3._bucket.uploads[upload.upload_id].parts
    parts[1] = replace(parts[1], part=parts[1].part._replace(etag='"another"'))
    assert job.commit().outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"12345"}


@pytest.mark.parametrize(
    ("fails", "error"),
    [
        ("put", Unanswered),
        ("put", mc.PermissionDenied),
        *((verb, Unanswered) for verb in ("list_uploads", "abort_upload", "delete")),
    ],
)
def test_a_marker_or_a_sweep_that_fails_is_a_warning_and_is_done_again(
    s3: MemoryStore, fails: str, error: type[mc.StoreError]
) -> None:
    """I4, I8: the job is committed; the record stays, and whoever finishes it marks and sweeps."""
    job = job_of({"a.csv": b"1"})
    killed(job, "2", "b.csv", unique=True)

    def at_the_end(request: Request) -> bool:
        marks = (request.verb, request.key) == ("put", "t/_SUCCESS")
        return marks if fails == "put" else request.verb == fails and "t/_SUCCESS" in s3.keys()

    with refusing(s3, at_the_end, error):
        report = job.commit()
    assert (report.outcome, report.state) == ("committed", "completed")
    assert report.warnings
    assert fails != "put" or "_SUCCESS" in report.warnings[0]
    assert visible(s3) == {"t/a.csv": b"1"}
    assert mc.attach(DEST, job.id).commit().warnings == ()
    assert "t/_SUCCESS" in s3.keys()
    assert remains(s3)[1:] == ([], ["_job.json"])


@pytest.mark.parametrize(
    ("expect", "missing", "surplus"),
    [(["1"], (), ("2",)), (1, (), ()), (["1", "2", "3"], ("3",), ()), (3, (), ())],
)
def test_a_commit_by_listing_has_exactly_the_tasks_that_are_expected(
    s3: MemoryStore, expect: int | list[str], missing: tuple[str, ...], surplus: tuple[str, ...]
) -> None:
    """A task too many or too few decides nothing; the job may be committed as it is."""
    job = job_of({"a.csv": b"1"}, {"b.csv": b"2"})
    raised = raises(mc.IncompleteJob, job.commit, expect=expect)
    assert (raised.missing, raised.surplus) == (missing, surplus)
    assert (job.state, visible(s3)) == ("running", {})
    assert job.commit(expect=["1", "2"]).tasks == 2


@pytest.mark.parametrize("another", [True, False])
def test_without_conditions_a_job_is_ended(s3: MemoryStore, another: bool) -> None:
    """With ``conditional_writes="off"`` no request has a condition; the driver leaves no record."""
    conditions = noted(s3, lambda r: r.if_match or r.if_none_match)
    job = job_of({"a.csv": b"1"}, options=mc.Options(conditional_writes="off"))
    if another:
        job = mc.attach(DEST, job.id)
    assert job.commit().outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}
    assert conditions == []
    assert another or control(s3) == []


@pytest.mark.parametrize("case", ["unanswered", "refused", "answered", "refused later on"])
def test_a_late_request_of_the_proof_brings_no_record_back(s3: MemoryStore, case: str) -> None:
    """I4, I5: where the proof may land late the record is closed, so that its name stays taken."""
    answers = {
        "unanswered": Unanswered("still under way"),
        "refused": mc.PermissionDenied("the token is expired", status=403, attempts=2),
    }
    late: list[Request] = []

    def slow(request: Request) -> None:
        if request.verb == "put" and s3.requests["put"] == 2:
            late.append(request)
            raise answers.get(case, PreconditionFailed("412", status=412, attempts=2))
        if request.verb == "complete_upload" and case == "refused later on":
            raise mc.PermissionDenied("no")

    s3.before = slow
    if case == "answered":
        mc.start(DEST).abort()
    else:
        raises((Unanswered, mc.PermissionDenied), mc.start, DEST, mode="fail_partitions")
    s3.before = None
    raises(PreconditionFailed, late[0].effect)
    (record,) = control(s3)
    assert b'"closed"' in s3.body(record)


@pytest.mark.parametrize("fails", ["get *.pendingset", "abort_upload|list_uploads"])
def test_what_names_an_upload_stays_while_it_is_open(s3: MemoryStore, fails: str) -> None:
    """I4: a pendingset that cannot be read, or its upload aborted, tells the next sweep."""
    job = job_of({"users-own-name.csv": b"1"}, track="memory", accept="results")
    with refusing(s3, fails, Unanswered):
        report = job.abort()
    assert (report.state, len(report.left_open)) == ("aborting", int("abort" in fails))
    assert mc.attach(DEST, job.id).abort().outcome == "aborted"
    assert s3.open_uploads() == ()


def test_a_driver_whose_job_is_forgotten_asks_the_marker(s3: MemoryStore) -> None:
    """I10: a driver that finds no set, and no record, is told by `_SUCCESS` that it is done."""
    job = job_of({"a.csv": b"a"})

    def commits() -> None:
        assert mc.attach(DEST, job.id).commit().outcome == "committed"
        s3.delete_object(record_of(job))

    with At(s3, f"list t/__magic_job-{job.id}/job-{job.id}/*", commits):
        assert job.commit(expect=1).outcome == "committed"


@pytest.mark.parametrize("at", ["the decision", "the decision, unheard", "completed"])
def test_a_driver_without_record_and_marker_knows_nothing(s3: MemoryStore, at: str) -> None:
    """I10: unknown, as it may have been undone, and never "nothing decided"."""
    job = job_of({"a.csv": b"a"})

    def finished() -> None:
        assert mc.recover(DEST, job.id, dead_after=0).outcome == "committed"
        s3.delete_object(record_of(job))
        s3.before = raising("get t/_SUCCESS", Unanswered)
        if at == "the decision, unheard":
            raise Unanswered("the answer to the decision is lost")

    completed = at == "completed"
    with At(s3, f"put {record_of(job)}", finished, after=not completed, nth=1 + completed):
        raises(mc.OutcomeUnknown, job.commit)
    assert visible(s3) == {"t/a.csv": b"a"}


BOTH = {"t/a.csv": b"1", "t/b.csv": b"22"}


def test_accept_takes_no_file_whose_upload_is_open(s3: MemoryStore) -> None:
    """I2: a key is taken as it is if the operator named it and its upload is gone."""
    job = decided(s3)
    with refusing(s3, "complete_upload t/a.csv", Unanswered):
        raised = raises(mc.CommitIncomplete, mc.recover, DEST, job.id, accept=["t/a.csv"])
        assert raised.unfinished == ("t/a.csv",)
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert visible(s3) == BOTH
    job = decided(s3)
    for upload in s3.open_uploads():
        s3.drop_upload(upload.upload_id)
    raised = raises(mc.CommitIncomplete, mc.recover, DEST, job.id, accept=["t/a.csv"])
    assert raised.unresolved == ("t/b.csv",)


def test_a_pendingset_that_is_gone_leaves_the_job_incomplete(s3: MemoryStore) -> None:
    """I2: a decided job of which a pendingset was deleted is never called committed."""
    job = decided(s3)
    s3.delete_one(next(key for key in control(s3) if key.endswith(".pendingset")))
    raises(mc.CommitIncomplete, mc.recover, DEST, job.id)
    assert mc.attach(DEST, job.id).state == "committing"


@pytest.mark.parametrize(
    "error",
    [
        mc.PermissionDenied("its token has expired", operation="get_object"),
        mc.FormatError("_job.json", "state", "no record at all"),
    ],
)
@pytest.mark.parametrize("at", ["complete_upload t/a.csv", "get */_plan-*"])
def test_a_failure_says_if_the_record_could_not_be_read_again(
    s3: MemoryStore, at: str, error: mc.MagicError
) -> None:
    """I10: who fails at a file or at the plan and cannot read the record says what it last knew."""
    job = decided(s3)

    def undo() -> None:
        assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
        s3.before = raising(f"get {record_of(job)}", error)

    At(s3, at, undo)
    raised = raises(mc.CommitIncomplete, mc.recover, DEST, job.id, match=UNREAD_AGAIN)
    assert error.message in str(raised)
    s3.before = None
    assert raises(mc.JobNotRunning, mc.attach(DEST, job.id).commit).outcome == "reverted"
    assert visible(s3) == {}


def test_what_another_process_has_ended_meanwhile_is_told_as_ended(s3: MemoryStore) -> None:
    """I10: the store refuses "completed", another process ends the job: it is committed."""
    job = decided(s3)
    refused: list[str] = []

    def before(request: Request) -> None:
        if request.key == record_of(job) and (request.verb == "put" or refused):
            refused.append(request.verb)
            if request.verb == "put":
                raise InvalidRequest("not this one", status=400)
            if len(refused) == 3:  # the PUT, its read-back, and the last look
                s3.before = None
                assert mc.recover(DEST, job.id).outcome == "committed"

    s3.before = before
    assert mc.recover(DEST, job.id).outcome == "committed"
    assert refused == ["put", "get", "get"]
    assert visible(s3) == BOTH


def test_an_old_marker_that_stays_is_told_as_an_unfinished_job(s3: MemoryStore) -> None:
    """The job is decided: who gets a bare 403 would take it for a refusal that left nothing."""
    s3.put_object("t/_SUCCESS", b"")
    job = job_of({"new.csv": b"new"}, mode="replace")
    with (
        refusing(s3, "delete_one t/_SUCCESS", mc.PermissionDenied),
        pytest.raises(mc.CommitIncomplete, match="the old _SUCCESS could not be deleted"),
    ):
        job.commit()
    assert job.commit().outcome == "committed"
    assert set(visible(s3)) == {"t/new.csv"}


def test_lost_and_unfinished_files_are_told_apart(s3: MemoryStore) -> None:
    """A lost upload takes an operator; a store that did not answer takes time."""
    job = job_of({"gone.csv": b"1", "slow.csv": b"2"})
    (gone,) = s3.open_uploads("t/gone.csv")

    def before(request: Request) -> None:
        if request.verb == "complete_upload":
            if request.key == "t/slow.csv":
                raise mc.PermissionDenied("no")
            s3.abort_upload(gone.key, gone.upload_id)

    s3.before = before
    raised = raises(mc.CommitIncomplete, job.commit)
    s3.before = None
    told = str(raised)
    assert "1 file is lost (their uploads cannot be completed" in told
    assert "1 file is not completed yet" in told
    assert (raised.unresolved, raised.unfinished) == (("t/gone.csv",), ("t/slow.csv",))
    assert "not completed yet" not in str(raises(mc.CommitIncomplete, job.commit))


@pytest.mark.parametrize("stays", [False, True])
def test_an_accepted_conflict_leaves_no_untold_upload(s3: MemoryStore, stays: bool) -> None:
    """I4: what is at the key is taken as it is; the job's own upload is not needed any more."""
    job = half_completed(s3, mode="fail")
    s3.put_object("t/b.csv", b"theirs")
    with refusing(s3, f"abort_upload t/{'b' if stays else '-'}.csv", mc.PermissionDenied):
        recovery = mc.recover(DEST, job.id, accept=["t/b.csv"])
    assert recovery.report is not None
    told = "the upload of t/b.csv may be open still" in " ".join(recovery.report.warnings)
    assert (recovery.outcome, told, bool(s3.open_uploads())) == ("committed", stays, stays)
    assert stays or recovery.state == "closed"
    assert visible(s3) == {"t/a.csv": b"1", "t/b.csv": b"theirs"}


def test_a_file_that_was_given_up_and_comes_back_is_not_published(s3: MemoryStore) -> None:
    """I4: an upload that a server shows again after its key was accepted is aborted, and told."""
    job = job_of({"a.csv": b"1", "b.csv": b"2"}, mode="fail")
    (upload,) = s3.open_uploads("t/a.csv")

    def hidden(request: Request) -> None:
        if request.upload_id == upload.upload_id:
            if request.verb == "complete_upload" and upload.key not in s3.keys():
                s3.put_object(upload.key, b"theirs")
            raise mc.NotFound("gone", status=404, code="NoSuchUpload")

    s3.before = hidden
    assert raises(mc.CommitIncomplete, job.commit).unresolved == ("t/a.csv",)
    s3.before = None
    report = mc.recover(DEST, job.id, accept=["t/a.csv"]).report
    assert report is not None
    said = "its upload was open and is aborted, so the job's file is not published"
    assert f"t/a.csv was accepted as it is: {said}" in report.warnings
    assert remains(s3)[:2] == ({"t/a.csv": b"theirs", "t/b.csv": b"2"}, [])


def test_a_marker_that_can_never_be_written_does_not_hold_the_job(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: an error that is not the store's comes again each time: the job ends, with a warning."""

    def broken(*_: object, **__: object) -> str:
        raise mc.FormatError("_SUCCESS", "filenames", "cannot be encoded")

    monkeypatch.setattr("magic_committer.commit.publish.write_marker", broken)
    job = job_of({"a.csv": b"1"})
    report = job.commit()
    assert any("_SUCCESS could not be written" in warning for warning in report.warnings)
    assert report.state == "absent"
    assert control(s3) == []


def test_a_marker_goes_by_its_time_where_the_record_names_none() -> None:
    """I8: a job that found no marker when it completed replaces an earlier one only."""
    assert may_replace_marker(Marker("e", "", 1.0, 1.0), None, completed=2.0)
    assert not may_replace_marker(Marker("e", "", 3.0, 3.0), None, completed=2.0)


def test_a_marker_that_names_fewer_files_than_it_could_is_told(s3: MemoryStore) -> None:
    """A set that cannot be read any more is no reason to leave `_SUCCESS` out, and no secret."""
    job = mc.start(DEST, job_id="j")
    task = committed_task(job, "1", {"a.csv": b"1"})
    dies_at(s3, "put t/_SUCCESS", job.commit)
    real = s3.get

    def garbled(key: str, **options: object) -> object:
        stored = real(key, **options)  # type: ignore[arg-type]
        return replace(stored, body=b"{}") if key == task.key else stored

    s3.get = garbled  # type: ignore[assignment, method-assign]
    report = mc.recover(DEST, "j").report
    assert report is not None
    assert any("_SUCCESS names 0 files" in warning for warning in report.warnings)
    assert "t/_SUCCESS" in s3.keys()


def expired(attempts: int = 1) -> mc.PermissionDenied:
    """S3's answer to a token that has run out."""
    return mc.PermissionDenied("the token is expired", status=403, code="ExpiredToken",
                            attempts=attempts)  # fmt: skip


def swallowed(store: MemoryStore, fits: Fits, *, within: bool) -> list[Request]:
    """The first of some requests gets no answer, and may land later; the others are refused.
    ``within``: the adapter has sent it twice by itself: one error, after two attempts."""
    does = fitting(fits)
    sent: list[Request] = []

    def look(request: Request) -> None:
        if does(request):
            sent.append(request)
            if len(sent) > 1:
                raise expired()
            raise expired(attempts=2) if within else Unanswered("no answer")

    store.before = look
    return sent


BUSY = WriteConflict("busy", status=409)


def swap(request: Request) -> bool:
    return request.verb == "put" and request.key.endswith("_job.json") and bool(request.if_match)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_refusal_after_no_answer_is_unknown(s3: MemoryStore, verb: str, within: bool) -> None:
    """I10: the first sending may land after the second was refused: "not decided" is not said."""
    job = job_of({"a.csv": b"1"})
    late = swallowed(s3, swap, within=within)
    with pytest.raises(mc.OutcomeUnknown):
        job.commit() if verb == "commit" else job.abort()
    assert len(late) > 1  # the case was met: a refusal that came after
    late[0].effect()
    s3.before = None
    found = mc.attach(DEST, job.id)
    assert found.state == ("committing" if verb == "commit" else "aborting")
    mc.recover(DEST, job.id)
    assert set(visible(s3)) == ({"t/a.csv"} if verb == "commit" else set())


@pytest.mark.parametrize("within", [False, True])
def test_a_refusal_after_an_unanswered_setup_is_unknown(s3: MemoryStore, within: bool) -> None:
    """I10: the record may appear after the refusal: nobody says that there is none."""
    late = swallowed(s3, "put *_job.json", within=within)
    raises(mc.OutcomeUnknown, mc.start, DEST)
    late[0].effect()
    s3.before = None
    assert matching(s3, "*_job.json")


@pytest.mark.parametrize("error", [expired(), BUSY])
def test_a_failure_afterwards_undecides_nothing(s3: MemoryStore, error: mc.StoreError) -> None:
    """I10: each is `CommitIncomplete`, or a warning of a committed job, at any request."""

    def one(moment: int) -> bool:
        """Fail at one request after the decision; False if there are not so many."""
        failed: list[At] = []
        job = job_of({f"{moment}.csv": b"1"})
        At(s3, swap, lambda: failed.append(At(s3, Nth(moment), error)))
        try:
            assert job.commit().outcome == "committed"
        except mc.CommitIncomplete:
            assert job.outcome == "committed"
        s3.before = None
        mc.recover(DEST, job.id)
        assert f"t/{moment}.csv" in visible(s3)
        return failed[0].done

    assert next(number for number in count(1) if not one(number)) > 6


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize(
    ("verb", "key", "error"),
    [
        ("delete_one", "t/old.csv", expired()),
        ("delete_one", "t/old.csv", BUSY),
        ("put", "t/_SUCCESS", expired()),
        ("put", "t/_SUCCESS", InvalidRequest("no", status=400)),
    ],
)
def test_what_a_replace_could_not_do_is_told_and_may_be_taken_as_it_is(
    s3: MemoryStore, verb: str, key: str, error: mc.StoreError, accepted: bool
) -> None:
    """I5, I8, I10: who finishes the job deletes the old file, or writes the marker anew."""
    for old in ("t/old.csv", "t/_SUCCESS"):
        s3.put_object(old, b"old")
    job = job_of({"new.csv": b"new"}, mode="replace")

    failing(s3, verb, key, error)
    raised = raises(mc.CommitIncomplete, job.commit)
    assert (raised.state, raised.outstanding) == ("completed", (key,))
    assert f"recover('s3://bucket/t/', {job.id!r}, accept=[{key!r}])" in str(raised)
    assert (job.state, job.outcome) == ("completed", "committed")
    assert ("t/old.csv" in s3.keys(), "t/_SUCCESS" in s3.keys()) == (verb != "put", False)
    if not accepted:
        s3.before = None
    recovery = mc.recover(DEST, job.id, accept=[key] if accepted else ())
    assert recovery.state == "closed"
    assert recovery.report is not None
    assert (f"{key} was accepted as it is" in recovery.report.warnings) is accepted
    assert ("t/old.csv" in visible(s3)) is (accepted and verb != "put")
    marked = "t/_SUCCESS" in s3.keys() and b"magic-committer" in s3.body("t/_SUCCESS")
    assert marked is not (accepted and verb == "put")


def test_a_generator_that_an_earlier_call_has_used_up_commits_nothing(s3: MemoryStore) -> None:
    """I10: one 503, then "call it again" with the same generator: the table is not emptied."""
    s3.put_object("t/old.csv", b"old")
    job = mc.start(DEST, mode="replace")
    done = [committed_task(job, "1", {"a.csv": b"1"})]
    results = (result for result in done)

    At(s3, "list_uploads", Unanswered("slow down", status=503))
    raises(mc.StoreError, job.commit, results)
    raises(mc.OptionError, job.commit, results, match="list")
    raises(mc.IncompleteJob, job.commit, iter(()), match=r"commit\(results=\[\], expect=0\)")
    assert set(visible(s3)) == {"t/old.csv"}
    assert job.commit(done).files == 1
    assert set(visible(s3)) == {"t/a.csv"}


def test_a_decided_job_is_finished_whatever_results_are_passed(s3: MemoryStore) -> None:
    """I10: the first call could not tell; the second has a used-up generator, and commits."""
    job = mc.start(DEST)
    results = iter([committed_task(job, "1", {"a.csv": b"1"})])

    def lose() -> None:
        s3.before = raising("*", expired())
        raise Unanswered("no answer")

    At(s3, swap, lose, after=True)
    raises(mc.OutcomeUnknown, job.commit, results)
    s3.before = s3.after = None
    assert job.commit(results).outcome == "committed"
    assert set(visible(s3)) == {"t/a.csv"}


@pytest.mark.parametrize("mode", ["append", "replace", "replace_partitions"])
def test_a_job_without_a_task_is_not_committed_by_accident(s3: MemoryStore, mode: Mode) -> None:
    """I10: the only task was killed, or never committed: nothing is decided, nothing is emptied."""
    s3.put_object("t/old.csv", b"old")
    job = mc.start(DEST, mode=mode)
    with job.task("1").open("a.csv") as f:
        f.write(b"1")
    raised = raises(mc.IncompleteJob, job.commit)
    assert "task.commit()" in str(raised)
    assert mc.attach(DEST, job.id).state == "running"
    assert set(visible(s3)) == {"t/old.csv"}


def test_a_job_that_is_said_to_be_empty_is_committed_and_says_so(s3: MemoryStore) -> None:
    """``expect=0`` is the caller's word; what it emptied is told."""
    s3.put_object("t/old.csv", b"old")
    report = mc.start(DEST, mode="replace").commit(expect=0)
    assert (report.outcome, report.files, visible(s3)) == ("committed", 0, {})
    assert report.warnings == ("the job published no file, and deleted what was there: 1 file",)


@pytest.mark.parametrize("wrong", [{"files": 1}, {"bytes": 1}])
def test_a_result_of_files_without_a_set_is_refused(s3: MemoryStore, wrong: dict[str, int]) -> None:
    """I2: its file would be dropped without a word."""
    job = mc.start(DEST)
    result = TaskCommit.from_dict({**TaskCommit(job.uuid, "1", "a").to_dict(), **wrong})
    raises(mc.OptionError, job.commit, [result], match="key is empty")
    assert mc.attach(DEST, job.id).state == "running"


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("job_id", [None, "j"])
def test_an_interrupted_start_leaves_no_live_job(
    s3: MemoryStore, job_id: str | None, landed: bool
) -> None:
    """I4: Ctrl-C at the record's PUT: the next ``replace`` is not told that a job lives."""
    At(s3, "put *_job.json", KeyboardInterrupt(), after=landed)
    raised = raises(KeyboardInterrupt, mc.start, DEST, mode="replace", job_id=job_id)
    assert any("magic_committer.abort('s3://bucket/t/'" in n for n in raised.__notes__)
    assert all(found.state == "closed" for found in mc.inspect(DEST))
    mc.start(DEST, mode="replace").abort()


@pytest.fixture
def refused(s3: MemoryStore) -> mc.Job:
    """A committed job, one of whose files the store calls wrong, and keeps the upload."""
    job = job_of({"1.csv": b"1", "2.csv": b"22"})
    wrong = InvalidRequest("the checksum is wrong", status=400, code="BadDigest")
    failing(s3, "complete_upload", "t/2.csv", wrong)
    raises(mc.CommitIncomplete, job.commit)
    return job


@pytest.mark.parametrize("lost", [False, True])
def test_a_refused_file_is_told_by_its_error(s3: MemoryStore, refused: mc.Job, lost: bool) -> None:
    """Waiting does not mend it, and it is no lost upload: the ways out are said."""
    if lost:
        s3.delete_object("t/1.csv")
    raised = raises(mc.CommitIncomplete, mc.recover, DEST, refused.id, match="refused by the store")
    assert lost or "the checksum is wrong" in raised.message
    assert set(raised.unresolved) == {"t/2.csv"} | ({"t/1.csv"} if lost else set())
    assert (raised.refused, raised.unfinished) == (("t/2.csv",), ())
    assert "never published" in raised.hint
    assert ("Somebody aborted" in raised.hint) is lost
    assert "revert=True" in raised.hint


@pytest.mark.parametrize("seen", [True, False])
def test_an_accepted_file_is_unpublished(s3: MemoryStore, refused: mc.Job, seen: bool) -> None:
    """Where the store does not tell what is there after the abort, the report says just that."""
    unread = lambda: failing(s3, "head", "t/2.csv", Unanswered("no answer"))  # noqa: E731
    At(s3, "abort_upload" if not seen else "none", unread, after=True)
    done = mc.recover(DEST, refused.id, accept=["t/2.csv"])
    assert (done.outcome, done.state) == ("committed", "closed")
    assert done.report is not None
    told = " ".join(warning for warning in done.report.warnings if "t/2.csv" in warning)
    assert ("not published" in told, "is unknown: no answer" in told) == (seen, not seen)
    assert remains(s3)[:2] == ({"t/1.csv": b"1"}, [])
