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
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.writers import ask
from magic_committer.stores import checksum
from magic_committer.stores.base import Checksum

FAST = Path(__file__).resolve().parent / "fast_server"
BUILD_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Server:
    """The running server, seen from its parent. ``url``: of plain HTTP. ``https``, ``authority``:
    the URL of TLS, and the file with the certificate to trust."""

    url: str
    https: str
    authority: str

    def reset(self, *, verify: bool, latency_ms: float = 0) -> None:
        """Forget everything. ``verify``: compute the CRC32 of what comes, which costs time."""
        ask(self.url, f"reset?verify={int(verify)}&latency_ms={latency_ms}")

    def facts(self, *, named: int = 1000) -> dict[str, Any]:
        """What it was asked since `reset`, or since it was forgotten: requests by verb, how large
        bodies were sent, what is there now. Of ``named`` objects at most the size and, where that
        was asked for, the CRC32."""
        told: dict[str, Any] = ask(self.url, f"facts?named={named}")
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


class NoGo(RuntimeError):
    """The server cannot be built here; says why."""


def cached(name: str, sources: Iterable[Path]) -> Path:
    """Where in the user's cache is kept what is made of some sources."""
    mark = hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()[:12]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "magic-committer", "benchmarks", f"{name}-{mark}")


def compiled(into: Path, command: Callable[[str], list[str]], folder: Path) -> str:
    """Compile what is not in the cache yet: whole, or not at all. ``command``: by where it is to
    put it. Returns what the compiler says if it fails, else ""."""
    if into.exists():
        return ""
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent) as making:
        made = subprocess.run(
            command(f"{making}/made"), cwd=folder,
            env={**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}, capture_output=True,
            text=True, timeout=BUILD_SECONDS_MAX,
        )  # fmt: skip
        if made.returncode:
            return made.stderr[-2000:] or "no reason"
        os.replace(f"{making}/made", into)
    return ""


def built() -> Path:
    """The server's program; builds it where it is not yet. Raises `NoGo`."""
    program, go = cached(FAST.name, sorted(FAST.iterdir())), shutil.which("go")
    if not program.exists() and go is None:
        raise NoGo("there is no `go` on the PATH (Go 1.21 or newer)")
    if said := compiled(program, lambda to: [go or "", "build", "-trimpath", "-o", to, "."], FAST):
        raise NoGo(f"Go could not build {FAST.name}:\n{said}")
    return program


@contextlib.contextmanager
def fast() -> Iterator[Server]:
    """Run the server, with TLS. It ends with its standard input, which we hold. Raises `NoGo`."""
    program = built()
    with tempfile.TemporaryDirectory(prefix="magic-committer-bench-") as folder:
        authority = f"{folder}/authority.pem"
        process = subprocess.Popen(
            [str(program), "--ca", authority], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            urls = json.loads(process.stdout.readline())
            yield Server(urls["http"], urls["https"], authority)
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait()
