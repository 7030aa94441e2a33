"""versitygw, a real S3 server over plain files.

`python -m tests.real_servers.versitygw` builds it, and says where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.real_servers import server
from tests.real_servers.building import built
from tests.real_servers.server import (
    ACCESS_KEY,
    HOST,
    REGION,
    SECRET_KEY,
    NoServer,
    Server,
    environment,
    options,
)

__all__ = ["ACCESS_KEY", "REGION", "SECRET_KEY", "NoServer", "environment", "options", "running"]

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"


def binary() -> Path:
    """The built server; builds it where it is not yet. Raises NoServer: there is no Go, or the
    build failed."""
    return built("versitygw", MODULE, VERSION)


class Versitygw(Server):
    """Its POSIX backend: an object is a file, its properties are extended attributes."""

    NAME = "versitygw"
    READY_PATH = "/_health"

    @classmethod
    def get(cls) -> None:
        binary()

    def prepare(self) -> None:
        for name in ("objects", "versions"):
            (self.folder / name).mkdir()

    def command(self) -> tuple[list[str], Mapping[str, str]]:
        where = ["--port", f"{HOST}:{self.ports[0]}", "--health", self.READY_PATH]
        folders = ["--versioning-dir", str(self.folder / "versions"), str(self.folder / "objects")]
        return (
            [str(binary()), *where, "--keep-alive", "--quiet", "posix", *folders],
            {"ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": SECRET_KEY},
        )


def s3a(url: str) -> dict[str, str]:
    """The settings of Hadoop's S3A, with its magic committer, for a server or a proxy of one."""
    settings = {
        "endpoint": url, "endpoint.region": REGION, "path.style.access": "true",
        "connection.ssl.enabled": "false", "access.key": ACCESS_KEY, "secret.key": SECRET_KEY,
        "committer.name": "magic",
    }  # fmt: skip
    return {f"fs.s3a.{name}": value for name, value in settings.items()}


@contextmanager
def running() -> Iterator[str]:
    """Run the server on a port of its own; gives its URL. All it stored is gone afterwards. Raises
    NoServer: it did not start."""
    with server.running(Versitygw) as one:
        yield one.url


if __name__ == "__main__":
    print(binary())
