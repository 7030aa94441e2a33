"""What a run tries of much that is alike: in CI a sample that stays the same, `make nightly` all.

The sample is drawn by a seed of its own, so that a failure of CI comes again; what only the whole
shows, the night finds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

NIGHTLY = bool(os.environ.get("MAGIC_COMMITTER_NIGHTLY"))
_T = TypeVar("_T")


def most(nightly: _T, otherwise: _T) -> _T:
    """How much: at night, and in CI."""
    return nightly if NIGHTLY else otherwise


def sample(cases: Sequence[_T], count: int, seed: int = 0) -> list[_T]:
    """At night all cases, otherwise so many, in their order."""
    if NIGHTLY or count >= len(cases):
        return list(cases)
    chosen = random.Random(seed).sample(range(len(cases)), count)
    return [cases[at] for at in sorted(chosen)]
