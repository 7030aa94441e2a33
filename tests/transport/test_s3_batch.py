"""A batch of S3's: what is not sent at all is told before more is taken."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, cast

import pytest
from botocore.exceptions import CredentialRetrievalError

from magic_committer._runtime import SystemClock
from magic_committer.errors import StoreError
from magic_committer.options import S3Options
from magic_committer.stores.base import Ask, Head
from magic_committer.stores.s3.batch import S3Batch
from magic_committer.stores.s3.transport import Transport


class Engine:
    """Sends nothing, but takes what there is, as far as it may."""

    def send_each(
        self, requests: Iterable[Any], *, in_flight: Callable[[], int], deadline: object
    ) -> Generator[Any, None, None]:
        """As the engine's."""
        yield from requests


class Refusing:
    """A transport without credentials, or that does not know the verb."""

    engine = Engine()

    def __init__(self, *, knows: bool) -> None:
        self._knows = knows

    def request(self, verb: str, parameters: object) -> None:
        """As the transport's."""
        if self._knows:
            raise CredentialRetrievalError(provider="role", error_msg="away")


@pytest.mark.parametrize("knows", [True, False])
def test_what_is_not_sent_is_told_before_more_is_taken(knows: bool) -> None:
    """Whoever asks may stop after so many failures: he hears of each before the next is taken, not
    of all when the source has ended."""
    taken = itertools.count()

    def asks() -> Iterator[tuple[int, Ask]]:
        for number in taken:
            yield number, Head(f"t/{number}")

    transport = cast(Transport, Refusing(knows=knows))
    batch = S3Batch(transport, S3Options(), SystemClock(), "bucket", lambda ask: {})
    answers = batch.ask_each(asks(), in_flight=lambda: 32)
    told = list(itertools.islice(answers, 3))
    assert [number for number, _ in told] == [0, 1, 2]
    assert all(isinstance(answer, StoreError) for _, answer in told)
    assert next(taken) == 3
