"""`force_abort`: every record has a way out, which touches nothing that is not the job's."""

from __future__ import annotations

import orjson
import pytest

import magic_committer as mc
from magic_committer.errors import NotSupported, PermissionDenied, Unanswered
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.memory import MemoryStore, Request
from tests.promises.hands import (
    DEST,
    At,
    control,
    dies_at,
    job_of,
    raises,
    raising,
    record_of,
    refusing,
    remains,
    visible,
    write,
)
from tests.promises.machine import DAY, READS, Machine
from tests.promises.situations import contents

UNDONE = {
    "running": "aborted",
    "aborting": "aborted",
    "committing": "reverted",
    "reverting": "reverted",
    "reverted": "reverted",
}


def uuid_of(job: mc.Job) -> str:
    return next(found.uuid for found in mc.inspect(DEST) if found.id == job.id)


def damage(s3: MemoryStore, job: mc.Job, body: bytes = b"{", uuid: str | None = None) -> None:
    """Somebody writes something else over a job's record."""
    info = s3.head(record_of(job))
    metadata = dict(info.metadata or {}) if uuid is None else {JOB_METADATA: uuid}
    s3.put_object(record_of(job), body, metadata=metadata)


def damaged(machine: Machine, state: str = "running", job_id: str | None = None) -> mc.Job:
    job = machine.job(state, job_id=job_id)
    damage(machine.s3, job)
    machine.later(DAY)
    return job


def drop(s3: MemoryStore, ending: str) -> None:
    for key in control(s3):
        if ending in key:
            s3.delete_object(key)


@pytest.mark.parametrize("state", sorted(UNDONE))
def test_what_can_be_undone_is_undone_and_not_given_up(machine: Machine, state: str) -> None:
    """Nothing of it is visible, nothing open, and its record tells how it ended."""
    job = machine.job(state, job_id="mine")
    given = mc.force_abort(DEST, job.id)
    assert (given.found, given.state, given.outcome) == (state, "closed", UNDONE[state])
    assert given.report is not None
    assert (given.visible, given.left_open, given.unread) == ((), (), ())
    assert remains(machine.s3)[:2] == ({}, [])
    record = machine.s3.body(record_of(job))
    assert mc.force_abort(DEST, "mine", dead_after=0).outcome == UNDONE[state]
    assert machine.s3.body(record_of(job)) == record  # it goes on telling how
    assert mc.attach(DEST, job.id).outcome == UNDONE[state]


def test_a_job_without_a_record_is_not_found(s3: MemoryStore) -> None:
    """There is nothing to give up, and what takes leftovers is named."""
    with pytest.raises(mc.JobNotFound, match=r"magic_committer\.cleanup\('s3://bucket/t/'\)"):
        mc.force_abort(DEST, "none")


@pytest.mark.parametrize("state", [*sorted(UNDONE), "completed", "closed"])
def test_a_look_changes_nothing(machine: Machine, state: str) -> None:
    """``dry_run`` reads only, and tells what is visible."""
    job = machine.job(state)
    machine.s3.requests.clear()
    given = mc.force_abort(DEST, job.id, dry_run=True)
    assert given.dry_run
    assert given.found == given.state == state
    assert sorted(given.visible) == sorted(visible(machine.s3))
    assert set(machine.s3.requests) <= READS


@pytest.mark.parametrize("state", ["committing", "reverting"])
def test_without_a_plan_it_is_undone_by_what_tasks_left(machine: Machine, state: str) -> None:
    """Neither recover nor abort ends it: its pendingsets name what is open or visible."""
    job = machine.job(state)
    drop(machine.s3, "_plan-")
    raises((mc.CommitIncomplete, mc.AbortIncomplete), mc.recover, DEST, job.id)
    raises(mc.AbortIncomplete, mc.abort, DEST, job.id, revert=True)
    given = mc.force_abort(DEST, job.id)
    assert (given.state, given.outcome, given.visible) == ("absent", "", ())
    assert given.deleted + given.aborted >= 2
    assert remains(machine.s3) == ({}, [], [])


@pytest.mark.parametrize("state", ["committing", "running"])
def test_what_cannot_be_deleted_or_aborted_is_told_by_name(machine: Machine, state: str) -> None:
    """The job's sweep would never end: the file and the upload stay, and are named."""
    s3 = machine.s3
    job = machine.job(state)
    upload = s3.open_uploads("t/2.csv")[0].upload_id
    protected = (("delete_one", "t/1.csv"), ("abort_upload", "t/2.csv"))
    s3.before = raising(lambda r: (r.verb, r.key) in protected, PermissionDenied)
    given = mc.force_abort(DEST, job.id)
    stays = {"t/1.csv": b"1"} if state == "committing" else {}
    assert (given.state, given.visible, given.visible_files) == ("absent", tuple(stays), len(stays))
    assert [line.split(":")[0] for line in given.left_open] == [f"t/2.csv {upload}"]
    assert remains(s3) == (stays, ["t/2.csv"], [])


