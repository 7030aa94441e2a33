"""``job …`` and ``cleanup`` on ``file://``: the same columns, questions, documents and exit codes
as on S3. Each way out that is told can be pasted. No store is asked: there is none."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable
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
from tests.cli.conftest import Command
from tests.tree_jobs import Killed, Watched, die

DAY, HOUR = 86_400.0, 3600.0
STATES = ("running", "committing", "completed", "reverting", "aborting")


class Disk:
    """A destination on this machine's disk, and jobs whose process died there."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._patch, self._later = patch, 0.0
        self.url = f"{root.as_uri()}/"

    def watched(self, job: mc.Job, on: Callable[[str, str], bool]) -> ManifestCommitter:
        """The job in a process that dies before the first verb and path for which it holds."""
        bucket = Destination.parse(self.url).bucket
        watched: Any = Watched(TreeStore(self.root, bucket), before=die, on=on)
        runtime = Runtime(watched, ThreadPool(0))
        return ManifestCommitter(runtime, job._committer().job, Options(), BlockSource())

    def job(self, state: str = "running", job_id: str | None = None) -> mc.Job:
        """A job with two tasks, whose driver died when its record said so."""
        job = mc.start(self.url, job_id=job_id)
        results = [write(job, str(n), {f"{n}.csv": b"x" * n}) for n in (1, 2)]
        if state == "running":
            return job
        paths = {
            "committing": ("complete_upload", "2.csv"),
            "completed": ("clear", ""),
            "reverting": ("complete_upload", "2.csv"),
            "aborting": ("clear", ""),
        }
        verb, end = paths[state]
        died = self.watched(job, lambda v, path: v == verb and path.endswith(end))
        with pytest.raises(Killed):
            if state == "aborting":
                died.abort_job()
            else:
                died.commit_job(results)
        if state == "reverting":
            died = self.watched(job, lambda v, path: v in ("delete_one", "abort_upload"))
            with pytest.raises(Killed):
                died.abort_job(revert=True)
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


def pasted(told: str) -> list[list[str]]:
    """The arguments of each command that a text has in backticks."""
    calls = [shlex.split(call) for call in re.findall("`(.*?)`", told)]
    return [words[1:] for words in calls if words[0] == "magic-committer"]


# Looking ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_a_job_in_each_state_is_listed_and_shown(disk: Disk, command: Command, state: str) -> None:
    """State, age, files, what a recovery would do; nothing changes."""
    job = disk.job(state, "mine")
    before = disk.everything()
    listed = command("job", "list", disk.url, "--json")
    (row,) = listed.json()["rows"]
    (found,) = mc.inspect(disk.url)
    assert (listed.code, row["id"], row["kind"], row["state"]) == (0, "mine", "ours", state)
    assert row["would"] == found.would
    shown = command("job", "show", disk.url, "mine", "--json").json()
    assert (shown["type"], shown["state"], shown["dest"]) == ("job", state, disk.url)
    told = command("job", "show", disk.url, job.id)
    assert (told.code, told.err) == (0, "")
    assert re.search(rf"^state +{state}$", told.out, re.MULTILINE)
    assert re.search(rf"^dest +{re.escape(disk.url)}$", told.out, re.MULTILINE)
    assert disk.everything() == before


def test_a_file_that_somebody_removed_is_unresolved(disk: Disk, command: Command) -> None:
    """It is named, and may be accepted."""
    job = disk.job("committing", "mine")
    (disk.root / "1.csv").unlink()
    shown = command("job", "show", disk.url, "mine", "--json").json()
    assert shown["missing_keys"] == ["1.csv"]
    stuck = command("job", "recover", disk.url, "mine", "--yes", "--json")
    assert stuck.code == exits.BAD_STATE
    assert stuck.json()["unresolved"] == ["1.csv"]
    calls = pasted(stuck.err)
    (accepting,) = [words for words in calls if "--accept" in words]
    assert command(*accepting, "--yes").code == exits.OK
    assert disk.data() == {"2.csv": b"xx"}
    assert disk.state(job) == "closed"


def test_files_of_a_job_that_takes_results_are_counted(disk: Disk, command: Command) -> None:
    """As of a Spark job whose driver died: its tasks told it in messages what they wrote."""
    job = mc.start(disk.url, job_id="spark", accept="results")
    write(job, "0", {"a.csv": b"abc"})
    (row,) = command("job", "list", disk.url, "--json").json()["rows"]
    assert (row["tasks"], row["files"], row["bytes"]) == (1, 1, 3)
    refused = command("job", "commit", disk.url, "spark", "--yes")
    assert refused.code == exits.BAD_STATE
    assert "by its driver only" in refused.err
    assert "1 file of 1 task, 3 B" in command("job", "abort", disk.url, "spark", "--dry-run").out


