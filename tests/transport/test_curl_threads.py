"""libcurl in many threads, in forked children, after Ctrl-C, and at the interpreter's end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pycurl")

from magic_committer.stores.s3 import curl_threads
from magic_committer.stores.s3.curl import CurlLoop
from magic_committer.stores.s3.http import HTTPAnswer, NoAnswer, Sent
from tests.network.test_deadlines import certificate
from tests.silent import Mood, silent_server
from tests.transport.raw_server import (
    OK,
    Raw,
    Wire,
    curl_with,
    outcome,
    raw_server,
    request,
    within,
)

ROOT = Path(__file__).parents[2]
THREADS = 16


def echo(wire: Wire, raw: Raw) -> None:
    """Answers with the request's path and the length of its body."""
    while (asked := wire.ask()) is not None:
        raw.asked.append(asked)
        said = f"{asked.line.split()[1]} {len(asked.body)}".encode()
        wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))


def test_each_thread_gets_its_own_answers() -> None:
    """Many threads that send small and large requests at once each get what they asked for."""
    wrong: list[Any] = []

    def ask(thread: int) -> None:
        for number in range(20):
            size = 400_000 if number % 5 == 0 else thread
            got = outcome(curl, request(f"{raw.url}/{thread}/{number}", "PUT", bytes(size)))
            if not isinstance(got, HTTPAnswer) or got.body != f"/{thread}/{number} {size}".encode():
                wrong.append(got)

    with raw_server(echo) as raw, curl_with() as curl:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert len(raw.asked) == THREADS * 20


def test_connections_are_used_again() -> None:
    """Small and large requests, one after the other, each keep to one connection."""
    with raw_server(echo) as raw, curl_with() as curl:
        small = [outcome(curl, request(raw.url, "POST", b"x")) for _ in range(10)]
        large = [outcome(curl, request(raw.url, "PUT", bytes(400_000))) for _ in range(10)]
        assert raw.serving is not None
        assert raw.serving.taken == 2
    for got in (small, large):
        assert [isinstance(one, HTTPAnswer) and one.reused for one in got] == [False] + [True] * 9


