"""Jobs on a real local disk, as users meet them: the example; a directory that is not shared."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

import magic_committer as mc
from examples import local_disk
from magic_committer.stores.trees.disk import LocalTree
from magic_committer.testing import PatientClock
from tests.destinations import OnDisk
from tests.promises.hands import raises, write
from tests.tree_store import Calls, before, check, lay_out, recover, run_job, served


def test_the_example_does_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """examples/local_disk.py: a failure changes nothing, a dead driver's job is found and ended."""
    local_disk.main(str(tmp_path / "a table"))
    written = "dt=2026-11-21/part-0.csv dt=2026-11-22/part-0.csv"
    assert capsys.readouterr().out.splitlines() == [
        f"written: {written}",
        f"after a failure: {written}",
        "found: True running",
        "ended: aborted",
    ]
    left = {path.name for path in (tmp_path / "a table").iterdir()}
    seen = {name for name in left if not name.startswith("__magic")}  # a closed record stays a day
    assert seen == {"dt=2026-11-21", "dt=2026-11-22", "_SUCCESS"}


def test_a_task_whose_machine_does_not_share_the_directory_is_told(tmp_path: Path) -> None:
    """As an executor of a cluster finds it: it writes nothing, and the error names the reason."""
    job = mc.start((tmp_path / "shared").as_uri())
    (tmp_path / "shared").rename(tmp_path / "elsewhere")
    raises(mc.JobNotRunning, job.task("0").open, "a.csv", match="does not share file:///")
    assert not (tmp_path / "shared").exists()


def test_a_look_makes_nothing(tmp_path: Path) -> None:
    """At a destination that is empty or not there; Hadoop's jobs are on S3 only."""
    for dest in (tmp_path.as_uri(), (tmp_path / "none").as_uri()):
        assert mc.read_stream(dest, "query") is None
        assert mc.abort_stream(dest, "checkpoint") == ()
        with pytest.raises(mc.PathError, match="on a file system: there are no jobs of Hadoop's"):
            mc.adopt(dest, "job")
    assert list(tmp_path.iterdir()) == []


COMMITTERS = pytest.mark.parametrize("committer", ["magic", "manifest"])


@COMMITTERS
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_fails_shows_nothing_half(committer: str, code: int, tmp_path: Path) -> None:
    """What is told as committed is there; a recovery when it works leaves all or nothing."""

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


@COMMITTERS
def test_a_mount_in_a_file_s_way_is_refused_before_the_decision(
    committer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could be renamed into it: the job is aborted, and none of its files is visible."""
    there = OnDisk(tmp_path / "a table", committer)
    job = there.start()
    with job.task("1") as task:
        write(task, "a.csv")
        write(task, "p=1/b.csv")
    (there.root / "p=1").mkdir(exist_ok=True)
    mount_of = LocalTree.mount_of

    def mounted(tree: LocalTree, path: str) -> str:
        return "another" if path == "p=1" else mount_of(tree, path)

    monkeypatch.setattr(LocalTree, "mount_of", mounted)
    raises(mc.MagicError, job.commit, match="is mounted from elsewhere")
    assert there.data() == {}
    assert job.state == "closed" or job.abort()
