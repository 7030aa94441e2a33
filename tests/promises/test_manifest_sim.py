"""What callers of jobs of renames are told when something fails, interrupts, or comes between: each
test is a schedule that the simulation (tests/tree_simulation) has found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from magic_committer.committers.classic import V1Committer, V2Committer
from magic_committer.committers.classic.attempt import V2Attempt
from magic_committer.committers.classic.job_commit import ClassicJobCommit
from magic_committer.committers.manifest import ManifestCommitter, records
from magic_committer.committers.manifest.attempt import TreeAttempt
from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.committers.manifest.publish import read_marker
from magic_committer.committers.manifest.setup import attached
from magic_committer.errors import (
    AbortIncomplete,
    CommitIncomplete,
    CommitRefused,
    JobNotRunning,
    MagicError,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    StoreError,
)
from magic_committer.file_trees.base import make_directories
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.trees import TreeCleaning, abort_tree, recover_tree
from magic_committer.options import Options
from magic_committer.protocol.record import JobRecord, State, Terms
from magic_committer.stores.base import Attributes
from tests.tree_jobs import URL, Killed, Watched, World, die, write

FILES = {"dt=1/a": b"1", "b": b"2"}


def deny() -> None:
    """The right is missing, this time."""
    raise PermissionDenied("no", operation="test")


def press() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def at_path(verb: str, path: str, nth: int = 1) -> Callable[[str, str], bool]:
    """The nth call of a verb on paths that end so."""
    left = nth

    def on(asked: str, where: str) -> bool:
        nonlocal left
        left -= asked == verb and where.endswith(path)
        return not left

    return on


def state_of(world: World, job: ManifestCommitter) -> str:
    """What the record says now."""
    return str(type(job).attach(world.process(), URL, job.job.id).state)


def again(world: World, job: ManifestCommitter, tree: object | None = None) -> ManifestCommitter:
    """The same job in another process."""
    return type(job).of(world.process(tree), job.job, Options())


def classic(world: World, kind: type[V1Committer], job_id: str | None = None) -> V1Committer:
    """A job of v1 or v2."""
    terms = Terms(track="memory", accept="listing", committer=kind.name)
    return kind.start(world.process(), URL, terms, Options(), job_id)


def half_committed(world: World) -> ManifestCommitter:
    """A job that is decided, with one file visible, whose driver died."""
    job = world.start()
    result = write(job, "1", FILES)
    seen = Watched(world.tree, on=at_path("rename", "/dt=1/a"), before=die)
    with suppress(Killed):
        again(world, job, seen).commit_job([result])
    assert state_of(world, job) == "committing"
    assert len(world.data()) == 1
    return job


# The decision -------------------------------------------------------------------------------------


def test_a_look_that_fails_after_the_decision_is_no_refusal() -> None:
    """Where directories are not real, the record is looked at after the create that decides. If
    that look fails, the caller is told that nobody can tell, and not that nothing was decided."""
    world = World(directories=False)
    job = world.start()
    result = write(job, "1", FILES)
    decided = Watched(world.tree, on=at_path("create", "_job-2.json"), after=lambda: arm())

    def arm() -> None:
        decided._on, decided._before, decided._after = at_path("stat", "_job-1.json"), deny, None

    with pytest.raises(OutcomeUnknown):
        again(world, job, decided).commit_job([result])
    assert state_of(world, job) == "committing"


def test_a_decision_that_is_not_the_newest_version_is_no_refusal() -> None:
    """A create that took effect was answered "it is there", and another process has moved the
    record on. If the version cannot be read then, the caller is told that nobody can tell."""
    world = World()
    job = world.start()
    result = write(job, "1", FILES)

    def moved_on() -> None:
        recover_tree(world.parts(), job.job.uuid, dead_after=0.0)
        seen._on, seen._before, seen._after = at_path("read", "_job-2.json", 2), deny, None
        world.tree.create(f"_temporary/manifest_{job.job.uuid}/_job-2.json", b"")  # asked again

    seen = Watched(world.tree, on=at_path("create", "_job-2.json"), after=moved_on)
    with pytest.raises(OutcomeUnknown):
        again(world, job, seen).commit_job([result])
    assert world.data() == FILES


@pytest.mark.parametrize("directories", [True, False])
def test_a_cleanup_that_was_paused_takes_no_job_that_was_decided_meanwhile(
    directories: bool,
) -> None:
    """It has found a directory without a record, and is paused at any verb, before it and after it,
    until that job is decided and its driver is dead. The files of the job are published by a
    recovery, not deleted; or its start has failed."""
    started, refused, number = 0, 0, 0
    while number < 60:
        number += 1
        for after in (False, True):
            world, told = World(directories=directories), list[str]()
            uuid = world.draw()
            make_directories(world.tree, TreeJobPaths(uuid).tasks)
            goes_on = partial(_decided_by_one_who_dies, world, uuid, told)
            seen = Watched(
                world.tree, number, None if after else goes_on, goes_on if after else None
            )
            limits = Limits(0.0, 0.0, 0.0, forget_given_after=1e9, finish=False)
            TreeCleaning(world.parts(seen), limits, dry_run=False).run()
            if seen.count < number:
                assert started
                assert refused
                return
            started, refused = started + bool(told), refused + (not told)
            if told:
                found = recover_tree(world.parts(), uuid, dead_after=0.0)
                assert (found.outcome, world.data()) == ("committed", FILES), (number, after)


def _decided_by_one_who_dies(world: World, uuid: str, told: list[str]) -> None:
    """The start of the job of that UUID goes on; it is decided, and its driver dies."""
    terms = Terms(track="memory", accept="results", committer="manifest")
    record = JobRecord(uuid, uuid, State.RUNNING, world.draw(), terms, False, 1.0)
    with suppress(MagicError):
        running = attached(world.parts(), records.create(world.parts(), record))
        told.append(uuid)
        job = ManifestCommitter.of(world.process(), running, Options())
        result = write(job, "1", FILES)
        dies = Watched(world.tree, on=at_path("rename", "/b"), before=die)
        with suppress(Killed):
            again(world, job, dies).commit_job([result])


# After the decision -------------------------------------------------------------------------------


def test_who_meets_a_job_that_is_being_reverted_is_not_told_that_nothing_is_visible() -> None:
    """A revert died half-way: a commit says that the job is being undone, and how to end that; when
    it is undone, that nothing is visible, which is true then."""
    world = World()
    job = half_committed(world)
    dies = Watched(world.tree, on=at_path("create", "_job-3.json"), after=die)
    with suppress(Killed):
        abort_tree(world.parts(dies), job.job.uuid, revert=True)
    assert world.data()
    with pytest.raises(JobNotRunning) as told:
        again(world, job).commit_job([])
    assert (told.value.state, told.value.outcome) == ("reverting", "reverted")
    assert "othing of it is visible" not in str(told.value)
    assert "may be visible" in str(told.value)
    assert [remedy.call for remedy in told.value.remedies] == ["recover"]
    recover_tree(world.parts(), job.job.uuid, dead_after=0.0)
    with pytest.raises(JobNotRunning, match="Nothing of it is visible"):
        again(world, job).commit_job([])
    assert world.data() == {}


def test_a_completed_job_whose_old_data_cannot_go_is_told_as_completed() -> None:
    """`CommitIncomplete.state` says what the record says: who reads "committing" would undo it."""
    world = World()
    world.put("old", b"old")
    job = world.start(mode="replace")
    result = write(job, "1", FILES)

    def completed() -> None:
        seen._on, seen._before, seen._after = at_path("reader", ".jsonl"), deny, None

    seen = Watched(world.tree, on=at_path("create", "_job-3.json"), after=completed)
    with pytest.raises(CommitIncomplete) as told:
        again(world, job, seen).commit_job([result])
    assert told.value.state == state_of(world, job) == "completed"


def test_a_revert_that_cannot_look_again_is_told_as_a_revert() -> None:
    """A file could not be taken back, and then the record could not be read: the call has begun to
    revert the job, and says so."""
    world = World()
    job = half_committed(world)

    def begun() -> None:
        seen._on, seen._after = at_path("rename", "/dt=1/a"), None
        seen._before = blind

    def blind() -> None:
        seen._on, seen._before = at_path("read", "_job-1.json"), deny
        deny()

    seen = Watched(world.tree, on=at_path("create", "_job-3.json"), after=begun)
    with pytest.raises(AbortIncomplete):
        abort_tree(world.parts(seen), job.job.uuid, revert=True)
    assert state_of(world, job) == "reverting"


def test_a_driver_whose_job_is_gone_and_who_cannot_read_the_marker_knows_nothing() -> None:
    """It has decided; a paused moment later its record is gone. That `_SUCCESS` cannot be read is
    no refusal."""
    world = World()
    job = world.start()
    result = write(job, "1", FILES)

    def ended() -> None:
        report = recover_tree(world.parts(), job.job.uuid, dead_after=0.0)
        assert report.outcome == "committed"
        everything = Limits(-1e9, -1e9, -1e9, forget_given_after=-1e9)
        TreeCleaning(world.parts(), everything, dry_run=False).run()
        seen._on, seen._before, seen._after = at_path("stat", "_SUCCESS"), deny, None

    seen = Watched(world.tree, on=at_path("create", "_job-2.json"), after=ended)
    with pytest.raises(OutcomeUnknown):
        again(world, job, seen).commit_job([result])
    assert world.data() == FILES


def test_the_marker_of_a_later_job_goes_back_though_its_rename_was_told_as_failed() -> None:
    """A job takes the old marker away, and hits the one of a job that has completed since; the
    rename took effect, and was answered "not found". The later job's marker is there at the end."""
    world = World()
    world.put("_SUCCESS", b"")
    first, second = world.start(), world.start()
    results = [write(first, "1", {"a": b"1"}), write(second, "1", {"b": b"2"})]

    def later() -> None:
        assert again(world, second).commit_job(results[1:]).outcome == "committed"
        # The directory in the trash is not there: it is made, and the rename is called again.
        seen._on, seen._before, seen._after = at_path("rename", "_SUCCESS"), None, not_found

    def not_found() -> None:
        raise NotFound("asked twice", operation="rename")

    seen = Watched(world.tree, on=at_path("rename", "_SUCCESS"), before=later)
    assert again(world, first, seen).commit_job(results[:1]).outcome == "committed"
    marker = read_marker(world.parts())
    assert marker is not None
    assert marker.uuid == second.job.uuid


