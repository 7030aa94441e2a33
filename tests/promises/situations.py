"""Situations in which an error has remedies, and what each remedy must come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import magic_committer as mc
from magic_committer.errors import InvalidRequest, PermissionDenied, Unanswered
from magic_committer.options import Mode
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.memory import MemoryStore
from tests.hadoops import HadoopJob, complete, leave_job
from tests.promises.hands import (
    DEST,
    control,
    job_of,
    raises,
    raising,
    record_of,
    refusing,
    visible,
)
from tests.promises.machine import YOUNG, Machine

Step = Callable[[], object]
End = Callable[[MemoryStore, object], None]
"""Holds the store, and what was there before the remedy, against what the remedy must come to."""

BOTH = ("t/1.csv", "t/2.csv")
MANY = tuple(f"t/{number:02}.csv" for number in range(25))
"""More keys than a line names."""
MAGIC = f"{DEST}/__magic_job-7/job-7/00/tasks/a/__base/x.csv"
"""A path of a job that is not started."""


@dataclass(frozen=True)
class Situation:
    """How an error comes about.

    Attributes:
        make: does all but the last step, and returns that: it raises.
        ends: what each of the error's remedies comes to, in order.
        stays_broken: what makes the store fail is not mended before the remedy.
        later: seconds that pass before the remedy.
        as_commands: the ends of the commands, where they are others.
    """

    make: Callable[[Machine], Step]
    ends: tuple[End, ...]
    stays_broken: bool = False
    later: float = 0.0
    as_commands: tuple[End, ...] = ()


def contents(s3: MemoryStore) -> object:
    return {key: s3.body(key) for key in s3.keys()}, s3.open_uploads()


def shows(*keys: str) -> End:
    """The job is over, and these files are visible."""

    def end(s3: MemoryStore, before: object) -> None:
        assert tuple(sorted(visible(s3))) == keys
        assert not s3.open_uploads()
        assert all(key.endswith("/_job.json") for key in control(s3))
        assert all(found.state == "closed" for found in mc.inspect(DEST))

    return end


def unchanged(s3: MemoryStore, before: object) -> None:
    """It was a question."""
    assert contents(s3) == before


def running(s3: MemoryStore, before: object) -> None:
    """There is a record of a running job that was not there."""
    assert contents(s3) != before
    assert [found.state for found in mc.inspect(DEST)] == ["running"]


def tidy(s3: MemoryStore, before: object) -> None:
    """No control object is left, and no upload."""
    assert contents(s3) != before
    assert not control(s3)
    assert not s3.open_uploads()


def aborted(s3: MemoryStore, before: object) -> None:
    """The job is aborted; what could not be read of it may be open still."""
    assert contents(s3) != before
    assert not visible(s3)
    assert [found.outcome for found in mc.inspect(DEST)] == ["aborted"]


def as_before(s3: MemoryStore, before: object) -> None:
    """The store fails as before: it came to nothing new."""
    assert not any("_SUCCESS" in key for key in s3.keys())


NONE = shows()


def on_a_store_that(machine: Machine, fails: str, error: Exception, then: Step) -> Step:
    """The step, on a store that fails such requests."""

    def step() -> object:
        machine.s3.before = raising(fails, error)
        return then()

    return step


DENIED = PermissionDenied("not this key", status=403)
SILENT = Unanswered("no answer")


def job(*names: str, mode: Mode = "append") -> mc.Job:
    """A job of one task with these files."""
    return job_of(dict.fromkeys(names, b"1"), mode=mode)


def drop(s3: MemoryStore, *keys: str) -> None:
    """The store loses the uploads."""
    for key in keys:
        s3.drop_upload(s3.open_uploads(key)[0].upload_id)


def rival(machine: Machine) -> Step:
    """Another job lives, or looks so."""
    job("1.csv", mode="replace")
    machine.later(YOUNG)
    return lambda: mc.start(DEST, mode="replace")


def lost(machine: Machine) -> Step:
    """A decided job has lost an upload."""
    decided = machine.job("committing")
    drop(machine.s3, "t/2.csv")
    return decided.commit


def many_lost(machine: Machine) -> Step:
    """A decided job has lost more uploads than a line names."""
    decided = job(*(key[2:] for key in MANY))
    with refusing(machine.s3, "complete_upload", DENIED):
        raises(mc.CommitIncomplete, decided.commit)

    def step() -> object:
        drop(machine.s3, *MANY)
        return mc.recover(DEST, decided.id)

    return step


def refused(machine: Machine) -> Step:
    """The store will not complete an upload that is open."""
    wrong = InvalidRequest("the checksum is wrong", status=400, code="BadDigest")
    then = job("1.csv", "2.csv").commit
    return on_a_store_that(machine, "complete_upload *2.csv", wrong, then)


def unfinished(machine: Machine) -> Step:
    """The store stops to answer after the decision."""
    then = job("1.csv", "2.csv").commit
    return on_a_store_that(machine, "complete_upload *2.csv", SILENT, then)


def outstanding(machine: Machine) -> Step:
    """What the job replaces may not be deleted."""
    machine.s3.put_object("t/old.csv", b"old")
    then = job("1.csv", mode="replace").commit
    return on_a_store_that(machine, "delete_one *old.csv", DENIED, then)


def many_outstanding(machine: Machine) -> Step:
    """More of what the job replaces may not be deleted than a line names."""
    for key in MANY:
        machine.s3.put_object(key, b"old")
    then = job("new", mode="replace").commit
    return on_a_store_that(machine, "delete_one *.csv", DENIED, then)


def half_undone(machine: Machine) -> Step:
    """A job that is being undone is not undone yet."""
    decided = machine.job("committing")
    then = lambda: mc.abort(DEST, decided.id, revert=True)  # noqa: E731
    return on_a_store_that(machine, "delete_one *1.csv", DENIED, then)


def nobodys_set(machine: Machine) -> Step:
    """A pendingset says nowhere whose it is."""
    begun = job("1.csv")
    machine.s3.put_object(f"t/__magic_job-{begun.id}/job-{begun.id}/00/x.pendingset", b"{}")
    return begun.commit


def record_gone(machine: Machine) -> Step:
    """Nobody can tell what became of the job."""
    gone = mc.Job.from_dict(mc.start(DEST).to_dict() | {"state": "absent"})
    machine.s3.delete_object(record_of(gone))
    return lambda: gone.task("1")


def young_unreadable(machine: Machine) -> Step:
    """A record that cannot be read tells nothing."""
    running = machine.job("running")
    machine.s3.put_object(record_of(running), b"{")
    return lambda: mc.force_abort(DEST, running.id)


def nothing_to_give_up(machine: Machine) -> Step:
    """A job is given up that has no record, and has left something."""
    running = machine.job("running")
    machine.s3.delete_object(record_of(running))
    return lambda: mc.force_abort(DEST, running.id)


def hadoops(machine: Machine) -> HadoopJob:
    """A job whose JVM is dead."""
    return leave_job(machine.s3, "3.5.0")


def not_adopted(end: Callable[..., object], machine: Machine) -> Step:
    """It needs somebody's word first."""
    return partial(end, DEST, hadoops(machine).id)


