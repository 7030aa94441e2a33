"""What the in-memory store has beyond the contract: hooks, counts, exact codes, its clock."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from magic_committer.errors import StoreError
from magic_committer.stores import checksum as checksums
from magic_committer.stores.base import (
    PART_BYTES_MIN,
    Attributes,
    Checksum,
    ObjectSlice,
    Part,
    objects,
    uploads,
)
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import memory_store
from tests.promises.hands import raises


def _pending(
    store: MemoryStore, key: str = "k", bodies: tuple[bytes, ...] = (b"body",)
) -> tuple[str, list[Part]]:
    upload_id = store.create_upload(key, attributes=Attributes()).upload_id
    return upload_id, [
        store.put_part(key, upload_id, number, memoryview(body))
        for number, body in enumerate(bodies, 1)
    ]


def test_each_page_and_each_batch_is_a_request() -> None:
    """The counter has a request for each page of a listing and each batch of 1,000 deletes."""
    store = MemoryStore(page_keys=10)
    for number in range(25):
        store.put_object(f"d/{number:02}")
        store.start_upload(f"d/{number:02}")
    assert len(list(objects(store, "d/"))) == len(list(uploads(store, "d/"))) == 25
    store.delete(str(number) for number in range(1001))
    assert store.requests == {"list": 3, "list_uploads": 3, "delete": 2}
    assert [len(page.objects) for page in store.list("d/0")] == [10]  # not an empty one behind it
    assert MemoryStore("b").identity != MemoryStore("b").identity


def test_a_listing_goes_on_after_what_is_deleted_meanwhile() -> None:
    """Pages go by key: deleting each page as it comes neither skips nor repeats a key."""
    store = MemoryStore(page_keys=7)
    names = [f"{number:03}" for number in range(100)]
    for name in names[::-1]:
        store.put_object(name)
    seen: list[str] = []
    for page in store.list(""):
        keys = [one.key for one in page.objects]
        seen += keys
        store.delete(keys)
    assert seen == names
    assert store.keys() == ()


def _copy_a_byte(store: MemoryStore, upload_id: str) -> object:
    """Copy a range of an object of 5 MiB: S3 takes ranges of larger ones only."""
    with memory_store("other") as other:
        source = other.put("small", bytes(PART_BYTES_MIN))
        copied = ObjectSlice("other", "small", source.etag, 0, 1, PART_BYTES_MIN)
        return store.put_part("k", upload_id, 1, copied)


SUM = Checksum("CRC32", "AAAAAA==")


def _complete(*order: int, **given: Any) -> Callable[[MemoryStore, str, list[Part]], object]:
    return lambda store, upload_id, parts: store.complete_upload(
        "k", upload_id, [parts[number - 1] for number in order], **given
    )


@pytest.mark.parametrize(
    ("ask", "status", "code"),
    [
        (_complete(), 400, "MalformedXML"),
        (_complete(2, 1), 400, "InvalidPartOrder"),
        (_complete(1, 1), 400, "InvalidPartOrder"),
        (_complete(1, 2, length=1), 400, "InvalidRequest"),
        (_complete(1, 2, checksum=SUM), 400, "InvalidRequest"),
        (lambda s, u, p: s.complete_upload("k", u, [p[0]._replace(number=3)]), 400, "InvalidPart"),
        (lambda s, u, p: s.complete_upload("k", u, [p[0]._replace(etag="x")]), 400, "InvalidPart"),
        (lambda s, u, p: s.complete_upload("l", u, p), 404, "NoSuchUpload"),
        (lambda s, u, p: s.put_part("k", u, 0, memoryview(b"")), 400, "InvalidArgument"),
        (lambda s, u, p: s.put_part("k", u, 10_001, memoryview(b"")), 400, "InvalidArgument"),
        (lambda s, u, p: s.put_part("k", u, 1, memoryview(b""), checksum=SUM), 400,
         "InvalidRequest"),  # the upload was created for none
        (lambda s, u, p: s.put("", b""), 400, "InvalidArgument"),
        (lambda s, u, p: s.put("é" * 513, b""), 400, "KeyTooLongError"),
        (lambda s, u, p: s.put("\ud800", b""), 400, "InvalidURI"),
        (lambda s, u, p: s.put("k", b"", metadata={"a": "x" * 2048}), 400, "MetadataTooLarge"),
        (lambda s, u, p: _copy_a_byte(s, u), 400, "InvalidRequest"),
        (lambda s, u, p: s.put_part("k", u, 1, ObjectSlice("none", "k", "e", 0, 1, 1)), 404,
         "NoSuchBucket"),
        (lambda s, u, p: s.delete_one("k", version_id="v"), 400, "InvalidArgument"),
        (lambda s, u, p: s.put("k", b"", if_match="a", if_none_match=True), 400, "InvalidArgument"),
    ],
)  # fmt: skip
def test_refusals_have_s3s_codes(
    ask: Callable[[MemoryStore, str, list[Part]], object], status: int, code: str
) -> None:
    """Each refusal has S3's status and code, and changes nothing."""
    store = MemoryStore(part_bytes_min=1)
    upload_id, parts = _pending(store, bodies=(b"one", b"two"))
    caught = raises(StoreError, ask, store, upload_id, parts)
    assert (caught.status, caught.code) == (status, code)
    assert store.keys() == ()
    assert store.list_parts("k", upload_id) == tuple(parts)


