"""Run the project's suites, each with a cap on its time, and say how each went.

    python -m tools.suites test           what `make test` runs
    python -m tools.suites ci             the slower rest, which `.ci/run` adds
    python -m tools.suites nightly        all of them, whole: `make nightly`
    python -m tools.suites NAME…          some of them

Two run side by side, the longest first, each as a process of its own that prints when it has ended:
most wait more than they compute. One that is named alone prints as it goes.

A suite that fails does not stop the next. None fails for being slow: a cap is a figure, for a
machine with two cores, and its line says when it was passed. Only a suite that hangs is ended: one
that has printed nothing, not a test's dot, for ten minutes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

from tools import lifeline

NIGHTLY = "MAGIC_COMMITTER_NIGHTLY"
"""In the environment: nothing is a sample (tests/nightly.py)."""

ROOT = Path(__file__).resolve().parent.parent

RUFF = (sys.executable, "-m", "ruff")
MYPY = (sys.executable, "-m", "mypy")
PYTEST = (
    *(sys.executable, "-m", "pytest", "--quiet", "--durations=3", "--durations-min=5"),
    *(("--color=yes",) if sys.stdout.isatty() else ()),
)
"""Its output passes through a pipe (`lifeline`), so it must be told of a terminal."""
LANES = 2
"""Suites at once."""
LOOK_SECONDS = 0.2
PROCESSES = "--numprocesses=2"
"""For suites that are spread. What they share, as a server, each of the two starts for itself."""
DEALT = {"tests": "--dist=worksteal", "files": "--dist=loadfile", "groups": "--dist=loadgroup"}
"""How pytest-xdist deals out the tests, by a suite's ``spread``."""
SLOW = ("-o", "faulthandler_timeout=0")
"""A slow test is no hanging one; and looking at the stacks of greenlets ends the interpreter."""
CHECK = (
    (*RUFF, "check", "--quiet", "."),
    (*RUFF, "format", "--check", "--quiet", "."),
    MYPY,
    (*MYPY, "--python-version=3.14"),
)


SERVERS = (sys.executable, "-m", "tests.real_servers", "--get")
"""Builds versitygw, with Go, where it is not built yet; and sees whether Ceph is there."""

HADOOP = (sys.executable, "-m", "tests.interop.jars")
"""Fetches real Hadoop's jars, with Maven, where they are not there yet."""

TREES = (sys.executable, "-m", "tests.real_trees", "--get")
"""Fetches a real HDFS and OpenSSH's server, where they are not there yet and may be."""

APART = (sys.executable, "-m", "tools.apart")
"""What needs an environment of its own: in CI the lowest release of Spark. At night all."""

SOAK = (sys.executable, "-m", "tests.chaos", "soak", "--seed", "1", "--minutes")
"""Jobs under kills, a minute of them; `make soak MINUTES=60` is the same for longer."""

SITE = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet")
"""What `make docs` runs: a warning is an error."""


SCHEDULES = (sys.executable, "-m", "tests.simulation", "--seed", "0", "--runs", "50000")
"""As many as two cores run in a minute, or at night; a slow machine stops earlier."""

MUTANTS = (sys.executable, "-m", "tests.mutants")
"""In CI those of the sample whose killers are known: they must kill still. At night all."""
SAMPLE = (*MUTANTS, "--sample", "--known", "--seconds", "60")


