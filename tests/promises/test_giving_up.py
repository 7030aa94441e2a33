"""`force_abort`: every record has a way out, it says what it gives up, and it touches nothing that
is not the job's."""

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
    failing,
    job_of,
    raising,
    refusing,
    visible,
)
from tests.promises.machine import DAY, Machine

UNDONE = {
    "running": "aborted",
    "aborting": "aborted",
    "committing": "reverted",
    "reverting": "reverted",
    "reverted": "reverted",
}


def record_of(job: mc.Job) -> str:
    return f"t/__magic_job-{job.id}/_job.json"


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


def keys_of(job: mc.Job, s3: MemoryStore) -> list[str]:
    return [key for key in control(s3) if f"/__magic_job-{job.id}/" in key]


# What can be undone is undone ---------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(UNDONE))
def test_a_job_that_can_be_undone_is_undone_and_nothing_is_given_up(
    machine: Machine, state: str
) -> None:
    """Nothing of it is visible, nothing open, and its record tells how it ended."""
    job = machine.job(state, job_id="mine")
    given = mc.force_abort(DEST, job.id)
    assert (given.found, given.state, given.outcome) == (state, "closed", UNDONE[state])
    assert given.report is not None
    assert (given.visible, given.left_open, given.unread) == ((), (), ())
    assert not visible(machine.s3)
    assert not machine.s3.open_uploads()
    assert mc.attach(DEST, job.id).outcome == UNDONE[state]


def test_a_closed_job_is_left_as_it_is(machine: Machine) -> None:
    """It has ended: its record goes on telling how."""
    job = machine.job("closed", job_id="mine")
    before = machine.s3.body(record_of(job))
    assert mc.force_abort(DEST, "mine", dead_after=0).outcome == "aborted"
    assert machine.s3.body(record_of(job)) == before


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
    assert set(machine.s3.requests) <= {"get", "head", "list", "list_parts", "list_uploads"}


# What cannot --------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["committing", "reverting"])
def test_a_job_whose_plan_is_gone_is_undone_by_what_its_tasks_left(
    machine: Machine, state: str
) -> None:
    """Neither recover nor abort ends it; its pendingsets name its uploads: what is open is aborted,
    what is visible deleted, and it is told that the record is gone."""
    job = machine.job(state)
    drop(machine.s3, "_plan-")
    with pytest.raises((mc.CommitIncomplete, mc.AbortIncomplete)):
        mc.recover(DEST, job.id)
    with pytest.raises(mc.AbortIncomplete):
        mc.abort(DEST, job.id, revert=True)
    given = mc.force_abort(DEST, job.id)
    assert (given.state, given.outcome, given.visible) == ("absent", "", ())
    assert given.deleted + given.aborted >= 2
    assert not visible(machine.s3)
    assert not machine.s3.open_uploads()
    assert not control(machine.s3)


def test_what_is_visible_and_cannot_be_deleted_is_told_by_name(machine: Machine) -> None:
    """DELETE is forbidden: the file stays, and the report says so."""
    job = machine.job("committing")

    failing(machine.s3, "delete_one", "t/1.csv", PermissionDenied("not allowed", status=403))
    given = mc.force_abort(DEST, job.id)
    assert (given.state, given.visible, given.visible_files) == ("absent", ("t/1.csv",), 1)
    assert visible(machine.s3) == {"t/1.csv": b"1"}
    assert not machine.s3.open_uploads()


@pytest.mark.parametrize("refused", [1, 99])
def test_what_a_late_complete_may_have_published_is_looked_at_again(
    machine: Machine, refused: int
) -> None:
    """A driver that lives still completes a file just before its abort, and then the store does not
    answer: it is not told as aborted. If the store answers again the file is deleted; if it does
    not, the file is named."""
    job = machine.job("committing")
    drop(machine.s3, "_plan-")
    heads = 0

    def before(request: Request) -> None:
        nonlocal heads
        if request.verb == "abort_upload" and request.key == "t/2.csv" and not heads:
            machine.s3.before = None
            (upload,) = machine.s3.open_uploads("t/2.csv")
            parts = machine.s3.list_parts(upload.key, upload.upload_id)
            machine.s3.complete_upload(upload.key, upload.upload_id, parts)
            machine.s3.before, heads = before, refused
        elif request.verb == "head" and request.key == "t/2.csv" and heads:
            heads -= 1
            raise Unanswered("no answer")

    machine.s3.before = before
    given = mc.force_abort(DEST, job.id)
    stays = {"t/2.csv": b"22"} if refused > 1 else {}
    assert visible(machine.s3) == stays
    assert (given.visible, given.visible_files) == (tuple(stays), len(stays))


