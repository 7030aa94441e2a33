"""The writers that are measured, each as its manual says to stream into S3, with its defaults.

All take the same pieces one after another, but `boto3`'s `upload_fileobj`, which reads from a file
object: it gets one that hands out the same pieces. Where to connect comes from the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from benchmarks.server import BUCKET

MiB = 1024**2
PIECE_BYTES = MiB

Write = Callable[[str, Iterable[bytes]], None]
"""Writes pieces to a key of the bucket; they are visible when it returns."""


def pieces(size: int) -> Iterator[bytes]:
    """``size`` bytes in new objects of 1 MiB, no two alike. One copy of memory each."""
    tail = os.urandom(PIECE_BYTES - 8)
    for number in range(-(-size // PIECE_BYTES)):
        piece = b"".join((number.to_bytes(8, "big"), tail))
        yield piece[: size - number * PIECE_BYTES]


def _ours() -> Write:
    import magic_committer as mc

    def write(key: str, data: Iterable[bytes]) -> None:
        with mc.write(f"s3://{BUCKET}/{key}.d") as job, job.open(key) as file:
            for piece in data:
                file.write(piece)

    return write


def _boto3() -> Write:
    import boto3

    client = boto3.client("s3")

    def write(key: str, data: Iterable[bytes]) -> None:
        client.upload_fileobj(_Readable(data), BUCKET, key)

    return write


class _Readable:
    """A file object over pieces."""

    def __init__(self, data: Iterable[bytes]) -> None:
        self._data = iter(data)
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        held, length = [self._left], len(self._left)
        size = size if size >= 0 else sys.maxsize
        while length < size and (piece := next(self._data, b"")):
            held.append(piece)
            length += len(piece)
        joined = b"".join(held)
        self._left = joined[size:]
        return joined[:size]


def _smart_open() -> Write:
    import boto3
    import smart_open

    parameters = {"client": boto3.client("s3")}

    def write(key: str, data: Iterable[bytes]) -> None:
        with smart_open.open(f"s3://{BUCKET}/{key}", "wb", transport_params=parameters) as file:
            for piece in data:
                file.write(piece)

    return write


def _s3fs() -> Write:
    import s3fs

    files = s3fs.S3FileSystem()

    def write(key: str, data: Iterable[bytes]) -> None:
        with files.open(f"{BUCKET}/{key}", "wb") as file:
            for piece in data:
                file.write(piece)

    return write


def _pyarrow() -> Write:
    from pyarrow import fs

    endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    files = fs.S3FileSystem(
        endpoint_override=endpoint.netloc, scheme=endpoint.scheme, region="us-east-1"
    )

    def write(key: str, data: Iterable[bytes]) -> None:
        with files.open_output_stream(f"{BUCKET}/{key}") as file:
            for piece in data:
                file.write(piece)

    return write


def _obstore() -> Write:
    import obstore
    from obstore.store import S3Store

    unsigned: dict[str, Any] = {"unsigned_payload": True} if payloads_unsigned() else {}
    store = S3Store(
        BUCKET,
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        region="us-east-1",
        client_options={"allow_http": True},
        **unsigned,
    )

    def write(key: str, data: Iterable[bytes]) -> None:
        with obstore.open_writer(store, key) as file:
            for piece in data:
                file.write(piece)

    return write


@dataclass(frozen=True, slots=True)
class Writer:
    """One that is measured: ``prepare`` makes its client, which is not part of the time."""

    name: str
    packages: tuple[str, ...]
    prepare: Callable[[], Write]


WRITERS = {
    writer.name: writer
    for writer in (
        Writer("magic-committer", ("magic-committer", "boto3", "awscrt"), _ours),
        Writer("boto3", ("boto3", "s3transfer"), _boto3),
        Writer("smart_open", ("smart_open", "boto3"), _smart_open),
        Writer("s3fs", ("s3fs", "aiobotocore"), _s3fs),
        Writer("pyarrow", ("pyarrow",), _pyarrow),
        Writer("obstore", ("obstore",), _obstore),
    )
}


# Signing -----------------------------------------------------------------------------------------

_UNSIGNED = "MAGIC_COMMITTER_BENCH_UNSIGNED"


def environment(url: str, config: str, *, unsigned: bool) -> dict[str, str]:
    """What a writer's process finds: the server, any credentials, and nothing of this machine's.

    Args:
        config: a file for the AWS configuration, which is written here.
        unsigned: do not sign payloads over HTTP, as all do over HTTPS. Those on AWS's Python SDK
            are told by the configuration file, obstore by its option; pyarrow has none.
    """
    with open(config, "w", encoding="utf-8") as file:
        file.write("[default]\n" + "s3 =\n  payload_signing_enabled = false\n" * unsigned)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AWS_") and not name.lower().endswith("_proxy")
    }
    return kept | {
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_CONFIG_FILE": config,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        _UNSIGNED: "1" if unsigned else "",
    }


def payloads_unsigned() -> bool:
    """Whether this process was told not to sign payloads."""
    return bool(os.environ.get(_UNSIGNED))
