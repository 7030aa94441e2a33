"""Objects: put, get, head, delete, and conditions on them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from magic_committer.errors import InvalidRequest, NotFound, PreconditionFailed
from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores.base import METADATA_BYTES_MAX, ObjectStore, objects, same_etag

KEYS = ["plain", "with space", "a+b", "%2F", "é中🙂", "year=2026/x y+z.csv", "'\"<&>*"]


def test_what_is_put_can_be_got(store: ObjectStore, key: str) -> None:
    """GET gives the bytes, the size and the metadata that PUT was given."""
    store.put(key, b"bytes", metadata={"job": "j-1", "n": "2"}, content_type="text/plain")
    found = store.get(key, max_bytes=5)
    assert found.body == b"bytes"
    assert (found.info.key, found.info.size) == (key, 5)
    assert found.info.metadata == {"job": "j-1", "n": "2"}


def test_head_agrees_with_get(store: ObjectStore, key: str) -> None:
    """HEAD says the same as GET, without the bytes."""
    store.put(key, b"bytes", metadata={"a": "b"})
    head, got = store.head(key), store.get(key, max_bytes=5).info
    assert replace(head, seen_at=0.0) == replace(got, seen_at=0.0)


def test_a_put_replaces(store: ObjectStore, key: str) -> None:
    """The second PUT of a key takes the place of the first, its metadata too."""
    store.put(key, b"old", metadata={"a": "1"})
    store.put(key, b"newer")
    found = store.get(key, max_bytes=100)
    assert (found.body, found.info.metadata) == (b"newer", {})


def test_etags_are_quoted_hashes_and_the_same_everywhere(store: ObjectStore, key: str) -> None:
    """PUT, HEAD, GET and listing give one ETag, in quotes: the MD5 of the bytes."""
    etag = store.put(key, b"bytes").etag
    assert etag == f'"{hashlib.md5(b"bytes").hexdigest()}"'
    assert store.head(key).etag == etag
    assert store.get(key, max_bytes=5).info.etag == etag
    assert [one.etag for one in objects(store, key)] == [etag]


def test_metadata_names_come_back_in_lower_case(store: ObjectStore, key: str) -> None:
    """Names of metadata are HTTP headers: lower case comes back."""
    store.put(key, b"", metadata={"Job-Id": "A"})
    assert store.head(key).metadata == {"job-id": "A"}


def test_age_comes_from_one_clock(store: ObjectStore, key: str) -> None:
    """``seen_at - last_modified`` is an age: small, and not below a second's rounding."""
    store.put(key, b"")
    info = store.head(key)
    assert -1 <= info.seen_at - info.last_modified < 60


def test_last_modified_has_whole_seconds(store: ObjectStore, key: str) -> None:
    """HEAD tells no fraction of a second."""
    store.put(key, b"")
    info = store.head(key)
    assert info.last_modified == int(info.last_modified)


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_all_kinds_live_through_every_verb(
    store: ObjectStore, prefix: str, key: str
) -> None:
    """Spaces, plus, percent, quotes and Unicode in keys are kept by put, get, list and delete."""
    store.put(prefix + key, key.encode())
    assert store.get(prefix + key, max_bytes=100).body == key.encode()
    assert [one.key for one in objects(store, prefix)] == [prefix + key]
    assert store.delete([prefix + key]) == {}
    assert list(objects(store, prefix)) == []


def test_what_is_absent_is_not_found(store: ObjectStore, key: str) -> None:
    """GET and HEAD of an absent key raise NotFound, which is a FileNotFoundError, and name it."""
    for read in (lambda: store.head(key), lambda: store.get(key, max_bytes=1)):
        with pytest.raises(NotFound) as caught:
            read()
        assert isinstance(caught.value, FileNotFoundError)
        assert (caught.value.status, caught.value.code) == (404, "NoSuchKey")
        assert (caught.value.bucket, caught.value.key) == (store.bucket, key)
        assert key in str(caught.value)


