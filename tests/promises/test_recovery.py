"""I3, I5 and I10 for operators: any job can be finished or undone by anyone, repeatedly."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.commit import probe
from magic_committer.options import Mode
from magic_committer.protocol.record import JOB_METADATA, TOKEN_METADATA
from magic_committer.runtime import wiring
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock, memory_store
from tests.in_memory import Fresh
from tests.promises.hands import (
    DEST,
    At,
    Nth,
    StillClock,
    dies_at,
    job_of,
    raises,
    remains,
    visible,
)
from tests.promises.machine import (
    DAY,
    ENDS,
    FILES,
    READS,
    STATES,
    Machine,
    deaths,
    left,
    matching,
)
from tests.promises.situations import contents


@pytest.mark.parametrize("state", STATES)
def test_recover_finishes_or_undoes(machine: Machine, state: str) -> None:
    """I5: from every state, twice: all or nothing is visible, and a closed record alone is left."""
    job = machine.job(state)
    machine.later(2 * DAY)
    for found in (state, "closed"):
        recovery = mc.recover(DEST, job.id)
        assert (recovery.found, recovery.state) == (found, "closed")
        assert recovery.outcome == ENDS[state]
        assert visible(machine.s3) == (FILES if ENDS[state] == "committed" else {})
        assert remains(machine.s3)[1:] == ([], ["_job.json"])
    assert ("t/_SUCCESS" in machine.s3.keys()) == (ENDS[state] == "committed")
    assert json.loads(json.dumps(recovery.to_dict()))["outcome"] == ENDS[state]


@pytest.mark.parametrize("state", STATES)
def test_a_dry_run_only_reads(machine: Machine, state: str) -> None:
    """``dry_run`` and `inspect` send reads only, and say what would be done."""
    job = machine.job(state)
    machine.later(2 * DAY)
    before = contents(machine.s3)
    machine.s3.requests.clear()
    recovery = mc.recover(DEST, job.id, dry_run=True)
    report = mc.cleanup(DEST, dry_run=True)
    (found,) = mc.inspect(DEST)
    assert set(machine.s3.requests) <= READS
    assert contents(machine.s3) == before
    assert recovery.state == found.state == state
    assert recovery.did == found.would
    assert (recovery.uuid, recovery.dry_run) == (job.uuid, True)
    assert len(report.recovered) == (state != "closed")
    assert report.records_deleted == (state == "closed")


@pytest.mark.parametrize("skew", [-10 * DAY, 10 * DAY])
def test_ages_go_by_the_stores_clock(skew: float) -> None:
    """A machine whose clock is days off takes no live job for dead, and no dead one for alive."""
    stores, mine = PatientClock(), PatientClock()
    mine.ahead = skew
    store = MemoryStore("bucket", clock=stores.now)
    wiring.register_store(store, mine)
    try:
        job = mc.start(DEST)
        stores.ahead += DAY - 60
        raised = raises(mc.JobTooYoung, mc.recover, DEST, job.id, dead_after=timedelta(days=1))
        assert (round(raised.age / DAY, 2), raised.limit) == (1, DAY)
        assert mc.cleanup(DEST).jobs_left == 1
        stores.ahead += 120
        assert [one.outcome for one in mc.cleanup(DEST).recovered] == ["aborted"]
    finally:
        wiring.unregister_store(store)


@pytest.mark.parametrize("limit", [-1, float("nan"), "1h", True])
def test_a_limit_is_a_duration(machine: Machine, limit: float) -> None:
    """A limit that is no duration is refused before anything is asked of the store."""
    raises(mc.OptionError, mc.recover, DEST, "j", dead_after=limit, match="dead_after")
    assert not machine.s3.requests


def test_recovering_a_job_without_record_does_nothing_and_claims_nothing(machine: Machine) -> None:
    """I10: an absent record is "unknown", unless the marker tells that the job committed."""
    unknown = mc.recover(DEST, "never-was")
    assert (unknown.state, unknown.outcome, unknown.found) == ("absent", "", "absent")
    assert "no record" in unknown.did
    assert mc.recover(DEST, "never-was", dry_run=True).dry_run
    with mc.write(DEST) as job, job.open("a.csv") as f:
        f.write(b"1")
    assert mc.recover(DEST, job.id).outcome == "committed"
    raises(mc.JobNotFound, mc.abort, DEST, job.id)


def test_an_unresolved_key_is_named_and_taken_only_on_the_operators_word(machine: Machine) -> None:
    """I10: an upload is gone without its object: its key and both ways out are told."""
    job = machine.job("committing")
    machine.s3.drop_upload(machine.s3.open_uploads("t/2.csv")[0].upload_id)
    (found,) = mc.inspect(DEST)
    assert (found.visible, found.missing) == (1, 1)
    assert "1 file is unresolved" in found.would
    assert mc.recover(DEST, job.id, dry_run=True).unresolved == ("t/2.csv",)
    assert mc.recover(DEST, job.id, dry_run=True, accept=["t/2.csv"]).unresolved == ()
    for _ in range(2):
        with pytest.raises(mc.CommitIncomplete, match=r"accept=.*revert=True") as raised:
            mc.recover(DEST, job.id)
        assert raised.value.unresolved == ("t/2.csv",)
        assert mc.attach(DEST, job.id).state == "committing"
    assert "t/2.csv" in mc.cleanup(DEST, leftover_after=0).errors[0]
    raises(mc.OptionError, mc.recover, DEST, job.id, accept="t/2.csv", match="list")
    assert mc.recover(DEST, job.id, accept=["t/2.csv"]).outcome == "committed"
    assert set(visible(machine.s3)) == {"t/1.csv"}


def test_a_job_that_moves_on_while_it_is_recovered_is_obeyed(machine: Machine) -> None:
    """I5: its driver lives, and commits before recovery's swap: it rolls forward, and says so."""
    job = machine.job("running")
    machine.later(2 * DAY)
    with At(machine.s3, "put *_job.json", job.commit):
        recovery = mc.recover(DEST, job.id)
    assert recovery.found == "running"
    assert recovery.outcome == "committed"
    assert remains(machine.s3)[:2] == (FILES, [])


