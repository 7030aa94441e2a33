"""``start(..., exist_ok=True)``: a start that is made again takes the job that is there."""

from __future__ import annotations

from typing import Any

import pytest

import magic_committer as mc
from magic_committer.commit import probe
from magic_committer.errors import Unanswered
from magic_committer.options import Mode
from magic_committer.protocol.record import JobRecord
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import (
    DEST,
    At,
    committed_task,
    dies_at,
    noted,
    raises,
    raising,
    record_of,
    record_put,
    remains,
    visible,
)
from tests.promises.situations import contents

RECORD = record_of("1")


def begin(**terms: Any) -> mc.Job:
    return mc.start(DEST, job_id="1", exist_ok=True, **terms)


def test_a_second_start_gives_the_same_job(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks and commit are the first one's; it sends no PUT to the record."""
    first = begin(mode="replace")
    result = committed_task(first, "1", {"a.csv": b"1"})
    before = s3.body(RECORD)
    monkeypatch.setattr(probe, "_known", {})
    puts = noted(s3, f"put {RECORD}")
    again = begin(mode="overwrite")
    assert puts == []
    assert (again.uuid, again.state, s3.body(RECORD)) == (first.uuid, "running", before)
    assert again.commit([result]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"mode": "replace"}, "mode='append', not 'replace'"),
        ({"track": "memory"}, "track='s3', not 'memory'"),
        ({"accept": "results"}, "accept='listing', not 'results'"),
        ({"mark_success": False}, "mark_success=True, not False"),
        ({"options": mc.Options(checksum="off")}, "checksum='auto', not 'off'"),
        # All at once, in a hint that can be pasted.
        ({"track": "memory", "mark_success": False}, "track='s3', mark_success=True"),
    ],
)
def test_other_terms_are_an_error_that_shows_both(
    s3: MemoryStore, terms: dict[str, Any], told: str
) -> None:
    """The job that is there stays as it is; the message has its term and the caller's."""
    begin()
    before = s3.body(RECORD)
    assert told in str(raises(mc.JobExists, begin, **terms, match="other terms"))
    assert (s3.body(RECORD), mc.attach(DEST, "1").state) == (before, "running")


def test_it_needs_an_id(s3: MemoryStore) -> None:
    """Without one each call would start another job. A zombie's litter is no job to be taken."""
    raises(mc.OptionError, mc.start, DEST, exist_ok=True, match="job_id")
    assert not s3.requests
    s3.put_object("t/__magic_job-1/job-1/00/zombie.pendingset", b"{}")
    raises(mc.JobExists, begin, match="not empty")


@pytest.mark.parametrize("state", ["committed", "aborted", "committing"])
def test_a_job_that_is_decided_is_not_started_again(s3: MemoryStore, state: str) -> None:
    """I10: the error says how, also between decision and end, and nothing is written twice."""
    job = begin()
    result = committed_task(job, "1", {"a.csv": b"1"})
    if state == "committing":
        dies_at(s3, "complete_upload", lambda: job.commit([result]))
    elif state == "committed":
        job.commit([result])
    else:
        job.abort()
    before = contents(s3)
    raised = raises(mc.JobNotRunning, begin)
    assert raised.outcome == ("aborted" if state == "aborted" else "committed")
    assert raised.state == (state if state == "committing" else "closed")
    assert ("another job_id" in raised.hint) == (state == "aborted")
    assert contents(s3) == before


def test_of_two_starts_at_once_one_starts_and_the_other_takes(s3: MemoryStore) -> None:
    """The second lands between the first's look and its PUT: both have the one job."""
    jobs: list[mc.Job] = []
    At(s3, record_put("running"), lambda: jobs.append(begin()))
    jobs.append(begin())
    assert len(jobs) == 2
    assert jobs[0].uuid == jobs[1].uuid == JobRecord.decode(s3.body(RECORD), RECORD).uuid
    result = committed_task(jobs[0], "1", {"a.csv": b"1"})
    assert jobs[1].commit([result]).outcome == "committed"


def test_a_job_that_its_starter_takes_back_is_over_for_both(s3: MemoryStore) -> None:
    """I3: the first finds data, and takes back the job that the second has: it is told."""
    jobs: list[mc.Job] = []

    def take() -> None:
        jobs.append(begin(mode="fail"))
        s3.put_object("t/a.csv", b"theirs")

    At(s3, record_put("running"), take, after=True)
    raises(mc.DestinationExists, begin, mode="fail")
    with pytest.raises(mc.JobNotRunning) as raised:
        jobs[0].commit([committed_task(jobs[0], "1", {"b.csv": b"1"})])
    assert raised.value.outcome == "aborted"
    assert remains(s3)[:2] == ({"t/a.csv": b"theirs"}, [])


@pytest.mark.parametrize("landed", [True, False])
def test_a_start_whose_record_was_not_answered_is_made_again(s3: MemoryStore, landed: bool) -> None:
    """The retry has the job that the create made, if it landed, and else starts it."""
    silent = raising("*", Unanswered)

    def lost() -> None:
        s3.before = silent
        raise Unanswered("no answer")

    At(s3, f"* {RECORD}", lost, after=landed)
    raises((mc.OutcomeUnknown, mc.StoreError), begin)
    s3.before = s3.after = None
    stored = JobRecord.decode(s3.body(RECORD), RECORD).uuid if landed else ""
    assert begin().uuid == stored or not landed


@pytest.mark.parametrize("mode", ["fail", "replace"])
def test_a_starter_that_died_before_it_looked_lets_nobody_in(s3: MemoryStore, mode: Mode) -> None:
    """I6: the retry looks itself, and the job that is there is not touched."""
    other = mc.start(DEST, mode="replace")
    dies_at(s3, f"put {RECORD}", lambda: begin(mode=mode), after=True, silent=True)
    before = s3.body(RECORD)
    raises(mc.ConflictingJob, begin, mode=mode)
    assert s3.body(RECORD) == before
    if mode == "fail":
        other.abort()
        s3.put_object("t/a.csv", b"theirs")
        with pytest.raises(mc.DestinationExists, match=r"mode 'error'.*'append' or 'overwrite'"):
            begin(mode="error")
        assert visible(s3) == {"t/a.csv": b"theirs"}
