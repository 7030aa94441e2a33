"""What is measured: each measurement with its contenders, who run in the same rounds."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Home = Literal["ours", "peers", "jvm"]
GB = 10**9
MiB = 1024**2


class Failed(RuntimeError):
    """A run did not do what it should; the message says what."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of a table.

    Attributes:
        home: the environment it runs in.
        library: of `benchmarks.writers`, or the verb of `Magic.java`.
        options: what is not its default.
        unsigned: payloads are not signed over HTTP, if it can be told.
        quick: it is measured by `QUICK=1` too.
    """

    name: str
    home: Home
    library: str
    options: Mapping[str, Any] = field(default_factory=dict)
    unsigned: bool = True
    quick: bool = True


@dataclass(frozen=True, slots=True)
class Unit:
    """How a run becomes a figure: ``amount / seconds`` if ``rate``, else ``seconds / amount``.

    Attributes:
        scale: what that is multiplied with, to be in ``name``.
        cpu, cpu_scale: the same for CPU seconds, always for each amount; "": not measured.
        counted: what amounts are; "MiB" for bytes.
    """

    name: str
    rate: bool
    scale: float
    cpu: str
    cpu_scale: float
    counted: str


MB_S = Unit("MB/s", True, 1e-6, "CPU s/GB", 1e9, "MiB")
FILES_S = Unit("files/s", True, 1, "CPU ms", 1e3, "files")
SECONDS_1000 = Unit("s/1,000 files", False, 1e3, "CPU s", 1e3, "files")
REQUESTS = Unit("requests/file", False, 1, "", 1, "files")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One table, or a column of one.

    Attributes:
        name: for `ONLY=`, with its ``group`` before it.
        work: of `benchmarks.child.WORKS`.
        column: its heading in the documentation, where those of a group share a table.
        amount, quick_amount: bytes or files of one run.
        least: what even a slow contender does, or fixed costs would hide what is measured.
        peer: the contender that the ratios are to.
    """

    group: str
    name: str
    title: str
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
    timed: bool = True
    note: str = ""


# Contenders ---------------------------------------------------------------------------------------


def transports() -> list[str]:
    """The ways to the store that work here, the fastest first."""
    fast = ["fast"] if importlib.util.find_spec("httptools") is not None else []
    return [*fast, "boto3"]


def ours(**options: Any) -> list[Contender]:
    """This library, once for each transport."""
    return [
        Contender(
            f"magic-committer, {way}",
            "ours",
            "magic_committer",
            {"transport": way, **options},
        )
        for way in transports()
    ]


def many_threads(most: int) -> list[Contender]:
    """This library, by its fastest way, with more requests in flight than by itself."""
    best = ours(options={"commit_threads": most})
    return [replace(best[0], name=f"magic-committer, {most} at once", quick=False)]


def _peer(name: str, library: str = "", *, quick: bool = True, **options: Any) -> Contender:
    return Contender(name, "peers", library or name, options, quick=quick)


def _s3a(
    name: str, verb: str, conf: Mapping[str, Any] | None = None, *, quick: bool = False
) -> Contender:
    return Contender(name, "jvm", verb, conf or {}, quick=quick)


BYTEBUFFER = {"fs.s3a.fast.upload.buffer": "bytebuffer"}
S3A_BEST = {
    "fs.s3a.committer.threads": 256,
    "fs.s3a.threads.max": 256,
    "fs.s3a.connection.maximum": 512,
    "fs.s3a.max.total.tasks": 512,
}
IN_MEMORY = {"fs.s3a.committer.magic.track.commits.in.memory.enabled": "true"}


def _streamers() -> list[Contender]:
    return [
        *ours(),
        _peer("obstore"),
        _peer("pyarrow", quick=False),
        _peer("boto3"),
        _peer("smart_open", quick=False),
        _peer("s3fs", quick=False),
        _s3a("S3A, bytebuffer", "stream", BYTEBUFFER),
        _s3a("S3A, its default", "stream"),
    ]


def _committers() -> list[Contender]:
    return [
        *ours(),
        *many_threads(256),
        _peer("boto3 client, 32 threads", "boto3", threads=32),
        _s3a("S3A hot, 256 threads", "commit", S3A_BEST, quick=True),
        _s3a("S3A hot, its default", "commit", quick=True),
    ]


# Measurements -------------------------------------------------------------------------------------


def plan() -> list[Measurement]:
    """All that can be measured here, in the order in which it is."""
    return [*_streaming(), *_small(), *_commits(), *_requests()]


def _streaming() -> list[Measurement]:
    signed = [replace(one, unsigned=False) for one in _streamers()]
    one = Measurement(
        group="streaming",
        name="http",
        title="One large file over HTTP, payloads not signed",
        column="HTTP, not signed",
        work="stream",
        unit=MB_S,
        amount=1024 * MiB,
        quick_amount=256 * MiB,
        least=64 * MiB,
        contenders=_streamers(),
        peer="obstore",
        note="S3A signs each chunk over HTTP.",
    )
    return [
        one,
        replace(
            one,
            name="signed",
            title="One large file over HTTP, payloads signed as each does by itself",
            column="HTTP, signed",
            contenders=signed,
            quick=False,
            note="",
        ),
        replace(
            one,
            name="tls",
            title="One large file over TLS",
            column="TLS",
            tls=True,
            quick=False,
            note="",
            contenders=[c for c in one.contenders if c.home != "jvm"],
        ),
    ]


def _small() -> list[Measurement]:
    return [
        Measurement(
            group="small",
            name="files",
            title="Files of 10 KiB from one task, at 30 ms a request",
            column="",
            work="small-files",
            unit=SECONDS_1000,
            amount=1000,
            quick_amount=100,
            least=50,
            contenders=[
                *ours(),
                _peer("obstore, one by one", "obstore"),
                _peer("obstore, 32 threads", "obstore", threads=32),
                _peer("boto3, one by one", "boto3"),
                _peer("boto3, 32 threads", "boto3", threads=32),
                _peer("s3fs pipe", "s3fs", quick=False),
                _s3a("S3A, in memory", "files", IN_MEMORY),
            ],
            peer="boto3, 32 threads",
            latency_ms=30,
            note="Ours and S3A's are whole jobs, invisible until their commit; the others are"
            " plain PUTs, which are visible one by one.",
        ),
    ]


def _commits() -> list[Measurement]:
    return [
        Measurement(
            group="commit",
            name=f"{latency}ms",
            title=f"Job commit at {latency} ms a request",
            column=f"{latency} ms",
            work="commit",
            unit=FILES_S,
            amount=10_000,
            quick_amount=1000,
            least=500,
            contenders=_committers(),
            peer="S3A hot, its default",
            latency_ms=latency,
            quick=latency == 20,
            note="The boto3 client only completes: no job, no checks, no clean-up.",
        )
        for latency in (0, 20, 60)
    ]


def _requests() -> list[Measurement]:
    return [
        Measurement(
            group="requests",
            name="job",
            title="Requests of a job of 4 tasks with 20 files each",
            column="",
            work="job",
            unit=REQUESTS,
            amount=80,
            quick_amount=80,
            least=80,
            contenders=[
                Contender("ours, memory", "ours", "magic_committer", {"track": "memory"}),
                Contender("ours, s3", "ours", "magic_committer", {"track": "s3"}),
                _s3a("S3A, memory", "job", IN_MEMORY, quick=True),
                _s3a("S3A, s3", "job", quick=True),
            ],
            peer="S3A, s3",
            timed=False,
            note="memory and s3: where a task keeps track of its files. S3A's default is s3.",
        )
    ]
