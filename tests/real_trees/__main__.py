"""Get real file systems, and run every test on them.

    python -m tests.real_trees              every test, on all that can be had here
    python -m tests.real_trees sftp hdfs    on these
    python -m tests.real_trees --get        only get what CI runs on

OpenSSH's package is installed only where ``MAGIC_COMMITTER_TEST_INSTALL=1`` says that the machine
is ours. What cannot be had is said, and its tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.real_servers.keeper import ROOT
from tests.real_servers.server import NoServer
from tests.real_trees import kinds

PYTEST = (sys.executable, "-m", "pytest", "--quiet", "--durations=10", "-rs")
SLOW = ("-o", "faulthandler_timeout=0")


def get(names: Sequence[str]) -> None:
    """Build, fetch or install the servers of these kinds where they are not yet."""
    for name in names:
        started = time.monotonic()
        try:
            kinds.GET.get(name, lambda: None)()
        except NoServer as error:
            print(f"!!! {name} is not here, its tests will be skipped: {error}", flush=True)
            continue
        print(f"{name}: ready ({time.monotonic() - started:.0f} s)", flush=True)


def main() -> int:
    """Get them, run the tests; the exit code."""
    arguments = sys.argv[1:]
    if arguments != ["--get"]:
        os.environ[kinds.ON] = ",".join(arguments) or kinds.ALL
    get(kinds.wanted())
    if arguments == ["--get"]:
        return 0
    return subprocess.run([*PYTEST, *SLOW, "tests/real_trees"], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