@dataclass(frozen=True)
class Suite:
    """Commands that run one after the other.

    Attributes:
        name: what it is called on the command line.
        cap: seconds that it takes at most on a machine with two cores, as CI's. No limit.
        folders: folders of tests/ that pytest runs. Every folder belongs to one suite
            (tests/tidy says so).
        commands: other commands, run first.
        slow: not part of `make test`.
        share: of each test's parameters, but for at night (tests/conftest.py).
        spread: whether its tests run in two processes, and how they are dealt out: one by one, or a
            file's, or a group's (as those of one server) to the same process. Not Spark's, one of
            which fills the machine; nor those of properties, which fill it themselves, once.
    """

    name: str
    cap: int
    folders: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    slow: bool = False
    share: float = 1.0
    spread: Literal["", "tests", "files", "groups"] = ""

    def all_commands(self) -> list[tuple[str, ...]]:
        """Its commands, the tests last."""
        tests = tuple(f"tests/{folder}" for folder in self.folders)
        run = (*PYTEST, *SLOW) if self.slow else PYTEST
        if self.spread:
            run = (*run, PROCESSES, DEALT[self.spread])
        if self.share < 1:
            run = (*run, f"--share={self.share}")
        return [*self.commands, *([(*run, *tests)] if tests else [])]


SUITES = (
    Suite("check", 65, ("tidy", "typing"), CHECK),
    Suite("unit", 80, ("unit", "tools", "recipes"), spread="tests"),
    Suite("contract", 110, ("contract",), spread="tests"),
    Suite("fuzz", 60, ("fuzz",), spread="tests"),
    Suite("promises", 150, ("promises",), spread="tests"),
    Suite("cli", 70, ("cli",), spread="tests"),
    Suite("schedules", 65, commands=((*SCHEDULES, "--seconds", "60"),)),
    Suite("spark", 160, ("spark",), slow=True, share=0.6),
    Suite("faces", 210, ("spark_faces",), slow=True, share=0.5),
    Suite("apart", 90, commands=((*APART, "spark-3.5"),), slow=True),
    Suite("cluster", 190, ("cluster",), slow=True, share=0.35),
    Suite("scale", 100, ("scale",), slow=True),
    Suite("simulation", 40, ("simulation",), slow=True, spread="files"),
    Suite("properties", 90, ("properties",), slow=True),
    Suite("mutants", 180, ("mutants",), (SAMPLE,), slow=True, spread="tests"),
    Suite("search", 80, ("model",), slow=True, spread="tests"),
    Suite("crashwalk", 60, ("crashwalk",), slow=True, share=0.6, spread="tests"),
    Suite("running", 45, ("running", "engines"), slow=True),
    Suite("process", 130, ("process",), slow=True, share=0.25, spread="tests"),
    Suite("benchmarks", 30, ("benchmarks",), slow=True, spread="tests"),
    Suite("transport", 50, ("transport",), slow=True, share=0.7, spread="tests"),
    Suite("chaos", 300, ("chaos",), slow=True, share=0.7, spread="files"),
    Suite("real", 190, ("real_servers",), (SERVERS,), slow=True, share=0.5, spread="groups"),
    Suite("trees", 80, ("real_trees",), (TREES,), slow=True, share=0.6),
    Suite("soak", 90, commands=((*SOAK, "1"),), slow=True),
    Suite("interop", 90, ("interop",), (HADOOP,), slow=True, share=0.7),
    Suite("site", 20, ("site",), (SITE,), slow=True),
    Suite("demo", 100, ("demo",), slow=True),
)


WHOLE = {
    "schedules": ((*SCHEDULES, "--seconds", "1800"),),
    "mutants": (MUTANTS,),
    "apart": (APART,),
    "soak": ((*SOAK, "20"),),
}
"""What a suite runs at night in the place of its command."""


@dataclass(frozen=True)
class Outcome:
    """How a suite went."""

    suite: Suite
    seconds: float
    failed: bool
    cpu_seconds: float = 0.0
    """What its processes used, as far as each was waited for by the one that started it."""

    def __str__(self) -> str:
        verdict = "FAILED" if self.failed else "ok"
        note = "  over its cap" if self.seconds > self.suite.cap else ""
        return (
            f"{self.suite.name:<12}{verdict:<8}{self.seconds:>6.0f} s"
            f"  (cap {self.suite.cap} s) {self.cpu_seconds:>5.0f} CPU s{note}"
        )


