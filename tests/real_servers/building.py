"""Servers that are built from a Go module, once for each machine, and kept in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.real_servers.server import NoServer

CACHE = "MAGIC_COMMITTER_TEST_SERVERS"
"""Environment: the folder in which built servers, and fetched jars, are kept."""


def built(name: str, module: str, version: str, label: str = "") -> Path:
    """The built program; builds it where it is not yet.

    Args:
        name: of the program, the last element of its module's path.
        label: of its version in the cache, where the version itself is long.

    Raises:
        NoServer: there is no Go, or the build failed.
    """
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
            env={**os.environ, **settings},
            stderr=subprocess.PIPE,
            text=True,
        )
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
