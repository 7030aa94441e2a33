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
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

LOOK_SECONDS = 0.5
"""How often we look for our parent."""
PATIENCE_SECONDS = 10.0
"""How long a command may take to end after Ctrl-C or SIGTERM before it is killed."""
TIMED_OUT = 124
"""The exit code of a command that ran past its limit, as of coreutils' ``timeout``."""

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
    seconds_max: float = float("inf"),
    pass_fds: Sequence[int] = (),
) -> int:
    """Run a command to its end and return its exit code (negative: the signal that ended it).

    Whatever it leaves running in its process group is killed then.

    Args:
        seconds_max: after this the group is killed, and the code is `TIMED_OUT`.
        pass_fds: file descriptors that it is to hold besides its standard streams, which are ours.

    Raises:
        ParentGone: our parent died first.
        KeyboardInterrupt: after the command has ended on it.
    """
    _look_for_parent()
    deadline = time.monotonic() + seconds_max
    with _warden() as tell:
        # preexec_fn is safe here: this process has one thread. It runs in the child, after setsid.
        process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=lambda: tell("+", os.getpid()),
        )
        try:
            return _wait(process, deadline)
        finally:
            _kill_group(process.pid)
            process.wait()
            tell("-", process.pid)


def _wait(process: subprocess.Popen[bytes], deadline: float) -> int:
    while True:
        try:
            return process.wait(timeout=LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            _look_for_parent()
            if time.monotonic() > deadline:
                return TIMED_OUT
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=PATIENCE_SECONDS)
            raise


def _look_for_parent() -> None:
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
