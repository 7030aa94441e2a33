"""What a signal handler raises, at any instant of a job, reaches the caller. The job is
aborted then, or was decided and is whole."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.stores.trees import disk
from magic_committer.testing import memory_store
from magic_committer.upload.blocks import Block
from tests.nightly import most
from tests.outside import Found, Outside
from tests.process.conftest import HANG_SECONDS, ROOT, environment, fresh
from tests.servers import moto_options

ROUNDS = most(24, 8)
"""Alarms for each kind of exception and each way, spread evenly over a job with a drawn shift."""
TOLD = r"magic_committer\.(recover|abort)\('([^']+)', '([^']+)'\)"
"""The call that ends a job whose end was interrupted, as an error tells it."""


class Struck:
    """A call in which a signal comes, the first time that it is about a name."""

    def __init__(self, call: Callable[..., Any], name: str) -> None:
        self.call, self.name, self.hit = call, name, False

    def __call__(self, *given: Any, **terms: Any) -> Any:
        if self.name in str(given) and not self.hit:
            self.hit = True
            signal.raise_signal(signal.SIGALRM)
        return self.call(*given, **terms)


@pytest.fixture
def deadline() -> Iterator[None]:
    """A handler of SIGALRM that raises a TimeoutError, which is an OSError."""

    def handler(*_: object) -> None:
        raise TimeoutError("the caller's deadline")

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("committer", "name", "decided"),
    [
        ("manifest", "manifest", False), ("magic", "pendingset", False), ("magic", "b.csv", True),
        ("manifest", "_SUCCESS", True),
    ],
)  # fmt: skip
def test_a_deadline_in_a_rename_is_no_answer_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadline: None, committer: Any, name: str,
    decided: bool,
) -> None:  # fmt: skip
    """It ends the call, before the decision and after it: nothing is tried again because of it."""
    dest = (tmp_path / "t").as_uri()
    with (
        monkeypatch.context() as patch,
        pytest.raises(TimeoutError, match="the caller's deadline"),
        mc.write(dest, committer=committer) as job,
    ):
        patch.setattr(disk, "move", Struck(disk.move, name))
        patch.setattr(os, "rename", Struck(os.rename, name))
        for one in ("a.csv", "b.csv"):
            job.write_text(one, "1,2")
    for found in mc.inspect(dest):
        mc.recover(dest, found.id)
    assert len(list(tmp_path.glob("t/*.csv"))) == (2 if decided else 0)


def test_a_deadline_while_a_block_is_filled_is_no_full_disk(
    monkeypatch: pytest.MonkeyPatch, deadline: None
) -> None:
    """It ends the write as what it is."""
    monkeypatch.setattr(Block, "append", Struck(Block.append, "memory"))
    with memory_store(), pytest.raises(TimeoutError), mc.write("s3://bucket/t") as job:
        job.write_bytes("a.bin", b"1")


def there(url: str, prefix: str) -> Found:
    """What is there of a job."""
    return Outside(moto_options(url), "bucket").look(prefix, closed=True)


ALARMS = """
import json, random, signal, sys, time, traceback
import magic_committer as mc

kind = {"TimeoutError": TimeoutError, "KeyboardInterrupt": KeyboardInterrupt,
        "SystemExit": SystemExit}[sys.argv[1]]
transport, rounds, root = sys.argv[2], int(sys.argv[3]), sys.argv[4]
fired = unheard = False
where = ""


def handler(_, frame):
    global fired, where
    fired, where = True, "".join(traceback.format_stack(frame)[-8:])
    raise kind("the caller's deadline")


def ignored(hook):  # a finalizer or a callback was interrupted: Python tells nobody
    global unheard
    unheard = unheard or isinstance(hook.exc_value, kind)


signal.signal(signal.SIGALRM, handler)
sys.unraisablehook = ignored


def job(number, after):
    global fired, unheard
    fired = unheard = False
    error = None
    try:
        s3 = None if transport == "disk" else mc.S3Options(transport=transport)
        writing = mc.write(f"{root}/{sys.argv[1]}-{transport}/{number}", s3=s3)
        if after:
            signal.setitimer(signal.ITIMER_REAL, after)
        with writing as block:
            with block.open("large.bin") as file:
                for _ in range(90):
                    file.write(bytes(100_000))
            for name in "abc":
                with block.open(name + ".csv", "w") as file:
                    file.write("1,2")
        signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as caught:
        signal.setitimer(signal.ITIMER_REAL, 0)
        error = caught
    seen, one = [], error
    while one is not None and not any(one is other for other in seen):
        seen.append(one)
        one = one.__cause__ or one.__context__
    return {"number": number, "fired": fired, "unheard": unheard, "where": where,
            "chain": [type(one).__name__ for one in seen],
            "told": "" if error is None else str(error) + str(getattr(error, "__notes__", ""))}


