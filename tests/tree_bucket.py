"""A directory that looks like the store in memory: the same hooks, counts and looks. The effects
are those of `magic_committer.stores.tree`.

So a test, or the simulator, that is written for `MemoryStore` runs on a tree by one parameter. What
is written there gets its time from the store's clock, which a test moves, and each write another
one: on a real disk no two of them are the same either.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, cast
from unittest.mock import patch

from magic_committer.commit.probe import trust_memory
from magic_committer.committers import base
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.errors import StoreError
from magic_committer.hadoop.paths import Destination
from magic_committer.runtime import wiring
from magic_committer.runtime.components import Clock
from magic_committer.stores import tree
from magic_committer.stores.base import (
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    ObjectInfo,
    ObjectPage,
    ObjectSlice,
    Part,
    StoredObject,
    UploadInfo,
    UploadPage,
    Written,
    objects,
    uploads,
)
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.stores.tree import TreeStore
from magic_committer.stores.trees import disk
from magic_committer.stores.trees.base import TreeEntry


class _Objects:
    """What the store holds, by key."""

    def __init__(self, store: TreeStore) -> None:
        self.store = store

    def __getitem__(self, key: str) -> ObjectInfo:
        return self.store.head(key)


class _Effects:
    """What `magic_committer.stores.memory_bucket.Bucket` is asked, by the store of a directory."""

    def __init__(self, store: TreeStore, page_keys: int) -> None:
        self.store, self.page_keys = store, page_keys
        self.objects = _Objects(store)

    def get(self, key: str, max_bytes: int) -> StoredObject:
        return self.store.get(key, max_bytes=max_bytes)

    def put(
        self, key: str, body: bytes, attributes: Attributes, *, etag: str = "", **conditions: Any
    ) -> Written:
        return self.store.put(key, body, metadata=attributes.metadata, **conditions)

    def delete_one(self, key: str, if_match: str | None, version_id: str | None) -> None:
        self.store.delete_one(key, if_match=if_match, version_id=version_id)

    def object_page(self, prefix: str, delimiter: str, bound: str) -> tuple[ObjectPage, str | None]:
        found: dict[str, Any] = {}
        for page in self.store.list(prefix, delimiter=delimiter):
            found.update({one.key: one for one in page.objects})
            found.update(dict.fromkeys(page.prefixes))
        names = sorted(name for name in found if name >= bound)
        here, more = names[: self.page_keys], names[self.page_keys :]
        shown = tuple(found[name] for name in here if found[name] is not None)
        groups = tuple(name for name in here if found[name] is None)
        return ObjectPage(shown, groups), more[0] if more else None

    def open(
        self, key: str, attributes: Attributes, checksum: ChecksumAlgorithm | None = None
    ) -> str:
        return self.store.create_upload(key, attributes=attributes, checksum=checksum).upload_id

    def put_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        body: bytes,
        digest: bytes,
        checksum: Checksum | None = None,
    ) -> Part:
        return self.store.put_part(key, upload_id, number, memoryview(body), checksum=checksum)

    def part_page(self, key: str, upload_id: str, after: int) -> tuple[Sequence[Part], int | None]:
        parts = [one for one in self.store.list_parts(key, upload_id) if one.number > after]
        page = parts[: self.page_keys]
        return page, page[-1].number if len(parts) > len(page) else None

    def complete(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        length: int | None,
        checksum: Checksum | None,
        if_none_match: bool,
    ) -> Written:
        return self.store.complete_upload(
            key, upload_id, parts, length=length, checksum=checksum, if_none_match=if_none_match
        )

    def upload_page(
        self, prefix: str, bound: tuple[str, int]
    ) -> tuple[UploadPage, tuple[str, int] | None]:
        found, at = list(uploads(self.store, prefix)), bound[1]
        more = at + self.page_keys
        page = UploadPage(tuple(found[at:more]), self.store._clock.now())
        return page, (prefix, more) if more < len(found) else None

    def copy_part(self, key: str, upload_id: str, number: int, source: ObjectSlice) -> Part:
        return self.store.put_part(key, upload_id, number, source)

    def abort(self, key: str, upload_id: str) -> None:
        self.store.abort_upload(key, upload_id)

    def __getattr__(self, name: str) -> Any:
        if name in ("head", "delete"):
            return getattr(self.store, name)
        raise AttributeError(name)


class TreeBucket(MemoryStore):
    """See the head. Arguments as for `MemoryStore`, and the directory.

    Looks and deeds for tests (`keys`, `put_object` and the others) are nobody's request here, too.
    """

    quick = False  # some of them wait for another thread of the commit

    def __init__(
        self,
        root: Path,
        bucket: str,
        *,
        clock: Clock,
        page_keys: int = 1000,
        ids: Callable[[], str] | None = None,
        **rules: Any,
    ) -> None:
        super().__init__(bucket, page_keys=page_keys, clock=clock.now, ids=ids, **rules)
        told = {"ids": ids} if ids is not None else {}
        self.root = root
        self.files = TreeStore(root, bucket, clock=clock, **told)
        self._bucket = cast(Any, _Effects(self.files, page_keys))
        self._lock = cast(Any, nullcontext())  # parts wait for each other

    def __repr__(self) -> str:
        return f"TreeBucket({str(self.root)!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.files, name)  # what a tree has beside the port

    @property
    def bucket(self) -> str:
        return self.files.bucket

    def keys(self, prefix: str = "") -> tuple[str, ...]:
        return tuple(one.key for one in objects(self.files, prefix))

    def body(self, key: str) -> bytes:
        try:
            return self.files.get(key, max_bytes=2**40).body
        except StoreError as error:
            raise KeyError(key) from error

    def attributes(self, key: str) -> Attributes:
        try:
            return Attributes(metadata=self.files.head(key).metadata or {})
        except StoreError as error:
            raise KeyError(key) from error

    def open_uploads(self, prefix: str = "") -> tuple[UploadInfo, ...]:
        found = uploads(self.files, prefix)
        return tuple(sorted(found, key=lambda one: (one.key, one.initiated or 0.0)))

    def put_object(
        self, key: str, body: bytes = b"", *, metadata: Mapping[str, str] | None = None
    ) -> str:
        return self.files.put(key, body, metadata=metadata).etag or ""

    def delete_object(self, key: str) -> None:
        self.files.delete_one(key)

    def start_upload(self, key: str, *, initiator: str = "another program") -> str:
        return self.files.create_upload(key, attributes=Attributes()).upload_id

    def drop_upload(self, upload_id: str) -> None:
        self.files.abort_upload(
            next(u.key for u in self.open_uploads() if u.upload_id == upload_id), upload_id
        )


def in_memory() -> str | None:
    """Where directories are in memory, if files keep marks there; None: the usual place."""
    try:
        with NamedTemporaryFile(dir="/dev/shm") as file:
            os.setxattr(file.name, "user.magic-committer", b"1")
    except OSError:
        return None
    return "/dev/shm"


@contextmanager
def stamped(now: Callable[[], float]) -> Iterator[None]:
    """While this lasts files get their times from a clock, and nothing is synced. Nobody judges the
    age of a file that has not got its time yet."""
    count, write_at, set_mark = itertools.count(1), disk.write_at, disk.set_mark
    made, remove_stale = disk.LocalTree.make, TreeStore._remove_stale
    making = threading.Lock()

    def stamp(descriptor: int) -> None:
        at = int(now() * 1e9) + next(count)
        os.utime(descriptor, ns=(at, at))

    def written(descriptor: int, *args: Any) -> int:
        done = write_at(descriptor, *args)
        stamp(descriptor)
        return done

    def marked(descriptor: int, mark: Mapping[str, Any]) -> None:
        if not os.fstat(descriptor).st_size:
            stamp(descriptor)
        set_mark(descriptor, mark)

    def make(self: disk.LocalTree, *args: Any) -> TreeEntry:
        with making:
            return made(self, *args)

    def judge(self: TreeStore, entry: TreeEntry, owner: str) -> None:
        with making:
            seen = self._tree.stat(entry.path)
        if seen is not None:
            remove_stale(self, seen, owner)

    with (
        patch.object(disk.LocalTree, "make", make),
        patch.object(TreeStore, "_remove_stale", judge),
        patch.object(disk, "write_at", written),
        patch.object(disk, "set_mark", marked),
        patch.object(disk, "sync", lambda *_, **__: None),
        patch.object(tree, "TURN_SECONDS", 0.05),
    ):
        yield


@contextmanager
def tree_bucket(root: Path, bucket: str, *, clock: Clock, **rules: Any) -> Iterator[TreeBucket]:
    """Use a directory for ``bucket``, as `magic_committer.testing.memory_store` does a dict."""
    store = TreeBucket(root, bucket, clock=clock, **rules)
    wiring.register_store(store, clock, other_buckets="raise")
    trust_memory(store.identity)
    try:
        with stamped(clock.now):
            yield store
    finally:
        wiring.unregister_store(store)


class JobsOfRenames(TreeBucket):
    """A directory whose jobs are of the committer ``manifest``: what their callers and tests call
    ``s3://bucket/t`` is the root of the tree, and no other destination is there."""

    PREFIX = "t/"

    def _send(self, request: Request, effect: Callable[[], Any]) -> Any:
        shown = replace(
            request,
            key=self.PREFIX + request.key if request.verb != "delete" else "",
            keys=tuple(self.PREFIX + key for key in request.keys),
        )
        return super()._send(shown, effect)

    def keys(self, prefix: str = "") -> tuple[str, ...]:
        found = (self.PREFIX + key for key in super().keys())
        return tuple(key for key in found if key.startswith(prefix))

    def body(self, key: str) -> bytes:
        return super().body(key.removeprefix(self.PREFIX))

    def attributes(self, key: str) -> Attributes:
        return super().attributes(key.removeprefix(self.PREFIX))

    def open_uploads(self, prefix: str = "") -> tuple[UploadInfo, ...]:
        found = (replace(one, key=self.PREFIX + one.key) for one in super().open_uploads())
        return tuple(one for one in found if one.key.startswith(prefix))

    def put_object(
        self, key: str, body: bytes = b"", *, metadata: Mapping[str, str] | None = None
    ) -> str:
        return super().put_object(key.removeprefix(self.PREFIX), body, metadata=metadata)

    def delete_object(self, key: str) -> None:
        super().delete_object(key.removeprefix(self.PREFIX))

    def start_upload(self, key: str, *, initiator: str = "another program") -> str:
        return super().start_upload(key.removeprefix(self.PREFIX))

    def drop_upload(self, upload_id: str) -> None:
        key = next(one.key for one in super().open_uploads() if one.upload_id == upload_id)
        self.files.abort_upload(key, upload_id)


@contextmanager
def jobs_of_renames(root: Path, *, clock: Clock) -> Iterator[JobsOfRenames]:
    """Use a directory for the destination ``s3://bucket/t``, with ``manifest`` as its committer."""
    url, parse = root.as_uri(), Destination.parse.__func__  # type: ignore[attr-defined]

    def parsed(cls: type[Destination], text: str) -> Destination:
        renamed = re.sub(r"\As3a?://bucket/t(?=/|\Z)", url, text) if isinstance(text, str) else text
        found: Destination = parse(cls, renamed)
        return found

    store = JobsOfRenames(root, url, clock=clock)
    wiring.register_store(store, clock, other_buckets="raise")
    trust_memory(store.identity)
    try:
        with (
            stamped(clock.now),
            patch.object(Destination, "parse", classmethod(parsed)),
            patch.object(base, "default_for", lambda _: "manifest"),
            patch.object(ManifestCommitter, "destination", classmethod(lambda _, dest: dest)),
        ):
            yield store
    finally:
        wiring.unregister_store(store)
