"""OpenSSH's server as a process of this user, with keys of its own and an agent that holds ours."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real_servers.building import installed
from tests.real_servers.keeper import Kept
from tests.real_servers.server import HOST, NoServer, free_ports

PACKAGE = "openssh-server"
CONFIGURATION = """\
ListenAddress {host}
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/client.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
MaxSessions {sessions}
MaxStartups 100
Subsystem sftp internal-sftp{denied}
"""


def program() -> str:
    """The server; it must be called by its whole path. Raises NoServer: it is not here."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None or shutil.which("ssh-agent") is None:
        raise NoServer(f"there is no sshd; on Debian: apt-get install {PACKAGE}")
    return found


def install() -> None:
    """Install it, where it is missing. Raises NoServer: it is missing and must not, or cannot, be
    installed."""
    # A policy that says 101 keeps the package from starting a server of its own.
    installed(program, PACKAGE, RUNLEVEL="1")


@contextmanager
def running(folder: Path, sessions: int = 10, denied: str = "") -> Iterator[str]:
    """Run the server; gives the URL of an empty directory. ``folder``: an empty one. ``sessions``:
    how many a connection may have. ``denied``: requests that are refused, as sftp-server's -P names
    them. Raises NoServer: it cannot be had here, or did not start."""
    sshd = program()
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # where root's server leaves its rights behind
    (port,) = free_ports(1)
    for name in ("host", "client"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
    settings = folder / "sshd_config"
    settings.write_text(
        CONFIGURATION.format(
            host=HOST, port=port, folder=folder, sessions=sessions,
            denied=f" -P {denied}" if denied else "",
        )
    )  # fmt: skip
    data = folder / "data"
    data.mkdir()
    agent = folder / "agent"
    before = os.environ.get("SSH_AUTH_SOCK")
    keeper = Kept(["ssh-agent", "-D", "-a", str(agent)], log=folder / "agent.log")
    server = Kept([sshd, "-D", "-e", "-f", str(settings)], log=folder / "sshd.log")
    try:
        os.environ["SSH_AUTH_SOCK"] = str(agent)
        add = ["ssh-add", "-q", str(folder / "client")]
        # Its socket is there before it listens.
        keeper.wait_for(lambda: agent.exists() and subprocess.run(add).returncode == 0)
        server.wait_for(lambda: "listening" in server.last_words())
        yield f"sftp://{getpass.getuser()}@{HOST}:{port}{data}"
    finally:
        _hang_up()
        server.end()
        keeper.end()
        os.environ.pop("SSH_AUTH_SOCK", None)
        if before is not None:
            os.environ["SSH_AUTH_SOCK"] = before


def _hang_up() -> None:
    """Close what fsspec keeps open, and its sockets to our agent."""
    from fsspec.implementations.sftp import SFTPFileSystem

    for fs in SFTPFileSystem._cache.values():
        fs.client.close()
    SFTPFileSystem.clear_instance_cache()
