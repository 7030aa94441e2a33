"""The classic committers on file trees: what v1 and v2 promise, and what they do not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.committers.classic import V1Committer, V2Committer
from magic_committer.committers.classic.names import ClassicPaths
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.committers.registry import real_name
from magic_committer.errors import (
    CommitRefused,
    DestinationExists,
    IncompleteJob,
    JobNotRunning,
    OptionError,
    StoreError,
    TaskFailed,
)
from magic_committer.file_trees.by_url import tree_for
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.trees import (
    TreeCleaning,
    abort_tree,
    force_abort_tree,
    inspect_tree,
    recover_tree,
)
from magic_committer.options import Options
from magic_committer.protocol.record import JobReport, TaskCommit, Terms
from tests.tree_jobs import URL, Killed, Watched, World, die, lose_the_answer, write

KINDS: tuple[type[V1Committer], ...] = (V1Committer, V2Committer)
FILES = {"p=1/a": b"1", "p=1/b": b"2", "c": b"3"}


@pytest.fixture(params=KINDS, ids=["v1", "v2"])
def kind(request: pytest.FixtureRequest) -> type[V1Committer]:
    """Each of the two."""
    found: type[V1Committer] = request.param
    return found


@pytest.fixture(params=["memory", "disk"])
def new_world(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], World]:
    """Makes empty destinations: in memory, and on a real disk, which renames directories."""
    number = count()

    def make() -> World:
        world = World()
        if request.param == "disk":
            disk: Any = tree_for((tmp_path / str(next(number))).as_uri())
            world.tree = disk
            world.tree.make_root()
        return world

    return make


def start(
    world: World, kind: type[V1Committer], job_id: str | None = None, **terms: Any
) -> V1Committer:
    """Start a job."""
    told = {"track": "memory", "accept": "listing", "committer": kind.name, **terms}
    return kind.start(world.process(), URL, Terms(**told), Options(), job_id)


def again(world: World, job: ManifestCommitter, tree: object | None = None) -> ManifestCommitter:
    """The same job in another process."""
    return type(job).of(world.process(tree), job.job, Options())


def each_verb(run: Callable[[int], Watched]) -> Iterator[int]:
    """The numbers of the verbs of a run, until one is past its end. ``run`` takes the number, and
    gives the watched tree."""
    number = 1
    while True:
        if run(number).count < number:
            return
        yield number
        number += 1


def lose_answer_of(watched: Watched, number: int) -> None:
    """From now on, lose the answer to the call of that number."""
    watched.count, watched.at, watched._after = 0, number, lose_the_answer


def _write(attempt: Any, files: dict[str, bytes]) -> None:
    """Write an attempt's files, and do not commit it."""
    for name, data in files.items():
        with attempt.open(name, unique=False, attributes=mc.Attributes()) as file:
            file.write(data)


# What both promise --------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["listing", "results"])
def test_all_files_are_visible_after_success(
    kind: type[V1Committer], accept: str, tmp_path: Path
) -> None:
    """On a real disk: every file of each task, byte for byte, beside older data; then the marker;
    nothing of the job is left, and hidden files are not published."""
    (tmp_path / "p=1").mkdir()
    (tmp_path / "p=1" / "old").write_bytes(b"old")
    with mc.start(tmp_path.as_uri(), committer=kind.name, accept=accept) as job:  # type: ignore[arg-type]
        results = []
        for number in (1, 2):
            with job.task(number) as task:
                with task.open(f"p=1/{number}.csv", "w") as file:
                    file.write(str(number))
                directory = task.directory() / f"q={number}"
                (directory / "_spare").mkdir(parents=True)
                (directory / "x.csv").write_text("x")
                (directory / "_spare" / "y").write_text("hidden")
                (directory.parent / "_SUCCESS").mkdir()
            results.append(task.result)
        report = job.commit(results if accept == "results" else None, expect=2)
    assert (report.files, report.bytes, report.tasks) == (4, 4, 2)
    found = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {"p=1/old", "p=1/1.csv", "p=1/2.csv", "q=1/x.csv", "q=2/x.csv", "_SUCCESS"}
    assert (tmp_path / "p=1" / "2.csv").read_text() == "2"
    assert (tmp_path / "_SUCCESS").is_file()
    assert not (tmp_path / "_temporary").exists()
    assert not list(tmp_path.rglob("_spare"))


