"""Build wheel and sdist, check them, and run the wheel where nothing else is: `make dist`.

Each is installed into an empty environment of its own, outside of the checkout; there the command
says its version, and the first example of docs/start.md prints what that page shows.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "recipes" / "first.py"
RUN_SECONDS_MAX = 600.0


def main() -> None:
    """Raises `subprocess.CalledProcessError` for the first step that fails."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT))
    made = sorted(dist.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, made))
    for one in made:
        with tempfile.TemporaryDirectory(prefix="magic-committer-dist-") as folder:
            venv.create(folder, with_pip=True)
            python = str(Path(folder) / "bin" / "python")
            run(python, "-m", "pip", "install", "--quiet", str(one), cwd=folder)
            run(python, "-m", "magic_committer", "--version", cwd=folder)
            run(python, "-m", "pip", "install", "--quiet", "pytest", cwd=folder)  # as the page says
            printed = run(python, str(EXAMPLE), cwd=folder)
        if printed != EXAMPLE.with_suffix(".txt").read_text(encoding="utf-8"):
            sys.exit(f"{one.name}: {EXAMPLE.name} printed:\n{printed}")
        print(f"{one.name}: built, checked, installed, run")


def run(*command: str, cwd: str | None = None) -> str:
    """Run a step; return what it printed."""
    ran = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS_MAX, check=True
    )
    return ran.stdout


if __name__ == "__main__":
    main()
