"""``job …`` and ``cleanup`` on ``file://``: the same columns, questions, documents and exit codes
as on S3. Each way out that is told can be pasted. No store is asked: there is none."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer._pool import ThreadPool
from magic_committer._runtime import Runtime, SystemClock
from magic_committer.cli import exits
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.hadoop.paths import Destination, is_hidden
from magic_committer.options import Options
from magic_committer.protocol.record import TaskCommit
from magic_committer.stores.tree import TreeStore
from magic_committer.testing import memory_store
from magic_committer.upload import BlockSource
from tests.cli.conftest import Command, pasted
from tests.tree_jobs import Killed, Watched, die

DAY = 86_400.0


class Disk:
    """A destination on this machine's disk, and jobs whose process died there."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._patch, self._later = patch, 0.0
        self.url = f"{root.as_uri()}/"

    def job(self, state: str = "running", job_id: str | None = None) -> mc.Job:
        """A job with two tasks, whose driver died when its record said so."""
        job = mc.start(self.url, job_id=job_id)
        results = [write(job, str(n), {f"{n}.csv": b"x" * n}) for n in (1, 2)]
        if state == "committing":
            bucket = Destination.parse(self.url).bucket
            watched: Any = Watched(
                TreeStore(self.root, bucket),
                before=die,
                on=lambda v, path: v == "complete_upload" and path.endswith("2.csv"),
            )
            inner, runtime = job._committer().job, Runtime(watched, ThreadPool(0))
            with pytest.raises(Killed):
                ManifestCommitter(runtime, inner, Options(), BlockSource()).commit_job(results)
        assert self.state(job) == state
        return job

    def state(self, job: mc.Job) -> str:
        """What the job's record says now."""
        return str(mc.attach(self.url, job.id).state)

    def data(self) -> dict[str, bytes]:
        """What a reader finds."""
        paths = (path for path in self.root.rglob("*") if path.is_file())
        named = {path.relative_to(self.root).as_posix(): path for path in paths}
        return {name: path.read_bytes() for name, path in named.items() if not is_hidden(name)}

    def touch(self, job: mc.Job) -> None:
        """Something of the job changes now."""
        now, sign = time.time() + self._later, self.root / f"__magic_job-{job.id}" / "sign"
        sign.touch()
        os.utime(sign, (now, now))

    def below(self, name: str) -> Disk:
        """A destination below this one."""
        return Disk(self.root / name, self._patch)

    def everything(self) -> dict[str, bytes]:
        """All files."""
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in paths}

    def later(self, seconds: float) -> None:
        """Go on so many seconds later. (A file whose times are changed would be another file.)"""
        self._later += seconds
        ahead = self._later
        self._patch.setattr(SystemClock, "now", lambda _: time.time() + ahead)


def write(job: mc.Job, task_id: str, files: dict[str, bytes]) -> TaskCommit:
    """A committed task."""
    with job.task(task_id) as task:
        for name, data in files.items():
            with task.open(name) as file:
                file.write(data)
    return task.result


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A destination in a directory whose name has to be quoted in a URL and in a shell."""
    return Disk(tmp_path / "a b" / "t", monkeypatch)


# Looking ------------------------------------------------------------------------------------------


def test_a_job_is_listed_and_shown(disk: Disk, command: Command) -> None:
    """State, age, files, what a recovery would do, and a file that somebody removed; nothing
    changes. It is unresolved, and may be accepted by pasting."""
    job = disk.job("committing", "mine")
    (disk.root / "1.csv").unlink()
    before = disk.everything()
    listed = command("job", "list", disk.url, "--json")
    (row,) = listed.json()["rows"]
    (found,) = mc.inspect(disk.url)
    assert (listed.code, row["id"], row["kind"], row["state"]) == (0, "mine", "ours", "committing")
    assert row["would"] == found.would
    shown = command("job", "show", disk.url, "mine", "--json").json()
    assert (shown["type"], shown["dest"], shown["missing_keys"]) == ("job", disk.url, ["1.csv"])
    told = command("job", "show", disk.url, job.id)
    assert (told.code, told.err) == (0, "")
    assert re.search(rf"^dest +{re.escape(disk.url)}$", told.out, re.MULTILINE)
    assert disk.everything() == before
    stuck = command("job", "recover", disk.url, "mine", "--yes", "--json")
    assert (stuck.code, stuck.json()["unresolved"]) == (exits.BAD_STATE, ["1.csv"])
    (accepting,) = [words for words in pasted(stuck.err) if "--accept" in words]
    assert command(*accepting, "--yes").code == exits.OK
    assert disk.data() == {"2.csv": b"xx"}
    assert disk.state(job) == "closed"


def test_several_paths_and_those_below_them(disk: Disk, command: Command, tmp_path: Path) -> None:
    """Jobs of several destinations of either kind in one list; `--recursive` finds those below, and
    says what it has not looked at."""
    deeper = disk.below("days/new one")
    disk.job("running", "upper")
    deeper.job("committing", "lower")
    only = command("job", "list", disk.url, "--json").json()
    assert [row["id"] for row in only["rows"]] == ["upper"]
    both = command("job", "list", disk.url, "--recursive", "--json").json()
    assert {(row["id"], row["dest"]) for row in both["rows"]} == {
        ("upper", disk.url),
        ("lower", deeper.url),
    }
    above = f"{tmp_path.as_uri()}/"
    nothing = command("job", "list", above)
    assert f"only {above} itself was looked at" in nothing.err
    with memory_store("bucket"):
        mc.start("s3://bucket/t", job_id="on-s3")
        mixed = command("job", "list", disk.url, "s3://bucket/t", "--json").json()
    assert [row["id"] for row in mixed["rows"]] == ["upper", "on-s3"]


# Ending -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["commit", "abort", "recover"])
@pytest.mark.parametrize("state", ["running", "committing"])
def test_each_command_ends_a_job(disk: Disk, command: Command, state: str, verb: str) -> None:
    """`--dry-run` changes nothing; without a yes nothing is done; with it the job ends as its
    record says, and nothing of it is left. (All states: test_jobs.py.)"""
    job = disk.job(state, "mine")
    disk.later(2 * DAY)
    before = disk.everything()
    asking = ("job", verb, disk.url, "mine")
    dry, asked = command(*asking, "--dry-run", "--json"), command(*asking)
    assert disk.everything() == before
    done = command(*asking, "--yes", "--json")
    if (state, verb) == ("committing", "abort"):
        assert dry.code == asked.code == done.code == exits.BAD_STATE
        assert disk.everything() == before
        assert pasted(done.err)
        return
    assert (dry.code, asked.code, done.code) == (exits.OK, exits.USAGE, exits.OK)
    committed = verb == "commit" or state == "committing"
    assert done.json()["outcome"] == ("committed" if committed else "aborted")
    assert disk.data() == ({"1.csv": b"x", "2.csv": b"xx"} if committed else {})
    assert disk.state(job) == "closed"
    again = command("job", "recover", disk.url, "mine", "--yes")
    assert again.code in (exits.OK, exits.NOT_FOUND)


def test_the_questions_are_exact(disk: Disk, command: Command) -> None:
    """How much a commit makes visible, an abort drops, and how much an undo removes; what it has
    written over is said."""
    disk.job("running", "r")
    told = command("job", "commit", disk.url, "r", "--dry-run", "--json").json()
    assert told["would"] == "Commit job r: make visible 2 files of 2 tasks, 3 B"
    assert (told["tasks"], told["files"], told["bytes"]) == (["1", "2"], 2, 3)
    told = command("job", "abort", disk.url, "r", "--dry-run", "--json").json()
    assert re.fullmatch(
        r"Abort job r, which runs and changed .* ago: 2 files of 2 tasks, 3 B", told["would"]
    )
    disk.job("committing", "c")
    told = command("job", "abort", disk.url, "c", "--revert", "--dry-run", "--json").json()
    assert "delete 1 of its 2 files that are visible" in told["would"]
    assert "does not come back" in told["warning"]
    done = command("job", "abort", disk.url, "c", "--revert", "--yes")
    assert (done.code, disk.data()) == (exits.OK, {})
    assert "does not come back" in done.err


def test_the_marker_is_printed_by_its_url(disk: Disk, command: Command) -> None:
    """`inspect` reads ``file://`` URLs as paths."""
    with mc.write(disk.url) as job, job.open("a.csv") as file:
        file.write(b"x")
    told = command("inspect", f"{disk.url}_SUCCESS", "--json").json()
    assert told["type"] == "success"


