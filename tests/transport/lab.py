"""A server that answers as the test says, stores on it, and each verb of the port, asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from magic_committer.options import Transport
from magic_committer.stores.base import Ask, Attributes, CompleteUpload, Part, many_of
from magic_committer.stores.s3 import S3Store
from tests.servers import Asked, HurriedClock, Reply, ScriptedServer, document, way

PUT = Reply(headers={"ETag": '"e"'})
LOST = Reply(lost=True)
MODIFIED = "Fri, 20 Nov 2026 11:00:00 GMT"
DATED = {"ETag": '"e"', "Last-Modified": MODIFIED}
COMPLETED = document("CompleteMultipartUpload", '<ETag>"e-1"</ETag>')
PART = Part(1, '"p"', 1)
LISTED = "<Key>k</Key><Size>1</Size><LastModified>2026-11-20T11:00:00.000Z</LastModified>"
TRUNCATED = "<IsTruncated>true</IsTruncated>"


def upload_rows(*rows: tuple[str, str]) -> str:
    """Uploads as a listing shows them."""
    return "".join(
        f"<Upload><Key>{key}</Key><UploadId>{upload_id}</UploadId>"
        "<Initiated>2026-11-22T10:00:00.000Z</Initiated></Upload>"
        for key, upload_id in rows
    )


def complete(key: str, **more: Any) -> tuple[str, Ask]:
    """A Complete of one part, known by its key."""
    return key, CompleteUpload(key, "u", (PART,), **more)


def delete_batch(store: S3Store) -> None:
    """Delete two keys at once; raise what became of the first."""
    failed = store.delete(["k", "l"])
    assert set(failed) in ({"k", "l"}, set())
    if failed:
        raise failed["k"]


NOBODY: dict[str, Any] = {"access_key": None, "secret_key": None}
"""Options of who gives no keys."""
VERBS: dict[str, tuple[str, Callable[[S3Store], Any]]] = {
    "get": ("s3:GetObject", lambda s: s.get("k", max_bytes=1)),
    "head": ("s3:GetObject", lambda s: s.head("k")),
    "put": ("s3:PutObject", lambda s: s.put("k", b"x")),
    "delete": ("s3:DeleteObject", delete_batch),
    "delete_one": ("s3:DeleteObject", lambda s: s.delete_one("k")),
    "list": ("s3:ListBucket", lambda store: list(store.list("k"))),
    "create_upload": ("s3:PutObject", lambda s: s.create_upload("k", attributes=Attributes())),
    "put_part": ("s3:PutObject", lambda s: s.put_part("k", "u", 1, memoryview(b"x"))),
    "list_parts": ("s3:ListMultipartUploadParts", lambda s: s.list_parts("k", "u")),
    "complete_upload": ("s3:PutObject", lambda s: s.complete_upload("k", "u", [PART])),
    "abort_upload": ("s3:AbortMultipartUpload", lambda s: s.abort_upload("k", "u")),
    "list_uploads": ("s3:ListBucketMultipartUploads", lambda s: list(s.list_uploads("k"))),
}
"""For each verb: the action that a policy must allow (S3 API), and a call."""
CONDITIONAL: dict[str, Callable[[S3Store], Any]] = {
    "put if": lambda s: s.put("k", b"x", if_none_match=True),
    "complete if": lambda s: s.complete_upload("k", "u", [PART], if_none_match=True),
}
READS = {"get", "head", "list", "list_parts", "list_uploads"}


def ask(store: S3Store, *verbs: str) -> list[Any]:
    """Ask verbs, one after the other."""
    return [(CONDITIONAL.get(verb) or VERBS[verb][1])(store) for verb in verbs]


def at_once(store: S3Store, *asks: tuple[Any, Ask], in_flight: int = 8) -> dict[Any, Any]:
    """Ask many at once, as the fast way can; what each was answered, by what it is known by."""
    many, left = many_of(store), iter(asks)
    assert many is not None
    return dict(many.ask_each(lambda: next(left, None), in_flight=in_flight))


def fine(asked: Asked) -> Reply:
    """The simplest answer that every verb believes."""
    if asked.method == "POST" and "uploads" in asked.query:
        return document("InitiateMultipartUpload", "<UploadId>u1</UploadId>")
    if asked.method == "POST":
        return document("Delete") if "delete" in asked.query else COMPLETED
    if asked.method == "GET":
        lists = {"uploadId": "Parts", "list-type": "Objects", "uploads": "MultipartUploads"}
        named = [f"List{what}" for name, what in lists.items() if name in asked.query]
        return document(named[0]) if named else Reply(body=b"x", headers=DATED)
    if "x-amz-copy-source" in asked.headers:
        return document("CopyPart", '<ETag>"e"</ETag>')
    return Reply(204) if asked.method == "DELETE" else Reply(headers=DATED)


def way_to(url: str, clock: HurriedClock | None = None, bucket: str = "b", **more: Any) -> S3Store:
    """A store on a server, by the transport of the test. It asks once, and waits for nothing."""
    options = way(url, **{"retry_attempts_max": 1, **more})
    return S3Store(bucket, options, clock=clock or HurriedClock())


def sent_by(asked: Iterable[Asked]) -> list[str]:
    """What sent each request."""
    return ["boto3" if "amz-sdk-invocation-id" in one.headers else "fast" for one in asked]


@dataclass
class Lab:
    """A server that takes everything, until the test says otherwise, and stores on it.

    Attributes:
        store: tries everything twice.
        transport: what sends its requests.
        clock: nobody waits.
    """

    server: ScriptedServer
    store: S3Store
    transport: Transport
    patch: pytest.MonkeyPatch
    clock: HurriedClock = field(default_factory=HurriedClock)

    def __post_init__(self) -> None:
        self.asked, self.said, self.url = self.server.asked, self.server.said, self.server.url

    def script(self, script: Callable[[Asked], Reply]) -> None:
        """Answer with what a function says."""
        self.server.script = script

    def make(self, bucket: str = "b", **more: Any) -> S3Store:
        """A store with options of its own."""
        return way_to(more.pop("url", self.url), self.clock, bucket, **more)
