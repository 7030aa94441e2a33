"""What the tests of a folder run on: which kinds a run wants, got once for each machine, and said
aloud where it cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.real_servers.keeper import ROOT
from tests.real_servers.server import NoServer

ALL = "all"
PYTEST = (sys.executable, "-m", "pytest", "--quiet", "--durations=10", "-rs")
SLOW = ("-o", "faulthandler_timeout=0")


@dataclass(frozen=True)
class Choice:
    """Kinds of which a run wants some.

    Attributes:
        folder: of the tests. on: the environment's variable that names kinds, or `ALL`.
        get: builds, fetches or installs each kind where it is not yet; raises NoServer.
        unset: what a run wants that names none. needed: without this one nothing is proved.
    """

    folder: str
    on: str
    get: Mapping[str, Callable[[], object]]
    unset: Callable[[], tuple[str, ...]]
    needed: str = ""

    def wanted(self) -> tuple[str, ...]:
        """The kinds of this run. Raises SystemExit: one is named that there is not."""
        named = os.environ.get(self.on, "")
        if not named:
            return self.unset()
        names = tuple(self.get) if named == ALL else tuple(named.split(","))
        if unknown := set(names) - self.get.keys():
            known = f"there are {', '.join(self.get)} and {ALL}"
            raise SystemExit(f"{self.on}: no {', '.join(unknown)}; {known}")
        return names

    def main(self, arguments: Sequence[str]) -> int:
        """Get them and run the tests, or, by ``--get``, only get them; the exit code."""
        only = list(arguments) == ["--get"]
        if not only:
            os.environ[self.on] = ",".join(arguments) or ALL
        for name in self.wanted():
            started = time.monotonic()
            try:
                self.get[name]()
            except NoServer as error:
                if name == self.needed:
                    raise
                print(f"!!! {name} is not here, its tests will be skipped: {error}", flush=True)
                continue
            print(f"{name}: ready ({time.monotonic() - started:.0f} s)", flush=True)
        return 0 if only else subprocess.run([*PYTEST, *SLOW, self.folder], cwd=ROOT).returncode


def say_missing(reporter: pytest.TerminalReporter, missing: Mapping[str, str]) -> None:
    """What was not run, loudly."""
    for name, why in missing.items():
        reporter.section(f"NOT RUN: {name}", sep="!", red=True, bold=True)
        reporter.write_line(why)
