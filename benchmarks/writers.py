"""The libraries that are measured, each used as its manual says, with its defaults.

Where to connect comes from the environment. This module runs in the environment of the peers, too:
it imports nothing but the standard library until a library is chosen.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar
from urllib.parse import urlsplit

BUCKET = "bench"
MiB = 1024**2


def pieces(size: int) -> Iterator[bytes]:
    """``size`` bytes in new objects of 1 MiB, no two alike. One copy of memory each."""
    tail = os.urandom(MiB - 8)
    for number in range(-(-size // MiB)):
        piece = b"".join((number.to_bytes(8, "big"), tail))
        yield piece[: size - number * MiB]


def ask(url: str, what: str, body: bytes | None = None) -> Any:
    """Ask the server about itself, past any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/-/{what}", data=body, timeout=60) as reply:
        return json.load(reply)


class Library:
    """One library, with its client made. ``options`` say what is not a default. ``name``: of the
    module that is imported. ``packages``: whose versions belong to a figure."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def open(self, key: str) -> Any:
        """A file of the bucket that is written piece by piece, where the library has one."""
        raise NotImplementedError

    def write(self, key: str, data: Iterable[bytes]) -> None:
        """Write pieces to a key; they are visible when it returns."""
        with self.open(key) as file:
            for piece in data:
                file.write(piece)

    def put(self, key: str, content: bytes) -> None:
        """Write a small object with one request, where the library can."""
        self.write(key, [content])

    def put_all(self, keys: list[str], content: bytes) -> None:
        """Write many small objects: one after the other, or so many at once as the options say."""
        many = int(self.options.get("threads", 1))
        if many > 1:
            self.at_once(many, lambda key: self.put(key, content), keys)
            return
        for key in keys:
            self.put(key, content)

    @staticmethod
    def at_once(many: int, call: Callable[..., object], *arguments: Iterable[Any]) -> None:
        """Call in so many threads; raises the first error."""
        with ThreadPoolExecutor(many) as pool:
            for _ in pool.map(call, *arguments):
                pass


class Ours(Library):
    """This library: each call of it is a whole job."""

    name = "magic_committer"
    packages = ("magic-committer", "boto3", "httptools", "awscrt")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        import magic_committer

        self.mc = magic_committer
        way = {"transport": options["transport"]} if options.get("transport") else {}
        self.terms: dict[str, Any] = {
            "s3": magic_committer.S3Options(**way),
            "options": magic_committer.Options(**options.get("options", {})),
        }

    def write(self, key: str, data: Iterable[bytes]) -> None:
        with self.mc.write(f"s3://{BUCKET}/{key}.d", **self.terms) as job, job.open(key) as file:
            for piece in data:
                file.write(piece)

    def put_all(self, keys: list[str], content: bytes) -> None:
        terms = {**self.terms, "track": self.options.get("track", "memory")}
        with self.mc.start(f"s3://{BUCKET}/{keys[0]}.d", **terms) as job:
            with job.task(1) as task:
                for key in keys:
                    with task.open(key) as file:
                        file.write(content)
            job.commit([task.result])


class Boto3(Library):
    """The SDK: `upload_fileobj` reads from a file object, which hands out the same pieces."""

    name = "boto3"
    packages = ("boto3", "s3transfer", "awscrt")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        import boto3
        from botocore.config import Config

        many = int(options.get("threads", 10))
        self.client = boto3.client("s3", config=Config(max_pool_connections=max(10, many)))

    def write(self, key: str, data: Iterable[bytes]) -> None:
        self.client.upload_fileobj(Readable(data), BUCKET, key)

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)


class Readable:
    """A file object over pieces."""

    def __init__(self, data: Iterable[bytes]) -> None:
        self._data = iter(data)
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        """The next ``size`` bytes; all that are left if it is negative."""
        held, length = [self._left], len(self._left)
        while (size < 0 or length < size) and (piece := next(self._data, b"")):
            held.append(piece)
            length += len(piece)
        joined = b"".join(held)
        end = length if size < 0 else size
        self._left = joined[end:]
        return joined[:end]


class SmartOpen(Library):
    """smart_open on boto3."""

    name = "smart_open"
    packages = ("smart_open", "boto3", "awscrt")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        import boto3
        import smart_open

        self.module = smart_open
        self.parameters = {"client": boto3.client("s3")}

    def open(self, key: str) -> Any:
        return self.module.open(f"s3://{BUCKET}/{key}", "wb", transport_params=self.parameters)


class S3fs(Library):
    """s3fs on aiobotocore. Its `pipe` sends many small objects at once by itself."""

    name = "s3fs"
    packages = ("s3fs", "aiobotocore")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        import s3fs

        self.files = s3fs.S3FileSystem()

    def open(self, key: str) -> Any:
        return self.files.open(f"{BUCKET}/{key}", "wb")

    def put_all(self, keys: list[str], content: bytes) -> None:
        self.files.pipe({f"{BUCKET}/{key}": content for key in keys})


class Pyarrow(Library):
    """pyarrow's own S3 file system, in C++."""

    name = "pyarrow"
    packages = ("pyarrow",)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        from pyarrow import fs

        authority = os.environ.get("AWS_CA_BUNDLE")
        if authority:
            fs.initialize_s3()
        endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
        trust = {"tls_ca_file_path": authority} if authority else {}
        self.files = fs.S3FileSystem(
            endpoint_override=endpoint.netloc, scheme=endpoint.scheme, region="us-east-1", **trust
        )

    def open(self, key: str) -> Any:
        return self.files.open_output_stream(f"{BUCKET}/{key}")