@pytest.mark.parametrize("state", ["running", "committing", "completed", "reverting", "aborting"])
def test_a_recovery_that_crashed_at_any_request_is_recovered(state: str) -> None:
    """I5: recovery killed before or after each of its requests, then done again: the same end."""
    for machine, dies in deaths(least=5):
        job = machine.job(state)
        machine.later(2 * DAY)
        if dies(lambda job=job: mc.recover(DEST, job.id)):  # type: ignore[misc]
            assert mc.recover(DEST, job.id, dead_after=0).state == "closed"
        assert visible(machine.s3) == (FILES if ENDS[state] == "committed" else {})
        assert remains(machine.s3)[1:] == ([], ["_job.json"])


@pytest.mark.parametrize("revert", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_abort_undoes_what_may_be_undone(machine: Machine, state: str, revert: bool) -> None:
    """I3, I7: a decided job is undone only on the operator's word, a completed one never; twice."""
    job = machine.job(state)
    refused = state == "completed" or (state == "committing" and not revert)
    for _ in range(2):
        if refused:
            raised = raises(mc.JobNotRunning, mc.abort, DEST, job.id, revert=revert)
            assert raised.outcome == "committed"
            continue
        outcome = "reverted" if state == "committing" else ENDS[state]
        assert mc.abort(DEST, job.id, revert=revert).outcome == outcome
        assert remains(machine.s3) == ({}, [], ["_job.json"])


@pytest.mark.parametrize("mode", ["fail", "replace"])
def test_a_start_whose_job_is_ended_says_so(mode: mc.Mode, fresh: Fresh) -> None:
    """Somebody ends it at any request of its start, which asks what the store keeps."""
    told = 0
    for number in count(1):
        with fresh() as s3:
            ended = At(s3, Nth(number), lambda: mc.recover(DEST, "j", dead_after=0))
            try:
                mc.start(DEST, mode=mode, job_id="j").abort()
            except mc.JobNotRunning as error:
                told += error.outcome == "aborted"
            except mc.JobExists:
                pass  # it was ended before it began
            s3.before = None
            mc.start(DEST, mode=mode).abort()
        if not ended.done:
            break
    assert told


@pytest.mark.parametrize("end", [mc.abort, mc.recover])
def test_a_driver_whose_job_an_operator_has_ended_is_told(
    machine: Machine, end: Callable[..., object]
) -> None:
    """I3, I10: a driver that was only asleep publishes nothing, nor do its tasks; it is told."""
    job = machine.job("running")
    asleep = job.task("4")
    file = asleep.open("4.csv")
    file.write(b"4")
    machine.later(2 * DAY)
    end(DEST, job.id)
    with pytest.raises(mc.JobNotRunning), asleep:
        file.close()
    assert raises(mc.JobNotRunning, job.commit, match="decided by recovery on").outcome == "aborted"
    assert remains(machine.s3) == ({}, [], ["_job.json"])


OURS = Path(__file__).parents[1] / "golden" / "ours"
"""What each version wrote of one job `replace`, at `DEST`, with the id ``j``."""
VERSIONS = sorted(path.name for path in OURS.iterdir())


@pytest.mark.parametrize("state", ["running", "committing", "completed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_of_an_earlier_version_is_ended(version: str, state: str) -> None:
    """I5: its record, plan and pendingset are read, and it is finished or undone as ours are."""
    files = {path.stem: path.read_bytes() for path in (OURS / version).iterdir()}
    record = json.loads(files[f"record-{state}"])
    (made,) = json.loads(files["pendingset"])["commits"]
    owner = {JOB_METADATA: record["uuid"]}
    with memory_store(clock=StillClock()) as s3:
        s3.put_object("t/old.csv", b"old")
        s3.put_object(json.loads(files["result"])["key"], files["pendingset"], metadata=owner)
        if state != "running":
            token = {TOKEN_METADATA: made["extraData"]["magic-committer.token"]}
            s3.put_object(made["destinationKey"], b"1,2", metadata=token)
            s3.put_object(record["plan"]["key"], files["plan"], metadata=owner)
        s3.put_object("t/__magic_job-j/_job.json", files[f"record-{state}"], metadata=owner)
        assert len(mc.inspect(DEST)) == 1
        recovery = mc.recover(DEST, "j", dead_after=0)
        assert (recovery.found, recovery.state) == (state, "closed")
        assert visible(s3) == ({"t/old.csv": b"old"} if state == "running" else {"t/a.csv": b"1,2"})
        assert left(s3) == ["_job.json"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_earlier_versions_hand_on_is_read(version: str) -> None:
    """A job and a result as JSON: an option that the version did not know has its default."""
    result, values = (
        json.loads((OURS / version / f"{name}.json").read_text()) for name in ("result", "job")
    )
    assert mc.TaskCommit.from_dict(result).to_dict() == result
    del values["options"]["commit_threads"]
    job = mc.Job.from_dict(values)
    assert (job.uuid, job.id, job._options) == (result["job_uuid"], "j", mc.Options())
    assert job._started.terms.mode == "replace"


def test_a_revert_that_loses_to_the_driver_reverts_all_the_same(s3: MemoryStore) -> None:
    """I3: the operator's abort with ``revert`` finds a running job decided a moment later."""
    job = job_of({"a.csv": b"1"})

    At(s3, "put *_job.json", lambda: dies_at(s3, "complete_upload", job.commit))
    assert mc.abort(DEST, job.id, revert=True).outcome == "reverted"
    assert remains(s3)[:2] == ({}, [])


@pytest.mark.parametrize("mode", ["append", "fail"])
def test_a_driver_that_dies_while_it_asks_the_store_leaves_no_upload(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """I4: what a driver has tried at the store, to learn what it keeps, goes with its job."""
    monkeypatch.setattr(probe, "_known", {})
    dies_at(s3, "put_part */probe-*", lambda: job_of({"a": b"1"}, mode=mode).commit(), silent=True)
    (record,) = matching(s3, "*/_job.json")
    assert len(s3.open_uploads()) > 0
    mc.recover(DEST, record.split("/__magic_job-")[1].partition("/")[0], dead_after=0)
    assert s3.open_uploads() == ()


def test_a_recovery_leaves_the_closed_records_of_others(machine: Machine) -> None:
    """A driver deletes some old ones on its way; who recovers one job touches that job only."""
    closed = machine.job("closed")
    machine.later(2 * 86_400.0)
    mc.recover(DEST, machine.job("committing").id)
    assert f"t/__magic_job-{closed.id}/_job.json" in machine.s3.keys()
