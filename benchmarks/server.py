"""An S3 that answers at once, in a process of its own: parts are read, counted and forgotten.

    with running() as server:
        server.reset(verify=False)
        …                                   # a client writes to server.url, bucket `bench`
        facts = server.facts()

Small objects are kept, with ETags and conditional writes, so that a whole job of ours runs here.
Signatures are not checked. Where there is Go, `fast()` gives the server that the benchmarks use
(`fast_server/`): this one is slower than good clients are, has listings of one page, and no TLS.

The child ends when its standard input does, which the parent holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks import writers
from benchmarks.wire import Head, Hung, Wire, read_body, read_head
from magic_committer import checksum
from magic_committer.stores.base import Checksum

BUCKET = writers.BUCKET
PROGRAM = "fast_server"
FAST = Path(__file__).resolve().parent / PROGRAM
BUILD_SECONDS_MAX = 300.0
SMALL_BYTES_MAX = 1024**2
"""Objects up to this size are kept."""
CONTROL = "/-/"
"""Where the parent asks; no bucket has this name."""

STATUS = {
    200: "OK",
    204: "No Content",
    404: "Not Found",
    412: "Precondition Failed",
    501: "Not Implemented",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None  # of a body that HEAD does not send

    def encode(self) -> bytes:
        """As it goes over the wire, in one packet if it is small."""
        length = len(self.body) if self.length is None else self.length
        headers = {"Date": formatdate(usegmt=True), "Content-Length": str(length), **self.headers}
        lines = [f"HTTP/1.1 {self.status} {STATUS[self.status]}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


def refusal(status: int, code: str) -> Answer:
    """S3's error document."""
    return xml("Error", f"<Code>{code}</Code><Message>{code}</Message>", status)


def xml(root: str, content: str, status: int = 200) -> Answer:
    """A document of S3's."""
    namespace = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"' if root != "Error" else ""
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}{namespace}>{content}</{root}>'
    return Answer(status, text.encode(), {"Content-Type": "application/xml"})


@dataclass(frozen=True, slots=True)
class Stored:
    """An object; ``body`` is None if it was not kept."""

    size: int
    etag: str
    body: bytes | None = None
    crc32: Checksum | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    modified: float = field(default_factory=time.time)

    def headers(self) -> dict[str, str]:
        """What GET and HEAD say of it."""
        return {
            "ETag": self.etag,
            "Last-Modified": formatdate(self.modified, usegmt=True),
            **self.metadata,
        }


@dataclass(slots=True)
class Upload:
    """An open upload: each part's length and, in a round that verifies, its CRC32."""

    key: str
    metadata: Mapping[str, str]
    parts: dict[int, tuple[int, Checksum | None]] = field(default_factory=dict)


