"""How much a run tries where there is no end to it: in CI a little, `make nightly` all.

What is drawn is drawn by a fixed seed, so that a failure of CI comes again; what only much shows,
the night finds. (Of tests with many parameters CI runs a part: ``--share``, in conftest.py.) And
`library`: what only the night has installed.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, TypeVar

import pytest

NIGHTLY = bool(os.environ.get("MAGIC_COMMITTER_NIGHTLY"))
_T = TypeVar("_T")


def most(nightly: _T, otherwise: _T) -> _T:
    """How much: at night, and in CI."""
    return nightly if NIGHTLY else otherwise


def library(name: str, environment: str = "recipes") -> Any:
    """A module that an environment of tools/apart.py has, and must have; elsewhere its tests are
    skipped without it."""
    if os.environ.get("MAGIC_COMMITTER_TEST_APART") == environment:
        return import_module(name)
    reason = f"no {name.partition('.')[0]}: make apart ONLY={environment}"
    return pytest.importorskip(name, reason=reason)