@pytest.mark.parametrize("refused", [1, 99])
def test_what_a_late_complete_published_is_looked_for(machine: Machine, refused: int) -> None:
    """The file is deleted if the store answers again, and named if it does not."""
    s3 = machine.s3
    job = machine.job("committing")
    drop(s3, "_plan-")

    def completes() -> None:
        (upload,) = s3.open_uploads("t/2.csv")
        parts = s3.list_parts(upload.key, upload.upload_id)
        s3.complete_upload(upload.key, upload.upload_id, parts)
        s3.before = raising("head t/2.csv", Unanswered, times=refused)

    At(s3, "abort_upload t/2.csv", completes)
    given = mc.force_abort(DEST, job.id)
    stays = {"t/2.csv": b"22"} if refused > 1 else {}
    assert visible(s3) == stays
    assert (given.visible, given.visible_files) == (tuple(stays), len(stays))


def test_a_set_that_cannot_be_read_is_told_and_not_guessed_about(machine: Machine) -> None:
    """One of a committing job whose plan names it: the uploads of the others are undone."""
    s3 = machine.s3
    job = machine.job("committing")
    sets = [key for key in control(s3) if key.endswith(".pendingset")]
    (spoilt,) = (key for key in sets if b"2.csv" in s3.body(key))
    s3.put_object(spoilt, b"{", metadata={JOB_METADATA: uuid_of(job)})
    given = mc.force_abort(DEST, job.id)
    assert given.state == "absent"
    assert [line.split(":")[0] for line in given.unread] == [spoilt]
    assert remains(s3)[:2] == ({}, ["t/2.csv"])


@pytest.mark.parametrize("state", ["completed", "unreadable"])
def test_a_job_that_changed_lately_takes_a_word(machine: Machine, state: str) -> None:
    """Its driver may be alive: nothing is touched unless the caller says that it is dead."""
    job = machine.job("completed" if state == "completed" else "running")
    if state == "unreadable":
        damage(machine.s3, job)
    before = contents(machine.s3)
    told = "dead_after=0" if state == "completed" else "newer version"
    raises(mc.JobTooYoung, mc.force_abort, DEST, job.id, match=told)
    assert contents(machine.s3) == before
    given = mc.force_abort(DEST, job.id, dead_after=0)
    assert given.state == "absent"
    if state == "completed":  # I7: it may have deleted what its files replace
        assert (given.outcome, given.deleted) == ("committed", 0)
        assert sorted(given.visible) == ["t/1.csv", "t/2.csv"]
        assert (len(visible(machine.s3)), control(machine.s3)) == (2, [])


def test_a_driver_that_lives_all_the_same_ends_well(s3: MemoryStore) -> None:
    """It is given up before it marks: its commit says "committed", and the marker is there."""
    job = job_of({"1.csv": b"1"})
    At(s3, "put t/_SUCCESS", lambda: mc.force_abort(DEST, job.id, dead_after=0))
    report = job.commit()
    assert (report.outcome, report.state) == ("committed", "absent")
    assert set(s3.keys()) == {"t/1.csv", "t/_SUCCESS"}


@pytest.mark.parametrize("job_id", [None, "mine"])
@pytest.mark.parametrize("body", [b"", b"{", b'{"version": 2}', b"x" * 100_000])
def test_an_unreadable_record_can_go(machine: Machine, job_id: str | None, body: bytes) -> None:
    """What is open is aborted; what is visible stays, for it may have completed."""
    job = machine.job("committing", job_id=job_id)
    damage(machine.s3, job, body)
    machine.later(DAY)
    raises((mc.FormatError, mc.StoreError), mc.abort, DEST, job.id, revert=True)
    given = mc.force_abort(DEST, job.id)
    assert (given.found, given.state, given.outcome) == ("unreadable", "absent", "")
    assert given.visible == ("t/1.csv",)
    assert remains(machine.s3) == ({"t/1.csv": b"1"}, [], [])


def test_a_record_that_is_mended_meanwhile_is_not_given_up(machine: Machine) -> None:
    """The claim's condition fails, and no upload of the job is touched."""
    s3 = machine.s3
    job = machine.job("running")
    good = s3.body(record_of(job))
    damage(s3, job)
    machine.later(DAY)
    At(s3, f"put {record_of(job)}", lambda: damage(s3, job, good))
    raises(mc.JobError, mc.force_abort, DEST, job.id, match="changed by another process")
    assert s3.body(record_of(job)) == good
    assert len(s3.open_uploads()) == 3


def test_a_driver_of_a_record_that_was_given_up_publishes_nothing(s3: MemoryStore) -> None:
    """A newer version's driver is alive, whatever was said: its swap does not win."""
    job = job_of({"1.csv": b"1"})

    def given_up_meanwhile() -> None:
        damage(s3, job)
        mc.force_abort(DEST, job.id, dead_after=0)

    with At(s3, f"put {record_of(job)}", given_up_meanwhile):
        raises(mc.OutcomeUnknown, job.commit)
    assert remains(s3)[:2] == ({}, [])


