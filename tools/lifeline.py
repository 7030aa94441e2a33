"""Run a command so that nothing of it outlives us, whichever way we end.

    python -m tools.lifeline COMMAND ARGUMENT…

Three processes, so that either of the first two may be killed with -9:

* *we* wait for the command, and look twice a second whether our own parent (make) still lives;
* *the command* leads a session and process group of its own, which its children join;
* *the warden*, a small process in a session of its own, holds the end of a pipe that only we write
  to. When we are gone, however that came, the pipe ends, and it kills the groups it was told of.

A command's group is known to the warden before the command starts to run. Ctrl-C reaches only us,
as the command is in another session: we pass it on and wait for the command to end by itself.
Python's standard library only, as this runs before there is a virtual environment.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

LOOK_SECONDS = 0.5
"""How often we look for our parent."""
PATIENCE_SECONDS = 10.0
"""How long a command may take to end after Ctrl-C or SIGTERM before it is killed."""
HANGS_SECONDS = 10 * 60.0
"""A command that prints nothing for so long hangs. No machine is so slow: each test is a dot."""
HUNG = 124
"""The exit code of a command that hung, as of coreutils' ``timeout``."""

_ENDING = (signal.SIGINT, signal.SIGTERM)
_PARENT = os.getppid()
# make puts its own process id here: it may have died before we could first look at our parent.
_MAKE = int(os.environ.pop("MAKE_PID", 0))

_WARDEN = """
import os, signal
groups = set()
for line in os.fdopen(0):
    sign, group = line[0], int(line[1:])
    (groups.add if sign == "+" else groups.discard)(group)
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class ParentGone(SystemExit):
    """Our parent died while a command ran; the command was killed."""


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    silent_seconds_max: float | None = None,
    pass_fds: Sequence[int] = (),
) -> int:
    """Run a command to its end and return its exit code (negative: the signal that ended it).

    Whatever it leaves running in its process group is killed then.

    Args:
        silent_seconds_max: when it has printed nothing for so long, the group is killed, and the
            code is `HUNG`. None: without end, and its standard output is ours; else it passes
            through us, as it comes.
        pass_fds: file descriptors that it is to hold besides its standard streams, which are ours.

    Raises:
        ParentGone: our parent died first.
        KeyboardInterrupt: after the command has ended on it.
    """
    look_for_parent()
    with _warden() as tell:
        # Ctrl-C waits until `_wait` can pass it on: the command may run before Popen returns.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                pass_fds=pass_fds,
                stdout=None if silent_seconds_max is None else subprocess.PIPE,
                start_new_session=True,
                # It is safe here: this process has one thread. It runs in the child, after setsid.
                preexec_fn=lambda: _begin(tell),
            )
        except BaseException:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            raise
        try:
            return _wait(process, silent_seconds_max)
        finally:
            _kill_group(process.pid)
            process.wait()
            if process.stdout is not None and not process.stdout.closed:
                os.set_blocking(process.stdout.fileno(), False)
                while _pass_on(process.stdout):
                    pass
                process.stdout.close()
            tell("-", process.pid)


def _begin(tell: Callable[[str, int], None]) -> None:
    tell("+", os.getpid())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _wait(process: subprocess.Popen[bytes], silent_seconds_max: float | None) -> int:
    heard = time.monotonic()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        while process.poll() is None:
            if _listen(process):
                heard = time.monotonic()
            elif silent_seconds_max is not None and time.monotonic() - heard > silent_seconds_max:
                return HUNG
            look_for_parent()
        return process.returncode
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        end = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and time.monotonic() < end:
            _listen(process)
        raise


def _listen(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for a command to end or to say something; whether it did say something."""
    output = process.stdout
    if output is None or output.closed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=LOOK_SECONDS)
    elif select.select([output], [], [], LOOK_SECONDS)[0]:
        if _pass_on(output):
            return True
        output.close()
    return False


def _pass_on(output: IO[bytes]) -> bool:
    """Print what a command has said; whether it was anything."""
    said = b""
    with contextlib.suppress(BlockingIOError):
        said = os.read(output.fileno(), 1 << 16)
    sys.stdout.flush()
    sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()
    return bool(said)


def look_for_parent() -> None:
    gone = os.getppid() != _PARENT
    if _MAKE and not gone:
        try:
            os.kill(_MAKE, 0)
        except ProcessLookupError:
            gone = True
    if gone:
        raise ParentGone(f"{os.path.basename(sys.argv[0])}: the parent is gone")


@contextlib.contextmanager
def _warden() -> Iterator[Callable[[str, int], None]]:
    """Start the warden; gives the function that tells it of groups."""
    warden = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _WARDEN],
        stdin=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    assert warden.stdin is not None
    pipe = warden.stdin.fileno()

    def tell(sign: str, group: int) -> None:
        os.write(pipe, f"{sign}{group}\n".encode())  # short enough to be atomic (POSIX: PIPE_BUF)

    try:
        yield tell
    finally:
        warden.stdin.close()
        warden.wait()


def _kill_group(group: int) -> None:
    # macOS answers "not permitted" for a group of which only zombies are left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def guarded(main: Callable[[], int]) -> int:
    """Run a program's main function; returns its exit code as shells count. SIGTERM is treated
    as Ctrl-C is: passed on to the command that runs."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = main()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(guarded(lambda: run(sys.argv[1:])))