def test_a_task_that_is_retried_is_there_once(kind: type[V1Committer]) -> None:
    """The attempt that commits last is the task's: by listing it takes the other's place."""
    world = World()
    job = start(world, kind)
    _write(job.attempt("1"), {"lost": b""})
    write(job, "1", {"a": b"first"})
    write(job, "1", {"a": b"second"})
    report = job.commit_job(expect=["1"])
    assert (report.tasks, report.files) == (1, 1)
    assert world.data() == {"a": b"second"}


def test_by_results_only_the_accepted_attempt_of_v1_appears() -> None:
    """Two attempts of one task have committed: the driver says which one counts."""
    world = World()
    job = start(world, V1Committer, accept="results")
    accepted = write(job, "1", {"a": b"1", "first": b""})
    write(job, "1", {"a": b"2", "second": b""})
    job.commit_job([accepted, write(job, "2", {})])
    assert world.data() == {"a": b"1", "first": b""}


def test_jobs_side_by_side_do_not_touch_each_other(kind: type[V1Committer]) -> None:
    """One job commits, and one aborts, beside a third, which then commits all that it has."""
    world = World()
    one, two, three = (start(world, kind) for _ in range(3))
    write(three, "1", {"three/1": b"3"})
    running = three.attempt("2")
    file = running.open("three/2", unique=False, attributes=mc.Attributes())
    write(one, "1", {"one": b"1"})
    one.commit_job()
    two.abort_job()
    file.write(b"33")
    file.close()
    running.commit()
    assert three.commit_job(expect=["1", "2"]).files == 2
    assert world.data() == {"one": b"1", "three/1": b"3", "three/2": b"33"}


def test_a_second_driver_takes_the_tasks_of_the_first(kind: type[V1Committer]) -> None:
    """A driver that dies leaves what its tasks have committed; the next one with the same id runs
    the others only."""
    world = World()
    first = start(world, kind, "nightly")
    write(first, "1", {"a": b"1"})
    _write(first.attempt("2"), {"b": b"half"})
    told = Terms(track="memory", accept="listing", committer=kind.name)
    second = kind.start(world.process(), URL, told, Options(), "nightly", join=True)
    assert second.look_at_commit().tasks == ("1",)
    write(second, "2", {"b": b"2"})
    assert second.commit_job(expect=["1", "2"]).files == 2
    assert world.data() == {"a": b"1", "b": b"2"}


def test_the_commit_refuses_a_job_without_its_tasks(kind: type[V1Committer]) -> None:
    """Tasks are missing: nothing is decided, and the commit can be called when they are there."""
    world = World()
    job = start(world, kind)
    write(job, "1", {"a": b"1"})
    with pytest.raises(IncompleteJob, match="1 task"):
        job.commit_job(expect=2)
    write(job, "2", {"b": b"2"})
    assert job.commit_job(expect=2).outcome == "committed"
    assert world.data() == {"a": b"1", "b": b"2"}


def test_operators_see_and_end_the_jobs(kind: type[V1Committer]) -> None:
    """What tasks have committed is told; a job whose driver is dead is aborted by recover and by
    cleanup, with its directory."""
    world = World()
    job = start(world, kind)
    write(job, "1", {"p=1/a": b"1", "b": b"22"})
    [found] = inspect_tree(world.parts(), 1e9)
    assert (found.state, found.tasks, found.files, found.bytes) == ("running", 1, 2, 3)
    assert recover_tree(world.parts(), job.job.id, dead_after=0.0).outcome == "aborted"
    start(world, kind)
    world.clock.seconds += 1e9
    TreeCleaning(world.parts(), Limits(0.0, 0.0, 0.0, forget_given_after=1e9), dry_run=False).run()
    world.clock.seconds += 1e9
    TreeCleaning(world.parts(), Limits(0.0, 0.0, 0.0, forget_given_after=1e9), dry_run=False).run()
    assert world.control() == []