def test_an_upload_that_cannot_be_aborted_is_told_by_key_and_id(machine: Machine) -> None:
    """The job's sweep would never end: the upload stays open, and is named."""
    job = machine.job("running")
    upload = machine.s3.open_uploads("t/2.csv")[0]

    failing(machine.s3, "abort_upload", "t/2.csv", PermissionDenied("not allowed", status=403))
    given = mc.force_abort(DEST, job.id)
    assert given.state == "absent"
    assert [line.split(":")[0] for line in given.left_open] == [f"t/2.csv {upload.upload_id}"]
    assert [u.key for u in machine.s3.open_uploads()] == ["t/2.csv"]
    assert not control(machine.s3)


def test_a_set_that_cannot_be_read_is_told_and_its_uploads_are_not_guessed(
    machine: Machine,
) -> None:
    """One of a committing job whose plan names it: the uploads of the others are undone."""
    job = machine.job("committing")
    (damaged,) = (
        key for key in control(machine.s3)
        if key.endswith(".pendingset") and b"2.csv" in machine.s3.body(key)
    )  # fmt: skip
    metadata = {JOB_METADATA: uuid_of(job)}
    machine.s3.put_object(damaged, b"{", metadata=metadata)
    given = mc.force_abort(DEST, job.id)
    assert given.state == "absent"
    assert [line.split(":")[0] for line in given.unread] == [damaged]
    assert not visible(machine.s3)
    assert [upload.key for upload in machine.s3.open_uploads()] == ["t/2.csv"]


# Completed ----------------------------------------------------------------------------------------


def test_a_completed_job_keeps_its_files(machine: Machine) -> None:
    """I7: it may have deleted what they replace. Only its record and control objects go."""
    job = machine.job("completed")
    machine.later(DAY)
    given = mc.force_abort(DEST, job.id)
    assert (given.state, given.outcome) == ("absent", "committed")
    assert (sorted(given.visible), given.deleted) == (["t/1.csv", "t/2.csv"], 0)
    assert len(visible(machine.s3)) == 2
    assert not control(machine.s3)


@pytest.mark.parametrize("state", ["completed", "unreadable"])
def test_a_job_that_changed_lately_takes_a_word(machine: Machine, state: str) -> None:
    """Its driver may be deleting what it replaces, or a newer version be running it: refused, and
    nothing is touched, unless the caller says that it is dead."""
    job = machine.job("completed" if state == "completed" else "running")
    if state == "unreadable":
        damage(machine.s3, job)
    before = set(machine.s3.keys()), machine.s3.open_uploads()
    told = "dead_after=0" if state == "completed" else "newer version"
    with pytest.raises(mc.JobTooYoung, match=told):
        mc.force_abort(DEST, job.id)
    assert (set(machine.s3.keys()), machine.s3.open_uploads()) == before
    assert mc.force_abort(DEST, job.id, dead_after=0).state == "absent"


def test_a_driver_that_lives_all_the_same_ends_well(s3: MemoryStore) -> None:
    """It is given up before it marks: its commit says "committed", and the marker is there."""
    job = job_of({"1.csv": b"1"})
    At(s3, "put t/_SUCCESS", lambda: mc.force_abort(DEST, job.id, dead_after=0))
    report = job.commit()
    assert (report.outcome, report.state) == ("committed", "absent")
    assert set(s3.keys()) == {"t/1.csv", "t/_SUCCESS"}


# Records that cannot be read ----------------------------------------------------------------------


