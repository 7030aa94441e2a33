"""A real HDFS, a NameNode and two DataNodes, of the jars that Hadoop gives its users for tests.

python -m tests.real_trees.hdfs         fetch what is not there yet, and say where it is
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real_servers import building
from tests.real_servers.keeper import Kept
from tests.real_servers.server import HOST, NoServer, free_ports
from tools import java

RELEASE = "3.5.0"
CLUSTER = "org.apache.hadoop.test.MiniDFSClusterManager"
SETTINGS = {
    # A close waits until the NameNode has heard of the last block, half a second with this client.
    # Clusters with many small files let so many blocks be on their way; it needs two DataNodes.
    "dfs.namenode.file.close.num-committed-allowed": "1"
}


def jars() -> Path:
    """The folder of the jars; fetches them where they are not yet. Raises NoServer."""
    return building.jars(Path(__file__).with_name(f"hdfs-{RELEASE}.xml"))


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Run a cluster; gives the URL of an empty directory. Raises NoServer: it cannot be had here,
    or did not start."""
    try:
        program = java.find().home / "bin" / "java"
    except java.NoJava as error:
        raise NoServer(f"Hadoop needs a Java: {error}") from error
    (port,) = free_ports(1)
    told = folder / "details.json"
    command = [
        str(program), *java.SMALL, f"-Dtest.build.data={folder}", f"-Djava.io.tmpdir={folder}",
        "-cp", f"{jars()}{os.sep}*", CLUSTER,
        "-format", "-datanodes", "2", "-nnport", str(port), "-writeDetails", str(told),
    ]  # fmt: skip
    for name, value in {**SETTINGS, "hadoop.tmp.dir": str(folder)}.items():
        command += ["-D", f"{name}={value}"]
    server = Kept(command, log=folder / "hdfs.log")
    try:
        server.wait_for(told.exists)
        yield f"hdfs://{HOST}:{port}/data"
    finally:
        server.end()


if __name__ == "__main__":
    print(jars())
