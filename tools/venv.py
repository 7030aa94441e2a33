"""Make `.venv`, add to it, or repair it: whatever it takes until it holds what a profile needs.

    python3 -m tools.venv demo | test | bench | docs | peers

One `.venv` serves all profiles: the first `make demo` installs little, `make test` adds to it. Only
what `make bench` measures us against has an environment of its own, `.venv-bench`: others' versions
of a shared dependency are not ours, and ours not theirs.

The file `.venv/complete.json` says what is in it. Invariants:

* It is written last, in one step, and removed before anything is changed. Without it, `.venv` is
  half made, and is made anew.
* It names what `.venv` was made from: the bytes of pyproject.toml, this directory (an editable
  install and scripts name it), and the Python. If one of them is another now, so is `.venv`.
* One process at a time works on it (`flock` on pyproject.toml); a second one waits, then finds it
  done. The steps hold the lock, too: should we be killed, the next waits until they are gone.

Python's standard library only. Older Pythons can parse this file, so that they can say what is
wrong: no syntax later than 3.8.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (this is where older ones are told)
    sys.exit(
        f"magic-committer needs Python 3.11 or newer; {sys.executable} is"
        f" {sys.version.split()[0]}. Name another: make PYTHON=python3.12 …"
    )

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools import lifeline

ROOT = Path(__file__).resolve().parent.parent
PROFILES: dict[str, tuple[list[str], list[str]]] = {
    "demo": (["demo"], []),
    "test": (["demo", "crt"], ["dev", "docs", "trees"]),
    "bench": (["crt"], []),
    "docs": ([], ["docs"]),
    "peers": ([], ["bench"]),
}
"""Profile: extras and dependency groups of pyproject.toml."""
PEERS = "peers"
"""This profile has an environment of its own, without this project."""

BASE_PYTHON = os.path.realpath(sys.executable)
"""The Python to make it with: never that of a virtual environment, which may be `.venv` itself."""


class Venv:
    """The virtual environment of one checkout. ``folder``: its name there."""

    def __init__(self, root: Path = ROOT, folder: str = ".venv") -> None:
        self.root = root
        self.path = root / folder
        self.python = self.path / "bin" / "python"
        self._complete = self.path / "complete.json"
        self._lock = -1

    def ensure(self, profile: str) -> None:
        """Make it hold ``profile``. Does nothing, in a few milliseconds, where it already does.

        Raises:
            SystemExit: a step failed; its output has been printed.
        """
        with self._locked():
            profiles = self._profiles()
            if profile in profiles:
                return
            started = time.monotonic()
            target = "bench" if profile == PEERS else profile
            print(f"Preparing {self.path.name} for `make {target}` (once) …", flush=True)
            if self.path.is_dir():
                self._complete.unlink(missing_ok=True)
            if not profiles:
                self._remove()
                self._step("venv", "--clear", str(self.path), python=Path(BASE_PYTHON))
            self._install(profile)
            self._write({*profiles, profile})
            print(f"… done in {time.monotonic() - started:.0f} s.", flush=True)

    def _profiles(self) -> set[str]:
        """What it holds; empty if it is absent, half made, outdated or broken."""
        try:
            stamp = json.loads(self._complete.read_bytes())
            made_from, profiles = stamp["made_from"], set(stamp["profiles"])
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
            return set()
        return profiles if made_from == self._made_from() and self._runs() else set()

    def _made_from(self) -> dict[str, str]:
        pyproject = (self.root / "pyproject.toml").read_bytes()
        return {
            "pyproject": hashlib.sha256(pyproject).hexdigest(),
            "directory": str(self.root),
            "python": f"{BASE_PYTHON} {sys.version}",
        }

    def _runs(self) -> bool:
        try:
            return subprocess.run([self.python, "-c", ""], capture_output=True).returncode == 0
        except OSError:
            return False

    def _remove(self) -> None:
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)

    def _install(self, profile: str) -> None:
        extras, groups = PROFILES[profile]
        pyproject = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))
        # Read here, as the pip that comes with Python 3.11 knows no dependency groups.
        grouped = [line for group in groups for line in pyproject["dependency-groups"][group]]
        wanted = f"{self.root}[{','.join(extras)}]" if extras else str(self.root)
        ours = () if profile == PEERS else ("--editable", wanted)
        self._step(
            *("pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"),
            *(*ours, *grouped),
            python=self.python,
        )

    def _step(self, *module_and_arguments: str, python: Path) -> None:
        command = [str(python), "-m", *module_and_arguments]
        code = lifeline.run(command, cwd=self.root, pass_fds=[self._lock])
        if code:
            sys.exit(f"`python -m {' '.join(module_and_arguments[:2])}` failed with code {code}.")

    def _write(self, profiles: set[str]) -> None:
        draft = self._complete.with_suffix(".draft")
        stamp = {"made_from": self._made_from(), "profiles": sorted(profiles)}
        draft.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
        draft.replace(self._complete)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # The lock belongs to the open file: it ends with its last holder, also by kill -9.
        with open(self.root / "pyproject.toml") as file:
            self._lock = file.fileno()
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def main() -> int:
    """Handle the command line."""
    if len(sys.argv) != 2 or sys.argv[1] not in PROFILES:
        print(f"usage: python3 -m tools.venv {' | '.join(PROFILES)}", file=sys.stderr)
        return 2
    profile = sys.argv[1]
    Venv(folder=".venv-bench" if profile == PEERS else ".venv").ensure(profile)
    return 0


if __name__ == "__main__":
    sys.exit(lifeline.guarded(main))