@pytest.mark.parametrize("job_id", [None, "mine"])
@pytest.mark.parametrize("body", [b"", b"{", b'{"version": 2}', b"x" * 100_000])
def test_a_record_that_cannot_be_read_has_a_way_out(
    machine: Machine, job_id: str | None, body: bytes
) -> None:
    """Nothing else ends it. What is open is aborted; what is visible stays, for it may have
    completed; both are told."""
    job = machine.job("committing", job_id=job_id)
    damage(machine.s3, job, body)
    machine.later(DAY)
    with pytest.raises((mc.FormatError, mc.StoreError)):
        mc.abort(DEST, job.id, revert=True)
    given = mc.force_abort(DEST, job.id)
    assert (given.found, given.state, given.outcome) == ("unreadable", "absent", "")
    assert given.visible == ("t/1.csv",)
    assert visible(machine.s3) == {"t/1.csv": b"1"}
    assert not machine.s3.open_uploads()
    assert not control(machine.s3)


def test_a_record_that_is_mended_meanwhile_is_not_given_up(machine: Machine) -> None:
    """Between the look and the claim somebody writes a good record: the claim's condition fails,
    and no upload of the job is touched."""
    job = machine.job("running")
    good = machine.s3.body(record_of(job))
    damage(machine.s3, job)
    machine.later(DAY)
    At(
        machine.s3,
        lambda r: r.verb == "put" and r.key == record_of(job),
        lambda: damage(machine.s3, job, good),
    )
    with pytest.raises(mc.JobError, match="changed by another process"):
        mc.force_abort(DEST, job.id)
    assert machine.s3.body(record_of(job)) == good
    assert len(machine.s3.open_uploads()) == 3


def test_a_driver_of_a_record_that_was_given_up_publishes_nothing(s3: MemoryStore) -> None:
    """A newer version's driver is alive, whatever was said: its swap does not win."""
    job = job_of({"1.csv": b"1"})

    def given_up_meanwhile() -> None:
        damage(s3, job)
        mc.force_abort(DEST, job.id, dead_after=0)

    at = At(
        s3,
        lambda r: r.verb == "put" and r.key == record_of(job) and bool(r.if_match),
        given_up_meanwhile,
    )
    with pytest.raises(mc.OutcomeUnknown):
        job.commit()
    assert at.done
    assert not visible(s3)
    assert not s3.open_uploads()


@pytest.mark.parametrize("verb", ["abort_upload", "list_uploads", "delete", "delete_one"])
def test_a_call_that_died_is_done_again_at_once(machine: Machine, verb: str) -> None:
    """Its claim is nobody's record: no age is asked for, and the same end is reached."""
    job = damaged(machine, job_id="mine")
    only = "" if verb != "delete_one" else record_of(job)  # the first asks for the right
    dies_at(
        machine.s3,
        lambda r: r.verb == verb and only in ("", r.key),
        lambda: mc.force_abort(DEST, "mine"),
    )
    assert b"given_up" in machine.s3.body(record_of(job))
    assert mc.force_abort(DEST, "mine").state == "absent"
    assert not machine.s3.open_uploads()
    assert not control(machine.s3)


def test_a_claim_whose_reply_was_lost_is_recognised(machine: Machine) -> None:
    """The adapter sends it again and is told 412: what is there is our own."""
    job = damaged(machine)

    def twice(request: Request) -> None:
        if request.verb == "put" and request.key == record_of(job):
            machine.s3.before = None
            request.effect()

    machine.s3.before = twice
    assert mc.force_abort(DEST, job.id).state == "absent"
    assert not control(machine.s3)


def test_an_unanswered_claim_gives_nothing_up(machine: Machine) -> None:
    """Whether it landed is not known: no upload is touched, and the same call goes on."""
    job = damaged(machine)
    with refusing(machine.s3, "put", Unanswered("no answer")), pytest.raises(Unanswered):
        mc.force_abort(DEST, job.id)
    assert len(machine.s3.open_uploads()) == 3
    assert mc.force_abort(DEST, job.id).state == "absent"


