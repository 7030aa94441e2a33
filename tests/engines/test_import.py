"""Without their libraries, or with old ones, the modules for engines say what to install. Runs
everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("engine", ["ray", "dask", "spark"])
def test_a_missing_engine_is_named_with_its_extra(engine: str) -> None:
    """An `ImportError` in one sentence; the rest of the library needs none of it."""
    spark = engine == "spark"
    library, module = ("pyspark", engine) if spark else (engine, f"engines.{engine}")
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import magic_committer as mc; mc.run, mc.start\n"
        f"import magic_committer.{module}"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 1
    said = ran.stderr.splitlines()[-1]
    assert said.startswith("ImportError: magic_committer."), said
    assert f"pip install 'magic-committer[{engine}]'" in said


@pytest.mark.parametrize("there", ["3.4.4", "2.4.8"])
def test_a_release_of_spark_before_3_5_is_refused(there: str, tmp_path: Path) -> None:
    """At the import, with a command that mends it."""
    (tmp_path / "pyspark.py").write_text(f"__version__ = {there!r}\n")
    ran = subprocess.run(
        [sys.executable, "-c", "import magic_committer.spark"], capture_output=True, text=True,
        cwd=ROOT, env={"PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert ran.stderr.rstrip().endswith(
        "ImportError: magic_committer.spark needs PySpark 3.5 or newer, and this is"
        f" {there}: pip install 'magic-committer[spark]'"
    )
