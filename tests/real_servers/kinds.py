"""Which servers there are, and which of them a run wants.

    MAGIC_COMMITTER_TEST_ON=versitygw,minio     only these
    MAGIC_COMMITTER_TEST_ON=all                 every test on every server (`make servers`)

Unset, as in CI: versitygw runs everything; Ceph what is quick; MinIO, which takes minutes to build,
nothing. MinIO is under the AGPL: a tool of the tests, of which nothing is shipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.real_servers import server
from tests.real_servers.building import built
from tests.real_servers.ceph import Ceph, install
from tests.real_servers.getting import Choice
from tests.real_servers.server import ACCESS_KEY, HOST, REGION, SECRET_KEY, Server


class Versitygw(Server):
    """Its POSIX backend: an object is a file, its properties are extended attributes."""

    NAME = "versitygw"
    READY_PATH = "/_health"

    @classmethod
    def get(cls) -> str:
        """As the base's; gives the program."""
        return str(built(cls.NAME, "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"))

    def prepare(self) -> None:
        for name in ("objects", "versions"):
            (self.folder / name).mkdir()

    def command(self) -> tuple[list[str], Mapping[str, str]]:
        where = ["--port", f"{HOST}:{self.ports[0]}", "--health", self.READY_PATH]
        folders = ["--versioning-dir", str(self.folder / "versions"), str(self.folder / "objects")]
        return (
            [self.get(), *where, "--keep-alive", "--quiet", "posix", *folders],
            {"ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": SECRET_KEY},
        )


class Minio(Server):
    """One directory, without its console: the last one that was published."""

    NAME = "minio"
    READY_PATH = "/minio/health/live"

    @classmethod
    def get(cls) -> str:
        """As the base's; gives the program."""
        version = "v0.0.0-20260212201848-7aac2a2c5b7c"
        return str(built(cls.NAME, "github.com/minio/minio", version, "20260212"))

    def prepare(self) -> None:
        (self.folder / "data").mkdir()

    def command(self) -> tuple[list[str], Mapping[str, str]]:
        where = ["--address", f"{HOST}:{self.ports[0]}", str(self.folder / "data")]
        settings = {
            "MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY,
            "MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "MINIO_CALLHOME_ENABLE": "off",
        }  # fmt: skip
        return [self.get(), "server", "--quiet", "--anonymous", *where], settings


KINDS: dict[str, type[Server]] = {kind.NAME: kind for kind in (Versitygw, Ceph, Minio)}
ON = "MAGIC_COMMITTER_TEST_ON"
NEEDED = "versitygw"
"""Whoever can build it must: without it nothing is proved here, so it is never skipped."""
CHOICE = Choice(
    "tests/real_servers", ON, {name: kind.get for name, kind in KINDS.items()} | {"ceph": install},
    lambda: ("versitygw", "ceph"), NEEDED,
)  # fmt: skip


def is_long(name: str) -> bool:
    """Whether this run gives that server its long tests too."""
    return name == NEEDED or bool(os.environ.get(ON))


# For those who bring another client --------------------------------------------------------------


@contextmanager
def versitygw() -> Iterator[str]:
    """Run it on a port of its own; gives its URL. All it stored is gone afterwards. Raises
    NoServer: it did not start."""
    with server.running(Versitygw) as one:
        yield one.url


def s3a(url: str) -> dict[str, str]:
    """The settings of Hadoop's S3A, with its magic committer, for a server or a proxy of one."""
    settings = {
        "endpoint": url, "endpoint.region": REGION, "path.style.access": "true",
        "connection.ssl.enabled": "false", "access.key": ACCESS_KEY, "secret.key": SECRET_KEY,
        "committer.name": "magic",
    }  # fmt: skip
    return {f"fs.s3a.{name}": value for name, value in settings.items()}
