"""``job …`` and ``cleanup`` by ``file://`` URLs: what is told of a job can be pasted. No store is
asked: there is none. (Each command on a job in each state: test_jobs.py.)"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.hadoop.paths import Destination, is_hidden
from magic_committer.options import Options
from magic_committer.runtime.components import Runtime, SystemClock
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.tree import TreeStore
from magic_committer.testing import memory_store
from magic_committer.upload import BlockSource
from tests.cli.conftest import Command, pasted
from tests.promises.hands import committed_task
from tests.tree_jobs import Killed, Watched, die


class Disk:
    """A destination on this machine's disk, and jobs whose process died there."""

    def __init__(self, root: Path) -> None:
        self.root, self.url = root, f"{root.as_uri()}/"

    def job(self, state: str = "running", job_id: str | None = None) -> mc.Job:
        """A job with two tasks, whose driver died when its record said so."""
        job = mc.start(self.url, job_id=job_id)
        results = [committed_task(job, str(n), {f"{n}.csv": b"x" * n}) for n in (1, 2)]
        if state == "committing":
            bucket = Destination.parse(self.url).bucket
            watched: Any = Watched(
                TreeStore(self.root, bucket),
                before=die,
                on=lambda v, path: v == "complete_upload" and path.endswith("2.csv"),
            )
            inner, runtime = job._committer().job, Runtime(watched, ThreadPool(0))
            with pytest.raises(Killed):
                ManifestCommitter(runtime, inner, Options(), BlockSource()).driver().commit(results)
        assert mc.attach(self.url, job.id).state == state
        return job

    def everything(self) -> dict[str, bytes]:
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in paths}

    def data(self) -> dict[str, bytes]:
        return {name: body for name, body in self.everything().items() if not is_hidden(name)}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """A destination in a directory whose name has to be quoted in a URL and in a shell."""
    return Disk(tmp_path / "a b" / "t")


def test_a_job_is_listed_and_shown(disk: Disk, command: Command) -> None:
    """Nothing changes, and what is unresolved may be accepted by pasting."""
    job = disk.job("committing", "mine")
    (disk.root / "1.csv").unlink()
    before = disk.everything()
    listed = command("job", "list", disk.url, "--json")
    (row,), (found,) = listed.json()["rows"], mc.inspect(disk.url)
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
    assert mc.attach(disk.url, job.id).state == "closed"
    marker = command("inspect", f"{disk.url}_SUCCESS", "--json").json()
    assert marker["type"] == "success"


def test_several_paths_and_those_below_them(
    disk: Disk, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of either kind in one list; what was not looked at is said; a cleanup ends them."""
    deeper = Disk(disk.root / "days" / "new one")
    disk.job("running", "upper")
    deeper.job("committing", "lower")

    def listed(*words: str) -> list[tuple[str, str]]:
        rows = command("job", "list", disk.url, *words, "--json").json()["rows"]
        return [(row["id"], row["dest"]) for row in rows]

    assert listed() == [("upper", disk.url)]
    assert set(listed("--recursive")) == {("upper", disk.url), ("lower", deeper.url)}
    above = f"{tmp_path.as_uri()}/"
    assert f"only {above} itself was looked at" in command("job", "list", above).err
    with memory_store("bucket"):
        mc.start("s3://bucket/t", job_id="on-s3")
        assert [name for name, _ in listed("s3://bucket/t")] == ["upper", "on-s3"]
    before = disk.everything()
    monkeypatch.setattr(SystemClock, "now", lambda _: time.time() + 2 * 86_400)
    clean = ("cleanup", disk.url, "--recursive", "--json")
    dry = command(*clean, "--dry-run").json()
    assert disk.everything() == before
    done = command(*clean)
    for rows in (dry["rows"], done.json()["rows"]):
        assert [row["jobs_recovered"] for row in rows] == [1, 1]
    files = {f"days/new one/{n}.csv": b"x" * n for n in (1, 2)}
    assert (done.code, disk.data()) == (exits.OK, files)


@pytest.mark.parametrize(
    "words",
    [
        "uploads list {}", "uploads abort {}", "uploads expect {} 0", "report {}", "doctor {}",
        "lifecycle show {}",
        "job commit {} h --adopt --yes --dead-after 0", "job abort {} h --adopt --yes",
        "job recover {} h --adopt --yes --dead-after 0",
    ],
)  # fmt: skip
def test_commands_about_what_s3_alone_has_refuse(disk: Disk, command: Command, words: str) -> None:
    """A sentence, exit code 2, and nothing is done."""
    disk.job("running", "mine")
    (disk.root / "__magic_job-h").mkdir(parents=True)
    (disk.root / "__magic_job-h" / "x").touch()
    before = disk.everything()
    told = command(*(word.format(disk.url) for word in words.split()))
    says = "Hadoop's magic committer" if "--adopt" in words else "is about what only S3 has"
    assert (told.code, says in " ".join(told.err.split())) == (exits.USAGE, True)
    assert disk.everything() == before


@pytest.mark.parametrize("words", ["cleanup --dry-run", "cleanup", "job list", "report"])
def test_a_look_at_a_path_makes_no_directory(tmp_path: Path, command: Command, words: str) -> None:
    """A misspelt path is as it was: nothing is asked of a file system by trying it."""
    command(*words.split(), (tmp_path / "typo").as_uri())
    assert list(tmp_path.iterdir()) == []
