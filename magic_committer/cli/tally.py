"""Open uploads, added up by class and age; of them the largest are kept. Memory does not grow."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from magic_committer.maintenance.uploads import FoundUpload, OwnerClass, Rules, deed

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class UploadClass:
    """What a class of uploads is called, and what it means."""

    title: str
    meaning: str


CLASSES: Mapping[OwnerClass, UploadClass] = {
    "live": UploadClass("Live job", "of a job of this library in which something changed lately"),
    "over": UploadClass("Job over", "of a job of this library that has ended or is dead"),
    "orphan": UploadClass("Orphan", "of a job of this library whose record is gone"),
    "hadoop": UploadClass("Hadoop", "named by a magic job of Hadoop"),
    "foreign": UploadClass("Foreign", "nothing tells whose it is"),
    "unknown": UploadClass("Unknown", "it cannot be told whose it is: something cannot be read"),
}
"""Every class, in the order in which they are told."""

AGES: Mapping[str, float | None] = {
    "< 1 h": HOUR,
    "< 1 d": DAY,
    "< 7 d": 7 * DAY,
    "< 30 d": 30 * DAY,
    "older": float("inf"),
    "unknown": None,
}
"""Every bucket of ages and its upper end in seconds; the last is of those without an age."""


@dataclass(slots=True)
class Sum:
    """Uploads added up; ``unsized`` of them are not in the bytes, ``unpriced`` not in the cost."""

    uploads: int = 0
    bytes: int = 0
    cost: float = 0.0
    unsized: int = 0
    unpriced: int = 0

    def add(self, upload: FoundUpload) -> None:
        """One more."""
        self.uploads += 1
        self.bytes += upload.bytes or 0
        self.cost += upload.dollars_per_month or 0.0
        self.unsized += upload.bytes is None
        self.unpriced += upload.dollars_per_month is None

    def __iadd__(self, other: Sum) -> Sum:
        self.uploads += other.uploads
        self.bytes += other.bytes
        self.cost += other.cost
        self.unsized += other.unsized
        self.unpriced += other.unpriced
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "uploads": self.uploads,
            "bytes": self.bytes,
            "bytes_unknown": self.unsized,
            "dollars_per_month": self.cost,
            "dollars_unknown": self.unpriced,
        }


class Tally:
    """The uploads under a path.

    Args:
        limit: of how many the details are kept: those with the most bytes, then the oldest.

    Attributes:
        removable: what ``magic-committer uploads abort`` would take, as it is without options.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._seen = 0
        self._sums: dict[tuple[OwnerClass, str], Sum] = {}
        self._heap: list[tuple[int, float, int, FoundUpload]] = []
        self.removable = Sum()

    def add(self, upload: FoundUpload) -> None:
        """Count one."""
        place = (upload.owner_class, bucket_of(upload.age))
        self._sums.setdefault(place, Sum()).add(upload)
        if deed(upload, Rules())[0] != "leave":
            self.removable.add(upload)
        self._seen += 1
        ranked = (upload.bytes or 0, upload.age or 0.0, -self._seen, upload)
        if len(self._heap) < self.limit:
            heapq.heappush(self._heap, ranked)
        elif self.limit:
            heapq.heappushpop(self._heap, ranked)

    def of(self, owner_class: OwnerClass, age: str) -> Sum:
        """Those of a class in a bucket of ages."""
        return self._sums.get((owner_class, age), Sum())

    def by_class(self, owner_class: OwnerClass) -> Sum:
        """Those of a class."""
        return _added(one for (name, _), one in self._sums.items() if name == owner_class)

    def by_age(self, age: str) -> Sum:
        """Those in a bucket of ages."""
        return _added(one for (_, name), one in self._sums.items() if name == age)

    @property
    def total(self) -> Sum:
        """All of them."""
        return _added(iter(self._sums.values()))

    def largest(self) -> list[FoundUpload]:
        """Those that are kept, the largest first, then the oldest."""
        return [upload for *_, upload in sorted(self._heap, reverse=True)]


def bucket_of(age: float | None) -> str:
    """The bucket that an age in seconds belongs to. Pure."""
    if age is None:
        return "unknown"
    return next(name for name, end in AGES.items() if end is not None and age < end)


def _added(sums: Iterator[Sum]) -> Sum:
    total = Sum()
    for one in sums:
        total += one
    return total
