"""moto's S3 server as a child process that cannot outlive its parent.

    with tools.moto_server.running() as url:
        os.environ["AWS_ENDPOINT_URL"] = url

The child ends when its standard input does: that is a pipe of which only the parent holds the other
end, so it ends with the parent, however the parent ends. The port is the kernel's choice, on
127.0.0.1; the child prints its URL once it listens.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ServerFailed(RuntimeError):
    """The server did not start; what it had to say was printed."""


CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The environment for its clients, next to ``AWS_ENDPOINT_URL``: moto takes any credentials."""


@contextmanager
def running() -> Iterator[str]:
    """Run the server; gives its URL. All it stored is gone afterwards.

    Raises:
        ServerFailed: it did not start.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.moto_server"],
        cwd=Path(__file__).resolve().parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise ServerFailed(f"moto's server ended with code {process.wait()} as it started")
        yield url
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def end_with_parent() -> None:
    """In a thread of the child: end it when its standard input does."""
    os.read(0, 1)
    os._exit(0)


def _serve() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()

    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    log = logging.getLogger("werkzeug")
    log.setLevel(logging.ERROR)
    # moto answers 500 to a Complete of a dead upload. A job asks that on purpose (docs/stores.md);
    # whoever sees the traceback of it thinks that the job has failed.
    log.addFilter(lambda record: "bucket.multiparts[multipart_id]" not in record.getMessage())
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
