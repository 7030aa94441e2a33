"""Run the quick tests on every Python that is supported, and on the lowest dependencies.

    python -m tools.pythons                 3.11 to 3.14, then the lowest dependencies
    python -m tools.pythons 3.13 lowest     some of them

Where a Python comes from, in this order: ``pythonX.Y`` on PATH, pyenv's, and, for root on Linux
with `debootstrap`, a folder with the Debian suite that has it, entered by `chroot` in a mount
namespace of its own. A Python that none of these has is skipped, and the last lines say so.

Everything is below ``~/.cache/magic-committer/pythons``, one folder for each Python: delete it to
begin anew. Nothing is installed on the machine. In a chroot there is no network: the wheels are
fetched from outside, by the pip of this process.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import lifeline

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magic-committer/pythons"
SUITES = {"3.13": "trixie", "3.14": "forky"}
"""Pythons that a later Debian has."""
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
LOWEST = "lowest"
FOLDERS = ("unit", "contract", "promises", "process")
PACKAGES = frozenset(
    ("awscrt", "flask", "flask-cors", "fsspec", "greenlet", "hypothesis", "moto", "pytest")
)
"""Of the packages for development, those that these tests need."""
CHECKOUT = "/checkout"
"""Where a chroot has this checkout."""
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")


@dataclass(frozen=True)
class Place:
    """Where a Python is, and how a command runs there.

    Attributes:
        python: the interpreter, as its own world names it.
        world: the root of its file system; None: this machine's.
    """

    version: str
    python: str
    world: Path | None = None

    def inside(self, path: Path) -> str:
        """A path of this machine, as the Python's world names it."""
        return str(path if self.world is None else Path("/") / path.relative_to(self.world))


# Which Pythons there are --------------------------------------------------------------------------


def find(version: str) -> Place | str:
    """A Python of that version, or why there is none."""
    name = f"python{version}"
    found = [path for path in (shutil.which(name), *_of_pyenv(version)) if path]
    for path in found:
        if _says(path) == version:
            return Place(version, path)
    suite = SUITES.get(version)
    if suite is None:
        return f"there is no {name} on PATH, nor in pyenv, and no later Debian has it"
    world = CACHE / f"debian-{suite}"
    if (world / "complete").exists():
        return Place(version, f"/usr/bin/{name}", world)
    if os.geteuid() != 0:
        return f"there is no {name}; as root, debootstrap could get it from Debian {suite}"
    if shutil.which("debootstrap") is None:
        return f"there is no {name}; `apt-get install debootstrap` lets me get it from {suite}"
    return _bootstrap(version, suite, world)


def _of_pyenv(version: str) -> list[str]:
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return [str(path) for path in home.glob(f"versions/{version}.*/bin/python{version}")]


def _says(python: str) -> str:
    """The version that a Python gives; "" if it does not run (a shim of pyenv's, say)."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    ran = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return ran.stdout.strip()


def _bootstrap(version: str, suite: str, world: Path) -> Place | str:
    """Make a folder with a small Debian that has the Python."""
    mirror = _mirror()
    if not mirror:
        return f"no mirror of Debian is named in {' or '.join(SOURCES)}"
    print(f"Getting Debian {suite} for Python {version} (once) …", flush=True)
    shutil.rmtree(world, ignore_errors=True)
    world.parent.mkdir(parents=True, exist_ok=True)
    scripts = Path("/usr/share/debootstrap/scripts")
    script = scripts / (suite if (scripts / suite).exists() else "sid")
    code = lifeline.run(
        [
            "debootstrap", "--variant=minbase", f"--keyring={KEYRING}",
            f"--include=python{version}", suite, str(world), mirror, str(script),
        ],
        cwd=ROOT,
    )  # fmt: skip
    if code:
        return f"debootstrap failed with code {code}; see {world}/debootstrap/debootstrap.log"
    (world / "complete").touch()
    return Place(version, f"/usr/bin/python{version}", world)


def _mirror() -> str:
    """The mirror that this machine's own apt takes."""
    for name in SOURCES:
        try:
            text = Path(name).read_text()
        except FileNotFoundError:
            continue
        found = re.search(r"^URIs: (\S+)|^deb (?:\[.*?\] )?(\S+)", text, re.MULTILINE)
        if found:
            return found[1] or found[2]
    return ""


# What is installed --------------------------------------------------------------------------------


