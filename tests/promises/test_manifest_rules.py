"""Rules of jobs of renames, one by one: what each keeps from happening."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import orjson
import pytest

import magic_committer as mc
from magic_committer.commit.outcome import UNREAD_AGAIN
from magic_committer.committers.manifest import ManifestCommitter, records
from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.committers.manifest.plan import PlannedFile, load_plan
from magic_committer.errors import (
    AbortIncomplete,
    CommitIncomplete,
    CommitRefused,
    ConflictingJob,
    DestinationExists,
    FileStillOpen,
    FormatError,
    JobNotRunning,
    MagicError,
    OutcomeUnknown,
    StoreError,
    TaskFailed,
)
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.trees import (
    TreeCleaning,
    abort_tree,
    inspect_tree,
    recover_tree,
)
from magic_committer.protocol.record import ObjectRef, State, TaskCommit
from tests.tree_jobs import Killed, Watched, World, die, lose_the_answer, write


def is_publishing(verb: str, path: str) -> bool:
    """Whether a call of the tree is the rename of a task's file."""
    return verb == "rename" and "/00/tasks/" in path


def taking_away(name: str) -> Callable[[str, str], bool]:
    """Whether a call of the tree takes a file away that is replaced. The first rename of a trash
    finds no directory."""
    renames = iter(range(1, 9))
    return lambda verb, path: (verb, path) == ("rename", name) and next(renames) == 2


def refuse() -> NoReturn:
    """The file system fails."""
    raise StoreError("the disk is broken", operation="test")


def half_published(world: World, mode: str = "append") -> ManifestCommitter:
    """A job of two files that is decided, of which one is published, and whose driver is dead."""
    job = world.start(mode=mode)
    result = write(job, "1", {"a": b"1", "b": b"2"})
    with pytest.raises(Killed):
        world.again(job, Watched(world.tree, after=die, on=is_publishing)).commit_job([result])
    return job


def the_source(world: World) -> str:
    """Where the file waits that is not published."""
    return next(path for path in world.control() if "/00/tasks/" in path)


def states(world: World) -> list[str]:
    """The states of all jobs."""
    return [one.state for one in inspect_tree(world.parts(), 0.0)]


# The record ---------------------------------------------------------------------------------------


def test_a_record_speaks_of_its_own_directory_only() -> None:
    """Another job's record, and a plan that lies elsewhere, are no record."""
    world = World()
    first, second = world.start(), world.start()
    paths = TreeJobPaths(second.job.uuid)
    seen = records.read(world.parts(), TreeJobPaths(first.job.uuid))
    assert seen is not None
    world.put(paths.record(2), seen.record.encode())
    with pytest.raises(FormatError, match="another job"):
        records.read(world.parts(), paths)
    world.tree.remove(paths.record(2))
    own = records.read(world.parts(), paths)
    assert own is not None
    forged = own.record.step(
        State.COMMITTING, world.draw(), plan=ObjectRef("dt=1/plan-x.jsonl", "0")
    )
    world.put(paths.record(2), forged.encode())
    with pytest.raises(FormatError, match="no plan of the job"):
        records.read(world.parts(), paths)


def test_a_driver_that_wakes_after_its_job_was_forgotten_decides_nothing() -> None:
    """Also where directories are not real, and its late create finds nothing in its way."""
    for directories in (True, False):
        world = World(directories=directories)
        job = world.start()
        result = write(job, "1", {"a": b"1"})

        def ends(
            world: World = world, job: ManifestCommitter = job, result: TaskCommit = result
        ) -> None:
            world.again(job).commit_job([result])
            TreeCleaning(
                world.parts(), Limits(0.0, 0.0, 0.0, forget_given_after=0.0), dry_run=False
            ).run()
            world.tree.remove("_SUCCESS")

        late = Watched(world.tree, before=ends, on=lambda verb, path: path.endswith("/_job-2.json")
                       and verb == "create")  # fmt: skip
        with pytest.raises(OutcomeUnknown):
            world.again(job, late).abort_job()
        assert world.data() == {"a": b"1"}


def test_a_start_whose_claim_lost_its_answer_has_the_id() -> None:
    """It knows its own claim."""
    world = World()
    watched = Watched(
        world.tree,
        after=lose_the_answer,
        on=lambda verb, path: verb == "create" and "/_id_" in path,
    )
    assert world.start(watched, "nightly").job.id == "nightly"


def test_a_given_id_stays_when_cleanup_is_not_told_to_free_it() -> None:
    """Its closed record tells what became of the job."""
    world = World()
    world.start(job_id="nightly").abort_job()
    TreeCleaning(world.parts(), Limits(0.0, 0.0, 0.0, forget_given_after=1e9), dry_run=False).run()
    assert states(world) == ["closed"]


# Before the decision ------------------------------------------------------------------------------


def test_a_committed_attempt_is_not_undone() -> None:
    """The job may have accepted it."""
    world = World()
    job = world.start()
    attempt = job.attempt("1")
    with attempt.open("a", unique=False, attributes=mc.Attributes()) as file:
        file.write(b"1")
    result = attempt.commit()
    with pytest.raises(TaskFailed):
        attempt.abort()
    job.commit_job([result])
    assert world.data() == {"a": b"1"}