# Ctrl-C -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["committing", "completed"])
def test_a_second_commit_that_is_interrupted_calls_no_decided_job_undecided(state: str) -> None:
    """At every verb: "was not decided" is said only of a job that was seen running."""
    number = 0
    while True:
        number += 1
        world = World()
        job = half_committed(world)
        if state == "completed":
            dies = Watched(world.tree, on=at_path("create", "_job-3.json"), after=die)
            with suppress(Killed):
                recover_tree(world.parts(dies), job.job.uuid, dead_after=0.0)
        seen = Watched(world.tree, at=number, before=press)
        try:
            again(world, job, seen).commit_job([])
        except KeyboardInterrupt as error:
            words = " ".join(error.__notes__)
            assert "not decided when" not in words, f"verb {number}"
            assert "othing of it is visible" not in words, f"verb {number}"
            assert "is committed, and" in words or "before it had decided" in words, (
                f"verb {number}"
            )
        else:
            assert number > 10
            return


def test_a_commit_that_is_interrupted_says_what_is_so() -> None:
    """At every verb of a commit, before it and after it: what the notes say of the decision is what
    the record says."""
    said = set()
    for after in (False, True):
        number = 0
        while True:
            number += 1
            world = World()
            job = world.start(mode="replace")
            result = write(job, "1", FILES)
            seen = Watched(
                world.tree, at=number, before=None if after else press,
                after=press if after else None,
            )  # fmt: skip
            try:
                again(world, job, seen).commit_job([result])
                break
            except KeyboardInterrupt as error:
                words = " ".join(error.__notes__)
            decided = bool(world.data()) or _is_decided(world, job)
            if "was not decided" in words or "before it had decided" in words:
                said.add("undecided")
                assert not decided, f"verb {number}: {words}"
            elif "is committed, and" in words:
                said.add("committed")
                assert decided, f"verb {number}: {words}"
            else:
                said.add("cannot be told")
                assert "cannot be told" in words, f"verb {number}: {words}"
    assert said == {"undecided", "committed", "cannot be told"}


