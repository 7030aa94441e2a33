"""A store without conditional writes, for ``conditional_writes="off"``.

Some stores refuse the headers of conditions, others ignore them. Without conditions the last write
always wins: S3A's guarantees. What the protocol decides by a condition is then decided by reading
first (`records.swap`). Two drivers at the same time can defeat that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from magic_committer.errors import StoreError
from magic_committer.stores.base import (
    Answer,
    Ask,
    Attributes,
    Checksum,
    ChecksumAlgorithm,
    CompleteUpload,
    CreatedUpload,
    Many,
    ObjectInfo,
    ObjectPage,
    ObjectStore,
    Part,
    PartBody,
    Sending,
    StoredObject,
    UploadPage,
    Written,
    many_of,
    sent_once,
)

T = TypeVar("T")


class _UnconditionalMany:
    """Many requests at once, without any condition."""

    def __init__(self, many: Many) -> None:
        self._many = many

    def ask_each(
        self, next_ask: Callable[[], tuple[T, Ask] | None], *, in_flight: int
    ) -> Generator[tuple[T, Answer], None, None]:
        def unconditional() -> tuple[T, Ask] | None:
            item = next_ask()
            if item is not None and isinstance(item[1], CompleteUpload):
                return item[0], replace(item[1], if_none_match=False)
            return item

        return self._many.ask_each(unconditional, in_flight=in_flight)


class Unconditional:
    """Another store, without any condition."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"Unconditional({self._store!r})"

    @property
    def bucket(self) -> str:
        return self._store.bucket

    def once(self) -> Unconditional:
        """The same, over a store that sends each request once."""
        return Unconditional(sent_once(self._store))

    @property
    def transport(self) -> tuple[str, str]:
        return self._store.transport if isinstance(self._store, Sending) else ("", "")

    @property
    def identity(self) -> str:
        return self._store.identity

    # With conditions: without them

    def put(
        self,
        key: str,
        body: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str | None = None,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> Written:
        return self._store.put(key, body, metadata=metadata, content_type=content_type)

    def delete_one(
        self, key: str, *, if_match: str | None = None, version_id: str | None = None
    ) -> None:
        self._store.delete_one(key, version_id=version_id)

    def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        length: int | None = None,
        checksum: Checksum | None = None,
        if_none_match: bool = False,
    ) -> Written:
        return self._store.complete_upload(key, upload_id, parts, length=length, checksum=checksum)

    def many(self) -> Many | None:
        many = many_of(self._store)
        return None if many is None else _UnconditionalMany(many)

    # As they are

    def get(self, key: str, *, max_bytes: int) -> StoredObject:
        return self._store.get(key, max_bytes=max_bytes)

    def head(self, key: str) -> ObjectInfo:
        return self._store.head(key)

    def delete(self, keys: Iterable[str]) -> Mapping[str, StoreError]:
        return self._store.delete(keys)

    def list(
        self, prefix: str, *, delimiter: str = "", start_after: str = ""
    ) -> Iterator[ObjectPage]:
        return self._store.list(prefix, delimiter=delimiter, start_after=start_after)

    def create_upload(
        self, key: str, *, attributes: Attributes, checksum: ChecksumAlgorithm | None = None
    ) -> CreatedUpload:
        return self._store.create_upload(key, attributes=attributes, checksum=checksum)

    def put_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        body: PartBody,
        *,
        checksum: Checksum | None = None,
    ) -> Part:
        return self._store.put_part(key, upload_id, number, body, checksum=checksum)

    def list_parts(self, key: str, upload_id: str) -> Sequence[Part]:
        return self._store.list_parts(key, upload_id)

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._store.abort_upload(key, upload_id)

    def list_uploads(self, prefix: str) -> Iterator[UploadPage]:
        return self._store.list_uploads(prefix)
