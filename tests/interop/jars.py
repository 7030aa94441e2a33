"""Real Hadoop's jars: fetched once by Maven, from whatever repository it is set up for here.

    python -m tests.interop.jars            fetch what is not there yet, and say where it is

Kept in the user's cache, by the hash of the list of what is wanted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

from tests.real_servers import building
from tests.real_servers.server import NoServer

RELEASES = ("3.5.0", "3.3.6")
"""The newest, and the last but one layout with ETags as strings."""
WITHOUT = "MAGIC_COMMITTER_WITHOUT_HADOOP"
"""Environment: "1": CI may pass on a machine that cannot have the jars."""
PYSPARKS = Path(pyspark.__file__).parent / "jars"


def class_path(release: str) -> list[str]:
    """What a JVM needs to run a release, py4j's server included. Raises NoServer: Maven is not
    there, or cannot fetch them."""
    path = [f"{fetched(release)}{os.sep}*"]
    if release == RELEASES[0]:
        if not (PYSPARKS / f"hadoop-client-api-{release}.jar").exists():
            raise NoServer(
                f"PySpark {pyspark.__version__} has another Hadoop than {release}: change"
                f" tests/interop/hadoop-{release}.xml and the releases here"
            )
        return [*path, f"{PYSPARKS}{os.sep}*"]
    return [*path, *map(str, PYSPARKS.glob("py4j-*.jar"))]


def fetched(release: str) -> Path:
    """The folder with a release's jars; fetches them where it is not yet. Raises NoServer."""
    return building.jars(Path(__file__).with_name(f"hadoop-{release}.xml"))


if __name__ == "__main__":
    try:
        for one in RELEASES:
            print(fetched(one))
    except NoServer as error:
        print(f"no Hadoop: {error}", file=sys.stderr)
        sys.exit(bool(os.environ.get("CI")) and os.environ.get(WITHOUT) != "1")