@pytest.mark.parametrize("verb", ["abort_upload", "list_uploads", "delete", "delete_one"])
def test_a_call_that_died_is_done_again_at_once(machine: Machine, verb: str) -> None:
    """Its claim is nobody's record: no age is asked for, and the same end is reached."""
    job = damaged(machine, job_id="mine")
    fits = verb if verb != "delete_one" else f"{verb} {record_of(job)}"  # not what asks for it
    dies_at(machine.s3, fits, lambda: mc.force_abort(DEST, "mine"))
    assert b"given_up" in machine.s3.body(record_of(job))
    assert mc.force_abort(DEST, "mine").state == "absent"
    assert remains(machine.s3)[1:] == ([], [])


@pytest.mark.parametrize("told", [True, False])
def test_a_claim_whose_reply_was_lost_is_recognised(machine: Machine, told: bool) -> None:
    """Told 412, what is there is our own. One that is never answered gives nothing up."""
    job = damaged(machine)

    def twice(request: Request) -> None:
        if request.verb == "put" and request.key == record_of(job):
            machine.s3.before = None
            request.effect()

    if told:
        machine.s3.before = twice
    else:
        with refusing(machine.s3, "put", Unanswered), pytest.raises(Unanswered):
            mc.force_abort(DEST, job.id)
        assert len(machine.s3.open_uploads()) == 3
    assert mc.force_abort(DEST, job.id).state == "absent"
    assert not control(machine.s3)


def test_a_store_without_conditional_delete_is_enough(machine: Machine) -> None:
    """The record is exchanged for a claim by PUT, so that a plain DELETE takes nothing else."""
    job = machine.job("completed")
    machine.later(DAY)
    conditional = lambda r: r.verb == "delete_one" and r.if_match is not None  # noqa: E731
    machine.s3.before = raising(conditional, NotSupported)
    assert mc.force_abort(DEST, job.id).state == "absent"
    assert not control(machine.s3)


@pytest.mark.parametrize("forged", ["record", "plan gone"])
def test_another_job_beside_it_is_not_touched(machine: Machine, forged: str) -> None:
    """Its record, its sets and its uploads stay as they are, and it commits."""
    s3 = machine.s3
    neighbour = mc.start(DEST, job_id="other")
    with neighbour.task("9") as task:
        write(task, "9.csv", b"9", unique=True)
    (key,) = remains(s3)[1]
    job = machine.job("committing")
    if forged == "record":
        damage(s3, job, uuid=uuid_of(neighbour))  # it says that it is the neighbour's
    else:
        drop(s3, f"__magic_job-{job.id}/_plan-")
    machine.later(DAY)
    theirs = {key: s3.body(key) for key in s3.keys("t/__magic_job-other/")}
    mc.force_abort(DEST, job.id)
    assert {key: s3.body(key) for key in s3.keys("t/__magic_job-other/")} == theirs
    assert key in remains(s3)[1]
    neighbour.commit([task.result])
    assert visible(s3)[key] == b"9"


@pytest.mark.parametrize("token", ["another job's", "none", "ours"])
@pytest.mark.parametrize("key", ["t/9.csv", "elsewhere/9.csv"])
def test_a_forged_set_reaches_no_others_upload(machine: Machine, token: str, key: str) -> None:
    """Only with the job's own token, and below the destination, it is the job's."""
    s3 = machine.s3
    job = machine.job("committing")
    uuid = uuid_of(job)
    source = next(k for k in control(s3) if k.endswith(".pendingset"))
    victim = s3.create_upload(key, attributes=mc.Attributes()).upload_id
    forged = orjson.loads(s3.body(source))
    forged.pop("contentSha256")
    (commit, *_) = forged["commits"]
    commit |= {"destinationKey": key, "uploadId": victim, "uri": f"s3a://bucket/{key}"}
    tokens = {"another job's": f"{'1' * 32}.a.0", "none": "", "ours": f"{uuid}.a.0"}
    commit["extraData"]["magic-committer.token"] = tokens[token]
    forged["commits"][0] = commit
    name = source.replace(".pendingset", "x.pendingset")
    s3.put_object(name, orjson.dumps(forged), metadata={JOB_METADATA: uuid})
    drop(s3, "_plan-")
    given = mc.force_abort(DEST, job.id)
    taken = token == "ours" and key.startswith("t/")
    assert (victim in [upload.upload_id for upload in s3.open_uploads()]) is not taken
    assert bool(given.unread) is not taken


@pytest.mark.parametrize("state", ["readable", "damaged"])
def test_who_may_not_delete_gives_nothing_up(machine: Machine, state: str) -> None:
    """No claim is put over the record that could not be taken away again."""
    job = machine.job("committing" if state == "damaged" else "completed")
    if state == "damaged":
        damage(machine.s3, job)
    before = machine.s3.body(record_of(job))
    told = r"s3:DeleteObject below s3://bucket/t/"
    refused = refusing(machine.s3, "delete|delete_one", PermissionDenied)
    with refused, pytest.raises(PermissionDenied, match=told):
        mc.force_abort(DEST, job.id, dead_after=0)
    assert machine.s3.body(record_of(job)) == before
    assert mc.force_abort(DEST, job.id, dead_after=0).state == "absent"
    assert control(machine.s3) == []
