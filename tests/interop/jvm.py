"""Real Hadoop in a JVM of its own, driven by py4j as an engine drives it: job, tasks, attempts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.interop import jars
from tests.real_servers.kinds import s3a
from tools import java


class Jvm:
    """A JVM with one release of Hadoop. ``release``: of Hadoop. url: of the store, as the JVM
    reaches it."""

    def __init__(self, release: str, url: str, folder: Path) -> None:
        self.release = release
        self.url = url
        self._folder = folder
        with (folder / "log").open("wb") as log:
            port, token, self.process = launch_gateway(
                jarpath=next(map(str, jars.PYSPARKS.glob("py4j-*.jar"))),
                classpath=os.pathsep.join(jars.class_path(release)),
                javaopts=[*java.SMALL, f"-Djava.io.tmpdir={folder}"],
                java_path=str(java.find().home / "bin" / "java"), die_on_exit=True,
                redirect_stdout=log, redirect_stderr=log, enable_auth=True, return_proc=True,
            )  # fmt: skip
        parameters = GatewayParameters(port=port, auth_token=token)
        self.gateway = JavaGateway(gateway_parameters=parameters)
        self.classes = self.gateway.jvm.org.apache.hadoop

    def configuration(self, more: Mapping[str, object]) -> Any:
        """Hadoop's configuration: the way to the store, the magic committer, and ``more``."""
        settings: dict[str, object] = {
            **s3a(self.url), "fs.s3a.buffer.dir": self._folder / "buffer",
            "hadoop.tmp.dir": self._folder, **more,
        }  # fmt: skip
        configuration = self.classes.conf.Configuration()
        for name, value in settings.items():
            configuration.set(name, str(value))
        return configuration

    def job_context(self, configuration: Any) -> Any:
        """The context of the one job that each of ours is."""
        mapreduce = self.classes.mapreduce
        return mapreduce.task.JobContextImpl(configuration, mapreduce.JobID("202601010000", 1))

    def attempt(self, configuration: Any, task: int, attempt: int) -> Any:
        """The context of an attempt of a task of it."""
        mapreduce = self.classes.mapreduce
        job_id = self.job_context(configuration).getJobID()
        task_id = mapreduce.TaskID(job_id, mapreduce.TaskType.MAP, task)
        named = mapreduce.TaskAttemptID(task_id, attempt)
        return mapreduce.task.TaskAttemptContextImpl(configuration, named)

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.gateway.close()


@contextmanager
def running(release: str, url: str) -> Iterator[Jvm]:
    """Run a JVM with a release of Hadoop. Raises NoServer, NoJava: it cannot be had here."""
    with tempfile.TemporaryDirectory() as folder:
        jvm = Jvm(release, url, Path(folder))
        try:
            yield jvm
        finally:
            jvm.kill()


class HadoopsJob:
    """One job of Hadoop's magic committer. ``id``: its UUID. dest: bucket and path, without a
    scheme. ``files``: key in the bucket and content of what its committed tasks wrote."""

    def __init__(self, jvm: Jvm, dest: str, job_id: str, **more: object) -> None:
        self.jvm = jvm
        self.id = job_id
        self.dest = dest
        self.files: dict[str, bytes] = {}
        self._conf = jvm.configuration(
            {"fs.s3a.committer.uuid": job_id, **{n.replace("_", "."): v for n, v in more.items()}}
        )
        self._context = jvm.job_context(self._conf)
        self._path = jvm.classes.fs.Path(f"s3a://{dest}")
        self.fs = self._path.getFileSystem(self._conf)
        self._committer = self.committer(self.jvm.attempt(self._conf, 0, 0))

    def committer(self, attempt: Any) -> Any:
        """A `MagicS3GuardCommitter`."""
        magic = self.jvm.classes.fs.s3a.commit.magic.MagicS3GuardCommitter
        return magic(self._path, attempt)

    def setup(self) -> HadoopsJob:
        self._committer.setupJob(self._context)
        return self

    def task(self, number: int, files: Mapping[str, bytes], attempt: int = 0) -> HadoopsTask:
        """Set an attempt of a task up, and write its files."""
        task = HadoopsTask(self, self.jvm.attempt(self._conf, number, attempt))
        for name, content in files.items():
            task.write(name, content)
        return task

    def tasks(self, many: int, each: int = 2, commit: bool = True) -> HadoopsJob:
        """Write tasks, and commit them."""
        for number in range(many):
            task = self.task(number, contents(number, each))
            if commit:
                task.commit()
        return self

    def commit(self) -> None:
        self._committer.commitJob(self._context)

    def abort(self) -> None:
        state = self.jvm.classes.mapreduce.JobStatus.State.FAILED
        self._committer.abortJob(self._context, state)


class HadoopsTask:
    """An attempt of a task. ``work``: the path that it writes to, below a magic element."""

    def __init__(self, job: HadoopsJob, context: Any) -> None:
        self._job = job
        self._context = context
        self._committer = job.committer(context)
        self._committer.setupTask(context)
        self.work: str = self._committer.getWorkPath().toString()
        self.files: dict[str, bytes] = {}

    def write(self, name: str, content: bytes) -> None:
        """Write a file to its end."""
        path = self._job.jvm.classes.fs.Path(f"{self.work}/{name}")
        out = self._job.fs.create(path)
        out.write(bytearray(content))
        out.close()
        self.wrote(name, content)

    def wrote(self, name: str, content: bytes) -> None:
        """Note that somebody has written a file of it."""
        _, _, prefix = self._job.dest.partition("/")
        self.files[f"{prefix}/{name}"] = content

    def commit(self) -> None:
        assert self._committer.needsTaskCommit(self._context)
        self._committer.commitTask(self._context)
        self._job.files.update(self.files)


def contents(task: int, each: int) -> dict[str, bytes]:
    """Names and contents of a task's files."""
    return {f"p={n}/{task}-{n}.csv": b"%d,%d\n" % (task, n) * 9 for n in range(each)}
