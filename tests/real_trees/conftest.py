"""One server of each kind for all tests of this folder, and a directory of its own for each test.

What cannot be had is skipped, and the last lines of the run say so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from magic_committer.stores.trees.base import FileTree
from magic_committer.stores.trees.dialects import tree_for
from tests.real_servers.getting import say_missing
from tests.real_servers.server import NoServer
from tests.real_trees import kinds

pytest.register_assert_rewrite("tests.unit.test_file_trees")
_numbers = itertools.count(1)
_missing: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "on(*kinds): on these file systems alone")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "served" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("on")
    names = [name for name in kinds.CHOICE.wanted() if only is None or name in only.args]
    metafunc.parametrize("served", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def served(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a file system's directory, started once."""
    kind: str = request.param
    if kind in _missing:
        pytest.skip(f"{kind}: {_missing[kind]}")
    try:
        with kinds.running(kind) as url:
            yield url
    except NoServer as error:
        _missing[kind] = str(error)
        pytest.skip(f"{kind}: {error}")


@pytest.fixture
def url(served: str) -> str:
    """The URL of a destination that does not exist yet."""
    return f"{served}/{next(_numbers)}/table"


@pytest.fixture
def tree(url: str) -> FileTree:
    """An empty destination."""
    tree = tree_for(url)
    tree.make_root()
    return tree


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    say_missing(terminalreporter, _missing)
