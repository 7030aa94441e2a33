"""What a hostile reader tried on streams: processes that stand still twice, objects that somebody
else has put there, calls that meet a driver that lives."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.errors import BatchUnsettled, PermissionDenied, Unanswered
from magic_committer.options import Mode
from magic_committer.protocol.ledger import hash_of
from magic_committer.stores.memory import MemoryStore, Request
from tests.in_memory import Fresh
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    Nth,
    StillClock,
    crash,
    failing,
    raising,
    record_put,
)
from tests.promises.test_streams import (
    CHECKPOINT,
    LEDGER,
    QUERY,
    commit,
    dead,
    publish,
    requests_of_a_commit,
    rows,
    run_of,
    writes_of_ledger,
)


def decided(s3: MemoryStore, mode: Mode = "append") -> tuple[mc.Job, list[mc.TaskCommit]]:
    """A run of batch 7 whose driver died when it was decided."""
    return dead(s3, record_put("committing"), mode=mode, after=True)


@pytest.mark.parametrize("finished", ["by recover", "not at all"])
def test_a_job_that_completes_while_it_is_given_up_leaves_its_word_in_the_ledger(
    s3: MemoryStore, finished: str
) -> None:
    """force_abort sees a decided job; before it can be undone, another process makes its files
    visible, and dies before the ledger says so. The batch is not run again."""
    job, _ = decided(s3)

    def complete() -> None:
        if finished == "not at all":
            At(s3, writes_of_ledger(1), crash)
            with pytest.raises(Crash):
                mc.recover(DEST, job.id, dead_after=0)
            s3.before = None
        else:
            mc.recover(DEST, job.id, dead_after=0)

    At(s3, record_put("reverting"), complete)
    if finished == "by recover":
        assert mc.force_abort(DEST, job.id, dead_after=0).outcome == "committed"
    else:
        with pytest.raises(mc.JobError, match="it was not given up"):
            mc.force_abort(DEST, job.id, dead_after=0)
    s3.before = None
    assert publish(7).skipped
    assert rows(s3) == ["7", "7"]


def test_a_claim_whose_job_has_no_record_is_told(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has deleted the job while its batch was being published: its driver is told that
    nobody knows; the next run publishes the batch, and warns that rows may be twice."""
    job, results = run_of(7)

    def delete() -> None:
        for key in s3.keys("t/__magic_job-"):
            s3.delete_object(key)

    At(s3, record_put("committing"), delete)
    with pytest.raises((mc.OutcomeUnknown, mc.JobNotRunning)):
        commit(job, results, 7)
    s3.before = None
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert publish(7).outcome == "committed"
    (told,) = [r.getMessage() for r in caplog.records if "has no record" in r.getMessage()]
    assert job.id in told
    assert "batch 7" in told


@pytest.mark.parametrize("query", [".", "..", "__magic_stream", "a/b", ""])
def test_odd_names_of_queries_lead_nowhere_else(s3: MemoryStore, query: str) -> None:
    """They are refused."""
    with pytest.raises(mc.PathError):
        mc.read_stream(DEST, query)


def test_a_job_that_only_claimed_is_no_data_for_mode_fail(s3: MemoryStore) -> None:
    """Its ledger stays; the next run of the first batch finds an empty destination."""
    dead(s3, record_put("committing"), mode="fail", number=0)
    assert publish(0, "fail").outcome == "committed"
    assert rows(s3) == ["0", "0"]


def test_no_task_writes_into_a_ledger(s3: MemoryStore) -> None:
    """A file of a job is never taken for one."""
    with mc.start(DEST) as job:
        with pytest.raises(mc.PathError), job.task("0") as task:
            task.open(LEDGER.removeprefix("t/"))
        job.abort()


def test_a_link_in_the_ledgers_place_is_not_followed(tmp_path: Path) -> None:
    """Whoever may write there may have made one that leads to other data."""
    dest, elsewhere = tmp_path / "table", tmp_path / "elsewhere"
    dest.mkdir()
    elsewhere.mkdir()
    (dest / "__magic_stream").symlink_to(elsewhere)
    job = mc.start(dest.as_uri(), accept="results", track="memory")
    with pytest.raises(mc.StoreError, match="is a link"):
        job.commit([], expect=0, batch=mc.StreamBatch("query", 1))
    assert not list(elsewhere.iterdir())
    job.abort()