# Cleaning up --------------------------------------------------------------------------------------


def test_cleanup_takes_what_is_dead_and_leaves_what_lives(disk: Disk, command: Command) -> None:
    """With --recursive, and a dry run."""
    deeper = disk.below("x")
    disk.job("committing", "decided")
    deeper.job("running", "dead")
    disk.later(2 * DAY)
    alive = disk.job("running", "alive")
    disk.touch(alive)
    before = disk.everything()
    dry = command("cleanup", disk.url, "--recursive", "--dry-run", "--json").json()
    assert disk.everything() == before
    assert [row["jobs_recovered"] for row in dry["rows"]] == [1, 1]
    done = command("cleanup", disk.url, "--recursive", "--json")
    assert done.code == exits.OK
    told = done.json()["summary"]
    assert (told["jobs_recovered"], told["jobs_left"]) == (2, 1)
    assert disk.data() == {"1.csv": b"x", "2.csv": b"xx"}
    assert disk.state(alive) == "running"


# What is not for files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "uploads list {}", "uploads abort {}", "uploads expect {} 0", "report {}", "doctor {}",
        "lifecycle show {}",
    ],
)  # fmt: skip
def test_commands_about_what_s3_alone_has_refuse(disk: Disk, command: Command, words: str) -> None:
    """A sentence, exit code 2, and nothing is done."""
    disk.job("running", "mine")
    before = disk.everything()
    told = command(*(word.format(disk.url) for word in words.split()))
    assert told.code == exits.USAGE
    assert "this command is about what only S3 has" in " ".join(told.err.split())
    assert disk.everything() == before


@pytest.mark.parametrize("verb", ["commit", "abort", "recover"])
def test_no_hadoop_job_is_adopted_on_a_disk(disk: Disk, command: Command, verb: str) -> None:
    """There are no jobs of Hadoop's magic committer there."""
    (disk.root / "__magic_job-hadoops").mkdir(parents=True)
    (disk.root / "__magic_job-hadoops" / "x").touch()
    before = disk.everything()
    told = command("job", verb, disk.url, "hadoops", "--adopt", "--yes", "--dead-after", 0)
    assert told.code == exits.USAGE, told.err
    assert "Hadoop's magic committer" in " ".join(told.err.split())
    assert disk.everything() == before


@pytest.mark.parametrize("scheme", ["abfs", "smb"])
def test_a_file_system_that_cannot_decide_is_refused(command: Command, scheme: str) -> None:
    """With the reason, before anything is done."""
    told = command("job", "list", f"{scheme}://host/x")
    assert told.code == exits.USAGE
    assert "cannot be committed to by renames" in " ".join(told.err.split())


@pytest.mark.parametrize("path", ["file://host/x", "file:///", "file:///a/../b"])
def test_a_url_of_no_directory_is_refused(command: Command, path: str) -> None:
    """Exit code 2, with how to write it."""
    told = command("job", "list", path)
    assert told.code == exits.USAGE
