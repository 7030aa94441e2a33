"""A set of 16-byte hashes in flat memory: 100,000 keys in 4 MiB, 10 million in 512 MiB.

It remembers two things for every file of a job: its destination came once, and its upload was seen
open. A Python set of strings would take ten times as much memory. A false hit needs two uploads
with the same 126 bits of Python's own hash (SipHash, by a secret of the process): 63 of the key, 63
of the id. BLAKE2b takes longer for so short a text.
"""

from __future__ import annotations

from array import array

_FULL = 0.7
_SLOTS_MIN = 1 << 10
_WORD = (1 << 64) - 1


class KeySet:
    """Strings that were added, by their hashes. Each can be ticked off once.

    Open addressing in two arrays of 64-bit words. The low bit of the second word is the tick, so
    126 bits distinguish keys. An empty slot is all zero.
    """

    def __init__(self, expected: int = 0, *, by_key: bool = False) -> None:
        """Make room for ``expected`` keys; the set grows beyond that. ``by_key``: `add_upload`
        tells of a second upload of a key; many uploads of few keys then take long."""
        self._slots = _SLOTS_MIN
        while self._slots * _FULL < expected:
            self._slots *= 2
        self._high = array("Q", bytes(8 * self._slots))
        self._low = array("Q", bytes(8 * self._slots))
        self._by_key = by_key
        self._count = 0
        self._ticked = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: str) -> bool:
        return self._high[self._find(*_hash(key))] != 0

    @property
    def unticked(self) -> int:
        """How many keys were added and not ticked off."""
        return self._count - self._ticked

    def add(self, key: str) -> bool:
        """Add a key. False if it was already there."""
        return self._put(*_hash(key)) is not None

    def add_upload(self, key: str, upload_id: str) -> bool:
        """Add the `upload_name` of an upload, to a set ``by_key``. False if one with the same key
        was already there, or with a key of the same 63 bits: look again."""
        return self._put(*_hash(key, upload_id)) is True

    def tick(self, key: str, upload_id: str = "") -> bool:
        """Tick a key, or an upload's name, off. False if it is not in the set."""
        slot = self._find(*_hash(key, upload_id))
        if not self._high[slot]:
            return False
        if not self._low[slot] & 1:
            self._low[slot] |= 1
            self._ticked += 1
        return True

    def ticked(self, key: str) -> bool:
        """Whether the key is in the set and was ticked off."""
        slot = self._find(*_hash(key))
        return bool(self._high[slot]) and bool(self._low[slot] & 1)

    def _find(self, high: int, low: int) -> int:
        mask = self._slots - 1
        slot = (high if self._by_key else high ^ low) >> 1 & mask
        while self._high[slot] and (self._high[slot] != high or self._low[slot] | 1 != low | 1):
            slot = (slot + 1) & mask
        return slot

    def _put(self, high: int, low: int) -> bool | None:
        """Note a hash. None if it was there; otherwise whether no other had its first word."""
        if self._count >= self._slots * _FULL:
            self._grow()
        highs, mask, first = self._high, self._slots - 1, True
        slot = (high if self._by_key else high ^ low) >> 1 & mask
        while there := highs[slot]:  # as `_find`, without a call for each key of a job
            if there == high:
                if self._low[slot] | 1 == low | 1:
                    return None
                first = False
            slot = (slot + 1) & mask
        highs[slot], self._low[slot] = high, low
        self._count += 1
        return first

    def _grow(self) -> None:
        old_high, old_low = self._high, self._low
        self._slots *= 2
        self._high = array("Q", bytes(8 * self._slots))
        self._low = array("Q", bytes(8 * self._slots))
        for high, low in zip(old_high, old_low, strict=True):
            if high:
                slot = self._find(high, low)
                self._high[slot], self._low[slot] = high, low


def _hash(key: str, upload_id: str = "") -> tuple[int, int]:
    # The high word is never 0, because 0 marks an empty slot. The tick starts cleared.
    if not upload_id:
        key, _, upload_id = key.partition("\0")  # `upload_name`
    return hash(key) & _WORD | 1, hash(upload_id or f"{key}\n") & _WORD & ~1