def test_a_refusal_says_of_what_it_is() -> None:
    """Of a request, of a key in a batch, and of a deed that is nobody's request; a key that is
    missing is refused to GET and HEAD alone."""
    store = MemoryStore("b", missing_is_refused=True)
    told = [*store.delete(["a", ""]).values()]
    asks = (partial(store.head, "k"), partial(store.put, "k", b"", if_match="e"))
    for ask in (*asks, partial(store.put_object, "")):
        caught = raises(StoreError, ask)
        told.append(caught)
    assert [(one.operation, one.bucket, one.key, one.status) for one in told] == [
        ("delete_one", "b", "", 400), ("head", "b", "k", 403), ("put", "b", "k", 404),
        ("put", "b", "", 400),
    ]  # fmt: skip
    assert all(str(one).startswith(one.operation) for one in told)


def test_a_composite_checksum_is_the_parts() -> None:
    """With SHA-256 Complete names each part's sum; the whole's is the sum of those."""
    store = MemoryStore(part_bytes_min=1)
    upload_id = store.create_upload("k", attributes=Attributes(), checksum="SHA256").upload_id
    parts = [store.put_part("k", upload_id, n, memoryview(b"x" * n)) for n in (1, 2)]
    with pytest.raises(StoreError):
        store.complete_upload("k", upload_id, [part._replace(checksum=None) for part in parts])
    with pytest.raises(StoreError):
        store.complete_upload("k", upload_id, parts, checksum=checksums.of("SHA256", b"xxx"))
    whole = checksums.composite([part.checksum for part in parts if part.checksum])
    store.complete_upload("k", upload_id, parts, checksum=whole)
    assert store.body("k") == b"xxx"


def test_times_are_the_clocks_whole_seconds() -> None:
    """Last-Modified and Date are cut to seconds; an upload's object is as old as its Create."""
    time = 1000.9
    store = MemoryStore(clock=lambda: time)
    upload_id, parts = _pending(store)
    time = 2000.9
    store.complete_upload("k", upload_id, parts)
    store.put("l", b"")
    assert [store.head(key).last_modified for key in "kl"] == [1000.0, 2000.0]
    assert store.head("k").seen_at == 2000.0


def test_what_others_do_is_no_request_of_ours() -> None:
    """Foreign writes, deletes, uploads and aborts are neither counted nor hooked."""
    store = MemoryStore()

    def never(request: Request) -> None:
        raise AssertionError(request)

    store.before = never
    store.put_object("a", b"x", metadata={"m": "1"})
    store.put_object("b")
    store.delete_object("b")
    kept, dropped = store.start_upload("u"), store.start_upload("u")
    store.drop_upload(dropped)
    assert store.keys() == ("a",)
    assert [one.upload_id for one in store.open_uploads("u")] == [kept]
    assert store.requests == {}
    assert repr(store) == "MemoryStore('bucket', objects=1, uploads=1)"


def test_complete_copies_no_bytes() -> None:
    """An object of 64 MiB is made of its parts as they lie."""
    store = MemoryStore()
    upload_id, parts = _pending(store, bodies=(bytes(8 * 1024**2),) * 8)
    tracemalloc.start()
    store.complete_upload("k", upload_id, parts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1024**2