def test_no_more_connections_than_allowed() -> None:
    """Small requests of many threads keep to the limit of the client, and all are answered."""
    got: dict[int, HTTPAnswer | NoAnswer] = {}
    with raw_server(echo) as raw, curl_with(connections_max=3) as curl:

        def ask(first: int) -> None:
            for number in range(first, first + 10):
                got[number] = outcome(curl, request(f"{raw.url}/{number}"))

        threads = [threading.Thread(target=ask, args=(first,)) for first in range(0, 100, 10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert raw.serving is not None
        assert raw.serving.taken <= 3
    assert {
        number: one.body.decode() for number, one in got.items() if isinstance(one, HTTPAnswer)
    } == {number: f"/{number} 0" for number in range(100)}


def test_an_iteration_has_as_many_connections_as_requests_in_flight() -> None:
    """The limit of the client is for single requests: an iteration says how many it wants."""
    with raw_server(echo) as raw, curl_with(connections_max=1) as curl:
        many = ((number, request(f"{raw.url}/{number}")) for number in range(200))
        got = dict(curl.send_each(many, in_flight=lambda: 5, deadline=within))
        assert raw.serving is not None
        assert 1 < raw.serving.taken <= 5
    assert all(isinstance(one, HTTPAnswer) for one in got.values())


def test_requests_of_an_iteration_are_taken_when_there_is_room() -> None:
    """`send_each` asks before each request how many may be in flight, and takes no more."""
    taken, ended, beyond = 0, 0, []

    def many() -> Any:
        nonlocal taken
        for number in range(50):
            taken += 1
            if taken - ended > 4:
                beyond.append(taken)
            yield number, request(raw.url)

    with raw_server(echo) as raw, curl_with() as curl:
        for _ in curl.send_each(many(), in_flight=lambda: 4, deadline=within):
            ended += 1
    assert (taken, ended, beyond) == (50, 50, [])


def test_with_no_room_there_is_one_in_flight() -> None:
    """``in_flight`` of 0 does not stop the iteration for ever."""
    with raw_server(echo) as raw, curl_with() as curl:
        many = ((number, request(raw.url)) for number in range(5))
        assert len(list(curl.send_each(many, in_flight=lambda: 0, deadline=within))) == 5


def test_an_iteration_that_is_left_ends_its_requests() -> None:
    """Requests in flight are ended when the iteration is left, and the connections closed."""
    came, left = threading.Semaphore(0), threading.Semaphore(0)

    def serve(wire: Wire, raw: Raw) -> None:
        asked = wire.ask()
        assert asked is not None
        if "/0" in asked.line:
            assert came.acquire(timeout=10)
            assert came.acquire(timeout=10)
            wire.say(OK)
            return
        came.release()
        assert wire.socket.recv(1) == b""
        left.release()

    with raw_server(serve) as raw, curl_with() as curl:
        many = ((number, request(f"{raw.url}/{number}")) for number in range(3))
        each = curl.send_each(many, in_flight=lambda: 3, deadline=lambda: within(60))
        assert next(each)[0] == 0
        each.close()
        assert left.acquire(timeout=10)
        assert left.acquire(timeout=10)


def test_an_error_of_the_requests_is_the_callers() -> None:
    """What the iterable raises reaches the caller, after what is in flight has ended."""

    def many() -> Any:
        yield 0, request(server.url)
        raise LookupError("no more")

    with silent_server(Mood.SILENT) as server, curl_with() as curl:
        each = curl.send_each(many(), in_flight=lambda: 2, deadline=lambda: within(60))
        with pytest.raises(LookupError):
            next(each)


@pytest.mark.parametrize("size", [10, 50_000_000], ids=["small", "large"])
def test_an_interrupt_ends_the_wait(size: int) -> None:
    """Ctrl-C in the main thread is raised by the verb, at once, and the buffer is free then."""
    body = bytearray(size)
    with silent_server(Mood.DEAF) as server, curl_with() as curl:

        def strike() -> None:
            while not server.taken:
                time.sleep(0.01)
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=strike).start()
        with memoryview(body) as view:
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                curl.send(request(server.url, "PUT", view), within(60))
            assert time.monotonic() - begun < 10
        body.append(0)  # refused while anybody holds the buffer


def test_interrupts_at_any_moment_are_raised_and_nothing_hangs() -> None:
    """Many interrupts at odd moments: each is raised once, and the client goes on."""
    with raw_server(echo) as raw, curl_with() as curl:
        for number in range(60):
            timer = threading.Timer(number * 0.0005, os.kill, (os.getpid(), signal.SIGINT))
            raised = 0
            try:
                timer.start()
                while True:
                    curl.send(
                        request(raw.url, "PUT", bytes(300_000 if number % 2 else 9)), within()
                    )
            except KeyboardInterrupt:
                raised += 1
            timer.join()
            assert raised == 1
        assert isinstance(outcome(curl, request(raw.url)), HTTPAnswer)


def test_after_close_requests_are_refused() -> None:
    """A closed client sends nothing, and what was under way has ended."""
    with silent_server(Mood.SILENT) as server, curl_with() as curl:
        got: list[Any] = []
        thread = threading.Thread(
            target=lambda: got.append(outcome(curl, request(server.url), within(60)))
        )
        thread.start()
        while not server.taken:
            time.sleep(0.01)
        curl.close()
        thread.join(10)
        assert isinstance(got[0], NoAnswer)
        late = outcome(curl, request(server.url))
        assert isinstance(late, NoAnswer)
        assert late.sent is Sent.NEVER
    assert server.taken == 1


def test_a_thread_without_work_ends_and_another_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle threads and their connections do not stay; a later request starts a thread again."""
    monkeypatch.setattr(curl_threads, "IDLE_SECONDS", 0.1)

    def running() -> int:
        return sum(one.name == "magic-committer-curl" for one in threading.enumerate())

    before = running()
    with raw_server(echo) as raw, curl_with() as curl:
        for size in (1, 400_000):
            for _ in range(3):
                assert isinstance(outcome(curl, request(raw.url, "PUT", bytes(size))), HTTPAnswer)
                until = time.monotonic() + 10
                while running() > before and time.monotonic() < until:
                    time.sleep(0.02)
                assert running() <= before


def test_a_failure_in_the_thread_reaches_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours in the loop is no silence: the caller hears of it, and the next request has
    a new thread."""

    def broken(*_: object) -> None:
        raise LookupError("a mistake")

    with raw_server(echo) as raw, curl_with() as curl:
        with monkeypatch.context() as patch:
            patch.setattr(CurlLoop, "turn", broken)
            patch.setattr(threading, "excepthook", lambda _: None)
            got = outcome(curl, request(raw.url))
        assert isinstance(got, NoAnswer)
        assert "a mistake" in str(got)
        assert isinstance(outcome(curl, request(raw.url)), HTTPAnswer)


# Forks --------------------------------------------------------------------------------------------


def in_child(work: Any) -> int:
    """Run in a forked child, which ends as a program does; its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(30)  # a child that hangs is killed
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    """Parent and child go on at the same time, each on its own connections, over TLS."""
    context, pem = certificate(tmp_path)

    def work() -> None:
        for number in range(10):
            got = outcome(curl, request(f"{raw.url}/child/{number}"))
            assert isinstance(got, HTTPAnswer)
            assert got.body == f"/child/{number} 0".encode()

    with raw_server(echo, context) as raw, curl_with(ca_file=pem) as curl:
        for size in (0, 400_000):
            assert isinstance(outcome(curl, request(raw.url, "PUT", bytes(size))), HTTPAnswer)
        assert in_child(work) == 0
        for size in (0, 400_000):
            got = outcome(curl, request(raw.url, "PUT", bytes(size)))
            assert isinstance(got, HTTPAnswer)
            assert got.reused


def test_a_child_is_not_stopped_by_a_lock_of_its_parent() -> None:
    """A fork at the very moment at which another thread hands over a request: the child goes on."""

    def work() -> None:
        assert isinstance(outcome(curl, request(raw.url)), HTTPAnswer)

    with raw_server(echo) as raw, curl_with() as curl:
        work()
        shared = curl._shared
        assert shared is not None
        with curl._lock, shared._lock:
            assert in_child(work) == 0
        work()


def test_an_iteration_does_not_go_on_in_a_child() -> None:
    """Requests of the parent are not the child's: it is told so, and its own are answered. The
    parent goes on."""

    def work() -> None:
        with pytest.raises(NoAnswer, match="gone"):
            list(each)
        assert isinstance(outcome(curl, request(f"{raw.url}/child", "PUT", bytes(9))), HTTPAnswer)
        own = ((number, request(raw.url)) for number in range(5))
        assert len(list(curl.send_each(own, in_flight=lambda: 2, deadline=within))) == 5

    release = threading.Event()

    def serve(wire: Wire, raw: Raw) -> None:
        while (asked := wire.ask()) is not None:
            if "/0" not in asked.line and "/child" not in asked.line:
                assert release.wait(10)
            wire.say(OK)

    with raw_server(serve) as raw, curl_with() as curl:
        many = ((number, request(f"{raw.url}/{number}")) for number in range(4))
        each = curl.send_each(many, in_flight=lambda: 2, deadline=lambda: within(60))
        assert next(each)[0] == 0
        timer = threading.Timer(2.5, release.set)
        timer.start()
        assert in_child(work) == 0
        timer.join()
        assert all(isinstance(one, HTTPAnswer) for _, one in each)


PROGRAM = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
from magic_committer.stores.s3.curl import CurlSettings
from magic_committer.stores.s3.curl_threads import Curl
from magic_committer.stores.s3.http import HTTPRequest
from magic_committer.stores.s3.sockets import Deadline

def send(url, size=0):
    return curl.send(HTTPRequest("PUT", url, (), bytes(size)), Deadline(60, 60))
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that begins with `PROGRAM`."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_child_that_ends_leaves_the_parents_connections(tmp_path: Path) -> None:
    """A child that forks, collects garbage, and exits as a program does, says nothing on its
    parent's connections of TLS."""
    context, pem = certificate(tmp_path)
    program = """
import gc
curl = Curl(CurlSettings(ca_file=sys.argv[2]))
assert not send(sys.argv[1]).reused
assert not send(sys.argv[1], 400_000).reused
child = os.fork()
if child == 0:
    del curl
    gc.collect()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert send(sys.argv[1]).reused
assert send(sys.argv[1], 400_000).reused
"""
    with raw_server(echo, context) as raw:
        ended = run(program, raw.url, pem)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(raw.asked) == 4


# The interpreter's end ----------------------------------------------------------------------------


@pytest.mark.parametrize("mood", [Mood.SILENT, Mood.DRIP_BODY, Mood.DEAF])
def test_an_interpreter_ends_with_requests_in_flight(mood: Mood) -> None:
    """Neither a hang nor a crash, though other threads wait for answers."""
    program = """
curl = Curl(CurlSettings())
for size in (0, 10, 5_000_000):
    threading.Thread(target=send, args=(sys.argv[1], size), daemon=True).start()
time.sleep(0.3)
"""
    with silent_server(mood) as server:
        for _ in range(2):
            begun = time.monotonic()
            ended = run(program, server.url)
            assert (ended.returncode, ended.stderr) == (0, "")
            assert time.monotonic() - begun < 20


def test_an_interpreter_ends_in_the_middle_of_its_requests() -> None:
    """Nor while answers come in."""
    program = """
curl = Curl(CurlSettings())
def work(size):
    while True:
        send(sys.argv[1], size)
for size in (0, 10, 300_000, 0, 10):
    threading.Thread(target=work, args=(size,), daemon=True).start()
time.sleep(0.2)
"""
    with raw_server(echo) as raw:
        for _ in range(4):
            ended = run(program, raw.url)
            assert (ended.returncode, ended.stderr) == (0, "")


# Descriptors and memory ---------------------------------------------------------------------------


def test_descriptors_above_1023_work() -> None:
    """With more than a thousand files open, small and large requests and many at once go on."""
    program = """
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
curl = Curl(CurlSettings())
begun = time.process_time()
for size in (0, 10, 400_000):
    for _ in range(5):
        assert send(sys.argv[1], size).status == 200
many = ((n, HTTPRequest("GET", sys.argv[1], ())) for n in range(50))
got = list(curl.send_each(many, in_flight=lambda: 20, deadline=lambda: Deadline(60, 60)))
assert all(one.status == 200 for _, one in got) and len(got) == 50
assert max(int(fd) for fd in os.listdir("/proc/self/fd")) > 1100
"""
    with raw_server(echo) as raw:
        ended = run(program, raw.url)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_memory_and_descriptors_do_not_grow() -> None:
    """After 20,000 requests, a part of which fail, a process is as large as after 2,000."""
    program = """
import resource
from magic_committer.stores.s3.http import NoAnswer
curl = Curl(CurlSettings())
def some(count):
    paths = ("/reset" if n % 100 == 0 else "/" for n in range(count))
    many = ((p, HTTPRequest("POST", sys.argv[1] + p, (("x-n", "1"),), b"x" * 300)) for p in paths)
    for path, one in curl.send_each(many, in_flight=lambda: 32, deadline=lambda: Deadline(60, 60)):
        assert isinstance(one, NoAnswer) == (path == "/reset"), one
def held():
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return pages * resource.getpagesize(), len(os.listdir("/proc/self/fd"))
some(2_000)
before = held()
some(18_000)
after = held()
assert after[0] - before[0] < 2 * 1024**2, (before, after)
assert abs(after[1] - before[1]) <= 40, (before, after)
"""

    def serve(wire: Wire, raw: Raw) -> None:
        while (asked := wire.ask()) is not None:
            if "/reset" in asked.line:
                wire.reset()
                return
            wire.say(OK)

    with raw_server(serve) as raw:
        ended = run(program, raw.url)
    assert (ended.returncode, ended.stderr) == (0, "")
