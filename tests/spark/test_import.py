"""What is needed, and said where it is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
