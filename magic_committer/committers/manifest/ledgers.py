"""The ledgers of streaming queries on a file tree: one file for each version, created exclusively.

::

    D/__magic_stream/<query>/_ledger-<n>.json

Beside ``_temporary``, which other committers delete. `protocol.ledger` has the rules of a ledger,
`commit.ledgers` what a write promises. Invariants:

* The ledger is the newest version, and a version never changes. A write creates the version behind
  the one that it leaves: of all processes that leave one version, one succeeds.
* **Old versions are deleted, and the newest one never is.** So a version that was not there at a
  create may have been deleted: a process that was paused creates, and wins nothing. Whoever has
  created one reads the ledger again, and has written only if its version is the newest.
* A reader begins at the newest version that a listing shows, and goes on by name: names do not lag.
  `VERSIONS_KEPT` stay, so a listing may lag by that many writes. A reader that went on by name
  lists again: while it stood still, what it goes on to may have been deleted, and a paused process
  may have created that name anew.
* A listing that shows no version proves nothing: then version 1 is asked for by its name. It stays.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from magic_committer.commit.ledgers import StoredLedger, decoded
from magic_committer.committers.manifest.parts import TRIES_MAX, Parts, RealDirectories
from magic_committer.errors import NotFound, PreconditionFailed, StoreError, Unanswered
from magic_committer.file_trees.base import make_directories
from magic_committer.hadoop.paths import MAGIC_STREAM, check_id
from magic_committer.protocol.ledger import LEDGER_BYTES_MAX, Ledger

logger = logging.getLogger("magic_committer")

VERSIONS_KEPT = 32
"""How many versions stay behind the newest one. A batch writes two."""
LOOKS_MAX = 8
"""How often a ledger is read again because the version that was to be read is deleted."""

_VERSION = re.compile(r"_ledger-([1-9][0-9]*)\.json")


class TreeLedgers:
    """The ledgers of a destination; see `Ledgers`.

    Args:
        parts: the components.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def place(self) -> str:
        """See `Ledgers.place`."""
        return self._parts.tree.url

    def key(self, query: str) -> str:
        """See `Ledgers.key`: the directory of its versions."""
        return f"{MAGIC_STREAM}/{check_id('query id', query)}"

    def read(self, query: str) -> StoredLedger:
        """See `Ledgers.read`. On a disk: two reads and a listing."""
        directory = self.key(query)
        self._check(directory)
        for _ in range(LOOKS_MAX):
            newest = listed = max(self._listed(directory), default=1)
            data = self._data(directory, newest)
            if data is None and newest == 1:
                return StoredLedger(directory, None, "")
            if data is None:
                continue  # deleted, since it was listed
            while (behind := self._data(directory, newest + 1)) is not None:
                data, newest = behind, newest + 1
            if newest > listed and newest < max(self._listed(directory), default=1):
                continue  # far behind
            path = _path(directory, newest)
            return StoredLedger(directory, decoded(data, path, query), str(newest))
        raise Unanswered(
            f"{self.place}{_path(directory, newest)} keeps changing", operation="read",
            bucket=self.place, key=directory,
            hint="Look whether it is a file: a link that leads nowhere is listed, and not found",
        )  # fmt: skip

    def write(self, leaves: StoredLedger, ledger: Ledger) -> bool:
        """See `Ledgers.write`."""
        parts, number = self._parts, int(leaves.version or "0") + 1
        directory = leaves.key
        path, data = _path(directory, number), ledger.encode()
        self._check(directory)
        if leaves.ledger is None:
            make_directories(parts.tree, directory)
            parts.tree.sync([], [directory, MAGIC_STREAM, ""])
        failure: StoreError | None = None
        for number_of_try in range(TRIES_MAX):
            try:
                parts.tree.create(path, data)
            except PreconditionFailed:
                pass  # perhaps by our own success
            except Unanswered as error:
                failure = error
            # Whether it was we, and whether it was in time: the newest version says both.
            now = self.read(ledger.query)
            if now.nonce == ledger.nonce:
                self._prune(directory, number)
                return True
            if now.version != leaves.version:
                return False
            parts.pause(number_of_try)
        raise failure or Unanswered(
            f"{self.place}{path} is there, and cannot be read", operation="create",
            bucket=self.place, key=path,
        )  # fmt: skip

    def _listed(self, directory: str) -> Iterator[int]:
        for entry in self._parts.tree.list(directory):
            if found := _VERSION.fullmatch(entry.name):
                yield int(found[1])

    def _data(self, directory: str, number: int) -> bytes | None:
        path = _path(directory, number)
        try:
            return self._parts.again(lambda: self._parts.tree.read(path, LEDGER_BYTES_MAX))
        except NotFound:
            return None

    def _check(self, directory: str) -> None:
        """See that no link leads out of the destination: raises InvalidRequest."""
        RealDirectories(self._parts).check(_path(directory, 1))

    def _prune(self, directory: str, newest: int) -> None:
        """Delete versions far behind the newest one, but the first. A failure is logged: the next
        write tries again."""
        try:
            for number in list(self._listed(directory)):
                if 1 < number < newest - VERSIONS_KEPT:
                    self._parts.tree.remove(_path(directory, number))
        except StoreError as error:
            logger.info("old versions of %s were left: %s", directory, error.message)


def _path(directory: str, number: int) -> str:
    return f"{directory}/_ledger-{number}.json"