class Store:
    """One bucket and what was asked of it. Its methods are the verbs; safe from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.latency_seconds = 0.0
        self.reset(verify=False)

    def reset(self, *, verify: bool) -> None:
        """Forget everything."""
        with self._lock:
            self.verify = verify
            self._objects: dict[str, Stored] = {}
            self._uploads: dict[str, Upload] = {}
            self._names = 0
            self._forget()

    def _forget(self) -> None:
        self._requests: Counter[str] = Counter()
        self._part_bytes: Counter[int] = Counter()
        self._payloads: Counter[str] = Counter()
        self._checksums: Counter[str] = Counter()
        self._unknown: set[str] = set()

    def facts(self, *, forget: bool = False) -> dict[str, Any]:
        """What was asked since `reset`, or since it was forgotten."""
        with self._lock:
            told = {
                "requests": dict(self._requests),
                "part_bytes": max(self._part_bytes, default=0),
                "payloads": sorted(self._payloads),
                "checksums": sorted(self._checksums),
                "open_uploads": len(self._uploads),
                "object_count": len(self._objects),
                "unknown": sorted(self._unknown),
                "objects": {
                    key: {"size": one.size, "crc32": one.crc32.value if one.crc32 else None}
                    for key, one in self._objects.items()
                },
            }
            if forget:
                self._forget()
        return told

    def seed(self, keys: list[str], size: int) -> dict[str, Any]:
        """Open an upload with one part for each key."""
        with self._lock:
            names = [f"upload-{self._names + n}" for n in range(1, len(keys) + 1)]
            self._names += len(keys)
            for name, key in zip(names, keys, strict=True):
                self._uploads[name] = Upload(key, {}, {1: (size, None)})
        return {"ids": names, "etag": f'"{1:032x}"'}

    def answer(self, head: Head, wire: Wire) -> Answer:
        """Read the body and do what was asked."""
        key = head.path.removeprefix(f"/{BUCKET}").removeprefix("/")
        verb = _verb(head, key)
        with self._lock:
            self._requests[verb] += 1
        return self._do(verb, head, key, wire)

    def _do(self, verb: str, head: Head, key: str, wire: Wire) -> Answer:
        if verb == "UploadPart":
            answer = self._upload_part(head, wire)
            time.sleep(self.latency_seconds)
            return answer
        body = b"".join(bytes(p) for p in read_body(wire, head, discard=False))
        time.sleep(self.latency_seconds)
        act = getattr(self, "_" + re.sub(r"(?<!^)(?=[A-Z])", "_", verb).lower(), None)
        if act is None:
            with self._lock:
                self._unknown.add(verb)
            return refusal(501, "NotImplemented")
        with self._lock:
            done: Answer = act(head, key, body)
        return done

    def _upload_part(self, head: Head, wire: Wire) -> Answer:
        size, running = 0, checksum.Running("CRC32")
        for piece in read_body(wire, head, discard=not self.verify):
            size += len(piece)
            if self.verify:
                running.update(piece)
        number = int(head.query["partNumber"])
        with self._lock:
            self._note_payload(head, size)
            upload = self._uploads.get(head.query["uploadId"])
            if upload is None:
                return refusal(404, "NoSuchUpload")
            upload.parts[number] = (size, running.checksum() if self.verify else None)
        return Answer(headers={"ETag": f'"{number:032x}"'})

    def _note_payload(self, head: Head, size: int) -> None:
        self._part_bytes[size] += 1
        digest = head.headers.get("x-amz-content-sha256", "none")
        self._payloads["SHA-256" if re.fullmatch("[0-9a-f]{64}", digest) else digest] += 1
        named = [n for n in head.headers if n.startswith("x-amz-checksum-")]
        named += filter(None, [head.headers.get("x-amz-trailer")])
        named += ["content-md5"] if "content-md5" in head.headers else []
        for name in named:
            self._checksums[name.removeprefix("x-amz-checksum-").upper()] += 1

    # Each of these runs under the lock.

    def _put_object(self, head: Head, key: str, body: bytes) -> Answer:
        there = self._objects.get(key)
        wanted = head.headers.get("if-match")
        if wanted is not None and there is None:
            return refusal(404, "NoSuchKey")
        if wanted is not None and there is not None and wanted != there.etag:
            return refusal(412, "PreconditionFailed")
        if head.headers.get("if-none-match") == "*" and there is not None:
            return refusal(412, "PreconditionFailed")
        small = len(body) <= SMALL_BYTES_MAX
        self._note_large(head, body)
        etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        crc = checksum.of("CRC32", body) if self.verify else None
        self._objects[key] = Stored(
            len(body), etag, body if small else None, crc, _metadata(head.headers)
        )
        return Answer(headers={"ETag": etag})

    def _note_large(self, head: Head, body: bytes) -> None:
        if len(body) > SMALL_BYTES_MAX:
            self._note_payload(head, len(body))

    def _get_object(self, head: Head, key: str, body: bytes) -> Answer:
        there = self._objects.get(key)
        if there is None or there.body is None:
            return refusal(404, "NoSuchKey")
        return Answer(body=there.body, headers=there.headers())

    def _head_object(self, head: Head, key: str, body: bytes) -> Answer:
        there = self._objects.get(key)
        if there is None:
            return Answer(404)
        return Answer(headers=there.headers(), length=there.size)

    def _head_bucket(self, head: Head, key: str, body: bytes) -> Answer:
        return Answer()

    _create_bucket = _head_bucket

    def _get_bucket_location(self, head: Head, key: str, body: bytes) -> Answer:
        return xml("LocationConstraint", "")

    def _delete_object(self, head: Head, key: str, body: bytes) -> Answer:
        self._objects.pop(key, None)
        return Answer(204)

    def _delete_objects(self, head: Head, key: str, body: bytes) -> Answer:
        for name in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            self._objects.pop(_unescaped(name), None)
        return xml("DeleteResult", "")

    def _list_objects_v2(self, head: Head, key: str, body: bytes) -> Answer:
        prefix, delimiter = head.query.get("prefix", ""), head.query.get("delimiter", "")
        shown, prefixes = [], set()
        for name, one in sorted(self._objects.items()):
            if not name.startswith(prefix):
                continue
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                prefixes.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            shown.append(
                f"<Contents><Key>{escape(name)}</Key><Size>{one.size}</Size>"
                f"<ETag>{escape(one.etag)}</ETag>"
                f"<LastModified>{_iso(one.modified)}</LastModified></Contents>"
            )
        shown += [
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
            for one in sorted(prefixes)
        ]
        shown.append(f"<KeyCount>{len(shown)}</KeyCount><IsTruncated>false</IsTruncated>")
        return xml("ListBucketResult", "".join(shown))

    def _create_multipart_upload(self, head: Head, key: str, body: bytes) -> Answer:
        self._names += 1
        name = f"upload-{self._names}"
        self._uploads[name] = Upload(key, _metadata(head.headers))
        return xml(
            "InitiateMultipartUploadResult",
            f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{name}</UploadId>",
        )

    def _complete_multipart_upload(self, head: Head, key: str, body: bytes) -> Answer:
        upload = self._uploads.pop(head.query["uploadId"], None)
        if upload is None:
            return refusal(404, "NoSuchUpload")
        numbers = [int(n) for n in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        parts = [upload.parts[number] for number in sorted(numbers)]
        joined = [(crc, size) for size, crc in parts if crc is not None]
        self._objects[key] = Stored(
            sum(size for size, _ in parts),
            f'"{"0" * 32}-{len(parts)}"',
            crc32=checksum.whole(joined),
            metadata=upload.metadata,
        )
        return xml(
            "CompleteMultipartUploadResult",
            f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key>"
            f"<ETag>{escape(self._objects[key].etag)}</ETag>",
        )

    def _abort_multipart_upload(self, head: Head, key: str, body: bytes) -> Answer:
        gone = self._uploads.pop(head.query["uploadId"], None)
        return Answer(204) if gone else refusal(404, "NoSuchUpload")

    def _list_multipart_uploads(self, head: Head, key: str, body: bytes) -> Answer:
        shown = [
            f"<Upload><Key>{escape(one.key)}</Key><UploadId>{name}</UploadId>"
            f"<Initiated>{_iso(time.time())}</Initiated></Upload>"
            for name, one in self._uploads.items()
            if one.key.startswith(head.query.get("prefix", ""))
        ]
        return xml(
            "ListMultipartUploadsResult", "".join(shown) + "<IsTruncated>false</IsTruncated>"
        )


VERBS: tuple[tuple[str, str, str], ...] = (
    ("PUT", "partNumber", "UploadPart"),
    ("POST", "uploads", "CreateMultipartUpload"),
    ("POST", "uploadId", "CompleteMultipartUpload"),
    ("DELETE", "uploadId", "AbortMultipartUpload"),
    ("POST", "delete", "DeleteObjects"),
    ("GET", "uploads", "ListMultipartUploads"),
    ("GET", "list-type", "ListObjectsV2"),
    ("GET", "location", "GetBucketLocation"),
)
"""Method, and a parameter of the query that names the verb."""


def _verb(head: Head, key: str) -> str:
    for method, parameter, verb in VERBS:
        if head.method == method and parameter in head.query:
            return verb
    if not key:
        return {"PUT": "CreateBucket"}.get(head.method, f"{head.method.title()}Bucket")
    return f"{head.method.title()}Object"


def _metadata(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


def _unescaped(text: str) -> str:
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        text = text.replace(entity, character)
    return text


# The process -------------------------------------------------------------------------------------


def serve(listener: socket.socket) -> None:
    """Answer every connection, each in a thread of its own."""
    store = Store()
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_converse, args=(store, connection), daemon=True).start()


def _converse(store: Store, connection: socket.socket) -> None:
    wire = Wire(connection)
    with connection, contextlib.suppress(EOFError, Hung, ConnectionResetError, BrokenPipeError):
        while True:
            head = read_head(wire)
            if head.headers.get("expect", "").lower() == "100-continue":
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            if head.path.startswith(CONTROL):
                connection.sendall(_control(store, head, wire).encode())
            else:
                connection.sendall(store.answer(head, wire).encode())


def _control(store: Store, head: Head, wire: Wire) -> Answer:
    """As fast_server/control.go."""
    asked, query = head.path.removeprefix(CONTROL), head.query
    body = b"".join(bytes(piece) for piece in read_body(wire, head, discard=False))
    told: dict[str, Any] = {}
    if asked == "reset":
        store.reset(verify=query["verify"] == "1")
        store.latency_seconds = float(query.get("latency_ms", 0)) / 1000
    elif asked == "latency":
        store.latency_seconds = float(query["ms"]) / 1000
    elif asked == "seed":
        told = store.seed(body.decode().split(), int(query.get("size", 1000)))
    else:
        told = store.facts(forget=query.get("forget") == "1")
    return Answer(body=json.dumps(told).encode())


@dataclass(frozen=True, slots=True)
class Server:
    """The running server, seen from its parent.

    Attributes:
        url: of plain HTTP. kind: "Go" or "Python".
        https, authority: the URL, and the file with the certificate to trust; "" without TLS.
    """

    url: str
    kind: str = "Python"
    https: str = ""
    authority: str = ""

    def reset(self, *, verify: bool, latency_ms: float = 0) -> None:
        """Forget everything. ``verify``: compute the CRC32 of what comes, which costs time."""
        self._ask(f"reset?verify={int(verify)}&latency_ms={latency_ms}")

    def facts(self, *, named: int = 1000) -> dict[str, Any]:
        """What it was asked since `reset`, or since it was forgotten: requests by verb, how large
        bodies were sent, what is there now. Of an object the size and, where that was asked for,
        the CRC32; of ``named`` objects at most (the server in Python: of all)."""
        told = self._ask(f"facts?named={named}")
        told["payload"] = "+".join(sorted(told["payloads"]))
        told["checksum"] = "+".join(sorted(told["checksums"]))
        for one in told["objects"].values():
            if "parts" in one:
                one["crc32"] = _joined(one.pop("parts"))
        return told

    def _ask(self, what: str) -> dict[str, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}{CONTROL}{what}", timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
            return answer


def _joined(parts: list[tuple[int, str]]) -> str | None:
    sums = [
        (Checksum("CRC32", b64encode(bytes.fromhex(crc)).decode()), size) for size, crc in parts
    ]
    whole = checksum.whole(sums)
    return whole.value if whole else None


class NoGo(RuntimeError):
    """The fast server cannot be built here; says why."""


def built() -> Path:
    """The fast server's program, kept in the user's cache; builds it where it is not yet.

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
        raise NoGo("there is no `go` on the PATH")
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
    """Run the fast server, with TLS. It cannot outlive this process.

    Raises:
        NoGo: it cannot be built here.
    """
    program = built()
    with tempfile.TemporaryDirectory(prefix="magic-committer-bench-") as folder:
        authority = f"{folder}/authority.pem"
        with _child([str(program), "--ca", authority]) as line:
            urls = json.loads(line)
            yield Server(urls["http"], "Go", urls["https"], authority)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Run the server of this module. It cannot outlive this process."""
    with _child([sys.executable, "-m", "benchmarks.server"]) as line:
        yield Server(line)


@contextlib.contextmanager
def _child(command: list[str]) -> Iterator[str]:
    """Run a server; gives the line that it prints when it listens."""
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).resolve().parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    serve(listening)