def test_a_store_without_conditional_delete_is_enough(machine: Machine) -> None:
    """The record is exchanged for a claim by PUT, so that a plain DELETE takes nothing else."""
    job = machine.job("completed")
    machine.later(DAY)
    machine.s3.before = raising(
        lambda r: r.verb == "delete_one" and r.if_match is not None,
        NotSupported("not implemented", status=501),
    )
    assert mc.force_abort(DEST, job.id).state == "absent"
    assert not control(machine.s3)


# Nobody else's ------------------------------------------------------------------------------------


@pytest.mark.parametrize("forged", ["record", "plan gone"])
def test_another_job_beside_it_is_not_touched(machine: Machine, forged: str) -> None:
    """Its record, its sets and its uploads stay as they are, and it commits."""
    neighbour = mc.start(DEST, job_id="other")
    with neighbour.task("9") as task, task.open("9.csv", unique=True) as file:
        file.write(b"9")
    (key,) = (upload.key for upload in machine.s3.open_uploads())
    job = machine.job("committing")
    if forged == "record":
        damage(machine.s3, job, uuid=uuid_of(neighbour))  # it says that it is the neighbour's
    else:
        drop(machine.s3, f"__magic_job-{job.id}/_plan-")
    machine.later(DAY)
    theirs = {key: machine.s3.body(key) for key in keys_of(neighbour, machine.s3)}
    mc.force_abort(DEST, job.id)
    assert {key: machine.s3.body(key) for key in keys_of(neighbour, machine.s3)} == theirs
    assert key in [upload.key for upload in machine.s3.open_uploads()]
    neighbour.commit([task.result])
    assert visible(machine.s3)[key] == b"9"


@pytest.mark.parametrize("token", ["another job's", "none", "ours"])
@pytest.mark.parametrize("key", ["t/9.csv", "elsewhere/9.csv"])
def test_a_forged_set_reaches_no_upload_of_anybody_else(
    machine: Machine, token: str, key: str
) -> None:
    """Whoever may write into the job's directory names an upload of somebody else: it is left
    alone, and the set is told; with the job's own token, and below the destination, it is the
    job's."""
    job = machine.job("committing")
    (source, *_) = (k for k in control(machine.s3) if k.endswith(".pendingset"))
    victim = machine.s3.create_upload(key, attributes=mc.Attributes())
    forged = orjson.loads(machine.s3.body(source))
    forged.pop("contentSha256")
    commit = forged["commits"][0]
    commit["destinationKey"], commit["uploadId"] = key, victim.upload_id
    commit["uri"] = f"s3a://bucket/{key}"
    tokens = {"another job's": f"{'1' * 32}.a.0", "none": "", "ours": f"{uuid_of(job)}.a.0"}
    commit["extraData"]["magic-committer.token"] = tokens[token]
    machine.s3.put_object(
        source.replace(".pendingset", "x.pendingset"), orjson.dumps(forged),
        metadata={JOB_METADATA: uuid_of(job)},
    )  # fmt: skip
    drop(machine.s3, "_plan-")
    given = mc.force_abort(DEST, job.id)
    open_uploads = [upload.upload_id for upload in machine.s3.open_uploads()]
    taken = token == "ours" and key.startswith("t/")
    assert (victim.upload_id in open_uploads) is not taken
    assert bool(given.unread) is not taken


@pytest.mark.parametrize("state", ["readable", "damaged"])
def test_who_may_not_delete_gives_nothing_up(machine: Machine, state: str) -> None:
    """The record is not overwritten by a claim that could not be taken away again: it reads as
    before, for everybody, and somebody with the right gives the job up."""
    job = machine.job("committing" if state == "damaged" else "completed")
    if state == "damaged":
        damage(machine.s3, job)
    before = machine.s3.body(record_of(job))
    machine.s3.before = raising("delete|delete_one", PermissionDenied("not allowed", status=403))
    with pytest.raises(PermissionDenied, match=r"s3:DeleteObject below s3://bucket/t/"):
        mc.force_abort(DEST, job.id, dead_after=0)
    machine.s3.before = None
    assert machine.s3.body(record_of(job)) == before
    assert mc.force_abort(DEST, job.id, dead_after=0).state == "absent"
    assert control(machine.s3) == []
