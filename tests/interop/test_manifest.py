"""Real Hadoop's Manifest Committer and ours in one job on a local disk: each reads what the other's
tasks left, and the bytes are at their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from tests.interop.jvm import Jvm

pytestmark = pytest.mark.parametrize("hadoop", ["3.5.0"], indirect=True)
FILES = {"dt=1/a b.csv": b"1", "dt=2/ü%25.csv": b"22", "c.csv": b"333"}


class ManifestJob:
    """One job of Hadoop's `ManifestCommitter`. ``jvm``: where it runs. ``root``: the destination.
    ``name``: what Hadoop calls the job's UUID: the name of its directory below `_temporary`."""

    def __init__(self, jvm: Jvm, root: Path, name: str) -> None:
        self.jvm = jvm
        marks = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}
        self._conf = jvm.configuration({"spark.sql.sources.writeJobUUID": name, **marks})
        self._context = jvm.job_context(self._conf)
        self._path = jvm.classes.fs.Path(root.as_uri())
        self._fs = self._path.getFileSystem(self._conf)
        # Without this its checksum files lie beside each file:
        self._fs.setWriteChecksum(False)

    def _committer(self, task: int) -> tuple[Any, Any]:
        attempt = self.jvm.attempt(self._conf, task, 0)
        package = self.jvm.classes.mapreduce.lib.output.committer.manifest
        return package.ManifestCommitter(self._path, attempt), attempt

    def task(self, number: int, files: dict[str, bytes]) -> None:
        committer, attempt = self._committer(number)
        committer.setupTask(attempt)
        for name, content in files.items():
            path = self.jvm.classes.fs.Path(committer.getWorkPath(), name)
            out = self._fs.create(path)
            out.write(bytearray(content))
            out.close()
        assert committer.needsTaskCommit(attempt)
        committer.commitTask(attempt)

    def commit(self) -> None:
        committer, _ = self._committer(0)
        committer.commitJob(self._context)


def data(root: Path) -> dict[str, bytes]:
    """The files that readers see."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.relative_to(root).as_posix().startswith(("_", "."))
    }


def test_our_driver_publishes_what_hadoops_tasks_committed(hadoop: Jvm, tmp_path: Path) -> None:
    """Hadoop's tasks write into our job's directory; our commit names them in its plan."""
    job = mc.start(tmp_path.as_uri(), accept="listing")
    theirs = ManifestJob(hadoop, tmp_path, f"manifest_{job.uuid}")
    theirs.task(0, FILES)
    theirs.task(1, {"dt=1/second.csv": b"4"})
    report = job.commit(expect=2)
    assert (report.outcome, report.files) == ("committed", 4)
    assert data(tmp_path) == {**FILES, "dt=1/second.csv": b"4"}
    assert not (tmp_path / "_temporary").exists()


def test_hadoops_driver_publishes_what_our_tasks_committed(hadoop: Jvm, tmp_path: Path) -> None:
    """Our tasks' manifests are read and carried out by the real class, beside one of its own."""
    job = mc.start(tmp_path.as_uri(), accept="listing")
    with job.task("1") as task:
        for name, content in FILES.items():
            with task.open(name) as file:
                file.write(content)
    theirs = ManifestJob(hadoop, tmp_path, f"manifest_{job.uuid}")
    theirs.task(7, {"dt=1/second.csv": b"4"})
    theirs.commit()
    assert data(tmp_path) == {**FILES, "dt=1/second.csv": b"4"}
    with pytest.raises(mc.IncompleteJob, match="no task is committed"):
        job.commit()
    job.abort()
