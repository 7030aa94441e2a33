"""fsspec's own abstract test suite, on a task's file system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.testing import memory_store

pytest.importorskip("fsspec")  # the extra `fsspec`

from fsspec.tests import abstract

SUITES = ("Copy", "Get", "Open", "Pipe", "Put")


class OnATask(abstract.AbstractFixtures):  # type: ignore[misc]  # fsspec has no types
    """The fixtures that fsspec wants of each implementation."""

    options: dict[str, Any] = {"unique": True, "read_through": True}  # noqa: RUF012  # never changed

    @pytest.fixture
    def fs(self) -> Iterator[object]:
        """The file system of a task that is never committed; no upload is left of it."""
        with memory_store() as store:
            job = mc.start("s3://bucket/t")
            yield job.task("1").filesystem(**self.options)
            job.abort()
            assert not store.open_uploads()

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        """Paths have slashes."""
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def fs_path(self) -> str:
        """Where the tests write."""
        return "base"


class OnATaskOfRenames(OnATask):
    """Of a local disk, where all can be read back: nothing needs to be kept."""

    options = {"keep_bytes_max": 0}  # noqa: RUF012

    @pytest.fixture
    def fs(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
        """The file system of a task that is never committed; nothing is left of it."""
        table = tmp_path_factory.mktemp("table")
        job = mc.start(table.as_uri())
        yield job.task("1").filesystem(**self.options)
        job.abort()
        assert [path for path in table.rglob("*") if path.is_file()] == []


for _base in (OnATask, OnATaskOfRenames):
    for _suite in SUITES:
        _name = f"Test{_suite}{_base.__name__}"
        globals()[_name] = type(
            _name, (_base, getattr(abstract, f"Abstract{_suite}Tests")), {"__module__": __name__}
        )
