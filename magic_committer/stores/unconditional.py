"""A store without conditional writes, for ``conditional_writes="off"``.

Some stores refuse the headers of conditions, others ignore them. Without conditions the last write
always wins: S3A's guarantees. What the protocol decides by a condition is then decided by reading
first (`register.swap`). Two drivers at the same time can defeat that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

from magic_committer.stores.base import (
    Answer,
    Ask,
    CompleteUpload,
    Many,
    ObjectStore,
    Written,
    many_of,
    sent_once,
)

T = TypeVar("T")


def unconditional(store: ObjectStore) -> ObjectStore:
    """The same store, without any condition."""
    return cast("ObjectStore", _Unconditional(store))


class _Unconditional:
    """Hands everything on as it is, but for the conditions."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"Unconditional({self._store!r})"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def once(self) -> ObjectStore:
        return unconditional(sent_once(self._store))

    def put(self, key: str, body: bytes, **given: Any) -> Written:
        return self._store.put(key, body, **{**given, "if_none_match": False, "if_match": None})

    def delete_one(self, key: str, **given: Any) -> None:
        self._store.delete_one(key, **{**given, "if_match": None})

    def complete_upload(self, *named: Any, **given: Any) -> Written:
        return self._store.complete_upload(*named, **{**given, "if_none_match": False})

    def many(self) -> Many | None:
        return None if many_of(self._store) is None else self

    def ask_each(
        self, next_ask: Callable[[], tuple[T, Ask] | None], **given: Any
    ) -> Generator[tuple[T, Answer], None, None]:
        def without() -> tuple[T, Ask] | None:
            item = next_ask()
            if item is not None and isinstance(item[1], CompleteUpload):
                return item[0], item[1]._replace(if_none_match=False)
            return item

        many = many_of(self._store)
        assert many is not None
        return many.ask_each(without, **given)
