"""Open uploads, added up by class, and the command that removes what is old and not ours."""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from magic_committer._quantities import bytes_words, counted, duration
from magic_committer.maintenance.uploads import OLD_SECONDS, FoundUpload, OwnerClass, Rules, deed

CLASSES: Mapping[OwnerClass, tuple[str, str]] = {
    "live": ("Live job", "of a job of this library in which something changed lately"),
    "over": ("Job over", "of a job of this library that has ended or is dead"),
    "orphan": ("Orphan", "of a job of this library whose record is gone"),
    "hadoop": ("Hadoop", "named by a magic job of Hadoop"),
    "foreign": ("Foreign", "nothing tells whose it is"),
    "unknown": ("Unknown", "it cannot be told whose it is: something cannot be read"),
}
"""Every class in the order of reports: its title and its meaning."""


class Advice(NamedTuple):
    """A sentence, and the command that does it."""

    words: str
    command: str

    def __str__(self) -> str:
        return f"{self.words} `{self.command}`"


@dataclass(slots=True)
class Sum:
    """Uploads added up; the bytes lack ``unsized`` of them."""

    uploads: int = 0
    bytes: int = 0
    unsized: int = 0

    def add(self, upload: FoundUpload) -> None:
        """Count one more."""
        self.uploads += 1
        self.bytes += upload.bytes or 0
        self.unsized += upload.bytes is None

    def stored(self) -> str:
        """Return the bytes in words; "" if none is known."""
        least = "at least " if self.unsized else ""
        return f"{least}{bytes_words(self.bytes)}" if self.unsized < self.uploads else ""

    def words(self, noun: str = "") -> str:
        """Return ``"3 uploads, 1.2 GiB"``, with ``noun`` for "upload"; without it the numbers."""
        count = counted(self.uploads, noun) if noun else f"{self.uploads:,}"
        return ", ".join(filter(None, (count, self.stored())))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "uploads": self.uploads, "bytes": self.bytes, "bytes_unknown": self.unsized,
        }  # fmt: skip


@dataclass(slots=True)
class Sums:
    """The uploads of one path or several.

    Attributes:
        limit: how many are kept as ``largest``: those with the most bytes, then the oldest.
        removable: what `uploads abort` removes without options.
        old: what it removes with ``--foreign`` or ``--hadoop`` only, from `OLD_SECONDS` on.
        near: the same where a job that may be alive writes: with ``--beside-live-jobs``, too.
        older_than: the age of ``old`` in seconds, if the user gave a greater one.
    """

    limit: int = 0
    older_than: float = OLD_SECONDS
    all: Sum = field(default_factory=Sum)
    by_class: dict[OwnerClass, Sum] = field(default_factory=dict)
    removable: Sum = field(default_factory=Sum)
    old: dict[OwnerClass, Sum] = field(default_factory=dict)
    near: Sum = field(default_factory=Sum)
    _heap: list[tuple[int, float, int, FoundUpload]] = field(default_factory=list)

    def add(self, upload: FoundUpload) -> None:
        """Count one more."""
        self.all.add(upload)
        self.by_class.setdefault(upload.owner_class, Sum()).add(upload)
        if deed(upload, Rules())[0] != "leave":
            self.removable.add(upload)
        elif self.is_old(upload) and upload.owner_class == "foreign" and upload.near:
            self.near.add(upload)
        elif self.is_old(upload):
            self.old.setdefault(upload.owner_class, Sum()).add(upload)
        ranked = (upload.bytes or 0, upload.age or 0.0, -self.all.uploads, upload)
        if len(self._heap) < self.limit:
            heapq.heappush(self._heap, ranked)
        elif self.limit:
            heapq.heappushpop(self._heap, ranked)

    def is_old(self, upload: FoundUpload) -> bool:
        """Return whether an upload is another program's, and old."""
        others = upload.owner_class in ("foreign", "hadoop")
        return others and deed(upload, Rules(self.older_than, True, True, True))[0] == "abort"

    def of(self, owner_class: OwnerClass) -> Sum:
        """Return the sum of a class."""
        return self.by_class.get(owner_class, Sum())

    def largest(self) -> list[FoundUpload]:
        """Return those that are kept, the largest first, then the oldest."""
        return [upload for *_, upload in sorted(self._heap, reverse=True)]

    def advice(self, path: str, way: Sequence[str], filters: Sequence[str] = ()) -> Advice | None:
        """Return what is old and not ours, and the command that removes it; None if nothing is.

        Args:
            path: the URL for the command. way: options that lead to the same store.
            filters: options of `uploads abort`.
        """
        held = [one.words(f"{name} upload") for name, one in sorted(self.old.items())]
        flags = [f"--{name}" for name in sorted(self.old)]
        if self.near.uploads:
            held.append(f"{self.near.words('foreign upload')}, where a live job writes")
            if self.old:
                held[-1] += " (--beside-live-jobs takes them too)"
            else:
                flags = ["--foreign", "--beside-live-jobs"]
        if not held:
            return None
        age = duration(self.older_than)
        line = [*way, "uploads", "abort", path, *flags, "--older-than", age, *filters]
        return Advice(
            f"Of other programs and older than {age}: {'; '.join(held)}."
            " If nobody still writes them, remove them:",
            f"magic-committer {shlex.join(line)}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **self.all.to_dict(),
            "by_class": {name: one.to_dict() for name, one in self.by_class.items()},
            "old": {name: one.to_dict() for name, one in self.old.items()},
            "old_near": self.near.to_dict(),
        }
