"""Ceph's gateway, radosgw, over one monitor and one storage daemon in a file: Debian's packages.

Installing them changes the system: it needs root, apt, and ``MAGIC_COMMITTER_TEST_INSTALL=1``.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.real_servers.building import installed
from tests.real_servers.keeper import Kept
from tests.real_servers.server import ACCESS_KEY, HOST, SECRET_KEY, NoServer, Server

PROGRAMS = ("radosgw", "ceph-mon", "ceph-osd", "ceph", "ceph-authtool", "monmaptool")
PACKAGES = ("radosgw", "ceph-mon", "ceph-osd")
STEP_SECONDS_MAX = 300
LOCK_SECONDS = 15
"""How long a gateway that died in Complete keeps others from completing that upload: Ceph's default
is 600, too long for a test."""
STORE_BYTES = 8 * 1024**3
"""Of the file that the storage daemon takes for its disk; it is sparse."""

CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = [v2:{host}:{mon2},v1:{host}:{mon1}]
mon initial members = a
public network = 127.0.0.0/8
public addr = {host}
cluster addr = {host}
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
mon warn on pool no redundancy = false
osd crush chooseleaf type = 0
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
mon max pg per osd = 4000
mon pg warn min per osd = 0
mon data avail crit = 1
run dir = {folder}/run
log file = {folder}/log/$name.log
admin socket = {folder}/run/$name.asok
pid file = {folder}/run/$name.pid
keyring = {folder}/keyring
mon data = {folder}/mon
osd data = {folder}/osd
crash dir = {folder}/log
heartbeat file =
osd objectstore = bluestore
bluestore block size = {bytes}
bluestore block db create = false
bluestore fsck on mount = false
osd memory target = 939524096
osd heartbeat grace = 60
mon osd full ratio = .99
mon osd backfillfull ratio = .985
mon osd nearfull ratio = .98
ms bind ipv6 = false
[client.admin]
rgw frontends = beast endpoint={host}:{port}
rgw data = {folder}/rgw
rgw enable usage log = false
rgw enable ops log = false
rgw run sync thread = false
rgw gc obj min wait = 1
rgw mp lock max time = {lock}
"""


class Ceph(Server):
    """A whole cluster in a folder. What is killed and started again is the gateway."""

    NAME = "ceph"
    PORTS = 3

    _monitor: Kept | None = None
    _storage: Kept | None = None

    @classmethod
    def get(cls) -> None:
        """As the base's; installs nothing."""
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            raise NoServer(
                f"there is no {', '.join(missing)} on the PATH;"
                f" on Debian: apt-get install --no-install-recommends {' '.join(PACKAGES)}"
            )

    def prepare(self) -> None:
        """As the base's: a new cluster, with one user."""
        for name in ("mon", "osd", "rgw", "run", "log"):
            (self.folder / name).mkdir()
        fsid = str(uuid.uuid4())
        port, mon2, mon1 = self.ports
        self._configuration.write_text(
            CONFIGURATION.format(
                fsid=fsid, host=HOST, port=port, mon1=mon1, mon2=mon2, folder=self.folder,
                bytes=STORE_BYTES, lock=LOCK_SECONDS,
            )
        )  # fmt: skip
        self._keys()
        monitors, address = str(self.folder / "monmap"), f"[v2:{HOST}:{mon2},v1:{HOST}:{mon1}]"
        keyring = ["--keyring", str(self._keys_file)]
        self._run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monitors)
        self._run("ceph-mon", *self._conf, "-i", "a", "--mkfs", "--monmap", monitors, *keyring)
        self._monitor = self._daemon("ceph-mon", "-i", "a")
        disk = str(uuid.uuid4())
        self._run("ceph", *self._conf, "osd", "new", disk)
        with (self.folder / "osd" / "block").open("wb") as block:
            block.truncate(STORE_BYTES)
        self._run("ceph-osd", *self._conf, "-i", "0", "--mkfs", "--osd-uuid", disk)
        self._storage = self._daemon("ceph-osd", "-i", "0")
        user = ["--uid", "test", "--display-name", "test"]
        keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
        self._run("radosgw-admin", *self._conf, "user", "create", *user, *keys)

    def command(self) -> tuple[list[str], Mapping[str, str]]:
        gateway = ["radosgw", *self._conf, "-n", "client.admin", "-k", str(self._keys_file), "-f"]
        return gateway, {}

    def release(self) -> None:
        for kept in (self._storage, self._monitor):
            if kept is not None:
                kept.end()

    @property
    def _configuration(self) -> Path:
        return self.folder / "ceph.conf"

    @property
    def _conf(self) -> list[str]:
        return ["--conf", str(self._configuration)]

    @property
    def _keys_file(self) -> Path:
        return self.folder / "keyring"

    def _keys(self) -> None:
        keyring = [str(self._keys_file), "--gen-key", "-n"]
        rights = ["--cap", "mon", "allow *"]
        self._run("ceph-authtool", "--create-keyring", *keyring, "mon.", *rights)
        rights += ["--cap", "osd", "allow *", "--cap", "mgr", "allow *"]
        self._run("ceph-authtool", *keyring, "client.admin", *rights)
        rights = ["--cap", "mon", "allow profile osd", "--cap", "osd", "allow *"]
        self._run("ceph-authtool", *keyring, "osd.0", *rights)

    def _daemon(self, *command: str) -> Kept:
        return Kept([*command, *self._conf, "-f"], log=self.folder / "log" / "daemons.log")

    def _run(self, *command: str) -> None:
        try:
            ran = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=STEP_SECONDS_MAX,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise NoServer(f"{' '.join(command)} took longer than {STEP_SECONDS_MAX} s") from error
        if ran.returncode:
            raise NoServer(
                f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr[-2000:]}"
            )


def install() -> None:
    """Install the packages, where they are missing. Raises NoServer: they are missing and must not,
    or cannot, be installed."""
    installed(Ceph.get, *PACKAGES)