def adopted_twice(machine: Machine) -> Step:
    """It needs no adoption."""
    hadoops(machine)
    mc.adopt(DEST, "hadoops", dead_after=0)
    return lambda: mc.adopt(DEST, "hadoops", dead_after=0)


def adoption_unclear(machine: Machine) -> Step:
    """The record's creation gets no clear answer."""
    hadoops(machine)
    machine.later(YOUNG)
    then = lambda: mc.adopt(DEST, "hadoops")  # noqa: E731
    return on_a_store_that(machine, "put *hadoops/_job.json", SILENT, then)


def half_published(machine: Machine) -> Step:
    """Its JVM made a file visible before it died."""
    complete(machine.s3, hadoops(machine), 1)
    mc.adopt(DEST, "hadoops", dead_after=0)
    return lambda: mc.abort(DEST, "hadoops")


def damaged(machine: Machine) -> Step:
    """A set of an adopted job cannot be read."""
    machine.s3.put_object(hadoops(machine).sets[0], b"{}")
    mc.adopt(DEST, "hadoops", dead_after=0)
    return mc.attach(DEST, "hadoops").commit


def litter(machine: Machine) -> Step:
    """What looks like a Hadoop job is what one of ours left."""
    uuid = "0" * 32
    machine.s3.put_object(f"t/__magic_job-{uuid}/x", metadata={JOB_METADATA: uuid})
    machine.later(2 * YOUNG)
    return lambda: mc.adopt(DEST, uuid)


