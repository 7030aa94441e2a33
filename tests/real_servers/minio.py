"""MinIO, built from its Go module: the last one that was published, of February 2026.

`python -m tests.real_servers.minio` builds it, in minutes, and says where it is. It is under the
AGPL: a tool of the tests, of which nothing is shipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.real_servers.building import built
from tests.real_servers.server import ACCESS_KEY, HOST, SECRET_KEY, Server

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
LABEL = "20260212"
MODULE = "github.com/minio/minio"


def binary() -> Path:
    """The built server; builds it where it is not yet. Raises NoServer: there is no Go, or the
    build failed."""
    return built("minio", MODULE, VERSION, LABEL)


class Minio(Server):
    """One directory, without its console."""

    NAME = "minio"
    READY_PATH = "/minio/health/live"

    @classmethod
    def get(cls) -> None:
        binary()

    def prepare(self) -> None:
        (self.folder / "data").mkdir()

    def command(self) -> tuple[list[str], Mapping[str, str]]:
        address = ["--address", f"{HOST}:{self.ports[0]}"]
        return (
            [
                str(binary()), "server", "--quiet", "--anonymous", *address,
                str(self.folder / "data"),
            ],
            {
                "MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY,
                "MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "MINIO_CALLHOME_ENABLE": "off",
            },
        )  # fmt: skip


if __name__ == "__main__":
    print(binary())
