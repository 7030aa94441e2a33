"""Jobs of renames: all or nothing, whoever dies where, and whoever else ends the job meanwhile."""

from __future__ import annotations

import errno
import io
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer import _wiring
from magic_committer.committers.manifest import records
from magic_committer.committers.manifest.names import TreeJobPaths
from magic_committer.committers.manifest.publish import read_marker
from magic_committer.errors import (
    CommitIncomplete,
    CommitRefused,
    ConflictingJob,
    DestinationExists,
    JobExists,
    JobNotRunning,
    JobTooYoung,
    MagicError,
    OutcomeUnknown,
    StoreError,
)
from magic_committer.file_trees.base import make_directories
from magic_committer.file_trees.by_url import tree_for
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.trees import (
    TreeCleaning,
    abort_tree,
    inspect_tree,
    recover_tree,
)
from magic_committer.protocol.record import JobRecord, State, Terms
from tests.tree_jobs import Killed, Watched, World, die, lose_the_answer, write

OLD = {"dt=1/old.csv": b"old", "same.csv": b"before"}
NEW = {"dt=1/a.csv": b"a", "dt=2/b.csv": b"b", "same.csv": b"after"}


def new_data(mode: str) -> dict[str, bytes]:
    """What is there after the job."""
    return NEW if mode == "replace" else {**OLD, **NEW}


def fresh(mode: str) -> World:
    """A world with data, unless the mode wants none."""
    world = World()
    for name, data in OLD.items() if mode != "fail" else ():
        world.put(name, data)
    return world


