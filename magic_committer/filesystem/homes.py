"""The destination of a task as a file system meets it: which paths mean it, and what it holds.

A `Home` only reads. What a committer keeps there for itself is not shown; nor is a link, or
anything behind one: whoever may write to the destination may have made it lead elsewhere.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO
from urllib.parse import unquote

from magic_committer.errors import InvalidRequest, NotFound
from magic_committer.hadoop.manifests import check_file_name
from magic_committer.hadoop.paths import (
    TEMPORARY,
    Destination,
    check_name,
    is_control_element,
    is_s3_url,
)
from magic_committer.options import MiB
from magic_committer.stores.base import ObjectInfo, ObjectStore
from magic_committer.stores.urls import is_tree, scheme_of, tree_url

PROTOCOL = "magic"
READ_BYTES_MAX = 64 * MiB
"""The largest object of a destination on S3 that is read, whole, with ``read_through``."""

Info = dict[str, Any]
"""What fsspec calls the details of a file or directory."""


def roots_of(dest: str) -> tuple[str, ...]:
    """What follows ``magic://`` in URLs of a destination. Pure.

    ``bucket/table/`` for a destination on S3; ``/data/table/`` or ``host/data/table/`` for one on a
    file system. The one of a file system may be given percent-encoded, too, as its URL is; names
    below it are taken as they are."""
    if is_s3_url(dest):
        place = Destination.parse(dest)
        return (f"{place.bucket}/{place.prefix}",)
    encoded = tree_url(dest).partition("://")[2]
    return tuple(dict.fromkeys((unquote(encoded), encoded)))


def name_below(roots: Sequence[str], path: str) -> str | None:
    """The name of a path below a destination; "": the destination itself; None: it is not below.
    Pure. ``path``: what follows the scheme."""
    whole = f"{path.rstrip('/')}/"
    for root in roots:
        if whole.startswith(root):
            return whole[len(root) :].rstrip("/")
    return None


def directory_info(name: str) -> Info:
    """The details of a directory."""
    return {"name": name, "type": "directory", "size": 0}


class Home:
    """A destination. URLs of ``schemes`` and ``roots`` mean it, as `roots_of` says; ``holds``: what
    a file is called there."""

    def __init__(self, dest: Destination, store: ObjectStore) -> None:
        self.url = dest.url
        self.roots = roots_of(dest.url)
        tree = self._tree = is_tree(dest.bucket)
        self.holds = "file" if tree else "object"
        schemes = (scheme_of(dest.bucket),) if tree else ("s3", "s3a", "s3n")
        self.schemes = frozenset((PROTOCOL, *schemes))
        self.check = check_file_name if tree else check_name  # of a name; raises PathError
        self._dest = dest
        self._store = store

    def look(self, name: str) -> Info | None:
        """What is there under a name; None: nothing."""
        if self._is_control(name):
            return None
        key = self._dest.prefix + name
        try:
            return self._of_object(self._store.head(key))
        except NotFound:
            pass
        except InvalidRequest as error:
            if error.code != "NoFile":  # a link, a socket and so on
                raise
            return None
        for page in self._store.list(f"{key}/"):
            if any(not self._is_control(self._dest.relative(one.key)) for one in page.objects):
                return directory_info(name)
        return None

    def children(self, name: str) -> Iterator[Info]:
        """What is directly in a directory."""
        prefix = self._dest.prefix + (f"{name}/" if name else "")
        for page in self._store.list(prefix, delimiter="/"):
            for one in page.objects:
                if one.key != prefix:
                    yield self._of_object(one)
            for directory in page.prefixes:
                below = self._dest.relative(directory.removesuffix("/"))
                if not self._is_control(below):
                    yield directory_info(below)

    def reader(self, name: str) -> BinaryIO:
        """Open a file for reading, with seeks. Raises InvalidRequest if it is too large."""
        try:
            found = self._store.get(self._dest.key(name), max_bytes=READ_BYTES_MAX)
        except InvalidRequest as error:
            if error.code == "TooLarge":
                error.advice = (
                    f"Read objects of more than {READ_BYTES_MAX:,} bytes with a file system of S3"
                )
            raise
        return io.BytesIO(found.body)

    def _is_control(self, name: str) -> bool:
        elements = name.split("/")
        works = elements[0] == TEMPORARY and self._tree
        return works or any(map(is_control_element, elements))

    def _of_object(self, one: ObjectInfo) -> Info:
        name = self._dest.relative(one.key)
        return {
            "name": name, "type": "file", "size": one.size, "mtime": one.last_modified,
            "ETag": one.etag, "pending": False,
        }  # fmt: skip