@pytest.mark.parametrize("verb", ["show", "commit", "abort", "recover"])
def test_an_id_that_is_not_there_is_told_with_those_that_are(
    disk: Disk, command: Command, verb: str
) -> None:
    """Exit code 44."""
    disk.job("running", "mine")
    told = command("job", verb, disk.url, "min")
    assert told.code == exits.NOT_FOUND
    assert "There are: mine" in told.err


def test_a_record_that_cannot_be_read_is_told_and_given_up(disk: Disk, command: Command) -> None:
    """`job list` says so; only `--force` ends the job, when it is old enough."""
    job = disk.job("running", "mine")
    record = next(disk.root.glob("__magic_job-mine/_job.json"))
    record.write_text("{}")
    (row,) = command("job", "list", disk.url, "--json").json()["rows"]
    assert (row["kind"], row["id"]) == ("unreadable", job.id)
    assert command("job", "show", disk.url, job.id).code == exits.OK
    young = command("job", "abort", disk.url, job.id, "--force", "--yes")
    assert young.code == exits.BAD_STATE
    disk.later(2 * HOUR)
    before = disk.everything()
    dry = command("job", "abort", disk.url, job.id, "--force", "--dry-run", "--json").json()
    assert (dry["type"], dry["found"], dry["dry_run"]) == ("job.dry_run", "unreadable", True)
    assert disk.everything() == before
    done = command("job", "abort", disk.url, job.id, "--force", "--yes")
    assert done.code == exits.OK
    assert "Its record cannot be read" in done.err
    assert list(disk.root.glob("__magic_job-mine/*")) == []


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
@pytest.mark.parametrize("state", STATES)
def test_each_command_on_a_job_in_each_state(
    disk: Disk, command: Command, state: str, verb: str
) -> None:
    """`--dry-run` changes nothing; without a yes nothing is done; with it the job ends as its
    record says, and nothing of it is left."""
    job = disk.job(state, "mine")
    disk.later(2 * DAY)
    before = disk.everything()
    dry = command("job", verb, disk.url, "mine", "--dry-run", "--json")
    assert disk.everything() == before
    asked = command("job", verb, disk.url, "mine")
    assert disk.everything() == before
    done = command("job", verb, disk.url, "mine", "--yes", "--json")
    undone = state in ("reverting", "aborting")
    if (verb == "commit" and undone) or (verb == "abort" and state in ("committing", "completed")):
        assert dry.code == asked.code == done.code == exits.BAD_STATE
        assert disk.everything() == before
        assert "visible" in done.err or pasted(done.err)
        return
    assert dry.code == exits.OK
    assert asked.code == exits.USAGE
    assert done.code == exits.OK
    committed = verb == "commit" or (verb == "recover" and state in ("committing", "completed"))
    assert done.json()["outcome"] == (
        "committed" if committed else "reverted" if state == "reverting" else "aborted"
    )
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


def test_a_job_that_may_be_alive_is_left(disk: Disk, command: Command) -> None:
    """The error names the command for who knows better; it can be pasted."""
    disk.job("running", "mine")
    young = command("job", "recover", disk.url, "mine", "--yes")
    assert young.code == exits.BAD_STATE
    (call,) = pasted(young.err)
    assert command(*call, "--yes").code == exits.OK
    assert disk.data() == {}


def test_a_commit_checks_tasks_and_files_first(disk: Disk, command: Command) -> None:
    """Too few tasks, a file that was changed: told, and nothing decided; a job without a task only
    where that is said."""
    job = disk.job("running", "mine")
    few = command("job", "commit", disk.url, "mine", "--expect", 3, "--yes")
    assert few.code == exits.BAD_STATE
    assert disk.state(job) == "running"
    waits = next(disk.root.glob("_temporary/manifest_*/00/tasks/*/1.csv"))
    waits.write_bytes(b"other")
    changed = command("job", "commit", disk.url, "mine", "--yes")
    assert changed.code == exits.BAD_STATE
    assert "is not open any more" in changed.err
    assert disk.state(job) == "running"
    mc.start(disk.url, job_id="empty")
    none = command("job", "commit", disk.url, "empty", "--yes")
    assert none.code == exits.BAD_STATE
    (call,) = [words for words in pasted(none.err) if words[1] == "commit"]
    assert command(*call, "--yes").code == exits.OK


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


def test_a_destination_that_fails_does_not_stop_the_next(
    disk: Disk, command: Command, tmp_path: Path
) -> None:
    """A file where a directory should be: told, and the next one is cleaned."""
    disk.job("running", "dead")
    disk.later(2 * DAY)
    (tmp_path / "file").write_text("")
    wrong = (tmp_path / "file" / "below").as_uri()
    done = command("cleanup", wrong, disk.url, "--json").json()
    assert [row["dest"] for row in done["rows"]] == [f"{wrong}/", disk.url]
    assert done["rows"][1]["jobs_recovered"] == 1


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
