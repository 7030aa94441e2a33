"""``magic://bucket/table/x``: a file of the ``with write("s3://bucket/table")`` that is open; and
``magic:///data/table/x`` of the ``with write("file:///data/table")``.

For libraries that take a URL and no file system. fsspec finds `MagicUrls` by the package's entry
point. Each call finds the open block by its destination and asks that block's `JobFileSystem`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from magic_committer.errors import OptionError
from magic_committer.filesystem import sink as sinks
from magic_committer.filesystem.job_files import JobFileSystem, copy_file
from magic_committer.filesystem.sink import PROTOCOL, Info, Sink

_systems: weakref.WeakKeyDictionary[Sink, JobFileSystem] = weakref.WeakKeyDictionary()
"""What is kept for reading is kept once for all URLs of a block."""


def _of_one_path(name: str) -> Callable[..., Any]:
    """The call of that name, of the file system that its path is in."""

    def call(self: MagicUrls, path: Any, *args: Any, **kwargs: Any) -> Any:
        system, below, _ = self._found(path)
        return getattr(system, name)(below, *args, **kwargs)

    return call


class MagicUrls(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """All open blocks as one file system. Its paths are ``bucket/key``, and ``/path`` for those of
    local disks."""

    protocol = PROTOCOL
    root_marker = ""
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(stringify_path(path))
        return text.removeprefix(f"{PROTOCOL}://").rstrip("/")

    def _found(self, path: Any) -> tuple[JobFileSystem, str, str]:
        """The file system that a path is in, the path there, and what goes before its names. Raises
        OptionError: no open block, or more than one, writes there."""
        path = self._strip_protocol(path)
        sink = sinks.sink_of(path)
        system = _systems.get(sink)
        if system is None:
            system = JobFileSystem(
                sink, unique=False, read_through=False, keep_bytes_max=sinks.KEEP_BYTES_MAX
            )
            _systems[sink] = system
        name = sinks.name_below(sink.home.roots, path)
        assert name is not None  # so the sink was found
        return system, name, sink.home.roots[0]

    def info(self, path: Any, **kwargs: Any) -> Info:
        system, name, above = self._found(path)
        return _named(system.info(name), above)

    def ls(self, path: Any, detail: bool = True, **kwargs: Any) -> list[Any]:
        system, name, above = self._found(path)
        found = [_named(one, above) for one in system.ls(name)]
        return found if detail else [one["name"] for one in found]

    open = _of_one_path("open")
    mkdir = _of_one_path("mkdir")
    makedirs = _of_one_path("makedirs")
    rmdir = _of_one_path("rmdir")
    created = _of_one_path("created")
    modified = _of_one_path("created")

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in self._strip_protocol(path) if isinstance(path, list) else [path]:
            system, name, _ = self._found(one)
            system.rm(name, recursive=recursive, maxdepth=maxdepth)

    def _rm(self, path: Any) -> None:
        self.rm(path)

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        copy_file(self, path1, path2)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        system, source, _ = self._found(path1)
        other, target, _ = self._found(path2)
        if other is not system:
            raise OptionError(
                f"{path1} and {path2} are files of two jobs: no file goes from one to the other",
                hint="Write it in the block of the job that publishes it",
            )
        system.mv(source, target, recursive=recursive, maxdepth=maxdepth, **kwargs)


def _named(info: Info, above: str) -> Info:
    return {**info, "name": f"{above}{info['name']}".rstrip("/")}