@pytest.mark.parametrize("committer", ["magic", "manifest"])
def test_a_batch_on_a_real_disk_is_published_once(committer: str, tmp_path: Path) -> None:
    """By the calls that users make."""
    dest = tmp_path.as_uri()
    reports = []
    for _ in range(2):
        job = mc.start(dest, committer=committer, checkpoint="file:///checkpoint")
        with job.task("0") as task, task.open("a.csv", "w", unique=True) as file:
            file.write("1")
        reports.append(job.commit(batch=mc.StreamBatch(QUERY, 7)))
    assert [report.skipped for report in reports] == [False, True]
    state = mc.read_stream(dest, QUERY)
    assert state is not None
    assert (state.done, state.done_by) == (7, reports[0].uuid)
    assert len([p for p in tmp_path.iterdir() if p.suffix == ".csv"]) == 1
    left = mc.start(dest, checkpoint="file:///checkpoint")
    assert [one.job_id for one in mc.abort_stream(dest, "file:///checkpoint")] == [left.id]


@pytest.mark.parametrize("committer", ["v1", "v2"])
def test_the_classic_committers_take_no_batch(committer: str, tmp_path: Path) -> None:
    """What a dead run has made visible stays, and the next run writes it again."""
    with pytest.raises(mc.OptionError, match="no batch of a streaming query exactly once"):
        mc.start(tmp_path.as_uri(), committer=committer, checkpoint="file:///checkpoint")
    job = mc.start(tmp_path.as_uri(), committer=committer, accept="results", track="memory")
    with pytest.raises(mc.OptionError, match="no batch of a streaming query exactly once"):
        job.commit([], expect=0, batch=mc.StreamBatch("query", 1))
    job.abort()


def test_a_run_that_ends_while_a_start_settles_it_does_not_stop_the_next(s3: MemoryStore) -> None:
    """Its driver lives, and commits it at this moment."""
    job, results = decided(s3, "replace")
    At(s3, lambda r: r.verb == "put" and job.id in r.key, lambda: commit(job, results, 7))
    run_of(8, "replace")
    assert rows(s3) == ["7", "7"]


def test_a_run_that_is_skipped_while_its_job_is_given_up_is_told_so(s3: MemoryStore) -> None:
    """An operator gives the job up at the moment when its own driver would abort it."""
    job, results = run_of(7)
    publish(7)

    def give_up() -> None:
        mc.force_abort(DEST, job.id, dead_after=0)
        for _ in range(2):
            mc.cleanup(DEST, dead_after=0, leftover_after=0, forget_after=0)

    At(s3, lambda r: r.verb == "put" and job.id in r.key, give_up)
    told = commit(job, results, 7)
    assert (told.skipped, told.state) == (True, "absent")


def test_a_look_and_a_recovery_name_the_batch(s3: MemoryStore) -> None:
    """So an operator finds the query of a job that a dead driver has left: its record names it."""
    job, _ = decided(s3)
    (found,) = (one for one in mc.inspect(DEST) if one.id == job.id)
    assert (found.query, found.batch, found.checkpoint) == (QUERY, 7, hash_of(CHECKPOINT))
    report = mc.recover(DEST, job.id, dead_after=0).report
    assert report is not None
    assert (report.query, report.batch) == (QUERY, 7)


def test_an_abort_of_a_query_s_jobs_leaves_one_that_is_being_undone(s3: MemoryStore) -> None:
    """It was decided: an operator undoes it, and the next run of the query ends it."""
    job, _ = decided(s3)
    At(s3, record_put("reverting"), crash, after=True)
    with pytest.raises(Crash):
        mc.abort(DEST, job.id, revert=True)
    s3.after = None
    assert mc.abort_stream(DEST, CHECKPOINT) == ()
    assert mc.attach(DEST, job.id).state == "reverting"


def test_a_start_with_an_id_settles_nothing(s3: MemoryStore) -> None:
    """Its id was used by the try that met the crashed run: it is told of that run."""
    job, _ = decided(s3, "replace")
    with pytest.raises(mc.ConflictingJob):
        mc.start(DEST, mode="replace", job_id="night", checkpoint=CHECKPOINT)
    assert mc.attach(DEST, job.id).state == "committing"


