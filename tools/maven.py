"""Jars that Maven fetches, from whatever repository it is set up for here."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

FETCH_SECONDS_MAX = 600.0


class NoJars(RuntimeError):
    """Maven is not there, or could not fetch them; says why."""


def fetch(pom: Path, folder: Path) -> None:
    """Put what a pom needs at run time into a folder that is not there yet: all of it, or nothing.

    Raises:
        NoJars: there is no Maven, it failed, or it took too long.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJars("Maven fetches Hadoop's jars; there is no `mvn` on the PATH")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as making:
        jars = Path(making, "jars")
        options = [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        try:
            made = subprocess.run(
                [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", *options],
                cwd=making,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=FETCH_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired as error:
            raise NoJars(f"Maven took over {FETCH_SECONDS_MAX:.0f} s") from error
        if made.returncode or not any(jars.glob("*.jar")):
            raise NoJars(f"Maven could not fetch what {pom} names:\n{made.stdout[-2000:]}")
        jars.rename(folder)
