"""Each test runs on each store; what a store is known to get wrong must go wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from magic_committer.stores.base import ObjectStore
from tests.contract import stores

_prefixes = itertools.count(1)


@pytest.fixture(scope="session")
def moto_stores() -> Iterator[dict[str, ObjectStore]]:
    """moto's servers, one for all tests of a way: it takes a second to start."""
    with ExitStack() as opened:
        names = [name for name in stores.NAMES if name.startswith("moto")]
        yield {name: opened.enter_context(stores.opened(name)) for name in names}


@pytest.fixture(params=stores.NAMES)
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    test = request.node.originalname
    if reason := stores.deviation(request.param, test):
        strict = not stores.by_chance(request.param, test)
        request.applymarker(pytest.mark.xfail(reason=f"{request.param}: {reason}", strict=strict))
    if request.param.startswith("moto"):
        yield request.getfixturevalue("moto_stores")[request.param]
    else:
        with stores.opened(request.param) as opened:
            yield opened


@pytest.fixture
def prefix(request: pytest.FixtureRequest, seed: int) -> str:
    """A prefix of the test's own; on a tree also where the control objects of a job are."""
    directory = "__magic_job-" if "-control" in request.node.name else ""
    return f"{directory}contract-{seed}/{next(_prefixes):04}/"


@pytest.fixture
def key(prefix: str) -> str:
    """The one key of a test that needs no other."""
    return f"{prefix}k"
