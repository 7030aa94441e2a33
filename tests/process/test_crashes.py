"""No process dies by a signal, whatever it writes, however it got its job, and whatever becomes of
its store; and nothing large waits for the collector.

Each process is a fresh one: what a process asks for first is asked for in another way than what
comes later. ``writing.py`` is what they run.
"""

from __future__ import annotations

import base64
import json
import pickle
import uuid
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import cast

import pytest

import magic_committer as mc
from tests.process.conftest import Trouble, failing, fresh
from tests.process.writing import Cell, Program
from tests.servers import moto_options

MiB = 1024**2
OPTIONAL = {"numpy": "numpy", "pyarrow": "pyarrow", "to_csv": "pandas"}
KINDS = tuple(
    kind
    for kind in ("bytes", "text", "bytearray", "memoryview", "array", "copyfileobj", *OPTIONAL)
    if find_spec(OPTIONAL.get(kind, "sys")) is not None
)
"""Those of this environment: `make pythons` has none of the libraries."""
WAYS = ("start", "attach", "from_dict", "pickle", "open_magic")
TRANSPORTS = ("auto", "boto3")


class Jobs:
    """Starts jobs for other processes, which see the store as ``url``; ``given_up`` ends them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._s3 = moto_options(url)
        self._started: list[mc.Job] = []

    def program(
        self,
        way: str,
        cells: Sequence[Cell],
        *,
        transport: str = "auto",
        trouble: Trouble = "",
        collector: str = "late",
    ) -> Program:
        """A program, with a job for it."""
        dest = f"s3://bucket/{uuid.uuid4().hex}"
        made = Program(way, dest, "", "", [*cells], transport, trouble, collector)
        if way not in ("start", "run", "spark"):
            job = mc.start(dest, s3=self._s3)
            self._started.append(job)
            made.job = job.id
            if way == "from_dict":
                made.handle = json.dumps(job.to_dict())
            elif way == "pickle":  # it holds the way to the store
                theirs = mc.Job.from_dict(job.to_dict(), s3=made.s3)
                made.handle = base64.b64encode(pickle.dumps(theirs)).decode()
        return made

    def give_up(self) -> None:
        """Abort them, so that the server keeps nothing."""
        for job in self._started:
            job.abort()


@pytest.fixture
def jobs(server: str) -> Iterator[Jobs]:
    """A test's jobs."""
    made = Jobs(server)
    yield made
    made.give_up()


def run(jobs: Jobs, program: Program) -> None:
    """Run a program in a fresh process: it lives, its files fail where the store does and only
    there, and it leaves nothing behind."""
    if program.trouble:
        with failing(jobs.url, cast(Trouble, program.trouble)) as url:
            ended = fresh(url, "tests.process.writing", program.json())
    else:
        ended = fresh(jobs.url, "tests.process.writing", program.json())
    assert ended.code == 0, ended
    assert "Exception ignored" not in ended.errors, ended
    told = [json.loads(line) for line in ended.said.splitlines()]
    assert [(kind, size) for kind, size, *_ in told] == program.cells, ended
    for kind, size, error, left in told:
        assert bool(error) == bool(program.trouble), (kind, size, error, ended.errors)
        assert left == [], f"{kind} {size}: garbage held\n" + "\n".join(left)


def sizes_for(way: str, kind: str) -> list[Cell]:
    """Sizes of a kind: all of them for a process that attaches, but of to_csv, which is slow. The
    first is one whose bytes are held until they are sent."""
    first = (1 * MiB, 6_000_000)[(WAYS.index(way) + KINDS.index(kind)) % 2]
    rest = {1 * MiB, 6_000_000, 20 * MiB, 100_000} - {first}
    if way != "attach" or kind == "to_csv":
        rest = set()
    return [(kind, size) for size in (first, *sorted(rest))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_process_that_writes_lives(jobs: Jobs, way: str, kind: str) -> None:
    """Every way to a job, every kind of piece, in every size; the collector meets all that a file
    has left in the order of its making."""
    run(jobs, jobs.program(way, sizes_for(way, kind)))


@pytest.mark.parametrize("collector", ["usual", "always"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "to_csv"])
def test_the_moment_of_the_collector_does_not_matter(jobs: Jobs, kind: str, collector: str) -> None:
    """As Python has it, and at every new object: a process that attaches."""
    run(jobs, jobs.program("attach", [(kind, 1 * MiB)], collector=collector))


@pytest.mark.parametrize("way", WAYS)
def test_it_lives_by_boto3_too(jobs: Jobs, way: str) -> None:
    """All kinds, one after the other."""
    cells: list[Cell] = [(kind, 1 * MiB) for kind in KINDS if kind != "to_csv"]
    run(jobs, jobs.program(way, cells, transport="boto3"))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trouble", ["refused", "dies", "silent"])
def test_it_outlives_its_store(jobs: Jobs, trouble: Trouble, kind: str, transport: str) -> None:
    """A part is refused, the server is gone or silent in mid-file: the file fails, and the process
    goes on."""
    way = WAYS[KINDS.index(kind) % len(WAYS)]
    run(jobs, jobs.program(way, [(kind, 1 * MiB)], transport=transport, trouble=trouble))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("trouble", ["", "refused", "dies", "silent"])
@pytest.mark.parametrize(
    ("way", "kind"),
    [("attach", "bytes"), ("attach", "memoryview"), ("attach", "text"), ("start", "bytes")],
)
def test_nothing_large_waits_for_the_collector(
    jobs: Jobs, way: str, kind: str, trouble: Trouble, transport: str
) -> None:
    """With the collector off, what a file leaves in cycles holds no view, map, socket, file or body
    of a part, whatever became of it."""
    cells: list[Cell] = [(kind, 1 * MiB)]
    run(jobs, jobs.program(way, cells, transport=transport, trouble=trouble, collector="told"))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_of_run_live(jobs: Jobs, method: str) -> None:
    """Each kind in a process of `run`'s: by spawn each in one of its own."""
    program = jobs.program("run", [(kind, 1 * MiB) for kind in KINDS])
    program.handle = method
    ended = fresh(jobs.url, "tests.process.writing", program.json())
    assert ended.code == 0, ended


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs PySpark")
def test_workers_of_spark_live(jobs: Jobs) -> None:
    """Each kind in a Python worker of its own."""
    program = jobs.program("spark", [(kind, 1 * MiB) for kind in KINDS])
    ended = fresh(jobs.url, "tests.process.writing", program.json())
    assert ended.code == 0, ended
