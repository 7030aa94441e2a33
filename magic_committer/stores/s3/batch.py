"""Many requests from one thread, each sent once (`magic_committer.stores.base.Batch`).

The same requests as the verbs', read by the same checks, told by the same errors. Nothing is sent
again here, also not to another region: the caller does that by the verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from magic_committer._patience import errand, patience
from magic_committer._runtime import Clock
from magic_committer.errors import StoreError, Unanswered
from magic_committer.options import S3Options
from magic_committer.stores.base import (
    AbortUpload,
    Answer,
    Ask,
    CompleteUpload,
    FindUpload,
    Head,
    ListParts,
    UploadPage,
    Written,
    found_on,
)
from magic_committer.stores.s3.asking import seconds_max
from magic_committer.stores.s3.errors import SDK_ERRORS, kind, never_sent, translate
from magic_committer.stores.s3.http import HTTPAnswer, HTTPRequest, NoAnswer
from magic_committer.stores.s3.route import Parameters
from magic_committer.stores.s3.sockets import Deadline
from magic_committer.stores.s3.transport import Transport
from magic_committer.stores.s3.values import Reply, object_of, parts_of, seen_at_of, upload_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _InBatch:
    """A request that was handed over, and who asked."""

    name: Any
    ask: Ask
    parameters: Parameters
    request: HTTPRequest


class S3Batch:
    """Sends requests of one store by its fast way.

    Args:
        transport: the fast way.
        options, clock, bucket: the store's.
        parameters: the SDK's parameters for what is asked.
    """

    def __init__(
        self,
        transport: Transport,
        options: S3Options,
        clock: Clock,
        bucket: str,
        parameters: Callable[[Ask], Parameters],
    ) -> None:
        self._transport = transport
        self._options = options
        self._clock = clock
        self._bucket = bucket
        self._parameters = parameters

    def ask_each(
        self, asks: Iterable[tuple[T, Ask]], *, in_flight: Callable[[], int]
    ) -> Generator[tuple[T, Answer], None, None]:
        left = iter(asks)
        while True:
            # What is not sent ends the requests: who asks for an answer gets one before more are
            # taken, and may then take no more.
            refused: list[tuple[T, StoreError]] = []
            last: list[Ask] = []
            ended = self._transport.engine.send_each(
                self._requests(left, refused, last),
                in_flight=in_flight,
                deadline=partial(self._deadline, last),
            )
            with closing(ended):
                for asked, outcome in ended:
                    yield asked.name, self._told(asked, outcome)
            if not refused:
                return
            yield from refused

    def _requests(
        self, asks: Iterator[tuple[T, Ask]], refused: list[tuple[T, StoreError]], last: list[Ask]
    ) -> Iterator[tuple[_InBatch, HTTPRequest]]:
        """The requests, up to the first one that is not sent; that goes to ``refused``."""
        for name, ask in asks:
            try:
                parameters = self._parameters(ask)
                request = self._transport.request(_sdk_verb(ask), parameters)
            except SDK_ERRORS as error:
                refused.append((name, self._error(ask, error)))
                return
            if request is None:
                refused.append((name, self._not_here(ask)))
                return
            last[:] = [ask]
            yield _InBatch(name, ask, parameters, request), request

    def _deadline(self, last: list[Ask]) -> Deadline:
        """The deadline of the request that was made last."""
        (ask,) = last
        seconds, phase, verb = seconds_max(self._options), patience(), _verb(ask)
        left, alive = seconds, _nothing
        if phase is not None:
            left = min(seconds, phase.left(verb, self._clock.monotonic(), seconds))
            alive = _Alive(phase.answered, verb)
        completes = isinstance(ask, CompleteUpload)
        wait = self._options.complete_seconds_max if completes else self._options.read_seconds_max
        return Deadline(wait, left, errand=errand(), alive=alive)

    def _told(self, asked: _InBatch, outcome: HTTPAnswer | NoAnswer) -> Answer:
        verb = _sdk_verb(asked.ask)
        try:
            if isinstance(outcome, NoAnswer):
                self._transport.place(outcome, asked.request)
                raise outcome
            reply = self._transport.read(
                verb, asked.parameters, asked.request, outcome, sends_again=False
            )
        except SDK_ERRORS as error:
            if kind(error) not in ("throttled", "transient"):
                self._answered(asked.ask)
            return self._error(asked.ask, error)
        self._answered(asked.ask)
        return self._read(asked.ask, reply)

    def _read(self, ask: Ask, reply: Reply) -> Answer:
        if isinstance(ask, CompleteUpload):
            return Written(reply.get("ETag", ""), reply.get("VersionId"))
        if isinstance(ask, ListParts):
            return self._more_pages(ask) if reply.get("IsTruncated") else parts_of(reply)
        if isinstance(ask, FindUpload):
            listed = (upload_of(one) for one in reply.get("Uploads", ()))
            below = tuple(one for one in listed if one.key.startswith(ask.key))
            page = UploadPage(below, seen_at_of(reply, self._clock))
            found = found_on(page, ask)
            if found is None and reply.get("IsTruncated"):
                return self._more_pages(ask)
            return found or replace(page, uploads=())
        return object_of(ask.key, reply, self._clock) if isinstance(ask, Head) else Written("")

    def _answered(self, ask: Ask) -> None:
        phase = patience()
        if phase is not None:
            phase.answered(_verb(ask))

    def _error(self, ask: Ask, error: Exception) -> StoreError:
        told = translate(error, _verb(ask), self._bucket, ask.key, sent=not never_sent(error))
        told.__cause__ = error
        return told

    def _not_here(self, ask: Ask) -> StoreError:
        return self._unanswered(ask, "was not sent: only the SDK can send it")

    def _more_pages(self, ask: Ask) -> StoreError:
        return self._unanswered(ask, "was answered with the first of several pages")

    def _unanswered(self, ask: Ask, why: str) -> StoreError:
        return Unanswered(
            f"{_verb(ask)} s3://{self._bucket}/{ask.key} {why}",
            operation=_verb(ask),
            bucket=self._bucket,
            key=ask.key,
            attempts=0,
            sent=False,
            hint="Nothing took effect: ask by the store's verb",
        )


@dataclass(frozen=True, slots=True)
class _Alive:
    """Tells a phase that the store moves."""

    answered: Callable[[str], None]
    verb: str

    def __call__(self) -> None:
        self.answered(self.verb)


def _nothing() -> None:
    """There is no phase that waits."""


_VERBS: Mapping[type[Ask], tuple[str, str]] = {
    CompleteUpload: ("complete_upload", "CompleteMultipartUpload"),
    AbortUpload: ("abort_upload", "AbortMultipartUpload"),
    ListParts: ("list_parts", "ListParts"),
    Head: ("head", "HeadObject"),
    FindUpload: ("list_uploads", "ListMultipartUploads"),
}
"""For each ask the port's verb and the SDK's."""


def _verb(ask: Ask) -> str:
    return _VERBS[type(ask)][0]


def _sdk_verb(ask: Ask) -> str:
    return _VERBS[type(ask)][1]