def test_an_attempt_with_an_open_file_does_not_commit() -> None:
    """Nor one with a file that failed."""
    world = World()
    job = world.start()
    attempt = job.attempt("1")
    file = attempt.open("a", unique=False, attributes=mc.Attributes())
    with pytest.raises(FileStillOpen):
        attempt.commit()
    assert file.closed
    attempt = job.attempt("1")
    file = attempt.open("b", unique=False, attributes=mc.Attributes())
    file._fail(StoreError("the disk is broken", operation="test"))
    with pytest.raises(TaskFailed):
        attempt.commit()


@pytest.mark.parametrize("what", ["the file goes", "the manifest is another"])
def test_what_a_task_has_left_must_be_there_and_the_same(what: str) -> None:
    """Else the job is refused, and nothing of it is visible."""
    world = World()
    job = world.start()
    result = write(job, "1", {"a": b"1"})
    if what == "the file goes":
        world.tree.remove(the_source(world))
    else:
        world.put(result.key, world.tree.read(result.key, 2**20) + b" ")
    with pytest.raises(CommitRefused):
        job.commit_job([result])
    assert world.data() == {}


def test_mode_fail_refuses_data_that_came_after_its_start() -> None:
    """It is looked for again before the decision; the job is aborted."""
    world = World()
    job = world.start(mode="fail")
    result = write(job, "1", {"a": b"1"})
    world.put("x", b"others")
    with pytest.raises(DestinationExists):
        job.commit_job([result])
    assert world.data() == {"x": b"others"}


def test_a_replace_waits_for_a_job_that_publishes() -> None:
    """What is half there is not replaced."""
    world = World()
    half_published(world)
    job = world.start(mode="replace")
    result = write(job, "1", {"c": b"3"})
    with pytest.raises(ConflictingJob):
        job.commit_job([result])
    assert sorted(states(world)) == ["committing", "running"]


def test_a_replace_leaves_what_readers_skip() -> None:
    """Files and directories whose name begins with _ or ."""
    world = World()
    for name in ("_meta/x", ".hidden", "d/.part", "old"):
        world.put(name, b"old")
    job = world.start(mode="replace")
    job.commit_job([write(job, "1", {"a": b"1"})])
    assert world.data().keys() == {"a", ".hidden", "d/.part"}
    assert world.tree.read("_meta/x", 10) == b"old"


# After it -----------------------------------------------------------------------------------------


def test_a_plan_that_was_written_over_is_not_obeyed() -> None:
    """Its hash is not the decided one: a file that it was made to delete stays."""
    world = World()
    job = half_published(world, "replace")
    world.put("later", b"others")
    later = world.tree.stat("later")
    assert later is not None
    (plan,) = (path for path in world.control() if "/_plan-" in path)
    row = orjson.dumps(["d", "later", later.size, later.etag]) + b"\n"
    world.put(plan, world.tree.read(plan, 2**20).replace(b'["end"', row + b'["end"'))
    with pytest.raises(CommitIncomplete):
        recover_tree(world.parts(), job.job.id, dead_after=0.0)
    assert world.data()["later"] == b"others"


def test_the_loser_of_two_drivers_goes_by_the_decided_plan() -> None:
    """Each has results of its own; what was decided is published, and both say so."""
    world = World()
    job = world.start()
    mine, others = write(job, "1", {"a": b"mine"}), write(job, "1", {"a": b"others"})

    def decide() -> None:
        dying = Watched(world.tree, before=die, on=is_publishing)
        with suppress(Killed):
            world.again(job, dying).commit_job([others])

    late = Watched(
        world.tree,
        before=decide,
        on=lambda verb, path: path.endswith("/_job-2.json") and verb == "create",
    )
    assert world.again(job, late).commit_job([mine]).outcome == "committed"
    assert world.data() == {"a": b"others"}


def second_driver_at(number: int, world: World) -> tuple[Watched, ManifestCommitter, TaskCommit]:
    """A driver during whose verb another one commits the whole job."""
    job = world.start()
    result = write(job, "1", {"a": b"1", "d/b": b"2"})

    def commits() -> None:
        world.again(job).commit_job([result])

    watched = Watched(world.tree, number, before=commits)
    return watched, world.again(job, watched), result


def test_a_second_driver_at_any_moment_agrees() -> None:
    """Another driver commits the job at each verb of the first: both say committed. A check that
    failed because of the other one's work is not believed."""
    for number in range(1, 200):
        world = World()
        watched, job, result = second_driver_at(number, world)
        assert job.commit_job([result]).outcome == "committed", number
        assert world.data() == {"a": b"1", "d/b": b"2"}
        if watched.count < number:
            break
    assert number > 20


