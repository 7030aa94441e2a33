"""Jobs on a directory of this machine by the public calls: of uploads, and of files that wait."""

from __future__ import annotations

import errno
import os
import pickle
from contextlib import suppress
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.file_trees.disk import LocalTree
from magic_committer.testing import PatientClock
from tests.tree_store import Calls, before, check, lay_out, recover, run_job, served


@pytest.fixture(params=["magic", "manifest"])
def committer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dest(tmp_path: Path) -> str:
    return (tmp_path / "a table").as_uri()


def _files(root: Path) -> set[str]:
    here = root / "a table"
    found = (p.relative_to(here) for p in here.rglob("*") if p.is_file())
    return {str(p) for p in found if not any(e.startswith(("__m", "_t")) for e in p.parts)}


def _start(dest: str, committer: str, name: str = "a.csv", **terms: object) -> mc.Job:
    """A job with a committed task of one file."""
    job = mc.start(dest, committer=committer, **terms)  # type: ignore[arg-type]
    with job.task("1") as task, task.open(name, "w") as file:
        file.write("new")
    return job


def test_a_block_publishes_its_files_and_leaves_nothing(
    dest: str, committer: str, tmp_path: Path
) -> None:
    """`write` publishes all files at once, and nothing of the job stays."""
    with mc.write(dest, committer=committer) as job:
        with job.open("dt=1/a.csv", "w") as file:
            file.write("1")
        with job.filesystem().open("b.csv", "wb") as raw:
            raw.write(b"2")
        assert _files(tmp_path) == set()
    assert _files(tmp_path) == {"dt=1/a.csv", "b.csv", "_SUCCESS"}
    assert not list((tmp_path / "a table").glob("_[_t]*"))


def test_an_exception_leaves_nothing(dest: str, committer: str, tmp_path: Path) -> None:
    """What is written in a block that fails is gone."""
    with pytest.raises(ZeroDivisionError), mc.write(dest, committer=committer) as job:
        with job.open("a.csv", "w") as file:
            file.write("1")
        _ = 1 / 0
    assert not any((tmp_path / "a table").glob("**/*"))


def test_another_process_commits_by_the_job_s_id(dest: str, committer: str, tmp_path: Path) -> None:
    """A job that was started elsewhere is attached, and committed."""
    _start(dest, committer, job_id="nightly", mode="append")
    assert mc.attach(dest, "nightly").commit().files == 1
    assert _files(tmp_path) == {"a.csv", "_SUCCESS"}


def test_a_job_travels_to_its_workers(dest: str, committer: str, tmp_path: Path) -> None:
    """A job pickles, and its result comes back."""
    job = mc.start(dest, committer=committer)
    there = pickle.loads(pickle.dumps(job))
    with there.task("1") as task, task.open("a.csv", "w") as file:
        file.write("1")
    job.commit([task.result])
    assert _files(tmp_path) == {"a.csv", "_SUCCESS"}


def test_a_dead_job_is_seen_and_ended(dest: str, committer: str, tmp_path: Path) -> None:
    """`inspect` shows a job whose driver died, and `recover` aborts it."""
    job = _start(dest, committer, job_id="dead")
    assert [(one.id, one.kind, one.files) for one in mc.inspect(dest)] == [("dead", "ours", 1)]
    assert mc.recover(dest, job.id, dead_after=0).outcome == "aborted"
    assert _files(tmp_path) == set()


def test_abort_and_cleanup_end_jobs(dest: str, committer: str, tmp_path: Path) -> None:
    """`abort` undoes one job, `cleanup` all that are dead."""
    assert mc.abort(dest, _start(dest, committer, job_id="one").id).outcome == "aborted"
    _start(dest, committer, "b.csv", job_id="two")
    report = mc.cleanup(dest, dead_after=0)
    assert [one.job_id for one in report.recovered] == ["two"]
    assert _files(tmp_path) == set()


def test_replace_deletes_what_jobs_below_have_published(
    dest: str, committer: str, tmp_path: Path
) -> None:
    """A job of mode ``replace`` meets the data of a destination below its own."""
    _start(f"{dest}/p=1", committer).commit()
    with mc.write(dest, mode="replace", committer=committer) as job, job.open("z.csv", "w") as file:
        file.write("1")
    assert _files(tmp_path) == {"z.csv", "_SUCCESS", "p=1/_SUCCESS"}


def test_replace_waits_for_no_decided_append_below(
    dest: str, committer: str, tmp_path: Path
) -> None:
    """What a decided append in a directory below is publishing is kept."""
    below = _start(f"{dest}/p=1", committer, "late.csv", job_id="below")
    other = _start(f"{dest}/p=1", committer, "old.csv")
    other.commit()
    record = mc.attach(f"{dest}/p=1", below.id)
    with mc.write(dest, mode="replace", committer=committer) as job, job.open("z.csv", "w") as file:
        file.write("1")
    record.commit()
    assert _files(tmp_path) == {"z.csv", "_SUCCESS", "p=1/_SUCCESS", "p=1/late.csv"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_fails_from_any_call_on_shows_nothing_half(
    committer: str, code: int, tmp_path: Path
) -> None:
    """It is full, or takes no more writes of this user: the error is the library's own, a job that
    is told as committed is there, and a recovery when the disk works leaves all or nothing."""

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    at, failed = 1, True
    while failed:
        at += 3  # every third one, for time
        root, told = tmp_path / str(at), False
        lay_out(root, before("replace"))
        with (
            served(root, PatientClock()),
            suppress(mc.MagicError),
            Calls(at, fail, syncs=False).watched() as calls,
        ):
            run_job(root, "replace", committer)
            told = True
        with served(root):
            recover(root)
        assert check(root, "replace") or not told
        failed = len(calls.names) >= at
    assert at > 50


def test_a_mount_in_a_file_s_way_is_refused_before_the_decision(
    dest: str, committer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody mounts another file system inside the destination while the job runs: nothing could
    be renamed into it. The job is aborted, and none of its files is visible."""
    job = mc.start(dest, committer=committer)
    with job.task("1") as task:
        for name in ("a.csv", "p=1/b.csv"):
            with task.open(name, "w") as file:
                file.write("1")
    (tmp_path / "a table/p=1").mkdir(exist_ok=True)
    mount_of = LocalTree.mount_of

    def mounted(tree: LocalTree, path: str) -> str:
        return "another" if path == "p=1" else mount_of(tree, path)

    monkeypatch.setattr(LocalTree, "mount_of", mounted)
    with pytest.raises(mc.MagicError, match="is mounted from elsewhere"):
        job.commit()
    assert _files(tmp_path) == set()
    assert job.state == "closed" or job.abort()
