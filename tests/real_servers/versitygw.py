"""versitygw, a real S3 server over plain files: built once, run as a child that cannot outlive us.

    python -m tests.real_servers.versitygw                  build it, and say where it is
    python -m tests.real_servers.versitygw PORT FOLDER      serve a folder until standard input ends

Nothing here skips: without Go, or where the build fails, the suite fails.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from magic_committer.options import S3Options

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
CACHE = "MAGIC_COMMITTER_TEST_SERVERS"
"""Environment: the folder in which built servers are kept."""

ACCESS_KEY, SECRET_KEY, REGION = "testkey", "testsecret1", "us-east-1"
READY_SECONDS_MAX = 30.0
PORTS_TRIED = 3

ROOT = Path(__file__).resolve().parents[2]


class NoServer(RuntimeError):
    """The server could not be built or started."""


def options(url: str) -> S3Options:
    """The way to the server."""
    return S3Options(endpoint_url=url, region=REGION, access_key=ACCESS_KEY, secret_key=SECRET_KEY)


def environment(url: str) -> dict[str, str]:
    """The same for other processes."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def binary() -> Path:
    """The built server; builds it where it is not yet.

    Raises:
        NoServer: there is no Go, or the build failed.
    """
    built = _cache() / f"versitygw-{VERSION}"
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise NoServer("Go 1.25 or newer builds the server; there is no `go` on the PATH")
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent) as folder:
        settings = {"GOBIN": folder, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        made = subprocess.run(
            [go, "install", "-trimpath", "-ldflags=-s -w", f"{MODULE}@{VERSION}"],
            env={**os.environ, **settings},
            stderr=subprocess.PIPE,
            text=True,
        )
        if made.returncode:
            raise NoServer(f"versitygw was not built:\n{made.stderr[-2000:]}")
        os.replace(Path(folder, "versitygw"), built)  # whole, or not at all
    return built


def _cache() -> Path:
    if CACHE in os.environ:
        return Path(os.environ[CACHE])
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "magic-committer", "servers")


@contextmanager
def running() -> Iterator[str]:
    """Run the server on a port of its own; gives its URL. All it stored is gone afterwards.

    Raises:
        NoServer: it did not start.
    """
    binary()
    with tempfile.TemporaryDirectory() as folder:
        process, url = _started(folder)
        try:
            yield url
        finally:
            _end(process)


def _started(folder: str) -> tuple[subprocess.Popen[bytes], str]:
    for _ in range(PORTS_TRIED):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.real_servers.versitygw", str(port), folder],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        url = f"http://127.0.0.1:{port}"
        if _is_ready(process, url):
            return process, url
        _end(process)  # somebody else has the port by now
    raise NoServer(f"versitygw did not start on any of {PORTS_TRIED} ports")


def _is_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{url}/_health", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
            continue
        return process.poll() is None
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def _serve(port: str, folder: str) -> int:
    objects, versions = Path(folder, "objects"), Path(folder, "versions")
    objects.mkdir(exist_ok=True)
    versions.mkdir(exist_ok=True)
    where = ["--port", f"127.0.0.1:{port}", "--health", "/_health"]
    backend = ["posix", "--versioning-dir", str(versions), str(objects)]
    server = subprocess.Popen(
        [str(binary()), *where, "--keep-alive", "--quiet", *backend],
        env={**os.environ, "ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": SECRET_KEY},
        stdin=subprocess.DEVNULL,
    )

    def end_with_parent() -> None:
        os.read(0, 1)
        server.terminate()

    threading.Thread(target=end_with_parent, daemon=True).start()
    return server.wait()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(_serve(*sys.argv[1:]))
    print(binary())
