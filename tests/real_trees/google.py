"""Google Cloud Storage's API: fake-gcs-server, and a proxy before it for what it has not.

The server keeps `ifGenerationMatch=0` on uploads, names, listings and reads. It has no ``moveTo``,
and its ``rewriteTo`` ignores conditions. So the proxy answers ``moveTo``, one at a time: it looks,
copies and deletes. What is proved of ``moveTo`` is that the library calls it and takes its answers.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.real_servers.building import built
from tests.real_servers.keeper import Kept
from tests.real_servers.server import HOST, free_ports
from tests.serving import Answering, asked_of, serving

MODULE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"
EMULATOR = "STORAGE_EMULATOR_HOST"
"""Environment: where gcsfs finds the server."""
BUCKET = "bucket"
_MOVE = re.compile(r"(/storage/v1/b/([^/]+)/o/)([^/]+)/moveTo/o/([^/]+)")


def binary() -> Path:
    """The built server; builds it where it is not yet, in some minutes. Raises NoServer: there is
    no Go, or the build failed."""
    return built("fake-gcs-server", MODULE, VERSION)


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Run it; gives the URL of an empty directory. Raises NoServer: it cannot be had here, or did
    not start."""
    program = binary()
    (port,) = free_ports(1)
    upstream = f"{HOST}:{port}"
    command = [
        str(program), "-backend", "memory", "-scheme", "http", "-host", HOST, "-port", str(port),
        "-log-level", "warn",
    ]  # fmt: skip
    server = Kept(command, log=folder / "gcs.log")
    before = os.environ.get(EMULATOR)
    try:
        server.wait_for(lambda: _answers(upstream))
        named = json.dumps({"name": BUCKET}).encode()
        made, said = _ask(upstream, "POST", "/storage/v1/b?project=p", named)
        assert made.status == 200, said
        with moving(upstream) as url:
            os.environ[EMULATOR] = url
            yield f"gs://{BUCKET}/data"
    finally:
        server.end()
        os.environ.pop(EMULATOR, None)
        if before is not None:
            os.environ[EMULATOR] = before


def _answers(upstream: str) -> bool:
    try:
        return _ask(upstream, "GET", "/_internal/healthcheck")[0].status == 200
    except (OSError, http.client.HTTPException):
        return False


def _ask(
    upstream: str, method: str, path: str, body: bytes = b""
) -> tuple[http.client.HTTPResponse, bytes]:
    """A request of our own."""
    headers = [("Host", upstream), ("Content-Type", "application/json"), *_length(body)]
    return asked_of(upstream, method, path, headers, body)


def _length(body: bytes) -> list[tuple[str, str]]:
    return [("Content-Length", str(len(body)))]


@contextmanager
def moving(upstream: str) -> Iterator[str]:
    """Run the proxy; gives its URL."""
    one_at_a_time = threading.Lock()

    class Handler(Answering):
        def answer(self) -> None:
            body = self.body()
            if found := _MOVE.fullmatch(urlsplit(self.path).path):
                with one_at_a_time:
                    self._move(*found.groups())
                return
            headers = [(n, v) for n, v in self.headers.items() if n.lower() != "content-length"]
            length = _length(body) if body or self.command in ("POST", "PUT") else []
            self.tell(*asked_of(upstream, self.command, self.path, [*headers, *length], body))

        def _move(self, objects: str, bucket: str, source: str, target: str) -> None:
            conditions = parse_qs(urlsplit(self.path).query)
            found, _ = _ask(upstream, "GET", objects + source)
            if found.status != 200:
                return self._say(404, "No such object")
            taken, _ = _ask(upstream, "GET", objects + target)
            if conditions.get("ifGenerationMatch") == ["0"] and taken.status == 200:
                return self._say(412, "Precondition Failed")
            copy = f"{objects}{source}/rewriteTo/b/{bucket}/o/{target}"
            copied, said = _ask(upstream, "POST", copy, b"{}")
            assert copied.status == 200, said
            _ask(upstream, "DELETE", objects + source)
            moved, resource = _ask(upstream, "GET", objects + target)
            return self.tell(moved, resource)

        def _say(self, status: int, message: str) -> None:
            body = json.dumps({"error": {"code": status, "message": message}}).encode()
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as proxy:
        yield proxy.url
