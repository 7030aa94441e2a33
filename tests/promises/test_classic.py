"""The classic committers on file trees: what v1 and v2 promise, and what they do not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.committers.base import real_name
from magic_committer.committers.manifest import ManifestCommitter, V1Committer, V2Committer
from tests.promises.hands import raises
from tests.promises.hands import write as write_file
from tests.tree_jobs import Killed, Watched, World, die, lose_the_answer, put, write

KINDS: tuple[type[V1Committer], ...] = (V1Committer, V2Committer)
FILES = {"p=1/a": b"1", "p=1/b": b"2", "c": b"3"}


@pytest.fixture(params=KINDS, ids=["v1", "v2"])
def kind(request: pytest.FixtureRequest) -> type[V1Committer]:
    found: type[V1Committer] = request.param
    return found


def start(
    world: World, kind: type[V1Committer], job_id: str | None = None, **terms: Any
) -> ManifestCommitter:
    return world.start(None, job_id, kind, **{"accept": "listing", **terms})


def every_verb(run: Any) -> Iterator[int]:
    """The numbers of the verbs of a run, which gives the watched store of a number."""
    number = 1
    while run(number).count >= number:
        yield number
        number += 1


def decided(verb: str, path: str) -> bool:
    return verb == "put" and path.endswith("/_job.json")


def publishing(verb: str, path: str) -> bool:
    return verb == "complete_upload"


@pytest.mark.parametrize("accept", ["listing", "results"])
def test_all_files_are_visible_after_success(
    kind: type[V1Committer], accept: Any, tmp_path: Path
) -> None:
    """Every file, byte for byte, beside older data; no hidden one, and nothing of the job stays."""
    (tmp_path / "p=1").mkdir()
    (tmp_path / "p=1" / "old").write_bytes(b"old")
    with mc.start(tmp_path.as_uri(), committer=kind.name, accept=accept) as job:
        results = []
        for number in (1, 2):
            with job.task(number) as task:
                write_file(task, f"p=1/{number}.csv", b"%d" % number)
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
    assert not (tmp_path / "_temporary").exists()
    assert not list(tmp_path.rglob("_spare"))


def test_a_task_that_is_retried_is_there_once(kind: type[V1Committer]) -> None:
    """The attempt that commits last is the task's: by listing it takes the other's place."""
    world = World()
    job = start(world, kind)
    put(job.attempt("1"), {"lost": b""})
    write(job, "1", {"a": b"first"})
    assert (world.data() == {}) is (kind is V1Committer)  # v1 shows nothing before the commit
    write(job, "1", {"a": b"second"})
    report = job.driver().commit(expect=["1"])
    assert (report.tasks, report.files) == (1, 1)
    assert world.data() == {"a": b"second"}


@pytest.mark.parametrize("revert", [False, True])
def test_a_decided_job_is_finished_or_undone(kind: type[V1Committer], revert: bool) -> None:
    """A recovery marks and closes it, and all of its files stay; who reverts it takes them back."""
    world = World()
    job = start(world, kind)
    write(job, "1", FILES)
    raises(Killed, world.again(job, Watched(world.store, after=die, on=decided)).driver().commit)
    [found] = world.inspect()
    assert (found.state, found.files, found.visible) == ("committing", 3, 3)
    if revert:
        assert world.abort(job.job.id, revert=True).outcome == "reverted"
    else:
        assert world.recover(job.job.id).outcome == "committed"
    assert world.data() == ({} if revert else FILES)


@pytest.mark.parametrize("mode", ["replace", "replace_partitions", "fail_partitions"])
def test_other_modes_are_refused(kind: type[V1Committer], mode: Any, tmp_path: Path) -> None:
    """The error names the committer that has them. Hadoop's `file` is what keeps more."""
    with pytest.raises(mc.OptionError, match="'manifest'"):
        mc.start(tmp_path.as_uri(), committer=kind.name, mode=mode)
    assert list(tmp_path.iterdir()) == []
    assert real_name("file") == real_name("V1") == "v1"


def test_mode_fail_refuses_data(kind: type[V1Committer]) -> None:
    """There is data when the job starts; or, for v1, when it commits."""
    world = World()
    if kind is V1Committer:
        job = start(world, kind, mode="fail")
        write(job, "1", {"a": b"1"})
        world.put("b", b"other")
        raises(mc.DestinationExists, job.driver().commit)
    world.put("b", b"other")
    raises(mc.DestinationExists, start, world, kind, mode="fail")
    assert world.data() == {"b": b"other"}


