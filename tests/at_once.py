"""Stores that take many requests from one thread, for tests: each is answered by its verb."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import Any

from magic_committer.errors import StoreError
from magic_committer.stores.base import Answer, Ask, ask_by_verb
from magic_committer.stores.memory import MemoryStore


class AtOnce(MemoryStore):
    """Keeps ``in_flight`` requests under way, and answers them in their order.

    Attributes:
        asked: each ask's type and key, in the order in which they were taken.
        most: how many were under way at once.
    """

    def __init__(self, **rules: Any) -> None:
        super().__init__(**rules)
        self.asked: list[tuple[str, str]] = []
        self.most = 0

    def many(self) -> Any:
        return self

    def ask_each(
        self,
        next_ask: Callable[[], tuple[Any, Ask] | None],
        *,
        in_flight: int,
        look_seconds: float = 0.0,
    ) -> Generator[tuple[Any, Answer], None, None]:
        under_way: list[tuple[Any, Ask]] = []
        while True:
            while len(under_way) < in_flight and (one := next_ask()) is not None:
                under_way.append(one)
                self.asked.append((type(one[1]).__name__, one[1].key))
            self.most = max(self.most, len(under_way))
            if not under_way:
                return
            item, ask = under_way.pop(0)
            yield item, self.answer(ask)

    def answer(self, ask: Ask) -> Answer:
        return _answer(self, ask)


class Overlapping:
    """Sends many requests to a store, each by a thread of its own: none waits for another one."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def ask_each(
        self,
        next_ask: Callable[[], tuple[Any, Ask] | None],
        *,
        in_flight: int,
        look_seconds: float = 0.2,
    ) -> Generator[tuple[Any, Answer], None, None]:
        answers: SimpleQueue[tuple[Any, Answer]] = SimpleQueue()
        flying = 0

        def send(item: Any, ask: Ask) -> None:
            answers.put((item, _answer(self._store, ask)))

        while True:
            while flying < in_flight and (one := next_ask()) is not None:
                flying += 1
                threading.Thread(target=send, args=one, daemon=True).start()
            if not flying:
                return
            try:
                answered = answers.get(timeout=look_seconds)
            except Empty:
                continue
            flying -= 1
            yield answered


def _answer(store: MemoryStore, ask: Ask) -> Answer:
    try:
        return ask_by_verb(store, ask)
    except StoreError as error:
        return error
