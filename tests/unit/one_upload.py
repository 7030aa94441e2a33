"""What the tests of one upload's end share: a store with one upload of ours, and its refusals."""

from __future__ import annotations

from collections.abc import Callable

from magic_committer.commit.sets import ReadyUpload
from magic_committer.errors import StoreError
from magic_committer.protocol.record import TOKEN_METADATA
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import Attributes, Checksum
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import PatientClock

KEY = "t/a.csv"
TOKEN = "job.attempt.1"


class World:
    """One store with one upload of ours.

    Attributes:
        refused: the verbs that are answered with an error.
        sent: the verbs, in order.
    """

    def __init__(self, store: MemoryStore, clock: PatientClock) -> None:
        self.clock, self.store = clock, store
        self.runtime = Runtime(store, clock=clock)
        self.upload = self.create(b"abc")
        self.refused: dict[str, StoreError] = {}
        self.sent: list[str] = []
        self._deeds: list[tuple[str, int, Callable[[], object]]] = []
        store.before = self._before

    def create(self, body: bytes, crc: Checksum | None = None) -> ReadyUpload:
        """An upload of one part."""
        made = self.store.create_upload(
            KEY,
            attributes=Attributes(metadata={TOKEN_METADATA: TOKEN}),
            checksum="CRC32" if crc else None,
        )
        part = self.store.put_part(KEY, made.upload_id, 1, memoryview(body), checksum=crc)
        return ReadyUpload(KEY, made.upload_id, TOKEN, "", (part,), len(body), crc)

    def _before(self, request: Request) -> None:
        self.sent.append(request.verb)
        for deed in list(self._deeds):
            verb, number, do = deed
            if request.verb == verb and self.sent.count(verb) == number:
                self._deeds.remove(deed)
                self.quietly(do)
        if request.verb in self.refused:
            raise self.refused[request.verb]

    def quietly(self, do: Callable[[], object]) -> None:
        """Somebody else does it."""
        self.store.before, before = None, self.store.before
        do()
        self.store.before = before

    def before(self, verb: str, number: int, do: Callable[[], object]) -> None:
        """Let somebody act before the n-th request of a verb."""
        self._deeds.append((verb, number, do))

    def complete(self) -> None:
        """Another executor completes it."""
        self.store.complete_upload(KEY, self.upload.upload_id, self.upload.parts)

    def drop(self) -> None:
        """Somebody has aborted it."""
        self.store.drop_upload(self.upload.upload_id)

    def overwrite(self) -> None:
        """Another program writes to its key."""
        self.store.put_object(KEY, b"theirs")