def unreadable_rival(machine: Machine) -> Step:
    """A job that would replace data meets another one whose record is cut short."""
    machine.s3.put_object(record_of(mc.start(DEST)), b"{}")
    machine.later(2 * YOUNG)
    return lambda: mc.start(DEST, mode="overwrite")


HADOOPS = ("t/part-00000.txt", "t/part-00001.txt", "t/sub/part-00000-b.txt")

SITUATIONS = {
    "young": Situation(lambda m: partial(mc.recover, DEST, m.job("running").id), (NONE,)),
    "rival": Situation(rival, (NONE,)),
    "lost": Situation(lost, (shows("t/1.csv"), NONE)),
    "many lost": Situation(many_lost, (NONE, NONE)),
    "refused": Situation(refused, (shows(*BOTH), shows(*BOTH), NONE)),
    "refused for good": Situation(refused, (as_before, shows("t/1.csv"), NONE), stays_broken=True),
    "unfinished": Situation(unfinished, (shows(*BOTH), NONE)),
    "unfinished for good": Situation(unfinished, (as_before, NONE), stays_broken=True),
    "outstanding": Situation(outstanding, (shows("t/1.csv"), shows("t/1.csv"))),
    "outstanding for good": Situation(
        outstanding, (as_before, shows("t/1.csv", "t/old.csv")), stays_broken=True
    ),
    "many outstanding": Situation(many_outstanding, (shows("t/new"), shows("t/new"))),
    "abort of a decided job": Situation(
        lambda m: partial(mc.abort, DEST, m.job("committing").id), (shows(*BOTH), NONE)
    ),
    "half undone": Situation(half_undone, (NONE, unchanged)),
    "unclear": Situation(
        lambda m: on_a_store_that(m, "put *_job.json", SILENT, job("1.csv").commit), (unchanged,)
    ),
    "no task": Situation(lambda _: mc.start(DEST).commit, (NONE, NONE)),
    "no result": Situation(
        lambda _: partial(mc.start(DEST, accept="results").commit, []), (NONE, NONE)
    ),
    "a task is missing": Situation(lambda _: partial(job("1.csv").commit, expect=2), (NONE,)),
    "nobody's set": Situation(nobodys_set, (unchanged, NONE)),
    "magic path": Situation(lambda _: partial(mc.open_magic, MAGIC), (running,)),
    "record gone": Situation(record_gone, (unchanged,)),
    "unreadable rival": Situation(unreadable_rival, (unchanged,)),
    "young and unreadable": Situation(young_unreadable, (tidy,)),
    "nothing to give up": Situation(nothing_to_give_up, (tidy,), later=2 * YOUNG),
    "young Hadoop job": Situation(
        lambda m: partial(mc.adopt, DEST, hadoops(m).id), (running,), as_commands=(shows(*HADOOPS),)
    ),
    **{
        f"{end.__name__} of a Hadoop job": Situation(
            partial(not_adopted, end), (NONE,), later=YOUNG
        )
        for end in (mc.abort, mc.recover, mc.force_abort)
    },
    "adopted twice": Situation(adopted_twice, (shows(*HADOOPS), NONE)),
    "adoption unclear": Situation(adoption_unclear, (running,), as_commands=(shows(*HADOOPS),)),
    "half published": Situation(half_published, (shows(*HADOOPS), shows(HADOOPS[0]))),
    "damaged": Situation(damaged, (aborted,)),
    "litter": Situation(litter, (tidy,)),
}
