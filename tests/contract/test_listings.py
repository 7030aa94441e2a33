"""Listings of objects: order, pages, delimiters; and deletes by the thousand."""

from __future__ import annotations

from contextlib import closing

import pytest

from magic_committer.runtime.threads import ThreadPool
from magic_committer.stores import tree
from magic_committer.stores.base import PAGE_KEYS_MAX, ObjectStore, objects
from magic_committer.stores.tree import TreeStore


def _fill(store: ObjectStore, prefix: str, names: list[str]) -> None:
    for name in names:
        store.put(prefix + name, name.encode())


def _names(store: ObjectStore, prefix: str, **asked: str) -> list[str]:
    return [one.key.removeprefix(prefix) for one in objects(store, prefix, **asked)]


def test_keys_come_in_the_order_of_their_bytes(store: ObjectStore, prefix: str) -> None:
    """Order is that of UTF-8, not of UTF-16 or of a language."""
    names = ["B", "a", "a/b", "a-b", "ab", "é", "\uffee", "\U0001f642"]
    _fill(store, prefix, names[::-1])
    assert _names(store, prefix) == sorted(names, key=str.encode)


def test_a_listing_tells_size_etag_and_time(store: ObjectStore, prefix: str) -> None:
    """An entry says what HEAD says, but for the metadata."""
    store.put(prefix + "k", b"bytes", metadata={"a": "b"})
    (entry,) = objects(store, prefix)
    head = store.head(prefix + "k")
    assert (entry.size, entry.etag, entry.last_modified) == (5, head.etag, head.last_modified)
    assert entry.metadata is None
    assert abs(entry.seen_at - entry.last_modified) < 60


def test_a_neighbour_is_not_listed(store: ObjectStore, prefix: str) -> None:
    """A prefix ends where it says: ``dataset1/`` holds nothing of ``dataset10/``."""
    _fill(store, prefix, ["dataset1/a", "dataset10/b", "dataset1"])
    assert _names(store, prefix + "dataset1/") == ["a"]


def test_an_empty_prefix_lists_nothing(store: ObjectStore, prefix: str) -> None:
    """Where there is nothing, pages are empty and the iteration ends."""
    pages = list(store.list(prefix + "nothing/"))
    assert [(page.objects, page.prefixes) for page in pages] == [((), ())] * len(pages)


def test_a_delimiter_folds_what_lies_deeper(store: ObjectStore, prefix: str) -> None:
    """With a delimiter each deeper directory is one common prefix, named once on all pages."""
    _fill(store, prefix, ["a", "d/1", "d/2", "d/3", "d/e/4", "f/5", "g", "h/6"])
    pages = list(store.list(prefix, delimiter="/"))
    assert [o.key.removeprefix(prefix) for page in pages for o in page.objects] == ["a", "g"]
    folded = [one.removeprefix(prefix) for page in pages for one in page.prefixes]
    assert folded == ["d/", "f/", "h/"]


def test_keys_keep_their_empty_elements(store: ObjectStore, prefix: str) -> None:
    """``d//x`` is not ``d/x``: each is listed, folded and deleted as it was written."""
    _fill(store, prefix, ["d//x", "d/x", "d//", "e///y"])
    assert _names(store, prefix) == ["d//", "d//x", "d/x", "e///y"]
    pages = list(store.list(f"{prefix}d/", delimiter="/"))
    assert [one for page in pages for one in page.prefixes] == [f"{prefix}d//"]
    assert [o.key for page in pages for o in page.objects] == [f"{prefix}d/x"]
    assert _names(store, f"{prefix}d//", delimiter="/") == ["", "x"]
    assert store.delete([f"{prefix}d//x"]) == {}
    assert _names(store, prefix) == ["d//", "d/x", "e///y"]


def test_a_key_may_begin_with_a_slash(store: ObjectStore, prefix: str) -> None:
    """``/x`` is a key like any other: in the bucket's root it lies below the prefix ``/``."""
    _fill(store, f"/{prefix}", ["x"])
    roots = {one for page in store.list("", delimiter="/") for one in page.prefixes}
    assert "/" in roots
    assert _names(store, f"/{prefix}") == ["x"]
    assert store.get(f"/{prefix}x", max_bytes=9).body == b"x"
    store.delete_one(f"/{prefix}x")
    assert _names(store, f"/{prefix}") == []


def test_a_listing_starts_after_a_key(store: ObjectStore, prefix: str) -> None:
    """``start_after`` leaves out that key and all before it, whether it exists or not."""
    _fill(store, prefix, ["a", "b", "c", "d"])
    assert _names(store, prefix, start_after=prefix + "b") == ["c", "d"]
    assert _names(store, prefix, start_after=prefix + "bb") == ["c", "d"]
    assert _names(store, prefix, start_after=prefix + "z") == []


def test_more_than_a_page_is_listed_and_deleted(
    store: ObjectStore, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,001 objects: once each, in order, on pages of 1,000; deleted in two batches, alone. Pages
    of a tree are its own: there they are of 50."""
    page = 50 if isinstance(store, TreeStore) else PAGE_KEYS_MAX
    monkeypatch.setattr(tree, "PAGE_KEYS_MAX", page)
    names = [f"{n:05}" for n in range(page + 1)]
    with closing(ThreadPool(8)) as pool:
        done = list(pool.each(lambda n: store.put(f"{prefix}d/{n}", b""), names, in_flight=8))
    assert [one.error for one in done if one.error] == []
    store.put(prefix + "d0", b"")
    pages = [page.objects for page in store.list(prefix + "d/")]
    assert max(map(len, pages)) <= page
    assert len(pages) > 1
    keys = [one.key for page in pages for one in page]
    assert keys == [f"{prefix}d/{name}" for name in names]
    assert store.delete(iter([*keys, prefix + "d/absent"])) == {}
    assert _names(store, prefix) == ["d0"]
