"""Each plan says what it would do, changes nothing until it runs, and is the command's."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.cli.main import run
from magic_committer.hadoop.paths import unique_name
from magic_committer.runtime.threads import ThreadPool
from tests.hadoops import complete, leave_job
from tests.promises.hands import DEST, raises, raising, visible
from tests.promises.machine import DAY, FILES, READS, STATES, YOUNG, Machine, matching
from tests.promises.situations import contents

VERBS = ("commit", "abort", "recover")


def by_command(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    code = run([*words, "--format", "json"])
    out = capsys.readouterr().out
    return code, orjson.loads(out) if out else {}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", STATES)
def test_a_job_in_each_state_has_the_plan_of_the_command(
    machine: Machine, capsys: pytest.CaptureFixture[str], state: str, verb: str
) -> None:
    """The same row, or a refusal by both; nothing is written until `run`, which ends the job."""
    machine.job(state, job_id="mine")
    machine.later(2 * DAY)
    before = contents(machine.s3)
    code, printed = by_command(capsys, "job", verb, DEST, "mine", "--dry-run")
    (job,) = mc.inspect(DEST)
    assert contents(machine.s3) == before
    if code:
        raises(mc.JobError, getattr(job, verb))
        return
    plan = getattr(pickle.loads(pickle.dumps(job)), verb)()
    (row,) = plan.rows
    assert {name: printed[name] for name in row} == row
    assert bool(plan.question) == (state != "closed")
    assert contents(machine.s3) == before
    done = plan.run()
    assert mc.attach(DEST, "mine").state == done.state == "closed"
    assert visible(machine.s3) == (FILES if done.outcome == "committed" else {})


def test_the_blocks_of_the_guide_end_what_can_be_ended(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/recovery.md as it stands: jobs that may be alive, Hadoop's, or unreadable are told
    of, and the others end."""
    table = "s3://bucket/table"
    leave_job(machine.s3, "3.5.0", dest="table/")
    machine.s3.put_object("table/__magic_job-new/_job.json", b'{"version":99}')
    mc.start(table, job_id="dead")
    machine.later(2 * DAY)
    mc.start(table, job_id="alive")
    page = (Path(__file__).parents[2] / "docs/recovery.md").read_text(encoding="utf-8")
    told = []
    for block, job_id in zip(page.split("```python\n")[1:], ("dead", "", "hadoops"), strict=True):
        exec(block.partition("```")[0], {"mc": mc, "job_id": job_id, "input": lambda _: "y"})
        told.append(capsys.readouterr().out)
    assert all(why in told[0] for why in ("may be alive", "is a Hadoop job", "newer version"))
    states = {job.id: job.state for job in mc.inspect(table)}
    assert states == {"dead": "closed", "alive": "running", "hadoops": "closed", "new": "absent"}


@pytest.mark.parametrize("limit", [YOUNG, DAY])
def test_a_plan_does_what_its_job_would(machine: Machine, limit: float) -> None:
    """A job is as dead for `FoundJob.recover` as it was for `inspect`, if no other age is given."""
    machine.job("running")
    machine.later(2 * YOUNG)
    (job,) = mc.inspect(DEST, dead_after=limit)
    if job.would.startswith("nothing yet"):
        assert raises(mc.JobTooYoung, job.recover).limit == limit == DAY
    else:
        assert raises(mc.JobTooYoung, job.recover, dead_after=DAY).limit == DAY
        assert job.recover().run().outcome == "aborted"


@pytest.mark.parametrize("verb", [*VERBS, "give_up", "adopt"])
def test_a_plan_takes_what_the_call_takes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Options, of which the number of requests at once is one, and a function for its progress."""
    at_once, told, each = set(), list[mc.Progress](), ThreadPool.each

    def noted(*items: Any, **how: Any) -> Any:
        at_once.add(how["in_flight"])
        return each(*items, **how)

    monkeypatch.setattr(ThreadPool, "each", noted)
    if verb == "adopt":
        leave_job(machine.s3, "3.5.0")
    else:
        machine.job("running")
    machine.later(2 * DAY)
    (job,) = mc.inspect(DEST)
    how: dict[str, Any] = {} if verb == "adopt" else {"progress": told.append}
    getattr(job, verb)(options=mc.Options(commit_threads=7), **how).run()
    assert 7 in at_once
    assert bool(told) == bool(how)


def test_read_only_rights_are_enough_for_a_plan(machine: Machine) -> None:
    """A plan of each verb, on a store where nothing may be written; its run is refused."""
    machine.job("running", job_id="mine")
    machine.later(2 * DAY)

    machine.s3.before = raising(lambda r: r.verb not in READS, mc.PermissionDenied)
    (job,) = mc.inspect(DEST)
    plans: list[mc.ActionPlan[Any]] = [job.commit(), job.abort(), job.recover(), job.give_up()]
    assert all(plan.question for plan in plans)
    for plan in plans[:3]:
        raises(mc.StoreError, plan.run)
    machine.s3.before = None


def test_a_half_published_job_of_hadoops_has_a_plan(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused without the words that its JVM is dead, and that its files may stay."""
    hadoops = leave_job(machine.s3, "3.5.0")
    complete(machine.s3, hadoops, 2)
    (job,) = mc.inspect(DEST, dead_after=0)
    raises(mc.JobError, job.abort, match="is a Hadoop job")
    raises(mc.JobTooYoung, job.recover, adopt=True)  # as for `adopt`, not as for `inspect`
    raises(mc.AlreadyVisible, job.abort, adopt=True, dead_after=0)
    plan = job.abort(adopt=True, dead_after=0, leave_visible=True)
    assert plan.question.endswith("2 of 3 files are visible already, and stay?")
    assert "adopt it only if its JVM is dead" in plan.warning
    words = ("hadoops", "--adopt", "--force", "--dead-after", "0", "--dry-run")
    _, printed = by_command(capsys, "job", "abort", DEST, *words)
    assert [{name: printed[name] for name in row} for row in plan.rows] == list(plan.rows)
    assert job.adopt(dead_after=0).run().job_id == "hadoops"
    assert job.commit().run().outcome == "committed"
    assert visible(machine.s3) == hadoops.files


