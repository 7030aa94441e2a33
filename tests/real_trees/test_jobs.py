"""Whole jobs on real file systems: each mode, an abort, a revert, a recovery, a cleanup."""

from __future__ import annotations

import pytest

import magic_committer as mc
from magic_committer.options import Mode
from magic_committer.stores.trees.base import FileTree
from tests.real_trees.looking import control, data, is_marked

FIRST = {"dt=1/a b.csv": b"1", "dt=2/\u00fc%25.csv": b"22", "c.csv": b"333"}
SECOND = {"dt=1/second.csv": b"4", "dt=3/d.csv": b"5" * 300_000}


def write(url: str, mode: Mode, files: dict[str, bytes]) -> mc.JobReport:
    """A job of one task."""
    with mc.write(url, mode=mode) as job:
        for name, content in files.items():
            with job.open(name) as file:
                file.write(content)
    return job.report


def started(url: str, job_id: str | None = None) -> mc.Job:
    """A job with two committed tasks, whose driver has gone."""
    job = mc.start(url, job_id=job_id, accept="listing")
    for number, (name, content) in enumerate(SECOND.items()):
        with job.task(number) as task, task.open(name) as file:
            file.write(content)
    return job


def left_of(url: str) -> list[str]:
    """What is left of jobs that have ended, when a cleanup has forgotten them."""
    report = mc.cleanup(url, dead_after=0, leftover_after=0, forget_after=0)
    assert report.errors == ()
    return control(url)


def test_a_job_appends(url: str) -> None:
    """Until it is committed a reader of tables sees what was there; then what two jobs wrote, byte
    for byte, marked, and nothing else is left."""
    write(url, "append", FIRST)
    job = started(url)
    assert data(url) == FIRST
    report = job.commit(expect=2)
    assert (report.outcome, report.files) == ("committed", len(SECOND))
    assert data(url) == {**FIRST, **SECOND}
    assert is_marked(url)
    assert left_of(url) == []


def test_a_job_of_mode_fail_wants_no_data(url: str) -> None:
    """The first one writes; the second one is refused, and changes nothing."""
    write(url, "fail", FIRST)
    with pytest.raises(mc.DestinationExists):
        write(url, "fail", SECOND)
    assert data(url) == FIRST
    assert left_of(url) == []


@pytest.mark.parametrize("mode", ["replace", "overwrite"])
def test_a_job_replaces_where_files_can_be_told_apart(url: str, tree: FileTree, mode: Mode) -> None:
    """The old files go with the new ones' coming. Where times are whole seconds the job is refused
    before it has written anything."""
    write(url, "append", FIRST)
    if tree.promises.tells_apart:
        write(url, mode, SECOND)
        assert data(url) == SECOND
    else:
        with pytest.raises(mc.OptionError, match="whole seconds"):
            write(url, mode, SECOND)
        assert data(url) == FIRST
    assert left_of(url) == []


def test_a_given_id_is_used_once(url: str) -> None:
    """The claim of an id is exclusive here, too."""
    job = started(url, "night-1")
    with pytest.raises(mc.JobExists):
        mc.start(url, job_id="night-1")
    mc.attach(url, "night-1").commit(expect=2)
    assert data(url) == SECOND
    with pytest.raises((mc.JobExists, mc.JobNotRunning)):
        mc.start(url, job_id="night-1")
    assert job.id == "night-1"
