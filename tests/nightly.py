"""How much a run tries where there is no end to it: in CI a little, `make nightly` all.

What is drawn is drawn by a fixed seed, so that a failure of CI comes again; what only much shows,
the night finds. (Of tests with many parameters CI runs a part: ``--share``, in conftest.py.)
"""

from __future__ import annotations

import os
from typing import TypeVar

NIGHTLY = bool(os.environ.get("MAGIC_COMMITTER_NIGHTLY"))
_T = TypeVar("_T")


def most(nightly: _T, otherwise: _T) -> _T:
    """How much: at night, and in CI."""
    return nightly if NIGHTLY else otherwise
