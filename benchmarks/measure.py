"""One run of one contender: from the parent's side."""

from __future__ import annotations

import json
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
from benchmarks.writers import MiB, environment

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv-bench" / "bin" / "python"
RUN_SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run, measured.

    Attributes:
        amount: of bytes or files, as the measurement counts.
        seconds: wall clock.
        cpu_seconds: of the contender's process and its children, user and system, all threads.
        grown_bytes: peak of resident memory above the start; None for the JVM.
        requests: by verb, as the server counted them. at_once: the most that it saw at once.
        part_bytes: the largest part. payload, checksum: how such were signed and summed.
        versions: of the packages that ran.
    """

    contender: str
    amount: int
    seconds: float
    cpu_seconds: float
    grown_bytes: int | None
    requests: Mapping[str, int]
    at_once: int = 0
    part_bytes: int = 0
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

    @property
    def grown_mib(self) -> float | None:
        """Peak of memory above the start."""
        return None if self.grown_bytes is None else self.grown_bytes / MiB


def spec_of(
    measurement: Measurement, contender: Contender, amount: int, url: str
) -> dict[str, Any]:
    """What the process that is measured is told."""
    return {
        "work": measurement.work,
        "library": contender.library,
        "options": dict(contender.options),
        "amount": amount,
        "latency_ms": measurement.latency_ms,
        "verify": False,
        "control": url,
    }


class Machine:
    """What runs contenders: the server, the environments, a JVM if one is needed."""

    def __init__(self, server: Server, peers: Path = PEERS) -> None:
        self.server = server
        self.peers = peers
        self._jvm: hadoop.Jvm | None = None
        self._stack = ExitStack()

    def close(self) -> None:
        """End what was started."""
        self._stack.close()

    def run(
        self,
        measurement: Measurement,
        contender: Contender,
        amount: int,
        *,
        verify: bool = False,
    ) -> Run:
        """Run a contender once, and check that the server has what it wrote.

        Args:
            verify: compare CRCs as well as lengths; the figures are then worth nothing.

        Raises:
            Failed: it failed, or bytes are missing or wrong.
            NoHadoop: there is no JVM to run it.
        """
        spec = spec_of(measurement, contender, amount, self.server.url)
        spec["verify"] = verify
        if contender.home == "jvm":
            told = self._hot().run(spec)
        else:
            self.server.reset(verify=verify)
            told = self._child(measurement, contender, spec)
        facts = self.server.facts()
        _check(measurement, contender, amount, told, facts)
        start, most = told.get("start_bytes"), told.get("peak_bytes")
        return Run(
            contender=contender.name,
            amount=amount,
            seconds=told["seconds"],
            cpu_seconds=told["cpu_seconds"],
            grown_bytes=None if start is None else most - start,
            requests=facts["requests"],
            at_once=facts.get("in_flight_max", 0),
            part_bytes=facts["part_bytes"],
            payload=facts["payload"],
            checksum=facts["checksum"],
            versions=told["versions"],
        )

    def _hot(self) -> hadoop.Jvm:
        if self._jvm is None:
            self._jvm = self._stack.enter_context(hadoop.running(self.server.url))
        return self._jvm

    def _child(
        self, measurement: Measurement, contender: Contender, spec: Mapping[str, Any]
    ) -> dict[str, Any]:
        python = sys.executable if contender.home == "ours" else str(self.peers)
        url = self.server.https if measurement.tls else self.server.url
        authority = self.server.authority if measurement.tls else ""
        with tempfile.TemporaryDirectory(prefix="magic-committer-bench-") as folder:
            config = f"{folder}/aws-config"
            done = subprocess.run(
                [python, "-m", "benchmarks.child", json.dumps(spec)],
                cwd=ROOT,
                env=environment(url, config, unsigned=contender.unsigned, authority=authority),
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS_MAX,
            )
        if done.returncode or not done.stdout.strip():
            raise Failed(f"{contender.name} failed:\n{done.stderr.strip()[-2000:]}")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told


@contextmanager
def machine(server: Server, peers: Path = PEERS) -> Iterator[Machine]:
    """What runs contenders on a server; its JVM ends with the block."""
    made = Machine(server, peers)
    try:
        yield made
    finally:
        made.close()


def _check(
    measurement: Measurement,
    contender: Contender,
    amount: int,
    told: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> None:
    """The server has what was to be there, and was asked nothing that it does not know."""
    name = contender.name
    if facts["unknown"]:
        raise Failed(f"{name} asked for what the server does not know: {facts['unknown']}")
    if measurement.work == "stream":
        found = [v for k, v in facts["objects"].items() if k.endswith("measured.bin")]
        if [one["size"] for one in found] != [amount]:
            raise Failed(f"{name} wrote a file of {amount} bytes; there are {found}")
        came = found[0]["crc32"]
        if "crc32" in told and b64decode(came or "").hex() != told["crc32"]:
            raise Failed(f"{name}: CRC32 of what was written {told['crc32']}, of what came {came}")
    if measurement.work in ("stream", "commit", "job") and facts["open_uploads"]:
        raise Failed(f"{name} left {facts['open_uploads']} uploads open")
    if measurement.work == "commit" and facts["object_count"] < amount:
        raise Failed(f"{name} was to make {amount} files visible; {facts['object_count']} are")
