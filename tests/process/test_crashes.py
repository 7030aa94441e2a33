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
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
QUICK = [kind for kind in KINDS if kind != "to_csv"]
WAYS = ("start", "attach", "from_dict", "pickle", "open_magic")
EACH: list[Cell] = [(kind, 1 * MiB) for kind in KINDS]
Run = Callable[..., None]


@pytest.fixture
def run(server: str) -> Iterator[Run]:
    """Runs a program in a fresh process, with a job for it: it lives, its files fail where the
    store does and only there, and it leaves nothing behind."""
    started: list[mc.Job] = []

    def program(way: str, cells: Sequence[Cell], **more: Any) -> Program:
        made = Program(way, f"s3://bucket/{uuid.uuid4().hex}", cells=[*cells], **more)
        if way not in ("start", "run", "spark"):
            job = mc.start(made.dest, s3=moto_options(server))
            started.append(job)
            made.job = job.id
            if way == "from_dict":
                made.handle = json.dumps(job.to_dict())
            elif way == "pickle":  # it holds the way to the store
                theirs = mc.Job.from_dict(job.to_dict(), s3=made.s3)
                made.handle = base64.b64encode(pickle.dumps(theirs)).decode()
        return made

    def runs(way: str, cells: Sequence[Cell], *, trouble: Trouble = "", **more: Any) -> None:
        made = program(way, cells, trouble=trouble, **more)
        command = ("-m", "tests.process.writing", made.json())
        if trouble:
            with failing(server, trouble) as url:
                ended = fresh(url, *command)
        else:
            ended = fresh(server, *command)
        assert ended.code == 0, ended
        assert "Exception ignored" not in ended.errors, ended
        if way in ("run", "spark"):
            return
        told = [json.loads(line) for line in ended.said.splitlines()]
        assert [(kind, size) for kind, size, *_ in told] == made.cells, ended
        for kind, size, error, left in told:
            assert bool(error) == bool(trouble), (kind, size, error, ended.errors)
            assert left == [], f"{kind} {size}: garbage held\n" + "\n".join(left)

    yield runs
    for job in started:
        job.abort()


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
def test_a_process_that_writes_lives(run: Run, way: str, kind: str) -> None:
    """Every way to a job, every kind of piece, in every size; the collector meets all that a file
    has left in the order of its making."""
    run(way, sizes_for(way, kind))


@pytest.mark.parametrize("collector", ["usual", "always"])
@pytest.mark.parametrize("kind", QUICK)
def test_the_moment_of_the_collector_does_not_matter(run: Run, kind: str, collector: str) -> None:
    """As Python has it, and at every new object: a process that attaches."""
    run("attach", [(kind, 1 * MiB)], collector=collector)


@pytest.mark.parametrize("kind", QUICK)
def test_a_process_without_cached_bytecode_lives(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """The first of a new installation: the collector runs at other moments while it compiles."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    run("attach", [(kind, 1 * MiB)])


@pytest.mark.parametrize("transport", ["auto", "boto3"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trouble", ["refused", "dies", "silent"])
def test_it_outlives_its_store(run: Run, trouble: Trouble, kind: str, transport: str) -> None:
    """A part is refused, the server is gone or silent in mid-file: the file fails, and the process
    goes on."""
    way = WAYS[KINDS.index(kind) % len(WAYS)]
    run(way, [(kind, 1 * MiB)], transport=transport, trouble=trouble)


@pytest.mark.parametrize("transport", ["auto", "boto3"])
@pytest.mark.parametrize("trouble", ["", "refused", "dies", "silent"])
@pytest.mark.parametrize(
    ("way", "kind"),
    [("attach", "bytes"), ("attach", "memoryview"), ("attach", "text"), ("start", "bytes")],
)
def test_nothing_large_waits_for_the_collector(
    run: Run, way: str, kind: str, trouble: Trouble, transport: str
) -> None:
    """With the collector off, what a file leaves in cycles holds no view, map, socket, file or body
    of a part, whatever became of it."""
    run(way, [(kind, 1 * MiB)], transport=transport, trouble=trouble, collector="told")


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_of_run_live(run: Run, method: str) -> None:
    """Each kind in a process of `run`'s: by spawn each in one of its own."""
    run("run", EACH, handle=method)


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs PySpark")
def test_workers_of_spark_live(run: Run) -> None:
    """Each kind in a Python worker of its own."""
    run("spark", EACH)
