"""One run of one contender: from the parent's side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import hadoop
from benchmarks.plan import Contender, Failed, Measurement, Unit
from benchmarks.server import Server
from benchmarks.writers import environment

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv-bench" / "bin" / "python"
MEMORY = "/dev/shm"
"""A disk in memory, where the system has one with room."""
RUN_SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``amount``: of bytes or files. ``cpu_seconds``: of the process and its children.
    ``grown_bytes``: the peak of resident memory above the start; None for the JVM. ``requests``: by
    verb, as the server counted them. ``payload``, ``checksum``: how parts were signed and summed.
    ``versions``: of the packages that ran."""

    contender: str
    amount: int
    seconds: float
    cpu_seconds: float
    grown_bytes: int | None
    requests: Mapping[str, int]
    payload: str = ""
    checksum: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def figure(self, unit: Unit) -> float:
        """The figure of this run."""
        if not unit.cpu:
            return sum(self.requests.values()) / self.amount
        per = self.amount / self.seconds if unit.rate else self.seconds / self.amount
        return per * unit.scale

    def cpu(self, unit: Unit) -> float:
        """CPU seconds for each amount, in the unit's measure."""
        return self.cpu_seconds / self.amount * unit.cpu_scale


class Machine:
    """What runs contenders: the server, the environments, a JVM if one is needed."""

    def __init__(self, server: Server, peers: Path, stack: ExitStack) -> None:
        self.server = server
        self._peers = peers
        self._stack = stack
        self._jvm: hadoop.Jvm | None = None

    def run(
        self, measurement: Measurement, contender: Contender, amount: int, *, verify: bool = False
    ) -> Run:
        """Run a contender once, and check that the server has what it wrote. ``verify``: compare
        CRCs as well as lengths; the figures are then worth nothing. Raises Failed: it failed, or
        bytes are missing or wrong. Raises NoHadoop: there is no JVM to run it."""
        spec = {
            "work": measurement.work, "library": contender.library,
            "options": dict(contender.options), "amount": amount,
            "latency_ms": measurement.latency_ms, "verify": verify, "control": self.server.url,
        }  # fmt: skip
        if contender.home == "jvm":
            if self._jvm is None:
                self._jvm = self._stack.enter_context(hadoop.running(self.server.url))
            told = self._jvm.run(spec)
        else:
            self.server.reset(verify=verify)
            told = self._child(contender, spec, tls=measurement.tls)
        facts = self.server.facts()
        if wrong := _wrong(measurement, amount, told, facts):
            raise Failed(f"{contender.name} {wrong}")
        start = told.get("start_bytes")
        return Run(
            contender=contender.name, amount=amount, seconds=told["seconds"],
            cpu_seconds=told["cpu_seconds"],
            grown_bytes=None if start is None else told["peak_bytes"] - start,
            requests=facts["requests"], payload=facts["payload"], checksum=facts["checksum"],
            versions=told["versions"],
        )  # fmt: skip

    def _child(self, contender: Contender, spec: Mapping[str, Any], *, tls: bool) -> dict[str, Any]:
        python = sys.executable if contender.home == "ours" else str(self._peers)
        url = self.server.https if tls else self.server.url
        authority = self.server.authority if tls else ""
        memory = None
        if spec["work"] == "disk" and os.access(MEMORY, os.W_OK):
            memory = MEMORY if shutil.disk_usage(MEMORY).free > 2**30 else None
        with tempfile.TemporaryDirectory(prefix="magic-committer-bench-", dir=memory) as folder:
            config, spec = f"{folder}/aws-config", {**spec, "folder": folder}
            done = subprocess.run(
                [python, "-m", "benchmarks.child", json.dumps(spec)], cwd=ROOT,
                env=environment(url, config, unsigned=contender.unsigned, authority=authority),
                capture_output=True, text=True, timeout=RUN_SECONDS_MAX,
            )  # fmt: skip
        if done.returncode or not done.stdout.strip():
            said = done.stderr.strip()[-2000:]
            raise Failed(f"{contender.name} failed: {said.rpartition(chr(10))[2]}\n{said}")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told


@contextmanager
def machine(server: Server, peers: Path = PEERS) -> Iterator[Machine]:
    """What runs contenders on a server; its JVM ends with the block."""
    with ExitStack() as stack:
        yield Machine(server, peers, stack)


def _wrong(
    measurement: Measurement, amount: int, told: Mapping[str, Any], facts: Mapping[str, Any]
) -> str:
    """Say what the server lacks of what was to be there, or does not know; "" if all is well."""
    if facts["unknown"]:
        return f"asked for what the server does not know: {facts['unknown']}"
    if measurement.work == "stream":
        found = [v for k, v in facts["objects"].items() if k.endswith("measured.bin")]
        if [one["size"] for one in found] != [amount]:
            return f"wrote a file of {amount} bytes; there are {found}"
        came = found[0]["crc32"]
        if "crc32" in told and b64decode(came or "").hex() != told["crc32"]:
            return f"wrote what has the CRC32 {told['crc32']}; what came has {came}"
    if measurement.work in ("stream", "commit", "job") and facts["open_uploads"]:
        return f"left {facts['open_uploads']} uploads open"
    if measurement.work == "disk" and told.get("files") != amount:
        return f"was to publish {amount} files; there are {told.get('files')}"
    if measurement.work == "commit" and facts["object_count"] < amount:
        return f"was to make {amount} files visible; {facts['object_count']} are"
    return ""
