"""What the checkers and the faults rest on, one by one: a checker that errs would judge wrongly in
every schedule."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from msgspec import structs

from magic_committer import api
from magic_committer.committers.magic import MagicCommitter
from magic_committer.errors import MagicError, PermissionDenied
from magic_committer.hadoop.paths import JobPaths
from magic_committer.options import Mode
from magic_committer.protocol.record import JOB_METADATA, USUAL_TERMS, State
from magic_committer.stores.base import Attributes
from magic_committer.stores.memory import Request
from tests.concrete import upload_of
from tests.simulation import actors
from tests.simulation.faults import Fault
from tests.simulation.judge import Violation
from tests.simulation.scheduler import Actor, Signal
from tests.simulation.tally import quiet
from tests.simulation.truth import JobTruth
from tests.simulation.world import DEST, OPTIONS, JobRun, World

OLD = f"{DEST.prefix}old.csv"


@pytest.fixture
def world() -> Iterator[World]:
    """A world in which nobody acts yet, on a store whose conditions are known."""
    made = World(random.Random(0))
    with quiet():
        try:
            yield made
        finally:
            made.close()


def act(world: World, program: Callable[[Actor], object], *faults: Fault) -> Actor:
    """Run one process to its end, struck by faults."""
    world.injector.faults = list(faults)
    actor = world.start(f"process {len(world.actors)}", "driver", program)
    world.scheduler.run()
    assert not world.scheduler.crashes
    world.injector.calm()
    return actor


def job(world: World, actor: Actor, mode: Mode = "append") -> MagicCommitter:
    """A job that is set up."""
    terms = structs.replace(
        USUAL_TERMS, mode=mode, accept="results", track="memory", checksum="off"
    )
    return MagicCommitter.setup(world.runtime(actor), DEST, terms, OPTIONS, world.blocks)


def written(world: World, committer: MagicCommitter) -> list[object]:
    """The result of a task with one file."""
    run = JobRun("main", committer.job.terms, None, ("0",), unique=True)
    attempt = committer.attempt("0")
    known = actors.known_attempt(world, attempt)
    actors.write_file(world, run, attempt, known, 0)
    known.told = True
    return [attempt.commit()]


def broken(world: World) -> list[str]:
    return [violation.promise for violation in world.watch.violations]


def planned(world: World, key: str) -> JobTruth:
    """A job whose plan deletes what is at a key now, and tells its ETag and Last-Modified."""
    there = world.watch.truth.objects[key]
    found = JobTruth("u", "u", f"{DEST.prefix}__magic_job-u/", {"mode": "replace"}, given=False)
    found.deletes, found.deletes_modified = {key: there.etag}, {key: there.modified}
    found.plan_step, found.decision = world.scheduler.steps, "committed"
    return found


def test_a_claim_is_judged_at_the_end(world: World) -> None:
    """I10: "this call decided nothing" is broken by a request of that call that lands later, and
    by no request of another one."""
    uuids: list[str] = []

    def driver(actor: Actor) -> None:
        committer = job(world, actor)
        uuid = committer.job.uuid
        uuids.append(uuid)
        since = world.watch.calls(actor)
        error = PermissionDenied("refused")
        world.watch.told(uuid, f"{actor}: commit", "", error, since)
        world.scheduler.turn()
        committer.commit_job(written(world, committer), 1)  # type: ignore[arg-type]

    act(world, driver)
    world.watch.judge_claims()
    assert broken(world) == []
    truth = world.watch.truth.jobs[uuids[0]]
    truth.decided_sent = world.watch.claims[0].since
    world.watch.judge_claims()
    assert broken(world) == ["I10"]


@pytest.mark.parametrize(
    ("operator", "given_up", "expected"),
    [(True, True, []), (True, False, ["I6"]), (False, True, ["I6"])],
)
def test_an_operator_aborts_what_he_gave_up_and_nothing_else(
    world: World, operator: bool, given_up: bool, expected: list[str]
) -> None:
    """I6: the open upload of a decided job is aborted by the operator who accepted its key as it
    is; by nobody else, and no other one (seed 622548)."""

    def driver(actor: Actor) -> None:
        committer = job(world, actor)
        written(world, committer)
        (upload_id,) = world.watch.truth.open
        key = world.watch.truth.uploads[upload_id].key
        truth = world.watch.truth.jobs[committer.job.uuid]
        truth.state = "committing"
        truth.taken_as_is |= {key} if given_up else {f"{key}.other"}
        other = Actor("other", "x")
        other.serves_all = operator
        world.watch.effect(Request("abort_upload", key, upload_id), None, other, 0)

    act(world, driver)
    assert broken(world) == expected


def test_the_same_bytes_a_while_later_are_another_object(world: World) -> None:
    """I6: what a plan deletes is the object that was there, not one of the same bytes that came a
    second later; one that came in the same second nobody can tell from it."""
    truth = world.watch.truth
    world.foreign_put(OLD, b"old")
    first = truth.objects[OLD]
    replacing = planned(world, OLD)
    world.scheduler.steps += 1
    world.foreign_put(OLD, b"old")
    assert truth.as_planned(replacing, OLD, truth.objects[OLD])
    assert truth.must_go(replacing, OLD, truth.objects[OLD])
    replacing.deleted[OLD] = truth.objects[OLD].step
    world.scheduler.steps += 1
    world.foreign_put(OLD, b"old")
    assert not truth.must_go(replacing, OLD, truth.objects[OLD])
    replacing.deleted.clear()
    world.scheduler.now += 2.0
    world.foreign_put(OLD, b"old")
    assert truth.objects[OLD].etag == first.etag
    assert not truth.as_planned(replacing, OLD, truth.objects[OLD])
    assert not truth.must_go(replacing, OLD, truth.objects[OLD])


@pytest.mark.parametrize("came_later", [False, True])
def test_a_marker_of_the_same_bytes_that_came_after_the_look_need_not_come_back(
    world: World, came_later: bool
) -> None:
    """I8: a job that has deleted the old marker brings one back; but for one that another program
    wrote between its look and a late copy of its DELETE (seed 4, deeds "mark alike")."""
    truth, mark = world.watch.truth, f"{DEST.prefix}_SUCCESS"
    world.foreign_put(mark, b"")
    truth.jobs["u"] = planned(world, mark)
    actor = Actor("driver", "x")
    actor.job = "u"
    world.scheduler.steps += 1
    sent = world.scheduler.steps
    truth.note_head(mark, actor)
    world.scheduler.steps += 1
    if came_later:
        world.foreign_put(mark, b"")
    world.watch.effect(Request("delete_one", mark), None, actor, sent)
    assert truth.unmarked_by == ("" if came_later else "u")
    assert broken(world) == []


@pytest.mark.parametrize(
    ("mode", "key", "covered"),
    [
        ("replace", "old.csv", True), ("replace", "p=1/q=2/old.csv", True),
        ("replace", "_old/x.csv", False), ("replace", "p=1/.x.csv", False),
        ("replace_partitions", "p=1/old.csv", True), ("replace_partitions", "p=2/old.csv", False),
        ("replace_partitions", "p=1/q=2/old.csv", False), ("replace_partitions", "old.csv", False),
    ],
)  # fmt: skip
def test_what_a_job_covers(world: World, mode: str, key: str, covered: bool) -> None:
    """A job covers all data below its destination; by partition what lies directly in those that
    it writes; nothing hidden, and nothing elsewhere."""
    directory = f"{DEST.prefix}__magic_job-u/"
    found = JobTruth("u", "u", directory, {"mode": mode}, given=False, plan_key="p")
    found.partitions = ("p=1/",)
    assert world.watch.truth.covers(found, f"{DEST.prefix}{key}") is covered
    assert not world.watch.truth.covers(found, f"elsewhere/{key}")


def test_an_abort_may_cost_the_object(world: World) -> None:
    """I2: where an abort of a completed upload takes the object with it, the world does so, and
    the one who sent it is told of."""
    world.injector.abort_costs = True

    def driver(actor: Actor) -> None:
        committer = job(world, actor)
        committer.commit_job(written(world, committer), 1)  # type: ignore[arg-type]
        uuid = committer.job.uuid
        (upload_id,) = world.watch.truth.jobs[uuid].completed
        key = world.watch.truth.uploads[upload_id].key
        assert key in world.store.keys()
        world.runtime(actor).store.abort_upload(key, upload_id)
        assert key not in world.store.keys()

    act(world, driver)
    assert broken(world) == ["I2"]


def test_a_refused_retry_may_land_later(world: World) -> None:
    """A request whose first try was not answered and whose second one was refused takes effect
    once: at once, later, or never."""
    seen: set[object] = set()
    for number in range(40):
        key = f"{DEST.prefix}__magic_job-u/{number}"

        def program(actor: Actor, key: str = key) -> None:
            with pytest.raises(PermissionDenied) as raised:
                world.runtime(actor).store.put(key, b"x")
            assert raised.value.attempts == 2
            seen.add(key in world.store.keys())

        act(world, program, Fault("refused again", "", world.injector.requests + 1))
        seen.add("never" if key not in world.store.keys() else "landed")
    assert seen == {True, False, "never", "landed"}


def test_some_keys_of_a_batch_fail(world: World) -> None:
    """A batch delete that fails for some keys deletes the others, and says which."""
    keys = [f"{DEST.prefix}__magic_job-u/{number}" for number in range(20)]
    for key in keys:
        world.foreign_put(key, b"x")

    def program(actor: Actor) -> None:
        failed = world.runtime(actor).store.delete(keys)
        assert 0 < len(failed) < len(keys)
        assert set(world.store.keys()) == set(failed)

    actor = act(world, program, Fault("some keys fail", "delete", 1))
    assert actor.hurt


def test_a_listing_of_uploads_may_lie_both_ways(world: World) -> None:
    """A stale listing leaves out uploads that are open, or shows one that has ended."""
    store, shown = world.store, set()
    ended = store.start_upload(OLD)
    world.watch.foreign_upload(ended, OLD)
    store.drop_upload(ended)
    world.watch.truth.open.discard(ended)
    still = store.start_upload(OLD)
    world.watch.foreign_upload(still, OLD)

    def program(actor: Actor) -> None:
        pages = world.runtime(actor).store.list_uploads(DEST.prefix)
        shown.add(frozenset(upload.upload_id for page in pages for upload in page.uploads))

    for number in range(1, 31):
        act(world, program, Fault("stale listing", "list_uploads", number))
    assert shown >= {frozenset(), frozenset({still, ended})}


def test_a_slow_process_is_overtaken(world: World) -> None:
    """A process whose requests take long does one while another does many."""
    order: list[str] = []

    def ten(name: str, latency: float) -> Callable[[Actor], None]:
        def program(actor: Actor) -> None:
            actor.latency = latency
            for _ in range(10):
                list(world.runtime(actor).store.list(DEST.prefix))
                order.append(name)

        return program

    world.start("slow", "driver", ten("slow", 60.0))
    world.start("fast", "driver", ten("fast", 0.0))
    world.scheduler.run()
    assert order.index("slow") >= 5
    assert order[-1] == "slow"


def test_who_waits_for_what_never_comes_goes_on(world: World) -> None:
    """A process that waits for another's request goes on when nobody is left who could send it."""
    went_on: list[float] = []

    def program(actor: Actor) -> None:
        world.scheduler.await_if_possible(Signal())
        went_on.append(world.scheduler.now)

    act(world, program)
    assert len(went_on) == 1