def test_a_decided_job_is_not_taken_back(kind: type[V1Committer]) -> None:
    """The driver dies after its decision: whoever wants to revert is told that it is committed, a
    recovery marks and closes it, and all of its files stay."""
    world = World()
    job = start(world, kind)
    write(job, "1", FILES)

    def decided(verb: str, path: str) -> bool:
        return verb == "create" and path.endswith("/_job-2.json")

    with pytest.raises(Killed):
        again(world, job, Watched(world.tree, after=die, on=decided)).commit_job()
    [found] = inspect_tree(world.parts(), 0.0)
    assert (found.state, found.files, found.visible) == ("committing", 3, 3)
    assert found.would.startswith("rename 0 files of 3")
    with pytest.raises(JobNotRunning):
        abort_tree(world.parts(), job.job.id, revert=True)
    assert recover_tree(world.parts(), job.job.id, dead_after=0.0).outcome == "committed"
    assert world.data() == FILES


def test_a_job_that_is_given_up_keeps_its_files(kind: type[V1Committer]) -> None:
    """force_abort of a decided job removes its control files only."""
    world = World()
    job = start(world, kind)
    write(job, "1", FILES)

    def decided(verb: str, path: str) -> bool:
        return verb == "create" and path.endswith("/_job-2.json")

    with pytest.raises(Killed):
        again(world, job, Watched(world.tree, after=die, on=decided)).commit_job()
    force_abort_tree(world.parts(), job.job.id, dead_after=0.0)
    assert (world.data(), world.control()) == (FILES, [])


@pytest.mark.parametrize("mode", ["replace", "replace_partitions", "fail_partitions"])
def test_modes_that_they_do_not_have_are_refused(
    kind: type[V1Committer], mode: Any, tmp_path: Path
) -> None:
    """The error names the committer that has them, and nothing is made."""
    with pytest.raises(OptionError, match="'manifest'"):
        mc.start(tmp_path.as_uri(), committer=kind.name, mode=mode)
    assert list(tmp_path.iterdir()) == []


def test_mode_fail_refuses_data(kind: type[V1Committer]) -> None:
    """There is data when the job starts; or, for v1, when it commits."""
    world = World()
    if kind is V1Committer:
        job = start(world, kind, mode="fail")
        write(job, "1", {"a": b"1"})
        world.put("b", b"other")
        with pytest.raises(DestinationExists):
            job.commit_job()
    world.put("b", b"other")
    with pytest.raises(DestinationExists):
        start(world, kind, mode="fail")
    assert world.data() == {"b": b"other"}


def test_a_file_system_without_directories_is_refused(kind: type[V1Committer]) -> None:
    """A rename of a directory would be many copies."""
    world = World(directories=False)
    with pytest.raises(OptionError, match="'manifest'"):
        start(world, kind)
    assert world.control() == []


def test_hadoops_name_is_understood() -> None:
    """`file` is FileOutputCommitter: the algorithm that keeps more."""
    assert real_name("file") == real_name("V1") == "v1"


def test_a_result_of_elsewhere_is_refused(kind: type[V1Committer]) -> None:
    """A result that names another place is not obeyed, and the job runs on."""
    world = World()
    job = start(world, kind, accept="results")
    result = write(job, "1", {"a": b"1"})
    forged = TaskCommit(result.job_uuid, "1", result.attempt, key="p=1", files=1, bytes=1)
    with pytest.raises(OptionError, match="'p=1'"):
        job.commit_job([forged])
    assert job.commit_job([result]).outcome == "committed"
    assert world.data() == {"a": b"1"}


# v1 -----------------------------------------------------------------------------------------------


def test_v1_shows_nothing_before_the_jobs_commit() -> None:
    """Tasks that commit, tasks that do not and an abort: readers find nothing, and nothing is
    left."""
    world = World()
    job = start(world, V1Committer)
    write(job, "1", FILES)
    assert world.data() == {}
    _write(job.attempt("2"), {"x": b"1"})
    report = job.abort_job()
    assert (report.outcome, report.warnings) == ("aborted", ())
    assert (world.data(), world.control()) == ({}, [])