def _is_decided(world: World, job: ManifestCommitter) -> bool:
    try:
        return state_of(world, job) != "running"
    except MagicError:
        return True  # it has ended


def test_a_refused_commit_that_is_interrupted_does_not_say_that_it_decided_nothing() -> None:
    """A commit that found a file gone has aborted the job when Ctrl-C comes: the notes tell of the
    abort."""
    world = World()
    job = world.start()
    result = write(job, "1", FILES)
    for name in FILES:
        world.tree.remove(f"_temporary/manifest_{job.job.uuid}/00/tasks/{result.attempt}/{name}")
    seen = Watched(world.tree, on=at_path("create", "_job-2.json"), after=press)
    with pytest.raises(KeyboardInterrupt) as told:
        again(world, job, seen).commit_job([result])
    words = " ".join(told.value.__notes__)
    assert "not decided" not in words
    assert "the abort of job" in words
    assert state_of(world, job) == "aborting"


def test_an_interrupted_revert_of_mode_fail_is_not_told_as_a_commit() -> None:
    """Another program's file is in the way, so the job is reverted; Ctrl-C then: the notes do not
    say "never abort it"."""
    world = World()
    job = world.start(mode="fail")
    result = write(job, "1", FILES)

    def meddle() -> None:
        world.put("b", b"other")
        seen._on, seen._before, seen._after = at_path("create", "_job-3.json"), None, press

    seen = Watched(world.tree, on=at_path("create", "_job-2.json"), after=meddle)
    with pytest.raises(KeyboardInterrupt) as told:
        again(world, job, seen).commit_job([result])
    assert state_of(world, job) == "reverting"
    assert "Never abort it" not in " ".join(told.value.__notes__)