def test_public_calls_run_in_whoever_acts(world: World) -> None:
    """`write` and its handles use the store, the clock and the strands of the acting process."""

    def program(actor: Actor) -> None:
        with api.write(DEST.url, options=OPTIONS) as writer:
            known = actors.known_attempt(world, writer._own())  # type: ignore[arg-type]
            stream = writer.open("a.csv", attributes=Attributes())
            known.files[upload_of(stream).key], known.told = b"1", True
            stream.write(b"1")
            stream.close()
        assert writer.report.state == State.ABSENT

    act(world, program)
    world.watch.end()
    assert world.watch.violations == []
    assert world.store.body(f"{DEST.prefix}a.csv") == b"1"


def test_what_nobody_asked_for_is_no_undoing(world: World) -> None:
    """I2: a decided job that is undone by its own driver, with nothing in its way, is told of; one
    that an operator undoes is not."""
    for asked in (True, False):

        def program(actor: Actor, asked: bool = asked) -> None:
            actor.reverts = asked
            committer = job(world, actor)
            results = written(world, committer)
            with pytest.raises(MagicError):
                committer.commit_job(results, 1)  # type: ignore[arg-type]
            committer.abort_job(revert=True)

        act(world, program, Fault("error before", "complete_upload", 1 if asked else 2))
    found = [v for v in world.watch.violations if isinstance(v, Violation)]
    assert [violation.promise for violation in found] == ["I2"]


def test_control_objects_are_who_has_started_the_job(world: World) -> None:
    """I6: a process may delete those of a job that it started before the one it works for now;
    nobody else may."""
    paths: list[JobPaths] = []

    def note(committer: MagicCommitter, actor: Actor) -> None:
        started = committer.job
        paths.append(started.paths)
        store = world.runtime(actor).store
        store.put(started.paths.alive, b"", metadata={JOB_METADATA: started.uuid})

    def starts_two(actor: Actor) -> None:
        note(job(world, actor), actor)
        actor.job = job(world, actor).job.uuid
        world.runtime(actor).store.delete_one(paths[0].alive)
        note(job(world, actor), actor)

    def another(actor: Actor) -> None:
        job(world, actor)
        world.runtime(actor).store.delete_one(paths[1].alive)

    act(world, starts_two)
    assert broken(world) == []
    act(world, another)
    assert broken(world) == ["I6"]
