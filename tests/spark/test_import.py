"""What is needed, and said where it is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
import magic_committer
try:
    import magic_committer.spark
except ImportError as error:
    print(error)
"""


def test_without_pyspark_it_says_what_to_install() -> None:
    """Without PySpark the library works, and its Spark part says what to install."""
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK],
        cwd=Path(__file__).resolve().parents[2],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "pip install 'magic-committer[spark]'" in told.stdout


@pytest.mark.parametrize("there", ["3.4.4", "2.4.8"])
def test_a_release_before_3_5_is_refused(there: str, tmp_path: Path) -> None:
    """At the import, with a command that mends it."""
    (tmp_path / "pyspark.py").write_text(f"__version__ = {there!r}\n")
    told = subprocess.run(
        [sys.executable, "-c", "import magic_committer.spark"],
        cwd=Path(__file__).resolve().parents[2],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stderr.rstrip().endswith(
        "ImportError: magic_committer.spark needs PySpark 3.5 or newer, and this is"
        f" {there}: pip install 'magic-committer[spark]'"
    )
