"""Get real servers, and run every test on them.

    python -m tests.real_servers                every test, on all that can be had here
    python -m tests.real_servers minio ceph     on these
    python -m tests.real_servers --get          only get what CI runs on

Ceph's packages are installed only where ``MAGIC_COMMITTER_TEST_INSTALL=1`` says that the machine is
ours. What cannot be had is said, and its tests are skipped; versitygw must be had.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.real_servers import ceph, kinds
from tests.real_servers.keeper import ROOT
from tests.real_servers.server import NoServer

PYTEST = (sys.executable, "-m", "pytest", "--quiet", "--durations=10", "-rs")
SLOW = ("-o", "faulthandler_timeout=0")


def get(names: Sequence[str]) -> None:
    """Build, or install, these servers where they are not yet.

    Raises:
        NoServer: of the one that is needed.
    """
    for name in names:
        started = time.monotonic()
        try:
            if name == ceph.Ceph.NAME:
                ceph.install()
            else:
                kinds.KINDS[name].get()
        except NoServer as error:
            if name == kinds.NEEDED:
                raise
            print(f"!!! {name} is not here, its tests will be skipped: {error}", flush=True)
            continue
        print(f"{name}: ready ({time.monotonic() - started:.0f} s)", flush=True)


def main() -> int:
    """Get them, run the tests; the exit code."""
    arguments = sys.argv[1:]
    if arguments == ["--get"]:
        get(kinds.wanted())
        return 0
    os.environ[kinds.ON] = ",".join(arguments) or kinds.ALL
    get(kinds.wanted())
    return subprocess.run([*PYTEST, *SLOW, "tests/real_servers"], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
