"""Each test runs on each store; what a store is known to get wrong must go wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from magic_committer.stores.base import ObjectStore
from tests.contract import stores

_prefixes = itertools.count(1)


@pytest.fixture(scope="session")
def moto_store() -> Iterator[ObjectStore]:
    """moto's server, one for all tests: it takes a second to start."""
    with stores.opened("moto") as opened:
        yield opened


@pytest.fixture(params=stores.NAMES)
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    """The store under test."""
    test = request.node.originalname
    if reason := stores.deviation(request.param, test):
        strict = not stores.by_chance(request.param, test)
        request.applymarker(pytest.mark.xfail(reason=f"{request.param}: {reason}", strict=strict))
    if request.param == "moto":
        yield request.getfixturevalue("moto_store")
    else:
        with stores.opened(request.param) as opened:
            yield opened


@pytest.fixture
def prefix(seed: int) -> str:
    """A prefix of the test's own."""
    return f"contract-{seed}/{next(_prefixes):04}/"
