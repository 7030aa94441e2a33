"""A small S3 in Go that answers at once (`fast_server/`), as a child that ends with its parent.

    with fast() as server:
        server.reset(verify=False)
        …                                   # a client writes to server.url, bucket `bench`
        facts = server.facts()

Parts are read, counted and forgotten; small objects are kept, with ETags and conditional writes, so
that a whole job of ours runs here. Signatures are not checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import writers
from magic_committer import checksum
from magic_committer.stores.base import Checksum

BUCKET = writers.BUCKET
PROGRAM = "fast_server"
FAST = Path(__file__).resolve().parent / PROGRAM
BUILD_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Server:
    """The running server, seen from its parent.

    Attributes:
        url: of plain HTTP.
        https, authority: the URL of TLS, and the file with the certificate to trust.
    """

    url: str
    https: str
    authority: str

    def reset(self, *, verify: bool, latency_ms: float = 0) -> None:
        """Forget everything. ``verify``: compute the CRC32 of what comes, which costs time."""
        self._ask(f"reset?verify={int(verify)}&latency_ms={latency_ms}")

    def facts(self, *, named: int = 1000) -> dict[str, Any]:
        """What it was asked since `reset`, or since it was forgotten: requests by verb, how large
        bodies were sent, what is there now. Of ``named`` objects at most the size and, where that
        was asked for, the CRC32."""
        told = self._ask(f"facts?named={named}")
        told["payload"] = "+".join(sorted(told["payloads"]))
        told["checksum"] = "+".join(sorted(told["checksums"]))
        for one in told["objects"].values():
            sums = [
                (Checksum("CRC32", b64encode(bytes.fromhex(crc)).decode()), size)
                for size, crc in one.pop("parts")
            ]
            whole = checksum.whole(sums)
            one["crc32"] = whole.value if whole else None
        return told

    def _ask(self, what: str) -> dict[str, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/-/{what}", timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
            return answer


class NoGo(RuntimeError):
    """The server cannot be built here; says why."""


def built() -> Path:
    """The server's program, kept in the user's cache; builds it where it is not yet.

    Raises:
        NoGo: there is no Go, or the build failed.
    """
    sources = sorted(one for one in FAST.iterdir() if not one.name.endswith("_test.go"))
    mark = hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()[:12]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    program = Path(home, "magic-committer", "benchmarks", f"{PROGRAM}-{mark}")
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise NoGo("there is no `go` on the PATH (Go 1.21 or newer)")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        made = subprocess.run(
            [go, "build", "-trimpath", "-o", f"{folder}/made", "."],
            cwd=FAST,
            env={**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS_MAX,
        )
        if made.returncode:
            raise NoGo(f"Go could not build {FAST.name}:\n{made.stderr[-2000:]}")
        os.replace(f"{folder}/made", program)  # whole, or not at all
    return program


@contextlib.contextmanager
def fast() -> Iterator[Server]:
    """Run the server, with TLS. It ends with its standard input, which we hold.

    Raises:
        NoGo: it cannot be built here.
    """
    program = built()
    with tempfile.TemporaryDirectory(prefix="magic-committer-bench-") as folder:
        authority = f"{folder}/authority.pem"
        process = subprocess.Popen(
            [str(program), "--ca", authority],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            urls = json.loads(process.stdout.readline())
            yield Server(urls["http"], urls["https"], authority)
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait()
