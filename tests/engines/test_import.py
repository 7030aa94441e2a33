"""Without their libraries the modules for engines say what to install. Runs everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_a_missing_engine_is_named_with_its_extra(engine: str) -> None:
    """An `ImportError` in one sentence; the rest of the library needs none of it."""
    code = (
        f"import sys; sys.modules[{engine!r}] = None\n"
        "import magic_committer as mc; mc.run, mc.start\n"
        f"import magic_committer.{engine}"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 1
    said = ran.stderr.splitlines()[-1]
    assert said.startswith("ImportError: magic_committer."), said
    assert f"pip install 'magic-committer[{engine}]'" in said