def expected(mode: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The data before and after the job."""
    return (OLD, new_data(mode)) if mode != "fail" else ({}, NEW)


def run(world: World, watched: Watched, mode: str, job_id: str | None = None) -> mc.JobReport:
    """One process that does everything."""
    job = world.start(watched, job_id, mode=mode)
    first = write(job, "1", {"dt=1/a.csv": b"a", "dt=2/b.csv": b"b"})
    second = write(job, "2", {"same.csv": b"after"})
    return job.commit_job([first, second])


def verbs(mode: str, job_id: str | None = None) -> range:
    """The numbers of the verbs of an undisturbed run."""
    world = fresh(mode)
    watched = Watched(world.tree)
    run(world, watched, mode, job_id)
    assert world.data() == expected(mode)[1]
    return range(1, watched.count + 1)


def disturbed(world: World, number: int, when: str, what: Callable[[], None]) -> Watched:
    """The tree as a process sees it to which something happens at one verb."""
    if when == "before":
        return Watched(world.tree, number, before=what)
    return Watched(world.tree, number, after=what)


MODES = ["append", "fail", "replace"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("job_id", [None, "nightly"])
def test_a_job_that_dies_anywhere_is_all_or_nothing_after_a_recovery(
    mode: str, when: str, job_id: str | None
) -> None:
    """Killed at each verb, before or after its effect: recovery leaves the old data or the new, the
    record's outcome agrees, and nothing but closed records stays."""
    before, after = expected(mode)
    outcomes = set()
    for number in verbs(mode, job_id):
        world = fresh(mode)
        watched = Watched(
            world.tree,
            number,
            before=die if when == "before" else None,
            after=die if when == "after" else None,
        )
        with pytest.raises(Killed):
            run(world, watched, mode, job_id)
        parts = world.parts()
        world.clock.sleep(10)
        found = list(inspect_tree(parts, 0.0))
        assert len(found) <= 1
        outcome = ""
        for one in found:
            if one.kind == "ours":
                outcome = recover_tree(parts, one.id, dead_after=0.0).outcome
        outcomes.add(outcome)
        if outcome == "aborted":
            assert world.data() == before, number
        elif outcome == "committed":
            assert world.data() == after, number
        else:  # no record: before it was written, or after the job had ended
            assert world.data() in (before, after), number
        TreeCleaning(parts, EVERYTHING, dry_run=False).run()
        assert world.control() == [], number
    assert {"aborted", "committed"} <= outcomes


EVERYTHING = Limits(0.0, 0.0, 0.0, forget_given_after=0.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_one_lost_answer_changes_nothing(mode: str, when: str) -> None:
    """Each verb loses its answer once, with or without an effect: the job commits, or says that it
    did not and leaves everything as it was."""
    before, after = expected(mode)
    committed = 0
    for number in verbs(mode):
        world = fresh(mode)
        watched = Watched(
            world.tree,
            number,
            before=lose_the_answer if when == "before" else None,
            after=lose_the_answer if when == "after" else None,
        )
        try:
            report = run(world, watched, mode)
        except CommitIncomplete:
            (found,) = inspect_tree(world.parts(), 0.0)
            assert recover_tree(world.parts(), found.id, dead_after=0.0).outcome == "committed"
            assert world.data() == after, number
        except MagicError:
            for found in inspect_tree(world.parts(), 0.0):
                if found.kind == "ours":
                    abort_tree(world.parts(), found.id, revert=False)
            assert world.data() == before, number
        else:
            committed += 1
            assert (report.outcome, world.data()) == ("committed", after), number
    assert committed > len(verbs(mode)) // 2


@pytest.mark.parametrize("mode", MODES)
def test_a_recovery_at_any_moment_of_a_commit_agrees_with_the_driver(mode: str) -> None:
    """At each verb of a driver another process recovers the job: what the driver is told, what the
    recovery was told, and what is there are the same."""
    before, after = expected(mode)
    seen = set()
    for number in verbs(mode):
        world, told = fresh(mode), list[str]()

        def interfere(world: World = world, told: list[str] = told) -> None:
            parts = world.parts()
            for one in inspect_tree(parts, 0.0):
                if one.kind == "ours":
                    told.append(recover_tree(parts, one.id, dead_after=0.0).outcome)

        try:
            outcome = run(world, Watched(world.tree, number, before=interfere), mode).outcome
        except JobNotRunning as error:
            outcome = error.outcome or "aborted"
        except OutcomeUnknown:
            outcome = ""
        seen.add((outcome, *told))
        if told:
            assert outcome in (told[0], "") or told[0] == "", number
        assert world.data() == (after if "committed" in (outcome, *told) else before), number
    assert ("aborted", "aborted") in seen
    assert ("committed", "committed") in seen


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_paused_driver_touches_nothing_after_its_job_was_ended(mode: str) -> None:
    """At each verb of a driver the job is ended by another process, and then another program
    changes all files: the driver brings nothing back, and deletes nothing of it."""
    met = 0
    for number in verbs(mode):
        world = fresh(mode)
        later = {**dict.fromkeys([*OLD, *NEW], b"later"), "dt=1/new.csv": b"later"}

        def end_and_go_on(world: World = world, later: dict[str, bytes] = later) -> None:
            parts = world.parts()
            for one in inspect_tree(parts, 0.0):
                if one.kind == "ours":
                    recover_tree(parts, one.id, dead_after=0.0)
            for name in later:
                world.put(name, b"later")
            world.tree.remove("dt=2/b.csv")

        watched = Watched(world.tree, number, before=end_and_go_on)
        job = None
        with suppress(MagicError):
            job = world.start(watched, mode=mode)
        if job is None or watched.count >= number:
            continue  # ended before it began
        with suppress(MagicError):
            results = [
                write(job, "1", {"dt=1/a.csv": b"a", "dt=2/b.csv": b"b"}),
                write(job, "2", {"same.csv": b"after"}),
            ]
            job.commit_job(results)
        met += 1
        del later["dt=2/b.csv"]
        assert world.data() == later, number
    assert met > 20


def test_a_revert_takes_back_what_a_paused_driver_still_publishes() -> None:
    """A driver is paused at each rename, the job is reverted, the driver goes on: nothing of the
    job is visible, and what was there before is."""
    met = 0
    for number in verbs("append"):
        world, reverted = World(), list[str]()

        def revert(world: World = world, reverted: list[str] = reverted) -> None:
            parts = world.parts()
            for one in inspect_tree(parts, 0.0):
                if one.state == "committing":
                    reverted.append(abort_tree(parts, one.id, revert=True).outcome)

        with suppress(JobNotRunning, OutcomeUnknown):
            run(world, Watched(world.tree, number, before=revert), "append")
        if reverted:
            met += 1
            assert reverted == ["reverted"]
            assert world.data() == {}, number
    assert met >= 5


def test_a_revert_leaves_the_file_of_another_program() -> None:
    """What somebody wrote over a published file is not the job's, and stays."""
    world = World()
    job = world.start()
    result = write(job, "1", {"a": b"1", "b": b"2"})
    with pytest.raises(Killed):
        world.again(job, Watched(world.tree, after=die, on=is_publishing)).commit_job([result])
    (visible,) = world.data()
    world.put(visible, b"mine")
    assert abort_tree(world.parts(), job.job.id, revert=True).outcome == "reverted"
    assert world.data() == {visible: b"mine"}


def test_a_new_file_that_was_taken_for_an_old_one_comes_back() -> None:
    """A process is paused between its look and its rename, another program writes over the file,
    the process takes it, and is paused again while the job is swept: the new file is there."""
    for ends in (False, True):
        world = World()
        world.put("old", b"old")
        job = world.start(mode="replace")
        result = write(job, "1", {"a": b"1"})

        def written(world: World = world) -> None:
            world.put("old", b"new")

        def swept(world: World = world, ends: bool = ends) -> None:
            for one in inspect_tree(world.parts(), 0.0) if ends else ():
                recover_tree(world.parts(), one.id, dead_after=0.0)

        watched = Watched(world.tree, before=written, after=swept, on=taking_away("old"))
        job = world.again(job, watched)
        assert job.commit_job([result]).outcome == "committed"
        assert world.data() == {"a": b"1", "old": b"new"}, ends


def test_a_new_file_comes_back_though_its_directory_went_meanwhile() -> None:
    """The file that was taken by mistake was the last of its directory, which was then removed."""
    world = World()
    world.put("d/old", b"old")
    job = world.start(mode="replace")
    result = write(job, "1", {"a": b"1"})

    def emptied() -> None:
        world.tree.remove_directory("d")

    watched = Watched(
        world.tree,
        before=lambda: world.put("d/old", b"new"),
        after=emptied,
        on=taking_away("d/old"),
    )
    assert world.again(job, watched).commit_job([result]).outcome == "committed"
    assert world.data() == {"a": b"1", "d/old": b"new"}


def test_an_undone_job_stays_undone_wherever_its_sweep_dies() -> None:
    """Killed at each verb of a revert, also when the plan is deleted and the trash is not: what
    comes after it brings nothing back."""
    met = 0
    for number in range(1, 200):
        world = World()
        world.put("b", b"old")
        job = world.start(mode="replace")
        result = write(job, "1", {"a": b"1", "b": b"2", "c": b"3"})
        with pytest.raises(Killed):
            world.again(job, Watched(world.tree, after=die, on=is_publishing)).commit_job([result])
        watched = Watched(world.tree, number, after=die)
        parts = world.parts(watched)
        with suppress(Killed):
            abort_tree(parts, job.job.id, revert=True)
        if watched.count < number:
            break
        if world.tree.stat(f"_temporary/manifest_{job.job.uuid}/_job-3.json") is None:
            continue
        met += 1
        recover_tree(world.parts(), job.job.id, dead_after=0.0)
        TreeCleaning(world.parts(), EVERYTHING, dry_run=False).run()
        assert world.data() in ({}, {"b": b"old"}), number
        assert world.control() == [], number
    assert met > 30


def test_a_cleanup_takes_no_directory_whose_job_is_being_started() -> None:
    """A driver is paused before it writes its record, and goes on at each verb of a cleanup: the
    job has its record, or its start has failed."""
    started, refused = 0, 0
    for number in range(1, 60):
        world, told = World(), list[bool]()
        uuid = world.draw()
        terms = Terms(track="memory", accept="results", committer="manifest")
        record = JobRecord(uuid, uuid, State.RUNNING, world.draw(), terms, False, 1.0)
        make_directories(world.tree, TreeJobPaths(uuid).tasks)

        def goes_on(
            world: World = world, record: JobRecord = record, told: list[bool] = told
        ) -> None:
            with suppress(MagicError):
                records.create(world.parts(), record)
                told.append(True)

        watched = Watched(world.tree, number, before=goes_on)
        limits = Limits(1e9, 0.0, 1e9, forget_given_after=1e9)
        TreeCleaning(world.parts(watched), limits, dry_run=False).run()
        if watched.count < number:
            break
        seen = records.read(world.parts(), TreeJobPaths(uuid))
        started, refused = started + bool(told), refused + (not told)
        assert (seen is not None and seen.record.state is State.RUNNING) == bool(told), number
    assert started > 5
    assert refused > 0


def test_a_full_disk_under_the_plan_decides_nothing() -> None:
    """The error is the library's own, the job runs on, and commits when there is room."""

    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: object, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    class Tree(Watched):
        def open(self, path: str) -> io.RawIOBase:
            self._tree.open(path).close()
            return Full()

    world = World()
    job = world.start()
    result = write(job, "1", {"a": b"1"})
    with pytest.raises(StoreError, match="No space left"):
        world.again(job, Tree(world.tree)).commit_job([result])
    assert [one.state for one in inspect_tree(world.parts(), 0.0)] == ["running"]
    assert job.commit_job([result]).outcome == "committed"
    assert world.data() == {"a": b"1"}


@pytest.mark.parametrize("old", [b"", None])
def test_a_paused_job_never_marks_over_a_later_one(old: bytes | None) -> None:
    """It has read the marker, and is paused at each verb until its own is there; another job
    completes and marks meanwhile: the later one's marker stays."""
    met = 0
    for number in range(1, 80):
        world, later = World(), list[str]()
        if old is not None:
            world.put("_SUCCESS", old)
        job = world.start()
        result = write(job, "1", {"a": b"1"})

        def ends(world: World = world, later: list[str] = later, first: str = job.job.uuid) -> None:
            other = world.start()
            other.commit_job([write(other, "1", {"b": b"2"})])
            seen = records.read(world.parts(), TreeJobPaths(first))
            if seen is not None and seen.record.state is State.COMPLETED:
                later.append(other.job.uuid)

        watched = Watched(world.tree, number, before=ends)
        assert world.again(job, watched).commit_job([result]).outcome == "committed"
        if watched.count < number:
            break
        if later:
            met += 1
            marker = read_marker(world.parts())
            assert marker is not None
            assert marker.uuid == later[0], number
    assert met > 5


def taking_away(name: str) -> Callable[[str, str], bool]:
    """Whether a call of the tree takes a file away that is replaced. The first rename of a trash
    finds no directory."""
    renames = iter(range(1, 9))
    return lambda verb, path: (verb, path) == ("rename", name) and next(renames) == 2


def test_two_attempts_of_a_task_publish_one() -> None:
    """With results, the accepted attempt counts; with a listing, the one that committed last."""
    world = World()
    job = world.start()
    write(job, "1", {"a": b"first"})
    second = write(job, "1", {"a": b"second"})
    assert job.commit_job([second]).files == 1
    assert world.data() == {"a": b"second"}
    job = world.start(accept="listing")
    for data in (b"x", b"y"):
        write(job, "1", {"b": data})
    assert job.commit_job(expect=1).files == 1
    assert world.data() == {"a": b"second", "b": b"y"}


def test_an_attempt_is_too_late_when_its_job_has_ended() -> None:
    """Its next step says that the job was aborted, and nothing of it stays."""
    world = World()
    job = world.start()
    attempt = job.attempt("1")
    with attempt.open("a", unique=False, attributes=mc.Attributes()) as file:
        file.write(b"1")
    world.again(job).abort_job()
    with pytest.raises(JobNotRunning):
        attempt.commit()
    attempt.abort()
    with pytest.raises(JobNotRunning):
        job.attempt("2").open("a", unique=False, attributes=mc.Attributes())
    assert world.data() == {}


@pytest.mark.parametrize(
    ("first", "second"), [({"a": b"1"}, {"a": b"2"}), ({"a": b"1"}, {"a/b": b"2"})]
)
def test_two_files_of_one_place_are_refused(
    first: dict[str, bytes], second: dict[str, bytes]
) -> None:
    """Two tasks with one name, and a file where another needs a directory, abort the job."""
    world = World()
    job = world.start()
    results = [write(job, "1", first), write(job, "2", second)]
    with pytest.raises(CommitRefused):
        job.commit_job(results)
    assert (world.data(), world.control()) == ({}, [])


def test_a_file_where_a_directory_is_needed_is_refused() -> None:
    """Also if it was there before: nothing is published, and it stays."""
    world = World()
    world.put("a", b"file")
    world.put("d/x", b"directory")
    for name in ("a/b", "d"):
        job = world.start()
        result = write(job, "1", {name: b"1"})
        with pytest.raises(CommitRefused):
            job.commit_job([result])
    assert world.data() == {"a": b"file", "d/x": b"directory"}


def test_a_file_that_was_changed_after_its_task_is_refused() -> None:
    """What the task committed is what is published, or nothing is."""
    world = World()
    job = world.start()
    result = write(job, "1", {"a": b"1"})
    world.put(f"_temporary/manifest_{job.job.uuid}/00/tasks/{result.attempt}/a", b"other")
    with pytest.raises(CommitRefused, match="was changed"):
        job.commit_job([result])


def test_excluding_jobs_see_each_other() -> None:
    """The second ``replace`` yields to the first, and goes when that has ended."""
    world = World()
    first = world.start(mode="replace")
    with pytest.raises(ConflictingJob):
        world.start(mode="replace")
    world.start(mode="append")
    assert len(list(inspect_tree(world.parts(), 0.0))) == 2
    first.abort_job()
    world.start(mode="replace")


def test_mode_fail_refuses_data_and_reverts_at_a_late_file() -> None:
    """Data at the start, and a file that another program wrote meanwhile, both stay."""
    world = World()
    world.put("x", b"1")
    with pytest.raises(DestinationExists):
        world.start(mode="fail")
    world.tree.remove("x")
    job = world.start(mode="fail")
    result = write(job, "1", {"a": b"1", "b": b"2"})
    late = Watched(world.tree, before=lambda: world.put("b", b"late"), on=is_publishing)
    with pytest.raises(DestinationExists) as told:
        world.again(job, late).commit_job([result])
    assert isinstance(told.value.report, mc.JobReport)
    assert told.value.report.outcome == "reverted"
    assert world.data() == {"b": b"late"}


def is_publishing(verb: str, path: str) -> bool:
    """Whether a call of the tree is the rename of a task's file."""
    return verb == "rename" and "/00/tasks/" in path


def test_a_running_job_is_not_recovered_before_its_time() -> None:
    """It may be alive: the error says how old it is, and a sign of life makes it young again."""
    world = World()
    job = world.start()
    world.clock.sleep(100)
    with pytest.raises(JobTooYoung):
        recover_tree(world.parts(), job.job.id, dead_after=1000)
    world.clock.sleep(1000)
    assert job.sign_of_life()()
    with pytest.raises(JobTooYoung):
        recover_tree(world.parts(), job.job.id, dead_after=1000)
    world.clock.sleep(2000)
    assert recover_tree(world.parts(), job.job.id, dead_after=1000).outcome == "aborted"
    assert not job.sign_of_life()()
    assert world.control() == [
        f"_temporary/manifest_{job.job.uuid}/_job-{n}.json" for n in (1, 2, 3)
    ]


def test_an_id_is_used_once() -> None:
    """A second start is refused, also after the end; a paused first start cannot take it over."""
    world = World()
    job = world.start(job_id="nightly")
    with pytest.raises(JobExists):
        world.start(job_id="nightly")
    job.abort_job()
    with pytest.raises(JobExists):
        world.start(job_id="nightly")
    assert [one.id for one in inspect_tree(world.parts(), 0.0)] == ["nightly"]


def test_old_closed_records_go_with_the_next_job_where_directories_are_not_real() -> None:
    """Each job leaves a closed record there; a day later the next driver deletes it."""
    world = World(directories=False)
    for day in range(3):
        job = world.start()
        assert job.commit_job([write(job, "1", {f"{day}": b"1"})]).state == "closed"
        assert len({path.split("/")[1] for path in world.control()}) == 1
        world.clock.sleep(25 * 3600)
    assert world.data() == {"0": b"1", "1": b"1", "2": b"1"}


# On a local disk, through the public calls --------------------------------------------------------


def test_write_publishes_all_files_of_a_block_or_none(tmp_path: Path) -> None:
    """An exception in the block leaves the destination as it was, without `_temporary`."""
    url = f"file://{tmp_path}/t"
    with mc.write(url) as job, job.open("dt=1/a.csv", "w") as file:
        file.write("1")
    with pytest.raises(ZeroDivisionError), mc.write(url, mode="overwrite") as job:
        with job.open("b.csv", "w") as file:
            file.write("2")
        raise ZeroDivisionError
    found = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert found == ["t/_SUCCESS", "t/dt=1/a.csv"]


def test_a_task_directory_is_published_without_its_hidden_files(tmp_path: Path) -> None:
    """What a program left in the directory is published, but for what begins with ``_`` or ``.``"""
    with mc.write(f"file://{tmp_path}/t") as job:
        root = job.directory(unique=True)
        (root / "sub").mkdir()
        (root / "sub" / "a.csv").write_text("1")
        (root / "_log").write_text("2")
    (found,) = (p for p in (tmp_path / "t").rglob("*.csv"))
    assert found.name == f"a-mcj{job.job.uuid}.csv"
    assert not list((tmp_path / "t").rglob("_log"))


def test_the_operators_calls_take_local_destinations(tmp_path: Path) -> None:
    """inspect, recover, abort, force_abort and cleanup, by the URL."""
    url = f"file://{tmp_path}/t"
    ids = [mc.start(url, job_id=name).id for name in ("a", "b", "c")]
    assert sorted(one.id for one in mc.inspect(url)) == ids
    assert mc.recover(url, "a", dead_after=0).outcome == "aborted"
    assert mc.abort(url, "b").outcome == "aborted"
    assert mc.force_abort(url, "c", dead_after=0).outcome == "aborted"
    assert mc.attach(url, "a").outcome == "aborted"
    report = mc.cleanup(url, forget_after=0, leftover_after=0, forget_given_after=0.0)
    assert (report.errors, report.records_deleted) == ((), 3)
    assert list(tmp_path.rglob("*")) == [tmp_path / "t"]


@pytest.mark.parametrize("ends", ["recover", "abort"])
@pytest.mark.parametrize("where", ["place", "source"])
def test_an_operator_follows_no_link_that_a_writer_has_put_into_a_job(
    tmp_path: Path, ends: str, where: str
) -> None:
    """A directory of a decided job is a link out of the destination: what is there stays there, and
    nothing is put there."""
    root, outside = tmp_path / "t", tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("secret")
    url = root.as_uri()
    watched = Watched(tree_for(url), before=die, on=is_publishing)
    _wiring.register_tree(watched)
    try:
        job = mc.start(url, accept="results")
        with job.task("1") as task, task.open("dt=1/key") as file:
            file.write(b"public")
        with pytest.raises(Killed):
            job.commit([task.result])
    finally:
        _wiring.unregister_tree(watched)
    replaced = root / "dt=1"
    if where == "source":
        (replaced,) = root.glob("_temporary/manifest_*/00/tasks/*/dt=1")
    shutil.rmtree(replaced)
    replaced.symlink_to(outside)
    with pytest.raises((CommitIncomplete, mc.AbortIncomplete), match="is a link"):
        if ends == "recover":
            mc.recover(url, job.id)
        else:
            mc.abort(url, job.id, revert=True)
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("key", "secret")]
    assert not (root / "key").exists()