def test_v1_commits_again_after_a_death_anywhere() -> None:
    """The driver dies at any call of its commit, before or after the effect: another process that
    commits the job makes all files visible."""
    for what in ("before", "after"):

        def run(number: int, what: str = what) -> Watched:
            world = World()
            world.put("p=1/old", b"old")
            job = start(world, V1Committer)
            write(job, "1", FILES)
            write(job, "2", {"p=1/d": b"4", "q/r/e": b"5"})
            watched = Watched(world.tree, at=number, **{what: die})  # type: ignore[arg-type]
            try:
                again(world, job, watched).commit_job(expect=2)
            except Killed:
                report: JobReport = again(world, job).commit_job(expect=2)
                assert report.outcome == "committed"
            expected = {**FILES, "p=1/d": b"4", "q/r/e": b"5", "p=1/old": b"old"}
            assert world.data() == expected, (what, number)
            return watched

        assert len(list(each_verb(run))) > 20


def test_v1_commits_though_any_answer_is_lost() -> None:
    """The answer to any call of the task's and the job's commit is lost: all files are visible when
    both have returned, at most after a second call."""

    def run(number: int) -> Watched:
        world = World()
        job = start(world, V1Committer)
        watched = Watched(world.tree)
        seen = again(world, job, watched)
        attempt = seen.attempt("1")
        _write(attempt, FILES)
        lose_answer_of(watched, number)
        for call in (attempt.commit, seen.commit_job):
            try:
                call()
            except mc.MagicError:
                call()
        assert world.data() == FILES, number
        return watched

    assert len(list(each_verb(run))) > 20


def test_v1_that_dies_in_its_commit_leaves_some_files_visible() -> None:
    """What v1 does not promise: nobody but a commit goes on. A recovery aborts the job, says that
    files stay, and they do."""
    world = World()
    job = start(world, V1Committer)
    write(job, "1", FILES)

    def merged(verb: str, path: str) -> bool:
        return verb == "rename" and "/merge/" in path

    with pytest.raises(Killed):
        again(world, job, Watched(world.tree, after=die, on=merged)).commit_job()
    some = world.data()
    assert {} != some != FILES
    recovery = recover_tree(world.parts(), job.job.id, dead_after=0.0)
    assert recovery.outcome == "aborted"
    assert recovery.report is not None
    assert "they stay" in " ".join(recovery.report.warnings)
    with pytest.raises(JobNotRunning, match="had made visible stays"):
        again(world, job).commit_job()
    assert world.data() == some


@pytest.mark.parametrize("dies", [False, True], ids=["commits", "merges and dies"])
def test_two_drivers_of_v1_may_merge_at_once(dies: bool) -> None:
    """At each call of one driver's commit another one merges all files, and commits the job, or
    dies before that: all files are visible, and whoever returns says committed."""

    def writes_its_plan(verb: str, path: str) -> bool:
        return dies and verb == "open" and "/_plan-" in path

    def run(number: int) -> Watched:
        world = World()
        job = start(world, V1Committer)
        write(job, "1", FILES)
        write(job, "2", {"p=1/d": b"4"})

        def merge_too() -> None:
            other = Watched(world.tree, before=die, on=writes_its_plan)
            with suppress(Killed):
                assert again(world, job, other).commit_job().outcome == "committed"

        watched = Watched(world.tree, at=number, before=merge_too)
        assert again(world, job, watched).commit_job().outcome == "committed"
        assert world.data() == {**FILES, "p=1/d": b"4"}, number
        return watched

    assert len(list(each_verb(run))) > 15