# v1 and v2 ----------------------------------------------------------------------------------------


def test_an_attempt_that_is_too_late_for_v2_is_not_told_that_nothing_is_visible() -> None:
    """Files of an earlier task are visible, and stay: the error says so."""
    world = World()
    job = classic(world, V2Committer, "nightly")  # whose record stays
    write(job, "1", FILES)
    late = job.attempt("2")
    again(world, job).abort_job()
    with pytest.raises(JobNotRunning) as told:
        late.commit()
    assert world.data() == FILES
    assert "othing of it is visible" not in str(told.value)


def test_a_committed_task_of_v1_is_merged_though_another_attempt_was_about_to_replace_it() -> None:
    """At every verb of a second attempt's commit, which never goes on, the job commits: the task's
    files are in it, whole, from the one attempt or the other."""
    number, there = 0, set[bytes]()
    while True:
        number += 1
        world = World()
        job = classic(world, V1Committer)
        write(job, "1", {"a": b"1", "b": b"1"})
        seen = Watched(world.tree, at=number, before=die)
        second = again(world, job, seen).attempt("1")
        with suppress(Killed):
            for name in ("a", "b"):
                with second.open(name, unique=False, attributes=Attributes()) as file:
                    file.write(b"2")
            second.commit()
        report = again(world, job).commit_job(expect=1)
        assert report.outcome == "committed"
        assert world.data() in ({"a": b"1", "b": b"1"}, {"a": b"2", "b": b"2"}), f"verb {number}"
        there.add(world.data()["a"])
        if seen.count < number:
            assert there == {b"1", b"2"}
            return