def run(suite: Suite) -> Outcome:
    """Run one suite; all of its commands, even if one fails."""
    print(f"\n--- {suite.name} (cap {suite.cap} s)", flush=True)
    started, used = time.monotonic(), _cpu_seconds()
    failed = False
    for command in suite.all_commands():
        code = lifeline.run(command, cwd=ROOT, silent_seconds_max=lifeline.HANGS_SECONDS)
        if code == lifeline.HUNG:
            print(f"{suite.name}: ended: nothing printed for {lifeline.HANGS_SECONDS / 60:.0f} min")
        failed = failed or code != 0
    return Outcome(suite, time.monotonic() - started, failed, _cpu_seconds() - used)


def _cpu_seconds() -> float:
    """What all ended processes used that this one started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def choose(names: Sequence[str]) -> list[Suite]:
    """The suites of a command line.

    Raises:
        SystemExit: there is no such suite.
    """
    suites: tuple[Suite, ...] = SUITES
    if names == ["nightly"]:
        os.environ[NIGHTLY] = "1"
    if os.environ.get(NIGHTLY):
        suites = tuple(
            replace(suite, share=1.0, commands=WHOLE.get(suite.name, suite.commands))
            for suite in SUITES
        )
    if names == ["nightly"]:
        return list(suites)
    if names in (["test"], ["ci"]):
        return [suite for suite in suites if suite.slow == (names == ["ci"])]
    known = {suite.name: suite for suite in suites}
    if not names or (unknown := set(names) - known.keys()):
        wrong = f"no suite {', '.join(sorted(unknown))}; " if names else ""
        sys.exit(f"{wrong}suites: test, ci, nightly, or some of {', '.join(known)}")
    return [known[name] for name in names]


def side_by_side(suites: Sequence[Suite]) -> dict[str, tuple[bool, str]]:
    """Run suites, each in a process of its own, `LANES` at once; print what each has said when it
    ends. Gives whether each failed, and its last line."""
    waiting = sorted(suites, key=lambda suite: suite.cap)
    running: dict[subprocess.Popen[bytes], tuple[Suite, IO[bytes]]] = {}
    ended: dict[str, tuple[bool, str]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < LANES:
                suite = waiting.pop()
                said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
                command = (sys.executable, "-m", "tools.suites", suite.name)
                process = subprocess.Popen(
                    command, cwd=ROOT, stdout=said, stderr=said, start_new_session=True
                )
                running[process] = suite, said
                print(f"{suite.name} has begun", flush=True)
            time.sleep(LOOK_SECONDS)
            lifeline.look_for_parent()
            for process in [one for one in running if one.poll() is not None]:
                suite, said = running.pop(process)
                last = _printed(said).rpartition("\n")[2]
                failed = process.returncode != 0
                told = "FAILED" in last or not failed  # not if a signal has ended it
                ended[suite.name] = failed, last if told else f"{suite.name:<12}FAILED"
    finally:
        for process in running:  # we were interrupted: each ends what it runs, and then itself
            process.terminate()
        for process, (_, said) in running.items():
            process.wait()
            _printed(said)
    return ended


def _printed(said: IO[bytes]) -> str:
    """Print what a suite has said."""
    with said:
        said.seek(0)
        text = said.read().decode(errors="replace").rstrip()
    print(text, flush=True)
    return text


def main() -> int:
    """Run the suites of the command line; 0 if all passed."""
    suites = choose(sys.argv[1:])
    if len(suites) == 1:
        outcome = run(suites[0])
        print(f"--- {outcome}", flush=True)
        return 1 if outcome.failed else 0
    started = time.monotonic()
    ended = side_by_side(suites)
    print(f"\n--- all (Python {sys.version.split()[0]}, {os.cpu_count()} cores)")
    for suite in suites:
        print(ended[suite.name][1].removeprefix("--- "))
    print(f"{'together':<20}{time.monotonic() - started:>6.0f} s", flush=True)
    return 1 if any(failed for failed, _ in ended.values()) else 0


if __name__ == "__main__":
    sys.exit(lifeline.guarded(main))
