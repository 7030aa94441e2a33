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
from collections.abc import Iterator
from pathlib import Path

import pytest

import magic_committer as mc
from tests.nightly import most
from tests.outside import Outside
from tests.servers import moto_options, moto_server

ROOT = Path(__file__).parents[2]
BUCKET = "signals"
ROUNDS = most(24, 8)
"""Alarms for each kind of exception and each way, spread evenly over a job with a drawn shift."""
HANG_SECONDS = 300
TOLD = r"magic_committer\.(recover|abort)\('([^']+)', '([^']+)'\)"
"""The call that ends a job whose end was interrupted, as an error tells it."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with moto_server(BUCKET) as server:
        yield server


def environment(url: str) -> dict[str, str]:
    """For a process that finds the server by the environment alone."""
    way = moto_options(url)
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": way.access_key or "",
        "AWS_SECRET_ACCESS_KEY": way.secret_key or "",
    }


def left(url: str, prefix: str) -> tuple[list[str], list[str], int]:
    """The files of a job, what else is there but the marker, and how many uploads are open."""
    bucket = Outside(moto_options(url), BUCKET)
    return [*bucket.files(prefix)], bucket.control(prefix, closed=True), len(bucket.uploads(prefix))


ALARMS = """
import json, random, signal, sys, time, traceback
import magic_committer as mc

kind = {"TimeoutError": TimeoutError, "KeyboardInterrupt": KeyboardInterrupt,
        "SystemExit": SystemExit}[sys.argv[1]]
transport, rounds, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
draw = random.Random(seed)
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
    told, error, writing = "", None, None
    try:
        writing = mc.write(f"s3://BUCKET/{sys.argv[1]}-{transport}/{number}",
                           s3=mc.S3Options(transport=transport))
        if after:
            signal.setitimer(signal.ITIMER_REAL, after)
        with writing as block:
            with block.open("large.bin") as file:
                for _ in range(90):
                    file.write(bytes(100_000))
            for name in "abc":
                with block.open(name + ".csv", "w") as file:
                    file.write("1,2")
            writing = block
        signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as caught:
        signal.setitimer(signal.ITIMER_REAL, 0)
        error = caught
    chain, one = [], error
    seen = []
    while one is not None and not any(one is other for other in seen):
        seen.append(one)
        chain.append(type(one).__name__)
        one = one.__cause__ or one.__context__
    return {"number": number, "fired": fired, "unheard": unheard, "where": where, "chain": chain,
            "told": "" if error is None else str(error) + str(getattr(error, "__notes__", "")),
            }


job(-1, 0)
began = time.monotonic()
job(-2, 0)
whole = time.monotonic() - began
shift = draw.random()
for number in range(rounds):
    print(json.dumps(job(number, max(1e-4, whole * (number + shift) / rounds))), flush=True)
""".replace("BUCKET", BUCKET)


@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        ("KeyboardInterrupt", "auto"),
        ("SystemExit", "boto3"),
        ("TimeoutError", "auto"),
        ("TimeoutError", "boto3"),
    ],
)
def test_an_alarm_at_any_instant_is_heard(url: str, kind: str, transport: str) -> None:
    """All files are there, or none, and the call that the error tells makes it so. A SIGTERM that
    ends a program by SystemExit is heard so."""
    done = subprocess.run(
        [sys.executable, "-c", ALARMS, kind, transport, str(ROUNDS), "1"],
        env=environment(url),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == ROUNDS
    assert sum(one["fired"] for one in rounds) > ROUNDS // 3  # or the alarms missed the jobs
    for one in rounds:
        prefix = f"{kind}-{transport}/{one['number']}"
        if one["chain"]:
            assert kind in one["chain"], one
            for call, dest, job in re.findall(TOLD, one["told"]):
                with contextlib.suppress(mc.JobError):  # it never began
                    getattr(mc, call)(dest, job, s3=moto_options(url))
        elif one["fired"]:
            assert one["unheard"], one
        files, _, _ = left(url, prefix)
        assert len(files) in (0, 4), one
        assert one["fired"] or len(files) == 4, one


def test_sigterm_ends_a_job_cleanly_as_the_documentation_says(url: str, tmp_path: Path) -> None:
    """The page's lines, and a job that is ended in the middle of a file."""
    page = (ROOT / "docs" / "limits.md").read_text()
    found = re.search(r"```python\n(import signal\n.*?)```", page, re.DOTALL)
    assert found is not None
    program = (
        found[1]
        + f"""
import time
import magic_committer as mc
with mc.write("s3://{BUCKET}/term") as job:
    with job.open("a.bin") as file:
        file.write(bytes(9_000_000))
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
"""
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], env=environment(url), stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(HANG_SECONDS) == 128 + signal.SIGTERM
    child.stdout.close()
    assert left(url, "term") == ([], [], 0)


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
def test_the_end_of_a_program_is_a_clean_one(url: str, end: str) -> None:
    """A first job works when the interpreter is ending already, if the library was loaded. A block
    that nothing leaves any more is aborted there. Nothing is printed but the log's line."""
    prefix = end.replace(" ", "-")
    program = f"""
import magic_committer as mc
def generate(data):
    with mc.write("s3://{BUCKET}/{prefix}") as job, job.open("a.bin") as file:
        while True:
            file.write(data)
            yield
def work(data):
    if data is not None:
        return generate(data)
    with mc.write("s3://{BUCKET}/{prefix}") as job, job.open("a.bin") as file:
        file.write(bytes(100))
{ENDS[end]}
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(url),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0
    assert "Error" not in done.stderr, done.stderr
    if end == "a generator":
        assert "the interpreter ended inside of its block" in done.stderr
        assert left(url, prefix) == ([], [], 0)
    else:
        assert left(url, prefix) == (["a.bin"], [], 0)


def test_a_first_use_that_comes_too_late_says_what_to_do() -> None:
    """The interpreter loads no module any more that wants to be told of its end."""
    program = "import atexit, magic_committer; atexit.register(lambda: magic_committer.write)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert "at the top of the program: import magic_committer.api" in done.stderr