def requirements(lowest: bool = False, extras: Sequence[str] = ()) -> list[str]:
    """What the library, some extras and these tests need; of all but the tests' the lowest versions
    that pyproject.toml allows, where that is asked for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    offers = project["project"]["optional-dependencies"]
    more = {one for extra in extras for one in offers[extra] if "magic-committer" not in one}
    own = [*project["project"]["dependencies"], *sorted(more)]
    own = [_at_least(one) for one in own] if lowest else own
    offered = [*project["dependency-groups"]["dev"], *offers["demo"]]
    tests = {one for one in offered if _name(one) in PACKAGES}
    missing = PACKAGES - {_name(one) for one in tests}
    assert not missing, f"pyproject.toml names no {missing}"
    return [*own, *sorted(tests)]


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement, maxsplit=1)[0]


def _at_least(requirement: str) -> str:
    """``boto3==1.36`` of ``boto3>=1.36``."""
    name, _, version = requirement.partition(">=")
    if not version or not re.fullmatch(r"[0-9.]+", version):
        sys.exit(f"pyproject.toml: {requirement!r} names no lowest version")
    return f"{name}=={version}"


def _install(place: Place, home: Path, wanted: Sequence[str]) -> int:
    """Make a virtual environment for that Python, with the packages and this checkout in it, unless
    it is there; the exit code of what failed."""
    stamp = home / f"{hashlib.sha256(' '.join(wanted).encode()).hexdigest()}.complete"
    if stamp.exists():
        return 0
    shutil.rmtree(home, ignore_errors=True)
    code = _there(place, [place.python, "-m", "venv", "--without-pip", place.inside(home)])
    if code:
        return code
    site = home / "lib" / f"python{place.version}" / "site-packages"
    machine = os.uname().machine
    platforms = [f"manylinux_2_{glibc}_{machine}" for glibc in range(40, 16, -1)]
    code = lifeline.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--target", str(site), "--only-binary=:all:"),
            *("--implementation=cp", f"--python-version={place.version}"),
            *(f"--platform={one}" for one in (*platforms, f"manylinux2014_{machine}")),
            *wanted,
        ],
        cwd=ROOT,
    )
    if not code:
        (site / "checkout.pth").write_text(f"{ROOT if place.world is None else CHECKOUT}\n")
        stamp.touch()
    return code


# The tests ----------------------------------------------------------------------------------------


def run(place: Place, name: str, lowest: bool = False) -> int:
    """Install what is needed, and run the tests there; the exit code."""
    home = (CACHE if place.world is None else place.world / "environments") / name
    code = _install(place, home, requirements(lowest))
    if code:
        return code
    tests = [f"tests/{folder}" for folder in FOLDERS]
    python = f"{place.inside(home)}/bin/python"
    return _there(place, [python, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *tests])


def _there(place: Place, command: Sequence[str]) -> int:
    """Run a command in a Python's world, in the checkout; its exit code."""
    if place.world is not None:
        enter = ("unshare", "--mount", "sh", "-euc", _ENTER, "sh", str(place.world), str(ROOT))
        command = [*enter, *command]
    clean = ("env", "-u", "VIRTUAL_ENV", "-u", "PYTHONPATH")
    return lifeline.run([*clean, *command], cwd=ROOT, silent_seconds_max=lifeline.HANGS_SECONDS)


_ENTER = """
world=$1 checkout=$2
shift 2
mkdir -p "$world/checkout"
mount --bind "$checkout" "$world/checkout"
mount -t proc proc "$world/proc"
mount --rbind /dev "$world/dev"
mount -t tmpfs tmpfs "$world/tmp"
exec chroot "$world" /usr/bin/env -C /checkout HOME=/tmp PATH=/usr/bin:/bin LANG=C.UTF-8 "$@"
"""
"""Arguments: the world, the checkout, the command. The mounts end with the namespace."""


def main() -> int:
    """Handle the command line; 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.pythons")
    parser.add_argument("which", nargs="*", choices=[*VERSIONS, LOWEST, []], metavar="VERSION")
    which: list[str] = parser.parse_args().which or [*VERSIONS, LOWEST]
    lines: list[str] = []
    failed = False
    for name in which:
        version = VERSIONS[0] if name == LOWEST else name
        print(f"\n--- {name}", flush=True)
        place = find(version)
        if isinstance(place, str):
            lines.append(f"{name:<8}SKIPPED: {place}")
            print(lines[-1], flush=True)
            continue
        began = time.monotonic()
        code = run(place, name, lowest=name == LOWEST)
        failed = failed or code != 0
        verdict = "FAILED" if code else "ok"
        lines.append(f"{name:<8}{verdict:<8}{time.monotonic() - began:>6.0f} s  {place.python}")
    print("\n--- all")
    print("\n".join(lines), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(lifeline.guarded(main))
