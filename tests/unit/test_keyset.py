"""`KeySet`: the names of millions of uploads, by hash; whoever is taken for another is aborted."""

from __future__ import annotations

from typing import Any

import pytest

from magic_committer.protocol import plan
from magic_committer.protocol.plan import KeySet


def test_what_was_added_is_in_it_and_nothing_else() -> None:
    """Membership, through several growths of the table."""
    names = KeySet()
    keys = [f"t/{number}.csv\0id" for number in range(5000)]
    assert all(names.add(key) for key in keys)
    assert all(key in names for key in keys)
    assert not any(f"{key}x" in names for key in keys)
    assert len(names) == 5000


def test_the_second_upload_of_a_key_is_told() -> None:
    """Two uploads of one key are two names, and the second says so; other keys say nothing."""
    names = KeySet(by_key=True)
    told = [names.add_upload(*one) for one in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "2"))]
    assert (told, len(names)) == ([True, True, False, False], 3)
    assert "a\x001" in names
    assert "a\x003" not in names
    assert "a" not in names
    assert names.tick("a", "1")
    assert names.ticked("a\x001")
    assert not names.ticked("a\x002")


def test_many_uploads_of_one_key_are_found_at_once() -> None:
    """A program that leaks all its uploads at one key makes no look longer."""
    looks = 0

    class Counted(list[int]):
        def __getitem__(self, at: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().__getitem__(at)

    names, uploads = KeySet(), [f"t/latest\0{number}" for number in range(5000)]
    assert all(names.add(upload) for upload in uploads)
    names._high = Counted(names._high)  # type: ignore[assignment]
    assert all(names.tick(upload) for upload in uploads)
    assert looks < 20 * len(uploads)


def test_ticking_tells_what_is_in_the_set() -> None:
    """True for a key of the set, each time, and False for another; each is ticked off once."""
    names = KeySet(2)
    names.add("a")
    names.add("b")
    assert names.tick("a")
    assert names.tick("a")
    assert not names.tick("c")
    assert names.unticked == 1
    assert names.ticked("a")
    assert not names.ticked("b")
    assert not names.ticked("c")


def test_two_keys_are_one_by_both_words_of_their_hashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of keys that fall into one slot each word of the hash tells: none is taken for another."""
    far, farther = 2**40, 2**41  # beyond what chooses the slot
    hashes = {
        "a": (1, 2), "other high": (1 + far, 2), "other low": (1, 2 + far),
        "absent high": (1 + farther, 2), "absent low": (1, 2 + farther),
    }  # fmt: skip
    monkeypatch.setattr(plan, "_hash", lambda key, upload_id="": hashes[key])
    names = KeySet()
    for key in ("a", "other high", "other low"):
        assert names.add(key)
    assert [key for key in hashes if key in names] == ["a", "other high", "other low"]
    assert names.tick("other low")
    assert not names.ticked("a")