def test_a_second_driver_at_any_moment_agrees_by_listing() -> None:
    """The same where a commit takes what the tasks have left: a driver that finds nothing, because
    the other one has swept it, is told that the job is committed."""
    for number in range(1, 200):
        world = World()
        job = world.start(accept="listing")
        write(job, "1", {"a": b"1", "d/b": b"2"})

        def commit_too(world: World = world, job: ManifestCommitter = job) -> None:
            world.again(job).commit_job()

        watched = Watched(world.tree, number, before=commit_too)
        assert world.again(job, watched).commit_job().outcome == "committed", number
        assert world.data() == {"a": b"1", "d/b": b"2"}
        if watched.count < number:
            break
    assert number > 20


def test_an_abort_leaves_a_decided_job() -> None:
    """Only ``revert`` undoes it."""
    world = World()
    job = half_published(world)
    with pytest.raises(JobNotRunning):
        abort_tree(world.parts(), job.job.id, revert=False)
    assert states(world) == ["committing"]


def test_a_job_is_completed_when_all_its_files_are_visible() -> None:
    """A rename that failed leaves it committing, to be called again."""
    world = World()
    job = world.start()
    result = write(job, "1", {"a": b"1", "b": b"2"})
    with pytest.raises(CommitIncomplete):
        world.again(job, Watched(world.tree, before=refuse, on=is_publishing)).commit_job([result])
    assert states(world) == ["committing"]
    assert job.commit_job([result]).outcome == "committed"
    assert world.data() == {"a": b"1", "b": b"2"}


def test_a_failure_says_if_the_record_could_not_be_read_again() -> None:
    """Another process undoes the job while this one renames its files, and then the disk answers
    no more: this one says that the job was committed when it last knew."""
    world = World()
    job = half_published(world)
    undone: list[str] = []

    def undo_it() -> None:
        undone.append(abort_tree(world.parts(), job.job.id, revert=True).outcome)

    renaming = Watched(world.tree, before=undo_it, on=is_publishing)

    def read(path: str, bytes_max: int) -> bytes:
        return refuse() if undone and "/_job-" in path else world.tree.read(path, bytes_max)

    renaming.__dict__["read"] = read
    with pytest.raises(CommitIncomplete, match=UNREAD_AGAIN) as told:
        world.again(job, renaming).commit_job()
    assert undone == ["reverted"]
    assert "the disk is broken" in str(told.value)
    with pytest.raises(JobNotRunning) as after:
        job.commit_job()
    assert after.value.outcome == "reverted"
    assert world.data() == {}


def test_a_source_that_somebody_deleted_is_unresolved() -> None:
    """Nobody can tell whether it was published; an operator may accept that."""
    world = World()
    job = half_published(world)
    source = the_source(world)
    world.tree.remove(source)
    with pytest.raises(CommitIncomplete) as told:
        recover_tree(world.parts(), job.job.id, dead_after=0.0)
    assert list(told.value.unresolved) == [source[-1]]
    accepted = recover_tree(world.parts(), job.job.id, dead_after=0.0, accept=[source[-1]])
    assert accepted.outcome == "committed"


def test_a_file_goes_back_only_where_nothing_newer_is() -> None:
    """Written between the look and the rename, and again before the look at what was taken."""
    world = World()
    world.put("old", b"old")
    job = world.start(mode="replace")
    result = write(job, "1", {"a": b"1"})
    watched = Watched(
        world.tree,
        before=lambda: world.put("old", b"new"),
        after=lambda: world.put("old", b"newest"),
        on=taking_away("old"),
    )
    assert world.again(job, watched).commit_job([result]).outcome == "committed"
    assert world.data() == {"a": b"1", "old": b"newest"}


def test_an_undo_that_failed_is_not_told_as_done() -> None:
    """The job is undone by the next call."""
    world = World()
    job = half_published(world)
    (visible,) = world.data()

    def takes(verb: str, path: str) -> bool:
        return (verb, path) == ("rename", visible)

    failing = world.parts(Watched(world.tree, before=refuse, on=takes))
    with pytest.raises(AbortIncomplete):
        abort_tree(failing, job.job.id, revert=True)
    assert states(world) == ["reverting"]
    assert abort_tree(world.parts(), job.job.id, revert=True).outcome == "reverted"
    assert world.data() == {}


def test_a_paused_driver_that_publishes_at_any_moment_of_an_undo_is_undone_too() -> None:
    """It goes on by its plan at each verb of the revert: nothing of the job is visible after it."""
    for number in range(1, 200):
        world = World()
        job = half_published(world)
        paths = TreeJobPaths(job.job.uuid)
        seen = records.read(world.parts(), paths)
        assert seen is not None
        assert seen.record.plan is not None
        files = list(load_plan(world.tree, seen.record.plan).files())

        def goes_on(
            world: World = world, paths: TreeJobPaths = paths, files: list[PlannedFile] = files
        ) -> None:
            for file in files:
                with suppress(MagicError):
                    world.tree.rename(file.source(paths), file.name)

        watched = Watched(world.tree, number, before=goes_on)
        told = abort_tree(world.parts(watched), job.job.id, revert=True)
        assert told.outcome == "reverted"
        assert world.data() == {}, number
        if watched.count < number:
            break
    assert number > 20