def test_a_larger_object_than_asked_for_is_refused(store: ObjectStore, key: str) -> None:
    """GET reads at most ``max_bytes``; a larger object is an error of its own code."""
    store.put(key, b"123456")
    with pytest.raises(InvalidRequest) as caught:
        store.get(key, max_bytes=5)
    assert caught.value.code == "TooLarge"
    assert store.get(key, max_bytes=6).body == b"123456"


def test_a_long_key_is_refused(store: ObjectStore, prefix: str) -> None:
    """Keys have at most 1,024 bytes of UTF-8, not characters."""
    with pytest.raises(InvalidRequest):
        store.put(prefix + "é" * 600, b"")


def test_large_metadata_is_refused(store: ObjectStore, key: str) -> None:
    """Metadata has at most 2 KiB, names included."""
    store.put(key, b"", metadata={"n": "x" * 2000})
    with pytest.raises(InvalidRequest):
        store.put(key, b"", metadata={"n": "x" * METADATA_BYTES_MAX})


def test_metadata_that_is_not_ascii_is_refused(store: ObjectStore, key: str) -> None:
    """Metadata travels in headers: what is not ASCII is refused, not changed."""
    with pytest.raises(InvalidRequest):
        store.put(key, b"", metadata={"n": "é"})


# Conditions ---------------------------------------------------------------------------------------


def test_if_none_match_writes_once(store: ObjectStore, key: str) -> None:
    """The second PUT ``If-None-Match: *`` fails and changes nothing."""
    store.put(key, b"first", if_none_match=True)
    with pytest.raises(PreconditionFailed) as caught:
        store.put(key, b"second", if_none_match=True)
    assert caught.value.status == 412
    assert store.get(key, max_bytes=10).body == b"first"


def test_if_match_swaps(store: ObjectStore, key: str) -> None:
    """PUT ``If-Match`` writes over the named version and over no other."""
    first = store.put(key, b"first").etag
    second = store.put(key, b"second", if_match=first).etag
    with pytest.raises(PreconditionFailed):
        store.put(key, b"third", if_match=first)
    assert store.get(key, max_bytes=10).body == b"second"
    assert same_etag(store.head(key).etag, second)


def test_if_match_on_an_absent_key_is_not_found(store: ObjectStore, key: str) -> None:
    """PUT ``If-Match`` creates nothing."""
    with pytest.raises(NotFound):
        store.put(key, b"x", if_match='"0123456789abcdef0123456789abcdef"')
    assert list(objects(store, key)) == []


def test_a_conditional_delete_takes_only_the_named_version(store: ObjectStore, key: str) -> None:
    """DELETE ``If-Match`` leaves what somebody has written since."""
    old = store.put(key, b"old").etag
    new = store.put(key, b"new").etag
    with pytest.raises(PreconditionFailed):
        store.delete_one(key, if_match=old)
    assert store.get(key, max_bytes=10).body == b"new"
    store.delete_one(key, if_match=new)
    assert list(objects(store, key)) == []


def test_deleting_what_is_absent_is_fine(store: ObjectStore, key: str) -> None:
    """Every delete may be repeated, the conditional one too."""
    store.delete_one(key)
    store.delete_one(key, if_match='"0123456789abcdef0123456789abcdef"')
    assert store.delete([key]) == {}
    assert store.delete([]) == {}


def test_one_of_many_creators_wins(store: ObjectStore, key: str) -> None:
    """Of 16 PUTs ``If-None-Match: *`` at once one writes, the others get 412."""
    _race(store, key, lambda body: store.put(key, body, if_none_match=True))


def test_one_of_many_swappers_wins(store: ObjectStore, key: str) -> None:
    """Of 16 PUTs ``If-Match`` one ETag at once one writes, the others get 412."""
    start = store.put(key, b"start").etag
    _race(store, key, lambda body: store.put(key, body, if_match=start))


def _race(store: ObjectStore, key: str, write: Callable[[bytes], object]) -> None:
    bodies = [f"writer {n}".encode() for n in range(16)]
    with closing(ThreadPool(16)) as pool:
        outcomes = list(pool.each(write, bodies, in_flight=16))
    (winner,) = [one.item for one in outcomes if one.error is None]
    assert {type(one.error) for one in outcomes if one.error} == {PreconditionFailed}
    assert store.get(key, max_bytes=100).body == winner
