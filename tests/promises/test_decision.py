"""I5 and I10: a job is decided once, can be finished by anyone, and nobody is told an untruth."""

from __future__ import annotations

from dataclasses import replace

import pytest

import magic_committer as mc
from magic_committer.errors import PermissionDenied, PreconditionFailed, Unanswered
from magic_committer.options import Accept
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    control,
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


def test_an_encrypted_part_that_changed_its_etag_still_completes(
    s3: MemoryStore,
) -> None:
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
        ("put", PermissionDenied),
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
        "refused": PermissionDenied("the token is expired", status=403, attempts=2),
    }
    late: list[Request] = []

    def slow(request: Request) -> None:
        if request.verb == "put" and s3.requests["put"] == 2:
            late.append(request)
            raise answers.get(case, PreconditionFailed("412", status=412, attempts=2))
        if request.verb == "complete_upload" and case == "refused later on":
            raise PermissionDenied("no")

    s3.before = slow
    if case == "answered":
        mc.start(DEST).abort()
    else:
        raises((Unanswered, PermissionDenied), mc.start, DEST, mode="fail_partitions")
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


def test_a_driver_whose_job_is_forgotten_asks_the_marker(
    s3: MemoryStore,
) -> None:
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
