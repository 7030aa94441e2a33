"""A Java for Spark, for the tools: what `magic_committer.spark.session` uses, without a PySpark.

with tools.java.for_spark() as environment:
    os.environ.update(environment)      # then start PySpark
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from magic_committer.engines.java import Java, NoJava, find, system_java, write_wrapper

__all__ = ["SMALL", "Java", "NoJava", "find", "for_spark", "system_java"]

SMALL = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that lives for seconds: quick to start, small."""


@contextmanager
def for_spark(java: Java | None = None) -> Iterator[Mapping[str, str]]:
    """The environment variables that PySpark needs here, valid inside the ``with``. Raises NoJava:
    there is no Java."""
    java = java or find()
    # Driver and workers must be the same Python.
    environment = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if not java.bundled:
        yield environment | {"JAVA_HOME": str(java.home)}
        return
    with tempfile.TemporaryDirectory(prefix="magic-committer-java-") as home:
        write_wrapper(Path(home), java)
        yield environment | {"JAVA_HOME": home}
