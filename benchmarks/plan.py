"""What is measured: each measurement with its contenders, who run in the same rounds."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

MiB = 1024**2
TITLES = {
    "streaming": "One large file",
    "small": "1,000 files of 10 KiB from one task, at 30 ms a request",
    "commit": "Job commit, by the latency of a request",
    "requests": "Requests of a job of 4 tasks with 20 files each",
    "disk": "Publishing files of 6 bytes on a local disk",
}
"""Of the groups."""


def title(group: str, column: str) -> str:
    return f"{TITLES[group]}, {column}".removesuffix(", ")


class Failed(RuntimeError):
    """A run did not do what it should; the message says what."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of a table. ``home``: the environment it runs in. ``library``: of
    `benchmarks.writers`, or the verb of `Magic.java`. ``options``: what is not its default.
    ``unsigned``: payloads are not signed over HTTP, if it can be told. ``quick``: also measured by
    `QUICK=1`."""

    name: str
    home: Literal["ours", "peers", "jvm"]
    library: str
    options: Mapping[str, Any] = field(default_factory=dict)
    unsigned: bool = True
    quick: bool = True


@dataclass(frozen=True, slots=True)
class Unit:
    """How a run becomes a figure: ``amount / seconds`` if ``rate``, else ``seconds / amount``, each
    × ``scale``. ``cpu``, ``cpu_scale``: the same for CPU seconds, always for each amount; "": not
    timed. ``counted``: what amounts are; "MiB" for bytes."""

    name: str
    rate: bool
    scale: float
    cpu: str
    cpu_scale: float
    counted: str


MB_S = Unit("MB/s", True, 1e-6, "CPU s/GB", 1e9, "MiB")
FILES_S = Unit("files/s", True, 1, "CPU ms", 1e3, "files")
DISK_FILES_S = Unit("files/s", True, 1, "CPU µs", 1e6, "files")
SECONDS_1000 = Unit("s/1,000 files", False, 1e3, "CPU s", 1e3, "files")
REQUESTS = Unit("requests/file", False, 1, "", 1, "files")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One table, or a column of one. ``name``: for `ONLY=`, behind its ``group``. ``column``: its
    heading, where those of a group share a table. ``work``: of `benchmarks.child.WORKS`.
    ``amount``, ``quick_amount``: bytes or files of one run; ``least``: what even a slow contender
    does, or fixed costs would hide what is measured. ``peer``: whom the ratios are to."""

    group: str
    name: str
    column: str
    work: str
    unit: Unit
    amount: int
    quick_amount: int
    least: int
    contenders: Sequence[Contender]
    peer: str
    latency_ms: float = 0
    tls: bool = False
    quick: bool = True
    note: str = ""

    @property
    def whole_name(self) -> str:
        """Its group and its name."""
        return f"{self.group}-{self.name}"


# Contenders ---------------------------------------------------------------------------------------


def transports() -> list[str]:
    """The ways to the store that work here, the fastest first."""
    fast = ["fast"] if importlib.util.find_spec("httptools") is not None else []
    return [*fast, "boto3"]


def ours() -> list[Contender]:
    """This library, once for each transport."""
    return [
        Contender(f"magic-committer, {way}", "ours", "magic_committer", {"transport": way})
        for way in transports()
    ]


def _peer(name: str, library: str = "", *, quick: bool = True, **options: Any) -> Contender:
    return Contender(name, "peers", library or name, options, quick=quick)


def _s3a(
    name: str, verb: str, conf: Mapping[str, Any] | None = None, *, quick: bool = False
) -> Contender:
    return Contender(name, "jvm", verb, conf or {}, quick=quick)


S3A_BEST = {
    "fs.s3a.committer.threads": 256, "fs.s3a.threads.max": 256, "fs.s3a.connection.maximum": 512,
    "fs.s3a.max.total.tasks": 512,
}  # fmt: skip
IN_MEMORY = {"fs.s3a.committer.magic.track.commits.in.memory.enabled": "true"}


# Measurements -------------------------------------------------------------------------------------