def test_a_job_that_nothing_else_ends_is_given_up(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its plan, the command's too, names what is open and visible; then nothing of it is left."""
    job = machine.job("committing")
    machine.s3.delete_object(*matching(machine.s3, "*/_plan-*"))
    machine.later(DAY)
    (found,) = mc.inspect(DEST)
    plan = found.give_up()
    (row,) = plan.rows
    assert (row["visible"], row["open"]) == (["t/1.csv"], 2)
    _, printed = by_command(capsys, "job", "abort", DEST, job.id, "--force", "--dry-run")
    assert {name: printed[name] for name in row} == row
    assert f"Give up job {job.id}, which is committing? 2 uploads of it are open" in plan.question
    assert plan.run().state == "absent"
    assert not machine.s3.open_uploads()


def test_a_job_that_was_not_found_has_no_ending() -> None:
    """One that a program made of values has none."""
    raises(mc.OptionError, mc.FoundJob("j", DEST, "ours").abort)


def test_open_uploads_are_looked_at_and_aborted_by_plan(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the command tells it; others' stay unless they are meant, and so does what came later."""
    orphans = {machine.s3.start_upload(f"t/{unique_name(f'{n}.csv', '0' * 32)}") for n in range(3)}
    foreign = machine.s3.start_upload("t/other.csv")
    machine.later(2 * DAY)
    mine = [one.to_dict() for one in mc.uploads(DEST, sizes=True)]
    _, printed = by_command(capsys, "uploads", "list", DEST)
    same = ("key", "upload_id", "class", "job", "bytes", "would")
    assert [[row[n] for n in same] for row in printed["rows"]] == [
        [r[n] for n in same] for r in mine
    ]
    plan = mc.uploads(DEST).abort()
    assert plan.question == "Abort 3 uploads under s3://bucket/t/ (orphan 3)?"
    assert {row["upload_id"] for row in plan.rows} == orphans
    later = machine.s3.start_upload(f"t/{unique_name('later.csv', '0' * 32)}")
    machine.later(2 * DAY)
    done = plan.run()
    assert (done.aborted, done.gone, done.left, done.stays) == (3, 0, 0, ())
    assert {one.upload_id for one in machine.s3.open_uploads()} == {foreign, later}
    assert mc.uploads(DEST, older_than=YOUNG).abort(foreign=True).run().aborted == 2


@pytest.mark.parametrize(
    ("how", "words"),
    [({"foreign": True}, "from an age only"), ({"max_aborts": 0}, "more than the 0")],
)
def test_too_much_is_refused(machine: Machine, how: dict[str, Any], words: str) -> None:
    """Others' uploads without an age, and more than are allowed: before anything is aborted."""
    machine.s3.start_upload(f"t/{unique_name('a.csv', '0' * 32)}")
    machine.later(DAY)
    with pytest.raises(mc.MagicError, match=words):
        mc.uploads(DEST).abort(**how)
    assert len(machine.s3.open_uploads()) == 1


@pytest.mark.parametrize(
    ("place", "why"),
    [("", ""), ("empty element", "t/x//"), ("denied", "refused"), ("too many", "up to the key")],
)
def test_jobs_of_directories_below_are_found_if_asked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, place: str, why: str
) -> None:
    """``inspect(below=True)`` looks at all directories, by one listing. A place that cannot be
    looked at is told of, and hides no job of another."""
    mc.start(DEST, job_id="here")
    mc.start(f"{DEST}/day=1", job_id="below")
    assert [job.id for job in mc.inspect(DEST)] == ["here"]
    if place == "empty element":
        machine.s3.put_object("t/x//__magic_job-1/_job.json", b"{}")
    elif place == "denied":
        machine.s3.put_object("t/a/__magic_job-1/_job.json", b"{}")
        machine.s3.before = raising("list t/a/*", mc.PermissionDenied)
    elif place:
        machine.s3._bucket.page_keys = 1
        monkeypatch.setattr("magic_committer.maintenance.inspect.OBJECTS_MAX", 1)
    found = {job.id: job for job in mc.inspect(DEST, below=True)}
    unread = found.pop("", None)
    dests = {"here": f"{DEST}/", "below": f"{DEST}/day=1/"}
    assert {job.id: job.dest for job in found.values()} == {
        name: dests[name] for name in (["here"] if place == "too many" else dests)
    }
    assert (unread is None) == (not place)
    if unread is not None:
        assert why in unread.problem
        assert unread.problem in raises(mc.JobError, unread.recover).message
