"""What real servers are made of: built from a Go module or fetched as jars, once for each machine,
and kept in the user's cache; or installed from Debian's packages."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.real_servers.server import NoServer
from tools import maven

CACHE = "MAGIC_COMMITTER_TEST_SERVERS"
"""Environment: the folder in which built servers, and fetched jars, are kept."""
INSTALL = "MAGIC_COMMITTER_TEST_INSTALL"
"""Environment: "1": this machine is ours, packages may be installed into the system."""


def built(name: str, module: str, version: str, label: str = "") -> Path:
    """The built program; builds it where it is not yet. ``name``: of the program, the last element
    of its module's path. ``label``: of its version in the cache, where the version itself is long.
    Raises NoServer: there is no Go, or the build failed."""
    program = cache("servers") / f"{name}-{label or version}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise NoServer(f"Go 1.25 or newer builds {name}; there is no `go` on the PATH")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        settings = {"GOBIN": folder, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        made = subprocess.run(
            [go, "install", "-trimpath", "-ldflags=-s -w", f"{module}@{version}"],
            env={**os.environ, **settings}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if made.returncode:
            raise NoServer(f"{name} was not built:\n{made.stderr[-2000:]}")
        os.replace(Path(folder, name), program)  # whole, or not at all
    return program


def cache(kind: str) -> Path:
    """The folder in which what was fetched or built is kept, of a kind if nobody has named one."""
    if CACHE in os.environ:
        return Path(os.environ[CACHE])
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "magic-committer", kind)


def jars(pom: Path) -> Path:
    """The folder of the jars that a pom names; fetches them where they are not yet. Raises
    NoServer: Maven is not there, or cannot fetch them."""
    mark = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    folder = cache("hadoop") / f"{pom.stem}-{mark}"
    if not folder.exists():
        try:
            maven.fetch(pom, folder)
        except maven.NoJars as error:
            raise NoServer(str(error)) from error
    return folder


def installed(look: Callable[[], object], *packages: str, **environment: str) -> None:
    """Install Debian's packages, where ``look`` misses them. Raises NoServer: they are missing and
    must not, or cannot, be installed."""
    try:
        look()
    except NoServer:
        if os.environ.get(INSTALL) != "1" or os.geteuid() or shutil.which("apt-get") is None:
            raise
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", **environment}
        install = ["install", "-y", "-qq", "--no-install-recommends", *packages]
        for arguments in (["update", "-qq"], install):
            ran = subprocess.run(["apt-get", *arguments], env=quiet, capture_output=True, text=True)
            if ran.returncode:
                raise NoServer(f"apt-get {arguments[0]} failed:\n{ran.stderr[-2000:]}") from None
        look()
