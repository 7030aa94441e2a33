"""Hadoop's S3A, in a JVM that stays hot: jars by Maven, `s3a/Magic.java` by javac, one line a run.

Its job commits are given jobs that lie on the server already: `PendingSet`s of the smallest form
that Hadoop reads, and uploads that the server was asked to open.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.jobs import FILES_A_TASK
from benchmarks.plan import Failed
from benchmarks.server import cached, compiled
from benchmarks.writers import BUCKET, MiB, ask
from tools import java, maven

HERE = Path(__file__).resolve().parent / "s3a"
JVM_OPTIONS = ("-Xmx1g",)
WARM_UPS = 2
FILE_BYTES = 10 * 1024


class NoHadoop(RuntimeError):
    """It cannot be had here; says why."""


def class_path() -> str:
    """Where Hadoop and our driver of it are; fetches and compiles what is not there yet. Raises
    `NoHadoop`: there is no Maven, or no Java of a development kit."""
    pom, source = HERE / "pom.xml", HERE / "Magic.java"
    jars, classes = cached("jars", [pom]), cached("classes", [pom, source])
    try:
        if not jars.exists():
            maven.fetch(pom, jars)
    except maven.NoJars as error:
        raise NoHadoop(str(error)) from error
    compiler, path = shutil.which("javac"), f"{jars}{os.sep}*"
    if not classes.exists() and compiler is None:
        raise NoHadoop("there is no `javac` on the PATH")
    command = [compiler or "", "-cp", path, str(source), "-d"]
    if said := compiled(classes, lambda to: [*command, to], HERE):
        raise NoHadoop(f"javac refuses {source.name}:\n{said}")
    return os.pathsep.join((str(classes), path))


class Jvm:
    """A running JVM."""

    def __init__(self, url: str, process: subprocess.Popen[str], warm_ups: int) -> None:
        self.url = url
        self._warm_ups = warm_ups
        self._process = process
        self._warm: set[str] = set()

    def run(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """One run, as `benchmarks.child.run` tells of one. The first of each kind comes after
        some that nobody sees."""
        kind = json.dumps([spec["library"], spec["options"]], sort_keys=True)
        if kind not in self._warm:
            few = {**spec, "amount": _few(spec["library"]), "latency_ms": 0}
            for _ in range(self._warm_ups):
                self._run(few)
            self._warm.add(kind)
        return self._run(spec)

    def _run(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        verb, amount = spec["library"], spec["amount"]
        given = {"fs.s3a.endpoint": self.url, **spec["options"]}
        ask(self.url, "reset?verify=0")
        if verb == "stream":
            words = ["stream", f"size={amount}"]
        elif verb == "commit":
            words = ["commit", f"dest=s3a://{BUCKET}/table", f"uuid={self._leave_job(amount)}"]
        else:
            tasks = 4 if verb == "job" else 1
            words = ["job", f"dest=s3a://{BUCKET}/table", f"tasks={tasks}"]
            words += [f"files={amount // tasks}", f"size={FILE_BYTES if tasks == 1 else 1000}"]
        ask(self.url, f"latency?ms={spec['latency_ms']}")
        ask(self.url, "facts?forget=1")
        line = " ".join([*words, *(f"{name}={value}" for name, value in given.items())])
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise NoHadoop(f"the JVM ended at `{line}`")
        told: dict[str, Any] = json.loads(answer)
        if "error" in told:
            raise Failed(f"S3A failed at `{line}`:\n{told['error'][:2000]}")
        return told | {"versions": {"hadoop-aws": "3.5.0"}}

    def _leave_job(self, files: int) -> str:
        """Put a job whose tasks are committed on the server; its UUID."""
        uuid = str(uuid4())
        keys = [f"table/p={n % 16}/part-{n:06d}.bin" for n in range(files)]
        seeded = ask(self.url, "seed?size=1000", "\n".join(keys).encode())
        etags = [{"etag": seeded["etag"], "checksumAlgorithm": None, "checksum": None}]
        commits = [
            {
                "version": 2, "uri": f"s3a://{BUCKET}/{key}", "uploadId": upload, "bucket": BUCKET,
                "destinationKey": key, "jobId": uuid, "etags": etags, "length": 1000,
                "extraData": {},
            }
            for key, upload in zip(keys, seeded["ids"], strict=True)
        ]  # fmt: skip
        for number, first in enumerate(range(0, files, FILES_A_TASK)):
            document = {
                "version": 3,
                "jobId": uuid,
                "commits": commits[first : first + FILES_A_TASK],
            }
            place = f"table/__magic_job-{uuid}/job-{uuid}/00/task_{number:06d}.pendingset"
            self._put(place, json.dumps(document).encode())
        return uuid

    def _put(self, key: str, body: bytes) -> None:
        request = urllib.request.Request(f"{self.url}/{BUCKET}/{key}", data=body, method="PUT")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(request, timeout=60).close()


def _few(verb: str) -> int:
    return {"stream": 128 * MiB, "commit": 2000}.get(verb, 80)


@contextmanager
def running(url: str, warm_ups: int = WARM_UPS) -> Iterator[Jvm]:
    """Run a JVM that writes to a server. It ends with its standard input, which we hold.
    ``warm_ups``: how often a kind of run is made before the first that counts. Raises
    `NoHadoop`."""
    where = class_path()
    try:
        program = java.find().home / "bin" / "java"
    except java.NoJava as error:
        raise NoHadoop(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="magic-committer-bench-") as folder:
        told = [f"-Djava.io.tmpdir={folder}", f"-Dhadoop.tmp.dir={folder}"]
        with open(f"{folder}/errors", "w+b") as errors:
            process = subprocess.Popen(
                [str(program), *JVM_OPTIONS, *told, "-cp", where, "Magic"], cwd=folder,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
            try:
                yield Jvm(url, process, warm_ups)
            except NoHadoop as error:
                errors.seek(0)
                said = errors.read().decode(errors="replace")[-2000:]
                raise NoHadoop(f"{error}\n{said}") from error
            finally:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.close()
                process.stdout.close()
                process.wait()