def test_a_start_that_cannot_settle_a_crashed_run_names_it(s3: MemoryStore) -> None:
    """Its files cannot be completed now: the error is the conflict, with the reason below it."""
    job, _ = decided(s3, "replace")
    s3.before = raising(lambda r: r.verb == "complete_upload", PermissionDenied("no"))
    with pytest.raises(mc.ConflictingJob, match=job.id) as told:
        run_of(8, "replace")
    assert isinstance(told.value.__cause__, mc.CommitIncomplete)


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it dies"])
def test_a_claimant_that_decides_while_it_is_settled_is_looked_at_again(
    s3: MemoryStore, ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is to be aborted, and its driver decides it at that moment: it is finished, and nobody is
    warned of rows that are there twice."""
    job, results = dead(s3, record_put("committing"))

    def decide() -> None:
        if ends:
            commit(job, results, 7)
            return
        At(s3, record_put("committing"), crash, after=True)
        with pytest.raises(Crash):
            commit(job, results, 7)
        s3.after = None

    another, theirs = run_of(7)
    At(s3, lambda r: record_put("aborting")(r) and job.id in r.key, decide)
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert commit(another, theirs, 7).skipped
    assert rows(s3) == ["7", "7"]
    assert not caplog.records


def test_a_job_that_is_given_up_beside_a_broken_ledger_says_so(s3: MemoryStore) -> None:
    """Its files stay, the ledger cannot be told, and the query may publish the batch once more."""
    job, _ = dead(s3, writes_of_ledger(2))
    s3.put_object(LEDGER, b"{}")
    told = mc.force_abort(DEST, job.id, dead_after=0)
    assert told.outcome == "committed"
    assert "the ledger does not say that batch 7" in told.why


def test_ctrl_c_while_another_run_is_settled_tells_of_both_jobs(fresh: Fresh) -> None:
    """A run dies once it is decided; the next one, which finishes it, is interrupted at each of its
    requests. The note says what is known of its own job, and no report is another job's."""
    both = 0
    for number in range(1, 200):
        with fresh(StillClock()) as store:
            dead, _ = decided(store)
            job, results = run_of(7)
            At(store, Nth(number), KeyboardInterrupt())
            try:
                commit(job, results, 7)
            except KeyboardInterrupt as error:
                notes = " ".join(error.__notes__)
                assert job.id in notes, number
                both += dead.id in notes
                report = getattr(error, "report", None)
                assert report is None or report.job_id == job.id, number
            else:
                break
    assert both >= 3


def test_ctrl_c_while_a_run_is_passed_over_does_not_say_that_it_was_not_decided(
    fresh: Fresh,
) -> None:
    """Its batch is published already, and it is being aborted."""
    told = []
    for number in range(1, requests_of_a_commit(fresh) + 1):
        with fresh(StillClock()) as store:
            publish(7)
            job, results = run_of(6)
            At(store, Nth(number), KeyboardInterrupt())
            try:
                commit(job, results, 6)
            except KeyboardInterrupt as error:
                store.before = None
                found = [(one.id, one.state) for one in mc.inspect(DEST)]
                if (job.id, "running") not in found:
                    told.append(" ".join(error.__notes__))
            else:
                break
    assert len(told) >= 3
    assert not [notes for notes in told if "was not decided" in notes]


def test_others_that_keep_claiming_stop_a_run(s3: MemoryStore) -> None:
    """Two runs of a query that take the claim from each other for ever: one of them gives up."""
    job, results = run_of(7)

    def another(request: Request) -> None:
        if request.verb == "put" and request.key == LEDGER:
            s3.before = None
            dead(s3, record_put("committing"))
            s3.before = another

    s3.before = another
    with pytest.raises(BatchUnsettled, match="other runs of the query keep changing its ledger"):
        commit(job, results, 7)


def test_an_overtaken_run_says_what_has_become_of_its_record(s3: MemoryStore) -> None:
    """Its driver stood still before it decided; another run has settled it, and published the
    batch: its record is closed."""
    job, results = dead(s3, record_put("committing"))
    publish(7)
    told = commit(job, results, 7)
    assert (told.outcome, told.state, told.skipped) == ("aborted", "closed", True)


def test_a_run_that_has_ended_is_not_settled_again(s3: MemoryStore) -> None:
    """Its record is closed, and is there for a day: the next run leaves it as it is."""
    ended, _ = run_of(6, "replace")
    mc.recover(DEST, ended.id, dead_after=0)
    (record,) = s3.keys("t/__magic_job-")
    closed = s3.body(record)
    assert publish(7, "replace").outcome == "committed"
    assert s3.body(record) == closed


def test_a_job_that_is_publishing_is_not_given_up_because_a_store_does_not_answer(
    s3: MemoryStore,
) -> None:
    """Its driver may live, and its files come: its record stays, and later the batch is there."""
    job, _ = decided(s3)
    failing(s3, "put", f"t/__magic_job-{job.id}/_job.json", Unanswered("no answer"))
    with pytest.raises(mc.MagicError):
        mc.force_abort(DEST, job.id, dead_after=3600.0)
    s3.before = None
    assert mc.recover(DEST, job.id, dead_after=0).outcome == "committed"
    assert publish(7).skipped
    assert rows(s3) == ["7", "7"]


def test_a_ledger_that_gives_no_answer_decides_nothing(s3: MemoryStore) -> None:
    """No claim of it is told, nor that there is none; later the batch is published once."""
    publish(6)
    before = s3.body(LEDGER)
    job, results = run_of(7)
    failing(s3, "put", LEDGER, Unanswered("no answer"))
    with pytest.raises((Unanswered, mc.OutcomeUnknown)):
        commit(job, results, 7)
    s3.before = None
    assert s3.body(LEDGER) == before
    assert rows(s3) == ["6", "6"]
    assert publish(7).outcome == "committed"
    assert rows(s3) == ["6", "6", "7", "7"]