def test_v1_does_not_commit_without_a_task_that_it_has_listed() -> None:
    """What a task has committed is gone when the merge begins: the job is refused, and says what is
    missing."""
    world = World()
    job = classic(world, V1Committer)
    write(job, "1", FILES)
    write(job, "2", {"other": b"3"})
    where = f"_temporary/manifest_{job.job.uuid}/00/0/task_2"

    def lose() -> None:
        world.tree.rename(where, f"{where}.lost")

    seen = Watched(world.tree, on=at_path("rename", "/00/0"), before=lose)
    with pytest.raises(CommitRefused, match="task_2 is gone"):
        again(world, job, seen).commit_job(expect=2)


@pytest.mark.parametrize("kind", [V1Committer, V2Committer], ids=["v1", "v2"])
def test_an_abort_says_that_files_stay_whenever_they_came(kind: type[V1Committer]) -> None:
    """A task of v2, or a driver of v1, publishes at any verb of an abort: if files are visible
    after it, its report says that they stay."""
    stayed, number = 0, 0
    while True:
        number += 1
        world = World()
        job = classic(world, kind)
        if kind is V1Committer:
            write(job, "1", FILES)
        go = _publisher(world, job)

        def publish(go: Callable[[], None] = go) -> None:
            with suppress(MagicError):
                go()

        seen = Watched(world.tree, at=number, before=publish)
        report = again(world, job, seen).abort_job()
        if seen.count < number:
            assert stayed
            return
        told = any("they stay" in warning for warning in report.warnings)
        assert told or not world.data(), f"verb {number}"
        stayed += bool(world.data())


def _publisher(world: World, job: ManifestCommitter) -> Callable[[], None]:
    """A process that has read that the job runs, and makes its files visible when it is called:
    v1's driver, or a task of v2."""
    if isinstance(job, V2Committer):
        task = again(world, job).attempt("2")
        _fill(task)
        task._files = task._gather()
        assert isinstance(task, V2Attempt)
        return partial(_call, task._move)
    driver = again(world, job)._job_commit("driver")
    assert isinstance(driver, ClassicJobCommit)
    return lambda: driver._publish_tasks(list(driver._left()))


def _call(move: Callable[[], str]) -> None:
    move()


def _fill(task: TreeAttempt) -> None:
    for name, data in FILES.items():
        with task.open(name, unique=False, attributes=Attributes()) as file:
            file.write(data)


@pytest.mark.parametrize("kind", [V1Committer, V2Committer], ids=["v1", "v2"])
def test_an_abort_of_a_classic_job_is_told_as_one_though_a_look_fails(
    kind: type[V1Committer],
) -> None:
    """The record says that the job is aborted. A missing right for the look after that is no
    refusal: the report warns that files may be visible."""
    world = World()
    job = classic(world, kind)
    write(job, "1", FILES)
    seen = Watched(world.tree, on=at_path("stat", "/00/merge"), before=deny)
    report = again(world, job, seen).abort_job()
    assert report.outcome == "aborted"
    assert any("what is visible stays" in warning for warning in report.warnings)


def test_store_errors_are_refusals_only() -> None:
    """The base of this file: a create that is refused at once decides nothing, and says so."""
    world = World()
    job = world.start()
    result = write(job, "1", FILES)
    seen = Watched(world.tree, on=at_path("create", "_job-2.json"), before=deny)
    with pytest.raises(StoreError) as told:
        again(world, job, seen).commit_job([result])
    assert not isinstance(told.value, OutcomeUnknown)
    assert state_of(world, job) == "running"