class Obstore(Library):
    """obstore, in Rust."""

    name = "obstore"
    packages = ("obstore",)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        import obstore
        from obstore.store import S3Store

        self.module = obstore
        trust = {}
        if authority := os.environ.get("AWS_CA_BUNDLE"):
            with open(authority, "rb") as file:
                trust = {"root_certificate": file.read()}
        self.store: Any = S3Store(
            BUCKET, endpoint=os.environ["AWS_ENDPOINT_URL"], region="us-east-1",
            client_options={"allow_http": True, **trust},
            unsigned_payload=bool(os.environ.get(_UNSIGNED)),
        )  # fmt: skip

    def open(self, key: str) -> Any:
        return self.module.open_writer(self.store, key)

    def put(self, key: str, content: bytes) -> None:
        self.module.put(self.store, key, content)


LIBRARIES: dict[str, type[Library]] = {
    one.name: one for one in (Ours, Boto3, SmartOpen, S3fs, Pyarrow, Obstore)
}


# The environment of a library's process ----------------------------------------------------------

_UNSIGNED = "MAGIC_COMMITTER_BENCH_UNSIGNED"


def environment(url: str, config: str, *, unsigned: bool, authority: str = "") -> dict[str, str]:
    """What a library's process finds: the server, any credentials, and nothing of this machine's.
    ``config``: a file for the AWS configuration, which is written here. ``unsigned``: payloads are
    not signed over HTTP, as by all over HTTPS: those on AWS's Python SDK read it in the
    configuration, obstore has an option; pyarrow never signs them. ``authority``: the file with
    the certificate that HTTPS trusts."""
    with open(config, "w", encoding="utf-8") as file:
        file.write("[default]\n" + "s3 =\n  payload_signing_enabled = false\n" * unsigned)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "SSL_")) and not name.lower().endswith("_proxy")
    }
    return kept | {
        "AWS_ACCESS_KEY_ID": "AKIABENCHBENCHBENCH0", "AWS_SECRET_ACCESS_KEY": "bench" * 8,
        "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": url,
        "AWS_CONFIG_FILE": config, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true", **({"AWS_CA_BUNDLE": authority} if authority else {}),
        _UNSIGNED: "1" if unsigned else "",
    }  # fmt: skip