job(-1, 0)
whole, shift = 0, random.Random(1).random()
for number in range(-1, rounds):
    began = time.monotonic()
    told = job(number, max(1e-4, whole * (number + shift) / rounds) if whole else 0)
    if not told["fired"]:  # so long it takes, as busy as the machine is
        whole = time.monotonic() - began
    if number >= 0:
        print(json.dumps(told), flush=True)
"""


@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        ("KeyboardInterrupt", "auto"), ("SystemExit", "boto3"), ("TimeoutError", "auto"),
        ("TimeoutError", "boto3"), ("TimeoutError", "disk"),
    ],
)  # fmt: skip
def test_an_alarm_at_any_instant_is_heard(
    server: str, tmp_path: Path, kind: str, transport: str
) -> None:
    """All files are there, or none, and the call that the error tells makes it so. A SIGTERM that
    ends a program by SystemExit is heard so."""
    s3 = None if transport == "disk" else moto_options(server)
    root = "s3://bucket" if s3 else tmp_path.as_uri()
    ended = fresh(server, "-c", ALARMS, kind, transport, str(ROUNDS), root)
    assert ended.code == 0, ended
    rounds = [json.loads(line) for line in ended.said.splitlines()]
    assert len(rounds) == ROUNDS
    assert sum(one["fired"] for one in rounds) > ROUNDS // 3  # or the alarms missed the jobs
    for one in rounds:
        if one["chain"]:
            assert kind in one["chain"], one
            for call, dest, job in re.findall(TOLD, one["told"]):
                with contextlib.suppress(mc.JobError):  # it never began
                    getattr(mc, call)(dest, job, s3=s3)
        elif one["fired"]:
            assert one["unheard"], one
        prefix = f"{kind}-{transport}/{one['number']}"
        files = len(there(server, prefix).files if s3 else list(tmp_path.glob(f"{prefix}/[a-z]*")))
        assert files in (0, 4), one
        assert one["fired"] or files == 4, one


def test_sigterm_ends_a_job_cleanly_as_the_documentation_says(server: str) -> None:
    """The page's lines, and a job that is ended in the middle of a file."""
    page = (ROOT / "docs" / "limits.md").read_text()
    found = re.search(r"```python\n(import signal\n.*?)```", page, re.DOTALL)
    assert found is not None
    program = """
import time
import magic_committer as mc
with mc.write("s3://bucket/term") as job:
    with job.open("a.bin") as file:
        file.write(bytes(9_000_000))
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
"""
    command = [sys.executable, "-c", found[1] + program]
    child = subprocess.Popen(command, env=environment(server), stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(HANG_SECONDS) == 128 + signal.SIGTERM
    child.stdout.close()
    assert there(server, "term") == Found()


ENDS = {
    "a thread that outlives the main thread": """
import threading, magic_committer.api
def late():
    threading.main_thread().join()
    work(None)
threading.Thread(target=late).start()
""",
    "an exit function": "import atexit, magic_committer.api; atexit.register(work, None)",
    "a generator": "generator = work(bytes(100_000)); [next(generator) for _ in range(100)]",
}
"""How a program ends. ``work`` writes a file; with bytes it is a generator that never ends."""


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_program_is_a_clean_one(server: str, end: str) -> None:
    """A first job works when the interpreter is ending already, if the library was loaded. A block
    that nothing leaves any more is aborted there. Nothing is printed but the log's line."""
    prefix = end.replace(" ", "-")
    program = f"""
import magic_committer as mc
def generate(data):
    with mc.write("s3://bucket/{prefix}") as job, job.open("a.bin") as file:
        while True:
            file.write(data)
            yield
def work(data):
    if data is not None:
        return generate(data)
    with mc.write("s3://bucket/{prefix}") as job, job.open("a.bin") as file:
        file.write(bytes(100))
{ENDS[end]}
"""
    ended = fresh(server, "-c", program)
    assert ended.code == 0
    assert "Error" not in ended.errors, ended
    found = there(server, prefix)
    assert found.left == ()
    assert [*found.files] == ([] if end == "a generator" else ["a.bin"])
    told = "the interpreter ended inside of its block" in ended.errors
    assert told == (end == "a generator")


def test_a_first_use_that_comes_too_late_says_what_to_do(server: str) -> None:
    """The interpreter loads no module any more that wants to be told of its end."""
    program = "import atexit, magic_committer; atexit.register(lambda: magic_committer.write)"
    ended = fresh(server, "-c", program)
    assert "at the top of the program: import magic_committer.api" in ended.errors