def test_v1_tells_a_task_that_its_jobs_merge_has_begun(new_world: Callable[[], World]) -> None:
    """At each call of a task's commit the driver begins its merge, without the task: the task is in
    the job, or is told that it is not."""
    outcomes = set()

    def run(number: int) -> Watched:
        world = new_world()
        job = start(world, V1Committer)
        write(job, "1", {"a": b"1"})

        def merge() -> None:
            with pytest.raises(Killed):
                again(world, job, Watched(world.tree, after=die, on=begun)).commit_job()

        watched = Watched(world.tree, at=number, before=merge)
        attempt = again(world, job, watched).attempt("2")
        try:
            _write(attempt, {"b": b"2"})
            attempt.commit()
            told = True
        except TaskFailed:
            told = False
        outcomes.add(told)
        again(world, job).commit_job()
        assert world.data() == ({"a": b"1", "b": b"2"} if told else {"a": b"1"}), number
        return watched

    def begun(verb: str, path: str) -> bool:
        return verb == "rename" and path.endswith("/00/0")

    assert len(list(each_verb(run))) > 8
    assert outcomes == {True, False}


def test_v1_refuses_to_commit_an_attempt_that_is_gone() -> None:
    """Somebody removed what an accepted attempt had committed: the job is aborted, and nothing of
    it is visible."""
    world = World()
    job = start(world, V1Committer, accept="results")
    results = [write(job, "1", {"a": b"1"}), write(job, "2", {"b": b"2"})]
    path = ClassicPaths(job.job.uuid).committed(f"attempt_{results[1].attempt}")
    world.tree.remove(f"{path}/b")
    world.tree.remove_directory(path)
    with pytest.raises(CommitRefused, match="is gone"):
        job.commit_job(results)
    assert world.data() == {}


def test_v1_does_not_put_a_directory_over_a_file() -> None:
    """A file is where a task needs a directory: it stays, the commit fails, and is called again
    when it is gone."""
    world = World()
    world.put("p=1", b"a file")
    job = start(world, V1Committer)
    write(job, "1", FILES)
    with pytest.raises(StoreError):
        job.commit_job()
    assert world.data()["p=1"] == b"a file"
    world.tree.remove("p=1")
    assert job.commit_job().outcome == "committed"
    assert world.data() == FILES


# v2 -----------------------------------------------------------------------------------------------


def test_v2_warns_when_it_starts(caplog: pytest.LogCaptureFixture) -> None:
    """The log says what stays if a task or the job fails; v1's start does not."""
    with caplog.at_level(logging.WARNING, "magic_committer"):
        start(World(), V1Committer)
        assert caplog.messages == []
        start(World(), V2Committer)
    assert "'v2' makes the files of each task visible" in caplog.text


def test_v2_leaves_the_files_of_a_job_that_is_aborted() -> None:
    """What v2 does not promise: a task's files are visible before the job commits, and after its
    abort, which says so."""
    world = World()
    job = start(world, V2Committer)
    write(job, "1", FILES)
    assert world.data() == FILES
    report = job.abort_job()
    assert "they stay" in " ".join(report.warnings)
    assert (world.data(), world.control()) == (FILES, [])


def test_v2_leaves_a_part_of_an_attempt_that_dies_in_its_commit() -> None:
    """What v2 does not promise either: the first file stays, and the task's next attempt writes
    another one beside it. The job commits with both."""
    world = World()
    job = start(world, V2Committer)

    def published(verb: str, path: str) -> bool:
        return verb == "rename" and "/00/0/_temporary/" in path

    with pytest.raises(Killed):
        write(
            again(world, job, Watched(world.tree, after=die, on=published)),
            "1",
            {"part-0-try-1": b"1", "part-1-try-1": b"1"},
        )
    write(job, "1", {"part-0-try-2": b"2"})
    assert job.commit_job(expect=1).outcome == "committed"
    assert world.data() == {"part-0-try-1": b"1", "part-0-try-2": b"2"}


def test_v2s_task_commits_again_after_a_lost_answer(new_world: Callable[[], World]) -> None:
    """At any call of a task's commit the answer is lost: the task's files are all visible, at most
    after a second call."""

    def run(number: int) -> Watched:
        world = new_world()
        job = start(world, V2Committer)
        watched = Watched(world.tree)
        attempt = again(world, job, watched).attempt("1")
        _write(attempt, FILES)
        lose_answer_of(watched, number)
        try:
            attempt.commit()
        except StoreError:
            attempt.commit()
        assert world.data() == FILES, number
        assert job.commit_job().files == 3
        return watched

    assert len(list(each_verb(run))) > 8
