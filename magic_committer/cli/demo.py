"""``demo``: a tour on an S3 of its own. A job, a killed job, a leak; and how they are cleaned up.

Every command is printed as one would type it, then really run. The S3 is moto's server where that
is installed (the extra ``demo``): then a real process is killed, and with ``--keep`` the server
stays for commands from another terminal. Else it is the in-memory store, in this process. Nothing
is left of either.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from magic_committer import _wiring
from magic_committer._runtime import no_progress
from magic_committer.api import start
from magic_committer.cli import exits
from magic_committer.cli.app import WORDS, root
from magic_committer.cli.running import run
from magic_committer.cli.shell import Shell, command
from magic_committer.errors import MagicError, OptionError
from magic_committer.hadoop.paths import MAGIC_JOB_PREFIX, Destination, unique_name
from magic_committer.options import S3Options
from magic_committer.stores.base import Attributes, ObjectStore

BUCKET = "demo"
PATH = f"s3://{BUCKET}/flights"
DEST = Destination.parse(PATH)
FOREIGN = "by-another-program.csv"
VICTIM = f"from magic_committer.cli.demo import be_killed; be_killed({PATH!r})"
END_SECONDS_MAX = 30

CREDENTIALS = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo",
}
"""moto takes any."""
NOTHING_ELSE = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "no_proxy": "127.0.0.1",
}
"""So that nothing but the demo's own server can be reached, whatever is configured."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the tour takes place.

    Attributes:
        environment: that a process needs to reach it; empty for a store in this process.
        about: what it is, in a sentence.
    """

    environment: dict[str, str]
    about: str

    def store(self) -> ObjectStore:
        """The bucket, as the commands reach it."""
        return _wiring.runtime_for(BUCKET, S3Options(), no_progress).store


@command(root, "demo", WORDS["demo"])
@click.option("--keep", is_flag=True, help="Let the server run afterwards, until Ctrl-C.")
@click.option("--in-memory", is_flag=True, help="Without moto's server, also where it is there.")
def demo(shell: Shell, keep: bool, in_memory: bool) -> int:
    """Show what this is about, on an S3 of its own: a job, a killed one, a leak, a cleanup."""
    if keep and in_memory:
        raise click.UsageError("a store in memory ends with this command: --keep is for a server")
    with _stage(shell, keep, in_memory) as stage:
        ok = _tour(shell, stage)
        if keep:
            _wait(shell, stage)
    return exits.OK if ok else exits.FAILED


# The tour -----------------------------------------------------------------------------------------


def _tour(shell: Shell, stage: Stage) -> bool:
    """Show it; whether all came as it had to."""
    say = shell.output.text
    say(stage.about)

    _title(shell, "1. A job writes three files")
    before, uuid = _whole_job(stage)
    visible = _visible(stage)
    say(f"Before its commit {before} files were visible, after it {visible}: all or nothing.")

    _title(shell, "2. Another job is killed half-way")
    say(_killed_job(stage))

    _title(shell, "3. Uploads leak")
    _leak(stage, uuid)
    say("A request of the first job was carried out after the job's end, and another program has")
    say("begun an upload under the same path. No listing of objects shows them; they are billed.")

    _title(shell, "4. See them")
    say("0s is our word that the killed job is dead: by itself it is so after 24 hours.")
    dead = ("--dead-after", "0s")
    codes = [_run(shell, "uploads", "list", PATH, *dead), _run(shell, "job", "list", PATH, *dead)]

    _title(shell, "5. Clean up")
    say("From cron one leaves out the limits.")
    codes.append(_run(shell, "cleanup", PATH, *dead, "--leftover-after", "0s"))

    _title(shell, "6. What is left")
    codes.append(_run(shell, "uploads", "list", PATH))
    foreign, ours = _uploads(stage)
    visible_now = _visible(stage)
    say(
        f"Of the other program {foreign} upload is open, as before; of ours {ours};"
        f" {visible_now} files are visible."
    )
    return not any(codes) and (before, visible, visible_now, foreign, ours) == (0, 3, 3, 1, 0)


def _title(shell: Shell, title: str) -> None:
    shell.output.text("")
    shell.output.text(title)


def _run(shell: Shell, *arguments: str) -> int:
    """Print a command as it is typed, and run it."""
    shell.output.text("")
    shell.output.text(f"$ magic-committer {shlex.join(arguments)}")
    return run([*arguments, "--format", shell.output.format])


def _whole_job(stage: Stage) -> tuple[int, str]:
    """A job from start to end: how many files were visible before its commit, and its UUID."""
    job = start(PATH, accept="results", track="memory")
    results = []
    for month in ("01", "02", "03"):
        with job.task(month) as task, task.open(f"2013-{month}.csv", "w", unique=True) as file:
            file.write("carrier,flight\nUA,1545\n" * 1000)
        results.append(task.result)
    before = _visible(stage)
    job.commit(results)
    return before, job.uuid


def write_half(dest: str) -> None:
    """The first half of a job: two files are written, then its process is not heard of again."""
    job = start(dest)
    for month in ("04", "05"):
        with job.task(month) as task, task.open(f"2013-{month}.csv", "w", unique=True) as file:
            file.write("carrier,flight\nDL,461\n" * 1000)


def be_killed(dest: str) -> None:
    """For a process of its own: write half, say so, wait for the end."""
    write_half(dest)
    sys.stdout.write("written\n")
    sys.stdout.flush()
    sys.stdin.read()  # ends with the tour, if nobody kills us


def _killed_job(stage: Stage) -> str:
    """What was done, in a sentence.

    Raises:
        MagicError: the process ended before its time.
    """
    if not stage.environment:
        write_half(PATH)
        return "It has written two files of three, and is never heard of again."
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        process.kill()
        code = process.wait(END_SECONDS_MAX)
    if told != "written\n":
        raise MagicError(f"the process that was to be killed ended by itself, with {code}")
    return f"Process {process.pid} has written two files of three: kill -9 {process.pid}."


def _leak(stage: Stage, uuid: str) -> None:
    store = stage.store()
    for name in (unique_name("2013-03.csv", uuid), FOREIGN):
        store.create_upload(DEST.key(name), attributes=Attributes())


def _visible(stage: Stage) -> int:
    """How many files a reader of the destination sees."""
    pages = stage.store().list(DEST.prefix)
    names = [info.key[len(DEST.prefix) :] for page in pages for info in page.objects]
    return sum(not name.startswith(("_", MAGIC_JOB_PREFIX)) for name in names)


def _uploads(stage: Stage) -> tuple[int, int]:
    """How many uploads of the other program are open, and how many of ours."""
    pages = stage.store().list_uploads(DEST.prefix)
    ours = [upload.key != DEST.key(FOREIGN) for page in pages for upload in page.uploads]
    return len(ours) - sum(ours), sum(ours)


# The S3 -------------------------------------------------------------------------------------------


@contextmanager
def _stage(shell: Shell, keep: bool, in_memory: bool) -> Iterator[Stage]:
    server = None if in_memory else _moto()
    if server is None:
        if keep:
            raise OptionError(
                "--keep needs moto's server",
                hint="pip install 'magic-committer[demo]', or leave --keep out",
            )
        with _wiring.in_memory(BUCKET):
            about = "An S3 of our own, in this process (with moto installed: in a server)."
            yield Stage({}, about)
        return
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        _make_bucket(url)
        environment = {"AWS_ENDPOINT_URL": url, **CREDENTIALS}
        with _environment({**environment, **NOTHING_ELSE}):
            yield Stage(
                environment,
                f"An S3 server of our own, moto's at {url}. (To moto every upload began in 2010.)",
            )
    finally:
        server.stop()


def _make_bucket(url: str) -> None:
    request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
    straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    straight.open(request, timeout=END_SECONDS_MAX).close()


def _moto() -> Any:
    """moto's server, not started; None where it is not installed."""
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        return None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else it prints a line for each request
    return ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)


@contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    """The process's environment, with this in place of all that is AWS's."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("AWS_"):
            del os.environ[name]
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _wait(shell: Shell, stage: Stage) -> None:
    """Keep the server until Ctrl-C."""
    shell.output.text("")
    shell.output.text("The server runs until Ctrl-C. In another terminal:")
    shell.output.text("")
    for name, value in stage.environment.items():
        shell.output.text(f"export {name}={value}")
    shell.output.stream.flush()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        shell.note("the server has ended, and all that it stored is gone")
