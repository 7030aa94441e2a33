"""A process at the limits of its machine is told what to do, and nothing is left; one that forks at
any moment has children that work."""

from __future__ import annotations

import json

import pytest

import magic_committer as mc
from tests.process.conftest import fresh
from tests.servers import moto_options

LIMITED = """
import resource, sys, tempfile
import magic_committer as mc
from magic_committer.testing import memory_store

with memory_store() as s3:
    with mc.write("s3://bucket/warm") as job, job.open("a") as file:
        file.write(b"x")
    before = resource.getrlimit(getattr(resource, sys.argv[1]))
    resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]), before[1]))
    options = mc.Options(buffer_bytes_max=0)
    try:
        with mc.write("s3://bucket/t", options=options) as job:
            files = [job.open(f"{number}.bin") for number in range(100)]
            for file in files:
                for _ in range(30):
                    file.write(bytes(100_000))
            for file in files:
                file.close()
    except mc.UploadFailed as error:
        print(error)
    assert not [key for key in s3.keys() if key.startswith("t/")]
    assert not s3.open_uploads()
"""


@pytest.mark.parametrize(
    ("limit", "value", "told"),
    [("RLIMIT_NOFILE", 64, "ulimit -n"), ("RLIMIT_FSIZE", 1_000_000, "buffer_dir")],
)
def test_a_limit_is_told_with_what_helps(limit: str, value: int, told: str) -> None:
    """Too many open files, and a disk that takes no more: the hint is the one that helps, and the
    job is aborted."""
    ended = fresh("", "-c", LIMITED, limit, str(value))
    assert ended.code == 0, ended
    assert told in ended.said
    assert ("buffer_dir" in ended.said) == (told == "buffer_dir")


NEARLY_FULL = """
import contextlib, json, os, resource, sys
import magic_committer as mc

dest, job, result = sys.argv[1:]
job = mc.attach(dest, job)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = []
with contextlib.suppress(OSError):
    while True:
        kept.append(os.dup(0))
for free in kept[:3]:
    os.close(free)
print(job.commit([json.loads(result)]).outcome)
"""


def test_a_commit_with_three_free_descriptors_ends(server: str) -> None:
    """Most of its connections are refused by the system: what it does then needs no descriptor."""
    dest, s3 = "s3://bucket/full", moto_options(server)
    job = mc.start(dest, s3=s3)
    with job.task("1") as task:
        for number in range(60):
            task.write_text(f"{number}.txt", "1")
    result = json.dumps(task.result.to_dict())
    ended = fresh(server, "-c", NEARLY_FULL, dest, job.id, result)
    assert ended.said.strip() == "committed", ended


FORKING = """
import faulthandler, os, sys, threading, traceback, warnings
warnings.simplefilter("ignore")
import magic_committer as mc
from magic_committer.testing import memory_store

ended = threading.Event()


def write(name):
    with memory_store(), mc.write(f"s3://bucket/{name}") as job:
        with job.open("a.bin") as file:
            for _ in range(90):
                file.write(bytes(100_000))


def first():
    try:
        write("parent")
    finally:
        ended.set()


thread = threading.Thread(target=first)
thread.start()
children = []
while not ended.wait(float(sys.argv[1])) and len(children) < 5:
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(300, exit=True)
        try:
            write(f"child-{os.getpid()}")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
thread.join()
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert codes and not any(codes), codes
"""


@pytest.mark.parametrize("pause", [0.002, 0.01, 0.03])
def test_children_that_are_forked_in_the_middle_of_a_first_use_work(pause: float) -> None:
    """A thread uses the library for the first time, and imports and starts threads for that; at
    moments of it children are forked, each of which writes a job of its own. (Not on a real wire: a
    child that is forked while OpenSSL makes its first context hangs in OpenSSL.)"""
    ended = fresh("", "-c", FORKING, str(pause))
    assert ended.code == 0, ended