@pytest.mark.parametrize(
    "fault",
    [{"before": die}, {"after": die}, {"after": lose_the_answer}],
    ids=["dies before", "dies after", "loses the answer"],
)
def test_v1_commits_again_after_a_death_or_a_lost_answer_anywhere(fault: Any) -> None:
    """Dead or unheard at any call, the commit makes all files visible, at most called twice."""

    def run(number: int) -> Watched:
        world = World()
        world.put("p=1/old", b"old")
        job = start(world, V1Committer, "nightly")
        write(job, "1", FILES)
        write(job, "2", {"p=1/d": b"4", "q/r/e": b"5"})
        watched = Watched(world.store, at=number, **fault)
        seen = world.again(job, watched)
        try:
            seen.driver().commit(expect=2)
        except (Killed, mc.MagicError) as error:
            again = seen if isinstance(error, mc.MagicError) else world.again(job)
            assert again.driver().commit(expect=2).outcome == "committed"
        expected = {**FILES, "p=1/d": b"4", "q/r/e": b"5", "p=1/old": b"old"}
        assert world.data() == expected, number
        return watched

    assert len(list(every_verb(run))) > 20


def test_v1_that_dies_in_its_commit_leaves_some_files_visible() -> None:
    """What v1 does not promise: a recovery aborts the job, says that files stay, and they do."""
    world = World()
    job = start(world, V1Committer)
    write(job, "1", FILES)

    raises(Killed, world.again(job, Watched(world.store, after=die, on=publishing)).driver().commit)
    some = world.data()
    assert {} != some != FILES
    recovery = world.recover(job.job.id)
    assert recovery.outcome == "aborted"
    assert recovery.report is not None
    assert "they stay" in " ".join(recovery.report.warnings)
    raises(mc.JobNotRunning, world.again(job).driver().commit, match="had made visible stays")
    assert world.data() == some


def test_v2_leaves_the_files_of_a_job_that_is_aborted(caplog: pytest.LogCaptureFixture) -> None:
    """What v2 does not promise: a task's files are visible at once, and stay; its start warns."""
    world = World()
    with caplog.at_level(logging.WARNING, "magic_committer"):
        start(World(), V1Committer)
        assert caplog.messages == []
        job = start(world, V2Committer)
    assert "'v2' makes the files of each task visible" in caplog.text
    write(job, "1", FILES)
    assert world.data() == FILES
    assert "they stay" in " ".join(job.driver().abort().warnings)
    assert (world.data(), world.control()) == (FILES, [])


def test_v2_leaves_a_part_of_an_attempt_that_dies_in_its_commit() -> None:
    """What v2 does not promise either: the next attempt writes beside the first file."""
    world = World()
    job = start(world, V2Committer)
    seen = world.again(job, Watched(world.store, after=die, on=publishing))
    raises(Killed, write, seen, "1", {"part-0-try-1": b"1", "part-1-try-1": b"1"})
    write(job, "1", {"part-0-try-2": b"2"})
    assert job.driver().commit(expect=1).outcome == "committed"
    assert world.data() == {"part-0-try-1": b"1", "part-0-try-2": b"2"}


def test_v2_finds_the_file_of_a_rename_that_was_not_answered() -> None:
    """The task has committed: nobody needs to run it again."""
    world = World()
    job = start(world, V2Committer, "nightly")
    lost = Watched(world.store, on=publishing, after=lose_the_answer)
    attempt = world.again(job, lost).attempt("1")
    put(attempt, FILES)
    assert attempt.commit().files == 3


def test_an_abort_is_told_though_nobody_can_see_what_stays(kind: type[V1Committer]) -> None:
    """It took effect: that the look failed is a warning."""

    def refused(verb: str, path: str) -> None:
        if verb == "head" and path.endswith("/_visible"):
            raise mc.PermissionDenied("it may not be looked at", operation="head")

    world = World()
    job = start(world, kind, "nightly")
    report = world.again(job, Watched(world.store, always=refused)).driver().abort()
    assert report.outcome == "aborted"
    assert any("is unknown" in warning for warning in report.warnings)


def test_an_abort_says_that_files_stay_whenever_they_came(kind: type[V1Committer]) -> None:
    """A task or driver publishes at any verb of an abort: its report says that files stay."""

    def run(number: int) -> Watched:
        world = World()
        job = start(world, kind, "nightly")
        if kind is V1Committer:
            write(job, "1", FILES)

        def publish() -> None:
            with suppress(mc.MagicError, Killed):
                if kind is V2Committer:
                    write(world.again(job), "1", FILES)
                else:
                    world.again(job, Watched(world.store, before=die, on=decided)).driver().commit()

        watched = Watched(world.store, at=number, before=publish)
        report = world.again(job, watched).driver().abort()
        if world.data():
            assert "they stay" in " ".join(report.warnings), number
        return watched

    assert len(list(every_verb(run))) > 10
