"""Where the ledger of a streaming query is: read it, and replace one version of it by the next.

`magic_committer.protocol.ledger` has the rules, `magic_committer.commit.batches` what a job does by
them. Here is the port, `Ledgers`, and the ledgers of a store; those of file trees are in
`magic_committer.committers.manifest.ledgers`. Invariants of both:

* A write is conditional on the exact version that it leaves. After an unclear answer the ledger is
  read back. If it has changed, by us or by others, it says what comes next.
* On a store the condition is the ETag (``If-None-Match: *`` for the first version), and an
  unanswered write is sent again while the version that it leaves is still there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from magic_committer._runtime import Runtime
from magic_committer.commit.records import (
    SWAP_TRIES_MAX,
    is_final,
    may_still_land,
    other_quoting,
    pause,
)
from magic_committer.errors import FormatError, NotFound, PreconditionFailed, StoreError
from magic_committer.hadoop.paths import Destination
from magic_committer.protocol.ledger import LEDGER_BYTES_MAX, Ledger


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger as it is stored. ``version`` is the ETag that a write must leave."""

    key: str
    ledger: Ledger | None
    version: str

    @property
    def nonce(self) -> str:
        """The nonce of this version; "" if there is no ledger."""
        return "" if self.ledger is None else self.ledger.nonce


class Ledgers(Protocol):
    """The ledgers of one destination."""

    @property
    def place(self) -> str:
        """The bucket, or the root's URL, for errors."""
        ...

    def key(self, query: str) -> str:
        """Where the ledger of a query is, for people."""
        ...

    def read(self, query: str) -> StoredLedger:
        """Read the ledger of a query."""
        ...

    def write(self, leaves: StoredLedger, ledger: Ledger) -> bool:
        """Replace one version of a ledger by the next."""
        ...


def decoded(data: bytes, key: str, query: str) -> Ledger:
    """Read the bytes of a ledger. Pure."""
    ledger = Ledger.decode(data, key)
    if ledger.query != query:
        raise FormatError(key, "query", f"is {ledger.query!r}: the ledger of another query")
    return ledger


class StoreLedgers:
    """The ledgers of a destination on a store: one object for each query."""

    def __init__(self, runtime: Runtime, dest: Destination) -> None:
        self._runtime = runtime
        self._dest = dest

    @property
    def place(self) -> str:
        """See `Ledgers.place`."""
        return self._dest.bucket

    def key(self, query: str) -> str:
        """See `Ledgers.key`."""
        return self._dest.ledger(query)

    def read(self, query: str) -> StoredLedger:
        """See `Ledgers.read`. One GET."""
        key = self.key(query)
        try:
            stored = self._runtime.store.get(key, max_bytes=LEDGER_BYTES_MAX)
        except NotFound:
            return StoredLedger(key, None, "")
        return StoredLedger(key, decoded(stored.body, key, query), stored.info.etag)

    def write(self, leaves: StoredLedger, ledger: Ledger) -> bool:
        """See `Ledgers.write`."""
        store, etag, doubtful = self._runtime.store, leaves.version, False
        body = ledger.encode()
        for number in range(SWAP_TRIES_MAX):
            try:
                if leaves.ledger is None:
                    store.put(leaves.key, body, if_none_match=True)
                else:
                    store.put(leaves.key, body, if_match=etag)
                return True
            except StoreError as error:
                doubtful = doubtful or may_still_land(error)
                if not doubtful and is_final(error):
                    raise
                failure = error
            now = self.read(ledger.query)
            if now.nonce != leaves.nonce:
                return False
            if isinstance(failure, PreconditionFailed) and etag:
                etag = other_quoting(etag)
            pause(self._runtime, number)
        raise failure