def plan() -> list[Measurement]:
    """All that can be measured here, in the order in which it is."""
    return [*_streaming(), _small(), *_commits(), _requests(), _disk()]


def _streaming() -> list[Measurement]:
    streamers = [
        *ours(), _peer("obstore"), _peer("pyarrow", quick=False), _peer("boto3"),
        _peer("smart_open", quick=False), _peer("s3fs", quick=False),
        _s3a("S3A, bytebuffer", "stream", {"fs.s3a.fast.upload.buffer": "bytebuffer"}),
        _s3a("S3A, its default", "stream"),
    ]  # fmt: skip
    one = Measurement(
        "streaming", "http", "HTTP, not signed", "stream", MB_S, 1024 * MiB, 256 * MiB, 64 * MiB,
        streamers, "obstore", note="S3A signs each chunk over HTTP.",
    )  # fmt: skip
    signed = [replace(c, unsigned=False) for c in streamers]
    no_jvm = [c for c in streamers if c.home != "jvm"]
    rest = replace(one, quick=False, note="")
    return [
        one,
        replace(rest, name="signed", column="HTTP, signed", contenders=signed),
        replace(rest, name="tls", column="TLS", contenders=no_jvm, tls=True),
    ]


def _small() -> Measurement:
    contenders = [
        *ours(), _peer("obstore, one by one", "obstore"),
        _peer("obstore, 32 threads", "obstore", threads=32), _peer("boto3, one by one", "boto3"),
        _peer("boto3, 32 threads", "boto3", threads=32), _peer("s3fs pipe", "s3fs", quick=False),
        _s3a("S3A, in memory", "files", IN_MEMORY),
    ]  # fmt: skip
    return Measurement(
        "small", "files", "", "small-files", SECONDS_1000, 1000, 100, 50, contenders,
        "boto3, 32 threads", latency_ms=30,
        note="Ours and S3A's are whole jobs, invisible until their commit; the others are plain"
        " PUTs, which are visible one by one.",
    )  # fmt: skip


def _commits() -> list[Measurement]:
    fastest = ours()[0]
    many = {**fastest.options, "options": {"commit_threads": 256}}
    contenders = [
        *ours(),
        replace(fastest, name="magic-committer, 256 at once", options=many, quick=False),
        _peer("boto3 client, 32 threads", "boto3", threads=32),
        _s3a("S3A hot, 256 threads", "commit", S3A_BEST, quick=True),
        _s3a("S3A hot, its default", "commit", quick=True),
    ]
    return [
        Measurement(
            "commit", f"{latency}ms", f"{latency} ms", "commit", FILES_S, 10_000, 1000, 500,
            contenders, "S3A hot, its default", latency_ms=latency, quick=latency == 20,
            note="The boto3 client only completes: no job, no checks, no clean-up.",
        )
        for latency in (0, 20, 60)
    ]  # fmt: skip


def _requests() -> Measurement:
    contenders = [
        Contender("ours, memory", "ours", "magic_committer", {"track": "memory"}),
        Contender("ours, s3", "ours", "magic_committer", {"track": "s3"}),
        _s3a("S3A, memory", "job", IN_MEMORY, quick=True),
        _s3a("S3A, s3", "job", quick=True),
    ]
    return Measurement(
        "requests", "job", "", "job", REQUESTS, 80, 80, 80, contenders, "S3A, s3",
        note="memory and s3: where a task keeps track of its files. S3A's default is s3.",
    )  # fmt: skip


def _disk() -> Measurement:
    contenders = [
        Contender(name, "ours", "magic_committer", {"committer": name.rpartition(" ")[2]})
        for name in (
            "shutil.move",
            *map("magic-committer, {}".format, ("manifest", "magic", "v1", "v2")),
        )
    ]
    return Measurement(
        "disk", "files", "", "disk", DISK_FILES_S, 20_000, 2000, 1000, contenders, "shutil.move",
        quick=False, note="The commits of tasks and job, into 1,000 directories of /dev/shm.",
    )  # fmt: skip
